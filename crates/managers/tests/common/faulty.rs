//! The server, seen through a bad connection.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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

/// When the connection is cut.
pub enum Cut {
    Never,
    /// After so many writes.
    After(usize),
    /// Before the first write that does this, perhaps among other things.
    Before(String),
}

/// What goes wrong with writes of claims, resources and what is made for them. How types are defined and what Managers say of themselves
/// is left alone: whoever is cut off there never gets to what is tested.
pub struct Faults {
    cut_at: Cut,
    /// Of 1,000 writes, so many fail, half of them after they were done.
    failing: u64,
    random: AtomicU64,
    pub cut: AtomicBool,
    log: Mutex<Log>,
    /// Watches of paths that end so show nothing new until they are let go.
    pub held: Option<&'static str>,
    pub released: tokio::sync::watch::Sender<bool>,
}

/// The writes there were, as [`called`] calls them.
#[derive(Default)]
struct Log {
    /// Those that got through to the server.
    sent: Vec<String>,
    /// The first that came too late.
    refused: Option<String>,
    /// Those that were said to have failed, whether they had or not.
    failed: Vec<String>,
}

impl Faults {
    fn new(cut_at: Cut, failing: u64, seed: u64) -> Arc<Faults> {
        Arc::new(Faults {
            cut_at,
            failing,
            random: AtomicU64::new(seed),
            cut: AtomicBool::new(false),
            log: Mutex::default(),
            held: None,
            released: tokio::sync::watch::Sender::new(false),
        })
    }

    /// The connection is cut, once.
    pub fn cut(at: Cut) -> Arc<Faults> {
        Faults::new(at, 0, 1)
    }

    /// One write of five fails.
    pub fn random(seed: u64) -> Arc<Faults> {
        Faults::new(Cut::Never, 200, seed)
    }

    /// Everything works, but the watches of some kind are behind until they are let go.
    pub fn behind(kind: &'static str) -> Arc<Faults> {
        let mut faults = Faults::new(Cut::Never, 0, 1);
        Arc::get_mut(&mut faults).expect("it is new").held = Some(kind);
        faults
    }

    pub fn draw(&self) -> u64 {
        let next = |s: u64| s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |s| Some(next(s))).map_or(0, |s| next(s) >> 33)
    }

    /// Lets a write through, or cuts the connection.
    fn admit(&self, write: &str) -> bool {
        let mut log = self.log.lock().expect("a log");
        let cut = match &self.cut_at {
            Cut::Never => false,
            Cut::After(writes) => log.sent.len() >= *writes,
            Cut::Before(named) => write.split(',').any(|operation| operation == named),
        };
        if cut || log.refused.is_some() {
            log.refused.get_or_insert_with(|| write.to_owned());
            self.cut.store(true, Ordering::Release);
            return false;
        }
        log.sent.push(write.to_owned());
        true
    }
}

/// Two managers on bad connections really did something there, and it really went wrong: each of these was written, by the one or the
/// other, both wrote, and some of it was said to have failed.
pub fn assert_faults(of: [&Faults; 2], resources: &[&str]) {
    let logs = of.map(|faults| faults.log.lock().expect("a log"));
    let count = |all: &[String], of: &[&str]| all.iter().filter(|write| of.iter().any(|r| is_of(write, r))).count();
    for resource in resources {
        assert!(logs.iter().any(|log| count(&log.sent, &[*resource]) > 0), "nobody wrote {resource}");
    }
    let sent: Vec<usize> = logs.iter().map(|log| count(&log.sent, resources)).collect();
    assert!(sent.iter().all(|sent| *sent > 0), "only one of them wrote {resources:?}: {sent:?}");
    let failed: usize = logs.iter().map(|log| count(&log.failed, resources)).sum();
    assert!(failed > 0, "no write of {resources:?} failed, of {sent:?}");
}

/// Whether a write is one of this resource, or has one in it.
fn is_of(write: &str, resource: &str) -> bool {
    write.split([' ', ',', '/']).any(|word| word == resource)
}

/// Cuts managers off at every write of some piece of work, which is done anew in each round: after none, one, two of them, until they get
/// to its end; then before each that was done and in no round refused.
#[derive(Default)]
pub struct Cuts {
    /// How many writes are let through next.
    writes: usize,
    refused: BTreeSet<String>,
    /// What managers that were not cut off wrote.
    whole: Option<Vec<String>>,
}

