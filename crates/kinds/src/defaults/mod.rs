//! What Kubernetes fills in when an object is read from a client: the defaults its code sets, kind by kind.
//!
//! Defaults the schema table already carries (`protocol: TCP`, `resources: {}`) are filled by the decoder; setting
//! them here again does no harm, because a default never replaces what is there.

mod apps;
mod batch;
mod core;
mod pod;
mod policy;

use serde_json::Value;

/// Fills in all defaults of a kind. Doing it twice is the same as doing it once.
pub fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template_at(object, "template"),
        ("", "ReplicationController") => core::replication_controller(object),
        ("", "Service") => core::service(object),
        ("", "Secret") => core::secret(object),
        ("", "PersistentVolume") => core::persistent_volume(object),
        ("", "PersistentVolumeClaim") => core::persistent_volume_claim(object),
        ("", "Endpoints") => core::endpoints(object),
        ("" | "events.k8s.io", "Event") => core::event(object, group),
        ("", "Namespace") => core::namespace(object),
        ("", "Node") => core::node(object),
        ("", "LimitRange") => core::limit_range(object),
        ("apps", "Deployment") => apps::deployment(object),
        ("apps", "ReplicaSet") => apps::replica_set(object),
        ("apps", "StatefulSet") => apps::stateful_set(object),
        ("apps", "DaemonSet") => apps::daemon_set(object),
        ("batch", "Job") => batch::job(object),
        ("batch", "CronJob") => batch::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => batch::horizontal_pod_autoscaler(object),
        ("networking.k8s.io", "NetworkPolicy") => policy::network_policy(object),
        ("networking.k8s.io", "IngressClass") => policy::ingress_class(object),
        ("discovery.k8s.io", "EndpointSlice") => policy::endpoint_slice(object),
        ("storage.k8s.io", "StorageClass") => policy::storage_class(object),
        ("storage.k8s.io", "CSIDriver") => policy::csi_driver(object),
        ("storage.k8s.io", "VolumeAttachment") => policy::volume_attachment(object),
        ("scheduling.k8s.io", "PriorityClass") => policy::priority_class(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => policy::role_binding(object),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => policy::flow_schema(object),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => policy::priority_level(object),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => policy::webhooks(object, false),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => policy::webhooks(object, true),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => {
            policy::admission_policy(object);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding") => {
            policy::admission_policy_binding(object);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => policy::custom_resource_definition(object),
        ("apiregistration.k8s.io", "APIService") => policy::api_service(object),
        ("resource.k8s.io", "ResourceClaim") => policy::device_requests(object, "spec.devices.requests"),
        ("resource.k8s.io", "ResourceClaimTemplate") => policy::device_requests(object, "spec.spec.devices.requests"),
        ("authentication.k8s.io", "TokenRequest") => policy::token_request(object),
        _ => {}
    }
}

/// Whether a list that was sent empty, given by its JSON pointer, is another thing than none: nothing is filled in for it.
pub fn tells_empty(group: &str, kind: &str, place: &str) -> bool {
    (group, kind) == ("autoscaling", "HorizontalPodAutoscaler")
        && matches!(place, "/spec/behavior/scaleUp/policies" | "/spec/behavior/scaleDown/policies")
}

/// Fills in since when things are there, for the kinds that say so: the time of the request, as in `metadata.creationTimestamp`.
pub fn date(group: &str, kind: &str, object: &mut Value, now: &str) {
    if (group, kind) == ("resource.k8s.io", "ResourceSlice") {
        policy::device_taints(object, now);
    }
}

#[cfg(test)]
mod tests;
