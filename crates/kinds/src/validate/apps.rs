//! Workloads that run for ever: the apps group, ReplicationControllers.

use conductor_machinery::field::Errors;
use serde_json::{Value, json};

use super::at::{At, Report};
use super::common::{
    at_most_all, int_or_percent, int_or_percent_value, is_empty_selector, label, label_selector, selects,
};
use super::persistent::claim_spec;
use super::pod;
use crate::value::{keep, remove, same, set};

/// A template whose Pods run for ever.
fn endless_template(errors: &mut Errors, spec: &At<'_>, kind: &str) {
    let template = spec.field("template");
    pod::template(errors, &template);
    endless(errors, &template, kind);
}

fn endless(errors: &mut Errors, template: &At<'_>, kind: &str) {
    let policy = template.text("spec.restartPolicy");
    if policy != "Always" {
        errors.not_supported(&template.at("spec.restartPolicy"), policy, &["Always"]);
    }
    if template.has("spec.activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&template.at("spec.activeDeadlineSeconds"), &detail);
    }
}

fn selector(errors: &mut Errors, spec: &At<'_>, kind: &str) {
    let selector = spec.field("selector");
    if !selector.exists() {
        return errors.required(&selector.path, "");
    }
    label_selector(errors, &selector);
    if is_empty_selector(selector.value) {
        errors.invalid(&selector.path, selector.value.clone(), format!("empty selector is invalid for {kind}"));
    }
}

/// A selector that cannot be used is said so once more, and what depends on it is not looked at.
fn is_usable(errors: &mut Errors, spec: &At<'_>, detail: &str) -> bool {
    let selector = spec.field("selector");
    let mut wrong = Errors::new();
    label_selector(&mut wrong, &selector);
    if !wrong.is_empty() {
        errors.invalid(&selector.path, selector.value.clone(), detail);
    }
    wrong.is_empty()
}

fn template_matches(errors: &mut Errors, spec: &At<'_>) {
    let labels = spec.get("template.metadata.labels");
    let selector = spec.get("selector");
    // No selector selects nothing; an empty one is reported as such.
    if (selector.is_null() || !is_empty_selector(selector)) && !selects(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&spec.at("template.metadata.labels"), labels.clone(), detail);
    }
}

pub(super) fn replication_controller(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    errors.not_negative(&spec, "minReadySeconds");
    if spec.size("selector") == 0 {
        errors.required(&spec.at("selector"), "");
    }
    if !spec.has("replicas") {
        errors.required(&spec.at("replicas"), "");
    }
    errors.not_negative(&spec, "replicas");
    if !spec.has("template") {
        return errors.required(&spec.at("template"), "");
    }
    let labels = spec.get("template.metadata.labels");
    if !spec.entries("selector").all(|(key, value)| labels.get(key) == Some(value.value)) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&spec.at("template.metadata.labels"), labels.clone(), detail);
    }
    endless_template(errors, &spec, "ReplicationController");
}

pub(super) fn deployment(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    errors.not_negative(&spec, "replicas");
    selector(errors, &spec, "deployment");
    if is_usable(errors, &spec, "invalid label selector") {
        template_matches(errors, &spec);
        endless_template(errors, &spec, "ReplicaSet");
    }
    deployment_strategy(errors, &spec.field("strategy"));
    errors.not_negative(&spec, "minReadySeconds");
    errors.not_negative(&spec, "revisionHistoryLimit");
    if let Some(seconds) = spec.maybe_int("progressDeadlineSeconds") {
        errors.not_negative(&spec, "progressDeadlineSeconds");
        if seconds <= spec.int("minReadySeconds") {
            errors.invalid(&spec.at("progressDeadlineSeconds"), seconds, "must be greater than minReadySeconds");
        }
    }
}

fn deployment_strategy(errors: &mut Errors, strategy: &At<'_>) {
    let update = strategy.field("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if update.exists() {
                errors.forbidden(&update.path, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            if !update.exists() {
                return errors.required(&update.path, "this should be defaulted and never be nil");
            }
            int_or_percent(errors, &update, "maxUnavailable");
            int_or_percent(errors, &update, "maxSurge");
            let none = ["maxUnavailable", "maxSurge"].iter().all(|f| int_or_percent_value(update.get(f)) == 0);
            if none {
                let value = update.get("maxUnavailable").clone();
                errors.invalid(&update.at("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(errors, &update, "maxUnavailable");
        }
        _ => errors.not_supported(&strategy.path, strategy.value.clone(), &["Recreate", "RollingUpdate"]),
    }
}

pub(super) fn replica_set(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    errors.not_negative(&spec, "replicas");
    errors.not_negative(&spec, "minReadySeconds");
    selector(errors, &spec, "deployment");
    if is_usable(errors, &spec, "invalid label selector") {
        template_matches(errors, &spec);
        endless_template(errors, &spec, "ReplicaSet");
    }
}

pub(super) fn daemon_set(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    label_selector(errors, &spec.field("selector"));
    let labels = spec.get("template.metadata.labels");
    let mut wrong = Errors::new();
    label_selector(&mut wrong, &spec.field("selector"));
    if wrong.is_empty() && !selects(spec.get("selector"), labels) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&spec.at("template.metadata.labels"), labels.clone(), detail);
    }
    if spec.has("selector") && is_empty_selector(spec.get("selector")) {
        errors.invalid(&spec.at("selector"), spec.get("selector").clone(), "empty selector is invalid for daemonset");
    }
    endless_template(errors, &spec, "DaemonSet");
    errors.not_negative(&spec, "minReadySeconds");
    let strategy = spec.field("updateStrategy");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if !strategy.has("rollingUpdate") => errors.required(&strategy.at("rollingUpdate"), ""),
        "RollingUpdate" => {
            let update = strategy.field("rollingUpdate");
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(errors, &update, field);
                at_most_all(errors, &update, field);
            }
            let set = |field: &str| int_or_percent_value(update.get(field)) != 0;
            if set("maxUnavailable") && set("maxSurge") {
                let detail = "may not be set when maxUnavailable is non-zero";
                errors.invalid(&update.at("maxSurge"), update.get("maxSurge").clone(), detail);
            } else if !set("maxUnavailable") && !set("maxSurge") {
                errors.required(&update.at("maxUnavailable"), "cannot be 0 when maxSurge is 0");
            }
        }
        _ => errors.not_supported(&strategy.path, strategy.value.clone(), &["RollingUpdate", "OnDelete"]),
    }
    errors.not_negative(&spec, "revisionHistoryLimit");
}

