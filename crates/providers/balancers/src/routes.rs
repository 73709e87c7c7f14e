//! What a balancer carries: from its claims, the Ingresses and Services that name them, and the endpoints behind. Pure.
//!
//! *Invariant:* a host belongs to one claim, the first in the balancer's order that has it, and a port to one consumer. Whatever
//! comes later and wants the same is refused and says who has it; nothing of it is carried.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::endpoints::{Backends, Network};

/// On an Ingress or a Service: the name of its IngressClaim.
pub const CLAIM: &str = "network.conductor.io/claim";
/// On an Ingress or a Service: a path that answers 2xx or 3xx while a backend is well; without, a connection is enough.
pub const HEALTH: &str = "network.conductor.io/health-path";

/// A claim that a balancer serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its uid.
    pub uid: String,
    /// Its namespace: its consumers are there, and nowhere else.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a balancer allows.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The port for HTTP.
    pub http: u16,
    /// The port for HTTPS.
    pub https: u16,
    /// Whether Services of type ExternalName may be backends: they lead anywhere the machine can reach.
    pub external_names: bool,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// `www.example`, `*.example`, or empty for all that nobody else has.
    pub host: String,
    /// The path, or its beginning.
    pub path: String,
    /// Whether it is the whole path.
    pub exact: bool,
    /// Name of the backend.
    pub backend: String,
}

/// A certificate, and the hosts it may be shown for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Name of its file: namespace and name of the Secret.
    pub name: String,
    /// Certificate chain and key.
    pub pem: String,
    /// Hosts that belong to the claim.
    pub hosts: Vec<String>,
}

/// What became of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `Ingress` or `Service`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The uid of its claim.
    pub claim: String,
    /// Ports on which it is carried.
    pub ports: Vec<u16>,
    /// Names of the certificates it brings.
    pub certificates: Vec<String>,
    /// What of it is not carried, and why.
    pub refusals: Vec<String>,
}

/// Everything a balancer carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Most specific first.
    pub routes: Vec<Route>,
    /// By name.
    pub backends: Backends,
    /// Port and backend.
    pub listeners: BTreeMap<u16, String>,
    /// By name.
    pub certificates: Vec<Certificate>,
    /// One for each consumer.
    pub verdicts: Vec<Verdict>,
    /// Whether the port for HTTP is HTTP's.
    pub serves_http: bool,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Consumers of a claim, the oldest first.
fn consumers<'n>(objects: &'n [Value], claim: &Claim) -> Vec<&'n Value> {
    let names = |o: &&Value| {
        let meta = &o["metadata"];
        text(&meta["namespace"]) == claim.namespace
            && text(&meta["annotations"][CLAIM]) == claim.name
            && meta["deletionTimestamp"].is_null()
    };
    let mut all: Vec<&Value> = objects.iter().filter(names).collect();
    all.sort_by_key(|o| (text(&o["metadata"]["creationTimestamp"]), text(&o["metadata"]["uid"])));
    all
}

/// Whether a path can stand in a configuration file as it is; Ingress allows more than any path needs.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.chars().all(|c| c.is_ascii_alphanumeric() || "/._~%:@!,;=+*$()&-".contains(c))
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    host.is_empty()
        || (!name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c)))
}

/// Whether an earlier claim's host leaves no room for another's: the same, or a wildcard over it.
fn covers(earlier: &str, later: &str) -> bool {
    earlier == later
        || earlier.strip_prefix("*.").is_some_and(|rest| later.split_once('.').is_some_and(|(_, tail)| tail == rest))
}

