//! Several versions of one kind, and schemas that changed since managers were recorded.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::testing::Sample;
use super::{ConvertError, Converter, FieldSet, Tracker};
use crate::schema::Schema;

const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:05:05Z";

static V1: LazyLock<Sample> = LazyLock::new(|| {
    Sample::new(json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "host": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}))
});
static V2: LazyLock<Sample> = LazyLock::new(|| {
    Sample::new(json!({"type": "object", "properties": {
        "capacity": {"type": "integer"}, "host": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}))
});

/// `size` in v1 is `capacity` in v2.
struct Renamed;

impl Converter for Renamed {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError> {
        let mut object = object.clone();
        let fields = object.as_object_mut().unwrap();
        let (from, to) = match api_version {
            "v1" => ("capacity", "size"),
            "v2" => ("size", "capacity"),
            _ => return Err(ConvertError::NoSuchVersion),
        };
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
        fields.insert("apiVersion".to_owned(), json!(api_version));
        Ok(object)
    }

    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        match api_version {
            "v1" => Some(V1.schema()),
            "v2" => Some(V2.schema()),
            _ => None,
        }
    }
}

fn tracker(version: &'static str) -> Tracker<'static> {
    let sample: &'static Sample = if version == "v1" { &V1 } else { &V2 };
    Tracker { converter: &Renamed, api_version: version, ..sample.tracker() }
}

fn patch(version: &str, body: Value) -> Value {
    let mut patch = json!({"apiVersion": version, "kind": "Sample", "metadata": {"name": "a"}});
    patch.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    patch
}

fn fields(object: &Value) -> Vec<(String, String, Value)> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|e| (text(e, "manager"), text(e, "apiVersion"), e["fieldsV1"].clone())).collect()
}

fn owned(manager: &str, version: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), version.to_owned(), fields)
}

#[test]
fn managers_of_other_versions_are_compared_in_theirs() {
    let live = tracker("v1").apply(None, &patch("v1", json!({"size": 1, "host": "h"})), "a", false, NOW).unwrap();
    let live = Renamed.convert(&live, "v2").unwrap();
    let wish = patch("v2", json!({"capacity": 2}));
    let error = tracker("v2").apply(Some(&live), &wish, "b", false, LATER).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .size");
    let forced = tracker("v2").apply(Some(&live), &wish, "b", true, LATER).unwrap();
    let expected = [owned("a", "v1", json!({"f:host": {}})), owned("b", "v2", json!({"f:capacity": {}}))];
    assert_eq!(fields(&forced), expected);

    let mut updated = live.clone();
    updated["capacity"] = json!(3);
    tracker("v2").update(Some(&live), &mut updated, "u", LATER).unwrap();
    let expected = [owned("a", "v1", json!({"f:host": {}})), owned("u", "v2", json!({"f:capacity": {}}))];
    assert_eq!(fields(&updated), expected);
}

#[test]
fn what_was_applied_in_another_version_is_removed_too() {
    let live = tracker("v1").apply(None, &patch("v1", json!({"size": 1, "host": "h"})), "a", false, NOW).unwrap();
    let live = tracker("v1").apply(Some(&live), &patch("v1", json!({"host": "h"})), "b", false, NOW).unwrap();
    let live = Renamed.convert(&live, "v2").unwrap();
    let applied =
        tracker("v2").apply(Some(&live), &patch("v2", json!({"labels": {"x": "y"}})), "a", false, LATER).unwrap();
    assert_eq!(applied.get("capacity"), None);
    assert_eq!(applied["host"], "h");
    let expected = [owned("b", "v1", json!({"f:host": {}})), owned("a", "v2", json!({"f:labels": {"f:x": {}}}))];
    assert_eq!(fields(&applied), expected);
}

/// Cannot bring everything to v2.
struct Strict;

impl Converter for Strict {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError> {
        match object["host"].as_str() {
            Some("no") if api_version == "v2" => Err(ConvertError::Failed("no host".to_owned())),
            _ => Renamed.convert(object, api_version),
        }
    }

    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        Renamed.schema(api_version)
    }
}

/// Who applies for the first time hears of it where managers are compared, who did before where things are added back,
/// even if all that was applied before still is.
#[test]
fn objects_that_cannot_be_converted() {
    let in_v1 = Tracker { converter: &Strict, ..tracker("v1") };
    let live = in_v1.apply(None, &patch("v1", json!({"size": 1})), "a", false, NOW).unwrap();
    let live = Renamed.convert(&live, "v2").unwrap();
    let live = tracker("v2").apply(Some(&live), &patch("v2", json!({"labels": {"x": "y"}})), "b", false, NOW).unwrap();
    let live = Renamed.convert(&live, "v1").unwrap();
    let owned = "failed to prune fields: failed add back owned items: failed to convert merged object at version v2: ";
    for (manager, config, expected) in [
        ("new", json!({"host": "no"}), "failed to convert new object: "),
        ("a", json!({"host": "no"}), owned),
        ("a", json!({"size": 1, "host": "no"}), owned),
    ] {
        let error = in_v1.apply(Some(&live), &patch("v1", config.clone()), manager, false, LATER).unwrap_err();
        assert_eq!(error.to_string(), format!("{expected}no host"), "{manager} applies {config}");
    }
}

