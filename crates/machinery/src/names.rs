//! What things may be called: objects, labels, annotations, ports, keys. Every check answers with what is wrong, in the
//! words clients of Kubernetes know; no answer means the text is fine.

use serde_json::Value;

use crate::field;

pub mod ip;

/// Decides whether an object may have a name. With `prefix` the name is one that something will be appended to.
pub type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

/// The longest DNS label.
pub const LABEL_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;
/// All annotations of an object together have at most so many bytes.
pub const ANNOTATIONS_MAX: usize = 256 * 1024;
/// A generated name's base is cut to this length before the random characters are appended.
pub const GENERATED_BASE_MAX: usize = LABEL_MAX - GENERATED_RANDOM;
/// How many random characters a generated name ends in.
pub const GENERATED_RANDOM: usize = 5;

const LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_REGEX: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";

/// "…must… (e.g. 'a', or 'b', regex used for validation is '…')".
pub fn regex_error(rule: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

/// The text is longer than `max`.
pub fn max_length_error(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The number is not in the range.
pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// A non-empty run of `outer` and `inner` bytes with `outer` ones at both ends.
fn framed(text: &str, outer: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            outer(first) && outer(last) && bytes.iter().all(|&byte| outer(byte) || inner(byte))
        }
        _ => false,
    }
}

fn is_label(text: &str) -> bool {
    framed(text, lower, |byte| byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key_name(text: &str) -> bool {
    framed(text, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

fn too_long(text: &str, max: usize) -> Vec<String> {
    if text.len() > max { vec![max_length_error(max)] } else { Vec::new() }
}

/// A DNS label as in RFC 1123: most names that become part of a host name.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, LABEL_MAX);
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                        start and end with an alphanumeric character";
            regex_error(rule, LABEL_REGEX, &["my-name", "123-abc"])
        });
    }
    errors
}

fn subdomain_error() -> String {
    let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                start and end with an alphanumeric character";
    regex_error(rule, SUBDOMAIN_REGEX, &["example.com"])
}

/// A DNS subdomain as in RFC 1123: the names of most objects.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_MAX);
    if !is_subdomain(text) {
        errors.push(subdomain_error());
    }
    errors
}

/// A DNS subdomain whose labels may begin with and hold underscores.
pub fn dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_MAX);
    let fine = text.split('.').all(|label| {
        let label = label.strip_prefix('_').unwrap_or(label);
        framed(label, lower, |byte| matches!(byte, b'-' | b'_'))
    });
    if !fine {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
                    and must start and end with an alphanumeric character";
        let regex = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
        errors.push(regex_error(rule, regex, &["example.com"]));
    }
    errors
}

/// Why a condition is as it is, in one word.
pub fn condition_reason(text: &str) -> Vec<String> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic());
    if begins && text.bytes().all(inner) && !text.ends_with([',', ':']) {
        return Vec::new();
    }
    let rule = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
                characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![regex_error(rule, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)]
}

/// A DNS label as in RFC 1035, which begins with a letter: names of Services.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, LABEL_MAX);
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                    character, and end with an alphanumeric character";
        errors.push(regex_error(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// A subdomain after `*.`: host names of Ingresses.
pub fn wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_MAX);
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        let rule = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        errors.push(regex_error(rule, &format!(r"\*\.{SUBDOMAIN_REGEX}"), &["*.example.com"]));
    }
    errors
}

/// A name that can stand as one segment of a URL path.
pub fn path_segment_name(text: &str) -> Vec<String> {
    match text {
        "." | ".." => vec![format!("may not be '{text}'")],
        _ => path_segment_prefix(text),
    }
}

/// The beginning of a name that can stand as one segment of a URL path.
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|bad| text.contains(**bad)).map(|bad| format!("may not contain '{bad}'")).collect()
}

/// A qualified name, `example.com/my-name` or `my-name`: keys of labels and annotations, names of finalizers.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let key_error = || regex_error(KEY_RULE, KEY_REGEX, &["MyName", "my.name", "123-abc"]);
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {hint}", key_error())];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > SUBDOMAIN_MAX {
                    errors.push(format!("prefix part must be no more than {SUBDOMAIN_MAX} bytes"));
                }
                if !is_subdomain(prefix) {
                    errors.push(format!("prefix part {}", subdomain_error()));
                }
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_key_name(name) {
        errors.push(format!("name part {}", key_error()));
    }
    errors
}

