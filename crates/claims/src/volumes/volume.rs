//! The lives of volumes.
//!
//! A volume is its claim's from when it refers to it by uid, whatever its phase says: that is written later, or was lost with an older
//! copy. When that claim is gone the volume is Released, always, and its reclaim policy holds. The reference is taken back only from a
//! claim that is there and names another volume: what a claim names it names for good, so that it never had this one.

use serde_json::{Value, json};

use crate::lifecycle::parts::{deleting, phase, reference_to, status_patch, uid};
use crate::lifecycle::{PROVISIONED_FOR, Plan, Presence, RECORDED, RESOURCE_REF, RESOURCE_UID, condition_of};
use crate::volumes::keep::keep;
use crate::volumes::life::{annotated, has_volume, is_known_bound, reference};
use crate::volumes::reclaim::{SCRUBBING, ask_again, is_being_scrubbed, reclaim, remove, was_asked};
use crate::volumes::{BOUND_BY_CONTROLLER, PROVISIONED_BY, PROVISIONER, SCRUB};

/// What is to be known about a PersistentVolume.
pub struct VolumeScene<'s> {
    /// The volume.
    pub volume: &'s Value,
    /// The claim with the uid it refers to.
    pub claim: Presence<'s>,
    /// Another claim that names it and [`was_bound`](super::was_bound) to it: what the volume holds may be that one's.
    pub named_by: Option<&'s Value>,
    /// Its implementation, if it was made from a class of ours.
    pub implementation: Option<&'s Value>,
    /// The time to write.
    pub now: &'s str,
}

/// The reason on a volume that nothing is done to, for a claim uses it.
const IN_USE: &str = "InUse";

/// Whether this system made what is behind a volume.
pub(super) fn is_ours(volume: &Value) -> bool {
    volume["metadata"]["annotations"][PROVISIONED_BY].as_str() == Some(PROVISIONER)
}

/// Whether a volume waits for what its reclaim policy, or an administrator, makes of it.
pub(super) fn is_released(volume: &Value) -> bool {
    matches!(phase(volume), "Released" | "Failed")
}

