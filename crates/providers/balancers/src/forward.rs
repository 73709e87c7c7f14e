//! A small TCP proxy in this process: one port, several endpoints, one after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::endpoints::Endpoint;

/// How long an endpoint has to answer before the next is tried.
const CONNECT: Duration = Duration::from_secs(3);

/// A port that is forwarded; it is closed, and what goes through it cut, when this is dropped.
pub struct Forward {
    address: SocketAddr,
    most: u32,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

struct Shared {
    endpoints: RwLock<Vec<Endpoint>>,
    next: AtomicUsize,
    connections: AtomicU64,
    refused: AtomicU64,
}

impl Forward {
    /// Listens on an address.
    pub async fn open(address: SocketAddr, most: u32) -> std::io::Result<Forward> {
        let listener = TcpListener::bind(address).await?;
        let shared = Arc::new(Shared {
            endpoints: RwLock::default(),
            next: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let mut task = JoinSet::new();
        task.spawn(serve(listener, shared.clone(), most as usize));
        Ok(Forward { address, most, shared, _task: task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The most connections at once.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Says where new connections go; those there are stay.
    pub fn lead_to(&self, endpoints: Vec<Endpoint>) {
        *self.shared.endpoints.write() = endpoints;
    }

    /// Connections so far, and those that no endpoint took.
    pub fn counts(&self) -> (u64, u64) {
        (self.shared.connections.load(Ordering::Relaxed), self.shared.refused.load(Ordering::Relaxed))
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, most: usize) {
    let places = Arc::new(Semaphore::new(most));
    let mut open = JoinSet::new();
    loop {
        // those that have ended are let go of as new ones come
        while open.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let shared = shared.clone();
                open.spawn(async move {
                    let _place = place;
                    shared.connections.fetch_add(1, Ordering::Relaxed);
                    carry(client, &shared).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn carry(mut client: TcpStream, shared: &Shared) {
    let endpoints = shared.endpoints.read().clone();
    let first = shared.next.fetch_add(1, Ordering::Relaxed);
    for step in 0..endpoints.len() {
        let endpoint = &endpoints[first.wrapping_add(step) % endpoints.len()];
        let connecting = TcpStream::connect((endpoint.host.as_str(), endpoint.port));
        if let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT, connecting).await {
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
    shared.refused.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn server(says: &'static [u8]) -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("has one");
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.write_all(says).await;
            }
        });
        (address, task)
    }

    async fn said(address: SocketAddr) -> String {
        let mut client = TcpStream::connect(address).await.expect("connects");
        let mut text = String::new();
        let _ = client.read_to_string(&mut text).await;
        text
    }

    #[tokio::test]
    async fn connections_go_round_and_past_what_is_down() {
        let (one, _one) = server(b"one").await;
        let (two, two_task) = server(b"two").await;
        let forward = Forward::open("127.0.0.1:0".parse().expect("an address"), 8).await;
        let forward = forward.expect("listens");
        // port 0 is for tests only: the kernel's choice is not in `address`
        assert_eq!(forward.address().port(), 0);
        drop(forward);
        let place: SocketAddr = "127.93.7.1:31777".parse().expect("an address");
        let forward = Forward::open(place, 8).await.expect("listens");
        assert_eq!(said(place).await, "");
        let endpoint = |a: SocketAddr| Endpoint { host: a.ip().to_string(), port: a.port() };
        forward.lead_to(vec![endpoint(one), endpoint(two)]);
        let mut seen = vec![said(place).await, said(place).await];
        seen.sort();
        assert_eq!(seen, ["one", "two"]);
        drop(two_task);
        for _ in 0..4 {
            assert_eq!(said(place).await, "one");
        }
        assert_eq!(forward.counts(), (7, 1));
        drop(forward);
        // the port is free again as soon as the listener is gone
        for _ in 0..200 {
            if TcpListener::bind(place).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the port is still taken");
    }
}
