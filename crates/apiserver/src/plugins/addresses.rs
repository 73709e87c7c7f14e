//! The addresses of Services: each is an IPAddress, written in the same transaction as the Service that has it, so that two
//! Services never have the same one, whoever is faster and whatever fails. Who makes an IPAddress takes it out of the pool.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Expect, KeyRange, Op, Transaction};

use super::random;
use crate::context::Context;
use crate::plan::{View, parse_stored};
use crate::server::{Inner, Server};

/// Where the addresses are kept.
pub const TABLE: &str = "networking.k8s.io/ipaddresses";
/// Where the ranges are that they come from.
pub const RANGES: &str = "networking.k8s.io/servicecidrs";
/// The name of the range that every server has, and the range.
pub const DEFAULT: (&str, &str) = ("kubernetes", "10.96.0.0/16");
/// Who gives addresses to Services.
pub const ALLOCATOR: &str = "ipallocator.k8s.io";
/// The label that says whose an address is.
pub const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The label that says of which family it is.
pub const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

/// Addresses that begin alike, such as `10.96.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    network: u128,
    /// How many bits are free.
    host: u32,
    is_v4: bool,
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

impl Range {
    /// Reads a range.
    pub fn parse(text: &str) -> Option<Range> {
        let (ip, bits) = text.split_once('/')?;
        let (ip, bits) = (ip.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?);
        let host = if ip.is_ipv4() { 32u32 } else { 128 }.checked_sub(bits)?;
        let network = number(ip).checked_shr(host).unwrap_or(0).checked_shl(host).unwrap_or(0);
        Some(Range { network, host, is_v4: ip.is_ipv4() })
    }

    fn last(&self) -> u128 {
        self.network | 1u128.checked_shl(self.host).map_or(u128::MAX, |size| size - 1)
    }

    /// Whether a Service may have an address of it: the network's own and, of IPv4, the last one are for nobody.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let ip = (ip.is_ipv4() == self.is_v4).then(|| number(ip));
        ip.is_some_and(|ip| ip > self.network && ip <= self.last() && !(self.is_v4 && ip == self.last()))
    }

    /// Whether it has all addresses of another.
    pub fn covers(&self, other: &Range) -> bool {
        self.is_v4 == other.is_v4 && self.host >= other.host && (self.network..=self.last()).contains(&other.network)
    }

    /// An address that nobody has. The first ones are given out last, so that there is room for those who ask for a certain one.
    fn free(&self, view: &View<'_>) -> Option<IpAddr> {
        let (first, size) = (u32::try_from(self.network).ok()?, 1u64.checked_shl(self.host)?);
        let count = size.checked_sub(2).filter(|count| self.is_v4 && *count > 0)?;
        let reserved = if size <= 16 { 0 } else { (size / 16).clamp(16, 256) };
        let at = |offset: u64| IpAddr::V4((first + 1 + offset as u32).into());
        let from = |begin: u64, end: u64| {
            let span = end - begin;
            let draw = random().checked_rem(span).unwrap_or(0);
            (0..span).map(move |step| at(begin + (draw + step) % span))
        };
        let free = |ip: &IpAddr| !view.is_taken(TABLE, &ip.to_string());
        from(reserved.min(count), count).chain(from(0, reserved.min(count))).find(free)
    }
}

/// The ranges of a ServiceCIDR.
pub fn ranges_of(cidr: &Value) -> impl Iterator<Item = Range> + '_ {
    cidr["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(|own| Range::parse(own.as_str()?))
}

/// The condition Ready of a ServiceCIDR.
pub fn readiness(cidr: &Value) -> Option<&Value> {
    cidr["status"]["conditions"].as_array()?.iter().find(|own| own["type"] == "Ready")
}

/// The ranges that addresses are taken from now, with the names of their ServiceCIDRs; the default one first.
fn pool(view: &View<'_>) -> Vec<(String, Range)> {
    let mut pool = Vec::new();
    for cidr in view.list(RANGES, "") {
        let meta = &cidr["metadata"];
        // As long as nobody has said anything about it, it is ready.
        let ready = readiness(&cidr).is_none_or(|own| own["status"] == "True");
        if ready && meta.get("deletionTimestamp").is_none() {
            let name = meta["name"].as_str().unwrap_or_default();
            pool.extend(ranges_of(&cidr).map(|range| (name.to_owned(), range)));
        }
    }
    pool.sort_by_key(|(name, _)| name != DEFAULT.0);
    pool
}

