//! Services.

use std::collections::HashSet;

use conductor_machinery::field::{Errors, Path};
use conductor_machinery::names::ip::parse;
use serde_json::{Value, json};

use super::at::{At, Report, same_field};
use super::common::{PROTOCOLS, cidr, ip, label, labels, port_number, port_number_or_name, qualified, subdomain};
use super::endpoints::endpoint_ip;
use crate::strategy::{is_external, wants_health_check};

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn texts<'a>(at: &At<'a>, name: &str) -> Vec<&'a str> {
    at.list(name).iter().filter_map(Value::as_str).collect()
}

fn is_headless(service: &At<'_>) -> bool {
    texts(service, "spec.clusterIPs") == ["None"]
}

pub(super) fn service(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    topology_annotations(errors, object);
    let spec = object.field("spec");
    let kind = spec.text("type");
    let headless = is_headless(object);
    if spec.list("ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&spec.at("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&spec.at("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => external_name(errors, &spec),
        _ => {}
    }
    let mut names = HashSet::new();
    for port in spec.items("ports") {
        service_port(errors, &port, spec.list("ports").len() > 1, &mut names);
    }
    labels(errors, &spec.field("selector"));
    session_affinity(errors, &spec);
    cluster_ips(errors, &spec, old);
    let before = old.map(|old| texts(old, "spec.externalIPs")).unwrap_or_default();
    for address in spec.items("externalIPs") {
        let text = address.value.as_str().unwrap_or("");
        let count = errors.len();
        ip(errors, &address.path, text, &before);
        if errors.len() == count {
            endpoint_ip(errors, &address.path, text);
        }
    }
    errors.required_one_of(&spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    ports_are_unique(errors, &spec);
    source_ranges(errors, object, old);
    if spec.has("allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden(&spec.at("allocateLoadBalancerNodePorts"), detail);
    }
    if kind == "LoadBalancer" && !spec.has("allocateLoadBalancerNodePorts") {
        errors.required(&Path::root("allocateLoadBalancerNodePorts"), "");
    }
    load_balancer_class(errors, object, None);
    traffic_policies(errors, object, &spec);
}

pub(super) fn service_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if new.text("spec.type") != "ExternalName" && old.text("spec.type") != "ExternalName" {
        cluster_ips_update(errors, new, old);
        ip_families_update(errors, new, old);
    }
    load_balancer_class(errors, new, Some(old));
    if wants_health_check(old.value)
        && wants_health_check(new.value)
        && new.int("spec.healthCheckNodePort") != old.int("spec.healthCheckNodePort")
    {
        errors.forbidden(&new.at("spec.healthCheckNodePort"), "field is immutable");
    }
    service(errors, new, Some(old));
}

pub(super) fn service_status_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let balanced = new.text("spec.type") == "LoadBalancer";
    load_balancer_status(errors, new, old, Some(balanced));
}

