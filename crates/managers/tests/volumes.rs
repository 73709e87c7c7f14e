//! PersistentVolumes end to end, on the embedded server, with both transports.

mod common;

use common::{Cluster, phase_is, pv, pvc, volume, volume_claim};
use conductor_managers::Options;
use serde_json::json;

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
