//! HAProxyBalancer: an HAProxy of its own on an address of its own. Its configuration is what the API says, and nothing else.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conductor_local::{BoxFuture, Finding, Home, Kind, Lack, Object, Partial, Report, Scene, Trouble, look_again};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::addresses::Addresses;
use crate::config::{Setting, render};
use crate::consumers::Consumers;
use crate::haproxy::{HAProxies, haproxy, most_connections, worker_account};
use crate::holdings::Holdings;
use crate::pool::{Asked, Place};
use crate::routes::{Plan, Rules, plan};
use crate::world::{Needs, World};
use crate::{API_VERSION, connections, is_ready};

/// How often is looked whether someone changed a file, or a backend's state is another.
const AGAIN: Duration = Duration::from_secs(5);
/// The most connections at once where nothing is said.
const CONNECTIONS: u32 = 10_000;
/// How often the totals are written.
const COUNT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    pool: String,
    address: String,
    ports: Ports,
    connections: Value,
    external_names: String,
    scrub: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct Ports {
    http: u16,
    https: u16,
}

impl Default for Ports {
    fn default() -> Ports {
        Ports { http: 80, https: 443 }
    }
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            pool: "local".into(),
            address: String::new(),
            ports: Ports::default(),
            connections: Value::Null,
            external_names: "Refuse".into(),
            scrub: 0,
        }
    }
}

/// The kind. See the module.
pub struct HAProxyBalancers {
    world: Arc<World>,
    addresses: Arc<Addresses>,
    consumers: Arc<Consumers>,
    processes: HAProxies,
    home: Home,
    /// Uids of what runs, and when its totals were written.
    known: Arc<Mutex<HashMap<String, Option<Instant>>>>,
}

/// The name of a balancer's process: short, for the path of a socket is.
fn process_name(uid: &str) -> String {
    uid.chars().take(18).collect()
}

/// What those who share a balancer may read: haproxy's words have the names of everyone's things.
fn for_all(trouble: Trouble, claims: usize) -> Trouble {
    match claims > 1 && trouble.reason == "ConfigurationRefused" {
        true => Trouble::new(
            "ConfigurationRefused",
            "haproxy does not take its configuration, and goes on with the one of before if it runs: its log says why",
        ),
        false => trouble,
    }
}

/// One specific address, if any.
pub(crate) fn specific(text: &str) -> Result<Option<IpAddr>, Trouble> {
    match text {
        "" => Ok(None),
        text => {
            let wrong = || Trouble::new("Invalid", format!("spec.address is {text:?}: say an IP address"));
            text.parse().map(Some).map_err(|_| wrong())
        }
    }
}

/// Whether this process may listen on a port.
pub(crate) fn may_bind(port: u16) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let first: u16 = read("/proc/sys/net/ipv4/ip_unprivileged_port_start").trim().parse().unwrap_or(1024);
    let status = read("/proc/self/status");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    port >= first || capabilities & (1 << 10) != 0
}

impl HAProxyBalancers {
    /// Below a provider's home.
    pub fn new(
        scene: &Scene,
        world: Arc<World>,
        addresses: Arc<Addresses>,
        consumers: Arc<Consumers>,
    ) -> HAProxyBalancers {
        let known: Arc<Mutex<HashMap<String, Option<Instant>>>> = Arc::default();
        let (wake, running) = (scene.wake.clone(), known.clone());
        // processes are known by the beginning of a uid
        let processes = HAProxies::new(&scene.home.path().join("haproxy"), scene.files.clone(), move |name| {
            let ended: Vec<String> = running.lock().keys().filter(|uid| uid.starts_with(name)).cloned().collect();
            ended.iter().for_each(|uid| wake(uid));
        });
        HAProxyBalancers { world, addresses, consumers, processes, home: scene.home.clone(), known }
    }

