//! What makes a schema structural: every field has its type outside of `allOf`, `anyOf`, `oneOf` and `not`.
use serde_json::{Map, Value, json};

use crate::field::{self, Error, Path};
use crate::schema::{MAX_DEPTH, pattern};

/// Where in the schema a type stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All that keeps a schema from being structural, sorted as text.
pub(super) fn check(json: &Value, path: &Path) -> field::Errors {
    let mut errors = Vec::new();
    if let Some(schema) = json.as_object() {
        invariants(schema, Level::Root, path, MAX_DEPTH, &mut errors);
        completeness(schema, Some(schema), path, path, MAX_DEPTH, &mut errors);
    }
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

type Json = Map<String, Value>;

fn text<'a>(schema: &'a Json, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or("")
}

fn flag(schema: &Json, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool) == Some(true)
}

fn object<'a>(schema: &'a Json, key: &str) -> Option<&'a Json> {
    schema.get(key).and_then(Value::as_object)
}

fn properties(schema: &Json) -> impl Iterator<Item = (&String, &Json)> {
    object(schema, "properties").into_iter().flatten().filter_map(|(name, of)| Some((name, of.as_object()?)))
}

fn alternatives<'a>(schema: &'a Json, key: &str) -> impl Iterator<Item = (usize, &'a Json)> {
    let list = schema.get(key).and_then(Value::as_array);
    list.into_iter().flatten().enumerate().filter_map(|(at, of)| Some((at, of.as_object()?)))
}

fn invariants(schema: &Json, level: Level, path: &Path, depth: usize, errors: &mut field::Errors) {
    let Some(depth) = depth.checked_sub(1) else {
        errors.push(Error::forbidden(path, "is nested too deeply"));
        return;
    };
    let kind = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");

    if kind == "array" && !schema.contains_key("items") {
        errors.push(Error::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = object(schema, "items") {
        invariants(items, Level::Item, &path.child("items"), depth, errors);
    }
    for (name, of) in properties(schema) {
        invariants(of, Level::Field, &path.child("properties").key(name), depth, errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(Error::forbidden(&at, "must not be used at the root"));
        }
        if let Some(of) = additional.as_object() {
            invariants(of, Level::Field, &at, depth, errors);
        }
        if embedded {
            errors.push(Error::forbidden(&at, "must not be used if x-kubernetes-embedded-resource is set"));
        }
    }
    for (key, set) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && set {
            errors.push(Error::invalid(&path.child(key), true, "must be false if x-kubernetes-int-or-string is true"));
        }
    }
    let any_of = Some(&json!([{"type": "integer"}, {"type": "string"}]));
    let skip_any_of = schema.get("anyOf") == any_of;
    let skip_first = alternatives(schema, "allOf").next().is_some_and(|(_, first)| first.get("anyOf") == any_of);
    values(schema, skip_any_of, skip_first, path, depth, errors);

    let at = path.child("type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() { Error::required(&at, detail) } else { Error::invalid(&at, kind, detail) });
    } else if kind.is_empty() && !int_or_string && !preserves {
        errors.push(Error::required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(Error::invalid(&at, kind, "must be object at the root"));
    }
    metadata(schema, level, embedded, path, errors);
    if embedded && !preserves && object(schema, "properties").is_none_or(Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&path.child("properties"), detail));
    }
}

/// An object's own apiVersion, kind and metadata are given: a schema may say little about them.
fn metadata(schema: &Json, level: Level, embedded: bool, path: &Path, errors: &mut field::Errors) {
    let resource = level == Level::Root || embedded;
    for (name, of) in properties(schema) {
        let at = path.child("properties").key(name);
        let kind = text(of, "type");
        match name.as_str() {
            "kind" | "apiVersion" if resource && kind != "string" => {
                errors.push(Error::invalid(&at.child("type"), kind, "must be string"));
            }
            "metadata" => {
                if resource && kind != "object" {
                    errors.push(Error::invalid(&at.child("type"), kind, "must be object"));
                }
                let names_only = object(of, "properties")
                    .is_none_or(|all| all.keys().all(|key| key == "name" || key == "generateName"));
                let nothing_else = of.keys().all(|key| matches!(key.as_str(), "type" | "properties" | "default"));
                if level == Level::Root && !(names_only && nothing_else) {
                    let detail = "must not specify anything other than name and generateName, but metadata is \
                                  implicitly specified";
                    errors.push(Error::forbidden(&at, detail));
                }
            }
            _ => {}
        }
    }
}

