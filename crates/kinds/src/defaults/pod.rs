//! Defaults of Pods and of the Pod templates inside other kinds.

use serde_json::{Map, Value, json};

use super::core::first_of;
use crate::compute::aggregate;
use crate::value::{fill, fill_int, fill_text, flag, get, get_mut, list_mut, object_mut, size, text};

/// Fills in a Pod: all that a template gets, and what only a Pod gets.
pub(super) fn pod(pod: &mut Value) {
    first_of(pod, "status", "podIP", "podIPs", |text| json!({"ip": text}), |item| text(item, "ip"));
    let Some(spec) = get_mut(pod, "spec") else { return };
    if crate::value::int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        crate::value::set(spec, "", "terminationGracePeriodSeconds", 1);
    }
    pod_spec(spec);
    for containers in ["containers", "initContainers"] {
        for container in list_mut(spec, containers) {
            requests_from_limits(container);
        }
    }
    pod_level_requests(spec);
    let host_network = flag(spec, "hostNetwork");
    if let Some(map) = spec.as_object_mut() {
        fill(map, "enableServiceLinks", true);
        // Nothing ends before it began.
        if map.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
            map.insert("terminationGracePeriodSeconds".into(), 1.into());
        }
    }
    if host_network {
        for containers in ["containers", "initContainers"] {
            for container in list_mut(spec, containers) {
                for port in list_mut(container, "ports") {
                    let number = get(port, "containerPort").as_i64().unwrap_or(0);
                    if let Some(port) = port.as_object_mut() {
                        fill_int(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

/// Fills in the Pod template at a dotted path.
pub(super) fn template_at(object: &mut Value, path: &str) {
    if let Some(template) = get_mut(object, path) {
        object_mut(template, "metadata");
        object_mut(template, "spec");
        if let Some(spec) = get_mut(template, "spec") {
            pod_spec(spec);
        }
    }
}

/// Requests that are not given are what the limits are. Only in a Pod: a template keeps what its author wrote.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = get(container, "resources.limits").as_object().cloned() else { return };
    if let Some(requests) = object_mut(container, "resources.requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// A Pod with limits for itself requests what its containers do together, and its limits for all else.
fn pod_level_requests(spec: &mut Value) {
    if size(spec, "resources.limits") == 0 && size(spec, "resources.requests") == 0 {
        return;
    }
    let huge = |name: &str| name.starts_with("hugepages-");
    for (name, amount) in aggregate(spec, "limits") {
        if huge(&name)
            && get(spec, "resources.requests").get(&name).is_none()
            && let Some(limits) = object_mut(spec, "resources.limits")
        {
            limits.entry(name).or_insert_with(|| amount.to_string().into());
        }
    }
    let Some(limits) = get(spec, "resources.limits").as_object().filter(|limits| !limits.is_empty()).cloned() else {
        return;
    };
    let asked = aggregate(spec, "requests");
    if let Some(requests) = object_mut(spec, "resources.requests") {
        for (name, amount) in asked {
            if matches!(name.as_str(), "cpu" | "memory") {
                requests.entry(name).or_insert_with(|| amount.to_string().into());
            }
        }
        for (name, limit) in limits {
            if matches!(name.as_str(), "cpu" | "memory") || huge(&name) {
                requests.entry(name).or_insert(limit);
            }
        }
    }
}

fn pod_spec(spec: &mut Value) {
    for volume in list_mut(spec, "volumes") {
        self::volume(volume);
    }
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list_mut(spec, containers) {
            self::container(container);
        }
    }
    let Some(map) = spec.as_object_mut() else { return };
    fill_text(map, "dnsPolicy", "ClusterFirst");
    fill_text(map, "restartPolicy", "Always");
    fill(map, "securityContext", json!({}));
    fill(map, "terminationGracePeriodSeconds", 30);
    fill_text(map, "schedulerName", "default-scheduler");
    // serviceAccount is the old name of serviceAccountName; the answer shows both.
    let account = ["serviceAccountName", "serviceAccount"]
        .iter()
        .filter_map(|key| map.get(*key)?.as_str())
        .find(|name| !name.is_empty())
        .map(str::to_owned);
    if let Some(account) = account {
        map.insert("serviceAccountName".to_owned(), account.clone().into());
        map.insert("serviceAccount".to_owned(), account.into());
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    object_mut(container, "resources");
    if let Some(map) = container.as_object_mut() {
        fill_text(map, "imagePullPolicy", policy);
        fill_text(map, "terminationMessagePath", "/dev/termination-log");
        fill_text(map, "terminationMessagePolicy", "File");
    }
    for port in list_mut(container, "ports") {
        if let Some(port) = port.as_object_mut() {
            fill_text(port, "protocol", "TCP");
        }
    }
    for env in list_mut(container, "env") {
        field_ref(env, "valueFrom.fieldRef");
        if let Some(resource) = get_mut(env, "valueFrom.resourceFieldRef").and_then(Value::as_object_mut) {
            fill(resource, "divisor", "0");
        }
        if let Some(key) = get_mut(env, "valueFrom.fileKeyRef").and_then(Value::as_object_mut) {
            fill(key, "optional", false);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = get_mut(container, probe) {
            self::probe(probe);
        }
    }
    for hook in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        http_get(container, hook);
    }
}

/// `Always` for an image that is `latest` or says no tag, `IfNotPresent` otherwise.
fn pull_policy(image: &str) -> &'static str {
    let digest = image.contains('@');
    let name = image.split('@').next().unwrap_or("");
    let last = name.rsplit('/').next().unwrap_or("");
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
        None if digest || !is_reference(name) => "IfNotPresent",
        None => "Always",
    }
}

/// Whether a name without tag and digest is one that a registry could have: a host, then lower-case parts.
fn is_reference(name: &str) -> bool {
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost" || part != part.to_lowercase();
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
            && part.starts_with(|first: char| first.is_ascii_alphanumeric())
            && part.ends_with(|last: char| last.is_ascii_alphanumeric())
    };
    path.split('/').all(part)
}

fn probe(probe: &mut Value) {
    http_get(probe, "httpGet");
    if let Some(grpc) = get_mut(probe, "grpc").and_then(Value::as_object_mut) {
        fill(grpc, "service", "");
    }
    if let Some(map) = probe.as_object_mut() {
        fill_int(map, "timeoutSeconds", 1);
        fill_int(map, "periodSeconds", 10);
        fill_int(map, "successThreshold", 1);
        fill_int(map, "failureThreshold", 3);
    }
}

fn http_get(holder: &mut Value, path: &str) {
    if let Some(action) = get_mut(holder, path).and_then(Value::as_object_mut) {
        fill_text(action, "path", "/");
        fill_text(action, "scheme", "HTTP");
    }
}

fn field_ref(holder: &mut Value, path: &str) {
    if let Some(reference) = get_mut(holder, path).and_then(Value::as_object_mut) {
        fill_text(reference, "apiVersion", "v1");
    }
}

/// Fills in a volume; one that says nothing but its name is an `emptyDir`.
fn volume(volume: &mut Value) {
    let Some(map) = volume.as_object_mut() else { return };
    if !map.iter().any(|(key, source)| key != "name" && !source.is_null()) {
        map.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = map.get_mut(source).and_then(Value::as_object_mut) {
            fill(source, "defaultMode", 420);
        }
    }
    source_defaults(map);
    for item in list_mut(volume, "downwardAPI.items") {
        downward_file(item);
    }
    for source in list_mut(volume, "projected.sources") {
        for item in list_mut(source, "downwardAPI.items") {
            downward_file(item);
        }
        if let Some(token) = get_mut(source, "serviceAccountToken").and_then(Value::as_object_mut) {
            fill(token, "expirationSeconds", 3600);
        }
    }
    if let Some(image) = get_mut(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        if let Some(image) = image.as_object_mut() {
            fill_text(image, "pullPolicy", policy);
        }
    }
    if let Some(spec) = get_mut(volume, "ephemeral.volumeClaimTemplate.spec").and_then(Value::as_object_mut) {
        fill(spec, "volumeMode", "Filesystem");
    }
}

/// Defaults of volume sources that a Pod's volume and a PersistentVolume share.
pub(super) fn source_defaults(map: &mut Map<String, Value>) {
    if let Some(source) = map.get_mut("hostPath").and_then(Value::as_object_mut) {
        fill(source, "type", "");
    }
    if let Some(source) = map.get_mut("iscsi").and_then(Value::as_object_mut) {
        fill_text(source, "iscsiInterface", "default");
    }
    if let Some(source) = map.get_mut("rbd").and_then(Value::as_object_mut) {
        fill_text(source, "pool", "rbd");
        fill_text(source, "user", "admin");
        fill_text(source, "keyring", "/etc/ceph/keyring");
    }
    if let Some(source) = map.get_mut("azureDisk").and_then(Value::as_object_mut) {
        fill(source, "cachingMode", "ReadWrite");
        fill(source, "fsType", "ext4");
        fill(source, "readOnly", false);
        fill(source, "kind", "Shared");
    }
    if let Some(source) = map.get_mut("scaleIO").and_then(Value::as_object_mut) {
        fill_text(source, "storageMode", "ThinProvisioned");
        fill_text(source, "fsType", "xfs");
    }
}

fn downward_file(item: &mut Value) {
    field_ref(item, "fieldRef");
    if let Some(resource) = get_mut(item, "resourceFieldRef").and_then(Value::as_object_mut) {
        fill(resource, "divisor", "0");
    }
}
