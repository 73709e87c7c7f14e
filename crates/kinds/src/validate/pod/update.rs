//! What may change in a Pod once it is there: little.

use std::collections::BTreeMap;

use conductor_machinery::field::Errors;
use conductor_machinery::names;
use serde_json::Value;

use super::annotations::{MIRROR, annotation_updates};
use super::{pod_object, scheduling, static_pod_error};
use crate::validate::at::{At, Report};
use crate::value::{annotation, get, keep, list, list_mut, remove, same, set, text};

/// What clients are told they may change.
const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(crate) fn pod_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    pod_object(errors, new);
    annotation_updates(errors, new, old);
    let (spec, old_spec) = (new.field("spec"), old.field("spec"));
    for kind in ["containers", "initContainers"] {
        if spec.list(kind).len() != old_spec.list(kind).len() {
            return errors.forbidden(&spec.at(kind), "pod updates may not add or remove containers");
        }
    }
    let deadline = spec.maybe_int("activeDeadlineSeconds");
    let old_deadline = old_spec.maybe_int("activeDeadlineSeconds");
    let path = spec.at("activeDeadlineSeconds");
    match (deadline, old_deadline) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            return errors.invalid(&path, seconds, names::range_error(0, i32::MAX.into()));
        }
        (Some(seconds), Some(before)) if before < seconds => {
            return errors.invalid(&path, seconds, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    added_tolerations(errors, &spec, &old_spec);
    let mut gates: BTreeMap<&str, At<'_>> =
        spec.items("schedulingGates").map(|gate| (gate.text("name"), gate)).collect();
    for before in old_spec.list("schedulingGates") {
        gates.remove(text(before, "name"));
    }
    for (name, gate) in gates {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        errors.forbidden(&gate.at("name"), &detail);
    }
    if same(spec.value, old_spec.value) {
        return;
    }
    let mut munged = spec.value.clone();
    for kind in ["containers", "initContainers"] {
        for (container, before) in list_mut(&mut munged, kind).iter_mut().zip(old_spec.list(kind)) {
            keep(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(&mut munged, old_spec.value, field);
    }
    if old_spec.int("terminationGracePeriodSeconds") < 0 && spec.int("terminationGracePeriodSeconds") == 1 {
        keep(&mut munged, old_spec.value, "terminationGracePeriodSeconds");
    }
    if !old_spec.list("schedulingGates").is_empty() {
        gated(errors, &spec, &old_spec, &mut munged);
    }
    if !same(&munged, old_spec.value) {
        errors.forbidden(&spec.path, UPDATABLE);
    }
}

fn added_tolerations(errors: &mut Errors, spec: &At<'_>, old_spec: &At<'_>) {
    for before in old_spec.list("tolerations") {
        let kept = spec.list("tolerations").iter().any(|now| {
            let mut before = before.clone();
            keep(&mut before, now, "tolerationSeconds");
            same(&before, now)
        });
        if !kept {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            return errors.forbidden(&spec.at("tolerations"), detail);
        }
    }
    scheduling::tolerations(errors, spec);
}

/// A Pod that waits at a gate may still be told more exactly where to run.
fn gated(errors: &mut Errors, spec: &At<'_>, old_spec: &At<'_>, munged: &mut Value) {
    let selector = get(spec.value, "nodeSelector");
    let narrowed =
        crate::value::entries(old_spec.value, "nodeSelector").all(|(key, value)| selector.get(key) == Some(value));
    if !narrowed {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&spec.at("nodeSelector"), selector.clone(), detail);
    }
    keep(munged, old_spec.value, "nodeSelector");
    let terms = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (spec.list(terms), old_spec.list(terms));
    if !before.is_empty() {
        if now.len() != before.len() {
            let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
            errors.invalid(&spec.at(terms), now.to_vec(), detail);
        } else {
            for (i, (now, before)) in now.iter().zip(before).enumerate() {
                if !only_added(now, before) {
                    let detail = "only additions are allowed (no mutations or deletions)";
                    errors.invalid(&spec.at(terms).index(i), now.clone(), detail);
                }
            }
        }
    }
    match old_spec.get("affinity.nodeAffinity") {
        Value::Null => {
            remove(munged, "affinity", "nodeAffinity");
            let empty = get(munged, "affinity").as_object().is_some_and(|map| map.values().all(Value::is_null));
            if empty && !old_spec.has("affinity") {
                remove(munged, "", "affinity");
            }
        }
        before => set(munged, "affinity", "nodeAffinity", before.clone()),
    }
}

fn only_added(new: &Value, old: &Value) -> bool {
    let fields = ["matchExpressions", "matchFields"];
    if fields.iter().all(|field| list(old, field).is_empty()) {
        return fields.iter().all(|field| list(new, field).is_empty());
    }
    fields.iter().all(|field| {
        let (now, before) = (list(new, field), list(old, field));
        now.len() >= before.len() && now.iter().zip(before).all(|(now, before)| same(now, before))
    })
}

pub(crate) fn ephemeral_containers_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    pod_object(errors, new);
    annotation_updates(errors, new, old);
    if annotation(old.value, MIRROR).is_some() {
        *errors = static_pod_error("static pods do not support ephemeral containers");
        return;
    }
    let path = new.at("spec.ephemeralContainers");
    for before in old.list("spec.ephemeralContainers") {
        let name = text(before, "name");
        match new.list("spec.ephemeralContainers").iter().find(|now| text(now, "name") == name) {
            None => errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(now) if !same(now, before) => {
                errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
}
