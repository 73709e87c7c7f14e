//! What the server decides about Services; addresses and ports are allocated elsewhere.

use serde_json::{Value, json};

use crate::value::{get, has, int, list, list_mut, remove, same, set, text};

fn wants_cluster_ip(service: &Value) -> bool {
    text(service, "spec.type") != "ExternalName"
}

/// Whether it may have node ports; a balancer that is to get no new ones keeps those it has.
fn wants_node_port(service: &Value) -> bool {
    matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer")
}

/// Whether node ports it does not name are its own all the same; a balancer that is to get none may give them back.
fn keeps_node_ports(service: &Value) -> bool {
    text(service, "spec.type") == "NodePort"
        || wants_node_port(service) && get(service, "spec.allocateLoadBalancerNodePorts") != &json!(false)
}

/// Whether a load balancer has to ask nodes for the service's health.
pub(crate) fn wants_health_check(service: &Value) -> bool {
    text(service, "spec.type") == "LoadBalancer" && text(service, "spec.externalTrafficPolicy") == "Local"
}

/// Whether the service can be reached from outside of the cluster.
pub(crate) fn is_external(service: &Value) -> bool {
    match text(service, "spec.type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, "spec.externalIPs").is_empty(),
        _ => false,
    }
}

pub(super) fn prepare_create(service: &mut Value) {
    let address = text(service, "spec.clusterIP").to_owned();
    if !address.is_empty() && list(service, "spec.clusterIPs").is_empty() {
        set(service, "spec", "clusterIPs", json!([address]));
    }
    drop_policy_of_names(service);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    keep_allocated(new, old);
    match_cluster_ips(new, old);
    drop_what_the_type_has_not(new, old);
    drop_policy_of_names(new);
}

/// A name sends nobody anywhere within the cluster. What is no policy is left to be refused.
fn drop_policy_of_names(service: &mut Value) {
    if !wants_cluster_ip(service) && matches!(text(service, "spec.internalTrafficPolicy"), "Cluster" | "Local") {
        remove(service, "spec", "internalTrafficPolicy");
    }
}

fn equal(new: &Value, old: &Value, path: &str) -> bool {
    same(&json!({"v": get(new, path)}), &json!({"v": get(old, path)}))
}

/// A client that does not name what was allocated keeps it.
fn keep_allocated(new: &mut Value, old: &Value) {
    if wants_cluster_ip(new) && wants_cluster_ip(old) {
        for field in ["clusterIP", "clusterIPs"] {
            let path = format!("spec.{field}");
            let empty = text(new, &path).is_empty() && list(new, &path).is_empty();
            if empty && has(old, &path) {
                set(new, "spec", field, get(old, &path).clone());
            }
        }
    }
    if keeps_node_ports(new) && keeps_node_ports(old) {
        let used = |service: &Value| -> Vec<i64> {
            list(service, "spec.ports").iter().filter_map(|port| int(port, "nodePort")).filter(|n| *n != 0).collect()
        };
        let new_used = used(new);
        let taken: Vec<i64> = used(old).into_iter().filter(|port| new_used.contains(port)).collect();
        for port in list_mut(new, "spec.ports") {
            if int(port, "nodePort").unwrap_or(0) != 0 {
                continue;
            }
            let before = list(old, "spec.ports")
                .iter()
                .find(|before| text(before, "name") == text(port, "name"))
                .and_then(|before| int(before, "nodePort"))
                .filter(|number| *number != 0 && !taken.contains(number));
            if let Some(before) = before {
                set(port, "", "nodePort", before);
            }
        }
    }
    if wants_health_check(new)
        && wants_health_check(old)
        && int(new, "spec.healthCheckNodePort").unwrap_or(0) == 0
        && let Some(before) = int(old, "spec.healthCheckNodePort")
    {
        set(new, "spec", "healthCheckNodePort", before);
    }
}

/// Old clients know only `clusterIP`; it and `clusterIPs` have to agree.
fn match_cluster_ips(new: &mut Value, old: &Value) {
    let (now, before) = (text(new, "spec.clusterIP").to_owned(), text(old, "spec.clusterIP"));
    if now == before && list(new, "spec.clusterIPs").is_empty() && has(old, "spec.clusterIPs") {
        set(new, "spec", "clusterIPs", get(old, "spec.clusterIPs").clone());
    }
    if now == before || !equal(new, old, "spec.clusterIPs") {
        return;
    }
    if now.is_empty() {
        remove(new, "spec", "clusterIPs");
    } else {
        set(new, "spec", "clusterIPs", json!([now]));
    }
}

/// Values allocated for the old type do not hinder a change of type, as long as the client did not change them.
fn drop_what_the_type_has_not(new: &mut Value, old: &Value) {
    if wants_cluster_ip(old) && !wants_cluster_ip(new) {
        if equal(new, old, "spec.clusterIP") && equal(new, old, "spec.clusterIPs") {
            remove(new, "spec", "clusterIP");
            remove(new, "spec", "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if equal(new, old, &format!("spec.{field}")) {
                remove(new, "spec", field);
            }
        }
    }
    if wants_node_port(old) && !wants_node_port(new) {
        let ports = |service: &Value| -> Vec<(String, i64)> {
            list(service, "spec.ports")
                .iter()
                .map(|port| (text(port, "name").to_owned(), int(port, "nodePort").unwrap_or(0)))
                .collect()
        };
        let before = ports(old);
        if ports(new).iter().all(|(name, number)| *number == 0 || before.contains(&(name.clone(), *number))) {
            for port in list_mut(new, "spec.ports") {
                remove(port, "", "nodePort");
            }
        }
    }
    if wants_health_check(old) && !wants_health_check(new) && equal(new, old, "spec.healthCheckNodePort") {
        remove(new, "spec", "healthCheckNodePort");
    }
    let balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    if balanced(old) && !balanced(new) {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if equal(new, old, &format!("spec.{field}")) {
                remove(new, "spec", field);
            }
        }
    }
    if is_external(old) && !is_external(new) && equal(new, old, "spec.externalTrafficPolicy") {
        remove(new, "spec", "externalTrafficPolicy");
    }
    if !balanced(new) && has(new, "status.loadBalancer") {
        set(new, "status", "loadBalancer", json!({}));
    }
}
