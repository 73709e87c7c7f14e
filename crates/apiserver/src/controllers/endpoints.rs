//! EndpointSlices and Endpoints of services that select pods.

mod pods;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use http::Method;
use machinery::json::Envelope;
use machinery::selector::Selector;
use machinery::status::Status;
use serde_json::{Value, json};
use store::{Entry, EventKind};
use tokio::time::Instant;

use self::pods::Pod;
use self::slices::Write;
use super::follow::{Follow, News};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const SERVICES: &str = "core/services";
const PODS: &str = "core/pods";
const NODES: &str = "core/nodes";
const SLICES: &str = "discovery.k8s.io/endpointslices";
const ENDPOINTS: &str = "core/endpoints";
const ZONE: &str = "topology.kubernetes.io/zone";
const AT_ONCE: usize = 8;
/// Changes that come close together are taken in together.
const PAUSE: Duration = Duration::from_millis(5);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Follows services and pods for as long as the server runs.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-controller-manager");
    let mut follow = Follow::tables(server.store(), &[SERVICES, PODS, NODES, SLICES, ENDPOINTS]);
    let mut state = State::default();
    let mut failures: BTreeMap<Arc<str>, (u32, Instant)> = BTreeMap::new();
    loop {
        follow.read_woken(&mut |table, news| state.take_in(table, news));
        let now = Instant::now();
        state.due.extend(failures.iter().filter(|(_, (_, at))| *at <= now).map(|(key, _)| key.clone()));
        if state.due.is_empty() {
            let next = failures.values().map(|(_, at)| *at).min();
            let wait = async move {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow.changed() => tokio::time::sleep(PAUSE).await,
                () = wait => {}
            }
            continue;
        }
        follow.read_all(&mut |table, news| state.take_in(table, news));
        let due = std::mem::take(&mut state.due);
        let mut written = Vec::new();
        {
            let (server, local, state) = (&server, &local, &state);
            let reconcile = |key: Arc<str>| {
                async move {
                    let mut written = Vec::new();
                    let result = reconcile(server, local, state, &key, &mut written).await;
                    (key, result, written)
                }
                .boxed()
            };
            let work: Vec<BoxFuture<'_, _>> = due.into_iter().map(reconcile).collect();
            let mut work = stream::iter(work).buffer_unordered(AT_ONCE);
            while let Some((key, result, own)) = work.next().await {
                written.extend(own);
                match result {
                    Ok(()) => drop(failures.remove(&key)),
                    // Nothing gets better by itself: what is refused is tried again when something changes.
                    Err(status) if matches!(status.code, 403 | 404 | 422) => {
                        tracing::debug!(%status, service = &*key, "the endpoints of a service were refused");
                        failures.remove(&key);
                    }
                    Err(status) => {
                        tracing::debug!(%status, service = &*key, "the endpoints of a service are not up to date; trying again");
                        let (count, at) = failures.entry(key).or_insert((0, now));
                        *at = Instant::now() + FIRST_RETRY.saturating_mul(1 << (*count).min(16)).min(LAST_RETRY);
                        *count += 1;
                    }
                }
            }
        }
        state.own.extend(written);
    }
}

/// What is known between two looks. Of pods only those with addresses, and of those only what endpoints show.
#[derive(Default)]
struct State {
    services: BTreeMap<Arc<str>, Selector>,
    pods: BTreeMap<Arc<str>, Pod>,
    zones: HashMap<Arc<str>, Box<str>>,
    /// The service of each slice that is managed here, and the reverse.
    slices: HashMap<Arc<str>, Arc<str>>,
    by_service: BTreeSet<(Arc<str>, Arc<str>)>,
    /// The revisions of our own writes to slices, about which there is nothing to do; 0 for deletions.
    own: HashMap<Arc<str>, u64>,
    /// Services that should be looked at.
    due: BTreeSet<Arc<str>>,
}

impl State {
    fn take_in(&mut self, table: &str, news: News) {
        match news {
            News::All { entries, again } => {
                if again {
                    self.forget_table(table);
                }
                entries.iter().for_each(|entry| self.take_in_entry(table, &entry.key, Some(entry)));
                if again {
                    self.due.extend(self.services.keys().cloned());
                }
            }
            News::Events(events) => {
                for event in events {
                    let entry = (event.kind == EventKind::Put).then_some(&event.entry);
                    self.take_in_entry(table, event.key(), entry);
                }
            }
        }
    }

