//! What is done about one object: everything is decided by the store as it is now, so that a late look does no harm.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Entry, KeyRange};
use tokio::time::Instant;

use super::super::events;
use super::graph::{At, Due, Graph, Uid};
use super::meta::{FOREGROUND, Meta, ORPHAN, Reference};
use crate::catalog::Catalog;
use crate::local::Local;
use crate::plan::parse_stored;
use crate::resource::Resource;
use crate::server::Server;

/// How many dependents are orphaned at once.
const AT_ONCE: usize = 16;
/// How often a write that was overtaken is tried again before others get their turn.
const TRIES: usize = 5;
/// Looking for an owner in all namespaces reads a whole table: so many at once, and one more in each interval.
const SEARCHES: u32 = 10;
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// What comes of looking at an object.
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// Others should be looked at now.
    More(Vec<Due>),
    /// It should be tried again later.
    Later,
}

/// The references of an object, sorted by what became of their owners.
#[derive(Default)]
struct Owners<'m, 'a> {
    solid: Vec<&'m Reference<'a>>,
    dangling: Vec<&'m Reference<'a>>,
    /// Owners that wait for their dependents to go.
    waiting: Vec<&'m Reference<'a>>,
}

/// Why the references of an object cannot be judged.
enum Unclear {
    /// The kind is not served, perhaps not yet.
    Kind,
    /// An object outside all namespaces names an owner inside one: that stays wrong.
    Scope,
    /// An owner has just begun to wait for its dependents, of which this may have some that are not known yet.
    News,
}

type Kinds = HashMap<(String, String), Option<Arc<Resource>>>;

/// Does the work.
pub struct Worker {
    server: Server,
    local: Local,
    catalog: Arc<Catalog>,
    by_table: HashMap<Arc<str>, Arc<Resource>>,
    by_kind: Mutex<Kinds>,
    searches: Mutex<(u32, Instant)>,
}

impl Worker {
    /// Works for a server, for now without any kinds.
    pub fn new(server: &Server) -> Worker {
        Worker {
            server: server.clone(),
            local: Local::new(server, "kube-controller-manager"),
            catalog: Arc::default(),
            by_table: HashMap::new(),
            by_kind: Mutex::default(),
            searches: Mutex::new((SEARCHES, Instant::now())),
        }
    }

    /// Takes up the kinds that are served now; gives the tables of those that can be collected.
    pub fn serve(&mut self, catalog: Arc<Catalog>) -> Vec<Arc<str>> {
        self.by_kind.get_mut().clear();
        self.by_table.clear();
        for resource in catalog.by_table() {
            let collectable = ["delete", "list", "watch"].iter().all(|verb| resource.has_verb(verb));
            if collectable && &*resource.table != "core/events" {
                self.by_table.insert(resource.table.clone(), resource.clone());
            }
        }
        self.catalog = catalog;
        self.by_table.keys().cloned().collect()
    }

    /// Looks at an object and does what is to be done. What the graph says holds up to the revision `known`: whoever began to wait for
    /// dependents after it is looked at again, as some of them may not be in the graph.
    pub async fn attend(&self, graph: &Graph, known: u64, due: &Due) -> Outcome {
        let Some(entry) = self.entry(&due.at) else { return Outcome::Done };
        let Some(meta) = Meta::scan(&entry.value) else { return Outcome::Done };
        if Uid::new(&meta.uid) != due.uid {
            return Outcome::Done;
        }
        let waits = meta.waits_for_orphans() || meta.waits_for_dependents();
        let result = if waits && entry.revision > known {
            return Outcome::More(vec![due.clone()]);
        } else if meta.waits_for_orphans() {
            self.orphan(graph, due).await
        } else if meta.waits_for_dependents() {
            self.release(graph, due).await
        } else if meta.is_deleting() || meta.owner_references.is_empty() {
            // What is being deleted goes its own way; its dependents are looked at when it is gone.
            return Outcome::Done;
        } else {
            self.judge(graph, known, due, &meta).await
        };
        result.unwrap_or_else(|status| {
            tracing::debug!(%status, table = &*due.at.table, key = &*due.at.key, "garbage collection will try again");
            Outcome::Later
        })
    }