/// An address that no Service has.
pub fn free(view: &View<'_>) -> Option<IpAddr> {
    pool(view).iter().find_map(|(_, range)| range.free(view))
}

/// Why a Service cannot have an address.
pub fn refuse(view: &View<'_>, ip: IpAddr) -> Option<&'static str> {
    if !pool(view).iter().any(|(_, range)| range.holds(ip)) {
        return Some("the provided network does not match the current range");
    }
    view.is_taken(TABLE, &ip.to_string()).then_some("provided IP is already allocated")
}

/// The addresses that a Service has.
pub fn held(service: &Value) -> BTreeSet<String> {
    let list = service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    list.filter_map(|ip| ip.parse::<IpAddr>().ok()).map(|ip| ip.to_string()).collect()
}

/// The IPAddress of a Service's address, as a client would send it.
pub fn described(ip: &str, namespace: &str, name: &str) -> Value {
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": ip, "labels": {FAMILY: family, MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    })
}

fn encode(server: &Inner, address: &Value) -> Result<store::Value, Status> {
    let catalog = server.catalog();
    let resource = catalog.find("networking.k8s.io", "v1", "ipaddresses");
    Ok(resource.ok_or_else(|| Status::internal("there are no IPAddresses"))?.encode(address))
}

/// The step that gives an address to a Service.
fn give(server: &Inner, ip: &str, namespace: &str, name: &str) -> Result<Op, Status> {
    let mut address = described(ip, namespace, name);
    let now = server.now();
    let meta = &mut address["metadata"];
    meta["uid"] = server.new_uid().into();
    meta["creationTimestamp"] = now.as_str().into();
    meta["managedFields"] = json!([{
        "manager": "kube-apiserver", "operation": "Update", "apiVersion": "networking.k8s.io/v1", "time": now,
        "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, format!("f:{FAMILY}"): {}, format!("f:{MANAGED_BY}"): {}}},
            "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
        },
    }]);
    Ok(Op::put(TABLE, ip, encode(server, &address)?, Expect::Absent))
}

/// The writes of the addresses that a Service takes and gives back. A range that is taken from must still be there then.
pub fn reserve(cx: &Context, view: &View<'_>, old: &Value, new: &Value, ops: &mut Vec<Op>) -> Result<(), Status> {
    let (before, after) = (held(old), held(new));
    if before == after {
        return Ok(());
    }
    let part = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
    let mut ranges = Vec::new();
    for ip in after.difference(&before) {
        ops.push(give(&cx.server, ip, part("namespace"), part("name"))?);
        let Ok(ip) = ip.parse::<IpAddr>() else { continue };
        if ranges.is_empty() {
            ranges = pool(view);
        }
        let range = ranges.iter().find(|(_, range)| range.holds(ip)).map(|(name, _)| name);
        if let Some(entry) =
            range.filter(|name| !view.is_pending(RANGES, name)).and_then(|name| view.entry(RANGES, name))
        {
            ops.push(Op::check(RANGES, entry.key.clone(), Expect::Revision(entry.revision)));
        }
    }
    for ip in before.difference(&after) {
        let Some(address) = view.object(TABLE, ip) else { continue };
        // One that somebody holds is let go by the controller, as everybody would.
        if address["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            let final_value = Some(encode(&cx.server, &address)?);
            ops.push(Op::Delete { table: TABLE.into(), key: ip.as_str().into(), expect: Expect::Any, final_value });
        }
    }
    Ok(())
}

