//! Workloads: the apps and batch groups, ReplicationControllers.

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;
use serde_json::{Value, json};

use super::at::{At, IMMUTABLE, Report, same_field};
use super::common::{
    at_most_all, int_or_percent, int_or_percent_value, is_empty_selector, label, label_selector, qualified, selects,
};
use super::persistent::claim_spec;
use super::pod;
use crate::value::{get, keep, list_mut, remove, same, set};

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
    template_matches(errors, &spec);
    endless_template(errors, &spec, "ReplicaSet");
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
    template_matches(errors, &spec);
    endless_template(errors, &spec, "ReplicaSet");
}

pub(super) fn daemon_set(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    label_selector(errors, &spec.field("selector"));
    let labels = spec.get("template.metadata.labels");
    if !selects(spec.get("selector"), labels) {
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
    let spec = object.field("spec");
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
    if old.is_none() {
        for claim in spec.items("volumeClaimTemplates") {
            claim_spec(errors, &claim.field("spec"));
        }
        if !spec.text("serviceName").is_empty() {
            label(errors, &spec.at("serviceName"), spec.text("serviceName"));
        }
    }
    for field in ["replicas", "minReadySeconds", "ordinals.start"] {
        errors.not_negative(&spec, field);
    }
    selector(errors, &spec, "statefulset");
    template_matches(errors, &spec);
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
    pod::template(errors, &at);
    endless(errors, &spec.field("template"), "StatefulSet");
    if let Some(old) = old {
        stateful_set_changes(errors, object, old);
    }
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

pub(super) fn job(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    if !spec.flag("manualSelector") && spec.has("selector") {
        generated_selector(errors, object);
    }
    job_spec(errors, &spec);
    job_selector(errors, &spec);
    let completions = spec.int("completions");
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let host = format!("{}-{}", object.text("metadata.name"), completions - 1);
        if !names::dns1123_label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(&object.at("metadata.name"), object.text("metadata.name"), detail);
        }
    }
}

fn job_selector(errors: &mut Errors, spec: &At<'_>) {
    if !spec.has("selector") {
        errors.required(&spec.at("selector"), "");
    }
    label_selector(errors, &spec.field("selector"));
    let labels = spec.get("template.metadata.labels");
    if !selects(spec.get("selector"), labels) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&spec.at("template.metadata.labels"), labels.clone(), detail);
    }
}

fn generated_selector(errors: &mut Errors, object: &At<'_>) {
    let (name, uid) = (object.text("metadata.name"), object.text("metadata.uid"));
    if uid.is_empty() {
        errors.required(&object.at("metadata.uid"), "");
    }
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = object.field("spec.template.metadata.labels");
    for (key, value) in expected {
        let detail = format!("must be '{value}'");
        match labels.value.get(key).and_then(Value::as_str) {
            None => errors.required(&labels.path.key(key), &detail),
            Some(found) if found != value => errors.invalid(&labels.path.key(key), labels.value.clone(), detail),
            Some(_) => {}
        }
    }
    let generated: Value = expected.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    if !selects(object.get("spec.selector"), &generated) {
        let selector = object.get("spec.selector").clone();
        errors.invalid(&object.at("spec.selector"), selector, "`selector` not auto-generated");
    }
}

/// The spec of a Job or of the template of one.
fn job_spec(errors: &mut Errors, spec: &At<'_>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(spec, field);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if spec.has("managedBy") {
        errors.extend(names::domain_prefixed_path(&spec.at("managedBy"), spec.text("managedBy")));
        if spec.text("managedBy").len() > 63 {
            errors.push(Error::too_long(&spec.at("managedBy"), 63));
        }
    }
    errors.one_of(spec, "completionMode", &["NonIndexed", "Indexed"]);
    if spec.text("completionMode") == "Indexed" {
        if !spec.has("completions") {
            errors.required(&spec.at("completions"), "when completion mode is Indexed");
        }
        if spec.int("parallelism") > 100_000 {
            let detail = "must be less than or equal to 100000 when completion mode is Indexed";
            errors.invalid(&spec.at("parallelism"), spec.int("parallelism"), detail);
        }
        if spec.has("completions") && spec.int("maxFailedIndexes") > spec.int("completions") {
            let detail = "must be less than or equal to completions";
            errors.invalid(&spec.at("maxFailedIndexes"), spec.int("maxFailedIndexes"), detail);
        }
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if spec.has(field) {
                errors.invalid(&spec.at(field), spec.get(field).clone(), "requires indexed completion mode");
            }
        }
    }
    pod_failure_policy(errors, spec);
    let replacement = spec.text("podReplacementPolicy");
    if spec.has("podReplacementPolicy") {
        let allowed: &[&str] =
            if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        if !allowed.contains(&replacement) {
            errors.not_supported(&spec.at("podReplacementPolicy"), replacement, allowed);
        }
    }
    pod::template(errors, &spec.field("template"));
    let path = spec.at("template.spec.restartPolicy");
    match spec.text("template.spec.restartPolicy") {
        "" | "Always" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if spec.has("podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&path, "OnFailure", detail);
        }
        "OnFailure" => {}
        other => errors.not_supported(&path, other, &["OnFailure", "Never"]),
    }
}

