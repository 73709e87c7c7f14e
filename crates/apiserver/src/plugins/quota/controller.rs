//! Keeps the usage of quotas true where no write could: for new quotas, changed limits, and whatever went another way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kinds::compute::{Amounts, amounts};
use machinery::quantity::{Format, Quantity};
use serde_json::{Value, json};
use store::{Entry, Event, EventKind, Expect, KeyRange, Op, Transaction};

use super::QUOTAS;
use super::usage::{concerns, count_name, in_scope, usage};
use crate::catalog::Catalog;
use crate::plan::parse_stored;
use crate::server::Server;

/// All quotas are looked at this often, changed or not.
const RESYNC: Duration = Duration::from_secs(300);

/// The status that a quota should have. `list` gives the objects of a table below a prefix.
pub fn status(list: impl Fn(&str, &str) -> Vec<Value>, catalog: &Catalog, quota: &Value) -> Value {
    let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
    let hard = amounts(quota, "spec.hard");
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::new(0, Format::DecimalSi))).collect();
    let mut seen = BTreeSet::new();
    for resource in catalog.all() {
        let wanted = resource.namespaced
            && resource.has_verb("get")
            && concerns(resource, hard.keys().map(String::as_str))
            && seen.insert((resource.table.clone(), count_name(resource)));
        if !wanted {
            continue;
        }
        let prefix = resource.prefix(namespace);
        for object in list(&resource.table, &prefix) {
            if !in_scope(quota, resource, &object) {
                continue;
            }
            for (name, amount) in usage(resource, &object) {
                if let Some(own) = used.get_mut(&name) {
                    *own = own.add(&amount);
                }
            }
        }
    }
    let used: BTreeMap<String, String> = used.into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
    let hard = &quota["spec"]["hard"];
    if hard.is_object() { json!({"hard": hard, "used": used}) } else { json!({"used": used}) }
}

/// Runs until the server stops.
pub async fn run(server: Server) {
    loop {
        let Ok(list) = server.store().list(QUOTAS, KeyRange::all(), None) else { continue };
        for entry in &list.entries {
            settle(&server, entry).await;
        }
        let Ok(mut watch) = server.store().watch(QUOTAS, "", list.revision) else { continue };
        let resync = tokio::time::sleep(RESYNC);
        tokio::pin!(resync);
        loop {
            let events = tokio::select! {
                events = watch.next() => events,
                () = &mut resync => break,
            };
            let Ok(events) = events else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                break;
            };
            // Of several changes of one quota the last one counts.
            let changed: BTreeMap<Arc<str>, Arc<Event>> = events
                .into_iter()
                .filter(|event| limits_changed(event))
                .map(|event| (event.key().clone(), event))
                .collect();
            for event in changed.values() {
                settle(&server, &event.entry).await;
            }
        }
    }
}

/// Whether it is a new quota or one with other limits; charges are right by themselves.
fn limits_changed(event: &Event) -> bool {
    let spec = |entry: &Entry| parse_stored(entry).map(|quota| quota["spec"].clone()).unwrap_or_default();
    event.kind == EventKind::Put && event.previous.as_ref().is_none_or(|previous| spec(previous) != spec(&event.entry))
}

/// Corrects the status of a quota. Whoever charges it meanwhile makes it start again.
async fn settle(server: &Server, entry: &Entry) {
    let catalog = server.0.catalog();
    let Some(resource) = catalog.find("", "v1", "resourcequotas") else { return };
    for _ in 0..64 {
        let found = server.store().view(|view| {
            let entry = view.get(QUOTAS, &entry.key)?.clone();
            let quota = parse_stored(&entry).ok()?;
            let list = |table: &str, prefix: &str| -> Vec<Value> {
                let list = view.list(table, KeyRange::prefix(prefix), None).map(|list| list.entries);
                list.unwrap_or_default().iter().filter_map(|entry| parse_stored(entry).ok()).collect()
            };
            let status = status(list, &catalog, &quota);
            Some((entry, quota, status))
        });
        let Some((current, mut quota, status)) = found else { return };
        if quota["status"] == status {
            return;
        }
        quota["status"] = status;
        let op = Op::put(QUOTAS, current.key.clone(), resource.encode(&quota), Expect::Revision(current.revision));
        match server.store().commit(Transaction::new([op])).await {
            Err(store::CommitError::Precondition { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, quota = &*current.key, "the usage of a quota could not be corrected");
                return;
            }
            Ok(_) => return,
        }
    }
}
