//! YAML from clients, read as JSON.

use std::fmt;

use machinery::field::quote;
use machinery::status::Status;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, MessageFormatter, Spanned, UserMessageFormatter};

use crate::context::parse_json;

/// What strict validation's objections to a YAML text begin with; each has a line of its own.
const HEAD: &str = "yaml: unmarshal errors:";

/// Reads a text, and says which keys stand twice, as one objection of strict validation.
pub fn parse(body: &[u8], kind: &str) -> Result<(Value, Option<String>), Status> {
    // JSON is YAML, and read much faster as what it is. What is wrong about it is said as of YAML.
    if body.trim_ascii_start().first() == Some(&b'{') {
        if let Ok(machinery::json::Parsed { value, duplicates }) = machinery::json::parse(body) {
            if duplicates.is_empty() {
                return Ok((value, None));
            }
        }
    }
    let text = std::str::from_utf8(body).map_err(|_| Status::bad_request("the YAML body is not UTF-8"))?;
    let wrong = |error| Status::bad_request(format!("error converting YAML to JSON: yaml: {}", objection(&error)));
    let (value, twice) = match serde_saphyr::from_str::<Value>(text) {
        Ok(value) => (value, None),
        Err(error) => {
            let Some(first) = stands_twice(&error) else { return Err(wrong(error)) };
            let last = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
            let value = serde_saphyr::from_str_with_options(text, last.clone()).map_err(wrong)?;
            let all = serde_saphyr::from_str_with_options::<Twice>(text, last).map(|twice| twice.0).unwrap_or_default();
            let all = if all.is_empty() { vec![first] } else { all };
            (value, Some(format!("{HEAD}\n  {}", all.join("\n  "))))
        }
    };
    // One more pass gives the same depth limit and number rules as JSON.
    let json = serde_json::to_vec(&value).map_err(Status::internal)?;
    let (value, _) = parse_json(&json, kind)?;
    Ok((value, twice))
}

/// An objection as warnings: one for each line, if it is about YAML.
pub fn warnings(objection: &str) -> impl Iterator<Item = &str> {
    objection.strip_prefix(HEAD).map_or(objection, str::trim_start).split('\n').map(str::trim_start)
}

/// What is wrong with a text, and where. None of the text itself: it may be a Secret's, and errors go into logs.
fn objection(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    let what = match error {
        Error::WithSnippet { error, .. } | Error::AliasError { error, .. } => return objection(error),
        Error::UnsupportedTag { .. } => "unsupported tag".into(),
        Error::NonFiniteFloat { .. } => "the number is not finite".into(),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("expected {expected}").into()
        }
        other => UserMessageFormatter.format_message(other),
    };
    match error.location() {
        Some(place) => format!("line {} column {}: {what}", place.line(), place.column()),
        None => what.into_owned(),
    }
}

/// The objection if a text is wrong for a key that stands twice only.
fn stands_twice(error: &serde_saphyr::Error) -> Option<String> {
    use serde_saphyr::Error;
    match error {
        Error::WithSnippet { error, .. } | Error::AliasError { error, .. } => stands_twice(error),
        Error::DuplicateMappingKey { key, location } => {
            Some(already_set(location.line(), &quote(key.as_deref().unwrap_or_default())))
        }
        _ => None,
    }
}

fn already_set(line: u64, key: &str) -> String {
    format!("line {line}: key {key} already set in map")
}

/// The keys of a text that stand twice, as Go names them: inner ones first, each at the line where its value begins.
struct Twice(Vec<String>);

impl<'de> Deserialize<'de> for Twice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Search)
    }
}

struct Search;

impl<'de> Visitor<'de> for Search {
    type Value = Twice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_unit<E>(self) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_none<E>(self) -> Result<Twice, E> {
        Ok(Twice(Vec::new()))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Twice, D::Error> {
        Twice::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Twice, A::Error> {
        let mut found = Vec::new();
        while let Some(Twice(inner)) = list.next_element()? {
            found.extend(inner);
        }
        Ok(Twice(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Twice, A::Error> {
        let (mut found, mut seen) = (Vec::new(), std::collections::HashSet::new());
        while let Some((key, value)) = entries.next_entry::<String, Spanned<Twice>>()? {
            found.extend(value.value.0);
            let name = quote(&key);
            if !seen.insert(key) {
                found.push(already_set(value.referenced.line(), &name));
            }
        }
        Ok(Twice(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(text: &str) -> Vec<String> {
        let (_, objection) = parse(text.as_bytes(), "Any").unwrap();
        objection.iter().flat_map(|text| warnings(text)).map(str::to_owned).collect()
    }

    #[test]
    fn all_keys_that_stand_twice_are_named() {
        assert!(twice("a: 1\nb: [1, {c: 2}]\n").is_empty());
        let text = "a: 1\na: 2\nl:\n- b: 1\n  b: 2\n  b: 3\no:\n  x: 1\no:\n  y: null\n  y: true\n";
        let expected = [
            "line 2: key \"a\" already set in map",
            "line 5: key \"b\" already set in map",
            "line 6: key \"b\" already set in map",
            "line 11: key \"y\" already set in map",
            "line 10: key \"o\" already set in map",
        ];
        assert_eq!(twice(text), expected);
    }

    #[test]
    fn json_is_read_as_json_and_objected_to_as_yaml() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
        assert_eq!(parse(deep.as_bytes(), "Any").unwrap().0, serde_json::from_str::<Value>(&deep).unwrap());
        let sent = " {\"a\": \"yes\", \"n\": 1e2, \"s\": \"\\ud83d\\ude00\", \"l\": [null, 1.50]}";
        assert_eq!(parse(sent.as_bytes(), "Any").unwrap(), (serde_json::from_str(sent).unwrap(), None));
        let text = "{\"a\": {\"b\": 1,\n\"b\": 2},\n\"a\": 3}";
        assert_eq!(twice(text), ["line 2: key \"b\" already set in map", "line 3: key \"a\" already set in map"]);
        // Flow style is no JSON.
        assert_eq!(parse(b"{a: yes, b: [1]}", "Any").unwrap().0["b"][0], 1);
    }

    #[test]
    fn objections_quote_nothing_of_the_text() {
        for (text, expected) in [
            ("password: hunter2\nother: [unclosed\n", "line 2 column 8: unclosed bracket '['"),
            ("password: \"hunter2\nother: 1", "line 2 column 1: invalid indentation in multiline quoted scalar"),
            ("password: *hunter2", "line 1 column 11: reference to unknown value"),
            ("password: hunter2: 1", "line 1 column 18: mapping values are not allowed in this context"),
            ("? [hunter2]\n: 1", "line 1 column 3: expected string scalar"),
            ("password: {<<: hunter2}", "line 1 column 16: YAML merge value must be mapping or sequence of mappings"),
            ("password: !!int hunter2", "line 1 column 17: invalid u64"),
            ("password: !e!hunter2 x", "line 1 column 11: the handle wasn't declared"),
        ] {
            let status = parse(text.as_bytes(), "Secret").unwrap_err();
            assert_eq!(status.message, format!("error converting YAML to JSON: yaml: {expected}"), "{text:?}");
        }
    }

    #[test]
    fn other_objections_are_one_warning() {
        assert_eq!(warnings("unknown field \"a\"").collect::<Vec<_>>(), ["unknown field \"a\""]);
    }
}
