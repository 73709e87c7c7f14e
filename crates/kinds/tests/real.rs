//! The rules against what a real kube-apiserver 1.36.4 answered: the same requests, recorded.
//!
//! `data/created.json` holds objects it took and what it made of them; `data/refused.json` objects it refused, with the
//! causes it named; `data/updated.json` changes of objects, taken or refused.

use conductor_kinds::value::{get, remove, set};
use conductor_kinds::{defaults, schema_of, strategy, validate, warnings};
use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::schema::{Schema, apply_openapi_defaults, decode, encode};
use serde_json::Value;

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("the recording is a list")
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or("")
}

fn schema(object: &Value) -> Schema<'static> {
    let (group, version) = text(object, "apiVersion").split_once('/').unwrap_or(("", text(object, "apiVersion")));
    schema_of(group, version, text(object, "kind")).expect("a built-in kind")
}

/// As the server reads a request.
fn read(object: Value) -> Value {
    let schema = schema(&object);
    let mut object = decode(object, schema).expect("recorded requests can be read").value;
    apply_openapi_defaults(&mut object, schema);
    object
}

/// As the server writes an answer.
fn written(object: &Value) -> Value {
    let mut bytes = Vec::new();
    encode(object, schema(object), &mut bytes);
    serde_json::from_slice(&bytes).expect("what is written can be read")
}

/// Takes an object through defaults and the create strategy, as the server does before it validates.
fn prepared(group: &str, kind: &str, object: Value) -> Value {
    let mut object = read(object);
    set(&mut object, "metadata", "uid", "00000000-0000-0000-0000-000000000000");
    set(&mut object, "metadata", "creationTimestamp", "2026-01-01T00:00:00Z");
    defaults::apply(group, kind, &mut object);
    strategy::prepare_create(group, kind, &mut object);
    object
}

/// Leaves out what depends on the moment or is done by admission and allocation.
fn comparable(kind: &str, mut object: Value) -> Value {
    for field in ["uid", "creationTimestamp", "managedFields", "resourceVersion", "finalizers"] {
        remove(&mut object, "metadata", field);
    }
    remove(&mut object, "status", "lastPhaseTransitionTime");
    match kind {
        "Pod" => {
            for field in
                ["tolerations", "priority", "preemptionPolicy", "serviceAccount", "serviceAccountName", "volumes"]
            {
                remove(&mut object, "spec", field);
            }
            for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
                remove(condition, "", "lastTransitionTime");
            }
            for container in object["spec"]["containers"].as_array_mut().into_iter().flatten() {
                remove(container, "", "volumeMounts");
            }
        }
        "Node" => remove(&mut object, "spec", "taints"),
        "Service" => {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                remove(&mut object, "spec", field);
            }
            for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
                remove(port, "", "nodePort");
            }
        }
        "Job" => {
            let uid = "batch.kubernetes.io/controller-uid";
            for labels in ["spec.template.metadata.labels", "metadata.labels", "spec.selector.matchLabels"] {
                for key in [uid, "controller-uid"] {
                    if !get(&object, labels).is_null() {
                        remove(&mut object, labels, key);
                    }
                }
            }
        }
        _ => {}
    }
    object
}

fn difference(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            for key in x.keys().chain(y.keys().filter(|key| !x.contains_key(*key))) {
                let null = Value::Null;
                difference(&format!("{path}.{key}"), x.get(key).unwrap_or(&null), y.get(key).unwrap_or(&null), found);
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (i, (a, b)) in x.iter().zip(y).enumerate() {
                difference(&format!("{path}[{i}]"), a, b, found);
            }
        }
        _ if a == b => {}
        _ => found.push(format!("{path}: {a} but Kubernetes has {b}")),
    }
}

