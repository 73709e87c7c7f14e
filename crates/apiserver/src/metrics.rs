//! What happened, in numbers, for Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, header};
use parking_lot::Mutex;

use crate::catalog::Catalog;
use crate::request::{Query, RequestInfo};
use crate::resource::{Nature, Resource};
use crate::server::Inner;

/// Upper bounds of the latency buckets, in seconds: Kubernetes' own, and two below, as this server is faster.
const BUCKETS: [f64; 25] = [
    0.001, 0.0025, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0,
];

/// What a request is counted under. The names and their values are Kubernetes'.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    verb: &'static str,
    dry_run: &'static str,
    scope: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
}

impl Labels {
    /// The labels of a request.
    pub fn of(method: &Method, headers: &HeaderMap, query: &Query, info: &RequestInfo) -> Labels {
        let is_resource = !info.resource.is_empty();
        let scope = match info {
            info if !info.name.is_empty() || info.verb == "create" => "resource",
            info if !info.namespace.is_empty() => "namespace",
            _ if is_resource => "cluster",
            _ => "",
        };
        let applies = || headers.get(header::CONTENT_TYPE).is_some_and(|own| own == "application/apply-patch+yaml");
        let verb = match (method.as_str(), &*info.subresource) {
            _ if info.verb == "watch" => "WATCH",
            (_, "attach" | "exec" | "log" | "portforward" | "proxy") => "CONNECT",
            ("GET" | "HEAD", _) => {
                if matches!(scope, "namespace" | "cluster") {
                    "LIST"
                } else {
                    "GET"
                }
            }
            ("PATCH", _) if applies() => "APPLY",
            ("POST", _) => "POST",
            ("PUT", _) => "PUT",
            ("PATCH", _) => "PATCH",
            ("DELETE", _) => "DELETE",
            _ => "other",
        };
        let dry_run = match query.all("dryRun").next() {
            None => "",
            Some(_) if query.all("dryRun").all(|value| value == "All") => "All",
            Some(_) => "invalid",
        };
        let text = |own: &str| if is_resource { own.to_owned() } else { String::new() };
        Labels {
            verb,
            dry_run,
            scope,
            group: text(&info.group),
            version: text(&info.version),
            resource: text(&info.resource),
            subresource: text(&info.subresource),
        }
    }

    /// The same for something that does not exist here. Its names are a client's: there may be any number.
    fn nameless(self) -> Labels {
        let none = String::new;
        Labels { group: none(), version: none(), resource: none(), subresource: none(), ..self }
    }

    /// Whether it is about something that is served.
    fn is_known(&self, catalog: &Catalog) -> bool {
        catalog
            .find(&self.group, &self.version, &self.resource)
            .is_some_and(|own| self.subresource.is_empty() || own.subresource(&self.subresource).is_some())
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Labels { verb, dry_run, scope, group, version, resource, subresource } = self;
        write!(
            f,
            "component=\"apiserver\",dry_run={dry_run:?},group={group:?},resource={resource:?},scope={scope:?},\
             subresource={subresource:?},verb={verb:?},version={version:?}"
        )
    }
}

