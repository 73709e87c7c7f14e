//! Structural schemas of the three kinds.

use serde_json::{Map, Value, json};

use crate::rules::{Attribute, Kind, Match};
use crate::types::model::ResourceType;

/// How an amount is written.
pub(crate) const QUANTITY: &str =
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub(crate) fn quantity() -> Value {
    // the pattern is for what is written as text, the minimum for whole numbers
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "minimum": 0,
        "x-kubernetes-int-or-string": true,
    })
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

pub(crate) fn described(mut schema: Value, description: &str) -> Value {
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
    let amount = |name: &str| match kind.descriptions.get(&format!("capacities.{name}")) {
        Some(description) => described(quantity(), &sentence(description)),
        None => quantity(),
    };
    let properties: Map<String, Value> =
        kind.capacities.iter().map(|c| (c.name.to_string(), amount(&c.name))).collect();
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
        properties.insert(a.name.to_string(), described(schema, &meaning(kind, a, wanted)));
    }
}

/// What an attribute is to who writes it.
fn meaning(kind: &ResourceType, attribute: &Attribute, wanted: bool) -> String {
    let says = match (attribute.matching, wanted) {
        (_, false) => "What the resource has of it.",
        (Match::Equal, true) => "What the resource must have.",
        (Match::AtLeast, true) => "The least that the resource must have.",
        (Match::VersionRange, true) => "A version, or a range such as \">= 8.0\"; quote it, for 5.10 reads as 5.1.",
        (Match::AtMost, true) => "The most that the resource may have.",
        (Match::In, true) => "The values the resource may have.",
        (Match::Contains, true) => "What must be among the resource's.",
    };
    let mut says = match kind.descriptions.get(&format!("attributes.{}", attribute.name)) {
        Some(description) => format!("{} {says}", sentence(description)),
        None => says.to_owned(),
    };
    if !attribute.values.is_empty() {
        let values = attribute.values.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
        says += &format!(" One of: {values}.");
    }
    says
}

/// A description as a sentence.
fn sentence(description: &str) -> String {
    let mut letters = description.trim().trim_end_matches('.').chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
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
    json!({
        "type": "string", "enum": kind.reclaim_policies.iter().map(|p| p.name()).collect::<Vec<_>>(),
        "description": "What becomes of it when its last claim goes: Delete it, Retain it for an administrator, or Recycle: scrub it for the next.",
    })
}

fn templates() -> Value {
    json!({
        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name", "template"], "properties": {
            "name": described(text(20), "Its name among the others; part of the object's."),
            "template": described(free_object(), "The object; ${...} is CEL."),
            "readyWhen": described(text(4096), "CEL over this object; without it, its condition Ready."),
            "replaceable": described(json!({"type": "boolean"}), "Whether it bears no data, and is made anew when it is lost."),
        }},
    })
}

/// What is known of where a resource can be reached from, and what comes of it.
const TOPOLOGY: &str = "The nodes that reach it, as nodeSelectorTerms: for people and programs to read. Claims of this type are bound before \
    their consumers have a node, so it rules nothing out: label the resource, and have claims select it.";

/// What a class says and a resource may say for itself.
fn making() -> Map<String, Value> {
    let mut properties = Map::new();
    properties
        .insert("template".into(), described(free_object(), "The object that implements the resource; ${...} is CEL."));
    properties.insert(
        "replaceable".into(),
        described(
            json!({"type": "boolean"}),
            "Whether the object of `template` bears no data, and is made anew when it is lost.",
        ),
    );
    properties.insert("templates".into(), described(templates(), "Several such objects; the first bears the data."));
    properties.insert(
        "readyWhen".into(),
        described(text(4096), "CEL over the implementation; without it, its condition Ready."),
    );
    properties.insert(
        "connection".into(),
        described(
            json!({"type": "object", "additionalProperties": text(4096)}),
            "Connection details as CEL over implementation, or implementations.NAME of several templates (of a Secret, its stringData); without it, the first one's connectionSecretRef.",
        ),
    );
    properties
}

