//! The ranges that Services' addresses come from are held while an address of theirs is in use, and every Service has the IPAddress
//! of its address, whatever becomes of it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use machinery::status::Status;
use machinery::time::Time;
use serde_json::{Value, json};
use store::{EventKind, KeyRange};

use super::events;
use super::follow::{Follow, News};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::plugins::addresses::{DEFAULT, RANGES, Said, TABLE, described, held, ranges_of, readiness};
use crate::server::Server;

const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "core/services";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const REPAIR: &str = "ipallocator-repair-controller";
/// How long an address that says it is a Service's may be without it, in seconds.
const GRACE: i64 = 60;
const RETRY: Duration = Duration::from_millis(500);

/// Makes the range that every server has.
pub async fn ensure_default(server: &Server, local: &Local) -> Result<(), Status> {
    let (name, range) = DEFAULT;
    match server.store().get(RANGES, name) {
        Some(_) => Ok(()),
        None => local.ensure(CIDRS, &json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}})).await,
    }
}

/// Follows ranges and addresses for as long as the server runs.
pub async fn run(server: Server) {
    let keeper = Keeper { local: Local::new(&server, "kube-apiserver"), server };
    let mut follow = Follow::tables(keeper.server.store(), &[TABLE, RANGES]);
    let mut news = Due::default();
    loop {
        follow.read_woken(&mut |table, own| news.take_in(table, own));
        if news.is_empty() {
            // What is not old enough to be taken away is looked at again.
            match news.young.is_empty() {
                true => follow.changed().await,
                false => {
                    if tokio::time::timeout(Duration::from_secs(5), follow.changed()).await.is_err() {
                        news.addresses.append(&mut news.young);
                    }
                }
            }
            continue;
        }
        let mut due = std::mem::take(&mut news);
        news.young.append(&mut due.young);
        if let Err(status) = keeper.settle(due, &mut news).await {
            tracing::debug!(%status, "an address or its range could not be settled; trying again");
            news.ranges = true;
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// What should be looked at.
#[derive(Default)]
struct Due {
    ranges: bool,
    /// All Services as well.
    everything: bool,
    /// Addresses, and of those that are gone the Service they were of.
    addresses: BTreeMap<String, Option<String>>,
    /// Addresses without a Service that may still get one.
    young: BTreeMap<String, Option<String>>,
}

impl Due {
    fn is_empty(&self) -> bool {
        !self.ranges && !self.everything && self.addresses.is_empty()
    }

    fn take_in(&mut self, table: &str, news: News) {
        self.ranges = true;
        match news {
            _ if table == RANGES => {}
            News::All { entries, .. } => {
                self.everything = true;
                self.addresses.extend(entries.iter().map(|entry| (entry.key.to_string(), None)));
            }
            News::Events(events) => {
                for event in events {
                    let gone = event.kind == EventKind::Delete;
                    let of = gone.then(|| Said::of(&event.entry).and_then(|said| said.service)).flatten();
                    self.addresses.insert(event.key().to_string(), of);
                }
            }
        }
    }
}

/// Which Service has which address.
type Holders = HashMap<String, String>;

struct Keeper {
    server: Server,
    local: Local,
}

impl Keeper {
    async fn settle(&self, due: Due, more: &mut Due) -> Result<(), Status> {
        let mut holders = due.everything.then(|| self.holders());
        let mut result = Ok(());
        for (ip, of) in due.addresses {
            if let Err(status) = self.settle_address(&ip, of.as_deref(), &mut holders, more).await {
                more.addresses.insert(ip, of);
                result = Err(status);
            }
        }
        if due.everything {
            for (ip, service) in holders.iter().flatten() {
                if self.server.store().get(TABLE, ip).is_none() {
                    let repaired = self.give(ip, service, "is not allocated; repairing").await;
                    more.everything |= repaired.is_err();
                    result = result.and(repaired);
                }
            }
        }
        result.and(self.settle_ranges().await)
    }

    fn holders(&self) -> Holders {
        let list = self.server.store().list(SERVICES, KeyRange::all(), None);
        let entries = list.map(|list| list.entries).unwrap_or_default();
        let mut holders = Holders::new();
        for entry in entries {
            let service = parse_stored(&entry).unwrap_or_default();
            holders.extend(held(&service).into_iter().map(|ip| (ip, entry.key.to_string())));
        }
        holders
    }

    fn has(&self, service: &str, ip: &str) -> bool {
        let service = self.server.store().get(SERVICES, service);
        service.is_some_and(|entry| held(&parse_stored(&entry).unwrap_or_default()).contains(ip))
    }

    async fn settle_address(
        &self,
        ip: &str,
        of: Option<&str>,
        holders: &mut Option<Holders>,
        more: &mut Due,
    ) -> Result<(), Status> {
        let Some(entry) = self.server.store().get(TABLE, ip) else {
            return match of {
                Some(service) if self.has(service, ip) => self.give(ip, service, "is not allocated; repairing").await,
                _ => Ok(()),
            };
        };
        let Some(said) = Said::of(&entry) else { return Ok(()) };
        // One that is on its way out is looked at when it is gone.
        if said.meta.get("deletionTimestamp").is_some() {
            return Ok(());
        }
        let right = said.service.as_deref().is_some_and(|service| self.has(service, ip));
        if right && said.labelled {
            return Ok(());
        }
        let holder = holders.get_or_insert_with(|| self.holders()).get(ip);
        let path = format!("{ADDRESSES}/{ip}");
        if let Some(service) = holder {
            self.remove(&path).await?;
            return self.give(ip, service, "has a wrong reference; repairing").await;
        }
        if !said.managed {
            return Ok(());
        }
        let made = said.meta["creationTimestamp"].as_str().and_then(|text| text.parse::<Time>().ok());
        let age = self.server.0.now_seconds() - made.map_or(0, |time| time.seconds);
        if said.service.is_some() && age < GRACE {
            more.young.insert(ip.to_owned(), None);
            return Ok(());
        }
        let about = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "name": ip, "uid": said.meta["uid"],
        });
        let message = match &said.service {
            Some(service) => format!("IPAddress: {ip} for Service {service} appears to have leaked: cleaning up"),
            None => format!("IPAddress {ip} appears to have been modified, not referencing a Service: cleaning up"),
        };
        events::warn(&self.server, &self.local, REPAIR, about, "IPAddressNotAllocated", message).await;
        self.remove(&path).await
    }

    async fn remove(&self, path: &str) -> Result<(), Status> {
        match self.local.delete(path, &json!({})).await {
            Err(status) if status.code != 404 => Err(status),
            _ => Ok(()),
        }
    }

    /// Makes the IPAddress that a Service lacks, and says so on the Service.
    async fn give(&self, ip: &str, service: &str, why: &str) -> Result<(), Status> {
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        self.local.ensure(ADDRESSES, &described(ip, namespace, name)).await?;
        let entry = self.server.store().get(SERVICES, service);
        let uid = entry.map(|entry| parse_stored(&entry).unwrap_or_default()["metadata"]["uid"].take());
        let about = json!({"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name, "uid": uid});
        let message = format!("Cluster IP [IPv4]: {ip} {why}");
        events::warn(&self.server, &self.local, REPAIR, about, "ClusterIPNotAllocated", message).await;
        Ok(())
    }

    async fn settle_ranges(&self) -> Result<(), Status> {
        ensure_default(&self.server, &self.local).await?;
        let list = self.server.store().list(RANGES, KeyRange::all(), None);
        let entries = list.map(|list| list.entries).unwrap_or_default();
        let cidrs: Vec<Value> = entries.iter().filter_map(|entry| parse_stored(entry).ok()).collect();
        let mut result = Ok(());
        for cidr in &cidrs {
            match self.settle_range(cidr, &cidrs).await {
                Err(status) if status.code != 404 => result = Err(status),
                _ => {}
            }
        }
        result
    }

    async fn settle_range(&self, cidr: &Value, all: &[Value]) -> Result<(), Status> {
        let meta = &cidr["metadata"];
        let finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
        let protected = finalizers.iter().any(|own| own == FINALIZER);
        let deleting = meta.get("deletionTimestamp").is_some();
        if deleting && !protected {
            return Ok(());
        }
        if deleting && self.is_needed(cidr, all) {
            let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            return self.say(cidr, "False", "Terminating", why).await;
        }
        if deleting == protected {
            let mut finalizers: Vec<Value> = finalizers.into_iter().filter(|own| own != FINALIZER).collect();
            if !deleting {
                finalizers.push(FINALIZER.into());
            }
            let patch = json!({"metadata": {
                "uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "finalizers": finalizers,
            }});
            let path = format!("{CIDRS}/{}", meta["name"].as_str().unwrap_or_default());
            Local::new(&self.server, "kube-controller-manager").merge(&path, &patch).await?;
        }
        match deleting {
            true => Ok(()),
            false => self.say(cidr, "True", "", "Kubernetes Service CIDR is ready").await,
        }
    }

    /// Whether a Service has an address that is in no other range. New ones cannot come: nobody is given an address of a range
    /// that is being deleted.
    fn is_needed(&self, cidr: &Value, all: &[Value]) -> bool {
        let others = || all.iter().filter(|own| own["metadata"]["name"] != cidr["metadata"]["name"]);
        if ranges_of(cidr).all(|range| others().flat_map(ranges_of).any(|other| other.covers(&range))) {
            return false;
        }
        let list = self.server.store().list(TABLE, KeyRange::all(), None);
        let entries = list.map(|list| list.entries).unwrap_or_default();
        entries.iter().any(|entry| {
            let Ok(ip) = entry.key.parse::<IpAddr>() else { return false };
            ranges_of(cidr).any(|range| range.holds(ip))
                && !others().flat_map(ranges_of).any(|range| range.holds(ip))
                && Said::of(entry).is_some_and(|said| said.labelled)
        })
    }

    async fn say(&self, cidr: &Value, status: &str, reason: &str, message: &str) -> Result<(), Status> {
        let said = readiness(cidr);
        if said.is_some_and(|own| own["status"] == status && own["reason"] == reason && own["message"] == message) {
            return Ok(());
        }
        let name = &cidr["metadata"]["name"];
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": self.server.0.now(),
        });
        let applied = json!({
            "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": name},
            "status": {"conditions": [condition]},
        });
        let name = name.as_str().unwrap_or_default();
        let path = format!("{CIDRS}/{name}/status?fieldManager=service-cidr-controller&force=true");
        self.local.send(Method::PATCH, &path, "application/apply-patch+yaml", applied.to_string().into()).await?;
        Ok(())
    }
}