fn pod_failure_policy(errors: &mut Errors, spec: &At<'_>) {
    let policy = spec.field("podFailurePolicy");
    let count = policy.list("rules").len();
    if count > 20 {
        errors.push(Error::too_many(&policy.at("rules"), Some(count), 20));
    }
    for rule in policy.items("rules") {
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        match rule.text("action") {
            "" => errors.required(&rule.at("action"), "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                errors.invalid(&rule.at("action"), "FailIndex", "requires the backoffLimitPerIndex to be set");
            }
            action if !actions.contains(&action) => errors.not_supported(&rule.at("action"), action, &actions),
            _ => {}
        }
        for condition in rule.items("onPodConditions") {
            qualified(errors, &condition.at("type"), condition.text("type"));
            errors.required_one_of(&condition, "status", &["False", "True", "Unknown"]);
        }
        let codes = rule.field("onExitCodes");
        if codes.exists() {
            errors.required_one_of(&codes, "operator", &["In", "NotIn"]);
            if codes.list("values").is_empty() {
                errors.invalid(&codes.at("values"), codes.get("values").clone(), "at least one value is required");
            }
        }
        let conditions = !rule.list("onPodConditions").is_empty();
        let detail = match (codes.exists(), conditions) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(Error::new(conductor_machinery::field::Kind::Invalid, &rule.path, None, detail));
    }
}

pub(super) fn job_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let (spec, old_spec) = (new.field("spec"), old.field("spec"));
    job(errors, new);
    if spec.text("completionMode") == "Indexed" {
        let changed = spec.get("completions") != old_spec.get("completions");
        if changed && spec.has("completions") && spec.int("completions") != spec.int("parallelism") {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.invalid(&spec.at("completions"), spec.int("completions"), detail);
        }
    } else {
        errors.immutable(&spec, &old_spec, "completions");
    }
    errors.immutable(&spec, &old_spec, "selector");
    job_template_update(errors, &spec, old);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        errors.immutable(&spec, &old_spec, field);
    }
}

/// The template of a Job that is suspended and runs nothing may be told other resources and another place.
fn job_template_update(errors: &mut Errors, spec: &At<'_>, old: &At<'_>) {
    let mut before = old.get("spec.template").clone();
    let now = spec.get("template");
    if old.flag("spec.suspend") && old.int("status.active") == 0 {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            carry(&mut before, now, "spec", field);
        }
        for field in ["annotations", "labels"] {
            carry(&mut before, now, "metadata", field);
        }
        carry(&mut before, now, "spec.affinity", "nodeAffinity");
        for kind in ["spec.containers", "spec.initContainers"] {
            for (before, now) in list_mut(&mut before, kind).iter_mut().zip(crate::value::list(now, kind)) {
                keep(before, now, "resources");
            }
        }
    }
    if !same_field("template", now, &before) {
        errors.invalid(&spec.at("template"), now.clone(), IMMUTABLE);
    }
}

fn carry(to: &mut Value, from: &Value, path: &str, field: &str) {
    match get(from, path).get(field) {
        Some(value) => set(to, path, field, value.clone()),
        None => remove(to, path, field),
    }
}

pub(super) fn cron_job(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    let spec = object.field("spec");
    let schedule = spec.text("schedule");
    let path = spec.at("schedule");
    if schedule.is_empty() {
        errors.required(&path, "");
    } else {
        if let Err(detail) = super::cron::check(schedule) {
            errors.invalid(&path, schedule, detail);
        }
        let zoned = schedule.contains("TZ");
        let before = old.is_some_and(|old| old.text("spec.schedule").contains("TZ"));
        if zoned && !before {
            errors.invalid(&path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        } else if zoned && spec.has("timeZone") {
            errors.invalid(&path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
    }
    errors.not_negative(&spec, "startingDeadlineSeconds");
    time_zone(errors, &spec);
    errors.required_one_of(&spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    let template = spec.field("jobTemplate.spec");
    job_spec(errors, &template);
    if template.has("selector") {
        let selector = template.get("selector").clone();
        errors.invalid(&template.at("selector"), selector, "`selector` will be auto-generated");
    }
    if template.flag("manualSelector") {
        errors.not_supported(&template.at("manualSelector"), true, &["nil", "false"]);
    }
    errors.not_negative(&spec, "successfulJobsHistoryLimit");
    errors.not_negative(&spec, "failedJobsHistoryLimit");
    if old.is_none() && object.text("metadata.name").len() > 52 {
        let detail = "must be no more than 52 characters";
        errors.invalid(&object.at("metadata.name"), object.text("metadata.name"), detail);
    }
}

/// A name of a time zone; whether there is such a zone is not known here.
fn time_zone(errors: &mut Errors, spec: &At<'_>) {
    let Some(zone) = spec.get("timeZone").as_str() else { return };
    let path = spec.at("timeZone");
    if zone.is_empty() {
        return errors.invalid(&path, zone, "timeZone must be nil or non-empty string");
    }
    let fine = zone.split('/').all(|part| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
    });
    if !fine {
        return errors.invalid(&path, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(&path, zone, detail);
    }
}