/// The addresses a load balancer has; Services also say how traffic arrives at them.
pub(super) fn load_balancer_status(errors: &mut Errors, new: &At<'_>, old: &At<'_>, service: Option<bool>) {
    let status = new.field("status.loadBalancer");
    if service == Some(false) && !status.list("ingress").is_empty() {
        return errors.forbidden(&status.at("ingress"), "may only be used when `spec.type` is 'LoadBalancer'");
    }
    let before: Vec<&str> =
        old.list("status.loadBalancer.ingress").iter().map(|i| crate::value::text(i, "ip")).collect();
    for ingress in status.items("ingress") {
        let address = ingress.text("ip");
        if !address.is_empty() {
            ip(errors, &ingress.at("ip"), address, &before);
        }
        if service.is_some() {
            match (ingress.has("ipMode"), address.is_empty()) {
                (false, false) => errors.required(&ingress.at("ipMode"), "must be specified when `ip` is set"),
                (true, true) => errors.forbidden(&ingress.at("ipMode"), "may not be specified when `ip` is not set"),
                _ => errors.one_of(&ingress, "ipMode", &["Proxy", "VIP"]),
            }
        }
        let host = ingress.text("hostname");
        if !host.is_empty() {
            subdomain(errors, &ingress.at("hostname"), host);
            if parse(host).is_some() {
                errors.invalid(&ingress.at("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}

fn topology_annotations(errors: &mut Errors, object: &At<'_>) {
    let annotation = |key: &str| crate::value::annotation(object.value, key);
    if let (Some(hints), Some(mode)) = (annotation(TOPOLOGY_HINTS), annotation(TOPOLOGY_MODE))
        && hints != mode
    {
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.invalid(&object.at("metadata.annotations").key(TOPOLOGY_MODE), mode, detail);
    }
}

fn external_name(errors: &mut Errors, spec: &At<'_>) {
    for field in ["clusterIPs", "ipFamilies"] {
        if !spec.list(field).is_empty() {
            errors.forbidden(&spec.at(field), "may not be set for ExternalName services");
        }
    }
    if spec.has("ipFamilyPolicy") {
        errors.forbidden(&spec.at("ipFamilyPolicy"), "may not be set for ExternalName services");
    }
    let name = spec.text("externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.required(&spec.at("externalName"), ""),
        name => subdomain(errors, &spec.at("externalName"), name),
    }
}

fn service_port<'a>(errors: &mut Errors, port: &At<'a>, name_required: bool, names: &mut HashSet<&'a str>) {
    let name = port.text("name");
    if name.is_empty() {
        if name_required {
            errors.required(&port.at("name"), "");
        }
    } else {
        label(errors, &port.at("name"), name);
        if !names.insert(name) {
            errors.duplicate(&port.at("name"), name);
        }
    }
    port_number(errors, port, "port");
    errors.required_one_of(port, "protocol", PROTOCOLS);
    port_number_or_name(errors, &port.at("targetPort"), port.get("targetPort"));
    if port.has("appProtocol") {
        qualified(errors, &port.at("appProtocol"), port.text("appProtocol"));
    }
}

fn session_affinity(errors: &mut Errors, spec: &At<'_>) {
    errors.required_one_of(spec, "sessionAffinity", &["ClientIP", "None"]);
    let config = spec.field("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "ClientIP" => {
            let detail = "when session affinity type is ClientIP";
            if !config.exists() {
                errors.required(&config.path, detail);
            } else if !config.has("clientIP") {
                errors.required(&config.at("clientIP"), detail);
            } else if !config.has("clientIP.timeoutSeconds") {
                errors.required(&config.at("clientIP.timeoutSeconds"), detail);
            } else if !(1..=86400).contains(&config.int("clientIP.timeoutSeconds")) {
                let detail = "must be greater than 0 and less than 86400";
                errors.invalid(&config.at("clientIP.timeoutSeconds"), config.int("clientIP.timeoutSeconds"), detail);
            }
        }
        "None" if config.exists() => {
            errors.forbidden(&config.path, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn is_ipv6(address: &str) -> bool {
    parse(address).is_some_and(|address| address.is_ipv6())
}

fn cluster_ips(errors: &mut Errors, spec: &At<'_>, old: Option<&At<'_>>) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let all = texts(spec, "clusterIPs");
    let path = spec.at("clusterIPs");
    match (spec.text("clusterIP"), all.first()) {
        ("", Some(_)) => errors.invalid(&path, json!(all), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(&path, ""),
        (one, Some(first)) if one != *first => errors.invalid(&path, json!(all), "first value must match `clusterIP`"),
        _ => {}
    }
    let mut seen = HashSet::new();
    for family in spec.items("ipFamilies") {
        let name = family.value.as_str().unwrap_or("");
        if !matches!(name, "IPv4" | "IPv6") {
            errors.not_supported(&family.path, name, &["IPv4", "IPv6"]);
        }
        if seen.contains(&name) {
            errors.duplicate(&family.path, name);
        }
        seen.insert(name);
    }
    errors.one_of(spec, "ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let before = old.map(|old| texts(old, "spec.clusterIPs")).unwrap_or_default();
    let mut invalid = false;
    for (i, address) in all.iter().enumerate() {
        if i == 0 && *address == "None" {
            if all.len() > 1 {
                invalid = true;
                errors.invalid(&path, json!(all), "'None' must be the first and only value");
            }
            continue;
        }
        let count = errors.len();
        ip(errors, &path.index(i), address, &before);
        invalid |= errors.len() > count;
    }
    if all.len() > 2 {
        errors.invalid(&path, json!(all), "may only hold up to 2 values");
    }
    if invalid {
        return;
    }
    let six = all.iter().filter(|address| is_ipv6(address)).count();
    if all.len() > 1 && (six == 0 || six == all.len()) {
        errors.invalid(&path, json!(all), "may specify no more than one IP for each IP family");
    }
    if all != ["None"] {
        for (i, (address, family)) in all.iter().zip(spec.list("ipFamilies")).enumerate() {
            let detail = |kind: &str| format!("expected an {kind} value as indicated by `ipFamilies[{i}]`");
            match (family.as_str(), is_ipv6(address)) {
                (Some("IPv4"), true) => errors.invalid(&path.index(i), *address, detail("IPv4")),
                (Some("IPv6"), false) => errors.invalid(&path.index(i), *address, detail("IPv6")),
                _ => {}
            }
        }
    }
}

fn cluster_ips_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let (now, before) = (texts(new, "spec.clusterIPs"), texts(old, "spec.clusterIPs"));
    let path = new.at("spec.clusterIPs");
    let first_changed = !now.is_empty() && !before.is_empty() && now[0] != before[0];
    if now.len() == before.len() {
        for (i, (now_, before)) in now.iter().zip(&before).enumerate() {
            if now_ != before {
                errors.invalid(&path.index(i), json!(now), "may not change once set");
            }
        }
        return;
    }
    if now.is_empty() {
        errors.invalid(&path.index(0), json!(now), "primary clusterIP can not be unset");
    }
    if first_changed {
        errors.invalid(&path.index(0), json!(now), "may not change once set");
    }
    if before.len() > now.len() && now.len() == 1 && new.text("spec.ipFamilyPolicy") != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.invalid(&new.at("spec.ipFamilyPolicy"), new.get("spec.ipFamilyPolicy").clone(), detail);
    }
}

fn ip_families_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if is_headless(new) || is_headless(old) {
        return;
    }
    let (now, before) = (texts(new, "spec.ipFamilies"), texts(old, "spec.ipFamilies"));
    let path = new.at("spec.ipFamilies").index(0);
    if now.len() == before.len() {
        for _ in now.iter().zip(&before).filter(|(now, before)| now != before) {
            errors.invalid(&path, json!(now), "may not change once set");
        }
        return;
    }
    if now.first().zip(before.first()).is_some_and(|(now, before)| now != before) {
        errors.invalid(&path, json!(texts(new, "spec.clusterIPs")), "may not change once set");
    }
    if before.len() > now.len() && now.len() == 1 && new.text("spec.ipFamilyPolicy") != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errors.invalid(&new.at("spec.ipFamilyPolicy"), new.get("spec.ipFamilyPolicy").clone(), detail);
    }
}

fn ports_are_unique(errors: &mut Errors, spec: &At<'_>) {
    if spec.text("type") == "ClusterIP" {
        for port in spec.items("ports").filter(|port| port.int("nodePort") != 0) {
            errors.forbidden(&port.at("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut node_ports = HashSet::new();
    for port in spec.items("ports").filter(|port| port.int("nodePort") != 0) {
        let key = (port.text("protocol"), port.int("nodePort"));
        if !node_ports.insert(key) {
            errors.duplicate(&port.at("nodePort"), key.1);
        }
    }
    let mut ports = HashSet::new();
    for port in spec.items("ports") {
        let key = (port.text("protocol"), port.int("port"));
        if !ports.insert(key) {
            errors.duplicate(&port.path, json!({"port": key.1, "protocol": key.0}));
        }
    }
}

fn source_ranges(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    let balanced = object.text("spec.type") == "LoadBalancer";
    let detail = "may only be used when `type` is 'LoadBalancer'";
    let ranges = texts(object, "spec.loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = object.at("spec.LoadBalancerSourceRanges");
        if !balanced {
            errors.forbidden(&path, detail);
        }
        let before = old.map(|old| texts(old, "spec.loadBalancerSourceRanges")).unwrap_or_default();
        let before: Vec<&str> = before.into_iter().map(str::trim).collect();
        for (i, range) in ranges.iter().enumerate() {
            cidr(errors, &path.index(i), range.trim(), &before);
        }
    } else if let Some(ranges) = crate::value::annotation(object.value, SOURCE_RANGES) {
        let path = object.at("metadata.annotations").key(SOURCE_RANGES);
        if !balanced {
            errors.forbidden(&path, detail);
        }
        let unchanged = old.is_some_and(|old| crate::value::annotation(old.value, SOURCE_RANGES) == Some(ranges));
        if !unchanged && !ranges.trim().is_empty() {
            for range in ranges.trim().split(',') {
                cidr(errors, &path, range.trim(), &[]);
            }
        }
    }
}

fn load_balancer_class(errors: &mut Errors, new: &At<'_>, old: Option<&At<'_>>) {
    let path = new.at("spec.loadBalancerClass");
    let balanced = |service: &At<'_>| service.text("spec.type") == "LoadBalancer";
    if let Some(old) = old.filter(|old| balanced(old) && balanced(new)) {
        let (now, before) = (new.get("spec.loadBalancerClass"), old.get("spec.loadBalancerClass"));
        if !same_field("loadBalancerClass", now, before) {
            errors.invalid(&path, now.clone(), "may not change once set");
        }
    }
    if new.has("spec.loadBalancerClass") {
        if balanced(new) {
            qualified(errors, &path, new.text("spec.loadBalancerClass"));
        } else {
            errors.forbidden(&path, "may only be used when `type` is 'LoadBalancer'");
        }
    }
}

fn traffic_policies(errors: &mut Errors, object: &At<'_>, spec: &At<'_>) {
    if is_external(object.value) {
        errors.required_one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"]);
    } else if !spec.text("externalTrafficPolicy").is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(&spec.at("externalTrafficPolicy"), spec.text("externalTrafficPolicy"), detail);
    }
    let health = spec.int("healthCheckNodePort");
    if !wants_health_check(object.value) {
        if health != 0 {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&spec.at("healthCheckNodePort"), health, detail);
        }
    } else if health == 0 {
        errors.required(&spec.at("healthCheckNodePort"), "");
    } else {
        port_number(errors, spec, "healthCheckNodePort");
    }
    if !spec.has("internalTrafficPolicy") && matches!(spec.text("type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.required(&spec.at("internalTrafficPolicy"), "");
    }
    errors.one_of(spec, "internalTrafficPolicy", &["Cluster", "Local"]);
    errors.one_of(spec, "trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]);
}
