//! Apply: ownership, conflicts, removal, lists, versions, kubectl's annotation.

use serde_json::{Value, json};

use super::testing::SAMPLE;
use super::{ApplyError, FieldSet, LAST_APPLIED, keep_times_if_unchanged, merge, remove_items, to_field_set, validate};
use crate::status::Status;

/// What was done to an object, one step after the other.
struct Story {
    live: Option<Value>,
    clock: usize,
}

impl Story {
    fn new() -> Self {
        Story { live: None, clock: 0 }
    }

    fn now(&mut self) -> String {
        self.clock += 1;
        format!("2026-01-02T03:04:{:02}Z", self.clock)
    }

    fn try_apply(&mut self, manager: &str, force: bool, body: Value) -> Result<(), ApplyError> {
        let now = self.now();
        let mut patch = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a"}});
        for (key, value) in body.as_object().unwrap() {
            if key == "metadata" {
                patch["metadata"].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            } else {
                patch[key] = value.clone();
            }
        }
        let mut applied = SAMPLE.tracker().apply(self.live.as_ref(), &patch, manager, force, &now)?;
        applied["metadata"]["uid"] = json!("u");
        self.live = Some(applied);
        Ok(())
    }

    #[track_caller]
    fn apply(mut self, manager: &str, body: Value) -> Self {
        self.try_apply(manager, false, body).unwrap();
        self
    }

    #[track_caller]
    fn force(mut self, manager: &str, body: Value) -> Self {
        self.try_apply(manager, true, body).unwrap();
        self
    }

    #[track_caller]
    fn conflict(mut self, manager: &str, body: Value, message: &str) -> Self {
        let before = self.live.clone();
        let error = self.try_apply(manager, false, body).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(self.live, before);
        self
    }

