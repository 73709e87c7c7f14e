//! Creates, updates, patches and applies as a real kube-apiserver 1.36.4 answered them: ours must give the same objects,
//! managers and conflicts.

use conductor_kinds::{defaults, schema_of, strategy};
use conductor_machinery::apply::{
    ApplyError, FieldSet, Filter, OneVersion, Path, ReplicaPaths, Tracker, keep_times_if_unchanged, parent_managers,
};
use conductor_machinery::schema::decode;
use conductor_machinery::status::Status;
use serde_json::{Value, json};

/// JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// What the server itself sets, and may differ.
fn without_server_fields(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in ["uid", "resourceVersion", "generation", "creationTimestamp", "namespace", "managedFields"] {
        metadata.remove(name);
    }
    object
}

/// The time the recorded answer has for whoever wrote.
fn time_of(step: &Value) -> String {
    let operation = if step["op"] == "apply" { "Apply" } else { "Update" };
    let entries = step["result"]["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let own = entries.iter().find(|entry| entry["manager"] == step["manager"] && entry["operation"] == operation);
    let before = entries.iter().find(|entry| entry["manager"] == "before-first-apply");
    let time = own.and_then(|own| own["time"].as_str()).or(before.and_then(|entry| entry["time"].as_str()));
    time.unwrap_or("2026-11-15T09:00:00Z").to_owned()
}

struct Replay<'s> {
    group: &'s str,
    kind: &'s str,
    tracker: Tracker<'s>,
}

impl Replay<'_> {
    fn canonical(&self, object: Value) -> Value {
        let mut value = decode(object, self.tracker.schema).unwrap().value;
        defaults::apply(self.group, self.kind, &mut value);
        decode(value, self.tracker.schema).unwrap().value
    }

    fn step(&self, step: &Value) -> Result<Value, ApplyError> {
        let live = (!step["before"].is_null()).then(|| self.canonical(step["before"].clone()));
        let (manager, now) = (step["manager"].as_str().unwrap(), time_of(step));
        let updated = |new: Value| {
            let mut new = self.canonical(new);
            self.tracker.update(live.as_ref(), &mut new, manager, &now).unwrap();
            Ok(new)
        };
        let mut new = match step["op"].as_str().unwrap() {
            "apply" => {
                let force = step["force"] == true;
                self.tracker.apply(live.as_ref(), &step["sent"], manager, force, &now).map(|new| self.canonical(new))
            }
            "merge" => {
                let mut new = live.clone().unwrap();
                merge(&mut new, &step["sent"]);
                updated(new)
            }
            _ => updated(step["sent"].clone()),
        }?;
        if let Some(live) = &live {
            keep_times_if_unchanged(live, &mut new);
        }
        Ok(new)
    }
}

#[test]
fn a_real_api_server_answered_the_same() {
    let (mut objects, mut conflicts) = (0, 0);
    for line in include_str!("data/apply.jsonl").lines() {
        let story: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| story[name].as_str().unwrap();
        let (group, version, kind) = (text("group"), text("version"), text("kind"));
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        for (at, step) in story["steps"].as_array().unwrap().iter().enumerate() {
            let subresource = step["subresource"].as_str().unwrap();
            if subresource == "scale" {
                continue;
            }
            let reset = strategy::reset_fields(group, kind, subresource);
            let reset: FieldSet = reset.iter().map(|path| Path::fields(&path.split('.').collect::<Vec<_>>())).collect();
            let reset = Filter::Exclude(reset);
            let tracker = Tracker {
                schema: schema_of(group, version, kind).unwrap(),
                api_version: &api_version,
                kind,
                subresource,
                reset: &reset,
                reset_elsewhere: &Filter::Everything,
                converter: &OneVersion,
                custom: false,
            };
            let what = format!("{} step {at} ({} by {})", text("name"), step["op"], step["manager"]);
            let result = Replay { group, kind, tracker }.step(step);
            let expected = &step["result"];
            match (step["code"].as_u64().unwrap(), result) {
                (200..300, result) => {
                    objects += 1;
                    let object = result.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let recorded = expected["metadata"].get("managedFields");
                    assert_eq!(object["metadata"].get("managedFields"), recorded, "{what}");
                    // Controllers, allocators and strategies do their part to the rest of some kinds.
                    if matches!(kind, "ConfigMap" | "Role" | "NetworkPolicy") {
                        assert_eq!(without_server_fields(object), without_server_fields(expected.clone()), "{what}");
                    }
                }
                (409, result) => {
                    conflicts += 1;
                    let status = Status::from(result.expect_err(&what));
                    assert_eq!(status.code, 409, "{what}");
                    assert_eq!(status.message, expected["message"].as_str().unwrap(), "{what}");
                    let details = &status.to_json()["details"]["causes"];
                    let sorted = |causes: &Value| {
                        let mut causes: Vec<String> = causes.as_array().unwrap().iter().map(Value::to_string).collect();
                        causes.sort();
                        causes
                    };
                    assert_eq!(sorted(details), sorted(&expected["causes"]), "{what}");
                }
                (500, result) => {
                    let status = Status::from(result.expect_err(&what));
                    let message = expected["message"].as_str().unwrap();
                    // Go prints the value in its own way.
                    let same = |text: &str| text.split(", got ").next().unwrap().to_owned();
                    assert_eq!((status.code, same(&status.message)), (500, same(message)), "{what}");
                }
                // Refused for other reasons.
                _ => {}
            }
        }
    }
    assert!(objects > 30 && conflicts > 5, "{objects} objects, {conflicts} conflicts");
}

#[test]
fn who_scales_owns_the_replicas() {
    let entry = |manager: &str, version: &str, subresource: &str, fields: Value| {
        let mut entry = json!({"manager": manager, "operation": "Update", "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entry
    };
    let replicas = || json!({"f:spec": {"f:replicas": {}}});
    let parent = json!([entry("creator", "apps/v1", "", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}))]);
    let paths = ReplicaPaths::standard("apps/v1");
    let scale = conductor_machinery::apply::scale_managers(Some(&parent), &paths).unwrap().unwrap();
    assert_eq!(scale, json!([entry("creator", "autoscaling/v1", "", replicas())]));
    // Nothing scaled: as on the real one, who updated has the replicas in an entry of their own now.
    let parted = json!([
        entry("creator", "apps/v1", "", json!({"f:spec": {"f:paused": {}}})),
        entry("creator", "apps/v1", "", replicas())
    ]);
    assert_eq!(parent_managers(Some(&parent), Some(&scale), "apps/v1", &paths).unwrap(), Some(parted));
    // Who applied has not.
    let mut applied = parent.clone();
    applied[0]["operation"] = "Apply".into();
    let scale = conductor_machinery::apply::scale_managers(Some(&applied), &paths).unwrap();
    assert_eq!(parent_managers(Some(&applied), scale.as_ref(), "apps/v1", &paths).unwrap(), Some(applied));
    let scale = json!([entry("sc", "autoscaling/v1", "scale", replicas())]);
    let expected = json!([
        entry("creator", "apps/v1", "", json!({"f:spec": {"f:paused": {}}})),
        entry("sc", "apps/v1", "scale", replicas()),
    ]);
    assert_eq!(parent_managers(Some(&parent), Some(&scale), "apps/v1", &paths).unwrap(), Some(expected));
}
