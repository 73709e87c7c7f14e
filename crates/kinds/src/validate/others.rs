//! The smaller groups: policy, scheduling, node, certificates, autoscaling, flow control.

use conductor_machinery::field::Errors;
use conductor_machinery::names;

use super::at::{At, Report, same_field};
use super::common::{
    at_most_all, container_resource_name, int_or_percent, label, label_selector, labels, resource_amount, subdomain,
};

pub(super) fn pod_disruption_budget(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        errors.invalid(&spec.path, spec.value.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        int_or_percent(errors, &spec, field);
        at_most_all(errors, &spec, field);
    }
    label_selector(errors, &spec.field("selector"));
    errors.one_of(&spec, "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]);
}

pub(super) fn pod_disruption_budget_status_update(errors: &mut Errors, new: &At<'_>) {
    let status = new.field("status");
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.not_negative(&status, field);
    }
}

const SYSTEM_PRIORITIES: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

pub(super) fn priority_class(errors: &mut Errors, object: &At<'_>) {
    let (name, value) = (object.text("metadata.name"), object.int("value"));
    if name.starts_with("system-") {
        let reserved = "priority class names with 'system-' prefix are reserved for system use only. error: ";
        let wrong = match SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, expected)) if value != *expected => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            Some(_) if object.flag("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            errors.forbidden(&object.at("metadata.name"), &format!("{reserved}{wrong}"));
        }
    } else if value > 1_000_000_000 {
        errors.forbidden(&object.at("value"), "maximum allowed value of a user defined priority is 1000000000");
    }
    if object.has("preemptionPolicy") {
        errors.required_one_of(object, "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    }
}

pub(super) fn priority_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if new.int("value") != old.int("value") {
        errors.forbidden(&new.at("value"), "may not be changed in an update.");
    }
    errors.immutable(new, old, "preemptionPolicy");
}

pub(super) fn runtime_class(errors: &mut Errors, object: &At<'_>) {
    match object.text("handler") {
        "" => errors.required(&object.at("handler"), ""),
        handler => label(errors, &object.at("handler"), handler),
    }
    for (name, amount) in object.entries("overhead.podFixed") {
        container_resource_name(errors, &amount.path, name);
        resource_amount(errors, &amount.path, name, amount.value);
    }
    labels(errors, &object.field("scheduling.nodeSelector"));
}

pub(super) fn runtime_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    runtime_class(errors, new);
    errors.immutable(new, old, "handler");
}

/// What a certificate may be used for.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn certificate_signing_request(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    // Only the envelope is read here; whether the request itself is sound is the signer's to find out.
    let request = super::config::decode_base64(spec.text("request")).unwrap_or_default();
    if !request.trim_ascii_start().starts_with(b"-----BEGIN CERTIFICATE REQUEST-----") {
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid(&spec.at("request"), spec.text("request"), detail);
    }
    if spec.list("usages").is_empty() {
        errors.required(&spec.at("usages"), "");
    }
    let mut seen = Vec::new();
    for usage in spec.items("usages") {
        let name = usage.value.as_str().unwrap_or("");
        if !USAGES.contains(&name) {
            errors.not_supported(&usage.path, name, USAGES);
        }
        if seen.contains(&name) {
            errors.duplicate(&usage.path, name);
        }
        seen.push(name);
    }
    let signer = spec.text("signerName");
    let path = spec.at("signerName");
    if signer.is_empty() {
        errors.required(&path, "");
    } else if signer == "kubernetes.io/legacy-unknown" {
        errors.invalid(&path, signer, "the legacy signerName is not allowed via this API version");
    } else if signer.split('/').count() != 2 {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(&path, signer, detail);
    } else {
        errors.extend(names::domain_prefixed_path(&path, signer));
    }
    if spec.maybe_int("expirationSeconds").is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&spec.at("expirationSeconds"), spec.int("expirationSeconds"), detail);
    }
}

/// A decision stays: requests are approved or denied, once.
pub(super) fn certificate_conditions(errors: &mut Errors, new: &At<'_>) {
    let mut seen = Vec::new();
    for condition in new.items("status.conditions") {
        let kind = condition.text("type");
        errors.required_text(&condition, "type");
        if matches!(kind, "Approved" | "Denied" | "Failed") && condition.text("status") != "True" {
            errors.not_supported(&condition.at("status"), condition.text("status"), &["True"]);
        }
        if seen.contains(&kind) {
            errors.duplicate(&condition.at("type"), kind);
        }
        seen.push(kind);
    }
    if seen.contains(&"Approved") && seen.contains(&"Denied") {
        let conditions = new.get("status.conditions").clone();
        errors.invalid(
            &new.at("status.conditions"),
            conditions,
            "Approved and Denied conditions are mutually exclusive",
        );
    }
}

