//! The smaller groups: policy, scheduling, node, certificates, autoscaling, flow control.

use std::collections::HashSet;

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
        // Kubernetes checks it as the limits of a container, and says so
        let path = object.at("overhead.limits").key(name);
        container_resource_name(errors, &path, name);
        resource_amount(errors, &path, name, amount.value);
    }
    let scheduling = object.field("scheduling");
    labels(errors, &scheduling.field("nodeSelector"));
    super::pod::tolerations(errors, &scheduling);
    let mut seen = HashSet::new();
    for toleration in scheduling.items("tolerations") {
        let key = ["key", "operator", "value", "effect"].map(|field| toleration.text(field));
        if seen.contains(&key) {
            errors.duplicate(&toleration.path, toleration.value.clone());
        }
        seen.insert(key);
    }
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
    if spec.list("usages").is_empty() {
        errors.required(&spec.at("usages"), "");
    }
    let mut seen = HashSet::new();
    for usage in spec.items("usages") {
        let name = usage.value.as_str().unwrap_or("");
        if !USAGES.contains(&name) {
            errors.not_supported(&usage.path, name, USAGES);
        }
        if seen.contains(&name) {
            errors.duplicate(&usage.path, name);
        }
        seen.insert(name);
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

/// A decision stays: requests are approved or denied, once. Which subresource is written says what may change.
pub(super) fn certificate_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>, subresource: &str) {
    let path = new.at("status.conditions");
    let (mut seen, mut decided) = (Vec::new(), Vec::new());
    for condition in new.items("status.conditions") {
        let kind = condition.text("type");
        errors.required_text(&condition, "type");
        let only_true = matches!(kind, "Approved" | "Denied" | "Failed");
        errors.required_one_of(&condition, "status", if only_true { &["True"] } else { &["False", "True", "Unknown"] });
        if matches!(kind, "Approved" | "Denied") {
            if decided.iter().any(|other| *other != kind) {
                errors.invalid(&path, kind, "Approved and Denied conditions are mutually exclusive");
            }
            decided.push(kind);
        }
        if seen.contains(&kind) {
            errors.duplicate(&condition.at("type"), kind);
        }
        seen.push(kind);
    }
    let of = |object: &At<'_>, kind: &str| -> Vec<serde_json::Value> {
        let all = object.list("status.conditions").iter();
        all.filter(|condition| crate::value::text(condition, "type") == kind).cloned().collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of(new, kind).len() < of(old, kind).len() {
            errors.forbidden(&path, &format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in ["Approved", "Denied"].into_iter().filter(|_| subresource != "approval") {
        let (new, old) = (of(new, kind), of(old, kind));
        if new.len() > old.len() {
            errors.forbidden(&path, &format!("updates may not add a condition of type {kind:?}"));
        } else if new.len() == old.len() && new != old {
            errors.forbidden(&path, &format!("updates may not modify a condition of type {kind:?}"));
        }
    }
    let (now, before) = (new.text("status.certificate"), old.text("status.certificate"));
    if now != before {
        let path = new.at("status.certificate");
        if subresource != "status" {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
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

/// An API that another server answers for.
pub(super) fn api_service(errors: &mut Errors, object: &At<'_>) {
    let (name, spec) = (object.text("metadata.name"), object.field("spec"));
    let (group, version) = (spec.text("group"), spec.text("version"));
    let wanted = format!("{version}.{group}");
    if !name.is_empty() && names::path_segment_name(name).is_empty() && name != wanted {
        errors.invalid(
            &object.at("metadata.name"),
            name,
            format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"),
        );
    }
    if group.is_empty() && version != "v1" {
        errors.required(&spec.at("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        subdomain(errors, &spec.at("group"), group);
    }
    errors.each(&spec.at("version"), version, names::dns1035_label(version));
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        if !(1..=most).contains(&spec.int(field)) {
            errors.invalid(&spec.at(field), spec.int(field), format!("must be positive and less than {most}"));
        }
    }
    let bundle = super::config::decode_base64(spec.text("caBundle")).unwrap_or_default();
    let insecure = spec.flag("insecureSkipTLSVerify");
    let service = spec.field("service");
    if !service.exists() {
        if !bundle.is_empty() {
            let size = format!("{} bytes", bundle.len());
            errors.invalid(&spec.at("caBundle"), size, "local APIServices may not have a caBundle");
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(&spec.at("insecureSkipTLSVerify"), insecure, detail);
        }
        return;
    }
    errors.required_text(&service, "namespace");
    errors.required_text(&service, "name");
    let wrong = names::port_number(service.int("port"));
    if !wrong.is_empty() {
        errors.invalid(&service.at("port"), service.int("port"), format!("port is not valid: {}", wrong.join(", ")));
    }
    if insecure && !bundle.is_empty() {
        errors.invalid(&spec.at("insecureSkipTLSVerify"), insecure, "may not be true if caBundle is present");
    }
}

pub(super) fn api_service_status(errors: &mut Errors, object: &At<'_>) {
    for condition in object.items("status.conditions") {
        if !matches!(condition.text("status"), "True" | "False" | "Unknown") {
            errors.not_supported(&condition.at("status"), condition.text("status"), &["True", "False", "Unknown"]);
        }
    }
}
