//! What a Pod's status may say, and become.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use serde_json::Value;

use super::annotations::annotation_updates;
use crate::validate::at::{At, IMMUTABLE, Report};
use crate::validate::common::{ip, label, subdomain};
use crate::value::{get, list, text};

/// How a device may be.
const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
/// As many bytes may be said about a device.
const MESSAGE_MAX: usize = 1024;

pub(crate) fn pod_status_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    annotation_updates(errors, new, old);
    let status = new.field("status");
    for condition in status.items("conditions") {
        if condition.int("observedGeneration") < 0 {
            let value = condition.int("observedGeneration");
            errors.invalid(&condition.at("observedGeneration"), value, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.each(&condition.at("Type"), kind, names::qualified_name(kind));
        }
    }
    if new.text("spec.nodeName") != old.text("spec.nodeName") {
        errors.forbidden(&status.at("nodeName"), "may not be changed directly");
    }
    let (nominated, before) = (status.text("nominatedNodeName"), old.text("status.nominatedNodeName"));
    if !nominated.is_empty() && nominated != before {
        subdomain(errors, &status.at("nominatedNodeName"), nominated);
        if !old.text("spec.nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.forbidden(&status.at("nominatedNodeName"), detail);
        }
    }
    if status.int("observedGeneration") < 0 {
        let value = status.int("observedGeneration");
        errors.invalid(&status.at("observedGeneration"), value, "must be a non-negative integer");
    }
    if status.text("qosClass") != old.text("status.qosClass") {
        errors.invalid(&status.at("qosClass"), status.text("qosClass"), IMMUTABLE);
    }
    for (statuses, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        no_resurrection(errors, new, old, statuses, containers);
    }
    claims(errors, new);
    extended_claim(errors, new);
    addresses(errors, new, old, "podIPs");
    let first = status.list("hostIPs").first().map(|address| text(address, "ip"));
    if let Some(first) = first.filter(|first| *first != status.text("hostIP")) {
        errors.invalid(&status.at("hostIPs").index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    addresses(errors, new, old, "hostIPs");
    for (statuses, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        let own = containers.map(|list| by_name(new.field("spec").list(list)));
        for container in status.items(statuses) {
            user(errors, &container, new.text("spec.os.name"));
            match &own {
                Some(own) => devices(errors, &container, own.get(container.text("name")).copied()),
                None if container.list("allocatedResourcesStatus").is_empty() => {}
                None => {
                    let path = container.at("allocatedResourcesStatus");
                    errors.forbidden(&path, "must not be specified in container status");
                }
            }
        }
    }
}

/// Containers by their names, the first of each.
fn by_name(containers: &[Value]) -> HashMap<&str, &Value> {
    containers.iter().rev().map(|own| (text(own, "name"), own)).collect()
}

/// Who a container runs as.
fn user(errors: &mut Errors, container: &At<'_>, system: &str) {
    let user = container.field("user.linux");
    if !user.exists() {
        return;
    }
    if system == "windows" {
        return errors.forbidden(&user.path, "cannot be set for a windows pod");
    }
    let ids = ["uid", "gid"].map(|field| (user.at(field), user.int(field)));
    let groups = user.items("supplementalGroups").map(|group| (group.path.clone(), group.value.as_i64().unwrap_or(0)));
    for (path, number) in ids.into_iter().chain(groups) {
        for message in names::unix_id(number) {
            errors.invalid(&path, number, message);
        }
    }
}

/// How the devices are that a container has.
fn devices(errors: &mut Errors, container: &At<'_>, own: Option<&Value>) {
    if container.list("allocatedResourcesStatus").is_empty() {
        return;
    }
    let claimed: HashSet<String> = own.map(claimed_devices).unwrap_or_default();
    for resource in container.items("allocatedResourcesStatus") {
        let name = resource.text("name");
        let (has, detail) = if name.starts_with("claim:") {
            let detail = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                'claim:<claimName>' if request is empty";
            (claimed.contains(name), detail)
        } else {
            let requested = own.is_some_and(|own| get(own, "resources.requests").get(name).is_some());
            (requested, "must match one of the container's resource requests")
        };
        if own.is_some() && !has {
            errors.invalid(&resource.at("name"), name, detail);
        }
        let mut seen = HashSet::new();
        for device in resource.items("resources") {
            if !HEALTH.contains(&device.text("health")) {
                errors.not_supported(&device.at("health"), device.text("health"), HEALTH);
            }
            if device.has("message") {
                match device.text("message").len() {
                    0 => errors.required(&device.at("message"), "must be non-empty if specified"),
                    length if length > MESSAGE_MAX => errors.push(Error::too_long(&device.at("message"), MESSAGE_MAX)),
                    _ => {}
                }
            }
            if !seen.insert(device.text("resourceID")) {
                errors.duplicate(&device.at("resourceID"), device.text("resourceID"));
            }
        }
    }
}

fn claimed_devices(container: &Value) -> HashSet<String> {
    let claims = list(container, "resources.claims").iter();
    claims
        .map(|claim| match text(claim, "request") {
            "" => format!("claim:{}", text(claim, "name")),
            request => format!("claim:{}/{request}", text(claim, "name")),
        })
        .collect()
}

/// The ResourceClaims made for the Pod.
fn claims(errors: &mut Errors, pod: &At<'_>) {
    let asked: HashSet<&str> = pod.list("spec.resourceClaims").iter().map(|asked| text(asked, "name")).collect();
    let mut seen = HashSet::new();
    for claim in pod.items("status.resourceClaimStatuses") {
        let name = claim.text("name");
        if !asked.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&claim.at("name"), name, detail);
        }
        if !seen.insert(name) {
            errors.duplicate(&claim.at("name"), name);
        }
        if claim.has("resourceClaimName") {
            subdomain(errors, &claim.at("resourceClaimName"), claim.text("resourceClaimName"));
        }
    }
}

