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

/// The most characters of a message: what a provider says may be longer than a schema takes, and would keep all else from being said.
const MOST: usize = 32_000;

fn bounded(message: &str) -> &str {
    message.char_indices().nth(MOST).map_or(message, |(end, _)| &message[..end])
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
            "message": bounded(&condition.message),
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
        let value = match value.as_str() {
            Some(message) if key == "message" => json!(bounded(message)),
            _ => value.clone(),
        };
        if object["status"][key] != value {
            patch.insert(key.clone(), instead(&object["status"][key], &value));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_longer_than_a_schema_takes() {
        for (length, written) in [(0, 0), (MOST, MOST), (MOST + 1, MOST), (100_000, MOST)] {
            let message = "\u{e9}".repeat(length);
            let condition = Condition::new("Ready", false, "Lost", message.clone());
            let mut object = json!({});
            let patch = status_patch(&object, json!({"message": message}), std::slice::from_ref(&condition), "now");
            object["status"] = patch.expect("is new");
            for said in [&object["status"]["message"], &object["status"]["conditions"][0]["message"]] {
                assert_eq!(said.as_str().map(|said| said.chars().count()), Some(written));
            }
            assert_eq!(status_patch(&object, json!({"message": message}), &[condition], "later"), None, "{length}");
        }
    }
}
