//! Protection of volumes in use, endpoints of services, the end of events.

use super::client::{Client, at, map};
use serde_json::{Value, json};
use store::{Expect, Op, Transaction};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }})
}

fn pod(name: &str, node: &str, claim: &str) -> Value {
    let mut pod = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}],
    }});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    if !claim.is_empty() {
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    }
    pod
}

fn is_deleting(object: Option<&Value>) -> bool {
    object.is_some_and(|own| own["metadata"].get("deletionTimestamp").is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_stay_while_a_scheduled_pod_names_them() {
    let client = Client::in_memory().await;
    for name in ["used", "waited-for", "free", "finished", "probe"] {
        client.create(CLAIMS, claim(name)).await;
    }
    client.create(PODS, pod("user", "node", "used")).await;
    client.create(PODS, pod("waiting", "", "waited-for")).await;
    client.create(PODS, pod("done", "node", "finished")).await;
    client.merge(&format!("{PODS}/done/status"), json!({"status": {"phase": "Succeeded"}})).await;
    for name in ["used", "waited-for", "free", "finished", "probe"] {
        client.delete(&format!("{CLAIMS}/{name}"), "").await;
    }
    for name in ["waited-for", "free", "probe"] {
        client.gone(&format!("{CLAIMS}/{name}")).await;
    }
    for name in ["used", "finished"] {
        assert!(is_deleting(client.get(&format!("{CLAIMS}/{name}")).await.as_ref()), "{name}");
    }
    for (pod, claim) in [("user", "used"), ("done", "finished")] {
        client.delete(&format!("{PODS}/{pod}?gracePeriodSeconds=0"), "").await;
        client.gone(&format!("{CLAIMS}/{claim}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn protection_survives_a_restart_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).await;
    client.create(CLAIMS, claim("used")).await;
    client.create(PODS, pod("user", "node", "used")).await;
    client.merge(&format!("{CLAIMS}/used"), json!({"metadata": {"finalizers": null}})).await;
    client
        .until(&format!("{CLAIMS}/used"), "protected", |own| own.unwrap()["metadata"].get("finalizers").is_some())
        .await;
    client.delete(&format!("{CLAIMS}/used"), "").await;
    client.close();
    let client = Client::open(dir.path()).await;
    assert!(is_deleting(client.get(&format!("{CLAIMS}/used")).await.as_ref()));
    client.delete(&format!("{PODS}/user?gracePeriodSeconds=0"), "").await;
    client.gone(&format!("{CLAIMS}/used")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_stay_while_they_are_bound() {
    let client = Client::in_memory().await;
    for name in ["bound", "free"] {
        let spec =
            json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        client.create(VOLUMES, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let status = |phase: &str| json!({"status": {"phase": phase}});
    client.merge(&format!("{VOLUMES}/bound/status"), status("Bound")).await;
    for name in ["bound", "free"] {
        client.delete(&format!("{VOLUMES}/{name}"), "").await;
    }
    client.gone(&format!("{VOLUMES}/free")).await;
    assert!(is_deleting(client.get(&format!("{VOLUMES}/bound")).await.as_ref()));
    client.merge(&format!("{VOLUMES}/bound/status"), status("Released")).await;
    client.gone(&format!("{VOLUMES}/bound")).await;
}

async fn slices(client: &Client) -> Vec<Value> {
    client.items(&format!("{SLICES}?labelSelector=kubernetes.io/service-name%3Dweb")).await
}

/// The addresses of the service `web` with their readiness, sorted.
async fn addresses(client: &Client) -> Vec<String> {
    let slices = slices(client).await;
    let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let mut shown: Vec<String> = endpoints
        .map(|own| {
            let ready = if own["conditions"]["ready"] == true { "ready" } else { "not" };
            format!("{} {ready}", own["addresses"][0].as_str().unwrap())
        })
        .collect();
    shown.sort();
    shown
}

async fn wait_for(client: &Client, expected: &[&str]) {
    for _ in 0..1000 {
        if addresses(client).await == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("wanted {expected:?}, there is {:?}", addresses(client).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn services_have_the_endpoints_of_their_pods() {
    let client = Client::in_memory().await;
    client.create("/api/v1/nodes", json!({"metadata": {"name": "node"}})).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}],
    }});
    client.create(SERVICES, service).await;
    for name in ["one", "two"] {
        client.create(PODS, pod(name, "node", "")).await;
    }
    let status = |address: &str, ready: &str| {
        json!({"status": {
            "podIP": address, "podIPs": [{"ip": address}], "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
        }})
    };
    client.merge(&format!("{PODS}/one/status"), status("10.9.0.1", "True")).await;
    client.merge(&format!("{PODS}/two/status"), status("10.9.0.2", "False")).await;
    wait_for(&client, &["10.9.0.1 ready", "10.9.0.2 not"]).await;
    let made = slices(&client).await;
    assert_eq!(made.len(), 1, "{made:#?}");
    assert_eq!(made[0]["ports"][0]["port"], 8080);
    client
        .until("/api/v1/namespaces/default/endpoints/web", "right", |own| {
            own.is_some_and(|own| {
                own["subsets"][0]["addresses"][0]["ip"] == "10.9.0.1"
                    && own["subsets"][0]["notReadyAddresses"][0]["ip"] == "10.9.0.2"
            })
        })
        .await;
    // Readiness, labels, deletion, a missing slice.
    client.merge(&format!("{PODS}/two/status"), status("10.9.0.2", "True")).await;
    wait_for(&client, &["10.9.0.1 ready", "10.9.0.2 ready"]).await;
    client.merge(&format!("{PODS}/one"), json!({"metadata": {"labels": {"app": "other"}}})).await;
    wait_for(&client, &["10.9.0.2 ready"]).await;
    client.delete(&format!("{SLICES}/{}", made[0]["metadata"]["name"].as_str().unwrap()), "").await;
    wait_for(&client, &["10.9.0.2 ready"]).await;
    client.merge(&format!("{PODS}/one"), json!({"metadata": {"labels": {"app": "web"}}})).await;
    wait_for(&client, &["10.9.0.1 ready", "10.9.0.2 ready"]).await;
    // What is irrelevant changes nothing.
    let before = slices(&client).await;
    client.merge(&format!("{PODS}/one"), json!({"metadata": {"annotations": {"a": "b"}}})).await;
    client.delete(&format!("{PODS}/two?gracePeriodSeconds=0"), "").await;
    wait_for(&client, &["10.9.0.1 ready"]).await;
    let generation = |slices: &[Value]| slices[0]["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(generation(&slices(&client).await), generation(&before) + 1);
    // Everything goes with the service.
    client.delete(&format!("{SERVICES}/web"), "").await;
    client.gone("/api/v1/namespaces/default/endpoints/web").await;
    for slice in slices(&client).await {
        client.gone(&format!("{SLICES}/{}", slice["metadata"]["name"].as_str().unwrap())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_end_after_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).await;
    let event = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "default"}, "reason": "R", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "x"}})
    };
    client.create(EVENTS, event("young")).await;
    // As it would have been written an hour and a half ago.
    let mut old = client.create(EVENTS, event("old")).await;
    old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    old["lastTimestamp"] = "2020-01-01T00:00:00Z".into();
    old["metadata"]["resourceVersion"] = "".into();
    let text = old.to_string();
    let revision_at = text.find(r#""resourceVersion":""#).map(|at| at + r#""resourceVersion":""#.len());
    let value = store::Value { bytes: text.into_bytes(), revision_at };
    let op = Op::put("core/events", "default/old", value, Expect::Exists);
    client.0.store().commit(Transaction::from(op)).await.unwrap();
    client.gone(&format!("{EVENTS}/old")).await;
    assert!(client.get(&format!("{EVENTS}/young")).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_never_take_more_than_fits() {
    let client = Client::in_memory().await;
    let filler = "x".repeat(400_000);
    for at in 0..50 {
        let second = format!("2026-01-01T00:00:{at:02}Z");
        client
            .create(
                EVENTS,
                json!({"metadata": {"name": format!("e{at:02}"), "namespace": "default"}, "reason": "R",
                "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "x"},
                "message": filler, "lastTimestamp": second, "type": "Normal"}),
            )
            .await;
    }
    // 20 MB of 16 MiB: the first go, the last stay.
    client.gone(&format!("{EVENTS}/e00")).await;
    for _ in 0..1000 {
        if client.items(EVENTS).await.len() == 41 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(client.items(EVENTS).await.len(), 41);
    assert!(client.get(&format!("{EVENTS}/e49")).await.is_some());
    client.create(super::client::MAPS, map("unrelated", &[])).await;
    assert!(client.get(&at("unrelated")).await.is_some());
}
