//! Expressions of claims that take long make the claims of their own namespace wait, and nobody else.

mod common;

use common::{Cluster, phase_is, target};
use conductor_managers::Options;
use serde_json::{Value, json};

const COMPUTE: &str = "compute.conductor.io/v1alpha1";

fn server(name: &str) -> Value {
    json!({"apiVersion": COMPUTE, "kind": "Server", "metadata": {"name": name}, "spec": {"capacity": {"cpu": "1"}}})
}

fn claim(namespace: &str, name: &str, expression: &str) -> Value {
    json!({
        "apiVersion": COMPUTE, "kind": "ServerClaim", "metadata": {"namespace": namespace, "name": name},
        "spec": {"expression": expression},
    })
}

/// Some ten thousand steps for each resource, none of which fits.
fn costly() -> String {
    let list = serde_json::to_string(&(0..100).collect::<Vec<u32>>()).expect("numbers");
    format!("{list}.all(a, {list}.exists(b, b == 99 - a || a * b < 0)) && resource.metadata.name == 'none'")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_expressions_keep_no_other_namespace_waiting() {
    let cluster = Cluster::start(true).await;
    for namespace in ["mean", "kind"] {
        cluster.namespace(namespace).await;
    }
    let _managers = cluster.managers(Options { workers: 4, ..Options::default() }).await;
    for number in 0..20 {
        cluster.create(&server(&format!("s{number}"))).await;
    }
    for number in 0..60 {
        cluster.create(&claim("mean", &format!("c{number}"), &costly())).await;
    }
    // What comes while they are in line wakes them all, again and again.
    for number in 20..30 {
        cluster.create(&server(&format!("s{number}"))).await;
    }
    for number in 0..5 {
        let name = format!("c{number}");
        cluster.create(&claim("kind", &name, &format!("resource.metadata.name == 's{number}'"))).await;
        cluster.until(&target(COMPUTE, "ServerClaim", "kind", &name), "bound", phase_is("Bound")).await;
    }
}
