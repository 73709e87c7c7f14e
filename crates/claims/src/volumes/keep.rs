//! While a volume is bound: it grows with its claim, and both say how what is behind it is.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::lifecycle::parts::{deleting, phase, status_patch};
use crate::lifecycle::{Condition, Plan, condition_of};
use crate::template::{difference, render};
use crate::volumes::BIND_COMPLETED;
use crate::volumes::life::{lost, volume_claim_held};
use crate::volumes::provision::Making;
use crate::volumes::volume::{VolumeScene, is_ours, own, say};

/// The reason on a volume whose data is gone.
pub(super) const LOST: &str = "Lost";
/// The purpose of the write that asks what is behind a volume for more.
pub const GROW: &str = "grow with the claim";
/// Kubernetes' condition of a claim whose volume is growing.
pub(super) const RESIZING: &str = "Resizing";

fn amount(value: &Value) -> Amount {
    Amount::from_json(value).unwrap_or_default()
}

/// Whether a claim asks for more than its volume has, and the volume is ours to grow.
pub fn wants_more(claim: &Value, volume: &Value) -> bool {
    is_ours(volume)
        && amount(&claim["spec"]["resources"]["requests"]["storage"]) > amount(&volume["spec"]["capacity"]["storage"])
}

/// Whether an object has all the values of a patch.
fn has(object: &Value, patch: &Value) -> bool {
    match patch.as_object() {
        Some(fields) => fields.iter().all(|(key, value)| has(&object[key.as_str()], value)),
        None => object == patch,
    }
}

/// Whether what is behind a volume has seen what is asked of it and is not about to give more: it may have begun to, before less was asked for.
fn gives_no_more(implementation: &Value) -> bool {
    let waits = condition_of(implementation, "Resized").is_some_and(|(resized, _, _)| !resized);
    let seen = &implementation["status"]["observedGeneration"];
    !waits && (seen.is_null() || *seen == implementation["metadata"]["generation"])
}

/// Charges a claim for less again, once its volume is not made larger any more.
fn discharge(claim: &Value, volume: &Value, implementation: &Value, plan: &mut Plan) {
    let amounts = [
        &claim["spec"]["resources"]["requests"]["storage"],
        &volume["spec"]["capacity"]["storage"],
        &implementation["status"]["capacity"]["storage"],
    ];
    let most = amounts.into_iter().max_by_key(|value| amount(value)).unwrap_or(&Value::Null);
    if amount(&claim["status"]["allocatedResources"]["storage"]) > amount(most) {
        let status = json!({"allocatedResources": {"storage": most}});
        plan.patch_status(claim, status, "say that the volume is to have less");
    }
}

/// What the template makes of the size that the volume has, and of the one that is asked for.
fn rendered(claim: &Value, volume: &Value, making: &Making<'_>) -> Option<(Value, Value)> {
    let mut before = claim.clone();
    before["spec"]["resources"]["requests"]["storage"] = volume["spec"]["capacity"]["storage"].clone();
    let of = |claim: &Value| {
        let scope = BTreeMap::from([("claim", claim), ("class", making.class)]);
        render(&making.template["spec"]["template"]["spec"], &scope, &[], making.expressions).ok()
    };
    Some((of(&before)?, of(claim)?))
}

/// What is to be written about a bound claim whose volume may not be asked to grow: why, and no charge for what nothing was asked for.
pub fn growth_refused(
    claim: &Value,
    volume: &Value,
    making: &Making<'_>,
    reason: &'static str,
    message: String,
    now: &str,
) -> Plan {
    let mut plan = volume_claim_held(claim, reason, message, now);
    if let Some((live, (before, after))) = making.implementation.zip(rendered(claim, volume, making))
        && has(&live["spec"], &difference(&after, &before))
        && gives_no_more(live)
    {
        discharge(claim, volume, live, &mut plan);
    }
    plan
}

