//! The scenario suite on a real Kubernetes: the same files, ordered writes, its own protection finalizers.
//!
//! PersistentVolumes are bound by us there only because this control plane runs without its own binder. On a cluster that somebody gave
//! us, which has one, scenarios with volumes are left out, and nothing is touched that was there before.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::scenario::Scenario;
use common::{Cluster, PATIENCE};
use conductor_claims::lifecycle::{RESOURCE_UID, SYSTEM_NAMESPACE, Target};
use conductor_claims::types::{ResourceType, access, builtin_types, managing};
use conductor_managers::{Api, Managers, Options, install};
use conductor_testkit::{KUBECONFIG, Plane, skip};
use http::Method;
use serde_json::{Value, json};

/// Everything but the binder of PersistentVolumes.
const CONTROLLERS: &str = "*,-persistentvolume-binder-controller";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_on_a_real_kubernetes() {
    let (cluster, plane) = match Plane::start(CONTROLLERS) {
        Ok(plane) => (plane.cluster().await, Some(plane)),
        Err(why) => match conductor_testkit::Cluster::real().await {
            Some(given) => {
                println!("the cluster of {KUBECONFIG} is used: {why}");
                (given, None)
            }
            None => return skip("scenarios_on_a_real_kubernetes", &why),
        },
    };
    let client = cluster.client();
    let api = Api::new(client.clone());
    let given = plane.is_none();
    if given {
        is_free(&api).await;
    }
    let before = there(&api).await;
    install::install(&api).await.expect("installed");
    // as a Deployment's Pods have it: with the rights that come with it, and no more
    let account = cluster.account(SYSTEM_NAMESPACE, install::ACCOUNT).await;
    is_guarded(&api, &account).await;
    let mut count = 0;
    for scenario in Scenario::all() {
        let needs = match scenario.admission() {
            Some(true) => "our admission",
            _ if given && scenario.volumes() => "a control plane that binds no volumes itself",
            _ => "",
        };
        if !needs.is_empty() {
            println!("left out on a real Kubernetes: {} (it needs {needs})", scenario.name);
            continue;
        }
        let cluster = Cluster::of(client.clone());
        for kind in scenario.made_types() {
            // whoever makes a type gives it to the managers
            api.apply(&managing(&kind)).await.expect("a role");
        }
        // as `conductor manager --volumes` runs them
        let options = Options { types: true, volumes: !given, workers: 4, ..Options::default() };
        let managers = Managers::start(account.clone(), options).await.expect("managers");
        assert!(!managers.is_transactional(), "a real Kubernetes has no transactions");
        scenario.run(cluster).await;
        drop(managers);
        sweep(&api, &before).await;
        count += 1;
    }
    if given {
        println!("what Conductor installs stays there");
    }
    println!("{count} scenarios are green on a real Kubernetes");
}

/// All that is to guard a type's claims is there although Kubernetes knows of a new kind only after a while.
async fn is_guarded(api: &Api, account: &kube::Client) {
    let options = Options { types: true, volumes: false, workers: 4, ..Options::default() };
    let _managers = Managers::start(account.clone(), options).await.expect("managers");
    let deadline = Instant::now() + PATIENCE;
    for object in builtin_types().expect("types") {
        for guard in access(&ResourceType::parse(&object).expect("a type")) {
            let (version, kind, name) =
                (text(&guard["apiVersion"]), text(&guard["kind"]), text(&guard["metadata"]["name"]));
            while api.get(version, kind, "", name).await.expect("an answer").is_none() {
                assert!(Instant::now() < deadline, "there is no {kind} {name}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Namespaces that scenarios use.
const NAMESPACES: [&str; 3] = ["apps", "wordpress", "conductor-system"];

/// Kinds of things that a cluster has of its own, and no namespace.
const COMMON: [(&str, &str); 2] = [("v1", "PersistentVolume"), ("storage.k8s.io/v1", "StorageClass")];

/// What is there of these, by uid: somebody else's.
async fn there(api: &Api) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (version, kind) in COMMON {
        let listed = api.list(version, kind, "").await.expect("a list");
        all.extend(listed.iter().map(|object| text(&object["metadata"]["uid"]).to_owned()));
    }
    all
}

/// The kinds of all types there are.
async fn kinds(api: &Api) -> Vec<(String, String)> {
    let types = match api.list("conductor.io/v1alpha1", "ResourceType", "").await {
        Err(failure) if failure.code == 404 => Vec::new(),
        listed => listed.expect("types"),
    };
    let each = types.iter().flat_map(|kind| {
        let version = format!("{}/{}", text(&kind["spec"]["group"]), text(&kind["spec"]["version"]));
        let named = move |role| (version.clone(), text(&kind["spec"]["names"][role]).to_owned());
        ["claim", "resource", "class"].map(named)
    });
    each.collect()
}

/// Sees to it that a cluster which somebody gave us has nothing that scenarios would make, change or remove.
async fn is_free(api: &Api) {
    for name in &NAMESPACES[..2] {
        let namespace = api.get("v1", "Namespace", "", name).await.expect("an answer");
        assert!(namespace.is_none(), "scenarios need a cluster without a namespace {name}");
    }
    for (version, kind) in kinds(api).await {
        let used = api.list(&version, &kind, "").await.is_ok_and(|all| !all.is_empty());
        assert!(!used, "scenarios need a cluster in which nobody uses Conductor: it has a {kind}");
    }
}

/// Removes what a scenario made, so that the next finds nothing; what was there before stays.
async fn sweep(api: &Api, before: &BTreeSet<String>) {
    let deadline = Instant::now() + PATIENCE;
    let mut kinds: Vec<(String, String)> = vec![("v1".into(), "Pod".into()), ("v1".into(), "Service".into())];
    let types = api.list("conductor.io/v1alpha1", "ResourceType", "").await.expect("types");
    kinds.extend(self::kinds(api).await);
    for (version, kind) in [
        ("v1", "PersistentVolumeClaim"),
        COMMON[0],
        COMMON[1],
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
            let ours = |object: &&Value| {
                let meta = &object["metadata"];
                let here = meta["namespace"].as_str().is_none_or(|namespace| NAMESPACES.contains(&namespace));
                here && !before.contains(text(&meta["uid"]))
            };
            for object in listed.iter().filter(ours) {
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
