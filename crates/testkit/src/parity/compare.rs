//! Where two answers differ.

use std::fmt;

use serde_json::Value;

use super::normalise::{normalise, words};
use crate::Answer;

/// One difference between two answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where: `code`, `header warning`, `body.metadata.labels`.
    pub place: String,
    /// What the real one has there.
    pub real: String,
    /// What ours has there.
    pub ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.place, self.real, self.ours)
    }
}

/// Headers that clients act on.
const HEADERS: &[&str] = &[
    "allow",
    "cache-control",
    "content-type",
    "etag",
    "retry-after",
    "vary",
    "warning",
    "www-authenticate",
    "x-content-type-options",
];

/// All differences between two answers, after normalising them.
pub fn differences(real: &Answer, ours: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    if real.code != ours.code {
        // One refused what the other did: the rest follows from that.
        let words = |answer: &Answer| {
            let message = words(answer.body["message"].as_str().unwrap_or_default());
            format!("{} {}", answer.code, short(&message)).trim_end().to_owned()
        };
        push(&mut found, "code", words(real), words(ours));
        return found;
    }
    for name in HEADERS {
        let read = |answer: &Answer| {
            let mut values: Vec<String> = answer.header(name).iter().map(|value| words(value)).collect();
            values.sort();
            values.join(" ; ")
        };
        let (real, ours) = (read(real), read(ours));
        if real != ours {
            push(&mut found, &format!("header {name}"), real, ours);
        }
    }
    if real.body.is_null() && ours.body.is_null() {
        // YAML, plain text and the like.
        let (real, ours) = (words(&real.text()), words(&ours.text()));
        if real != ours {
            push(&mut found, "text", short(&real), short(&ours));
        }
    } else if real.body.get("kind") != ours.body.get("kind") {
        // An object here, a Status there: nothing else can be the same.
        let kind = |answer: &Answer| answer.body.get("kind").map_or("none".into(), Value::to_string);
        push(&mut found, "body.kind", kind(real), kind(ours));
    } else {
        walk(&mut found, "body", &normalise(&real.body), &normalise(&ours.body));
    }
    found
}

fn push(found: &mut Vec<Difference>, place: &str, real: String, ours: String) {
    found.push(Difference { place: place.into(), real, ours });
}

fn walk(found: &mut Vec<Difference>, place: &str, real: &Value, ours: &Value) {
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                walk(found, &format!("{place}.{key}"), value, b.get(key).unwrap_or(&Value::Null));
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                push(found, &format!("{place}.{key}"), "absent".into(), short(&value.to_string()));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for (index, (real, ours)) in a.iter().zip(b).enumerate() {
                walk(found, &format!("{place}[{index}]"), real, ours);
            }
            if a.len() != b.len() {
                let rest =
                    |list: &[Value], from: usize| short(&Value::from(list.get(from..).unwrap_or(&[])).to_string());
                let (real, ours) = (rest(a, b.len()), rest(b, a.len()));
                push(
                    found,
                    &format!("{place}[…]"),
                    format!("{} more {real}", a.len()),
                    format!("{} more {ours}", b.len()),
                );
            }
        }
        (real, ours) if real == ours => {}
        (real, Value::Null) => push(found, place, short(&real.to_string()), "absent".into()),
        (real, ours) => push(found, place, short(&real.to_string()), short(&ours.to_string())),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(600) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_say_where_they_are() {
        let check = |real: Value, ours: Value, expected: &[&str]| {
            let answer = |value: Value| Answer::new(200, http::HeaderMap::new(), value.to_string().into());
            let found: Vec<String> =
                differences(&answer(real), &answer(ours)).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        };
        check(json!({"a": 1}), json!({"a": 1}), &[]);
        check(json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), &["body.a.b: 1 → 2"]);
        check(json!({"a": 1}), json!({"b": 1}), &["body.a: 1 → absent", "body.b: absent → 1"]);
        check(json!([1, 2]), json!([1]), &["body[…]: 2 more [2] → 1 more []"]);
    }
}
