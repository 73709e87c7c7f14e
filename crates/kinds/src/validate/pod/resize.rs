//! What may change when a Pod is resized: how much processor and memory it has.

use conductor_machinery::field::Errors;
use serde_json::Value;

use super::annotations::MIRROR;
use super::{pod_object, static_pod_error};
use crate::compute::quality_of_service;
use crate::validate::at::{At, Report};
use crate::value::{annotation, entries, get, has, list, list_mut, remove, same, set, size, text};

const AMOUNTS: [&str; 2] = ["requests", "limits"];
const ONLY: &str = "only cpu and memory resources are mutable";

pub(crate) fn resize_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    pod_object(errors, new);
    if annotation(old.value, MIRROR).is_some() {
        *errors = static_pod_error("static pods cannot be resized");
        return;
    }
    let (spec, old_spec) = (new.field("spec"), old.field("spec"));
    if old_spec.text("os.name") == "windows" {
        *errors = static_pod_error("windows pods cannot be resized");
        return;
    }
    let class = match old.text("status.qosClass") {
        "" => quality_of_service(old_spec.value),
        class => class,
    };
    if quality_of_service(spec.value) != class {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&spec.path, new.text("status.qosClass"), detail);
    }
    // a node that can resize says what its containers have
    let running = old.list("status.containerStatuses").iter().find(|status| has(status, "state.running"));
    if running.is_some_and(|status| !has(status, "resources")) {
        errors.forbidden(&spec.path, "Pod running on node without support for resize");
    }
    let mut munged = spec.value.clone();
    let for_itself = |spec: &At<'_>| AMOUNTS.iter().any(|field| size(spec.get("resources"), field) > 0);
    if for_itself(&spec) || for_itself(&old_spec) {
        pod_level(errors, &spec, &old_spec, &mut munged);
    }
    if !old.list("status.nodeAllocatableResourceClaimStatuses").is_empty() {
        errors.forbidden(&spec.path, "pods with node allocatable resource claims cannot be resized");
    }
    if reordered(errors, &spec, &old_spec) {
        return;
    }
    for kind in ["initContainers", "containers"] {
        for (container, before) in spec.items(kind).zip(old_spec.list(kind)) {
            nothing_removed(errors, &container.field("resources"), get(before, "resources"), "resource");
        }
    }
    for (container, before) in list_mut(&mut munged, "containers").iter_mut().zip(old_spec.list("containers")) {
        restore(container, before);
        if !same(container, before) {
            errors.forbidden(&spec.path, ONLY);
        }
    }
    let path = spec.at("initContainers");
    let pairs = list_mut(&mut munged, "initContainers").iter_mut().zip(old_spec.list("initContainers"));
    for (i, (container, before)) in pairs.enumerate() {
        let modified = !same(container, before);
        restore(container, before);
        if !same(container, before) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&path.index(i), detail);
        }
        if modified && text(container, "restartPolicy") != "Always" {
            let restarts = |policy: &&Value| text(policy, "restartPolicy") == "RestartContainer";
            for _ in list(container, "resizePolicy").iter().filter(restarts) {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.forbidden(&path.index(i), detail);
            }
        }
    }
    if errors.is_empty() && !same(&munged, old_spec.value) {
        errors.forbidden(&spec.path, ONLY);
    }
}

/// What the Pod has as a whole.
fn pod_level(errors: &mut Errors, spec: &At<'_>, old_spec: &At<'_>, munged: &mut Value) {
    let (now, before) = (spec.field("resources"), old_spec.get("resources"));
    if before.is_object() && !now.exists() {
        return errors.forbidden(&now.path, "pod-level resources cannot be removed");
    }
    nothing_removed(errors, &now, before, "pod-level resource");
    for field in AMOUNTS {
        restore_amounts(munged, old_spec.value, field);
    }
    let nothing = |value: &Value| AMOUNTS.iter().all(|field| size(value, field) == 0) && !has(value, "claims");
    if before.is_null() && nothing(get(munged, "resources")) {
        remove(munged, "", "resources");
    }
    if !same(get(munged, "resources"), before) {
        errors.forbidden(&spec.path, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Whether containers came, went or changed their places.
fn reordered(errors: &mut Errors, spec: &At<'_>, old_spec: &At<'_>) -> bool {
    let count = errors.len();
    for kind in ["containers", "initContainers"] {
        if spec.list(kind).len() != old_spec.list(kind).len() {
            errors.forbidden(&spec.at(kind), &format!("{kind} may not be added or removed on resize"));
            continue;
        }
        for (container, before) in spec.items(kind).zip(old_spec.list(kind)) {
            if container.text("name") != text(before, "name") {
                errors.forbidden(&container.at("name"), &format!("{kind} may not be renamed or reordered on resize"));
            }
        }
    }
    errors.len() > count
}

fn nothing_removed(errors: &mut Errors, now: &At<'_>, before: &Value, what: &str) {
    for field in AMOUNTS {
        if entries(before, field).any(|(name, _)| now.get(field).get(name).is_none()) {
            errors.forbidden(&now.at(field), &format!("{what} {field} cannot be removed"));
        }
    }
}

/// Gives a container the processor and memory it had. Claims are lost, as in Kubernetes: who has some is not resized.
fn restore(container: &mut Value, before: &Value) {
    for field in AMOUNTS {
        restore_amounts(container, before, field);
    }
    remove(container, "resources", "claims");
}

fn restore_amounts(holder: &mut Value, before: &Value, field: &str) {
    let path = format!("resources.{field}");
    for resource in ["cpu", "memory"] {
        match get(before, &path).get(resource) {
            Some(amount) => set(holder, &path, resource, amount.clone()),
            None => remove(holder, &path, resource),
        }
    }
}
