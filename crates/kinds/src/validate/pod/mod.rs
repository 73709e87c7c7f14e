//! Pods and the Pod templates of other kinds.

mod annotations;
mod claims;
mod containers;
mod environment;
mod mounts;
mod resize;
mod scheduling;
mod security;
mod status;
mod update;
mod volumes;
mod windows;

use std::collections::{BTreeSet, HashSet};

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, Report};
use super::common::{
    annotations, container_resource_name, ip, is_huge_pages, is_overcommit_allowed, label, labels, quantity,
    resource_amount, resource_name, subdomain,
};
use crate::compute::aggregate;
use annotations::{pod_annotations, profiles_agree};
use claims::{claim_names, resource_claims, used_claims};

pub(super) use resize::resize_update;
pub(super) use scheduling::tolerations;
pub(super) use status::pod_status_update;
pub(super) use update::{ephemeral_containers_update, pod_update};

const NO_POD_CLAIMS: &str = "claims may not be set for Resources at pod-level";

/// All lists of containers a Pod has.
pub(super) const CONTAINERS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

pub(super) fn pod_create(errors: &mut Errors, pod: &At<'_>) {
    pod_object(errors, pod);
    let spec = pod.field("spec");
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(&spec.at("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        errors.forbidden(&spec.at("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    profiles_agree(errors, &pod.field("metadata.annotations"), &spec);
}

/// What holds for a Pod at any time.
fn pod_object(errors: &mut Errors, pod: &At<'_>) {
    let spec = pod.field("spec");
    pod_annotations(errors, &pod.field("metadata.annotations"), &spec);
    pod_spec(errors, &spec, Some(pod));
    if spec.text("serviceAccountName").is_empty() {
        for volume in spec.items("volumes") {
            for source in volume.field("projected").items("sources").filter(|source| source.has("serviceAccountToken"))
            {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&source.at("serviceAccountToken"), detail);
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.items(list) {
            let image = container.text("image");
            if image.trim() != image {
                errors.invalid(&container.at("image"), image, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// A Pod template.
pub(super) fn template(errors: &mut Errors, at: &At<'_>) {
    let (spec, notes) = (at.field("spec"), template_notes(errors, at));
    pod_spec(errors, &spec, None);
    profiles_agree(errors, &notes, &spec);
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(&spec.at("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// The labels and annotations of a Pod template; it returns these.
pub(super) fn template_notes<'a>(errors: &mut Errors, at: &At<'a>) -> At<'a> {
    labels(errors, &At::new(at.get("metadata.labels"), at.at("labels")));
    let notes = At::new(at.get("metadata.annotations"), at.at("annotations"));
    annotations(errors, &notes);
    pod_annotations(errors, &notes, &at.field("spec"));
    notes
}

/// The spec of a Pod (`pod` is it) or of a template.
fn pod_spec(errors: &mut Errors, spec: &At<'_>, pod: Option<&At<'_>>) {
    if !spec.has("terminationGracePeriodSeconds") {
        errors.required(&spec.at("terminationGracePeriodSeconds"), "");
    }
    let name = pod.map_or("", |pod| pod.text("metadata.name"));
    let volumes = volumes::volumes(errors, spec, name, pod.is_some());
    resource_claims(errors, spec);
    containers::containers(errors, spec, &volumes);
    pod_resources(errors, spec);
    if spec.flag("hostNetwork") {
        for container in spec.items("containers") {
            for port in container.items("ports") {
                let (host, inner) = (port.int("hostPort"), port.int("containerPort"));
                if (pod.is_some() || host != 0) && host != inner {
                    let detail = "must match `containerPort` when `hostNetwork` is true";
                    errors.invalid(&port.at("hostPort"), host, detail);
                }
            }
        }
    }
    errors.required_one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"]);
    errors.required_one_of(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    labels(errors, &spec.field("nodeSelector"));
    security::pod_security_context(errors, spec);
    scheduling::affinity(errors, &spec.field("affinity"));
    dns_config(errors, spec);
    for gate in spec.items("readinessGates") {
        let kind = gate.text("conditionType");
        errors.each(&gate.at("conditionType"), kind, names::qualified_name(kind));
    }
    let mut gates = HashSet::new();
    for gate in spec.items("schedulingGates") {
        let name = gate.text("name");
        errors.each(&gate.path, name, names::qualified_name(name));
        if !gates.insert(name) {
            errors.duplicate(&gate.path, name);
        }
    }
    scheduling::topology_spread(errors, spec);
    windows::host_process(errors, spec);
    security::host_users(errors, spec);
    host_names(errors, spec);
    if !spec.text("serviceAccountName").is_empty() {
        subdomain(errors, &spec.at("serviceAccountName"), spec.text("serviceAccountName"));
    }
    if !spec.text("nodeName").is_empty() {
        subdomain(errors, &spec.at("nodeName"), spec.text("nodeName"));
    }
    if let Some(seconds) = spec.maybe_int("activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.invalid(&spec.at("activeDeadlineSeconds"), seconds, names::range_error(1, i32::MAX.into()));
    }
    for field in ["hostname", "subdomain"] {
        if !spec.text(field).is_empty() {
            label(errors, &spec.at(field), spec.text(field));
        }
    }
    scheduling::tolerations(errors, spec);
    for alias in spec.items("hostAliases") {
        ip(errors, &alias.at("ip"), alias.text("ip"), &[]);
        for name in alias.items("hostnames") {
            subdomain(errors, &name.path, name.value.as_str().unwrap_or(""));
        }
    }
    for field in ["priorityClassName", "runtimeClassName"] {
        if spec.has(field) && !(field == "priorityClassName" && spec.text(field).is_empty()) {
            subdomain(errors, &spec.at(field), spec.text(field));
        }
    }
    if spec.has("preemptionPolicy") {
        errors.required_one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    }
    for (name, amount) in spec.entries("overhead") {
        let path = spec.at("overhead.limits").key(name);
        container_resource_name(errors, &path, name);
        resource_amount(errors, &path, name, amount.value);
    }
    file_key_volumes(errors, spec);
    let os = spec.field("os");
    if os.exists() {
        match os.text("name") {
            "" => errors.required(&os.at("name"), ""),
            name @ ("linux" | "windows") => security::operating_system(errors, spec, name),
            other => errors.not_supported(&os.path, other, &["linux", "windows"]),
        }
    }
}

/// Files that variables are read from are in volumes that containers share.
fn file_key_volumes(errors: &mut Errors, spec: &At<'_>) {
    for container in CONTAINERS.iter().flat_map(|list| spec.items(list)) {
        for variable in container.items("env").filter(|variable| variable.has("valueFrom.fileKeyRef")) {
            let path = variable.at("valueFrom.fileKeyRef.volumeName");
            let name = variable.text("valueFrom.fileKeyRef.volumeName");
            match spec.items("volumes").find(|volume| volume.text("name") == name) {
                None => errors.push(Error::not_found(&path, name)),
                Some(volume) if !volume.has("emptyDir") => {
                    errors.invalid(&path, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

fn host_names(errors: &mut Errors, spec: &At<'_>) {
    let name = spec.field("hostnameOverride");
    let Some(text) = name.value.as_str() else { return };
    if spec.flag("setHostnameAsFQDN") {
        errors.forbidden(&name.path, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") {
        errors.forbidden(&name.path, "may not be specified when hostNetwork is true");
    }
    if text.len() > 64 {
        errors.push(Error::too_long(&name.path, 64));
    }
    subdomain(errors, &name.path, text);
}

fn dns_config(errors: &mut Errors, spec: &At<'_>) {
    let config = spec.field("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if !config.exists() {
            return errors.required(&config.path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if config.list("nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&config.at("nameservers"), detail);
        }
    }
    let servers = config.list("nameservers");
    if servers.len() > 3 {
        errors.invalid(&config.at("nameservers"), servers.to_vec(), "must not have more than 3 nameservers");
    }
    for server in config.items("nameservers") {
        ip(errors, &server.path, server.value.as_str().unwrap_or(""), &[]);
    }
    let searches = config.list("searches");
    if searches.len() > 32 {
        errors.invalid(&config.at("searches"), searches.to_vec(), "must not have more than 32 search paths");
    }
    let length: usize = searches.iter().map(|search| search.as_str().map_or(0, str::len) + 1).sum();
    if length > 2049 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&config.at("searches"), searches.to_vec(), detail);
    }
    for search in config.items("searches") {
        let text = search.value.as_str().unwrap_or("");
        if text != "." {
            let text = text.strip_suffix('.').unwrap_or(text);
            errors.each(&search.path, text, names::dns1123_subdomain_with_underscore(text));
        }
    }
    for option in config.items("options").filter(|option| option.text("name").is_empty()) {
        errors.required(&option.path, "must not be empty");
    }
}

/// Requests and limits of a container (or, with `pod_level`, of the Pod itself).
fn resource_requirements(errors: &mut Errors, at: &At<'_>, pod_level: bool, claims: &BTreeSet<&str>) {
    let mut huge = false;
    let mut compute = false;
    for field in ["limits", "requests"] {
        for (name, amount) in at.entries(field) {
            if pod_level {
                let count = errors.len();
                resource_name(errors, &amount.path, name);
                if errors.len() == count && !matches!(name, "cpu" | "memory") && !is_huge_pages(name) {
                    errors.not_supported(&amount.path, name, &["cpu", "hugepages-", "memory"]);
                }
            } else {
                container_resource_name(errors, &amount.path, name);
            }
            resource_amount(errors, &amount.path, name, amount.value);
            if field == "requests" {
                within_limit(errors, at, name, amount.value);
            }
            if is_huge_pages(name) {
                huge = true;
                whole_pages(errors, &amount, name);
            }
            compute |= matches!(name, "cpu" | "memory");
        }
    }
    if huge && !compute {
        errors.forbidden(&at.path, "HugePages require cpu or memory");
    }
    used_claims(errors, at, claims);
}

fn within_limit(errors: &mut Errors, at: &At<'_>, name: &str, request: &Value) {
    let request = quantity(request);
    match at.get("limits").get(name).map(quantity) {
        Some(limit) if request != limit && !is_overcommit_allowed(name) => {
            let detail = format!("must be equal to {name} limit of {limit}");
            errors.invalid(&at.at("requests"), request.to_string(), detail);
        }
        Some(limit) if request > limit => {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(&at.at("requests"), request.to_string(), detail);
        }
        None if !is_overcommit_allowed(name) => {
            errors.required(&at.at("limits"), "Limit must be set for non overcommitable resources");
        }
        _ => {}
    }
}

fn whole_pages(errors: &mut Errors, amount: &At<'_>, name: &str) {
    let page =
        name.strip_prefix("hugepages-").and_then(|size| size.parse::<conductor_machinery::quantity::Quantity>().ok());
    let size = page.and_then(|page| page.as_i64()).filter(|size| *size > 0);
    let value = quantity(amount.value);
    if size.is_none_or(|size| value.value() % size != 0) {
        let detail = format!("{value} is not positive integer multiple of {name}");
        errors.invalid(&amount.path, value.to_string(), detail);
    }
}

/// Resources of the Pod as a whole cover those of its containers.
fn pod_resources(errors: &mut Errors, spec: &At<'_>) {
    let at = spec.field("resources");
    if !at.exists() {
        return;
    }
    if spec.text("os.name") == "windows" {
        return errors.forbidden(&at.path, "may not be set for a windows pod");
    }
    if at.has("claims") {
        errors.forbidden(&at.at("claims"), NO_POD_CLAIMS);
    }
    resource_requirements(errors, &at, true, &claim_names(spec));
    for (name, sum) in aggregate(spec.value, "requests") {
        if let Some(own) = at.get("requests").get(&name).map(quantity)
            && sum > own
        {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(&at.at("requests").key(&name), own.to_string(), detail);
        }
    }
    for (i, container) in spec.list("containers").iter().enumerate() {
        for (name, limit) in crate::value::entries(container, "resources.limits") {
            let limit = quantity(limit);
            if let Some(own) = at.get("limits").get(name).map(quantity).filter(|own| limit > *own) {
                let path = at.at("containers").index(i).key(name).child("limits");
                errors.invalid(&path, limit.to_string(), format!("must be less than or equal to pod limits of {own}"));
            }
        }
    }
}

/// A Pod as a whole may not even claim nothing, and containers that are there for a look have not even none.
pub(super) fn empty<'a>(errors: &mut Errors, spec: &At<'_>, places: impl Iterator<Item = &'a str>) {
    let mut seen = HashSet::new();
    for place in places {
        if place == "resources/claims" && spec.text("os.name") != "windows" {
            errors.forbidden(&spec.at("resources.claims"), NO_POD_CLAIMS);
        }
        let mut steps = place.split('/');
        if let (Some("ephemeralContainers"), Some(index), Some(field)) = (steps.next(), steps.next(), steps.next())
            && let Ok(index) = index.parse()
            && let Some(container) = spec.list("ephemeralContainers").get(index)
            && seen.insert((index, field))
        {
            let at = At::new(container, spec.at("ephemeralContainers").index(index));
            containers::empty(errors, &at, field);
        }
    }
}

/// A binding of a Pod to a node.
pub(super) fn binding(errors: &mut Errors, object: &At<'_>) {
    let target = object.field("target");
    if !matches!(target.text("kind"), "" | "Node") {
        errors.not_supported(&target.at("kind"), target.text("kind"), &["Node", "<empty>"]);
    }
    errors.required_text(&target, "name");
}

fn static_pod_error(detail: &str) -> Errors {
    vec![Error::forbidden(&Path::empty().key(""), detail)]
}
