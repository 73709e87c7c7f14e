//! Scenarios for every built-in resource: each verb, each patch, each form, and what is refused.

use kinds::Resource;
use serde_json::{Value, json};

use super::variants::{Part, Variant, variants};
use super::{Scenario, Step};
use crate::Request;

const OBJECTS: &str = include_str!("../../scenarios/objects.json");
/// Objects with as much in them as they may have.
const FULL: &str = include_str!("../../scenarios/full.json");

/// Kinds that a real cluster's controllers change when they please: their status is not compared, nor what watches
/// show of them.
const BUSY: &[&str] = &[
    "APIService",
    "CertificateSigningRequest",
    "ClusterRole",
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "FlowSchema",
    "HorizontalPodAutoscaler",
    "IPAddress",
    "Job",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceQuota",
    "ServiceCIDR",
    "StatefulSet",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// The objects that the scenarios are made with; `{{ns}}` and `{{run}}` are filled in when they are sent.
pub fn objects() -> Vec<Value> {
    serde_json::from_str(OBJECTS).expect("the list of objects is JSON")
}

/// Resources that objects can be stored in.
pub fn resources() -> impl Iterator<Item = &'static Resource> {
    kinds::resources().iter().filter(|resource| resource.can("create") && resource.can("get"))
}

/// A scenario per resource and version: its whole life.
pub fn lives() -> Vec<Scenario> {
    let life = |(resource, object): (&Resource, Value)| {
        let kind = resource.kind;
        let mut ignore = Vec::new();
        if BUSY.contains(&kind) {
            ignore.extend([r"^body(\.items\[\d+\]|\.rows\[\d+\]\.object)?\.status".to_owned()]);
        }
        Scenario { name: format!("life of {}/{kind}", resource.api_version()), steps: life(resource, &object), ignore }
    };
    subjects().into_iter().map(life).collect()
}

/// How many variants are sent at most: of each object, made and changed, and of its status.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Of an object that is made.
    pub made: usize,
    /// Of an object with much in it, and of what is changed.
    pub more: usize,
}

impl Most {
    /// All that there are.
    pub const ALL: Most = Most { made: usize::MAX, more: usize::MAX };
}

/// Scenarios of objects with one field changed, as dry runs: made so, changed so, and with that in their status.
pub fn refusals(most: Most) -> Vec<Scenario> {
    let mut all = Vec::new();
    for (resource, object) in &subjects() {
        let part = if resource.kind == "ConfigMap" { Part::WishAndMetadata } else { Part::Wish };
        all.push(Scenario {
            name: format!("variants of {}/{}", resource.api_version(), resource.kind),
            steps: dry_runs("POST", &collection(resource), some(variants(object, resource.schema(), part), most.made)),
            ignore: Vec::new(),
        });
        all.push(changes("", resource, object, Part::Wish, most.more));
        if resource.subresources.iter().any(|own| own.name == "status") {
            all.push(changes("/status", resource, object, Part::Status, most.more));
        }
    }
    let full: Vec<Value> = serde_json::from_str(FULL).expect("the list of full objects is JSON");
    for object in &full {
        let is_its = |resource: &&Resource| {
            object["apiVersion"] == resource.api_version().as_str() && object["kind"] == resource.kind
        };
        let Some(resource) = resources().find(is_its) else { continue };
        let some = some(variants(object, resource.schema(), Part::Wish), most.more);
        all.push(Scenario {
            name: format!("variants of a full {}/{}", resource.api_version(), resource.kind),
            steps: dry_runs("POST", &collection(resource), some),
            ignore: Vec::new(),
        });
        all.push(changes("", resource, object, Part::Wish, most.more));
    }
    all
}

