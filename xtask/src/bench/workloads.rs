//! All that is measured of one server, in order.
use std::time::{Duration, Instant};

use super::wire::Endpoint;
use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::Part;
use super::definitions;
use super::flood;
use super::load::{Outcome, drive, quantile};
use super::objects::{self, Kind, NAMESPACE};
use super::report::{Row, Unit};
use super::subject::Subject;
use super::watchers;

/// How much of everything.
struct Amounts {
    alone: usize,
    together: usize,
    custom: usize,
    listed: usize,
    pairs: usize,
    applied: usize,
    definitions: usize,
    watched: usize,
    crowd: usize,
}

/// Measures one server.
pub async fn run(subject: &Subject, quick: bool, parts: &[Part]) -> anyhow::Result<Vec<Row>> {
    let part = |full: usize| if quick { full / 10 } else { full };
    let amounts = Amounts {
        alone: part(2_000),
        together: part(10_000),
        custom: part(5_000),
        listed: 10_000,
        pairs: part(5_000),
        applied: part(5_000),
        definitions: part(2_000),
        watched: part(500),
        crowd: part(1_000),
    };
    let endpoint = &subject.endpoint;
    let mut rows = Vec::new();
    if let Some(ready) = subject.ready {
        rows.push(Row::new("start until ready", Unit::Milliseconds, ready.as_secs_f64() * 1000.0));
    }
    // what starting took is given back by and by
    tokio::time::sleep(Duration::from_secs(if quick { 0 } else { 15 })).await;
    if let Some(memory) = subject.memory() {
        rows.push(Row::new("memory, idle", Unit::Mebibytes, memory));
    }
    prepare(endpoint).await?;
    let measured = measure(subject, &amounts, parts, &mut rows).await;
    let cleaned = clean(endpoint).await;
    // What went wrong first is what matters: a server that is gone cannot be cleaned either.
    measured?;
    cleaned.context("cleaning up")?;
    Ok(rows)
}

async fn measure(subject: &Subject, amounts: &Amounts, parts: &[Part], rows: &mut Vec<Row>) -> anyhow::Result<()> {
    for part in Part::value_variants().iter().filter(|part| parts.is_empty() || parts.contains(part)) {
        match part {
            Part::Verbs => builtin(&subject.endpoint, amounts, rows).await?,
            Part::Lists => lists(subject, amounts.listed, rows).await?,
            Part::Watchers => crowds(&subject.endpoint, amounts, rows).await?,
            Part::Custom => custom(&subject.endpoint, amounts, rows).await?,
            Part::Apply => apply(&subject.endpoint, amounts, rows).await?,
            Part::Transactions => transactions(&subject.endpoint, amounts, rows).await?,
            Part::Definitions => {
                // A real kube-apiserver takes a megabyte and more for each: a tenth of them is enough to know.
                let count = if has_transactions(&subject.endpoint).await? {
                    amounts.definitions
                } else {
                    amounts.definitions / 10
                };
                definitions::run(subject, count, rows).await.context("definitions")?;
            }
        }
    }
    Ok(())
}

async fn builtin(endpoint: &Endpoint, amounts: &Amounts, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let names = ["create, 1 client", "get, 1 client", "patch, 1 client", "delete, 1 client"];
    verbs(endpoint, Kind::ConfigMap, 1, amounts.alone, rows, names).await?;
    let names = ["create, 32 clients", "get, 32 clients", "patch, 32 clients", "delete, 32 clients"];
    verbs(endpoint, Kind::ConfigMap, 32, amounts.together, rows, names).await
}

async fn crowds(endpoint: &Endpoint, amounts: &Amounts, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let crowd = watchers::run(endpoint, 100, amounts.watched, false).await.context("100 watchers")?;
    let rate = crowd.delays.len() as f64 / crowd.took.as_secs_f64();
    let row = Row::new("100 watchers, 8 writers: events", Unit::PerSecond, rate);
    rows.push(row.with(quantile(&crowd.delays, 0.5), quantile(&crowd.delays, 0.99)));

    let crowd =
        watchers::run(endpoint, amounts.crowd, amounts.crowd * 4, true).await.context("watchers with selectors")?;
    let rate = crowd.creates as f64 / crowd.took.as_secs_f64();
    let row = Row::new("1,000 watchers with selectors, 8 writers: creates", Unit::PerSecond, rate);
    rows.push(row.with(quantile(&crowd.delays, 0.5), quantile(&crowd.delays, 0.99)));
    Ok(())
}

async fn custom(endpoint: &Endpoint, amounts: &Amounts, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let names = [
        "custom resource: create, 32 clients",
        "custom resource: get, 32 clients",
        "custom resource: patch, 32 clients",
        "custom resource: delete, 32 clients",
    ];
    verbs(endpoint, Kind::Gadget, 32, amounts.custom, rows, names).await
}

async fn apply(endpoint: &Endpoint, amounts: &Amounts, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let kind = Kind::ConfigMap;
    drive(endpoint, 32, amounts.applied, move |index| kind.apply("applied", index, 0)).await?;
    let done = drive(endpoint, 32, amounts.applied, move |index| kind.apply("applied", index, 1)).await?;
    rows.push(timed("server-side apply, 32 clients", &done));
    drive(endpoint, 32, amounts.applied, move |index| kind.delete("applied", index)).await?;
    Ok(())
}

async fn has_transactions(endpoint: &Endpoint) -> anyhow::Result<bool> {
    Ok(endpoint.request("GET", "/apis/transactions.conductor.io/v1alpha1", None).await?.code == 200)
}

