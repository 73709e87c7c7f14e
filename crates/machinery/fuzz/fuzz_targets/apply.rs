//! Server-side apply on Services and Pods: any object, any two configurations, one on each line.
#![no_main]

use conductor_machinery::apply::{ApplyError, Filter, OneVersion, Tracker};
use conductor_machinery::schema::decode;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Nulls and empty objects own a field without saying what is in it.
fn hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty() || fields.values().any(hollow),
        Value::Array(items) => items.iter().any(hollow),
        _ => false,
    }
}

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(3, '\n').map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| json!({})));
    let mut next = |kind: &str| {
        let mut value = lines.next().filter(Value::is_object).unwrap_or_else(|| json!({}));
        value["apiVersion"] = json!("v1");
        value["kind"] = json!(kind);
        value
    };
    let kind = if text.contains("containers") { "Pod" } else { "Service" };
    let (live, one, two) = (next(kind), next(kind), next(kind));
    let schema = conductor_kinds::schema_of("", "v1", kind).expect("built in");
    let Ok(live) = decode(live, schema) else { return };
    let reset = Filter::Everything;
    let tracker = Tracker {
        schema,
        api_version: "v1",
        kind,
        subresource: "",
        reset: &reset,
        reset_elsewhere: &Filter::Everything,
        converter: &OneVersion,
        custom: false,
    };
    let now = "2026-01-02T03:04:05Z";
    let mut live = live.value;
    let _ = tracker.update(None, &mut live, "creator", now);
    let first = match tracker.apply(Some(&live), &one, "one", false, now) {
        Err(ApplyError::Conflicts(_)) => tracker.apply(Some(&live), &one, "one", true, now),
        result => result,
    };
    let Ok(first) = first else { return };
    if !hollow(&one) && !hollow(&live) {
        assert_eq!(tracker.apply(Some(&first), &one, "one", false, now), Ok(first.clone()));
    }
    let _ = tracker.apply(Some(&first), &two, "one", true, now);
    let _ = tracker.apply(Some(&first), &two, "two", false, now);
    let mut updated = first.clone();
    updated["metadata"] = live["metadata"].clone();
    let _ = tracker.update(Some(&first), &mut updated, "updater", now);
});
