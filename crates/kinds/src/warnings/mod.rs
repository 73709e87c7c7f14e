//! What a client should know about an object that is accepted all the same: deprecated fields, likely mistakes.

mod pod;

use conductor_machinery::field::Path;
use conductor_machinery::names;
use conductor_machinery::names::ip::{cidr_warnings, ip_warning};
use conductor_machinery::quantity::Quantity;
use serde_json::Value;

use crate::validate::at::At;
use crate::value::{annotation, get, has, list, same};

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
const TOKEN_IN_SECRETS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true \
    to prevent possible logging of tokens in volume attributes";
const STATIC: &str = ".static.k8s.io";
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const HOST_NAME: &str = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a \
    DNS label is recommended: ";

/// What every request for an API says that will go away some day.
pub fn deprecated_api(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match (group, version, kind) {
        ("", "v1", "Endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "v1", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// Warnings about a new object as it was sent, before what follows from it is written into it.
pub fn unprepared(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let at = At::root(object);
    if (group, kind) == ("", "Pod") && at.text("spec.os.name") != "windows" {
        pod::armor(&mut warnings, &at.field("spec"), &at.field("metadata.annotations"));
    }
    warnings
}

/// Warnings about a new object.
pub fn create(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let at = At::root(object);
    let mut warnings = Vec::new();
    match (group, kind) {
        ("", "Pod") => {
            let messages = names::dns1123_label(at.text("metadata.name"));
            if !messages.is_empty() {
                warnings.push(format!(
                    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS \
                     label is recommended: [{}]",
                    messages.join(" ")
                ));
            }
        }
        ("", "ReplicationController") | ("apps", "Deployment" | "ReplicaSet") | ("batch", "Job" | "CronJob") => {
            let messages = names::dns1123_label(at.text("metadata.name"));
            if !messages.is_empty() {
                warnings.push(format!("{HOST_NAME}[{}]", messages.join(" ")));
            }
        }
        ("networking.k8s.io", "Ingress")
            if annotation(object, INGRESS_CLASS).is_some() && !at.has("spec.ingressClassName") =>
        {
            let note =
                format!("annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead");
            warnings.push(note);
        }
        ("discovery.k8s.io", "EndpointSlice") if at.text("addressType") == "FQDN" => {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        ("storage.k8s.io", "CSIDriver") => csi_driver(&mut warnings, object),
        ("", "ResourceQuota") => resource_quota(&mut warnings, &at),
        ("", "ServiceAccount") => mountable_secrets(&mut warnings, object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => formats(&mut warnings, object, None),
        _ => {}
    }
    template(&mut warnings, group, kind, &at);
    always(&mut warnings, group, kind, &at);
    warnings
}

/// Warnings about a change. Pods are changed by programs, which read no warnings.
pub fn update(group: &str, kind: &str, new: &Value, old: &Value) -> Vec<String> {
    let at = At::root(new);
    let mut warnings = Vec::new();
    match (group, kind) {
        ("", "Pod") => return warnings,
        ("storage.k8s.io", "CSIDriver") if !same(&new["spec"]["tokenRequests"], &old["spec"]["tokenRequests"]) => {
            csi_driver(&mut warnings, new);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => formats(&mut warnings, new, Some(old)),
        ("", "ServiceAccount") if annotation(old, MOUNTABLE).is_none() => mountable_secrets(&mut warnings, new),
        _ => {}
    }
    if crate::value::int(new, "metadata.generation") != crate::value::int(old, "metadata.generation") {
        // kube-apiserver looks at what a ReplicationController had, and so what is new of it is warned of at the next change
        let of = if (group, kind) == ("", "ReplicationController") { &At::root(old) } else { &at };
        template(&mut warnings, group, kind, of);
    }
    always(&mut warnings, group, kind, &at);
    warnings
}

/// Formats that a definition has newly and that nobody checks.
fn formats(warnings: &mut Vec<String>, new: &Value, old: Option<&Value>) {
    let of = |definition: &Value| -> Vec<String> {
        let versions = crate::value::list(definition, "spec.versions").iter();
        let schemas = versions.map(|version| &version["schema"]["openAPIV3Schema"]);
        schemas.flat_map(conductor_machinery::schema::unrecognized_formats).collect()
    };
    let before = old.map(of).unwrap_or_default();
    let mut new: Vec<String> = of(new).into_iter().filter(|format| !before.contains(format)).collect();
    new.sort();
    new.dedup();
    warnings.extend(new.into_iter().map(|format| format!("unrecognized format {format:?}")));
}

/// Warnings about a change of the status.
pub fn status_update(group: &str, kind: &str, new: &Value) -> Vec<String> {
    let at = At::root(new);
    let fields: &[(&str, &str)] = match (group, kind) {
        ("", "Pod") => &[("status.podIPs", "ip"), ("status.hostIPs", "ip")],
        ("networking.k8s.io", "Ingress") => &[("status.loadBalancer.ingress", "")],
        ("", "Service") => &[("status.loadBalancer.ingress", "ip")],
        _ => &[],
    };
    let mut warnings = Vec::new();
    for (field, name) in fields {
        for item in at.items(field).filter(|item| !item.text("ip").is_empty()) {
            let path = if name.is_empty() { item.path.clone() } else { item.at(name) };
            warnings.extend(ip_warning(&path, item.text("ip")));
        }
    }
    warnings
}

fn template(warnings: &mut Vec<String>, group: &str, kind: &str, at: &At<'_>) {
    match (group, kind) {
        ("", "Pod") => pod::pod(warnings, at, false),
        ("", "PodTemplate") => pod::pod(warnings, &at.field("template"), true),
        ("", "ReplicationController") | ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") => {
            pod::pod(warnings, &at.field("spec.template"), true);
        }
        ("batch", "Job") => job(warnings, &at.field("spec")),
        ("batch", "CronJob") => job(warnings, &at.field("spec.jobTemplate.spec")),
        _ => {}
    }
}

fn job(warnings: &mut Vec<String>, spec: &At<'_>) {
    let many = spec.int("completions") > 100_000 && spec.int("parallelism") > 10_000;
    if spec.text("completionMode") == "Indexed" && many {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            spec.path
        ));
    }
    pod::pod(warnings, &spec.field("template"), true);
}

fn always(warnings: &mut Vec<String>, group: &str, kind: &str, at: &At<'_>) {
    match (group, kind) {
        ("admissionregistration.k8s.io", _) if at.text("metadata.name").ends_with(STATIC) => warnings.push(format!(
            "metadata.name: names ending with {STATIC:?} are reserved for static manifest-based configurations and cannot be \
             managed via the API"
        )),
        ("", "PersistentVolume") => persistent_volume(warnings, at),
        ("", "PersistentVolumeClaim") => {
            if annotation(at.value, BETA_CLASS).is_some() {
                warnings.push(format!(
                    "metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
                ));
            }
            claim_spec(warnings, &at.field("spec"));
        }
        ("apps", "StatefulSet") => {
            for claim in at.items("spec.volumeClaimTemplates") {
                claim_spec(warnings, &At::new(claim.get("spec"), claim.path.clone()));
            }
            if at.int("spec.revisionHistoryLimit") < 0 {
                let note = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                    recommended";
                warnings.push(note.to_owned());
            }
        }
        ("", "Service") => service(warnings, at),
        ("", "Node") => node(warnings, at),
        ("", "Endpoints") => {
            for subset in at.items("subsets") {
                for address in subset.items("addresses").chain(subset.items("notReadyAddresses")) {
                    warnings.extend(ip_warning(&address.at("ip"), address.text("ip")));
                }
            }
        }
        ("discovery.k8s.io", "EndpointSlice") if at.text("addressType") != "FQDN" => {
            for endpoint in at.items("endpoints") {
                for address in endpoint.items("addresses") {
                    warnings.extend(ip_warning(&address.path, address.value.as_str().unwrap_or("")));
                }
            }
        }
        ("networking.k8s.io", "NetworkPolicy") => network_policy(warnings, at),
        ("storage.k8s.io", "StorageClass") => {
            for term in at.items("allowedTopologies") {
                for requirement in term.items("matchLabelExpressions") {
                    if let Some(note) = deprecated_label(requirement.text("key")) {
                        warnings.push(format!("{}: {note}", requirement.at("key")));
                    }
                }
            }
        }
        ("storage.k8s.io", "CSIStorageCapacity") => {
            let topology = at.field("nodeTopology");
            deprecated_keys(warnings, topology.items("matchExpressions"));
            for (key, _) in topology.entries("matchLabels") {
                if let Some(note) = deprecated_label(key) {
                    warnings.push(format!("{}: {note}", topology.at("matchLabels").child(key)));
                }
            }
        }
        ("node.k8s.io", "RuntimeClass") => {
            for (key, _) in at.entries("scheduling.nodeSelector") {
                if let Some(note) = deprecated_label(key) {
                    warnings.push(format!("scheduling.nodeSelector: {note}"));
                }
            }
        }
        _ => {}
    }
}

/// Labels of nodes that have other names now.
fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => "deprecated since v1.22; use Taints and Tolerations instead",
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

fn deprecated_keys<'a>(warnings: &mut Vec<String>, requirements: impl Iterator<Item = At<'a>>) {
    for requirement in requirements {
        let key = requirement.text("key");
        if let Some(note) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {note}", requirement.at("key")));
        }
    }
}

fn persistent_volume(warnings: &mut Vec<String>, at: &At<'_>) {
    for (key, note) in [
        (BETA_CLASS, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if annotation(at.value, key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {note}"));
        }
    }
    if at.text("spec.persistentVolumeReclaimPolicy") == "Recycle" {
        let note = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
            approach is to use dynamic provisioning.";
        warnings.push(note.to_owned());
    }
    for term in at.field("spec.nodeAffinity.required").items("nodeSelectorTerms") {
        deprecated_keys(warnings, term.items("matchExpressions"));
    }
    let spec = get(at.value, "spec");
    for (source, called, since) in [
        ("cephfs", "cephfs", "v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "v1.28, non-functional in v1.31+"),
    ] {
        if spec.get(source).is_some_and(|source| !source.is_null()) {
            warnings.push(format!("spec.{called}: deprecated in {since}"));
        }
    }
}

/// Bytes come in whole numbers.
fn fractional_bytes(warnings: &mut Vec<String>, path: &Path, value: &Value) {
    if let Ok(amount) = Quantity::from_json(value)
        && !value.is_null()
        && amount.milli_value() % 1000 != 0
    {
        let amount = amount.to_string();
        warnings.push(format!("{path}: fractional byte value {amount:?} is invalid, must be an integer"));
    }
}

fn claim_spec(warnings: &mut Vec<String>, spec: &At<'_>) {
    for (field, value) in
        [("requests", spec.get("resources.requests.storage")), ("limits", spec.get("resources.limits.storage"))]
    {
        if !value.is_null() {
            let path = spec.at("resources").child(field).key("storage");
            fractional_bytes(warnings, &path, value);
        }
    }
}

fn service(warnings: &mut Vec<String>, at: &At<'_>) {
    let (hints, mode) = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode");
    if annotation(at.value, hints).is_some() {
        warnings.push(format!("annotation {hints} is deprecated, please use {mode} instead"));
    }
    let spec = at.field("spec");
    if !matches!(spec.text("clusterIP"), "" | "None") {
        for address in spec.items("clusterIPs") {
            warnings.extend(ip_warning(&address.path, address.value.as_str().unwrap_or("")));
        }
    }
    let kind = spec.text("type");
    let headless = kind == "ClusterIP" && spec.text("clusterIP") == "None";
    let external = !spec.list("externalIPs").is_empty();
    if headless {
        let ignored = [
            (!spec.text("loadBalancerIP").is_empty(), "spec.loadBalancerIP"),
            (external, "spec.externalIPs"),
            (spec.text("sessionAffinity") != "None", "spec.SessionAffinity"),
        ];
        for (_, field) in ignored.iter().filter(|(set, _)| *set) {
            warnings.push(format!("{field} is ignored for headless services"));
        }
    }
    for address in spec.items("externalIPs") {
        warnings.extend(ip_warning(&address.path, address.value.as_str().unwrap_or("")));
    }
    if external && !headless && kind != "ExternalName" {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if !spec.text("loadBalancerIP").is_empty() {
        warnings.extend(ip_warning(&spec.at("loadBalancerIP"), spec.text("loadBalancerIP")));
    }
    for range in spec.items("loadBalancerSourceRanges") {
        warnings.extend(cidr_warnings(&range.path, range.value.as_str().unwrap_or("")));
    }
    if kind == "ExternalName" && external {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !spec.text("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

fn node(warnings: &mut Vec<String>, at: &At<'_>) {
    if at.has("spec.configSource") {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !at.text("spec.externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for block in at.items("spec.podCIDRs") {
        warnings.extend(cidr_warnings(&block.path, block.value.as_str().unwrap_or("")));
    }
}

fn network_policy(warnings: &mut Vec<String>, at: &At<'_>) {
    for (direction, peers) in [("spec.ingress", "from"), ("spec.egress", "to")] {
        for rule in at.items(direction) {
            for peer in rule.items(peers).filter(|peer| peer.has("ipBlock")) {
                let block = peer.field("ipBlock");
                warnings.extend(cidr_warnings(&block.at("cidr"), block.text("cidr")));
                for except in block.items("except") {
                    warnings.extend(cidr_warnings(&except.path, except.value.as_str().unwrap_or("")));
                }
            }
        }
    }
}

fn csi_driver(warnings: &mut Vec<String>, driver: &Value) {
    if !list(driver, "spec.tokenRequests").is_empty() && !has(driver, "spec.serviceAccountTokenInSecrets") {
        warnings.push(TOKEN_IN_SECRETS.to_owned());
    }
}

fn resource_quota(warnings: &mut Vec<String>, at: &At<'_>) {
    let hard = at.get("spec.hard");
    for resource in ["cpu", "memory", "ephemeral-storage"] {
        let requests = format!("requests.{resource}");
        let limits = format!("limits.{resource}");
        let name = if hard.get(&requests).is_some() || resource == "ephemeral-storage" {
            requests
        } else {
            resource.to_owned()
        };
        let amount = |name: &str| hard.get(name).and_then(|amount| Quantity::from_json(amount).ok());
        if let (Some(request), Some(limit)) = (amount(&name), amount(&limits))
            && request > limit
        {
            warnings.push(format!("ResourceQuota {name} ({request}) should be less than {limits} ({limit})"));
        }
    }
}

fn mountable_secrets(warnings: &mut Vec<String>, account: &Value) {
    if annotation(account, MOUNTABLE).is_some() {
        warnings.push(format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        ));
    }
}

#[cfg(test)]
mod tests;
