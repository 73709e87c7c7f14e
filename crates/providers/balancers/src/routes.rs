//! What a balancer carries: from its claims, the Ingresses and Services that name them, and the endpoints behind. Pure.
//!
//! *Invariant:* a host belongs to one claim and a port to one consumer ([`crate::holdings`] says which). Whoever else wants the same is
//! refused and told so; nothing of it is carried, and no request for a host reaches a backend of another claim's.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::endpoints::{Backends, Network};
use crate::holdings::{Holdings, Need, Taken, covers};

/// On an Ingress or a Service: the name of its IngressClaim.
pub const CLAIM: &str = "network.conductor.io/claim";
/// On an Ingress or a Service: a path that answers 2xx or 3xx while a backend is well; without, a connection is enough. Of a Service with
/// several ports it is asked on those that speak HTTP: their `appProtocol` is `http`, or, without one, their name is, or begins with `http-`.
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
    /// How many claims may share it. Where that is more than one, the ports for HTTP and HTTPS are for all of them, and no Service's.
    pub claims: usize,
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
    /// The place of its claim, whose host it is.
    pub claim: usize,
}

/// A certificate, and the hosts it may be shown for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Name of its file: namespace and name of the Secret.
    pub name: String,
    /// Certificate chain and key.
    pub pem: String,
    /// Hosts of the claim, in groups that fit on a line; with a wildcard, and `!` before them, those it covers that others have.
    pub hosts: Vec<Vec<String>>,
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
    /// Every host that someone has, and the place of its claim.
    pub hosts: BTreeMap<String, usize>,
    /// Who has what from now on.
    pub held: Holdings,
    /// One for each consumer, the oldest first.
    pub verdicts: Vec<Verdict>,
    /// Whether the port for HTTP is HTTP's.
    pub serves_http: bool,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// An Ingress or a Service that names a claim.
struct Consumer<'n> {
    /// The claim's place.
    at: usize,
    kind: &'static str,
    object: &'n Value,
}

impl Consumer<'_> {
    /// All of them, the oldest first.
    fn all<'n>(claims: &[Claim], network: &Network<'n>) -> Vec<Consumer<'n>> {
        let mut all = Vec::new();
        for (kind, objects) in [("Ingress", network.ingresses), ("Service", network.services)] {
            for object in objects.iter().filter(|o| o["metadata"]["deletionTimestamp"].is_null()) {
                let meta = &object["metadata"];
                let named =
                    |c: &Claim| c.namespace == text(&meta["namespace"]) && c.name == text(&meta["annotations"][CLAIM]);
                all.extend(claims.iter().position(named).map(|at| Consumer { at, kind, object }));
            }
        }
        all.sort_by_key(|c| {
            let meta = &c.object["metadata"];
            (text(&meta["creationTimestamp"]), text(&meta["namespace"]), text(&meta["name"]), c.kind)
        });
        all
    }

    /// Hosts that it asks for, in whatever form.
    fn hosts(&self) -> impl Iterator<Item = String> {
        let ingress = self.kind == "Ingress";
        let wanted = if ingress { wanted(self.object) } else { Vec::new() };
        let tls = if ingress { certificates(self.object) } else { Vec::new() };
        wanted.into_iter().map(|(host, ..)| host).chain(tls.into_iter().flat_map(|(_, hosts)| hosts))
    }

    /// Ports that it asks for.
    fn ports(&self) -> impl Iterator<Item = u16> {
        let list = self.object["spec"]["ports"].as_array().filter(|_| self.kind == "Service");
        let tcp = list.into_iter().flatten().filter(|p| is_tcp(p));
        tcp.filter_map(|p| u16::try_from(p["port"].as_u64()?).ok())
    }
}

/// Host, path, whether it is the whole path, and backend: what an Ingress asks for.
fn wanted(ingress: &Value) -> Vec<(String, &str, bool, &Value)> {
    let spec = &ingress["spec"];
    let mut wanted = Vec::new();
    for rule in spec["rules"].as_array().into_iter().flatten() {
        for path in rule["http"]["paths"].as_array().into_iter().flatten() {
            let beginning = Some(text(&path["path"])).filter(|p| !p.is_empty()).unwrap_or("/");
            let exact = text(&path["pathType"]) == "Exact";
            wanted.push((text(&rule["host"]).to_ascii_lowercase(), beginning, exact, &path["backend"]));
        }
    }
    if spec["defaultBackend"].is_object() {
        wanted.push((String::new(), "/", false, &spec["defaultBackend"]));
    }
    wanted
}