    fn entry(&self, at: &At) -> Option<Arc<Entry>> {
        self.server.store().get(&at.table, &at.key)
    }

    fn path(&self, at: &At) -> Result<String, Status> {
        let resource =
            self.by_table.get(&at.table).ok_or_else(|| Status::internal(format!("{} is not served", at.table)))?;
        Ok(path(resource, &at.key))
    }

    fn kind(&self, reference: &Reference<'_>) -> Option<Arc<Resource>> {
        let name = (reference.api_version.to_string(), reference.kind.to_string());
        let mut kinds = self.by_kind.lock();
        let found = kinds.entry(name).or_insert_with(|| {
            let (group, version) = reference.api_version.split_once('/').unwrap_or(("", &reference.api_version));
            self.catalog.find_kind(group, version, &reference.kind).cloned()
        });
        found.clone()
    }

    /// Deletes an object that has no owner left, or takes lost owners off one that has.
    async fn judge(&self, graph: &Graph, known: u64, due: &Due, meta: &Meta<'_>) -> Result<Outcome, Status> {
        let owners = match self.sort(graph, known, due, meta) {
            Ok(owners) => owners,
            Err(Unclear::Kind) => return Ok(Outcome::Later),
            Err(Unclear::Scope) => return Ok(Outcome::Done),
            Err(Unclear::News) => return Ok(Outcome::More(vec![due.clone()])),
        };
        if due.fresh && !owners.dangling.is_empty() {
            self.report(due, meta, &owners.dangling).await;
        }
        if !owners.solid.is_empty() {
            // Waiting owners lose this dependent too: they would wait for it forever.
            let lost: Vec<Uid> =
                owners.dangling.iter().chain(&owners.waiting).map(|reference| Uid::new(&reference.uid)).collect();
            if !lost.is_empty() {
                self.disown(due, &lost).await?;
            }
            return Ok(Outcome::Done);
        }
        if !owners.waiting.is_empty() && graph.dependents(&due.uid).next().is_some() {
            if graph.dependents(&due.uid).any(|dependent| graph.waits_for_dependents(&dependent.uid)) {
                // Perhaps a circle: it must not block its own owners.
                self.unblock(due).await?;
            }
            return self.delete(due, "Foreground").await;
        }
        let policy = if meta.has_finalizer(ORPHAN) {
            "Orphan"
        } else if meta.has_finalizer(FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        self.delete(due, policy).await
    }

    fn sort<'m, 'a>(
        &self,
        graph: &Graph,
        known: u64,
        due: &Due,
        meta: &'m Meta<'a>,
    ) -> Result<Owners<'m, 'a>, Unclear> {
        let mut owners = Owners::default();
        let namespace = match self.by_table.get(&due.at.table) {
            Some(resource) if resource.namespaced => due.at.key.split('/').next(),
            Some(_) => None,
            None => return Err(Unclear::Kind),
        };
        for reference in &meta.owner_references {
            let Some(resource) = self.kind(reference) else {
                if graph.is_gone(&Uid::new(&reference.uid)) {
                    owners.dangling.push(reference);
                    continue;
                }
                return Err(Unclear::Kind);
            };
            let key = match namespace {
                _ if !resource.namespaced => reference.name.to_string(),
                Some(namespace) => format!("{namespace}/{}", &*reference.name),
                None => return Err(Unclear::Scope),
            };
            let entry = self.server.store().get(&resource.table, &key);
            let owner = entry.as_ref().and_then(|entry| Meta::scan(&entry.value));
            match owner.filter(|owner| owner.uid == reference.uid) {
                None => owners.dangling.push(reference),
                Some(owner) if owner.waits_for_dependents() => {
                    if entry.as_ref().is_some_and(|entry| entry.revision > known) {
                        return Err(Unclear::News);
                    }
                    owners.waiting.push(reference);
                }
                Some(_) => owners.solid.push(reference),
            }
        }
        Ok(owners)
    }

    /// Deletes exactly the object that was judged: neither one of the same name nor one that got other owners meanwhile.
    async fn delete(&self, due: &Due, policy: &str) -> Result<Outcome, Status> {
        let Some(entry) = self.entry(&due.at) else { return Ok(Outcome::Done) };
        let Some(meta) = Meta::scan(&entry.value) else { return Ok(Outcome::Done) };
        let path = self.path(&due.at)?;
        let mut conditions = json!({"uid": due.uid.to_string(), "resourceVersion": &*meta.resource_version});
        for _ in 0..TRIES {
            let options = json!({"preconditions": conditions, "propagationPolicy": policy});
            match self.local.delete(&path, &options).await {
                Ok(_) => return Ok(Outcome::Done),
                Err(status) if status.code == 404 => return Ok(Outcome::Done),
                Err(status) if status.code == 409 => {}
                Err(status) => return Err(status),
            }
            let Some(now) = self.entry(&due.at) else { return Ok(Outcome::Done) };
            let Some(now) = Meta::scan(&now.value) else { return Ok(Outcome::Done) };
            if Uid::new(&now.uid) != due.uid {
                return Ok(Outcome::Done);
            }
            if now.owner_references != meta.owner_references {
                return Ok(Outcome::More(vec![due.clone()]));
            }
            // Changes that have nothing to do with owners do not keep it.
            conditions = json!({"uid": due.uid.to_string()});
        }
        Ok(Outcome::Later)
    }

    /// Changes an object's metadata; `change` gives the fields to merge, or none if there is nothing to change.
    async fn amend(&self, due: &Due, change: impl Fn(&Value) -> Option<Value>) -> Result<(), Status> {
        let path = self.path(&due.at)?;
        let mut last = None;
        for _ in 0..TRIES {
            let Some(entry) = self.entry(&due.at) else { return Ok(()) };
            let object = parse_stored(&entry)?;
            let meta = &object["metadata"];
            if meta["uid"].as_str().map(Uid::new).as_ref() != Some(&due.uid) {
                return Ok(());
            }
            let Some(mut fields) = change(meta) else { return Ok(()) };
            fields["uid"] = meta["uid"].clone();
            fields["resourceVersion"] = meta["resourceVersion"].clone();
            match self.local.merge(&path, &json!({"metadata": fields})).await {
                Ok(_) => return Ok(()),
                Err(status) if status.code == 404 => return Ok(()),
                Err(status) if status.code == 409 => last = Some(status),
                Err(status) => return Err(status),
            }
        }
        Err(last.unwrap_or_else(|| Status::internal("overtaken too often")))
    }

    /// Takes owners off an object.
    async fn disown(&self, due: &Due, owners: &[Uid]) -> Result<(), Status> {
        self.amend(due, |meta| {
            let references = meta["ownerReferences"].as_array()?;
            let is_lost = |own: &&Value| own["uid"].as_str().is_some_and(|uid| owners.contains(&Uid::new(uid)));
            let rest: Vec<&Value> = references.iter().filter(|own| !is_lost(own)).collect();
            (rest.len() < references.len())
                .then(|| json!({"ownerReferences": if rest.is_empty() { Value::Null } else { json!(rest) }}))
        })
        .await
    }

    /// Lets no owner wait for an object.
    async fn unblock(&self, due: &Due) -> Result<(), Status> {
        self.amend(due, |meta| {
            let mut references = meta["ownerReferences"].as_array()?.clone();
            let blocking = references.iter_mut().filter(|own| own["blockOwnerDeletion"] == true);
            let changed = blocking.map(|own| own["blockOwnerDeletion"] = false.into()).count();
            (changed > 0).then(|| json!({"ownerReferences": references}))
        })
        .await
    }

    async fn remove_finalizer(&self, due: &Due, finalizer: &str) -> Result<(), Status> {
        self.amend(due, |meta| {
            let finalizers = meta["finalizers"].as_array()?;
            let rest: Vec<&Value> = finalizers.iter().filter(|own| *own != finalizer).collect();
            (rest.len() < finalizers.len()).then(|| json!({"finalizers": rest}))
        })
        .await
    }

    /// Takes an owner off its dependents, then lets it go.
    async fn orphan(&self, graph: &Graph, due: &Due) -> Result<Outcome, Status> {
        let owner = std::slice::from_ref(&due.uid);
        let disown = |dependent| async move { self.disown(&dependent, owner).await }.boxed();
        let work: Vec<BoxFuture<'_, _>> = graph.dependents(&due.uid).map(disown).collect();
        let mut work = stream::iter(work).buffer_unordered(AT_ONCE);
        while let Some(result) = work.next().await {
            result?;
        }
        self.remove_finalizer(due, ORPHAN).await?;
        Ok(Outcome::Done)
    }

    /// Lets an owner go if no blocking dependent is left; has them looked at otherwise.
    async fn release(&self, graph: &Graph, due: &Due) -> Result<Outcome, Status> {
        let mut blocking = graph.blocking(&due.uid).peekable();
        if blocking.peek().is_some() {
            return Ok(Outcome::More(blocking.filter(|own| !graph.waits_for_dependents(&own.uid)).collect()));
        }
        drop(blocking);
        self.remove_finalizer(due, FOREGROUND).await?;
        Ok(Outcome::Done)
    }

    /// Says so if an owner is not where it can be an owner: in another namespace.
    async fn report(&self, due: &Due, meta: &Meta<'_>, dangling: &[&Reference<'_>]) {
        let Some(resource) = self.by_table.get(&due.at.table) else { return };
        let (namespace, name) = due.at.key.split_once('/').unwrap_or(("", &due.at.key));
        for reference in dangling {
            let Some(kind) = self.kind(reference).filter(|kind| kind.namespaced) else { continue };
            if !self.may_search() || !self.exists_elsewhere(&kind, namespace, &reference.uid) {
                continue;
            }
            let about = json!({
                "apiVersion": resource.api_version(), "kind": resource.kind, "namespace": namespace, "name": name,
                "uid": &*meta.uid,
            });
            let message = format!(
                "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
                &*reference.api_version, &*reference.kind, &*reference.name, &*reference.uid
            );
            let who = "garbage-collector-controller";
            events::warn(&self.server, &self.local, who, about, "OwnerRefInvalidNamespace", message).await;
        }
    }

