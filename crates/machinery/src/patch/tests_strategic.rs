use serde_json::{Value, json};

use super::*;
use crate::schema::{Field, Id, ListKind, Merge, Node, Shape, Text, Types};

/// A type with fields `(name, type, merge key)`: no key replaces, an empty key merges scalars.
fn object(types: &mut Types, fields: &[(&str, Id, Option<&str>)]) -> Id {
    let mut fields: Vec<Field> = fields
        .iter()
        .map(|(name, schema, key)| Field {
            name: (*name).into(),
            schema: *schema,
            order: 0,
            required: false,
            omit_empty: true,
            omit_zero: false,
            pointer: false,
            default: None,
            merge: Merge {
                merge: key.is_some(),
                replace: *name == "selector",
                retain_keys: false,
                key: key.filter(|key| !key.is_empty()).map(Into::into),
            },
            proto: 0,
            inline: [].into(),
            embedded: None,
        })
        .collect();
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    types.add(Node::new(Shape::Object(fields)))
}

/// A cut-down Pod.
fn pod() -> (Types, Id) {
    let mut types = Types::new();
    let text = types.add(Node::new(Shape::String(Text::Plain)));
    let list = |types: &mut Types, items| types.add(Node::new(Shape::List { items, list: ListKind::Atomic }));
    let map = types.add(Node::new(Shape::Map(text)));
    let texts = list(&mut types, text);
    let env = object(&mut types, &[("name", text, None), ("value", text, None)]);
    let envs = list(&mut types, env);
    let container = object(
        &mut types,
        &[("name", text, None), ("image", text, None), ("env", envs, Some("name")), ("args", texts, None)],
    );
    let containers = list(&mut types, container);
    let meta = object(&mut types, &[("labels", map, None), ("finalizers", texts, Some(""))]);
    let spec = object(
        &mut types,
        &[("containers", containers, Some("name")), ("tolerations", containers, None), ("selector", map, None)],
    );
    let pod = object(&mut types, &[("metadata", meta, None), ("spec", spec, None)]);
    (types, pod)
}

fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (types, pod) = pod();
    apply_strategic_merge_patch(object, patch, types.schema(pod))
}

fn check(object: Value, patch: Value, expected: Value) {
    assert_eq!(apply(&object, &patch).unwrap_or_else(|error| panic!("{patch}: {error}")), expected, "{patch}");
}

/// Containers by name, all with an image.
fn containers(names: &str) -> Value {
    names.chars().map(|name| json!({"name": name.to_string(), "image": "i"})).collect()
}

fn order(names: &str) -> Value {
    names.chars().map(|name| json!({"name": name.to_string()})).collect()
}

fn spec(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn what_is_replaced_keeps_nothing() {
    let selector = |map: Value| json!({"spec": {"selector": map}});
    for (before, patch, after) in [
        (json!({"a": "1"}), json!({"b": "2"}), json!({"b": "2"})),
        (json!({"a": "1"}), json!({}), json!({})),
        (json!(null), json!({"b": "2"}), json!({"b": "2"})),
    ] {
        check(selector(before), selector(patch), selector(after));
    }
    check(selector(json!({"a": "1"})), selector(json!(null)), json!({"spec": {}}));
    check(selector(json!({"a": "1"})), json!({"spec": {}}), selector(json!({"a": "1"})));
}

#[test]
fn maps_and_scalars_are_merged() {
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"a": null, "c": "3", "d": null}}}),
        json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
    );
    check(json!({}), json!({"metadata": {"labels": {"a": null}}}), json!({"metadata": {"labels": {}}}));
    check(
        json!({"spec": {"tolerations": [1, 2]}}),
        json!({"spec": {"tolerations": [3]}}),
        json!({"spec": {"tolerations": [3]}}),
    );
}

#[test]
fn items_are_merged_by_key_and_new_ones_come_first() {
    check(
        spec(json!([{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}])),
        spec(json!([{"name": "a", "image": "2", "args": []}])),
        spec(json!([{"name": "a", "image": "2", "args": []}, {"name": "b"}])),
    );
    check(spec(containers("ab")), spec(containers("z")), spec(containers("zab")));
    check(spec(containers("abc")), spec(containers("zb")), spec(containers("zabc")));
    check(
        spec(json!([{"name": "a", "env": [{"name": "X", "value": "1"}]}])),
        spec(json!([{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]}])),
        spec(json!([{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]}])),
    );
}

