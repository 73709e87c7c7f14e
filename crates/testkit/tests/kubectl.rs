//! The real kubectl against the server over TLS.

mod typed;

use conductor_testkit::Cluster;

/// Ours.
async fn cluster(_: &str) -> Option<Cluster> {
    Some(Cluster::served().await)
}
