//! Connection details in the claim's namespace: a Secret by the Service Binding Specification, a ConfigMap of its public part, and a
//! Service that names the endpoint.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::lifecycle::CLAIM_UID;
use crate::lifecycle::claim::{deleting, uid};
use crate::lifecycle::status::{Condition, condition_of};
use crate::lifecycle::write::Plan;
use crate::names::joined;
use crate::types::ResourceType;

/// What is known about a claim's connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection<'c> {
    /// The details, decoded, as the implementation gives them; `None`: none yet.
    pub details: Option<&'c Map<String, Value>>,
    /// Details that are no text, in Base64: a keystore, say. Only the Secret has them.
    pub binary: Option<&'c Map<String, Value>>,
    /// The kind of the implementation, as provider where the details say none.
    pub provider: Option<&'c str>,
    /// The rotation that the details' credentials are from; 0: the first.
    pub rotation: i64,
    /// Details that the class speaks of and that are not there, and why.
    pub missing: &'c [String],
    /// The Secret that exists under the binding's name, ours or not.
    pub secret: Option<&'c Value>,
    /// The ConfigMap that exists under it.
    pub config_map: Option<&'c Value>,
    /// The Service that exists under it.
    pub service: Option<&'c Value>,
    /// The EndpointSlice that exists under it.
    pub endpoints: Option<&'c Value>,
    /// Objects that the API server did not take: the purposes of their writes, and why.
    pub refused: &'c [(&'static str, String)],
}

const SECRET: &str = "write the connection Secret";
const CONFIG_MAP: &str = "write the connection ConfigMap";
const SERVICE: &str = "write the connection Service";
const ENDPOINT: &str = "write the connection's endpoint";

/// Whether a write with this purpose brings a connection object in step.
pub fn writes_connection(purpose: &str) -> bool {
    [SECRET, CONFIG_MAP, SERVICE, ENDPOINT].contains(&purpose)
}

/// The name of a claim's connection objects: no other claim's, of any type, in the namespace.
pub fn binding_name(kind: &ResourceType, claim: &Value) -> String {
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    joined(name, &kind.names.resource.to_ascii_lowercase())
}

/// The details anyone may see.
pub fn public_keys() -> [&'static str; 7] {
    ["type", "provider", "host", "port", "database", "bucket", "region"]
}

impl<'c> Connection<'c> {
    fn objects(&self) -> [Option<&'c Value>; 4] {
        [self.secret, self.config_map, self.service, self.endpoints]
    }

    /// Whether something that is not this claim's has the binding's name.
    pub fn is_taken(&self, claim: &Value) -> bool {
        self.taken(claim).is_some()
    }