/// Asks what is behind a volume to grow: in the fields, and only those, that the template makes of the size that is asked for.
pub(super) fn grow(claim: &Value, volume: &Value, making: &Making<'_>, now: &str, plan: &mut Plan) {
    let Some(live) = making.implementation else { return };
    let Some((before, after)) = rendered(claim, volume, making) else { return };
    let patch = difference(&before, &after);
    let says = |condition: Condition, plan: &mut Plan| {
        if let Some(status) = status_patch(claim, json!({}), &[condition], now) {
            plan.patch_status(claim, status, "say whether the volume grows");
        }
    };
    if patch.as_object().is_none_or(Map::is_empty) {
        if has(&live["spec"], &after) && gives_no_more(live) {
            discharge(claim, volume, live, plan);
        }
        let message = "the template of its class makes the same of any size: make another claim, of another class";
        return says(Condition::new(RESIZING, false, "NotResizable", message), plan);
    }
    // it is charged for what it is to have, and that before it has it: a request may be lowered again, what has grown may not
    let asked = &claim["spec"]["resources"]["requests"]["storage"];
    if amount(&claim["status"]["allocatedResources"]["storage"]) < amount(asked) {
        let status = json!({"allocatedResources": {"storage": asked}});
        plan.patch_status(claim, status, "say how much the volume is to have");
    }
    if !has(&live["spec"], &patch) {
        plan.patch(live, json!({"spec": patch}), GROW);
        plan.of_implementation();
    } else if live["status"]["observedGeneration"].is_i64() && gives_no_more(live) {
        discharge(claim, volume, live, plan);
    }
    // whatever was said before: what kept it from growing does not any more
    let condition = match condition_of(live, "Resized") {
        Some((false, reason, message)) => Condition::new(RESIZING, true, reason, message),
        _ => Condition::new(RESIZING, true, "Growing", "its volume is being made larger"),
    };
    says(condition, plan);
}

/// Keeps a bound volume and its claim true to what is behind them.
pub(super) fn keep(scene: &VolumeScene<'_>, claim: &Value, plan: &mut Plan) {
    let volume = scene.volume;
    let Some(implementation) = scene.implementation else {
        let (reason, message) = match is_ours(volume) {
            true => {
                (json!("ImplementationLost"), json!("what is behind it is not there: restore it, or delete the claim"))
            }
            false => (Value::Null, Value::Null),
        };
        // what others say of theirs stays
        if is_ours(volume) || phase(volume) != "Bound" || deleting(volume) {
            say(scene, "Bound", reason, message, plan);
        }
        return;
    };
    own(volume, implementation, plan);
    let (reason, message) = match condition_of(implementation, "Ready") {
        Some((false, reason, message)) => (json!(reason), json!(message)),
        _ => (Value::Null, Value::Null),
    };
    say(scene, "Bound", reason.clone(), message.clone(), plan);
    let mutual = claim["spec"]["volumeName"] == volume["metadata"]["name"]
        && claim["metadata"]["annotations"][BIND_COMPLETED].is_string();
    if !mutual {
        return;
    }
    if reason == LOST {
        let message = message.as_str().unwrap_or_default().to_owned();
        return lost(claim, "VolumeLost", message, scene.now, plan);
    }
    let reported = &implementation["status"]["capacity"]["storage"];
    let mut storage = &volume["spec"]["capacity"]["storage"];
    if !reported.is_null() && amount(reported) > amount(storage) {
        plan.patch(volume, json!({"spec": {"capacity": {"storage": reported}}}), "say how large the volume is");
        storage = reported;
    }
    let mut fields = json!({"capacity": {"storage": storage}});
    let mut conditions = Vec::new();
    if phase(claim) == "Lost" {
        fields["phase"] = json!("Bound");
        conditions.push(Condition::new("Bound", true, "Bound", "what was lost is there again"));
    }
    let growing = amount(&claim["spec"]["resources"]["requests"]["storage"]) > amount(storage);
    match (growing, condition_of(implementation, "Resized"), condition_of(claim, RESIZING)) {
        (true, Some((false, reason, message)), _) => {
            conditions.push(Condition::new(RESIZING, true, reason, message));
        }
        (false, _, Some((true, _, _))) => {
            let message = format!("its volume has {}", storage.as_str().unwrap_or_default());
            conditions.push(Condition::new(RESIZING, false, "Resized", message.clone()));
            plan.event(claim, false, "Resized", message);
        }
        _ => {}
    }
    if let Some(status) = status_patch(claim, fields, &conditions, scene.now) {
        plan.patch_status(claim, status, "say on the claim how its volume is");
    }
    if !growing && gives_no_more(implementation) {
        discharge(claim, volume, implementation, plan);
    }
}
