//! A kind in two versions with a conversion webhook: the same requests to a real Kubernetes and to ours, and one webhook for
//! both. What the webhook does wrong, an object's name asks for.

#[path = "../../apiserver/tests/webhook_server/mod.rs"]
mod webhook_server;

use conductor_testkit::parity::{Known, Scenario, Step, compare_all};
use conductor_testkit::{Cluster, KUBECONFIG, Request, skip};
use serde_json::{Value, json};
use webhook_server::{Answer, Signed, Webhook};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parity.md");
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// `v1` has `spec.size: "3x4"`, `v2` has `spec.width` and `spec.height`.
fn convert(mut object: Value, wanted: &str) -> Value {
    let spec = object["spec"].clone();
    object["spec"] = if wanted.ends_with("/v1") {
        json!({"size": format!("{}x{}", spec["width"], spec["height"])})
    } else {
        let (width, height) = spec["size"].as_str().and_then(|size| size.split_once('x')).unwrap_or(("0", "0"));
        json!({"width": width.parse::<u64>().unwrap_or(0), "height": height.parse::<u64>().unwrap_or(0)})
    };
    object["apiVersion"] = wanted.into();
    object
}

fn answer(review: &Value) -> Answer {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
    let mut response = json!({"uid": request["uid"], "result": {"status": "Success"}});
    for object in &mut objects {
        *object = convert(object.take(), wanted);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let meta = &mut object["metadata"];
        match name.as_str() {
            "fails" => response["result"] = json!({"status": "Failed", "message": "not this one"}),
            "fails-silently" => response["result"] = json!({}),
            "answers-another" => response["uid"] = "x".into(),
            "renames" => meta["name"] = "other".into(),
            "moves" => meta["namespace"] = "other".into(),
            "changes-uid" => meta["uid"] = "other".into(),
            "changes-kind" => object["kind"] = "Gadget".into(),
            "changes-version" => object["apiVersion"] = "example.com/v9".into(),
            "labels" => meta["labels"] = json!({"by": "webhook"}),
            "labels-badly" => meta["labels"] = json!({"a b": "c"}),
            "annotates-badly" => meta["annotations"] = json!({"a b": "c"}),
            "labels-no-text" => meta["labels"] = json!({"a": true}),
            "labels-no-map" => meta["labels"] = json!(["a"]),
            "no-metadata" => *meta = json!("none"),
            "meddles" => {
                meta["finalizers"] = json!(["example.com/x"]);
                meta["generation"] = 99.into();
            }
            "breaks" => return Answer::Raw(500, "text/plain", b"broken".to_vec()),
            "refuses" => return Answer::Raw(403, "text/plain", b"no".to_vec()),
            _ => {}
        }
    }
    response["convertedObjects"] = match objects.first().map(|object| object["metadata"]["name"] == "loses") {
        Some(true) => json!([]),
        _ => objects.into(),
    };
    Answer::Json(json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}))
}

fn definition(webhook: &Webhook) -> Value {
    let number = json!({"type": "integer"});
    let schema = |properties: Value| {
        let spec = json!({"type": "object", "properties": properties});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.{{run}}.example.com"},
        "spec": {
            "group": "{{run}}.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": webhook.client_config("/convert"),
            }},
            "versions": [
                {"name": "v1", "served": true, "storage": false, "subresources": {"status": {}},
                 "schema": schema(json!({"size": {"type": "string", "pattern": "^[0-9]+x[0-9]+$"}})),
                 "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}]},
                {"name": "v2", "served": true, "storage": true, "subresources": {"status": {}},
                 "schema": schema(json!({"width": number, "height": number, "depth": {"type": "integer", "default": 1}}))},
            ],
        },
    })
}

fn widgets(version: &str) -> String {
    format!("/apis/{{{{run}}}}.example.com/{version}/namespaces/{{{{ns}}}}/widgets")
}

fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{{{{run}}}}.example.com/{version}"), "kind": "Widget",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn scenario(name: &str, webhook: &Webhook, requests: Vec<Request>) -> Scenario {
    let crd = format!("{CRDS}/widgets.{{{{run}}}}.example.com");
    let wait = |path: &str, pointer: &str, value: &str| Step {
        until: Some((pointer.into(), value.into())),
        compared: false,
        ..Step::new(Request::new("GET", path))
    };
    let mut steps = vec![
        Step { compared: false, ..Step::new(Request::json("POST", CRDS, &definition(webhook))) },
        wait(&crd, "/status/conditions/1/type", "Established"),
        wait(&widgets("v1"), "/kind", "WidgetList"),
        wait(&widgets("v2"), "/kind", "WidgetList"),
    ];
    steps.extend(requests.into_iter().map(Step::new));
    steps.push(Step { compared: false, ..Step::new(Request::new("DELETE", crd)) });
    Scenario { name: format!("conversion: {name}"), steps, ..Scenario::default() }
}

fn patch(kind: &str, path: String, body: &Value) -> Request {
    Request::json("PATCH", path, body).header("content-type", &format!("application/{kind}"))
}

