//! The storage group.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, IMMUTABLE, NEGATIVE, Report, same_field};
use super::common::{csi_driver_name, label_selector, qualified, quantity, subdomain};
use super::persistent::volume_spec;

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_SIZE_MAX: usize = 256 * 1024;

pub(super) fn storage_class(errors: &mut Errors, object: &At<'_>) {
    provisioner(errors, object, "provisioner");
    parameters(errors, object, true);
    if !object.text("reclaimPolicy").is_empty() {
        errors.one_of(object, "reclaimPolicy", &["Delete", "Retain"]);
    }
    if !object.has("volumeBindingMode") {
        errors.required(&object.at("volumeBindingMode"), "");
    }
    errors.one_of(object, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]);
    topologies(errors, object);
}

pub(super) fn storage_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(new, old, field);
    }
}

fn provisioner(errors: &mut Errors, object: &At<'_>, field: &str) {
    match object.text(field) {
        "" => errors.required(&object.at(field), ""),
        name => qualified(errors, &object.at(field), &name.to_lowercase()),
    }
}

fn parameters(errors: &mut Errors, object: &At<'_>, may_be_empty: bool) {
    let path = object.at("parameters");
    if object.size("parameters") > PARAMETERS_MAX {
        return errors.push(Error::too_long(&path, PARAMETERS_MAX));
    }
    let mut size = 0;
    for (key, value) in object.entries("parameters") {
        if key.is_empty() {
            errors.invalid(&path, key, "field can not be empty.");
        }
        size += key.len() + value.value.as_str().map_or(0, str::len);
    }
    if size > PARAMETERS_SIZE_MAX {
        errors.push(Error::too_long(&path, PARAMETERS_SIZE_MAX));
    }
    if !may_be_empty && object.size("parameters") == 0 {
        errors.required(&path, "must contain at least one key/value pair");
    }
}

fn topologies(errors: &mut Errors, object: &At<'_>) {
    let mut terms: Vec<Vec<(&str, Vec<&str>)>> = Vec::new();
    for term in object.items("allowedTopologies") {
        let (mut keys, mut names) = (Vec::new(), HashSet::new());
        for requirement in term.items("matchLabelExpressions") {
            let key = requirement.text("key");
            if requirement.list("values").is_empty() {
                errors.required(&requirement.at("values"), "");
            }
            let (mut values, mut seen) = (Vec::new(), HashSet::new());
            for value in requirement.items("values") {
                let text = value.value.as_str().unwrap_or("");
                if !seen.insert(text) {
                    errors.duplicate(&value.path, text);
                }
                values.push(text);
            }
            qualified(errors, &requirement.at("key"), key);
            if !names.insert(key) {
                errors.duplicate(&requirement.at("key"), key);
            }
            values.sort_unstable();
            keys.push((key, values));
        }
        keys.sort();
        // Kubernetes compares with as many empty terms as there are terms, before it has seen any.
        let phantoms = if keys.is_empty() { object.list("allowedTopologies").len() } else { 0 };
        for _ in 0..phantoms + terms.iter().filter(|seen| **seen == keys).count() {
            errors.duplicate(&term.at("matchLabelExpressions"), "");
        }
        terms.push(keys);
    }
}

