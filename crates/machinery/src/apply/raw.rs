//! Questions about FieldsV1 answered on its JSON, without reading it into a set.
//!
//! They rest on the JSON being as we write it: one spelling for each path element.

use serde_json::{Map, Value};

type Tree = Map<String, Value>;

fn member(tree: &Tree) -> bool {
    tree.is_empty() || tree.contains_key(".")
}

/// Whether two trees have a member in common.
pub(crate) fn shares_member(tree: &Value, other: &Value) -> bool {
    let (Value::Object(tree), Value::Object(other)) = (tree, other) else { return false };
    // The smaller one leads.
    let (few, many) = if tree.len() <= other.len() { (tree, other) } else { (other, tree) };
    few.iter().filter(|(key, _)| *key != ".").any(|(key, left)| match (left, many.get(key)) {
        (Value::Object(l), Some(Value::Object(r))) => {
            member(l) && member(r) || many.contains_key(key) && shares_member(left, &many[key])
        }
        _ => false,
    })
}

/// Whether every member of `part` is one of `whole`.
pub(crate) fn covers(whole: &Value, part: &Value) -> bool {
    let (Value::Object(whole), Value::Object(part)) = (whole, part) else { return false };
    part.iter().filter(|(key, _)| *key != ".").all(|(key, p)| match (whole.get(key), p) {
        (Some(below @ Value::Object(w)), Value::Object(inner)) => {
            (!member(inner) || member(w)) && (inner.is_empty() || covers(below, p))
        }
        _ => false,
    })
}
