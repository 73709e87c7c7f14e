//! The same kubectl against a real Kubernetes: what it says there is what it says of ours.

mod typed;

use conductor_testkit::{Cluster, KUBECONFIG, skip};

/// The real one, or why the test does nothing.
async fn cluster(test: &str) -> Option<Cluster> {
    let real = Cluster::real().await;
    if real.is_none() {
        skip(test, &format!("{KUBECONFIG} names no cluster"));
    }
    real
}