pub(crate) fn resource(kind: &ResourceType) -> Value {
    let mut spec = making();
    attributes(kind, false, &mut spec);
    spec.insert("class".into(), described(text(253), "Only claims that name this class are bound to it."));
    spec.insert("capacity".into(), described(capacity(kind), "How much it has."));
    spec.insert("capabilities".into(), described(strings(), "Functions that claims may ask for in spec.requests."));
    if !kind.access_modes.is_empty() {
        spec.insert("accessModes".into(), described(modes(kind), "How it may be used."));
    }
    spec.insert("reclaimPolicy".into(), reclaim(kind));
    spec.insert(
        "maxClaims".into(),
        described(
            json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 256}),
            &format!("How many claims may share it; {} unless said.", kind.max_claims),
        ),
    );
    spec.insert("topology".into(), described(free_object(), TOPOLOGY));
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
            "description": "The claims it is bound to. Written by an administrator without uid: reserved for the claim of that name.",
            "type": "array", "maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["namespace", "name", "uid"],
            "items": {"type": "object", "required": ["namespace", "name"], "properties": {
                "uid": {"type": "string", "maxLength": 64, "default": "", "description": "Which claim of that name; empty: whichever comes."},
                "namespace": described(text(63), "The claim's namespace."),
                "name": described(text(253), "The claim's name."),
                "amounts": {"type": "object", "additionalProperties": quantity(), "description": "How much of a shared resource is the claim's."},
                "by": {"type": "string", "enum": ["Manager", "Admin"], "default": "Admin", "description": "Who wrote it; what an administrator reserved stays reserved."},
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
        "phase": described(text(63), "Pending, Provisioning, Available, Bound, Released, Scrubbing or Failed."),
        "reason": described(text(1024), "The phase's reason, in one word."),
        "message": described(text(32768), "The reason in a sentence."),
        "claims": described(text(1024), "The claims it is bound to or reserved for, as NAMESPACE/NAME; of many, the first."),
        "implementationRef": described(text(253), "The name of the object behind it; implementations has its kind and namespace."),
        "implementations": {"description": "The objects behind it; the first bears the data.", "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": object(json!({
            "apiVersion": text(253), "kind": text(63), "namespace": text(63), "name": text(253), "uid": text(64),
        }))},
        "attributes": described(free_object(), "What the implementation says it has."),
        "capacity": {"type": "object", "additionalProperties": quantity(), "description": "How much the implementation says it has."},
        "scrub": {"type": "integer", "format": "int64", "description": "How often it has been scrubbed, or is to be."},
        "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that this status is about."},
        "conditions": conditions(),
    }));
    let required = kind.attributes.iter().any(|a| a.required);
    described(
        root(json!({"type": "object", "properties": spec, "x-kubernetes-validations": rules}), Some(status), required),
        &format!("A {} that a {} can be bound to.", kind.names.resource, kind.names.claim),
    )
}

fn modes(kind: &ResourceType) -> Value {
    json!({"type": "array", "maxItems": 16, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "enum": kind.access_modes}})
}