#[derive(Default)]
struct Series {
    codes: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

/// Adds what somebody else counts.
pub type More = Box<dyn Fn() -> String + Send + Sync>;

/// Counters and latencies of requests, and what others add.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<Labels, Series>>, pub Mutex<Option<More>>);

impl Metrics {
    /// Counts a request.
    pub fn request(&self, labels: Labels, catalog: impl FnOnce() -> Arc<Catalog>, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        // What was answered is served. Of what was not, the names may be anything.
        let labels = if code >= 400 && !labels.is_known(&catalog()) { labels.nameless() } else { labels };
        let mut all = self.0.lock();
        let labels = if all.len() > 10_000 { labels.nameless() } else { labels };
        let series = all.entry(labels).or_default();
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
            "# HELP apiserver_request_total Requests by what they asked for and how that was answered.\n# TYPE apiserver_request_total counter"
        );
        for (labels, series) in all.iter() {
            for (code, count) in &series.codes {
                let _ = writeln!(out, "apiserver_request_total{{code=\"{code}\",{labels}}} {count}");
            }
        }
        let _ = writeln!(
            out,
            "# HELP apiserver_request_duration_seconds How long requests took.\n# TYPE apiserver_request_duration_seconds histogram"
        );
        for (labels, series) in all.iter() {
            let buckets = BUCKETS.iter().zip(&series.buckets);
            let name = "apiserver_request_duration_seconds";
            histogram(&mut out, name, &labels.to_string(), buckets, series.count, series.sum);
        }
        // who may not ask has not asked
        let allowed = |series: &Series| series.codes.keys().any(|code| !matches!(code, 401 | 403));
        let asked = all.iter().filter(|(_, series)| allowed(series)).map(|(labels, _)| labels);
        deprecated(&mut out, asked, &server.catalog());
        drop(all);
        process(&mut out);
        let stats = server.store.stats();
        storage(&mut out, &stats);
        let mut gauge = |name: &str, help: &str, value: u64| one(&mut out, name, "gauge", help, value);
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

/// A metric of one number.
fn one(out: &mut String, name: &str, kind: &str, help: &str, value: impl fmt::Display) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

/// One series of a histogram. Each bucket also has what is in those before it.
fn histogram<'a>(
    out: &mut String,
    name: &str,
    labels: &str,
    buckets: impl Iterator<Item = (&'a f64, &'a u64)>,
    count: u64,
    sum: f64,
) {
    let mut below = 0;
    for (bound, own) in buckets {
        below += own;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}");
    let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
}

/// Which of the APIs that were asked for will go away some day. When that is no release of this server says.
fn deprecated<'a>(out: &mut String, asked: impl Iterator<Item = &'a Labels>, catalog: &Catalog) {
    let name = "apiserver_requested_deprecated_apis";
    let _ = writeln!(out, "# HELP {name} Deprecated APIs that were asked for.\n# TYPE {name} gauge");
    let all: BTreeSet<_> = asked.map(|own| (&own.group, &own.version, &own.resource, &own.subresource)).collect();
    for (group, version, resource, part) in all {
        if catalog.find(group, version, resource).is_some_and(|own| is_deprecated(own)) {
            let labels = format!("group={group:?},version={version:?},resource={resource:?},subresource={part:?}");
            let _ = writeln!(out, "{name}{{{labels},removed_release=\"\"}} 1");
        }
    }
}

fn is_deprecated(resource: &Resource) -> bool {
    match &resource.nature {
        Nature::Custom(custom) => custom.deprecation().is_some(),
        _ => kinds::warnings::deprecated_api(&resource.group, &resource.version, &resource.kind).is_some(),
    }
}

/// What there is in place of etcd, under the names by which everybody looks for it.
fn storage(out: &mut String, stats: &store::Stats) {
    let name = "apiserver_storage_size_bytes";
    let size = stats.engine.log_bytes + stats.engine.checkpoint_bytes;
    let _ = writeln!(
        out,
        "# HELP {name} Bytes of the log and its checkpoint on disk; 0 if all is in memory.\n# TYPE {name} gauge\n\
         {name}{{storage_cluster_id=\"store-0\"}} {size}"
    );
    let name = "etcd_request_duration_seconds";
    let _ = writeln!(
        out,
        "# HELP {name} How long the store took to make a batch of writes durable; there is no etcd.\n# TYPE {name} histogram"
    );
    let store::Durations { buckets, count, sum } = &stats.appends;
    let buckets = store::Durations::BOUNDS.iter().zip(buckets);
    histogram(out, name, "operation=\"append\"", buckets, *count, *sum);
}

