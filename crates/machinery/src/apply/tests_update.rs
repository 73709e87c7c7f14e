//! managedFields of creates, updates and patches.

use serde_json::{Value, json};

use super::testing::{SAMPLE, Sample};
use super::{FieldSet, Filter, PathElement};

const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:05:00Z";

fn entry(manager: &str, operation: &str, time: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
        "fieldsV1": fields})
}

fn object(body: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a", "uid": "u"}});
    for (key, value) in body.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn with(body: Value, managed: Value) -> Value {
    let mut object = object(body);
    object["metadata"]["managedFields"] = managed;
    object
}

fn managed(object: &Value) -> Value {
    object["metadata"].get("managedFields").cloned().unwrap_or(Value::Null)
}

#[track_caller]
fn check_update(live: Option<Value>, new: Value, manager: &str, time: &str, expected: Value) {
    let mut new = new;
    SAMPLE.tracker().update(live.as_ref(), &mut new, manager, time).unwrap();
    assert_eq!(managed(&new), expected);
}

#[test]
fn a_creator_owns_all_it_sent_but_the_identity() {
    let mut new = object(json!({"data": {"a": "1"}, "spec": {"replicas": 1, "args": ["x"], "template": {}}}));
    new["metadata"]["labels"] = json!({"app": "web"});
    let fields = json!({
        "f:data": {".": {}, "f:a": {}},
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {".": {}, "f:args": {}, "f:replicas": {}, "f:template": {}},
    });
    check_update(None, new, "kubectl", NOW, json!([entry("kubectl", "Update", NOW, fields)]));
}

#[test]
fn without_a_name_the_manager_is_unknown() {
    let fields = json!({"f:data": {".": {}, "f:a": {}}});
    let expected = json!([entry("unknown", "Update", NOW, fields)]);
    check_update(None, object(json!({"data": {"a": "1"}})), "", NOW, expected);
}

#[test]
fn a_struct_that_is_always_there_is_not_owned() {
    let sample = Sample::new(json!({"type": "object", "properties": {
        "spec": {"type": "object", "value": true, "properties": {
            "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "always": true,
                "value": true},
            "more": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "size": {"type": "integer", "always": true, "value": true}}}}}));
    let mut tracker = sample.tracker();
    tracker.custom = false;
    let mut new = json!({"apiVersion": "v1", "kind": "Sample", "spec": {"names": ["a"], "more": ["b"], "size": 0}});
    tracker.update(None, &mut new, "m", NOW).unwrap();
    let fields = json!({"f:spec": {"f:more": {".": {}, "v:\"b\"": {}}, "f:names": {"v:\"a\"": {}}}});
    assert_eq!(managed(&new), json!([entry("m", "Update", NOW, fields)]));
}

#[test]
fn what_does_not_fit_its_schema_has_no_managers() {
    for misfit in [json!({"spec": {"name": []}}), json!({"spec": {"args": [{}]}}), json!({"spec": {"flag": 1}})] {
        let fields = json!({"f:data": {".": {}, "f:a": {}}});
        let live = with(json!({"data": {"a": "1"}}), json!([entry("a", "Update", NOW, fields)]));
        for live in [None, Some(&live)] {
            let mut new = object(misfit.clone());
            assert!(SAMPLE.tracker().update(live, &mut new, "m", NOW).is_err(), "{misfit}");
            assert_eq!(managed(&new), Value::Null, "{misfit}");
        }
    }
}

#[test]
fn an_item_without_its_key_has_the_default_or_zero_of_a_required_field() {
    let sample = Sample::new(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "value": true}, "port": {"type": "integer", "default": 80}}}}}}}}));
    let mut tracker = sample.tracker();
    tracker.custom = false;
    let mut new = json!({"apiVersion": "v1", "kind": "Sample", "spec": {"list": [{}]}});
    tracker.update(None, &mut new, "m", NOW).unwrap();
    let fields = json!({"f:spec": {".": {}, "f:list": {".": {}, "k:{\"name\":\"\",\"port\":80}": {}}}});
    assert_eq!(managed(&new), json!([entry("m", "Update", NOW, fields)]));
}

