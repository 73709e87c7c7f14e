//! Faults of a real Kubernetes: its API server is killed and started again, etcd is away for a while, managers are killed. At the
//! end every claim is Bound, every invariant holds, and nothing was made twice.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Cluster;
use conductor_managers::{Api, Options, inspect, install};
use conductor_testkit::{Component, Plane, skip};
use http::Method;
use serde_json::{Value, json};

const CONTROLLERS: &str = "*,-persistentvolume-binder-controller";
const DATABASES: &str = "storage.conductor.io/v1alpha1";
const RDS: &str = "database.aws.conductor.io/v1alpha1";
/// How long etcd is away: longer than anybody waits for an answer, or goes on trying in one go.
const AWAY: Duration = Duration::from_secs(60);
/// How long a control plane may take to be itself again.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says Ready on what was made, as its provider would; whatever fails is tried again.
async fn provider(api: Api) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Ok(list) = api.list(RDS, "RDSInstance", "").await else { continue };
        for object in list.iter().filter(|o| o["status"].is_null()) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("/apis/{RDS}/namespaces/conductor-system/rdsinstances/{name}/status");
            let ready =
                json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]}});
            let body = ready.to_string().into_bytes();
            let _ = api.call(Method::PATCH, &path, "application/merge-patch+json", body).await;
        }
    }
}

/// Waits until the server answers with success.
async fn ready(api: &Api) {
    let deadline = Instant::now() + PATIENCE;
    while api.call_bytes(Method::GET, "/readyz", "application/json", Vec::new()).await.is_err() {
        assert!(Instant::now() < deadline, "the control plane does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn claims(cluster: &Cluster, from: usize) {
    for i in from..from + 4 {
        cluster
            .create(&json!({
                "apiVersion": DATABASES, "kind": "RelationalDatabaseClaim",
                "metadata": {"name": format!("c{i}"), "namespace": "apps"},
                "spec": {"engine": "mysql", "class": "slow", "resources": {"requests": {"storage": "1Gi"}}},
            }))
            .await;
        cluster.create(&common::volume(&format!("v{i}"), "10Gi", "")).await;
        cluster.create(&common::volume_claim("apps", &format!("c{i}"), "5Gi", "")).await;
    }
}

/// What is not as it must be in the end; empty: all is well.
async fn wrong(api: &Api, count: usize) -> Result<String, conductor_managers::Failure> {
    let mut wrong = String::new();
    for (version, kind) in [(DATABASES, "RelationalDatabaseClaim"), ("v1", "PersistentVolumeClaim")] {
        let all = api.list(version, kind, "").await?;
        let bound = |c: &&Value| c["status"]["phase"] == "Bound";
        if all.len() != count || all.iter().filter(bound).count() != count {
            let states: Vec<String> =
                all.iter().map(|c| format!("{}: {}", c["metadata"]["name"], c["status"])).collect();
            wrong += &format!("{kind}: {}\n", states.join(", "));
        }
    }
    let made = api.list(RDS, "RDSInstance", "").await?.len();
    if made != count {
        wrong += &format!("{made} databases were made for {count} claims\n");
    }
    for finding in inspect::audit(api).await?.findings {
        wrong += &format!("{}: {}\n", finding.object, finding.message);
    }
    Ok(wrong)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_fails_costs_nothing() {
    let plane = match Plane::start(CONTROLLERS) {
        Ok(plane) => plane,
        Err(why) => return skip("a_control_plane_that_fails_costs_nothing", &why),
    };
    let cluster = Arc::new(Cluster::of(plane.cluster().await.client()));
    let api = &cluster.api;
    install::install(api).await.expect("installed");
    let options = Options { workers: 4, ..Options::default() };
    let managers = cluster.managers(options.clone()).await;
    cluster.namespace("apps").await;
    cluster
        .create(&json!({
            "apiVersion": DATABASES, "kind": "RelationalDatabaseClass", "metadata": {"name": "slow"}, "reclaimPolicy": "Delete",
            "template": {"apiVersion": RDS, "kind": "RDSInstance", "spec": {"class": "${claim.metadata.name}"}},
        }))
        .await;
    let playing = tokio::spawn(provider(api.clone()));
    claims(&cluster, 0).await;
    plane.kill(Component::Apiserver);
    tokio::time::sleep(Duration::from_secs(1)).await;
    plane.revive(Component::Apiserver);
    ready(api).await;
    claims(&cluster, 4).await;
    plane.kill(Component::Etcd);
    tokio::time::sleep(AWAY).await;
    plane.revive(Component::Etcd);
    ready(api).await;
    claims(&cluster, 8).await;
    // in the middle of it all
    drop(managers);
    let _managers = cluster.managers(options).await;
    claims(&cluster, 12).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match wrong(api, 16).await {
            Ok(wrong) if wrong.is_empty() => break,
            wrong => assert!(Instant::now() < deadline, "{wrong:?}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!(
        "kube-apiserver killed, etcd away, managers killed: 32 claims bound, 16 databases made, every invariant holds"
    );
    playing.abort();
}
