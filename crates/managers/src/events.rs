//! Events: written when a person would want to know, at a bounded rate, never in the way of the work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conductor_claims::lifecycle::Event;
use http::Method;
use serde_json::json;
use tokio::sync::mpsc;

use crate::api::{Api, JSON};
use crate::clock::{micro_now, now};

/// Events kept in line; what comes beyond is not written.
const LINE: usize = 512;
/// Events per second, after a burst of [`BURST`].
const RATE: f64 = 10.0;
const BURST: f64 = 100.0;
/// The same about the same is not said again for so long.
const QUIET: Duration = Duration::from_secs(600);

/// Where events go.
#[derive(Clone)]
pub struct Events {
    line: mpsc::Sender<Event>,
}

impl Events {
    /// Events, and the writer to be run.
    pub fn new(api: Api) -> (Events, impl Future<Output = ()> + Send) {
        let (line, queue) = mpsc::channel(LINE);
        (Events { line }, write(api, queue))
    }

    /// Puts events in line; they are lost if it is full.
    pub fn tell(&self, events: Vec<Event>) {
        for event in events {
            let _ = self.line.try_send(event);
        }
    }
}

async fn write(api: Api, mut queue: mpsc::Receiver<Event>) {
    let counter = AtomicU64::new(0);
    let (mut tokens, mut last) = (BURST, Instant::now());
    let mut said: HashMap<(String, &'static str, String), Instant> = HashMap::new();
    while let Some(event) = queue.recv().await {
        if said.len() > 4 * LINE {
            said.retain(|_, at| at.elapsed() < QUIET);
            if said.len() > 4 * LINE {
                said.clear();
            }
        }
        let key = (event.uid.clone(), event.reason, event.message.clone());
        if said.get(&key).is_some_and(|at| at.elapsed() < QUIET) {
            continue;
        }
        tokens = (tokens + last.elapsed().as_secs_f64() * RATE).min(BURST);
        last = Instant::now();
        if tokens < 1.0 {
            // an event dropped in a burst is no loss: the objects say the same
            continue;
        }
        tokens -= 1.0;
        said.insert(key, Instant::now());
        let about = &event.about;
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let stem: String = about.name.chars().take(200).collect();
        let time = now();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("{stem}.{:x}{number:x}", micro_now()), "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version, "kind": about.kind, "namespace": about.namespace, "name": about.name, "uid": event.uid,
            },
            "reason": event.reason,
            "message": event.message.chars().take(1000).collect::<String>(),
            "type": if event.warning { "Warning" } else { "Normal" },
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "reportingComponent": "conductor",
            "source": {"component": "conductor"},
        });
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldManager={}", crate::api::FIELD_MANAGER);
        if let Err(failure) = api.call(Method::POST, &path, JSON, body.to_string().into_bytes()).await {
            tracing::debug!(%failure, "an event could not be written");
        }
    }
}
