//! Where a container sees the Pod's volumes.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors};

use super::volumes::Volumes;
use crate::validate::at::{At, Report};
use crate::validate::common::descending_path;

pub(super) fn mounts(errors: &mut Errors, container: &At<'_>, volumes: &Volumes<'_>) {
    let path = container.at("volumeMounts");
    let (names, paths) = (texts(container, "volumeDevices", "name"), texts(container, "volumeDevices", "devicePath"));
    let mut points = HashSet::new();
    for mount in container.items("volumeMounts") {
        let (name, point) = (mount.text("name"), mount.text("mountPath"));
        errors.required_text(&mount, "name");
        if !volumes.contains_key(name) {
            errors.push(Error::not_found(&mount.at("name"), name));
        }
        errors.required_text(&mount, "mountPath");
        if !points.insert(point) {
            errors.invalid(&mount.at("mountPath"), point, "must be unique");
        }
        if names.contains(name) {
            errors.invalid(&mount.at("name"), name, "must not already exist in volumeDevices");
        }
        if paths.contains(point) {
            errors.invalid(&mount.at("mountPath"), point, "must not already exist as a path in volumeDevices");
        }
        if !mount.text("subPath").is_empty() {
            descending_path(errors, &path.child("subPath"), mount.text("subPath"));
        }
        let expression = mount.text("subPathExpr");
        if !expression.is_empty() {
            if !mount.text("subPath").is_empty() {
                errors.invalid(&mount.at("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
            }
            descending_path(errors, &path.child("subPathExpr"), expression);
        }
        propagation(errors, container, &mount);
    }
}

/// What the items of a list say in a field.
fn texts<'a>(container: &At<'a>, list: &str, field: &str) -> HashSet<&'a str> {
    container.list(list).iter().map(|item| crate::value::text(item, field)).collect()
}

fn propagation(errors: &mut Errors, container: &At<'_>, mount: &At<'_>) {
    let path = container.at("volumeMounts");
    if let Some(mode) = mount.get("mountPropagation").as_str() {
        let modes = ["Bidirectional", "HostToContainer", "None"];
        if !modes.contains(&mode) {
            errors.not_supported(&path.child("mountPropagation"), mode, &modes);
        }
        if mode == "Bidirectional" && !container.flag("securityContext.privileged") {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&path.child("mountPropagation"), detail);
        }
    }
    let path = path.child("recursiveReadOnly");
    match mount.get("recursiveReadOnly").as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if !matches!(mount.get("mountPropagation").as_str(), None | Some("None")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&path, detail);
            }
        }
        Some(other) => errors.not_supported(&path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn devices(errors: &mut Errors, container: &At<'_>, volumes: &Volumes<'_>) {
    let (mounted, points) = (texts(container, "volumeMounts", "name"), texts(container, "volumeMounts", "mountPath"));
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in container.items("volumeDevices") {
        let (name, path) = (device.text("name"), device.text("devicePath"));
        errors.required_text(&device, "name");
        if names.contains(&name) {
            errors.invalid(&device.at("name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.push(Error::not_found(&device.at("name"), name)),
            Some(volume) => {
                let block = ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| crate::value::has(volume, kind));
                if !block {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(&device.at("name"), name, detail);
                }
            }
        }
        errors.required_text(&device, "devicePath");
        if paths.contains(&path) {
            errors.invalid(&device.at("devicePath"), path, "must be unique");
        }
        if path.split('/').any(|step| step == "..") {
            errors.invalid(&device.at("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
        if mounted.contains(name) {
            errors.invalid(&device.at("name"), name, "must not already exist in volumeMounts");
        }
        if points.contains(path) {
            errors.invalid(&device.at("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
