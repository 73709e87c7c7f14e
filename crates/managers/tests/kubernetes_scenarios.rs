//! The scenario suite on a real Kubernetes: the same files, ordered writes, its own protection finalizers.
//!
//! PersistentVolumes are bound by us there only because this control plane runs without its own binder.

mod common;

use std::time::{Duration, Instant};

use common::scenario::Scenario;
use common::{Cluster, PATIENCE};
use conductor_claims::lifecycle::{RESOURCE_UID, Target};
use conductor_managers::{Api, Managers, Options, install};
use conductor_testkit::{Plane, skip};
use http::Method;
use serde_json::{Value, json};

/// Everything but the binder of PersistentVolumes.
const CONTROLLERS: &str = "*,-persistentvolume-binder-controller";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_on_a_real_kubernetes() {
    let plane = match Plane::start(CONTROLLERS) {
        Ok(plane) => plane,
        Err(why) => return skip("scenarios_on_a_real_kubernetes", &why),
    };
    let client = plane.cluster().await.client();
    let api = Api::new(client.clone());
    install::install(&api).await.expect("installed");
    let mut count = 0;
    for scenario in Scenario::all() {
        if scenario.admission() == Some(true) {
            println!("left out on a real Kubernetes: {} (it needs our admission)", scenario.name);
            continue;
        }
        let cluster = Cluster::of(client.clone());
        // as `conductor manager --volumes` runs them
        let options = Options { types: true, workers: 4, ..Options::default() };
        let managers: Managers = cluster.managers(options).await;
        assert!(!managers.is_transactional(), "a real Kubernetes has no transactions");
        scenario.run(cluster).await;
        drop(managers);
        sweep(&api).await;
        count += 1;
    }
    println!("{count} scenarios are green on a real Kubernetes");
}

/// Removes what a scenario made, so that the next finds nothing.
async fn sweep(api: &Api) {
    let deadline = Instant::now() + PATIENCE;
    let mut kinds: Vec<(String, String)> = vec![("v1".into(), "Pod".into()), ("v1".into(), "Service".into())];
    let types = api.list("conductor.io/v1alpha1", "ResourceType", "").await.expect("types");
    for kind in &types {
        let version = format!("{}/{}", text(&kind["spec"]["group"]), text(&kind["spec"]["version"]));
        for role in ["claim", "resource", "class"] {
            kinds.push((version.clone(), text(&kind["spec"]["names"][role]).to_owned()));
        }
    }
    for (version, kind) in [
        ("v1", "PersistentVolumeClaim"),
        ("v1", "PersistentVolume"),
        ("storage.k8s.io/v1", "StorageClass"),
        ("database.aws.conductor.io/v1alpha1", "RDSInstance"),
        ("conductor.io/v1alpha1", "VolumeTemplate"),
    ] {
        kinds.push((version.into(), kind.into()));
    }
    loop {
        let mut left = Vec::new();
        for (version, kind) in &kinds {
            let listed = match api.list(version, kind, "").await {
                Err(failure) if failure.code == 404 => continue,
                listed => listed.expect("a list"),
            };
            for object in listed.iter().filter(|o| text(&o["metadata"]["name"]) != "kubernetes") {
                left.push(format!("{kind} {}", text(&object["metadata"]["name"])));
                remove(api, object).await;
            }
        }
        // what was behind resources that were removed by force
        for kind in ["ConfigMap", "Secret"] {
            for object in api.list("v1", kind, RESOURCE_UID).await.expect("a list") {
                left.push(format!("{kind} {}", text(&object["metadata"]["name"])));
                remove(api, &object).await;
            }
        }
        for kind in types.iter().filter(|t| text(&t["spec"]["group"]).ends_with("example.com")) {
            left.extend(
                api.get("conductor.io/v1alpha1", "ResourceType", "", text(&kind["metadata"]["name"]))
                    .await
                    .expect("an answer")
                    .map(|t| t["metadata"]["name"].to_string()),
            );
            remove(api, kind).await;
        }
        for manager in api.list("conductor.io/v1alpha1", "Manager", "").await.expect("managers") {
            // those that come with a type stay with it
            if manager["metadata"]["ownerReferences"].is_null() {
                remove(api, &manager).await;
            }
        }
        let namespaces = api.list("v1", "Namespace", "").await.expect("namespaces");
        for namespace in namespaces.iter().filter(|n| matches!(text(&n["metadata"]["name"]), "apps" | "wordpress")) {
            left.push(format!("Namespace {}", text(&namespace["metadata"]["name"])));
            remove(api, namespace).await;
        }
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "cannot be removed: {left:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Deletes an object at once, without waiting for those who hold it.
async fn remove(api: &Api, object: &Value) {
    let Ok(path) = api.path(&Target::of(object)).await else { return };
    let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    let _ = api.call(Method::DELETE, &path, "application/json", now.to_string().into_bytes()).await;
    if object["metadata"]["finalizers"].is_array() {
        let free = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
        let _ = api.call(Method::PATCH, &path, "application/merge-patch+json", free).await;
    }
}