fn is_referring(volume: &Value) -> bool {
    volume["spec"]["claimRef"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
}

/// What is to be written about a PersistentVolume now.
pub fn volume(scene: &VolumeScene<'_>) -> Plan {
    let mut plan = Plan::default();
    let volume = scene.volume;
    match scene.claim {
        _ if !is_referring(volume) && deleting(volume) => leave(scene, &mut plan),
        _ if !is_referring(volume) => {
            let torn_from = scene.named_by.filter(|claim| volume["spec"]["claimRef"].is_null() && has_volume(claim));
            match torn_from {
                Some(claim) => torn(scene, claim, &mut plan),
                None => offer(scene, &mut plan),
            }
        }
        Presence::Unknown => {}
        Presence::Gone if deleting(volume) => leave(scene, &mut plan),
        Presence::Gone if !is_released(volume) => released(scene, &mut plan),
        Presence::Gone => match holder(scene) {
            Some(claim) => hold(scene, claim, &mut plan),
            None => reclaim(scene, &mut plan),
        },
        Presence::Alive(claim) => claimed(scene, claim, &mut plan),
    }
    plan
}

/// A volume whose claim is there.
fn claimed(scene: &VolumeScene<'_>, claim: &Value, plan: &mut Plan) {
    let volume = scene.volume;
    let named = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    let elsewhere = !named.is_empty() && Some(named) != volume["metadata"]["name"].as_str();
    match phase(volume) {
        "Bound" if !elsewhere => keep(scene, claim, plan),
        _ if !elsewhere && !named.is_empty() => {
            if !awaits_scrub(scene, plan) {
                forget_scrub(volume, plan);
                keep(scene, claim, plan);
            }
        }
        _ if deleting(volume) => leave(scene, plan),
        // it said Bound once: what it holds is somebody's
        "Released" | "Failed" if elsewhere && is_others_to_remove(volume) => {}
        "Bound" | "Released" | "Failed" if elsewhere => {
            let message = format!("its claim names {named}: set spec.claimRef to whom it belongs, or to null");
            say(scene, "Released", json!("Misbound"), json!(message), plan);
        }
        _ if elsewhere && is_others_to_remove(volume) => {
            let message =
                format!("made for a claim that has {named}: who made it removes it, as its reclaim policy says");
            say(scene, "Released", json!("Released"), json!(message), plan);
        }
        _ if elsewhere => take_back(scene, plan),
        "" | "Pending" if annotated(volume, PROVISIONED_FOR) => take_over(scene, plan),
        _ => offer(scene, plan),
    }
}

/// Whether somebody else's provisioner made a volume, for its claim alone, and removes it when it is Released.
fn is_others_to_remove(volume: &Value) -> bool {
    let delete = volume["spec"]["persistentVolumeReclaimPolicy"].as_str() == Some("Delete");
    delete && annotated(volume, PROVISIONED_BY) && !is_ours(volume)
}

/// Takes the reference back from a claim that has another volume. Whom an administrator reserved it for, it stays reserved for by name.
fn take_back(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    // it does not go with the claim that it was made for
    if let Some(implementation) = scene.implementation.filter(|i| !deleting(i)) {
        adopt(volume, implementation, plan);
    }
    let patch = match annotated(volume, BOUND_BY_CONTROLLER) {
        true => json!({"spec": {"claimRef": null}, "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}}),
        false => json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}),
    };
    plan.patch(volume, patch, "take the reference back");
}

/// Free, reserved for whoever comes under a name, or waiting for the claim that it refers to.
fn offer(scene: &VolumeScene<'_>, plan: &mut Plan) {
    if !awaits_scrub(scene, plan) {
        forget_scrub(scene.volume, plan);
        say(scene, "Available", Value::Null, Value::Null, plan);
    }
}

/// Somebody took the reference away from a claim that has the volume: it is mended, also for one that is to go, after which the volume is
/// Released and not free.
fn torn(scene: &VolumeScene<'_>, claim: &Value, plan: &mut Plan) {
    if !awaits_scrub(scene, plan) {
        forget_scrub(scene.volume, plan);
        plan.patch(scene.volume, json!({"spec": {"claimRef": reference(claim)}}), "mend the reference");
    }
}

/// Says that a volume cannot be had yet, if what is in it may still be overwritten: who frees it by hand does not end a scrub.
fn awaits_scrub(scene: &VolumeScene<'_>, plan: &mut Plan) -> bool {
    let Some(implementation) = scene.implementation.filter(|i| is_being_scrubbed(i)) else { return false };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let asked = &implementation["spec"]["scrub"];
    let failed = condition_of(implementation, "Scrubbed")
        .filter(|(well, _, _)| !well && implementation["status"]["scrubbed"].as_i64() >= asked.as_i64());
    let why = failed.map(|(_, _, why)| format!("; it failed: {why}; {}", ask_again(implementation)));
    let message = format!(
        "scrub {asked} of {} {} was asked for and is not done: it can be used when it is{}",
        text(&implementation["kind"]),
        text(&implementation["metadata"]["name"]),
        why.unwrap_or_default(),
    );
    say(scene, "Released", json!(SCRUBBING), json!(message), plan);
    true
}

/// Each release of a volume has its own scrub: none that was done before counts for it.
fn forget_scrub(volume: &Value, plan: &mut Plan) {
    if annotated(volume, SCRUB) {
        plan.patch(volume, json!({"metadata": {"annotations": {SCRUB: null}}}), "forget the scrub before");
    }
}

/// Labels what is behind a volume as the volume's.
pub(super) fn own(volume: &Value, implementation: &Value, plan: &mut Plan) {
    if implementation["metadata"]["labels"][RESOURCE_UID].as_str() != Some(uid(volume)) {
        let patch = json!({"metadata": {
            "labels": {RESOURCE_UID: uid(volume)},
            "annotations": {RECORDED: "true", RESOURCE_REF: reference_to(volume)},
        }});
        plan.patch(implementation, patch, "the implementation is the volume's");
        plan.of_implementation();
    }
}

/// The same if it is nobody's yet. What had another volume of that name is this one's when its claim has it: until then it may hold
/// somebody's data.
fn adopt(volume: &Value, implementation: &Value, plan: &mut Plan) {
    if implementation["metadata"]["labels"][RESOURCE_UID].is_null() {
        own(volume, implementation, plan);
    }
}

fn released(scene: &VolumeScene<'_>, plan: &mut Plan) {
    // it does not go with the claim that it was made for
    if let Some(implementation) = scene.implementation.filter(|i| !deleting(i)) {
        adopt(scene.volume, implementation, plan);
    }
    forget_scrub(scene.volume, plan);
    let message = "released; what becomes of it is up to its reclaim policy";
    say(scene, "Released", json!("Released"), json!(message), plan);
}

/// A new volume takes its implementation over from the claim before anyone can use it.
fn take_over(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let Some(implementation) = scene.implementation.filter(|i| !deleting(i)) else {
        let message = "what is behind it vanished: delete the claim";
        return say(scene, "Pending", json!("ImplementationLost"), json!(message), plan);
    };
    adopt(scene.volume, implementation, plan);
    offer(scene, plan);
}

/// A volume on its way out that the claim it refers to has not, or not any more.
fn leave(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    if let Some(claim) = holder(scene) {
        hold(scene, claim, plan);
    } else if !is_released(volume) && (is_referring(volume) || phase(volume) == "Bound") {
        // the API server's own protection, and whoever provides it, let go what says so
        released(scene, plan);
    } else {
        remove(scene, plan);
    }
}

/// The claim for which nothing is done to a volume. One that only says that it was bound holds none of which a scrub was asked for: what it
/// may have had is being overwritten, and its word would keep the volume from everybody for nothing.
fn holder<'s>(scene: &VolumeScene<'s>) -> Option<&'s Value> {
    let scrubbed = scene.implementation.is_some_and(|own| is_being_scrubbed(own) || was_asked(scene.volume, own));
    scene.named_by.filter(|claim| !scrubbed || is_known_bound(claim))
}

