//! Paths to the fields of a schema, as rules and selectable fields write them: `.spec.items`, `.labels['a.b']`.
use serde_json::Value;

use crate::field::Path;

/// The field that a path names, and its schema; there is none for values of `additionalProperties: true`.
pub fn field_path<'a>(schema: &'a Value, text: &str, brackets: bool) -> Result<(Path, Option<&'a Value>), String> {
    const END: &str = "unexpected end of JSON path";
    let mut found = (Path::empty(), Some(schema));
    let mut tokens = Tokens(text);
    while let Some(token) = tokens.next() {
        match token {
            "[" if !brackets => return Err("array notation is not allowed".into()),
            "[" => {
                let name = unquoted(tokens.next().ok_or(END)?)?;
                found = below(found, &name)?;
                match tokens.next().ok_or(END)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            "." => found = below(found, tokens.next().ok_or(END)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

fn below<'a>((path, schema): (Path, Option<&'a Value>), name: &str) -> Result<(Path, Option<&'a Value>), String> {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object()).filter(|all| !all.is_empty());
    let values = schema.and_then(|schema| schema.get("additionalProperties"));
    match (properties.map(|all| all.get(name)), values) {
        (Some(Some(field)), _) => Ok((path.child(name), Some(field))),
        (None, Some(values)) => Ok((path.key(name), Some(values).filter(|values| values.is_object()))),
        _ => Err("does not refer to a valid field".into()),
    }
}

/// Dots and brackets, and what is between them. Within quotes they stand for themselves.
struct Tokens<'t>(&'t str);

impl<'t> Tokens<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let text = self.0;
        let first = text.chars().next()?;
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let bytes = text.as_bytes();
                let closes = |at: &usize| bytes[*at] == b'\'' && bytes[at - 1] != b'\\';
                (1..text.len()).find(closes).map_or(text.len(), |at| at + 1)
            }
            _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

fn unquoted(token: &str) -> Result<String, String> {
    let inner = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    let mut name = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        name.push(match (c, if c == '\\' { rest.next() } else { None }) {
            ('\\', Some('a')) => '\u{7}',
            ('\\', Some('b')) => '\u{8}',
            ('\\', Some('f')) => '\u{c}',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('t')) => '\t',
            ('\\', Some('v')) => '\u{b}',
            ('\\', Some(same @ ('\'' | '\\'))) => same,
            ('\\', Some(other)) => {
                return Err(format!("invalid string literal: invalid escape char \\{other}"));
            }
            (c, _) => c,
        });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_fields_and_values_of_maps() {
        let schema = json!({"properties": {
            "a": {"type": "string"},
            "a.b": {"type": "integer"},
            "o": {"properties": {"x": {"type": "boolean"}}},
            "m": {"additionalProperties": {"type": "string"}},
            "any": {"additionalProperties": true},
            "l": {"items": {"type": "string"}}}});
        let check = |text: &str, brackets: bool, expect: Result<&str, &str>| {
            let found = field_path(&schema, text, brackets);
            let shown =
                found.map(|(path, of)| format!("{path} {}", of.map_or("?", |of| of["type"].as_str().unwrap_or(""))));
            assert_eq!(shown.as_deref().map_err(String::as_str), expect, "{text}");
        };
        const NOWHERE: Result<&str, &str> = Err("does not refer to a valid field");
        const END: Result<&str, &str> = Err("unexpected end of JSON path");
        check(".a", true, Ok("a string"));
        check(".o.x", true, Ok("o.x boolean"));
        check("['a.b']", true, Ok("a.b integer"));
        check(".m.k", false, Ok("m[k] string"));
        check(r".m['it\'s']", true, Ok("m[it's] string"));
        check(".any.k", true, Ok("any[k] ?"));
        check(".any.k.l", true, NOWHERE);
        check(".l[0]", true, Err("expected single quoted string but got 0"));
        check(".l[0]", false, Err("array notation is not allowed"));
        check(".l['0']", true, NOWHERE);
        check(".zz", true, NOWHERE);
        check(".a.b", true, NOWHERE);
        check("..", true, NOWHERE);
        check(".", true, END);
        check(".o['x'", true, END);
        check(".o['x'.", true, Err("expected ] but got ."));
        check(".o['x", true, Err("expected single quoted string but got 'x"));
        check(".o['", true, Err("expected single quoted string but got '"));
        check("a", true, Err("expected [ or . but got: a"));
        check("  ", true, Err("expected [ or . but got:   "));
        check(r".m['\q']", true, Err(r"invalid string literal: invalid escape char \q"));
    }
}
