//! The lives of volumes and their claims.
//!
//! The order of a bind is the engine's: the volume refers to the claim, the claim names the volume, the volume says Bound, the claim
//! says Bound. Kubernetes lets the volume say Bound before the claim names it; a claim deleted in between then costs it its volume.
//!
//! The protection finalizers of volumes and claims are the API server's own affair, in both homes.

use serde_json::{Map, Value, json};

use crate::lifecycle::parts::{deleting, finalizer, not_allowed, phase, reference_to, refused, status_patch, uid};
use crate::lifecycle::{
    CLAIM_UID, Condition, PROVISIONED_FOR, Plan, Presence, RECORDED, RESOURCE_FINALIZER, RESOURCE_REF, RESOURCE_UID,
    RETAINED,
};
use crate::matching::{Decision, Reason};
use crate::volumes::keep::{LOST, RESIZING, grow, keep, wants_more};
use crate::volumes::provision::{Made, Making, make};
use crate::volumes::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY, PROVISIONER, RECLAIM, SCRUB, STORAGE_PROVISIONER, rules,
};

/// What is to be known about a PersistentVolumeClaim.
pub struct VolumeClaimScene<'s> {
    /// The claim.
    pub claim: &'s Value,
    /// What matching says.
    pub decision: &'s Decision,
    /// The volume it names, or is to be bound to.
    pub volume: Option<&'s Value>,
    /// What is needed to make a volume; `None`: its class is not ours, or its template is not there.
    pub making: Option<Making<'s>>,
    /// Its class, if there is one.
    pub class: Option<&'s Value>,
    /// The default class, for a claim that names none.
    pub default_class: Option<&'s str>,
    /// The time to write into conditions.
    pub now: &'s str,
}

/// What is to be known about a PersistentVolume.
pub struct VolumeScene<'s> {
    /// The volume.
    pub volume: &'s Value,
    /// The claim with the uid it refers to.
    pub claim: Presence<'s>,
    /// Its implementation, if it was made from a class of ours.
    pub implementation: Option<&'s Value>,
    /// The time to write.
    pub now: &'s str,
}

/// The reason on a volume that is to go and is used.
const IN_USE: &str = "InUse";

fn annotated(object: &Value, name: &str) -> bool {
    object["metadata"]["annotations"][name].is_string()
}

fn refers(volume: &Value, claim: &Value) -> bool {
    !uid(claim).is_empty() && volume["spec"]["claimRef"]["uid"].as_str() == Some(uid(claim))
}

