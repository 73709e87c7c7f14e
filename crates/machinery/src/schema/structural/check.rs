//! What Kubernetes does not allow in the schema of a CustomResourceDefinition, structural or not.
use serde_json::{Map, Value};

use super::{field_path, is_meta_field};
use crate::field::{self, Error, Path};
use crate::schema::MAX_DEPTH;

type Json = Map<String, Value>;

/// The fields that a schema may have at its root when the status subresource is on.
const AT_ROOT: &[(&str, &str)] = &[
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XValidations", "x-kubernetes-validations"),
];

/// Keys that no schema may have.
const NOT_SUPPORTED: &[&str] = &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// What is wrong with the root alone.
pub(super) fn root(json: &Value, path: &Path, status: bool) -> field::Errors {
    let mut errors = Vec::new();
    let Some(schema) = json.as_object() else { return errors };
    let kind = text(schema, "type");
    if status {
        if !kind.is_empty() && kind != "object" {
            let detail =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.push(Error::invalid(&path.child("type"), kind, detail));
        }
        if schema.keys().any(|key| !AT_ROOT.iter().any(|(_, allowed)| allowed == key)) {
            let names: Vec<&str> = AT_ROOT.iter().map(|(name, _)| *name).collect();
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                names.join(" ")
            );
            errors.push(Error::invalid(path, json.clone(), detail));
        }
    }
    if flag(schema, "nullable") {
        errors.push(Error::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    errors
}

/// Whether types can be built from the schema at all; if not, [`schema`] says why.
pub(super) fn is_buildable(json: &Value) -> bool {
    fn walk(json: &Value, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let Some(schema) = json.as_object() else { return true };
        is_buildable_itself(schema) && below(schema).all(|of| walk(of, depth))
    }
    walk(json, MAX_DEPTH)
}

fn is_buildable_itself(schema: &Json) -> bool {
    !NOT_SUPPORTED.iter().any(|key| schema.contains_key(*key))
        && !schema.get("items").is_some_and(Value::is_array)
        && schema.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(false))
}

/// The schemas within a schema.
fn below(schema: &Json) -> impl Iterator<Item = &Value> {
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|key| schema.get(key));
    let listed = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let named = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    single.chain(listed).chain(named)
}

/// All that is not allowed anywhere in the schema.
pub(super) fn schema(json: &Value, path: &Path) -> field::Errors {
    let mut errors = Vec::new();
    walk(json, path, Inside { root: true, ..Inside::default() }, MAX_DEPTH, &mut errors);
    errors
}

/// Where in the schema a type stands.
#[derive(Clone, Default)]
struct Inside {
    root: bool,
    /// Inside apiVersion, kind or metadata of an object.
    meta: bool,
    /// Why defaults may not be set here.
    no_defaults: Option<String>,
}

/// The types there are.
pub(super) const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

fn text<'a>(schema: &'a Json, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or("")
}

fn flag(schema: &Json, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool) == Some(true)
}

/// Says whether types can be built from it.
fn walk(json: &Value, path: &Path, inside: Inside, depth: usize, errors: &mut field::Errors) -> bool {
    let Some(schema) = json.as_object() else { return true };
    let Some(depth) = depth.checked_sub(1) else {
        errors.push(Error::forbidden(path, "is nested too deeply"));
        return false;
    };
    let mut buildable = is_buildable_itself(schema);
    standard(schema, path, &inside, errors);
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(Error::forbidden(&path.child("uniqueItems"), detail));
    }
    let below = Inside { root: false, ..inside.clone() };
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(additional) = schema.get("additionalProperties") {
        let at = path.child("additionalProperties");
        if properties.is_some_and(|all| !all.is_empty()) && *additional != Value::Bool(true) {
            errors.push(Error::forbidden(&at, "additionalProperties and properties are mutual exclusive"));
        }
        let mut below = below.clone();
        if below.meta {
            below.no_defaults = Some("inside additionalProperties applying to object metadata".into());
        }
        buildable &= walk(additional, &at, below, depth, errors);
    }
    for (name, of) in properties.into_iter().flatten() {
        let mut below = below.clone();
        if (inside.root || flag(schema, "x-kubernetes-embedded-resource")) && is_meta_field(name) {
            below.meta = true;
            if inside.root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        buildable &= walk(of, &path.child("properties").key(name), below, depth, errors);
    }
    for key in ["items", "not"] {
        if let Some(of) = schema.get(key) {
            buildable &= walk(of, &path.child(key), below.clone(), depth, errors);
        }
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (at, of) in schema.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            buildable &= walk(of, &path.child(key).index(at), below.clone(), depth, errors);
        }
    }
    extensions(schema, path, errors);
    lists(schema, path, errors);
    rules(json, buildable, path, errors);
    buildable
}

