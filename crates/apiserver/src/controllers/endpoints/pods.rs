//! What endpoints are made of: the few facts about a pod that they show.

use std::net::IpAddr;

use machinery::json::Text;
use machinery::names::ip;
use serde::Deserialize;
use store::Entry;

/// A pod with an address that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// Its uid.
    pub uid: Box<str>,
    /// Its labels.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// Whether it can serve.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Its node; empty if it has none.
    pub node: Box<str>,
    /// Its host name, within `subdomain`.
    pub hostname: Box<str>,
    /// The service that gives it a name.
    pub subdomain: Box<str>,
    /// Its named ports.
    pub ports: Box<[NamedPort]>,
}

/// The name, protocol and number of a port.
pub type NamedPort = (Box<str>, Box<str>, u16);

impl Pod {
    /// Reads a stored pod; none if it has ended or has no address.
    pub fn read(entry: &Entry) -> Option<Pod> {
        let pod: Stored<'_> = serde_json::from_slice(&entry.value).ok()?;
        let (spec, status) = (&pod.spec, &pod.status);
        if matches!(&*status.phase, "Succeeded" | "Failed") {
            return None;
        }
        let listed = status.pod_ips.iter().flatten().map(|own| &*own.ip);
        let mut addresses: Vec<IpAddr> = listed.filter_map(ip::parse).collect();
        if addresses.is_empty() {
            addresses.extend(ip::parse(&status.pod_ip));
        }
        if addresses.is_empty() {
            return None;
        }
        let sidecars = spec.init_containers.iter().flatten().filter(|own| &*own.restart_policy == "Always");
        let containers = spec.containers.iter().flatten().chain(sidecars);
        let ports = containers.flat_map(|own| own.ports.iter().flatten()).filter(|port| !port.name.is_empty());
        let mut conditions = status.conditions.iter().flatten();
        Some(Pod {
            uid: boxed(&pod.metadata.uid),
            labels: pod.metadata.labels(),
            addresses: addresses.into(),
            ready: conditions.any(|own| &*own.kind == "Ready" && &*own.status == "True"),
            terminating: !pod.metadata.deletion_timestamp.is_empty(),
            node: boxed(&spec.node_name),
            hostname: boxed(&spec.hostname),
            subdomain: boxed(&spec.subdomain),
            ports: ports
                .map(|port| {
                    let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
                    (boxed(&port.name), protocol.into(), port.container_port)
                })
                .collect(),
        })
    }

    /// The number of a named port.
    pub fn port(&self, name: &str, protocol: &str) -> Option<u16> {
        self.ports.iter().find(|(own, kind, _)| **own == *name && **kind == *protocol).map(|(_, _, number)| *number)
    }

    /// Its labels as pairs.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }
}

fn boxed(text: &Text<'_>) -> Box<str> {
    (**text).into()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    deletion_timestamp: Text<'a>,
    #[serde(borrow)]
    labels: Option<std::collections::BTreeMap<Text<'a>, Text<'a>>>,
}

impl Meta<'_> {
    fn labels(&self) -> Box<[(Box<str>, Box<str>)]> {
        self.labels.iter().flatten().map(|(key, value)| (boxed(key), boxed(value))).collect()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Text<'a>,
    #[serde(borrow)]
    hostname: Text<'a>,
    #[serde(borrow)]
    subdomain: Text<'a>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow)]
    restart_policy: Text<'a>,
    #[serde(borrow)]
    ports: Option<Vec<Port<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    protocol: Text<'a>,
    container_port: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
    #[serde(borrow, rename = "podIP")]
    pod_ip: Text<'a>,
    #[serde(borrow, rename = "podIPs")]
    pod_ips: Option<Vec<Address<'a>>>,
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address<'a> {
    #[serde(borrow)]
    ip: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
}
