//! What a Pod's processes may do.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;

use super::{CONTAINERS, windows};
use crate::validate::at::{At, Report};
use crate::validate::common::descending_path;

fn id(errors: &mut Errors, at: &At<'_>, field: &str) {
    if let Some(id) = at.maybe_int(field) {
        for message in names::unix_id(id) {
            errors.invalid(&at.at(field), id, message);
        }
    }
}

pub(super) fn pod_security_context(errors: &mut Errors, spec: &At<'_>) {
    let at = spec.field("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, &at, field);
    }
    for group in at.items("supplementalGroups") {
        let number = group.value.as_i64().unwrap_or(0);
        for message in names::unix_id(number) {
            errors.invalid(&group.path, number, message);
        }
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.at("shareProcessNamespace"), true, detail);
    }
    sysctls(errors, spec, &at);
    errors.one_of(&at, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    profiles(errors, &at);
    windows::options(errors, &at);
    errors.one_of(&at, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    errors.one_of(&at, "seLinuxChangePolicy", &["Recursive"]);
}

pub(super) fn security_context(errors: &mut Errors, spec: &At<'_>, at: &At<'_>) {
    if !at.exists() {
        return;
    }
    id(errors, at, "runAsUser");
    id(errors, at, "runAsGroup");
    if at.has("procMount") {
        errors.one_of(at, "procMount", &["Default", "Unmasked"]);
        let host_users = !spec.has("hostUsers") || spec.flag("hostUsers");
        if host_users && at.text("procMount") == "Unmasked" {
            errors.invalid(&at.at("procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`");
        }
    }
    if at.has("allowPrivilegeEscalation") && !at.flag("allowPrivilegeEscalation") {
        if at.flag("privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(&at.path, at.value.clone(), detail);
        }
        if at.list("capabilities.add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(&at.path, at.value.clone(), detail);
        }
    }
    profiles(errors, at);
    windows::options(errors, at);
}

/// Seccomp and AppArmor profiles.
fn profiles(errors: &mut Errors, at: &At<'_>) {
    let types = ["Localhost", "RuntimeDefault", "Unconfined"];
    for (field, what) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let profile = at.field(field);
        if !profile.exists() {
            continue;
        }
        match profile.text("type") {
            "" => errors.required(&profile.at("type"), &format!("type is required when {field} is set")),
            kind if !types.contains(&kind) => errors.not_supported(&profile.at("type"), kind, &types),
            _ => {}
        }
        let path = profile.at("localhostProfile");
        let needed = format!("must be set when {what} type is Localhost");
        if profile.text("type") != "Localhost" {
            // an AppArmor profile of no type, or of one that is not known, has no other mistakes
            let told = what == "seccomp" || types.contains(&profile.text("type"));
            if profile.has("localhostProfile") && told {
                let shown = if what == "seccomp" { profile.value } else { profile.get("localhostProfile") };
                errors.invalid(&path, shown.clone(), format!("can only be set when {what} type is Localhost"));
            }
        } else if !profile.has("localhostProfile") {
            errors.required(&path, &needed);
        } else if what == "seccomp" {
            descending_path(errors, &path, profile.text("localhostProfile"));
        } else {
            let name = profile.text("localhostProfile");
            if name.trim() != name {
                errors.invalid(&path, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(&path, &needed);
            }
            if name.len() > 4095 {
                errors.push(Error::too_long(&path, 4095));
            }
        }
    }
}

fn sysctls(errors: &mut Errors, spec: &At<'_>, at: &At<'_>) {
    let mut seen = HashSet::new();
    for sysctl in at.items("sysctls") {
        let name = sysctl.text("name");
        let path = sysctl.at("name");
        let segments = name.split(['.', '/']).all(|segment| {
            let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            let bytes = segment.as_bytes();
            edge(bytes.first())
                && edge(bytes.last())
                && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
        });
        if name.is_empty() {
            errors.required(&path, "");
        } else if name.len() > 253 || !segments {
            let detail = "must have at most 253 characters and match regex \
                ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(&path, name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(&path, name);
        }
        seen.insert(name);
        let dotted = name.replace('/', ".");
        let ipc = dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted.starts_with("fs.mqueue.")
            || dotted == "kernel.sem";
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
        } else if spec.flag("hostIPC") && ipc {
            errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

/// A Pod with users of its own shares nothing that would give it the host's.
pub(super) fn host_users(errors: &mut Errors, spec: &At<'_>) {
    if !spec.has("hostUsers") || spec.flag("hostUsers") {
        return;
    }
    for (field, called) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) {
            errors.forbidden(&spec.at(called), "when `hostUsers` is false");
        }
    }
    for list in CONTAINERS {
        for container in spec.items(list).filter(|container| !container.list("volumeDevices").is_empty()) {
            errors.forbidden(&container.at("volumeDevices"), "when `hostUsers` is false");
        }
    }
}

/// What the other operating system has no notion of.
pub(super) fn operating_system(errors: &mut Errors, spec: &At<'_>, os: &str) {
    let context = spec.field("securityContext");
    let linux = os == "linux";
    let detail =
        if linux { "windows options cannot be set for a linux pod" } else { "cannot be set for a windows pod" };
    let pod_fields: &[&str] = if linux {
        &["windowsOptions"]
    } else {
        &[
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "fsGroup",
            "fsGroupChangePolicy",
            "sysctls",
            "runAsUser",
            "runAsGroup",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "seLinuxChangePolicy",
        ]
    };
    for field in pod_fields.iter().filter(|field| context.has(field)) {
        errors.forbidden(&context.at(field), detail);
    }
    if !linux {
        for field in ["hostUsers", "shareProcessNamespace"] {
            if spec.has(field) {
                errors.forbidden(&spec.at(field), detail);
            }
        }
        for field in ["hostPID", "hostIPC"] {
            if spec.flag(field) {
                errors.forbidden(&spec.at(field), detail);
            }
        }
    }
    let container_fields: &[&str] = if linux {
        &["windowsOptions"]
    } else {
        &[
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ]
    };
    for list in CONTAINERS {
        for container in spec.items(list) {
            let context = container.field("securityContext");
            for field in container_fields.iter().filter(|field| context.has(field)) {
                errors.forbidden(&context.at(field), detail);
            }
        }
    }
}
