//! What Kubernetes refuses, kind by kind: everything but `metadata`, whose rules are the same for all kinds and live in
//! the machinery.
//!
//! Objects have been decoded and defaulted: known fields only, of the right JSON type.

mod access;
pub mod admission;
mod apps;
pub(crate) mod at;
mod autoscaling;
mod batch;
mod claim_status;
mod common;
mod config;
mod cron;
pub mod devices;
mod endpoints;
mod flow;
mod job_status;
mod network;
mod node;
mod others;
mod persistent;
mod pod;
mod quota;
mod rbac;
mod service;
mod slices;
mod sources;
mod storage;

use conductor_machinery::field::Errors;
use conductor_machinery::names::{self, NameRule};
use serde_json::Value;

use crate::strategy::POD_SPECS;
use at::{At, Report};

/// What an object of the kind may be called.
pub fn name_rule(group: &str, kind: &str) -> NameRule {
    match (group, kind) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => names::name_is_label,
        ("rbac.authorization.k8s.io", _) | ("apiregistration.k8s.io", "APIService") => names::name_is_path_segment,
        ("networking.k8s.io", "IPAddress") => network::ip_address_name,
        ("certificates.k8s.io", "CertificateSigningRequest") => any_name,
        ("", "ReplicationController") | ("resource.k8s.io", "DeviceClass") => long_name,
        _ => names::name_is_subdomain,
    }
}

/// A subdomain; two kinds count its bytes.
fn long_name(name: &str, prefix: bool) -> Vec<String> {
    let said = names::name_is_subdomain(name, prefix).into_iter();
    said.map(|text| text.replace("no more than 253 characters", "no more than 253 bytes")).collect()
}

/// Nobody cares what certificate requests are called.
fn any_name(_: &str, _: bool) -> Vec<String> {
    Vec::new()
}

/// What is wrong with an object's finalizers beyond what custom resources may have: most built-in kinds want them to be
/// qualified by a domain.
pub fn finalizers(group: &str, kind: &str, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let lenient = matches!(
        group,
        "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "coordination.k8s.io"
            | "node.k8s.io"
            | "policy"
    );
    if !lenient && (group, kind) != ("", "Event") {
        for finalizer in At::root(object).items("metadata.finalizers") {
            config::standard_finalizer(&mut errors, &finalizer.path, finalizer.value.as_str().unwrap_or(""));
        }
    }
    errors
}

/// What is wrong with a new object.
pub fn create(group: &str, kind: &str, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let e = &mut errors;
    let o = &At::root(object);
    match (group, kind) {
        ("", "Pod") => pod::pod_create(e, o),
        ("networking.k8s.io", "Ingress") => network::ingress_create(e, o),
        ("apps", "StatefulSet") => apps::stateful_set(e, o, None),
        ("batch", "CronJob") => batch::cron_job(e, o, None),
        ("batch", "Job") => batch::job(e, o),
        ("apps", "ControllerRevision") => others::controller_revision(e, o, None),
        ("", "Service") => service::service(e, o, None),
        ("", "Endpoints") => endpoints::endpoints(e, o, None),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::endpoint_slice(e, o, None),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(e, o, None),
        ("", "Binding") => pod::binding(e, o),
        ("certificates.k8s.io", "CertificateSigningRequest") => others::certificate_signing_request(e, o),
        ("authorization.k8s.io", "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview") => {
            access::access_review(e, o, kind)
        }
        _ => always(e, group, kind, o),
    }
    errors
}