/// An object is made, and changed as a dry run in each of the ways.
fn changes(subresource: &str, resource: &Resource, object: &Value, part: Part, most: usize) -> Scenario {
    let all = collection(resource);
    let one = format!("{all}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    let quietly = |request: Request| Step { compared: false, ..Step::new(request) };
    let mut steps = vec![Step::new(Request::json("POST", all, object))];
    let some = some(variants(object, resource.schema(), part), most);
    steps.extend(dry_runs("PUT", &format!("{one}{subresource}"), some));
    steps.push(quietly(Request::json("DELETE", one.as_str(), &json!({"gracePeriodSeconds": 0}))));
    if resource.kind != "Namespace" {
        let finalizers = Request::json("PATCH", one.as_str(), &json!({"metadata": {"finalizers": null}}));
        steps.push(quietly(finalizers.header("Content-Type", "application/merge-patch+json")));
    }
    let busy = BUSY.contains(&resource.kind).then(|| r"^body\.(status|metadata)".to_owned());
    Scenario {
        name: format!("changes of {}/{}{subresource}", resource.api_version(), resource.kind),
        steps,
        ignore: busy.into_iter().collect(),
    }
}

/// So many of them, from every part of what is changed.
fn some(all: Vec<Variant>, most: usize) -> impl Iterator<Item = Variant> {
    let stride = all.len().div_ceil(most.max(1)).max(1);
    all.into_iter().step_by(stride)
}

fn dry_runs(method: &str, path: &str, variants: impl Iterator<Item = Variant>) -> Vec<Step> {
    let path = format!("{path}?dryRun=All&fieldValidation=Strict");
    let step = |variant: Variant| {
        // The parameter names the change in reports; to the servers it means nothing.
        let path = format!("{path}&variant={}", encode(&variant.what));
        Step::new(Request::json(method, path, &variant.object))
    };
    variants.map(step).collect()
}

/// Every resource and version with an object of its own.
fn subjects() -> Vec<(&'static Resource, Value)> {
    let objects = objects();
    let subject = |resource: &'static Resource| {
        let is_kind = |object: &&Value, version: &str| {
            object["kind"] == resource.kind && object["apiVersion"].as_str().is_some_and(|own| own.starts_with(version))
        };
        let found = objects.iter().find(|object| is_kind(object, &resource.api_version()));
        // Other versions of a kind take the same object.
        let group = format!("{}/", resource.group);
        let found = found.or_else(|| objects.iter().find(|object| is_kind(object, &group)));
        let mut object =
            found.unwrap_or_else(|| panic!("objects.json has no {}/{}", resource.api_version(), resource.kind)).clone();
        object["apiVersion"] = resource.api_version().into();
        (resource, object)
    };
    resources().map(subject).collect()
}

