//! Events: stored as core `v1` has them, shown in `events.k8s.io/v1` under other names.

use serde_json::Value;

/// Names in `events.k8s.io/v1`, names in core `v1`.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

pub(super) fn to_core(event: &mut Value) {
    rename(event, NAMES.iter().copied());
}

pub(super) fn from_core(event: &mut Value) {
    rename(event, NAMES.iter().map(|(new, old)| (*old, *new)));
}

fn rename<'a>(event: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
