//! From JSON Schema to types.
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Structural;
use crate::schema::{Field, Id, ListKind, MAX_DEPTH, Node, Pattern, Rules, Schema, Shape, Text, Types};

/// Builds the types of a schema that was checked.
pub(super) fn build(json: &Value, metadata: Option<Schema<'_>>) -> Structural {
    let mut builder = Builder { types: Types::new(), plain: HashMap::new() };
    let root = builder.add(json, MAX_DEPTH);
    let full = builder.full(root, metadata);
    Structural { types: builder.types, root, full }
}

struct Builder {
    types: Types,
    /// Types without any rules, by their name: they are shared.
    plain: HashMap<&'static str, Id>,
}

impl Builder {
    fn add(&mut self, json: &Value, depth: usize) -> Id {
        let Some(depth) = depth.checked_sub(1) else { return self.any() };
        let Value::Object(json) = json else { return self.any() };
        let flag = |key: &str| json.get(key).and_then(Value::as_bool) == Some(true);
        let kind = json.get("type").and_then(Value::as_str).unwrap_or("");
        let int_or_string = flag("x-kubernetes-int-or-string");
        let has = |key: &str| json.contains_key(key);
        let shape = match kind {
            _ if int_or_string => Shape::IntOrString,
            "array" => self.list(json, depth),
            "object" => self.object(json, depth),
            "string" => Shape::String(Text::Plain),
            "integer" => Shape::Integer { bits: 64 },
            "number" => Shape::Number,
            "boolean" => Shape::Boolean,
            _ if has("properties") || has("additionalProperties") => self.object(json, depth),
            _ if has("items") => self.list(json, depth),
            _ if !has_object_rules(json) => Shape::Any,
            _ => Shape::Object(Vec::new()),
        };
        let mut node = Node::new(shape);
        node.untyped = kind.is_empty() && !int_or_string;
        node.nullable = flag("nullable");
        node.preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
        node.embedded = flag("x-kubernetes-embedded-resource");
        node.atomic = json.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        node.rules = self.rules(json, depth).map(Box::new);
        let shared = match node.shape {
            _ if node.rules.is_some() || node.nullable || node.preserve_unknown || node.untyped => None,
            Shape::String(_) => Some("string"),
            Shape::Integer { .. } => Some("integer"),
            Shape::Number => Some("number"),
            Shape::Boolean => Some("boolean"),
            Shape::IntOrString => Some("int-or-string"),
            _ => None,
        };
        match shared {
            Some(name) => match self.plain.get(name) {
                Some(id) => *id,
                None => {
                    let id = self.types.add(node);
                    self.plain.insert(name, id);
                    id
                }
            },
            None => self.types.add(node),
        }
    }

    /// A value of which nothing is known: objects in it are emptied when pruned.
    fn any(&mut self) -> Id {
        self.types.add(Node { untyped: true, ..Node::new(Shape::Any) })
    }

    fn object(&mut self, json: &Map<String, Value>, depth: usize) -> Shape {
        let properties = json.get("properties").and_then(Value::as_object);
        if properties.is_none_or(Map::is_empty) {
            match json.get("additionalProperties") {
                Some(Value::Bool(_)) => return Shape::Map(self.any()),
                Some(schema) => return Shape::Map(self.item(schema, depth)),
                None => {}
            }
        }
        let required: Vec<&str> = strings(json, "required").collect();
        let fields = properties.into_iter().flatten().enumerate().map(|(order, (name, schema))| Field {
            order: u16::try_from(order).unwrap_or(u16::MAX),
            required: required.contains(&name.as_str()),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            ..Field::new(name, self.add(schema, depth))
        });
        // The map they come from is sorted by name already.
        Shape::Object(fields.collect())
    }