/// What is to be written about a PersistentVolumeClaim now.
pub fn volume_claim(scene: &VolumeClaimScene<'_>) -> Plan {
    let mut plan = Plan::default();
    let claim = scene.claim;
    if deleting(claim) {
        return plan;
    }
    let named = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    if completed(claim, scene.volume) {
        match scene.volume.filter(|v| v["metadata"]["name"].as_str() == Some(named)) {
            _ if named.is_empty() => {
                lost(claim, "ClaimLost", "it was bound and names no volume any more".into(), scene.now, &mut plan)
            }
            None => lost(
                claim,
                "ClaimLost",
                format!("PersistentVolume {named} is gone: restore it under this name, or delete the claim"),
                scene.now,
                &mut plan,
            ),
            Some(volume) if refers(volume, claim) && volume["status"]["reason"] == LOST => {
                let message = volume["status"]["message"].as_str().unwrap_or_default().to_owned();
                lost(claim, "VolumeLost", message, scene.now, &mut plan);
            }
            Some(volume) if refers(volume, claim) || (free(volume) && may_have(scene, volume)) => {
                bind(scene, volume, &mut plan);
                if let Some(making) = scene.making.as_ref().filter(|_| wants_more(claim, volume)) {
                    grow(claim, volume, making, scene.now, &mut plan);
                }
            }
            Some(volume) if free(volume) => {
                let why = match scene.decision {
                    Decision::Wait { reason: Reason::NamedRefused(_, refusal), .. } => refused(&rules(), refusal),
                    Decision::Wait { reason: Reason::NotAllowed(class), .. } => not_allowed(class),
                    _ => "it was not there when it was last looked for".to_owned(),
                };
                let message = format!("PersistentVolume {named} cannot be used: {why}");
                lost(claim, "VolumeMismatch", message, scene.now, &mut plan);
            }
            Some(_) => {
                let message = format!("PersistentVolume {named} is bound to another claim");
                lost(claim, "ClaimMisbound", message, scene.now, &mut plan);
            }
        }
        return plan;
    }
    if let Some(class) = scene.default_class.filter(|_| named.is_empty() && nameless(claim)) {
        plan.patch(claim, json!({"spec": {"storageClassName": class}}), "the default class stands in");
        return plan;
    }
    match scene.decision {
        Decision::Bind { resource, .. } => {
            if let Some(volume) = scene.volume.filter(|v| v["metadata"]["name"].as_str() == Some(resource)) {
                bind(scene, volume, &mut plan);
            }
        }
        Decision::Wait { reason, summary } => {
            let counted = summary.text(&rules());
            let (word, message) = match reason {
                Reason::FirstConsumer(_) => {
                    ("WaitForFirstConsumer", "waiting for a Pod that uses it to be scheduled".to_owned())
                }
                Reason::NamedMissing(name) => ("VolumeMissing", format!("PersistentVolume {name} does not exist")),
                Reason::NamedRefused(name, refusal) => (
                    "VolumeMismatch",
                    format!("PersistentVolume {name} cannot be used: {}", refused(&rules(), refusal)),
                ),
                Reason::ReservedRefused(name, refusal) => (
                    "VolumeMismatch",
                    format!(
                        "PersistentVolume {name} is reserved for this claim and cannot be used: {}",
                        refused(&rules(), refusal)
                    ),
                ),
                Reason::BeingMade(name) => ("Provisioning", format!("PersistentVolume {name} is being made")),
                Reason::NotAllowed(class) => ("NotAllowed", not_allowed(class)),
                Reason::TooCostly => ("ExpressionTooCostly", crate::lifecycle::too_costly("PersistentVolume")),
                Reason::ClassMissing(class) => ("ClassMissing", format!("there is no StorageClass {class}; {counted}")),
                Reason::ClassUnserved(class) => {
                    ("ClassUnserved", format!("no manager serves StorageClass {class}: add it to one; {counted}"))
                }
                Reason::ClassRefused(class, refusals) => {
                    let why = refusals.iter().map(|r| refused(&rules(), r)).collect::<Vec<_>>().join(", ");
                    ("ClassRefused", format!("StorageClass {class} cannot make it: {why}; {counted}"))
                }
                Reason::NoMatch => match scene.class.and_then(others_provisioner) {
                    Some(provisioner) => {
                        hand_over(claim, provisioner, &mut plan);
                        let message = format!(
                            "waiting for a volume that the provisioner {provisioner} makes, or an administrator: see that it runs; {counted}"
                        );
                        ("ExternalProvisioning", message)
                    }
                    None => ("NoMatch", counted),
                },
            };
            pending(claim, scene.now, word, message, &mut plan);
        }
        Decision::Provision { class, .. } => {
            let made = match &scene.making {
                Some(making) => make(claim, making, &mut plan),
                None => Err("there is no template under the name its parameters give".to_owned()),
            };
            match made {
                Ok(Made::Going(message)) => pending(claim, scene.now, "Provisioning", message, &mut plan),
                Ok(Made::Waiting(message)) => pending(claim, scene.now, "NotReady", message, &mut plan),
                Err(error) => pending(
                    claim,
                    scene.now,
                    "ProvisioningFailed",
                    format!("class {class} cannot make it: {error}"),
                    &mut plan,
                ),
            }
        }
    }
    plan
}

