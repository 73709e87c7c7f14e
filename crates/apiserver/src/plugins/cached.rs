//! What plug-ins know of small tables, kept until the table changes.

use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;
use store::{KeyRange, Store};

use crate::plan::View;

/// Something made from all objects of one table.
pub struct Cached<T> {
    store: Store,
    table: &'static str,
    make: fn(Vec<Value>) -> T,
    kept: RwLock<Option<(u64, Arc<T>)>>,
}

impl<T> Cached<T> {
    /// Made by `make` when first needed and whenever the table has changed.
    pub fn new(store: &Store, table: &'static str, make: fn(Vec<Value>) -> T) -> Cached<T> {
        Cached { store: store.clone(), table, make, kept: RwLock::new(None) }
    }

    /// As new as the table, and as a transaction sees it that has written to it.
    pub fn get(&self, seen: &View<'_>) -> Arc<T> {
        if seen.touches(self.table) {
            return Arc::new((self.make)(seen.list(self.table, "")));
        }
        self.latest()
    }

    /// As new as the table.
    pub fn latest(&self) -> Arc<T> {
        let now = self.store.view(|view| view.changed(self.table));
        if let Some((seen, kept)) = &*self.kept.read() {
            if *seen == now {
                return kept.clone();
            }
        }
        let (seen, entries) = self.store.view(|view| {
            let list = view.list(self.table, KeyRange::all(), None);
            (view.changed(self.table), list.map(|list| list.entries).unwrap_or_default())
        });
        let objects = entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value).ok()).collect();
        let made = Arc::new((self.make)(objects));
        *self.kept.write() = Some((seen, made.clone()));
        made
    }
}

/// The name of the newest object that an annotation marks as the default; of several equally new ones the first by name.
pub fn newest_default(objects: &[Value], annotations: &[&str]) -> Option<String> {
    let marked =
        |object: &&Value| annotations.iter().any(|annotation| object["metadata"]["annotations"][*annotation] == "true");
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let newest = objects.iter().filter(marked).min_by(|a, b| {
        let (newer, older) = (text(b, "creationTimestamp"), text(a, "creationTimestamp"));
        newer.cmp(&older).then_with(|| text(a, "name").cmp(&text(b, "name")))
    });
    newest.map(|object| text(object, "name"))
}
