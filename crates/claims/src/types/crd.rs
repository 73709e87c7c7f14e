//! The CustomResourceDefinitions of a resource type, and of ResourceType and Manager themselves.

use serde_json::{Map, Value, json};

use crate::types::model::{Names, ResourceType};
use crate::types::schema;

fn column(name: &str, kind: &str, path: &str, priority: u8) -> Value {
    let mut column = json!({"name": name, "type": kind, "jsonPath": path});
    if priority > 0 {
        column["priority"] = priority.into();
    }
    column
}

/// On a definition: the name of the type that it was made from.
pub const TYPE: &str = "conductor.io/type";
/// On a definition whose type is gone: it may go, too.
pub const RETIRED: &str = "conductor.io/type-retired";

struct Definition<'d> {
    group: &'d str,
    version: &'d str,
    kind: &'d str,
    scope: &'d str,
    short: Option<&'d str>,
    categories: &'d [&'d str],
    columns: Vec<Value>,
    schema: Value,
    status: bool,
}

impl Definition<'_> {
    fn json(self) -> Value {
        let plural = Names::plural(self.kind);
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": plural,
            "singular": self.kind.to_ascii_lowercase(),
            "categories": self.categories,
        });
        if let Some(short) = self.short {
            names["shortNames"] = json!([short]);
        }
        let mut version = json!({
            "name": self.version,
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": self.schema},
            "additionalPrinterColumns": self.columns,
        });
        if self.status {
            version["subresources"] = json!({"status": {}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{}", self.group),
                "labels": {"app.kubernetes.io/managed-by": "conductor"},
            },
            "spec": {"group": self.group, "scope": self.scope, "names": names, "versions": [version]},
        })
    }

    fn json_of(self, kind: &str) -> Value {
        let mut definition = self.json();
        definition["metadata"]["annotations"] = json!({TYPE: kind});
        definition
    }
}

/// A JSON path to a field, with the dots of its name escaped.
fn path(stem: &str, name: &str) -> String {
    format!("{stem}.{}", name.replace('.', "\\."))
}

/// The definitions of resource, claim and class, in this order.
pub fn crds(kind: &ResourceType) -> [Value; 3] {
    let age = || column("Age", "date", ".metadata.creationTimestamp", 0);
    let amounts = |path: &dyn Fn(&str) -> String| -> Vec<Value> {
        let capacities = kind.capacities.iter().enumerate();
        capacities.map(|(i, c)| column(&title(&c.name), "string", &path(&c.name), u8::from(i > 0))).collect()
    };
    let reason =
        || [column("Reason", "string", ".status.reason", 0), column("Message", "string", ".status.message", 1), age()];
    let mut resource = vec![column("Class", "string", ".spec.class", 0)];
    // what the implementation says, or else what was written; the dots lead to the object itself first
    let known = |name: &str| format!("..['{}','{}']", path("status.capacity", name), path("spec.capacity", name));
    resource.extend(amounts(&known));
    resource.extend(
        kind.attributes.iter().take(8).filter(|a| !matches!(a.matching, crate::rules::Match::Contains)).map(|a| {
            let written = [Some(&a.name), a.alias.as_ref()].into_iter().flatten();
            let written: String = written.map(|name| format!(",'{}'", path("spec", name))).collect();
            let known = format!("..['{}'{written}]", path("status.attributes", &a.name));
            column(&title(&a.name), "string", &known, 1)
        }),
    );
    resource.extend([
        column("Policy", "string", ".spec.reclaimPolicy", 0),
        column("Phase", "string", ".status.phase", 0),
        // one text: of several values a column shows the first
        column("Claim", "string", ".status.claims", 0),
        column("Implementation", "string", ".status.implementationRef", 1),
    ]);
    resource.extend(reason());
    let mut claim = vec![
        column("Phase", "string", ".status.phase", 0),
        column("Class", "string", ".status.class", 0),
        column("Resource", "string", ".spec.resourceName", 0),
    ];
    claim.extend(amounts(&|name| path(".status.capacity", name)));
    claim.push(column("Binding", "string", ".status.binding.name", 1));
    claim.extend(reason());
    let definition = |name: &str, scope, short, categories, columns, schema, status| {
        Definition {
            group: &kind.group,
            version: &kind.version,
            kind: name,
            scope,
            short,
            categories,
            columns,
            schema,
            status,
        }
        .json_of(&kind.name())
    };
    let names = &kind.names;
    let all: &[&str] = &["conductor"];
    [
        definition(
            &names.resource,
            "Cluster",
            names.short.resource.as_deref(),
            &["conductor", "infrastructure"],
            resource,
            schema::resource(kind),
            true,
        ),
        charged(
            definition(
                &names.claim,
                "Namespaced",
                names.short.claim.as_deref(),
                &["conductor", "claims"],
                claim,
                schema::claim(kind),
                true,
            ),
            kind,
        ),
        definition(
            &names.class,
            "Cluster",
            names.short.class.as_deref(),
            all,
            vec![
                // a class has its fields below spec or not
                column("Policy", "string", "..reclaimPolicy", 0),
                column("Binding", "string", "..bindingMode", 0),
                column("Template", "string", "..template.kind", 0),
                age(),
            ],
            schema::class(kind),
            false,
        ),
    ]
}

