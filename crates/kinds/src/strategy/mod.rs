//! What the server itself decides about an object on its way in: which part a request may write, when the generation
//! counts up, what is filled from the request's circumstances.
//!
//! The caller has already filled `metadata.uid`, `name` and `creationTimestamp`; nothing here reads a clock.

mod pod;
mod service;

pub(crate) use pod::host_network;
pub(crate) use service::{is_external, wants_health_check};

use serde_json::{Value, json};

use crate::value::{get, has, int, keep, list, list_mut, object_mut, remove, same, set, text};

/// What a kind's generation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// It has none.
    None,
    /// It is 1 for ever.
    Constant,
    /// Changes of these top-level fields.
    Fields(&'static [&'static str]),
    /// Changes of anything but metadata, and of labels.
    Content,
    /// Changes of the spec, and of annotations.
    SpecAndAnnotations,
    /// Changes of the spec; 0 at first.
    SpecFromZero,
}

fn generation(group: &str, kind: &str) -> Generation {
    const SPEC: Generation = Generation::Fields(&["spec"]);
    match (group, kind) {
        ("", "Pod" | "ReplicationController")
        | ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job" | "CronJob")
        | ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy" | "ServiceCIDR")
        | ("policy", "PodDisruptionBudget")
        | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
        | ("apiextensions.k8s.io", "CustomResourceDefinition")
        | (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding"
            | "MutatingAdmissionPolicy"
            | "MutatingAdmissionPolicyBinding",
        ) => SPEC,
        ("", "PodTemplate") => Generation::Fields(&["template"]),
        ("apps", "Deployment") => Generation::SpecAndAnnotations,
        ("discovery.k8s.io", "EndpointSlice") => Generation::Content,
        ("scheduling.k8s.io", "PriorityClass") => Generation::Constant,
        ("storage.k8s.io", "CSIDriver") => Generation::SpecFromZero,
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            Generation::Fields(&["webhooks"])
        }
        _ => Generation::None,
    }
}

/// Whether the kind has a status that is written through its own subresource.
pub fn has_status(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (
            "",
            "Namespace"
                | "Node"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Pod"
                | "ReplicationController"
                | "ResourceQuota"
                | "Service"
        ) | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("autoscaling", "HorizontalPodAutoscaler")
            | ("certificates.k8s.io", "CertificateSigningRequest")
            | ("networking.k8s.io", "Ingress" | "ServiceCIDR")
            | ("policy", "PodDisruptionBudget")
            | ("storage.k8s.io", "VolumeAttachment")
            | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
            | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
    )
}

/// Whether PUT makes an object that is not there.
pub fn allows_create_on_update(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Endpoints" | "Event" | "LimitRange" | "Service")
            | ("events.k8s.io", "Event")
            | ("coordination.k8s.io", "Lease" | "LeaseCandidate")
            | ("node.k8s.io", "RuntimeClass")
            | ("rbac.authorization.k8s.io", _)
    )
}

/// Whether PUT without a resourceVersion replaces whatever there is.
pub fn allows_unconditional_update(group: &str, kind: &str) -> bool {
    !matches!(
        (group, kind),
        ("admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io", _)
            | ("coordination.k8s.io", _)
            | ("node.k8s.io", "RuntimeClass")
            | ("policy", "PodDisruptionBudget")
            | ("storage.k8s.io", "CSIDriver" | "CSINode" | "CSIStorageCapacity" | "VolumeAttachment")
    )
}

/// How long the deletion of an object takes: `None` means it goes at once.
///
/// Only Pods take time, and only those that a node runs.
pub fn grace_period(group: &str, kind: &str, object: &Value, asked: Option<i64>) -> Option<i64> {
    ((group, kind) == ("", "Pod")).then(|| pod::grace_period(object, asked))
}

/// What becomes of an object's dependents when a deletion does not say.
pub fn orphans_dependents(group: &str, kind: &str) -> bool {
    matches!((group, kind), ("", "ReplicationController") | ("batch", "Job"))
}

