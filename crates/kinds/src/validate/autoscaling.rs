//! HorizontalPodAutoscalers, as `autoscaling/v2` has them.

use conductor_machinery::field::{Errors, Path};
use conductor_machinery::names;

use super::at::{At, Report};
use super::common::{container_resource_name, label, quantity};

const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// How much an apiVersion must say.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    Unchecked,
    Any,
    WithGroup,
}

pub(super) fn horizontal_pod_autoscaler(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    let spec = object.field("spec");
    let old = old.map(|old| old.field("spec"));
    let zero = old.as_ref().is_some_and(|old| old.maybe_int("minReplicas") == Some(0));
    let bound = i64::from(!zero);
    let lowest = spec.maybe_int("minReplicas");
    if lowest.is_some_and(|lowest| lowest < bound) {
        let detail = format!("must be greater than or equal to {bound}");
        errors.invalid(&spec.at("minReplicas"), spec.int("minReplicas"), detail);
    }
    let highest = spec.int("maxReplicas");
    if highest == 0 {
        errors.required(&spec.at("maxReplicas"), "must be set and greater than 0");
    } else if highest < 0 {
        errors.invalid(&spec.at("maxReplicas"), highest, "must be greater than or equal to 1");
    }
    if lowest.is_some_and(|lowest| highest < lowest) {
        errors.invalid(&spec.at("maxReplicas"), highest, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.field("scaleTargetRef");
    let same = |old: &At<'_>| {
        ["apiVersion", "kind"].iter().all(|name| target.text(name) == old.field("scaleTargetRef").text(name))
    };
    let version = match &old {
        Some(old) if same(old) => Version::Unchecked,
        _ if target.text("kind") == "ReplicationController" => Version::Any,
        _ => Version::WithGroup,
    };
    reference(errors, &target, version);
    let wrong = |metric: At<'_>| {
        metric.text("type") == "Object"
            && api_version(metric.text("object.describedObject.apiVersion"), Version::Any).is_some()
    };
    let described = match &old {
        Some(old) if old.items("metrics").any(wrong) => Version::Unchecked,
        _ => Version::Any,
    };
    for metric in spec.items("metrics") {
        metric_spec(errors, &metric, described);
    }
    let outside = spec.items("metrics").any(|metric| matches!(metric.text("type"), "Object" | "External"));
    if lowest == Some(0) && !outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&spec.at("metrics"), detail);
    }
    for direction in ["scaleUp", "scaleDown"] {
        scaling_rules(errors, &spec.field("behavior").field(direction));
    }
}

pub(super) fn status_update(errors: &mut Errors, new: &At<'_>) {
    let status = new.field("status");
    errors.not_negative(&status, "currentReplicas");
    errors.not_negative(&status, "desiredReplicas");
}

fn path_segment(errors: &mut Errors, at: &At<'_>, name: &str, detail: &str) {
    match at.text(name) {
        "" => errors.required(&at.at(name), detail),
        text => errors.each(&at.at(name), text, names::path_segment_name(text)),
    }
}

fn reference(errors: &mut Errors, reference: &At<'_>, version: Version) {
    path_segment(errors, reference, "kind", "");
    path_segment(errors, reference, "name", "");
    let text = reference.text("apiVersion");
    if let Some(wrong) = api_version(text, version) {
        errors.invalid(&reference.at("apiVersion"), text, wrong);
    }
}

