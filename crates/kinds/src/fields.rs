//! Field selectors beyond `metadata.name` and `metadata.namespace`.

use serde_json::Value;

use crate::strategy::host_network;
use crate::value::{flag, int, list, text};

/// The fields a selector on this kind may name, besides name and namespace.
pub fn supported(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["spec.signerName"],
        ("resource.k8s.io", "ResourceSlice") => &["spec.driver", "spec.nodeName"],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        _ => &[],
    }
}

/// What the supported fields of an object are. An Event is read in the shape of the group that is named.
pub fn selectable(group: &str, kind: &str, object: &Value) -> Vec<(&'static str, String)> {
    supported(group, kind).iter().map(|field| (*field, field_value(group, kind, field, object))).collect()
}

fn field_value(group: &str, kind: &str, field: &str, object: &Value) -> String {
    match (group, kind, field) {
        ("", "Pod", "spec.hostNetwork") => host_network(object).to_string(),
        ("", "Pod", "status.podIP") => match list(object, "status.podIPs").first() {
            Some(first) => text(first, "ip").to_owned(),
            None => text(object, "status.podIP").to_owned(),
        },
        // Accepted, but nothing ever matches it: Kubernetes keeps no such field.
        ("", "Pod", "status.podIPs") => String::new(),
        ("", "Node", "spec.unschedulable") => flag(object, "spec.unschedulable").to_string(),
        (_, "ReplicationController", "status.replicas") => int(object, "status.replicas").unwrap_or(0).to_string(),
        ("batch", "Job", "status.successful") => int(object, "status.succeeded").unwrap_or(0).to_string(),
        ("", "Event", "source") => match text(object, "source.component") {
            "" => text(object, "reportingComponent").to_owned(),
            component => component.to_owned(),
        },
        _ => text(object, field).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(group: &str, kind: &str, object: Value, field: &str, expected: &str) {
        let fields = selectable(group, kind, &object);
        let found = fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value.as_str());
        assert_eq!(found, Some(expected), "{kind} {field}");
    }

    #[test]
    fn fields_have_the_text_selectors_compare_with() {
        check("", "Pod", json!({"spec": {"nodeName": "n"}}), "spec.nodeName", "n");
        check("", "Pod", json!({"spec": {}}), "spec.hostNetwork", "false");
        check("", "Pod", json!({"status": {"podIPs": [{"ip": "10.0.0.1"}]}}), "status.podIP", "10.0.0.1");
        check("", "Node", json!({"spec": {"unschedulable": true}}), "spec.unschedulable", "true");
        check("", "Node", json!({}), "spec.unschedulable", "false");
        check("", "Namespace", json!({"status": {"phase": "Active"}}), "status.phase", "Active");
        check("", "Secret", json!({"type": "Opaque"}), "type", "Opaque");
        check("", "ReplicationController", json!({"status": {"replicas": 3}}), "status.replicas", "3");
        check("batch", "Job", json!({}), "status.successful", "0");
        check("", "Event", json!({"reportingComponent": "kubelet"}), "source", "kubelet");
        check("events.k8s.io", "Event", json!({"regarding": {"kind": "Pod"}}), "regarding.kind", "Pod");
        check("", "Service", json!({"spec": {"clusterIP": "10.0.0.1"}}), "spec.clusterIP", "10.0.0.1");
        assert!(supported("", "ConfigMap").is_empty());
    }
}
