//! Rules that many kinds share: labels and selectors, node selectors, amounts of resources, paths.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use conductor_machinery::names::ip::{Strictness, validate_cidr, validate_ip};
use conductor_machinery::quantity::Quantity;
use serde_json::Value;

use super::at::{At, NEGATIVE, Report};
use crate::value::{entries, list, text};

/// The protocols of ports.
pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// A DNS label.
pub(super) fn label(errors: &mut Errors, path: &Path, value: &str) {
    errors.each(path, value, names::dns1123_label(value));
}

/// A DNS subdomain.
pub(super) fn subdomain(errors: &mut Errors, path: &Path, value: &str) {
    errors.each(path, value, names::dns1123_subdomain(value));
}

/// A qualified name.
pub(super) fn qualified(errors: &mut Errors, path: &Path, value: &str) {
    errors.each(path, value, names::qualified_name(value));
}

/// A map of labels.
pub(super) fn labels(errors: &mut Errors, at: &At<'_>) {
    for (key, value) in at.value.as_object().into_iter().flatten() {
        qualified(errors, &at.path, key);
        let value = value.as_str().unwrap_or("");
        errors.each(&at.path, value, names::label_value(value));
    }
}

/// A map of annotations.
pub(super) fn annotations(errors: &mut Errors, at: &At<'_>) {
    let mut size = 0;
    for (key, value) in at.value.as_object().into_iter().flatten() {
        qualified(errors, &at.path, &key.to_lowercase());
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > names::ANNOTATIONS_MAX {
        errors.push(Error::too_long(&at.path, names::ANNOTATIONS_MAX));
    }
}

/// A label selector; null selects nothing and is fine.
pub(super) fn label_selector(errors: &mut Errors, at: &At<'_>) {
    labels(errors, &at.field("matchLabels"));
    for requirement in at.items("matchExpressions") {
        match requirement.text("operator") {
            "In" | "NotIn" if requirement.list("values").is_empty() => {
                errors.required(&requirement.at("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !requirement.list("values").is_empty() => errors.forbidden(
                &requirement.at("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&requirement.at("operator"), other, "not a valid selector operator"),
        }
        qualified(errors, &requirement.at("key"), requirement.text("key"));
        for value in requirement.items("values") {
            let text = value.value.as_str().unwrap_or("");
            errors.each(&value.path, text, names::label_value(text));
        }
    }
}

/// Whether a label selector asks for nothing.
pub(super) fn is_empty_selector(selector: &Value) -> bool {
    crate::value::size(selector, "matchLabels") == 0 && list(selector, "matchExpressions").is_empty()
}

/// Whether a label selector selects something with these labels. A null selector selects nothing; an operator that is
/// not one is reported elsewhere.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let value_of = |key: &str| labels.get(key).and_then(Value::as_str);
    entries(selector, "matchLabels").all(|(key, value)| value_of(key) == value.as_str())
        && list(selector, "matchExpressions").iter().all(|requirement| {
            let value = value_of(text(requirement, "key"));
            let among = value.is_some_and(|value| list(requirement, "values").iter().any(|v| v == value));
            match text(requirement, "operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => true,
            }
        })
}

/// Conditions of the kind that most APIs have.
pub(super) fn conditions(errors: &mut Errors, holder: &At<'_>) {
    let mut types = HashSet::new();
    for condition in holder.items("conditions") {
        let kind = condition.text("type");
        if !types.insert(kind) {
            errors.duplicate(&condition.at("type"), kind);
        }
        qualified(errors, &condition.at("type"), kind);
        let status = condition.text("status");
        if !matches!(status, "True" | "False" | "Unknown") {
            errors.not_supported(&condition.at("status"), status, &["False", "True", "Unknown"]);
        }
        if condition.int("observedGeneration") < 0 {
            let detail = "must be greater than or equal to zero";
            errors.invalid(&condition.at("observedGeneration"), condition.int("observedGeneration"), detail);
        }
        if !condition.has("lastTransitionTime") {
            errors.required(&condition.at("lastTransitionTime"), "");
        }
        let (reason, path) = (condition.text("reason"), condition.at("reason"));
        if reason.is_empty() {
            errors.required(&path, "");
        } else {
            errors.each(&path, reason, names::condition_reason(reason));
        }
        for (field, most) in [("reason", 1024), ("message", 32 * 1024)] {
            if condition.text(field).len() > most {
                errors.push(Error::too_long(&condition.at(field), most));
            }
        }
    }
}

/// Terms that select nodes, of which one has to match.
pub(super) fn node_selector(errors: &mut Errors, at: &At<'_>) {
    if at.list("nodeSelectorTerms").is_empty() {
        errors.required(&at.at("nodeSelectorTerms"), "must have at least one node selector term");
    }
    for term in at.items("nodeSelectorTerms") {
        node_selector_term(errors, &term, true);
    }
}

/// One term that selects nodes. What only prefers nodes may compare with values no label can have.
pub(super) fn node_selector_term(errors: &mut Errors, term: &At<'_>, check_values: bool) {
    for requirement in term.items("matchExpressions") {
        let values = requirement.list("values").len();
        match requirement.text("operator") {
            "In" | "NotIn" if values == 0 => {
                errors.required(&requirement.at("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if values > 0 => errors.forbidden(
                &requirement.at("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values != 1 => errors
                .required(&requirement.at("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(&requirement.at("operator"), other, "not a valid selector operator"),
        }
        qualified(errors, &requirement.at("key"), requirement.text("key"));
        for value in requirement.items("values").filter(|_| check_values) {
            let text = value.value.as_str().unwrap_or("");
            errors.each(&value.path, text, names::label_value(text));
        }
    }
    for requirement in term.items("matchFields") {
        match requirement.text("operator") {
            "In" | "NotIn" => {
                if requirement.list("values").len() != 1 {
                    let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                    errors.required(&requirement.at("values"), detail);
                }
            }
            other => errors.invalid(&requirement.at("operator"), other, "not a valid selector operator"),
        }
        if requirement.text("key") != "metadata.name" {
            errors.invalid(&requirement.at("key"), requirement.text("key"), "not a valid field selector key");
            continue;
        }
        for value in requirement.items("values") {
            subdomain(errors, &value.path, value.value.as_str().unwrap_or(""));
        }
    }
}

/// A quantity, zero when it cannot be read.
pub(super) fn quantity(value: &Value) -> Quantity {
    Quantity::from_json(value).unwrap_or_default()
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether requests may be lower than limits.
pub(super) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether the resource is huge pages of some size.
pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether the resource is one that a device plug-in or driver brings.
pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

const STANDARD: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

/// Whether a quota may bound the resource without a domain in its name.
pub(super) fn is_quota_resource(name: &str) -> bool {
    STANDARD.contains(&name) || is_quota_huge_pages(name)
}

/// The name of any resource.
pub(super) fn resource_name(errors: &mut Errors, path: &Path, name: &str) {
    let messages = names::qualified_name(name);
    if !messages.is_empty() {
        errors.each(path, name, messages);
    } else if !name.contains('/') && name != "storage" && !is_quota_resource(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
}

/// The name of a resource that a container uses.
pub(super) fn container_resource_name(errors: &mut Errors, path: &Path, name: &str) {
    resource_name(errors, path, name);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// An amount of a resource: not negative, and whole where only whole ones make sense.
pub(super) fn resource_amount(errors: &mut Errors, path: &Path, name: &str, value: &Value) {
    let amount = quantity(value);
    if amount.sign() < 0 {
        errors.invalid(path, amount.to_string(), NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.invalid(path, value.clone(), "must be an integer");
    }
}

/// An amount that must be more than nothing.
pub(super) fn positive_amount(errors: &mut Errors, path: &Path, value: &Value) {
    if quantity(value).sign() <= 0 {
        errors.invalid(path, quantity(value).to_string(), "must be greater than zero");
    }
}

/// A number or the name of a port.
pub(super) fn port_number_or_name(errors: &mut Errors, path: &Path, value: &Value) {
    match value {
        Value::String(name) => errors.each(path, name, names::port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or(0);
            for message in names::port_number(number) {
                errors.invalid(path, number, message);
            }
        }
    }
}

/// A number that is a port's.
pub(super) fn port_number(errors: &mut Errors, at: &At<'_>, name: &str) {
    for message in names::port_number(at.int(name)) {
        errors.invalid(&at.at(name), at.int(name), message);
    }
}

/// A path that leads nowhere up.
pub(super) fn no_backsteps(errors: &mut Errors, path: &Path, value: &str) {
    if value.split('/').any(|step| step == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// A relative path that leads nowhere up.
pub(super) fn descending_path(errors: &mut Errors, path: &Path, value: &str) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    no_backsteps(errors, path, value);
}

/// A relative path that leads nowhere up and does not begin with two points, which volumes keep for themselves.
pub(super) fn local_path(errors: &mut Errors, path: &Path, value: &str) {
    descending_path(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.invalid(path, value, "must not start with '..'");
    }
}

/// An address, as strictly as new values are checked; those that stood there before are left alone.
pub(super) fn ip(errors: &mut Errors, path: &Path, value: &str, before: &[&str]) {
    if !before.contains(&value) {
        errors.extend(validate_ip(path, value, Strictness::Strict));
    }
}

/// A network, as strictly as new values are checked; those that stood there before are left alone.
pub(super) fn cidr(errors: &mut Errors, path: &Path, value: &str, before: &[&str]) {
    if !before.contains(&value) {
        errors.extend(validate_cidr(path, value, Strictness::Strict));
    }
}

/// The name of a CSI driver.
pub(super) fn csi_driver_name(errors: &mut Errors, path: &Path, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > 63 {
        errors.push(Error::too_long(path, 63));
    }
    errors.each(path, name, names::dns1123_subdomain(&name.to_lowercase()));
}

/// A number or a percentage that is not negative.
pub(super) fn int_or_percent(errors: &mut Errors, at: &At<'_>, name: &str) {
    match at.get(name) {
        Value::String(text) => {
            for message in names::percent(text) {
                errors.invalid(&at.at(name), text.clone(), message);
            }
        }
        _ => errors.not_negative(at, name),
    }
}

/// The number in a number or a percentage.
pub(super) fn int_or_percent_value(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.strip_suffix('%').and_then(|share| share.parse().ok()).unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// A percentage of at most all.
pub(super) fn at_most_all(errors: &mut Errors, at: &At<'_>, name: &str) {
    let value = at.get(name);
    if value.is_string() && int_or_percent_value(value) > 100 {
        errors.invalid(&at.at(name), value.clone(), "must not be greater than 100%");
    }
}

/// The metadata that a template gives what is made from it: labels and annotations.
pub(super) fn template_metadata(errors: &mut Errors, metadata: &At<'_>) {
    annotations(errors, &metadata.field("annotations"));
    labels(errors, &metadata.field("labels"));
    for (field, value) in metadata.value.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "annotations" | "labels") && !value.is_null() {
            // Go's own name for it, with a small letter
            let called = if field == "uid" { "uID" } else { field };
            errors.forbidden(&metadata.at(called), "cannot be set");
        }
    }
}
