//! The controllers that clients of an API server rely on. They run inside it and end with it.

pub mod addresses;
mod certificates;
pub mod crds;
pub mod endpoints;
pub mod events;
mod flows;
pub mod follow;
pub mod gc;
pub mod namespaces;
mod policies;
pub mod protection;
mod tokens;

use std::future::Future;
use std::time::Duration;

use crate::server::Server;

/// Starts them all.
pub fn start(server: &Server, definitions: crds::Known) {
    spawn(server, forget(server.clone()));
    spawn(server, crds::run(server.clone(), definitions));
    spawn(server, crate::auth::rbac::aggregation::run(server.clone()));
    spawn(server, crate::plugins::quota::controller::run(server.clone()));
    spawn(server, namespaces::provision(server.clone()));
    spawn(server, namespaces::remove(server.clone()));
    spawn(server, gc::run(server.clone()));
    spawn(server, protection::run(server.clone()));
    spawn(server, addresses::run(server.clone()));
    spawn(server, endpoints::run(server.clone()));
    spawn(server, events::run(server.clone()));
    spawn(server, policies::run(server.clone()));
    spawn(server, flows::run(server.clone()));
    spawn(server, certificates::run(server.clone()));
    spawn(server, tokens::run(server.clone()));
    spawn(server, crate::aggregation::registered::run(server.clone()));
    spawn(server, crate::aggregation::available::run(server.clone()));
}

/// Forgets history that is older than watchers and pages are promised.
async fn forget(server: Server) {
    const KEEP: Duration = Duration::from_secs(600);
    let started = std::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        server.store().trim(started.elapsed(), KEEP);
    }
}

/// Runs a controller until the server stops.
fn spawn(server: &Server, controller: impl Future<Output = ()> + Send + 'static) {
    let mut stop = server.0.stopping();
    tokio::spawn(async move {
        tokio::select! {
            () = controller => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
}