/// Finalizers that hold an object while something uses it, put on every new one by an admission step.
pub fn finalizers_on_create(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "PersistentVolume") => &["kubernetes.io/pv-protection"],
        ("", "PersistentVolumeClaim") => &["kubernetes.io/pvc-protection"],
        _ => &[],
    }
}

/// Dotted paths that a request to the object (`subresource` empty) or to a subresource never owns.
pub fn reset_fields(group: &str, kind: &str, subresource: &str) -> &'static [&'static str] {
    match (group, kind, subresource) {
        ("certificates.k8s.io", "CertificateSigningRequest", "") => &["spec", "status"],
        ("certificates.k8s.io", "CertificateSigningRequest", "status") => &["spec", "status.conditions"],
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => &["spec", "status.certificate"],
        ("", "Pod", "status") => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
        ("apps", "Deployment", "status") => &["spec", "metadata.labels"],
        ("", "Namespace", "finalize") => &["status"],
        (_, _, "") if has_status(group, kind) => &["status"],
        (_, _, "status") if keeps_metadata_on_status(group, kind) => &["metadata", "spec"],
        (_, _, "status") => &["spec"],
        _ => &[],
    }
}

/// Kinds whose status subresource writes no metadata at all.
fn keeps_metadata_on_status(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("storage.k8s.io", "VolumeAttachment")
            | ("networking.k8s.io", "ServiceCIDR")
            | (
                "flowcontrol.apiserver.k8s.io"
                    | "admissionregistration.k8s.io"
                    | "apiextensions.k8s.io"
                    | "apiregistration.k8s.io",
                _
            )
    )
}

/// Prepares a new object: its first status, its first generation, what follows from its name and uid.
pub fn prepare_create(group: &str, kind: &str, object: &mut Value) {
    match generation(group, kind) {
        Generation::None | Generation::SpecFromZero => remove(object, "metadata", "generation"),
        _ => set(object, "metadata", "generation", 1),
    }
    // A Node says its status from the start: the kubelet registers itself with it.
    if has_status(group, kind) && (group, kind) != ("", "Node") {
        reset_status(group, kind, object);
    }
    drop_disabled(object);
    match (group, kind) {
        ("", "Namespace") => own_namespace(object),
        ("", "Pod") => pod::prepare_create(object),
        ("", "PersistentVolume") => {
            let now = get(object, "metadata.creationTimestamp").clone();
            if !now.is_null() {
                set(object, "status", "lastPhaseTransitionTime", now);
            }
        }
        ("", "PersistentVolumeClaim") => data_sources(object, None),
        ("", "Service") => service::prepare_create(object),
        ("", "ServiceAccount") => name_only_secrets(object),
        ("", "Node") => remove(object, "spec", "configSource"),
        ("batch", "Job") => generate_selector(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            for field in ["username", "uid", "groups", "extra"] {
                remove(object, "spec", field);
            }
        }
        ("apps", "DaemonSet") => template_generation(object, 1),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_version(object),
        _ => {}
    }
}

/// Prepares the object a PUT or patch would make of `old`: the status stays, the generation counts what changed.
pub fn prepare_update(group: &str, kind: &str, new: &mut Value, old: &Value) {
    drop_disabled(new);
    if has_status(group, kind) {
        keep(new, old, "status");
    }
    match (group, kind) {
        ("", "Namespace") => {
            let finalizers = get(old, "spec.finalizers").clone();
            set_or_remove(new, "spec", "finalizers", finalizers);
            own_label(new);
        }
        ("", "PersistentVolumeClaim") => data_sources(new, Some(old)),
        ("", "Service") => service::prepare_update(new, old),
        ("", "ServiceAccount") => name_only_secrets(new),
        ("", "Node") if !has(old, "spec.configSource") => remove(new, "spec", "configSource"),
        ("certificates.k8s.io", "CertificateSigningRequest") => keep(new, old, "spec"),
        ("apps", "DaemonSet") => {
            let changed = !same(get(new, "spec.template"), get(old, "spec.template"));
            let before = old_template_generation(old);
            template_generation(new, if changed { before + 1 } else { before });
        }
        _ => {}
    }
    count_generation(group, kind, new, old);
}