/// The value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !text.is_empty() && !is_key_name(text) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                    start and end with an alphanumeric character";
        errors.push(regex_error(rule, &format!("({KEY_REGEX})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// A name in the C language.
pub fn c_identifier(text: &str) -> Vec<String> {
    let fine = !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
                characters or '_'";
    unless(fine, || regex_error(rule, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"]))
}

fn unless(fine: bool, error: impl FnOnce() -> String) -> Vec<String> {
    if fine { Vec::new() } else { vec![error()] }
}

/// A port's number.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A number between two others, inclusive.
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    unless((low..=high).contains(&value), || range_error(low, high))
}

/// A Unix user's or group's number.
pub fn unix_id(id: i64) -> Vec<String> {
    in_range(id, 0, i32::MAX.into())
}

/// A port's name.
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 15);
    if text.is_empty() || !text.bytes().all(|byte| lower(byte) || byte == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A percentage, `50%`.
pub fn percent(text: &str) -> Vec<String> {
    let fine = text
        .strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()));
    let rule = "a valid percent string must be a numeric string followed by an ending '%'";
    unless(fine, || regex_error(rule, "[0-9]+%", &["1%", "93%"]))
}

/// The name of an HTTP header.
pub fn http_header_name(text: &str) -> Vec<String> {
    let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    unless(fine, || regex_error(rule, "[-A-Za-z0-9]+", &["X-Header-Name"]))
}

/// The name of an environment variable, as strict as it was before Kubernetes 1.34.
pub fn env_var_name(text: &str) -> Vec<String> {
    let fine = !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    let rule = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must \
                not start with a digit";
    let examples = ["my.env-name", "MY_ENV.NAME", "MyEnvName1"];
    let mut errors = unless(fine, || regex_error(rule, "[-._a-zA-Z][-._a-zA-Z0-9]*", &examples));
    errors.extend(no_parent_directory(text));
    errors
}

/// The name of an environment variable as it is allowed today: printable ASCII without `=`.
pub fn relaxed_env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    let fine = text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
    unless(fine, || rule.to_owned())
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_MAX);
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')) {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_error(rule, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    errors.extend(no_parent_directory(text));
    errors
}

fn no_parent_directory(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("must not be '{text}'")),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// A whole number as people write it: no plus, no leading zeros.
pub fn decimal_integer(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["must be non-empty".to_owned()];
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let fine =
        text == "0" || (!digits.starts_with('0') && !digits.is_empty() && digits.bytes().all(|d| d.is_ascii_digit()));
    unless(fine, || "must be a valid decimal integer in canonical form".to_owned())
}

/// A domain name of at least three labels.
pub fn fully_qualified_name(path: &field::Path, text: &str) -> field::Errors {
    domain(path, text, text, 3, "three")
}

/// A domain name of at least two labels; may end in a point.
pub fn fully_qualified_domain_name(path: &field::Path, text: &str) -> field::Errors {
    let name = text.strip_suffix('.').unwrap_or(text);
    let errors = domain(path, text, name, 2, "two");
    if !errors.is_empty() {
        return errors;
    }
    name.split('.')
        .find_map(|label| {
            let errors = dns1123_label(label);
            (!errors.is_empty()).then(|| vec![field::Error::invalid(path, label, errors.join(","))])
        })
        .unwrap_or_default()
}

fn domain(path: &field::Path, text: &str, name: &str, labels: usize, count: &str) -> field::Errors {
    if text.is_empty() {
        return vec![field::Error::required(path, "")];
    }
    let errors = dns1123_subdomain(name);
    if !errors.is_empty() {
        return vec![field::Error::invalid(path, name, errors.join(","))];
    }
    if name.split('.').count() < labels {
        let detail = format!("should be a domain with at least {count} segments separated by dots");
        return vec![field::Error::invalid(path, name, detail)];
    }
    Vec::new()
}

