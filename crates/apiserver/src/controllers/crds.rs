//! CustomResourceDefinitions: serves what they define, says so on them, and cleans up after them.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Entry, KeyRange};

use self::names::{Decision, LookedAt};
use crate::catalog::Catalog;
use crate::custom::{Definition, Webhook};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::resource::Resource;
use crate::server::Server;

/// The store's table of definitions.
pub const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Holds a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What is known of all definitions, by name.
#[derive(Default)]
pub struct Known {
    serving: BTreeMap<String, Serving>,
    looked_at: BTreeMap<String, LookedAt>,
    /// What was last wrong with which: said once.
    troubles: BTreeMap<String, String>,
}

/// A definition that is served.
pub struct Serving {
    /// Of the stored definition that was looked at last.
    revision: u64,
    mark: Mark,
    definition: Arc<Definition>,
    resources: Vec<Arc<Resource>>,
    /// Definitions it took the place of, and when: requests that began under these may still write.
    old: Vec<Weak<Definition>>,
    replaced: Instant,
}

/// No request takes longer: see [`crate::answer`].
const LONGEST_REQUEST: Duration = Duration::from_secs(65);

impl Serving {
    /// Once nobody writes under older schemas any more, what is written from now on need not be looked at again. Says whether
    /// that is so.
    fn outlives(&mut self, store: &store::Store) -> bool {
        if self.old.is_empty() {
            return true;
        }
        let over = self.replaced.elapsed() > LONGEST_REQUEST;
        self.old.retain(|old| !over && old.strong_count() > 0);
        if self.old.is_empty() {
            self.definition.since.store(store.revision(), Ordering::Relaxed);
        }
        self.old.is_empty()
    }
}

/// Serves what is defined already. Called once, before the first request.
pub fn load(server: &Server) -> Known {
    let mut known = Known::default();
    if let Ok(list) = server.store().list(TABLE, KeyRange::all(), None) {
        look(&list.entries, &mut known.looked_at);
        refresh(server, &list.entries, &mut known);
    }
    known
}

/// What is said to be established is discovered from that moment on, also before [`run`] has heard of its own write.
pub fn announce(server: &crate::server::Inner, catalog: &Catalog) {
    for resource in catalog.all().iter().filter(|own| !own.is_announced()) {
        let name = format!("{}.{}", resource.plural, resource.group);
        // a large definition is not read at every question only to see that nothing is said of it yet
        let said = |entry: &Arc<Entry>| memchr::memmem::find(&entry.value, b"\"Established\"").is_some();
        let stored = server.store.get(TABLE, &name).filter(said).and_then(|entry| parse_stored(&entry).ok());
        if stored.is_some_and(|crd| crate::custom::check::is_established(&crd)) {
            resource.announce();
        }
    }
}

