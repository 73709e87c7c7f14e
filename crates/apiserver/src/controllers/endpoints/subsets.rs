//! The Endpoints a service should have: the older form, one object for all addresses. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::pods::Pod;
use super::slices::{HEADLESS, Named, has_hostname, is_headless, target_port};

/// Names the manager of an Endpoints object.
pub const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The manager.
pub const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses one object has.
const CAPACITY: usize = 1000;

/// Addresses by what they stand for; whether they are ready.
type Addresses = BTreeMap<(IpAddr, Box<str>), (bool, Value)>;

/// The Endpoints of a service, given those it has; none if nothing is to change.
pub fn plan(service: &Value, pods: &[Named<'_>], existing: Option<&Value>) -> Option<Value> {
    let (subsets, cut) = subsets(service, pods);
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), "".into());
    }
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let mut wanted = existing.cloned().unwrap_or_else(
        || json!({"metadata": {"name": service["metadata"]["name"], "namespace": service["metadata"]["namespace"]}}),
    );
    let meta = &mut wanted["metadata"];
    meta["labels"] = labels.into();
    if cut {
        meta["annotations"][OVER_CAPACITY] = "truncated".into();
    } else if let Some(annotations) = meta["annotations"].as_object_mut() {
        annotations.remove(OVER_CAPACITY);
    }
    if meta["annotations"].as_object().is_none_or(serde_json::Map::is_empty) {
        meta.as_object_mut()?.remove("annotations");
    }
    match subsets.as_array().is_some_and(|list| list.is_empty()) {
        true => drop(wanted.as_object_mut()?.remove("subsets")),
        false => wanted["subsets"] = subsets,
    }
    (existing != Some(&wanted)).then_some(wanted)
}

fn subsets(service: &Value, pods: &[Named<'_>]) -> (Value, bool) {
    let publish = service["spec"]["publishNotReadyAddresses"] == true;
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Which addresses each port has.
    let mut by_port: BTreeMap<String, (Option<Value>, Addresses)> = BTreeMap::new();
    for (name, pod) in pods {
        if pod.terminating && !publish {
            continue;
        }
        let Some(address) = address(service, pod) else { continue };
        let mut shown = json!({
            "ip": address.to_string(),
            "targetRef": {"kind": "Pod", "namespace": service["metadata"]["namespace"], "name": name, "uid": pod.uid},
        });
        if !pod.node.is_empty() {
            shown["nodeName"] = (&*pod.node).into();
        }
        if has_hostname(service, pod) {
            shown["hostname"] = (&*pod.hostname).into();
        }
        let mut add = |port: Option<Value>| {
            let key = port.as_ref().map(Value::to_string).unwrap_or_default();
            let group = by_port.entry(key).or_insert_with(|| (port, Addresses::new()));
            group.1.insert((address, pod.uid.clone()), (publish || pod.ready, shown.clone()));
        };
        if ports.is_empty() && service["spec"]["clusterIP"] == "None" {
            add(None);
        }
        for port in ports {
            let Some(number) = target_port(port, pod) else { continue };
            let mut made = json!({"port": number, "protocol": port["protocol"]});
            for field in ["name", "appProtocol"] {
                if let Some(text) = port[field].as_str().filter(|text| !text.is_empty()) {
                    made[field] = text.into();
                }
            }
            add(Some(made));
        }
    }
    // Ports with the same addresses share a subset.
    let mut groups: Vec<(Vec<Value>, Addresses)> = Vec::new();
    for (port, addresses) in by_port.into_values() {
        match groups.iter_mut().find(|(_, own)| *own == addresses) {
            Some((ports, _)) => ports.extend(port),
            None => groups.push((port.into_iter().collect(), addresses)),
        }
    }
    show(groups)
}

/// Writes the subsets; of too many addresses the ready ones stay, in proportion.
fn show(groups: Vec<(Vec<Value>, Addresses)>) -> (Value, bool) {
    let count = |ready: bool| {
        groups.iter().map(|(_, all)| all.values().filter(|(own, _)| *own == ready).count()).sum::<usize>()
    };
    let (ready, unready) = (count(true), count(false));
    let cut = ready + unready > CAPACITY;
    let (mut ready_left, mut unready_left) = (ready.min(CAPACITY), unready.min(CAPACITY.saturating_sub(ready)));
    let (ready_all, unready_all) = (ready_left, unready_left);
    let subsets = groups.into_iter().map(|(ports, addresses)| {
        let mut subset = json!({});
        let kinds = [
            ("addresses", true, &mut ready_left, ready_all, ready),
            ("notReadyAddresses", false, &mut unready_left, unready_all, unready),
        ];
        for (field, wanted, left, all, total) in kinds {
            let of_kind: Vec<&Value> =
                addresses.values().filter(|(own, _)| *own == wanted).map(|(_, shown)| shown).collect();
            let share = (of_kind.len() * all).div_ceil(total.max(1)).min(*left).min(of_kind.len());
            *left -= share;
            if share > 0 {
                subset[field] = of_kind[..share].iter().copied().cloned().collect();
            }
        }
        if !ports.is_empty() {
            subset["ports"] = ports.into();
        }
        subset
    });
    (subsets.collect(), cut)
}

fn address(service: &Value, pod: &Pod) -> Option<IpAddr> {
    let family = service["spec"]["ipFamilies"][0].as_str();
    let six = match (family, service["spec"]["clusterIP"].as_str().unwrap_or_default()) {
        (Some(family), _) => family == "IPv6",
        (None, "" | "None") => pod.addresses.first()?.is_ipv6(),
        (None, address) => address.contains(':'),
    };
    pod.addresses.iter().copied().find(|address| address.is_ipv6() == six)
}
