//! Structural schemas of the three kinds.

use serde_json::{Map, Value, json};

use crate::rules::{Attribute, Kind, Match};
use crate::types::model::ResourceType;

/// How an amount is written.
pub(crate) const QUANTITY: &str =
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub(crate) fn quantity() -> Value {
    json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "x-kubernetes-int-or-string": true})
}

pub(crate) fn text(max: u32) -> Value {
    json!({"type": "string", "maxLength": max})
}

pub(crate) fn anything() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

pub(crate) fn free_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

pub(crate) fn strings() -> Value {
    json!({"type": "array", "items": text(253), "maxItems": 64, "x-kubernetes-list-type": "set"})
}

pub(crate) fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

pub(crate) fn conditions() -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": text(316),
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": text(1024),
                "message": text(32768),
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        },
    })
}

fn capacity(kind: &ResourceType) -> Value {
    let properties: Map<String, Value> = kind.capacities.iter().map(|c| (c.name.to_string(), quantity())).collect();
    object(Value::Object(properties))
}

/// The schema of an attribute as a resource (or, `wanted`, a claim) writes it.
fn attribute(attribute: &Attribute, wanted: bool) -> Value {
    let scalar = match attribute.kind {
        Kind::Version => return anything(),
        Kind::Text if attribute.values.is_empty() => text(1024),
        Kind::Text => {
            json!({"type": "string", "enum": attribute.values.iter().map(AsRef::as_ref).collect::<Vec<&str>>()})
        }
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Integer => json!({"type": "integer", "format": "int64"}),
        Kind::Number => json!({"type": "number"}),
        Kind::Quantity => quantity(),
    };
    match (attribute.matching, wanted) {
        (Match::Contains, _) | (Match::In, true) => {
            json!({"type": "array", "items": scalar, "maxItems": 64, "x-kubernetes-list-type": "set"})
        }
        _ => scalar,
    }
}

fn attributes(kind: &ResourceType, wanted: bool, properties: &mut Map<String, Value>) {
    for a in &kind.attributes {
        let schema = attribute(a, wanted);
        if let Some(alias) = &a.alias {
            properties.insert(alias.to_string(), described(schema.clone(), &format!("The same as {}.", a.name)));
        }
        properties.insert(a.name.to_string(), schema);
    }
}

/// Rules against writing an attribute under both of its names, and, of a resource, against leaving a required one out.
fn attribute_rules(kind: &ResourceType, required: bool) -> Vec<Value> {
    let mut rules = Vec::new();
    // a version has no type in the schema, and so CEL does not see it: the review does
    for a in kind.attributes.iter().filter(|a| a.kind != crate::rules::Kind::Version) {
        let name = escape(&a.name);
        if let Some(alias) = &a.alias {
            let other = escape(alias);
            rules.push(json!({
                "rule": format!("!has(self.{name}) || !has(self.{other})"),
                "message": format!("{} and {alias} are the same: write one of them", a.name),
            }));
        }
        if required && a.required {
            let either = a.alias.as_ref().map_or_else(String::new, |alias| format!(" || has(self.{})", escape(alias)));
            rules.push(json!({
                "rule": format!("has(self.{name}){either}"),
                "message": format!("{} is required of a {}", a.name, kind.names.resource),
            }));
        }
    }
    rules
}

/// A property name as CEL writes it.
fn escape(name: &str) -> String {
    conductor_cel::escape(name).map_or_else(|| name.to_owned(), |escaped| escaped.into_owned())
}

fn selector() -> Value {
    object(json!({
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": {"type": "string"},
                "operator": {"type": "string"},
                "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
            },
        }},
    }))
}

fn reclaim(kind: &ResourceType) -> Value {
    json!({"type": "string", "enum": kind.reclaim_policies.iter().map(|p| p.name()).collect::<Vec<_>>()})
}

fn templates() -> Value {
    json!({
        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name", "template"], "properties": {
            "name": text(20),
            "template": free_object(),
            "readyWhen": text(4096),
            "replaceable": {"type": "boolean"},
        }},
    })
}

/// What a class says and a resource may say for itself.
fn making() -> Map<String, Value> {
    let mut properties = Map::new();
    properties
        .insert("template".into(), described(free_object(), "The object that implements the resource; ${...} is CEL."));
    properties.insert("templates".into(), described(templates(), "Several such objects; the first bears the data."));
    properties.insert(
        "readyWhen".into(),
        described(text(4096), "CEL over the implementation; without it, its condition Ready."),
    );
    properties.insert(
        "connection".into(),
        described(
            json!({"type": "object", "additionalProperties": text(4096)}),
            "Connection details as CEL over the implementation; without it, its connectionSecretRef.",
        ),
    );
    properties
}