    fn forget_table(&mut self, table: &str) {
        match table {
            SERVICES => {
                // Those that are gone are looked at too.
                self.due.extend(self.services.keys().cloned());
                self.services.clear();
            }
            PODS => self.pods.clear(),
            NODES => self.zones.clear(),
            SLICES => {
                self.slices.clear();
                self.by_service.clear();
                self.own.clear();
            }
            _ => {}
        }
    }

    fn take_in_entry(&mut self, table: &str, key: &Arc<str>, entry: Option<&Arc<Entry>>) {
        match table {
            SERVICES => self.take_in_service(key, entry),
            PODS => self.take_in_pod(key, entry),
            NODES => self.take_in_node(key, entry),
            SLICES => self.take_in_slice(key, entry),
            _ => self.take_in_endpoints(key, entry),
        }
    }

    fn take_in_service(&mut self, key: &Arc<str>, entry: Option<&Arc<Entry>>) {
        self.due.insert(key.clone());
        match entry.and_then(|entry| selector(&parse_stored(entry).ok()?)) {
            Some(selector) => drop(self.services.insert(key.clone(), selector)),
            None => drop(self.services.remove(key)),
        }
    }

    fn take_in_pod(&mut self, key: &Arc<str>, entry: Option<&Arc<Entry>>) {
        let new = entry.and_then(|entry| Pod::read(entry));
        let old = self.pods.remove(key);
        if old != new {
            let namespace = &key[..key.find('/').map_or(0, |at| at + 1)];
            for pod in [&old, &new].into_iter().flatten() {
                for (service, selector) in within(&self.services, namespace) {
                    if selector.matches_pairs(pod.labels()) {
                        self.due.insert(service.clone());
                    }
                }
            }
        }
        if let Some(new) = new {
            self.pods.insert(key.clone(), new);
        }
    }

    fn take_in_node(&mut self, key: &Arc<str>, entry: Option<&Arc<Entry>>) {
        let new: Option<Box<str>> = entry.map(|entry| {
            let envelope = Envelope::scan(&entry.value).unwrap_or_default();
            envelope.metadata.label(ZONE).unwrap_or_default().into()
        });
        let old = match new.clone() {
            Some(zone) => self.zones.insert(key.clone(), zone),
            None => self.zones.remove(key),
        };
        if old != new {
            let on_node = self.pods.iter().filter(|(_, pod)| *pod.node == **key);
            let mut due = BTreeSet::new();
            for (pod_key, pod) in on_node {
                let namespace = &pod_key[..pod_key.find('/').map_or(0, |at| at + 1)];
                let services = within(&self.services, namespace);
                due.extend(services.filter(|(_, own)| own.matches_pairs(pod.labels())).map(|(key, _)| key.clone()));
            }
            self.due.append(&mut due);
        }
    }

    fn take_in_slice(&mut self, key: &Arc<str>, entry: Option<&Arc<Entry>>) {
        let service: Option<Arc<str>> = entry.and_then(|entry| {
            let envelope = Envelope::scan(&entry.value).ok()?;
            let managed = envelope.metadata.label(slices::MANAGED_BY) == Some(slices::MANAGER);
            let name = envelope.metadata.label(slices::SERVICE_NAME).filter(|_| managed)?;
            Some(format!("{}/{name}", &*envelope.metadata.namespace).into())
        });
        let before = match &service {
            Some(service) => self.slices.insert(key.clone(), service.clone()),
            None => self.slices.remove(key),
        };
        if let Some(before) = &before {
            self.by_service.remove(&(before.clone(), key.clone()));
        }
        if let Some(service) = &service {
            self.by_service.insert((service.clone(), key.clone()));
        }
        if self.own.remove(key) != Some(entry.map_or(0, |entry| entry.revision)) {
            self.due.extend(before.into_iter().chain(service).filter(|own| self.services.contains_key(own)));
        }
    }