/// Follows the definitions for as long as the server runs.
pub async fn run(server: Server, mut known: Known) {
    let local = Local::new(&server, "kube-apiserver");
    loop {
        let Ok(list) = server.store().list(TABLE, KeyRange::all(), None) else { continue };
        let due = look(&list.entries, &mut known.looked_at);
        // Served first, said to be established then.
        refresh(&server, &list.entries, &mut known);
        let mut done = true;
        for (entry, decision) in &due {
            match settle(&server, &local, entry, decision.as_ref(), &mut known.looked_at).await {
                Ok(finished) => {
                    let stored = server.store().get(TABLE, &entry.key).and_then(|entry| parse_stored(&entry).ok());
                    let established = stored.is_some_and(|crd| crate::custom::check::is_established(&crd));
                    if let Some(own) = known.serving.get(&*entry.key).filter(|_| established) {
                        own.definition.announced.store(true, Ordering::Relaxed);
                    }
                    known.troubles.remove(&*entry.key);
                    done &= finished;
                }
                // No definition waits for another.
                Err(status) => {
                    let before = known.troubles.insert(entry.key.to_string(), status.message.clone());
                    if before.is_none_or(|before| before != status.message) {
                        tracing::warn!(%status, name = &*entry.key, "a definition could not be brought up to date; trying again");
                    }
                    done = false;
                }
            }
        }
        let Ok(mut watch) = server.store().watch(TABLE, "", list.revision) else { continue };
        let done = known.serving.values_mut().fold(done, |done, own| own.outlives(server.store()) && done);
        // What waits for others' finalizers or requests is looked at again now and then.
        let patience = if done { Duration::from_secs(3600) } else { Duration::from_millis(200) };
        if let Ok(Err(_)) = tokio::time::timeout(patience, watch.next()).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Definitions to be brought up to date.
type Due = Vec<(Arc<Entry>, Option<Decision>)>;

/// Decides whose names are whose; gives the definitions that there is something to do about, and what was decided about those
/// that stay. They are read one at a time: all at
/// once, read, would be much.
fn look(entries: &[Arc<Entry>], looked_at: &mut BTreeMap<String, LookedAt>) -> Due {
    let there: BTreeSet<&str> = entries.iter().map(|entry| &*entry.key).collect();
    looked_at.retain(|name, _| there.contains(name.as_str()));
    let mut due = Vec::new();
    // All names are known before any are given.
    for entry in entries {
        let before = looked_at.get(&*entry.key);
        if before.is_some_and(|own| own.revision == entry.revision && !own.unfinished) {
            continue;
        }
        let Ok(crd) = parse_stored(entry) else { continue };
        let mut own = LookedAt::new(&crd, entry.revision);
        own.unfinished = !names::is_settled(&crd);
        if own.unfinished {
            due.push((entry.clone(), None));
        }
        looked_at.insert(entry.key.to_string(), own);
    }
    for (entry, decided) in &mut due {
        let Ok(crd) = parse_stored(entry) else { continue };
        let terminating = crd["metadata"].get("deletionTimestamp").is_some();
        if terminating {
            continue;
        }
        let decision = names::decide(&crd, looked_at);
        let mut own = LookedAt::with(&crd, &decision.names, entry.revision);
        // Once it is served, it stays so, under the names that it has.
        if decision.conflict.is_none() {
            own.served_as = Some(decision.names.clone());
        }
        looked_at.insert(entry.key.to_string(), own);
        *decided = Some(decision);
    }
    due
}

/// Brings the catalog up to date.
fn refresh(server: &Server, entries: &[Arc<Entry>], known: &mut Known) {
    let Known { serving: known, looked_at, .. } = known;
    let mut changed = false;
    let mut over: Vec<Arc<Definition>> = Vec::new();
    let mut names = BTreeSet::new();
    for entry in entries {
        let Some(served_as) = looked_at.get(&*entry.key).and_then(|own| own.served_as.as_ref()) else { continue };
        let before = known.get_mut(&*entry.key);
        if let Some(serving) = before.as_ref().filter(|own| own.revision == entry.revision) {
            names.insert(serving.definition.name.clone());
            continue;
        }
        let Ok(mut crd) = parse_stored(entry) else { continue };
        crd["spec"]["names"] = served_as.clone();
        names.insert(entry.key.to_string());
        let mark = Mark::of(&crd);
        let mut superseded = None;
        if let Some(before) = before {
            before.revision = entry.revision;
            if before.mark == mark {
                continue;
            }
            if before.mark.says_the_same(&mark) {
                superseded = Some(before.definition.superseded.clone());
            } else {
                over.push(before.definition.clone());
            }
        }
        // Writes under the old schema may still be on their way: until they are over, everything is looked at again.
        let old: Vec<Weak<Definition>> = known.get(&*entry.key).map_or(Vec::new(), |before| {
            before.old.iter().cloned().chain([Arc::downgrade(&before.definition)]).collect()
        });
        let since = if old.is_empty() { server.store().revision() } else { u64::MAX };
        let definition = Definition::read(&crd, entry.value.clone(), since);
        let mut definition = definition.converted_by(Webhook::read(&crd, &server.0.webhooks));
        if let Some(superseded) = superseded {
            definition.superseded = superseded;
        }
        let definition = Arc::new(definition);
        let resources = definition.clone().resources();
        let replaced = Instant::now();
        let serving = Serving { revision: entry.revision, mark, definition, resources, old, replaced };
        known.insert(entry.key.to_string(), serving);
        changed = true;
    }
    known.retain(|name, serving| {
        let stays = names.contains(name);
        if !stays {
            over.push(serving.definition.clone());
            changed = true;
        }
        stays
    });
    if changed {
        let mut catalog = Catalog::builtin();
        let mut resources: Vec<_> = known.values().flat_map(|serving| serving.resources.iter().cloned()).collect();
        resources.sort_by(|a, b| {
            let version = || machinery::version::by_preference(&a.version, &b.version);
            a.group.cmp(&b.group).then_with(version).then_with(|| a.plural.cmp(&b.plural))
        });
        // A version of Kubernetes' own is Kubernetes' own alone.
        let builtin = Catalog::builtin();
        resources.retain(|own| !builtin.has_version(&own.group, &own.version));
        resources.into_iter().for_each(|resource| catalog.add(resource));
        server.0.change_catalog(catalog);
    }
    // Those who watch begin anew, as in Kubernetes, and find what is served now.
    for definition in over {
        definition.superseded.send_replace(true);
    }
}

/// What makes a definition another one.
#[derive(PartialEq, Eq)]
struct Mark {
    uid: String,
    spec: u64,
    terminating: bool,
}

impl Mark {
    fn of(crd: &Value) -> Mark {
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&crd["spec"], &mut hasher);
        let meta = &crd["metadata"];
        Mark {
            uid: meta["uid"].as_str().unwrap_or_default().to_owned(),
            spec: std::hash::Hasher::finish(&hasher),
            terminating: meta.get("deletionTimestamp").is_some(),
        }
    }

    /// Whether the same is defined, be it about to go or not.
    fn says_the_same(&self, other: &Mark) -> bool {
        self.uid == other.uid && self.spec == other.spec
    }
}

/// Says on a definition what was decided, and removes what is to go. Says whether nothing is left to wait for.
async fn settle(
    server: &Server,
    local: &Local,
    entry: &Entry,
    decision: Option<&Decision>,
    looked_at: &mut BTreeMap<String, LookedAt>,
) -> Result<bool, Status> {
    let mut crd = parse_stored(entry)?;
    let mut done = true;
    let unfinished;
    if let Some(decision) = decision {
        // Names that are taken may be free one day.
        unfinished = decision.conflict.is_some();
        let status = names::accept(&crd, decision, &server.0.now());
        if status != crd["status"] {
            let path = format!("{CRDS}/{}/status", entry.key);
            crd["status"] = status;
            match local.update(&path, &crd).await {
                Ok(_) => {}
                // Somebody changed or removed it meanwhile: it will be looked at again.
                Err(status) if matches!(status.code, 404 | 409) => {}
                Err(status) => return Err(status),
            }
        }
    } else {
        done = remove(server, local, &crd, entry).await?;
        unfinished = !done;
    }
    if let Some(own) = looked_at.get_mut(&*entry.key) {
        own.unfinished = unfinished;
    }
    Ok(done)
}

/// Says on a definition that it is going.
pub fn terminating(crd: &mut Value, now: &str) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    names::set_condition(&mut crd["status"], "Terminating", ("True", "InstanceDeletionPending", message), now);
}

