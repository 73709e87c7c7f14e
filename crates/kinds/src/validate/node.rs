//! Nodes, Leases, Events.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors, Path, quote};
use conductor_machinery::names;
use serde_json::{Value, json};

use super::at::{At, Report, same_field};
use super::common::{cidr, qualified, resource_amount};

pub(super) const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn node(errors: &mut Errors, object: &At<'_>) {
    taints(errors, object);
    node_resources(errors, object);
    declared_features(errors, object);
    if let Some(swap) = object.maybe_int("status.nodeInfo.swap.capacity").filter(|swap| *swap <= 0) {
        errors.invalid(&object.at("metadata.nodeSwapStatus.capacity"), swap, "must be greater than zero");
    }
    let blocks = object.list("spec.podCIDRs");
    for block in object.items("spec.podCIDRs") {
        cidr(errors, &block.path, block.value.as_str().unwrap_or(""), &[]);
    }
    let bad = |block: &&Value| {
        let mut wrong = Errors::new();
        cidr(&mut wrong, &Path::empty(), block.as_str().unwrap_or_default(), &[]);
        !wrong.is_empty()
    };
    if blocks.len() > 1
        && let Some(at) = blocks.iter().position(|block| bad(&block))
    {
        let text = blocks[at].as_str().unwrap_or_default();
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})"
        );
        errors.push(Error::internal(&object.at("spec.podCIDRs"), detail));
    }
    let six = blocks.iter().filter_map(Value::as_str).filter(|block| block.contains(':')).count();
    if blocks.len() > 1 && (six != 1 || blocks.len() > 2) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(&object.at("spec.podCIDRs"), blocks.to_vec(), detail);
    }
}

/// Both the object and its status are checked the same way on update.
pub(super) fn node_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    node_resources(errors, new);
    declared_features(errors, new);
    let mut seen = HashSet::new();
    for address in new.items("status.addresses") {
        if !seen.insert((address.text("type"), address.text("address"))) {
            errors.duplicate(&address.path, address.value.clone());
        }
    }
    let path = new.at("spec.podCIDRs");
    let (now, before) = (new.list("spec.podCIDRs"), old.list("spec.podCIDRs"));
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    if !before.is_empty() {
        if before.len() != now.len() {
            errors.forbidden(&path, detail);
        } else {
            for _ in now.iter().zip(before).filter(|(now, before)| now != before) {
                errors.forbidden(&path, detail);
            }
        }
    }
    let provider = old.text("spec.providerID");
    if !provider.is_empty() && provider != new.text("spec.providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&new.at("spec.providerID"), detail);
    }
    taints(errors, new);
    if new.text("spec.externalID") != old.text("spec.externalID") {
        errors.forbidden(&new.at("spec.externalID"), "may not be updated");
    }
}

fn node_resources(errors: &mut Errors, object: &At<'_>) {
    for field in ["capacity", "allocatable"] {
        let path = Path::root("status").child(field);
        for (name, amount) in object.entries(&format!("status.{field}")) {
            resource_amount(errors, &path.child(name), name, amount.value);
        }
    }
}

/// Names of features stand in order, each once.
fn declared_features(errors: &mut Errors, object: &At<'_>) {
    let mut before = None;
    for feature in object.items("status.declaredFeatures") {
        let name = feature.value.as_str().unwrap_or_default();
        match before {
            Some(before) if before == name => errors.duplicate(&feature.path, name),
            Some(before) if before > name => errors.invalid(&feature.path, name, "list must be sorted alphabetically"),
            _ => {}
        }
        before = Some(name);
        let wrong = if name.len() > names::SUBDOMAIN_MAX {
            format!("must be no more than {} characters", names::SUBDOMAIN_MAX)
        } else if !is_feature(name) {
            "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or \
             MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                .to_owned()
        } else {
            continue;
        };
        errors.invalid(&feature.path, name, format!("invalid feature name {}: {wrong}", quote(name)));
    }
}

fn is_feature(name: &str) -> bool {
    let segment = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric())
    };
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(segment)
}

fn taints(errors: &mut Errors, object: &At<'_>) {
    let path = Path::root("metadata").child("taints");
    let mut seen = HashSet::new();
    for (i, taint) in object.list("spec.taints").iter().enumerate() {
        let taint = At::new(taint, path.index(i));
        let (key, effect) = (taint.text("key"), taint.text("effect"));
        qualified(errors, &taint.at("key"), key);
        let messages = names::label_value(taint.text("value"));
        if !messages.is_empty() {
            errors.invalid(&taint.at("value"), taint.text("value"), messages.join(";"));
        }
        errors.required_one_of(&taint, "effect", TAINT_EFFECTS);
        if seen.contains(&(key, effect)) {
            errors.duplicate(&taint.path, taint.value.clone());
            if let Some(last) = errors.last_mut() {
                last.detail = "taints must be unique by key and effect pair".to_owned();
            }
            continue;
        }
        seen.insert((key, effect));
    }
}

