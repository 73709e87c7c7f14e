//! Custom resources in several versions, converted by their author's webhook: a real HTTPS server in the test.
//!
//! The kind is a Widget: `v1` has `spec.size: "3x4"`, `v2` has `spec.width` and `spec.height`; `v2` is stored.

mod common;
mod webhook_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Api, CRDS, crd};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use webhook_server::{Answer, Signed, Webhook};

const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

fn v1(name: &str, size: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

fn v2(name: &str, width: u64, height: u64) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}, "spec": {"width": width, "height": height}})
}

/// One object in the wanted version, as the kind's author has it.
fn convert(mut object: Value, wanted: &str) -> Value {
    let spec = object["spec"].clone();
    object["spec"] = match wanted {
        "example.com/v1" => json!({"size": format!("{}x{}", spec["width"], spec["height"])}),
        _ => {
            let size = spec["size"].as_str().unwrap_or("0x0");
            let (width, height) = size.split_once('x').unwrap_or(("0", "0"));
            json!({"width": width.parse::<u64>().unwrap_or(0), "height": height.parse::<u64>().unwrap_or(0)})
        }
    };
    object["apiVersion"] = wanted.into();
    object
}

/// Answers a ConversionReview; `change` has the last word about each object.
fn answer(review: &Value, change: impl Fn(&mut Value)) -> Answer {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects: Vec<Value> = request["objects"].as_array().cloned().unwrap_or_default();
    objects.iter_mut().for_each(|object| {
        *object = convert(object.take(), wanted);
        change(object);
    });
    Answer::Json(json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    }))
}

fn definition(client_config: Value) -> Value {
    let schema = |spec: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
    let number = json!({"type": "integer", "minimum": 0});
    let versions = json!([
        {"name": "v1", "served": true, "storage": false, "subresources": {"status": {}},
         "schema": schema(json!({"type": "object", "properties": {"size": {"type": "string", "pattern": "^[0-9]+x[0-9]+$"}}})),
         "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}],
         "selectableFields": [{"jsonPath": ".spec.size"}]},
        {"name": "v2", "served": true, "storage": true, "subresources": {"status": {}},
         "schema": schema(json!({"type": "object", "properties": {"width": number, "height": number, "depth": {"type": "integer", "default": 1}}}))},
    ]);
    let mut crd = crd("widgets", "Widget", versions);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": client_config,
    }});
    crd
}

async fn webhook(answer: impl Fn(&str, Value) -> Answer + Send + Sync + 'static) -> Webhook {
    Webhook::start(&["localhost"], Signed::ByAuthority, answer).await
}

async fn defined(webhook: &Webhook) -> Api {
    let api = Api::new().await;
    api.define(&definition(webhook.client_config("/convert"))).await;
    api
}

#[tokio::test]
async fn objects_are_written_and_read_in_every_version() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    let made = api.create(V1, &v1("a", "3x4")).await;
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v1"), &json!({"size": "3x4"})));
    let (_, stored) = api.get(&format!("{V2}/a")).await;
    assert_eq!(stored["spec"], json!({"width": 3, "height": 4, "depth": 1}));
    assert_eq!(stored["metadata"]["uid"], made["metadata"]["uid"]);
    api.create(V2, &v2("b", 5, 6)).await;

    // Lists, in one review; selected by a field that only the other version has; as a table.
    let asked = hook.requests.load(Ordering::SeqCst);
    let (_, list) = api.get(V1).await;
    let sizes: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["size"]).collect();
    assert_eq!(sizes, ["3x4", "5x6"]);
    assert_eq!(hook.requests.load(Ordering::SeqCst), asked + 1);
    let (_, list) = api.get(&format!("{V1}?fieldSelector=spec.size%3D5x6")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["name"], "b");

    // Updates and patches in the version that is not stored.
    let (code, mut changed) = api.merge(&format!("{V1}/a"), &json!({"spec": {"size": "7x8"}})).await;
    assert_eq!((code, &changed["spec"]["size"], &changed["metadata"]["generation"]), (200, &json!("7x8"), &json!(2)));
    changed["spec"]["size"] = "9x9".into();
    let (code, changed) = api.put(&format!("{V1}/a"), &changed).await;
    assert_eq!((code, &changed["spec"]["size"]), (200, &json!("9x9")), "{changed}");
    let (code, same) = api.put(&format!("{V1}/a"), &changed).await;
    assert_eq!((code, &same["metadata"]["resourceVersion"]), (200, &changed["metadata"]["resourceVersion"]));
    let (code, status) = api.merge(&format!("{V1}/a/status"), &json!({"status": {"ready": true}})).await;
    assert_eq!((code, &status["status"]["ready"], &status["spec"]["size"]), (200, &json!(true), &json!("9x9")));
    let (code, refused) = api.merge(&format!("{V1}/a"), &json!({"spec": {"size": "wide"}})).await;
    assert_eq!(code, 422, "{refused}");

    // Dry run stores nothing.
    let (code, _) = api.merge(&format!("{V1}/a?dryRun=All"), &json!({"spec": {"size": "1x1"}})).await;
    assert_eq!((code, &api.get(&format!("{V2}/a")).await.1["spec"]["width"]), (200, &json!(9)));
    let (code, _) = api.delete(&format!("{V1}/a")).await;
    assert_eq!((code, api.get(&format!("{V2}/a")).await.0), (200, 404));
    let (code, gone) = api.delete(V1).await;
    assert_eq!((code, &gone["items"][0]["spec"]["size"]), (200, &json!("5x6")));
}

