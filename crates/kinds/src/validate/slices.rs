//! Slices of what a driver offers: devices with attributes, capacities and counters.

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use conductor_machinery::quantity::Quantity;
use serde_json::Value;

use super::at::{At, Report};
use super::common::{csi_driver_name, label, node_selector, quantity, subdomain};
use super::devices::{at_most, text_of, unique};

const ONE_OF: &str = "only one of `sharedCounters` or `devices` is allowed";

pub(super) fn pool_name(errors: &mut Errors, at: &At<'_>, name: &str) {
    let text = at.text(name);
    if text.is_empty() {
        return errors.required(&at.at(name), "");
    }
    if text.len() > 253 {
        errors.push(Error::too_long(&at.at(name), 253));
    }
    for part in text.split('/') {
        subdomain(errors, &at.at(name), part);
    }
}

/// Which of several ways to name nodes are taken; an empty one is an error of its own.
fn node_choices(errors: &mut Errors, at: &At<'_>, empty: &str, flags: &[&str]) -> Vec<String> {
    let mut chosen = Vec::new();
    if at.has("nodeName") {
        match at.text("nodeName") {
            "" => errors.invalid(&at.at("nodeName"), "", empty),
            name => {
                chosen.push("`nodeName`".to_owned());
                subdomain(errors, &at.at("nodeName"), name);
            }
        }
    }
    if at.has("nodeSelector") {
        chosen.push("`nodeSelector`".to_owned());
        node_selector(errors, &at.field("nodeSelector"));
    }
    for flag in flags.iter().filter(|flag| at.has(flag)) {
        if at.flag(flag) {
            chosen.push(format!("`{flag}`"));
        } else {
            errors.invalid(&at.at(flag), false, "must be either unset or set to true");
        }
    }
    chosen
}

pub(super) fn resource_slice(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    let spec = object.field("spec");
    csi_driver_name(errors, &spec.at("driver"), spec.text("driver"));
    let pool = spec.field("pool");
    pool_name(errors, &pool, "name");
    if pool.int("resourceSliceCount") <= 0 {
        errors.invalid(&pool.at("resourceSliceCount"), pool.int("resourceSliceCount"), "must be greater than zero");
    }
    if pool.int("generation") < 0 {
        errors.invalid(&pool.at("generation"), pool.int("generation"), "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        for field in ["spec.pool.name", "spec.driver", "spec.nodeName"] {
            errors.immutable(object, old, field);
        }
    }
    let empty = "must be either unset or set to a non-empty string";
    let chosen = node_choices(errors, &spec, empty, &["allNodes", "perDeviceNodeSelection"]);
    let terms = spec.list("nodeSelector.nodeSelectorTerms");
    if spec.has("nodeSelector") && terms.len() != 1 {
        let path = spec.at("nodeSelector.nodeSelectorTerms");
        errors.invalid(
            &path,
            spec.get("nodeSelector.nodeSelectorTerms").clone(),
            "must have exactly one node selector term",
        );
    }
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match chosen.len() {
        0 => errors.required(&spec.path, one),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", chosen.join(", "));
            errors.invalid(&spec.path, shown, format!("{one}, but multiple fields are set"));
        }
    }
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.invalid(&spec.path, "", ONE_OF);
    }
    let advanced = |device: At<'_>| !device.list("taints").is_empty() || !device.list("consumesCounters").is_empty();
    let most = if spec.items("devices").any(advanced) { 64 } else { 128 };
    if at_most(errors, &spec, "devices", most) {
        for device in spec.items("devices") {
            slice_device(errors, &device, spec.flag("perDeviceNodeSelection"));
        }
        unique(errors, spec.items("devices").map(|device| (device.path.clone(), device.text("name"))));
    }
    if at_most(errors, &spec, "sharedCounters", 8) {
        for set in spec.items("sharedCounters") {
            counters(errors, &set, "name");
        }
        unique(errors, spec.items("sharedCounters").map(|set| (set.path.clone(), set.text("name"))));
    }
}

