//! The formats of strings and numbers that Kubernetes checks; it ignores all others.
use std::net::IpAddr;
use std::sync::LazyLock;

use regex::Regex;

use crate::schema::text::{Moment, from_base64};
use crate::schema::{Rules, Schema, Shape};

const OF_STRINGS: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// The format of a type if it is one that is checked.
pub(super) fn known<'a>(schema: Schema<'_>, rules: &'a Rules) -> Option<&'a str> {
    let format = rules.format.as_deref()?;
    let untyped = schema.node().untyped;
    let known = match schema.shape() {
        Shape::String(_) | Shape::IntOrString => OF_STRINGS.contains(&&*format.replace('-', "")),
        _ if untyped => OF_STRINGS.contains(&&*format.replace('-', "")),
        Shape::Integer { .. } => matches!(format, "int32" | "int64"),
        Shape::Number => matches!(format, "float" | "double"),
        _ => false,
    };
    known.then_some(format)
}

/// The formats in a schema, as JSON, that mean nothing to Kubernetes: it warns of them.
pub fn unrecognized_formats(schema: &serde_json::Value) -> Vec<String> {
    let mut found = Vec::new();
    // The schema was parsed with bounded depth; what is left to look at lies here instead of on the stack.
    let mut left = vec![schema];
    while let Some(schema) = left.pop() {
        let Some(fields) = schema.as_object() else { continue };
        let text = |key: &str| fields.get(key).and_then(serde_json::Value::as_str).unwrap_or("");
        let format = text("format");
        let known = match text("type") {
            "" | "string" => OF_STRINGS.contains(&&*format.replace('-', "")),
            "integer" => matches!(format, "int32" | "int64"),
            "number" => matches!(format, "float" | "double"),
            _ => false,
        };
        if !format.is_empty() && !known && !found.iter().any(|seen| seen == format) {
            found.push(format.to_owned());
        }
        for (key, below) in fields {
            match (key.as_str(), below) {
                ("properties" | "patternProperties" | "definitions", serde_json::Value::Object(each)) => {
                    left.extend(each.values());
                }
                ("allOf" | "anyOf" | "oneOf" | "items", serde_json::Value::Array(each)) => left.extend(each),
                ("items" | "additionalProperties" | "not", _) => left.push(below),
                _ => {}
            }
        }
    }
    found
}

/// Whether a text has the format.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match &*format.replace('-', "") {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "byte" => !text.is_empty() && !text.contains(['\n', '\r']) && from_base64(text).is_ok(),
        "cidr" => is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && sloppy_ip(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<IpAddr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => is_name(text, 253, true),
        "k8sshortname" => is_name(text, 63, false),
        "mac" => is_mac(text),
        "rgbcolor" => is_rgb(text),
        "ssn" => {
            let fits = |(at, byte): (usize, u8)| match at {
                3 | 6 => matches!(byte, b'-' | b' '),
                _ => byte.is_ascii_digit(),
            };
            text.len() == 11 && text.bytes().enumerate().all(fits)
        }
        "uri" => is_request_uri(text),
        "uuid" => is_uuid(text, None, false),
        "uuid3" => is_uuid(text, Some(b'3'), false),
        "uuid4" => is_uuid(text, Some(b'4'), true),
        "uuid5" => is_uuid(text, Some(b'5'), true),
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.is_ascii() && Moment::parse(&format!("{text}T00:00:00Z"), false).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    if !is_date(date) || time.contains('t') {
        return false;
    }
    let bytes = time.as_bytes();
    let two = |at: usize, max: u8| {
        bytes
            .get(at..at + 2)
            .is_some_and(|d| d.iter().all(u8::is_ascii_digit) && (d[0] - b'0') * 10 + d[1] - b'0' <= max)
    };
    if !(two(0, 23) && two(3, 59) && two(6, 59) && bytes.get(2) == Some(&b':') && bytes.get(5) == Some(&b':')) {
        return false;
    }
    let rest = &time[8..];
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let after = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() == fraction.len() {
                return false;
            }
            after
        }
        None => rest,
    };
    let offset = rest.as_bytes();
    rest == "z"
        || (offset.len() == 6
            && matches!(offset[0], b'+' | b'-')
            && offset[3] == b':'
            && [1, 2, 4, 5].iter().all(|&at| offset[at].is_ascii_digit()))
}

