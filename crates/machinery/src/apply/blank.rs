//! What an object that does not exist yet looks like: what a create is compared with.

use serde_json::{Map, Value, json};

use crate::schema::{Schema, zero};

/// The zero value of a built-in kind: its nested structs, and the fields that are always written.
///
/// It decides whether a creator owns `.spec` itself (a struct that is always there: no) or `.data` (a map that was not
/// there before: yes).
pub fn blank(schema: Schema<'_>, api_version: &str, kind: &str) -> Value {
    let mut object = match zero(schema) {
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
