//! Binding: N resources, then N claims over ten namespaces by 32 clients, as fast as they are answered.
use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::load::{Request, drive, quantile};
use super::report::{self, Row, Unit, machine_load};
use super::subject::{MANAGERS, Subject};
use super::wire::{Endpoint, Watch};
use super::{Bind, compare};
use crate::repository;

const NAMESPACES: usize = 10;
const CLIENTS: usize = 32;
const JSON: &str = "application/json";
/// How long nothing may happen before something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a claim is bound while nothing else happens.
const LONE: usize = 21;

/// How fast all of it is done.
pub const SETTLED: &str = "the same until the volumes say so, too";
/// What each claim writes.
pub const WRITES: &str = "writes per volume claim";
/// What the server takes of such writes.
pub const PATCHES: &str = "patch of a bound volume claim, 32 clients";

/// What each process of Kubernetes takes for a claim.
const OF_PROCESSES: [(&str, &str); 4] = [
    ("kube-apiserver", "of it kube-apiserver"),
    ("etcd", "of it etcd"),
    ("kube-controller-manager", "of it kube-controller-manager"),
    (MANAGERS, "of it our managers"),
];

/// What is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// PersistentVolumeClaims.
    Volumes,
    /// RelationalDatabaseClaims.
    Databases,
}

impl What {
    fn root(self) -> &'static str {
        match self {
            What::Volumes => "/api/v1",
            What::Databases => "/apis/storage.conductor.io/v1alpha1",
        }
    }

    fn resources(self) -> String {
        let plural = if self == What::Volumes { "persistentvolumes" } else { "relationaldatabases" };
        format!("{}/{plural}", self.root())
    }

    fn claims(self, namespace: &str) -> String {
        let plural = if self == What::Volumes { "persistentvolumeclaims" } else { "relationaldatabaseclaims" };
        match namespace {
            "" => format!("{}/{plural}", self.root()),
            namespace => format!("{}/namespaces/{namespace}/{plural}", self.root()),
        }
    }

    fn resource(self, run: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "labels": {"bench": run}});
        match self {
            What::Volumes => json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata,
                "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "bench",
                    "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/bench"}},
            }),
            What::Databases => json!({
                "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": metadata,
                "spec": {"engine": "mysql", "version": "8.0", "class": "bench", "capacity": {"storage": "10Gi"},
                    "reclaimPolicy": "Retain"},
            }),
        }
    }

    fn claim(self, name: &str) -> Value {
        match self {
            What::Volumes => json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "bench",
                    "resources": {"requests": {"storage": "5Gi"}}},
            }),
            What::Databases => json!({
                "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClaim", "metadata": {"name": name},
                "spec": {"engine": "mysql", "version": ">= 5.6", "class": "bench",
                    "resources": {"requests": {"storage": "5Gi"}}},
            }),
        }
    }
}

/// The parts of an object that count here.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Seen {
    metadata: Named,
    status: Phase,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Named {
    name: String,
    resource_version: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Phase {
    phase: String,
}

/// Reads what is needed of an event without building the whole object: what the load costs is not the server's.
fn seen(line: &[u8]) -> Option<Seen> {
    #[derive(serde::Deserialize)]
    struct Event {
        object: Seen,
    }
    serde_json::from_slice::<Event>(line).ok().map(|event| event.object)
}

async fn get(endpoint: &Endpoint, path: &str) -> anyhow::Result<Value> {
    let answer = endpoint.request("GET", path, None).await?;
    ensure!(answer.code == 200, "GET {path}: {} {}", answer.code, answer.json());
    Ok(answer.json())
}

async fn revision(endpoint: &Endpoint) -> anyhow::Result<u64> {
    let list = get(endpoint, "/api/v1/namespaces?limit=1").await?;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?)
}

async fn watch(endpoint: &Endpoint, path: &str, version: &str) -> anyhow::Result<Watch> {
    let watch = endpoint.connect().await?.watch(&format!("{path}?watch=true&resourceVersion={version}")).await?;
    ensure!(watch.code == 200, "a watch was answered with {}", watch.code);
    Ok(watch)
}

/// When each object whose name begins so came to a phase, once `count` have. A server may end a watch that is too slow for it:
/// then it goes on where it was.
async fn follow(
    endpoint: &Endpoint,
    path: String,
    prefix: String,
    phase: &'static str,
    count: usize,
) -> anyhow::Result<JoinHandle<anyhow::Result<Times>>> {
    let list = get(endpoint, &format!("{path}?limit=1")).await?;
    let mut version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let mut watching = watch(endpoint, &path, &version).await?;
    let endpoint = endpoint.clone();
    Ok(tokio::spawn(async move {
        let mut times = Times::new();
        while times.len() < count {
            let line = tokio::time::timeout(PATIENCE, watching.line()).await;
            let line = line.with_context(|| {
                format!("{} of {count} are {phase}, and nothing happens: do managers run?", times.len())
            })?;
            let Ok(Some(line)) = line else {
                watching = watch(&endpoint, &path, &version).await?;
                continue;
            };
            let now = Instant::now();
            let Some(seen) = seen(&line) else { continue };
            let Seen { metadata: Named { name, resource_version }, status } = seen;
            if !resource_version.is_empty() {
                version = resource_version;
            }
            if status.phase == phase && name.starts_with(&prefix) {
                times.entry(name).or_insert(now);
            }
        }
        Ok(times)
    }))
}

