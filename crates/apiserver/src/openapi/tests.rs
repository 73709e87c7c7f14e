use std::collections::BTreeSet;
use std::sync::LazyLock;

use http::StatusCode;
use serde_json::json;

use super::*;
use crate::server::{Options, Server};

fn written(document: &Document) -> Vec<u8> {
    let catalog = Catalog::builtin();
    let custom = |resource: &Resource| custom::tree(resource.schema(), 0);
    let mut out = Vec::new();
    document.write(&Site { catalog: &catalog, custom: &custom }, &Descriptions::default(), &mut out).expect("memory");
    out
}

fn v3(name: &str) -> Value {
    let document = Document::find(&Catalog::builtin(), name).expect("a document");
    serde_json::from_slice(&written(&document)).expect("JSON")
}

static V2: LazyLock<Value> = LazyLock::new(|| serde_json::from_slice(&v2_written(false)).expect("JSON"));

fn v2_written(protobuf: bool) -> Vec<u8> {
    let catalog = Catalog::builtin();
    let custom = |resource: &Resource| custom::tree(resource.schema(), 0);
    let mut out = Vec::new();
    let site = Site { catalog: &catalog, custom: &custom };
    v2::write(&site, &Descriptions::default(), protobuf, &mut out).expect("memory");
    out
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let mut all: Vec<(String, Value)> =
        Document::all(&Catalog::builtin()).iter().map(|document| (document.name(), v3(&document.name()))).collect();
    all.push(("v2".to_owned(), V2.clone()));
    for (name, document) in all {
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in found {
            assert!(document.pointer(&reference[1..]).is_some(), "{name}: {reference}");
        }
    }
}

#[test]
fn operations_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    for item in V2["paths"].as_object().into_iter().flat_map(|paths| paths.values()) {
        for (_, operation) in item.as_object().into_iter().flatten().filter(|(key, _)| *key != "parameters") {
            assert!(names.insert(operation["operationId"].to_string()), "{}", operation["operationId"]);
        }
    }
    assert!(names.len() > 800, "{}", names.len());
}

#[track_caller]
fn check(document: &Value, pointer: &str, expected: Value) {
    assert_eq!(document.pointer(pointer), Some(&expected), "{pointer}");
}

#[test]
fn types_say_what_clients_need() {
    let core = v3("api/v1");
    let types = &core["components"]["schemas"];
    let pod = &types["io.k8s.api.core.v1.PodSpec"]["properties"];
    check(types, "/io.k8s.api.core.v1.Pod/x-kubernetes-group-version-kind/0/kind", json!("Pod"));
    check(types, "/io.k8s.api.core.v1.PodSpec/required", json!(["containers"]));
    check(pod, "/containers/x-kubernetes-list-map-keys", json!(["name"]));
    check(pod, "/containers/x-kubernetes-patch-merge-key", json!("name"));
    check(pod, "/containers/x-kubernetes-patch-strategy", json!("merge"));
    check(pod, "/volumes/x-kubernetes-patch-strategy", json!("merge,retainKeys"));
    check(pod, "/restartPolicy/enum", json!(["Always", "Never", "OnFailure"]));
    check(pod, "/containers/items/allOf/0/$ref", json!("#/components/schemas/io.k8s.api.core.v1.Container"));
    check(pod, "/terminationGracePeriodSeconds", json!({"type": "integer", "format": "int64"}));
    check(types, "/io.k8s.api.core.v1.Secret/properties/data/additionalProperties/format", json!("byte"));
    check(types, "/io.k8s.api.core.v1.ServicePort/properties/protocol/default", json!("TCP"));
    check(types, "/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector/x-kubernetes-map-type", json!("atomic"));
    let reference = "/io.k8s.api.core.v1.ObjectReference/x-kubernetes-map-type";
    check(types, reference, json!("atomic"));
    let definitions = &V2["definitions"];
    check(definitions, reference, json!("atomic"));
    for (place, expected) in [
        ("core.v1.Capabilities/properties/add", json!("atomic")),
        ("apps.v1.StatefulSetSpec/properties/volumeClaimTemplates", json!("atomic")),
        ("core.v1.PodSpec/properties/containers", json!("map")),
    ] {
        check(definitions, &format!("/io.k8s.api.{place}/x-kubernetes-list-type"), expected);
    }
    check(definitions, "/io.k8s.api.core.v1.SeccompProfile/x-kubernetes-unions/0/discriminator", json!("type"));
    // Of the objects in a list, and of lists within maps, nothing is said.
    for unsaid in
        ["core.v1.PodList/properties/items", "authentication.v1.UserInfo/properties/extra/additionalProperties"]
    {
        let place = format!("/io.k8s.api.{unsaid}");
        let said = definitions.pointer(&place).and_then(|list| list.get("x-kubernetes-list-type"));
        assert_eq!(said, None, "{place}");
    }
    let usages = "/io.k8s.api.certificates.v1.CertificateSigningRequestSpec/properties/usages/items/enum/2";
    check(definitions, usages, json!("client auth"));
    check(
        definitions,
        "/io.k8s.api.core.v1.Pod/properties/spec",
        json!({"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"}),
    );
    check(definitions, "/io.k8s.apimachinery.pkg.api.resource.Quantity/type", json!("string"));
}

