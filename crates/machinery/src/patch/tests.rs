use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn check(object: Value, patch: Value, expected: Value) {
    assert_eq!(apply_json_patch(&object, &patch).unwrap(), expected, "{patch}");
}

fn refused(object: Value, patch: Value, code: u16) {
    let error = apply_json_patch(&object, &patch).expect_err(&patch.to_string());
    assert_eq!(error.code(), code, "{patch}: {error}");
    assert_eq!(error.to_status().code, code);
}

#[test]
fn json_patches() {
    let doc = json!({"a": [1, 2], "b": {"c": "d"}, "x~/y": 0, "n": null});
    for (patch, at, expected) in [
        (json!([{"op": "add", "path": "/b/e", "value": 1}]), "/b", json!({"c": "d", "e": 1})),
        (json!([{"op": "add", "path": "/a/0", "value": 0}]), "/a", json!([0, 1, 2])),
        (json!([{"op": "add", "path": "/a/2", "value": 3}]), "/a", json!([1, 2, 3])),
        (json!([{"op": "add", "path": "/a/-", "value": 3}]), "/a", json!([1, 2, 3])),
        (json!([{"op": "add", "path": "/a/-1", "value": 3}]), "/a", json!([1, 2, 3])),
        (json!([{"op": "add", "path": "/b/e"}]), "/b", json!({"c": "d", "e": null})),
        (json!([{"op": "remove", "path": "/a/-1"}]), "/a", json!([1])),
        (json!([{"op": "remove", "path": "/b/c"}]), "/b", json!({})),
        (json!([{"op": "replace", "path": "/b/new", "value": 1}]), "/b", json!({"c": "d", "new": 1})),
        (json!([{"op": "replace", "path": "/a/1", "value": 9}]), "/a", json!([1, 9])),
        (json!([{"op": "replace", "path": "", "value": {"b": 1}}]), "/b", json!(1)),
        (json!([{"op": "move", "from": "/b/c", "path": "/a/0"}]), "/a", json!(["d", 1, 2])),
        (json!([{"op": "copy", "from": "/b", "path": "/b/b"}]), "/b", json!({"c": "d", "b": {"c": "d"}})),
        (json!([{"op": "copy", "from": "/nothing", "path": "/b"}]), "/b", json!(null)),
        (json!([{"op": "replace", "path": "/x~0~1y", "value": 1}]), "/x~0~1y", json!(1)),
        (json!([{"op": "test", "path": "/missing", "value": null}]), "/a", json!([1, 2])),
        (json!([{"op": "test", "path": "/n"}]), "/a", json!([1, 2])),
        (json!([{"op": "test", "path": "/b", "value": {"c": "d"}}]), "/a", json!([1, 2])),
        (json!([]), "/a", json!([1, 2])),
        (json!(null), "/a", json!([1, 2])),
    ] {
        assert_eq!(apply_json_patch(&doc, &patch).unwrap().pointer(at), Some(&expected), "{patch}");
    }
    check(json!({"a": 1}), json!([{"op": "add", "path": "ignored/b", "value": 2}]), json!({"a": 1, "b": 2}));
    check(json!({}), json!([{"op": "add", "path": "/~01", "value": 2}]), json!({"~1": 2}));
}

#[test]
fn json_patches_that_do_not_apply() {
    let doc = json!({"a": [1], "b": {"c": 1}, "s": "text", "n": null});
    for patch in [
        json!([{"op": "remove", "path": "/missing"}]),
        json!([{"op": "remove", "path": "/a/1"}]),
        json!([{"op": "remove", "path": "/a/-"}]),
        json!([{"op": "add", "path": "/missing/x", "value": 1}]),
        json!([{"op": "add", "path": "/a/2", "value": 1}]),
        json!([{"op": "add", "path": "/a/x", "value": 1}]),
        json!([{"op": "add", "path": "/a/-3", "value": 1}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "add", "path": "b", "value": {}}]),
        json!([{"op": "add", "path": "/s/x", "value": {}}]),
        json!([{"op": "add", "path": "/n/x", "value": {}}]),
        json!([{"op": "add", "path": 1, "value": {}}]),
        json!([{"op": "add", "value": {}}]),
        json!([{"op": "replace", "path": "/a/1", "value": 1}]),
        json!([{"op": "replace", "path": "", "value": 1}]),
        json!([{"op": "move", "from": "/missing", "path": "/x"}]),
        json!([{"op": "move", "from": "/b", "path": "/b/c"}]),
        json!([{"op": "copy", "from": "/a/7", "path": "/x"}]),
        json!([{"op": "test", "path": "/s", "value": "other"}]),
        json!([{"op": "test", "path": "/missing", "value": 1}]),
        json!([{"op": "test", "path": "/s"}]),
        json!([{"op": "turn", "path": "/s"}]),
        json!([{"path": "/s"}]),
    ] {
        refused(doc.clone(), patch, 422);
    }
    refused(doc.clone(), json!({"op": "add"}), 400);
    refused(doc.clone(), json!([1]), 400);
    refused(doc, Value::Array(vec![json!({"op": "test", "path": "/x"}); MAX_OPERATIONS + 1]), 413);
}

