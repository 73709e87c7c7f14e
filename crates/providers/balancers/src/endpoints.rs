//! What is behind a Service: the servers of a backend. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::names::Names;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// An address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Endpoint {
    /// As a program is told it.
    pub fn authority(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(v6)) => format!("[{v6}]:{}", self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Servers that all do the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// Where they are.
    pub endpoints: Vec<Endpoint>,
    /// The path that says whether one is well; empty: a connection is enough.
    pub health: String,
}

/// By name.
pub type Backends = BTreeMap<String, Backend>;

/// The objects there are, of all namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network<'n> {
    /// Ingresses.
    pub ingresses: &'n [Value],
    /// Services.
    pub services: &'n [Value],
    /// EndpointSlices.
    pub slices: &'n [Value],
    /// Secrets of type `kubernetes.io/tls`.
    pub secrets: &'n [Value],
    /// What ExternalNames lead to, where that is asked for.
    pub names: Option<&'n Names>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn find<'n>(objects: &'n [Value], namespace: &str, name: &str) -> Option<&'n Value> {
    objects.iter().find(|o| text(&o["metadata"]["namespace"]) == namespace && text(&o["metadata"]["name"]) == name)
}

/// The host that a Service of type ExternalName names.
pub(crate) fn external_name(service: &Value) -> &str {
    text(&service["spec"]["externalName"]).trim_end_matches('.')
}

impl Network<'_> {
    /// The backend that is a Service's port (`number` or `name`), under a name of its own. Whoever asks its servers for something else to see
    /// how they are has another one.
    pub fn backend(
        &self,
        namespace: &str,
        service: &str,
        port: &Value,
        health: &str,
        external_names: bool,
    ) -> Result<(String, Backend), String> {
        let Some(object) = find(self.services, namespace, service) else {
            return Err(format!("there is no Service {service}"));
        };
        let ports = object["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let wanted = ports.iter().find(|p| match port["number"].as_u64() {
            Some(number) => p["port"].as_u64() == Some(number),
            None => text(&p["name"]) == text(&port["name"]),
        });
        let external = text(&object["spec"]["type"]) == "ExternalName";
        let shown = port["number"].as_u64().map_or_else(|| text(&port["name"]).to_owned(), |n| n.to_string());
        let number = wanted.and_then(|p| p["port"].as_u64()).or(port["number"].as_u64().filter(|_| external));
        let Some(number) = number.and_then(|n| u16::try_from(n).ok()) else {
            return Err(format!("Service {service} has no port {shown}"));
        };
        let mut name = format!("{namespace}_{service}_{number}");
        if !health.is_empty() {
            let mut hasher = DefaultHasher::new();
            health.hash(&mut hasher);
            name += &format!("_{:016x}", hasher.finish());
        }
        let mut endpoints = Vec::new();
        if external {
            let host = external_name(object);
            if !external_names {
                return Err(format!("Service {service} is an ExternalName, which this balancer does not allow"));
            }
            if host.is_empty() || !host.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c)) {
                return Err(format!("Service {service} names {host:?}, which is no host"));
            }
            let unknown = || Err("which is not resolved yet".to_owned());
            let addresses = self.names.and_then(|names| names.get(host)).cloned().unwrap_or_else(unknown);
            let addresses = addresses.map_err(|why| format!("Service {service} names {host}, {why}"))?;
            endpoints.extend(addresses.iter().map(|a| Endpoint { host: a.to_string(), port: number }));
        } else {
            let called = wanted.map_or("", |p| text(&p["name"]));
            self.endpoints(namespace, service, called, &mut endpoints);
        }
        endpoints.sort();
        endpoints.dedup();
        Ok((name, Backend { endpoints, health: health.to_owned() }))
    }

    /// Endpoints that are ready, under the port's name.
    fn endpoints(&self, namespace: &str, service: &str, port: &str, all: &mut Vec<Endpoint>) {
        let of_service = |slice: &&Value| {
            let meta = &slice["metadata"];
            text(&meta["namespace"]) == namespace && text(&meta["labels"]["kubernetes.io/service-name"]) == service
        };
        for slice in self.slices.iter().filter(of_service) {
            let ports = slice["ports"].as_array().into_iter().flatten();
            let number = ports.into_iter().find(|p| text(&p["name"]) == port).and_then(|p| p["port"].as_u64());
            let Some(number) = number.and_then(|n| u16::try_from(n).ok()) else { continue };
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                if endpoint["conditions"]["ready"].as_bool() == Some(false) {
                    continue;
                }
                // all addresses of one endpoint are the same server
                let address =
                    endpoint["addresses"].as_array().into_iter().flatten().map(text).next().unwrap_or_default();
                if let Ok(address) = address.parse::<IpAddr>() {
                    all.push(Endpoint { host: address.to_string(), port: number });
                }
            }
        }
    }

    /// Certificate and key of a Secret, as one text.
    pub fn certificate(&self, namespace: &str, secret: &str) -> Result<String, String> {
        let Some(object) = find(self.secrets, namespace, secret) else {
            return Err(format!("there is no Secret {secret} of type kubernetes.io/tls"));
        };
        let part = |key: &str| {
            let bytes = STANDARD.decode(text(&object["data"][key])).ok()?;
            String::from_utf8(bytes).ok().filter(|pem| pem.contains("-----BEGIN "))
        };
        match part("tls.crt").zip(part("tls.key")) {
            Some((certificate, _)) if certificate.contains("PRIVATE KEY-----") => Err(format!(
                "Secret {secret} has a private key under tls.crt: leave the certificates there, and the key under tls.key"
            )),
            // of a certificate, too: whatever is in PEM can be so
            Some(both) if [&both.0, &both.1].iter().any(|pem| pem.contains("ENCRYPTED")) => Err(format!(
                "what is in Secret {secret} has a passphrase, which nobody can be asked for: store it without"
            )),
            Some((certificate, key)) => Ok(format!("{}\n{}\n", certificate.trim(), key.trim())),
            None => Err(format!("Secret {secret} has no certificate and key in PEM under tls.crt and tls.key")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_would_have_somebody_asked_for_a_passphrase_is_no_certificate() {
        let block = |what: &str| format!("-----BEGIN {what}-----\nMIIB\n-----END {what}-----\n");
        let (certificate, key, locked) = (block("CERTIFICATE"), block("PRIVATE KEY"), block("ENCRYPTED PRIVATE KEY"));
        let old = "-----BEGIN CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: DES-EDE3-CBC,00\n\nMIIB\n-----END CERTIFICATE-----\n";
        let check = |in_certificate: &str, in_key: &str, word: Option<&str>| {
            let data = json!({"tls.crt": STANDARD.encode(in_certificate), "tls.key": STANDARD.encode(in_key)});
            let secrets = [json!({"metadata": {"namespace": "a", "name": "tls"}, "data": data})];
            let network = Network { secrets: &secrets, ..Network::default() };
            let why = network.certificate("a", "tls").err();
            assert_eq!(why.is_some(), word.is_some(), "{in_certificate}{in_key}");
            assert!(why.as_deref().unwrap_or_default().contains(word.unwrap_or_default()), "{why:?}");
        };
        check(&certificate, &key, None);
        check(&(certificate.clone() + &certificate), &key, None);
        check(&certificate, &locked, Some("passphrase"));
        check(&(certificate.clone() + &locked), &key, Some("private key under tls.crt"));
        check(&(certificate.clone() + &key), &key, Some("private key under tls.crt"));
        check(old, &key, Some("passphrase"));
    }
}
