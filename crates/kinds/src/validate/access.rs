//! Questions whether somebody may do something.

use conductor_machinery::field::{Errors, Path};
use serde_json::Value;

use super::at::{At, Report};

pub(super) fn access_review(errors: &mut Errors, object: &At<'_>, kind: &str) {
    let spec = object.field("spec");
    let (resource, path) = (spec.field("resourceAttributes"), spec.field("nonResourceAttributes"));
    match (resource.exists(), path.exists()) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.invalid(&path.path, path.value.clone(), detail);
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid(&resource.path, Value::Null, detail);
        }
        _ => {}
    }
    if kind != "SelfSubjectAccessReview" && spec.text("user").is_empty() && spec.list("groups").is_empty() {
        errors.invalid(&spec.at("user"), "", "at least one of user or group must be specified");
    }
    for selector in ["fieldSelector", "labelSelector"] {
        selector_attributes(errors, &resource.field(selector));
    }
    let local = kind == "LocalSubjectAccessReview";
    let mut meta = object.get("metadata").as_object().into_iter().flatten();
    let said = |(name, value): (&String, &Value)| {
        !value.is_null() && name != "managedFields" && !(local && name == "namespace")
    };
    if meta.any(said) {
        let detail = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.invalid(&object.at("metadata"), object.get("metadata").clone(), detail);
    }
    if local {
        let namespace = resource.text("namespace");
        if resource.exists() && namespace != object.text("metadata.namespace") {
            errors.invalid(&resource.at("namespace"), namespace, "must match metadata.namespace");
        }
        if path.exists() {
            errors.invalid(&path.path, path.value.clone(), "disallowed on this kind of request");
        }
    }
}

fn selector_attributes(errors: &mut Errors, selector: &At<'_>) {
    if !selector.exists() {
        return;
    }
    let (raw, requirements) = (selector.text("rawSelector"), selector.list("requirements"));
    let at: &Path = &selector.path;
    if !raw.is_empty() && !requirements.is_empty() {
        errors.invalid(&selector.at("rawSelector"), raw, "may not specified at the same time as requirements");
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {at} is specified, requirements or rawSelector is required");
        errors.required(&selector.at("requirements"), &detail);
    }
}
