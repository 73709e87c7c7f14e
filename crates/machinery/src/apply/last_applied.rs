//! kubectl's client-side apply left its configuration in an annotation: what server-side apply makes of it.

use serde_json::Value;

use super::compare::compare;
use super::field_set::to_field_set;
use super::path::write_json;
use super::set::FieldSet;
use super::tracker::Tracker;
use super::validate::validate;

/// The annotation.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How many bytes all annotations may have.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// What client-side apply set and nobody has changed since: kubectl may take that over without a conflict.
pub(super) fn owned(tracker: &Tracker<'_>, live: &Value) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(tracker.api_version) {
        return None;
    }
    validate(live, tracker.schema, false).ok()?;
    validate(&last, tracker.schema, false).ok()?;
    let set = to_field_set(&last, tracker.schema);
    let changed = compare(&last, live, tracker.schema).ok()?;
    Some(set.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Writes what is applied into the annotation if there is one, so that client-side apply can be used again.
pub(super) fn renew(object: &mut Value, patch: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut patch = patch.clone();
    if let Some(Value::Object(metadata)) = patch.get_mut("metadata") {
        metadata.retain(|name, value| name != "annotations" || !value.is_null());
    }
    if let Some(Value::Object(annotations)) = patch.get_mut("metadata").and_then(|m| m.get_mut("annotations")) {
        annotations.remove(LAST_APPLIED);
        // Kubernetes reads and writes the annotations as texts on the way.
        for value in annotations.values_mut().filter(|value| value.is_null()) {
            *value = Value::String(String::new());
        }
    }
    let mut text = String::new();
    write_json(&patch, &mut text);
    text.push('\n');
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
        let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
        if size > MAX_ANNOTATIONS {
            annotations.remove(LAST_APPLIED);
        }
    }
}
