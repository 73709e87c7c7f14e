//! Addresses and ports of Services. A port is a key of its own in the store, written in the same transaction as the Service: two
//! Services never have the same one, whoever is faster and whatever fails. Addresses are IPAddresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use machinery::field::{Error, Path};
use machinery::status::Status;
use serde_json::{Value, json};
use store::{Expect, Op};

use super::{addresses, random};
use crate::context::Context;
use crate::plan::View;

const PORTS: &str = "allocations/nodeports";

const FIRST_PORT: i64 = 30000;
const LAST_PORT: i64 = 32767;
const FIRST_DYNAMIC_PORT: i64 = 30086;

fn is_service(cx: &Context) -> bool {
    cx.resource.gk() == ("", "Service")
}

fn text<'a>(service: &'a Value, field: &str) -> &'a str {
    service["spec"][field].as_str().unwrap_or_default()
}

fn strings(service: &Value, field: &str) -> Vec<String> {
    service["spec"][field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Gives a Service what it needs and does not name, and checks what it names. After admission, before validation.
pub fn allocate(cx: &Context, view: &View<'_>, new: &mut Value, old: &Value, dry_run: bool) -> Result<(), Status> {
    if !is_service(cx) || !cx.info.subresource.is_empty() || !new["spec"].is_object() {
        return Ok(());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let invalid = |error: Error| Status::invalid("", "Service", &name, &[error]);
    if text(new, "type") != "ExternalName" {
        if old.is_null() && strings(new, "clusterIPs").is_empty() && !text(new, "clusterIP").is_empty() {
            new["spec"]["clusterIPs"] = json!([text(new, "clusterIP")]);
        }
        if let Some(error) = families(new, old) {
            return Err(invalid(error));
        }
        let had_none = old.is_null() || text(old, "type") == "ExternalName";
        if had_none && text(new, "clusterIP") != "None" {
            if let Some(error) = address(view, new)? {
                return Err(invalid(error));
            }
        }
    }
    match ports(view, new, old, dry_run)? {
        Some(error) => Err(invalid(error)),
        None => Ok(()),
    }
}

/// The IP families, as far as a server with IPv4 only has them.
fn families(service: &mut Value, old: &Value) -> Option<Error> {
    let path = Path::root("spec");
    let headless = text(service, "clusterIP") == "None";
    let unselective = service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if service["spec"]["ipFamilyPolicy"].is_null() {
        let policy = match text(old, "ipFamilyPolicy") {
            "" if headless && unselective => "RequireDualStack",
            "" => "SingleStack",
            before => before,
        };
        service["spec"]["ipFamilyPolicy"] = policy.into();
    }
    let policy = text(service, "ipFamilyPolicy").to_owned();
    let mut list = strings(service, "ipFamilies");
    if headless && unselective {
        // Whoever keeps the endpoints may have addresses that this server has not.
        if list.is_empty() {
            list.push("IPv4".into());
        }
        if list.len() == 1 && policy != "SingleStack" {
            list.push(if list[0] == "IPv4" { "IPv6" } else { "IPv4" }.into());
        }
        service["spec"]["ipFamilies"] = list.into();
        return None;
    }
    if policy == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        return Some(Error::invalid(&path.child("ipFamilyPolicy"), policy, detail));
    }
    if let Some(at) = list.iter().position(|family| family == "IPv6") {
        return Some(Error::invalid(&path.child("ipFamilies").index(at), "IPv6", "not configured on this cluster"));
    }
    let addresses = strings(service, "clusterIPs");
    if let Some(at) = addresses.iter().position(|ip| matches!(ip.parse::<IpAddr>(), Ok(IpAddr::V6(_)))) {
        let detail = "IPv6 is not configured on this cluster";
        return Some(Error::invalid(&path.child("clusterIPs").index(at), json!(addresses), detail));
    }
    if list.is_empty() {
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    None
}

/// An address for a Service that has none, or the one it names.
fn address(view: &View<'_>, service: &mut Value) -> Result<Option<Error>, Status> {
    let given = strings(service, "clusterIPs");
    let Some(wanted) = given.first().filter(|ip| !ip.is_empty()) else {
        let full = || Status::internal("failed to allocate a serviceIP: range is full");
        let ip = addresses::free(view).ok_or_else(full)?.to_string();
        service["spec"]["clusterIP"] = ip.as_str().into();
        service["spec"]["clusterIPs"] = json!([ip]);
        return Ok(None);
    };
    // What is no address at all, validation refuses.
    let Ok(ip @ IpAddr::V4(_)) = wanted.parse::<IpAddr>() else { return Ok(None) };
    Ok(addresses::refuse(view, ip).map(|why| {
        let path = Path::root("spec").child("clusterIPs");
        Error::invalid(&path, json!(given), format!("failed to allocate IP {wanted}: {why}"))
    }))
}

/// The node ports of one Service while they are given out.
struct Ports<'a> {
    view: &'a View<'a>,
    /// Those that it has got by now.
    taken: BTreeSet<i64>,
    dry_run: bool,
}

impl Ports<'_> {
    /// Gives a port that was asked for, or says why not.
    fn take(&mut self, port: i64) -> Result<(), String> {
        // As in Kubernetes, where nothing is given the range is not looked at.
        if !self.dry_run && !(FIRST_PORT..=LAST_PORT).contains(&port) {
            let range = format!("{FIRST_PORT}-{LAST_PORT}");
            return Err(format!("provided port is not in the valid range. The range of valid ports is {range}"));
        }
        if self.view.is_taken(PORTS, &port.to_string()) || !self.taken.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    /// Gives any port but those that are still to be asked for.
    fn draw(&mut self, besides: &BTreeSet<i64>) -> Option<i64> {
        let port = if self.dry_run { self.imagined() } else { self.free(besides)? };
        self.taken.insert(port);
        Some(port)
    }

    /// What Kubernetes shows where a port would be given.
    fn imagined(&self) -> i64 {
        self.taken.last().map_or(LAST_PORT + 1, |last| *last.max(&0)) + 1
    }

    fn free(&self, besides: &BTreeSet<i64>) -> Option<i64> {
        let free = |port: &i64| {
            !besides.contains(port) && !self.taken.contains(port) && !self.view.is_taken(PORTS, &port.to_string())
        };
        let span = LAST_PORT + 1 - FIRST_DYNAMIC_PORT;
        let draw = (random() % span.unsigned_abs()) as i64;
        let dynamic = (0..span).map(|step| FIRST_DYNAMIC_PORT + (draw + step) % span);
        dynamic.chain(FIRST_PORT..FIRST_DYNAMIC_PORT).find(free)
    }
}

/// Node ports for a Service that has them, and a port for health checks.
fn ports(view: &View<'_>, service: &mut Value, old: &Value, dry_run: bool) -> Result<Option<Error>, Status> {
    let mut ports = Ports { view, taken: BTreeSet::new(), dry_run };
    if matches!(text(service, "type"), "NodePort" | "LoadBalancer") {
        let every = text(service, "type") == "NodePort" || service["spec"]["allocateLoadBalancerNodePorts"] != false;
        let wrong = match service["spec"]["ports"].as_array_mut() {
            Some(list) if old.is_null() => first_ports(&mut ports, list, every)?,
            Some(list) => other_ports(&mut ports, list, old, every)?,
            None => None,
        };
        if wrong.is_some() {
            return Ok(wrong);
        }
    }
    if needs_health_check(service) && !needs_health_check(old) {
        let number = service["spec"]["healthCheckNodePort"].as_i64().filter(|number| *number != 0);
        match number {
            Some(wanted) => ports.take(wanted).map_err(|why| {
                Status::internal(format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}"))
            })?,
            None => {
                let full = || Status::internal("failed to allocate a HealthCheck NodePort 0: range is full");
                service["spec"]["healthCheckNodePort"] = ports.draw(&BTreeSet::new()).ok_or_else(full)?.into();
            }
        }
    }
    Ok(None)
}

fn needs_health_check(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

fn node_port(port: &Value) -> Option<i64> {
    port["nodePort"].as_i64().filter(|number| *number != 0)
}

fn not_given(at: usize, port: i64, why: String) -> Error {
    Error::invalid(&Path::root("spec").child("ports").index(at).child("nodePort"), port, why)
}

fn full() -> Status {
    Status::internal("failed to allocate a nodePort: range is full")
}

/// Those of a new Service: one port number with several protocols has one node port, unless they name others.
fn first_ports(ports: &mut Ports<'_>, list: &mut [Value], every: bool) -> Result<Option<Error>, Status> {
    let number = |port: &Value| port["port"].as_i64().unwrap_or(0);
    let named: BTreeSet<i64> = list.iter().filter_map(node_port).collect();
    let mut wishes: BTreeMap<i64, i64> = BTreeMap::new();
    for port in list.iter() {
        if let Some(wanted) = node_port(port) {
            wishes.entry(number(port)).or_insert(wanted);
        }
    }
    let mut given: BTreeMap<i64, i64> = BTreeMap::new();
    for (at, port) in list.iter_mut().enumerate() {
        let wanted = node_port(port);
        if wanted.is_none() && !every {
            continue;
        }
        let number = number(port);
        let sibling = given.get(&number).copied();
        let asked = match sibling {
            Some(_) => wanted.filter(|wanted| sibling != Some(*wanted)),
            None => wishes.get(&number).copied(),
        };
        if let Some(asked) = asked
            && let Err(why) = ports.take(asked)
        {
            return Ok(Some(not_given(at, asked, why)));
        }
        let own = match asked.or(sibling) {
            Some(own) => own,
            None => ports.draw(&named).ok_or_else(full)?,
        };
        given.entry(number).or_insert(own);
        port["nodePort"] = own.into();
    }
    Ok(None)
}

/// Those of a Service that changes: it may keep what it has, for whichever of its ports.
fn other_ports(ports: &mut Ports<'_>, list: &mut [Value], old: &Value, every: bool) -> Result<Option<Error>, Status> {
    let named: BTreeSet<i64> = list.iter().filter_map(node_port).collect();
    let before = old["spec"]["ports"].as_array().into_iter().flatten();
    let mut own: BTreeSet<i64> = before.filter_map(node_port).collect();
    for (at, port) in list.iter_mut().enumerate() {
        match node_port(port) {
            Some(wanted) if own.contains(&wanted) => {}
            Some(wanted) => {
                if let Err(why) = ports.take(wanted) {
                    return Ok(Some(not_given(at, wanted, why)));
                }
                own.insert(wanted);
            }
            None if every => port["nodePort"] = ports.draw(&named).ok_or_else(full)?.into(),
            None => {}
        }
    }
    Ok(None)
}

fn held_ports(service: &Value) -> BTreeSet<String> {
    let list = service["spec"]["ports"].as_array().into_iter().flatten();
    list.map(|port| &port["nodePort"])
        .chain([&service["spec"]["healthCheckNodePort"]])
        .filter_map(|port| port.as_i64().filter(|number| *number != 0))
        .map(|number| number.to_string())
        .collect()
}

/// The writes of what a Service takes and gives back.
pub fn reserve(cx: &Context, view: &View<'_>, old: &Value, new: &Value, ops: &mut Vec<Op>) -> Result<(), Status> {
    if !is_service(cx) {
        return Ok(());
    }
    let meta = if new.is_null() { &old["metadata"] } else { &new["metadata"] };
    let part = |field: &str| meta[field].as_str().unwrap_or_default();
    let owner = format!("{}/{}", part("namespace"), part("name"));
    let (before, after) = (held_ports(old), held_ports(new));
    for key in after.difference(&before) {
        ops.push(Op::put(PORTS, key.as_str(), Vec::from(owner.as_bytes()), Expect::Absent));
    }
    for key in before.difference(&after).filter(|key| view.is_taken(PORTS, key)) {
        ops.push(Op::delete(PORTS, key.as_str(), Expect::Any));
    }
    addresses::reserve(cx, view, old, new, ops)
}
