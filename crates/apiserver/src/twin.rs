//! Events stand in two groups: one thing, stored as core `v1` has it, shown in `events.k8s.io/v1` under other names.

use machinery::schema;
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

/// Whether a kind is stored as another.
pub fn is_twin(gk: (&str, &str)) -> bool {
    gk == ("events.k8s.io", "Event")
}

/// As core `v1` has it.
pub fn to_core(event: Value) -> Value {
    renamed(event, ("", "v1"), NAMES.iter().copied())
}

/// As `events.k8s.io/v1` has it.
pub fn from_core(event: Value) -> Value {
    renamed(event, ("events.k8s.io", "v1"), NAMES.iter().map(|(new, old)| (*old, *new)))
}

fn renamed<'a>(mut event: Value, to: (&str, &str), names: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    if let Some(fields) = event.as_object_mut() {
        for (from, to) in names {
            if let Some(value) = fields.remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
        let api_version = if to.0.is_empty() { to.1.to_owned() } else { format!("{}/{}", to.0, to.1) };
        fields.insert("apiVersion".into(), api_version.into());
    }
    // Decoding writes what the other type always writes.
    match kinds::schema_of(to.0, to.1, "Event") {
        Some(schema) => match schema::decode(event.clone(), schema) {
            Ok(decoded) => decoded.value,
            Err(_) => event,
        },
        None => event,
    }
}
