//! Defaults of the smaller groups: networking, storage, rbac, flow control, admission, API extension.

use serde_json::{Value, json};

use super::core::int_at;
use crate::value::{fill, fill_int, fill_text, get_mut, list, list_mut, object_mut, text};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn network_policy(policy: &mut Value) {
    for direction in ["spec.ingress", "spec.egress"] {
        for rule in list_mut(policy, direction) {
            for port in list_mut(rule, "ports") {
                if let Some(port) = port.as_object_mut() {
                    fill(port, "protocol", "TCP");
                }
            }
        }
    }
    let egress = !list(policy, "spec.egress").is_empty();
    if list(policy, "spec.policyTypes").is_empty() {
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        crate::value::set(policy, "spec", "policyTypes", types);
    }
}

pub(super) fn ingress_class(class: &mut Value) {
    if let Some(parameters) = get_mut(class, "spec.parameters").and_then(Value::as_object_mut) {
        fill(parameters, "scope", "Cluster");
    }
}

pub(super) fn endpoint_slice(slice: &mut Value) {
    for endpoint in list_mut(slice, "endpoints") {
        object_mut(endpoint, "conditions");
    }
    for port in list_mut(slice, "ports") {
        if let Some(port) = port.as_object_mut() {
            fill(port, "name", "");
            fill(port, "protocol", "TCP");
        }
    }
}

pub(super) fn storage_class(class: &mut Value) {
    if let Some(class) = class.as_object_mut() {
        fill(class, "reclaimPolicy", "Delete");
        fill(class, "volumeBindingMode", "Immediate");
    }
}

pub(super) fn csi_driver(driver: &mut Value) {
    let Some(spec) = object_mut(driver, "spec") else { return };
    fill(spec, "attachRequired", true);
    fill(spec, "podInfoOnMount", false);
    fill(spec, "storageCapacity", false);
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
    fill(spec, "requiresRepublish", false);
    fill(spec, "seLinuxMount", false);
}

pub(super) fn volume_attachment(attachment: &mut Value) {
    if let Some(spec) = get_mut(attachment, "spec.source.inlineVolumeSpec").and_then(Value::as_object_mut) {
        super::pod::source_defaults(spec);
    }
}

pub(super) fn priority_class(class: &mut Value) {
    if let Some(class) = class.as_object_mut() {
        fill(class, "preemptionPolicy", "PreemptLowerPriority");
    }
}

pub(super) fn role_binding(binding: &mut Value) {
    if let Some(reference) = object_mut(binding, "roleRef") {
        fill_text(reference, "apiGroup", RBAC);
    }
    for subject in list_mut(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group")
            && let Some(subject) = subject.as_object_mut()
        {
            fill_text(subject, "apiGroup", RBAC);
        }
    }
}

pub(super) fn flow_schema(schema: &mut Value) {
    int_at(schema, "spec", "matchingPrecedence", 1000);
}

pub(super) fn priority_level(level: &mut Value) {
    if let Some(exempt) = get_mut(level, "spec.exempt").and_then(Value::as_object_mut) {
        fill(exempt, "nominalConcurrencyShares", 0);
        fill(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = get_mut(level, "spec.limited").and_then(Value::as_object_mut) {
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
    }
    if let Some(queuing) = get_mut(level, "spec.limited.limitResponse.queuing").and_then(Value::as_object_mut) {
        fill_int(queuing, "handSize", 8);
        fill_int(queuing, "queues", 64);
        fill_int(queuing, "queueLengthLimit", 50);
    }
}

pub(super) fn webhooks(configuration: &mut Value, mutating: bool) {
    for webhook in list_mut(configuration, "webhooks") {
        rule_scopes(webhook, "rules");
        service_port(webhook, "clientConfig.service");
        let Some(webhook) = webhook.as_object_mut() else { continue };
        fill(webhook, "failurePolicy", "Fail");
        fill(webhook, "matchPolicy", "Equivalent");
        fill(webhook, "namespaceSelector", json!({}));
        fill(webhook, "objectSelector", json!({}));
        fill(webhook, "timeoutSeconds", 10);
        if mutating {
            fill(webhook, "reinvocationPolicy", "Never");
        }
    }
}

fn rule_scopes(holder: &mut Value, path: &str) {
    for rule in list_mut(holder, path) {
        if let Some(rule) = rule.as_object_mut() {
            fill(rule, "scope", "*");
        }
    }
}

fn service_port(holder: &mut Value, path: &str) {
    if let Some(service) = get_mut(holder, path).and_then(Value::as_object_mut) {
        fill(service, "port", 443);
    }
}

fn match_resources(holder: &mut Value, path: &str) {
    let Some(resources) = get_mut(holder, path) else { return };
    for rules in ["resourceRules", "excludeResourceRules"] {
        rule_scopes(resources, rules);
    }
    if let Some(resources) = resources.as_object_mut() {
        fill(resources, "matchPolicy", "Equivalent");
        fill(resources, "namespaceSelector", json!({}));
        fill(resources, "objectSelector", json!({}));
    }
}

pub(super) fn admission_policy(policy: &mut Value) {
    match_resources(policy, "spec.matchConstraints");
    if let Some(spec) = object_mut(policy, "spec") {
        fill(spec, "failurePolicy", "Fail");
    }
}

pub(super) fn admission_policy_binding(binding: &mut Value) {
    match_resources(binding, "spec.matchResources");
}

/// Names that follow from the kind, no conversion, and what is stored if nothing says so.
pub(super) fn custom_resource_definition(definition: &mut Value) {
    let kind = text(definition, "spec.names.kind").to_owned();
    if let Some(names) = object_mut(definition, "spec.names") {
        fill_text(names, "singular", &kind.to_lowercase());
        if !kind.is_empty() {
            fill_text(names, "listKind", &format!("{kind}List"));
        }
    }
    if let Some(spec) = object_mut(definition, "spec") {
        fill(spec, "conversion", json!({"strategy": "None"}));
    }
    service_port(definition, "spec.conversion.webhook.clientConfig.service");
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.into_iter().find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let said = definition["status"]["storedVersions"].as_array().is_some_and(|stored| !stored.is_empty());
    if let Some(stored) =
        stored.filter(|_| !said && (definition["status"].is_null() || definition["status"].is_object()))
    {
        definition["status"]["storedVersions"] = json!([stored]);
    }
}

pub(super) fn api_service(service: &mut Value) {
    service_port(service, "spec.service");
}

pub(super) fn token_request(request: &mut Value) {
    if let Some(spec) = object_mut(request, "spec") {
        fill(spec, "expirationSeconds", 3600);
    }
}

/// One device, unless something else is said.
pub(super) fn device_requests(object: &mut Value, path: &str) {
    for request in list_mut(object, path) {
        if let Some(exactly) = get_mut(request, "exactly").and_then(Value::as_object_mut) {
            device_count(exactly);
        }
        for sub in list_mut(request, "firstAvailable").iter_mut().filter_map(Value::as_object_mut) {
            device_count(sub);
        }
    }
}

fn device_count(request: &mut serde_json::Map<String, Value>) {
    fill_text(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").is_some_and(|mode| mode == "ExactCount") {
        fill_int(request, "count", 1);
    }
}

pub(super) fn device_taints(slice: &mut Value, now: &str) {
    for device in list_mut(slice, "spec.devices") {
        for taint in list_mut(device, "taints").iter_mut().filter_map(Value::as_object_mut) {
            fill(taint, "timeAdded", now);
        }
    }
}
