//! How the status of a Job may change: what is finished stays finished, what was counted stays counted.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors, Kind, Path};

use super::at::{At, Report};

/// Ranges of a Job's indexes, `1,3-5`: how many there are, or what is wrong.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut last: Option<i64> = None;
    let mut total = 0;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let number = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    match part.split('-').collect::<Vec<_>>().as_slice() {
        [one] => number(one).map(|index| (index, index)),
        [first, end] => {
            let (first, end) = (number(first)?, number(end)?);
            if first >= end {
                return Err(format!("non-increasing order, previous: {first}, current: {end}"));
            }
            Ok((first, end))
        }
        _ => Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

/// The first index that is in both.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let pairs = completed.iter().flat_map(|one| failed.iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.0 <= other.1 && other.0 <= one.1).map(|(one, other)| one.0.max(other.0)).min()
}

/// A mistake whose value would only be in the way.
fn wrong(errors: &mut Errors, path: &Path, detail: impl Into<String>) {
    errors.push(Error::new(Kind::Invalid, path, None, detail));
}

pub(super) fn job_status_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let (status, before) = (new.field("status"), old.field("status"));
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.not_negative(&status, field);
    }
    uncounted(errors, &status.field("uncountedTerminatedPods"));
    let is = |status: &At<'_>, kind: &str| {
        status.items("conditions").any(|one| one.text("type") == kind && one.text("status") == "True")
    };
    let finished = |status: &At<'_>| is(status, "Complete") || is(status, "Failed");
    let turned = |kind: &str| is(&status, kind) != is(&before, kind);
    let changed = |field: &str| status.get(field) != before.get(field);
    let finished_turned = finished(&status) != finished(&before);
    let conditions = status.at("conditions");
    let completion = status.at("completionTime");
    let [complete, failed, target, met] =
        ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].map(|kind| is(&status, kind));

    if (turned("Complete") || turned("Failed")) && complete && failed {
        wrong(errors, &conditions, "cannot set Complete=True and Failed=true conditions");
    }
    if (turned("Complete") || turned("FailureTarget")) && complete && target {
        wrong(errors, &conditions, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if turned("Complete") || changed("completionTime") {
        if status.has("completionTime") && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid(&completion, status.get("completionTime").clone(), detail);
        }
        if !status.has("completionTime") && complete {
            errors.required(&completion, "completionTime is required for Complete jobs");
        }
    }
    // Times of one form sort as text.
    if (changed("startTime") || changed("completionTime"))
        && status.has("startTime")
        && status.has("completionTime")
        && status.text("completionTime") < status.text("startTime")
    {
        let time = status.get("completionTime").clone();
        errors.invalid(&completion, time, "must be equal to or after `startTime`");
    }
    if (turned("Failed") || changed("failedIndexes")) && failed && !target {
        wrong(errors, &conditions, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (turned("Complete") || turned("SuccessCriteriaMet")) && complete && !met {
        wrong(errors, &conditions, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    if (finished_turned || changed("active")) && finished(&status) && status.int("active") > 0 {
        errors.invalid(&status.at("active"), status.int("active"), "active>0 is invalid for finished job");
    }
    let never_ran = new.flag("spec.suspend") && new.maybe_int("spec.completions") == Some(0);
    if (finished_turned || changed("startTime")) && !never_ran && finished(&status) && !status.has("startTime") {
        errors.required(&status.at("startTime"), "startTime is required for finished job");
    }
    let left = status.field("uncountedTerminatedPods");
    if (finished_turned || changed("uncountedTerminatedPods"))
        && finished(&status)
        && !(left.list("succeeded").is_empty() && left.list("failed").is_empty())
    {
        errors.invalid(&left.path, left.value.clone(), "must be empty for finished job");
    }
    indexes(errors, new, &status, changed("completedIndexes"), changed("failedIndexes"));
    if (finished_turned || changed("terminating")) && finished(&status) && status.int("terminating") > 0 {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(&status.at("terminating"), status.int("terminating"), detail);
    }
    if (changed("ready") || changed("active")) && status.int("ready") > status.int("active") {
        errors.invalid(&status.at("ready"), status.int("ready"), "cannot set more ready pods than active");
    }
    if met && failed {
        wrong(errors, &conditions, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if met && target {
        wrong(errors, &conditions, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if new.has("spec.successPolicy") && !met && complete {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        wrong(errors, &conditions, detail);
    }
    for kind in ["Failed", "Complete", "FailureTarget"].into_iter().filter(|kind| is(&before, kind)) {
        if !is(&status, kind) {
            wrong(errors, &conditions, format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    let indexed = new.text("spec.completionMode") == "Indexed";
    let scaled = indexed && new.get("spec.completions") == new.get("spec.parallelism");
    for (field, may) in [("failed", false), ("succeeded", scaled)] {
        if !may && status.int(field) < before.int(field) {
            errors.invalid(&status.at(field), status.int(field), format!("cannot decrease the {field} counter"));
        }
    }
    if status.has("completionTime") && before.has("completionTime") && changed("completionTime") {
        errors.invalid(&completion, status.get("completionTime").clone(), super::at::IMMUTABLE);
    }
    let resumed = is(&before, "Suspended")
        && status.items("conditions").any(|one| one.text("type") == "Suspended" && one.text("status") == "False");
    if changed("startTime") && !resumed && before.has("startTime") && !new.flag("spec.suspend") {
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&status.at("startTime"), status.get("startTime").clone(), detail);
    }
    if is(&before, "SuccessCriteriaMet") && !met {
        wrong(errors, &conditions, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is(&before, "Complete") && !is(&before, "SuccessCriteriaMet") && met {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        wrong(errors, &conditions, detail);
    }
}

fn uncounted(errors: &mut Errors, pods: &At<'_>) {
    let mut seen = HashSet::new();
    for pod in pods.items("succeeded").chain(pods.items("failed")) {
        match pod.value.as_str().unwrap_or_default() {
            "" => errors.invalid(&pod.path, "", "must not be empty"),
            uid if seen.contains(&uid) => errors.duplicate(&pod.path, uid),
            uid => drop(seen.insert(uid)),
        }
    }
}

fn indexes(errors: &mut Errors, job: &At<'_>, status: &At<'_>, completed_changed: bool, failed_changed: bool) {
    let completions = job.maybe_int("spec.completions");
    let (completed, failed) = (status.text("completedIndexes"), status.text("failedIndexes"));
    let per_index = job.has("spec.backoffLimitPerIndex");
    if let Some(completions) = completions {
        let checks = [("completedIndexes", completed_changed), ("failedIndexes", failed_changed && per_index)];
        for (field, _) in checks.into_iter().filter(|(field, checked)| *checked && status.has(field)) {
            if let Err(error) = count_indexes(status.text(field), completions) {
                errors.invalid(&status.at(field), status.text(field), format!("error parsing {field}: {error}"));
            }
        }
    }
    if completed_changed && !completed.is_empty() && job.text("spec.completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&status.at("completedIndexes"), completed, detail);
    }
    if failed_changed && !per_index && status.has("failedIndexes") {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&status.at("failedIndexes"), failed, detail);
    }
    if (failed_changed || completed_changed)
        && let Some(at) = completions.and_then(|completions| overlap(completed, failed, completions))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {at}");
        errors.invalid(&status.at("failedIndexes"), failed, detail);
    }
}