#[test]
fn nothing_changed_keeps_every_time() {
    let recorded = json!([entry("a", "Update", NOW, json!({"f:data": {".": {}, "f:a": {}}}))]);
    let live = with(json!({"data": {"a": "1"}}), recorded.clone());
    check_update(Some(live.clone()), live.clone(), "a", LATER, recorded.clone());
    // Clients that drop the record do not remove it.
    check_update(Some(live.clone()), object(json!({"data": {"a": "1"}})), "b", LATER, recorded);
}

#[test]
fn who_changes_a_field_takes_it_from_everybody() {
    let live = with(
        json!({"data": {"a": "1", "b": "1"}}),
        json!([
            entry("applier", "Apply", NOW, json!({"f:data": {"f:a": {}, "f:b": {}}})),
            entry("other", "Update", NOW, json!({"f:data": {"f:a": {}}})),
        ]),
    );
    check_update(
        Some(live),
        object(json!({"data": {"a": "2", "b": "1"}})),
        "me",
        LATER,
        json!([
            entry("applier", "Apply", NOW, json!({"f:data": {"f:b": {}}})),
            entry("me", "Update", LATER, json!({"f:data": {"f:a": {}}})),
        ]),
    );
}

#[test]
fn who_changes_again_keeps_the_rest_and_gets_the_time() {
    let recorded = json!([entry("me", "Update", NOW, json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}))]);
    let live = with(json!({"data": {"a": "1", "b": "1"}}), recorded);
    let expected = json!([entry("me", "Update", LATER, json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}))]);
    check_update(Some(live.clone()), object(json!({"data": {"a": "2", "b": "1"}})), "me", LATER, expected);
    let expected = json!([entry("me", "Update", LATER, json!({"f:data": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}}}))]);
    check_update(Some(live), object(json!({"data": {"a": "1", "b": "1", "c": "1"}})), "me", LATER, expected);
}

#[test]
fn what_is_removed_nobody_owns_and_the_remover_gets_no_entry() {
    let live = with(
        json!({"data": {"a": "1", "b": "1"}}),
        json!([
            entry("x", "Update", NOW, json!({"f:data": {".": {}, "f:a": {}}})),
            entry("y", "Update", NOW, json!({"f:data": {"f:b": {}}})),
        ]),
    );
    let expected = json!([entry("x", "Update", NOW, json!({"f:data": {".": {}, "f:a": {}}}))]);
    check_update(Some(live), object(json!({"data": {"a": "1"}})), "me", LATER, expected);
}

#[test]
fn resets_and_untracked_objects() {
    let recorded = json!([entry("a", "Update", NOW, json!({"f:data": {".": {}, "f:a": {}}}))]);
    let live = with(json!({"data": {"a": "1"}}), recorded.clone());
    for reset in [json!([]), json!([{}])] {
        check_update(Some(live.clone()), with(json!({"data": {"a": "2"}}), reset), "b", LATER, Value::Null);
    }
    // No record: nothing is tracked until somebody applies.
    check_update(Some(object(json!({}))), object(json!({"data": {"a": "2"}})), "b", LATER, Value::Null);
    // What cannot be read counts as not sent.
    let bad = json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2"}]);
    check_update(Some(live.clone()), with(json!({"data": {"a": "1"}}), bad), "b", LATER, recorded);
    // What can be read replaces the record.
    let edited = json!([entry("z", "Apply", NOW, json!({"f:data": {"f:a": {}}}))]);
    check_update(Some(live), with(json!({"data": {"a": "1"}}), edited.clone()), "b", LATER, edited);
}

#[test]
fn subresources_have_entries_of_their_own_and_ignore_sent_records() {
    let status = Filter::Exclude(FieldSet::of_fields(&[&["spec"]]));
    let mut tracker = SAMPLE.tracker();
    (tracker.subresource, tracker.reset) = ("status", &status);
    let recorded = json!([entry("a", "Update", NOW, json!({"f:spec": {".": {}, "f:name": {}}}))]);
    let live = with(json!({"spec": {"name": "a"}}), recorded.clone());
    let mut new = with(json!({"spec": {"name": "b"}, "status": {"phase": "Up"}}), json!([]));
    tracker.update(Some(&live), &mut new, "a", LATER).unwrap();
    let mut own = entry("a", "Update", LATER, json!({"f:status": {".": {}, "f:phase": {}}}));
    own["subresource"] = json!("status");
    assert_eq!(managed(&new), json!([recorded[0], own]));
}

