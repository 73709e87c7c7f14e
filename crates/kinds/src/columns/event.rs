//! Events, of the core group and of `events.k8s.io`.

use serde_json::{Value, json};

use super::format::{number, or};
use super::{Column, NAME, Printer, name, time};
use crate::value::{get, has, text};

pub(super) static PRINTERS: &[Printer] = &[
    Printer { group: "", kind: "Event", columns: COLUMNS, cells: |object, now| event(object, &CORE_EVENT, now) },
    Printer {
        group: "events.k8s.io",
        kind: "Event",
        columns: COLUMNS,
        cells: |object, now| event(object, &NEW_EVENT, now),
    },
];

static COLUMNS: &[Column] = &[
    Column::text("Last Seen", "When it last happened."),
    Column::text("Type", "Normal or Warning."),
    Column::text("Reason", "Why it happened, in one word."),
    Column::text("Object", "What it is about."),
    Column::text("Subobject", "The part of the object it is about.").wide(),
    Column::text("Source", "Who reported it.").wide(),
    Column::text("Message", "What happened."),
    Column::text("First Seen", "When it first happened.").wide(),
    Column::text("Count", "How often it happened.").wide(),
    NAME.wide(),
];

/// The two groups name the fields of an event differently.
struct EventFields {
    about: &'static str,
    message: &'static str,
    source: &'static str,
    controller: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
}

static CORE_EVENT: EventFields = EventFields {
    about: "involvedObject",
    message: "message",
    source: "source",
    controller: "reportingComponent",
    first: "firstTimestamp",
    last: "lastTimestamp",
    count: "count",
};

static NEW_EVENT: EventFields = EventFields {
    about: "regarding",
    message: "note",
    source: "deprecatedSource",
    controller: "reportingController",
    first: "deprecatedFirstTimestamp",
    last: "deprecatedLastTimestamp",
    count: "deprecatedCount",
};

fn event(object: &Value, fields: &EventFields, now: i64) -> Vec<Value> {
    let first = match has(object, fields.first) {
        true => time::since(object, fields.first, now),
        false => time::since(object, "eventTime", now),
    };
    let (last, count) = if has(object, "series") {
        (time::since(object, "series.lastObservedTime", now), number(object, "series.count"))
    } else {
        let last = if has(object, fields.last) { time::since(object, fields.last, now) } else { first.clone() };
        let count = number(object, fields.count);
        (last, if count == 0 { 1 } else { count })
    };
    let about = get(object, fields.about);
    let mut target = text(about, "kind").to_lowercase();
    if !text(about, "name").is_empty() {
        target = format!("{target}/{}", text(about, "name"));
    }
    let source = get(object, fields.source);
    let component = or(source, "component", text(object, fields.controller));
    let source = match or(source, "host", text(object, "reportingInstance")) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    vec![
        json!(last),
        json!(text(object, "type")),
        json!(text(object, "reason")),
        json!(target),
        json!(text(about, "fieldPath")),
        json!(source),
        json!(text(object, fields.message).trim()),
        json!(first),
        json!(count),
        name(object),
    ]
}
