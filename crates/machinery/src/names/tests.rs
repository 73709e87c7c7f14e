use proptest::prelude::*;
use serde_json::json;

use super::ip::{Strictness, cidr_warnings, ip_warning, validate_cidr, validate_interface_address, validate_ip};
use super::*;
use crate::field::Path;

fn check(rule: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
    for text in good {
        assert_eq!(rule(text), Vec::<String>::new(), "{text}");
    }
    for text in bad {
        assert_ne!(rule(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn names_of_each_kind() {
    let long = "a".repeat(64);
    let longer = "a".repeat(254);
    check(dns1123_label, &["a", "0", "a-b", "1-2"], &["", "-a", "a-", "A", "a.b", "a_b", "ä", &long]);
    check(dns1123_subdomain, &["a", "a.b-c.0", &long], &["", ".", "a..b", "a.", ".a", "a.-b", "A", "a b", &longer]);
    check(dns1123_subdomain_with_underscore, &["_a.b_c", "a"], &["__a", "a_", "A", ""]);
    check(dns1035_label, &["a", "a-1"], &["", "1a", "a-", "a.b", &long]);
    check(wildcard_dns1123_subdomain, &["*.a", "*.a.b"], &["*", "*.", "a.b", "*.*.a", "**.a"]);
    check(qualified_name, &["a", "A.b_c", "a.b/c", "1/2"], &["", "/a", "a/", "a/b/c", "A/b", "-a", "a-", &long]);
    check(label_value, &["", "a", "A_b.c"], &["-", "a/b", "a ", &long]);
    check(c_identifier, &["a", "_", "A1"], &["", "1a", "a-b"]);
    check(port_name, &["a", "a-1", "1a"], &["", "1", "-a", "a-", "a--b", "A", "abcdefghijklmnop"]);
    check(percent, &["1%", "0100%"], &["", "%", "1", "-1%", "1.5%"]);
    check(http_header_name, &["X-A"], &["", "X A", "X_A"]);
    check(env_var_name, &["a", "-.", "A_1"], &["", "1a", "a=b", ".", "..", "..a"]);
    check(relaxed_env_var_name, &["a b", "1", "~"], &["", "a=b", "ä", "\t"]);
    check(config_map_key, &["a", "A_b.c-1", ".a"], &["", ".", "..", "..a", "a/b", &longer]);
    check(path_segment_name, &["a:b", "..."], &[".", "..", "a/b", "a%b"]);
    check(decimal_integer, &["0", "-1", "10"], &["", "-", "-0", "01", "+1", "1a"]);
}

#[test]
fn messages() {
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    assert_eq!(dns1123_subdomain("A"), [subdomain]);
    assert_eq!(qualified_name("A/b"), [format!("prefix part {subdomain}")]);
    assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    assert_eq!(
        dns1035_label("1"),
        [
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
          and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
          '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
    assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
}

#[test]
fn prefixes_may_end_in_a_dash() {
    assert!(name_is_subdomain("web-", true).is_empty());
    assert!(!name_is_subdomain("web-", false).is_empty());
    assert!(!name_is_subdomain("-", true).is_empty());
    assert!(!name_is_subdomain("ä-", true).is_empty());
    assert!(name_is_path_segment("..", true).is_empty());
}

#[test]
fn generated_names() {
    let mut next = 0x0123_4567_89ab_cdef_u64;
    let mut random = || {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        next
    };
    let name = generate_name(&"x".repeat(100), &mut random);
    assert_eq!(name.len(), 63);
    assert!(name[..58].bytes().all(|byte| byte == b'x'));
    assert!(name[58..].bytes().all(|byte| ALPHABET.contains(&byte)));
    assert_ne!(generate_name("a-", &mut random), generate_name("a-", &mut random));
    assert_eq!(generate_name("a-", || u64::MAX).len(), 7);
    assert_eq!(generate_name(&"ä".repeat(40), random).chars().count(), 34);
}

#[test]
fn domains() {
    let path = Path::root("f");
    let count = |rule: fn(&Path, &str) -> field::Errors, text: &str| rule(&path, text).len();
    for (rule, good, bad) in [
        (fully_qualified_name as fn(&Path, &str) -> field::Errors, "a.b.c", "a.b"),
        (fully_qualified_domain_name, "a.b.", "a"),
        (domain_prefixed_path, "a.b/C/d", "a.b/"),
        (domain_prefixed_path, "a/:", "a/\\"),
        (domain_prefixed_key, "a.b/C", "a.b"),
        (domain_prefixed_key, "a/b", ""),
    ] {
        assert_eq!((count(rule, good), count(rule, bad)), (0, 1), "{good} {bad}");
    }
}

#[test]
fn addresses() {
    let path = Path::root("f");
    for (text, canonical, strict, sloppy) in [
        ("10.0.0.1", 0, 0, 0),
        ("2001:db8::1", 0, 0, 0),
        ("2001:DB8::1", 1, 0, 0),
        ("2001:db8:0:0::1", 1, 0, 0),
        ("010.0.0.1", 1, 1, 0),
        ("::ffff:1.2.3.4", 1, 1, 0),
        ("::", 0, 0, 0),
        ("1.2.3", 1, 1, 1),
        ("1.2.3.256", 1, 1, 1),
        ("fe80::1%eth0", 1, 1, 1),
        ("1.2..4", 1, 1, 1),
        ("", 1, 1, 1),
    ] {
        let count = |strictness| validate_ip(&path, text, strictness).len();
        let counts = (count(Strictness::Canonical), count(Strictness::Strict), count(Strictness::Sloppy));
        assert_eq!(counts, (canonical, strict, sloppy), "{text}");
    }
    for (text, canonical, strict, sloppy) in [
        ("10.0.0.0/8", 0, 0, 0),
        ("10.0.0.1/8", 1, 1, 0),
        ("10.0.0.0/08", 1, 1, 0),
        ("2001:db8::/32", 0, 0, 0),
        ("2001:DB8::/32", 1, 0, 0),
        ("0.0.0.0/0", 0, 0, 0),
        ("::/0", 0, 0, 0),
        ("10.0.0.0/33", 1, 1, 1),
        ("10.0.0.0/", 1, 1, 1),
        ("10.0.0.0", 1, 1, 1),
        ("::/129", 1, 1, 1),
    ] {
        let count = |strictness| validate_cidr(&path, text, strictness).len();
        let counts = (count(Strictness::Canonical), count(Strictness::Strict), count(Strictness::Sloppy));
        assert_eq!(counts, (canonical, strict, sloppy), "{text}");
    }
    assert!(validate_interface_address(&path, "10.9.8.7/24").is_empty());
    assert_eq!(ip_warning(&path, "10.0.0.1"), None);
    assert_eq!(
        ip_warning(&path, "010.0.0.1").as_deref(),
        Some("f: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"")
    );
    assert_eq!(
        cidr_warnings(&path, "10.0.0.1/8"),
        ["f: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"]
    );
}

#[test]
fn shares() {
    for (value, total, up, expected) in [
        (json!(3), 10, false, Ok(3)),
        (json!("25%"), 10, false, Ok(2)),
        (json!("25%"), 10, true, Ok(3)),
        (json!("100%"), 0, true, Ok(0)),
        (json!("x"), 10, true, Err(())),
        (json!(1.5), 10, true, Err(())),
        (json!(null), 10, true, Err(())),
    ] {
        assert_eq!(scaled_int_or_percent(&value, total, up).map_err(|_| ()), expected, "{value}");
    }
}

proptest! {
    #[test]
    fn what_is_generated_from_a_good_base_is_good(base in "[a-z]([-a-z0-9]{0,70}[a-z0-9])?-?", seed: u64) {
        let mut seed = seed;
        prop_assume!(name_is_label(&base[..base.len().min(58)], true).is_empty());
        let name = generate_name(&base, || { seed = seed.wrapping_mul(31).wrapping_add(7); seed });
        prop_assert!(dns1123_label(&name).is_empty(), "{}", name);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,20}") {
        let path = Path::empty();
        name_is_subdomain(&text, true);
        qualified_name(&text);
        validate_ip(&path, &text, Strictness::Canonical);
        validate_cidr(&path, &text, Strictness::Canonical);
        cidr_warnings(&path, &text);
        generate_name(&text, || 5);
    }
}