    /// Sets top-level fields as an update.
    #[track_caller]
    fn update(mut self, manager: &str, body: Value) -> Self {
        let now = self.now();
        let mut new = self
            .live
            .clone()
            .unwrap_or_else(|| json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a"}}));
        for (key, value) in body.as_object().unwrap() {
            new[key] = value.clone();
        }
        SAMPLE.tracker().update(self.live.as_ref(), &mut new, manager, &now).unwrap();
        new["metadata"]["uid"] = json!("u");
        self.live = Some(new);
        self
    }

    #[track_caller]
    fn holds(self, field: &str, expected: Value) -> Self {
        assert_eq!(self.live.as_ref().unwrap().get(field).cloned().unwrap_or(Value::Null), expected);
        self
    }

    /// Who owns what: `name operation` and the paths.
    #[track_caller]
    fn owners(self, expected: &[(&str, &[&str])]) -> Self {
        let managed = &self.live.as_ref().unwrap()["metadata"]["managedFields"];
        let mut found = Vec::new();
        for entry in managed.as_array().into_iter().flatten() {
            let set = FieldSet::from_json(&entry["fieldsV1"]).unwrap();
            let paths: Vec<String> = set.paths().iter().map(ToString::to_string).collect();
            let name = format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
            found.push((name, paths));
        }
        let expected: Vec<(String, Vec<String>)> =
            expected.iter().map(|(n, p)| (n.to_string(), p.iter().map(ToString::to_string).collect())).collect();
        assert_eq!(found, expected);
        self
    }
}

#[test]
fn create_then_remove_what_is_no_longer_applied() {
    Story::new()
        .apply("a", json!({"data": {"x": "1", "y": "1"}, "spec": {"name": "n"}}))
        .owners(&[("a Apply", &[".data.x", ".data.y", ".spec.name"])])
        .apply("a", json!({"data": {"x": "1"}}))
        .holds("data", json!({"x": "1"}))
        .holds("spec", Value::Null)
        .owners(&[("a Apply", &[".data.x"])])
        .apply("a", json!({"data": {}}))
        // Null: decoding drops it.
        .holds("data", Value::Null)
        .owners(&[("a Apply", &[".data"])]);
}

#[test]
fn applying_the_same_changes_nothing_not_even_the_time() {
    let story = Story::new().apply("a", json!({"data": {"x": "1"}, "spec": {"ports": [{"port": 1}]}}));
    let before = story.live.clone();
    let story = story.apply("a", json!({"data": {"x": "1"}, "spec": {"ports": [{"port": 1}]}}));
    assert_eq!(story.live, before);
}

#[test]
fn what_another_applies_too_stays() {
    Story::new()
        .apply("a", json!({"data": {"x": "1", "y": "1"}}))
        .apply("b", json!({"data": {"y": "1"}}))
        .owners(&[("b Apply", &[".data.y"]), ("a Apply", &[".data.x", ".data.y"])])
        .apply("a", json!({"data": {"x": "2"}}))
        .holds("data", json!({"x": "2", "y": "1"}))
        .apply("b", json!({}))
        .holds("data", json!({"x": "2"}))
        .owners(&[("a Apply", &[".data.x"])]);
}

#[test]
fn what_an_update_set_stays() {
    Story::new()
        .apply("a", json!({"data": {"x": "1"}}))
        .update("u", json!({"data": {"x": "1", "y": "1"}}))
        .apply("a", json!({}))
        .holds("data", json!({"y": "1"}))
        .owners(&[("u Update", &[".data.y"])]);
}

#[test]
fn an_update_takes_a_field_and_applying_it_again_is_a_conflict() {
    let message = "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.x";
    Story::new()
        .apply("a", json!({"data": {"x": "1"}}))
        .update("u", json!({"data": {"x": "2"}}))
        .owners(&[("u Update", &[".data.x"])])
        .conflict("a", json!({"data": {"x": "1"}}), message)
        .force("a", json!({"data": {"x": "1"}}))
        .owners(&[("a Apply", &[".data.x"])]);
}

#[test]
fn one_name_that_applies_and_updates_is_two_owners() {
    Story::new()
        .apply("a", json!({"data": {"x": "1", "y": "1"}}))
        .update("a", json!({"data": {"x": "2", "y": "1"}}))
        .owners(&[("a Apply", &[".data.y"]), ("a Update", &[".data.x"])])
        .conflict(
            "a",
            json!({"data": {"x": "3", "y": "1"}}),
            "Apply failed with 1 conflict: conflict with \"a\" using v1: .data.x",
        );
}

#[test]
fn conflicts_are_listed_by_manager() {
    let mut story = Story::new()
        .apply("b", json!({"data": {"x": "1", "y": "1"}}))
        .apply("a", json!({"spec": {"ports": [{"port": 80, "name": "n"}]}, "data": {"y": "1"}}));
    let body = json!({"spec": {"ports": [{"port": 80, "name": "m"}]}, "data": {"x": "2", "y": "2"}});
    let error = story.try_apply("c", false, body).unwrap_err();
    let status = Status::from(error);
    assert_eq!(
        status.message,
        "Apply failed with 4 conflicts: conflicts with \"a\":\n- .data.y\n- .spec.ports[port=80,protocol=\"TCP\"].name\n\
         conflicts with \"b\":\n- .data.x\n- .data.y"
    );
    assert_eq!((status.code, &*status.reason), (409, "Conflict"));
    let causes: Vec<_> =
        status.causes.iter().map(|c| (c.reason.as_str(), c.message.as_str(), c.field.as_str())).collect();
    assert_eq!(causes[0], ("FieldManagerConflict", "conflict with \"a\"", ".data.y"));
    assert_eq!(causes.len(), 4);
}

#[test]
fn equal_values_are_shared_and_force_takes_from_all() {
    Story::new()
        .apply("a", json!({"spec": {"replicas": 1}}))
        .apply("b", json!({"spec": {"replicas": 1}}))
        .force("c", json!({"spec": {"replicas": 2}}))
        .holds("spec", json!({"replicas": 2}))
        .owners(&[("c Apply", &[".spec.replicas"])]);
}

#[test]
fn lists_by_key_are_merged_item_by_item() {
    let ports = |ports: Value| json!({"spec": {"ports": ports}});
    Story::new()
        .apply("a", ports(json!([{"port": 80, "name": "a"}])))
        .apply("b", ports(json!([{"port": 80, "protocol": "UDP"}, {"port": 80, "target": {"host": "h"}}])))
        .holds(
            "spec",
            json!({"ports": [
                {"port": 80, "protocol": "UDP"},
                {"port": 80, "name": "a", "target": {"host": "h"}}]}),
        )
        .owners(&[
            (
                "a Apply",
                &[
                    ".spec.ports[port=80,protocol=\"TCP\"]",
                    ".spec.ports[port=80,protocol=\"TCP\"].name",
                    ".spec.ports[port=80,protocol=\"TCP\"].port",
                ],
            ),
            (
                "b Apply",
                &[
                    ".spec.ports[port=80,protocol=\"TCP\"]",
                    ".spec.ports[port=80,protocol=\"UDP\"]",
                    ".spec.ports[port=80,protocol=\"TCP\"].port",
                    ".spec.ports[port=80,protocol=\"TCP\"].target.host",
                    ".spec.ports[port=80,protocol=\"UDP\"].port",
                    ".spec.ports[port=80,protocol=\"UDP\"].protocol",
                ],
            ),
        ])
        .apply("b", json!({}))
        .holds("spec", json!({"ports": [{"port": 80, "name": "a"}]}))
        .apply("a", json!({}))
        .holds("spec", Value::Null);
}

#[test]
fn sets_are_joined_and_atomic_values_replaced() {
    Story::new()
        .apply("a", json!({"spec": {"zones": ["x", "y"], "args": ["1"], "selector": {"a": "1"}}}))
        .apply("b", json!({"spec": {"zones": ["z", "x"]}}))
        .holds("spec", json!({"zones": ["z", "x", "y"], "args": ["1"], "selector": {"a": "1"}}))
        .conflict(
            "b",
            json!({"spec": {"selector": {"b": "1"}}}),
            "Apply failed with 1 conflict: conflict with \"a\": .spec.selector",
        )
        .force("b", json!({"spec": {"args": ["2", "2"], "selector": {"b": "1"}}}))
        .holds("spec", json!({"zones": ["x", "y"], "args": ["2", "2"], "selector": {"b": "1"}}));
}

#[test]
fn unknown_content_is_merged_by_key_and_lists_replaced() {
    Story::new()
        .apply("a", json!({"spec": {"free": {"m": {"x": 1}, "l": [1]}, "any": "text"}}))
        .owners(&[("a Apply", &[".spec.any", ".spec.free.l", ".spec.free.m", ".spec.free.m.x"])])
        .apply("b", json!({"spec": {"free": {"m": {"y": [{"name": "n"}]}}}}))
        .holds("spec", json!({"free": {"m": {"x": 1, "y": [{"name": "n"}]}, "l": [1]}, "any": "text"}))
        .force("b", json!({"spec": {"any": {"now": "a map"}}}))
        .holds("spec", json!({"free": {"m": {"x": 1}, "l": [1]}, "any": {"now": "a map"}}));
}

#[test]
fn embedded_objects_have_standard_metadata() {
    Story::new()
        .apply("a", json!({"spec": {"object": {"apiVersion": "v1", "kind": "K", "metadata": {"finalizers": ["f"]}}}}))
        .owners(&[(
            "a Apply",
            &[".spec.object.apiVersion", ".spec.object.kind", ".spec.object.metadata.finalizers[=\"f\"]"],
        )]);
}

#[test]
fn metadata_of_everybody() {
    Story::new()
        .apply(
            "a",
            json!({"metadata": {"labels": {"x": "1"}, "finalizers": ["f/a"],
            "ownerReferences": [{"uid": "1", "name": "o", "kind": "K", "apiVersion": "v1"}]}}),
        )
        .owners(&[(
            "a Apply",
            &[".metadata.finalizers[=\"f/a\"]", ".metadata.labels.x", ".metadata.ownerReferences[uid=\"1\"]"],
        )])
        .apply("b", json!({"metadata": {"finalizers": ["f/b"]}}))
        .apply("a", json!({}))
        .owners(&[("b Apply", &[".metadata.finalizers[=\"f/b\"]"])]);
}

#[test]
fn the_first_apply_to_an_untracked_object_finds_before_first_apply() {
    let live = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a", "uid": "u"}, "data": {"x": "1"}});
    let mut story = Story { live: Some(live), clock: 0 };
    let error = story.try_apply("a", false, json!({"data": {"x": "2"}})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.x"
    );
    story
        .apply("a", json!({"data": {"x": "1"}}))
        .owners(&[("a Apply", &[".data.x"]), ("before-first-apply Update", &[".data", ".data.x"])]);
}

#[test]
fn nulls_are_applied_as_they_are() {
    Story::new()
        .apply("a", json!({"data": {"x": "1"}, "spec": {"name": "n"}}))
        .force("b", json!({"data": null, "spec": {"name": null}}))
        .holds("data", json!({"x": "1"}))
        .holds("spec", json!({"name": null}))
        .owners(&[("a Apply", &[".data.x"]), ("b Apply", &[".data", ".spec.name"])]);
}

#[track_caller]
fn check_invalid(body: Value, expected: &str) {
    let error = Story::new().try_apply("a", false, body).unwrap_err();
    assert!(error.to_string().ends_with(expected), "{error}");
    assert_eq!(Status::from(error).code, 500);
}

#[test]
fn what_does_not_fit_the_schema_is_refused() {
    check_invalid(json!({"nope": 1}), "(/a; /v1, Kind=Sample): .nope: field not declared in schema");
    check_invalid(json!({"spec": {"replicas": "1"}}), ".spec.replicas: expected numeric (int or float), got \"1\"");
    check_invalid(json!({"spec": {"name": 1}}), ".spec.name: expected string, got 1");
    check_invalid(json!({"spec": {"flag": 1}}), ".spec.flag: expected boolean, got 1");
    check_invalid(json!({"spec": {"zones": "x"}}), ".spec.zones: expected list, got \"x\"");
    check_invalid(json!({"data": [1]}), ".data: expected map, got [1]");
    check_invalid(json!({"spec": {"zones": ["x", "x"]}}), ".spec.zones: duplicate entries for key [=\"x\"]");
    check_invalid(
        json!({"spec": {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}}),
        ".spec.ports: duplicate entries for key [port=1,protocol=\"TCP\"]",
    );
    check_invalid(json!({"spec": {"ports": [null]}}), "associative list with keys may not have a null element");
    check_invalid(json!({"spec": {"zones": [["x"]]}}), "not supported: associative list with lists as elements");
    check_invalid(json!({"spec": {"zones": [null]}}), "element that's an explicit null");
    check_invalid(
        json!({"nope": 1, "spec": {"flag": 1}}),
        "errors:\n  .nope: field not declared in schema\n  .spec.flag: expected boolean, got 1",
    );
}

#[test]
fn the_patch_must_name_its_type_and_no_managers() {
    let tracker = SAMPLE.tracker();
    let check = |patch: Value, expected: &str| {
        let error = tracker.apply(None, &patch, "a", false, "2026-01-02T03:04:05Z").unwrap_err();
        assert_eq!(error, ApplyError::BadRequest(expected.to_owned()));
    };
    check(json!({"apiVersion": "g/v2", "kind": "Sample"}), "invalid object type: g/v2, Kind=Sample");
    check(json!({"apiVersion": "v1"}), "invalid object type: /v1, Kind=");
    let managed = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"managedFields": []}});
    check(managed, "metadata.managedFields must be nil");
}

