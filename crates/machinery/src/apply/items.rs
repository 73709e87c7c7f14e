//! What tells the items of a list apart.

use std::cmp::Ordering;

use serde_json::Value;

use super::path::{PathElement, order, order_keys};
use super::types::ListType;
use crate::schema::ListKind;

/// Why a list's item cannot be told apart from the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ItemError {
    #[error("associative list with keys may not have a null element")]
    Null,
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    SetOfMaps,
    #[error("not supported: associative list with lists as elements")]
    SetOfLists,
    #[error("associative list without keys has an element that's an explicit null")]
    SetOfNulls,
    #[error("invalid indexing of non-associative list")]
    Atomic,
}

/// What tells an item apart, borrowed from it; mostly one key, for which nothing is allocated.
#[derive(Clone, Debug)]
pub(crate) enum ItemKey<'v> {
    Value(&'v Value),
    One(&'v str, &'v Value),
    /// Sorted by name.
    Many(Vec<(&'v str, &'v Value)>),
}

impl<'v> ItemKey<'v> {
    /// The key of an item of a list.
    pub(crate) fn of(list: &ListType<'v>, item: &'v Value) -> Result<Self, ItemError> {
        match list.kind {
            ListKind::Atomic => Err(ItemError::Atomic),
            ListKind::Set => match item {
                Value::Object(_) => Err(ItemError::SetOfMaps),
                Value::Array(_) => Err(ItemError::SetOfLists),
                Value::Null => Err(ItemError::SetOfNulls),
                _ => Ok(ItemKey::Value(item)),
            },
            ListKind::Map(names) => {
                let fields = match item {
                    Value::Object(fields) => fields,
                    Value::Null => return Err(ItemError::Null),
                    _ => return Err(ItemError::NotAMap),
                };
                let of = |name: &'v str| {
                    // A missing key counts as its default; one without default is left out of the key.
                    let value = fields.get(name);
                    value.or_else(|| list.items.map().and_then(|map| map.default(name))).map(|value| (name, value))
                };
                let none = || {
                    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                    ItemError::NoKeys(quoted.join(" "))
                };
                if let [name] = names.as_slice() {
                    return of(name).map(|(name, value)| ItemKey::One(name, value)).ok_or_else(none);
                }
                let mut key: Vec<_> = names.iter().filter_map(|name| of(name)).collect();
                if key.is_empty() {
                    return Err(none());
                }
                key.sort_unstable_by_key(|(name, _)| *name);
                Ok(ItemKey::Many(key))
            }
        }
    }

    fn fields(&self) -> Option<&[(&'v str, &'v Value)]> {
        match self {
            ItemKey::Many(fields) => Some(fields),
            _ => None,
        }
    }

    /// The element that selects the item.
    pub(crate) fn element(&self) -> PathElement {
        match self {
            ItemKey::Value(value) => PathElement::Value((*value).clone()),
            ItemKey::One(name, value) => PathElement::Key([(Box::from(*name), (*value).clone())].into()),
            ItemKey::Many(fields) => {
                PathElement::Key(fields.iter().map(|(k, v)| ((*k).into(), (*v).clone())).collect())
            }
        }
    }
}

impl Ord for ItemKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (ItemKey::Value(l), ItemKey::Value(r)) => order(l, r),
            (ItemKey::One(ln, lv), ItemKey::One(rn, rv)) => ln.cmp(rn).then_with(|| order(lv, rv)),
            // One list has one kind of keys; the rest cannot be.
            (l, r) => order_keys(
                l.fields().unwrap_or_default().iter().copied(),
                r.fields().unwrap_or_default().iter().copied(),
            ),
        }
    }
}

impl PartialOrd for ItemKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ItemKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ItemKey<'_> {}

/// The keys of a list's items in order; the first item that has none is an error.
pub(crate) fn keys<'v>(list: &ListType<'v>, items: &'v [Value]) -> Result<Vec<ItemKey<'v>>, (usize, ItemError)> {
    items.iter().enumerate().map(|(at, item)| ItemKey::of(list, item).map_err(|error| (at, error))).collect()
}

/// Positions of keys, sorted by key and then position.
pub(crate) struct Index<'k, 'v> {
    keys: &'k [ItemKey<'v>],
    sorted: Vec<u32>,
}

impl<'k, 'v> Index<'k, 'v> {
    pub(crate) fn new(keys: &'k [ItemKey<'v>]) -> Self {
        let mut sorted: Vec<u32> = (0..keys.len() as u32).collect();
        sorted.sort_by(|l, r| keys[*l as usize].cmp(&keys[*r as usize]).then(l.cmp(r)));
        Index { keys, sorted }
    }

    /// Where a key stands, in order.
    pub(crate) fn positions(&self, key: &ItemKey<'_>) -> &[u32] {
        let from = self.sorted.partition_point(|at| self.keys[*at as usize].cmp(key).is_lt());
        let len = self.sorted[from..].partition_point(|at| self.keys[*at as usize].cmp(key).is_eq());
        &self.sorted[from..from + len]
    }
}
