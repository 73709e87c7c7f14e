//! Filling in defaults, and what becomes of nulls.
use serde_json::Value;

use crate::schema::{MAX_DEPTH, Schema, Shape};

/// Drops nulls where the schema allows none and has no default to put there. Nulls in lists stay.
pub(super) fn prune_nulls(value: &mut Value, schema: Option<Schema<'_>>) {
    nulls(value, schema, MAX_DEPTH);
}

fn nulls(value: &mut Value, schema: Option<Schema<'_>>, depth: usize) {
    let (Some(depth), Some(schema)) = (depth.checked_sub(1), schema) else { return };
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let (of, default) = child(schema, name);
            let Some(of) = of else { return true };
            if value.is_null() {
                return of.node().nullable || default.is_some();
            }
            nulls(value, Some(of), depth);
            true
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| nulls(item, schema.items(), depth)),
        _ => {}
    }
}

/// The type of a field or of a map's values, and the field's default.
fn child<'a>(schema: Schema<'a>, name: &str) -> (Option<Schema<'a>>, Option<&'a Value>) {
    match schema.shape() {
        // `additionalProperties: true` is no schema.
        Shape::Map(values) => {
            let of = schema.at(*values);
            match matches!(of.shape(), Shape::Any) && !of.node().preserve_unknown {
                true => (None, None),
                false => (Some(of), of_items(of)),
            }
        }
        _ => match schema.field(name) {
            Some(field) => (Some(schema.at(field.schema)), field.default.as_ref()),
            None => (None, None),
        },
    }
}

/// What stands for a null among the items of a list or the values of a map.
fn of_items<'a>(schema: Schema<'a>) -> Option<&'a Value> {
    schema.node().rules.as_deref()?.default.as_ref()
}

/// Fills in defaults of fields that are absent, or null where null may not be.
pub(super) fn fill(value: &mut Value, schema: Option<Schema<'_>>) {
    walk(value, schema, MAX_DEPTH);
}

fn walk(value: &mut Value, schema: Option<Schema<'_>>, depth: usize) {
    let (Some(depth), Some(schema)) = (depth.checked_sub(1), schema) else { return };
    match value {
        Value::Object(map) => {
            if let Shape::Object(fields) = schema.shape() {
                for field in fields {
                    let Some(default) = &field.default else { continue };
                    let nullable = schema.at(field.schema).node().nullable;
                    if map.get(&*field.name).is_none_or(|value| value.is_null() && !nullable) {
                        map.insert(field.name.to_string(), default.clone());
                    }
                }
            }
            for (name, value) in map.iter_mut() {
                let (of, default) = child(schema, name);
                replace_null(value, of, default);
                walk(value, of, depth);
            }
        }
        Value::Array(items) => {
            let Some(of) = schema.items() else { return };
            for item in items {
                replace_null(item, Some(of), of_items(of));
                walk(item, Some(of), depth);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, of: Option<Schema<'_>>, default: Option<&Value>) {
    if value.is_null()
        && let (Some(of), Some(default)) = (of, default)
        && !of.node().nullable
    {
        *value = default.clone();
    }
}