    /// Endpoints that have gone are made again; those that were left behind by a service go.
    fn take_in_endpoints(&mut self, key: &Arc<str>, entry: Option<&Arc<Entry>>) {
        let managed = entry.is_none_or(|entry| {
            let envelope = Envelope::scan(&entry.value).unwrap_or_default();
            envelope.metadata.label(subsets::MANAGED_BY) == Some(subsets::MANAGER)
        });
        if managed && entry.is_none() == self.services.contains_key(key) {
            self.due.insert(key.clone());
        }
    }

    /// The slices of a service, as they are now.
    fn slices_of(&self, server: &Server, service: &Arc<str>) -> Vec<Value> {
        let own = self.by_service.range((service.clone(), "".into())..).take_while(|(own, _)| own == service);
        let entries = own.filter_map(|(_, key)| server.store().get(SLICES, key));
        entries.filter_map(|entry| parse_stored(&entry).ok()).collect()
    }
}

/// What a service selects; nothing if it does not select pods.
fn selector(service: &Value) -> Option<Selector> {
    let labels = service["spec"]["selector"].as_object().filter(|labels| !labels.is_empty())?;
    (service["spec"]["type"] != "ExternalName").then(|| Selector::from_labels(labels))
}

/// The part of a map whose keys begin with a prefix.
fn within<'a, T>(map: &'a BTreeMap<Arc<str>, T>, prefix: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> {
    map.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(prefix))
}

/// Brings the endpoints of a service up to date; says which slices it wrote.
async fn reconcile(
    server: &Server,
    local: &Local,
    state: &State,
    key: &Arc<str>,
    written: &mut Vec<(Arc<str>, u64)>,
) -> Result<(), Status> {
    let Some((namespace, name)) = key.split_once('/') else { return Ok(()) };
    let endpoints = format!("/api/v1/namespaces/{namespace}/endpoints");
    let Some(entry) = server.store().get(SERVICES, key) else {
        // Slices have an owner and are collected; Endpoints have none.
        return match local.delete(&format!("{endpoints}/{name}"), &json!({})).await {
            Err(status) if status.code != 404 => Err(status),
            _ => Ok(()),
        };
    };
    let service = parse_stored(&entry)?;
    let Some(selector) = selector(&service) else { return Ok(()) };
    let prefix = format!("{namespace}/");
    let selected: Vec<(&str, &Pod)> = within(&state.pods, &prefix)
        .filter(|(_, pod)| selector.matches_pairs(pod.labels()))
        .map(|(key, pod)| (&key[prefix.len()..], pod))
        .collect();

    let existing = state.slices_of(server, key);
    let zone = |node: &str| state.zones.get(node).cloned();
    let base = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    for write in slices::plan(&service, &selected, &zone, &existing) {
        let (method, path, body) = match &write {
            Write::Create(slice) => (Method::POST, base.clone(), slice.to_string()),
            Write::Update(slice) => (
                Method::PUT,
                format!("{base}/{}", slice["metadata"]["name"].as_str().unwrap_or_default()),
                slice.to_string(),
            ),
            Write::Delete(name) => (Method::DELETE, format!("{base}/{name}"), String::new()),
        };
        match (local.send(method, &path, "application/json", body.into()).await, &write) {
            (Ok(_), Write::Delete(name)) => written.push((format!("{namespace}/{name}").into(), 0)),
            (Ok(made), _) => {
                let name = made["metadata"]["name"].as_str().unwrap_or_default();
                let revision = made["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
                written.push((format!("{namespace}/{name}").into(), revision.unwrap_or(u64::MAX)));
            }
            (Err(status), Write::Delete(_)) if status.code == 404 => {}
            (Err(status), _) => return Err(status),
        }
    }

    let existing = server.store().get(ENDPOINTS, key).map(|entry| parse_stored(&entry)).transpose()?;
    if let Some(wanted) = subsets::plan(&service, &selected, existing.as_ref()) {
        match existing {
            Some(_) => local.update(&format!("{endpoints}/{name}"), &wanted).await?,
            None if service["metadata"].get("deletionTimestamp").is_some() => Value::Null,
            None => local.create(&endpoints, &wanted).await?,
        };
    }
    Ok(())
}
