//! One user floods the server with large lists while another does small writes.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, ensure};
use serde_json::json;

use super::load::{drive, quantile};
use super::objects::{Kind, NAMESPACE};
use super::report::{Row, Unit};
use super::wire::Endpoint;

/// How many lists the flooder asks for at a time.
const LISTS: usize = 8;

/// Small writes alone, then beside the flood. What there is to list must be there already.
pub async fn run(endpoint: &Endpoint, writes: usize) -> anyhow::Result<Vec<Row>> {
    let (quiet, flooder) = (user(endpoint, "quiet").await?, user(endpoint, "flooder").await?);
    let kind = Kind::ConfigMap;
    let alone = drive(&quiet, 1, writes, move |index| kind.create("unloaded", index)).await?;

    let done = Arc::new(AtomicBool::new(false));
    let flood = {
        let done = done.clone();
        std::thread::spawn(move || flood(&flooder, &done))
    };
    let beside = drive(&quiet, 1, writes, move |index| kind.create("loaded", index)).await;
    done.store(true, Ordering::Relaxed);
    let answered = flood.join().map_err(|_| anyhow!("the flood panicked"))??;
    ensure!(answered > 0, "the flood was none");
    let beside = beside?;
    drive(endpoint, 32, writes, move |index| kind.delete("unloaded", index)).await?;
    drive(endpoint, 32, writes, move |index| kind.delete("loaded", index)).await?;
    let row = |what, sorted: &[_]| Row::new(what, Unit::Milliseconds, quantile(sorted, 0.99));
    Ok(vec![
        row("create by one user: 99th percentile", &alone.latencies),
        row("the same while another floods with lists of 10,000", &beside.latencies),
    ])
}

/// Lists and lists again, on one processor, until it is told that it is enough. How many lists it got.
fn flood(endpoint: &Endpoint, done: &Arc<AtomicBool>) -> anyhow::Result<usize> {
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    // Where that is not to be had it floods from all of them, which is harder.
    let _ = rustix::thread::sched_setaffinity(None, &one);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut lists = tokio::task::JoinSet::new();
        for _ in 0..LISTS {
            let (endpoint, done) = (endpoint.clone(), done.clone());
            lists.spawn(async move {
                let mut connection = endpoint.connect().await?;
                let mut answered = 0;
                while !done.load(Ordering::Relaxed) {
                    let answer = connection.request("GET", &Kind::ConfigMap.path(), None).await?;
                    ensure!(matches!(answer.code, 200 | 429), "a list was answered with {}", answer.code);
                    answered += usize::from(answer.code == 200);
                }
                Ok(answered)
            });
        }
        let mut answered = 0;
        while let Some(own) = lists.join_next().await {
            answered += own??;
        }
        Ok(answered)
    })
}

/// A service account that may do everything with ConfigMaps.
async fn user(endpoint: &Endpoint, name: &str) -> anyhow::Result<Endpoint> {
    let core = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let binding = json!({"metadata": {"name": name}, "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}});
    let mut token = String::new();
    for (path, object) in [
        (core.clone(), json!({"metadata": {"name": name}})),
        (format!("{rbac}/roles"), json!({"metadata": {"name": name}, "rules": rules})),
        (format!("{rbac}/rolebindings"), binding),
        (format!("{core}/{name}/token"), json!({"spec": {}})),
    ] {
        let body = object.to_string();
        let made = endpoint.request("POST", &path, Some(("application/json", body.as_bytes()))).await?;
        ensure!(made.code == 201, "{path} was answered with {}: {}", made.code, made.json());
        token = made.json()["status"]["token"].as_str().unwrap_or_default().to_owned();
    }
    let own = endpoint.with_token(&token);
    // A real one sees new roles a moment later.
    for _ in 0..200 {
        if own.request("GET", &format!("{}?limit=1", Kind::ConfigMap.path()), None).await?.code == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    Ok(own)
}