/// Has a definition serve the versions that are served already, with the fields of the one it is now: objects are the same in all.
pub fn keep_versions(definition: &mut Value, live: &Value) {
    let now = definition["spec"]["versions"][0].clone();
    let Some(versions) = definition["spec"]["versions"].as_array_mut() else { return };
    for before in live["spec"]["versions"].as_array().into_iter().flatten().filter(|v| v["name"] != now["name"]) {
        let mut kept = now.clone();
        (kept["name"], kept["served"], kept["storage"]) =
            (before["name"].clone(), before["served"].clone(), json!(false));
        versions.push(kept);
    }
}

/// Says on the definition of claims what quotas charge them by: their class, and what they ask for.
fn charged(mut definition: Value, kind: &ResourceType) -> Value {
    let per = format!("{}.{}", kind.names.class.to_ascii_lowercase(), kind.group);
    let charge = json!({
        "class": [".spec.class", ".status.class"], "requests": ".spec.resources.requests", "granted": ".status.granted", "per": per,
    });
    definition["metadata"]["annotations"]["conductor.io/quota"] = json!(charge.to_string());
    definition
}

fn title(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|c| c.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
}

/// The definition of ResourceType.
pub fn resource_type_crd() -> Value {
    let attribute = json!({"type": "object", "properties": {
        "type": {"type": "string", "enum": ["string", "boolean", "integer", "number", "quantity"]},
        "match": {"type": "string", "enum": crate::rules::Match::ALL.map(|(name, _)| name)},
        "alias": schema::described(schema::text(63), "Another name for it, such as the one of an older document."),
        "required": schema::described(json!({"type": "boolean"}), "Whether every resource must say it."),
        "values": schema::described(schema::strings(), "The values it may have; without it, any."),
        "description": schema::described(schema::text(4096), "What it is, for kubectl explain."),
    }});
    let capacity = json!({"type": "object", "properties": {
        "match": {"type": "string", "enum": ["AtLeast", "Equal"], "description": "Whether a resource may have more than is asked."},
        "order": {"type": "integer", "format": "int32", "description": "Its place when the tightest fit is looked for."},
        "description": schema::described(schema::text(4096), "What it is, for kubectl explain."),
    }});
    let kinds = json!({"resource": schema::text(63), "claim": schema::text(63), "class": schema::text(63)});
    let mut names = schema::object(kinds.clone());
    names["required"] = json!(["resource"]);
    names["properties"]["shortNames"] = schema::object(kinds);
    let spec = json!({
        "type": "object",
        "required": ["group", "version", "names"],
        "properties": {
            "group": schema::described(schema::text(253), "The API group of its kinds."),
            "version": schema::described(schema::text(63), "The version of its kinds."),
            "names": schema::described(names, "The kinds it makes; claim and class are named after the resource unless said."),
            "attributes": {"description": "What resources have and claims ask for, by name.", "type": "object", "maxProperties": 32, "additionalProperties": attribute},
            "capacities": {"description": "Of what there is much or little, by name.", "type": "object", "maxProperties": 16, "additionalProperties": capacity},
            "accessModes": schema::described(schema::strings(), "The ways in which it may be used; without it, none are asked for."),
            "sharing": schema::object(json!({"maxClaims": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 256}})),
            "reclaimPolicies": {"description": "What may become of a resource when its last claim goes.", "type": "array", "maxItems": 3, "x-kubernetes-list-type": "set",
                "items": {"type": "string", "enum": ["Delete", "Retain", "Recycle"]}},
        },
    });
    let columns = vec![
        column("Resource", "string", ".spec.names.resource", 0),
        column("Claim", "string", ".spec.names.claim", 0),
        column("Class", "string", ".spec.names.class", 0),
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
        column("Age", "date", ".metadata.creationTimestamp", 0),
    ];
    own("ResourceType", Some("rtype"), columns, spec, Map::new())
}

