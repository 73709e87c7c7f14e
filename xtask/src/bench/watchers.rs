//! Many watchers while others write: how many events arrive per second, and how late.
use std::time::{Duration, Instant};

use super::wire::{Endpoint, Watch};
use anyhow::{Context, ensure};
use serde_json::Value;

use super::load::drive;
use super::objects::{Kind, stamp, stamped};

/// How it went.
pub struct Delivered {
    /// From the first create to the last event.
    pub took: Duration,
    /// How many creates there were.
    pub creates: usize,
    /// From before the create was sent to when a watcher had the event, sorted.
    pub delays: Vec<Duration>,
}

/// `watchers` watches while 8 clients create `creates` objects. With selectors, object i is for watcher i modulo `watchers`.
pub async fn run(endpoint: &Endpoint, watchers: usize, creates: usize, selectors: bool) -> anyhow::Result<Delivered> {
    let path = Kind::ConfigMap.path();
    let list: Value = endpoint.request("GET", &format!("{path}?limit=1"), None).await?.json();
    let revision = list["metadata"]["resourceVersion"].as_str().context("a list has no resourceVersion")?;
    let epoch = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..watchers {
        let mut query = format!("{path}?watch=true&resourceVersion={revision}");
        if selectors {
            query.push_str(&format!("&labelSelector=watcher%3Dw{index}"));
        }
        let watch = endpoint.connect().await?.watch(&query).await?;
        ensure!(watch.code == 200, "a watch was answered with {}", watch.code);
        let expected = match selectors {
            true => creates / watchers + usize::from(index < creates % watchers),
            false => creates,
        };
        tasks.spawn(follow(watch, expected, epoch));
    }
    let started = Instant::now();
    let series = if selectors { "selected" } else { "watched" };
    let load = drive(endpoint, 8, creates, move |index| {
        stamped(&format!("{series}-{index}"), index % watchers, epoch.elapsed().as_nanos())
    });
    load.await?;
    let mut delays = Vec::new();
    while let Some(done) = tasks.join_next().await {
        delays.extend(done??);
    }
    let took = started.elapsed();
    delays.sort_unstable();
    Ok(Delivered { took, creates, delays })
}

/// Reads events until all that are expected have come.
async fn follow(mut watch: Watch, expected: usize, epoch: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut delays = Vec::with_capacity(expected);
    while delays.len() < expected {
        let line = tokio::time::timeout(Duration::from_secs(60), watch.line()).await;
        let line = line.context("no event for a minute")??.context("the watch ended")?;
        if let Some(sent) = stamp(&line) {
            let sent = Duration::from_nanos(u64::try_from(sent)?);
            delays.push(epoch.elapsed().saturating_sub(sent));
        }
    }
    Ok(delays)
}