/// The value validations of a type.
fn values(
    schema: &Json,
    skip_any_of: bool,
    skip_first_any_of: bool,
    path: &Path,
    depth: usize,
    errors: &mut field::Errors,
) {
    if !skip_any_of {
        for (at, of) in alternatives(schema, "anyOf") {
            nested(of, false, &path.child("anyOf").index(at), depth, errors);
        }
    }
    for (at, of) in alternatives(schema, "allOf") {
        nested(of, skip_first_any_of && at == 0, &path.child("allOf").index(at), depth, errors);
    }
    for (at, of) in alternatives(schema, "oneOf") {
        nested(of, false, &path.child("oneOf").index(at), depth, errors);
    }
    if let Some(of) = object(schema, "not") {
        nested(of, false, &path.child("not"), depth, errors);
    }
    let pattern = text(schema, "pattern");
    if let Some(wrong) = Some(pattern).filter(|text| !text.is_empty()).and_then(|text| pattern::compile(text).err()) {
        let detail = format!("must be a valid regular expression, but isn't: {wrong}");
        errors.push(Error::invalid(&path.child("pattern"), pattern, detail));
    }
}

/// A schema inside of `allOf`, `anyOf`, `oneOf` or `not`: it may restrict values, not say what they look like.
fn nested(schema: &Json, skip_any_of: bool, path: &Path, depth: usize, errors: &mut field::Errors) {
    let Some(depth) = depth.checked_sub(1) else { return };
    values(schema, skip_any_of, false, path, depth, errors);
    if let Some(items) = object(schema, "items") {
        nested(items, false, &path.child("items"), depth, errors);
    }
    for (name, of) in properties(schema) {
        nested(of, false, &path.child("properties").key(name), depth, errors);
        if name == "metadata" {
            let at = path.child("properties").key(name);
            errors.push(Error::forbidden(&at, "must not be specified in a nested context"));
        }
    }
    for (key, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let set = schema.get(key).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)));
        if set {
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
}

/// Whatever a value validation speaks of must be there in the structure: `schema` restricts, `of` is the structure.
fn completeness(
    schema: &Json,
    of: Option<&Json>,
    of_path: &Path,
    path: &Path,
    depth: usize,
    errors: &mut field::Errors,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let mut each = |of_nested: &Json, path: &Path| complete(of_nested, of, of_path, path, depth, errors);
    if let Some(not) = object(schema, "not") {
        each(not, &path.child("not"));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (at, nested) in alternatives(schema, key) {
            each(nested, &path.child(key).index(at));
        }
    }
}

fn complete(schema: &Json, of: Option<&Json>, of_path: &Path, path: &Path, depth: usize, errors: &mut field::Errors) {
    let because = |path: &Path| format!("because it is defined in {path}");
    let Some(structure) = of else {
        errors.push(Error::required(of_path, because(path)));
        return;
    };
    completeness(schema, of, of_path, path, depth, errors);
    if let Some(items) = object(schema, "items") {
        let of = object(structure, "items");
        complete(items, of, &of_path.child("items"), &path.child("items"), depth.saturating_sub(1), errors);
    }
    for (name, nested) in properties(schema) {
        let of = object(structure, "properties").and_then(|all| object(all, name));
        let (of_path, path) = (of_path.child("properties").key(name), path.child("properties").key(name));
        complete(nested, of, &of_path, &path, depth.saturating_sub(1), errors);
    }
}
