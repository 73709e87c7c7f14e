//! The defaults that stand in the table itself.
use serde_json::Value;

use super::{MAX_DEPTH, Schema, Shape};

/// Fills in the defaults of a built-in type, everywhere an object exists that lacks the field. What depends on other fields is
/// not here but among the rules of the kinds.
pub fn apply_openapi_defaults(value: &mut Value, schema: Schema<'_>) {
    walk(value, schema, MAX_DEPTH);
}

fn walk(value: &mut Value, schema: Schema<'_>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match (schema.shape(), value) {
        (Shape::Object(fields), Value::Object(map)) => {
            // Zeros are for the keys of lists; nobody writes them into an object.
            let zero = |value: &Value| *value == "" || *value == 0 || *value == false;
            for field in fields.iter().filter(|field| field.default.as_ref().is_some_and(|default| !zero(default))) {
                let absent = map.get(&*field.name).is_none_or(Value::is_null);
                if let (true, Some(default)) = (absent, &field.default) {
                    map.insert(field.name.to_string(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(of) = schema.child(name) {
                    walk(value, of, depth);
                }
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            let of = schema.at(*values);
            if may_have_defaults(of) {
                map.values_mut().for_each(|value| walk(value, of, depth));
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            let of = schema.at(*items);
            if may_have_defaults(of) {
                list.iter_mut().for_each(|value| walk(value, of, depth));
            }
        }
        _ => {}
    }
}

fn may_have_defaults(schema: Schema<'_>) -> bool {
    matches!(schema.shape(), Shape::Object(_) | Shape::Map(_) | Shape::List { .. })
}
