//! `conductor manager` as a program beside a real Kubernetes: it installs what it needs and binds claims; PersistentVolumes are left
//! to Kubernetes' own binder, and its webhook refuses what the embedded server refuses.

#[path = "../../managers/tests/common/mod.rs"]
mod managers;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use conductor_claims::lifecycle::Target;
use conductor_claims::types::read_yaml;
use conductor_testkit::{Plane, skip};
use managers::scenario::Scenario;
use managers::{Cluster, phase_is, target};
use serde_json::{Value, json};

const DATABASES: &str = "storage.conductor.io/v1alpha1";

/// The program, for as long as this lives. It ends as a crash would end it.
struct Program(Child);

impl Program {
    fn start(kubeconfig: &Path, log: &Path) -> Program {
        let log = std::fs::File::create(log).expect("makes a log");
        let child = Command::new(env!("CARGO_BIN_EXE_conductor"))
            .args(["manager", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--webhook", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Program(child.expect("starts"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn claim(name: &str) -> (Target, Value) {
    let object = json!({"apiVersion": DATABASES, "kind": "RelationalDatabaseClaim",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"engine": "mysql", "version": ">= 5.6"}});
    (target(DATABASES, "RelationalDatabaseClaim", "default", name), object)
}

fn database(name: &str) -> Value {
    json!({"apiVersion": DATABASES, "kind": "RelationalDatabase", "metadata": {"name": name},
        "spec": {"engine": "mysql", "version": "8.0", "capacity": {"storage": "10Gi"}, "reclaimPolicy": "Retain"}})
}

/// What a kind of writers owns of an object.
fn owned(object: &Value, writer: &str) -> String {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of = entries.filter(|entry| entry["manager"].as_str().is_some_and(|manager| manager.starts_with(writer)));
    of.map(|entry| entry["fieldsV1"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manager_runs_beside_a_real_kubernetes() {
    let plane = match Plane::start("*") {
        Ok(plane) => plane,
        Err(why) => return skip("the_manager_runs_beside_a_real_kubernetes", &why),
    };
    let directory = tempfile::tempdir().expect("makes a directory");
    let log = directory.path().join("log");
    let cluster = Cluster::of(plane.cluster().await.client());
    // What an administrator applies for a Deployment is what Kubernetes takes; the program here plays its Pod.
    let printed = Command::new(env!("CARGO_BIN_EXE_conductor")).args(["install", "--image", "conductor:test"]).output();
    let printed = String::from_utf8(printed.expect("prints").stdout).expect("is text");
    let objects: Vec<Value> = printed.split("---\n").skip(1).map(|text| read_yaml(text).expect("is YAML")).collect();
    assert!(objects.iter().any(|object| object["kind"] == "Deployment"));
    for object in objects.iter().filter(|object| object["apiVersion"] != "conductor.io/v1alpha1") {
        cluster.api.apply(object).await.unwrap_or_else(|failure| panic!("{failure}: {object}"));
    }
    let manager = Program::start(&plane.kubeconfig(), &log);
    let claims = "relationaldatabaseclaims.storage.conductor.io";
    let definition = target("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", claims);
    let is_established = |definition: Option<&Value>| {
        let conditions = definition.and_then(|definition| definition["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
    };
    cluster.until(&definition, "defined by the manager", is_established).await;

    cluster.create(&database("one")).await;
    let (first, object) = claim("first");
    cluster.create(&object).await;
    cluster.until(&first, "bound", phase_is("Bound")).await;

    cluster
        .create(&json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/disk"},
            "persistentVolumeReclaimPolicy": "Retain"}}))
        .await;
    cluster
        .create(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}}))
        .await;
    for at in [target("v1", "PersistentVolumeClaim", "default", "disk"), target("v1", "PersistentVolume", "", "disk")] {
        let object = cluster.until(&at, "bound", phase_is("Bound")).await.expect("is there");
        let (theirs, ours) = (owned(&object, "kube-controller-manager"), owned(&object, "conductor"));
        assert!(theirs.contains("f:phase"), "{object}");
        // what made the object here is ours, too
        assert!(!["f:phase", "f:volumeName", "f:claimRef"].iter().any(|field| ours.contains(field)), "{object}");
    }

    // The next one takes over from a manager that was killed, and does what has been waiting.
    drop(manager);
    cluster.create(&database("two")).await;
    let (second, object) = claim("second");
    cluster.create(&object).await;
    let _manager = Program::start(&plane.kubeconfig(), &log);
    cluster.until(&second, "bound", phase_is("Bound")).await;
    let first = cluster.get(&first).await.expect("is there");
    assert_eq!(first["status"]["phase"], "Bound", "{first}");
    assert!(owned(&first, "conductor").contains("f:phase"), "{first}");

    // What cannot be is refused by its webhook, in the same words as on the embedded server.
    let refusals = Scenario::all().into_iter().find(|scenario| scenario.name == "refusals").expect("a scenario");
    refusals.run(cluster).await;
}
