//! Custom resources: defined, checked, pruned, defaulted, versioned, deleted.

mod common;

use std::sync::Arc;

use common::{Api, CRDS, crd, version};
use conductor_apiserver::admission::{Admission, Attributes, BoxFuture};
use conductor_apiserver::{Options, Server, User};
use machinery::status::Status;
use serde_json::{Value, json};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes
        .iter()
        .map(|own| format!("{}: {}", own["field"].as_str().unwrap(), own["message"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn objects_are_pruned_defaulted_and_validated() {
    let api = Api::new().await;
    let spec = json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
    });
    api.define(&crd("widgets", "Widget", json!([version("v1", spec)]))).await;
    let made = api.create(WIDGETS, &widget("a", json!({"size": 1, "unknown": true}))).await;
    assert_eq!(made["spec"], json!({"size": 1, "color": "red"}));
    assert_eq!(made["metadata"]["generation"], 1);
    for (spec, expected) in [
        (json!({"size": 11}), "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        (
            json!({"size": "1"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (json!({"size": 1, "tags": ["x", "x"]}), "spec.tags[1]: Duplicate value: \"x\""),
    ] {
        let (code, status) = api.post(WIDGETS, &widget("b", spec.clone())).await;
        assert_eq!((code, causes(&status)), (422, vec![expected.to_owned()]), "{spec}");
    }
    let (code, status) =
        api.post(&format!("{WIDGETS}?fieldValidation=Strict"), &widget("b", json!({"size": 1, "sze": 2}))).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap().contains("unknown field \"spec.sze\"")),
        (400, true),
        "{status}"
    );
}

#[tokio::test]
async fn status_and_spec_are_written_apart_and_the_generation_counts_the_spec() {
    let api = Api::new().await;
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    api.define(&crd("widgets", "Widget", json!([version("v1", spec)]))).await;
    let path = format!("{WIDGETS}/a");
    let mut first = widget("a", json!({"size": 1}));
    first["status"] = json!({"ready": true});
    let made = api.create(WIDGETS, &first).await;
    assert_eq!(made.get("status"), None);
    let (_, changed) =
        api.merge(&format!("{path}/status"), &json!({"spec": {"size": 5}, "status": {"ready": true}})).await;
    assert_eq!(
        (&changed["spec"]["size"], &changed["status"]["ready"], &changed["metadata"]["generation"]),
        (&1.into(), &true.into(), &1.into())
    );
    let (_, changed) = api.merge(&path, &json!({"spec": {"size": 5}, "status": {"ready": false}})).await;
    assert_eq!(
        (&changed["spec"]["size"], &changed["status"]["ready"], &changed["metadata"]["generation"]),
        (&5.into(), &true.into(), &2.into())
    );
    let (_, labeled) = api.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labeled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn rules_decide_and_say_why() {
    let api = Api::new().await;
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "message": "min must not exceed max"},
            {"rule": "self.min >= oldSelf.min", "messageExpression": "'min was ' + string(oldSelf.min)", "fieldPath": ".min", "reason": "FieldValueForbidden"},
            {"rule": "self.max < 100", "message": "is not said", "fieldPath": ".max", "reason": "FieldValueDuplicate"},
        ],
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
    });
    // The message expression has no bound without one on the numbers' text: Kubernetes refuses it, and so do we.
    let (code, status) = api.post(CRDS, &crd("widgets", "Widget", json!([version("v1", spec.clone())]))).await;
    assert_eq!(code, 422, "{status}");
    let mut bounded = spec;
    bounded["x-kubernetes-validations"][1]["messageExpression"] = Value::Null;
    bounded["x-kubernetes-validations"][1]["message"] = "min must not shrink".into();
    api.define(&crd("widgets", "Widget", json!([version("v1", bounded)]))).await;
    let (code, status) = api.post(WIDGETS, &widget("a", json!({"min": 2, "max": 1}))).await;
    assert_eq!((code, causes(&status)), (422, vec!["spec: Invalid value: min must not exceed max".to_owned()]));
    let (code, status) = api.post(WIDGETS, &widget("a", json!({"min": 2, "max": 100}))).await;
    assert_eq!((code, causes(&status)), (422, vec!["spec.max: Duplicate value".to_owned()]));
    api.create(WIDGETS, &widget("a", json!({"min": 2, "max": 3}))).await;
    let (code, status) = api.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"min": 1}})).await;
    assert_eq!((code, causes(&status)), (422, vec!["spec.min: Forbidden: min must not shrink".to_owned()]));
    let broken = json!({"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self.x > 1"}]}}});
    let (code, status) = api.post(CRDS, &crd("gadgets", "Gadget", json!([version("v1", broken)]))).await;
    assert_eq!((code, status["message"].as_str().unwrap().contains("compilation failed")), (422, true), "{status}");
}