pub(super) fn volume_attachment(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    csi_driver_name(errors, &spec.at("attacher"), spec.text("attacher"));
    let source = spec.field("source");
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.has("persistentVolumeName")) {
        (false, false) => errors.required(&source.path, detail),
        (true, true) => errors.forbidden(&source.path, detail),
        (true, false) => volume_spec(errors, &source.field("inlineVolumeSpec"), "", true),
        (false, true) if source.text("persistentVolumeName").is_empty() => {
            errors.required(&source.at("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (false, true) => {}
    }
    subdomain(errors, &spec.at("nodeName"), spec.text("nodeName"));
    if source.has("persistentVolumeName") {
        subdomain(errors, &source.at("persistentVolumeName"), source.text("persistentVolumeName"));
    }
    attachment_status(errors, object);
}

fn attachment_status(errors: &mut Errors, object: &At<'_>) {
    let status = object.field("status");
    let size: usize = status
        .entries("attachmentMetadata")
        .map(|(key, value)| key.len() + value.value.as_str().map_or(0, str::len))
        .sum();
    if size > PARAMETERS_SIZE_MAX {
        errors.push(Error::too_long(&status.at("attachmentMetadata"), PARAMETERS_SIZE_MAX));
    }
    for field in ["attachError", "detachError"] {
        let error = status.field(field);
        if error.text("message").len() > 1024 {
            errors.push(Error::too_long(&error.at("message"), PARAMETERS_SIZE_MAX));
        }
        if error.int("errorCode") < 0 {
            errors.invalid(&error.at("errorCode"), error.int("errorCode"), names::range_error(0, i32::MAX.into()));
        }
    }
}

pub(super) fn volume_attachment_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    volume_attachment(errors, new);
    errors.immutable(new, old, "spec");
}

pub(super) fn csi_driver(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    errors.one_of(&spec, "fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]);
    let mut audiences = Vec::new();
    for request in spec.items("tokenRequests") {
        let audience = request.text("audience");
        if audiences.contains(&audience) {
            errors.duplicate(&request.at("audience"), audience);
            continue;
        }
        audiences.push(audience);
        let Some(seconds) = request.maybe_int("expirationSeconds") else { continue };
        if seconds < 600 {
            errors.invalid(
                &request.at("expirationSeconds"),
                seconds,
                "may not specify a duration less than 10 minutes",
            );
        }
        if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.invalid(&request.at("expirationSeconds"), seconds, detail);
        }
    }
    for mode in spec.list("volumeLifecycleModes") {
        if !matches!(mode.as_str(), Some("Persistent" | "Ephemeral")) {
            errors.not_supported(&spec.at("volumeLifecycleModes"), mode.clone(), &["Persistent", "Ephemeral"]);
        }
    }
    let period = "nodeAllocatableUpdatePeriodSeconds";
    if spec.maybe_int(period).is_some_and(|seconds| seconds < 10) {
        errors.invalid(&spec.at(period), spec.int(period), "must be greater than or equal to 10 seconds");
    }
    if spec.has("serviceAccountTokenInSecrets") && spec.list("tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        let value = spec.get("serviceAccountTokenInSecrets").clone();
        errors.invalid(&spec.at("serviceAccountTokenInSecrets"), value, detail);
    }
}

pub(super) fn csi_driver_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    csi_driver(errors, new);
    let (now, before) = (new.get("spec.attachRequired"), old.get("spec.attachRequired"));
    if now != before {
        errors.invalid(&new.at("spec.attachedRequired"), now.clone(), IMMUTABLE);
    }
    errors.immutable(new, old, "spec.volumeLifecycleModes");
}

pub(super) fn csi_node(errors: &mut Errors, object: &At<'_>) {
    let mut drivers = Vec::new();
    for driver in object.items("spec.drivers") {
        let name = driver.text("name");
        csi_driver_name(errors, &driver.at("name"), name);
        errors.required_text(&driver, "nodeID");
        if driver.text("nodeID").len() > 256 {
            errors.invalid(&driver.at("nodeID"), driver.text("nodeID"), "must be 256 characters or less");
        }
        errors.not_negative(&driver.field("allocatable"), "count");
        if drivers.contains(&name) {
            errors.duplicate(&driver.at("name"), name);
        }
        drivers.push(name);
        let mut keys = HashSet::new();
        for key in driver.list("topologyKeys").iter().map(|key| key.as_str().unwrap_or("")) {
            if key.is_empty() {
                errors.required(&driver.path, "");
            }
            if keys.contains(&key) {
                errors.duplicate(&driver.path, key);
            }
            keys.insert(key);
            qualified(errors, &driver.path, key);
        }
    }
}

pub(super) fn csi_node_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    csi_node(errors, new);
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        crate::value::remove(&mut driver, "", "allocatable");
        driver
    };
    for before in old.list("spec.drivers") {
        for now in new.list("spec.drivers").iter().filter(|now| now.get("name") == before.get("name")) {
            if !crate::value::same(&fixed(now), &fixed(before)) {
                errors.invalid(&new.at("spec.drivers"), fixed(now), IMMUTABLE);
            }
        }
    }
}

pub(super) fn csi_storage_capacity(errors: &mut Errors, object: &At<'_>) {
    label_selector(errors, &object.field("nodeTopology"));
    subdomain(errors, &object.at("storageClassName"), object.text("storageClassName"));
    if object.has("capacity") && quantity(object.get("capacity")).sign() < 0 {
        errors.invalid(&object.at("capacity"), quantity(object.get("capacity")).to_string(), NEGATIVE);
    }
}

pub(super) fn csi_storage_capacity_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    csi_storage_capacity(errors, new);
    errors.immutable(new, old, "nodeTopology");
    errors.immutable(new, old, "storageClassName");
}

pub(super) fn volume_attributes_class(errors: &mut Errors, object: &At<'_>) {
    provisioner(errors, object, "driverName");
    parameters(errors, object, false);
}

pub(super) fn volume_attributes_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    for field in ["driverName", "parameters"] {
        if !same_field(field, new.get(field), old.get(field)) {
            errors.forbidden(&Path::root(field), &format!("updates to {field} are forbidden."));
        }
    }
    volume_attributes_class(errors, new);
}
