//! ResourceQuotas and LimitRanges.

use std::collections::BTreeSet;

use conductor_machinery::field::Errors;
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, IMMUTABLE, Report};
use super::common::{
    container_resource_name, is_overcommit_allowed, is_quota_resource, quantity, resource_amount, resource_name,
};
use crate::value::text;

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

pub(super) fn resource_quota(errors: &mut Errors, object: &At<'_>) {
    amounts(errors, object, "spec.hard");
    scopes(errors, object);
    scope_selector(errors, object);
}

pub(super) fn resource_quota_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    resource_quota(errors, new);
    let set = |quota: &At<'_>| -> BTreeSet<String> {
        quota.list("spec.scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(new) != set(old) {
        errors.invalid(&new.at("spec.scopes"), new.get("spec.scopes").clone(), IMMUTABLE);
    }
}

pub(super) fn resource_quota_status_update(errors: &mut Errors, new: &At<'_>) {
    if new.text("metadata.resourceVersion").is_empty() {
        errors.required(&new.at("resourceVersion"), "");
    }
    amounts(errors, new, "status.hard");
    amounts(errors, new, "status.used");
}

fn amounts(errors: &mut Errors, object: &At<'_>, path: &str) {
    for (name, amount) in object.entries(path) {
        resource_name(errors, &amount.path, name);
        if !name.contains('/') && !is_quota_resource(name) {
            errors.invalid(&amount.path, name, "must be a standard resource for quota");
        }
        resource_amount(errors, &amount.path, name, amount.value);
    }
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => matches!(
            resource,
            "pods" | "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
        ),
        _ => true,
    }
}

fn conflict(scopes: &[&str]) -> bool {
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]]
        .iter()
        .any(|pair| pair.iter().all(|scope| scopes.contains(scope)))
}

fn misfits<'a>(object: &'a At<'_>, scope: &'a str) -> usize {
    object.entries("spec.hard").filter(|(name, _)| is_quota_resource(name) && !scope_fits(scope, name)).count()
}

fn scopes(errors: &mut Errors, object: &At<'_>) {
    let path = object.at("spec.scopes");
    let all = object.get("spec.scopes");
    let names: Vec<&str> = object.list("spec.scopes").iter().filter_map(Value::as_str).collect();
    for scope in &names {
        if !SCOPES.contains(scope) {
            errors.invalid(&path, all.clone(), "unsupported scope");
        }
        for _ in 0..misfits(object, scope) {
            errors.invalid(&path, all.clone(), "unsupported scope applied to resource");
        }
    }
    if conflict(&names) {
        errors.invalid(&path, all.clone(), "conflicting scopes");
    }
}

fn scope_selector(errors: &mut Errors, object: &At<'_>) {
    let path = object.at("spec.scopeSelector.matchExpressions");
    let mut names = Vec::new();
    for requirement in object.list("spec.scopeSelector.matchExpressions") {
        let scope = text(requirement, "scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..misfits(object, scope) {
            let detail = "unsupported scope applied to resource";
            errors.invalid(&path, object.get("spec.scopeSelector").clone(), detail);
        }
        let operator = text(requirement, "operator");
        let only_exists = SCOPES.contains(&scope) && !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if only_exists && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&path.child("operator"), operator, detail);
        }
        let values = crate::value::list(requirement, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), values.to_vec(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
        names.push(scope);
    }
    if conflict(&names) {
        errors.invalid(&path, object.get("spec.scopes").clone(), "conflicting scopes");
    }
}

pub(super) fn limit_range(errors: &mut Errors, object: &At<'_>) {
    let mut types = std::collections::HashSet::new();
    for item in object.items("spec.limits") {
        let kind = item.text("type");
        let messages = names::qualified_name(kind);
        if !messages.is_empty() {
            errors.each(&item.at("type"), kind, messages);
        } else if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            errors.invalid(&item.at("type"), kind, "must be a standard limit type or fully qualified");
        }
        if !types.insert(kind) {
            errors.duplicate(&item.at("type"), kind);
        }
        limit_range_item(errors, &item, kind);
    }
}

fn limit_range_item(errors: &mut Errors, item: &At<'_>, kind: &str) {
    let mut fields = vec!["max", "min"];
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if item.size(field) > 0 {
                errors.forbidden(&item.at(field), "may not be specified when `type` is 'Pod'");
            }
        }
    } else {
        fields.extend(["default", "defaultRequest"]);
    }
    fields.push("maxLimitRequestRatio");
    let mut resources = BTreeSet::new();
    for field in &fields {
        for (name, amount) in item.entries(field) {
            if matches!(kind, "Pod" | "Container") {
                container_resource_name(errors, &amount.path, name);
            } else {
                resource_name(errors, &amount.path, name);
            }
            resources.insert(name);
        }
        if *field == "defaultRequest" && kind == "PersistentVolumeClaim" {
            let bounded = ["min", "max"].iter().any(|field| item.get(field).get("storage").is_some());
            if !bounded {
                let detail = "either minimum or maximum storage value is required, but neither was provided";
                errors.required(&item.at("limits"), detail);
            }
        }
    }
    for name in resources {
        limits_agree(errors, item, name, kind == "Pod");
    }
}

/// `min <= defaultRequest <= default <= max`, and a ratio between 1 and `max / min`.
fn limits_agree(errors: &mut Errors, item: &At<'_>, name: &str, pod: bool) {
    let amount = |field: &str| {
        let ignored = pod && matches!(field, "default" | "defaultRequest");
        item.get(field).get(name).filter(|_| !ignored).map(quantity)
    };
    let mut check = |low: &str, high: &str, blame: &str, shown: &str, detail: &str| {
        if let (Some(low), Some(high)) = (amount(low), amount(high))
            && low > high
        {
            let value = amount(shown).map(|q| q.to_string()).unwrap_or_default();
            let detail = detail.replace("{low}", &low.to_string()).replace("{high}", &high.to_string());
            errors.invalid(&item.at(blame).key(name), value, detail);
        }
    };
    check("min", "max", "min", "min", "min value {low} is greater than max value {high}");
    let detail = "min value {low} is greater than default request value {high}";
    check("min", "defaultRequest", "defaultRequest", "defaultRequest", detail);
    let detail = "default request value {low} is greater than max value {high}";
    check("defaultRequest", "max", "defaultRequest", "defaultRequest", detail);
    let detail = "default request value {low} is greater than default limit value {high}";
    check("defaultRequest", "default", "defaultRequest", "defaultRequest", detail);
    check("min", "default", "default", "min", "min value {low} is greater than default value {high}");
    check("default", "max", "default", "max", "default value {low} is greater than max value {high}");
    if let Some(ratio) = item.get("maxLimitRequestRatio").get(name).map(quantity) {
        let path = item.at("maxLimitRequestRatio").key(name);
        if ratio.milli_value() < 1000 {
            errors.invalid(&path, ratio.to_string(), format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (amount("min"), amount("max")) {
            let limit = max.approximate_f64() / min.approximate_f64();
            if ratio.approximate_f64() > limit {
                errors.invalid(&path, ratio.to_string(), format!("ratio {ratio} is greater than max/min = {limit:.6}"));
            }
        }
    }
    if let (Some(default), Some(request)) = (amount("default"), amount("defaultRequest"))
        && !is_overcommit_allowed(name)
        && default != request
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.invalid(&item.at("defaultRequest").key(name), request.to_string(), detail);
    }
}