/// Works out what a balancer carries for its claims, the first of which comes first.
pub fn plan(claims: &[Claim], network: &Network<'_>, rules: &Rules) -> Plan {
    let mut plan = Plan { serves_http: true, ..Plan::default() };
    let mut hosts: BTreeMap<String, usize> = BTreeMap::new();
    let mut paths: BTreeMap<(String, String, bool), String> = BTreeMap::new();
    let mut ports: BTreeMap<u16, String> = BTreeMap::new();
    let mut certificates: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for (at, claim) in claims.iter().enumerate() {
        for ingress in consumers(network.ingresses, claim) {
            let verdict = Verdict {
                kind: "Ingress",
                namespace: claim.namespace.clone(),
                name: text(&ingress["metadata"]["name"]).to_owned(),
                claim: claim.uid.clone(),
                ports: Vec::new(),
                certificates: Vec::new(),
                refusals: Vec::new(),
            };
            let mut step = Step { claims, at, rules, network, plan: &mut plan, verdict };
            if let Some(holder) = ports.get(&rules.http).filter(|holder| holder.starts_with("Service ")) {
                step.refuse(format!("port {} carries {holder}", rules.http));
            } else {
                ports.entry(rules.http).or_insert_with(|| "HTTP".to_owned());
                ports.entry(rules.https).or_insert_with(|| "HTTPS".to_owned());
                step.ingress(ingress, &mut hosts, &mut paths, &mut certificates);
            }
            let verdict = step.verdict;
            plan.verdicts.push(verdict);
        }
        for service in consumers(network.services, claim) {
            let verdict = Verdict {
                kind: "Service",
                namespace: claim.namespace.clone(),
                name: text(&service["metadata"]["name"]).to_owned(),
                claim: claim.uid.clone(),
                ports: Vec::new(),
                certificates: Vec::new(),
                refusals: Vec::new(),
            };
            let mut step = Step { claims, at, rules, network, plan: &mut plan, verdict };
            step.service(service, &mut ports);
            let verdict = step.verdict;
            plan.verdicts.push(verdict);
        }
    }
    plan.serves_http = !ports.get(&rules.http).is_some_and(|holder| holder.starts_with("Service "));
    // exact hosts before wildcards before the rest; whole paths before beginnings, longer ones first
    let rank = |r: &Route| {
        let host = match r.host.as_str() {
            "" => 2,
            host if host.starts_with("*.") => 1,
            _ => 0,
        };
        (host, r.host.clone(), !r.exact, std::cmp::Reverse(r.path.len()), r.path.clone())
    };
    plan.routes.sort_by_cached_key(rank);
    plan.certificates = certificates
        .into_iter()
        .map(|(name, (pem, hosts))| Certificate { name, pem, hosts: hosts.into_iter().collect() })
        .collect();
    plan
}

impl Plan {
    /// Leaves a certificate out that cannot be used, and says so to whoever brought it.
    pub fn drop_certificate(&mut self, name: &str, why: &str) {
        self.certificates.retain(|certificate| certificate.name != name);
        for verdict in self.verdicts.iter_mut().filter(|v| v.certificates.iter().any(|c| c == name)) {
            verdict.certificates.retain(|c| c != name);
            verdict.refusals.push(why.to_owned());
        }
    }
}

struct Step<'s, 'n> {
    claims: &'s [Claim],
    at: usize,
    rules: &'s Rules,
    network: &'s Network<'n>,
    plan: &'s mut Plan,
    verdict: Verdict,
}

impl Step<'_, '_> {
    fn refuse(&mut self, why: String) {
        if !self.verdict.refusals.contains(&why) {
            self.verdict.refusals.push(why);
        }
    }

    /// Whether a host is the claim's, which takes it if nobody has it.
    fn takes(&mut self, host: &str, hosts: &mut BTreeMap<String, usize>) -> bool {
        if !is_host(host) {
            self.refuse(format!("host {host:?} is no host name"));
            return false;
        }
        let holder = hosts.iter().find(|(taken, holder)| **holder != self.at && covers(taken, host));
        if let Some((taken, holder)) = holder {
            let other = &self.claims[*holder];
            let shown = if host.is_empty() {
                "requests without a host of their own".to_owned()
            } else {
                format!("host {host}")
            };
            let covered = if taken == host { String::new() } else { format!(" (through {taken})") };
            // only within one namespace is another's name anyone's business
            let who = match other.namespace == self.verdict.namespace {
                true => format!("claim {}", other.name),
                false => "a claim in another namespace".to_owned(),
            };
            self.refuse(format!("{shown} is taken by {who}{covered}, which came first"));
            return false;
        }
        hosts.insert(host.to_owned(), self.at);
        true
    }

    fn backend(&mut self, object: &Value, service: &Value) -> Option<String> {
        let (name, port) = (text(&service["name"]), &service["port"]);
        let health = text(&object["metadata"]["annotations"][HEALTH]);
        let health = if is_plain(health) { health } else { "" };
        let wanted = (self.verdict.namespace.clone(), name.to_owned());
        match self.network.backend(&wanted.0, &wanted.1, port, health, self.rules.external_names) {
            Ok((name, backend)) => {
                self.plan.backends.entry(name.clone()).or_insert(backend);
                Some(name)
            }
            Err(why) => {
                self.refuse(why);
                None
            }
        }
    }