fn collection(resource: &Resource) -> String {
    let root = if resource.group.is_empty() { "/api/v1".into() } else { format!("/apis/{}", resource.api_version()) };
    match resource.namespaced {
        true => format!("{root}/namespaces/{{{{ns}}}}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    }
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn life(resource: &Resource, object: &Value) -> Vec<Step> {
    let all = collection(resource);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let one = format!("{all}/{name}");
    let only = format!("fieldSelector=metadata.name%3D{name}");
    let with = |pointer: &str, value: Value| {
        let mut changed = object.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(Value::Object(fields)) = changed.pointer_mut(parent) {
            fields.insert(key.into(), value);
        }
        changed
    };
    let labelled = |value: &str| with("/metadata/labels", json!({"parity": value}));
    let mut steps = Vec::new();
    let mut send = |request: Request| steps.push(Step::new(request));
    let post = |path: &str, body: &Value| Request::json("POST", path, body);
    let patch = |path: &str, kind: &str, body: &Value| {
        let form = if kind == "apply-patch" { "yaml" } else { "json" };
        Request::json("PATCH", path, body).header("Content-Type", &format!("application/{kind}+{form}"))
    };

    // Born.
    send(post(&format!("{all}?dryRun=All"), object));
    send(post(&all, object));
    send(post(&all, object));
    for accept in [TABLE, METADATA, "application/yaml"] {
        send(Request::new("GET", one.as_str()).header("Accept", accept));
    }
    send(Request::new("GET", one.as_str()));
    send(Request::new("GET", format!("{one}?pretty=true")));
    send(Request::new("GET", format!("{all}?{only}")));
    for accept in [TABLE, METADATA_LIST] {
        send(Request::new("GET", format!("{all}?{only}")).header("Accept", accept));
    }
    for include in ["Object", "None", "Everything"] {
        send(Request::new("GET", format!("{all}?{only}&includeObject={include}")).header("Accept", TABLE));
    }
    send(Request::new("GET", format!("{all}?labelSelector=parity%3Dnowhere")).header("Accept", TABLE));
    // Changed.
    send(Request::json("PUT", format!("{one}?dryRun=All"), &labelled("dry")));
    send(Request::json("PUT", one.as_str(), &labelled("put")));
    send(Request::json("PUT", one.as_str(), &with("/metadata/resourceVersion", json!("1"))));
    send(Request::json("PUT", one.as_str(), &with("/metadata/uid", json!("00000000-0000-0000-0000-00000000000a"))));
    send(Request::json("PUT", format!("{one}-other"), object));
    send(Request::json("PUT", one.as_str(), &json!({})));
    let label = |value: &str| json!({"metadata": {"labels": {"parity": value}}});
    send(patch(&one, "merge-patch", &label("merge")));
    send(patch(&one, "merge-patch", &label("merge")));
    send(patch(&one, "strategic-merge-patch", &label("strategic")));
    send(patch(&one, "json-patch", &json!([{"op": "add", "path": "/metadata/labels/parity", "value": "json"}])));
    send(patch(&one, "json-patch", &json!([{"op": "test", "path": "/metadata/labels/parity", "value": "x"}])));
    send(patch(&one, "json-patch", &json!([{"op": "remove", "path": "/metadata/nothing"}])));
    send(patch(&one, "merge-patch", &json!({"metadata": {"name": "other"}})));
    send(patch(&one, "merge-patch", &json!({"kind": "Other"})));
    send(patch(&one, "merge-patch", &json!({"nonsense": 1})));
    send(patch(&format!("{one}?fieldValidation=Strict"), "merge-patch", &json!({"nonsense": 1})));
    send(patch(&format!("{one}?dryRun=All"), "merge-patch", &label("dry")));
    send(patch(&one, "merge-patch", &json!([])));
    send(patch(&one, "nonsense", &json!({})));
    let mut applied = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": name}});
    applied["metadata"]["labels"] = json!({"parity": "applied"});
    send(patch(&one, "apply-patch", &applied));
    send(patch(&format!("{one}?fieldManager=a"), "apply-patch", &applied));
    send(patch(&format!("{one}?fieldManager=a&force=true"), "apply-patch", &applied));
    send(patch(&format!("{one}?fieldManager=a"), "apply-patch", &labelled("applied")));
    applied["metadata"]["labels"]["parity"] = "b".into();
    send(patch(&format!("{one}?fieldManager=b"), "apply-patch", &applied));
    send(patch(&format!("{one}?fieldManager=b&force=true&dryRun=All"), "apply-patch", &applied));
    // Under another name than its own, and without one.
    send(patch(&format!("{one}-other?fieldManager=a"), "apply-patch", &labelled("applied")));
    let mut nameless = labelled("applied");
    nameless["metadata"].as_object_mut().map(|meta| meta.remove("name"));
    send(patch(&format!("{one}-other?fieldManager=a"), "apply-patch", &nameless));
    // Its subresources.
    for subresource in &resource.subresources {
        let path = format!("{one}/{}", subresource.name);
        if subresource.verbs.contains(&"get")
            && !matches!(subresource.name, "log" | "proxy" | "exec" | "attach" | "portforward")
        {
            send(Request::new("GET", path.as_str()));
        }
        if subresource.name == "status" {
            send(Request::json("PUT", path.as_str(), &labelled("status")));
            send(patch(&path, "merge-patch", &json!({"status": {}})));
            send(patch(&path, "merge-patch", &json!({"status": "text"})));
            send(patch(&format!("{path}?fieldManager=s"), "apply-patch", &applied));
        }
    }
    // Refused.
    send(post(&all, &with("/kind", json!("Nonsense"))));
    send(post(&all, &with("/apiVersion", json!("nonsense/v1"))));
    let dry = format!("{all}?dryRun=All");
    send(post(&dry, &with("/metadata", json!({}))));
    send(post(&dry, &with("/metadata/name", json!("Bad_Name!"))));
    send(post(&dry, &with("/metadata/name", json!("a".repeat(300)))));
    send(post(&all, &with("/metadata/namespace", json!("elsewhere"))));
    send(post(&all, &with("/metadata/labels", json!({"a b": "c d"}))));
    send(post(&all, &with("/metadata/annotations", json!({"a b": "c d"}))));
    send(post(&all, &with("/metadata/finalizers", json!(["nonsense"]))));
    send(post(&all, &with("/metadata/resourceVersion", json!("1"))));
    send(post(&all.replace("{{ns}}", "no-such-namespace"), object));
    send(Request::new("POST", all.as_str()).body("{"));
    send(Request::new("POST", all.as_str()).body("[]"));
    send(Request::new("POST", dry.as_str()).body("null"));
    send(Request::new("POST", all.as_str()));
    send(Request::new("POST", all.as_str()).body("text").header("Content-Type", "text/plain"));
    for mode in ["Strict", "Warn", "Ignore", "Nonsense"] {
        let mut strange = with("/nonsense", json!(1));
        strange["metadata"]["nonsense"] = 2.into();
        send(post(&format!("{all}?dryRun=All&fieldValidation={mode}"), &strange));
    }
    let twice = object.to_string().replacen('{', r#"{"apiVersion":"v0","#, 1);
    send(Request::new("POST", format!("{all}?dryRun=All&fieldValidation=Strict")).body(twice.clone()));
    send(Request::new("POST", format!("{all}?dryRun=All")).body(twice));
    send(post(&format!("{all}?dryRun=Some"), object));
    send(post(&format!("{all}?fieldManager={}", "m".repeat(200)), object));
    send(Request::new("GET", format!("{one}-missing")));
    send(Request::json("PUT", format!("{one}-missing"), &with("/metadata/name", json!(format!("{name}-missing")))));
    send(patch(&format!("{one}-missing"), "merge-patch", &json!({})));
    send(Request::new("DELETE", format!("{one}-missing")));
    send(post(&one, object));
    send(Request::json("PUT", all.as_str(), object));
    send(Request::new("GET", one.as_str()).header("Accept", "text/html"));
    send(Request::new("GET", format!("{all}?{only}")).header("Accept", "text/html"));
    send(Request::new("GET", format!("{one}/nonsense")));
    send(Request::new("GET", format!("{all}?labelSelector=a%20b%20c")));
    send(Request::new("GET", format!("{all}?fieldSelector=spec.nonsense%3Da")));
    send(Request::new("GET", format!("{all}?limit=nonsense")));
    send(Request::new("GET", format!("{all}?continue=nonsense")));
    send(Request::new("GET", format!("{all}?resourceVersion=nonsense")));
    send(Request::new("GET", format!("{all}?resourceVersionMatch=Exact")));
    // Gone.
    send(Request::new("DELETE", format!("{one}?dryRun=All")));
    send(Request::json(
        "DELETE",
        one.as_str(),
        &json!({"preconditions": {"uid": "00000000-0000-0000-0000-00000000000a"}}),
    ));
    send(Request::json("DELETE", one.as_str(), &json!({"preconditions": {"resourceVersion": "1"}})));
    send(Request::json("DELETE", one.as_str(), &json!({"propagationPolicy": "Nonsense"})));
    send(Request::json("DELETE", one.as_str(), &json!({"gracePeriodSeconds": -5, "nonsense": 1})));
    send(Request::json("DELETE", one.as_str(), &json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})));
    let finalizers = json!({"metadata": {"finalizers": null}});
    let mut quietly = |request: Request| steps.push(Step { compared: false, ..Step::new(request) });
    if resource.kind != "Namespace" {
        quietly(patch(&one, "merge-patch", &finalizers));
    }
    let mut gone = Step::new(Request::new("GET", one.as_str()));
    gone.until = Some(("/code".into(), "404".into()));
    steps.push(gone);
    steps.push(Step::new(Request::new("DELETE", one.as_str())));
    if !BUSY.contains(&resource.kind) {
        let saved = &mut steps[0];
        saved.save.push(("nothing".into(), "/metadata/resourceVersion".into()));
        // The version before the object was created is not known from a dry run: the first list has it.
        let first = Step {
            compared: false,
            save: vec![("before".into(), "/metadata/resourceVersion".into())],
            ..Step::new(Request::new("GET", format!("{all}?limit=1")))
        };
        steps.insert(0, first);
        for accept in ["application/json", TABLE, METADATA] {
            let path = format!("{all}?watch=true&{only}&resourceVersion={{{{before}}}}&timeoutSeconds=1");
            steps.push(Step::new(Request::new("GET", path).header("Accept", accept)));
        }
    }
    steps
}
