//! Defaults must themselves be what the schema wants.
use serde_json::Value;

use super::{Structural, build, check, embedded, prune, validate};
use crate::field::{self, Error, Kind, Path};
use crate::schema::{MAX_DEPTH, Schema, Shape};

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Checks every default of a schema.
pub(super) fn all(built: &Structural, json: &Value, path: &Path, metadata: Option<Schema<'_>>) -> field::Errors {
    let mut errors = Vec::new();
    // Kubernetes looks at them as if nothing were int-or-string.
    let mut without = Value::Null;
    let other = mentions(json, MAX_DEPTH).then(|| {
        without = json.clone();
        forget(&mut without, MAX_DEPTH);
        build::build(&without, metadata)
    });
    walk(other.as_ref().unwrap_or(built).schema(), json, path, metadata, MAX_DEPTH, &mut errors);
    errors
}

/// The schemas within a schema where defaults can stand.
fn parts(json: &Value) -> impl Iterator<Item = &Value> {
    let fields = json.get("properties").and_then(Value::as_object).into_iter().flat_map(|all| all.values());
    fields.chain(json.get("items")).chain(json.get("additionalProperties"))
}

fn mentions(json: &Value, depth: usize) -> bool {
    depth > 0 && (json.get(INT_OR_STRING).is_some() || parts(json).any(|part| mentions(part, depth - 1)))
}

fn forget(json: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let Some(fields) = json.as_object_mut() else { return };
    fields.remove(INT_OR_STRING);
    for (name, part) in fields {
        match name.as_str() {
            "properties" => {
                part.as_object_mut().into_iter().flat_map(|all| all.values_mut()).for_each(|of| forget(of, depth))
            }
            "items" | "additionalProperties" => forget(part, depth),
            _ => {}
        }
    }
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
        let path = path.child("default");
        one(schema, default, &path, metadata, errors);
        if let Some(unknown) = json.get("type").and_then(Value::as_str).filter(|kind| !check::TYPES.contains(kind)) {
            let (found, _) = validate::type_of(default);
            let detail = format!(" in body must be of type {unknown}: {}", Value::from(found));
            errors.push(Error::new(Kind::TypeInvalid, &path, Some(found.into()), detail));
        }
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
