//! Manager objects: which classes are served, which stands in for none, and how much there is of each.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use conductor_claims::lifecycle::{Condition, status_patch};
use conductor_claims::review::standing;
use conductor_claims::views::Phase;
use http::Method;
use serde_json::{Value, json};

use super::{API_VERSION, Types};
use crate::api::{Failure, MERGE};
use crate::clock::now;
use crate::desk::Desk;
use crate::kind::Kind;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Types {
    /// Tells every desk what the managers serve, and every manager how it stands.
    pub(super) async fn serve(&self) -> Result<(), Failure> {
        let managers: Vec<Value> = self.known.lock().managers.values().cloned().collect();
        for desk in self.desks.all() {
            if matches!(desk.kind, Kind::Volumes { .. }) {
                continue;
            }
            let name = desk.kind.name();
            let own: Vec<&Value> = managers.iter().filter(|m| text(&m["spec"]["type"]) == name).collect();
            if own.is_empty() {
                // without any Manager, the process itself serves every class
                desk.set_served(None, None);
                continue;
            }
            let mut served = HashSet::new();
            let mut default: Option<Arc<str>> = None;
            for manager in own {
                let standing = standing(manager, &managers);
                served.extend(standing.classes);
                if standing.default {
                    default = Some(text(&manager["spec"]["defaultClass"])).filter(|c| !c.is_empty()).map(Arc::from);
                }
            }
            desk.set_served(Some(served), default);
        }
        for manager in &managers {
            self.report(manager, &managers).await?;
        }
        Ok(())
    }

    async fn report(&self, manager: &Value, all: &[Value]) -> Result<(), Failure> {
        let standing = standing(manager, all);
        let kind = text(&manager["spec"]["type"]);
        let desk = self.desks.get(kind);
        let condition = match (&desk, standing.conflicts.is_empty()) {
            (None, _) => Condition::new("Active", false, "TypeMissing", format!("there is no resource type {kind}")),
            (_, true) => Condition::new("Active", true, "Serving", "all its classes are its own"),
            (_, false) => {
                let inactive = standing.classes.is_empty() && !standing.default;
                let message = format!("{}: the older manager stands", standing.conflicts.join("; "));
                Condition::new("Active", !inactive, "Conflict", message)
            }
        };
        let classes = desk.map(|desk| census(&desk, manager)).unwrap_or_default();
        let Some(status) = status_patch(manager, json!({"classes": classes}), &[condition], &now()) else {
            return Ok(());
        };
        let patch = json!({"metadata": {"uid": manager["metadata"]["uid"]}, "status": status});
        let path = format!("/apis/{API_VERSION}/managers/{}/status", text(&manager["metadata"]["name"]));
        match self.cx.api.call(Method::PATCH, &path, MERGE, patch.to_string().into_bytes()).await {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct Count {
    instances: u64,
    free: u64,
    bound: u64,
    scrubbing: u64,
    failed: u64,
}

/// How much there is of each class of a manager.
fn census(desk: &Desk, manager: &Value) -> Vec<Value> {
    let state = desk.state.lock();
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for offer in state.index.offers() {
        let Some(class) = offer.shape.class.as_deref() else { continue };
        let count = counts.entry(class).or_default();
        count.instances += 1;
        count.free += u64::from(offer.taken().is_none());
        match offer.phase {
            Phase::Bound => count.bound += 1,
            Phase::Scrubbing => count.scrubbing += 1,
            Phase::Failed => count.failed += 1,
            _ => {}
        }
    }
    let classes = manager["spec"]["classes"].as_array().into_iter().flatten();
    classes
        .map(|class| {
            let name = text(&class["name"]);
            let count = counts.remove(name).unwrap_or_default();
            let there = state.classes.contains_key(name);
            let mut entry = json!({
                "name": name, "available": there, "instances": count.instances, "free": count.free,
                "bound": count.bound, "scrubbing": count.scrubbing, "failed": count.failed,
            });
            if !there {
                entry["message"] = json!(format!("there is no class {name}"));
            }
            entry
        })
        .collect()
}
