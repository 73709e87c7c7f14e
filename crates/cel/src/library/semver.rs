//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

/// A semantic version 2.0.0; build metadata does not count.
#[derive(Clone, Debug)]
pub struct Semver {
    core: [u64; 3],
    pre: Vec<Identifier>,
}

/// One part of a pre-release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number \"{text}\"", what.to_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes \"{text}\""));
    }
    text.parse().map_err(|_| format!("number out of range \"{text}\""))
}

fn identifiers(text: &str, what: &str) -> Result<Vec<String>, String> {
    text.split('.')
        .map(|part| {
            if part.is_empty() {
                return Err(format!("{what} is empty"));
            }
            let valid = part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            if valid { Ok(part.to_owned()) } else { Err(format!("Invalid character(s) found in {what} \"{part}\"")) }
        })
        .collect()
}

impl Semver {
    /// Reads a version strictly.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, Some(build)),
            None => (text, None),
        };
        let (core, pre) = match text.split_once('-') {
            Some((core, pre)) => (core, Some(pre)),
            None => (text, None),
        };
        let parts: Vec<&str> = core.split('.').collect();
        let [major, minor, patch] = parts[..] else { return Err("No Major.Minor.Patch elements found".into()) };
        if let Some(build) = build {
            identifiers(build, "Build meta data")?;
        }
        let pre = match pre {
            Some(pre) => identifiers(pre, "Prerelease")?
                .into_iter()
                .map(|part| {
                    if part.bytes().all(|b| b.is_ascii_digit()) {
                        number(&part, "PreRelease").map(Identifier::Number)
                    } else {
                        Ok(Identifier::Text(part))
                    }
                })
                .collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(Self { core: [number(major, "Major")?, number(minor, "Minor")?, number(patch, "Patch")?], pre })
    }

    /// Reads a version after removing a `v`, leading zeros, and adding missing parts.
    pub fn parse_tolerant(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let trimmed = part.trim_start_matches('0');
                *part = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                    trimmed.to_owned()
                } else {
                    format!("0{trimmed}")
                };
            }
        }
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    /// Order of precedence.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.core.cmp(&other.core).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        })
    }
}

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "semver",
        overloads: &[("string_to_semver", "(string) -> Semver"), ("string_bool_to_semver", "(string, bool) -> Semver")],
        cost: Cost::Parse,
        code: |_, a| read(a)?.map(|v| Value::Semver(Arc::new(v))).map_err(EvalError::failed),
    },
    Decl {
        name: "isSemver",
        overloads: &[("is_semver_string", "(string) -> bool"), ("is_semver_string_bool", "(string, bool) -> bool")],
        cost: Cost::Parse,
        code: |_, a| Ok(Value::Bool(read(a)?.is_ok())),
    },
    Decl {
        name: "isGreaterThan",
        overloads: &[("semver_is_greater_than", "Semver.(Semver) -> bool")],
        cost: Cost::One,
        code: |_, a| two(a, |o| Value::Bool(o.is_gt())),
    },
    Decl {
        name: "isLessThan",
        overloads: &[("semver_is_less_than", "Semver.(Semver) -> bool")],
        cost: Cost::One,
        code: |_, a| two(a, |o| Value::Bool(o.is_lt())),
    },
    Decl {
        name: "compareTo",
        overloads: &[("semver_compare_to", "Semver.(Semver) -> int")],
        cost: Cost::One,
        code: |_, a| two(a, |o| Value::Int(o as i64)),
    },
    Decl {
        name: "major",
        overloads: &[("semver_major", "Semver.() -> int")],
        cost: Cost::One,
        code: |_, a| part(a, 0),
    },
    Decl {
        name: "minor",
        overloads: &[("semver_minor", "Semver.() -> int")],
        cost: Cost::One,
        code: |_, a| part(a, 1),
    },
    Decl {
        name: "patch",
        overloads: &[("semver_patch", "Semver.() -> int")],
        cost: Cost::One,
        code: |_, a| part(a, 2),
    },
];

fn read(args: &[Value<'_>]) -> Result<Result<Semver, String>, EvalError> {
    match args {
        [Value::String(s)] | [Value::String(s), Value::Bool(false)] => Ok(Semver::parse(s)),
        [Value::String(s), Value::Bool(true)] => Ok(Semver::parse_tolerant(s)),
        _ => Err(EvalError::overload("semver")),
    }
}

fn two<'a>(args: &[Value<'a>], f: fn(Ordering) -> Value<'a>) -> Outcome<'a> {
    match args {
        [Value::Semver(a), Value::Semver(b)] => Ok(f(a.compare(b))),
        _ => Err(EvalError::overload("semver")),
    }
}

fn part<'a>(args: &[Value<'a>], index: usize) -> Outcome<'a> {
    match args {
        [Value::Semver(v)] => Ok(Value::Int(v.core[index] as i64)),
        _ => Err(EvalError::overload("semver")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_the_specification_says() {
        let order =
            ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "2.0.0"];
        for pair in order.windows(2) {
            let (a, b) = (Semver::parse(pair[0]).unwrap(), Semver::parse(pair[1]).unwrap());
            assert_eq!(a.compare(&b), Ordering::Less, "{pair:?}");
        }
        for bad in ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0+", "a.b.c", ""] {
            assert!(Semver::parse(bad).is_err(), "{bad}");
        }
        for (text, core) in
            [("v1.0.0", [1, 0, 0]), ("1", [1, 0, 0]), ("01.02.03", [1, 2, 3]), ("1.0.0-beta", [1, 0, 0])]
        {
            assert_eq!(Semver::parse_tolerant(text).unwrap().core, core, "{text}");
        }
        assert!(Semver::parse_tolerant("1.0-beta").is_err());
    }
}
