//! What the server decides about Pods.

use serde_json::{Value, json};

use crate::compute::quality_of_service;
use crate::value::{flag, get, has, int, keep, list, list_mut, remove, set, size, text};

/// An annotation that says the AppArmor profile of a container, without its name.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The same of seccomp.
pub(crate) const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// So many bytes has the name of a profile.
const APP_ARMOR_MAX: usize = 4095;

/// 30 seconds or what the Pod or the request says; none for a Pod that no node runs or that has ended.
pub(super) fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let period = asked.or_else(|| int(pod, "spec.terminationGracePeriodSeconds")).unwrap_or(0);
    let idle = text(pod, "spec.nodeName").is_empty() || matches!(text(pod, "status.phase"), "Failed" | "Succeeded");
    match period {
        _ if idle => 0,
        period if period < 0 => 1,
        period => period,
    }
}

/// Fields of features that are off in Kubernetes 1.36 are dropped without a word.
pub(super) fn drop_disabled(spec: &mut Value) {
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list_mut(spec, containers) {
            drop_stop_signal(container);
        }
    }
    for volume in list_mut(spec, "volumes") {
        for source in list_mut(volume, "projected.sources") {
            remove(source, "", "clusterTrustBundle");
            remove(source, "", "podCertificate");
        }
    }
    remove(spec, "", "schedulingGroup");
}

/// The signal, and the lifecycle that says nothing else.
fn drop_stop_signal(container: &mut Value) {
    if !has(container, "lifecycle.stopSignal") {
        return;
    }
    remove(container, "lifecycle", "stopSignal");
    if size(container, "lifecycle") == 0 {
        remove(container, "", "lifecycle");
    }
}

pub(super) fn prepare_create(pod: &mut Value) {
    let now = get(pod, "metadata.creationTimestamp").clone();
    let mut status = json!({"phase": "Pending", "qosClass": quality_of_service(get(pod, "spec"))});
    if !list(pod, "spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now,
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"
        }]);
    }
    set(pod, "", "status", status);
    let labels = get(pod, "metadata.labels").clone();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        for term in list_mut(pod, &format!("spec.affinity.{affinity}.requiredDuringSchedulingIgnoredDuringExecution")) {
            merge_label_keys(term, &labels);
        }
        for weighted in
            list_mut(pod, &format!("spec.affinity.{affinity}.preferredDuringSchedulingIgnoredDuringExecution"))
        {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                merge_label_keys(term, &labels);
            }
        }
    }
    for constraint in list_mut(pod, "spec.topologySpreadConstraints") {
        merge_label_keys(constraint, &labels);
    }
    if text(pod, "spec.os.name") != "windows" {
        armor_by_annotations(pod);
    }
}

/// What annotations say of AppArmor is written into the fields, where it is not what the Pod says for all.
fn armor_by_annotations(pod: &mut Value) {
    let shared = get(pod, "spec.securityContext.appArmorProfile").clone();
    let mut notes = get(pod, "metadata.annotations").as_object().cloned().unwrap_or_default();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list_mut(pod, &format!("spec.{list}")) {
            // of containers with one name, which is a mistake, the first has it all
            let said = notes.remove(&format!("{APP_ARMOR}{}", text(container, "name")));
            if let Some(profile) = said.as_ref().and_then(Value::as_str).and_then(app_armor_profile)
                && profile != shared
                && !has(container, "securityContext.appArmorProfile")
            {
                set(container, "securityContext", "appArmorProfile", profile);
            }
        }
    }
}

/// The profile that an annotation means, if it means any.
pub(crate) fn app_armor_profile(said: &str) -> Option<Value> {
    match said {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => said
            .strip_prefix("localhost/")
            .filter(|name| !name.is_empty() && name.trim() == *name && name.len() <= APP_ARMOR_MAX)
            .map(|name| json!({"type": "Localhost", "localhostProfile": name})),
    }
}

/// `matchLabelKeys` means "the same value as mine": written out into the selector, so that nobody has to know.
fn merge_label_keys(term: &mut Value, labels: &Value) {
    if !get(term, "labelSelector").is_object() {
        return;
    }
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let expressions: Vec<Value> = list(term, keys)
            .iter()
            .filter_map(|key| Some((key, labels.get(key.as_str()?)?)))
            .map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]}))
            .collect();
        if expressions.is_empty() {
            continue;
        }
        let mut all = list(term, "labelSelector.matchExpressions").to_vec();
        all.extend(expressions);
        set(term, "labelSelector", "matchExpressions", all);
    }
}

pub(super) fn prepare_status_update(new: &mut Value, old: &Value) {
    // The status subresource neither deletes nor disowns.
    for field in ["deletionTimestamp", "ownerReferences"] {
        let before = get(old, "metadata").get(field).cloned();
        match before {
            Some(before) => set(new, "metadata", field, before),
            None => remove(new, "metadata", field),
        }
    }
    if text(new, "status.qosClass").is_empty() {
        let class = text(old, "status.qosClass").to_owned();
        if !class.is_empty() {
            set(new, "status", "qosClass", class);
        }
    }
    if int(new, "status.observedGeneration").unwrap_or(0) == 0
        && let Some(before) = int(old, "status.observedGeneration").filter(|generation| *generation > 0)
    {
        set(new, "status", "observedGeneration", before);
    }
}

/// A resize writes the resources of containers (and of the Pod), nothing else.
pub(super) fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let kinds = ["containers", "initContainers"];
    if kinds.iter().any(|kind| list(get(new, "spec"), kind).len() != list(get(old, "spec"), kind).len()) {
        return;
    }
    let wanted = new.clone();
    super::keep_metadata(new, old);
    keep(new, old, "spec");
    keep(new, old, "status");
    match get(&wanted, "spec.resources") {
        Value::Null => remove(new, "spec", "resources"),
        resources => set(new, "spec", "resources", resources.clone()),
    }
    for kind in kinds {
        let path = format!("spec.{kind}");
        let asked = list(&wanted, &path);
        for (container, asked) in list_mut(new, &path).iter_mut().zip(asked) {
            if text(container, "name") != text(asked, "name") {
                *container = asked.clone();
                continue;
            }
            for field in ["resources", "resizePolicy"] {
                keep(container, asked, field);
            }
        }
    }
}

/// Whether a Pod is on the host's network, which is where field selectors look.
pub(crate) fn host_network(pod: &Value) -> bool {
    flag(pod, "spec.hostNetwork")
}