/// Who makes the volumes of a class, if that is not this system.
fn others_provisioner(class: &Value) -> Option<&str> {
    class["provisioner"].as_str().filter(|name| ![PROVISIONER, "kubernetes.io/no-provisioner"].contains(name))
}

/// Tells the provisioner of a claim's class that the claim waits for it.
fn hand_over(claim: &Value, provisioner: &str, plan: &mut Plan) {
    let missing = STORAGE_PROVISIONER.iter().filter(|key| claim["metadata"]["annotations"][**key] != provisioner);
    let missing: Map<String, Value> = missing.map(|key| ((*key).to_owned(), json!(provisioner))).collect();
    if !missing.is_empty() {
        plan.patch(claim, json!({"metadata": {"annotations": missing}}), "hand the claim to its provisioner");
    }
}

/// Whether a volume refers to nobody.
fn free(volume: &Value) -> bool {
    volume["spec"]["claimRef"].is_null()
}

/// Whether a claim that says it was bound may have the volume it names, which refers to nobody. One that is bound has it; any other,
/// lost or only saying so, may have it as one that names it: of its class, size and modes, and with the right to its class.
fn may_have(scene: &VolumeClaimScene<'_>, volume: &Value) -> bool {
    let decided = |resource: &str| volume["metadata"]["name"].as_str() == Some(resource);
    phase(scene.claim) == "Bound" || matches!(scene.decision, Decision::Bind { resource, .. } if decided(resource))
}

/// Whether a claim was bound. Its annotation is anyone's to write: alone it takes no free volume.
fn completed(claim: &Value, volume: Option<&Value>) -> bool {
    annotated(claim, BIND_COMPLETED) && (matches!(phase(claim), "Bound" | "Lost") || !volume.is_some_and(free))
}

/// Whether a claim says nothing of its class.
fn nameless(claim: &Value) -> bool {
    claim["spec"]["storageClassName"].is_null() && !annotated(claim, super::BETA_CLASS)
}

fn bind(scene: &VolumeClaimScene<'_>, volume: &Value, plan: &mut Plan) {
    let claim = scene.claim;
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    let preset = volume["spec"]["claimRef"].is_object();
    if !refers(volume, claim) {
        let reserved = volume["spec"]["claimRef"]["uid"].as_str().unwrap_or_default().is_empty()
            && volume["spec"]["claimRef"]["namespace"] == claim["metadata"]["namespace"]
            && volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"];
        let had = phase(claim) == "Bound" && annotated(claim, BIND_COMPLETED);
        let takeable = matches!(phase(volume), "Available") || (had && !preset);
        if deleting(volume) || !takeable || (preset && !reserved) {
            return;
        }
        let mut patch = json!({"spec": {"claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "uid": uid(claim),
            "resourceVersion": claim["metadata"]["resourceVersion"],
        }}});
        if !preset {
            patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
        }
        plan.patch(volume, patch, "refer to the claim");
    }
    let mut patch = Map::new();
    let mut annotations = Map::new();
    if claim["spec"]["volumeName"].as_str() != Some(name) {
        patch.insert("spec".into(), json!({"volumeName": name}));
        annotations.insert(BOUND_BY_CONTROLLER.into(), json!("yes"));
    }
    if !annotated(claim, BIND_COMPLETED) {
        annotations.insert(BIND_COMPLETED.into(), json!("yes"));
    }
    if !annotations.is_empty() {
        patch.insert("metadata".into(), json!({"annotations": annotations}));
    }
    if !patch.is_empty() {
        plan.patch(claim, Value::Object(patch), "name the volume");
    }
    if phase(volume) != "Bound" {
        plan.patch_status(
            volume,
            json!({"phase": "Bound", "reason": null, "message": null}),
            "say Bound on the volume",
        );
    }
    let mut fields = json!({
        "phase": "Bound",
        "accessModes": volume["spec"]["accessModes"],
        "capacity": volume["spec"]["capacity"],
    });
    if let Some(class) = volume["spec"].get("volumeAttributesClassName") {
        fields["currentVolumeAttributesClassName"] = class.clone();
    }
    let told = Condition::new("Bound", true, "Bound", format!("bound to PersistentVolume {name}"));
    // Kubernetes' own claims have no such condition: it is kept true where it was said, not added to every bind
    let known = crate::lifecycle::condition_of(claim, "Bound").is_some();
    let conditions: &[Condition] = if known { std::slice::from_ref(&told) } else { &[] };
    if let Some(status) = status_patch(claim, fields, conditions, scene.now) {
        plan.patch_status(claim, status, "say Bound on the claim");
        if phase(claim) != "Bound" {
            plan.event(claim, false, "Bound", format!("bound to PersistentVolume {name}"));
        }
    }
}

