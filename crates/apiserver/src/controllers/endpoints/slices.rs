//! The EndpointSlices a service should have, and the fewest writes that lead there. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::pods::Pod;

/// Who manages the slices.
pub const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Names a slice's manager.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Names a slice's service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Marks what belongs to a service without an address of its own.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The most endpoints a slice has.
pub const FULL: usize = 100;

/// One write to a slice.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// A new slice.
    Create(Value),
    /// A slice with other contents.
    Update(Value),
    /// A slice that is not needed; its name.
    Delete(String),
}

/// A pod by its name.
pub type Named<'a> = (&'a str, &'a Pod);

/// Says whether a node exists and in which zone it is.
pub type Zones<'a> = &'a dyn Fn(&str) -> Option<Box<str>>;

/// The writes that give a service the slices it should have. `pods` are those it selects, `existing` the slices that name it.
pub fn plan(service: &Value, pods: &[Named<'_>], zones: Zones<'_>, existing: &[Value]) -> Vec<Write> {
    let families = families(service);
    let mut writes = Vec::new();
    for slice in existing {
        if !families.contains(&slice["addressType"].as_str().unwrap_or_default()) {
            writes.push(Write::Delete(name(slice)));
        }
    }
    for family in &families {
        let existing: Vec<&Value> = existing.iter().filter(|slice| slice["addressType"] == *family).collect();
        plan_family(service, pods, zones, &existing, family, &mut writes);
    }
    if service["metadata"].get("deletionTimestamp").is_some() {
        // What is made now would have to be collected at once.
        writes.retain(|write| !matches!(write, Write::Create(_)));
    }
    writes
}

fn name(slice: &Value) -> String {
    slice["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn families(service: &Value) -> Vec<&str> {
    let listed = service["spec"]["ipFamilies"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let listed: Vec<&str> = listed.collect();
    match service["spec"]["clusterIP"].as_str().unwrap_or_default() {
        _ if !listed.is_empty() => listed,
        address if address.contains(':') => vec!["IPv6"],
        _ => vec!["IPv4"],
    }
}

fn plan_family(
    service: &Value,
    pods: &[Named<'_>],
    zones: Zones<'_>,
    existing: &[&Value],
    family: &str,
    writes: &mut Vec<Write>,
) {
    let (owned, foreign): (Vec<&Value>, Vec<&Value>) = existing.iter().partition(|slice| is_owned(slice, service));
    let mut deletions = foreign;
    // Pods that map a port's name to other numbers need slices of their own.
    let mut groups: BTreeMap<String, (Value, BTreeMap<String, Value>)> = BTreeMap::new();
    for (pod_name, pod) in pods {
        let ports = ports(service, pod);
        let group = groups.entry(ports_key(&ports)).or_insert_with(|| (ports, BTreeMap::new()));
        let zone = zones(&pod.node);
        if zone.is_none() && service["spec"]["publishNotReadyAddresses"] != true {
            // Its node is gone, and it will be soon.
            continue;
        }
        let endpoint = endpoint(service, pod_name, pod, zone.as_deref(), family);
        if let Some(endpoint) = endpoint {
            group.1.insert(endpoint_key(&endpoint), endpoint);
        }
    }
    let (mut creations, mut updates) = (Vec::new(), Vec::new());
    for (key, (ports, endpoints)) in &mut groups {
        let existing = owned.iter().copied().filter(|slice| ports_key(&slice["ports"]) == *key);
        let group = Group { service, family, ports };
        group.plan(&existing.collect::<Vec<_>>(), endpoints, &mut creations, &mut updates, &mut deletions);
    }
    deletions.extend(owned.iter().copied().filter(|slice| !groups.contains_key(&ports_key(&slice["ports"]))));
    if existing.len() == deletions.len() && creations.is_empty() {
        // There is always one, so that everybody sees that the service has been looked at.
        let empty = new_slice(service, family, &json!([]));
        let is_same = |slice: &&Value| {
            slice["endpoints"].as_array().is_none_or(Vec::is_empty)
                && slice["ports"].as_array().is_none_or(Vec::is_empty)
                && slice["metadata"]["labels"] == empty["metadata"]["labels"]
                && is_owned(slice, service)
        };
        match deletions.as_slice() {
            [slice] if is_same(slice) => deletions.clear(),
            _ => creations.push(empty),
        }
    }
    // A slice that would go takes the place of one that would be made.
    let mut kept = Vec::new();
    for slice in deletions {
        match creations.pop() {
            Some(new) if is_owned(slice, service) => updates.push(with_contents(slice, new)),
            Some(new) => {
                creations.push(new);
                kept.push(slice);
            }
            None => kept.push(slice),
        }
    }
    writes.extend(creations.into_iter().map(Write::Create));
    writes.extend(updates.into_iter().map(Write::Update));
    writes.extend(kept.into_iter().map(|slice| Write::Delete(name(slice))));
}

fn is_owned(slice: &Value, service: &Value) -> bool {
    let mut owners = slice["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|own| own["uid"] == service["metadata"]["uid"] && own["kind"] == "Service" && own["apiVersion"] == "v1")
}

fn with_contents(slice: &Value, new: Value) -> Value {
    let mut updated = slice.clone();
    for field in ["ports", "endpoints"] {
        updated[field] = new[field].clone();
    }
    updated["metadata"]["labels"] = new["metadata"]["labels"].clone();
    updated
}

struct Group<'a> {
    service: &'a Value,
    family: &'a str,
    ports: &'a Value,
}

impl Group<'_> {
    /// Keeps endpoints where they are, fills up what changes anyway, then whatever has room, and only then makes new slices.
    fn plan<'s>(
        &self,
        existing: &[&'s Value],
        wanted: &mut BTreeMap<String, Value>,
        creations: &mut Vec<Value>,
        updates: &mut Vec<Value>,
        deletions: &mut Vec<&'s Value>,
    ) {
        let mut changed: Vec<Value> = Vec::new();
        let mut unchanged: Vec<&Value> = Vec::new();
        for &slice in existing {
            let before = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
            let kept: Vec<Value> = before.iter().filter_map(|own| wanted.remove(&endpoint_key(own))).collect();
            let labels = labels(self.service);
            let same = kept.len() == before.len() && kept.iter().zip(before).all(|(new, old)| is_same(new, old));
            if !same && kept.is_empty() {
                deletions.push(slice);
            } else if !same || slice["metadata"]["labels"] != labels {
                let mut slice = slice.clone();
                slice["metadata"]["labels"] = labels;
                slice["endpoints"] = kept.into();
                changed.push(slice);
            } else {
                unchanged.push(slice);
            }
        }
        let len = |slice: &Value| slice["endpoints"].as_array().map_or(0, Vec::len);
        changed.sort_by_key(|slice| std::cmp::Reverse(len(slice)));
        changed.iter_mut().for_each(|slice| fill(slice, wanted));
        while !wanted.is_empty() {
            let room = unchanged.iter().enumerate().filter(|(_, slice)| len(slice) + wanted.len() <= FULL);
            let fullest = room.max_by_key(|(_, slice)| len(slice)).map(|(at, _)| at);
            let mut slice = match fullest {
                Some(at) => unchanged.swap_remove(at).clone(),
                None => new_slice(self.service, self.family, self.ports),
            };
            fill(&mut slice, wanted);
            if fullest.is_some() { changed.push(slice) } else { creations.push(slice) }
        }
        updates.append(&mut changed);
    }
}

fn fill(slice: &mut Value, wanted: &mut BTreeMap<String, Value>) {
    if !slice["endpoints"].is_array() {
        slice["endpoints"] = json!([]);
    }
    let Some(endpoints) = slice["endpoints"].as_array_mut() else { return };
    while endpoints.len() < FULL {
        let Some((_, endpoint)) = wanted.pop_first() else { return };
        endpoints.push(endpoint);
    }
}

/// What makes an endpoint the same one: its addresses, its host name and what it stands for.
fn endpoint_key(endpoint: &Value) -> String {
    json!([endpoint["addresses"], endpoint["hostname"], endpoint["targetRef"]["name"], endpoint["targetRef"]["uid"]])
        .to_string()
}

fn is_same(new: &Value, old: &Value) -> bool {
    ["conditions", "nodeName", "zone"].iter().all(|field| new[field] == old[field])
        && ["kind", "namespace", "name", "uid"].iter().all(|field| new["targetRef"][field] == old["targetRef"][field])
}

fn ports_key(ports: &Value) -> String {
    let mut ports: Vec<String> = ports
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| {
            json!([port["name"].as_str().unwrap_or_default(), port["protocol"], port["port"], port["appProtocol"]])
                .to_string()
        })
        .collect();
    ports.sort();
    ports.join(",")
}

/// The ports of a service as a pod has them. A named port that the pod does not have is left out.
fn ports(service: &Value, pod: &Pod) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|port| {
            let number = target_port(port, pod)?;
            let mut made = json!({"name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": port["protocol"]});
            if let Some(protocol) = port["appProtocol"].as_str() {
                made["appProtocol"] = protocol.into();
            }
            Some(made)
        })
        .collect()
}