#[test]
fn what_kubernetes_makes_of_an_object() {
    let mut found = Vec::new();
    for case in cases(include_str!("data/created.json")) {
        let (group, kind) = (text(&case, "group"), text(&case, "kind"));
        let mut object = prepared(group, kind, case["object"].clone());
        let errors = validate::create(group, kind, &internal(group, kind, &object));
        assert!(errors.is_empty(), "{kind}: {errors:?}");
        // What was stored is read again, and defaulted once more: Jobs get their labels then.
        defaults::apply(group, kind, &mut object);
        let (ours, theirs) = (comparable(kind, written(&object)), comparable(kind, case["answer"].clone()));
        difference(&format!("{group}/{kind}"), &ours, &theirs, &mut found);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The form in which an object is checked: Events of the newer group are checked as core ones.
fn internal(group: &str, kind: &str, object: &Value) -> Value {
    match conductor_kinds::twins::twin(group, "v1", kind).filter(|_| kind == "Event") {
        Some(twin) => twin.to_stored(object.clone()),
        None => object.clone(),
    }
}

/// What is wrong, as `field: message`, sorted and each only once. Kubernetes shows whole objects with the names of its
/// own structures' fields, which are not for clients to rely on.
fn sorted(lines: Vec<String>) -> Vec<String> {
    let without_object = |line: String| match line.split_once(" value: {") {
        Some((start, rest)) => format!("{start} value: {{…{}", rest.rfind('}').map_or("", |end| &rest[end..])),
        // No list and an empty one are the same here.
        None => line.replace(" value: []:", " value: null:"),
    };
    let mut lines: Vec<String> = lines.into_iter().map(without_object).collect();
    lines.sort();
    lines.dedup();
    lines
}

fn recorded(case: &Value) -> Vec<String> {
    let causes = case["causes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // Certificate requests are read by the server, which knows cryptography.
    sorted(causes.filter(|line| !line.starts_with("spec.request: ")).map(str::to_owned).collect())
}

fn ours(errors: Errors) -> Vec<String> {
    sorted(errors.iter().map(|error| format!("{}: {}", error.path, error.message())).collect())
}

fn compare(case: &Value, errors: Errors, found: &mut Vec<String>) {
    let (expected, got) = (recorded(case), ours(errors));
    if expected != got {
        let missing: Vec<_> = expected.iter().filter(|line| !got.contains(line)).collect();
        let extra: Vec<_> = got.iter().filter(|line| !expected.contains(line)).collect();
        found.push(format!("{}: missing {missing:#?} extra {extra:#?}", text(case, "name")));
    }
}

#[test]
fn what_kubernetes_refuses_to_create() {
    let mut found = Vec::new();
    for case in cases(include_str!("data/refused.json")) {
        let (group, kind) = (text(&case, "group"), text(&case, "kind"));
        let object = prepared(group, kind, case["object"].clone());
        let mut errors = validate::create(group, kind, &internal(group, kind, &object));
        let name = get(&object, "metadata.name").as_str().unwrap_or("");
        for message in validate::name_rule(group, kind)(name, false) {
            errors.push(Error::invalid(&Path::root("metadata").child("name"), name, message));
        }
        compare(&case, errors, &mut found);
    }
    assert!(found.is_empty(), "{} differ\n{}", found.len(), found.join("\n"));
}

#[test]
fn what_kubernetes_refuses_to_change() {
    let mut found = Vec::new();
    for case in cases(include_str!("data/updated.json")) {
        let (group, kind, subresource) = (text(&case, "group"), text(&case, "kind"), text(&case, "subresource"));
        let (old, mut new) = (&case["old"], read(case["new"].clone()));
        defaults::apply(group, kind, &mut new);
        let errors = if subresource.is_empty() {
            strategy::prepare_update(group, kind, &mut new, old);
            validate::update(group, kind, &internal(group, kind, &new), &internal(group, kind, old))
        } else {
            strategy::prepare_subresource_update(group, kind, subresource, &mut new, old, "2026-01-01T00:00:00Z");
            validate::subresource_update(group, kind, subresource, &new, old)
        };
        compare(&case, errors, &mut found);
        if case["answer"].is_object() {
            let (ours, theirs) = (comparable(kind, written(&new)), comparable(kind, case["answer"].clone()));
            difference(text(&case, "name"), &ours, &theirs, &mut found);
        }
    }
    assert!(found.is_empty(), "{} differ\n{}", found.len(), found.join("\n"));
}

#[test]
fn what_kubernetes_warns_about() {
    let mut found = Vec::new();
    for case in cases(include_str!("data/warned.json")) {
        let (group, kind) = (text(&case, "group"), text(&case, "kind"));
        let object = prepared(group, kind, case["object"].clone());
        let mut got = warnings::create(group, kind, &object);
        let mut expected: Vec<String> =
            case["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        got.sort();
        expected.sort();
        if got != expected {
            found.push(format!("{kind}: expected {expected:#?} got {got:#?}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