#[tokio::test]
async fn versions_share_their_objects() {
    let api = Api::new().await;
    let one =
        version("v1", json!({"type": "object", "properties": {"a": {"type": "string"}, "both": {"type": "string"}}}));
    let mut two = version(
        "v2",
        json!({"type": "object", "properties": {"b": {"type": "string", "default": "x"}, "both": {"type": "string"}}}),
    );
    two["storage"] = false.into();
    api.define(&crd("widgets", "Widget", json!([one, two]))).await;
    api.create(WIDGETS, &widget("a", json!({"a": "1", "both": "2"}))).await;
    let (_, seen) = api.get("/apis/example.com/v2/namespaces/default/widgets/a").await;
    assert_eq!((&seen["apiVersion"], &seen["spec"]), (&"example.com/v2".into(), &json!({"both": "2"})));
    let object =
        json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"both": "3"}});
    let made = api.create("/apis/example.com/v2/namespaces/default/widgets", &object).await;
    assert_eq!(made["apiVersion"], "example.com/v2");
    let (_, list) = api.get(WIDGETS).await;
    let kinds: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["apiVersion"]).collect();
    assert_eq!(kinds, ["example.com/v1", "example.com/v1"]);
}

#[tokio::test]
async fn a_later_default_shows_on_read_without_a_write() {
    let api = Api::new().await;
    let path = format!("{CRDS}/widgets.example.com");
    api.define(&crd(
        "widgets",
        "Widget",
        json!([version("v1", json!({"type": "object", "properties": {"a": {"type": "string"}}}))]),
    ))
    .await;
    let made = api.create(WIDGETS, &widget("a", json!({}))).await;
    let (_, mut definition) = api.get(&path).await;
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"]["default"] =
        "new".into();
    let (code, answer) = api.put(&path, &definition).await;
    assert_eq!(code, 200, "{answer}");
    let seen = api.eventually(&format!("{WIDGETS}/a"), |_, seen| seen["spec"]["a"] == "new").await;
    assert_eq!(seen["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_definition_goes_with_its_objects() {
    let api = Api::new().await;
    api.define(&crd("widgets", "Widget", json!([version("v1", json!({"type": "object"}))]))).await;
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.create(WIDGETS, &held).await;
    api.create(WIDGETS, &widget("free", json!({}))).await;
    let path = format!("{CRDS}/widgets.example.com");
    let (code, _) = api.delete(&path).await;
    assert_eq!(code, 200);
    api.eventually(&format!("{WIDGETS}/free"), |code, _| code == 404).await;
    let told = |_, crd: &Value| crd["status"]["conditions"].to_string().contains("InstanceDeletionCheck");
    api.eventually(&path, told).await;
    let (code, _) = api.get(&path).await;
    assert_eq!(code, 200, "something holds an object, so the definition stays");
    api.merge(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await;
    api.eventually(&path, |code, _| code == 404).await;
    api.eventually(WIDGETS, |code, _| code == 404).await;
}

/// A version that objects may be stored in cannot go before somebody has migrated them.
#[tokio::test]
async fn versions_that_objects_are_stored_in_are_remembered() {
    let api = Api::new().await;
    let versions = |stored: &str| {
        let mut all = [version("v1", json!({"type": "object"})), version("v2", json!({"type": "object"}))];
        all.iter_mut().for_each(|version| version["storage"] = json!(version["name"] == stored));
        json!(all)
    };
    api.define(&crd("widgets", "Widget", versions("v1"))).await;
    let path = format!("{CRDS}/widgets.example.com");
    for (stored, known) in [("v2", json!(["v1", "v2"])), ("v1", json!(["v1", "v2"]))] {
        let (code, crd) = api.merge(&path, &json!({"spec": {"versions": versions(stored)}})).await;
        assert_eq!((code, &crd["status"]["storedVersions"]), (200, &known), "{crd}");
    }
    let only = json!([version("v1", json!({"type": "object"}))]);
    let (code, status) = api.merge(&path, &json!({"spec": {"versions": only}})).await;
    assert!(code == 422 && causes(&status)[0].starts_with("status.storedVersions[1]"), "{status}");
    api.merge(&format!("{path}/status"), &json!({"status": {"storedVersions": ["v1"]}})).await;
    assert_eq!(api.merge(&path, &json!({"spec": {"versions": only}})).await.0, 200);
}

/// Whatever is written about what a definition has stored, it goes when it is deleted, and no other waits for it.
#[tokio::test]
async fn no_definition_waits_for_one_that_says_odd_things() {
    let api = Api::new().await;
    api.define(&crd("aaas", "Aaa", json!([version("v1", json!({"type": "object"}))]))).await;
    let path = format!("{CRDS}/aaas.example.com");
    for (stored, shown) in [(json!([]), json!(["v1"])), (json!(["v0", "v1"]), json!(["v0", "v1"]))] {
        let (code, crd) = api.merge(&format!("{path}/status"), &json!({"status": {"storedVersions": stored}})).await;
        assert_eq!((code, &crd["status"]["storedVersions"]), (200, &shown));
    }
    let (code, status) = api.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!((code, causes(&status).len()), (422, 1), "{status}");
    assert_eq!(api.delete(&path).await.0, 200);
    api.define(&crd("widgets", "Widget", json!([version("v1", json!({"type": "object"}))]))).await;
    api.eventually(&path, |code, _| code == 404).await;
}

#[tokio::test]
async fn a_scale_that_fits_nothing_is_refused() {
    let api = Api::new().await;
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let mut v1 = version("v1", spec);
    v1["subresources"]["scale"] = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"});
    api.define(&crd("widgets", "Widget", json!([v1]))).await;
    api.create(WIDGETS, &widget("a", json!({"replicas": 1}))).await;
    let path = format!("{WIDGETS}/a/scale");
    let other = json!({"metadata": {"name": "b", "namespace": "default"}, "spec": {"replicas": 7}});
    let (code, status) = api.put(&path, &other).await;
    let expected = "the name of the object (b) does not match the name on the URL (a)";
    assert_eq!((code, &status["message"]), (400, &expected.into()));
    for replicas in [json!("x"), json!(2147483648_i64)] {
        let (code, status) = api.merge(&path, &json!({"spec": {"replicas": replicas}})).await;
        assert_eq!((code, &status["reason"]), (422, &"Invalid".into()), "{status}");
        assert!(causes(&status)[0].starts_with("patch: Invalid value: "), "{status}");
    }
    assert_eq!(api.get(&path).await.1["spec"]["replicas"], 1);
}

#[tokio::test]
async fn documents_say_which_fields_can_be_selected() {
    let api = Api::new().await;
    let spec = json!({"type": "object", "properties": {"color": {"type": "string"}}});
    let mut v1 = version("v1", spec);
    v1["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    api.define(&crd("widgets", "Widget", json!([v1]))).await;
    let (_, v3) = api.get("/openapi/v3/apis/example.com/v1").await;
    let (_, v2) = api.get("/openapi/v2").await;
    for types in [&v3["components"]["schemas"], &v2["definitions"]] {
        for kind in ["com.example.v1.Widget", "com.example.v1.WidgetList"] {
            let said = &types[kind]["x-kubernetes-selectable-fields"];
            assert_eq!(*said, json!([{"fieldPath": "spec.color"}]), "{kind}");
        }
    }
}

#[tokio::test]
async fn names_are_taken_once() {
    let api = Api::new().await;
    api.define(&crd("widgets", "Widget", json!([version("v1", json!({"type": "object"}))]))).await;
    api.create(CRDS, &crd("widgetz", "Widget", json!([version("v1", json!({"type": "object"}))]))).await;
    let second = api
        .eventually(&format!("{CRDS}/widgetz.example.com"), |_, crd| {
            crd["status"]["conditions"].as_array().is_some_and(|own| !own.is_empty())
        })
        .await;
    let names = &second["status"]["conditions"][0];
    assert_eq!(
        (&names["type"], &names["status"], &names["reason"]),
        (&"NamesAccepted".into(), &"False".into(), &"ListKindConflict".into())
    );
    let (code, _) = api.get("/apis/example.com/v1/widgetz").await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn bad_definitions_are_refused_with_their_paths() {
    let api = Api::new().await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut crd = crd("widgets", "Widget", json!([version("v1", json!({"type": "object"}))]));
        change(&mut crd);
        crd
    };
    for (name, crd, expected) in [
        ("name", with(&|crd| crd["metadata"]["name"] = "other.example.com".into()), "metadata.name: Invalid value"),
        ("group", with(&|crd| crd["spec"]["group"] = "nodots".into()), "spec.group: Invalid value"),
        ("scope", with(&|crd| crd["spec"]["scope"] = "Galaxy".into()), "spec.scope: Unsupported value"),
        ("storage", with(&|crd| crd["spec"]["versions"][0]["storage"] = false.into()), "spec.versions: Invalid value"),
        (
            "type",
            with(&|crd| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({})),
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value",
        ),
        (
            "column",
            with(&|crd| {
                crd["spec"]["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "string", "jsonPath": "a"}])
            }),
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value",
        ),
    ] {
        let (code, status) = api.post(CRDS, &crd).await;
        assert_eq!(code, 422, "{name}: {status}");
        assert!(causes(&status).iter().any(|cause| cause.starts_with(expected)), "{name}: {:?}", causes(&status));
    }
}

/// Holds the writes of one object until it is told to let go.
struct Hold(Arc<tokio::sync::Semaphore>, tokio::sync::mpsc::UnboundedSender<()>);

impl Admission for Hold {
    fn name(&self) -> &'static str {
        "Hold"
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let held = attributes.name == "slow";
        Box::pin(async move {
            if held {
                let _ = self.1.send(());
                drop(self.0.acquire().await);
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn what_was_written_under_an_older_definition_is_shown_as_the_new_one_says() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let (held, mut waits) = tokio::sync::mpsc::unbounded_channel();
    let options = Options { admission: vec![Box::new(Hold(go.clone(), held))], ..Options::default() };
    let server = Server::start(options).await.unwrap();
    let api = Api { server, user: User::new("admin", ["system:masters"]) };
    let versions = |stored: &str, names: &[&str]| -> Value {
        let one = |name: &&str| {
            let mut own = version(name, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
            own["storage"] = (*name == stored).into();
            own
        };
        names.iter().map(one).collect()
    };
    api.define(&crd("widgets", "Widget", versions("v1", &["v1", "v2"]))).await;
    let writer = api.clone();
    let slow = tokio::spawn(async move { writer.create(WIDGETS, &widget("slow", json!({}))).await });
    waits.recv().await.unwrap();
    let change = json!({"spec": {"versions": versions("v2", &["v1", "v2", "v3"])}});
    let (code, answer) = api.merge(&format!("{CRDS}/widgets.example.com"), &change).await;
    assert_eq!(code, 200, "{answer}");
    let newer = |version: &str| WIDGETS.replace("/v1/", &format!("/{version}/"));
    api.eventually(&newer("v3"), |code, _| code == 200).await;
    go.add_permits(1);
    slow.await.unwrap();
    for version in ["v1", "v2", "v3"] {
        let (_, shown) = api.get(&format!("{}/slow", newer(version))).await;
        assert_eq!(shown["apiVersion"], format!("example.com/{version}").as_str());
        let (_, list) = api.get(&newer(version)).await;
        assert_eq!(list["items"][0]["apiVersion"], shown["apiVersion"]);
    }
}

async fn apply(api: &Api, path: &str, config: &Value) -> (u16, Value) {
    api.send(http::Method::PATCH, path, "application/apply-patch+yaml", config.to_string()).await
}

/// As a real kube-apiserver does: an empty field of metadata is nothing once it is stored, so each apply of it is a change.
#[tokio::test]
async fn applying_empty_metadata_is_written_each_time() {
    let api = Api::new().await;
    let spec = json!({"type": "object", "properties": {
        "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    api.define(&crd("widgets", "Widget", json!([version("v1", spec)]))).await;
    let inner = |metadata: Value| json!({"inner": {"apiVersion": "v1", "kind": "Inner", "metadata": metadata}});
    for (metadata, spec, written, generation) in [
        (json!({"labels": {"a": "b"}}), json!({}), false, 1),
        (json!({}), json!({"texts": {}}), false, 1),
        (json!({"labels": {}}), json!({}), true, 1),
        (json!({"labels": {"a": "b"}, "annotations": {}}), json!({}), true, 1),
        (json!({"finalizers": []}), json!({}), true, 1),
        (json!({}), inner(json!({"labels": {"a": "b"}})), false, 1),
        (json!({}), inner(json!({"labels": {}})), true, 2),
    ] {
        let mut config = widget("a", spec);
        config["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let path = format!("{WIDGETS}/a?fieldManager=m");
        let (code, first) = apply(&api, &path, &config).await;
        assert_eq!(code, 201, "{first}");
        let (_, second) = apply(&api, &path, &config).await;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        assert_eq!(version(&first) != version(&second), written, "{metadata}: {second}");
        assert_eq!(second["metadata"]["generation"], generation, "{second}");
        // Through status, only the status is written.
        let status = format!("{WIDGETS}/a/status?fieldManager=s");
        let (_, first) = apply(&api, &status, &config).await;
        assert_eq!(apply(&api, &status, &config).await, (200, first));
        api.delete(&format!("{WIDGETS}/a")).await;
    }
    // null where there was nothing: forgotten, and written again each time.
    let config = widget("b", json!({}));
    apply(&api, &format!("{WIDGETS}/b?fieldManager=m"), &config).await;
    let mut null = config;
    null["status"] = Value::Null;
    let status = format!("{WIDGETS}/b/status?fieldManager=s");
    let (_, first) = apply(&api, &status, &null).await;
    let (code, second) = apply(&api, &status, &null).await;
    assert_eq!((code, second.get("status")), (200, None), "{second}");
    assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    // Kept where anything may stand.
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = crd("opens", "Open", json!([version("v1", json!({}))]));
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = open;
    api.define(&definition).await;
    let config = json!({"apiVersion": "example.com/v1", "kind": "Open", "metadata": {"name": "a"}, "status": null});
    let path = "/apis/example.com/v1/namespaces/default/opens/a";
    apply(&api, &format!("{path}?fieldManager=m"), &config).await;
    let (code, applied) = apply(&api, &format!("{path}/status?fieldManager=m"), &config).await;
    assert_eq!((code, applied.get("status")), (200, Some(&Value::Null)), "{applied}");
    assert_eq!(apply(&api, &format!("{path}/status?fieldManager=m"), &config).await, (200, applied));
    // A built-in kind knows no difference between empty and nothing.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {}}});
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=m";
    let (_, first) = apply(&api, path, &config).await;
    assert_eq!(apply(&api, path, &config).await, (200, first));
}