/// An empty list of the one is one too many beside the other.
pub(super) fn empty(errors: &mut Errors, object: &At<'_>, places: &[&str]) {
    let spec = object.field("spec");
    let said = |field: &str| places.iter().any(|place| place.strip_prefix("/spec/") == Some(field));
    let fields = ["sharedCounters", "devices"];
    if fields.iter().any(|field| said(field)) && fields.iter().all(|field| said(field) || spec.has(field)) {
        errors.invalid(&spec.path, "", ONE_OF);
    }
}

fn counters(errors: &mut Errors, set: &At<'_>, name: &str) {
    match set.text(name) {
        "" => errors.required(&set.at(name), ""),
        text => label(errors, &set.at(name), text),
    }
    let count = set.size("counters");
    if count == 0 {
        errors.required(&set.at("counters"), "");
    } else if count > 32 {
        errors.push(Error::too_many(&set.at("counters"), Some(count), 32));
    } else {
        for (key, _) in set.entries("counters") {
            label(errors, &set.at("counters"), key);
        }
    }
}

fn slice_device(errors: &mut Errors, device: &At<'_>, own_nodes: bool) {
    label(errors, &device.at("name"), device.text("name"));
    let count = device.size("attributes") + device.size("capacity");
    if count > 32 {
        errors.invalid(&device.path, count, "the total number of attributes and capacities must not exceed 32");
    }
    for (key, attribute) in device.entries("attributes") {
        device_name(errors, &device.at("attributes"), key);
        device_attribute(errors, &attribute);
    }
    for (key, capacity) in device.entries("capacity") {
        device_name(errors, &device.at("capacity"), key);
        let policy = capacity.field("requestPolicy");
        if policy.exists() && !device.flag("allowMultipleAllocations") {
            errors.forbidden(&policy.path, "allowMultipleAllocations must be true");
        } else if policy.exists() {
            request_policy(errors, &policy, capacity.get("value"));
        }
    }
    if at_most(errors, device, "taints", 16) {
        for taint in device.items("taints") {
            errors.each(&taint.at("key"), taint.text("key"), names::qualified_name(taint.text("key")));
            errors.each(&taint.at("value"), taint.text("value"), names::label_value(taint.text("value")));
            errors.required_one_of(&taint, "effect", &["NoExecute", "NoSchedule", "None"]);
        }
    }
    if at_most(errors, device, "consumesCounters", 2) {
        for consumption in device.items("consumesCounters") {
            counters(errors, &consumption, "counterSet");
        }
        unique(errors, device.items("consumesCounters").map(|one| (one.path.clone(), one.text("counterSet"))));
    }
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    if own_nodes {
        let chosen = node_choices(errors, device, "must not be empty", &["allNodes"]);
        let one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        match chosen.len() {
            0 => errors.required(&device.path, one),
            1 => {}
            _ => errors.invalid(&device.path, format!("{{{}}}", chosen.join(", ")), one),
        }
    } else if fields.iter().any(|field| device.has(field)) {
        let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        errors.invalid(&device.path, Value::Null, detail);
    }
    binding_conditions(errors, device);
}

pub(super) fn binding_conditions(errors: &mut Errors, device: &At<'_>) {
    let (wanted, fatal) = ("bindingConditions", "bindingFailureConditions");
    for field in [wanted, fatal] {
        if at_most(errors, device, field, 4) {
            for item in device.items(field) {
                errors.each(&item.path, text_of(&item), names::qualified_name(text_of(&item)));
            }
        }
    }
    for field in [wanted, fatal] {
        unique(errors, device.items(field).map(|item| (item.path.clone(), text_of(&item))));
    }
    for item in device.items(fatal).filter(|item| device.list(wanted).contains(item.value)) {
        let detail = "bindingFailureConditions must not overlap with bindingConditions";
        errors.invalid(&item.path, text_of(&item), detail);
    }
    for (field, other) in [(wanted, fatal), (fatal, wanted)] {
        if device.list(field).is_empty() && !device.list(other).is_empty() {
            errors.invalid(
                &device.at(field),
                device.get(field).clone(),
                format!("{field} are required to use {other}"),
            );
        }
    }
}

