//! Defaults of the core group, Pods aside.

use serde_json::{Value, json};

use super::pod;
use crate::value::{fill, fill_int, fill_text, get, get_mut, list_mut, object_mut, set, text};

pub(super) fn replication_controller(controller: &mut Value) {
    pod::template_at(controller, "spec.template");
    let labels = get(controller, "spec.template.metadata.labels").clone();
    if labels.is_object() {
        for holder in ["spec.selector", "metadata.labels"] {
            if crate::value::size(controller, holder) == 0 {
                let (path, key) = holder.split_once('.').unwrap_or(("", holder));
                set(controller, path, key, labels.clone());
            }
        }
    }
    if let Some(spec) = object_mut(controller, "spec") {
        fill(spec, "replicas", 1);
    }
}

pub(super) fn service(service: &mut Value) {
    let Some(spec) = object_mut(service, "spec") else { return };
    fill_text(spec, "sessionAffinity", "None");
    fill_text(spec, "type", "ClusterIP");
    let affinity = spec.get("sessionAffinity").and_then(Value::as_str).unwrap_or("").to_owned();
    match affinity.as_str() {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if spec.get("sessionAffinityConfig").is_none_or(|c| get(c, "clientIP.timeoutSeconds").is_null()) => {
            spec.insert("sessionAffinityConfig".to_owned(), json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        fill_text(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or(json!(0));
        let target = port.entry("targetPort").or_insert(Value::Null);
        if target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("") {
            *target = number;
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    let external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let reachable = matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external_ips);
    if reachable {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        for ingress in list_mut(service, "status.loadBalancer.ingress") {
            if !text(ingress, "ip").is_empty()
                && let Some(ingress) = ingress.as_object_mut()
            {
                fill(ingress, "ipMode", "VIP");
            }
        }
    }
    object_mut(service, "status.loadBalancer");
}

/// `stringData` is for writing only: it is laid over `data`, where bytes are in base64.
pub(super) fn secret(secret: &mut Value) {
    let Some(map) = secret.as_object_mut() else { return };
    fill_text(map, "type", "Opaque");
    if let Some(Value::Object(texts)) = map.remove("stringData") {
        let data = map.entry("data").or_insert(Value::Null);
        if data.is_null() {
            *data = json!({});
        }
        for (key, text) in texts {
            if let (Some(data), Some(text)) = (data.as_object_mut(), text.as_str()) {
                data.insert(key, base64(text.as_bytes()).into());
            }
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let symbol = SYMBOLS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(symbol) } else { '=' });
        }
    }
    text
}

pub(super) fn persistent_volume(volume: &mut Value) {
    if let Some(status) = object_mut(volume, "status") {
        fill_text(status, "phase", "Pending");
    }
    if let Some(spec) = object_mut(volume, "spec") {
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        pod::source_defaults(spec);
    }
}

pub(super) fn persistent_volume_claim(claim: &mut Value) {
    if let Some(status) = object_mut(claim, "status") {
        fill_text(status, "phase", "Pending");
    }
    object_mut(claim, "spec.resources");
    if let Some(spec) = object_mut(claim, "spec") {
        fill(spec, "volumeMode", "Filesystem");
    }
}

pub(super) fn endpoints(endpoints: &mut Value) {
    for subset in list_mut(endpoints, "subsets") {
        for port in list_mut(subset, "ports") {
            if let Some(port) = port.as_object_mut() {
                fill_text(port, "protocol", "TCP");
            }
        }
    }
}

/// A namespace carries its own name as a label, so that selectors can name namespaces.
pub(super) fn namespace(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    if !name.is_empty() {
        set(namespace, "metadata.labels", "kubernetes.io/metadata.name", name);
    }
    if let Some(status) = object_mut(namespace, "status") {
        fill_text(status, "phase", "Active");
    }
}

/// Who reports is written even when nobody says.
pub(super) fn event(event: &mut Value, group: &str) {
    let Some(map) = event.as_object_mut() else { return };
    if group.is_empty() {
        fill(map, "source", json!({}));
        fill(map, "reportingComponent", "");
        fill(map, "reportingInstance", "");
    } else {
        fill(map, "deprecatedSource", json!({}));
    }
}

/// An old field for one address beside a newer list of them: the first of the list is the old field's.
pub(super) fn first_of(
    object: &mut Value,
    path: &str,
    one: &str,
    many: &str,
    wrap: fn(&str) -> Value,
    text_of: fn(&Value) -> &str,
) {
    let single = text(get(object, path), one).to_owned();
    let first = get(object, path).get(many).and_then(|list| list.get(0)).map(|first| text_of(first).to_owned());
    match first {
        Some(first) if single.is_empty() => set(object, path, one, first),
        Some(first) if first == single => {}
        None if single.is_empty() => {}
        // Old clients know only the old field: what it says counts.
        _ => set(object, path, many, json!([wrap(&single)])),
    }
}

pub(super) fn node(node: &mut Value) {
    first_of(node, "spec", "podCIDR", "podCIDRs", |text| json!(text), |item| item.as_str().unwrap_or(""));
    let capacity = get(node, "status.capacity").clone();
    if capacity.is_object() && get(node, "status.allocatable").is_null() {
        set(node, "status", "allocatable", capacity);
    }
    object_mut(node, "status.daemonEndpoints.kubeletEndpoint");
    if let Some(endpoint) = object_mut(node, "status.daemonEndpoints.kubeletEndpoint") {
        fill(endpoint, "Port", 0);
    }
    if let Some(info) = object_mut(node, "status.nodeInfo") {
        for field in [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ] {
            fill(info, field, "");
        }
    }
}

/// For containers: no default limit means the maximum, no default request means the default limit, then the minimum.
pub(super) fn limit_range(range: &mut Value) {
    for item in list_mut(range, "spec.limits") {
        if text(item, "type") != "Container" {
            continue;
        }
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let Some(source) = get(item, from).as_object().cloned() else { continue };
            if let Some(map) = object_mut(item, to) {
                for (name, amount) in source {
                    map.entry(name).or_insert(amount);
                }
            }
        }
    }
}

/// Templates of claims inside a StatefulSet are claims of their own.
pub(super) fn claim_template(claim: &mut Value) {
    if let Some(map) = claim.as_object_mut() {
        map.insert("apiVersion".to_owned(), "v1".into());
        map.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    }
    object_mut(claim, "metadata");
    persistent_volume_claim(claim);
}

/// A whole number of replicas that is not said is one.
pub(super) fn one_replica(object: &mut Value) {
    if let Some(spec) = object_mut(object, "spec") {
        fill(spec, "replicas", 1);
    }
}

/// Ten old revisions are kept unless the author says otherwise.
pub(super) fn revision_history(object: &mut Value) {
    if let Some(spec) = object_mut(object, "spec") {
        fill(spec, "revisionHistoryLimit", 10);
    }
}

/// Removes what a strategy of another type makes meaningless, and fills in the rolling update's fields.
pub(super) fn rolling_update(object: &mut Value, path: &str, fields: &[(&str, Value)]) {
    let Some(strategy) = object_mut(object, path) else { return };
    fill_text(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) != Some("RollingUpdate") {
        return;
    }
    fill(strategy, "rollingUpdate", json!({}));
    if let Some(update) = get_mut(object, path).and_then(|s| s.get_mut("rollingUpdate")).and_then(Value::as_object_mut)
    {
        for (key, value) in fields {
            fill(update, key, value.clone());
        }
    }
}

/// Sets an integer that is absent or zero at a dotted path.
pub(super) fn int_at(object: &mut Value, path: &str, key: &str, value: i64) {
    if let Some(map) = object_mut(object, path) {
        fill_int(map, key, value);
    }
}