/// Addresses used to be kept in a table of their own: makes IPAddresses of them.
pub async fn adopt(server: &Server) -> Result<(), Status> {
    const BEFORE: &str = "allocations/addresses";
    let list = server.store().list(BEFORE, KeyRange::all(), None);
    for some in list.map(|list| list.entries).unwrap_or_default().chunks(256) {
        let mut ops = Vec::new();
        for entry in some {
            let owner = String::from_utf8_lossy(&entry.value);
            if let Some((namespace, name)) = owner.split_once('/') {
                if server.store().get(TABLE, &entry.key).is_none() {
                    ops.push(give(&server.0, &entry.key, namespace, name)?);
                }
            }
            ops.push(Op::delete(BEFORE, entry.key.clone(), Expect::Any));
        }
        server.store().commit(Transaction { ops }).await.map_err(crate::plan::commit_status)?;
    }
    Ok(())
}

/// What an IPAddress says: whose it is, by `namespace/name` if a Service's, and whether its labels are right.
pub struct Said {
    /// The Service.
    pub service: Option<String>,
    /// Whether it is one of a Service's, by its label.
    pub managed: bool,
    /// Whether the family is said rightly, too.
    pub labelled: bool,
    /// Its metadata.
    pub meta: Value,
}

impl Said {
    /// Reads it.
    pub fn of(entry: &store::Entry) -> Option<Said> {
        let mut address = parse_stored(entry).ok()?;
        let parent = &address["spec"]["parentRef"];
        let text = |field: &str| parent[field].as_str().unwrap_or_default();
        let service = (text("group").is_empty() && text("resource") == "services")
            .then(|| format!("{}/{}", text("namespace"), text("name")));
        let labels = &address["metadata"]["labels"];
        let managed = labels[MANAGED_BY] == ALLOCATOR;
        let family = if entry.key.contains(':') { "IPv6" } else { "IPv4" };
        let labelled = managed && labels[FAMILY] == family;
        Some(Said { service, managed, labelled, meta: address["metadata"].take() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).unwrap()
    }

    #[test]
    fn a_range_holds_what_lies_between_its_ends() {
        for (text, inside, outside) in [
            ("10.96.0.0/16", ["10.96.0.1", "10.96.255.254"], ["10.96.0.0", "10.96.255.255"]),
            ("10.222.0.7/28", ["10.222.0.1", "10.222.0.14"], ["10.222.0.15", "10.222.0.16"]),
            ("0.0.0.0/0", ["10.0.0.1", "255.255.255.254"], ["255.255.255.255", "::1"]),
            ("fd00::/112", ["fd00::1", "fd00::ffff"], ["fd00::", "fd00::1:0"]),
        ] {
            assert!(inside.iter().all(|ip| range(text).holds(ip.parse().unwrap())), "{text}");
            assert!(!outside.iter().any(|ip| range(text).holds(ip.parse().unwrap())), "{text}");
        }
        assert!(!range("10.0.0.1/32").holds("10.0.0.1".parse().unwrap()));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"] {
            assert_eq!(Range::parse(wrong), None);
        }
    }

    #[test]
    fn a_range_covers_what_is_in_it() {
        assert!(range("10.0.0.0/8").covers(&range("10.96.0.0/16")));
        assert!(range("10.96.0.0/16").covers(&range("10.96.0.0/16")));
        assert!(!range("10.96.0.0/16").covers(&range("10.0.0.0/8")));
        assert!(!range("::/0").covers(&range("10.0.0.0/8")));
    }

    #[tokio::test]
    async fn every_address_of_a_range_is_given_once() {
        let store = store::Store::in_memory(store::Options::default());
        for (text, count) in [("10.1.0.0/27", 30), ("10.2.0.0/28", 14), ("10.3.0.0/31", 0), ("10.4.0.0/32", 0)] {
            for given in 0..count {
                let ip = range(text).free(&View::new(&store)).unwrap();
                assert!(range(text).holds(ip));
                // Of a /27 the first 16 are given last.
                let low =
                    range("10.1.0.0/28").holds(ip) || ip.to_string() == "10.1.0.15" || ip.to_string() == "10.1.0.16";
                assert_eq!(low, count == 30 && given >= 14, "{ip}");
                let op = Op::put(TABLE, ip.to_string(), b"{}".to_vec(), Expect::Absent);
                store.commit(Transaction { ops: vec![op] }).await.unwrap();
            }
            assert_eq!(range(text).free(&View::new(&store)), None, "{text}");
        }
    }
}
