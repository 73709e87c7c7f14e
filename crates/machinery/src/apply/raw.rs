//! Questions about FieldsV1 answered on its JSON, without reading it into a set.
//!
//! They rest on the JSON being as we write it: one spelling for each path element.

use serde_json::{Map, Value};

use super::types::{Handler, Type};
use crate::schema::ListKind;

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

/// Adds the members of `part`.
pub(crate) fn add(whole: &mut Value, part: &Value) {
    let (Value::Object(whole), Value::Object(part)) = (whole, part) else { return };
    for (key, below) in part.iter().filter(|(key, _)| *key != ".") {
        let Value::Object(added) = below else { continue };
        let Some(Value::Object(own)) = whole.get_mut(key) else {
            whole.insert(key.clone(), below.clone());
            continue;
        };
        let is_member = member(own) || member(added);
        add_below(own, below);
        settle(own, is_member);
    }
}

fn add_below(own: &mut Tree, below: &Value) {
    let mut value = Value::Object(std::mem::take(own));
    add(&mut value, below);
    if let Value::Object(tree) = value {
        *own = tree;
    }
}

/// Removes the members of `part`; what is left without members goes with them.
pub(crate) fn subtract(whole: &mut Value, part: &Value) {
    let (Value::Object(whole), Value::Object(part)) = (whole, part) else { return };
    for (key, below) in part.iter().filter(|(key, _)| *key != ".") {
        let Value::Object(gone) = below else { continue };
        let Some(Value::Object(own)) = whole.get_mut(key) else { continue };
        let is_member = member(own) && !member(gone);
        let mut value = Value::Object(std::mem::take(own));
        subtract(&mut value, below);
        if let Value::Object(tree) = value {
            *own = tree;
        }
        if !settle(own, is_member) {
            whole.remove(key);
        }
    }
}

/// Marks a tree as a member or not, in the way its children ask for. Says whether anything is left of it.
fn settle(tree: &mut Tree, is_member: bool) -> bool {
    tree.remove(".");
    if tree.is_empty() {
        return is_member;
    }
    if is_member {
        tree.insert(".".to_owned(), Value::Object(Tree::new()));
    }
    true
}

/// Whether a set fits a type: what [`reconcile`](super::reconcile) would leave as it is. Doubt is a no.
pub(crate) fn fits(tree: &Value, ty: Type<'_>) -> bool {
    let Value::Object(tree) = tree else { return false };
    let handler = ty.handler(None);
    tree.iter().filter(|(key, _)| *key != ".").all(|(key, below)| {
        let child = match (key.as_bytes(), &handler) {
            ([b'f', b':', ..], Handler::Map(map)) => map.child(&key[2..]).0,
            (_, Handler::Map(map)) => map.element(),
            (_, Handler::List(list)) => list.items,
            _ => return true,
        };
        let Value::Object(inner) = below else { return false };
        let one = match child.handler(None) {
            Handler::Map(map) if map.undeclared() => return true,
            Handler::Map(map) => map.atomic,
            Handler::List(list) => *list.kind == ListKind::Atomic,
            Handler::Scalar(_) | Handler::None => return true,
        };
        inner.is_empty() || !one && fits(below, child)
    })
}