type Times = HashMap<String, Instant>;

/// What was measured.
pub struct Report {
    /// Claims per second, from the first create to the last Bound.
    pub rate: f64,
    /// The same, until what they are bound to says so, too.
    pub settled: f64,
    /// From before a claim's create to its being seen Bound, sorted.
    pub latencies: Vec<Duration>,
    /// Revisions that the store made for each claim, its creation included.
    pub versions: f64,
    /// The processor time of each of the server's processes for each claim, its creation included.
    pub processors: Vec<(&'static str, Duration)>,
}

/// Bound claims changed by 32 clients: the writes per second that the server takes of such objects.
async fn patches(endpoint: &Endpoint, what: What, run: &str, count: usize) -> anyhow::Result<f64> {
    let run = run.to_owned();
    let done = drive(endpoint, CLIENTS, count, move |index| Request {
        method: "PATCH",
        path: format!("{}/{run}-{index}", what.claims(&format!("bench-{}", index % NAMESPACES))),
        body: Some(("application/merge-patch+json", r#"{"metadata":{"annotations":{"bench":"patched"}}}"#.to_owned())),
    })
    .await?;
    Ok(done.rate())
}

/// Binds so many at once.
pub async fn burst(subject: &Subject, what: What, run: &str, count: usize) -> anyhow::Result<Report> {
    let endpoint = &subject.endpoint;
    let name = move |run: &str, index: usize| format!("{run}-{index}");
    let free = follow(endpoint, what.resources(), format!("{run}-"), "Available", count).await?;
    let owned = run.to_owned();
    drive(endpoint, CLIENTS.min(count), count, move |index| Request {
        method: "POST",
        path: what.resources(),
        body: Some((JSON, what.resource(&owned, &name(&owned, index)).to_string())),
    })
    .await?;
    free.await??;
    let before = revision(endpoint).await?;
    let bound = follow(endpoint, what.claims(""), format!("{run}-"), "Bound", count).await?;
    let settled = follow(endpoint, what.resources(), format!("{run}-"), "Bound", count).await?;
    let (owned, used, begun) = (run.to_owned(), subject.processors(), Instant::now());
    let sent: std::sync::Arc<Vec<std::sync::OnceLock<Instant>>> =
        std::sync::Arc::new((0..count).map(|_| std::sync::OnceLock::new()).collect());
    let noted = sent.clone();
    drive(endpoint, CLIENTS.min(count), count, move |index| {
        let _ = noted[index].set(Instant::now());
        Request {
            method: "POST",
            path: what.claims(&format!("bench-{}", index % NAMESPACES)),
            body: Some((JSON, what.claim(&name(&owned, index)).to_string())),
        }
    })
    .await?;
    let bound = bound.await??;
    let took = begun.elapsed();
    settled.await??;
    let settled = begun.elapsed();
    let spent = |(name, after): (&'static str, Duration)| {
        let (_, before) = *used.as_ref()?.iter().find(|(other, _)| *other == name)?;
        Some((name, (after - before) / count as u32))
    };
    let processors = subject.processors().into_iter().flatten().filter_map(spent).collect();
    let after = revision(endpoint).await?;
    let mut latencies: Vec<Duration> = sent
        .iter()
        .enumerate()
        .filter_map(|(index, sent)| Some(bound.get(&name(run, index))?.saturating_duration_since(*sent.get()?)))
        .collect();
    latencies.sort_unstable();
    let versions = (after - before) as f64 / count as f64;
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    Ok(Report { rate: rate(took), settled: rate(settled), latencies, versions, processors })
}

/// The median time from a lone claim's creation to its being seen Bound, in milliseconds.
async fn lone(subject: &Subject, what: What, run: &str) -> anyhow::Result<Vec<Duration>> {
    let mut all = Vec::new();
    for round in 0..LONE {
        all.extend(burst(subject, what, &format!("{run}-{round}"), 1).await?.latencies);
    }
    all.sort_unstable();
    Ok(all)
}

/// Everything about binding on one server: a burst of `count`, then one at a time. What was made for it stays there.
pub async fn measure(subject: &Subject, what: What, count: usize) -> anyhow::Result<Vec<Row>> {
    let endpoint = &subject.endpoint;
    let run = format!("bench-{:x}", std::process::id());
    prepare(endpoint).await?;
    // connections, caches and allocators are warm before anything counts
    burst(subject, what, &format!("{run}-warm"), (count / 50).max(1)).await?;
    let burst = burst(subject, what, &format!("{run}-burst"), count).await?;
    let patches = patches(endpoint, what, &format!("{run}-burst"), count).await?;
    let lone = lone(subject, what, &format!("{run}-lone")).await?;
    let names: [&'static str; 6] = match what {
        What::Volumes => [
            "bind volume claims, 32 clients",
            SETTLED,
            "a lone volume claim until Bound",
            WRITES,
            "server's processor time per volume claim",
            PATCHES,
        ],
        What::Databases => [
            "bind database claims, 32 clients",
            "the same until the databases say so, too",
            "a lone database claim until Bound",
            "writes per database claim",
            "server's processor time per database claim",
            "patch of a bound database claim, 32 clients",
        ],
    };
    let half = |times: &[Duration]| quantile(times, 0.5);
    let mut rows = vec![
        Row::new(names[0], Unit::PerSecond, burst.rate).with(half(&burst.latencies), quantile(&burst.latencies, 0.99)),
        Row::new(names[1], Unit::PerSecond, burst.settled),
        Row::new(names[2], Unit::Milliseconds, half(&lone)).with(half(&lone), quantile(&lone, 0.99)),
        Row::new(names[3], Unit::Writes, burst.versions),
    ];
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let used: Duration = burst.processors.iter().map(|(_, time)| *time).sum();
    if !burst.processors.is_empty() {
        rows.push(Row::new(names[4], Unit::Milliseconds, milliseconds(used)));
    }
    for (process, time) in burst.processors.iter().filter(|_| burst.processors.len() > 1) {
        let row = OF_PROCESSES.iter().find(|(name, _)| name == process);
        rows.extend(row.map(|(_, what)| Row::new(what, Unit::Milliseconds, milliseconds(*time))));
    }
    rows.push(Row::new(names[5], Unit::PerSecond, patches));
    Ok(rows)
}

async fn prepare(endpoint: &Endpoint) -> anyhow::Result<()> {
    for index in 0..NAMESPACES {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("bench-{index}")}});
        let begun = Instant::now();
        loop {
            let made =
                endpoint.request("POST", "/api/v1/namespaces", Some((JSON, body.to_string().as_bytes()))).await?;
            match made.code {
                201 => break,
                // left from before, and on its way out
                409 if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(100)).await,
                code => bail!("the namespace was answered with {code}: {}", made.json()),
            }
        }
    }
    Ok(())
}

