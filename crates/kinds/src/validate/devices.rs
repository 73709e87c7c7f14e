//! Dynamic resource allocation: claims for devices and classes of devices.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, IMMUTABLE, Report};
use super::common::{csi_driver_name, is_extended, label, subdomain, template_metadata};
use super::slices::full_name;

/// As many requests as a claim may have; as many may be referred to.
pub const MOST_REQUESTS: usize = 32;
/// As many requests as one may choose from.
pub const MOST_ALTERNATIVES: usize = 8;
/// As many selectors as a request or class may have.
pub const MOST_SELECTORS: usize = 32;
/// As many bytes as an expression may have.
pub const LONGEST_EXPRESSION: usize = 10 * 1024;
pub(super) const MOST_CONFIGS: usize = 32;
const LONGEST_PARAMETERS: usize = 10 * 1024;

/// True if a list is not too long. One that is too long is not looked at further.
pub(super) fn at_most(errors: &mut Errors, at: &At<'_>, name: &str, most: usize) -> bool {
    let count = at.list(name).len();
    if count > most {
        errors.push(Error::too_many(&at.at(name), Some(count), most));
    }
    count <= most
}

pub(super) fn unique<'a>(errors: &mut Errors, items: impl Iterator<Item = (Path, &'a str)>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (path, key) in items {
        if seen.contains(&key) {
            errors.duplicate(&path, key);
        }
        seen.insert(key);
    }
}

pub(super) fn text_of<'a>(item: &At<'a>) -> &'a str {
    item.value.as_str().unwrap_or_default()
}

pub(super) fn resource_claim(errors: &mut Errors, object: &At<'_>) {
    device_claim(errors, &object.field("spec.devices"));
}

pub(super) fn resource_claim_template(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    template_metadata(errors, &spec.field("metadata"));
    device_claim(errors, &spec.field("spec.devices"));
}

/// The metadata of a template may not have other fields than labels and annotations, be they empty.
pub(super) fn empty(errors: &mut Errors, template: &At<'_>, places: &[&str]) {
    let metadata = template.field("spec.metadata");
    let fields = places.iter().filter_map(|place| place.strip_prefix("/spec/metadata/"));
    for field in fields.filter(|field| !matches!(*field, "labels" | "annotations")) {
        errors.forbidden(&metadata.at(field), "cannot be set");
    }
}

/// A spec stays as it is. A structure that is there and empty is not the same as none.
pub(super) fn same_spec(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if new.get("spec") != old.get("spec") {
        errors.invalid(&new.at("spec"), new.get("spec").clone(), IMMUTABLE);
    }
}

/// Requests by name, those they may choose from after a slash.
pub(super) fn request_names(claim: &At<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for request in claim.items("requests") {
        let name = request.text("name");
        all.push(name.to_owned());
        all.extend(request.items("firstAvailable").map(|sub| format!("{name}/{}", sub.text("name"))));
    }
    all
}

fn device_claim(errors: &mut Errors, claim: &At<'_>) {
    let requests = request_names(claim);
    if at_most(errors, claim, "requests", MOST_REQUESTS) {
        for request in claim.items("requests") {
            device_request(errors, &request);
        }
        unique(errors, claim.items("requests").map(|one| (one.path.clone(), one.text("name"))));
    }
    if at_most(errors, claim, "constraints", 32) {
        for constraint in claim.items("constraints") {
            request_references(errors, &constraint, &requests);
            if constraint.has("matchAttribute") {
                full_name(errors, &constraint, "matchAttribute");
            } else if constraint.has("distinctAttribute") {
                full_name(errors, &constraint, "distinctAttribute");
            } else {
                let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
                errors.required(&constraint.path, detail);
            }
        }
    }
    if at_most(errors, claim, "config", MOST_CONFIGS) {
        for config in claim.items("config") {
            request_references(errors, &config, &requests);
            configuration(errors, &config);
        }
    }
}

pub(super) fn request_references(errors: &mut Errors, holder: &At<'_>, requests: &[String]) {
    if !at_most(errors, holder, "requests", MOST_REQUESTS) {
        return;
    }
    for item in holder.items("requests") {
        request_reference(errors, &item.path, text_of(&item), requests);
    }
    unique(errors, holder.items("requests").map(|item| (item.path.clone(), text_of(&item))));
}

