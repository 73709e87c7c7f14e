//! What binding costs server and managers together, in memory and on one thread: no disk, no TLS, no client of its own.
//!
//! `cargo bench -p conductor-managers --bench bind [COUNT]`

use std::time::{Duration, Instant};

use conductor_apiserver::{Options as ServerOptions, Server, User};
use conductor_managers::{Api, Managers, Options, install};
use http::Method;
use serde_json::{Value, json};

const JSON: &str = "application/json";

async fn create(api: &Api, path: &str, object: Value) {
    let made = api.call(Method::POST, path, JSON, object.to_string().into_bytes()).await;
    made.unwrap_or_else(|failure| panic!("{failure}: {object}"));
}

/// Waits until the last made has a phase, and then until none of the collection has another. Looking at all of them all the time
/// would be measured, too.
async fn until(api: &Api, kind: &str, (namespace, last): (&str, &str), phase: &str) {
    let has = |object: &Value| object["status"]["phase"] == phase;
    while !api.get("v1", kind, namespace, last).await.expect("an answer").is_some_and(|object| has(&object)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while !api.list("v1", kind, "").await.expect("a list").iter().all(has) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count: usize = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(5000).max(1);
    let server = Server::start(ServerOptions::default()).await.expect("a server");
    let api = Api::new(server.client(User::new("admin", ["system:masters"])));
    install::install(&api).await.expect("installed");
    let client = server.client(User::new("admin", ["system:masters"]));
    let _managers = Managers::start(client, Options::default()).await.expect("managers");
    for n in 0..count {
        let volume = json!({
            "metadata": {"name": format!("v{n}")},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "bench",
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/bench"}},
        });
        create(&api, "/api/v1/persistentvolumes", volume).await;
    }
    until(&api, "PersistentVolume", ("", &format!("v{}", count - 1)), "Available").await;
    let started = Instant::now();
    for n in 0..count {
        let claim = json!({
            "metadata": {"name": format!("c{n}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "bench", "resources": {"requests": {"storage": "5Gi"}}},
        });
        create(&api, "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    }
    until(&api, "PersistentVolumeClaim", ("default", &format!("c{}", count - 1)), "Bound").await;
    let each = started.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{:<60} {each:>9.2} µs", "a volume claim, created and bound");
}
