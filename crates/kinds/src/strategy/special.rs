//! What single kinds need beyond the common rules.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::set_or_remove;
use crate::value::{get, get_mut, has, list, list_mut, object_mut, remove, set, text};

pub(super) fn reset_status(group: &str, kind: &str, object: &mut Value) {
    let status = match (group, kind) {
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}),
        ("policy", "PodDisruptionBudget") => {
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
        }
        ("autoscaling", "HorizontalPodAutoscaler") => json!({"desiredReplicas": 0, "currentMetrics": null}),
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        _ => json!({}),
    };
    set(object, "", "status", status);
}

/// What this server itself serves is there.
pub(super) fn served_here(service: &mut Value) {
    let now = get(service, "metadata.creationTimestamp").clone();
    let local = json!({
        "type": "Available", "status": "True", "reason": "Local", "lastTransitionTime": now,
        "message": "Local APIServices are always available",
    });
    set(service, "status", "conditions", json!([local]));
}

pub(super) fn own_label(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    set(namespace, "metadata.labels", "kubernetes.io/metadata.name", name);
}

/// A namespace goes only when its content has gone, which the `kubernetes` finalizer stands for.
pub(super) fn own_namespace(namespace: &mut Value) {
    own_label(namespace);
    if let Some(spec) = object_mut(namespace, "spec") {
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if finalizers.is_null() {
            *finalizers = json!([]);
        }
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|finalizer| finalizer == "kubernetes")
        {
            list.push("kubernetes".into());
        }
    }
}