/// Secrets with certificates that an Ingress names, and the hosts they are for: those it says, or all of its rules.
fn certificates(ingress: &Value) -> Vec<(&str, Vec<String>)> {
    let all = ingress["spec"]["tls"].as_array().into_iter().flatten();
    let named = all.filter(|tls| !text(&tls["secretName"]).is_empty());
    let hosts = |tls: &Value| -> Vec<String> {
        let said = tls["hosts"].as_array().filter(|hosts| !hosts.is_empty());
        let mut hosts: Vec<String> = match said {
            Some(hosts) => hosts.iter().map(|host| text(host).to_ascii_lowercase()).collect(),
            None => wanted(ingress).into_iter().map(|(host, ..)| host).collect(),
        };
        // without a host it would be shown for everybody's
        hosts.retain(|host| !host.is_empty());
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    };
    named.map(|tls| (text(&tls["secretName"]), hosts(tls))).collect()
}

fn is_tcp(port: &Value) -> bool {
    matches!(text(&port["protocol"]), "" | "TCP")
}

/// Whether a port of a Service says that it can be asked over HTTP.
fn speaks_http(port: &Value) -> bool {
    match text(&port["appProtocol"]) {
        "" => text(&port["name"]) == "http" || text(&port["name"]).starts_with("http-"),
        protocol => protocol.eq_ignore_ascii_case("http"),
    }
}

/// Whether a path can stand in a configuration file as it is; Ingress allows more than any path needs.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.chars().all(|c| c.is_ascii_alphanumeric() || "/._~%:@!,;=+*$()&-".contains(c))
}

/// The same of what servers are asked for to see how they are.
fn is_health(path: &str) -> bool {
    path.len() <= LONGEST_HEALTH && is_plain(&path.replace('?', ""))
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    host.is_empty()
        || (!name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c)))
}

/// Works out what a balancer carries for its claims, who have something already.
pub fn plan(claims: &[Claim], network: &Network<'_>, rules: &Rules, held: &Holdings) -> Plan {
    let consumers = Consumer::all(claims, network);
    let hosts = consumers.iter().flat_map(|c| c.hosts().map(|host| (c.at, host))).collect();
    let ports = consumers.iter().flat_map(|c| c.ports().map(|port| (c.at, port))).collect();
    let shared = rules.claims.max(claims.len());
    let mut taken = Taken::new(claims, shared, held, &hosts, &ports);
    if shared > 1 {
        taken.reserve(&[rules.http, rules.https]);
    }
    let mut work = Work {
        rules,
        network,
        shared: shared > 1,
        plan: Plan::default(),
        taken,
        paths: BTreeMap::new(),
        certificates: BTreeMap::new(),
        web: BTreeMap::new(),
    };
    for consumer in consumers {
        let claim = &claims[consumer.at];
        let verdict = Verdict {
            kind: consumer.kind,
            namespace: claim.namespace.clone(),
            name: text(&consumer.object["metadata"]["name"]).to_owned(),
            claim: claim.uid.clone(),
            ports: Vec::new(),
            certificates: Vec::new(),
            refusals: Vec::new(),
        };
        let mut step = Step { at: consumer.at, work: &mut work, verdict };
        match consumer.kind {
            "Ingress" => step.ingress(consumer.object),
            _ => step.service(consumer.object),
        }
        let verdict = step.verdict;
        work.plan.verdicts.push(verdict);
    }
    work.done()
}

impl Plan {
    /// Leaves a certificate out that cannot be used, and says so to whoever brought it.
    pub fn drop_certificate(&mut self, name: &str, why: &str) {
        self.certificates.retain(|certificate| certificate.name != name);
        self.tell(name, why);
    }

    /// Leaves a port out on which it cannot be listened, and says so to the Service that has it.
    pub fn drop_port(&mut self, port: u16, why: String) {
        self.listeners.remove(&port);
        if let Some(verdict) = self.verdicts.iter_mut().find(|v| v.kind == "Service" && v.ports.contains(&port)) {
            verdict.ports.retain(|p| *p != port);
            verdict.refuse(why);
        }
    }

    /// Says something to those who brought a certificate.
    fn tell(&mut self, certificate: &str, why: &str) {
        for verdict in self.verdicts.iter_mut().filter(|v| v.certificates.iter().any(|c| c == certificate)) {
            verdict.refuse(why.to_owned());
        }
    }
}

impl Verdict {
    /// Notes what is not carried. What users write may be long, and is to fit into everything that says it.
    fn refuse(&mut self, mut why: String) {
        if let Some((end, _)) = why.char_indices().nth(MOST_WORDS) {
            why.truncate(end);
            why.push('…');
        }
        if !self.refusals.contains(&why) && self.refusals.len() < MOST_REFUSALS {
            self.refusals.push(why);
        }
    }
}

