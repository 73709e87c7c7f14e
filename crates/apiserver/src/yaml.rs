//! YAML from clients, read as JSON.

mod compose;
mod scalar;

use machinery::status::Status;
use serde_json::Value;

/// What strict validation's objections to a YAML text begin with; each has a line of its own.
const HEAD: &str = "yaml: unmarshal errors:";

/// Reads a text, and says which keys stand twice, as one objection of strict validation.
pub fn parse(body: &[u8]) -> Result<(Value, Option<String>), Status> {
    // JSON is YAML, and read much faster as what it is. What is wrong about it is said as of YAML.
    if body.trim_ascii_start().first() == Some(&b'{') {
        if let Ok(machinery::json::Parsed { value, duplicates }) = machinery::json::parse(body) {
            if duplicates.is_empty() {
                return Ok((value, None));
            }
        }
    }
    let text = std::str::from_utf8(body).map_err(|_| Status::bad_request("the YAML body is not UTF-8"))?;
    let (value, twice) = compose::compose(text)
        .map_err(|wrong| Status::bad_request(format!("error converting YAML to JSON: yaml: {wrong}")))?;
    let objection = (!twice.is_empty()).then(|| format!("{HEAD}\n  {}", twice.join("\n  ")));
    Ok((value, objection))
}

/// An objection as warnings: one for each line, if it is about YAML.
pub fn warnings(objection: &str) -> impl Iterator<Item = &str> {
    objection.strip_prefix(HEAD).map_or(objection, str::trim_start).split('\n').map(str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(text: &str) -> Vec<String> {
        let (_, objection) = parse(text.as_bytes()).unwrap();
        objection.iter().flat_map(|text| warnings(text)).map(str::to_owned).collect()
    }

    #[test]
    fn all_keys_that_stand_twice_are_named() {
        assert!(twice("a: 1\nb: [1, {c: 2}]\n").is_empty());
        let text = "a: 1\na: 2\nl:\n- b: 1\n  b: 2\n  b: 3\no:\n  x: 1\no:\n  z: null\n  z: true\n";
        let expected = [
            "line 2: key \"a\" already set in map",
            "line 5: key \"b\" already set in map",
            "line 6: key \"b\" already set in map",
            "line 11: key \"z\" already set in map",
            "line 10: key \"o\" already set in map",
        ];
        assert_eq!(twice(text), expected);
    }

    #[test]
    fn json_is_read_as_json_and_objected_to_as_yaml() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
        assert_eq!(parse(deep.as_bytes()).unwrap().0, serde_json::from_str::<Value>(&deep).unwrap());
        let sent = " {\"a\": \"yes\", \"n\": 1e2, \"s\": \"\\ud83d\\ude00\", \"l\": [null, 1.50]}";
        assert_eq!(parse(sent.as_bytes()).unwrap(), (serde_json::from_str(sent).unwrap(), None));
        let text = "{\"a\": {\"b\": 1,\n\"b\": 2},\n\"a\": 3}";
        assert_eq!(twice(text), ["line 2: key \"b\" already set in map", "line 3: key \"a\" already set in map"]);
        // Flow style is no JSON.
        assert_eq!(parse(b"{a: yes, b: [1]}").unwrap().0["b"][0], 1);
    }

    #[test]
    fn objections_quote_nothing_of_the_text() {
        for (text, expected) in [
            ("password: hunter2\nother: [unclosed\n", "line 2 column 8: unclosed bracket '['"),
            ("password: \"hunter2\nother: 1", "line 2 column 1: invalid indentation in multiline quoted scalar"),
            ("password: *hunter2", "line 1 column 11: while parsing node, found unknown anchor"),
            ("password: hunter2: 1", "line 1 column 18: mapping values are not allowed in this context"),
            ("? [hunter2]\n: 1", "line 1 column 3: invalid map key"),
            ("password: {<<: hunter2}", "line 1 column 16: map merge requires map or sequence of maps as the value"),
            ("password: !!int hunter2", "line 1 column 17: cannot decode the value as a !!int"),
            ("password: !e!hunter2 x", "line 1 column 11: the handle wasn't declared"),
        ] {
            let status = parse(text.as_bytes()).unwrap_err();
            assert_eq!(status.message, format!("error converting YAML to JSON: yaml: {expected}"), "{text:?}");
        }
    }

    #[test]
    fn texts_that_look_like_something_else_come_back_as_they_were_written() {
        for text in [
            "0644",
            "0o644",
            "0b101",
            "-0b101",
            "0x1F",
            "1_000",
            "1__0",
            "685_230.15",
            ".5_0",
            "1e3",
            "089",
            "+12",
            "y",
            "No",
            "on",
            "~",
            "NULL",
            "",
            ".inf",
            "<<",
            "2001-01-01",
            "190:20:30",
            "- a",
            "a: b",
            "x\n",
            " x",
            "---",
        ] {
            let value = serde_json::json!({"a": text, "l": [text], text: 1});
            let written = serde_saphyr::to_string(&value).unwrap();
            assert_eq!(parse(written.as_bytes()).unwrap(), (value, None), "{written}");
        }
    }

    #[test]
    fn other_objections_are_one_warning() {
        assert_eq!(warnings("unknown field \"a\"").collect::<Vec<_>>(), ["unknown field \"a\""]);
    }
}