/// The number of a service's port on a pod.
pub fn target_port(port: &Value, pod: &Pod) -> Option<u64> {
    match &port["targetPort"] {
        Value::String(name) => pod.port(name, port["protocol"].as_str().unwrap_or("TCP")).map(u64::from),
        number => number.as_u64(),
    }
}

fn endpoint(service: &Value, name: &str, pod: &Pod, zone: Option<&str>, family: &str) -> Option<Value> {
    let of_family = pod.addresses.iter().filter(|address| matches!(address, IpAddr::V6(_)) == (family == "IPv6"));
    let addresses: Vec<String> = of_family.map(IpAddr::to_string).collect();
    if addresses.is_empty() {
        return None;
    }
    let publish = service["spec"]["publishNotReadyAddresses"] == true;
    let mut endpoint = json!({
        "addresses": addresses,
        "conditions": {
            "ready": publish || (pod.ready && !pod.terminating), "serving": pod.ready, "terminating": pod.terminating,
        },
        "targetRef": {"kind": "Pod", "namespace": service["metadata"]["namespace"], "name": name, "uid": pod.uid},
    });
    if !pod.node.is_empty() {
        endpoint["nodeName"] = (&*pod.node).into();
    }
    if let Some(zone) = zone.filter(|zone| !zone.is_empty()) {
        endpoint["zone"] = zone.into();
    }
    if has_hostname(service, pod) {
        endpoint["hostname"] = (&*pod.hostname).into();
    }
    Some(endpoint)
}

