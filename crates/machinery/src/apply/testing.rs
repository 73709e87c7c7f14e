//! Schemas for the tests, from the OpenAPI they would have in a CustomResourceDefinition.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{Filter, OneVersion, Tracker};
use crate::schema::{Field, Id, ListKind, Merge, Node, Schema, Shape, Text, Types};

/// A type and the arena it lives in.
pub(crate) struct Sample(Types, Id);

impl Sample {
    pub(crate) fn new(openapi: Value) -> Self {
        let mut types = Types::new();
        let id = add(&mut types, &openapi);
        Sample(types, id)
    }

    pub(crate) fn schema(&self) -> Schema<'_> {
        self.0.schema(self.1)
    }

    /// A tracker of a custom kind of this type.
    pub(crate) fn tracker(&self) -> Tracker<'_> {
        static EVERYTHING: Filter = Filter::Everything;
        Tracker {
            schema: self.schema(),
            api_version: "v1",
            kind: "Sample",
            subresource: "",
            reset: &EVERYTHING,
            reset_elsewhere: &Filter::Everything,
            converter: &OneVersion,
            custom: true,
        }
    }
}

fn flag(openapi: &Value, name: &str) -> bool {
    openapi.get(name) == Some(&Value::Bool(true))
}

fn add(types: &mut Types, openapi: &Value) -> Id {
    let text = |name: &str| openapi.get(name).and_then(Value::as_str).unwrap_or("");
    let shape = match text("type") {
        "object" if openapi.get("additionalProperties").is_some() => {
            Shape::Map(add(types, &openapi["additionalProperties"]))
        }
        "object" => {
            let none = serde_json::Map::new();
            let properties = openapi.get("properties").and_then(Value::as_object).unwrap_or(&none);
            let fields = properties.iter().enumerate().map(|(order, (name, property))| Field {
                name: name.as_str().into(),
                schema: add(types, property),
                order: order as u16,
                required: openapi["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name)),
                omit_empty: !flag(property, "always"),
                pointer: !flag(property, "value"),
                default: property.get("default").cloned(),
                merge: Merge::default(),
                proto: 0,
                omit_zero: false,
                inline: Box::default(),
                embedded: None,
            });
            Shape::Object(fields.collect())
        }
        "array" => {
            let items = add(types, &openapi["items"]);
            let keys = openapi.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let list = match text("x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => ListKind::Map(keys.into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()),
                _ => ListKind::Atomic,
            };
            Shape::List { items, list }
        }
        "string" => Shape::String(Text::Plain),
        "integer" => Shape::Integer { bits: 64 },
        "number" => Shape::Number,
        "boolean" => Shape::Boolean,
        _ => Shape::Any,
    };
    let mut node = Node::new(shape);
    node.atomic = text("x-kubernetes-map-type") == "atomic";
    node.preserve_unknown = flag(openapi, "x-kubernetes-preserve-unknown-fields");
    node.embedded = flag(openapi, "x-kubernetes-embedded-resource");
    types.add(node)
}

/// One kind with everything in it.
pub(crate) static SAMPLE: LazyLock<Sample> = LazyLock::new(|| Sample::new(sample_openapi()));

pub(crate) fn sample_openapi() -> Value {
    let ports = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "properties": {
            "port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"},
            "name": {"type": "string"},
            "target": {"type": "object", "properties": {"host": {"type": "string"}, "weight": {"type": "integer"}}}}}});
    json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "name": {"type": "string"},
            "flag": {"type": "boolean"},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string"}},
            "template": {"type": "object", "properties": {"image": {"type": "string"}, "tag": {"type": "string"}}},
            "args": {"type": "array", "items": {"type": "string"}},
            "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": ports,
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "object": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string"},
            "count": {"type": "integer"},
            "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "properties": {
                    "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"}}}}}}}})
}
