//! What the server itself decides about an object on its way in: which part a request may write, when the generation
//! counts up, what is filled from the request's circumstances.
//!
//! The caller has already filled `metadata.uid`, `name` and `creationTimestamp`; nothing here reads a clock.

mod pod;
mod service;
mod special;

pub(crate) use pod::{APP_ARMOR, SECCOMP, app_armor_profile, host_network};
pub(crate) use service::{is_external, wants_health_check};
pub use special::TEMPLATE_GENERATION;

use serde_json::{Value, json};

use crate::value::{get, has, int, keep, remove, same, set};
use special::{
    add_stored_version, condition_times, data_sources, drop_deallocated, drop_device_fields, drop_max_unavailable,
    drop_topology, generate_selector, kept_decisions, name_only_secrets, old_template_generation, own_label,
    own_namespace, phase_transition, reset_status, served_here, stored_version, template_generation,
};

/// Where the spec of a Pod may be.
pub(crate) const POD_SPECS: &[&str] =
    &["spec", "template.spec", "spec.template.spec", "spec.jobTemplate.spec.template.spec"];

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
        | ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy")
        | ("policy", "PodDisruptionBudget")
        | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
        | ("apiextensions.k8s.io", "CustomResourceDefinition")
        | ("resource.k8s.io", "DeviceClass" | "ResourceSlice")
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
            | ("resource.k8s.io", "ResourceClaim")
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
        ("storage.k8s.io", "VolumeAttributesClass") => &["kubernetes.io/vac-protection"],
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
            | ("resource.k8s.io", "ResourceClaim")
            | ("flowcontrol.apiserver.k8s.io" | "admissionregistration.k8s.io" | "apiregistration.k8s.io", _)
    )
}

/// Prepares a new object: its first status, its first generation, what follows from its name and uid.
pub fn prepare_create(group: &str, kind: &str, object: &mut Value) {
    match generation(group, kind) {
        // What a client says stays.
        Generation::None | Generation::SpecFromZero => {}
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
        ("", "Node") => {
            remove(object, "spec", "configSource");
            remove(object, "status", "config");
        }
        ("batch", "Job") => generate_selector(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            for field in ["username", "uid", "groups", "extra"] {
                remove(object, "spec", field);
            }
        }
        ("apps", "DaemonSet") => template_generation(object, 1),
        ("apps", "StatefulSet") => drop_max_unavailable(object, &Value::Null),
        ("coordination.k8s.io", "Lease") => {
            for field in ["strategy", "preferredHolder"] {
                remove(object, "spec", field);
            }
        }
        ("storage.k8s.io", "CSIDriver") => remove(object, "spec", "preventPodSchedulingIfMissing"),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(object, &Value::Null),
        ("resource.k8s.io", "ResourceSlice") => drop_device_fields(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_version(object),
        ("apiregistration.k8s.io", "APIService") if !has(object, "spec.service") => served_here(object),
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
        ("coordination.k8s.io", "Lease") => {
            for field in ["strategy", "preferredHolder"].iter().filter(|field| !has(get(old, "spec"), field)) {
                remove(new, "spec", field);
            }
        }
        ("storage.k8s.io", "CSIDriver") if !has(old, "spec.preventPodSchedulingIfMissing") => {
            remove(new, "spec", "preventPodSchedulingIfMissing");
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => add_stored_version(new),
        ("apps", "StatefulSet") => drop_max_unavailable(new, old),
        ("apps", "DaemonSet") => {
            let changed = !same(get(new, "spec.template"), get(old, "spec.template"));
            let before = old_template_generation(old);
            template_generation(new, if changed { before + 1 } else { before });
        }
        _ => {}
    }
    count_generation(group, kind, new, old);
    // what is dropped here counts as a change
    match (group, kind) {
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(new, old),
        ("resource.k8s.io", "ResourceSlice") => drop_device_fields(new),
        _ => {}
    }
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
        keep_metadata(new, old);
    }
    set_or_remove(new, "metadata", "generation", get(old, "metadata.generation").clone());
    match (group, kind) {
        ("", "Pod") => pod::prepare_status_update(new, old),
        ("", "Node") if !has(old, "status.config") => remove(new, "status", "config"),
        ("", "PersistentVolume") => phase_transition(new, old, now),
        ("apps", "Deployment") => {
            set_or_remove(new, "metadata", "labels", get(old, "metadata.labels").clone());
        }
        ("apps", "DaemonSet") => template_generation(new, old_template_generation(old)),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            kept_decisions(new, old);
            condition_times(new, old, now);
        }
        ("resource.k8s.io", "ResourceClaim") => drop_deallocated(new, old),
        _ => {}
    }
}

/// Puts the metadata back, but for what the server itself has written.
fn keep_metadata(new: &mut Value, old: &Value) {
    let managed = get(new, "metadata.managedFields").clone();
    let version = get(new, "metadata.resourceVersion").clone();
    keep(new, old, "metadata");
    set_or_remove(new, "metadata", "managedFields", managed);
    set_or_remove(new, "metadata", "resourceVersion", version);
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
            keep_metadata(new, old);
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
    for path in POD_SPECS {
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
            !(same(new, old) || is_nothing(new) && is_nothing(old))
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

/// Counts lists and maps that were sent `empty`, by their JSON pointers, as changes: what is stored has none. Kubernetes does so
/// for these kinds only.
pub fn count_empty<'a>(
    group: &str,
    kind: &str,
    empty: impl IntoIterator<Item = &'a str>,
    new: &mut Value,
    old: &Value,
) {
    let field = match (group, kind) {
        ("networking.k8s.io", "NetworkPolicy") => "spec",
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            "webhooks"
        }
        _ => return,
    };
    let before = int(old, "metadata.generation").unwrap_or(0);
    let counted = |place: &str| place.split('/').nth(1) == Some(field);
    if int(new, "metadata.generation") == Some(before) && empty.into_iter().any(counted) {
        set(new, "metadata", "generation", before + 1);
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

#[cfg(test)]
mod tests;
