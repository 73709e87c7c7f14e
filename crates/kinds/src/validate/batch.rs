//! Jobs and CronJobs.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;
use serde_json::{Value, json};

use super::at::{At, IMMUTABLE, Report, same_field};
use super::common::{label_selector, qualified, selects};
use super::pod;
use crate::value::{get, keep, list_mut, remove, set};

pub(super) fn job(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let mut wrong = Errors::new();
    label_selector(&mut wrong, &spec.field("selector"));
    let is_selector = wrong.is_empty();
    if !spec.flag("manualSelector") && spec.has("selector") {
        generated_selector(errors, object, is_selector);
    }
    job_spec(errors, &spec);
    errors.append(&mut wrong);
    job_selector(errors, &spec, is_selector);
    let completions = spec.int("completions");
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let host = format!("{}-{}", object.text("metadata.name"), completions - 1);
        if !names::dns1123_label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(&object.at("metadata.name"), object.text("metadata.name"), detail);
        }
    }
}

/// What a selector that is none would select is not asked.
fn job_selector(errors: &mut Errors, spec: &At<'_>, is_selector: bool) {
    if !spec.has("selector") {
        errors.required(&spec.at("selector"), "");
    }
    let labels = spec.get("template.metadata.labels");
    if is_selector && !selects(spec.get("selector"), labels) {
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&spec.at("template.metadata.labels"), labels.clone(), detail);
    }
}

fn generated_selector(errors: &mut Errors, object: &At<'_>, is_selector: bool) {
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
    if is_selector && !selects(object.get("spec.selector"), &generated) {
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
        if spec.has("successPolicy") {
            success_policy(errors, spec);
        }
        if spec.int("parallelism") > 100_000 {
            let detail = "must be less than or equal to 100000 when completion mode is Indexed";
            errors.invalid(&spec.at("parallelism"), spec.int("parallelism"), detail);
        }
        if spec.has("completions") && spec.int("maxFailedIndexes") > spec.int("completions") {
            let detail = "must be less than or equal to completions";
            errors.invalid(&spec.at("maxFailedIndexes"), spec.int("maxFailedIndexes"), detail);
        }
        if spec.int("maxFailedIndexes") > 100_000 {
            let detail = "must be less than or equal to 100000";
            errors.invalid(&spec.at("maxFailedIndexes"), spec.int("maxFailedIndexes"), detail);
        }
        if spec.int("completions") > 100_000 && spec.has("backoffLimitPerIndex") {
            many_indexes(errors, spec);
        }
    } else if matches!(spec.get("completionMode").as_str(), None | Some("NonIndexed")) {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(field) {
                errors.invalid(&spec.at(field), spec.get(field).clone(), "requires indexed completion mode");
            }
        }
    }
    if spec.text("completionMode") != "Indexed" && spec.has("successPolicy") {
        let policy = spec.get("successPolicy").clone();
        errors.invalid(&spec.at("successPolicy"), policy, "requires indexed completion mode");
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

/// Whether failures of each of so many indexes can be kept count of.
fn many_indexes(errors: &mut Errors, spec: &At<'_>) {
    if !spec.has("maxFailedIndexes") {
        errors.required(&spec.at("maxFailedIndexes"), "must be specified when completions is above 100000");
    }
    let detail =
        "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
    for field in ["parallelism", "maxFailedIndexes"] {
        if spec.int(field) > 10_000 {
            errors.invalid(&spec.at(field), spec.int(field), detail);
        }
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
        let conditions = rule.list("onPodConditions").len();
        if conditions > 20 {
            errors.push(Error::too_many(&rule.at("onPodConditions"), Some(conditions), 20));
        }
        for condition in rule.items("onPodConditions") {
            qualified(errors, &condition.at("type"), condition.text("type"));
            errors.required_one_of(&condition, "status", &["False", "True", "Unknown"]);
        }
        let codes = rule.field("onExitCodes");
        if codes.exists() {
            match codes.text("operator") {
                "" => errors.required(&codes.at("operator"), "valid values: [\"In\" \"NotIn\"]"),
                operator if !["In", "NotIn"].contains(&operator) => {
                    errors.not_supported(&codes.at("operator"), operator, &["In", "NotIn"]);
                }
                _ => {}
            }
            exit_codes(errors, spec, &codes);
        }
        let detail = match (codes.exists(), conditions > 0) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(Error::new(conductor_machinery::field::Kind::Invalid, &rule.path, None, detail));
    }
}

fn exit_codes(errors: &mut Errors, spec: &At<'_>, codes: &At<'_>) {
    let name = codes.text("containerName");
    let known = ["template.spec.containers", "template.spec.initContainers"]
        .iter()
        .any(|list| spec.list(list).iter().any(|container| crate::value::text(container, "name") == name));
    if codes.has("containerName") && !known {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&codes.at("containerName"), name, detail);
    }
    match codes.list("values").len() {
        0 => errors.invalid(&codes.at("values"), codes.get("values").clone(), "at least one value is required"),
        count if count > 255 => errors.push(Error::too_many(&codes.at("values"), Some(count), 255)),
        _ => {}
    }
    let (mut seen, mut known) = (Vec::new(), HashSet::new());
    for value in codes.items("values") {
        let code = value.value.as_i64().unwrap_or(0);
        if codes.text("operator") == "In" && code == 0 {
            errors.invalid(&value.path, code, "must not be 0 for the In operator");
        }
        if !known.insert(code) {
            errors.duplicate(&value.path, code);
        }
        seen.push(code);
    }
    if !seen.is_sorted() {
        errors.invalid(&codes.at("values"), codes.get("values").clone(), "must be ordered");
    }
}

