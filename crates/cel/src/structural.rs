//! Structural schemas to declared types, as Kubernetes maps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::decl::{DeclType, Field, Kind, ListSemantics, MAX_REQUEST_SIZE};
use crate::escape::escape;

/// Schemas nested deeper than this are not exposed to CEL.
const MAX_SCHEMA_DEPTH: usize = 200;

impl DeclType {
    /// The declared type of a structural schema (JSON schema with `x-kubernetes-*`), or `None`
    /// if CEL cannot see values of it. `resource_root` adds `apiVersion`, `kind` and
    /// `metadata.name`/`generateName`. `name` is the stem of the object types' names.
    pub fn from_structural(schema: &Json, name: &str, resource_root: bool) -> Option<Arc<DeclType>> {
        convert(schema, name, resource_root, 0).map(Arc::new)
    }
}

fn convert(schema: &Json, name: &str, root: bool, depth: usize) -> Option<DeclType> {
    if depth > MAX_SCHEMA_DEPTH {
        return None;
    }
    let nullable = flag(schema, "nullable");
    if flag(schema, "x-kubernetes-int-or-string") {
        let max = max_length(schema).unwrap_or(MAX_REQUEST_SIZE - 2);
        return Some(DeclType::new("dyn", Kind::IntOrString, max, 1).with_nullable(nullable));
    }
    let kind = schema.get("type").and_then(Json::as_str).unwrap_or(if root { "object" } else { "" });
    let decl = match kind {
        "array" => array(schema, name, depth)?,
        "object" => object(schema, name, root, depth)?,
        "string" => string(schema),
        "boolean" => DeclType::new("bool", Kind::Bool, 0, 4),
        "number" => DeclType::new("double", Kind::Double, 0, 1),
        "integer" => DeclType::new("int", Kind::Int, 0, 1),
        _ => return None,
    };
    Some(decl.with_nullable(nullable))
}

fn array(schema: &Json, name: &str, depth: usize) -> Option<DeclType> {
    let items = schema.get("items")?;
    let element = convert(items, &format!("{name}.@idx"), embedded(items), depth + 1)?;
    let semantics = match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
        Some("set") => ListSemantics::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
            ListSemantics::Map(keys.into_iter().flatten().filter_map(|k| k.as_str().map(str::to_owned)).collect())
        }
        _ => ListSemantics::Atomic,
    };
    Some(DeclType::list(Arc::new(element), semantics, bound(schema, "maxItems")))
}

fn object(schema: &Json, name: &str, root: bool, depth: usize) -> Option<DeclType> {
    if let Some(additional @ Json::Object(_)) = schema.get("additionalProperties") {
        let value = convert(additional, &format!("{name}.@elem"), embedded(additional), depth + 1)?;
        return Some(DeclType::map(Arc::new(value), bound(schema, "maxProperties")));
    }
    let required: Vec<&str> =
        schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    let mut fields = BTreeMap::new();
    let mut min_size = 2;
    let declared = schema.get("properties").and_then(Json::as_object);
    for (property, prop_schema) in declared.into_iter().flatten() {
        let Some(decl) = convert(prop_schema, &format!("{name}.{property}"), embedded(prop_schema), depth + 1) else {
            continue;
        };
        let is_required = required.contains(&property.as_str());
        if is_required && prop_schema.get("default").is_none() {
            min_size += property.len() as u64 + decl.min_serialized() + 4;
        }
        if let Some(ident) = escape(property) {
            let field = Field { property: property.clone(), decl: Arc::new(decl), required: is_required };
            fields.insert(ident.into_owned(), field);
        }
    }
    if root {
        add_object_meta(&mut fields, name);
    }
    Some(DeclType::new(name, Kind::Object(fields), 0, min_size))
}

/// What every resource has, whether its schema says so or not. Kubernetes replaces the schema's
/// `metadata` unless it has both names.
fn add_object_meta(fields: &mut BTreeMap<String, Field>, name: &str) {
    let string = || Arc::new(string(&Json::Null));
    let complete = |f: &BTreeMap<String, Field>| {
        let is_string = |f: Option<&Field>| f.is_some_and(|f| matches!(f.decl.kind(), Kind::String));
        is_string(f.get("kind"))
            && is_string(f.get("apiVersion"))
            && f.get("metadata")
                .is_some_and(|m| is_string(m.decl.field("name")) && is_string(m.decl.field("generateName")))
    };
    if complete(fields) {
        return;
    }
    let meta = DeclType::object(
        &format!("{name}.metadata"),
        [("name".to_owned(), string(), false), ("generateName".to_owned(), string(), false)],
    );
    for (property, decl) in [("kind", string()), ("apiVersion", string()), ("metadata", Arc::new(meta))] {
        fields.insert(property.to_owned(), Field { property: property.to_owned(), decl, required: false });
    }
}

fn string(schema: &Json) -> DeclType {
    let length = max_length(schema);
    match schema.get("format").and_then(Json::as_str).unwrap_or("") {
        "byte" => {
            let max = bound(schema, "maxLength").unwrap_or(MAX_REQUEST_SIZE - 2);
            DeclType::new("bytes", Kind::Bytes, max, 2)
        }
        "duration" => DeclType::new("duration", Kind::Duration, 32, 3),
        "date" => DeclType::new("timestamp", Kind::Date, 12, 12),
        "date-time" => DeclType::new("timestamp", Kind::DateTime, 32, 21),
        _ => {
            let longest =
                |values: &Vec<Json>| values.iter().filter_map(Json::as_str).map(str::len).max().unwrap_or(0) as u64;
            let enumerated = schema.get("enum").and_then(Json::as_array).filter(|e| !e.is_empty()).map(longest);
            let max = length.or(enumerated).unwrap_or(MAX_REQUEST_SIZE - 2);
            DeclType::new("string", Kind::String, max, 2)
        }
    }
}

/// `maxLength` counts code points, the bound counts bytes of which a code point has up to four.
fn max_length(schema: &Json) -> Option<u64> {
    bound(schema, "maxLength").map(|n| n.saturating_mul(4))
}

fn bound(schema: &Json, key: &str) -> Option<u64> {
    let value = schema.get(key)?;
    value.as_u64().or_else(|| value.as_i64().map(|_| 0))
}

fn flag(schema: &Json, key: &str) -> bool {
    schema.get(key).and_then(Json::as_bool).unwrap_or(false)
}

fn embedded(schema: &Json) -> bool {
    flag(schema, "x-kubernetes-embedded-resource")
}
