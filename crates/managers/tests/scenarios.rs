//! The scenario suite: every rule as data. Each file of `scenarios/` has steps; each step does something or expects something.
//!
//! `apply`, `delete`, `status` (what a provider or a kubelet would write), `expect` (objects that cover these come to be),
//! `gone` (objects come not to be), `events` (reasons come to be told about an object). In expectations null is "not there" and
//! a text that begins with ~ is "contains". CONDUCTOR_SCENARIOS names files to run alone.

mod common;

use std::time::{Duration, Instant};

use common::{Cluster, PATIENCE, covers};
use conductor_claims::lifecycle::Target;
use conductor_claims::types::read_yaml;
use conductor_managers::{Managers, Options};
use serde_json::{Value, json};

struct Run {
    name: String,
    cluster: Cluster,
}

/// An object without what nobody wants to read in a failure.
fn shown(mut object: Value) -> String {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    format!("{object:#}")
}

fn list(step: &Value, key: &str) -> Vec<Value> {
    match &step[key] {
        Value::Array(items) => items.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    }
}

impl Run {
    async fn wait(&self, step: usize, what: &str, mut holds: impl AsyncFnMut() -> Result<(), String>) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(now) = holds().await {
            assert!(Instant::now() < deadline, "{} step {step}: {what}\nbut: {now}", self.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn step(&self, number: usize, step: &Value) {
        for object in list(step, "apply") {
            let target = Target::of(&object);
            let exists = !target.name.is_empty() && self.cluster.get(&target).await.is_some();
            if exists {
                self.cluster.patch(&target, object).await;
            } else {
                self.cluster.create(&object).await;
            }
        }
        for object in list(step, "status") {
            let target = Target::of(&object).status();
            let plain = Target { status: false, ..target.clone() };
            self.wait(number, &format!("{} {} exists", target.kind, target.name), async || {
                self.cluster.get(&plain).await.map(drop).ok_or_else(|| "it does not".to_owned())
            })
            .await;
            self.cluster.patch(&target, json!({"status": object["status"]})).await;
        }
        for object in list(step, "delete") {
            self.cluster.delete(&Target::of(&object)).await;
        }
        for expected in list(step, "expect") {
            let target = Target::of(&expected);
            self.wait(number, &format!("expected {expected:#}"), async || match self.cluster.get(&target).await {
                Some(live) if covers(&live, &expected) => Ok(()),
                Some(live) => Err(shown(live)),
                None => Err("it is not there".to_owned()),
            })
            .await;
        }
        for object in list(step, "gone") {
            let target = Target::of(&object);
            self.wait(number, &format!("expected to be gone: {target:?}"), async || {
                self.cluster.get(&target).await.map_or(Ok(()), |live| Err(shown(live)))
            })
            .await;
        }
        for expected in list(step, "events") {
            self.wait(number, &format!("expected event {expected}"), async || {
                let events = self.cluster.api.list("v1", "Event", "").await.map_err(|e| e.to_string())?;
                let told = events.iter().any(|e| covers(e, &expected));
                if told {
                    Ok(())
                } else {
                    Err(format!("told were {:?}", events.iter().map(|e| &e["message"]).collect::<Vec<_>>()))
                }
            })
            .await;
        }
    }
}

async fn run(name: String, text: String, ordered: bool) {
    let scenario = read_yaml(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let types = scenario["types"].as_bool().unwrap_or(false);
    let cluster = Cluster::start(types).await;
    let _managers: Managers = cluster.managers(Options { types, ordered, workers: 4, ..Options::default() }).await;
    let run = Run { name, cluster };
    run.cluster.namespace("apps").await;
    for (number, step) in list(&scenario, "steps").iter().enumerate() {
        run.step(number, step).await;
    }
    let findings = conductor_managers::inspect::audit(&run.cluster.api).await.expect("an audit");
    let broken: Vec<String> = findings.iter().map(|f| format!("{}: {}", f.object, f.message)).collect();
    assert!(broken.is_empty(), "{}: {broken:?}", run.name);
}

async fn run_all(ordered: bool) {
    let only = std::env::var("CONDUCTOR_SCENARIOS").unwrap_or_default();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("scenarios").filter_map(|f| Some(f.ok()?.path())).collect();
    files.sort();
    let mut runs = Vec::new();
    for file in files {
        let name = file.file_stem().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if only.is_empty() || only.split(',').any(|o| o == name) {
            let text = std::fs::read_to_string(&file).expect("a scenario");
            runs.push(run(name, text, ordered));
        }
    }
    futures::future::join_all(runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_in_transactions() {
    run_all(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_in_ordered_writes() {
    run_all(true).await;
}
