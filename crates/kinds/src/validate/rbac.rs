//! Roles and bindings.

use conductor_machinery::field::Errors;
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, Report, same_field};
use super::common::label_selector;

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn role(errors: &mut Errors, object: &At<'_>, namespaced: bool) {
    for rule in object.items("rules") {
        if rule.list("verbs").is_empty() {
            errors.required(&rule.at("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.field("nonResourceURLs");
        if !rule.list("nonResourceURLs").is_empty() {
            if namespaced {
                errors.invalid(&urls.path, urls.value.clone(), "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.list(field).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&urls.path, urls.value.clone(), detail);
            }
            continue;
        }
        if rule.list("apiGroups").is_empty() {
            errors.required(&rule.at("apiGroups"), "resource rules must supply at least one api group");
        }
        if rule.list("resources").is_empty() {
            errors.required(&rule.at("resources"), "resource rules must supply at least one resource");
        }
    }
    let aggregation = object.field("aggregationRule");
    if !namespaced && aggregation.exists() {
        if aggregation.list("clusterRoleSelectors").is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.required(&aggregation.at("clusterRoleSelectors"), detail);
        }
        for selector in aggregation.items("clusterRoleSelectors") {
            let mut wrong = Errors::new();
            label_selector(&mut wrong, &selector);
            if !wrong.is_empty() {
                errors.invalid(&selector.path, Value::Null, "invalid label selector.");
            }
            errors.append(&mut wrong);
        }
    }
}

pub(super) fn binding(errors: &mut Errors, object: &At<'_>, namespaced: bool) {
    let reference = object.field("roleRef");
    if reference.text("apiGroup") != RBAC {
        errors.not_supported(&reference.at("apiGroup"), reference.text("apiGroup"), &[RBAC]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&reference.text("kind")) {
        errors.not_supported(&reference.at("kind"), reference.text("kind"), kinds);
    }
    match reference.text("name") {
        "" => errors.required(&reference.at("name"), ""),
        name => errors.each(&reference.at("name"), name, names::path_segment_name(name)),
    }
    for subject in object.items("subjects") {
        self::subject(errors, &subject, namespaced);
    }
}

fn subject(errors: &mut Errors, subject: &At<'_>, namespaced: bool) {
    let name = subject.text("name");
    errors.required_text(subject, "name");
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.each(&subject.at("name"), name, names::dns1123_subdomain(name));
            }
            if !subject.text("apiGroup").is_empty() {
                errors.not_supported(&subject.at("apiGroup"), subject.text("apiGroup"), &[""]);
            }
            if !namespaced && subject.text("namespace").is_empty() {
                errors.required(&subject.at("namespace"), "");
            }
        }
        "User" | "Group" => {
            if subject.text("apiGroup") != RBAC {
                errors.not_supported(&subject.at("apiGroup"), subject.text("apiGroup"), &[RBAC]);
            }
        }
        other => errors.not_supported(&subject.at("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

pub(super) fn binding_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>, namespaced: bool) {
    binding(errors, new, namespaced);
    if !same_field("roleRef", new.get("roleRef"), old.get("roleRef")) {
        errors.invalid(&new.at("roleRef"), new.get("roleRef").clone(), "cannot change roleRef");
    }
}
