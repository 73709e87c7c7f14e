//! Conditions, and patches of a status that say something new or are not sent.

use serde_json::{Map, Value, json};

/// A condition to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: bool,
    /// One word.
    pub reason: String,
    /// What it means and what to do.
    pub message: String,
}

impl Condition {
    /// A condition that holds or not.
    pub fn new(kind: &'static str, status: bool, reason: impl Into<String>, message: impl Into<String>) -> Condition {
        Condition { kind, status, reason: reason.into(), message: message.into() }
    }
}

/// The condition of an object with this type: whether it is True, and its reason.
pub fn condition_of<'o>(object: &'o Value, kind: &str) -> Option<(bool, &'o str, &'o str)> {
    let list = object["status"]["conditions"].as_array()?;
    let found = list.iter().find(|c| c["type"].as_str() == Some(kind))?;
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    Some((found["status"].as_str() == Some("True"), text("reason"), text("message")))
}

/// The conditions of an object with these set. The time changes only where the status does.
fn merged(object: &Value, conditions: &[Condition], now: &str) -> Value {
    let mut list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in conditions {
        let status = if condition.status { "True" } else { "False" };
        let old = list.iter_mut().find(|c| c["type"].as_str() == Some(condition.kind));
        let since = match &old {
            Some(old) if old["status"].as_str() == Some(status) => old["lastTransitionTime"].clone(),
            _ => json!(now),
        };
        let mut new = json!({
            "type": condition.kind,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since,
        });
        if let Some(generation) = object["metadata"]["generation"].as_i64() {
            new["observedGeneration"] = generation.into();
        }
        match old {
            Some(old) => *old = new,
            None => list.push(new),
        }
    }
    json!(list)
}

/// The merge patch that puts one value in the place of another.
pub(super) fn instead(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = new.iter().map(|(key, value)| (key.clone(), instead(&old.get(key).cloned().unwrap_or_default(), value)));
    Value::Object(gone.chain(kept).collect())
}

/// The patch of a status that brings these fields and conditions; `None` if it has them. Null removes a field.
pub fn status_patch(object: &Value, fields: Value, conditions: &[Condition], now: &str) -> Option<Value> {
    let mut patch = Map::new();
    for (key, value) in fields.as_object().into_iter().flatten() {
        if object["status"][key] != *value {
            patch.insert(key.clone(), instead(&object["status"][key], value));
        }
    }
    if !conditions.is_empty() {
        let list = merged(object, conditions, now);
        if object["status"]["conditions"] != list {
            patch.insert("conditions".into(), list);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
