//! What an object costs, in the names that quotas use.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kinds::compute::{Amounts, aggregate, amounts, quality_of_service};
use kinds::value::{list, text};
use machinery::quantity::{Format, Quantity};
use serde_json::{Value, json};

use crate::plugins::storage::class_of;
use crate::resource::Resource;

const CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// A request for all devices that fit is charged for as many as can be allocated.
const ALL_DEVICES: i64 = 32;

fn one() -> Quantity {
    Quantity::new(1, Format::DecimalSi)
}

/// `count/deployments.apps`, `count/pods`.
pub fn count_name(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("count/{}", resource.plural)
    } else {
        format!("count/{}.{}", resource.plural, resource.group)
    }
}

/// Whether objects of a resource cost anything in one of these names.
pub fn concerns<'a>(resource: &Resource, mut names: impl Iterator<Item = &'a str>) -> bool {
    let count = count_name(resource);
    let kind = resource.gk();
    names.any(|name| {
        name == count
            || match kind {
                ("", "Pod") => is_pod_name(name),
                ("", "Service") => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
                ("", "PersistentVolumeClaim") => {
                    matches!(name, "persistentvolumeclaims" | "requests.storage") || name.contains(CLASS)
                }
                ("", "ConfigMap" | "Secret" | "ResourceQuota" | "ReplicationController") => name == &*resource.plural,
                ("resource.k8s.io", "ResourceClaim") => name.ends_with(DEVICES),
                _ => resource.charge().is_some_and(|charge| {
                    name.starts_with(&own_prefix(resource)) || name.contains(&format!(".{}/", charge.per))
                }),
            }
    })
}

/// `bucketclaims.example.com/`: what claims of a kind ask for in all.
fn own_prefix(resource: &Resource) -> String {
    format!("{}.{}/", resource.plural, resource.group)
}

/// What an object costs whose definition says by what.
fn charged(resource: &Resource, object: &Value, used: &mut Amounts) {
    let Some(charge) = resource.charge() else { return };
    let class = charge.class(object).map(|class| format!("{class}.{}/", charge.per));
    if let Some(class) = &class {
        used.insert(format!("{class}{}", resource.plural), one());
    }
    // who asks for less than nothing gives nobody anything
    for (name, amount) in charge.requests(object).into_iter().filter(|(_, amount)| amount.sign() >= 0) {
        if let Some(class) = &class {
            used.insert(format!("{class}requests.{name}"), amount.clone());
        }
        used.insert(format!("{}requests.{name}", own_prefix(resource)), amount);
    }
}

fn is_pod_name(name: &str) -> bool {
    matches!(name, "pods" | "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || (name.starts_with("requests.") && name != "requests.storage")
        || name.starts_with("limits.")
}

/// What an object costs.
pub fn usage(resource: &Resource, object: &Value) -> Amounts {
    let mut used = BTreeMap::from([(count_name(resource), one())]);
    match resource.gk() {
        ("", "Pod") => pod(object, &mut used),
        ("", "Service") => service(object, &mut used),
        ("", "PersistentVolumeClaim") => claim(object, &mut used),
        ("resource.k8s.io", "ResourceClaim") => devices(object, &mut used),
        ("", "ConfigMap" | "Secret" | "ResourceQuota" | "ReplicationController") => {
            used.insert(resource.plural.to_string(), one());
        }
        _ => charged(resource, object, &mut used),
    }
    used
}

/// What a Pod asks for as a whole: its containers, or what it says for all of them, and what its runtime costs.
pub fn pod_total(spec: &Value, which: &str) -> Amounts {
    let mut total = aggregate(spec, which);
    let whole = amounts(spec, &format!("resources.{which}"));
    total.extend(
        whole
            .into_iter()
            .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-")),
    );
    for (name, amount) in amounts(spec, "overhead") {
        match total.get_mut(&name) {
            Some(own) => *own = own.add(&amount),
            None if which == "requests" => {
                total.insert(name, amount);
            }
            None => {}
        }
    }
    total
}

fn computed(requests: &Amounts, limits: &Amounts, used: &mut Amounts) {
    for (name, amount) in requests {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if native {
            used.insert(name.clone(), amount.clone());
        }
        // Others' resources are counted by what is asked for.
        if native || name.contains('/') {
            used.insert(format!("requests.{name}"), amount.clone());
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), amount.clone());
        }
    }
}