#[test]
fn live_duplicates_are_replaced_by_what_is_applied() {
    let live = json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2}, {"port": 1, "name": "b"}]}});
    let schema = SAMPLE.schema();
    assert!(validate(&live, schema, true).is_ok() && validate(&live, schema, false).is_err());
    let merged = merge(&live, &json!({"spec": {"ports": [{"port": 1, "name": "c"}]}}), schema).unwrap();
    assert_eq!(merged, json!({"spec": {"ports": [{"port": 1, "name": "c"}, {"port": 2}]}}));
}

#[track_caller]
fn check_order(live: &[&str], applied: &[&str], expected: &[&str]) {
    let merged =
        merge(&json!({"spec": {"zones": live}}), &json!({"spec": {"zones": applied}}), SAMPLE.schema()).unwrap();
    assert_eq!(merged["spec"]["zones"], json!(expected));
}

#[test]
fn the_order_of_merged_items() {
    check_order(&["a", "b"], &["c"], &["a", "b", "c"]);
    check_order(&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]);
    check_order(&["a", "b", "c"], &["a", "x", "c"], &["a", "b", "x", "c"]);
    check_order(&["a", "b", "c", "d"], &["d", "b"], &["a", "c", "d", "b"]);
    check_order(&["a"], &["x", "a", "y"], &["x", "a", "y"]);
    check_order(&[], &["x", "y"], &["x", "y"]);
}