    /// An object under the binding's name that is not this claim's.
    fn taken(&self, claim: &Value) -> Option<&'c Value> {
        self.objects().into_iter().flatten().find(|o| !ours(o, claim))
    }

    /// All details as the claim's Secret is to have them.
    fn wanted(&self, kind: &ResourceType) -> Option<Map<String, Value>> {
        let mut all: Map<String, Value> = self.details?.iter().map(|(k, v)| (k.clone(), json!(plain(v)))).collect();
        all.entry("type").or_insert_with(|| json!(kind.names.resource.to_ascii_lowercase()));
        if let Some(provider) = self.provider {
            all.entry("provider").or_insert_with(|| json!(provider.to_ascii_lowercase()));
        }
        Some(all)
    }

    /// The same as the Secret holds it, with what is no text.
    fn secret_data(&self, kind: &ResourceType) -> Option<Map<String, Value>> {
        let mut all = encoded(&self.wanted(kind)?);
        for (key, value) in self.binary.into_iter().flatten() {
            all.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Some(all)
    }

    /// The details that anyone may see.
    fn public(&self, kind: &ResourceType) -> Option<Map<String, Value>> {
        let all = self.wanted(kind)?;
        Some(all.into_iter().filter(|(key, _)| public_keys().contains(&key.as_str())).collect())
    }

    /// An object of the claim that holds other details and was made such that nobody can change it.
    fn frozen(&self, kind: &ResourceType) -> Option<&'static str> {
        let frozen = |live: Option<&Value>, wanted: Option<Map<String, Value>>| {
            live.zip(wanted).is_some_and(|(live, wanted)| live["immutable"] == true && entries(&live["data"]) != wanted)
        };
        if frozen(self.secret, self.secret_data(kind)) {
            return Some("Secret");
        }
        frozen(self.config_map, self.public(kind)).then_some("ConfigMap")
    }

    /// Whether a write was refused.
    fn is_refused(&self, purpose: &str) -> bool {
        self.refused.iter().any(|(refused, _)| *refused == purpose)
    }

    /// Whether the claim's connection objects, of which the Secret goes before all others, can be brought in step with the details.
    pub(crate) fn is_writable(&self, kind: &ResourceType, claim: &Value) -> bool {
        self.details.is_some() && self.taken(claim).is_none() && self.frozen(kind) != Some("Secret")
    }

    /// Whether its Secret has the details, or will when all is written.
    pub(crate) fn is_given(&self, kind: &ResourceType, claim: &Value) -> bool {
        self.is_writable(kind, claim) && !self.is_refused(SECRET)
    }

    /// What the claim's status says about it: the binding and its condition.
    pub(crate) fn report(&self, kind: &ResourceType, claim: &Value) -> (Value, Vec<Condition>) {
        let name = binding_name(kind, claim);
        match (self.taken(claim), self.details) {
            (Some(object), _) => {
                let what = object["kind"].as_str().unwrap_or("object");
                let advice = match object["metadata"]["labels"][CLAIM_UID].is_string() {
                    true => "holds the details of another claim: make this claim under another name",
                    false => "exists and is not this claim's: remove or rename it",
                };
                let message = format!("{what} {name} {advice}");
                (Value::Null, vec![Condition::new("ConnectionReady", false, "NameTaken", message)])
            }
            (None, None) => {
                // what it was given before it has still
                let given = self.secret.is_some();
                let old = if given { ": what the Secret holds is from before" } else { "" };
                let told = condition_of(claim, "ConnectionReady").is_some();
                let conditions = match self.missing {
                    [] if told => {
                        let message = format!("what is behind it gives no connection details any more{old}");
                        vec![Condition::new("ConnectionReady", false, "Gone", message)]
                    }
                    [] => Vec::new(),
                    missing => {
                        let message = format!("not there yet: {}{old}", missing.join("; "));
                        vec![Condition::new("ConnectionReady", false, "Waiting", message)]
                    }
                };
                (if given { json!({"name": name}) } else { Value::Null }, conditions)
            }
            (None, Some(_)) if self.frozen(kind).is_some() => {
                let what = self.frozen(kind).unwrap_or_default();
                let message = format!(
                    "{what} {name} is immutable and holds details from before: delete it, and it is made anew with those of now"
                );
                (json!({"name": name}), vec![Condition::new("ConnectionReady", false, "Immutable", message)])
            }
            (None, Some(_)) if !self.refused.is_empty() => {
                let told = self.refused.iter().map(|(purpose, why)| {
                    let what = match *purpose {
                        SECRET => "Secret",
                        CONFIG_MAP => "ConfigMap",
                        SERVICE => "Service",
                        _ => "EndpointSlice",
                    };
                    format!("{what} {name} cannot be written: {why}")
                });
                let message = told.collect::<Vec<_>>().join("; ");
                let named = self.secret.is_some() || !self.is_refused(SECRET);
                let binding = if named { json!({"name": name}) } else { Value::Null };
                (binding, vec![Condition::new("ConnectionReady", false, "Refused", message)])
            }
            (None, Some(details)) => {
                let host = details.get("host").map(plain).unwrap_or_default();
                let message = match Lead::of(details) {
                    Lead::Nowhere if host.is_empty() => {
                        format!("the Secret and ConfigMap {name} hold the connection details")
                    }
                    Lead::Nowhere => {
                        let why = match host.parse::<IpAddr>() {
                            Ok(address) => format!("{address}, which {}", nearby(address).unwrap_or_default()),
                            Err(_) => format!("{host:?}, which is no DNS name"),
                        };
                        format!(
                            "the Secret and ConfigMap {name} hold the connection details; no Service can lead to {why}"
                        )
                    }
                    _ => format!("the Secret, ConfigMap and Service {name} hold the connection details"),
                };
                let condition = match self.missing {
                    [] => Condition::new("ConnectionReady", true, "Written", message),
                    missing => {
                        let message = format!("{message}; not there yet: {}", missing.join("; "));
                        Condition::new("ConnectionReady", false, "Incomplete", message)
                    }
                };
                (json!({"name": name}), vec![condition])
            }
        }
    }
}

