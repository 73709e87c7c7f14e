//! Measures binding: N resources, then N claims over ten namespaces by 32 clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::api::{Api, Failure, JSON, Names, Sink, Watch};

/// What is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// PersistentVolumeClaims.
    Volumes,
    /// RelationalDatabaseClaims.
    Databases,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many claims.
    pub claims: usize,
    /// From the first create to the last Bound.
    pub took: Duration,
    /// From a claim's create to its being seen Bound, sorted.
    pub latencies: Vec<Duration>,
    /// Versions that the server made for each claim, its create included.
    pub versions_per_claim: f64,
}

impl Report {
    /// Claims per second.
    pub fn rate(&self) -> f64 {
        self.claims as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// A percentile of the latencies.
    pub fn percentile(&self, percent: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * percent / 100.0).round() as usize;
        self.latencies.get(at).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |p: f64| self.percentile(p).as_secs_f64() * 1000.0;
        write!(
            f,
            "{} claims in {:.2} s: {:.0} claims/s, create to Bound p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms, {:.2} versions per claim",
            self.claims,
            self.took.as_secs_f64(),
            self.rate(),
            ms(50.0),
            ms(99.0),
            ms(100.0),
            self.versions_per_claim
        )
    }
}

const NAMESPACES: usize = 10;
const CLIENTS: usize = 32;

#[derive(Default)]
struct Seen {
    bound: Mutex<HashMap<String, Instant>>,
    changed: Notify,
    synced: std::sync::atomic::AtomicBool,
    prefix: String,
}

impl Sink for Seen {
    fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if !name.starts_with(&self.prefix) {
            return;
        }
        if object["status"]["phase"] == "Bound" {
            self.bound.lock().entry(name.to_owned()).or_insert_with(Instant::now);
            self.changed.notify_one();
        }
    }

    fn delete(&self, _: Value) {}

    fn synced(&self, _: &Names) {
        self.synced.store(true, std::sync::atomic::Ordering::Release);
    }
}

fn resource(what: What, name: &str) -> Value {
    match what {
        What::Volumes => json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "bench",
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/bench"}},
        }),
        What::Databases => json!({
            "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": name},
            "spec": {"engine": "mysql", "version": "8.0", "class": "bench", "capacity": {"storage": "10Gi"}, "reclaimPolicy": "Retain"},
        }),
    }
}

fn claim(what: What, namespace: &str, name: &str) -> Value {
    match what {
        What::Volumes => json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "bench", "resources": {"requests": {"storage": "5Gi"}}},
        }),
        What::Databases => json!({
            "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"engine": "mysql", "version": ">= 5.6", "class": "bench", "resources": {"requests": {"storage": "5Gi"}}},
        }),
    }
}

async fn create_all(clients: &[Api], path: impl Fn(usize) -> String, objects: Vec<Value>) -> Result<(), Failure> {
    let objects: Arc<Vec<(String, Value)>> =
        Arc::new(objects.into_iter().enumerate().map(|(i, object)| (path(i), object)).collect());
    let mut tasks = tokio::task::JoinSet::new();
    for (offset, api) in clients.iter().cloned().enumerate() {
        let (objects, step) = (objects.clone(), clients.len());
        tasks.spawn(async move {
            for (path, object) in objects.iter().skip(offset).step_by(step) {
                api.call(Method::POST, path, JSON, object.to_string().into_bytes()).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|e| Failure::unsent(&e.to_string()))??;
    }
    Ok(())
}

async fn version(api: &Api) -> Result<u64, Failure> {
    let list = api.read("/api/v1/namespaces?limit=1").await?.unwrap_or_default();
    Ok(list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0))
}

/// Runs it against a server whose managers are running. `client` makes a client for each of 32 users.
pub async fn bind(what: What, claims: usize, client: impl Fn() -> kube::Client) -> Result<Report, Failure> {
    let clients: Vec<Api> = (0..CLIENTS).map(|_| Api::new(client())).collect();
    let api = Api::new(client());
    let run = format!("bench-{:x}", crate::clock::micro_now());
    for i in 0..NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("{run}-{i}")}});
        api.apply(&namespace).await?;
    }
    let (example, asked) = (resource(what, ""), claim(what, "", ""));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version_of, kind, claim_kind) = (text(&example["apiVersion"]), text(&example["kind"]), text(&asked["kind"]));
    let seen = Arc::new(Seen { prefix: run.clone(), ..Seen::default() });
    let mut watches = tokio::task::JoinSet::new();
    watches.spawn(Watch::all(&version_of, &claim_kind).run(api.clone(), seen.clone()));
    let name = |i: usize| format!("{run}-{i}");
    let collection = api.served(&version_of, &kind).await?.path(&version_of, "", "", false);
    create_all(&clients, |_| collection.clone(), (0..claims).map(|i| resource(what, &name(i))).collect()).await?;
    wait_free(&api, &version_of, &kind, &run, claims).await?;
    // what was there before is no part of what is measured
    while !seen.synced.load(std::sync::atomic::Ordering::Acquire) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = version(&api).await?;
    let served = api.served(&version_of, &claim_kind).await?;
    let objects: Vec<Value> =
        (0..claims).map(|i| claim(what, &format!("{run}-{}", i % NAMESPACES), &name(i))).collect();
    let started = Instant::now();
    let made = create_timed(&clients, &served, &version_of, objects).await?;
    loop {
        let waiting = seen.changed.notified();
        if seen.bound.lock().len() >= claims {
            break;
        }
        tokio::time::timeout(Duration::from_secs(120), waiting)
            .await
            .map_err(|_| Failure::unsent("nothing was bound for two minutes: are managers running?"))?;
    }
    let took = started.elapsed();
    let after = version(&api).await?;
    let bound = seen.bound.lock();
    let mut latencies: Vec<Duration> =
        made.iter().filter_map(|(name, at)| Some(bound.get(name)?.saturating_duration_since(*at))).collect();
    latencies.sort();
    let versions_per_claim = after.saturating_sub(before) as f64 / claims.max(1) as f64;
    Ok(Report { claims, took, latencies, versions_per_claim })
}

async fn wait_free(api: &Api, version: &str, kind: &str, run: &str, count: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(300);
    while Instant::now() < deadline {
        let all = api.list(version, kind, "").await?;
        let ours = |o: &&Value| o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(run));
        if all.iter().filter(ours).filter(|o| o["status"]["phase"] == "Available").count() >= count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(Failure::unsent("resources did not become Available: are managers running?"))
}

async fn create_timed(
    clients: &[Api],
    served: &crate::api::Served,
    version: &str,
    objects: Vec<Value>,
) -> Result<Vec<(String, Instant)>, Failure> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let objects: Arc<Vec<(String, String, Vec<u8>)>> = Arc::new(
        objects
            .iter()
            .map(|o| {
                let path = served.path(version, &text(&o["metadata"]["namespace"]), "", false);
                (path, text(&o["metadata"]["name"]), o.to_string().into_bytes())
            })
            .collect(),
    );
    let mut tasks = tokio::task::JoinSet::new();
    for (offset, api) in clients.iter().cloned().enumerate() {
        let (objects, step) = (objects.clone(), clients.len());
        tasks.spawn(async move {
            let mut made = Vec::new();
            for (path, name, body) in objects.iter().skip(offset).step_by(step) {
                let at = Instant::now();
                api.call(Method::POST, path, JSON, body.clone()).await?;
                made.push((name.clone(), at));
            }
            Ok::<_, Failure>(made)
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done.map_err(|e| Failure::unsent(&e.to_string()))??);
    }
    Ok(all)
}
