//! Taking out of an answer what must differ between two servers.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// Managers that only a real cluster has: its controllers, who look at everything.
const CONTROLLERS: &[&str] = &[
    "api-priority-and-fairness-config-consumer-v1",
    "conductor",
    "kube-apiserver",
    "kube-controller-manager",
    "namespace-controller",
    "service-cidr-controller",
    "validatingadmissionpolicy-status",
];

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a pattern"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    let recent = r"20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)";
    Regex::new(recent).expect("a pattern")
});
static VERSION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"((?i:resource ?version)[^0-9]{1,24}|current: )\d+( \(\d+\))?").expect("a pattern"));
static OBJECT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"Invalid value: "\{(?:[^"\\]|\\.)*""#).expect("a pattern"));
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| Regex::new("kube-api-access-[a-z0-9]{5}").expect("a pattern"));
static SUPPORTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"supported values: ("[^"]*"(?:, "[^"]*")*)"#).expect("a pattern"));
/// A real one calls the type of `self` otherwise each time.
static SELF_TYPE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bselfType\d+").expect("a pattern"));
static CREDENTIAL: LazyLock<Regex> = LazyLock::new(|| Regex::new("X509SHA256=[0-9a-f]{64}").expect("a pattern"));
static DIGEST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"^(W/)?"[0-9A-Fa-f]{32,128}"$"#).expect("a pattern"));
static CLUSTER_IP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b10\.96\.\d+\.\d+\b").expect("a pattern"));

/// Replaces what depends on the server and the moment:
///
/// - uids, times from 2026 on, resource versions and continue tokens, also within messages
/// - addresses and ports that Services were given, digests of clients' certificates and of documents
/// - the random end of generated names
/// - the revisions and the order (not the fields) of managers, and what a real cluster's controllers own
/// - ages in tables
/// - the order of a definition's conditions
/// - the order of a refusal's causes, and of the values one says are supported, and whole objects quoted in them
pub fn normalise(value: &Value) -> Value {
    let mut value = value.clone();
    walk(&mut value, "");
    ages(&mut value);
    causes(&mut value);
    conditions(&mut value);
    rules(&mut value);
    value
}

/// Several controllers of a real cluster add to a definition's conditions, in the order in which they come to it.
fn conditions(definition: &mut Value) {
    if definition["kind"] == "CustomResourceDefinition"
        && let Some(conditions) = definition.pointer_mut("/status/conditions").and_then(Value::as_array_mut)
    {
        conditions.sort_by_cached_key(|condition| condition["type"].to_string());
    }
}

/// The rules that somebody has come in any order.
fn rules(review: &mut Value) {
    for list in ["/status/resourceRules", "/status/nonResourceRules"] {
        if let Some(Value::Array(rules)) = review.pointer_mut(list) {
            rules.sort_by_cached_key(Value::to_string);
        }
    }
}

/// Kubernetes names the causes of a refusal in an order that often changes from one request to the next.
fn causes(status: &mut Value) {
    let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_cached_key(|cause| format!("{}: {}", cause["field"], cause["message"]));
    causes.dedup();
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(list) = message.find(" is invalid: [")
    {
        message.truncate(list);
        message.push_str(" is invalid: [<causes>]");
    }
}

fn walk(value: &mut Value, key: &str) {
    match value {
        Value::String(text) => {
            let replaced = match key {
                "resourceVersion" if text.parse::<u64>().is_ok_and(|version| version > 1) => "<version>".into(),
                "continue" if !text.is_empty() => "<continue>".into(),
                "token" if text.len() > 100 => "<token>".into(),
                _ => words(text),
            };
            *text = replaced;
        }
        Value::Number(_) if matches!(key, "nodePort" | "healthCheckNodePort") => *value = "<port>".into(),
        Value::Array(items) => {
            if key == "managedFields" {
                items.retain(|item| {
                    let manager = item["manager"].as_str().unwrap_or_default();
                    !CONTROLLERS.contains(&manager)
                });
                // They are sorted by their time, and one server may do within a second what the other does over two.
                items.sort_by_cached_key(|item| {
                    ["manager", "operation", "subresource", "apiVersion"].map(|key| item[key].to_string())
                });
            }
            for item in items {
                walk(item, key);
            }
        }
        Value::Object(fields) => {
            let generated = fields.get("generateName").and_then(Value::as_str).map(str::to_owned);
            if let (Some(base), Some(Value::String(name))) = (generated, fields.get_mut("name"))
                && !base.is_empty()
                && name.len() > 5
            {
                let end = name.len() - 5;
                name.replace_range(end.., "<5>");
            }
            for (key, value) in fields.iter_mut() {
                walk(value, key);
            }
            // Only controllers had a part in it.
            fields
                .retain(|key, value| key != "managedFields" || value.as_array().is_none_or(|items| !items.is_empty()));
        }
        _ => {}
    }
}

/// Objects and lists that a message quotes: the real one shows them as Go has them.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = ["value: {", "value: ["].iter().filter_map(|mark| rest.find(mark)).min() {
        let (before, json) = rest.split_at(at + "value: ".len());
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
        let end = if values.next().is_some_and(|value| value.is_ok()) { values.byte_offset() } else { 1 };
        out.push_str(before);
        out.push_str(if end > 1 { "<object>" } else { &json[..1] });
        rest = &json[end..];
    }
    out.push_str(rest);
    out
}

/// The same within a text.
pub fn words(text: &str) -> String {
    let text = quoted(text);
    let text = OBJECT.replace_all(&text, "Invalid value: \"<object>\"");
    let text = UID.replace_all(&text, "<uid>");
    let text = TIME.replace_all(&text, "<time>");
    let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<5>");
    let text = SELF_TYPE.replace_all(&text, "self");
    let text = CREDENTIAL.replace_all(&text, "X509SHA256=<digest>");
    let text = DIGEST.replace_all(&text, "$1\"<digest>\"");
    let text = CLUSTER_IP.replace_all(&text, "<ip>");
    let text = SUPPORTED.replace_all(&text, |found: &Captures<'_>| {
        let mut values: Vec<&str> = found[1].split(", ").collect();
        values.sort_unstable();
        format!("supported values: {}", values.join(", "))
    });
    VERSION.replace_all(&text, |found: &Captures<'_>| format!("{}<version>", &found[1])).into_owned()
}

/// A table's ages. In a watch only the first table has its columns.
fn ages(value: &mut Value) {
    let is_age = |column: &Value| {
        matches!(column["name"].as_str(), Some("Age" | "Last Seen" | "First Seen" | "Duration" | "Last Schedule"))
    };
    let mut columns: Vec<usize> = Vec::new();
    let tables: Vec<&mut Value> = match value {
        Value::Array(documents) => documents.iter_mut().filter_map(|document| document.get_mut("object")).collect(),
        // A watch that told one thing.
        value if value["kind"].is_null() => value.get_mut("object").into_iter().collect(),
        value => vec![value],
    };
    for table in tables.into_iter().filter(|table| table["kind"] == "Table") {
        if let Some(defined) = table["columnDefinitions"].as_array() {
            // IPAddresses have an age that no column speaks of.
            columns = (0..=defined.len()).filter(|index| defined.get(*index).is_none_or(is_age)).collect();
        }
        let rows = table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten();
        for cells in rows.filter_map(|row| row.get_mut("cells")?.as_array_mut()) {
            for column in &columns {
                if let Some(Value::String(age)) = cells.get_mut(*column)
                    && age.ends_with(['s', 'm'])
                {
                    *age = "<age>".into();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_must_differ_is_taken_out() {
        let check = |given: Value, expected: Value| assert_eq!(normalise(&given), expected);
        check(json!({"resourceVersion": "123", "x": "123"}), json!({"resourceVersion": "<version>", "x": "123"}));
        check(json!({"message": "resourceVersion: 12"}), json!({"message": "resourceVersion: <version>"}));
        check(
            json!({"message": "too old resource version: 1 (99)"}),
            json!({"message": "too old resource version: <version>"}),
        );
        check(
            json!({"time": "2026-11-15T09:10:18Z", "old": "2001-01-01T00:00:00Z"}),
            json!({"time": "<time>", "old": "2001-01-01T00:00:00Z"}),
        );
        check(json!({"generateName": "a-", "name": "a-x7k2p"}), json!({"generateName": "a-", "name": "a-<5>"}));
        check(json!({"managedFields": [{"manager": "kube-controller-manager", "operation": "Update"}]}), json!({}));
        let table =
            |age: &str| json!({"kind": "Table", "columnDefinitions": [{"name": "Age"}], "rows": [{"cells": [age]}]});
        check(
            json!({"message": "a: Invalid value: {\"Rule\":\"}\"}: b [c: Duplicate value: [1]], value: {x"}),
            json!({"message": "a: Invalid value: <object>: b [c: Duplicate value: <object>], value: {x"}),
        );
        check(table("5s"), table("<age>"));
        check(table("<unknown>"), table("<unknown>"));
        let columnless = |age: &str| json!({"kind": "Table", "columnDefinitions": [], "rows": [{"cells": [age]}]});
        check(columnless("1s"), columnless("<age>"));
    }
}