/// A C identifier, after a domain if there is one.
fn device_name(errors: &mut Errors, path: &Path, name: &str) {
    let identifier = |errors: &mut Errors, id: &str| {
        if id.len() > 32 {
            errors.push(Error::too_long(path, 32));
        }
        errors.each(path, id, names::c_identifier(id));
    };
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => identifier(errors, id),
        [domain, id] => {
            match *domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => csi_driver_name(errors, path, domain),
            }
            match *id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                id => identifier(errors, id),
            }
        }
        _ => {}
    }
}

pub(super) fn full_name(errors: &mut Errors, at: &At<'_>, field: &str) {
    let name = at.text(field);
    device_name(errors, &at.at(field), name);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(&at.at(field), name, detail);
    }
}

fn device_attribute(errors: &mut Errors, attribute: &At<'_>) {
    let fields = ["bool", "int", "string", "version"];
    for field in ["string", "version"] {
        let text = attribute.text(field);
        if field == "version" && attribute.has(field) && !is_semantic_version(text) {
            errors.invalid(&attribute.at(field), text, "must be a string compatible with semver.org spec 2.0.0");
        }
        if text.len() > 64 {
            errors.push(Error::too_long(&attribute.at(field), 64));
        }
    }
    match fields.iter().filter(|field| attribute.has(field)).count() {
        0 => errors.invalid(&attribute.path, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(&attribute.path, attribute.value.clone(), "exactly one value must be specified"),
    }
}

fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, release) = rest.split_once('-').map_or((rest, None), |(core, release)| (core, Some(release)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let numeric = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(number)
        && release.is_none_or(|release| release.split('.').all(|part| word(part) && (!numeric(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn request_policy(errors: &mut Errors, policy: &At<'_>, capacity: &Value) {
    let (values, range) = (policy.list("validValues"), policy.field("validRange"));
    let default = policy.field("default");
    if !values.is_empty() && range.exists() {
        let detail =
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        return errors.forbidden(&policy.path, detail);
    }
    let which = if !values.is_empty() { "validValues" } else { "validRange" };
    if values.is_empty() && !range.exists() {
        return;
    }
    if !default.exists() {
        return errors.required(&default.path, &format!("required when {which} is defined"));
    }
    let (most, chosen) = (quantity(capacity), quantity(default.value));
    if which == "validRange" {
        return request_range(errors, &range, &chosen, &most);
    }
    let path = policy.at("validValues");
    for (i, pair) in values.windows(2).enumerate() {
        if quantity(&pair[0]) > quantity(&pair[1]) {
            let shown = quantity(&pair[1]).to_string();
            errors.invalid(&path.index(i + 1), shown, "values must be sorted in ascending order");
        }
    }
    if values.len() > 10 {
        errors.push(Error::too_many(&path, Some(values.len()), 10));
    } else {
        for (i, value) in values.iter().enumerate().filter(|(_, value)| quantity(value) > most) {
            let detail = format!("option is larger than capacity value: {most}");
            errors.invalid(&path.index(i), quantity(value).to_string(), detail);
        }
    }
    if !values.iter().any(|value| quantity(value) == chosen) {
        errors.invalid(&path, chosen.to_string(), "default value is not valid according to the requestPolicy");
    }
}

fn request_range(errors: &mut Errors, range: &At<'_>, chosen: &Quantity, most: &Quantity) {
    if !range.has("min") {
        return errors.required(&range.at("min"), "required when validRange is defined");
    }
    let low = quantity(range.get("min"));
    if low > *most {
        errors.invalid(&range.at("min"), low.to_string(), format!("min is larger than capacity value: {most}"));
    }
    if *chosen < low {
        errors.invalid(&range.at("min"), chosen.to_string(), format!("default is less than min: {low}"));
    }
    if range.has("max") {
        let high = quantity(range.get("max"));
        if low > high {
            errors.invalid(&range.at("max"), low.to_string(), format!("min is larger than max: {high}"));
        }
        if high > *most {
            errors.invalid(&range.at("max"), high.to_string(), format!("max is larger than capacity value: {most}"));
        }
        if *chosen > high {
            errors.invalid(&range.at("max"), chosen.to_string(), format!("default is more than max: {high}"));
        }
    }
}