/// What is allowed of JSON Schema.
fn standard(schema: &Json, path: &Path, inside: &Inside, errors: &mut field::Errors) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(Error::not_supported(&path.child("type"), kind, TYPES));
    }
    if let Some(reason) = inside.no_defaults.as_ref().filter(|_| schema.contains_key("default")) {
        errors.push(Error::forbidden(&path.child("default"), format!("must not be set {reason}")));
    }
    for key in NOT_SUPPORTED.iter().filter(|key| schema.contains_key(**key)) {
        errors.push(Error::forbidden(&path.child(key), format!("{key} is not supported")));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(Error::forbidden(&path.child("type"), detail));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        errors.push(Error::forbidden(&path.child("items"), "items must be a schema object and not an array"));
    }
    if inside.meta && flag(schema, "x-kubernetes-embedded-resource") {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.push(Error::forbidden(&at, "must not be used inside of resource meta"));
    }
}

fn extensions(schema: &Json, path: &Path, errors: &mut field::Errors) {
    let kind = text(schema, "type");
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(Error::invalid(&at, false, "must be true or undefined"));
    }
    for (key, wanted, allowed) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(value) = schema.get(key).and_then(Value::as_str) else { continue };
        if kind != wanted {
            let (at, detail) = (path.child("type"), format!("must be {wanted} if {key} is specified"));
            errors.push(if kind.is_empty() { Error::required(&at, detail) } else { Error::invalid(&at, kind, detail) });
        }
        if !allowed.contains(&value) {
            errors.push(Error::not_supported(&path.child(key), value, allowed));
        }
    }
}

/// Lists of type set and map.
fn lists(schema: &Json, path: &Path, errors: &mut field::Errors) {
    let list = text(schema, "x-kubernetes-list-type");
    let keys: Vec<&str> = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let items = schema.get("items").and_then(Value::as_object);
    if !keys.is_empty() && list != "map" {
        let (at, detail) =
            (path.child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        errors.push(if list.is_empty() { Error::required(&at, detail) } else { Error::invalid(&at, list, detail) });
    }
    let at_items = path.child("items");
    if let (true, Some(items)) = (list == "set" || list == "map", items)
        && flag(items, "nullable")
    {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(Error::forbidden(&at_items.child("nullable"), detail));
    }
    if let ("set", Some(items)) = (list, items) {
        let (key, wrong) = match text(items, "type") {
            "array" => ("x-kubernetes-list-type", !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic")),
            "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != "atomic"),
            _ => ("", false),
        };
        if wrong {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let value = items.get("x-kubernetes-list-type").cloned().unwrap_or(Value::Null);
            errors.push(Error::invalid(&at_items.child(key), value, detail));
        }
    }
    if list != "map" {
        return;
    }
    let at_keys = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(Error::required(&at_keys, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = items else {
        errors.push(Error::required(&at_items, "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(&at_items.child("type"), kind, detail));
        return;
    }
    let required: Vec<&str> =
        items.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (at, key) in keys.iter().enumerate() {
        if keys[..at].contains(key) {
            errors.push(Error::invalid(&at_keys, keys.clone(), "must not contain duplicate entries"));
        }
        let property = items.get("properties").and_then(|all| all.get(*key)).and_then(Value::as_object);
        let Some(property) = property else {
            errors.push(Error::invalid(&at_keys, keys.clone(), "entries must all be names of item properties"));
            continue;
        };
        let at_key = at_items.child("properties").key(key);
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(Error::invalid(&at_key.child("type"), kind, detail));
        }
        if !required.contains(key) && !property.contains_key("default") {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(&at_key.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(&at_key.child("nullable"), detail));
        }
    }
}

/// The frame of CEL rules; what they say is checked elsewhere.
fn rules(json: &Value, buildable: bool, path: &Path, errors: &mut field::Errors) {
    const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let all = json.get("x-kubernetes-validations").and_then(Value::as_array);
    for (at, rule) in all.into_iter().flatten().enumerate() {
        let Some(rule) = rule.as_object() else { continue };
        let at = path.child("x-kubernetes-validations").index(at);
        let breaks = |text: &str| text.contains(['\n', '\r']);
        let (message, expression) = (text(rule, "message"), text(rule, "rule").trim());
        if expression.is_empty() {
            errors.push(Error::required(&at.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(Error::invalid(&at.child("message"), message, "must be non-empty if specified"));
        } else if breaks(message.trim()) {
            errors.push(Error::invalid(&at.child("message"), message, "must not contain line breaks"));
        } else if breaks(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(Error::required(&at.child("message"), detail));
        }
        let words = text(rule, "messageExpression");
        if !words.is_empty() && words.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(Error::required(&at.child("messageExpression"), detail));
        }
        let reason = text(rule, "reason");
        if rule.contains_key("reason") && !REASONS.contains(&reason) {
            errors.push(Error::not_supported(&at.child("reason"), reason, REASONS));
        }
        let field = text(rule, "fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            errors.push(Error::invalid(&at.child("fieldPath"), field, "must be non-empty if specified"));
        }
        if breaks(field) {
            errors.push(Error::invalid(&at.child("fieldPath"), field, "must not contain line breaks"));
        }
        if !field.is_empty() && buildable && field_path(json, field, true).is_err() {
            errors.push(Error::invalid(&at.child("fieldPath"), field, "must be a valid path"));
        }
    }
}
