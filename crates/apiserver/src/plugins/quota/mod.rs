//! `ResourceQuota`: what a namespace may hold.
//!
//! A write that costs something writes the quotas' new usage in the same transaction, on condition that they are as they were
//! when it was computed. So usage is always the truth, nothing ever exceeds it, a refused write costs nothing and a deletion
//! gives back at once, whatever crashes.

pub mod controller;
pub mod usage;

use std::sync::Arc;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use kinds::compute::{Amounts, amounts};
use machinery::quantity::Quantity;
use machinery::status::Status;
use serde_json::Value;
use store::Op;
use tokio::sync::{Mutex, MutexGuard};

use self::usage::{concerns, in_scope, unsaid, usage};
use crate::context::Context;
use crate::plan::View;

const QUOTAS: &str = "core/resourcequotas";

/// Writers that lost a race for the same namespace's quotas go one after the other, instead of losing it again.
pub struct Turns([Mutex<()>; 64]);

impl Default for Turns {
    fn default() -> Self {
        Turns(std::array::from_fn(|_| Mutex::new(())))
    }
}

impl Turns {
    /// Waits for the namespace's turn; not for ever, since it is a matter of speed only.
    pub async fn take(&self, namespace: &str) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % 64).unwrap_or(0);
        tokio::time::timeout(Duration::from_secs(10), self.0[at].lock()).await.ok()
    }
}

/// Charges a write to the quotas of its namespace, or refuses it.
pub fn charge(cx: &Context, view: &View<'_>, old: &Value, new: &Value, ops: &mut Vec<Op>) -> Result<(), Status> {
    let resource = &cx.resource;
    if !resource.namespaced {
        return Ok(());
    }
    let object = if new.is_null() { old } else { new };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let prefix = format!("{namespace}/");
    // As the operations before this one in the same transaction would have it.
    let all = view.keys(QUOTAS, &prefix);
    if all.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let own = resource.key(namespace, name);
    let catalog = cx.server.catalog();
    let Some(quotas) = catalog.find("", "v1", "resourcequotas") else { return Ok(()) };
    for key in &all {
        if *resource.table == *QUOTAS && *key == own {
            continue;
        }
        let Some(current) = view.stored(quotas, key)? else { continue };
        let mut quota = Arc::unwrap_or_clone(current.object);
        let hard = amounts(&quota, "spec.hard");
        if !concerns(resource, hard.keys().map(String::as_str)) {
            continue;
        }
        let cost = |object: &Value| match object {
            Value::Null => Amounts::new(),
            object if in_scope(&quota, resource, object) => usage(resource, object),
            _ => Amounts::new(),
        };
        let (before, after) = (cost(old), cost(new));
        // What becomes of an object in its life is not refused; what it is given is, where its kind says how much that is.
        let in_its_life = cx.info.subresource == "status" && resource.charge().is_none();
        if old.is_null() && !after.is_empty() && resource.gk() == ("", "Pod") {
            let names: Vec<&str> = hard.keys().map(String::as_str).collect();
            if let Some(why) = unsaid(&new["spec"], &names) {
                return Err(refused(cx, name, &format!("failed quota: {}: {why}", quota_name(&quota))));
            }
        }
        let mut used = amounts(&quota, "status.used");
        let delta = difference(&hard, &before, &after);
        if delta.is_empty() {
            continue;
        }
        if delta.keys().any(|name| !used.contains_key(name)) {
            // It is new, or limits something new, and was not counted yet.
            quota["status"] = controller::status(|table, prefix| view.list(table, prefix), &catalog, &quota);
            used = amounts(&quota, "status.used");
        }
        let mut exceeded = Vec::new();
        for (name, change) in &delta {
            let total = used.get(name).map_or_else(|| change.clone(), |used| used.add(change));
            if change.sign() > 0 && hard.get(name).is_some_and(|hard| total > *hard) {
                exceeded.push(name.as_str());
            }
            quota["status"]["used"][name] = total.to_string().into();
        }
        if !exceeded.is_empty() && !in_its_life {
            let why = format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota_name(&quota),
                shown(&delta, &exceeded),
                shown(&used, &exceeded),
                shown(&hard, &exceeded)
            );
            return Err(refused(cx, name, &why));
        }
        ops.push(Op::put(QUOTAS, key.as_str(), quotas.encode(&quota), current.expect));
    }
    Ok(())
}

fn refused(cx: &Context, name: &str, why: &str) -> Status {
    Status::forbidden(&cx.resource.group, &cx.resource.plural, name, why)
}

fn quota_name(quota: &Value) -> &str {
    quota["metadata"]["name"].as_str().unwrap_or_default()
}

/// What becomes of the usage, for the names that the quota limits.
fn difference(hard: &Amounts, before: &Amounts, after: &Amounts) -> Amounts {
    let zero = Quantity::default();
    hard.keys()
        .filter_map(|name| {
            let change = match (before.get(name), after.get(name)) {
                (None, None) => return None,
                (before, after) => after.unwrap_or(&zero).sub(before.unwrap_or(&zero)),
            };
            (!change.is_zero()).then(|| (name.clone(), change))
        })
        .collect()
}

/// `pods=1,services=2`.
fn shown(amounts: &Amounts, names: &[&str]) -> String {
    let parts: Vec<String> = names.iter().filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?))).collect();
    parts.join(",")
}