#[test]
fn the_main_resource_owns_no_status() {
    let main = Filter::Exclude(FieldSet::of_fields(&[&["status"]]));
    let mut tracker = SAMPLE.tracker();
    tracker.reset = &main;
    let mut new = object(json!({"spec": {"name": "b"}, "status": {"phase": "Up"}}));
    tracker.update(None, &mut new, "a", NOW).unwrap();
    assert_eq!(managed(&new), json!([entry("a", "Update", NOW, json!({"f:spec": {".": {}, "f:name": {}}}))]));
}

#[test]
fn list_items_are_known_by_key_with_its_default() {
    let live = with(
        json!({"spec": {"ports": [{"port": 80, "name": "a"}]}}),
        json!([entry(
            "x",
            "Update",
            NOW,
            json!({"f:spec": {"f:ports": {
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}})
        )]),
    );
    check_update(
        Some(live),
        object(json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 80, "protocol": "UDP"}]}})),
        "y",
        LATER,
        json!([
            entry(
                "x",
                "Update",
                NOW,
                json!({"f:spec": {"f:ports": {
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}})
            ),
            entry(
                "y",
                "Update",
                LATER,
                json!({"f:spec": {"f:ports": {
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:name": {}},
                "k:{\"port\":80,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}}}}})
            ),
        ]),
    );
}

#[test]
fn old_updates_are_gathered_when_there_are_more_than_ten() {
    let mut live = object(json!({"data": {}}));
    live["metadata"]["managedFields"] = json!([entry("applier", "Apply", NOW, json!({"f:spec": {"f:name": {}}}))]);
    for at in 0..12 {
        let mut new = live.clone();
        new["data"][format!("k{at:02}")] = json!("v");
        SAMPLE
            .tracker()
            .update(Some(&live), &mut new, &format!("m{at:02}"), &format!("2026-01-02T03:04:{at:02}Z"))
            .unwrap();
        live = new;
    }
    let entries = managed(&live);
    let names: Vec<_> = entries.as_array().unwrap().iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    let expected = ["applier", "ancient-changes", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11"];
    assert_eq!(names, expected);
    assert_eq!(entries[1]["fieldsV1"], json!({"f:data": {"f:k00": {}, "f:k01": {}, "f:k02": {}}}));
    assert_eq!(entries[1]["time"], "2026-01-02T03:04:02Z");
}

#[test]
fn elements_are_written_as_kubernetes_writes_them() {
    let cases = [
        (PathElement::field("a.b/c"), "f:a.b/c", ".a.b/c"),
        (PathElement::key([("b", json!("x")), ("a", json!(1))]), r#"k:{"a":1,"b":"x"}"#, r#"[a=1,b="x"]"#),
        (PathElement::key([("a", json!("<&>"))]), r#"k:{"a":"\u003c\u0026\u003e"}"#, r#"[a="<&>"]"#),
        (PathElement::Value(json!("é")), "v:\"é\"", "[=\"é\"]"),
        (PathElement::Value(json!(1.0)), "v:1", "[=1.0]"),
        (PathElement::Index(3), "i:3", "[3]"),
    ];
    for (element, text, shown) in cases {
        let mut written = String::new();
        element.write(&mut written);
        assert_eq!(written, text);
        assert_eq!(element.to_string(), shown);
        assert_eq!(PathElement::parse(text).unwrap(), Some(element));
    }
    for bad in ["", "f", "name", "i:x", "k:[]", "k:{\"a\"", "v:", "v:1 2", "é:"] {
        assert!(PathElement::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(PathElement::parse("x:future"), Ok(None));
}

#[test]
fn numbers_are_ordered_by_value_however_they_are_written() {
    let ascending = [json!(-1e30), json!(-1.5), json!(-1), json!(0), json!(0.5), json!(1), json!(9007199254740992_u64)];
    let more = [json!(9007199254740993_u64), json!(u64::MAX), json!(1e20), json!("a"), json!(true), json!(null)];
    let all: Vec<PathElement> = ascending.into_iter().chain(more).map(PathElement::Value).collect();
    for (i, l) in all.iter().enumerate() {
        for (j, r) in all.iter().enumerate() {
            assert_eq!(l.cmp(r), i.cmp(&j), "{l} {r}");
        }
    }
    assert_eq!(PathElement::Value(json!(1)), PathElement::Value(json!(1.0)));
    assert_eq!(PathElement::Value(json!(9007199254740992.0)), PathElement::Value(json!(9007199254740992_i64)));
}
