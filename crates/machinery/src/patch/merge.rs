//! Merge patch: a patch looks like the object; null removes a field, objects are merged, all else is replaced.

use serde_json::{Map, Value};

use super::PatchError;

/// Applies a merge patch.
///
/// ```
/// use conductor_machinery::patch::apply_merge_patch;
/// use serde_json::json;
/// let object = json!({"a": {"b": 1, "c": 2}});
/// assert_eq!(apply_merge_patch(&object, &json!({"a": {"b": null, "d": 3}})).unwrap(), json!({"a": {"c": 2, "d": 3}}));
/// ```
pub fn apply_merge_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed("Invalid JSON Patch: a merge patch is an object".to_owned()));
    };
    let mut fields = object.as_object().cloned().unwrap_or_default();
    merge_fields(&mut fields, patch);
    Ok(Value::Object(fields))
}

/// The same for an object that is not needed any more.
pub fn merge_into(mut object: Value, patch: &Value) -> Result<Value, PatchError> {
    match (object.as_object_mut(), patch) {
        (Some(fields), Value::Object(patch)) => {
            merge_fields(fields, patch);
            Ok(object)
        }
        _ => apply_merge_patch(&object, patch),
    }
}

fn merge_fields(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        match (fields.get_mut(key), change) {
            (_, Value::Null) => {
                fields.remove(key);
            }
            (Some(Value::Object(fields)), Value::Object(patch)) => merge_fields(fields, patch),
            // What replaces an object is taken as it is; elsewhere nulls have nothing to remove and go.
            (Some(current @ Value::Object(_)), change) => *current = change.clone(),
            (_, change) => {
                fields.insert(key.clone(), without_nulls(change));
            }
        }
    }
}

/// A value without fields that are null, also inside lists.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