/// Where a connection's Service leads.
#[derive(Debug, PartialEq, Eq)]
enum Lead {
    /// There can be none.
    Nowhere,
    Name(String),
    Address(IpAddr),
}

impl Lead {
    /// Of the addresses that no EndpointSlice takes only one has a name.
    fn of(details: &Map<String, Value>) -> Lead {
        let host = details.get("host").map(plain).unwrap_or_default();
        match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            _ if host.is_empty() => Lead::Nowhere,
            Ok(address) if address == IpAddr::from([127, 0, 0, 1]) => Lead::Name("localhost".into()),
            Ok(address) if nearby(address).is_some() => Lead::Nowhere,
            Ok(address) => Lead::Address(address),
            Err(_) if is_dns_name(&host) => Lead::Name(host),
            Err(_) => Lead::Nowhere,
        }
    }
}

/// What keeps Kubernetes from taking an address in an EndpointSlice: it means something else on every machine.
fn nearby(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let link = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80 || v6.segments()[0] & 0xff0f == 0xff02,
    };
    match address {
        _ if address.is_loopback() => Some("is of its machine alone"),
        _ if address.is_unspecified() => Some("is no machine's"),
        _ if link => Some("is of its network link alone"),
        _ => None,
    }
}

/// Whether a Service takes it as its external name.
fn is_dns_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |l: &str| {
        let (first, last) = (l.bytes().next(), l.bytes().last());
        l.bytes().all(|b| letter(b) || b == b'-') && first.is_some_and(letter) && last.is_some_and(letter)
    };
    host.len() <= 253 && host.split('.').all(label)
}

fn ours(object: &Value, claim: &Value) -> bool {
    object["metadata"]["labels"][CLAIM_UID].as_str() == Some(uid(claim))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn entries(object: &Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap_or_default()
}

/// Details as a Secret holds them.
fn encoded(details: &Map<String, Value>) -> Map<String, Value> {
    details.iter().map(|(k, v)| (k.clone(), json!(STANDARD.encode(plain(v))))).collect()
}

/// Writes that bring the connection objects in step with the details.
pub fn connection_writes(kind: &ResourceType, claim: &Value, connection: &Connection<'_>, plan: &mut Plan) {
    let writable = connection.is_writable(kind, claim);
    let Some(all) = connection.wanted(kind).filter(|_| writable) else { return };
    let name = binding_name(kind, claim);
    let metadata = json!({
        "name": name,
        "namespace": claim["metadata"]["namespace"],
        "labels": {CLAIM_UID: uid(claim), "app.kubernetes.io/managed-by": "conductor"},
        "ownerReferences": [{
            "apiVersion": claim["apiVersion"],
            "kind": claim["kind"],
            "name": claim["metadata"]["name"],
            "uid": uid(claim),
            "blockOwnerDeletion": false,
        }],
    });
    let kind_of = all.get("type").map(plain).unwrap_or_default();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        "type": format!("servicebinding.io/{kind_of}"), "data": connection.secret_data(kind),
    });
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": connection.public(kind),
    });
    let bring = |live: Option<&Value>, wanted: Value, parts: &[&str], purpose: &'static str, plan: &mut Plan| {
        if !connection.is_refused(purpose) {
            bring(live, wanted, parts, purpose, plan);
        }
    };
    bring(connection.secret, secret, &["data"], SECRET, plan);
    if connection.frozen(kind).is_none() {
        bring(connection.config_map, config_map, &["data"], CONFIG_MAP, plan);
    }
    let port = all.get("port").and_then(|p| plain(p).parse::<u16>().ok()).filter(|port| *port > 0);
    let ports = port.map(|p| json!([{"name": "main", "port": p, "protocol": "TCP"}]));
    let (spec, address) = match Lead::of(&all) {
        Lead::Nowhere => (None, None),
        Lead::Name(host) => (Some(json!({"type": "ExternalName", "externalName": host})), None),
        Lead::Address(address) => (Some(json!({"type": "ClusterIP", "clusterIP": "None"})), Some(address)),
    };
    match spec {
        Some(mut spec) => {
            if let Some(ports) = &ports {
                spec["ports"] = ports.clone();
            }
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
            bring(connection.service, service, &["spec"], SERVICE, plan);
        }
        None => {
            if let Some(stale) = connection.service {
                plan.delete(stale, "remove the connection's Service: it would lead elsewhere");
            }
        }
    }
    match address {
        Some(address) => {
            let mut metadata = metadata;
            metadata["labels"]["kubernetes.io/service-name"] = json!(name);
            let mut slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
                "endpoints": [{"addresses": [address.to_string()]}],
            });
            if let Some(ports) = ports {
                slice["ports"] = ports;
            }
            match connection.endpoints.filter(|live| live["addressType"] != slice["addressType"]) {
                // what family it is of is for good: the next look makes it anew
                Some(stale) if deleting(stale) => {}
                Some(stale) => plan.delete(stale, "remove the connection's endpoint: it is of another address family"),
                None => bring(connection.endpoints, slice, &["endpoints", "ports"], ENDPOINT, plan),
            }
        }
        None => {
            if let Some(stale) = connection.endpoints {
                plan.delete(stale, "remove the connection's endpoint");
            }
        }
    }
}

