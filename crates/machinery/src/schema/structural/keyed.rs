//! Items of list maps, found by their keys.
use std::collections::HashMap;

use serde_json::Value;

/// The items of a list by their keys: of several with the same ones, the first.
#[derive(Debug)]
pub struct Keyed<'a> {
    keys: &'a [Box<str>],
    items: HashMap<Vec<&'a Value>, &'a Value>,
}

impl<'a> Keyed<'a> {
    /// Looks at every item once. Those without a value for every key cannot be told apart and are left out.
    pub fn new(items: &'a [Value], keys: &'a [Box<str>]) -> Self {
        let mut known = HashMap::with_capacity(if keys.is_empty() { 0 } else { items.len() });
        for item in items {
            if let Some(own) = key(item, keys) {
                known.entry(own).or_insert(item);
            }
        }
        Keyed { keys, items: known }
    }

    /// The item with the same keys as another.
    pub fn like(&self, other: &Value) -> Option<&'a Value> {
        self.items.get(&key(other, self.keys)?).copied()
    }
}

fn key<'v>(item: &'v Value, keys: &[Box<str>]) -> Option<Vec<&'v Value>> {
    let scalar = |key: &str| item.get(key).filter(|value| !value.is_null() && !value.is_object() && !value.is_array());
    if keys.is_empty() { None } else { keys.iter().map(|key| scalar(key)).collect() }
}
