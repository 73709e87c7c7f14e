//! Schemas as CEL sees objects that are read as plain JSON: a time is a text, an amount a text or a number.

use std::sync::Arc;

use conductor_cel::{DeclType, ListSemantics, Type};
use serde_json::{Value, json};

/// How deep a schema is followed; what is below may be anything.
const DEEPEST: usize = 12;
/// How the names of object types begin, in messages.
pub(crate) const OBJECT: &str = "object ";

/// The name of an object's type.
pub(crate) fn object_name(name: &str) -> String {
    format!("{OBJECT}{name}")
}

/// The schema of a kind, and where its references lead.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'s> {
    /// What is referred to, by name.
    pub components: &'s Value,
    /// The kind's own.
    pub schema: &'s Value,
}

impl<'s> Schema<'s> {
    /// One that refers to nothing else.
    pub fn of(schema: &'s Value) -> Schema<'s> {
        Schema { components: &Value::Null, schema }
    }

    /// A schema itself, where it is said by reference.
    pub(crate) fn resolved(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..DEEPEST {
            let only = schema["allOf"].as_array().filter(|all| all.len() == 1).map(|all| &all[0]);
            let reference = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next());
            schema = match (reference, only) {
                (Some(name), _) => &self.components[name],
                (None, Some(only)) if schema["type"].is_null() => only,
                _ => return schema,
            };
        }
        &Value::Null
    }

    /// What a variable of this schema is.
    pub(crate) fn declare(&self, name: &str) -> DeclType {
        self.declared(self.schema, name, 0)
    }

    fn declared(&self, schema: &'s Value, name: &str, depth: usize) -> DeclType {
        let schema = self.resolved(schema);
        let either = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "nullable"];
        let several = ["oneOf", "anyOf", "allOf"].iter().any(|key| schema[*key].is_array());
        if depth > DEEPEST || several || either.iter().any(|key| schema[*key] == true) {
            return DeclType::any();
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (_, Some("int-or-string")) => DeclType::any(),
            (Some("string"), _) => DeclType::plain(Type::String),
            (Some("boolean"), _) => DeclType::plain(Type::Bool),
            (Some("integer"), _) => DeclType::plain(Type::Int),
            (Some("array"), _) => {
                let item = self.declared(&schema["items"], &format!("{name}[]"), depth + 1);
                DeclType::list(Arc::new(item), ListSemantics::Atomic, None)
            }
            (Some("object"), _) => match (&schema["properties"], &schema["additionalProperties"]) {
                (Value::Object(fields), _) if !fields.is_empty() => {
                    // every object of a kind has these, whether its schema says so or not
                    let whole = !schema["x-kubernetes-group-version-kind"].is_null();
                    let more = ["apiVersion", "kind", "metadata"].into_iter();
                    let more = more.filter(|key| whole && !fields.contains_key(*key));
                    let more = more.map(|key| (key.to_owned(), Arc::new(field(name, key)), false));
                    let fields = fields.iter().filter(|(field, _)| is_identifier(field)).map(|(field, schema)| {
                        let full = format!("{name}.{field}");
                        let unsaid = depth == 0 && self.resolved(schema)["properties"].is_null();
                        let decl = Some(&full).filter(|_| unsaid).and_then(|full| known_field(full, field));
                        let decl = decl.unwrap_or_else(|| self.declared(schema, &full, depth + 1));
                        (field.clone(), Arc::new(decl), false)
                    });
                    DeclType::object(&object_name(name), fields.chain(more))
                }
                (_, more @ Value::Object(_)) => {
                    let value = self.declared(more, &format!("{name}[]"), depth + 1);
                    DeclType::map(Arc::new(value), None)
                }
                _ => DeclType::any(),
            },
            // a number may be read as a whole one
            _ => DeclType::any(),
        }
    }
}

/// Whether a field can be named after a dot; any other is reached by `['NAME']` alone.
fn is_identifier(field: &str) -> bool {
    field.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !field.starts_with(|c: char| c.is_ascii_digit())
}

/// A field that is the same in every object.
fn known_field(full: &str, field: &str) -> Option<DeclType> {
    match field {
        "metadata" => {
            let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
            let texts = json!({"type": "object", "additionalProperties": text});
            let mut meta = json!({
                "labels": texts, "annotations": texts, "generation": number, "deletionGracePeriodSeconds": number,
                "finalizers": {"type": "array", "items": text}, "ownerReferences": {}, "managedFields": {},
            });
            let names = ["name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"];
            for name in names.into_iter().chain(["creationTimestamp", "deletionTimestamp"]) {
                meta[name] = text.clone();
            }
            Some(Schema::of(&json!({"type": "object", "properties": meta})).declare(full))
        }
        "apiVersion" | "kind" => Some(DeclType::plain(Type::String)),
        _ => None,
    }
}

/// A field of an object whose schema is of no use here.
pub(crate) fn field(of: &str, name: &str) -> DeclType {
    known_field(&format!("{of}.{name}"), name).unwrap_or_else(DeclType::any)
}

/// A constant.
pub(crate) fn open(name: &str, value: &Value) -> DeclType {
    match value {
        Value::String(_) => DeclType::plain(Type::String),
        Value::Bool(_) => DeclType::plain(Type::Bool),
        Value::Number(number) if number.is_i64() => DeclType::plain(Type::Int),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(field, _)| is_identifier(field))
                .map(|(field, value)| (field.clone(), Arc::new(open(&format!("{name}.{field}"), value)), false));
            DeclType::object(&object_name(name), fields)
        }
        // of no parameters at all, none has a name
        Value::Null if name.ends_with(".parameters") => DeclType::object(&object_name(name), []),
        _ => DeclType::any(),
    }
}