pub(super) fn request_reference(errors: &mut Errors, path: &Path, name: &str, requests: &[String]) {
    const DETAIL: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() <= 2 {
        parts.iter().for_each(|part| label(errors, path, part));
    }
    if parts.len() > 2 || !requests.iter().any(|request| request == name) {
        errors.invalid(path, name, DETAIL);
    }
}

fn device_request(errors: &mut Errors, request: &At<'_>) {
    label(errors, &request.at("name"), request.text("name"));
    let (first, exactly) = (!request.list("firstAvailable").is_empty(), request.field("exactly"));
    match (first, exactly.exists()) {
        (false, false) => {
            errors.required(&request.path, "exactly one of `exactly` or `firstAvailable` is required");
        }
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(&request.path, Value::Null, detail);
        }
        (false, true) => exact_request(errors, &exactly),
        (true, false) => {
            if at_most(errors, request, "firstAvailable", MOST_ALTERNATIVES) {
                for sub in request.items("firstAvailable") {
                    label(errors, &sub.at("name"), sub.text("name"));
                    exact_request(errors, &sub);
                }
                unique(errors, request.items("firstAvailable").map(|sub| (sub.path.clone(), sub.text("name"))));
            }
        }
    }
}

fn exact_request(errors: &mut Errors, request: &At<'_>) {
    match request.text("deviceClassName") {
        "" => errors.required(&request.at("deviceClassName"), ""),
        name => subdomain(errors, &request.at("deviceClassName"), name),
    }
    selectors(errors, request);
    let (mode, count) = (request.text("allocationMode"), request.int("count"));
    match mode {
        "All" if count != 0 => {
            errors.invalid(&request.at("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => errors.invalid(&request.at("count"), count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        _ => errors.not_supported(&request.at("allocationMode"), mode, &["All", "ExactCount"]),
    }
    if at_most(errors, request, "tolerations", 16) {
        for toleration in request.items("tolerations") {
            device_toleration(errors, &toleration);
        }
    }
}

/// Only that there is an expression; it is compiled elsewhere.
fn selectors(errors: &mut Errors, holder: &At<'_>) {
    if !at_most(errors, holder, "selectors", MOST_SELECTORS) {
        return;
    }
    for selector in holder.items("selectors") {
        if !selector.has("cel") {
            errors.required(&selector.at("cel"), "");
        } else if selector.text("cel.expression").len() > LONGEST_EXPRESSION {
            errors.push(Error::too_long(&selector.at("cel.expression"), LONGEST_EXPRESSION));
        }
    }
}

pub(super) fn configuration(errors: &mut Errors, config: &At<'_>) {
    let opaque = config.field("opaque");
    if !opaque.exists() {
        return errors.required(&opaque.path, "");
    }
    csi_driver_name(errors, &opaque.at("driver"), opaque.text("driver"));
    raw_object(errors, &opaque.field("parameters"));
}

/// An object that only a driver understands.
pub(super) fn raw_object(errors: &mut Errors, at: &At<'_>) {
    match at.value {
        Value::Null => errors.required(&at.path, ""),
        value if value.to_string().len() > LONGEST_PARAMETERS => {
            errors.push(Error::too_long(&at.path, LONGEST_PARAMETERS));
        }
        Value::Object(_) => {}
        _ => errors.invalid(&at.path, "<value omitted>", "must be a valid JSON object"),
    }
}

fn device_toleration(errors: &mut Errors, toleration: &At<'_>) {
    let (key, value) = (toleration.text("key"), toleration.text("value"));
    if !key.is_empty() {
        errors.each(&toleration.at("key"), key, names::qualified_name(key));
    }
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(&toleration.at("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => errors.each(&toleration.at("value"), value, names::label_value(value)),
        _ => errors.required_one_of(toleration, "operator", &["Equal", "Exists"]),
    }
    if !toleration.text("effect").is_empty() {
        errors.one_of(toleration, "effect", &["NoExecute", "NoSchedule", "None"]);
    }
}

pub(super) fn device_class(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    selectors(errors, &spec);
    if at_most(errors, &spec, "config", MOST_CONFIGS) {
        for config in spec.items("config") {
            configuration(errors, &config);
        }
    }
    let name = spec.text("extendedResourceName");
    if spec.has("extendedResourceName") && !is_extended(name) {
        errors.invalid(&spec.at("extendedResourceName"), name, "must be a valid extended resource name");
    }
}