/// Removes all of it, so that the next measurement begins with nothing.
async fn clean(endpoint: &Endpoint, what: What) -> anyhow::Result<()> {
    for index in 0..NAMESPACES {
        endpoint.request("DELETE", &format!("/api/v1/namespaces/bench-{index}"), None).await?;
    }
    let begun = Instant::now();
    for index in 0..NAMESPACES {
        while endpoint.request("GET", &format!("/api/v1/namespaces/bench-{index}"), None).await?.code != 404 {
            ensure!(begun.elapsed() < PATIENCE * 2, "namespace bench-{index} does not go");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    endpoint.request("DELETE", &format!("{}?labelSelector=bench", what.resources()), None).await?;
    while !get(endpoint, &format!("{}?labelSelector=bench&limit=1", what.resources())).await?["items"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        ensure!(begun.elapsed() < PATIENCE * 2, "what was bound does not go");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The same, and nothing of it stays.
async fn measured(subject: &Subject, what: What, count: usize) -> anyhow::Result<Vec<Row>> {
    let rows = measure(subject, what, count).await;
    clean(&subject.endpoint, what).await?;
    rows
}

/// Measures one server, and the cost of a decision.
pub fn run(options: &Bind) -> anyhow::Result<()> {
    eprintln!("load {}", machine_load());
    let mut subject = match &options.kubeconfig {
        Some(kubeconfig) => Subject::foreign(kubeconfig)?,
        None => {
            let program = match &options.program {
                Some(program) => program.clone(),
                None => crate::conductor::build()?,
            };
            match options.on_kubernetes {
                true => Subject::managed(&compare::state_dir("managed"), &program)?,
                false => Subject::conductor(&program, &compare::state_dir("ours"))?,
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = runtime.block_on(async {
        let mut rows = measured(&subject, What::Volumes, options.claims).await?;
        if options.volumes_only {
            return Ok(rows);
        }
        let ours = subject.endpoint.request("GET", What::Databases.root(), None).await?.code == 200;
        match ours {
            true => rows.extend(measured(&subject, What::Databases, options.claims).await?),
            false => eprintln!("no RelationalDatabases are served there: they are left out"),
        }
        Ok::<_, anyhow::Error>(rows)
    });
    if let (Err(_), Some(how)) = (&measured, subject.ended()) {
        return measured.context(how).map(drop);
    }
    print!("{}", report::table(&measured?));
    drop(subject);
    if options.decisions {
        let status = repository::cargo().args(["bench", "--quiet", "--package", "conductor-claims"]).status()?;
        ensure!(status.success(), "the decisions could not be measured: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_and_phase_of_an_event_count() {
        let line = br#"{"type":"MODIFIED","object":{"metadata":{"name":"a"},"status":{"phase":"Bound"}}}"#;
        let seen = seen(line).expect("an event");
        assert_eq!((seen.metadata.name.as_str(), seen.status.phase.as_str()), ("a", "Bound"));
        assert!(super::seen(b"{").is_none());
    }
}