/// Creates an object, or patches the parts that differ.
fn bring(live: Option<&Value>, wanted: Value, parts: &[&str], purpose: &'static str, plan: &mut Plan) {
    let Some(live) = live else {
        plan.create(wanted, purpose);
        return;
    };
    let mut patch = Map::new();
    for part in parts {
        // what is one's own entirely has nothing else in it
        let same = match *part {
            "data" => entries(&live[part]) == entries(&wanted[part]),
            _ => covers(&live[part], &wanted[part]),
        };
        if !same {
            // keys that are gone go, and with a Service's type all that belongs to another
            let mut value = wanted[part].clone();
            if (*part == "data" || live[part]["type"] != wanted[part]["type"])
                && let Some(map) = value.as_object_mut()
            {
                for key in live[part].as_object().into_iter().flatten().map(|(k, _)| k) {
                    map.entry(key.clone()).or_insert(Value::Null);
                }
            }
            patch.insert((*part).to_owned(), value);
        }
    }
    if !patch.is_empty() {
        plan.patch(live, Value::Object(patch), purpose);
    }
}

/// Whether the live value has everything that is wanted.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(k, v)| live.get(k).is_some_and(|l| covers(l, v)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(l, w)| covers(l, w))
        }
        (live, wanted) => live == wanted,
    }
}

/// Deletes the connection objects that are this claim's.
pub(crate) fn connection_removals(claim: &Value, connection: &Connection<'_>, plan: &mut Plan) {
    for object in connection
        .objects()
        .into_iter()
        .flatten()
        .filter(|o| ours(o, claim) && o["metadata"]["deletionTimestamp"].is_null())
    {
        plan.delete(object, "remove the connection details");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_leads_to_the_host_or_nowhere() {
        let check = |host: &str, expected: Lead| {
            let details = Map::from_iter([("host".to_owned(), json!(host))]);
            assert_eq!(Lead::of(&details), expected, "{host}");
        };
        check("db.example.com", Lead::Name("db.example.com".into()));
        check("127.0.0.1", Lead::Name("localhost".into()));
        check("127.80.0.1", Lead::Nowhere);
        check("::1", Lead::Nowhere);
        for nearby in ["0.0.0.0", "::", "169.254.1.1", "fe80::1", "224.0.0.5", "ff02::1", "::ffff:127.80.0.1"] {
            check(nearby, Lead::Nowhere);
        }
        check("::ffff:127.0.0.1", Lead::Name("localhost".into()));
        check("::ffff:10.0.0.7", Lead::Address(IpAddr::from([10, 0, 0, 7])));
        check("fd00::7", Lead::Address(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 7])));
        check("", Lead::Nowhere);
        check("10.0.0.7", Lead::Address(IpAddr::from([10, 0, 0, 7])));
    }
}