/// A path after a domain, `acme.io/foo`: names of signers, controllers.
pub fn domain_prefixed_path(path: &field::Path, text: &str) -> field::Errors {
    if text.is_empty() {
        return vec![field::Error::required(path, "")];
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![field::Error::invalid(path, text, detail)];
    };
    let mut errors: field::Errors =
        dns1123_subdomain(host).into_iter().map(|message| field::Error::invalid(path, host, message)).collect();
    let fine = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte));
    if !fine {
        let detail = regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(field::Error::invalid(path, rest, detail));
    }
    errors
}

/// A key after a domain, `acme.io/foo`.
pub fn domain_prefixed_key(path: &field::Path, text: &str) -> field::Errors {
    if text.is_empty() {
        return vec![field::Error::required(path, "")];
    }
    let errors: field::Errors =
        qualified_name(text).into_iter().map(|message| field::Error::invalid(path, text, message)).collect();
    if errors.is_empty() && !text.contains('/') {
        let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
        return vec![field::Error::invalid(path, text, detail)];
    }
    errors
}

/// A final dash is fine where something will be appended.
fn masked(name: &str) -> String {
    let mut name = name.to_owned();
    if name.len() > 1 && name.ends_with('-') {
        name.pop();
        if name.ends_with(|last: char| last.is_ascii()) {
            name.pop();
        }
        name.push('a');
    }
    name
}

/// Object names that are DNS subdomains: most of them.
pub fn name_is_subdomain(name: &str, prefix: bool) -> Vec<String> {
    if prefix { dns1123_subdomain(&masked(name)) } else { dns1123_subdomain(name) }
}

/// Object names that are DNS labels: Namespaces.
pub fn name_is_label(name: &str, prefix: bool) -> Vec<String> {
    if prefix { dns1123_label(&masked(name)) } else { dns1123_label(name) }
}

/// Object names that are DNS labels beginning with a letter: Services.
pub fn name_is_1035_label(name: &str, prefix: bool) -> Vec<String> {
    if prefix { dns1035_label(&masked(name)) } else { dns1035_label(name) }
}

/// Object names that only have to fit in a path: the rbac kinds.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { path_segment_prefix(name) } else { path_segment_name(name) }
}

/// The letters of generated names: no vowels, so no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name from `metadata.generateName`: the base, cut if too long, and five characters chosen by `random`, whose bits are
/// all used.
///
/// ```
/// use conductor_machinery::names::generate_name;
/// assert_eq!(generate_name("web-", || 0), "web-bbbbb");
/// ```
pub fn generate_name(base: &str, mut random: impl FnMut() -> u64) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    let wanted = name.len() + GENERATED_RANDOM;
    // Five bits choose a letter; the few that choose none are dropped. A source that never yields a letter must not hang us.
    for _ in 0..64 {
        let mut bits = random();
        for _ in 0..12 {
            let index = (bits & 31) as usize;
            bits >>= 5;
            if index < ALPHABET.len() && name.len() < wanted {
                name.push(ALPHABET[index].into());
            }
        }
        if name.len() == wanted {
            return name;
        }
    }
    name.extend(std::iter::repeat_n('b', wanted - name.len()));
    name
}

/// Characters that make no words, from any text: what hashes become in names.
pub fn safe_encode(text: &str) -> String {
    text.chars().map(|c| char::from(ALPHABET[c as usize % ALPHABET.len()])).collect()
}

/// A number or a percentage of `total`, as fields like `maxUnavailable` hold. Errors say what is wrong with the value.
pub fn scaled_int_or_percent(value: &Value, total: i64, round_up: bool) -> Result<i64, String> {
    match value {
        Value::Number(number) => number.as_i64().ok_or_else(|| format!("invalid value for IntOrString: {number}")),
        Value::String(text) => {
            let invalid =
                || format!("invalid value for IntOrString: invalid type: string is not a percentage: {text:?}");
            let share: i64 = text.strip_suffix('%').and_then(|share| share.parse().ok()).ok_or_else(invalid)?;
            let product = i128::from(share) * i128::from(total);
            let scaled = if round_up { (product + 99).div_euclid(100) } else { product.div_euclid(100) };
            i64::try_from(scaled).map_err(|_| invalid())
        }
        _ => Err("invalid value for IntOrString: neither an integer nor a string".to_owned()),
    }
}

#[cfg(test)]
mod tests;
