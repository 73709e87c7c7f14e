//! What nodes may do: what their Pods need, and nothing of others.

mod access_support;

use std::sync::Arc;

use access_support::{World, user};
use conductor_apiserver::User;
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/a/secrets";
const PODS: &str = "/api/v1/namespaces/a/pods";

fn node(name: &str) -> Arc<User> {
    user(&format!("system:node:{name}"), &["system:nodes"])
}

fn pod(name: &str, node: &str, volumes: Value) -> Value {
    let containers = json!([{"name": "c", "image": "i"}]);
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers, "volumes": volumes}})
}

async fn code(world: &World, node: &Arc<User>, method: &str, path: &str) -> u16 {
    world.send(node, method, path, &Value::Null).await.0
}

async fn world() -> World {
    let world = World::new().await;
    world.namespace("a").await;
    for name in ["used", "staged", "unused"] {
        world.make(SECRETS, json!({"metadata": {"name": name}})).await;
    }
    world
}

#[tokio::test]
async fn a_node_reads_what_its_pods_use_for_as_long_as_they_are_there() {
    let world = world().await;
    let (one, two) = (node("one"), node("two"));
    let used = format!("{SECRETS}/used");
    assert_eq!(code(&world, &one, "GET", &used).await, 403, "before there is a Pod");
    let volumes = json!([{"name": "s", "secret": {"secretName": "used"}}]);
    world.make(PODS, pod("p", "one", volumes.clone())).await;
    assert_eq!(code(&world, &one, "GET", &used).await, 200);
    assert_eq!(code(&world, &one, "GET", &format!("{SECRETS}/unused")).await, 403);
    assert_eq!(code(&world, &one, "GET", SECRETS).await, 403);
    assert_eq!(code(&world, &one, "DELETE", &used).await, 403);
    assert_eq!(code(&world, &two, "GET", &used).await, 403);
    assert_eq!(
        code(&world, &user("system:node:one", &[]), "GET", &used).await,
        403,
        "who is not among the nodes is none"
    );
    // A node cannot give itself more by what it says it runs.
    let mut mirror = pod("m", "two", volumes);
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    assert_eq!(world.send(&two, "POST", PODS, &mirror).await.0, 403);
    let (code_of_delete, _) = world.admin("DELETE", &format!("{PODS}/p"), &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(code_of_delete, 200);
    assert_eq!(code(&world, &one, "GET", &used).await, 403, "after it is gone");
}

#[tokio::test]
async fn a_node_reads_the_secrets_of_volumes_behind_its_pods_claims() {
    let world = world().await;
    let one = node("one");
    let secret = json!({"namespace": "a", "name": "staged"});
    let csi = json!({"driver": "d.example.com", "volumeHandle": "h", "nodeStageSecretRef": secret});
    let claim = json!({"namespace": "a", "name": "claim"});
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim, "csi": csi,
        "persistentVolumeReclaimPolicy": "Retain",
    });
    world.make("/api/v1/persistentvolumes", json!({"metadata": {"name": "v"}, "spec": spec})).await;
    let staged = format!("{SECRETS}/staged");
    assert_eq!(code(&world, &one, "GET", &staged).await, 403);
    assert_eq!(code(&world, &one, "GET", "/api/v1/persistentvolumes/v").await, 403);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
    world.make(PODS, pod("p", "one", volumes)).await;
    assert_eq!(code(&world, &one, "GET", &staged).await, 200);
    assert_eq!(code(&world, &one, "GET", "/api/v1/persistentvolumes/v").await, 200);
    // Another claim, and it is no longer the node's.
    let other = json!({"spec": {"claimRef": {"namespace": "a", "name": "other"}}});
    assert_eq!(world.admin("PATCH", "/api/v1/persistentvolumes/v", &other).await.0, 200);
    assert_eq!(code(&world, &one, "GET", &staged).await, 403);
}

#[tokio::test]
async fn a_node_writes_about_itself_and_its_pods() {
    let world = world().await;
    let one = node("one");
    let named = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let nodes = "/api/v1/nodes";
    assert_eq!(world.send(&one, "POST", nodes, &named("two", json!({}))).await.0, 403);
    assert_eq!(world.send(&one, "POST", nodes, &named("one", json!({"kubernetes.io/role": "x"}))).await.0, 403);
    assert_eq!(world.send(&one, "POST", nodes, &named("one", json!({"kubernetes.io/os": "x"}))).await.0, 201);
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    assert_eq!(world.send(&one, "PATCH", "/api/v1/nodes/one", &taints).await.0, 403);
    let status = json!({"status": {"phase": "Running"}});
    for (name, at, expected) in [("mine", "one", 200), ("other", "two", 403)] {
        world.make(PODS, pod(name, at, json!([]))).await;
        assert_eq!(world.send(&one, "PATCH", &format!("{PODS}/{name}/status"), &status).await.0, expected, "{name}");
        assert_eq!(code(&world, &one, "DELETE", &format!("{PODS}/{name}?dryRun=All")).await, expected, "{name}");
    }
    let bound = |name: &str, uid: &Value| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}});
    let tokens = "/api/v1/namespaces/a/serviceaccounts/default/token";
    for (name, expected) in [("mine", 201), ("other", 403)] {
        let uid = world.admin("GET", &format!("{PODS}/{name}"), &Value::Null).await.1["metadata"]["uid"].clone();
        let (code, answer) = world.send(&one, "POST", tokens, &bound(name, &uid)).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
}

#[tokio::test]
async fn a_node_gets_tokens_for_those_whom_the_volumes_of_its_pods_name() {
    let world = world().await;
    let one = node("one");
    let driver = json!({"metadata": {"name": "d.example.com"}, "spec": {"tokenRequests": [{"audience": "vault"}]}});
    world.make("/apis/storage.k8s.io/v1/csidrivers", driver).await;
    let sources = json!([{"serviceAccountToken": {"path": "t", "audience": "shop"}}]);
    let nothing = json!({"name": "n", "csi": {"driver": "none.example.com"}});
    let unbound = json!({"name": "u", "persistentVolumeClaim": {"claimName": "none"}});
    let volumes = json!([unbound, nothing, {"name": "d", "csi": {"driver": "d.example.com"}}, {"name": "p", "projected": {"sources": sources}}]);
    world.make(PODS, pod("broken", "one", volumes)).await;
    world.make(PODS, pod("plain", "one", json!([{"name": "d", "csi": {"driver": "d.example.com"}}]))).await;
    let missing = "error validating audience \"other\": [persistentvolumeclaim \"none\" not found, csidriver.storage.k8s.io \"none.example.com\" not found]";
    let stranger = "audience \"other\" not found in pod spec volume, system:node:one is not authorized to request tokens for this audience";
    let tokens = "/api/v1/namespaces/a/serviceaccounts/default/token";
    for (name, audience, expected) in [
        ("broken", "vault", None),
        ("broken", "shop", None),
        ("broken", "other", Some(missing)),
        ("plain", "vault", None),
        ("plain", "other", Some(stranger)),
    ] {
        let uid = world.admin("GET", &format!("{PODS}/{name}"), &Value::Null).await.1["metadata"]["uid"].clone();
        let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        let asked = json!({"spec": {"audiences": [audience], "boundObjectRef": reference}});
        let (code, answer) = world.send(&one, "POST", tokens, &asked).await;
        assert_eq!(code, if expected.is_some() { 403 } else { 201 }, "{name} {audience}: {answer}");
        let said = answer["message"].as_str().unwrap_or_default();
        assert!(said.ends_with(expected.unwrap_or_default()), "{name} {audience}: {said}");
    }
}