pub(super) fn lost(claim: &Value, reason: &'static str, message: String, now: &str, plan: &mut Plan) {
    let condition = Condition::new("Bound", false, reason, message.clone());
    if let Some(status) = status_patch(claim, json!({"phase": "Lost"}), &[condition], now) {
        plan.patch_status(claim, status, "say Lost on the claim");
        if phase(claim) != "Lost" {
            plan.event(claim, true, reason, message);
        }
    }
}

fn pending(claim: &Value, now: &str, reason: &'static str, message: String, plan: &mut Plan) {
    let condition = Condition::new("Bound", false, reason, message.clone());
    // what is in the way of its volume is for whoever waits to know, each time it is something else
    let told = |(_, r, m): (bool, &str, &str)| r == reason && (reason != "NotReady" || m == message);
    let news = !crate::lifecycle::condition_of(claim, "Bound").is_some_and(told);
    if let Some(status) = status_patch(claim, json!({"phase": "Pending"}), &[condition], now) {
        plan.patch_status(claim, status, "say why the claim waits");
        if news {
            plan.event(claim, false, reason, message);
        }
    }
}

/// What is to be written about a claim that something outside keeps from getting its volume.
pub fn volume_claim_held(claim: &Value, reason: &'static str, message: String, now: &str) -> Plan {
    let mut plan = Plan::default();
    if !matches!(phase(claim), "Bound" | "Lost") {
        pending(claim, now, reason, message, &mut plan);
        return plan;
    }
    // it has its volume: what it does not get is more of it
    let condition = Condition::new(RESIZING, true, reason, message.clone());
    if let Some(status) = status_patch(claim, json!({}), &[condition], now) {
        plan.patch_status(claim, status, "say why the volume does not grow");
        plan.event(claim, true, reason, message);
    }
    plan
}

/// What is to be written about a PersistentVolume now.
pub fn volume(scene: &VolumeScene<'_>) -> Plan {
    let mut plan = Plan::default();
    let volume = scene.volume;
    let claim = &volume["spec"]["claimRef"];
    let by_controller = annotated(volume, BOUND_BY_CONTROLLER);
    if deleting(volume) {
        match scene.claim {
            // for as long as it is used it is looked after like any other
            Presence::Alive(object) if phase(volume) == "Bound" && scene.implementation.is_some() => {
                keep(scene, object, &mut plan);
            }
            Presence::Alive(_) if phase(volume) == "Bound" => {
                say(scene, "Bound", Value::Null, Value::Null, &mut plan);
            }
            _ => remove(scene, &mut plan),
        }
        return plan;
    }
    if claim.is_null() || claim["uid"].as_str().unwrap_or_default().is_empty() {
        // free, or reserved for whoever comes under that name
        if phase(volume) != "Available" {
            say(scene, "Available", Value::Null, Value::Null, &mut plan);
        }
        return plan;
    }
    match (scene.claim, phase(volume)) {
        (Presence::Unknown, _) => {}
        (Presence::Gone, "Bound") => released(scene, &mut plan),
        (Presence::Gone, "Released" | "Failed") => reclaim(scene, &mut plan),
        // restored from a copy: what is in it may be somebody's
        (Presence::Gone, _) if is_restored(scene) => released(scene, &mut plan),
        // never bound, so never used
        (Presence::Gone, _) if annotated(volume, PROVISIONED_FOR) => discard(scene, &mut plan),
        (Presence::Gone, _) => unbind(scene, by_controller, &mut plan),
        (Presence::Alive(object), now) => {
            let named = object["spec"]["volumeName"].as_str().unwrap_or_default();
            let elsewhere = !named.is_empty() && Some(named) != volume["metadata"]["name"].as_str();
            match now {
                "Bound" if elsewhere => {
                    say(scene, "Released", json!("Misbound"), json!(format!("its claim names {named}")), &mut plan)
                }
                _ if elsewhere && by_controller => unbind(scene, true, &mut plan),
                "" | "Pending" if annotated(volume, PROVISIONED_FOR) => take_over(scene, &mut plan),
                "" | "Pending" => say(scene, "Available", Value::Null, Value::Null, &mut plan),
                "Bound" => keep(scene, object, &mut plan),
                _ => {}
            }
        }
    }
    plan
}

