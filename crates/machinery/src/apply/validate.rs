//! Whether a value fits its type, as far as merging needs it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::TypeError;
use super::items::ItemKey;
use super::types::{Handler, ListType, MapType, Scalar, Type};
use crate::schema::{ListKind, Schema};

/// What is wrong with an object: undeclared fields, wrong types, items that cannot be told apart and, unless
/// `duplicates` are allowed, items that stand twice.
pub fn validate(object: &Value, schema: Schema<'_>, duplicates: bool) -> Result<(), Vec<TypeError>> {
    let mut validator = Validator { duplicates, errors: Vec::new() };
    validator.node(object, Type::root(schema), None);
    if validator.errors.is_empty() { Ok(()) } else { Err(validator.errors) }
}

struct Validator {
    duplicates: bool,
    errors: Vec<TypeError>,
}

/// The way to a value, written out only for an error.
#[derive(Clone, Copy)]
struct Link<'p> {
    parent: Option<&'p Link<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Field(&'p str),
    Item(&'p ItemKey<'p>),
    Index(usize),
}

fn path(at: Option<&Link<'_>>) -> String {
    let Some(link) = at else { return String::new() };
    let step = match link.step {
        Step::Field(name) => format!(".{name}"),
        Step::Item(key) => key.element().to_string(),
        Step::Index(index) => format!("[{index}]"),
    };
    path(link.parent) + &step
}

impl Validator {
    fn error(&mut self, at: Option<&Link<'_>>, message: impl Into<String>) {
        self.errors.push(TypeError::new(path(at), message));
    }

    fn misfit(&mut self, at: Option<&Link<'_>>, expected: &str, found: &Value) {
        let error = TypeError::new(path(at), format!("expected {expected}"));
        self.errors.push(TypeError { found: Some(found.to_string()), ..error });
    }

    fn node(&mut self, value: &Value, ty: Type<'_>, at: Option<&Link<'_>>) {
        match ty.handler(Some(value)) {
            Handler::Map(map) => self.map(&map, value, at),
            Handler::List(list) => self.list(&list, value, at),
            Handler::Scalar(scalar) => self.scalar(scalar, value, at),
            Handler::None => self.error(at, "field not declared in schema"),
        }
    }

    fn map(&mut self, map: &MapType<'_>, value: &Value, at: Option<&Link<'_>>) {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return,
            other => return self.misfit(at, "map", other),
        };
        for (name, value) in fields {
            let link = Link { parent: at, step: Step::Field(name) };
            self.node(value, map.child(name).0, Some(&link));
        }
    }

    fn list(&mut self, list: &ListType<'_>, value: &Value, at: Option<&Link<'_>>) {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return,
            other => return self.misfit(at, "list", other),
        };
        if *list.kind == ListKind::Atomic {
            for (index, item) in items.iter().enumerate() {
                let link = Link { parent: at, step: Step::Index(index) };
                self.node(item, list.items, Some(&link));
            }
            return;
        }
        let mut seen: BTreeSet<ItemKey<'_>> = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let key = match ItemKey::of(list, item) {
                Ok(key) => key,
                Err(error) => return self.error(at, format!("element {index}: {error}")),
            };
            if !self.duplicates && seen.contains(&key) {
                self.error(at, format!("duplicate entries for key {}", key.element()));
            }
            let link = Link { parent: at, step: Step::Item(&key) };
            self.node(item, list.items, Some(&link));
            if !self.duplicates {
                seen.insert(key);
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value, at: Option<&Link<'_>>) {
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
        self.misfit(at, expected, value);
    }
}