/// What the system knows of this process, where it has a `/proc` to say so.
fn process(out: &mut String) {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
    // The name of the program stands in brackets and may be anything; behind it comes the third of the numbers.
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let seconds = |which: usize| {
        let ticks = numbers.split_ascii_whitespace().nth(which - 3)?.parse::<f64>().ok()?;
        Some(ticks / TICKS)
    };
    if let (Some(user), Some(system)) = (seconds(14), seconds(15)) {
        let help = "Seconds of processor time, the program's own and the system's for it.";
        one(out, "process_cpu_seconds_total", "counter", help, user + system);
    }
    if let (Some(booted), Some(after)) = (value(&read("/proc/stat"), "btime"), seconds(22)) {
        one(out, "process_start_time_seconds", "gauge", "When the process began, since 1970.", booted as f64 + after);
    }
    for (name, field, help) in [
        ("process_resident_memory_bytes", "VmRSS:", "Bytes of memory in use."),
        ("process_virtual_memory_bytes", "VmSize:", "Bytes of addresses in use."),
    ] {
        if let Some(kilobytes) = value(&status, field) {
            one(out, name, "gauge", help, kilobytes * 1024);
        }
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory that is being read.
        one(out, "process_open_fds", "gauge", "Files and connections that are open.", files.count().saturating_sub(1));
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        one(out, "process_max_fds", "gauge", "Files and connections that may be open.", most);
    }
}

/// In what Linux tells programs of time, this many are a second, on all its machines.
const TICKS: f64 = 100.0;

/// The number of a line that begins with a name.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(method: &str, path: &str, raw: &str) -> Labels {
        let (method, query) = (Method::from_bytes(method.as_bytes()).unwrap(), Query::parse(raw));
        let info = RequestInfo::parse(&method, path, &query).unwrap();
        Labels::of(&method, &HeaderMap::new(), &query, &info)
    }

    #[test]
    fn requests_are_counted_under_what_kubernetes_counts_them_under() {
        let pods = "/api/v1/namespaces/a/pods";
        let deployments = "/apis/apps/v1/deployments";
        for (method, path, query, expected) in [
            ("GET", pods, "", ("LIST", "", "namespace", "", "v1", "pods", "")),
            ("GET", pods, "watch=1", ("WATCH", "", "namespace", "", "v1", "pods", "")),
            ("POST", pods, "dryRun=All", ("POST", "All", "resource", "", "v1", "pods", "")),
            ("DELETE", pods, "dryRun=x", ("DELETE", "invalid", "namespace", "", "v1", "pods", "")),
            ("GET", "/api/v1/namespaces/a/pods/p/log", "", ("CONNECT", "", "resource", "", "v1", "pods", "log")),
            ("GET", deployments, "", ("LIST", "", "cluster", "apps", "v1", "deployments", "")),
            ("GET", "/apis/apps/v1", "", ("GET", "", "", "", "", "", "")),
        ] {
            let (verb, dry_run, scope, group, version, resource, subresource) = expected;
            let expected = Labels {
                verb,
                dry_run,
                scope,
                group: group.into(),
                version: version.into(),
                resource: resource.into(),
                subresource: subresource.into(),
            };
            assert_eq!(labels(method, path, query), expected, "{method} {path} {query}");
        }
        let written = labels("GET", pods, "").to_string();
        let expected = r#"component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1""#;
        assert_eq!(written, expected);
    }

    #[test]
    fn names_that_only_clients_know_are_not_kept() {
        let (metrics, catalog) = (Metrics::default(), Arc::new(Catalog::builtin()));
        let missed = |path: &str| metrics.request(labels("GET", path, ""), || catalog.clone(), 404, Duration::ZERO);
        for name in ["a", "b", "c"] {
            missed(&format!("/apis/x/v1/{name}"));
            missed(&format!("/api/v1/namespaces/{name}/pods/{name}"));
        }
        let resources: Vec<String> = metrics.0.lock().keys().map(|own| own.resource.clone()).collect();
        assert_eq!(resources, ["pods", ""]);
    }
}
