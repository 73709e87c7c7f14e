//! Defaults of the batch and autoscaling groups.

use serde_json::{Value, json};

use super::pod::template_at;
use crate::value::{fill, fill_text, get, get_mut, has, list, list_mut, object_mut, set, size};

pub(super) fn job(job: &mut Value) {
    template_at(job, "spec.template");
    job_spec(job, "spec");
    let labels = get(job, "spec.template.metadata.labels").clone();
    if labels.is_object() && size(job, "metadata.labels") == 0 {
        set(job, "metadata", "labels", labels);
    }
    let by_index = has(job, "spec.backoffLimitPerIndex");
    let policy = if has(job, "spec.podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    if let Some(spec) = object_mut(job, "spec") {
        if spec.get("completions").is_none_or(Value::is_null) && spec.get("parallelism").is_none_or(Value::is_null) {
            spec.insert("completions".to_owned(), json!(1));
        }
        fill(spec, "parallelism", 1);
        fill(spec, "backoffLimit", if by_index { i32::MAX } else { 6 });
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        fill(spec, "podReplacementPolicy", policy);
        fill(spec, "manualSelector", false);
    }
}

fn job_spec(object: &mut Value, path: &str) {
    for rule in list_mut(object, &format!("{path}.podFailurePolicy.rules")) {
        for pattern in list_mut(rule, "onPodConditions") {
            if let Some(pattern) = pattern.as_object_mut() {
                fill_text(pattern, "status", "True");
            }
        }
    }
}

pub(super) fn cron_job(job: &mut Value) {
    template_at(job, "spec.jobTemplate.spec.template");
    job_spec(job, "spec.jobTemplate.spec");
    object_mut(job, "spec.jobTemplate.metadata");
    if let Some(spec) = object_mut(job, "spec") {
        fill_text(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
    }
}

/// One default metric, 80 % of the requested CPU; scaling rules in full as soon as there is any behaviour.
pub(super) fn horizontal_pod_autoscaler(autoscaler: &mut Value) {
    crate::twins::autoscaler::drop_annotations(autoscaler);
    let metric = json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    });
    let no_metrics = list(autoscaler, "spec.metrics").is_empty();
    if let Some(spec) = object_mut(autoscaler, "spec") {
        fill(spec, "minReplicas", 1);
        if no_metrics {
            spec.insert("metrics".to_owned(), json!([metric]));
        }
    }
    if get_mut(autoscaler, "spec.behavior").is_some() {
        let ten = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        scaling_rules(
            autoscaler,
            "scaleUp",
            json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, ten.clone()]),
            Some(0),
        );
        scaling_rules(autoscaler, "scaleDown", json!([ten]), None);
    }
}

fn scaling_rules(autoscaler: &mut Value, direction: &str, policies: Value, window: Option<i64>) {
    if let Some(rules) = object_mut(autoscaler, &format!("spec.behavior.{direction}")) {
        fill(rules, "selectPolicy", "Max");
        fill(rules, "policies", policies);
        if let Some(window) = window {
            fill(rules, "stabilizationWindowSeconds", window);
        }
    }
}