    async fn look(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: Spec = object.spec()?;
        let connections = connections(object, &spec.connections, CONNECTIONS)?;
        let mut rules = Rules {
            http: spec.ports.http,
            https: spec.ports.https,
            external_names: spec.external_names == "Allow",
            claims: 1,
        };
        if let Some(port) = [rules.http, rules.https].into_iter().find(|port| !may_bind(*port)) {
            let message = format!(
                "this machine lacks the privilege to listen on port {port} (CAP_NET_BIND_SERVICE): run conductor as root, or set \
                 spec.ports to ports from 1024 on"
            );
            return Err(Trouble::new("Unavailable", message));
        }
        let asked = Asked { address: specific(&spec.address)?, port: None };
        let place = self.addresses.give(object, &spec.pool, &asked, &[rules.http, rules.https]).await?;
        let needs = Needs { certificates: true, external_names: rules.external_names };
        let around = self.world.around(object, needs).await?;
        rules.claims = around.most_claims;
        let name = process_name(object.uid());
        self.home.make("haproxy", None).map_err(Trouble::io("make a directory"))?;
        let held = Holdings::read(object.status("held"));
        let mut plan = plan(&around.claims, &around.network(), &rules, &held);
        // nothing is used before it is known whose it is
        if plan.held != held {
            self.consumers.hold(object, self.plural(), &plan.held).await?;
        }
        let certificates: Vec<_> = plan.certificates.iter().map(|c| (c.name.clone(), c.pem.clone())).collect();
        for (certificate, pem) in certificates {
            if let Err(why) = self.processes.check_certificate(&name, &certificate, &pem).await {
                let secret = certificate.split_once('_').map_or(certificate.as_str(), |(_, secret)| secret);
                plan.drop_certificate(
                    &certificate,
                    &format!("the certificate in Secret {secret} cannot be used: {why}"),
                );
            }
        }
        self.processes.answers(&name).await?;
        self.check_ports(&name, place.address, &mut plan).await;
        let account = worker_account();
        let owner = format!("HAProxyBalancer {}/{}", object.namespace(), object.name());
        let directory = self.processes.directory(&name);
        let files = render(
            &plan,
            &Setting {
                owner: &owner,
                directory: &directory,
                address: place.address,
                rules,
                connections,
                account: account.as_ref().map(|a| a.name.as_str()),
            },
        );
        self.known.lock().entry(object.uid().to_owned()).or_default();
        let applied = self.processes.apply(object.uid(), &name, &files).await.map_err(|trouble| {
            tracing::warn!(balancer = object.name(), %trouble, "haproxy is not as it should be");
            for_all(trouble, around.claims.len())
        })?;
        if !applied.corrected.is_empty() {
            tracing::warn!(balancer = object.name(), files = ?applied.corrected, "changed by someone else; changed back");
        }
        self.consumers.tell(object, place, &around.claims, &plan).await;
        let mut report = self.report(object, &spec, place.address, &rules, around.claims.is_empty()).await;
        report.capacity.insert("connections".into(), json!(connections.to_string()));
        let drifts = object.status("driftsCorrected").as_u64().unwrap_or(0) + u64::from(!applied.corrected.is_empty());
        report.status.insert("driftsCorrected".into(), json!(drifts));
        report.restarts = applied.restarts;
        report.status.insert("process".into(), json!({"pid": applied.pid, "restarts": applied.restarts}));
        report.status.insert("configuration".into(), json!(files.mark));
        Ok(report)
    }

    /// Leaves out new ports on which nobody can listen here: HAProxy would refuse everything for one of them.
    async fn check_ports(&self, name: &str, address: IpAddr, plan: &mut Plan) {
        let Some(ours) = self.processes.ports(name).await else { return };
        let new: Vec<u16> = plan.listeners.keys().copied().filter(|port| !ours.contains(port)).collect();
        for port in new {
            if let Err(error) = TcpListener::bind((address, port)) {
                plan.drop_port(
                    port,
                    format!("nothing can listen on port {port} of {address} ({error}): use another port"),
                );
            }
        }
    }