/// Nothing is removed, or overwritten, that another claim says is its own.
fn hold(scene: &VolumeScene<'_>, claim: &Value, plan: &mut Plan) {
    let volume = scene.volume;
    forget_scrub(volume, plan);
    let text = |key: &str| claim["metadata"][key].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let advice = match deleting(volume) {
        true => "it goes when that is gone".to_owned(),
        false => format!(
            "set its spec.claimRef to {{namespace: {namespace}, name: {name}, uid: null}} if it is to have it, or delete the claim"
        ),
    };
    let message = format!("claim {namespace}/{name} names it and was bound, so that nothing is done to it: {advice}");
    let phase_now = Some(phase(volume)).filter(|phase| !phase.is_empty()).unwrap_or("Pending");
    tell(scene, phase_now, IN_USE, message, plan);
}

/// Says something that somebody is to do something about.
pub(super) fn tell(scene: &VolumeScene<'_>, phase_now: &str, reason: &'static str, message: String, plan: &mut Plan) {
    if scene.volume["status"]["reason"] != reason {
        plan.event(scene.volume, true, reason, message.clone());
    }
    say(scene, phase_now, json!(reason), json!(message), plan);
}

pub(super) fn say(scene: &VolumeScene<'_>, phase_now: &str, reason: Value, message: Value, plan: &mut Plan) {
    let mut fields = json!({"phase": phase_now, "reason": reason, "message": message});
    if phase_now == "Bound" && reason.is_null() && deleting(scene.volume) {
        let text = |key: &str| scene.volume["spec"]["claimRef"][key].as_str().unwrap_or_default();
        let held = format!("used by claim {}/{}: it goes when that is gone", text("namespace"), text("name"));
        if scene.volume["status"]["reason"] != IN_USE {
            plan.event(scene.volume, false, IN_USE, held.clone());
        }
        (fields["reason"], fields["message"]) = (json!(IN_USE), json!(held));
    }
    if let Some(status) = status_patch(scene.volume, fields, &[], scene.now) {
        plan.patch_status(scene.volume, status, "say where the volume is in its life");
    }
}
