//! Making a volume for a claim.
//!
//! A PersistentVolume cannot exist without saying what is behind it, so the implementation comes first, under a name derived from the
//! claim's uid and labelled with it: if the claim goes, it is an orphan and swept. When it is ready the volume is made, reserved for
//! the claim; then the implementation is the volume's.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::lifecycle::parts::{deleting, is_ready, place, reference_to, uid};
use crate::lifecycle::{
    CLAIM_NAME, CLAIM_UID, Implementation, PROVISIONED_FOR, Plan, RESOURCE_FINALIZER, RESOURCE_REF, RESOURCE_UID,
    Target, condition_of,
};
use crate::names::derived;
use crate::template::{Expressions, render};
use crate::volumes::life::reference;
use crate::volumes::{BOUND_BY_CONTROLLER, IMPLEMENTATION, PROVISIONED_BY, PROVISIONER, RECLAIM};

/// What is needed to make a volume from a class of ours.
#[derive(Clone, Copy)]
pub struct Making<'m> {
    /// The StorageClass.
    pub class: &'m Value,
    /// The object its `parameters.template` names: `spec.template` is the implementation, `spec.volume` the volume's source,
    /// `spec.readyWhen` when it is ready.
    pub template: &'m Value,
    /// The implementation under [`made_name`], if it exists.
    pub implementation: Option<&'m Value>,
    /// Evaluates the template.
    pub expressions: &'m dyn Expressions,
}

/// The name of the volume made for a claim, and of its implementation.
pub fn made_name(claim: &Value) -> String {
    made_name_for(uid(claim))
}

/// The same by the claim's uid.
pub fn made_name_for(uid: &str) -> String {
    derived("pvc", uid)
}

/// How far a volume is, with words for its claim.
pub(super) enum Made {
    /// On its way.
    Going(String),
    /// What is behind it says why it is not ready.
    Waiting(String),
}

/// Whether an object is behind a volume, which only says so: it is labelled as the volume's, refers to a volume of that name (one
/// that was restored) or, until the volume has taken it over, was made for the volume's claim. Whoever makes volumes may name any object.
pub fn is_behind(object: &Value, volume: &Value) -> bool {
    let meta = &object["metadata"];
    let (owner, made_for) = (meta["labels"][RESOURCE_UID].as_str(), meta["labels"][CLAIM_UID].as_str());
    let for_claim = made_for.is_some() && volume["metadata"]["annotations"][PROVISIONED_FOR].as_str() == made_for;
    owner == Some(uid(volume))
        || meta["annotations"][RESOURCE_REF].as_str() == Some(&reference_to(volume))
        || (owner.is_none() && for_claim)
}

/// The next write on the way to a volume, or why it cannot be made.
pub(super) fn make(claim: &Value, making: &Making<'_>, plan: &mut Plan) -> Result<Made, String> {
    let name = made_name(claim);
    let spec = &making.template["spec"];
    let mode = claim["spec"]["volumeMode"].as_str().unwrap_or("Filesystem");
    let makes = spec["volumeModes"]
        .as_array()
        .map_or_else(|| vec!["Filesystem"], |m| m.iter().filter_map(Value::as_str).collect());
    if !makes.contains(&mode) {
        return Err(format!("it makes volumes of mode {}, asked {mode}: choose another class", makes.join(" or ")));
    }
    let mut scope = BTreeMap::from([("claim", claim), ("class", making.class)]);
    let Some(live) = making.implementation else {
        let mut object =
            render(&spec["template"], &scope, &[], making.expressions).map_err(|e| format!("template.{e}"))?;
        if !object.is_object() {
            return Err("spec.template of its template must be an object".into());
        }
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        // a report is the provider's to make
        object.as_object_mut().map(|fields| fields.remove("status"));
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(place(&object["metadata"]["namespace"])?);
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"][CLAIM_UID] = json!(uid(claim));
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        let text = |key: &str| claim["metadata"][key].as_str().unwrap_or_default();
        object["metadata"]["annotations"][CLAIM_NAME] = json!(format!("{}/{}", text("namespace"), text("name")));
        plan.create(object, "make the volume's implementation");
        plan.of_implementation();
        return Ok(Made::Going(format!("volume {name} is being made")));
    };
    if live["metadata"]["labels"][CLAIM_UID].as_str() != Some(uid(claim)) || deleting(live) {
        return Err(format!("{} {name} exists and is not this claim's", live["kind"].as_str().unwrap_or("an object")));
    }
    let intended = Implementation {
        target: Target::of(live),
        wanted: None,
        ready_when: spec["readyWhen"].as_str().unwrap_or_default().to_owned(),
        replaceable: false,
    };
    if !is_ready(&intended, live, claim, making.expressions)? {
        let kind = &intended.target.kind;
        return Ok(match condition_of(live, "Ready") {
            Some((false, _, why)) if !why.is_empty() => Made::Waiting(format!("{kind} {name} is not ready: {why}")),
            _ => Made::Going(format!("{kind} {name} is not ready yet")),
        });
    }
    scope.insert("implementation", live);
    let source = match (&spec["volume"], &live["status"]["volume"]) {
        (Value::Null, Value::Object(reported)) => Value::Object(reported.clone()),
        (Value::Null, _) => {
            return Err("its template has no spec.volume, and the implementation reports no status.volume".into());
        }
        (source, _) => render(source, &scope, &[], making.expressions).map_err(|e| format!("volume.{e}"))?,
    };
    let mut volume: Map<String, Value> = source.as_object().cloned().unwrap_or_default();
    let storage = match &live["status"]["capacity"]["storage"] {
        Value::Null => &claim["spec"]["resources"]["requests"]["storage"],
        reported => reported,
    };
    volume.insert("capacity".into(), json!({"storage": storage}));
    volume.insert("accessModes".into(), claim["spec"]["accessModes"].clone());
    for (key, value) in [
        ("volumeMode", &claim["spec"]["volumeMode"]),
        ("storageClassName", &making.class["metadata"]["name"]),
        ("mountOptions", &making.class["mountOptions"]),
    ] {
        if !value.is_null() {
            volume.insert(key.into(), value.clone());
        }
    }
    let policy = making.class["reclaimPolicy"].as_str().unwrap_or("Delete");
    volume.insert("persistentVolumeReclaimPolicy".into(), json!(policy));
    volume.insert("claimRef".into(), reference(claim));
    let behind = json!({
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "namespace": live["metadata"]["namespace"],
        "name": name,
    });
    let mut annotations = json!({
        PROVISIONED_BY: PROVISIONER,
        PROVISIONED_FOR: uid(claim),
        BOUND_BY_CONTROLLER: "yes",
        IMPLEMENTATION: behind.to_string(),
    });
    // what a StorageClass cannot say in its own field
    if let policy @ Value::String(_) = &making.class["metadata"]["annotations"][RECLAIM] {
        annotations[RECLAIM] = policy.clone();
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations, "finalizers": [RESOURCE_FINALIZER]},
        "spec": volume,
    });
    plan.create(object, "make the volume, reserved for the claim");
    Ok(Made::Going(format!("volume {name} is being made")))
}