pub(super) fn lease(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    if spec.maybe_int("leaseDurationSeconds").is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&spec.at("leaseDurationSeconds"), spec.int("leaseDurationSeconds"), "must be greater than 0");
    }
    if spec.int("leaseTransitions") < 0 {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&spec.at("leaseTransitions"), spec.int("leaseTransitions"), detail);
    }
    if spec.has("strategy") {
        let strategy = spec.text("strategy");
        let path = spec.at("strategy").child("strategy");
        if strategy.contains('/') {
            qualified(errors, &path, strategy);
        } else if strategy != "OldestEmulationVersion" {
            errors.not_supported(&path, strategy, &["OldestEmulationVersion"]);
        }
    }
    if !spec.text("preferredHolder").is_empty() && spec.text("strategy").is_empty() {
        errors.forbidden(&spec.at("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

/// Events are checked in the form of the core group, whichever group the client speaks to; the newer one asks for more.
pub(super) fn event(errors: &mut Errors, object: &At<'_>, group: &str) {
    legacy_event(errors, object, group);
    if !group.is_empty() {
        strict_event(errors, object);
    }
}

fn legacy_event(errors: &mut Errors, object: &At<'_>, group: &str) {
    let namespace = object.text("metadata.namespace");
    let involved = object.get("involvedObject");
    let about = crate::value::text(involved, "namespace");
    let timed = object.has("eventTime");
    let wrong = match (timed, about) {
        (false, "") => !namespace.is_empty() && namespace != "default",
        (false, about) => namespace != about,
        (true, "") => namespace != "default" && namespace != "kube-system",
        (true, _) => false,
    };
    if wrong {
        errors.invalid(&Path::root("involvedObject").child("namespace"), about, "does not match event.namespace");
    }
    if timed {
        let controller = object.text("reportingComponent");
        let called = Path::root(if group.is_empty() { "reportingComponent" } else { "reportingController" });
        if controller.is_empty() {
            errors.required(&called, "");
        }
        qualified(errors, &called, controller);
        for field in ["reportingInstance", "action", "reason"] {
            errors.required_text(object, field);
            if object.text(field).len() > 128 {
                errors.invalid(&object.at(field), "", "can have at most 128 characters");
            }
        }
        if object.text("message").len() > 1024 {
            errors.invalid(&Path::root("message"), "", "can have at most 1024 characters");
        }
    }
    errors.each(&Path::root("namespace"), namespace, names::dns1123_subdomain(namespace));
}

fn strict_event(errors: &mut Errors, object: &At<'_>) {
    event_series(errors, object);
    if !object.has("eventTime") {
        errors.required(&object.at("eventTime"), "");
    }
    if !matches!(object.text("type"), "Normal" | "Warning") {
        errors.invalid(&object.at("type"), "", format!("has invalid value: {}", object.text("type")));
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if object.has(field) {
            errors.invalid(&object.at(field), "", "needs to be unset");
        }
    }
    if object.int("count") != 0 {
        errors.invalid(&Path::root("count"), "", "needs to be unset");
    }
    let source = object.get("source");
    if ["component", "host"].iter().any(|field| !crate::value::text(source, field).is_empty()) {
        errors.invalid(&Path::root("source"), "", "needs to be unset");
    }
}

fn event_series(errors: &mut Errors, object: &At<'_>) {
    let series = object.field("series");
    if series.exists() {
        if series.int("count") < 2 {
            errors.invalid(&series.at("count"), "", "should be at least 2");
        }
        if !series.has("lastObservedTime") {
            errors.required(&series.at("lastObservedTime"), "");
        }
    }
}

/// An Event of the core group may change as long as it stays valid; one of its own group changes in its series only.
pub(super) fn event_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>, group: &str) {
    legacy_event(errors, new, group);
    if group.is_empty() {
        return;
    }
    if !same_field("series", new.get("series"), old.get("series")) {
        event_series(errors, new);
    }
    for (field, called) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        if !same_field(field, new.get(field), old.get(field)) {
            let text =
                ["reason", "message", "type", "action", "reportingComponent", "reportingInstance"].contains(&field);
            let value = if text { json!(new.text(field)) } else { new.get(field).clone() };
            errors.invalid(&Path::root(called), value, super::at::IMMUTABLE);
        }
    }
}
