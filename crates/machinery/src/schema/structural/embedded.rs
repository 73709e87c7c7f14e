//! Objects inside of objects (`x-kubernetes-embedded-resource`): their apiVersion, kind and metadata.
use serde_json::{Map, Value};

use crate::field::{self, Error, Path};
use crate::schema::{MAX_DEPTH, Schema, Shape, decode};
use crate::{meta, names};

/// Brings the metadata of the object and of embedded ones into shape: unknown fields are dropped and named, a wrong type is an
/// error.
pub(super) fn coerce(
    value: &mut Value,
    schema: Schema<'_>,
    metadata: Schema<'_>,
) -> Result<Vec<String>, Box<field::Error>> {
    coerce_part(value, schema, metadata, true)
}

/// The same for a part of an object, or with `root` for a whole one.
pub(super) fn coerce_part(
    value: &mut Value,
    schema: Schema<'_>,
    metadata: Schema<'_>,
    root: bool,
) -> Result<Vec<String>, Box<field::Error>> {
    let mut unknown = Vec::new();
    let mut visit = |map: &mut Map<String, Value>, path: &Path| coerce_one(map, path, metadata, &mut unknown);
    walk(value, schema, root, &Path::empty(), MAX_DEPTH, &mut visit)?;
    unknown.sort();
    Ok(unknown)
}

fn coerce_one(
    map: &mut Map<String, Value>,
    path: &Path,
    metadata: Schema<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), Box<field::Error>> {
    for key in ["apiVersion", "kind"] {
        if let Some(value) = map.get(key).filter(|value| !value.is_string()) {
            return Err(Box::new(Error::invalid(&path.child(key), value.clone(), "must be a string")));
        }
    }
    let Some(value) = map.get_mut("metadata") else { return Ok(()) };
    let path = path.child("metadata");
    match decode(value.clone(), metadata) {
        Ok(decoded) => {
            for name in decoded.unknown {
                let name = name.strip_prefix("unknown field \"").unwrap_or(&name).to_owned();
                unknown.push(format!("unknown field \"{path}.{name}"));
            }
            *value = decoded.value;
            Ok(())
        }
        Err(error) => Err(Box::new(Error::invalid(&path, value.take(), error.to_string()))),
    }
}

type Visit<'v> = dyn FnMut(&mut Map<String, Value>, &Path) -> Result<(), Box<field::Error>> + 'v;

/// Visits every embedded object, and the object itself if `root`.
fn walk(
    value: &mut Value,
    schema: Schema<'_>,
    root: bool,
    path: &Path,
    depth: usize,
    visit: &mut Visit<'_>,
) -> Result<(), Box<field::Error>> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
    match value {
        Value::Object(map) => {
            if root || schema.node().embedded {
                visit(map, path)?;
            }
            for (name, value) in map.iter_mut() {
                let (of, path) = match schema.shape() {
                    Shape::Map(values) => (schema.at(*values), path.key(name)),
                    _ => match schema.field(name) {
                        Some(field) => (schema.at(field.schema), path.child(name)),
                        None => continue,
                    },
                };
                if has_structure(of) {
                    walk(value, of, false, &path, depth, visit)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items().filter(|of| has_structure(*of)) {
                for (index, item) in items.iter_mut().enumerate() {
                    walk(item, of, false, &path.index(index), depth, visit)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn has_structure(schema: Schema<'_>) -> bool {
    matches!(schema.shape(), Shape::Object(_) | Shape::Map(_) | Shape::List { .. })
}

/// Validates embedded objects, and with `root` the object itself: those of a kind are validated by that.
pub(super) fn validate(value: &Value, schema: Schema<'_>, root: bool) -> field::Errors {
    let mut errors = Vec::new();
    if let Value::Object(map) = value
        && root
        && !schema.node().embedded
    {
        check_one(map, &Path::empty(), &mut errors);
    }
    check(value, schema, &Path::empty(), MAX_DEPTH, &mut errors);
    errors
}

fn check(value: &Value, schema: Schema<'_>, path: &Path, depth: usize, errors: &mut field::Errors) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(map) => {
            if schema.node().embedded {
                check_one(map, path, errors);
            }
            match schema.shape() {
                Shape::Map(values) if has_structure(schema.at(*values)) => {
                    let of = schema.at(*values);
                    map.iter().for_each(|(key, value)| check(value, of, &path.key(key), depth, errors));
                }
                Shape::Object(fields) => {
                    for field in fields.iter().filter(|field| has_structure(schema.at(field.schema))) {
                        if let Some(value) = map.get(&*field.name) {
                            check(value, schema.at(field.schema), &path.child(&field.name), depth, errors);
                        }
                    }
                }
                _ => {}
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items().filter(|of| has_structure(*of)) {
                let each = items.iter().enumerate();
                each.for_each(|(index, item)| check(item, of, &path.index(index), depth, errors));
            }
        }
        _ => {}
    }
}

fn check_one(map: &Map<String, Value>, path: &Path, errors: &mut field::Errors) {
    for key in ["apiVersion", "kind"] {
        let path = path.child(key);
        let detail = match map.get(key) {
            None => {
                errors.push(Error::required(&path, ""));
                continue;
            }
            Some(Value::String(text)) if text.is_empty() => "must not be empty".to_owned(),
            Some(Value::String(text)) if key == "apiVersion" => match text.matches('/').count() {
                0 | 1 => continue,
                _ => format!("unexpected GroupVersion string: {text}"),
            },
            Some(Value::String(text)) => match names::dns1035_label(&text.to_lowercase()) {
                wrong if wrong.is_empty() => continue,
                wrong => format!("may have mixed case, but should otherwise match: {}", wrong.join(",")),
            },
            Some(_) => "must be a string".to_owned(),
        };
        errors.push(Error::invalid(&path, map[key].clone(), detail));
    }
    if let Some(metadata) = map.get("metadata") {
        let path = path.child("metadata");
        let mut metadata = metadata.clone();
        let Value::Object(fields) = &mut metadata else {
            errors.push(Error::invalid(&path, metadata, "must be an object"));
            return;
        };
        if fields.get("name").and_then(Value::as_str).unwrap_or("").is_empty() {
            // An embedded object needs no name; something must stand there for the check.
            fields.insert("name".into(), "fakename".into());
        }
        let namespaced = fields.get("namespace").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        errors.extend(meta::validate_object_meta(&metadata, namespaced, names::name_is_path_segment, &path));
    }
}