#[tokio::test]
async fn appliers_of_several_versions_share_an_object() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    let apply = |path: &str, manager: &str, object: Value| {
        let (api, path) = (api.clone(), format!("{path}?fieldManager={manager}"));
        async move { api.send(Method::PATCH, &path, "application/apply-patch+yaml", object.to_string()).await }
    };
    let (code, made) = apply(&format!("{V1}/a"), "one", v1("a", "3x4")).await;
    assert_eq!(code, 201, "{made}");
    // In v2 terms "one" owns nothing by these names: only what differs in its own version is a conflict.
    let (code, refused) = apply(&format!("{V2}/a"), "two", v2("a", 3, 9)).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains(r#"conflict with "one": .spec.size"#), "{message}");
    let (code, shared) = apply(&format!("{V2}/a"), "two", v2("a", 3, 4)).await;
    assert_eq!(code, 200, "{shared}");
    let managers = shared["metadata"]["managedFields"].as_array().unwrap();
    let mut versions: Vec<_> = managers.iter().map(|own| (&own["manager"], &own["apiVersion"])).collect();
    versions.sort_by_key(|(manager, _)| manager.to_string());
    assert_eq!(
        versions,
        [(&json!("one"), &json!("example.com/v1")), (&json!("two"), &json!("example.com/v2"))],
        "{managers:?}"
    );
    let (code, changed) = apply(&format!("{V1}/a"), "one", v1("a", "5x5")).await;
    assert_eq!(code, 409, "{changed}");
    let (_, forced) = api
        .send(
            Method::PATCH,
            &format!("{V1}/a?fieldManager=one&force=true"),
            "application/apply-patch+yaml",
            v1("a", "5x5").to_string(),
        )
        .await;
    assert_eq!(forced["spec"]["size"], "5x5", "{forced}");
}

#[tokio::test]
async fn watches_show_their_own_version_and_ask_once_for_many() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    api.create(V2, &v2("a", 1, 1)).await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        let mut watch = Watch::begin(&api, &format!("{V1}?watch=true")).await;
        assert_eq!(watch.next().await.unwrap()["object"]["spec"]["size"], "1x1");
        watches.push(watch);
    }
    let asked = hook.requests.load(Ordering::SeqCst);
    let (_, changed) = api.merge(&format!("{V2}/a"), &json!({"spec": {"width": 2}})).await;
    for watch in &mut watches {
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["spec"]["size"]), (&json!("MODIFIED"), &json!("2x1")));
        assert_eq!(event["object"]["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
    }
    assert!(hook.requests.load(Ordering::SeqCst) < asked + 20, "every watcher asked for itself");
    api.delete(&format!("{V2}/a")).await;
    let event = watches[0].next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["size"]), (&json!("DELETED"), &json!("2x1")));
}

#[tokio::test]
async fn a_field_selector_watches_what_the_other_version_has() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    let mut watch = Watch::begin(&api, &format!("{V1}?watch=true&fieldSelector=spec.size%3D2x2")).await;
    api.create(V2, &v2("a", 2, 2)).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    api.merge(&format!("{V2}/a"), &json!({"spec": {"width": 3}})).await;
    let left = watch.next().await.unwrap();
    assert_eq!((&left["type"], &left["object"]["spec"]["size"]), (&json!("DELETED"), &json!("2x2")));
}