fn success_policy(errors: &mut Errors, spec: &At<'_>) {
    let policy = spec.field("successPolicy");
    let count = policy.list("rules").len();
    if count == 0 {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&policy.at("rules"), detail);
    }
    if count > 20 {
        errors.push(Error::too_many(&policy.at("rules"), Some(count), 20));
    }
    for rule in policy.items("rules") {
        if !rule.has("succeededCount") && !rule.has("succeededIndexes") {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(&rule.path, detail);
        }
        let completions = spec.int("completions");
        let mut indexes = 0;
        if let Some(text) = rule.get("succeededIndexes").as_str() {
            let path = rule.at("succeededIndexes");
            if text.len() > 64 * 1024 {
                errors.push(Error::too_long(&path, 64 * 1024));
            }
            match super::job_status::count_indexes(text, completions) {
                Ok(count) => indexes = count,
                Err(error) => errors.invalid(&path, text, format!("error parsing succeededIndexes: {error}")),
            }
        }
        errors.not_negative(&rule, "succeededCount");
        if rule.has("succeededIndexes") && rule.int("succeededCount") > indexes {
            let detail = format!(
                "must be less than or equal to {indexes} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&rule.at("succeededCount"), rule.int("succeededCount"), detail);
        }
        if rule.int("succeededCount") > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(&rule.at("succeededCount"), rule.int("succeededCount"), detail);
        }
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

/// The template of a Job that is suspended, never began or is known to have been halted, and runs nothing may be told other resources and another place.
fn job_template_update(errors: &mut Errors, spec: &At<'_>, old: &At<'_>) {
    let mut before = old.get("spec.template").clone();
    let now = spec.get("template");
    let status = old.field("status");
    let is_suspended =
        status.items("conditions").any(|one| one.text("type") == "Suspended" && one.text("status") == "True");
    let stands = is_suspended || !status.has("startTime");
    if old.flag("spec.suspend") && stands && old.int("status.active") == 0 {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            carry(&mut before, now, "spec", field);
        }
        for field in ["annotations", "labels"] {
            carry(&mut before, now, "metadata", field);
        }
        carry_node_affinity(&mut before, now);
        for kind in ["spec.containers", "spec.initContainers"] {
            for (before, now) in list_mut(&mut before, kind).iter_mut().zip(crate::value::list(now, kind)) {
                keep(before, now, "resources");
            }
        }
        // what else its metadata says is nobody's concern
        if get(now, "spec") != get(&before, "spec") {
            errors.invalid(&spec.at("template.spec"), get(now, "spec").clone(), IMMUTABLE);
        }
        return;
    }
    if !same_field("template", now, &before) {
        errors.invalid(&spec.at("template"), now.clone(), IMMUTABLE);
    }
}

/// What else there is to affinity stays.
fn carry_node_affinity(before: &mut Value, now: &Value) {
    let is_there = |template: &Value| get(template, "spec").get("affinity").is_some();
    if is_there(now) && !is_there(before) {
        set(before, "spec", "affinity", json!({}));
    }
    carry(before, now, "spec.affinity", "nodeAffinity");
    if !is_there(now) && get(before, "spec.affinity") == &json!({}) {
        remove(before, "spec", "affinity");
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

/// The names of all time zones, one a line.
const ZONES: &str = include_str!("../../data/timezones.txt");

fn time_zone(errors: &mut Errors, spec: &At<'_>) {
    let Some(zone) = spec.get("timeZone").as_str() else { return };
    let path = spec.at("timeZone");
    if zone.is_empty() {
        return errors.invalid(&path, zone, "timeZone must be nil or non-empty string");
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(&path, zone, detail);
    }
    // Go knows its own.
    if !matches!(zone, "Local" | "UTC") && !ZONES.lines().any(|known| known == zone) {
        errors.invalid(&path, zone, format!("unknown time zone {zone}"));
    }
}