#[test]
fn managers_of_versions_that_are_gone_are_forgotten() {
    let mut live = patch("v1", json!({"size": 1, "host": "h"}));
    let entry = |manager: &str, version: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": version, "time": NOW, "fieldsType": "FieldsV1",
            "fieldsV1": fields})
    };
    live["metadata"]["managedFields"] =
        json!([entry("old", "v0", json!({"f:host": {}})), entry("u", "v1", json!({"f:size": {}}))]);
    live["metadata"]["uid"] = json!("u");
    let mut same = live.clone();
    tracker("v1").update(Some(&live), &mut same, "x", LATER).unwrap();
    assert_eq!(fields(&same), [owned("u", "v1", json!({"f:size": {}}))]);
    let applied = tracker("v1").apply(Some(&live), &patch("v1", json!({"host": "i"})), "a", false, LATER).unwrap();
    assert_eq!(applied["host"], "i");
}

fn list(kind: Value) -> Sample {
    let mut list = json!({"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "value": {"type": "string"}}}});
    list.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
    Sample::new(json!({"type": "object", "properties": {
        "items": list, "map": {"type": "object", "x-kubernetes-map-type": kind["map"],
            "additionalProperties": {"type": "string"}}}}))
}

#[test]
fn lists_and_maps_that_became_one_value() {
    let granular = list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}));
    let atomic = list(json!({"x-kubernetes-list-type": "atomic", "map": "atomic"}));
    let body = json!({"items": [{"name": "a", "value": "1"}], "map": {"x": "1"}});
    let live = granular.tracker().apply(None, &patch("v1", body.clone()), "a", false, NOW).unwrap();
    let parts =
        json!({"f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:value": {}}}, "f:map": {"f:x": {}}});
    assert_eq!(fields(&live), [owned("a", "v1", parts)]);

    // Who owned parts owns the whole.
    let whole = json!({"f:items": {}, "f:map": {}});
    let mut same = live.clone();
    same["metadata"]["uid"] = json!("u");
    let with_uid = same.clone();
    atomic.tracker().update(Some(&with_uid), &mut same, "u", LATER).unwrap();
    assert_eq!(fields(&same), [owned("a", "v1", whole.clone())]);
    let other = patch("v1", json!({"items": [{"name": "b"}]}));
    let error = atomic.tracker().apply(Some(&live), &other, "b", false, LATER).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .items");

    // Who owned the whole owns it still, and nothing in it.
    let live = atomic.tracker().apply(None, &patch("v1", body), "a", false, NOW).unwrap();
    let applied = granular.tracker().apply(Some(&live), &other, "b", false, LATER).unwrap();
    assert_eq!(applied["items"], json!([{"name": "a", "value": "1"}, {"name": "b"}]));
    let expected = [
        owned("a", "v1", whole),
        owned("b", "v1", json!({"f:items": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}})),
    ];
    assert_eq!(fields(&applied), expected);
}

#[test]
fn sets_behave() {
    let set = |value: Value| FieldSet::from_json(&value).unwrap();
    let a = set(json!({"f:x": {".": {}, "f:y": {}}, "f:z": {}}));
    let b = set(json!({"f:x": {}, "f:w": {"f:v": {}}}));
    assert_eq!(a.union(&b).to_json(), json!({"f:w": {"f:v": {}}, "f:x": {".": {}, "f:y": {}}, "f:z": {}}));
    assert_eq!(a.intersection(&b).to_json(), json!({"f:x": {}}));
    assert_eq!(a.difference(&b).to_json(), json!({"f:x": {"f:y": {}}, "f:z": {}}));
    assert_eq!(a.recursive_difference(&b).to_json(), json!({"f:z": {}}));
    assert_eq!(a.leaves().to_json(), json!({"f:x": {"f:y": {}}, "f:z": {}}));
    assert_eq!(a.len(), 3);
    // A future kind of element is ignored; what remains decides.
    assert_eq!(set(json!({"f:a": {"q:new": {}}})).to_json(), json!({"f:a": {}}));
    for bad in [json!("x"), json!({"f:a": 1}), json!({"nope": {}}), json!({"k:1": {}})] {
        assert!(FieldSet::from_json(&bad).is_err(), "{bad}");
    }
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"f:a": deep});
    }
    assert!(FieldSet::from_json(&deep).is_err());
}
