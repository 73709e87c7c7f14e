//! Leadership: one process works at a time, and when it is gone the next one goes on.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::faulty::{Cut, Faults};
use common::{Cluster, phase_is, pvc, target, volume, volume_claim};
use conductor_managers::{Managers, Options};

fn options(identity: &str, ordered: bool) -> Options {
    let lease = Duration::from_secs(2);
    Options { types: false, ordered, workers: 4, identity: Some(identity.into()), lease, ..Options::default() }
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start(false).await;
    for namespace in ["apps", "conductor-system"] {
        cluster.namespace(namespace).await;
    }
    cluster
}

async fn claim(cluster: &Cluster, name: &str) {
    cluster.create(&volume(name, "10Gi", "")).await;
    cluster.create(&volume_claim("apps", name, "5Gi", "")).await;
}

async fn leads(cluster: &Cluster) -> String {
    let lease = target("coordination.k8s.io/v1", "Lease", "conductor-system", "conductor-managers");
    let lease = cluster.get(&lease).await.expect("a Lease");
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Killed without a word: the next takes over when the Lease has run out, and not before.
async fn check_killed(ordered: bool) {
    let cluster = cluster().await;
    let first = cluster.managers(options("first", ordered)).await;
    claim(&cluster, "one").await;
    cluster.until(&pvc("apps", "one"), "bound", phase_is("Bound")).await;
    let second = tokio::spawn(Managers::start(cluster.client(), options("second", ordered)));
    drop(first);
    claim(&cluster, "two").await;
    assert!(!second.is_finished());
    assert_eq!(leads(&cluster).await, "first");
    let _second = second.await.expect("it is not cut off").expect("managers");
    assert_eq!(leads(&cluster).await, "second");
    cluster.until(&pvc("apps", "two"), "bound by the second", phase_is("Bound")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_was_killed_is_followed_by_the_next() {
    check_killed(false).await;
    check_killed(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_renew_ends_before_the_next_begins() {
    let cluster = cluster().await;
    let faults = Faults::cut(Cut::Never);
    let mut first = cluster.faulty(&faults, options("first", false)).await;
    let second = tokio::spawn(Managers::start(cluster.client(), options("second", false)));
    faults.cut.store(true, Ordering::Release);
    first.run().await;
    assert!(!second.is_finished(), "the first has ended, and its Lease still holds");
    let _second = second.await.expect("it is not cut off").expect("managers");
    claim(&cluster, "one").await;
    cluster.until(&pvc("apps", "one"), "bound by the second", phase_is("Bound")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_lets_the_next_begin_at_once() {
    let cluster = cluster().await;
    let mut hours = options("first", false);
    hours.lease = Duration::from_secs(7200);
    let first = cluster.managers(hours).await;
    let second = tokio::spawn(Managers::start(cluster.client(), options("second", false)));
    first.stop().await;
    let _second = second.await.expect("it is not cut off").expect("managers");
    assert_eq!(leads(&cluster).await, "second");
}