fn api_version(text: &str, version: Version) -> Option<String> {
    let slashes = text.matches('/').count();
    match version {
        Version::Unchecked => None,
        _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {text}")),
        Version::WithGroup if slashes == 0 || text.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn metric_spec(errors: &mut Errors, metric: &At<'_>, version: Version) {
    let kind = metric.text("type");
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    let mut kinds: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
    kinds.sort_unstable();
    if kind.is_empty() {
        errors.required(&metric.at("type"), "must specify a metric source type");
    }
    if expected.is_none() {
        errors.not_supported(&metric.at("type"), kind, &kinds);
    }
    let mut present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        source(errors, first, &metric.field(first), version);
    }
    match expected {
        Some(field) if !metric.has(field) => {
            errors.required(&metric.at(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errors.not_supported(&metric.at("type"), kind, &kinds),
    }
    if present.len() != 1 {
        present.retain(|field| Some(*field) != expected);
        for field in present {
            errors.forbidden(&metric.at(field), "must populate the given metric source only");
        }
    }
}

fn source(errors: &mut Errors, kind: &str, source: &At<'_>, version: Version) {
    let target = source.field("target");
    match kind {
        "resource" if source.text("name").is_empty() => {
            errors.required(&source.at("name"), "must specify a resource name");
        }
        "resource" => {}
        "containerResource" => {
            match source.text("name") {
                "" => errors.required(&source.at("name"), "must specify a resource name"),
                name => container_resource_name(errors, &source.at("name"), name),
            }
            match source.text("container") {
                "" => errors.required(&source.at("container"), "must specify a container"),
                name => label(errors, &source.at("container"), name),
            }
        }
        _ => {
            if kind == "object" {
                reference(errors, &source.field("describedObject"), version);
            }
            path_segment(errors, &source.field("metric"), "name", "must specify a metric name");
        }
    }
    metric_target(errors, &target);
    let (value, average) = (target.has("value"), target.has("averageValue"));
    match kind {
        "object" if !value && !average => {
            errors.required(&target.at("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !value && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&target.at("averageValue"), detail);
        }
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&target.at("value"), detail);
        }
        "pods" if !average => {
            errors.required(&target.at("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" => {
            let share = target.has("averageUtilization");
            if !share && !average {
                let detail = "must set either a target raw value or a target utilization";
                errors.required(&target.at("averageUtilization"), detail);
            }
            if share && average {
                let detail = "may not set both a target raw value and a target utilization";
                errors.forbidden(&target.at("averageValue"), detail);
            }
        }
        _ => {}
    }
}

fn metric_target(errors: &mut Errors, target: &At<'_>) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(&target.at("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&target.at("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if target.has(field) && quantity(target.get(field)).sign() != 1 {
            errors.invalid(&target.at(field), quantity(target.get(field)).to_string(), "must be positive");
        }
    }
    if let Some(share) = target.maybe_int("averageUtilization").filter(|share| *share < 1) {
        errors.invalid(&target.at("averageUtilization"), share, "must be greater than 0");
    }
}

fn scaling_rules(errors: &mut Errors, rules: &At<'_>) {
    if !rules.exists() {
        return;
    }
    let window = rules.int("stabilizationWindowSeconds");
    if window < 0 {
        errors.invalid(&rules.at("stabilizationWindowSeconds"), window, "must be greater than or equal to zero");
    }
    if window > 3600 {
        errors.invalid(&rules.at("stabilizationWindowSeconds"), window, "must be less than or equal to 3600");
    }
    errors.one_of(rules, "selectPolicy", &["Disabled", "Max", "Min"]);
    if rules.list("policies").is_empty() {
        errors.required(&rules.at("policies"), "must specify at least one Policy");
    }
    for policy in rules.items("policies") {
        if !matches!(policy.text("type"), "Pods" | "Percent") {
            errors.not_supported(&policy.at("type"), policy.text("type"), &["Percent", "Pods"]);
        }
        positive(errors, &policy.at("value"), policy.int("value"));
        let period = policy.int("periodSeconds");
        positive(errors, &policy.at("periodSeconds"), period);
        if period > 1800 {
            errors.invalid(&policy.at("periodSeconds"), period, "must be less than or equal to 1800");
        }
    }
    if rules.has("tolerance") && quantity(rules.get("tolerance")).sign() < 0 {
        let tolerance = quantity(rules.get("tolerance")).to_string();
        errors.invalid(&rules.at("tolerance"), tolerance, super::at::NEGATIVE);
    }
}

fn positive(errors: &mut Errors, path: &Path, number: i64) {
    if number <= 0 {
        errors.invalid(path, number, "must be greater than zero");
    }
}
