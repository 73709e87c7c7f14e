//! PersistentVolumes end to end, on the embedded server, with both transports.

mod common;

use common::{Cluster, phase_is, pv, pvc, volume, volume_claim};
use conductor_managers::Options;
use conductor_managers::inspect::{Finding, audit};
use serde_json::{Value, json};

async fn check_a_life(ordered: bool) {
    let cluster = Cluster::start(false).await;
    cluster.namespace("apps").await;
    let managers = cluster.managers(Options { types: false, ordered, ..Options::default() }).await;
    assert_eq!(managers.is_transactional(), !ordered);
    cluster.create(&volume("small", "5Gi", "")).await;
    cluster.create(&volume("large", "50Gi", "")).await;
    cluster.create(&volume_claim("apps", "data", "10Gi", "")).await;
    let bound = cluster.until(&pvc("apps", "data"), "bound", phase_is("Bound")).await.expect("a claim");
    assert_eq!(bound["spec"]["volumeName"], "large");
    assert_eq!(bound["status"]["capacity"]["storage"], "50Gi");
    cluster.until(&pv("large"), "bound", phase_is("Bound")).await;
    // a claim that nothing satisfies says why, and is woken by what does
    cluster.create(&volume_claim("apps", "big", "100Gi", "")).await;
    let said = |o: Option<&serde_json::Value>| {
        o.is_some_and(|o| o["status"]["conditions"][0]["message"].as_str().is_some_and(|m| m.contains("too small")))
    };
    cluster.until(&pvc("apps", "big"), "says why it waits", said).await;
    cluster.create(&volume("huge", "200Gi", "")).await;
    cluster.until(&pvc("apps", "big"), "woken", phase_is("Bound")).await;
    // released and retained
    cluster.delete(&pvc("apps", "data")).await;
    cluster.until(&pvc("apps", "data"), "gone", |o| o.is_none()).await;
    cluster.until(&pv("large"), "released", phase_is("Released")).await;
    // a volume removed by force loses its claim; one of that name heals it
    cluster.delete(&pv("huge")).await;
    cluster.patch(&pv("huge"), json!({"metadata": {"finalizers": []}})).await;
    cluster.until(&pvc("apps", "big"), "lost", phase_is("Lost")).await;
    cluster.create(&volume("huge", "200Gi", "")).await;
    cluster.until(&pvc("apps", "big"), "healed", phase_is("Bound")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_in_transactions() {
    check_a_life(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_in_ordered_writes() {
    check_a_life(true).await;
}

const RDS: &str = "database.aws.conductor.io/v1alpha1";

/// From class to volume to nothing: made once, reserved for its claim, removed with it.
async fn check_made(ordered: bool) {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options { ordered, ..Options::default() }).await;
    cluster
        .create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "nfs"},
            "provisioner": "volume.conductor.io", "reclaimPolicy": "Delete", "parameters": {"template": "nfs"},
        }))
        .await;
    cluster
        .create(&json!({
            "apiVersion": "conductor.io/v1alpha1", "kind": "VolumeTemplate", "metadata": {"name": "nfs"},
            "spec": {
                "template": {"apiVersion": RDS, "kind": "RDSInstance", "spec": {"storage": "${claim.spec.resources.requests.storage}"}},
                "volume": {"nfs": {"server": "${implementation.status.host}", "path": "/${claim.metadata.name}"}},
            },
        }))
        .await;
    let claim = cluster.create(&volume_claim("apps", "data", "5Gi", "nfs")).await;
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
    let behind = common::target(RDS, "RDSInstance", "conductor-system", &name);
    let made = cluster.until(&behind, "made", |o| o.is_some()).await.expect("an implementation");
    assert_eq!(made["spec"]["storage"], "5Gi");
    let ready = json!({"host": "nfs.example.com", "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]});
    cluster.patch(&behind.clone().status(), json!({"status": ready})).await;
    cluster.until(&pvc("apps", "data"), "bound", phase_is("Bound")).await;
    let volume = cluster.until(&pv(&name), "bound", phase_is("Bound")).await.expect("a volume");
    assert_eq!(volume["spec"]["nfs"], json!({"server": "nfs.example.com", "path": "/data"}));
    // one whose volume somebody removes by force is left over, and is found
    let forced = cluster.create(&volume_claim("apps", "forced", "5Gi", "nfs")).await;
    let forced = format!("pvc-{}", forced["metadata"]["uid"].as_str().expect("a uid"));
    let left = common::target(RDS, "RDSInstance", "conductor-system", &forced);
    cluster.until(&left, "made", |o| o.is_some()).await;
    cluster.patch(&left.clone().status(), json!({"status": ready})).await;
    cluster.until(&pvc("apps", "forced"), "bound", phase_is("Bound")).await;
    assert!(audit(&cluster.api).await.expect("an audit").findings.is_empty());
    cluster.delete(&pv(&forced)).await;
    cluster.patch(&pv(&forced), json!({"metadata": {"finalizers": null}})).await;
    cluster.until(&pv(&forced), "gone", |o| o.is_none()).await;
    cluster.delete(&pvc("apps", "forced")).await;
    cluster.until(&pvc("apps", "forced"), "gone", |o| o.is_none()).await;
    let found = audit(&cluster.api).await.expect("an audit").findings;
    let named = |f: &Finding| f.object == format!("RDSInstance {forced}") && f.message.contains("stays with its data");
    assert!(found.len() == 1 && named(&found[0]), "{:?}", found.iter().map(|f| &f.message).collect::<Vec<_>>());
    cluster.delete(&left).await;
    // a claim that goes before its volume is there leaves nothing behind
    let early = cluster.create(&volume_claim("apps", "early", "5Gi", "nfs")).await;
    let early = format!("pvc-{}", early["metadata"]["uid"].as_str().expect("a uid"));
    let early = common::target(RDS, "RDSInstance", "conductor-system", &early);
    cluster.until(&early, "made", |o| o.is_some()).await;
    let lacks = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "NoRoom", "message": "no room"}]});
    cluster.patch(&early.clone().status(), json!({"status": lacks})).await;
    let told = |o: Option<&Value>| o.is_some_and(|o| o["status"]["conditions"].to_string().contains("no room"));
    cluster.until(&pvc("apps", "early"), "told why it waits", told).await;
    cluster.delete(&pvc("apps", "early")).await;
    cluster.until(&early, "removed with its claim", |o| o.is_none()).await;
    // one that cannot be read says so
    cluster.create(&volume_claim("apps", "vast", "1e30", "nfs")).await;
    let told = |o: Option<&Value>| o.is_some_and(|o| o["status"]["conditions"].to_string().contains("too large"));
    cluster.until(&pvc("apps", "vast"), "told what is wrong", told).await;
    // it says nothing of devices: it makes none
    let mut block = volume_claim("apps", "block", "5Gi", "nfs");
    block["spec"]["volumeMode"] = json!("Block");
    cluster.create(&block).await;
    let said = |object: Option<&Value>| {
        object.is_some_and(|o| o["status"]["conditions"].to_string().contains("of mode Filesystem, asked Block"))
    };
    cluster.until(&pvc("apps", "block"), "told why it waits", said).await;
    cluster.delete(&pvc("apps", "data")).await;
    cluster.until(&pv(&name), "removed with its claim", |o| o.is_none()).await;
    cluster.until(&behind, "removed with its volume", |o| o.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_of_ours_makes_a_volume() {
    check_made(false).await;
    check_made(true).await;
}