#[test]
fn operations_say_what_clients_need() {
    let apps = v3("apis/apps/v1");
    let one = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    check(one, "/patch/x-kubernetes-action", json!("patch"));
    check(
        one,
        "/patch/x-kubernetes-group-version-kind",
        json!({"group": "apps", "version": "v1", "kind": "Deployment"}),
    );
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names(&one["parameters"]), ["name", "namespace", "pretty"]);
    assert_eq!(names(&one["patch"]["parameters"]), ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let types: Vec<&String> =
        one["patch"]["requestBody"]["content"].as_object().into_iter().flatten().map(|(of, _)| of).collect();
    assert!(types.iter().any(|of| *of == "application/strategic-merge-patch+json"));
    check(one, "/delete/operationId", json!("deleteAppsV1NamespacedDeployment"));
    let scale = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
    check(scale, "/get/x-kubernetes-group-version-kind/kind", json!("Scale"));
    let core = v3("api/v1");
    let exec = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"];
    assert!(names(&exec["parameters"]).contains(&"command".to_owned()));
    check(exec, "/get/x-kubernetes-action", json!("connect"));
    let patch = &V2["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    check(patch, "/parameters/0/in", json!("body"));
    check(patch, "/parameters/3/name", json!("fieldValidation"));
    check(patch, "/parameters/3/type", json!("string"));
}

#[test]
fn objects_in_custom_resources_are_objects() {
    let mut schema = json!({"properties": {"pods": {"type": "array", "items": {
        "type": "object", "x-kubernetes-embedded-resource": true, "required": ["metadata"],
    }}}});
    custom::embed(&mut schema, 0);
    let pod = &schema["properties"]["pods"]["items"];
    check(pod, "/required", json!(["metadata", "kind", "apiVersion"]));
    check(pod, "/properties/kind/type", json!("string"));
}

/// The fields of a message: number and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                varint(&mut bytes);
                0
            }
            1 => 8,
            _ => varint(&mut bytes) as usize,
        };
        let (own, rest) = bytes.split_at(length);
        all.push((key >> 3, own));
        bytes = rest;
    }
    all
}

#[test]
fn protobuf_has_all_that_json_has() {
    let document = v2_written(true);
    let parts = fields(&document);
    // Each path and each type is a message of its own in the field of all of them.
    let names = |field: u64, list: u64| -> BTreeSet<String> {
        let all = parts.iter().filter(|(number, _)| *number == field).flat_map(|(_, bytes)| fields(bytes));
        let named = all.filter(|(number, _)| *number == list).map(|(_, named)| fields(named)[0].1);
        named.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    };
    let keys =
        |of: &Value| -> BTreeSet<String> { of.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect() };
    assert_eq!(names(8, 2), keys(&V2["paths"]));
    assert_eq!(names(9, 1), keys(&V2["definitions"]));
}

#[test]
fn hashes_differ_by_what_documents_are_made_from() {
    let catalog = Catalog::builtin();
    let site = |custom: &dyn Fn(&Resource) -> Value| {
        let site = Site { catalog: &catalog, custom };
        Document::all(&catalog).iter().map(|document| hash::of_document(document, &site)).collect::<Vec<_>>()
    };
    let (before, after) = (site(&|_| json!({})), site(&|_| json!({"description": "new"})));
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), before.len());
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    let custom = catalog
        .groups()
        .iter()
        .filter(|(group, _)| catalog.all().iter().any(|own| own.is_custom() && *own.group == **group))
        .count();
    assert_eq!(changed, custom);
}

#[tokio::test]
async fn documents_are_cached_by_hash() {
    let server = Server::start(Options::default()).await.expect("a server");
    let get = |path: &str, hash: Option<&str>, headers: &[(&'static str, &str)]| {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a header")));
        serve(&server.0, path, hash, &headers.collect())
    };
    let index: Value = serde_json::from_slice(&get("/openapi/v3", None, &[]).into_body().into_bytes()).expect("JSON");
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("an address");
    let (path, hash) = address.split_once("?hash=").expect("a hash");

    let response = get(path, Some(hash), &[]);
    assert_eq!(response.headers()["cache-control"], "public, immutable, max-age=31536000");
    let etag = response.headers()["etag"].to_str().expect("text").to_owned();
    let plain = response.into_body().into_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&plain).expect("JSON")["openapi"], "3.0.0");

    let response = get(path, None, &[("accept-encoding", "gzip")]);
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let mut unpacked = Vec::new();
    GzDecoder::new(&*response.into_body().into_bytes()).read_to_end(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, plain);
    assert!(!get(path, None, &[("accept-encoding", "gzip;q=0")]).headers().contains_key("content-encoding"));

    assert_eq!(get(path, None, &[("if-none-match", &etag)]).status(), StatusCode::NOT_MODIFIED);
    let response = get(path, Some("old"), &[]);
    assert_eq!(
        (response.status(), &response.headers()["location"]),
        (StatusCode::MOVED_PERMANENTLY, &address.parse().expect("an address"))
    );
    assert_eq!(get("/openapi/v3/apis/none/v1", None, &[]).status(), StatusCode::NOT_FOUND);

    let response = get("/openapi/v2", None, &[("accept", PROTOBUF_ASKED)]);
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    assert!(response.into_body().into_bytes().starts_with(b"\x0a\x032.0"));
}

#[cfg(feature = "descriptions")]
#[test]
fn types_are_described() {
    let descriptions = Descriptions::load();
    for (_, _, _, id) in kinds::kinds() {
        let Some(name) = kinds::type_name(id) else { continue };
        let is_resource = Catalog::builtin().all().iter().any(|resource| resource.schema().name() == Some(name));
        assert!(!is_resource || descriptions.of_type(name).is_some(), "{name}");
    }
    assert!(descriptions.of_field("io.k8s.api.core.v1.PodSpec", "containers").is_some());
}