/// Of each resource the most that one of these says.
fn most(all: impl IntoIterator<Item = Amounts>) -> Amounts {
    let mut most = Amounts::new();
    for (name, amount) in all.into_iter().flatten() {
        let own = most.entry(name).or_insert_with(|| amount.clone());
        if *own < amount {
            *own = amount;
        }
    }
    most
}

/// What a container has: what it wants or what its node has given it or set aside for it, whichever is more, since a resize
/// takes its time both ways. What the node can never give does not count as wanted.
fn had(container: &Value, status: &Value, infeasible: bool) -> Value {
    let wanted = |path: &str| if infeasible { Amounts::new() } else { amounts(container, path) };
    let given = |path: &str| amounts(status, path);
    let requests = [wanted("resources.requests"), given("resources.requests"), given("allocatedResources")];
    let limits = [wanted("resources.limits"), given("resources.limits")];
    let written = |all: Amounts| -> BTreeMap<String, String> {
        all.into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
    };
    json!({"requests": written(most(requests)), "limits": written(most(limits))})
}

/// What counts of the spec of a Pod, with what its containers have in place of what they want. Of init containers only
/// sidecars can be resized.
fn held(pod: &Value) -> Cow<'_, Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let statuses: BTreeMap<&str, &Value> = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|field| list(status, field))
        .filter(|own| own["resources"].is_object())
        .map(|own| (text(own, "name"), own))
        .collect();
    if statuses.is_empty() {
        return Cow::Borrowed(spec);
    }
    let pending = list(status, "conditions").iter().find(|own| own["type"] == "PodResizePending");
    let infeasible = pending.is_some_and(|own| own["reason"] == "Infeasible");
    let with_what_they_have = |field: &str| -> Vec<Value> {
        let resizable = |container: &Value| field == "containers" || container["restartPolicy"] == "Always";
        let one = |container: &Value| {
            let status = statuses.get(text(container, "name")).filter(|_| resizable(container));
            let resources =
                status.map_or_else(|| container["resources"].clone(), |own| had(container, own, infeasible));
            json!({"restartPolicy": container["restartPolicy"], "resources": resources})
        };
        list(spec, field).iter().map(one).collect()
    };
    Cow::Owned(json!({
        "containers": with_what_they_have("containers"),
        "initContainers": with_what_they_have("initContainers"),
        "resources": spec["resources"],
        "overhead": spec["overhead"],
    }))
}

/// Whether a Pod that is to go should be gone: somebody holds it, or its node is lost. Kubernetes also looks at the clock; here
/// what an object costs must be the same whenever it is asked, or what was charged could not be given back.
fn had_its_grace(pod: &Value) -> bool {
    let meta = &pod["metadata"];
    !meta["deletionTimestamp"].is_null() && meta["deletionGracePeriodSeconds"] == 0
}

fn pod(pod: &Value, used: &mut Amounts) {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) || had_its_grace(pod) {
        return;
    }
    used.insert("pods".into(), one());
    let spec = held(pod);
    computed(&pod_total(&spec, "requests"), &pod_total(&spec, "limits"), used);
}

fn service(service: &Value, used: &mut Amounts) {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let given = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (node_ports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (given, 1),
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    used.insert("services".into(), one());
    for (name, count) in [("services.nodeports", node_ports), ("services.loadbalancers", balancers)] {
        used.insert(name.into(), Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi));
    }
}

/// Rounded up to whole bytes, as a quota can say it.
fn whole(amount: Quantity) -> Quantity {
    // What is too large for that stays as it is.
    Quantity::new(amount.value(), amount.format()).max(amount)
}

fn claim(claim: &Value, used: &mut Amounts) {
    let class = class_of(claim).filter(|class| !class.is_empty());
    let mut put = |name: &str, amount: &Quantity| {
        used.insert(name.into(), amount.clone());
        if let Some(class) = class {
            used.insert(format!("{class}{CLASS}{name}"), amount.clone());
        }
    };
    put("persistentvolumeclaims", &one());
    let requested = amounts(claim, "spec.resources.requests").remove("storage").map(whole);
    let allocated = amounts(claim, "status.allocatedResources").remove("storage").map(whole);
    if let Some(requested) = requested {
        // A claim that is to shrink again is charged until it has.
        put("requests.storage", allocated.as_ref().filter(|own| **own > requested).unwrap_or(&requested));
    }
}

