//! The server, seen through a bad connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use conductor_apiserver::Service;
use conductor_apiserver::body::Body as Answer;
use conductor_managers::{Managers, Options, inspect};
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::{Cluster, PATIENCE, admin, target};

/// A kind that managers make and [`provider`] answers for.
pub const RDS: &str = "database.aws.conductor.io/v1alpha1";

/// What goes wrong.
pub struct Faults {
    /// Writes that still go through; then the connection is as if cut.
    pub writes_left: AtomicU64,
    /// Of 1,000 writes, so many fail, half of them after they were done.
    pub failing: u64,
    random: AtomicU64,
    pub cut: AtomicBool,
    /// Watches of paths that end so show nothing new until they are let go.
    pub held: Option<&'static str>,
    pub released: tokio::sync::watch::Sender<bool>,
}

impl Faults {
    pub fn new(writes: u64, failing: u64, seed: u64) -> Arc<Faults> {
        Arc::new(Faults {
            writes_left: AtomicU64::new(writes),
            failing,
            random: AtomicU64::new(seed),
            cut: AtomicBool::new(false),
            held: None,
            released: tokio::sync::watch::Sender::new(false),
        })
    }

    /// Everything works, but the watches of some kind are behind until they are let go.
    pub fn behind(kind: &'static str) -> Arc<Faults> {
        let mut faults = Faults::new(u64::MAX, 0, 1);
        Arc::get_mut(&mut faults).expect("it is new").held = Some(kind);
        faults
    }

    pub fn draw(&self) -> u64 {
        let next = |s: u64| s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |s| Some(next(s))).map_or(0, |s| next(s) >> 33)
    }
}

/// The server, seen through a bad connection.
#[derive(Clone)]
struct Faulty {
    inner: Service,
    faults: Arc<Faults>,
}

fn failure(code: u16) -> Response<Answer> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "code": code, "reason": "Injected", "message": "injected"});
    let mut response = Response::new(Answer::whole(status.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
    response
}

impl tower::Service<Request<Body>> for Faulty {
    type Response = Response<Answer>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (faults, mut inner) = (self.faults.clone(), self.inner.clone());
        Box::pin(async move {
            if faults.cut.load(Ordering::Acquire) {
                return Ok(failure(503));
            }
            let uri = request.uri();
            if uri.query().is_some_and(|q| q.contains("watch=true"))
                && faults.held.is_some_and(|h| uri.path().ends_with(h))
            {
                let mut released = faults.released.subscribe();
                let _ = released.wait_for(|released| *released).await;
                return inner.call(request).await;
            }
            // telling people is no part of the work
            if request.method() == Method::GET || request.uri().path().ends_with("/events") {
                return inner.call(request).await;
            }
            let left = faults.writes_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
            if left.is_err() {
                faults.cut.store(true, Ordering::Release);
                return Ok(failure(503));
            }
            if faults.draw() % 1000 >= faults.failing {
                return inner.call(request).await;
            }
            match faults.draw() % 4 {
                0 => Ok(failure(409)),
                1 => Ok(failure(500)),
                // done, but the answer is lost
                _ => inner.call(request).await.map(|_| failure(504)),
            }
        })
    }
}

impl Cluster {
    pub async fn faulty(&self, faults: &Arc<Faults>, options: Options) -> Managers {
        let service = Faulty { inner: self.server().service(admin()), faults: faults.clone() };
        Managers::start(kube::Client::new(service, "default"), options).await.expect("managers")
    }
}

impl Cluster {
    /// What is wrong with the whole of it.
    pub async fn findings(&self) -> Vec<String> {
        let audited = inspect::audit(&self.api).await.expect("an audit");
        audited.findings.iter().map(|f| format!("{}: {}", f.object, f.message)).collect()
    }

    /// Waits until every claim of a kind says Bound and no invariant is broken.
    pub async fn settled(&self, api_version: &str, kind: &str, what: &str) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let claims = self.api.list(api_version, kind, "").await.expect("claims");
            let waiting: Vec<&Value> = claims.iter().filter(|c| c["status"]["phase"] != "Bound").collect();
            let broken = if waiting.is_empty() { self.findings().await } else { Vec::new() };
            if waiting.is_empty() && broken.is_empty() {
                return claims;
            }
            assert!(Instant::now() < deadline, "{what}: broken {broken:?}, waiting {waiting:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Those that a test always runs with, and as many more as CONDUCTOR_SEEDS says.
pub fn seeds(own: [u64; 2]) -> impl Iterator<Item = u64> {
    let more = std::env::var("CONDUCTOR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let first: u64 = std::env::var("CONDUCTOR_FIRST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    own.into_iter().chain((0..more).map(move |n| first + 2 * n))
}

/// Says Ready on every RDSInstance, as its provider would.
pub async fn provider(cluster: Arc<Cluster>) {
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let Ok(list) = cluster.api.list(RDS, "RDSInstance", "").await else {
            continue;
        };
        for object in list.iter().filter(|o| o["status"].is_null()) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let at = target(RDS, "RDSInstance", "conductor-system", name).status();
            let Ok(path) = cluster.api.path(&at).await else { continue };
            let status = json!({"status": {"host": "nfs.example.com", "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]}});
            let body = status.to_string().into_bytes();
            let _ = cluster.api.call(Method::PATCH, &path, "application/merge-patch+json", body).await;
        }
    }
}