/// What a webhook does wrong, and what the client is told of it.
#[tokio::test]
async fn answers_that_are_wrong_are_refused_in_kubernetes_words() {
    type Wrong = fn(&Value) -> Answer;
    let cases: Vec<(&str, Wrong, &str)> = vec![
        (
            "failure",
            |review| {
                Answer::Json(json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
                "uid": review["request"]["uid"], "result": {"status": "Failure", "message": "no such size"}}}))
            },
            "conversion webhook for example.com/v2, Kind=Widget failed: no such size",
        ),
        (
            "no reason",
            |review| {
                Answer::Json(
                    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {"uid": review["request"]["uid"]}}),
                )
            },
            "conversion webhook for example.com/v2, Kind=Widget failed: response.result.status was '', not 'Success'",
        ),
        (
            "no response",
            |review| Answer::Json(json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview"})),
            "conversion webhook for example.com/v2, Kind=Widget failed: no response provided",
        ),
        (
            "another kind",
            |review| Answer::Json(json!({"apiVersion": review["apiVersion"], "kind": "Review"})),
            "conversion webhook for example.com/v2, Kind=Widget failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Review",
        ),
        (
            "fewer",
            |review| {
                Answer::Json(json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
                "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": []}}))
            },
            "conversion webhook for example.com/v2, Kind=Widget returned 0 objects, expected 1",
        ),
        (
            "name",
            |review| answer(review, |object| object["metadata"]["name"] = "b".into()),
            "conversion webhook for example.com/v2, Kind=Widget returned invalid object: must have the same name: a != b",
        ),
        (
            "namespace",
            |review| answer(review, |object| object["metadata"]["namespace"] = "b".into()),
            "conversion webhook for example.com/v2, Kind=Widget returned invalid object: must have the same namespace: default != b",
        ),
        (
            "kind",
            |review| answer(review, |object| object["kind"] = "Gadget".into()),
            "conversion webhook for example.com/v2, Kind=Widget returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
        (
            "version",
            |review| answer(review, |object| object["apiVersion"] = "example.com/v3".into()),
            "conversion webhook for example.com/v2, Kind=Widget returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v3)",
        ),
        (
            "label",
            |review| answer(review, |object| object["metadata"]["labels"] = json!({"a": 1})),
            "conversion webhook for example.com/v2, Kind=Widget returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            "labels",
            |review| answer(review, |object| object["metadata"]["labels"] = json!("x")),
            "conversion webhook for example.com/v2, Kind=Widget returned invalid metadata: invalid metadata.labels of type string in converted object",
        ),
        (
            "500",
            |_| Answer::Raw(500, "text/plain", b"oops".to_vec()),
            "conversion webhook for example.com/v2, Kind=Widget failed: ",
        ),
        (
            "hang up",
            |_| Answer::HangUp,
            "conversion webhook for example.com/v2, Kind=Widget failed: Post \"https://localhost:",
        ),
        (
            "no JSON",
            |_| Answer::Raw(200, "text/plain", b"{".to_vec()),
            "conversion webhook for example.com/v2, Kind=Widget failed: ",
        ),
    ];
    let at = Arc::new(AtomicUsize::new(usize::MAX));
    let answers: Vec<Wrong> = cases.iter().map(|(_, answer, _)| *answer).collect();
    let now = at.clone();
    let hook = webhook(move |_, review| match answers.get(now.load(Ordering::SeqCst)) {
        Some(wrong) => wrong(&review),
        None => answer(&review, |_| {}),
    })
    .await;
    let api = defined(&hook).await;
    api.create(V2, &v2("a", 1, 1)).await;
    for (index, (what, _, expected)) in cases.iter().enumerate() {
        at.store(index, Ordering::SeqCst);
        for path in [format!("{V1}/a"), V1.to_owned()] {
            let (code, status) = api.get(&path).await;
            let message = status["message"].as_str().unwrap_or_default();
            assert_eq!((code, message.starts_with(expected)), (500, true), "{what}: {status}");
        }
        // A watch says so and ends; a write leaves everything as it was; the stored version needs nobody.
        let (code, _) = api.merge(&format!("{V1}/a"), &json!({"spec": {"size": "2x2"}})).await;
        assert_eq!(code, 500, "{what}");
        let (code, stored) = api.get(&format!("{V2}/a")).await;
        assert_eq!((code, &stored["spec"]["width"]), (200, &json!(1)), "{what}");
    }
    at.store(usize::MAX, Ordering::SeqCst);
    let mut watch = Watch::begin(&api, &format!("{V1}?watch=true&resourceVersion=0")).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    at.store(0, Ordering::SeqCst);
    api.merge(&format!("{V2}/a"), &json!({"spec": {"width": 5}})).await;
    let error = watch.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(500)), "{error}");
    assert_eq!(watch.next().await, None);
}

