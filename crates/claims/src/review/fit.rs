//! Whether a template fits the schema of its kind, as far as the server's OpenAPI documents say it.

use std::sync::LazyLock;

use conductor_cel::Type;
use serde_json::{Value, json};

use crate::amount::Amount;
use crate::declared::Schema;
use crate::errors::{FieldError, Path};
use crate::template::whole;
use crate::types::group_of;

/// How deep a schema is followed; what is below is the server's to judge.
const DEEPEST: usize = 32;

/// The schema of one kind.
#[derive(Clone, Copy)]
pub(super) struct Fit<'f>(pub(super) Schema<'f>);

/// The type of what an expression yields, if it can be evaluated at all.
type Yields<'y> = &'y dyn Fn(&str) -> Option<Type>;

impl<'f> Fit<'f> {
    /// The schema of a template's kind, if one of the documents has it.
    pub(super) fn of(documents: &'f [Value], template: &Value) -> Option<Fit<'f>> {
        let text = |key: &str| template[key].as_str().unwrap_or_default();
        let (group, kind) = (group_of(text("apiVersion")), text("kind"));
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        documents.iter().find_map(|document| {
            let components = &document["components"]["schemas"];
            let own = |schema: &&Value| {
                let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
                kinds.into_iter().any(|k| k["group"] == group && k["version"] == version && k["kind"] == kind)
            };
            let schema = components.as_object()?.values().find(own)?;
            Some(Fit(Schema { components, schema }))
        })
    }

    /// The metadata of any kind, as far as a template may say it.
    pub(super) fn metadata() -> Fit<'static> {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
            let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
            json!({
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"labels": texts, "annotations": texts},
            })
        });
        Fit(Schema::of(&SCHEMA))
    }

    /// What of a template's metadata cannot be.
    pub(super) fn misplaced(&self, metadata: &Value, path: &Path, yields: Yields<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.walk(self.0.schema, metadata, path, 0, yields, &mut errors);
        errors
    }

    /// Whether its objects can be asked to be scrubbed.
    pub(super) fn scrubs(&self) -> bool {
        let spec = self.0.resolved(&self.0.schema["properties"]["spec"]);
        self.is_open(self.0.schema) || !spec.is_null() && (self.is_open(spec) || !spec["properties"]["scrub"].is_null())
    }

    /// What of a template cannot be in an object.
    pub(super) fn misfits(&self, template: &Value, path: &Path, yields: Yields<'_>) -> Vec<FieldError> {
        let mut object = template.clone();
        if let Some(fields) = object.as_object_mut() {
            // these have rules of their own
            ["apiVersion", "kind", "metadata", "status"].iter().for_each(|key| drop(fields.remove(*key)));
        }
        let mut errors = Vec::new();
        self.walk(self.0.schema, &object, path, 0, yields, &mut errors);
        errors
    }

    fn is_open(&self, schema: &Value) -> bool {
        schema["properties"].is_null() || schema["x-kubernetes-preserve-unknown-fields"] == true
    }

    fn walk(
        &self,
        schema: &'f Value,
        value: &Value,
        path: &Path,
        depth: usize,
        yields: Yields<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let schema = self.0.resolved(schema);
        if depth > DEEPEST || value.is_null() {
            return;
        }
        let either = schema["x-kubernetes-int-or-string"] == true
            || ["oneOf", "anyOf"].iter().any(|key| schema[key].is_array())
            || schema["format"] == "int-or-string";
        if let Some(expression) = whole(value) {
            let wanted = schema["type"].as_str().filter(|_| !either);
            let wrong = wanted.zip(yields(&expression)).filter(|(wanted, yields)| !can_be(wanted, yields));
            errors.extend(wrong.map(|(wanted, yields)| {
                path.error(format!(
                    "`{expression}` yields {yields}, and must be {}{}",
                    a(wanted),
                    hint(wanted, &yields)
                ))
            }));
            return;
        }
        let wrong = match (schema["type"].as_str(), value) {
            _ if either => match value {
                Value::String(text) => {
                    let quantity = schema["pattern"].as_str().is_some_and(|p| p.contains("[KMGTPE]i"));
                    Amount::parse(text).err().filter(|_| quantity && !text.contains("${")).map(|e| e.to_string())
                }
                Value::Object(_) | Value::Array(_) if schema["type"].is_string() => None,
                Value::Number(_) => None,
                _ if schema["x-kubernetes-int-or-string"] == true => Some("must be a number or a text".to_owned()),
                _ => None,
            },
            (Some("object"), Value::Object(fields)) => {
                self.fields(schema, fields, path, depth, yields, errors);
                None
            }
            (Some("array"), Value::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    self.walk(&schema["items"], item, &path.index(i), depth + 1, yields, errors);
                }
                None
            }
            (Some("string"), Value::String(text)) => {
                let allowed = schema["enum"].as_array().filter(|all| !text.contains("${") && !all.contains(value));
                allowed.map(|all| {
                    let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
                    format!("must be one of {}", all.join(", "))
                })
            }
            (Some("integer"), Value::Number(number)) if number.is_i64() || number.is_u64() => None,
            (Some("number"), Value::Number(_)) | (Some("boolean"), Value::Bool(_)) | (None, _) => None,
            (Some(kind), _) => Some(format!("must be {}", a(kind))),
        };
        errors.extend(wrong.map(|message| path.error(message)));
    }

    fn fields(
        &self,
        schema: &'f Value,
        fields: &serde_json::Map<String, Value>,
        path: &Path,
        depth: usize,
        yields: Yields<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        for (name, value) in fields {
            let path = path.field(name);
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, more @ Value::Object(_)) => self.walk(more, value, &path, depth + 1, yields, errors),
                (Value::Null, Value::Bool(true)) => {}
                (Value::Null, _) if self.is_open(schema) => {}
                (Value::Null, _) => errors.push(path.error("is not a field of this kind")),
                (own, _) => self.walk(own, value, &path, depth + 1, yields, errors),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let own = ["apiVersion", "kind", "metadata"];
        for name in required.filter(|name| !(fields.contains_key(*name) || depth == 0 && own.contains(name))) {
            if schema["properties"][name]["default"].is_null() {
                errors.push(path.field(name).error("is required of this kind"));
            }
        }
    }
}

/// A type with its article.
fn a(kind: &str) -> String {
    format!("{} {kind}", if kind.starts_with(['o', 'a', 'i']) { "an" } else { "a" })
}

/// Whether what an expression yields can be of a schema's type.
fn can_be(wanted: &str, yields: &Type) -> bool {
    match yields {
        Type::Bool => wanted == "boolean",
        Type::Int | Type::Uint => matches!(wanted, "integer" | "number"),
        Type::Double => wanted == "number",
        Type::String | Type::Bytes => wanted == "string",
        Type::List(_) => wanted == "array",
        Type::Map(_) | Type::Object(_) => wanted == "object",
        _ => true,
    }
}

/// How to make one of the other.
fn hint(wanted: &str, yields: &Type) -> &'static str {
    match (wanted, yields) {
        ("string", Type::Bool | Type::Int | Type::Uint | Type::Double) => ": write string(...) around it",
        ("integer", Type::String | Type::Double) => ": write int(...) around it",
        ("number", Type::String) => ": write double(...) around it",
        _ => "",
    }
}