/// Prepares a write through the status subresource: all but the status (and most metadata) stays. `now` is the time of
/// the request, as in `metadata.creationTimestamp`.
pub fn prepare_status_update(group: &str, kind: &str, new: &mut Value, old: &Value, now: &str) {
    let fields: Vec<String> = [&*new, old]
        .iter()
        .filter_map(|object| object.as_object())
        .flat_map(|map| map.keys().cloned())
        .filter(|field| field != "metadata" && field != "status")
        .collect();
    for field in fields {
        keep(new, old, &field);
    }
    if keeps_metadata_on_status(group, kind) {
        let managed = get(new, "metadata.managedFields").clone();
        let version = get(new, "metadata.resourceVersion").clone();
        keep(new, old, "metadata");
        set_or_remove(new, "metadata", "managedFields", managed);
        set_or_remove(new, "metadata", "resourceVersion", version);
    }
    set_or_remove(new, "metadata", "generation", get(old, "metadata.generation").clone());
    match (group, kind) {
        ("", "Pod") => pod::prepare_status_update(new, old),
        ("", "PersistentVolume") => phase_transition(new, old, now),
        ("apps", "Deployment") => {
            set_or_remove(new, "metadata", "labels", get(old, "metadata.labels").clone());
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            kept_decisions(new, old);
            condition_times(new, old, now);
        }
        _ => {}
    }
}

/// Prepares a write through another subresource that takes the whole object: `finalize` of Namespaces, `approval` of
/// CertificateSigningRequests, `ephemeralcontainers` and `resize` of Pods. Others are left as they are.
pub fn prepare_subresource_update(group: &str, kind: &str, subresource: &str, new: &mut Value, old: &Value, now: &str) {
    match (group, kind, subresource) {
        (_, _, "status") => prepare_status_update(group, kind, new, old, now),
        ("", "Namespace", "finalize") => keep(new, old, "status"),
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            condition_times(new, old, now);
            let conditions = get(new, "status.conditions").clone();
            keep(new, old, "spec");
            keep(new, old, "status");
            set_or_remove(new, "status", "conditions", conditions);
        }
        ("", "Pod", "ephemeralcontainers") => {
            let containers = get(new, "spec.ephemeralContainers").clone();
            keep(new, old, "spec");
            keep(new, old, "status");
            set_or_remove(new, "spec", "ephemeralContainers", containers);
            count_generation(group, kind, new, old);
        }
        ("", "Pod", "resize") => {
            pod::keep_all_but_resources(new, old);
            count_generation(group, kind, new, old);
        }
        _ => {}
    }
}

/// The specs of Pods, wherever they are.
fn drop_disabled(object: &mut Value) {
    for path in ["spec", "template.spec", "spec.template.spec", "spec.jobTemplate.spec.template.spec"] {
        if let Some(spec) = crate::value::get_mut(object, path) {
            pod::drop_disabled(spec);
        }
    }
}

fn set_or_remove(object: &mut Value, path: &str, key: &str, value: Value) {
    if value.is_null() { remove(object, path, key) } else { set(object, path, key, value) }
}

