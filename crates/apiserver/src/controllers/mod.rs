//! The controllers that clients of an API server rely on. They run inside it and end with it.

pub mod crds;
pub mod namespaces;

use std::future::Future;

use crate::server::Server;

/// Starts them all.
pub fn start(server: &Server) {
    spawn(server, crds::run(server.clone()));
    spawn(server, namespaces::provision(server.clone()));
    spawn(server, namespaces::remove(server.clone()));
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
