//! Takes fields out of a value.

use serde_json::{Map, Value};

use super::items::ItemKey;
use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Handler, Type};
use crate::schema::{ListKind, Schema};

/// The object without these fields and items.
///
/// A map or list that loses its last item this way becomes null, as in Kubernetes: decoding drops it.
pub fn remove_items(object: &Value, items: &FieldSet, schema: Schema<'_>) -> Value {
    remove(object, items, Type::root(schema))
}

pub(crate) fn remove(value: &Value, items: &FieldSet, ty: Type<'_>) -> Value {
    match (ty.handler(Some(value)), value) {
        (Handler::Scalar(_), value) => value.clone(),
        (Handler::Map(map), Value::Object(fields)) if !map.atomic => {
            let mut out = Map::new();
            for (name, value) in fields {
                let entry = items.find(&PathElement::field(name));
                if entry.is_some_and(|entry| entry.member) {
                    continue;
                }
                let kept = match entry {
                    Some(entry) => remove(value, &entry.children, map.child(name).0),
                    None => value.clone(),
                };
                out.insert(name.clone(), kept);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Handler::List(list), Value::Array(values)) if *list.kind != ListKind::Atomic => {
            let mut out = Vec::with_capacity(values.len());
            for item in values {
                let entry = ItemKey::of(&list, item).ok().and_then(|key| items.find(&key.element()));
                match entry {
                    Some(entry) if entry.member => {}
                    Some(entry) => out.push(remove(item, &entry.children, list.items)),
                    None => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        // One value that is to lose a part is lost; so is what does not fit its type.
        _ => Value::Null,
    }
}
