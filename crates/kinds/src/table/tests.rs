use conductor_machinery::schema::{ListKind, Shape, decode, encode_object};
use serde_json::{Value, json};

use crate::{find, find_kind, resources, schema_of, type_name, type_named, types};

fn decoded(group: &str, version: &str, kind: &str, value: Value) -> (Value, Vec<String>) {
    let decoded = decode(value, schema_of(group, version, kind).unwrap()).unwrap();
    (decoded.value, decoded.unknown)
}

#[test]
fn every_resource_has_its_type() {
    for resource in resources() {
        assert!(matches!(resource.schema().shape(), Shape::Object(_)), "{}", resource.plural);
        assert!(type_name(resource.schema).is_some_and(|name| name.ends_with(resource.kind)), "{}", resource.kind);
        if resource.can("list") {
            let list = schema_of(resource.group, resource.version, &resource.list_kind());
            assert!(list.is_some_and(|list| list.field("items").is_some()), "{}", resource.plural);
        }
        let (group, version) = resource.storage;
        assert!(find(group, version, resource.plural).is_some(), "{}", resource.plural);
    }
    assert!(resources().len() > 60);
}

#[test]
fn names_lead_to_types_and_back() {
    let pod = schema_of("", "v1", "Pod").unwrap();
    assert_eq!(type_name(pod.id()), Some("io.k8s.api.core.v1.Pod"));
    assert_eq!(type_named("io.k8s.api.core.v1.Pod").map(|found| found.id()), Some(pod.id()));
    assert!(schema_of("apps", "v1", "DeleteOptions").is_some());
    assert!(schema_of("nonsense", "v1", "Pod").is_none());
    assert_eq!(find_kind("apps", "v1", "Deployment").map(|found| found.plural), Some("deployments"));
    let ports = type_named("io.k8s.api.core.v1.ServiceSpec").unwrap().child("ports").unwrap();
    let Shape::List { list, .. } = ports.shape() else { panic!("ports are a list") };
    assert_eq!(*list, ListKind::Map(vec!["port".into(), "protocol".into()]));
}

#[test]
fn what_go_always_writes_is_there() {
    let (value, _) = decoded("", "v1", "Pod", json!({"metadata": {"name": "a", "creationTimestamp": null}}));
    assert_eq!(value, json!({"metadata": {"name": "a"}, "spec": {"containers": null}, "status": {}}));
    let (value, _) = decoded("rbac.authorization.k8s.io", "v1", "ClusterRole", json!({"metadata": {}, "rules": []}));
    assert_eq!(value, json!({"metadata": {}, "rules": null}));
    let (value, _) = decoded("", "v1", "ConfigMap", json!({"metadata": {"labels": {}}, "data": {"a": null}}));
    assert_eq!(value, json!({"metadata": {}, "data": {"a": ""}}));
}

#[test]
fn objects_begin_with_their_kind() {
    let schema = schema_of("", "v1", "ConfigMap").unwrap();
    let value = json!({"apiVersion": "v1", "data": {"b": "<", "a": "2"}, "kind": "ConfigMap", "metadata": {
        "uid": "u", "namespace": "ns", "name": "n", "labels": {"x": "y"}}});
    let mut out = Vec::new();
    let at = encode_object(&value, Some(schema), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","namespace":"ns","uid":"u","#,
            r#""resourceVersion":"","labels":{"x":"y"}},"data":{"a":"2","b":"\u003c"}}"#
        )
    );
    assert_eq!(&text[at - 1..at + 1], "\"\"");
}

#[test]
fn the_table_is_small() {
    assert!(types().len() < 3_000);
}

#[test]
fn wrong_types_are_told_in_gos_words() {
    let check = |group: &str, kind: &str, value: Value, expect: &str| {
        let error = decode(value, schema_of(group, "v1", kind).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    let into = "json: cannot unmarshal";
    check(
        "",
        "ConfigMap",
        json!({"data": "x"}),
        &format!("{into} string into Go struct field ConfigMap.data of type map[string]string"),
    );
    check(
        "",
        "Service",
        json!({"spec": {"ports": [{"port": "x"}]}}),
        &format!("{into} string into Go struct field ServicePort.spec.ports.port of type int32"),
    );
    check(
        "",
        "Pod",
        json!({"spec": {"containers": {}}}),
        &format!("{into} object into Go struct field PodSpec.spec.containers of type []v1.Container"),
    );
    check(
        "",
        "Pod",
        json!({"spec": {"volumes": [{"emptyDir": 1}]}}),
        &format!(
            "{into} number into Go struct field Volume.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource"
        ),
    );
    check(
        "apps",
        "Deployment",
        json!({"spec": {"replicas": 5_000_000_000i64}}),
        &format!("{into} number 5000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"),
    );
    check("", "Secret", json!({"data": {"a": "!"}}), "illegal base64 data at input byte 0");
    // A malformed text is told rather than a wrong type before it.
    check(
        "",
        "Pod",
        json!({"metadata": {"deletionTimestamp": "now"}, "kind": 1}),
        "parsing time \"now\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"now\" as \"2006\"",
    );
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let pod = json!({"Spec": 1, "spec": {"containers": [{"imge": "x"}], "nodeSelector": {"any": "thing"}}});
    let (value, unknown) = decoded("", "v1", "Pod", pod);
    assert_eq!(value["spec"]["containers"], json!([{"name": "", "resources": {}}]));
    assert_eq!(unknown, ["unknown field \"Spec\"", "unknown field \"spec.containers[0].imge\""]);
}

#[test]
fn texts_are_brought_into_their_canonical_form() {
    let claim = json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05.9+01:00"},
        "spec": {"resources": {"requests": {"storage": "1024Mi"}, "limits": {"storage": 3}}}});
    let (value, _) = decoded("", "v1", "PersistentVolumeClaim", claim);
    assert_eq!(value["spec"]["resources"], json!({"requests": {"storage": "1Gi"}, "limits": {"storage": "3"}}));
    assert_eq!(value["metadata"]["creationTimestamp"], "2026-01-02T02:04:05Z");
}