/// Go's durations (`1h30m`), and counts with a unit in words (`2 weeks`).
fn is_duration(text: &str) -> bool {
    const UNITS: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "sec", "min", "hr", "wk"];
    const WORDS: &[&str] = &["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if is_go_duration(text) {
        return true;
    }
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        let unit = rest.trim_start();
        let end = unit.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(unit.len());
        let unit = unit[..end].to_lowercase();
        if UNITS.contains(&&*unit) || WORDS.iter().any(|word| unit.starts_with(word)) {
            return true;
        }
    }
    false
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - after.len()];
        if number.matches('.').count() > 1 || !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        if !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&&after[..end]) {
            return false;
        }
        rest = &after[end..];
    }
    true
}

/// An address, with or without a name before it in angle brackets.
fn is_email(text: &str) -> bool {
    let address = match (text.find('<'), text.strip_suffix('>')) {
        (Some(open), Some(text)) => &text[open + 1..],
        _ => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let dots = |text: &str| !text.is_empty() && text.split('.').all(|part| !part.is_empty() && part.chars().all(atom));
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    (quoted || dots(local)) && (dots(domain) || literal.is_some_and(|address| address.parse::<IpAddr>().is_ok()))
}

/// One label with a dash at most after its first character, or several that end in a top-level domain.
fn is_hostname(text: &str) -> bool {
    static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let letter = r"a-zA-Z0-9\p{S}\p{L}";
        let one = format!(r"[{letter}](-?[{letter}]{{0,62}})?");
        let several = format!(r"([{letter}]([{letter}-]{{0,61}}[{letter}])?\.)+[a-zA-Z\p{{L}}]{{2,63}}");
        Regex::new(&format!("^({one}|{several})$")).ok()
    });
    text.len() <= 255
        && HOSTNAME.as_ref().is_some_and(|regex| regex.is_match(text))
        && text.split('.').all(|label| label.len() <= 63)
}

/// An address whose parts may have leading zeros.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let parts: Vec<&str> = text.split('.').collect();
    let plain = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() != 4 || !parts.iter().all(plain) {
        return None;
    }
    let numbers: Vec<u8> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    <[u8; 4]>::try_from(numbers).ok().map(IpAddr::from)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max = match sloppy_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|bits| bits <= max)
}

/// 6, 8 or 20 bytes in hexadecimal, with colons or dashes between bytes or dots between pairs of them.
fn is_mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ if text.as_bytes().get(4) == Some(&b'.') => ('.', 4),
        _ => return matches!(text.len(), 12 | 16 | 40) && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let hex = |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.iter().all(hex) && matches!(parts.len() * width / 2, 6 | 8 | 20)
}

fn is_uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut digits = Vec::with_capacity(32);
    for byte in text.bytes() {
        match byte {
            b'-' if matches!(digits.len(), 8 | 12 | 16 | 20) => {}
            byte if byte.is_ascii_hexdigit() => digits.push(byte.to_ascii_lowercase()),
            _ => return false,
        }
    }
    !text.contains("--")
        && digits.len() == 32
        && version.is_none_or(|version| digits[12] == version)
        && (!variant || matches!(digits[16], b'8' | b'9' | b'a' | b'b'))
}

/// An absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" || text.starts_with('/') {
        return !has_bad_escape(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?']).next().unwrap_or(""));
    // What begins with no slash is opaque: escapes in it mean nothing.
    let opaque = !rest.starts_with('/');
    scheme_fits && (opaque || !has_bad_escape(rest)) && host.is_none_or(|host| !host.contains([' ', '<', '>', '"']))
}

fn has_bad_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !(hex(at + 1) && hex(at + 2)))
}

fn is_name(text: &str, max: usize, dots: bool) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= max && if dots { text.split('.').all(label) } else { label(text) }
}