/// `dataSource` and `dataSourceRef` say the same. A `dataSource` that is neither a claim nor a snapshot is dropped, as it
/// always was; in `dataSourceRef` it is kept.
pub(super) fn data_sources(claim: &mut Value, old: Option<&Value>) {
    let in_use = |path: &str| old.is_some_and(|old| has(old, path));
    let foreign = !text(claim, "spec.dataSourceRef.namespace").is_empty();
    if foreign && !in_use("spec.dataSourceRef") {
        remove(claim, "spec", "dataSourceRef");
    }
    if !in_use("spec.dataSource") && !in_use("spec.dataSourceRef") && !has(claim, "spec.dataSourceRef") {
        let known = matches!(
            (text(claim, "spec.dataSource.apiGroup"), text(claim, "spec.dataSource.kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        );
        if !known {
            remove(claim, "spec", "dataSource");
        }
    }
    match (has(claim, "spec.dataSource"), has(claim, "spec.dataSourceRef")) {
        (true, false) => {
            let source = get(claim, "spec.dataSource").clone();
            set(claim, "spec", "dataSourceRef", source);
        }
        (false, true) if text(claim, "spec.dataSourceRef.namespace").is_empty() => {
            let mut source = get(claim, "spec.dataSourceRef").clone();
            remove(&mut source, "", "namespace");
            set(claim, "spec", "dataSource", source);
        }
        _ => {}
    }
}

pub(super) fn name_only_secrets(account: &mut Value) {
    for secret in list_mut(account, "secrets") {
        let name = text(secret, "name").to_owned();
        *secret = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    }
}

/// A Job finds its Pods by its own uid, unless its author chose the selector.
pub(super) fn generate_selector(job: &mut Value) {
    if crate::value::flag(job, "spec.manualSelector") {
        return;
    }
    // A Job that wears its Pods' labels wears the generated ones, too.
    let template = get(job, "spec.template.metadata.labels");
    let same_labels = template.is_object() && get(job, "metadata.labels") == template;
    let name = text(job, "metadata.name").to_owned();
    let uid = text(job, "metadata.uid").to_owned();
    if let Some(labels) = object_mut(job, "spec.template.metadata.labels") {
        for (key, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ] {
            labels.entry(key).or_insert_with(|| value.clone().into());
        }
    }
    if let Some(labels) = object_mut(job, "spec.selector.matchLabels") {
        labels.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| uid.into());
    }
    if same_labels {
        let labels = get(job, "spec.template.metadata.labels").clone();
        set(job, "metadata", "labels", labels);
    }
}

/// Where the generation of a DaemonSet's template stands.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The old field of DaemonSets lives on as an annotation.
pub(super) fn template_generation(set_: &mut Value, generation: i64) {
    set(set_, "metadata.annotations", TEMPLATE_GENERATION, generation.to_string());
}

pub(super) fn old_template_generation(old: &Value) -> i64 {
    crate::value::annotation(old, TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(super) fn stored_version(definition: &mut Value) {
    let stored = list(definition, "spec.versions")
        .iter()
        .find(|version| crate::value::flag(version, "storage"))
        .map(|version| text(version, "name").to_owned());
    if let Some(stored) = stored {
        set(definition, "status", "storedVersions", json!([stored]));
        // Until they are accepted, the names are there, and empty.
        set(definition, "status", "acceptedNames", json!({"plural": "", "kind": ""}));
    }
}

/// Objects are stored in a new version from now on, and in those before it until somebody has migrated them.
pub(super) fn add_stored_version(definition: &mut Value) {
    let storage = list(definition, "spec.versions").iter().find(|version| crate::value::flag(version, "storage"));
    let Some(name) = storage.map(|version| text(version, "name").to_owned()) else { return };
    let mut stored = list(definition, "status.storedVersions").to_vec();
    if !stored.iter().any(|known| *known == *name) {
        stored.push(json!(name));
        set(definition, "status", "storedVersions", json!(stored));
    }
}

/// The time of a PersistentVolume's last change of phase is the server's to say, unless the client says a newer one.
pub(super) fn phase_transition(new: &mut Value, old: &Value, now: &str) {
    let before = get(old, "status.lastPhaseTransitionTime").clone();
    let said = get(new, "status.lastPhaseTransitionTime").clone();
    let changed = text(old, "status.phase") != text(new, "status.phase");
    if !changed && said.is_null() {
        set_or_remove(new, "status", "lastPhaseTransitionTime", before);
    } else if changed && (said.is_null() || said == before) {
        set(new, "status", "lastPhaseTransitionTime", now);
    }
}

/// Approvals and denials are not the status subresource's to change. One more or one less is left for validation to refuse: who forgot
/// `/approval` is told.
pub(super) fn kept_decisions(new: &mut Value, old: &Value) {
    for kind in ["Approved", "Denied"] {
        let own = |condition: &&Value| text(condition, "type") == kind;
        let before: Vec<Value> = list(old, "status.conditions").iter().filter(own).cloned().collect();
        if list(new, "status.conditions").iter().filter(own).count() != before.len() {
            continue;
        }
        let mut before = before.into_iter();
        for condition in
            list_mut(new, "status.conditions").iter_mut().filter(|condition| text(condition, "type") == kind)
        {
            *condition = before.next().unwrap_or_default();
        }
    }
}

pub(super) fn condition_times(new: &mut Value, old: &Value, now: &str) {
    for condition in list_mut(new, "status.conditions") {
        let before = list(old, "status.conditions").iter().find(|c| text(c, "type") == text(condition, "type"));
        let transition = match before {
            Some(before) if text(before, "status") == text(condition, "status") => {
                get(before, "lastTransitionTime").clone()
            }
            _ => Value::Null,
        };
        if let Some(map) = condition.as_object_mut() {
            crate::value::fill(map, "lastUpdateTime", now);
            crate::value::fill(map, "lastTransitionTime", if transition.is_null() { now.into() } else { transition });
        }
    }
}

/// Where an endpoint is was said in another way once; what is there stays until it changes.
pub(super) fn drop_topology(slice: &mut Value, old: &Value) {
    let kept = same_endpoints(slice, old);
    for endpoint in list_mut(slice, "endpoints").iter_mut().filter(|_| !kept) {
        remove(endpoint, "", "deprecatedTopology");
    }
}

fn same_endpoints(slice: &Value, old: &Value) -> bool {
    !old.is_null() && get(slice, "endpoints") == get(old, "endpoints")
}

/// Fields of devices whose features are off in Kubernetes 1.36.
pub(super) fn drop_device_fields(slice: &mut Value) {
    for device in list_mut(slice, "spec.devices") {
        remove(device, "", "nodeAllocatableResourceMappings");
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        for attribute in attributes.into_iter().flatten().filter_map(|(_, attribute)| attribute.as_object_mut()) {
            for list in ["bools", "ints", "strings", "versions"] {
                attribute.remove(list);
            }
        }
    }
}

/// A StatefulSet that updates several Pods at once is off in Kubernetes 1.36; what is there stays.
pub(super) fn drop_max_unavailable(set_: &mut Value, old: &Value) {
    const AT: &str = "spec.updateStrategy.rollingUpdate";
    if !has(get(old, AT), "maxUnavailable") {
        remove(set_, AT, "maxUnavailable");
    }
}

/// What drivers said of devices that a claim has no longer goes with them.
pub(super) fn drop_deallocated(claim: &mut Value, old: &Value) {
    let id = |device: &Value| ["driver", "pool", "device", "shareID"].map(|field| text(device, field).to_owned());
    let allocated =
        |claim: &Value| -> HashSet<_> { list(claim, "status.allocation.devices.results").iter().map(id).collect() };
    let (before, now) = (allocated(old), allocated(claim));
    let stays = |device: &Value| !before.contains(&id(device)) || now.contains(&id(device));
    if let Some(devices) = get_mut(claim, "status.devices").and_then(Value::as_array_mut) {
        devices.retain(stays);
        if devices.is_empty() {
            remove(claim, "status", "devices");
        }
    }
}