/// Whether a service gives a pod a name.
pub fn has_hostname(service: &Value, pod: &Pod) -> bool {
    !pod.hostname.is_empty() && service["metadata"]["name"] == *pod.subdomain
}

/// Whether a service has no address of its own.
pub fn is_headless(service: &Value) -> bool {
    matches!(service["spec"]["clusterIP"].as_str(), None | Some("" | "None"))
}

fn labels(service: &Value) -> Value {
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), "".into());
    }
    labels.insert(SERVICE_NAME.into(), service["metadata"]["name"].clone());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels.into()
}

fn new_slice(service: &Value, family: &str, ports: &Value) -> Value {
    let meta = &service["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let owner = Map::from_iter([
        ("apiVersion".to_owned(), json!("v1")),
        ("kind".to_owned(), json!("Service")),
        ("name".to_owned(), meta["name"].clone()),
        ("uid".to_owned(), meta["uid"].clone()),
        ("controller".to_owned(), json!(true)),
        ("blockOwnerDeletion".to_owned(), json!(true)),
    ]);
    json!({
        "metadata": {
            "generateName": format!("{name}-"), "namespace": meta["namespace"], "labels": labels(service),
            "ownerReferences": [owner],
        },
        "addressType": family, "ports": ports, "endpoints": [],
    })
}