/// What a webhook may change in metadata, and what not.
#[tokio::test]
async fn metadata_stays_save_for_labels_and_annotations() {
    let hook = webhook(|_, review| {
        answer(&review, |object| {
            object["metadata"]["labels"] = json!({"by": "webhook"});
            object["metadata"]["finalizers"] = json!(["example.com/never"]);
            object["metadata"]["generation"] = 77.into();
            object["metadata"]["ownerReferences"] = json!("nonsense");
        })
    })
    .await;
    let api = defined(&hook).await;
    let made = api.create(V2, &v2("a", 1, 1)).await;
    let (_, shown) = api.get(&format!("{V1}/a")).await;
    assert_eq!(shown["metadata"]["labels"], json!({"by": "webhook"}));
    for field in ["finalizers", "generation", "ownerReferences", "uid", "resourceVersion", "managedFields"] {
        assert_eq!(shown["metadata"][field], made["metadata"][field], "{field}");
    }
}

/// A definition goes, with its objects, though its webhook is gone; so does a namespace with objects of it.
#[tokio::test]
async fn what_is_to_go_does_not_wait_for_a_webhook_that_is_gone() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}});
    api.create("/api/v1/namespaces", &namespace).await;
    api.create("/apis/example.com/v1/namespaces/full/widgets", &v1("a", "1x1")).await;
    api.create(V1, &v1("b", "1x1")).await;
    drop(hook);
    api.delete("/api/v1/namespaces/full").await;
    api.eventually("/api/v1/namespaces/full", |code, _| code == 404).await;
    api.delete(&format!("{CRDS}/widgets.example.com")).await;
    api.eventually(&format!("{CRDS}/widgets.example.com"), |code, _| code == 404).await;
}

/// Those who watch begin anew when a definition changes or goes, and nothing is lost or repeated.
#[tokio::test]
async fn watches_end_when_their_definition_changes_or_goes() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    let name = format!("{CRDS}/widgets.example.com");
    api.create(V2, &v2("a", 1, 1)).await;
    let mut first = Watch::begin(&api, &format!("{V2}?watch=true")).await;
    let added = first.next().await.unwrap();
    // Labels of the definition are nobody's business.
    api.merge(&name, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    api.merge(&format!("{V2}/a"), &json!({"spec": {"width": 2}})).await;
    assert_eq!(first.next().await.unwrap()["object"]["spec"]["width"], 2);
    // v1 is not served any more: watches of it are over, and cannot begin again.
    let mut old = Watch::begin(&api, &format!("{V1}?watch=true")).await;
    old.next().await.unwrap();
    let (_, mut definition) = api.get(&name).await;
    definition["spec"]["versions"][0]["served"] = false.into();
    let (code, changed) = api.put(&name, &definition).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!((old.next().await, first.next().await), (None, None));
    assert_eq!(api.get(&format!("{V1}?watch=true")).await.0, 404);
    let version = added["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut again = Watch::begin(&api, &format!("{V2}?watch=true&resourceVersion={version}")).await;
    assert_eq!(again.next().await.unwrap()["object"]["spec"]["width"], 2);
    // The definition goes: the objects first, then the watch.
    api.delete(&name).await;
    assert_eq!(again.next().await.unwrap()["type"], "DELETED");
    assert_eq!(again.next().await, None);
    api.eventually(&name, |code, _| code == 404).await;
    assert_eq!(api.get(V2).await.0, 404);
}

/// Nothing new is made of a kind that goes.
#[tokio::test]
async fn nothing_is_created_while_a_definition_goes() {
    let hook = webhook(|_, review| answer(&review, |_| {})).await;
    let api = defined(&hook).await;
    let mut held = v2("held", 1, 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.create(V2, &held).await;
    api.delete(&format!("{CRDS}/widgets.example.com")).await;
    let refused = loop {
        match api.post(V2, &v2("late", 1, 1)).await {
            (201, _) => drop(api.delete(&format!("{V2}/late")).await),
            (code, status) => break (code, status["message"].clone()),
        }
    };
    let why = "create not allowed while custom resource definition is terminating";
    assert_eq!(refused, (403, json!(format!("widgets.example.com \"late\" is forbidden: {why}"))));
    api.merge(&format!("{V2}/held"), &json!({"metadata": {"finalizers": null}})).await;
    api.eventually(&format!("{CRDS}/widgets.example.com"), |code, _| code == 404).await;
}

/// A running watch.
struct Watch {
    body: conductor_apiserver::body::Body,
    rest: Vec<u8>,
}

impl Watch {
    async fn begin(api: &Api, path: &str) -> Watch {
        let request = Request::builder().uri(path).extension(api.user.clone()).body(Full::new(bytes::Bytes::new()));
        let response = api.server.handle(request.unwrap()).await;
        assert_eq!(response.status(), 200, "{path}");
        Watch { body: response.into_body(), rest: Vec::new() }
    }

    /// The next event; none if the watch is over.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            match self.body.frame().await {
                Some(frame) => self.rest.extend_from_slice(frame.expect("a piece").data_ref().expect("data")),
                None => return None,
            }
        }
    }
}