fn count_generation(group: &str, kind: &str, new: &mut Value, old: &Value) {
    let changed = match generation(group, kind) {
        Generation::None | Generation::Constant => false,
        Generation::Fields(fields) => fields.iter().any(|field| !same(get(new, field), get(old, field))),
        Generation::SpecFromZero => !same(get(new, "spec"), get(old, "spec")),
        Generation::SpecAndAnnotations => ["spec", "metadata.annotations"].iter().any(|f| {
            let (new, old) = (get(new, f), get(old, f));
            !same(new, old) && !(is_nothing(new) && is_nothing(old))
        }),
        Generation::Content => {
            let (mut a, mut b) = (new.clone(), old.clone());
            let labels =
                same(&json!({"labels": get(&a, "metadata.labels")}), &json!({"labels": get(&b, "metadata.labels")}));
            for object in [&mut a, &mut b] {
                for field in ["metadata", "apiVersion", "kind"] {
                    remove(object, "", field);
                }
            }
            !labels || !same(&a, &b)
        }
    };
    let before = int(old, "metadata.generation").unwrap_or(0);
    let now = if changed { before + 1 } else { before };
    set_or_remove(new, "metadata", "generation", if now == 0 { Value::Null } else { now.into() });
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn reset_status(group: &str, kind: &str, object: &mut Value) {
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

fn own_label(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    set(namespace, "metadata.labels", "kubernetes.io/metadata.name", name);
}

/// A namespace goes only when its content has gone, which the `kubernetes` finalizer stands for.
fn own_namespace(namespace: &mut Value) {
    own_label(namespace);
    if let Some(spec) = object_mut(namespace, "spec") {
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if finalizers.is_null() {
            *finalizers = json!([]);
        }
        if let Some(list) = finalizers.as_array_mut() {
            if !list.iter().any(|finalizer| finalizer == "kubernetes") {
                list.push("kubernetes".into());
            }
        }
    }
}

/// `dataSource` and `dataSourceRef` say the same. A `dataSource` that is neither a claim nor a snapshot is dropped, as it
/// always was; in `dataSourceRef` it is kept.
fn data_sources(claim: &mut Value, old: Option<&Value>) {
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

fn name_only_secrets(account: &mut Value) {
    for secret in list_mut(account, "secrets") {
        *secret = json!({"name": text(secret, "name")});
    }
}

/// A Job finds its Pods by its own uid, unless its author chose the selector.
fn generate_selector(job: &mut Value) {
    if crate::value::flag(job, "spec.manualSelector") {
        return;
    }
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
    // A Job without labels of its own wears its Pods' labels, the generated ones too.
    if crate::value::size(job, "metadata.labels") == 0 {
        let labels = get(job, "spec.template.metadata.labels").clone();
        set(job, "metadata", "labels", labels);
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The old field of DaemonSets lives on as an annotation.
fn template_generation(set_: &mut Value, generation: i64) {
    set(set_, "metadata.annotations", TEMPLATE_GENERATION, generation.to_string());
}

fn old_template_generation(old: &Value) -> i64 {
    crate::value::annotation(old, TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn stored_version(definition: &mut Value) {
    let stored = list(definition, "spec.versions")
        .iter()
        .find(|version| crate::value::flag(version, "storage"))
        .map(|version| text(version, "name").to_owned());
    if let Some(stored) = stored {
        set(definition, "status", "storedVersions", json!([stored]));
    }
}

/// The time of a PersistentVolume's last change of phase is the server's to say, unless the client says a newer one.
fn phase_transition(new: &mut Value, old: &Value, now: &str) {
    let before = get(old, "status.lastPhaseTransitionTime").clone();
    let said = get(new, "status.lastPhaseTransitionTime").clone();
    let changed = text(old, "status.phase") != text(new, "status.phase");
    if !changed && said.is_null() {
        set_or_remove(new, "status", "lastPhaseTransitionTime", before);
    } else if changed && (said.is_null() || said == before) {
        set(new, "status", "lastPhaseTransitionTime", now);
    }
}

/// Approvals and denials are not the status subresource's to write.
fn kept_decisions(new: &mut Value, old: &Value) {
    let decided = |condition: &&Value| matches!(text(condition, "type"), "Approved" | "Denied");
    let mut conditions: Vec<Value> = list(old, "status.conditions").iter().filter(decided).cloned().collect();
    conditions.extend(list(new, "status.conditions").iter().filter(|c| !decided(c)).cloned());
    if conditions.is_empty() {
        remove(new, "status", "conditions")
    } else {
        set(new, "status", "conditions", conditions)
    }
}

fn condition_times(new: &mut Value, old: &Value, now: &str) {
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

#[cfg(test)]
mod tests;