    fn ingress(
        &mut self,
        ingress: &Value,
        hosts: &mut BTreeMap<String, usize>,
        paths: &mut BTreeMap<(String, String, bool), String>,
        certificates: &mut BTreeMap<String, (String, BTreeSet<String>)>,
    ) {
        let spec = &ingress["spec"];
        let mut wanted: Vec<(String, String, bool, &Value)> = Vec::new();
        for rule in spec["rules"].as_array().into_iter().flatten() {
            let host = text(&rule["host"]).to_ascii_lowercase();
            for path in rule["http"]["paths"].as_array().into_iter().flatten() {
                let beginning = Some(text(&path["path"])).filter(|p| !p.is_empty()).unwrap_or("/");
                let exact = text(&path["pathType"]) == "Exact";
                wanted.push((host.clone(), beginning.to_owned(), exact, &path["backend"]));
            }
        }
        if spec["defaultBackend"].is_object() {
            wanted.push((String::new(), "/".to_owned(), false, &spec["defaultBackend"]));
        }
        let own = format!("Ingress {}", self.verdict.name);
        let mut carried = BTreeSet::new();
        for (host, path, exact, backend) in wanted {
            if !is_plain(&path) {
                self.refuse(format!("path {path:?} has characters that no path needs"));
                continue;
            }
            if !self.takes(&host, hosts) {
                continue;
            }
            // /a/ and /a begin the same paths
            let path = if exact || path == "/" { path } else { path.trim_end_matches('/').to_owned() };
            let key = (host.clone(), path.clone(), exact);
            if let Some(holder) = paths.get(&key).filter(|holder| **holder != own) {
                self.refuse(format!("{host}{path} is in {holder} already, which came first"));
                continue;
            }
            if !backend["service"].is_object() {
                self.refuse(format!("{host}{path} has a backend that is no Service"));
                continue;
            }
            let Some(backend) = self.backend(ingress, &backend["service"]) else { continue };
            paths.insert(key, own.clone());
            carried.insert(host.clone());
            let route = Route { host, path, exact, backend };
            if !self.plan.routes.contains(&route) {
                self.plan.routes.push(route);
            }
        }
        if !carried.is_empty() {
            self.verdict.ports.push(self.rules.http);
        }
        for tls in spec["tls"].as_array().into_iter().flatten() {
            self.certificate(tls, hosts, certificates);
        }
    }

    fn certificate(
        &mut self,
        tls: &Value,
        hosts: &mut BTreeMap<String, usize>,
        certificates: &mut BTreeMap<String, (String, BTreeSet<String>)>,
    ) {
        let secret = text(&tls["secretName"]);
        if secret.is_empty() {
            return;
        }
        let pem = match self.network.certificate(&self.verdict.namespace, secret) {
            Ok(pem) => pem,
            Err(why) => return self.refuse(why),
        };
        let named: Vec<String> =
            tls["hosts"].as_array().into_iter().flatten().map(|h| text(h).to_ascii_lowercase()).collect();
        for host in named {
            if self.takes(&host, hosts) {
                let name = format!("{}_{secret}", self.verdict.namespace);
                if !self.verdict.certificates.contains(&name) {
                    self.verdict.certificates.push(name.clone());
                }
                certificates.entry(name).or_insert_with(|| (pem.clone(), BTreeSet::new())).1.insert(host);
                if !self.verdict.ports.contains(&self.rules.https) {
                    self.verdict.ports.push(self.rules.https);
                }
            }
        }
    }

    fn service(&mut self, service: &Value, ports: &mut BTreeMap<u16, String>) {
        let own = format!("Service {}/{}", self.verdict.namespace, self.verdict.name);
        for wanted in service["spec"]["ports"].as_array().into_iter().flatten() {
            let Some(port) = wanted["port"].as_u64().and_then(|p| u16::try_from(p).ok()) else { continue };
            if !matches!(text(&wanted["protocol"]), "" | "TCP") {
                self.refuse(format!("port {port} is {}: only TCP is carried", text(&wanted["protocol"])));
                continue;
            }
            if let Some(holder) = ports.get(&port) {
                let holder = match holder.strip_prefix("Service ").and_then(|h| h.split_once('/')) {
                    Some((namespace, _)) if namespace != self.verdict.namespace => "a Service of another claim",
                    _ => holder,
                };
                let why = format!("port {port} is taken by {holder}, which came first");
                self.refuse(why);
                continue;
            }
            let reference = serde_json::json!({"name": self.verdict.name, "port": {"number": port}});
            let Some(backend) = self.backend(service, &reference) else { continue };
            ports.insert(port, own.clone());
            self.plan.listeners.insert(port, backend);
            self.verdict.ports.push(port);
        }
    }
}