/// The definition of Manager.
pub fn manager_crd() -> Value {
    let size = json!({"type": "object", "additionalProperties": schema::quantity()});
    let count = json!({"type": "integer", "format": "int32", "minimum": 0});
    let class = json!({"type": "object", "required": ["name"], "properties": {
        "name": schema::described(schema::text(253), "The class."),
        "maxInstances": schema::described(count.clone(), "The most there may be of it."),
        "minFree": schema::described(count.clone(), "As many are kept ready ahead of claims."),
        "maxFree": schema::described(count, "Beyond as many, free ones are removed."),
        "sizeDistribution": {"description": "Of which sizes the free ones are to be.", "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
            "items": {"type": "object", "required": ["size", "share"], "properties": {
                "size": size, "share": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100}}}},
        "scrub": schema::object(json!({"holdFor": schema::described(schema::text(32), "How long what comes back is not used again.")})),
    }});
    let spec = json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": schema::described(schema::text(253), "The type it serves, as kubectl get resourcetypes shows it, or persistentvolumes."),
            "default": schema::described(json!({"type": "boolean"}), "Whether it serves claims that name no class; one manager of a type does."),
            "defaultClass": schema::described(schema::text(253), "The class of such claims. Of persistentvolumes a StorageClass says itself that it is."),
            "classes": {"description": "The classes it serves; without it, all that no other manager serves.", "type": "array", "maxItems": 256, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": class},
            "scoring": {"description": "How the best of several resources is chosen.", "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": schema::text(63), "weight": {"type": "integer", "format": "int32"}, "expression": schema::text(4096)}}},
        },
    });
    let mut status = Map::new();
    status.insert(
        "classes".into(),
        json!({"type": "array", "maxItems": 256, "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
            "properties": {"name": schema::text(253)}, "x-kubernetes-preserve-unknown-fields": true}}),
    );
    for (key, what) in
        [("served", "The classes that it can make resources of, or has."), ("lacking", "Those that it cannot.")]
    {
        status.insert(key.into(), schema::described(json!({"type": "string"}), what));
    }
    let default =
        "Whether claims that name no class are its own: of several managers that ask for them the oldest gets them.";
    status.insert("default".into(), schema::described(json!({"type": "boolean"}), default));
    let columns = vec![
        column("Type", "string", ".spec.type", 0),
        column("Default", "boolean", ".status.default", 0),
        column("Classes", "string", ".status.served", 0),
        column("Lacking", "string", ".status.lacking", 0),
        column("Active", "string", ".status.conditions[?(@.type==\"Active\")].status", 0),
        column("Age", "date", ".metadata.creationTimestamp", 0),
    ];
    own("Manager", None, columns, spec, status)
}

fn own(kind: &str, short: Option<&str>, columns: Vec<Value>, spec: Value, mut status: Map<String, Value>) -> Value {
    status.insert("conditions".into(), schema::conditions());
    status.insert("observedGeneration".into(), json!({"type": "integer", "format": "int64"}));
    let mut root = schema::object(json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": {"type": "object", "properties": status},
    }));
    root["required"] = json!(["spec"]);
    Definition {
        group: "conductor.io",
        version: "v1alpha1",
        kind,
        scope: "Cluster",
        short,
        categories: &["conductor"],
        columns,
        schema: root,
        status: true,
    }
    .json()
}
