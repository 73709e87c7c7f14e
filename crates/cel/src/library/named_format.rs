//! Named formats: `format.dns1123Label().validate(name)`.

use std::sync::Arc;

use super::{Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::time::Timestamp;
use crate::value::Value;

/// A format that strings can be checked against.
#[derive(Debug)]
pub struct NamedFormat {
    /// Its name in `format.named`.
    pub name: &'static str,
    /// The size of the regex that the cost model assumes.
    pub(crate) regex_size: u64,
    validate: fn(&str) -> Vec<String>,
}

impl NamedFormat {
    /// What is wrong with a text; empty if nothing is.
    pub fn validate(&self, text: &str) -> Vec<String> {
        (self.validate)(text)
    }
}

/// All formats.
pub static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", regex_size: 30, validate: |s| dns_label(s, false, false) },
    NamedFormat { name: "dns1123Subdomain", regex_size: 60, validate: |s| subdomain(s, false) },
    NamedFormat { name: "dns1035Label", regex_size: 30, validate: |s| dns_label(s, true, false) },
    NamedFormat { name: "qualifiedName", regex_size: 60, validate: qualified_name },
    NamedFormat { name: "dns1123LabelPrefix", regex_size: 30, validate: |s| dns_label(s, false, true) },
    NamedFormat { name: "dns1123SubdomainPrefix", regex_size: 60, validate: |s| subdomain(s, true) },
    NamedFormat { name: "dns1035LabelPrefix", regex_size: 30, validate: |s| dns_label(s, true, true) },
    NamedFormat { name: "labelValue", regex_size: 40, validate: label_value },
    NamedFormat {
        name: "uri",
        regex_size: 1104,
        validate: |s| super::url::Url::parse(s).err().map(|e| format!("parse {s:?}: {e}")).into_iter().collect(),
    },
    NamedFormat { name: "uuid", regex_size: 70, validate: |s| unless(is_uuid(s), "does not match the UUID format") },
    NamedFormat { name: "byte", regex_size: 84, validate: |s| unless(is_base64(s), "invalid base64") },
    NamedFormat {
        name: "date",
        regex_size: 72,
        validate: |s| unless(s.len() == 10 && Timestamp::parse(&format!("{s}T00:00:00Z")).is_some(), "invalid date"),
    },
    NamedFormat {
        name: "datetime",
        regex_size: 72,
        validate: |s| unless(Timestamp::parse(s).is_some(), "invalid datetime"),
    },
];

fn unless(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// A prefix may end in a dash: something is appended to it.
fn masked(text: &str, prefix: bool) -> String {
    match text.strip_suffix('-') {
        Some(stem) if prefix && text.len() > 1 => format!("{stem}a"),
        _ => text.to_owned(),
    }
}

fn dns_label(text: &str, rfc1035: bool, prefix: bool) -> Vec<String> {
    let text = masked(text, prefix);
    let b = text.as_bytes();
    let mut errors = Vec::new();
    if b.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    let first = |b: u8| if rfc1035 { b.is_ascii_lowercase() } else { lower_alnum(b) };
    let valid = b.first().is_some_and(|c| first(*c))
        && b.last().is_some_and(|c| lower_alnum(*c))
        && b.iter().all(|c| lower_alnum(*c) || *c == b'-');
    if !valid {
        errors.push(if rfc1035 {
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        }.to_owned());
    }
    errors
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let b = label.as_bytes();
        b.first().is_some_and(|c| lower_alnum(*c))
            && b.last().is_some_and(|c| lower_alnum(*c))
            && b.iter().all(|c| lower_alnum(*c) || *c == b'-')
    })
}

fn subdomain(text: &str, prefix: bool) -> Vec<String> {
    let text = masked(text, prefix);
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    if !is_subdomain(&text) {
        errors.push("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".to_owned());
    }
    errors
}

fn is_name_part(text: &str) -> bool {
    let b = text.as_bytes();
    b.first().is_some_and(u8::is_ascii_alphanumeric)
        && b.last().is_some_and(u8::is_ascii_alphanumeric)
        && b.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix, false).into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
        _ => {
            return vec!["a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')".to_owned()];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_name_part(name) {
        errors.push("name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')".to_owned());
    }
    errors
}

fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !text.is_empty() && !is_name_part(text) {
        errors.push("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".to_owned());
    }
    errors
}

/// Dashes between the groups may be left out.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..len) {
            Some(group) if group.bytes().all(|b| b.is_ascii_hexdigit()) => rest = &rest[len..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    use base64::Engine;
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

macro_rules! constants {
    ($($index:literal => $name:literal),*) => {
        &[
            $(Decl {
                name: concat!("format.", $name),
                overloads: &[(concat!("format.", $name), "() -> Format")],
                cost: Cost::One,
                code: |_, _| Ok(Value::Format(&FORMATS[$index])),
            },)*
            Decl {
                name: "format.named",
                overloads: &[("format-named", "(string) -> optional<Format>")],
                cost: Cost::One,
                code: |_, a| named(a),
            },
            Decl {
                name: "validate",
                overloads: &[("format-validate", "Format.(string) -> optional<list<string>>")],
                cost: Cost::Validate,
                code: |_, a| validate(a),
            },
        ]
    };
}

pub(crate) const DECLS: &[Decl] = constants!(
    0 => "dns1123Label", 1 => "dns1123Subdomain", 2 => "dns1035Label", 3 => "qualifiedName", 4 => "dns1123LabelPrefix",
    5 => "dns1123SubdomainPrefix", 6 => "dns1035LabelPrefix", 7 => "labelValue", 8 => "uri", 9 => "uuid", 10 => "byte",
    11 => "date", 12 => "datetime"
);

fn named<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(name)] = args else { return Err(EvalError::overload("format.named")) };
    Ok(Value::Optional(FORMATS.iter().find(|f| f.name == &**name).map(|f| Arc::new(Value::Format(f)))))
}

fn validate<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Format(format), Value::String(text)] = args else { return Err(EvalError::overload("validate")) };
    let errors = format.validate(text);
    if errors.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(errors.into_iter().map(Value::string).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_good_from_bad() {
        for (name, good, bad) in [
            ("dns1123Label", "my-name", "-no"),
            ("dns1123Subdomain", "a.b-c.d", "a..b"),
            ("dns1035Label", "abc", "1abc"),
            ("qualifiedName", "example.com/Name", "a/b/c"),
            ("dns1123LabelPrefix", "my-name-", "-no"),
            ("labelValue", "", "-no"),
            ("uri", "https://a/b", "../x"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("byte", "aGVsbG8=", "%"),
            ("date", "2021-01-31", "2021-02-30"),
            ("datetime", "2021-01-31T00:00:00Z", "yesterday"),
        ] {
            let format = FORMATS.iter().find(|f| f.name == name).unwrap();
            assert_eq!(format.validate(good), Vec::<String>::new(), "{name}");
            assert!(!format.validate(bad).is_empty(), "{name}");
        }
    }
}