/// What is wrong with an object at any time, for kinds that do not care what it was before.
fn always(e: &mut Errors, group: &str, kind: &str, o: &At<'_>) {
    match (group, kind) {
        ("", "Namespace") => config::namespace(e, o),
        ("", "ConfigMap") => config::config_map(e, o),
        ("", "Secret") => config::secret(e, o),
        ("", "PersistentVolume") => persistent::persistent_volume(e, o),
        ("", "PersistentVolumeClaim") => persistent::persistent_volume_claim(e, o),
        ("", "Node") => node::node(e, o),
        ("", "ResourceQuota") => quota::resource_quota(e, o),
        ("", "LimitRange") => quota::limit_range(e, o),
        ("", "PodTemplate") => pod::template(e, &o.field("template")),
        ("", "ReplicationController") => apps::replication_controller(e, o),
        ("" | "events.k8s.io", "Event") => node::event(e, o, group),
        ("coordination.k8s.io", "Lease") => node::lease(e, o),
        ("apps", "Deployment") => apps::deployment(e, o),
        ("apps", "ReplicaSet") => apps::replica_set(e, o),
        ("apps", "DaemonSet") => apps::daemon_set(e, o),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(e, o),
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment(e, o),
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver(e, o),
        ("storage.k8s.io", "CSINode") => storage::csi_node(e, o),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::csi_storage_capacity(e, o),
        ("storage.k8s.io", "VolumeAttributesClass") => storage::volume_attributes_class(e, o),
        ("networking.k8s.io", "Ingress") => network::ingress(e, o),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(e, o),
        ("rbac.authorization.k8s.io", "Role") => rbac::role(e, o, true),
        ("rbac.authorization.k8s.io", "ClusterRole") => rbac::role(e, o, false),
        ("rbac.authorization.k8s.io", "RoleBinding") => rbac::binding(e, o, true),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => rbac::binding(e, o, false),
        ("policy", "PodDisruptionBudget") => others::pod_disruption_budget(e, o),
        ("scheduling.k8s.io", "PriorityClass") => others::priority_class(e, o),
        ("node.k8s.io", "RuntimeClass") => others::runtime_class(e, o),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::horizontal_pod_autoscaler(e, o, None),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow::flow_schema(e, o),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => flow::priority_level(e, o),
        ("networking.k8s.io", "IPAddress") => network::ip_address(e, o),
        ("resource.k8s.io", "ResourceClaim") => devices::resource_claim(e, o),
        ("resource.k8s.io", "ResourceClaimTemplate") => devices::resource_claim_template(e, o),
        ("resource.k8s.io", "DeviceClass") => devices::device_class(e, o),
        ("resource.k8s.io", "ResourceSlice") => slices::resource_slice(e, o, None),
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr(e, o),
        ("apiregistration.k8s.io", "APIService") => others::api_service(e, o),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            admission::webhooks(e, o);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => admission::admission_policy(e, o, false),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => admission::admission_policy(e, o, true),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            admission::admission_policy_binding(e, o, false);
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            admission::admission_policy_binding(e, o, true);
        }
        _ => {}
    }
}

/// What is wrong with making `new` of `old` through the main resource.
pub fn update(group: &str, kind: &str, new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let e = &mut errors;
    let (n, o) = (&At::root(new), &At::root(old));
    match (group, kind) {
        ("", "Pod") => pod::pod_update(e, n, o),
        ("", "ConfigMap") => {
            config::immutable_update(e, n, o, &["data", "binaryData"]);
            config::config_map(e, n);
        }
        ("", "Secret") => {
            e.immutable(n, o, "type");
            config::immutable_update(e, n, o, &["data"]);
            config::secret(e, n);
        }
        ("", "Service") => service::service_update(e, n, o),
        ("", "Endpoints") => endpoints::endpoints(e, n, Some(o)),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::endpoint_slice(e, n, Some(o)),
        ("", "PersistentVolume") => persistent::persistent_volume_update(e, n, o),
        ("", "PersistentVolumeClaim") => persistent::claim_update(e, n, o),
        ("", "Node") => {
            node::node(e, n);
            node::node_update(e, n, o);
        }
        ("", "ResourceQuota") => quota::resource_quota_update(e, n, o),
        ("" | "events.k8s.io", "Event") => node::event_update(e, n, o, group),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            always(e, group, kind, n);
            e.immutable(n, o, "spec.selector");
        }
        ("apps", "StatefulSet") => apps::stateful_set(e, n, Some(o)),
        ("apps", "ControllerRevision") => others::controller_revision(e, n, Some(o)),
        ("batch", "Job") => batch::job_update(e, n, o),
        ("batch", "CronJob") => batch::cron_job(e, n, Some(o)),
        ("storage.k8s.io", "StorageClass") => {
            storage::storage_class(e, n);
            storage::storage_class_update(e, n, o);
        }
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment_update(e, n, o),
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver_update(e, n, o),
        ("storage.k8s.io", "CSINode") => storage::csi_node_update(e, n, o),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::csi_storage_capacity_update(e, n, o),
        ("storage.k8s.io", "VolumeAttributesClass") => storage::volume_attributes_class_update(e, n, o),
        ("networking.k8s.io", "IngressClass") => network::ingress_class_update(e, n, o),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(e, n, Some(o)),
        ("networking.k8s.io", "IPAddress") => {
            network::ip_address(e, n);
            e.immutable(n, o, "spec.parentRef");
        }
        ("resource.k8s.io", "ResourceClaim") => devices::same_spec(e, n, o),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            devices::resource_claim_template(e, n);
            devices::same_spec(e, n, o);
        }
        ("resource.k8s.io", "ResourceSlice") => slices::resource_slice(e, n, Some(o)),
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr_update(e, n, o),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::horizontal_pod_autoscaler(e, n, Some(o)),
        ("rbac.authorization.k8s.io", "RoleBinding") => rbac::binding_update(e, n, o, true),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => rbac::binding_update(e, n, o, false),
        ("scheduling.k8s.io", "PriorityClass") => others::priority_class_update(e, n, o),
        ("node.k8s.io", "RuntimeClass") => others::runtime_class_update(e, n, o),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            others::certificate_signing_request(e, n);
            others::certificate_update(e, n, o, "");
        }
        _ => always(e, group, kind, n),
    }
    any_change_policy(e, n, o);
    errors
}

