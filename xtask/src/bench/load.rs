//! Closed-loop load: so many clients, each with a connection of its own, each sending as soon as it has its answer.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::wire::Endpoint;
use anyhow::{Context, bail};

/// One request to send.
pub struct Request {
    /// GET, POST, …
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    /// Content type and body.
    pub body: Option<(&'static str, String)>,
}

/// How it went.
pub struct Outcome {
    /// How long all of it took.
    pub took: Duration,
    /// How long each request took, sorted.
    pub latencies: Vec<Duration>,
}

impl Outcome {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }
}

/// The value below which a fraction of sorted values lies, in milliseconds.
pub fn quantile(sorted: &[Duration], fraction: f64) -> f64 {
    let at = ((sorted.len() as f64 * fraction) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |value| value.as_secs_f64() * 1000.0)
}

/// Sends `total` requests with `clients` clients. Each must be answered with success.
pub async fn drive(
    endpoint: &Endpoint,
    clients: usize,
    total: usize,
    request: impl Fn(usize) -> Request + Send + Sync + 'static,
) -> anyhow::Result<Outcome> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(endpoint.connect().await.context("connecting")?);
    }
    let (next, request) = (Arc::new(AtomicUsize::new(0)), Arc::new(request));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut connection in connections {
        let (next, request) = (next.clone(), request.clone());
        tasks.spawn(async move {
            let mut latencies = Vec::with_capacity(total / clients + 1);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    return Ok(latencies);
                }
                let Request { method, path, body } = request(index);
                let body = body.as_ref().map(|(kind, text)| (*kind, text.as_bytes()));
                let sent = Instant::now();
                let answer = connection.request(method, &path, body).await?;
                latencies.push(sent.elapsed());
                if !(200..300).contains(&answer.code) {
                    bail!("{method} {path}: {} {}", answer.code, String::from_utf8_lossy(&answer.body));
                }
            }
        });
    }
    let mut latencies = Vec::with_capacity(total);
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
    let took = started.elapsed();
    latencies.sort_unstable();
    Ok(Outcome { took, latencies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let sorted: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantile(&sorted, 0.5), 51.0);
        assert_eq!(quantile(&sorted, 0.99), 100.0);
        assert_eq!(quantile(&sorted[..1], 0.99), 1.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