/// Whether a volume was bound in an earlier life: what is behind it is labelled as another's that had its name, or it came with a claim
/// that is not there, which the managers only ever give to what is Available or was made for it.
fn is_restored(scene: &VolumeScene<'_>) -> bool {
    let volume = scene.volume;
    let new = matches!(phase(volume), "" | "Pending") && !annotated(volume, PROVISIONED_FOR);
    let owner = scene.implementation.and_then(|object| object["metadata"]["labels"][RESOURCE_UID].as_str());
    new || owner.is_some_and(|owner| owner != uid(volume))
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

fn released(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let message = "released; what becomes of it is up to its reclaim policy";
    say(scene, "Released", json!("Released"), json!(message), plan);
}

/// A new volume takes its implementation over from the claim before anyone can use it.
fn take_over(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let Some(implementation) = scene.implementation.filter(|i| !deleting(i)) else {
        return say(
            scene,
            "Pending",
            json!("ImplementationLost"),
            json!("what is behind it vanished: delete the claim"),
            plan,
        );
    };
    // what had another volume of that name is this one's when its claim has it: until then it may hold somebody's data
    if implementation["metadata"]["labels"][RESOURCE_UID].is_null() {
        own(scene.volume, implementation, plan);
    }
    say(scene, "Available", Value::Null, Value::Null, plan);
}

/// Made for a claim that went before it was bound: nothing is in it.
fn discard(scene: &VolumeScene<'_>, plan: &mut Plan) {
    match scene.implementation {
        Some(implementation) if deleting(implementation) => {}
        Some(implementation) => {
            plan.delete(implementation, "its claim went before it was bound");
            plan.of_implementation();
        }
        None => plan.delete(scene.volume, "its claim went before it was bound"),
    }
}

/// A volume on its way out: not under its claim, and by its policy with or without its implementation.
fn remove(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    match (phase(volume), scene.claim) {
        // the API server's own protection lets go what no longer says Bound
        ("Bound", Presence::Gone) => released(scene, plan),
        ("Bound", _) => return,
        _ => {}
    }
    let mut gone = true;
    if let Some(implementation) =
        scene.implementation.filter(|_| finalizer(volume, RESOURCE_FINALIZER, false).is_some())
    {
        // what is to be scrubbed when its claim is gone is nobody's to keep, unless an administrator declared it
        let recycle = volume["metadata"]["annotations"][RECLAIM].as_str() == Some("Recycle");
        let made = implementation["metadata"]["labels"][CLAIM_UID].is_string();
        let keep = volume["spec"]["persistentVolumeReclaimPolicy"].as_str() != Some("Delete") && !(recycle && made);
        if keep && implementation["metadata"]["annotations"][RETAINED].as_str() != Some("true") {
            plan.patch(
                implementation,
                json!({"metadata": {"annotations": {RETAINED: "true"}}}),
                "keep the implementation",
            );
            plan.of_implementation();
        } else if !keep {
            gone = false;
            if !deleting(implementation) {
                plan.delete(implementation, "its reclaim policy keeps nothing");
                plan.of_implementation();
            }
        }
    }
    if let Some(rest) = finalizer(volume, RESOURCE_FINALIZER, false).filter(|_| gone) {
        plan.patch(volume, json!({"metadata": {"finalizers": rest}}), "let the volume go");
    }
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

/// Takes the reference back: what a controller wrote altogether, of an administrator's only what makes it this one claim's.
fn unbind(scene: &VolumeScene<'_>, by_controller: bool, plan: &mut Plan) {
    let patch = if by_controller {
        json!({"spec": {"claimRef": null}, "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}})
    } else {
        json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}})
    };
    plan.patch(scene.volume, patch, "take the reference back");
    if phase(scene.volume) != "Available" {
        say(scene, "Available", Value::Null, Value::Null, plan);
    }
}

fn reclaim(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    let recycle = volume["metadata"]["annotations"][RECLAIM].as_str() == Some("Recycle");
    match volume["spec"]["persistentVolumeReclaimPolicy"].as_str() {
        Some("Delete") if volume["metadata"]["annotations"][PROVISIONED_BY].as_str() == Some(PROVISIONER) => {
            match scene.implementation {
                Some(implementation) if deleting(implementation) => {}
                Some(implementation) => {
                    plan.delete(implementation, "its reclaim policy is Delete");
                    plan.of_implementation();
                }
                None => plan.delete(volume, "its reclaim policy is Delete"),
            }
        }
        // someone else's provisioner deletes it
        Some("Delete") if annotated(volume, PROVISIONED_BY) => {}
        Some("Delete") => {
            let message = "nothing here can delete what is behind it: delete it by hand, then the volume";
            say(scene, "Failed", json!("VolumeFailedDelete"), json!(message), plan);
        }
        _ if recycle => scrub(scene, plan),
        _ => {}
    }
}

/// As for other resources: asked for under a number, Available only when that number is done.
fn scrub(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    let Some(implementation) = scene.implementation else {
        let message = "nothing can scrub it: it has no implementation";
        return say(scene, phase(volume), json!("CannotScrub"), json!(message), plan);
    };
    let Some(number) = volume["metadata"]["annotations"][SCRUB].as_str().and_then(|n| n.parse::<i64>().ok()) else {
        let seen = [&implementation["spec"]["scrub"], &implementation["status"]["scrubbed"]];
        let next = seen.into_iter().filter_map(Value::as_i64).max().unwrap_or(0).saturating_add(1);
        plan.patch(volume, json!({"metadata": {"annotations": {SCRUB: next.to_string()}}}), "intend a scrub");
        return say(scene, "Released", json!("Scrubbing"), json!("being scrubbed before it is used again"), plan);
    };
    if implementation["spec"]["scrub"].as_i64() != Some(number) {
        plan.patch(implementation, json!({"spec": {"scrub": number}}), "ask for a scrub");
        plan.of_implementation();
        return;
    }
    if implementation["status"]["scrubbed"].as_i64() != Some(number) {
        return;
    }
    match crate::lifecycle::condition_of(implementation, "Scrubbed") {
        Some((true, _, _)) => {
            let patch = json!({
                "spec": {"claimRef": null},
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: null, SCRUB: null}},
            });
            plan.patch(volume, patch, "scrubbed: free again");
            say(scene, "Available", Value::Null, Value::Null, plan);
        }
        Some((false, _, why)) => {
            say(
                scene,
                "Failed",
                json!("ScrubFailed"),
                json!(format!("it could not be scrubbed and is not used again: {why}")),
                plan,
            );
        }
        None => {}
    }
}