/// How many hosts are on one line of the list of certificates; HAProxy takes 2047.
const PER_LINE: usize = 200;
/// How many characters a refusal has.
const MOST_WORDS: usize = 400;
/// How many refusals of one consumer are noted.
const MOST_REFUSALS: usize = 100;
/// The longest path: no request with a longer one is taken.
const LONGEST_PATH: usize = 4096;
/// It is written into the configuration.
const LONGEST_HEALTH: usize = 1024;

struct Work<'w, 'n> {
    rules: &'w Rules,
    network: &'w Network<'n>,
    shared: bool,
    plan: Plan,
    taken: Taken<'w>,
    /// Host, path, whether it is the whole path, and the Ingress that has it.
    paths: BTreeMap<(String, String, bool), String>,
    /// Name of a certificate, its content, and its hosts with their claims' places.
    certificates: BTreeMap<String, (String, BTreeMap<String, usize>)>,
    /// Ports for HTTP and HTTPS that are in use as such, and by which Ingress first.
    web: BTreeMap<u16, String>,
}

impl Work<'_, '_> {
    fn done(self) -> Plan {
        let Work { rules, mut plan, taken, certificates, .. } = self;
        plan.serves_http = taken.service(rules.http).is_none();
        // exact hosts before wildcards before the rest; whole paths before beginnings, longer ones first
        plan.routes.sort_by_cached_key(|r| {
            (width(&r.host), r.host.clone(), !r.exact, std::cmp::Reverse(r.path.len()), r.path.clone())
        });
        for (name, (pem, hosts)) in certificates {
            let (wide, plain): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|(host, _)| width(host) > 0);
            let plain: Vec<String> = plain.into_iter().map(|(host, _)| host).collect();
            let mut lines: Vec<Vec<String>> = plain.chunks(PER_LINE).map(<[String]>::to_vec).collect();
            for (wide, at) in wide {
                let others =
                    taken.hosts.iter().filter(|(host, holder)| **holder != at && **host != wide && covers(&wide, host));
                let mut line = vec![wide.clone()];
                line.extend(others.map(|(host, _)| format!("!{host}")));
                match line.len() > PER_LINE {
                    true => plan.tell(
                        &name,
                        &format!("no certificate is shown for {wide}: too many hosts of others are among those"),
                    ),
                    false => lines.push(line),
                }
            }
            plan.certificates.push(Certificate { name, pem, hosts: lines });
        }
        plan.certificates.retain(|certificate| !certificate.hosts.is_empty());
        plan.held = taken.holdings();
        plan.hosts = taken.hosts;
        plan
    }
}

/// How much a host stands for: itself, a wildcard, the rest.
fn width(host: &str) -> u8 {
    match host {
        "" => 2,
        host if host.starts_with("*.") => 1,
        _ => 0,
    }
}

struct Step<'s, 'w, 'n> {
    at: usize,
    work: &'s mut Work<'w, 'n>,
    verdict: Verdict,
}