    async fn report(&self, object: &Object, spec: &Spec, address: IpAddr, rules: &Rules, unused: bool) -> Report {
        let host = match address {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let port = if rules.http == 80 { String::new() } else { format!(":{}", rules.http) };
        let mut status = Map::new();
        status.insert("address".into(), json!(address.to_string()));
        if let Some((backends, totals)) = self.processes.statistics(&process_name(object.uid())).await {
            status.insert("backends".into(), backends);
            let due = {
                let mut known = self.known.lock();
                let last = known.entry(object.uid().to_owned()).or_default();
                let due = last.is_none_or(|at| at.elapsed() >= COUNT);
                if due {
                    *last = Some(Instant::now());
                }
                due
            };
            if due {
                status.insert("statistics".into(), totals);
            }
        }
        let scrubbed = (spec.scrub > 0).then(|| conductor_local::Scrubbed {
            number: spec.scrub,
            // what it carries is what its claims have: without them, the configuration in effect has nothing of anyone's
            outcome: match unused {
                true => Ok("no claim's routes, certificates or ports are in the configuration in effect".to_owned()),
                false => Err("it still has claims".to_owned()),
            },
        });
        Report {
            message: format!("listens on {address}"),
            attributes: Map::from_iter([
                ("address".to_owned(), json!(address.to_string())),
                ("availability".to_owned(), json!("SingleNode")),
                ("protocols".to_owned(), json!(["HTTP", "HTTPS", "TCP"])),
            ]),
            connection: Some(
                [
                    ("host", address.to_string()),
                    ("port", rules.http.to_string()),
                    ("uri", format!("http://{host}{port}/")),
                ]
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
            ),
            scrubbed,
            status,
            again: Some(look_again(AGAIN)),
            ..Report::default()
        }
    }
}

impl Kind for HAProxyBalancers {
    fn api_version(&self) -> &'static str {
        API_VERSION
    }

    fn kind(&self) -> &'static str {
        "HAProxyBalancer"
    }

    fn plural(&self) -> &'static str {
        "haproxybalancers"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async { haproxy().map(drop) })
    }

    fn lacks(&self) -> Vec<Partial> {
        let port = Ports::default().http;
        // an address of this machine that nobody uses
        let refused = TcpListener::bind(("127.255.255.253", port)).err();
        match refused.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
            false => Vec::new(),
            true => {
                let what = format!("the privilege to listen on port {port}");
                let remedy =
                    "run conductor as root, or set spec.ports (http: 8080, https: 8443) in the class' template";
                vec![Partial { field: "ports", value: None, lack: Lack::new(what, remedy) }]
            }
        }
    }

    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(self.look(object))
    }

    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move {
            self.processes.remove(object.uid(), &process_name(object.uid())).await?;
            self.known.lock().remove(object.uid());
            self.world.forget(object.uid());
            if let Some(address) = specific(object.status("address").as_str().unwrap_or_default())? {
                self.consumers.withdraw(Place { address, port: None }).await?;
            }
            // nobody else gets the address before nothing of ours listens there
            self.addresses.take_back(object).await
        })
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async move {
            let mut findings = self.addresses.audit("HAProxyBalancer", objects).await?;
            let known = |name: &str| objects.iter().any(|object| process_name(object.uid()) == name);
            let alive = self.processes.alive();
            for (name, pid) in alive.iter().filter(|(name, _)| !known(name)) {
                findings.push(Finding {
                    object: format!("process {pid}"),
                    invariant: "process-has-balancer".into(),
                    message: format!(
                        "no HAProxyBalancer has the haproxy in {}: end it",
                        self.processes.directory(name).display()
                    ),
                });
            }
            for object in objects.iter().filter(|object| is_ready(object)) {
                let name = process_name(object.uid());
                let running = alive.iter().filter(|(alive, _)| *alive == name).count();
                if running != 1 {
                    findings.push(Finding {
                        object: format!("HAProxyBalancer {}", object.name()),
                        invariant: "balancer-has-one-process".into(),
                        message: format!("it says Ready and has {running} processes"),
                    });
                }
            }
            let root = self.processes.directory("");
            for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
                if !known(&entry.file_name().to_string_lossy()) {
                    findings.push(Finding {
                        object: entry.path().display().to_string(),
                        invariant: "directory-has-balancer".into(),
                        message: "no HAProxyBalancer has this directory: remove it".into(),
                    });
                }
            }
            Ok(findings)
        })
    }

    fn bounded(&self) -> Vec<(&'static str, String)> {
        vec![("connections", most_connections().to_string())]
    }

    fn logs(&self, object: &Object) -> Option<PathBuf> {
        Some(conductor_local::logs::path(&self.processes.directory(&process_name(object.uid()))))
    }
}