#[test]
fn json_patches_are_bounded() {
    let big = json!({"a": "x".repeat(1024 * 1024)});
    let copies: Vec<Value> = (0..4).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/{n}")})).collect();
    refused(big, Value::Array(copies), 422);
    // Each step nests the object in itself.
    let nest = vec![json!({"op": "copy", "from": "/a", "path": "/a/a"}); 300];
    refused(json!({"a": {}}), Value::Array(nest), 422);
    let deeper: Vec<Value> =
        (1..400).map(|depth| json!({"op": "add", "path": "/a".repeat(depth), "value": {}})).collect();
    refused(json!({}), Value::Array(deeper), 422);
}

#[test]
fn strict_json_patches() {
    let text = br#"[{"op": "test", "foo": {"a": 1, "a": 2}, "foo": 1, "path": "/x"},
        {"op": "add", "path": "/x", "path": "/y", "valeu": 1, "value": {"b": 1, "b": 2}}]"#;
    let parsed = crate::json::parse(text).unwrap();
    let expected = [
        "json patch unknown field \"[0].foo\"",
        "json patch duplicate field \"[1].path\"",
        "json patch unknown field \"[1].valeu\"",
        "json patch duplicate field \"[1].value.b\"",
    ];
    assert_eq!(json_patch_strict_errors(text, &parsed.value, &parsed.duplicates), expected);
}

#[test]
fn merge_patches() {
    for (object, patch, expected) in [
        (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
        (json!({"a": 1}), json!({"a": null}), json!({})),
        (json!({"a": 1}), json!({"x": null}), json!({"a": 1})),
        (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}})),
        (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
        (json!({"a": 1}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
        (json!({"a": null}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
        (json!({"a": {}}), json!({"a": [null]}), json!({"a": [null]})),
        (json!({"a": {"x": 1}}), json!({"a": "s"}), json!({"a": "s"})),
    ] {
        assert_eq!(apply_merge_patch(&object, &patch).unwrap(), expected, "{patch}");
    }
    for patch in [json!([]), json!(1), json!(null), json!("a")] {
        assert_eq!(apply_merge_patch(&json!({}), &patch).unwrap_err().code(), 400);
    }
}

fn any_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0i64..5).prop_map(Value::from)];
    let inner = leaf.prop_recursive(3, 20, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    /// Merging an object without nulls into itself, and merging twice, changes nothing more; what the patch says holds.
    #[test]
    fn merge_patches_are_idempotent(object in any_object(), patch in any_object()) {
        let once = apply_merge_patch(&object, &patch).unwrap();
        prop_assert_eq!(&apply_merge_patch(&once, &patch).unwrap(), &once);
        prop_assert_eq!(&apply_merge_patch(&object, &object).unwrap(), &object);
        prop_assert_eq!(apply_merge_patch(&json!({}), &patch).unwrap(), patch);
    }

    /// What was added can be taken away again.
    #[test]
    fn add_and_remove_are_inverse(object in any_object(), value in any_object()) {
        let patch = json!([{"op": "add", "path": "/new", "value": value}, {"op": "remove", "path": "/new"}]);
        prop_assert_eq!(apply_json_patch(&object, &patch).unwrap(), object);
    }

    #[test]
    fn no_patch_panics(object in any_object(), path in "(/[a-c0-2~-]{0,2}){0,3}", from in "(/[a-c0-2]{0,2}){0,3}", value in any_object()) {
        for op in ["add", "remove", "replace", "move", "copy", "test"] {
            let _ = apply_json_patch(&object, &json!([{"op": op, "path": path, "from": from, "value": value}]));
        }
    }
}
