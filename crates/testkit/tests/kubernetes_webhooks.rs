//! Admission webhooks: the same requests to a real Kubernetes and to ours, and one webhook for both. What it answers stands in
//! the ConfigMap that it is asked about.

#[path = "../../apiserver/tests/webhook_server/mod.rs"]
mod webhook_server;

use conductor_testkit::parity::{Known, Scenario, Step, compare_all};
use conductor_testkit::{Cluster, KUBECONFIG, Request, skip};
use serde_json::{Value, json};
use webhook_server::{Answer, Signed, Webhook};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parity.md");
const CONFIG_MAPS: &str = "/api/v1/namespaces/{{ns}}/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The answer that an object asks for; `review` in it stands for the whole review.
fn answer(review: &Value) -> Answer {
    let request = &review["request"];
    let asked = request["object"]["data"]["answer"].as_str().and_then(|text| serde_json::from_str(text).ok());
    let mut response: Value = asked.unwrap_or_else(|| json!({"allowed": true}));
    if let Some(whole) = response.get("review") {
        return Answer::Json(whole.clone());
    }
    if response.get("uid").is_none() {
        response["uid"] = request["uid"].clone();
    }
    Answer::Json(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
}

fn configuration(kind: &str, webhook: &Webhook) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "{{run}}"},
        "webhooks": [{
            "name": "hook.example.com", "clientConfig": webhook.client_config("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{{ns}}"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }],
    })
}

/// A scenario that creates one ConfigMap for each answer.
fn scenario(kind: &str, webhook: &Webhook, answers: Vec<Value>) -> Scenario {
    let path = format!("{GROUP}/{}s", kind.to_lowercase());
    let object = |answer: &Value| json!({"metadata": {"name": "a"}, "data": {"answer": answer.to_string()}});
    let create = |answer: &Value| Request::json("POST", format!("{CONFIG_MAPS}?dryRun=All"), &object(answer));
    let quietly = |request: Request| Step { compared: false, ..Step::new(request) };
    let probe = json!({"allowed": false, "status": {"reason": "NotYet", "code": 400, "message": "x"}});
    let mut steps = vec![
        quietly(Request::json("POST", &path, &configuration(kind, webhook))),
        Step { until: Some(("/code".into(), "400".into())), ..quietly(create(&probe)) },
    ];
    steps.extend(answers.iter().map(|answer| Step::new(create(answer))));
    steps.push(quietly(Request::new("DELETE", format!("{path}/{{{{run}}}}"))));
    Scenario { name: format!("webhooks: {kind}"), steps, ..Scenario::default() }
}

fn scenarios(webhook: &Webhook) -> Vec<Scenario> {
    let denied = |status: Value| json!({"allowed": false, "status": status});
    let refusals = [
        json!({"allowed": false}),
        json!({}),
        json!({"allowed": false, "warnings": ["one", "two"]}),
        denied(json!({})),
        denied(json!({"message": "m"})),
        denied(json!({"reason": "NotFound"})),
        denied(json!({"reason": "NotFound", "code": 404})),
        denied(json!({"reason": "Peculiar", "message": "m", "code": 418})),
        denied(json!({"status": "Success", "message": "m", "code": 200})),
        denied(json!({"code": 399})),
        denied(json!({"code": 599, "message": "m"})),
        denied(json!({"code": 422, "details": {}})),
        denied(json!({"code": 422, "reason": "Invalid", "details": {
            "name": "n", "group": "g", "kind": "k", "uid": "u",
            "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "f"}, {"message": "only"}],
        }})),
        denied(json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 7}})),
        denied(json!({"code": 429, "details": {"retryAfterSeconds": 0}})),
        json!({"allowed": true, "warnings": ["one"]}),
        json!({"allowed": true, "status": {"message": "unheard", "code": 500}}),
        json!({"allowed": true, "uid": "other"}),
        json!({"review": {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}}),
        json!({"review": {"apiVersion": "admission.k8s.io/v1", "kind": "Other", "response": {}}}),
        json!({"review": {"kind": "AdmissionReview", "response": {}}}),
    ];
    let patch =
        |operations: Value| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, operations.to_string());
    let labels = patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]));
    let patches = [
        json!({"allowed": true, "patchType": "JSONPatch", "patch": labels}),
        json!({"allowed": true, "patch": labels}),
        json!({"allowed": true, "patchType": "JSONPatch"}),
        json!({"allowed": true, "patchType": "", "patch": labels}),
        json!({"allowed": true, "patchType": "Other", "patch": labels}),
        json!({"allowed": false, "patchType": "JSONPatch", "patch": labels}),
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(json!([]))}),
        json!({"allowed": true, "patchType": "JSONPatch",
            "patch": patch(json!([{"op": "test", "path": "/data/x", "value": "y"}]))}),
        json!({"allowed": true, "patchType": "JSONPatch",
            "patch": patch(json!([{"op": "add", "path": "/metadata/name", "value": "other"}]))}),
        json!({"allowed": true, "patchType": "JSONPatch",
            "patch": patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}}]))}),
        json!({"allowed": true, "patchType": "JSONPatch",
            "patch": patch(json!([{"op": "add", "path": "/metadata/uid", "value": "mine"}]))}),
    ];
    let all: Vec<Value> = refusals.into_iter().chain(patches).collect();
    vec![
        scenario("ValidatingWebhookConfiguration", webhook, all.clone()),
        scenario("MutatingWebhookConfiguration", webhook, all),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_webhooks_say_reaches_clients_as_from_a_real_kubernetes() {
    let Some(real) = Cluster::real().await else {
        return skip(
            "what_webhooks_say_reaches_clients_as_from_a_real_kubernetes",
            &format!("{KUBECONFIG} is not set"),
        );
    };
    let ours = Cluster::served().await;
    let webhook = Webhook::start(&["localhost"], Signed::ByAuthority, |_, review| answer(&review)).await;
    let known = Known::parse(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
    let report = compare_all(&real, &ours, scenarios(&webhook), &known).await;
    let (compared, equal, excepted) = report.counts();
    println!("webhooks: {compared} requests compared, {equal} equal, {excepted} with known differences only");
    let unknown = report.unknown();
    assert!(unknown.is_empty(), "{} unknown differences:\n{}", unknown.len(), unknown.join("\n"));
    assert!(compared > 60, "only {compared} requests were compared");
}