pub(super) fn horizontal_pod_autoscaler(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let lowest = spec.maybe_int("minReplicas").unwrap_or(1);
    if lowest < 1 {
        errors.invalid(&spec.at("minReplicas"), lowest, "must be greater than or equal to 1");
    }
    let outside = spec.list("metrics").iter().any(|m| matches!(crate::value::text(m, "type"), "Object" | "External"));
    if lowest == 0 && !outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&spec.at("metrics"), detail);
    }
    let highest = spec.int("maxReplicas");
    if highest == 0 {
        errors.required(&spec.at("maxReplicas"), "must be set and greater than 0");
    } else if highest < 0 {
        errors.invalid(&spec.at("maxReplicas"), highest, "must be greater than 0");
    }
    if highest < lowest {
        errors.invalid(&spec.at("maxReplicas"), highest, "must be greater than or equal to `minReplicas`");
    }
    for field in ["kind", "name"] {
        let target = spec.field("scaleTargetRef");
        match target.text(field) {
            "" => errors.required(&target.at(field), ""),
            text => errors.each(&target.at(field), text, names::path_segment_name(text)),
        }
    }
    let version = spec.text("scaleTargetRef.apiVersion");
    if version == "v1" && spec.text("scaleTargetRef.kind") != "ReplicationController" {
        errors.invalid(&spec.at("scaleTargetRef.apiVersion"), version, "apiVersion must specify API group");
    }
    for metric in spec.items("metrics") {
        errors.required_one_of(&metric, "type", &["ContainerResource", "External", "Object", "Pods", "Resource"]);
        let source = match metric.text("type") {
            "ContainerResource" => "containerResource",
            "External" => "external",
            "Object" => "object",
            "Pods" => "pods",
            "Resource" => "resource",
            _ => continue,
        };
        if !metric.has(source) {
            errors.required(&metric.at(source), "must populate information for the given metric source");
        }
    }
}

pub(super) fn flow_schema(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let precedence = spec.int("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&spec.at("matchingPrecedence"), precedence, "must be a positive value");
    }
    if precedence > 10_000 {
        errors.invalid(&spec.at("matchingPrecedence"), precedence, "must not be greater than 10000");
    }
    let level = spec.field("priorityLevelConfiguration");
    match level.text("name") {
        "" => errors.required(&level.at("name"), "must reference a priority level"),
        name => subdomain(errors, &level.at("name"), name),
    }
    if spec.has("distinguisherMethod") {
        let method = spec.field("distinguisherMethod");
        if !matches!(method.text("type"), "ByUser" | "ByNamespace") {
            errors.not_supported(&method.at("type"), method.value.clone(), &["ByNamespace", "ByUser"]);
        }
    }
    for rule in spec.items("rules") {
        if rule.list("subjects").is_empty() {
            errors.required(&rule.at("subjects"), "subjects must contain at least one value");
        }
        for subject in rule.items("subjects") {
            let kinds = ["Group", "ServiceAccount", "User"];
            if !kinds.contains(&subject.text("kind")) {
                errors.not_supported(&subject.at("kind"), subject.text("kind"), &kinds);
            }
        }
        if rule.list("resourceRules").is_empty() && rule.list("nonResourceRules").is_empty() {
            errors.required(&rule.path, "at least one of resourceRules and nonResourceRules has to be non-empty");
        }
    }
}

pub(super) fn priority_level(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    if (object.text("metadata.name") == "exempt") != (spec.text("type") == "Exempt") {
        errors.invalid(&spec.at("type"), spec.text("type"), "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match spec.text("type") {
        "Exempt" => {
            if spec.has("limited") {
                errors.forbidden(&spec.at("limited"), "must be nil if the type is not Limited");
            }
        }
        "Limited" => {
            if spec.has("exempt") {
                errors.forbidden(&spec.at("exempt"), "must be nil if the type is Limited");
            }
            if !spec.has("limited") {
                return errors.required(&spec.at("limited"), "must not be empty when type is Limited");
            }
            shares(errors, &spec.field("limited"));
            let response = spec.field("limited.limitResponse");
            match response.text("type") {
                "Reject" if response.has("queuing") => {
                    errors
                        .forbidden(&response.at("queuing"), "must be nil if limited.limitResponse.type is not Limited");
                }
                "Queue" if !response.has("queuing") => {
                    let detail = "must not be empty if limited.limitResponse.type is Limited";
                    errors.required(&response.at("queuing"), detail);
                }
                "Reject" | "Queue" => {}
                other => errors.not_supported(&response.at("type"), other, &["Queue", "Reject"]),
            }
        }
        other => errors.not_supported(&spec.at("type"), other, &["Exempt", "Limited"]),
    }
}

fn shares(errors: &mut Errors, limited: &At<'_>) {
    let share = limited.int("nominalConcurrencyShares");
    if share < 0 {
        errors.invalid(&limited.at("nominalConcurrencyShares"), share, "must be a non-negative integer");
    }
    let lendable = limited.int("lendablePercent");
    if !(0..=100).contains(&lendable) {
        errors.invalid(&limited.at("lendablePercent"), lendable, "must be between 0 and 100, inclusive");
    }
    let borrowing = limited.int("borrowingLimitPercent");
    if borrowing < 0 {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&limited.at("borrowingLimitPercent"), borrowing, detail);
    }
    let queuing = limited.field("limitResponse.queuing");
    if queuing.exists() && queuing.int("handSize") > queuing.int("queues") {
        let detail = format!("should not be greater than queues ({})", queuing.int("queues"));
        errors.invalid(&queuing.at("handSize"), queuing.int("handSize"), detail);
    }
}

/// A revision of a workload's history: its data never changes.
pub(super) fn controller_revision(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    errors.not_negative(object, "revision");
    match old {
        Some(old) if !same_field("data", object.get("data"), old.get("data")) => {
            errors.invalid(&object.at("data"), object.get("data").clone(), super::at::IMMUTABLE);
        }
        None if !object.has("data") => errors.required(&object.at("data"), "data is mandatory"),
        _ => {}
    }
}
