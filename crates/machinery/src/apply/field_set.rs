//! The fields that a value mentions.

use serde_json::Value;

use super::items::{Index, keys};
use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Handler, ListType, MapType, Type};
use crate::schema::{ListKind, Schema};

/// The fields that an object mentions: every leaf, every item of a list and every key of a map, but not the declared
/// fields on the way to them.
///
/// The object must fit its type (see [`validate`](super::validate())); items that cannot be told apart are left out.
pub fn to_field_set(object: &Value, schema: Schema<'_>) -> FieldSet {
    below(object, Type::root(schema)).0
}

/// What is mentioned below a value, and whether the value itself is.
fn below(value: &Value, ty: Type<'_>) -> (FieldSet, bool) {
    match ty.handler(Some(value)) {
        Handler::Map(map) if map.atomic => (FieldSet::new(), true),
        Handler::Map(map) => (of_map(&map, value), false),
        Handler::List(list) if *list.kind == ListKind::Atomic => (FieldSet::new(), true),
        Handler::List(list) => (of_list(&list, value), false),
        Handler::Scalar(_) => (FieldSet::new(), true),
        Handler::None => (FieldSet::new(), false),
    }
}

fn push(set: &mut FieldSet, element: PathElement, member: bool, children: FieldSet) {
    if member || !children.is_empty() {
        let entry = set.entry(element);
        entry.member |= member;
        entry.children = if entry.children.is_empty() { children } else { entry.children.union(&children) };
    }
}

fn of_map(map: &MapType<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let (ty, declared) = map.child(name);
        let (children, leaf) = below(value, ty);
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        push(&mut set, PathElement::field(name), leaf || empty || !declared, children);
    }
    set
}

fn of_list(list: &ListType<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let Ok(keys) = keys(list, items) else { return set };
    let index = Index::new(&keys);
    for (key, item) in keys.iter().zip(items) {
        // Duplicates are one thing without inside.
        let children = match index.positions(key) {
            [_] => below(item, list.items).0,
            _ => FieldSet::new(),
        };
        push(&mut set, key.element(), true, children);
    }
    set
}