    fn may_search(&self) -> bool {
        let mut searches = self.searches.lock();
        let (left, since) = *searches;
        let earned = (since.elapsed().as_secs_f64() / SEARCH_INTERVAL.as_secs_f64()) as u32;
        let left = left.saturating_add(earned).min(SEARCHES);
        let since = if earned > 0 { Instant::now() } else { since };
        *searches = (left.saturating_sub(1), since);
        left > 0
    }

    fn exists_elsewhere(&self, resource: &Resource, namespace: &str, uid: &str) -> bool {
        let list = self.server.store().list(&resource.table, KeyRange::all(), None);
        let entries = list.map(|list| list.entries).unwrap_or_default();
        let mut elsewhere = entries.iter().filter(|entry| entry.key.split('/').next() != Some(namespace));
        elsewhere.any(|entry| Meta::scan(&entry.value).is_some_and(|meta| &*meta.uid == uid))
    }
}

/// The path of an object.
pub fn path(resource: &Resource, key: &str) -> String {
    let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let (version, plural) = (&resource.version, &resource.plural);
    match key.split_once('/') {
        Some((namespace, name)) if resource.namespaced => {
            format!("{root}/{version}/namespaces/{namespace}/{plural}/{name}")
        }
        _ => format!("{root}/{version}/{plural}/{key}"),
    }
}