#[test]
fn the_order_can_be_set() {
    let ordered =
        |names: &str, items: Value| json!({"spec": {"$setElementOrder/containers": order(names), "containers": items}});
    check(spec(containers("ab")), ordered("abz", containers("z")), spec(containers("abz")));
    check(
        spec(containers("abc")),
        json!({"spec": {"$setElementOrder/containers": order("cba")}}),
        spec(containers("cba")),
    );
    check(spec(containers("axb")), ordered("ba", json!([])), spec(containers("xba")));
    check(
        spec(containers("ab")),
        ordered("bz", json!([{"name": "z", "image": "i"}, {"name": "a", "$patch": "delete"}])),
        spec(containers("bz")),
    );
    assert_eq!(apply(&spec(containers("ab")), &ordered("a", containers("z"))).unwrap_err().code(), 400);
    assert_eq!(apply(&spec(containers("ab")), &ordered("yz", containers("zy"))).unwrap_err().code(), 400);
}

#[test]
fn directives() {
    let delete = json!([{"name": "a", "$patch": "delete"}]);
    check(spec(containers("ab")), spec(delete.clone()), spec(containers("b")));
    check(json!({"spec": {}}), spec(delete), json!({"spec": {"containers": []}}));
    check(
        spec(containers("ab")),
        spec(json!([{"$patch": "replace"}, {"name": "c", "image": "i"}])),
        spec(containers("c")),
    );
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    check(labels(json!({"a": "1"})), labels(json!({"$patch": "replace", "b": "2"})), labels(json!({"b": "2"})));
    check(labels(json!({"a": "1"})), labels(json!({"$patch": "delete"})), labels(json!({})));
    check(json!({"metadata": {}}), labels(json!({"$patch": "delete"})), json!({"metadata": {}}));
    check(
        labels(json!({"a": "1", "b": "2"})),
        labels(json!({"$retainKeys": ["b", "c"], "c": "3"})),
        labels(json!({"b": "2", "c": "3"})),
    );
    for bad in [
        json!({"$patch": "merge"}),
        json!({"$patch": 1}),
        json!({"$retainKeys": ["x"], "c": "3"}),
        json!({"$retainKeys": "x"}),
    ] {
        assert_eq!(apply(&labels(json!({"a": "1"})), &labels(bad.clone())).unwrap_err().code(), 400, "{bad}");
    }
}

#[test]
fn lists_of_scalars() {
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    check(finalizers(json!(["a", "b"])), finalizers(json!(["c", "b"])), finalizers(json!(["c", "a", "b"])));
    check(
        finalizers(json!(["a", "b", "c"])),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}}),
        finalizers(json!(["a", "c"])),
    );
    check(
        finalizers(json!(["a", "b"])),
        json!({"metadata": {"finalizers": ["c"], "$setElementOrder/finalizers": ["b", "a", "c"]}}),
        finalizers(json!(["b", "a", "c"])),
    );
}

#[test]
fn bad_patches_are_refused() {
    let object = json!({"metadata": {"finalizers": ["a"]}, "spec": {"containers": containers("a")}});
    check(object.clone(), json!(null), object.clone());
    for (patch, code) in [
        (json!([]), 400),
        (spec(json!([{"image": "no name"}])), 400),
        (spec(json!(["a"])), 400),
        (spec(json!([{"name": "a", "$patch": "bogus"}])), 400),
        (spec(json!([{"$patch": "delete"}])), 400),
        (spec(json!([null])), 400),
        (json!({"metadata": {"finalizers": [["a"]]}}), 400),
        (json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}), 400),
        (json!({"metadata": {"$setElementOrder/finalizers": "a"}}), 400),
        (json!({"metadata": {"$setElementOrder": []}}), 400),
    ] {
        assert_eq!(apply(&object, &patch).map_err(|error| error.code()), Err(code), "{patch}");
    }
    let empty = json!({"metadata": {"finalizers": []}});
    assert_eq!(apply(&empty, &json!({"metadata": {"finalizers": [["a"]]}})).unwrap_err().code(), 422);
}
