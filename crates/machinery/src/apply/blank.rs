//! What an object that does not exist yet looks like: what a create is compared with.

use serde_json::{Map, Value, json};

use crate::schema::{Field, Schema, Shape, Text};

/// The zero value of a built-in kind: its nested structs, and the fields that are always written.
///
/// It decides whether a creator owns `.spec` itself (a struct that is always there: no) or `.data` (a map that was not
/// there before: yes).
pub fn blank(schema: Schema<'_>, api_version: &str, kind: &str) -> Value {
    let mut object = match zero_object(schema, 0) {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Value::Object(object)
}

/// The same for a custom resource, which has no fields before it is written.
pub fn blank_custom(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind})
}

/// Go structs cannot contain themselves by value, so this ends; the bound guards against a wrong table.
fn zero_object(schema: Schema<'_>, depth: usize) -> Value {
    let Shape::Object(fields) = schema.shape() else { return Value::Null };
    if depth > 16 {
        return json!({});
    }
    let entries = fields
        .iter()
        .filter_map(|field| zero(field, schema.at(field.schema), depth).map(|value| (field.name.to_string(), value)));
    Value::Object(entries.collect())
}

/// The zero value of a field as it is written; none if it is left out.
fn zero(field: &Field, schema: Schema<'_>, depth: usize) -> Option<Value> {
    if field.pointer {
        return (!field.omit_empty).then_some(Value::Null);
    }
    match schema.shape() {
        // A struct is written even if it is empty.
        Shape::Object(fields) if !fields.is_empty() => Some(zero_object(schema, depth + 1)),
        _ if field.omit_empty => None,
        Shape::String(Text::Time | Text::MicroTime) => Some(Value::Null),
        Shape::String(Text::Quantity) => Some(json!("0")),
        Shape::String(Text::Duration) => Some(json!("0s")),
        Shape::String(Text::Bytes) => Some(Value::Null),
        Shape::String(Text::Plain) => Some(json!("")),
        Shape::Integer { .. } | Shape::Number | Shape::IntOrString => Some(json!(0)),
        Shape::Boolean => Some(json!(false)),
        Shape::Any | Shape::Object(_) | Shape::Map(_) | Shape::List { .. } => Some(Value::Null),
    }
}