impl Step<'_, '_, '_> {
    fn refuse(&mut self, why: String) {
        self.verdict.refuse(why);
    }

    /// Whether a host is the claim's, which takes it if nobody has it.
    fn takes(&mut self, host: &str) -> bool {
        let taken = match is_host(host) {
            true => self.work.taken.host(self.at, host),
            false => Err(format!("host {host:?} is no host name")),
        };
        taken.map_err(|why| self.refuse(why)).is_ok()
    }

    /// Whether a port is there for HTTP or HTTPS, and no Service's.
    fn web(&mut self, port: u16) -> bool {
        if let Some(service) = self.work.taken.service(port) {
            let why = format!("port {port} carries Service {service}, which is older");
            self.refuse(why);
            return false;
        }
        self.work.web.entry(port).or_insert_with(|| self.verdict.name.clone());
        true
    }

    /// The path that a consumer wants servers to be asked for; empty: none, or one that cannot be used.
    fn health<'o>(&mut self, object: &'o Value) -> &'o str {
        let health = text(&object["metadata"]["annotations"][HEALTH]);
        if health.is_empty() || is_health(health) {
            return health;
        }
        let shown: String = health.chars().take(100).collect();
        self.refuse(format!(
            "health path {shown:?} does not begin with /, is too long or has characters that no path needs: servers count as well \
             while they take connections"
        ));
        ""
    }

    fn backend(&mut self, health: &str, service: &Value) -> Option<String> {
        let (name, port) = (text(&service["name"]), &service["port"]);
        let Work { network, rules, .. } = *self.work;
        match network.backend(&self.verdict.namespace, name, port, health, rules.external_names) {
            Ok((name, backend)) => {
                self.work.plan.backends.entry(name.clone()).or_insert(backend);
                Some(name)
            }
            Err(why) => {
                self.refuse(why);
                None
            }
        }
    }

    fn ingress(&mut self, ingress: &Value) {
        let rules = self.work.rules;
        if !self.web(rules.http) {
            return;
        }
        let own = format!("Ingress {}", self.verdict.name);
        let health = self.health(ingress);
        for (host, path, exact, backend) in wanted(ingress) {
            if !is_plain(path) || path.len() > LONGEST_PATH {
                let path: String = path.chars().take(100).collect();
                self.refuse(format!("path {path:?} is too long or has characters that no path needs"));
                continue;
            }
            if !self.takes(&host) {
                continue;
            }
            // /a/ and /a begin the same paths
            let path = if exact || path == "/" { path } else { path.trim_end_matches('/') }.to_owned();
            let key = (host.clone(), path.clone(), exact);
            match self.work.paths.get(&key) {
                // twice in one
                Some(holder) if *holder == own => continue,
                Some(holder) => {
                    let why = format!("{host}{path} is in {holder} already, which is older");
                    self.refuse(why);
                    continue;
                }
                None => {}
            }
            if !backend["service"].is_object() {
                self.refuse(format!("{host}{path} has a backend that is no Service"));
                continue;
            }
            let Some(backend) = self.backend(health, &backend["service"]) else { continue };
            if let Err(why) = self.work.taken.room(self.at, Need::Paths, 1) {
                self.refuse(format!("{host}{path} is {why}"));
                continue;
            }
            self.work.paths.insert(key, own.clone());
            if self.verdict.ports.is_empty() {
                self.verdict.ports.push(rules.http);
            }
            self.work.plan.routes.push(Route { host, path, exact, backend, claim: self.at });
        }
        for (secret, hosts) in certificates(ingress) {
            self.certificate(secret, hosts);
        }
    }

    fn certificate(&mut self, secret: &str, hosts: Vec<String>) {
        let https = self.work.rules.https;
        let pem = match self.work.network.certificate(&self.verdict.namespace, secret) {
            Ok(pem) => pem,
            Err(why) => return self.refuse(why),
        };
        if !self.web(https) {
            return;
        }
        let name = format!("{}_{secret}", self.verdict.namespace);
        if !self.work.certificates.contains_key(&name)
            && let Err(why) = self.work.taken.room(self.at, Need::Certificates, 1)
        {
            return self.refuse(format!("the certificate in Secret {secret} is {why}"));
        }
        for host in hosts {
            if self.takes(&host) {
                if !self.verdict.certificates.contains(&name) {
                    self.verdict.certificates.push(name.clone());
                }
                let entry = self.work.certificates.entry(name.clone());
                entry.or_insert_with(|| (pem.clone(), BTreeMap::new())).1.insert(host, self.at);
                if !self.verdict.ports.contains(&https) {
                    self.verdict.ports.push(https);
                }
            }
        }
    }

    /// Why a port is no Service's, if it is not.
    fn is_web(&self, port: u16) -> Option<String> {
        let Rules { http, https, .. } = *self.work.rules;
        let what = if port == http { "HTTP" } else { "HTTPS" };
        if self.work.shared && (port == http || port == https) {
            let why = format!(
                "port {port} is for the {what} of all claims here: name the claim on an Ingress, or use another port"
            );
            return Some(why);
        }
        let ingress = self.work.web.get(&port)?;
        Some(format!("port {port} carries {what} for Ingress {ingress}, which is older"))
    }

    fn service(&mut self, service: &Value) {
        let health = self.health(service);
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let tcp: Vec<&Value> = ports.filter(|port| is_tcp(port)).collect();
        let alone = tcp.len() == 1;
        if !health.is_empty() && !alone && !tcp.iter().any(|port| speaks_http(port)) {
            self.refuse(format!(
                "health path {health:?} is asked on none of several ports: name those http, or set their appProtocol, that speak it"
            ));
        }
        for wanted in service["spec"]["ports"].as_array().into_iter().flatten() {
            let Some(port) = wanted["port"].as_u64().and_then(|p| u16::try_from(p).ok()) else { continue };
            if !is_tcp(wanted) {
                self.refuse(format!("port {port} is {}: only TCP is carried", text(&wanted["protocol"])));
                continue;
            }
            let taken = match self.is_web(port) {
                Some(why) => Err(why),
                None => self.work.taken.port(self.at, port, &self.verdict.name),
            };
            if let Err(why) = taken {
                self.refuse(why);
                continue;
            }
            let reference = serde_json::json!({"name": self.verdict.name, "port": {"number": port}});
            let health = if alone || speaks_http(wanted) { health } else { "" };
            let Some(backend) = self.backend(health, &reference) else { continue };
            self.work.plan.listeners.insert(port, backend);
            self.verdict.ports.push(port);
        }
    }
}
