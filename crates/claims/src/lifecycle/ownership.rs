//! Which fields of an implementation are its template's: those that it names, and those that it named.
//!
//! An implementation is created and not applied, for only so can it be told from one that is there already; what it was created with
//! would stay on it for ever. So when its template is another, what was created counts as applied, and applying the new one removes what it
//! no longer names. What others own stays.

use serde_json::{Map, Value, json};

use crate::names::hash;

/// Under which name templates own their fields: nobody else writes under it.
pub const TEMPLATE_MANAGER: &str = "conductor-template";
/// On an implementation: which version of its template it is of.
pub const TEMPLATE_HASH: &str = "conductor.io/template-hash";

/// Marks what a template makes with its version.
pub(super) fn mark(object: &mut Value) {
    let mut text = String::new();
    write_sorted(object, &mut text);
    object["metadata"]["annotations"][TEMPLATE_HASH] = json!(hash(&text));
}

/// Whether an implementation was made by another version of its template than the one that makes `wanted`.
pub fn is_outdated(live: &Value, wanted: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["annotations"][TEMPLATE_HASH].clone();
    version(live) != version(wanted)
}

/// Who owns which field, once what the template created counts as applied; `None` if that is so already, or is not known.
pub(super) fn applied(live: &Value) -> Option<Value> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let own = |entry: &Value, operation: &str| {
        entry["manager"] == TEMPLATE_MANAGER && entry["operation"] == operation && entry["subresource"].is_null()
    };
    let created = entries.iter().find(|entry| own(entry, "Update"))?;
    let same = |entry: &Value| own(entry, "Apply") && entry["apiVersion"] == created["apiVersion"];
    let mut whole = created.clone();
    whole["operation"] = json!("Apply");
    if let Some(before) = entries.iter().find(|entry| same(entry)) {
        union(&mut whole["fieldsV1"], &before["fieldsV1"]);
    }
    let others = entries.iter().filter(|entry| !own(entry, "Update") && !same(entry)).cloned();
    Some(Value::Array(others.chain([whole]).collect()))
}

/// Adds the fields of one set to another.
fn union(all: &mut Value, more: &Value) {
    let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) else { return };
    for (key, fields) in more {
        union(all.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), fields);
    }
}

/// JSON in which the order of fields says nothing.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in fields {
                *out += &json!(name).to_string();
                out.push(':');
                write_sorted(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_sorted(item, out);
                out.push(',');
            }
            out.push(']');
        }
        other => *out += &other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_created_counts_as_applied_and_nothing_else_does() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "a/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let live = |entries: Value| json!({"metadata": {"managedFields": entries}});
        let (created, marked) =
            (json!({"f:spec": {"f:a": {}, "f:b": {}}}), json!({"f:metadata": {"f:finalizers": {}}}));
        let others = || [entry("conductor", "Update", marked.clone()), entry("provider", "Apply", marked.clone())];
        let [ours, theirs] = others();
        let mut status = entry(TEMPLATE_MANAGER, "Update", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        let all = json!([entry(TEMPLATE_MANAGER, "Update", created.clone()), ours, theirs, status]);
        let [ours, theirs] = others();
        let after = json!([ours, theirs, status, entry(TEMPLATE_MANAGER, "Apply", created.clone())]);
        assert_eq!(applied(&live(all)), Some(after.clone()));
        assert_eq!(applied(&live(after)), None, "it is so already");
        assert_eq!(applied(&json!({"metadata": {}})), None, "it is not known");
        let before = entry(TEMPLATE_MANAGER, "Apply", json!({"f:spec": {"f:b": {}, "f:c": {"f:d": {}}}}));
        let both = live(json!([before, entry(TEMPLATE_MANAGER, "Update", created)]));
        let fields = json!({"f:spec": {"f:a": {}, "f:b": {}, "f:c": {"f:d": {}}}});
        assert_eq!(applied(&both), Some(json!([entry(TEMPLATE_MANAGER, "Apply", fields)])));
    }

    #[test]
    fn the_version_of_a_template_is_that_of_what_it_makes() {
        let made = |text: &str| {
            let mut object: Value = serde_json::from_str(text).expect("JSON");
            mark(&mut object);
            object
        };
        let first = made(r#"{"metadata": {"annotations": {"x": "y"}}, "spec": {"a": 1, "b": [1, {"c": "d"}]}}"#);
        let same = made(r#"{"spec": {"b": [1, {"c": "d"}], "a": 1}, "metadata": {"annotations": {"x": "y"}}}"#);
        assert!(!is_outdated(&first, &same));
        for other in
            [r#"{"metadata": {"annotations": {"x": "y"}}, "spec": {"a": 1}}"#, r#"{"metadata": {"annotations": {}}}"#]
        {
            assert!(is_outdated(&first, &made(other)), "{other}");
        }
        assert!(is_outdated(&json!({"metadata": {}}), &first));
    }
}
