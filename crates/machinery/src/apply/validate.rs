//! Whether a value fits its type, as far as merging needs it.

use serde_json::Value;

use super::error::TypeError;
use super::items::ItemKey;
use super::types::{Handler, ListType, MapType, Scalar, Type};
use crate::schema::{ListKind, Schema};

/// What is wrong with an object: undeclared fields, wrong types, items that cannot be told apart and, unless
/// `duplicates` are allowed, items that stand twice.
pub fn validate(object: &Value, schema: Schema<'_>, duplicates: bool) -> Result<(), Vec<TypeError>> {
    let mut validator = Validator { duplicates, path: String::new(), errors: Vec::new() };
    validator.node(object, Type::root(schema));
    if validator.errors.is_empty() { Ok(()) } else { Err(validator.errors) }
}

struct Validator {
    duplicates: bool,
    path: String,
    errors: Vec<TypeError>,
}

impl Validator {
    fn error(&mut self, message: impl Into<String>) {
        self.errors.push(TypeError::new(self.path.clone(), message));
    }

    fn inside(&mut self, element: std::fmt::Arguments<'_>, value: &Value, ty: Type<'_>) {
        let length = self.path.len();
        let _ = std::fmt::Write::write_fmt(&mut self.path, element);
        self.node(value, ty);
        self.path.truncate(length);
    }

    fn node(&mut self, value: &Value, ty: Type<'_>) {
        match ty.handler(Some(value)) {
            Handler::Map(map) => self.map(&map, value),
            Handler::List(list) => self.list(&list, value),
            Handler::Scalar(scalar) => self.scalar(scalar, value),
            Handler::None => self.error("field not declared in schema"),
        }
    }

    fn map(&mut self, map: &MapType<'_>, value: &Value) {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return,
            other => return self.error(format!("expected map, got {other}")),
        };
        for (name, value) in fields {
            let (ty, _) = map.child(name);
            self.inside(format_args!(".{name}"), value, ty);
        }
    }

    fn list(&mut self, list: &ListType<'_>, value: &Value) {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return,
            other => return self.error(format!("expected list, got {other}")),
        };
        if *list.kind == ListKind::Atomic {
            for (at, item) in items.iter().enumerate() {
                self.inside(format_args!("[{at}]"), item, list.items);
            }
            return;
        }
        let mut seen: std::collections::BTreeSet<ItemKey<'_>> = std::collections::BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            match ItemKey::of(list, item) {
                Err(error) => return self.error(format!("element {at}: {error}")),
                Ok(key) => {
                    let element = key.element();
                    if !seen.insert(key) && !self.duplicates {
                        self.error(format!("duplicate entries for key {element}"));
                    }
                    self.inside(format_args!("{element}"), item, list.items);
                }
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        let expected = match (scalar, value) {
            (_, Value::Null)
            | (Scalar::Numeric, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
            (Scalar::Numeric, _) => "numeric (int or float)",
            (Scalar::String, _) => "string",
            (Scalar::Boolean, _) => "boolean",
            (Scalar::Untyped, _) => "any scalar",
        };
        self.error(format!("expected {expected}, got {value}"));
    }
}