    fn list(&mut self, json: &Map<String, Value>, depth: usize) -> Shape {
        let items = match json.get("items") {
            Some(items) => self.item(items, depth),
            None => self.any(),
        };
        let list = match json.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(strings(json, "x-kubernetes-list-map-keys").map(Box::from).collect()),
            _ => ListKind::Atomic,
        };
        Shape::List { items, list }
    }

    /// The type of a list's items or a map's values, which keeps its default itself.
    fn item(&mut self, json: &Value, depth: usize) -> Id {
        let id = self.add(json, depth);
        let Some(default) = json.get("default").filter(|default| !default.is_null()) else { return id };
        let mut node = self.types.schema(id).node().clone();
        node.rules.get_or_insert_default().default = Some(default.clone());
        self.types.add(node)
    }

    fn rules(&mut self, json: &Map<String, Value>, depth: usize) -> Option<Rules> {
        let mut rules = Rules::default();
        let mut any = false;
        for (key, value) in json {
            let ids = |builder: &mut Self| -> Vec<Id> {
                value.as_array().into_iter().flatten().map(|schema| builder.add(schema, depth)).collect()
            };
            let flag = value.as_bool() == Some(true);
            let text = || value.as_str().filter(|text| !text.is_empty());
            match key.as_str() {
                "format" => rules.format = text().map(Box::from),
                "pattern" => rules.pattern = text().map(Pattern::new),
                "enum" => rules.enumeration = value.as_array().filter(|values| !values.is_empty()).cloned(),
                "minimum" => rules.minimum = value.as_f64(),
                "maximum" => rules.maximum = value.as_f64(),
                "exclusiveMinimum" => rules.exclusive_minimum = flag,
                "exclusiveMaximum" => rules.exclusive_maximum = flag,
                "multipleOf" => rules.multiple_of = value.as_f64(),
                "minLength" => rules.min_length = value.as_u64(),
                "maxLength" => rules.max_length = value.as_u64(),
                "minItems" => rules.min_items = value.as_u64(),
                "maxItems" => rules.max_items = value.as_u64(),
                "uniqueItems" => rules.unique_items = flag,
                "minProperties" => rules.min_properties = value.as_u64(),
                "maxProperties" => rules.max_properties = value.as_u64(),
                "required" => rules.required = strings(json, key).map(Box::from).collect(),
                "allOf" => rules.all_of = ids(self),
                "anyOf" => rules.any_of = ids(self),
                "oneOf" => rules.one_of = ids(self),
                "not" => rules.not = Some(self.add(value, depth)),
                "x-kubernetes-validations" => rules.validations = value.as_array().cloned().unwrap_or_default(),
                _ => continue,
            }
            any = true;
        }
        any.then_some(rules)
    }

    /// The root with the fields that every object has.
    fn full(&mut self, root: Id, metadata: Option<Schema<'_>>) -> Id {
        let mut node = self.types.schema(root).node().clone();
        let Shape::Object(fields) = &mut node.shape else { return root };
        let text = match self.plain.get("string") {
            Some(id) => *id,
            None => self.types.add(Node::new(Shape::String(Text::Plain))),
        };
        let metadata = match metadata {
            Some(metadata) => self.graft(metadata, &mut HashMap::new()),
            None => self.types.add(Node { preserve_unknown: true, ..Node::new(Shape::Object(Vec::new())) }),
        };
        for (name, schema) in [("apiVersion", text), ("kind", text), ("metadata", metadata)] {
            fields.retain(|field| &*field.name != name);
            fields.push(Field::new(name, schema));
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        for (order, field) in fields.iter_mut().enumerate() {
            field.order = u16::try_from(order).unwrap_or(u16::MAX);
        }
        self.types.add(node)
    }

    /// Copies a type of another arena with all it needs.
    fn graft(&mut self, from: Schema<'_>, done: &mut HashMap<Id, Id>) -> Id {
        if let Some(id) = done.get(&from.id()) {
            return *id;
        }
        let id = self.types.add(Node::new(Shape::Any));
        done.insert(from.id(), id);
        let mut node = from.node().clone();
        match &mut node.shape {
            Shape::Object(fields) => {
                for field in fields {
                    field.schema = self.graft(from.at(field.schema), done);
                }
            }
            Shape::Map(of) | Shape::List { items: of, .. } => *of = self.graft(from.at(*of), done),
            _ => {}
        }
        self.types.replace(id, node);
        id
    }
}

fn has_object_rules(json: &Map<String, Value>) -> bool {
    ["required", "minProperties", "maxProperties"].iter().any(|key| json.contains_key(*key))
}

fn strings<'a>(json: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a str> {
    json.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