async fn transactions(endpoint: &Endpoint, amounts: &Amounts, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    if has_transactions(endpoint).await? {
        let done = drive(endpoint, 1, amounts.pairs / 5, |index| objects::pair("alone", index)).await?;
        rows.push(timed("transaction of two creates, 1 client", &done));
        let done = drive(endpoint, 32, amounts.pairs, |index| objects::pair("pair", index)).await?;
        rows.push(timed("transaction of two creates, 32 clients", &done));
    }
    Ok(())
}

fn timed(what: &'static str, done: &Outcome) -> Row {
    Row::new(what, Unit::PerSecond, done.rate()).with(quantile(&done.latencies, 0.5), quantile(&done.latencies, 0.99))
}

async fn verbs(
    endpoint: &Endpoint,
    kind: Kind,
    clients: usize,
    count: usize,
    rows: &mut Vec<Row>,
    [create, get, patch, delete]: [&'static str; 4],
) -> anyhow::Result<()> {
    // Connections, caches and allocators are warm before anything counts.
    let warm = count / 20;
    drive(endpoint, clients, warm, move |index| kind.create("warm", index)).await?;
    drive(endpoint, clients, warm, move |index| kind.delete("warm", index)).await?;
    let done = drive(endpoint, clients, count, move |index| kind.create("object", index)).await?;
    rows.push(timed(create, &done));
    let done = drive(endpoint, clients, count, move |index| kind.get("object", index)).await?;
    rows.push(timed(get, &done));
    let done = drive(endpoint, clients, count, move |index| kind.patch("object", index)).await?;
    rows.push(timed(patch, &done));
    let done = drive(endpoint, clients, count, move |index| kind.delete("object", index)).await?;
    rows.push(timed(delete, &done));
    Ok(())
}

async fn lists(subject: &Subject, count: usize, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let endpoint = &subject.endpoint;
    let kind = Kind::ConfigMap;
    drive(endpoint, 32, count, move |index| kind.create("listed", index)).await?;
    if let Some(memory) = subject.memory() {
        rows.push(Row::new("memory, 10,000 objects of 1 KiB", Unit::Mebibytes, memory));
    }
    let mut connection = endpoint.connect().await?;
    let mut whole = Vec::new();
    for _ in 0..7 {
        let started = Instant::now();
        let answer = connection.request("GET", &kind.path(), None).await?;
        whole.push(started.elapsed());
        // Cheap enough not to count, and a short answer must not pass for a fast one.
        ensure!(answer.code == 200 && answer.body.len() > count * 1024, "a list was answered with {}", answer.code);
    }
    rows.push(Row::new("list of 10,000", Unit::Milliseconds, middle(&mut whole)));
    let mut paged = Vec::new();
    for _ in 0..5 {
        paged.push(pages(endpoint, &kind.path(), count).await?);
    }
    rows.push(Row::new("list of 10,000 in pages of 500", Unit::Milliseconds, middle(&mut paged)));
    if let Some(memory) = subject.memory() {
        rows.push(Row::new("memory, after listing them 12 times", Unit::Mebibytes, memory));
    }
    rows.extend(flood::run(endpoint, 1_000).await.context("a flood of lists")?);
    drive(endpoint, 32, count, move |index| kind.delete("listed", index)).await?;
    Ok(())
}

fn middle(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

/// Reads all pages. The token is found without parsing the page: only the server's work is to count.
async fn pages(endpoint: &Endpoint, path: &str, count: usize) -> anyhow::Result<Duration> {
    let mut connection = endpoint.connect().await?;
    let (mut token, mut bytes) = (String::new(), 0);
    let started = Instant::now();
    loop {
        let answer = connection.request("GET", &format!("{path}?limit=500{token}"), None).await?;
        ensure!(answer.code == 200, "a page was answered with {}", answer.code);
        bytes += answer.body.len();
        let head = String::from_utf8_lossy(&answer.body[..answer.body.len().min(2048)]).into_owned();
        match head.split_once("\"continue\":\"").and_then(|(_, rest)| rest.split_once('"')) {
            Some((next, _)) if !next.is_empty() => {
                token = format!("&continue={}", next.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F"))
            }
            _ => break,
        }
    }
    ensure!(bytes > count * 1024, "the pages have only {bytes} bytes");
    Ok(started.elapsed())
}

const JSON: &str = "application/json";

/// Namespace and definition of the load.
async fn prepare(endpoint: &Endpoint) -> anyhow::Result<()> {
    let made = endpoint.request("POST", "/api/v1/namespaces", Some((JSON, objects::namespace().as_bytes()))).await?;
    if made.code == 409 {
        bail!("namespace {NAMESPACE} is there already: delete it, it may be left from a run that was stopped");
    }
    ensure!(made.code == 201, "the namespace was answered with {}: {}", made.code, made.json());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = endpoint.request("POST", definitions, Some((JSON, objects::definition().as_bytes()))).await?;
    ensure!(matches!(made.code, 201 | 409), "the definition was answered with {}: {}", made.code, made.json());
    for _ in 0..600 {
        if endpoint.request("GET", &Kind::Gadget.path(), None).await?.code == 200 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("the custom resource is not served")
}

/// Removes everything again, so that the server can be measured again.
async fn clean(endpoint: &Endpoint) -> anyhow::Result<()> {
    endpoint.request("DELETE", &Kind::ConfigMap.path(), None).await?;
    let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.{}", objects::GROUP);
    endpoint.request("DELETE", &definition, None).await?;
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    endpoint.request("DELETE", &namespace, None).await?;
    for _ in 0..1200 {
        let left: Value = endpoint.request("GET", &namespace, None).await?.json();
        if left["code"] == 404 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eprintln!("warning: namespace {NAMESPACE} is still being deleted");
    Ok(())
}