fn scenarios(webhook: &Webhook) -> Vec<Scenario> {
    let (v1, v2) = (widgets("v1"), widgets("v2"));
    let apply = |version: &str, name: &str, query: &str, spec: Value| {
        let path = format!("{}/{name}?{query}", widgets(version));
        patch("apply-patch+yaml", path, &widget(version, name, spec))
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let life = vec![
        Request::json("POST", &v1, &widget("v1", "a", json!({"size": "3x4"}))),
        Request::new("GET", format!("{v1}/a")),
        Request::new("GET", format!("{v2}/a")),
        Request::json("POST", &v2, &widget("v2", "b", json!({"width": 1, "height": 2, "unknown": 3}))),
        Request::new("GET", &v1),
        Request::new("GET", &v2),
        Request::new("GET", &v1).header("accept", table),
        Request::json("POST", &v1, &widget("v1", "c", json!({"size": "no"}))),
        Request::json("POST", format!("{v1}?dryRun=All"), &widget("v1", "d", json!({"size": "1x1"}))),
        patch("merge-patch+json", format!("{v1}/a"), &json!({"spec": {"size": "5x6"}})),
        patch("merge-patch+json", format!("{v1}/a"), &json!({"spec": {"size": "5x6"}})),
        patch("json-patch+json", format!("{v1}/b"), &json!([{"op": "replace", "path": "/spec/size", "value": "9x9"}])),
        patch("merge-patch+json", format!("{v1}/a/status"), &json!({"status": {"ready": true}})),
        patch("merge-patch+json", format!("{v2}/a"), &json!({"metadata": {"labels": {"a": "b"}}})),
        Request::new("GET", format!("{v1}?labelSelector=a%3Db")),
        Request::new("GET", format!("{v1}/a")),
        Request::new("DELETE", format!("{v1}/a")),
        Request::new("GET", format!("{v2}/a")),
        Request::new("DELETE", &v1),
    ];
    let appliers = vec![
        apply("v1", "a", "fieldManager=one", json!({"size": "3x4"})),
        apply("v2", "a", "fieldManager=two", json!({"width": 3, "height": 9})),
        apply("v2", "a", "fieldManager=two", json!({"width": 3, "height": 4})),
        apply("v1", "a", "fieldManager=three&force=true", json!({"size": "7x7"})),
        Request::new("GET", format!("{v1}/a")),
        Request::new("GET", format!("{v2}/a")),
        apply("v1", "a", "fieldManager=one", json!({})),
        apply("v1", "a", "fieldManager=three", json!({})),
        Request::new("GET", format!("{v2}/a")),
        patch("merge-patch+json", format!("{v2}/a?fieldManager=four"), &json!({"spec": {"width": 8}})),
        patch("merge-patch+json", format!("{v1}/a?fieldManager=five"), &json!({"spec": {"size": "8x8"}})),
        apply("v2", "a", "fieldManager=two", json!({"height": 4})),
    ];
    let names = [
        "fails",
        "fails-silently",
        "answers-another",
        "renames",
        "moves",
        "changes-uid",
        "changes-kind",
        "changes-version",
        "labels",
        "labels-badly",
        "annotates-badly",
        "labels-no-text",
        "labels-no-map",
        "no-metadata",
        "meddles",
        "breaks",
        "refuses",
        "loses",
    ];
    let wrong = names.into_iter().flat_map(|name| {
        [
            Request::json("POST", &v2, &widget("v2", name, json!({"width": 1, "height": 2}))),
            Request::new("GET", format!("{v1}/{name}")),
            patch("merge-patch+json", format!("{v1}/{name}"), &json!({"spec": {"size": "5x6"}})),
            apply("v1", name, "fieldManager=one", json!({"size": "7x6"})),
            Request::new("GET", format!("{v2}/{name}")),
            Request::new("DELETE", format!("{v1}/{name}")),
            Request::new("DELETE", format!("{v2}/{name}")),
            Request::json("POST", &v1, &widget("v1", name, json!({"size": "1x2"}))),
        ]
    });
    vec![
        scenario("life", webhook, life),
        scenario("appliers", webhook, appliers),
        scenario("wrong", webhook, wrong.collect()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn conversions_are_those_of_a_real_kubernetes() {
    let Some(real) = Cluster::real().await else {
        return skip("conversions_are_those_of_a_real_kubernetes", &format!("{KUBECONFIG} is not set"));
    };
    let ours = Cluster::served().await;
    let webhook = Webhook::start(&["localhost"], Signed::ByAuthority, |_, review| answer(&review)).await;
    let known = Known::parse(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
    let report = compare_all(&real, &ours, scenarios(&webhook), &known).await;
    let (compared, equal, excepted) = report.counts();
    println!("conversion: {compared} requests compared, {equal} equal, {excepted} with known differences only");
    let unknown = report.unknown();
    assert!(unknown.is_empty(), "{} unknown differences:\n{}", unknown.len(), unknown.join("\n"));
    assert!(compared > 100, "only {compared} requests were compared");
}