pub(crate) fn claim(kind: &ResourceType) -> Value {
    let mut spec = Map::new();
    attributes(kind, true, &mut spec);
    spec.insert(
        "resources".into(),
        described(
            object(json!({
                "requests": described(capacity(kind), "At least this much."),
                "limits": described(capacity(kind), "At most this much."),
            })),
            "How much is needed. The resource that fits most tightly is bound.",
        ),
    );
    spec.insert("requests".into(), described(strings(), "Functions that must be among the resource's capabilities."));
    if !kind.access_modes.is_empty() {
        spec.insert("accessModes".into(), described(modes(kind), "How it is to be used."));
    }
    spec.insert(
        "class".into(),
        described(text(253), "The class it comes from; without it the default one, \"\": only what has no class."),
    );
    spec.insert(
        "resourceName".into(),
        described(text(253), "The resource, if a certain one; set when the claim is bound."),
    );
    spec.insert(
        "selector".into(),
        described(selector(), "The labels the resource must have, if it is one that is there."),
    );
    spec.insert(
        "expression".into(),
        described(text(4096), "CEL that must hold of the resource, such as resource.spec.engine == 'mysql'."),
    );
    let mut rules = attribute_rules(kind, false);
    rules.push(json!({
        "rule": "!has(oldSelf.resourceName) || oldSelf.resourceName == '' || (has(self.resourceName) && self.resourceName == oldSelf.resourceName)",
        "message": "resourceName may not change once it is set: make another claim",
    }));
    let status = object(json!({
        "phase": described(text(63), "Pending, Bound, or Lost: what it was bound to is gone."),
        "reason": described(text(1024), "The phase's reason, in one word."),
        "message": described(text(32768), "The reason in a sentence; of a claim that waits, what it waits for."),
        "class": described(text(253), "The class it comes from."),
        "capacity": {"type": "object", "additionalProperties": quantity(), "description": "How much it has."},
        "granted": {"type": "object", "additionalProperties": quantity(),
            "description": "How much was made for it, where that is more than it asks for: a quota charges this."},
        "attributes": described(free_object(), "What it has."),
        "resourceUid": described(text(64), "Which resource of that name it is bound to."),
        "binding": described(
            object(json!({"name": described(text(253), "The name of the Secret, ConfigMap and Service.")})),
            "Where the connection details are (Service Binding Specification).",
        ),
        "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that this status is about."},
        "conditions": conditions(),
    }));
    described(
        root(json!({"type": "object", "properties": spec, "x-kubernetes-validations": rules}), Some(status), false),
        &format!(
            "What an application needs of a {}. It is bound to one that has it, which a class may make.",
            kind.names.resource
        ),
    )
}

pub(crate) fn class(kind: &ResourceType) -> Value {
    let mut fields = making();
    fields.insert("reclaimPolicy".into(), reclaim(kind));
    fields.insert(
        "bindingMode".into(),
        described(
            json!({"type": "string", "enum": ["Immediate", "WaitForFirstConsumer"]}),
            "Whether claims are bound at once, which is the default, or when something uses them.",
        ),
    );
    fields.insert(
        "allowExpansion".into(),
        described(json!({"type": "boolean"}), "Whether a bound claim may ask for more: its resource grows with it."),
    );
    fields.insert(
        "capabilities".into(),
        described(strings(), "Functions of what it makes; without it, whatever the claim asks for."),
    );
    if !kind.access_modes.is_empty() {
        fields.insert("accessModes".into(), described(modes(kind), "How what it makes may be used."));
    }
    fields.insert("parameters".into(), described(free_object(), "For templates: ${class.parameters.x}."));
    let mut offers = Map::new();
    for a in &kind.attributes {
        offers.insert(a.name.to_string(), anything());
        if let Some(alias) = &a.alias {
            offers.insert(alias.to_string(), anything());
        }
    }
    let amounts: Map<String, Value> = kind.capacities.iter().map(|c| (c.name.to_string(), anything())).collect();
    offers.insert(
        "capacity".into(),
        described(
            object(Value::Object(amounts)),
            "How much of it: an amount, a list to choose from, {min, max, default} or ${CEL} over the claim. The default is for claims \
             that ask for none; without it, they get the min.",
        ),
    );
    fields.insert("offers".into(), described(object(Value::Object(offers)),
        "What resources of this class have: a value, a list to choose from, {min, max, default} of a capacity, or ${CEL} over the claim."));
    let names: Vec<String> = fields.keys().map(|f| format!("has(self.{f})")).collect();
    let mut schema = described(
        root(object(Value::Object(fields.clone())), None, false),
        &format!(
            "A kind of {} on offer, and how more of it are made. Its fields stand under spec or at the top.",
            kind.names.resource
        ),
    );
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
        "spec": described(spec, "What is wanted."),
    }));
    if let Some(status) = status {
        schema["properties"]["status"] = described(status, "What is.");
    }
    if spec_required {
        schema["required"] = json!(["spec"]);
    }
    schema
}
