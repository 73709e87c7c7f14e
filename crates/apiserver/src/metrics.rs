//! What happened, in numbers, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;

use crate::server::Inner;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

#[derive(Default)]
struct Series {
    codes: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

/// Adds what somebody else counts.
pub type More = Box<dyn Fn() -> String + Send + Sync>;

/// Counters and latencies by verb and resource, and what others add.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<(String, String), Series>>, pub Mutex<Option<More>>);

impl Metrics {
    /// Counts a request.
    pub fn request(&self, verb: &str, resource: &str, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut all = self.0.lock();
        // Names come from clients: only as many as a catalog could have are kept apart.
        let resource = if code == 404 || all.len() > 10_000 { "" } else { resource };
        let series = all.entry((verb.to_owned(), resource.to_owned())).or_default();
        *series.codes.entry(code).or_default() += 1;
        series.count += 1;
        series.sum += seconds;
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            series.buckets[at] += 1;
        }
    }

    /// The text that Prometheus reads.
    pub fn text(&self, server: &Inner) -> String {
        let mut out = String::new();
        let all = self.0.lock();
        let _ = writeln!(
            out,
            "# HELP apiserver_request_total Requests by verb, resource and code.\n# TYPE apiserver_request_total counter"
        );
        for ((verb, resource), series) in all.iter() {
            for (code, count) in &series.codes {
                let verb = verb.to_uppercase();
                let _ = writeln!(
                    out,
                    "apiserver_request_total{{verb={verb:?},resource={resource:?},code=\"{code}\"}} {count}"
                );
            }
        }
        let _ = writeln!(
            out,
            "# HELP apiserver_request_duration_seconds How long requests took.\n# TYPE apiserver_request_duration_seconds histogram"
        );
        for ((verb, resource), series) in all.iter() {
            let labels = format!("verb={:?},resource={resource:?}", verb.to_uppercase());
            let mut sum = 0;
            for (bound, count) in BUCKETS.iter().zip(series.buckets) {
                sum += count;
                let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {sum}");
            }
            let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {}", series.count);
            let _ = writeln!(out, "apiserver_request_duration_seconds_sum{{{labels}}} {}", series.sum);
            let _ = writeln!(out, "apiserver_request_duration_seconds_count{{{labels}}} {}", series.count);
        }
        drop(all);
        let stats = server.store.stats();
        let mut gauge = |name: &str, help: &str, value: u64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        };
        gauge("apiserver_longrunning_requests", "Watches that run.", server.watches.count() as u64);
        gauge("conductor_store_revision", "The current revision.", stats.revision);
        let sum = |part: fn(&store::TableStats) -> usize| stats.tables.values().map(part).sum::<usize>() as u64;
        gauge("conductor_store_objects", "Objects in the store.", sum(|table| table.objects));
        gauge("conductor_store_bytes", "Bytes of all objects.", sum(|table| table.bytes));
        gauge("conductor_store_window_bytes", "Bytes that only the history keeps.", sum(|table| table.window_bytes));
        let name = "apiserver_flowcontrol_nominal_limit_seats";
        let _ = writeln!(
            out,
            "# HELP {name} How much of the server is a priority level's by its shares; turns are by user.\n# TYPE {name} gauge"
        );
        for (level, seats) in server.flows.seats(server.places) {
            let _ = writeln!(out, "{name}{{priority_level={level:?}}} {seats}");
        }
        if let Some(more) = &*self.1.lock() {
            out += &more();
        }
        out
    }
}

/// What the health checks say, for Prometheus. A server that answers passes them all.
pub fn checks(names: &[&str], passes: impl Fn(&str, &str) -> bool) -> String {
    let mut out =
        "# HELP kubernetes_healthcheck Whether a check passes.\n# TYPE kubernetes_healthcheck gauge\n".to_owned();
    for name in names {
        for kind in ["healthz", "livez", "readyz"] {
            let passes = u8::from(passes(kind, name));
            let _ = writeln!(out, "kubernetes_healthcheck{{name={name:?},type={kind:?}}} {passes}");
        }
    }
    out
}
