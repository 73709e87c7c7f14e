//! Annotations of Pods that mean something to the server.

use std::collections::HashSet;

use conductor_machinery::field::{Errors, Path};
use serde_json::Value;

use super::CONTAINERS;
use crate::strategy::{APP_ARMOR, SECCOMP};
use crate::validate::at::{At, Report};
use crate::validate::common::descending_path;
use crate::value::{annotation, text};

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const POD_SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const LOCALHOST: &str = "localhost/";

/// The annotations (`at`) of what has this spec.
pub(super) fn pod_annotations(errors: &mut Errors, at: &At<'_>, spec: &At<'_>) {
    let annotation = |key: &str| at.value.get(key).and_then(Value::as_str);
    if let Some(value) = annotation(MIRROR)
        && spec.text("nodeName").is_empty()
    {
        errors.invalid(&at.path.key(MIRROR), value, "must set spec.nodeName if mirror pod annotation is set");
    }
    let containers = CONTAINERS.iter().flat_map(|list| spec.list(list));
    let containers: HashSet<&str> = containers.map(|container| text(container, "name")).collect();
    for (key, profile) in at.value.as_object().into_iter().flatten() {
        let profile = profile.as_str().unwrap_or("");
        if key == POD_SECCOMP || key.starts_with(SECCOMP) {
            seccomp(errors, &at.path.child(key), profile);
        }
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        if !containers.contains(name) {
            errors.invalid(&at.path.key(key), name, "container not found");
        }
        if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with(LOCALHOST) {
            errors.invalid(&at.path.key(key), profile, format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
    if let Some(cost) = annotation(DELETION_COST) {
        let canonical = cost == "0" || cost.starts_with(|first: char| matches!(first, '-' | '1'..='9'));
        if !canonical || cost.parse::<i32>().is_err() {
            errors.invalid(&at.path.key(DELETION_COST), cost, "must be a 32bit integer");
        }
    }
}

fn seccomp(errors: &mut Errors, path: &Path, profile: &str) {
    match profile.strip_prefix(LOCALHOST) {
        Some(file) => descending_path(errors, path, file),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

/// Profiles that stand in annotations (`at`) as well as in fields are the same.
pub(super) fn profiles_agree(errors: &mut Errors, at: &At<'_>, spec: &At<'_>) {
    let annotation = |key: &str| at.value.get(key).and_then(Value::as_str);
    let pod = spec.field("securityContext.seccompProfile");
    if let Some(said) = annotation(POD_SECCOMP) {
        profile_agrees(errors, &pod.path, pod.value, said, "seccomp");
    }
    for container in CONTAINERS.iter().flat_map(|list| spec.items(list)) {
        let own = container.field("securityContext.seccompProfile");
        if let Some(said) = annotation(&format!("{SECCOMP}{}", container.text("name"))) {
            profile_agrees(errors, &own.path, own.value, said, "seccomp");
        }
    }
    if spec.text("os.name") == "windows" {
        return;
    }
    for container in CONTAINERS.iter().flat_map(|list| spec.items(list)) {
        let own = container.field("securityContext.appArmorProfile");
        let profile = if own.exists() { own.value } else { spec.get("securityContext.appArmorProfile") };
        if let Some(said) = annotation(&format!("{APP_ARMOR}{}", container.text("name"))) {
            profile_agrees(errors, &own.path, profile, said, "apparmor");
        }
    }
}

fn profile_agrees(errors: &mut Errors, path: &Path, profile: &Value, said: &str, what: &str) {
    let agrees = match text(profile, "type") {
        "Unconfined" => said == "unconfined",
        "RuntimeDefault" => said == "runtime/default" || (what == "seccomp" && said == "docker/default"),
        "Localhost" => match said.strip_prefix(LOCALHOST) {
            Some(file) if profile.get("localhostProfile").and_then(Value::as_str) == Some(file) => true,
            Some(_) => {
                let detail = format!("{what} profile in annotation and field must match");
                return errors.forbidden(&path.child("localhostProfile"), &detail);
            }
            None => false,
        },
        _ => true,
    };
    if !agrees {
        errors.forbidden(&path.child("type"), &format!("{what} type in annotation and field must match"));
    }
}

/// Annotations that stay as they were when a Pod changes.
pub(super) fn annotation_updates(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let at = new.field("metadata.annotations");
    let armored = |object: &At<'_>| {
        let keys = object.entries("metadata.annotations").map(|(key, _)| key.to_owned());
        keys.filter(|key| key.starts_with(APP_ARMOR)).collect::<Vec<_>>()
    };
    for key in armored(old) {
        if annotation(new.value, &key) != annotation(old.value, &key) {
            errors.forbidden(&at.path.key(&key), "may not remove or update AppArmor annotations");
        }
    }
    for key in armored(new) {
        if annotation(old.value, &key).is_none() {
            errors.forbidden(&at.path.key(&key), "may not add AppArmor annotations");
        }
    }
    match (annotation(new.value, MIRROR), annotation(old.value, MIRROR)) {
        (now, Some(before)) if now != Some(before) => {
            errors.forbidden(&at.path.key(MIRROR), "may not remove or update mirror pod annotation");
        }
        (Some(_), None) => errors.forbidden(&at.path.key(MIRROR), "may not add mirror pod annotation"),
        _ => {}
    }
    pod_annotations(errors, &at, &new.field("spec"));
}