fn is_rgb(text: &str) -> bool {
    let Some(inside) = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
    let byte = |part: &&str| part.parse::<u8>().is_ok() && (part.len() == 1 || !part.starts_with(['0', '+']));
    parts.len() == 3 && parts.iter().all(byte)
}

fn digits_of(text: &str) -> Vec<u32> {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).map(|c| c.to_digit(10).unwrap_or(u32::MAX)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let (body, last) = plain.split_at(plain.char_indices().next_back().map_or(0, |(at, _)| at));
    let body = digits_of(body);
    let last = if last == "X" { 10 } else { last.parse().unwrap_or(u32::MAX) };
    if body.len() != 9 || body.contains(&u32::MAX) || last > 10 {
        return false;
    }
    let sum: u32 = body.iter().zip(1..).map(|(digit, place)| digit * place).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 13 || digits.contains(&u32::MAX) {
        return false;
    }
    let sum: u32 = digits.iter().zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let begins = |prefixes: &[&[u32]]| prefixes.iter().any(|prefix| digits.starts_with(prefix));
    let issued = match digits.len() {
        13 => begins(&[&[4]]),
        14 => begins(&[&[3, 0, 0], &[3, 0, 1], &[3, 0, 2], &[3, 0, 3], &[3, 0, 4], &[3, 0, 5], &[3, 6], &[3, 8]]),
        15 => begins(&[&[3, 4], &[3, 7], &[2, 1, 3, 1], &[1, 8, 0, 0]]),
        16 => begins(&[&[4], &[5, 1], &[5, 2], &[5, 3], &[5, 4], &[5, 5], &[6, 0, 1, 1], &[6, 5], &[3, 5]]),
        _ => false,
    };
    if !issued {
        return false;
    }
    let doubled = |(at, digit): (usize, &u32)| match at % 2 {
        1 => digit * 2 / 10 + digit * 2 % 10,
        _ => *digit,
    };
    digits.iter().rev().enumerate().map(doubled).sum::<u32>().is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::fits;

    fn check(format: &str, good: &[&str], bad: &[&str]) {
        good.iter().for_each(|text| assert!(fits(format, text), "{format} {text}"));
        bad.iter().for_each(|text| assert!(!fits(format, text), "{format} {text}"));
    }

    #[test]
    fn formats_are_those_of_go() {
        check("date", &["2026-02-28"], &["2026-02-30", "2026-2-1", ""]);
        check(
            "date-time",
            &["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+01:00"],
            &["2026-01-02", "2026-01-02T25:00:00Z"],
        );
        check("duration", &["1h30m", "0", "2 weeks", "5min", "1.5s"], &["", "abc", "5"]);
        check("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "256.0.0.1", "::1"]);
        check("ipv6", &["::1"], &["10.0.0.1", "x"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0/33", "10.0.0.0"]);
        check("mac", &["00:11:22:33:44:55", "0011.2233.4455", "001122334455"], &["00:11:22", "00112233445"]);
        check("uri", &["http://a.b/c", "/a", "a:b%zz"], &["a", "", "http://a/%zz"]);
        check("ssn", &["123-45-6789", "123 45 6789"], &["123456789", "12-345-6789"]);
        check("creditcard", &["4111 1111 1111 1111", "378282246310005"], &["4111111111111112", "2020-01-01T00:00:00Z"]);
        check("email", &["a@b.c", "A <a@b.c>"], &["a", "a@"]);
        check("hostname", &["a.example.com", "a-b", "localhost", "a-b.com"], &["-a", "a_b", "", "ab-c"]);
        check("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567"]);
        check("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]);
        check("byte", &["YQ=="], &["!", ""]);
        check("hexcolor", &["#fff", "aabbcc"], &["#ffff"]);
        check("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2,256)"]);
        check("isbn", &["0321751043", "978-0321751041"], &["0321751044", "é", ""]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", ""]);
        check("k8s-long-name", &["a.b"], &["a..b"]);
        check("unheard-of", &["anything"], &[]);
    }
}
