//! An update that would only change the times of managedFields is no update.

use serde_json::{Map, Value};

use super::tracker::managed_of;

/// Puts the times of the live object's managers back if nothing else differs, so that nothing need be written.
/// Says whether the two are the same now.
pub fn keep_times_if_unchanged(live: &Value, new: &mut Value) -> bool {
    let (Some(Value::Array(old)), Some(Value::Array(recorded))) = (managed_of(live), managed_of(new)) else {
        return live == new;
    };
    let without_time = |entry: &Value, other: &Value| match (entry, other) {
        (Value::Object(entry), Value::Object(other)) => same_but(entry, other, "time", |_, _| true),
        _ => entry == other,
    };
    let alike = old.len() == recorded.len() && old.iter().zip(recorded).all(|(l, r)| without_time(l, r));
    let unchanged = alike
        && match (live, &*new) {
            (Value::Object(l), Value::Object(r)) => same_but(l, r, "metadata", |l, r| match (l, r) {
                (Value::Object(l), Value::Object(r)) => same_but(l, r, "managedFields", |_, _| true),
                _ => l == r,
            }),
            _ => false,
        };
    if unchanged {
        let recorded = Value::Array(old.clone());
        super::tracker::put_managed(new, Some(recorded));
    }
    unchanged
}

/// Whether two maps are equal, one key of theirs compared in another way. That key may also be missing in either.
fn same_but(
    left: &Map<String, Value>,
    right: &Map<String, Value>,
    but: &str,
    compare: impl Fn(&Value, &Value) -> bool,
) -> bool {
    let others = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(but));
    let excepted = match (left.get(but), right.get(but)) {
        (Some(l), Some(r)) => compare(l, r),
        (None, None) => true,
        _ => but == "time",
    };
    excepted
        && others(left) == others(right)
        && left.iter().filter(|(key, _)| *key != but).all(|(key, value)| right.get(key) == Some(value))
}