#[test]
fn what_loses_its_last_item_becomes_null() {
    let object = json!({"data": {"x": "1"}, "spec": {"zones": ["z"], "args": ["1"]}});
    let items = FieldSet::from_json(&json!({"f:data": {"f:x": {}}, "f:spec": {"f:zones": {"v:\"z\"": {}}}})).unwrap();
    let expected = json!({"data": null, "spec": {"zones": null, "args": ["1"]}});
    assert_eq!(remove_items(&object, &items, SAMPLE.schema()), expected);
}

#[test]
fn what_an_object_mentions() {
    let check = |object: Value, expected: Value| {
        assert_eq!(to_field_set(&object, SAMPLE.schema()).to_json(), expected);
    };
    check(
        json!({"spec": {"template": {}, "zones": [], "args": []}}),
        json!({"f:spec": {"f:args": {}, "f:template": {}}}),
    );
    check(json!({"spec": {"zones": null, "template": null}}), json!({"f:spec": {"f:template": {}, "f:zones": {}}}));
    check(json!({"spec": {"zones": ["a", "a"]}}), json!({"f:spec": {"f:zones": {"v:\"a\"": {}}}}));
    check(json!({"spec": {"selector": {"a": "1"}}}), json!({"f:spec": {"f:selector": {}}}));
    check(json!({"spec": {"free": {"a": {"b": {}}}}}), json!({"f:spec": {"f:free": {"f:a": {".": {}, "f:b": {}}}}}));
}