/// Deletes the objects of a definition that is being deleted; lets it go when there are none left. Says whether it is done.
async fn remove(server: &Server, local: &Local, crd: &Value, entry: &Entry) -> Result<bool, Status> {
    let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|own| own == FINALIZER) {
        return Ok(true);
    }
    let definition = Definition::read(crd, entry.value.clone(), 0);
    let name = &definition.name;
    let say = async |value: &str, reason: &str, message: &str| {
        let mut told = crd.clone();
        names::set_condition(&mut told["status"], "Terminating", (value, reason, message), &server.0.now());
        if told != *crd
            && let Err(status) = local.update(&format!("{CRDS}/{name}/status"), &told).await
        {
            tracing::debug!(%status, name, "what holds a definition could not be said on it");
        }
    };
    let path = format!("{CRDS}/{name}");
    let table = definition.table();
    // The version that is stored needs no webhook.
    let mut versions: Vec<_> = definition.versions.iter().filter(|version| version.served).collect();
    versions.sort_by_key(|version| !version.storage);
    let served = versions.first();
    if server.store().count(&table) > 0 {
        if let (Some(version), Some(plural)) = (served, crd["spec"]["names"]["plural"].as_str()) {
            let base = format!("/apis/{}/{}", definition.group, version.name);
            let list = server.store().list(&table, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
            for entry in &list {
                let path = match entry.key.split_once('/') {
                    Some((namespace, name)) => format!("{base}/namespaces/{namespace}/{plural}/{name}"),
                    None => format!("{base}/{plural}/{}", entry.key),
                };
                match local.delete(&path, &json!({})).await {
                    Ok(_) => {}
                    Err(status) if status.code == 404 => {}
                    Err(status) => {
                        say("True", "InstanceDeletionFailed", &format!("could not issue all deletes: {status}")).await;
                        return Err(status);
                    }
                }
            }
        }
        if server.store().count(&table) > 0 {
            // Somebody's finalizers hold the rest.
            let left = server.store().count(&table);
            let message = format!("could not confirm zero CustomResources remaining: {left} are left");
            say("True", "InstanceDeletionCheck", &message).await;
            return Ok(false);
        }
    }
    let rest: Vec<&Value> = finalizers.iter().filter(|own| *own != FINALIZER).collect();
    if !rest.is_empty() {
        say("False", "InstanceDeletionCompleted", "removed all instances").await;
    }
    let patch = json!({"metadata": {"finalizers": rest, "uid": crd["metadata"]["uid"]}});
    match local.merge(&path, &patch).await {
        Ok(_) => Ok(true),
        Err(status) if matches!(status.code, 404 | 409) => Ok(true),
        Err(status) => Err(status),
    }
}
