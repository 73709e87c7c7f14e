//! Defaults must themselves be what the schema wants.
use serde_json::Value;

use super::{Structural, embedded, prune, validate};
use crate::field::{self, Error, Path};
use crate::schema::{MAX_DEPTH, Schema, Shape};

/// Checks every default of a schema.
pub(super) fn check(built: &Structural, json: &Value, path: &Path, metadata: Option<Schema<'_>>) -> field::Errors {
    let mut errors = Vec::new();
    walk(built.schema(), json, path, metadata, MAX_DEPTH, &mut errors);
    errors
}

fn walk(
    schema: Schema<'_>,
    json: &Value,
    path: &Path,
    metadata: Option<Schema<'_>>,
    depth: usize,
    errors: &mut field::Errors,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Some(default) = json.get("default").filter(|default| !default.is_null()) {
        one(schema, default, &path.child("default"), metadata, errors);
    }
    // Maps are left out: defaults of their values are never used.
    match schema.shape() {
        Shape::List { items, .. } => {
            if let Some(json) = json.get("items") {
                walk(schema.at(*items), json, &path.child("items"), metadata, depth, errors);
            }
        }
        Shape::Object(fields) => {
            for field in fields {
                if let Some(json) = json.get("properties").and_then(|all| all.get(&*field.name)) {
                    let path = path.child("properties").key(&field.name);
                    walk(schema.at(field.schema), json, &path, metadata, depth, errors);
                }
            }
        }
        _ => {}
    }
}

fn one(schema: Schema<'_>, default: &Value, path: &Path, metadata: Option<Schema<'_>>, errors: &mut field::Errors) {
    let mut pruned = default.clone();
    if !prune::prune_part(&mut pruned, schema).is_empty() {
        errors.push(Error::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let mut coerced = default.clone();
    if let Some(metadata) = metadata
        && let Err(error) = embedded::coerce_part(&mut coerced, schema, metadata)
    {
        errors.push(under(path, *error));
        return;
    }
    let mut found = embedded::validate(default, schema);
    if found.is_empty() {
        found = validate::validate(default, None, schema);
    }
    errors.extend(found.into_iter().map(|error| under(path, error)));
}

/// The same mistake, seen from the schema.
fn under(path: &Path, error: Error) -> Error {
    let path = match error.path.as_str() {
        "" => path.clone(),
        inner => path.child(inner),
    };
    Error { path, ..error }
}
