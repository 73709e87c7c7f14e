//! What mutating policies make: `Object{spec: Object.spec{replicas: 1}}` and `JSONPatch{op: 'add', path: '/a', value: 1}`.

use std::sync::Arc;

use crate::decl::{DeclType, Kind};
use crate::types::Type;
use crate::value::{Map, Value};

/// The type of apply configurations; what is below has its path in its name.
pub const OBJECT: &str = "Object";
/// The type of one operation of a JSON patch.
pub const PATCH: &str = "JSONPatch";
/// Deepest value that is looked into.
const MAX_DEPTH: usize = 500;

/// Whether objects of this type can be made.
pub(crate) fn is_made(name: &str) -> bool {
    name == PATCH || name == OBJECT || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

/// The type of this name.
pub(crate) fn made(name: &str) -> Type {
    Type::Object(Arc::new(DeclType::new(name, Kind::Object(Default::default()), 0, 2)))
}

/// The type of expressions that yield an apply configuration.
pub fn configuration() -> Type {
    made(OBJECT)
}

/// The type of expressions that yield a JSON patch.
pub fn patch() -> Type {
    Type::list(made(PATCH))
}

/// Whether every object in a value is of the type that its place has: `Object.spec` under `spec`.
pub fn check_names(value: &Value<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    let mut path = Vec::new();
    if let Value::Map(Map::Made(name, _)) = value {
        path.push((*name).to_owned());
    }
    visit(value, &mut path, &mut errors, 0);
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

fn visit(value: &Value<'_>, path: &mut Vec<String>, errors: &mut Vec<String>, depth: usize) {
    if depth > MAX_DEPTH {
        return errors.push("value is nested too deeply".to_owned());
    }
    match value {
        Value::Map(Map::Made(name, fields)) => {
            let expected = path.join(".");
            if expected != *name {
                errors.push(format!(
                    "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
                ));
            }
            for (key, below) in fields.iter() {
                if let Value::String(key) = key.to_value() {
                    path.push(key.to_string());
                    visit(below, path, errors, depth + 1);
                    path.pop();
                }
            }
        }
        Value::Map(Map::Shared(entries)) => entries.values().for_each(|below| visit(below, path, errors, depth + 1)),
        Value::List(list) => list.iter().flatten().for_each(|below| visit(&below, path, errors, depth + 1)),
        _ => {}
    }
}