#[test]
fn kubectl_takes_over_what_client_side_apply_set() {
    let mut config =
        json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}});
    let text = config.to_string();
    config["metadata"]["annotations"] = json!({LAST_APPLIED: text});
    let tracker = SAMPLE.tracker();
    let mut live = config.clone();
    tracker.update(None, &mut live, "kubectl-client-side-apply", "2026-01-02T03:04:05Z").unwrap();
    live["metadata"]["uid"] = json!("u");

    let patch = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a"}, "data": {"x": "<2>"}});
    let apply = |live: &Value, manager: &str| tracker.apply(Some(live), &patch, manager, false, "2026-01-02T03:05:05Z");
    assert!(matches!(apply(&live, "other"), Err(ApplyError::Conflicts(_))));
    let applied = apply(&live, "kubectl").unwrap();
    assert_eq!(applied["data"], json!({"x": "<2>", "y": "1"}));
    let expected = "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"\\u003c2\\u003e\"},\"kind\":\"Sample\",\"metadata\":{\"name\":\"a\"}}\n";
    assert_eq!(applied["metadata"]["annotations"][LAST_APPLIED], expected);
    let mut without = patch.clone();
    without["metadata"]["annotations"] = Value::Null;
    let applied = tracker.apply(Some(&live), &without, "kubectl", false, "2026-01-02T03:05:05Z").unwrap();
    assert_eq!(applied["metadata"]["annotations"][LAST_APPLIED], expected, "annotations that are null are none");

    // What somebody changed since is a conflict like any other.
    let mut edited = live.clone();
    edited["data"]["x"] = json!("3");
    tracker.update(Some(&live), &mut edited, "someone", "2026-01-02T03:04:06Z").unwrap();
    let error = apply(&edited, "kubectl").unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"someone\" using v1: .data.x");
}

#[test]
fn times_alone_are_no_change() {
    let entry = |time: &str| {
        json!([{"manager": "a", "operation": "Update", "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}])
    };
    let object =
        |time: &str, data: &str| json!({"metadata": {"name": "a", "managedFields": entry(time)}, "data": data});
    let live = object("2026-01-02T03:04:05Z", "1");
    let mut new = object("2026-01-02T03:04:06Z", "1");
    assert!(keep_times_if_unchanged(&live, &mut new));
    assert_eq!(new, live);
    let mut other = object("2026-01-02T03:04:06Z", "2");
    let before = other.clone();
    assert!(!keep_times_if_unchanged(&live, &mut other));
    assert_eq!(other, before);
}
