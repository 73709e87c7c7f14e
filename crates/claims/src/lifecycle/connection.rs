//! Connection details in the claim's namespace: a Secret by the Service Binding Specification, a ConfigMap of its public part, and a
//! Service that names the endpoint.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::lifecycle::CLAIM_UID;
use crate::lifecycle::claim::uid;
use crate::lifecycle::status::Condition;
use crate::lifecycle::write::Plan;
use crate::names::joined;
use crate::types::ResourceType;

/// What is known about a claim's connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection<'c> {
    /// The details, decoded, as the implementation gives them; `None`: none yet.
    pub details: Option<&'c Map<String, Value>>,
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

    /// Whether the claim's Secret holds other details and was made such that nobody can change it.
    fn is_frozen(&self, kind: &ResourceType) -> bool {
        let Some(secret) = self.secret.filter(|secret| secret["immutable"] == true) else { return false };
        self.wanted(kind).is_some_and(|wanted| !covers(&secret["data"], &Value::Object(encoded(&wanted))))
    }

    /// Whether the claim's connection objects can be brought in step with the details.
    pub(crate) fn is_writable(&self, kind: &ResourceType, claim: &Value) -> bool {
        self.details.is_some() && self.taken(claim).is_none() && !self.is_frozen(kind)
    }

    /// What the claim's status says about it: the binding and its condition.
    pub(crate) fn report(&self, kind: &ResourceType, claim: &Value) -> (Value, Vec<Condition>) {
        let name = binding_name(kind, claim);
        match (self.taken(claim), self.details) {
            (Some(object), _) => {
                let what = object["kind"].as_str().unwrap_or("object");
                let message = format!("{what} {name} exists and is not this claim's: remove or rename it");
                (Value::Null, vec![Condition::new("ConnectionReady", false, "NameTaken", message)])
            }
            (None, None) if !self.missing.is_empty() => {
                let message = format!("not there yet: {}", self.missing.join("; "));
                (Value::Null, vec![Condition::new("ConnectionReady", false, "Waiting", message)])
            }
            (None, None) => (Value::Null, Vec::new()),
            (None, Some(_)) if self.is_frozen(kind) => {
                let message = format!(
                    "Secret {name} is immutable and holds details from before: delete it, and it is made anew with those of now"
                );
                (json!({"name": name}), vec![Condition::new("ConnectionReady", false, "Immutable", message)])
            }
            (None, Some(details)) => {
                let host = details.get("host").map(plain).unwrap_or_default();
                let message = match Lead::of(details) {
                    Lead::Nowhere if host.is_empty() => {
                        format!("the Secret and ConfigMap {name} hold the connection details")
                    }
                    Lead::Nowhere => {
                        let why = match host.parse::<IpAddr>() {
                            Ok(address) => format!("{address}, which is of its machine alone"),
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
    /// Kubernetes takes no loopback address in an EndpointSlice, and only one of them has a name.
    fn of(details: &Map<String, Value>) -> Lead {
        let host = details.get("host").map(plain).unwrap_or_default();
        match host.parse::<IpAddr>() {
            _ if host.is_empty() => Lead::Nowhere,
            Ok(address) if address == IpAddr::from([127, 0, 0, 1]) => Lead::Name("localhost".into()),
            Ok(address) if address.is_loopback() => Lead::Nowhere,
            Ok(address) => Lead::Address(address),
            Err(_) if is_dns_name(&host) => Lead::Name(host),
            Err(_) => Lead::Nowhere,
        }
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
        "type": format!("servicebinding.io/{kind_of}"), "data": encoded(&all),
    });
    let public: Map<String, Value> =
        all.iter().filter(|(k, _)| public_keys().contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect();
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": public});
    bring(connection.secret, secret, &["data"], "write the connection Secret", plan);
    bring(connection.config_map, config_map, &["data"], "write the connection ConfigMap", plan);
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
            bring(connection.service, service, &["spec"], "write the connection Service", plan);
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
            bring(connection.endpoints, slice, &["endpoints", "ports"], "write the connection's endpoint", plan);
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
        let empty = Map::new();
        let entries = |object: &Value| object.as_object().unwrap_or(&empty).clone();
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
        check("", Lead::Nowhere);
        check("10.0.0.7", Lead::Address(IpAddr::from([10, 0, 0, 7])));
    }
}