/// The ResourceClaim made for what containers ask for by the names of extended resources.
fn extended_claim(errors: &mut Errors, pod: &At<'_>) {
    let status = pod.field("status.extendedResourceClaimStatus");
    if !status.exists() {
        return;
    }
    if status.list("requestMappings").is_empty() {
        errors.required(&status.at("requestMappings"), "at least one request mapping is required");
    }
    let mut containers: HashMap<&str, &Value> = HashMap::new();
    for container in pod.list("spec.initContainers").iter().chain(pod.list("spec.containers")) {
        containers.insert(text(container, "name"), container);
    }
    let mut seen = HashSet::new();
    for mapping in status.items("requestMappings") {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|field| mapping.text(field));
        match containers.get(container) {
            Some(own) if get(own, "resources.requests").get(resource).is_none() => {
                let detail = "must match the extended resource name of an entry in \
                    spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.invalid(&mapping.at("resourceName"), resource, detail);
            }
            Some(_) => {}
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&mapping.at("containerName"), container, detail);
            }
        }
        label(errors, &status.at("requestName"), request);
        if !seen.insert((container, resource, request)) {
            errors.duplicate(&mapping.at("containerName"), container);
            errors.duplicate(&mapping.at("resourceName"), resource);
            errors.duplicate(&mapping.at("requestName"), request);
        }
    }
    match status.text("resourceClaimName") {
        "" => errors.required(&status.at("resourceClaimName"), ""),
        name => subdomain(errors, &status.at("resourceClaimName"), name),
    }
}

fn addresses(errors: &mut Errors, new: &At<'_>, old: &At<'_>, field: &str) {
    let path = Path::root("status").child(field);
    let of = |pod: &At<'_>| -> Vec<String> {
        pod.list(&format!("status.{field}")).iter().map(|address| text(address, "ip").to_owned()).collect()
    };
    let (now, before) = (of(new), of(old));
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    for (i, address) in now.iter().enumerate() {
        ip(errors, &path.index(i), address, &before);
    }
    if now.len() < 2 {
        return;
    }
    let parsed: Vec<Option<IpAddr>> = now.iter().map(|address| names::ip::parse(address)).collect();
    let wrong = parsed.iter().position(Option::is_none);
    if let Some(wrong) = wrong {
        let why = format!("failed to check for dual stack with error:invalid IP[{wrong}]: {}", now[wrong]);
        errors.push(Error::internal(&path, why));
    }
    let six = parsed.iter().flatten().filter(|address| address.to_canonical().is_ipv6()).count();
    if wrong.is_some() || six != 1 || now.len() > 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(&path, new.get(&format!("status.{field}")).clone(), detail);
    }
}

/// A container that ended for good does not come back.
fn no_resurrection(errors: &mut Errors, new: &At<'_>, old: &At<'_>, statuses: &str, containers: Option<&str>) {
    let path = Path::root("status").child(statuses);
    let field = format!("status.{statuses}");
    let now = new.list(&field).iter().filter(|now| get(now, "state.terminated").is_null());
    let now: HashSet<&str> = now.map(|now| text(now, "name")).collect();
    let own = containers.map(|list| by_name(old.field("spec").list(list)));
    for (i, before) in old.list(&field).iter().enumerate() {
        let ended = get(before, "state.terminated");
        if ended.is_null() {
            continue;
        }
        let name = text(before, "name");
        let code = get(ended, "exitCode").as_i64().unwrap_or(0);
        let container = own.as_ref().and_then(|own| own.get(name).copied());
        let may = container.is_some_and(|container| may_restart(old, container, code));
        if now.contains(name) && !may {
            errors.forbidden(&path.index(i).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn may_restart(pod: &At<'_>, container: &Value, code: i64) -> bool {
    for rule in list(container, "restartPolicyRules") {
        let listed = list(rule, "exitCodes.values").iter().any(|value| value.as_i64() == Some(code));
        if listed == (text(rule, "exitCodes.operator") == "In") {
            return true;
        }
    }
    let own = text(container, "restartPolicy");
    match if own.is_empty() { pod.text("spec.restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}
