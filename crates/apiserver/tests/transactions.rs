//! Transactions: all or nothing, each operation as if it were sent alone.

mod common;

use std::collections::BTreeSet;

use common::Api;
use conductor_apiserver::User;
use serde_json::{Value, json};

const TRANSACTIONS: &str = "/apis/transactions.conductor.io/v1alpha1/transactions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn transaction(operations: Value) -> Value {
    json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": operations}})
}

fn create(name: &str) -> Value {
    json!({"verb": "create", "version": "v1", "resource": "configmaps", "namespace": "default", "object": {"metadata": {"name": name}}})
}

fn patch(name: &str, patch: Value) -> Value {
    json!({"verb": "patch", "version": "v1", "resource": "configmaps", "namespace": "default", "name": name, "patch": patch})
}

#[tokio::test]
async fn it_is_found_by_discovery() {
    let api = Api::new().await;
    let (_, found) = api.get("/apis/transactions.conductor.io/v1alpha1").await;
    assert_eq!(
        (&found["resources"][0]["name"], &found["resources"][0]["verbs"]),
        (&"transactions".into(), &json!(["create"]))
    );
}

#[tokio::test]
async fn all_happens_or_nothing() {
    let api = Api::new().await;
    api.create(MAPS, &json!({"metadata": {"name": "taken"}})).await;
    let (code, status) = api.post(TRANSACTIONS, &transaction(json!([create("a"), create("taken")]))).await;
    assert_eq!((code, &status["reason"]), (409, &"AlreadyExists".into()), "{status}");
    assert!(status["message"].as_str().unwrap().starts_with("operation 1 (create configmaps"), "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.operations[1]");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, 404);
    let (code, done) = api.post(TRANSACTIONS, &transaction(json!([create("a"), create("b")]))).await;
    assert_eq!(code, 201, "{done}");
    let version =
        |at: usize| done["status"]["results"][at]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(version(1), version(0) + 1, "consecutive revisions");
}

#[tokio::test]
async fn operations_on_one_object_make_one_version_of_it() {
    let api = Api::new().await;
    let operations =
        json!([create("a"), patch("a", json!({"data": {"x": "1"}})), patch("a", json!({"data": {"y": "2"}}))]);
    let (code, done) = api.post(TRANSACTIONS, &transaction(operations)).await;
    assert_eq!(code, 201, "{done}");
    let (_, map) = api.get(&format!("{MAPS}/a")).await;
    assert_eq!(map["data"], json!({"x": "1", "y": "2"}));
    assert_eq!(map["metadata"]["resourceVersion"], done["status"]["results"][2]["resourceVersion"]);
}

#[tokio::test]
async fn preconditions_and_checks_hold_at_the_commit() {
    let api = Api::new().await;
    let made = api.create(MAPS, &json!({"metadata": {"name": "a"}})).await;
    let check = |preconditions: Value| json!({"verb": "check", "version": "v1", "resource": "configmaps", "namespace": "default", "name": "a", "preconditions": preconditions});
    for (preconditions, expected) in [
        (json!({"resourceVersion": "1"}), 409),
        (json!({"uid": "nobody"}), 409),
        (json!({"absent": true}), 409),
        (json!({"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}), 201),
    ] {
        let (code, answer) = api
            .post(TRANSACTIONS, &transaction(json!([check(preconditions), patch("a", json!({"data": {"k": "v"}}))])))
            .await;
        assert_eq!(code, expected, "{answer}");
    }
}

#[tokio::test]
async fn each_operation_is_validated_and_authorized_as_if_sent_alone() {
    let api = Api::new().await;
    let (code, status) = api.post(TRANSACTIONS, &transaction(json!([create("ok"), create("Not_A_Name")]))).await;
    assert_eq!((code, status["details"]["causes"][0]["field"].as_str()), (422, Some("metadata.name")), "{status}");
    let (code, _) = api.post(TRANSACTIONS, &transaction(json!([]))).await;
    assert_eq!(code, 422);
    let nobody = Api { user: User::new("nobody", Vec::<String>::new()), ..api.clone() };
    let (code, _) = nobody.post(TRANSACTIONS, &transaction(json!([create("x")]))).await;
    assert_eq!(code, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_transfers_lose_nothing() {
    let api = Api::new().await;
    for name in ["a", "b", "c"] {
        api.create(MAPS, &json!({"metadata": {"name": name}, "data": {"n": "100"}})).await;
    }
    let transfer = |from: &'static str, to: &'static str| {
        let api = api.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while done < 20 {
                let (_, source) = api.get(&format!("{MAPS}/{from}")).await;
                let (_, target) = api.get(&format!("{MAPS}/{to}")).await;
                let n = |map: &Value| map["data"]["n"].as_str().unwrap().parse::<i64>().unwrap();
                let write = |map: &Value, n: i64| {
                    json!({
                        "verb": "patch", "version": "v1", "resource": "configmaps", "namespace": "default",
                        "name": map["metadata"]["name"], "patch": {"data": {"n": n.to_string()}},
                        "preconditions": {"resourceVersion": map["metadata"]["resourceVersion"]},
                    })
                };
                let operations = json!([write(&source, n(&source) - 1), write(&target, n(&target) + 1)]);
                match api.post(TRANSACTIONS, &transaction(operations)).await.0 {
                    201 => done += 1,
                    409 => tokio::task::yield_now().await,
                    other => panic!("a transfer answered {other}"),
                }
            }
        })
    };
    let tasks = [transfer("a", "b"), transfer("b", "c"), transfer("c", "a"), transfer("b", "a")];
    for task in tasks {
        task.await.unwrap();
    }
    let mut sum = 0;
    let mut seen = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let (_, map) = api.get(&format!("{MAPS}/{name}")).await;
        sum += map["data"]["n"].as_str().unwrap().parse::<i64>().unwrap();
        seen.insert(map["metadata"]["resourceVersion"].to_string());
    }
    assert_eq!(sum, 300);
}