pub(super) fn stateful_set(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    let count = errors.len();
    set_spec(errors, &object.field("spec"), old.is_some(), true);
    let Some(old) = old else { return };
    if errors.len() > count {
        // what was wrong already does not keep anybody from changing the rest
        let mut before = Errors::new();
        set_spec(&mut before, &old.field("spec"), true, true);
        super::any_change_policy(&mut before, old, old);
        if !before.is_empty() {
            errors.truncate(count);
            set_spec(errors, &object.field("spec"), true, false);
        }
    }
    stateful_set_changes(errors, object, old);
}

/// The spec of a StatefulSet, of its Pod template the labels and annotations only unless it is asked for `whole`.
fn set_spec(errors: &mut Errors, spec: &At<'_>, is_update: bool, whole: bool) {
    match spec.text("podManagementPolicy") {
        "" => errors.required(&spec.at("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&spec.at("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.field("updateStrategy");
    let update = strategy.field("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(&strategy.path, ""),
        "OnDelete" => {
            if update.exists() {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                errors.invalid(&update.path, update.value.clone(), detail);
            }
        }
        "RollingUpdate" => {
            errors.not_negative(&update, "partition");
            if update.has("maxUnavailable") {
                int_or_percent(errors, &update, "maxUnavailable");
                if int_or_percent_value(update.get("maxUnavailable")) == 0 {
                    errors.invalid(&update.at("maxUnavailable"), update.get("maxUnavailable").clone(), "cannot be 0");
                }
                at_most_all(errors, &update, "maxUnavailable");
            }
        }
        _ => errors.invalid(&strategy.path, strategy.value.clone(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let retention = spec.field("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        if retention.exists() && !matches!(retention.text(field), "Retain" | "Delete") {
            errors.not_supported(&retention.at(field), retention.text(field), &["Retain", "Delete"]);
        }
    }
    if !is_update {
        for claim in spec.items("volumeClaimTemplates") {
            claim_spec(errors, &claim.field("spec"));
        }
        if !spec.text("serviceName").is_empty() {
            label(errors, &spec.at("serviceName"), spec.text("serviceName"));
        }
    }
    for field in ["replicas", "minReadySeconds", "ordinals.start"] {
        errors.not_negative(spec, field);
    }
    selector(errors, spec, "statefulset");
    if is_usable(errors, spec, "") {
        set_template(errors, spec, whole);
    }
    endless(errors, &spec.field("template"), "StatefulSet");
}

fn set_template(errors: &mut Errors, spec: &At<'_>, whole: bool) {
    template_matches(errors, spec);
    // Pods get host names of their own, and a volume for each template of a claim.
    let mut template = spec.get("template").clone();
    remove(&mut template, "spec", "subdomain");
    remove(&mut template, "spec", "hostname");
    let claims: Vec<&str> =
        spec.list("volumeClaimTemplates").iter().map(|claim| crate::value::text(claim, "metadata.name")).collect();
    if !claims.is_empty() {
        let mut volumes: Vec<Value> =
            claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
        let own = crate::value::list(&template, "spec.volumes");
        volumes.extend(own.iter().filter(|v| !claims.contains(&crate::value::text(v, "name"))).cloned());
        set(&mut template, "spec", "volumes", volumes);
    }
    let at = At::new(&template, spec.at("template"));
    if whole {
        pod::template(errors, &at);
    }
    // as in Kubernetes, which looks at these twice
    pod::template_notes(errors, &at);
}

fn stateful_set_changes(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let mut now = new.get("spec").clone();
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        keep(&mut now, old.get("spec"), field);
    }
    if !same(&now, old.get("spec")) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
            'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
            forbidden";
        errors.forbidden(&new.at("spec"), detail);
    }
}

/// Counts in the status of a workload: none negative, none greater than another.
pub(super) fn counts(errors: &mut Errors, new: &At<'_>, fields: &[&str], bounded: &[&str]) {
    let status = new.field("status");
    for field in fields {
        errors.not_negative(&status, field);
    }
    for field in bounded {
        if status.int(field) > status.int("replicas") {
            errors.invalid(&status.at(field), status.int(field), "cannot be greater than status.replicas");
        }
    }
    if bounded.contains(&"availableReplicas") && status.int("availableReplicas") > status.int("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        errors.invalid(&status.at("availableReplicas"), status.int("availableReplicas"), detail);
    }
}

/// The collision count only grows.
pub(super) fn collisions(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let (now, before) = (new.maybe_int("status.collisionCount"), old.maybe_int("status.collisionCount"));
    if before.is_some_and(|before| now.unwrap_or(0) < before || now.is_none()) {
        errors.invalid(&new.at("status.collisionCount"), now.unwrap_or(0), "cannot be decremented");
    }
}