/// The devices that a claim asks for, by class; of alternatives the most that one of them asks for.
fn devices(claim: &Value, used: &mut Amounts) {
    let mut total: BTreeMap<&str, i64> = BTreeMap::new();
    for request in claim["spec"]["devices"]["requests"].as_array().into_iter().flatten() {
        let alternatives = request["firstAvailable"].as_array().into_iter().flatten();
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        for one in alternatives.chain(request.get("exactly")) {
            let Some(class) = one["deviceClassName"].as_str() else { continue };
            let count = match one["allocationMode"].as_str() {
                Some("All") => ALL_DEVICES,
                _ => one["count"].as_i64().unwrap_or(1),
            };
            let own = most.entry(class).or_default();
            *own = count.max(*own);
        }
        for (class, count) in most {
            let own = total.entry(class).or_default();
            *own = own.saturating_add(count);
        }
    }
    for (class, count) in total {
        used.insert(format!("{class}{DEVICES}"), Quantity::new(count, Format::DecimalSi));
    }
}

/// What a Pod must say for a quota to know its cost, and does not.
pub fn unsaid(pod_spec: &Value, names: &[&str]) -> Option<String> {
    const NEEDED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    if pod_spec["resources"].as_object().is_some_and(|own| !own.is_empty()) {
        return None;
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod_spec[list].as_array().into_iter().flatten() {
            let mut said = Amounts::new();
            computed(&amounts(container, "resources.requests"), &amounts(container, "resources.limits"), &mut said);
            for name in names.iter().filter(|name| NEEDED.contains(name) && !said.contains_key(**name)) {
                missing.entry(name).or_default().push(container["name"].as_str().unwrap_or_default());
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(name, mut containers)| {
            containers.sort_unstable();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    Some(format!("must specify {}", parts.join("; ")))
}

/// Whether an object is in all the scopes of a quota.
pub fn in_scope(quota: &Value, resource: &Resource, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    plain.map(|scope| (scope, &Value::Null)).all(|(scope, one)| matches(scope, one, resource, object))
        && selected
            .map(|one| (one["scopeName"].as_str().unwrap_or_default(), one))
            .all(|(scope, one)| matches(scope, one, resource, object))
}

fn matches(scope: &str, requirement: &Value, resource: &Resource, object: &Value) -> bool {
    let spec = &object["spec"];
    match (resource.gk(), scope) {
        (("", "Pod"), "Terminating") => spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0),
        (("", "Pod"), "NotTerminating") => spec["activeDeadlineSeconds"].as_i64().is_none_or(|seconds| seconds < 0),
        (("", "Pod"), "BestEffort") => quality_of_service(spec) == "BestEffort",
        (("", "Pod"), "NotBestEffort") => quality_of_service(spec) != "BestEffort",
        (("", "Pod"), "PriorityClass") => selects(requirement, spec["priorityClassName"].as_str()),
        (("", "Pod"), "CrossNamespacePodAffinity") => crosses_namespaces(&spec["affinity"]),
        (("", "PersistentVolumeClaim"), "VolumeAttributesClass") => {
            let names = [
                &spec["volumeAttributesClassName"],
                &object["status"]["currentVolumeAttributesClassName"],
                &object["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
            ];
            let mut names = names.into_iter().filter_map(Value::as_str).filter(|name| !name.is_empty()).peekable();
            if names.peek().is_none() {
                return selects(requirement, None);
            }
            names.any(|name| selects(requirement, Some(name)))
        }
        _ => false,
    }
}

fn selects(requirement: &Value, value: Option<&str>) -> bool {
    let value = value.filter(|value| !value.is_empty());
    let listed = || requirement["values"].as_array().into_iter().flatten().any(|own| own.as_str() == value);
    match requirement["operator"].as_str() {
        None | Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        Some("In") => value.is_some() && listed(),
        Some("NotIn") => value.is_none() || !listed(),
        Some(_) => false,
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |field: &str| affinity[*kind][field].as_array().into_iter().flatten();
        let required = terms("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = terms("preferredDuringSchedulingIgnoredDuringExecution").map(|term| &term["podAffinityTerm"]);
        required.chain(preferred).any(|term| {
            term["namespaces"].as_array().is_some_and(|list| !list.is_empty()) || term["namespaceSelector"].is_object()
        })
    })
}