impl Cuts {
    /// A piece of work for each.
    pub fn of<const N: usize>() -> [Cuts; N] {
        std::array::from_fn(|_| Cuts::default())
    }

    /// What was done and never refused.
    pub fn missing(&self) -> Option<&str> {
        let done = self.whole.iter().flatten().flat_map(|write| write.split(','));
        done.into_iter().find(|operation| !self.refused.contains(*operation))
    }

    /// Whether there is nothing left to try.
    pub fn are_through(&self) -> bool {
        self.whole.is_some() && self.missing().is_none()
    }

    /// Runs managers until they are cut off, or it is done and nothing is left to do.
    pub async fn run(&mut self, cluster: &Cluster, options: &Options, done: impl AsyncFn() -> bool) {
        let cut = match (self.missing(), &self.whole) {
            (Some(operation), _) => Cut::Before(operation.to_owned()),
            (None, Some(_)) => Cut::Never,
            (None, None) => Cut::After(self.writes),
        };
        let faults = Faults::cut(cut);
        let managers = cluster.faulty(&faults, options.clone()).await;
        let deadline = Instant::now() + PATIENCE;
        while !faults.cut.load(Ordering::Acquire) {
            if done().await && managers.is_idle() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "neither cut off nor done: {:?}",
                faults.log.lock().expect("a log").sent
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(managers);
        let log = faults.log.lock().expect("a log");
        match &log.refused {
            Some(write) => {
                if self.whole.is_none() {
                    assert_eq!(log.sent.len(), self.writes, "it was cut off elsewhere: {:?}", log.sent);
                    self.writes += 1;
                }
                self.refused.extend(write.split(',').map(str::to_owned));
            }
            // what is not written each time is not waited for
            None => self.whole = Some(log.sent.clone()),
        }
    }

    /// There was a cut before a write of each of these, and there were at least so many places for it.
    pub fn assert_at(&self, places: usize, resources: &[&str]) {
        let all = &self.refused;
        for resource in resources {
            assert!(
                all.iter().any(|write| is_of(write, resource)),
                "never cut off before a write of {resource}: {all:?}"
            );
        }
        assert!(self.writes >= places, "cut off at {} places only: {:?}", self.writes, self.whole);
    }
}

/// Rounds without end in sight: what is written differs from one to the next.
pub const MANY: usize = 60;

/// What a write is called: verb and resource, and those of all its operations if it is a Transaction. `None`: it is no part of the work
/// that is tested.
fn called(method: &Method, path: &str, body: &[u8]) -> Option<String> {
    let mut parts = path.trim_start_matches('/').split('/');
    let group = match parts.next() {
        Some("apis") => parts.next().unwrap_or_default(),
        _ => "",
    };
    let mut parts: Vec<&str> = parts.skip(1).collect();
    if parts.len() > 2 && parts[0] == "namespaces" {
        parts.drain(..2);
    }
    let resource = parts.first().copied().unwrap_or_default();
    let definitions = ["apiextensions.k8s.io", "admissionregistration.k8s.io", "authorization.k8s.io"];
    let own = (group == "conductor.io" && matches!(resource, "resourcetypes" | "managers"))
        || group.starts_with("rbac.")
        || definitions.contains(&group);
    // telling people is no part of the work either
    if *method == Method::GET || own || resource == "events" {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
    let name = |verb: &str, resource: &str, sub: &str| {
        format!("{verb} {resource}{}{sub}", if sub.is_empty() { "" } else { "/" })
    };
    if resource != "transactions" {
        return Some(name(&method.as_str().to_lowercase(), resource, parts.get(2).copied().unwrap_or_default()));
    }
    let sent: Value = serde_json::from_slice(body).unwrap_or_default();
    let operations = sent["spec"]["operations"].as_array().into_iter().flatten();
    let all = operations.map(|o| name(&text(&o["verb"]), &text(&o["resource"]), &text(&o["subresource"])));
    Some(all.collect::<Vec<_>>().join(","))
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
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.expect("a body");
            let write = called(&parts.method, parts.uri.path(), &body);
            let request = Request::from_parts(parts, Body::from(body));
            let Some(write) = write else { return inner.call(request).await };
            if !faults.admit(&write) {
                return Ok(failure(503));
            }
            if faults.draw() % 1000 >= faults.failing {
                return inner.call(request).await;
            }
            faults.log.lock().expect("a log").failed.push(write);
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
