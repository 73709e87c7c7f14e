//! What the managers have and do, in numbers, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::Desks;

/// What was sent.
#[derive(Debug, Default)]
pub struct Counters {
    writes: AtomicU64,
    failures: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, writes: usize, failed: bool) {
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(failed), Ordering::Relaxed);
    }
}

/// The numbers of running managers; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) desks: Arc<Desks>,
    pub(crate) counters: Arc<Counters>,
}

impl Metrics {
    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let (mut claims, mut resources, mut queues) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for desk in self.desks.all() {
            let kind = desk.kind.name();
            queues.insert(format!("type={kind:?}"), desk.queue.len());
            let count = |all: &mut BTreeMap<String, usize>, phase: &str, number: usize| {
                *all.entry(format!("type={kind:?},phase={phase:?}")).or_default() += number;
            };
            let state = desk.state.lock();
            let bound = state.claims.values().filter(|seen| seen.bound).count();
            count(&mut claims, "Bound", bound);
            count(&mut claims, "Waiting", state.claims.len() - bound);
            for offer in state.index.offers() {
                count(&mut resources, offer.phase.name(), 1);
            }
        }
        let mut out = String::new();
        let mut gauge = |name: &str, help: &str, all: &BTreeMap<String, usize>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, value) in all {
                let _ = writeln!(out, "{name}{{{labels}}} {value}");
            }
        };
        gauge("conductor_claims", "Claims by type, bound or waiting.", &claims);
        gauge("conductor_resources", "Resources by type and phase.", &resources);
        gauge("conductor_queue_items", "Claims and resources to be looked at.", &queues);
        let mut counter = |name: &str, help: &str, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        };
        counter("conductor_writes_total", "Writes that the managers sent.", &self.counters.writes);
        counter("conductor_write_failures_total", "Lists of writes that did not go through.", &self.counters.failures);
        out
    }
}
