use serde_json::json;

use super::*;

fn check(errors: Errors, expected: &[&str]) {
    let found: Vec<String> = errors.iter().map(Error::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} should start with {expected}");
    }
}

fn create(meta: Value, expected: &[&str]) {
    check(validate_object_meta(&meta, true, names::name_is_subdomain, &Path::root("metadata")), expected);
}

#[test]
fn new_objects() {
    create(json!({"name": "a", "namespace": "b"}), &[]);
    create(json!({"name": "a-x", "generateName": "a-", "namespace": "b"}), &[]);
    create(
        json!({}),
        &["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required"],
    );
    create(
        json!({"name": "A", "namespace": "b.c", "generation": -1}),
        &[
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
            "metadata.namespace: Invalid value: \"b.c\": must not contain dots",
            "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    let cluster = json!({"name": "a", "namespace": "b"});
    check(
        validate_object_meta(&cluster, false, names::name_is_subdomain, &Path::root("metadata")),
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
    create(json!({"name": "a", "namespace": "b", "labels": {"-": "-"}}), &["metadata.labels: Invalid value: \"-\""; 2]);
    create(json!({"name": "a", "namespace": "b", "annotations": {"A/B": "any thing"}}), &[]);
    create(
        json!({"name": "a", "namespace": "b", "annotations": {"a": "x".repeat(names::ANNOTATIONS_MAX)}}),
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
    create(
        json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion", "a b"]}),
        &[
            "metadata.finalizers: Invalid value: \"a b\"",
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\",\"a b\"]: finalizer orphan and",
        ],
    );
}

#[test]
fn owners() {
    let owner = |kind: &str, controller: bool| json!({"apiVersion": "v1", "kind": kind, "name": "n", "uid": "u", "controller": controller});
    let path = Path::root("o");
    check(validate_owner_references(&[owner("A", true), owner("B", false)], &path), &[]);
    check(validate_owner_references(&[owner("Event", false)], &path), &["o: Invalid value: {"]);
    check(validate_owner_references(&[owner("A", true), owner("B", true)], &path), &["o: Invalid value: ["]);
    check(
        validate_owner_references(&[json!({})], &path),
        &[
            "o.apiVersion: Invalid value: \"\": version must not be empty",
            "o.kind: Invalid value: \"\": must not be empty",
            "o.name: Invalid",
            "o.uid: Invalid",
        ],
    );
    check(
        validate_owner_references(&[json!({"apiVersion": "a/", "kind": "A", "name": "n", "uid": "u"})], &path),
        &["o.apiVersion: Invalid value: \"a/\""],
    );
}

#[test]
fn changed_objects() {
    let path = Path::root("metadata");
    let old = json!({"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "generation": 2});
    let changed = |field: &str, value: Value| {
        let mut new = old.clone();
        new[field] = value;
        validate_object_meta_update(&new, &old, &path)
    };
    check(changed("generation", json!(3)), &[]);
    check(changed("deletionTimestamp", Value::Null), &[]);
    check(changed("generation", json!(1)), &["metadata.generation: Invalid value: 1: must not be decremented"]);
    check(changed("resourceVersion", json!("")), &["metadata.resourceVersion: Invalid value: \"\": must be specified"]);
    check(changed("name", json!("x")), &["metadata.name: Invalid value: \"x\": field is immutable"]);
    check(changed("uid", Value::Null), &["metadata.uid: Invalid value: \"\": field is immutable"]);
    check(
        changed("creationTimestamp", json!("2026-01-01T00:00:00Z")),
        &["metadata.creationTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable"],
    );
    let mut deleting = old.clone();
    deleting["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleting["finalizers"] = json!(["x"]);
    let mut new = deleting.clone();
    new["finalizers"] = json!(["z", "x", "y"]);
    check(
        validate_object_meta_update(&new, &deleting, &path),
        &["metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
           finalizers []string{\"y\", \"z\"}"],
    );
}

#[test]
fn managers() {
    let path = Path::root("m");
    check(validate_managed_fields(&[json!({"operation": "Apply", "manager": "x"})], &path), &[]);
    check(
        validate_managed_fields(&[json!({"fieldsType": "V2", "subresource": "s".repeat(257)})], &path),
        &[
            "m[0].operation: Invalid value: \"\": must be `Apply` or `Update`",
            "m[0].fieldsType: Invalid value: \"V2\"",
            "m[0].subresource: Too long",
        ],
    );
    check(
        validate_field_manager("a\nb", &path),
        &["m: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"],
    );
    check(validate_field_manager(&"a".repeat(129), &path), &["m: Too long"]);
}