pub(crate) fn resource(kind: &ResourceType) -> Value {
    let mut spec = making();
    attributes(kind, false, &mut spec);
    spec.insert("class".into(), text(253));
    spec.insert("capacity".into(), capacity(kind));
    spec.insert("capabilities".into(), strings());
    if !kind.access_modes.is_empty() {
        spec.insert("accessModes".into(), modes(kind));
    }
    spec.insert("reclaimPolicy".into(), reclaim(kind));
    spec.insert("maxClaims".into(), json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 256}));
    spec.insert("topology".into(), free_object());
    spec.insert(
        "implementationRef".into(),
        described(
            object(json!({"apiVersion": text(253), "kind": text(63), "name": text(253), "namespace": text(63)})),
            "An existing implementation to adopt; it is never made a second time.",
        ),
    );
    spec.insert(
        "claimRefs".into(),
        json!({
            "type": "array", "maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "required": ["namespace", "name"], "properties": {
                "uid": {"type": "string", "maxLength": 64, "default": ""},
                "namespace": text(63),
                "name": text(253),
                "amounts": {"type": "object", "additionalProperties": quantity()},
                "by": {"type": "string", "enum": ["Manager", "Admin"], "default": "Admin"},
                "rotation": {
                    "type": "integer", "format": "int64",
                    "description": "The rotation whose credentials the claim's Secret has.",
                },
            }},
        }),
    );
    let mut rules = attribute_rules(kind, true);
    rules.push(json!({
        "rule": format!("!has(self.claimRefs) || size(self.claimRefs) <= (has(self.maxClaims) ? self.maxClaims : {})", kind.max_claims),
        "message": "a resource has at most as many claims as maxClaims says",
    }));
    rules.push(json!({
        "rule": "!has(self.template) || !has(self.templates)",
        "message": "write template or templates, not both",
    }));
    let status = object(json!({
        "phase": text(63),
        "reason": text(1024),
        "message": text(32768),
        "implementationRef": text(253),
        "implementations": {"type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": object(json!({
            "apiVersion": text(253), "kind": text(63), "namespace": text(63), "name": text(253), "uid": text(64),
        }))},
        "attributes": free_object(),
        "capacity": {"type": "object", "additionalProperties": quantity()},
        "scrub": {"type": "integer", "format": "int64"},
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": conditions(),
    }));
    let required = kind.attributes.iter().any(|a| a.required);
    root(json!({"type": "object", "properties": spec, "x-kubernetes-validations": rules}), Some(status), required)
}

fn modes(kind: &ResourceType) -> Value {
    json!({"type": "array", "maxItems": 16, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "enum": kind.access_modes}})
}

pub(crate) fn claim(kind: &ResourceType) -> Value {
    let mut spec = Map::new();
    attributes(kind, true, &mut spec);
    spec.insert("resources".into(), object(json!({"requests": capacity(kind), "limits": capacity(kind)})));
    spec.insert("requests".into(), described(strings(), "Functions that must be among the resource's capabilities."));
    if !kind.access_modes.is_empty() {
        spec.insert("accessModes".into(), modes(kind));
    }
    spec.insert("class".into(), text(253));
    spec.insert(
        "resourceName".into(),
        described(text(253), "The resource, if a certain one; set when the claim is bound."),
    );
    spec.insert("selector".into(), selector());
    spec.insert("expression".into(), described(text(4096), "CEL over the resource that must hold."));
    let mut rules = attribute_rules(kind, false);
    rules.push(json!({
        "rule": "!has(oldSelf.resourceName) || oldSelf.resourceName == '' || (has(self.resourceName) && self.resourceName == oldSelf.resourceName)",
        "message": "resourceName may not change once it is set: make another claim",
    }));
    let status = object(json!({
        "phase": text(63),
        "reason": text(1024),
        "message": text(32768),
        "class": text(253),
        "capacity": {"type": "object", "additionalProperties": quantity()},
        "attributes": free_object(),
        "resourceUid": text(64),
        "binding": object(json!({"name": text(253)})),
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": conditions(),
    }));
    root(json!({"type": "object", "properties": spec, "x-kubernetes-validations": rules}), Some(status), false)
}

pub(crate) fn class(kind: &ResourceType) -> Value {
    let mut fields = making();
    fields.insert("reclaimPolicy".into(), reclaim(kind));
    fields.insert("bindingMode".into(), json!({"type": "string", "enum": ["Immediate", "WaitForFirstConsumer"]}));
    fields.insert(
        "allowExpansion".into(),
        described(json!({"type": "boolean"}), "Whether a bound claim may ask for more: its resource grows with it."),
    );
    fields.insert("capabilities".into(), strings());
    if !kind.access_modes.is_empty() {
        fields.insert("accessModes".into(), modes(kind));
    }
    fields.insert("parameters".into(), free_object());
    let mut offers = Map::new();
    for a in &kind.attributes {
        offers.insert(a.name.to_string(), anything());
        if let Some(alias) = &a.alias {
            offers.insert(alias.to_string(), anything());
        }
    }
    let amounts: Map<String, Value> = kind.capacities.iter().map(|c| (c.name.to_string(), anything())).collect();
    offers.insert("capacity".into(), object(Value::Object(amounts)));
    fields.insert("offers".into(), described(object(Value::Object(offers)),
        "What resources of this class have: a value, a list to choose from, {min, max} of a capacity, or ${CEL} over the claim."));
    let names: Vec<String> = fields.keys().map(|f| format!("has(self.{f})")).collect();
    let mut schema = root(object(Value::Object(fields.clone())), None, false);
    for (name, field) in fields {
        schema["properties"][&name] = field;
    }
    schema["x-kubernetes-validations"] = json!([
        {
            "rule": format!("!has(self.spec) || !({})", names.join(" || ")),
            "message": "write the fields of a class under spec or at the top, not both",
        },
        {"rule": "!has(self.template) || !has(self.templates)", "message": "write template or templates, not both"},
    ]);
    schema
}

fn root(spec: Value, status: Option<Value>, spec_required: bool) -> Value {
    let mut schema = object(json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
    }));
    if let Some(status) = status {
        schema["properties"]["status"] = status;
    }
    if spec_required {
        schema["required"] = json!(["spec"]);
    }
    schema
}