/// Where the spec of a Pod said how labels of files change it may say it in any way: it could, once.
fn any_change_policy(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    for path in POD_SPECS {
        let context = new.field(path).field("securityContext");
        if old.field(path).has("securityContext.seLinuxChangePolicy") {
            let at = context.at("seLinuxChangePolicy");
            errors.retain(|error| error.path != at);
            errors.one_of(&context, "seLinuxChangePolicy", &["MountOption", "Recursive"]);
        }
    }
}

/// What is wrong with making `new` of `old` through the status subresource.
pub fn status_update(group: &str, kind: &str, new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let e = &mut errors;
    let (n, o) = (&At::root(new), &At::root(old));
    let replicas = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    match (group, kind) {
        ("", "Namespace") => config::namespace_status_update(e, n),
        ("", "Pod") => pod::pod_status_update(e, n, o),
        ("", "Node") => node::node_update(e, n, o),
        ("", "Service") => service::service_status_update(e, n, o),
        ("", "PersistentVolume") => persistent::version_required(e, n),
        ("", "PersistentVolumeClaim") => persistent::claim_status_update(e, n),
        ("", "ResourceQuota") => quota::resource_quota_status_update(e, n),
        ("networking.k8s.io", "Ingress") => service::load_balancer_status(e, n, o, None),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => {
            apps::counts(e, n, &replicas, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]);
            e.not_negative(&n.field("status"), "terminatingReplicas");
        }
        ("apps", "Deployment") => {
            let fields = [
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ];
            apps::counts(e, n, &fields, &["updatedReplicas", "readyReplicas", "availableReplicas"]);
            apps::collisions(e, n, o);
        }
        ("apps", "StatefulSet") => {
            let fields = [
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ];
            let bounded = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
            apps::counts(e, n, &fields, &bounded);
            apps::collisions(e, n, o);
        }
        ("apps", "DaemonSet") => {
            let fields = [
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ];
            apps::counts(e, n, &fields, &[]);
            apps::collisions(e, n, o);
        }
        ("batch", "Job") => job_status::job_status_update(e, n, o),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::status_update(e, n),
        ("flowcontrol.apiserver.k8s.io", _) => flow::conditions(e, n),
        ("resource.k8s.io", "ResourceClaim") => claim_status::claim_status(e, n, o),
        ("apiregistration.k8s.io", "APIService") => others::api_service_status(e, n),
        ("policy", "PodDisruptionBudget") => others::pod_disruption_budget_status_update(e, n),
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment_update(e, n, o),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            others::certificate_signing_request(e, n);
            others::certificate_update(e, n, o, "status");
        }
        _ => {}
    }
    errors
}

/// What is wrong with making `new` of `old` through any subresource that takes the whole object.
pub fn subresource_update(group: &str, kind: &str, subresource: &str, new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let (n, o) = (&At::root(new), &At::root(old));
    match (group, kind, subresource) {
        (_, _, "status") => return status_update(group, kind, new, old),
        ("", "Namespace", "finalize") => config::namespace_finalize_update(&mut errors, n),
        ("", "Pod", "ephemeralcontainers") => {
            pod::ephemeral_containers_update(&mut errors, n, o);
            any_change_policy(&mut errors, n, o);
        }
        ("", "Pod", "resize") => {
            pod::resize_update(&mut errors, n, o);
            any_change_policy(&mut errors, n, o);
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            others::certificate_signing_request(&mut errors, n);
            others::certificate_update(&mut errors, n, o, "approval");
        }
        _ => {}
    }
    errors
}

/// What is wrong with lists and maps that were sent empty, by their JSON pointers: for some kinds that is not the same as none.
pub fn empty(group: &str, kind: &str, object: &Value, places: &[&str]) -> Errors {
    let mut errors = Errors::new();
    match (group, kind) {
        ("resource.k8s.io", "ResourceClaimTemplate") => devices::empty(&mut errors, &At::root(object), places),
        ("resource.k8s.io", "ResourceSlice") => slices::empty(&mut errors, &At::root(object), places),
        _ => {
            for path in POD_SPECS {
                let start = format!("/{}/", path.replace('.', "/"));
                let within = places.iter().filter_map(|place| place.strip_prefix(&start));
                pod::empty(&mut errors, &At::root(object).field(path), within);
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests;
