//! Environment variables of containers, and the fields of a Pod they may be taken from.

use conductor_machinery::field::Errors;
use conductor_machinery::names;

use crate::validate::at::{At, Report};
use crate::validate::common::{label, no_backsteps, qualified, subdomain};

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn environment(errors: &mut Errors, container: &At<'_>) {
    for variable in container.items("env") {
        match variable.text("name") {
            "" => errors.required(&variable.at("name"), ""),
            name => errors.each(&variable.at("name"), name, names::relaxed_env_var_name(name)),
        }
        let from = variable.field("valueFrom");
        if from.exists() {
            value_from(errors, &variable, &from);
        }
    }
    let path = container.at("envFrom");
    for source in container.items("envFrom") {
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.each(&source.at("prefix"), prefix, names::relaxed_env_var_name(prefix));
        }
        let kinds = ["configMapRef", "secretRef"];
        for kind in kinds.into_iter().filter(|kind| source.has(kind)) {
            let reference = source.field(kind);
            match reference.text("name") {
                "" => errors.required(&reference.at("name"), ""),
                name => errors.each(&reference.at("name"), name, names::name_is_subdomain(name, true)),
            }
        }
        match kinds.iter().filter(|kind| source.has(kind)).count() {
            0 => errors.invalid(&path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(&path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn value_from(errors: &mut Errors, variable: &At<'_>, from: &At<'_>) {
    let mut sources = 0;
    for kind in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let at = from.field(kind);
        if !at.exists() {
            continue;
        }
        sources += 1;
        match kind {
            "fieldRef" => object_field(errors, &at, ENV_FIELDS),
            "resourceFieldRef" => resource_field(errors, &at, false),
            "fileKeyRef" => {
                match at.text("key") {
                    "" => errors.required(&at.at("key"), ""),
                    key => errors.each(&at.at("key"), key, names::relaxed_env_var_name(key)),
                }
                match at.text("volumeName") {
                    "" => errors.required(&at.at("volumeName"), ""),
                    name => label(errors, &at.at("volumeName"), name),
                }
                match at.text("path") {
                    "" => errors.required(&at.at("path"), ""),
                    path => no_backsteps(errors, &at.at("path"), path),
                }
            }
            _ => {
                subdomain(errors, &at.at("name"), at.text("name"));
                match at.text("key") {
                    "" => errors.required(&at.at("key"), ""),
                    key => errors.each(&at.at("key"), key, names::config_map_key(key)),
                }
            }
        }
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(&from.path, "", detail);
    } else if !variable.text("value").is_empty() {
        errors.invalid(&from.path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(&from.path, "", "may not have more than one field specified at a time");
    }
}

/// A field of the Pod that its containers may know.
pub(super) fn object_field(errors: &mut Errors, at: &At<'_>, supported: &[&str]) {
    let path = at.text("fieldPath");
    if at.text("apiVersion").is_empty() {
        return errors.required(&at.at("apiVersion"), "");
    }
    if path.is_empty() {
        return errors.required(&at.at("fieldPath"), "");
    }
    let subscripted = path.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let known = matches!(path, "metadata.labels" | "metadata.annotations") || ENV_FIELDS.contains(&path);
    if subscripted.is_none_or(|(field, _)| !matches!(field, "metadata.annotations" | "metadata.labels")) && !known {
        if let Some((field, _)) = subscripted.filter(|(field, _)| ENV_FIELDS.contains(field)) {
            return errors.invalid(&at.path, field, "does not support subscript");
        }
        let detail = format!("error converting fieldPath: field label not supported: {path}");
        return errors.invalid(&at.at("fieldPath"), path, detail);
    }
    match subscripted {
        Some(("metadata.annotations", key)) => qualified(errors, &at.path, &key.to_lowercase()),
        Some(("metadata.labels", key)) => qualified(errors, &at.path, key),
        _ => {
            if !supported.contains(&path) {
                errors.not_supported(&at.at("fieldPath"), path, supported);
            }
        }
    }
}

/// A resource of a container that containers may know.
pub(super) fn resource_field(errors: &mut Errors, at: &At<'_>, in_volume: bool) {
    let name = at.text("resource");
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && at.text("containerName").is_empty() {
        errors.required(&at.at("containerName"), "");
    } else if name.is_empty() {
        errors.required(&at.at("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&name) && !huge {
        errors.not_supported(&at.at("resource"), name, RESOURCE_FIELDS);
    }
    let divisor = crate::validate::common::quantity(at.get("divisor"));
    if divisor.is_zero() {
        return;
    }
    let divisor = divisor.to_string();
    let (fine, what) = match name.split_once('.') {
        Some((_, "cpu")) => (matches!(divisor.as_str(), "1m" | "1"), "cpu"),
        Some((_, "memory")) => (is_size_unit(&divisor), "memory"),
        Some((_, "ephemeral-storage")) => (is_size_unit(&divisor), "local ephemeral storage"),
        _ if huge => (is_size_unit(&divisor), "hugepages"),
        _ => return,
    };
    if !fine {
        let values = if what == "cpu" { "1m and 1" } else { "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei" };
        let detail = format!("only divisor's values {values} are supported with the {what} resource");
        errors.invalid(&at.at("divisor"), name, detail);
    }
}

fn is_size_unit(divisor: &str) -> bool {
    divisor.strip_prefix('1').is_some_and(|unit| {
        matches!(unit, "" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei")
    })
}
