//! APIServices: which groups and versions there are, and who serves them. What another server has is asked of that one, in the
//! name of whoever asks: `registered` says what is ours, `available` who of the others answers, `proxy` asks them.

pub mod available;
pub mod namespaces;
pub mod proxy;
pub mod registered;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use store::KeyRange;

use crate::catalog::Catalog;
use crate::plan::parse_stored;
use crate::resource::Resource;
use crate::server::Server;
use crate::webhook::{ClientConfig, Destination};

const GROUP: &str = "apiregistration.k8s.io";
/// The store's table of APIServices.
const TABLE: &str = "apiregistration.k8s.io/apiservices";
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// All APIServices, as they are stored.
fn all(server: &Server) -> Vec<Value> {
    let entries = server.store().list(TABLE, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
    entries.iter().filter_map(|entry| parse_stored(entry).ok()).collect()
}

fn is_available(service: &Value) -> bool {
    let conditions = service["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|own| own["type"] == "Available" && own["status"] == "True")
}

/// A version of a group that another server has.
pub struct Remote {
    pub group: String,
    pub version: String,
    /// Of the group, and of the version in it.
    priority: (u64, u64),
    config: ClientConfig,
    available: AtomicBool,
    said: Mutex<Said>,
}

/// What a server last said of itself.
#[derive(Clone, Default)]
struct Said {
    /// Its resources, as aggregated discovery has them; none if it has not said.
    resources: Option<Vec<Value>>,
    /// Where the document of this version is, as its `/openapi/v3` has it.
    document: Option<Value>,
}

impl Remote {
    /// Reads an APIService; none if it is a local one. That of APIServices always is: else nobody could put it right again.
    fn read(service: &Value) -> Option<Remote> {
        let spec = &service["spec"];
        if spec["group"] == GROUP {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut config =
            ClientConfig::read(&json!({"service": spec.get("service")?, "caBundle": spec["caBundle"]})).ok()?;
        config.insecure = spec["insecureSkipTLSVerify"] == true;
        config.front_proxy = true;
        let number = |field: &str| spec[field].as_u64().unwrap_or_default();
        Some(Remote {
            group: text(&spec["group"]),
            version: text(&spec["version"]),
            priority: (number("groupPriorityMinimum"), number("versionPriority")),
            config,
            // As was last said of it, until somebody looks.
            available: AtomicBool::new(is_available(service)),
            said: Mutex::default(),
        })
    }

    /// Where it is: its Service's namespace, name and port.
    fn service(&self) -> (&str, &str, u16) {
        match &self.config.destination {
            Destination::Service { namespace, name, port, .. } => (namespace, name, *port),
            Destination::Url(_) => ("", "", 0),
        }
    }

    fn is_available(&self) -> bool {
        self.available.load(Ordering::Acquire)
    }

    /// What aggregated discovery says of it.
    pub fn discovery(&self) -> Value {
        let said = self.said.lock();
        let freshness = if self.is_available() { "Current" } else { "Stale" };
        let mut entry = json!({"version": self.version, "freshness": freshness});
        if let Some(resources) = said.resources.as_ref().filter(|own| !own.is_empty()) {
            entry["resources"] = resources.clone().into();
        }
        entry
    }

    /// Its resources in aggregated discovery.
    fn newest(&self, whole: &Value) -> Option<Vec<Value>> {
        let groups = whole["items"].as_array().filter(|_| whole["kind"] == "APIGroupDiscoveryList")?;
        let group = groups.iter().find(|own| own["metadata"]["name"] == *self.group)?;
        let version = group["versions"].as_array()?.iter().find(|own| own["version"] == *self.version)?;
        Some(version["resources"].as_array().cloned().unwrap_or_default())
    }

    /// The same from the list that `/apis/{group}/{version}` has.
    fn older(&self, list: &Value) -> Option<Vec<Value>> {
        list["resources"].as_array().map(|list| modern(list, &self.group, &self.version))
    }
}

/// Resources as aggregated discovery has them, from how the older one does.
fn modern(list: &[Value], group: &str, version: &str) -> Vec<Value> {
    let response = |entry: &Value| {
        let or = |field: &str, default: &str| entry[field].as_str().unwrap_or(default).to_owned();
        json!({"group": or("group", group), "version": or("version", version), "kind": entry["kind"]})
    };
    let mut found: Vec<Value> = Vec::new();
    for entry in list {
        let name = entry["name"].as_str().unwrap_or_default();
        match name.split_once('/') {
            None => {
                let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
                let mut own = json!({
                    "resource": name, "responseKind": response(entry), "scope": scope, "verbs": entry["verbs"],
                    "singularResource": entry["singularName"],
                });
                for field in ["shortNames", "categories"] {
                    if entry[field].is_array() {
                        own[field] = entry[field].clone();
                    }
                }
                found.push(own);
            }
            Some((parent, sub)) => {
                let own = json!({"subresource": sub, "responseKind": response(entry), "verbs": entry["verbs"]});
                if let Some(parent) = found.iter_mut().find(|own| own["resource"] == parent) {
                    match parent["subresources"].as_array_mut() {
                        Some(subs) => subs.push(own),
                        None => parent["subresources"] = json!([own]),
                    }
                }
            }
        }
    }
    found
}

/// A version of a group, and who has it if another server does.
pub type Version = (String, Option<Arc<Remote>>);

/// What other servers have, by group and version.
#[derive(Default)]
pub struct Remotes(RwLock<Arc<BTreeMap<(String, String), Arc<Remote>>>>);

impl Remotes {
    /// Takes in all APIServices there are. What did not change is still known to be available, or not.
    fn set(&self, services: &[Value]) {
        let before = self.0.read().clone();
        let read = services.iter().filter_map(Remote::read).map(|new| {
            let key = (new.group.clone(), new.version.clone());
            let remote = match before.get(&key) {
                Some(old) if (&old.config, old.priority) == (&new.config, new.priority) => old.clone(),
                Some(old) => {
                    *new.said.lock() = old.said.lock().clone();
                    Arc::new(new)
                }
                None => Arc::new(new),
            };
            (key, remote)
        });
        let new: BTreeMap<_, _> = read.collect();
        *self.0.write() = Arc::new(new);
    }

    fn all(&self) -> Vec<Arc<Remote>> {
        self.0.read().values().cloned().collect()
    }

    /// Whose a path is, if another server's.
    pub fn of_path(&self, path: &str) -> Option<Arc<Remote>> {
        let known = self.0.read();
        if known.is_empty() {
            return None;
        }
        let path = path.strip_prefix("/openapi/v3").unwrap_or(path);
        let mut segments = path.strip_prefix("/apis/")?.splitn(3, '/');
        known.get(&(segments.next()?.to_owned(), segments.next()?.to_owned())).cloned()
    }

    /// Groups with their versions, in the order of discovery: this server's, and others' where their priority puts them.
    pub fn groups(&self, catalog: &Catalog) -> Vec<(String, Vec<Version>)> {
        let own = catalog.groups_with(Resource::is_announced).into_iter().map(|(group, versions)| {
            (group.to_owned(), versions.iter().map(|version| ((*version).to_owned(), None)).collect())
        });
        let mut groups: Vec<(String, Vec<Version>)> = own.collect();
        // Those of custom resources are the last.
        let priority = |group: &str, version: &str, remote: &Option<Arc<Remote>>| match remote {
            Some(remote) => remote.priority,
            None if group == GROUP => (u64::MAX, 1),
            None => registered::priority(group, version),
        };
        for remote in self.all() {
            let mine = (remote.version.clone(), Some(remote.clone()));
            match groups.iter_mut().find(|(group, _)| *group == remote.group) {
                Some((group, versions)) => {
                    versions.retain(|(version, _)| *version != remote.version);
                    let at =
                        versions.iter().position(|(version, of)| priority(group, version, of).1 < remote.priority.1);
                    versions.insert(at.unwrap_or(versions.len()), mine);
                }
                None => {
                    let first = |group: &str, versions: &[Version]| {
                        versions.iter().map(|(version, of)| priority(group, version, of).0).max().unwrap_or_default()
                    };
                    let at = groups.iter().position(|(group, versions)| first(group, versions) < remote.priority.0);
                    groups.insert(at.unwrap_or(groups.len()), (remote.group.clone(), vec![mine]));
                }
            }
        }
        groups
    }

    /// Where others' OpenAPI documents are, as the index has it.
    pub fn documents(&self) -> Vec<(String, Value)> {
        let known = self.all();
        let entry = |remote: &Arc<Remote>| {
            let document = remote.said.lock().document.clone()?;
            Some((format!("apis/{}/{}", remote.group, remote.version), document))
        };
        known.iter().filter_map(entry).collect()
    }
}
