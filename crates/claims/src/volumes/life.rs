//! The lives of claims.
//!
//! The order of a bind: the volume refers to the claim, the claim names the volume, the claim says Bound, the volume says Bound. The claim
//! is what somebody waits for; whatever it says, a volume is its claim's from the first of these on (see `volume`).
//!
//! The protection finalizers of volumes and claims are the API server's own affair, in both homes.

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::lifecycle::parts::{deleting, not_allowed, phase, refused, status_patch, uid, used_by};
use crate::lifecycle::{Condition, PROVISIONED_FOR, Plan};
use crate::matching::{Decision, Reason};
use crate::volumes::keep::{LOST, RESIZING, grow, wants_more};
use crate::volumes::provision::{Made, Making, make};
use crate::volumes::volume::is_released;
use crate::volumes::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONER, STORAGE_PROVISIONER, rules};

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

pub(super) fn annotated(object: &Value, name: &str) -> bool {
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
            Some(volume) if refers(volume, claim) || (open(volume, claim) && may_have(scene, volume)) => {
                bind(scene, volume, &mut plan);
                if let Some(making) = scene.making.as_ref().filter(|_| wants_more(claim, volume)) {
                    grow(claim, volume, making, scene.now, &mut plan);
                }
            }
            Some(volume) if open(volume, claim) => {
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

/// Whether an administrator keeps a volume for a claim, by its name.
fn reserved(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    reference["uid"].as_str().unwrap_or_default().is_empty()
        && reference["namespace"] == claim["metadata"]["namespace"]
        && reference["name"] == claim["metadata"]["name"]
}

/// Whether a volume refers to nobody, or is reserved for the claim.
fn open(volume: &Value, claim: &Value) -> bool {
    volume["spec"]["claimRef"].is_null() || reserved(volume, claim)
}

/// What a volume says of its claim.
pub(super) fn reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"],
        "uid": uid(claim),
    })
}

/// Whether a claim has the volume that it names, or had it, so that what is in it may be the claim's. Annotations are its owner's to write
/// and statuses are not: one that was bound says how much it had. One that was made anew from a copy has no status; then it is the one
/// that the volume refers to, by its name, and is charged for all that was made for it.
pub fn was_bound(claim: &Value, volume: &Value) -> bool {
    let amount = |value: &Value| Amount::from_json(value).unwrap_or_default();
    let charged = amount(&claim["spec"]["resources"]["requests"]["storage"]);
    let is_whole = !annotated(volume, PROVISIONED_FOR) || charged >= amount(&volume["spec"]["capacity"]["storage"]);
    let is_copy = ["namespace", "name"].iter().all(|key| volume["spec"]["claimRef"][*key] == claim["metadata"][*key]);
    is_known_bound(claim) || (annotated(claim, BIND_COMPLETED) && is_copy && is_whole)
}

/// Whether more than a claim's own word says that it was bound.
pub(super) fn is_known_bound(claim: &Value) -> bool {
    phase(claim) == "Bound" || !claim["status"]["capacity"].is_null()
}

/// Whether a claim has the volume that it names.
pub(super) fn has_volume(claim: &Value) -> bool {
    phase(claim) == "Bound"
}

/// Whether a claim that says it was bound may have the volume it names, which is open to it. One that is bound has it; any other,
/// lost or only saying so, may have it as one that names it: of its class, size and modes, and with the right to its class.
fn may_have(scene: &VolumeClaimScene<'_>, volume: &Value) -> bool {
    let decided = |resource: &str| volume["metadata"]["name"].as_str() == Some(resource);
    phase(scene.claim) == "Bound" || matches!(scene.decision, Decision::Bind { resource, .. } if decided(resource))
}

/// Whether a claim was bound. Its annotation is its owner's to write and to take away: alone it takes no free volume, and one that says
/// Bound needs none.
fn completed(claim: &Value, volume: Option<&Value>) -> bool {
    if phase(claim) == "Bound" && claim["spec"]["volumeName"].is_string() {
        return true;
    }
    annotated(claim, BIND_COMPLETED)
        && (matches!(phase(claim), "Bound" | "Lost") || !volume.is_some_and(|v| open(v, claim)))
}

/// Whether a claim says nothing of its class.
fn nameless(claim: &Value) -> bool {
    claim["spec"]["storageClassName"].is_null() && !annotated(claim, super::BETA_CLASS)
}

fn bind(scene: &VolumeClaimScene<'_>, volume: &Value, plan: &mut Plan) {
    let claim = scene.claim;
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    let preset = volume["spec"]["claimRef"].is_object();
    if is_released(volume) {
        // it may be being scrubbed: when it can be had its own look says so
        return;
    }
    if !refers(volume, claim) {
        // somebody took the reference away: it is mended, on what is to go too, which is not to go under its claim
        let torn = has_volume(claim) && !preset;
        let takeable = torn || (phase(volume) == "Available" && !deleting(volume));
        if !takeable || (preset && !reserved(volume, claim)) {
            return;
        }
        let mut patch = json!({"spec": {"claimRef": reference(claim)}});
        patch["spec"]["claimRef"]["resourceVersion"] = claim["metadata"]["resourceVersion"].clone();
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
    if phase(volume) != "Bound" {
        let status = json!({"phase": "Bound", "reason": null, "message": null});
        plan.patch_status(volume, status, "say Bound on the volume");
        plan.for_later();
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

/// What is to be written about a claim that is to go and that Pods use: which. It is the API server that holds it.
pub fn volume_claim_in_use(claim: &Value, pods: &[String], now: &str) -> Plan {
    let mut plan = Plan::default();
    let condition = Condition::new("Released", false, "InUse", used_by(pods));
    let message = condition.message.clone();
    if let Some(status) = status_patch(claim, json!({}), &[condition], now).filter(|_| !pods.is_empty()) {
        plan.patch_status(claim, status, "say what holds the claim");
        plan.event(claim, false, "InUse", message);
    }
    plan
}
