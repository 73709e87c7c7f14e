//! Lists whose items must differ.
use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::field::{self, Error, Path};
use crate::schema::{ListKind, MAX_DEPTH, Schema, Shape};

/// Finds items that stand twice in lists of type set or map.
pub(super) fn validate(value: &Value, schema: Schema<'_>) -> field::Errors {
    let mut errors = Vec::new();
    walk(value, schema, &Path::empty(), MAX_DEPTH, &mut errors);
    errors
}

fn walk(value: &Value, schema: Schema<'_>, path: &Path, depth: usize, errors: &mut field::Errors) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match (value, schema.shape()) {
        (Value::Object(map), Shape::Map(values)) => {
            let of = schema.at(*values);
            if may_hold_lists(of) {
                map.iter().for_each(|(key, value)| walk(value, of, &path.key(key), depth, errors));
            }
        }
        (Value::Object(map), Shape::Object(fields)) => {
            for field in fields.iter().filter(|field| may_hold_lists(schema.at(field.schema))) {
                if let Some(value) = map.get(&*field.name) {
                    walk(value, schema.at(field.schema), &path.child(&field.name), depth, errors);
                }
            }
        }
        (Value::Array(items), Shape::List { items: of, list }) => {
            match list {
                ListKind::Atomic => {}
                ListKind::Set => {
                    for at in repeated(items.iter().map(Value::to_string)) {
                        errors.push(Error::duplicate(&path.index(at), items[at].clone()));
                    }
                }
                ListKind::Map(keys) => keyed(items, keys, path, errors),
            }
            let of = schema.at(*of);
            if may_hold_lists(of) {
                let each = items.iter().enumerate();
                each.for_each(|(index, item)| walk(item, of, &path.index(index), depth, errors));
            }
        }
        _ => {}
    }
}

fn may_hold_lists(schema: Schema<'_>) -> bool {
    matches!(schema.shape(), Shape::Object(_) | Shape::Map(_) | Shape::List { .. })
}

fn keyed(items: &[Value], keys: &[Box<str>], path: &Path, errors: &mut field::Errors) {
    let broken = items.iter().position(|item| !item.is_null() && !item.is_object());
    if let Some(at) = broken {
        let detail = "must be an object for an array of list-type map";
        errors.push(Error::invalid(&path.index(at), items[at].clone(), detail));
        return;
    }
    let key = |item: &Value| -> Value {
        let entries = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
        Value::Object(entries.collect::<Map<_, _>>())
    };
    for at in repeated(items.iter().map(|item| key(item).to_string())) {
        errors.push(Error::duplicate(&path.index(at), key(&items[at])));
    }
}

/// Where something stands for the second time; a third time is not told.
fn repeated(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut second = Vec::new();
    for (at, item) in items.enumerate() {
        let times = seen.entry(item).or_insert(0);
        *times += 1;
        if *times == 2 {
            second.push(at);
        }
    }
    second
}
