//! Volumes, claims and classes of their attributes that are in use stay: their finalizers are taken off when they are to go and nobody uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use machinery::json::Text;
use machinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Entry, EventKind, KeyRange};

use super::follow::{Follow, News};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const CLAIMS: &str = "core/persistentvolumeclaims";
const VOLUMES: &str = "core/persistentvolumes";
const CLASSES: &str = "storage.k8s.io/volumeattributesclasses";
const PODS: &str = "core/pods";
const AT_ONCE: usize = 16;
const RETRY: Duration = Duration::from_millis(200);

/// Follows claims, volumes and pods for as long as the server runs.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-controller-manager");
    let mut follow = Follow::tables(server.store(), &[CLAIMS, VOLUMES, CLASSES, PODS]);
    let mut state = State::default();
    loop {
        follow.read_woken(&mut |table, news| state.take_in(table, news));
        let due = std::mem::take(&mut state.due);
        if due.is_empty() {
            follow.changed().await;
            continue;
        }
        // Pods that were there before the deletion was asked for must be seen.
        let mut users = BTreeMap::new();
        for (table, key) in &due {
            if *table == CLAIMS {
                let namespace = key.split('/').next().unwrap_or_default();
                users.entry(namespace.to_owned()).or_insert_with(|| Users::of(&server, namespace));
            }
        }
        let (server, local, users) = (&server, &local, &users);
        let settle = |(table, key): (&'static str, Arc<str>)| {
            let users = key.split('/').next().and_then(|namespace| users.get(namespace));
            async move { (settle(server, local, table, &key, users).await, table, key) }.boxed()
        };
        let work: Vec<BoxFuture<'_, _>> = due.into_iter().map(settle).collect();
        let mut work = stream::iter(work).buffer_unordered(AT_ONCE);
        while let Some((result, table, key)) = work.next().await {
            if let Err(status) = result {
                tracing::debug!(%status, table, key = &*key, "the protection of an object could not be changed; trying again");
                state.due.insert((table, key));
            }
        }
        if !state.due.is_empty() {
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// What is known between two looks.
#[derive(Default)]
struct State {
    /// What should be looked at.
    due: BTreeSet<(&'static str, Arc<str>)>,
    /// Claims that are being deleted and held.
    held: BTreeSet<Arc<str>>,
    /// The same of classes.
    classes: BTreeSet<Arc<str>>,
}

impl State {
    fn take_in(&mut self, table: &Arc<str>, news: News) {
        let table = match &**table {
            CLAIMS => CLAIMS,
            VOLUMES => VOLUMES,
            CLASSES => CLASSES,
            _ => return self.take_in_pods(news),
        };
        if table != CLASSES {
            // Whatever changes about a claim or volume may free a class.
            self.due.extend(self.classes.iter().map(|key| (CLASSES, key.clone())));
        }
        match news {
            News::All { entries, .. } => {
                match table {
                    CLAIMS => self.held.clear(),
                    CLASSES => self.classes.clear(),
                    _ => {}
                }
                entries.iter().for_each(|entry| self.take_in_object(table, entry));
            }
            News::Events(events) => {
                for event in events {
                    match event.kind {
                        EventKind::Put => self.take_in_object(table, &event.entry),
                        EventKind::Delete if table == CLAIMS => drop(self.held.remove(event.key())),
                        EventKind::Delete if table == CLASSES => drop(self.classes.remove(event.key())),
                        EventKind::Delete => {}
                    }
                }
            }
        }
    }

    fn take_in_object(&mut self, table: &'static str, entry: &Entry) {
        if is_plain(table, &entry.value) && self.held.is_empty() && self.classes.is_empty() {
            return;
        }
        let Ok(envelope) = machinery::json::Envelope::scan(&entry.value) else { return };
        let finalizers = &envelope.metadata.finalizers;
        let protected = finalizers.iter().any(|own| **own == *finalizer(table));
        let deleting = envelope.metadata.is_deleting();
        let held = match table {
            CLAIMS => Some(&mut self.held),
            CLASSES => Some(&mut self.classes),
            _ => None,
        };
        if let Some(held) = held {
            if deleting && protected {
                held.insert(entry.key.clone());
            } else {
                held.remove(&entry.key);
            }
        }
        // Admission protects what is created; whoever takes the protection off early gets it back.
        if deleting == protected {
            self.due.insert((table, entry.key.clone()));
        }
    }

    fn take_in_pods(&mut self, news: News) {
        if self.held.is_empty() {
            return;
        }
        match news {
            News::All { .. } => self.due.extend(self.held.iter().map(|key| (CLAIMS, key.clone()))),
            News::Events(events) => {
                for event in events {
                    // Only the end of a pod frees a claim.
                    let ends = event.kind == EventKind::Delete
                        || Pod::scan(&event.entry).is_some_and(|pod| pod.is_shut_down());
                    if ends {
                        let prefix = &event.key()[..event.key().find('/').map_or(0, |at| at + 1)];
                        let held = self.held.iter().filter(|key| key.starts_with(prefix));
                        self.due.extend(held.map(|key| (CLAIMS, key.clone())));
                    }
                }
            }
        }
    }
}

/// Whether a stored object is protected and not being deleted, as most are, by its text alone: quotes within texts are escaped, so that
/// this is only found where it stands for what it says.
fn is_plain(table: &str, object: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(object, text.as_bytes()).is_some();
    !has("\"deletionTimestamp\":") && has(&format!("\"finalizers\":[\"{}\"", finalizer(table)))
}

fn finalizer(table: &str) -> &'static str {
    match table {
        CLAIMS => "kubernetes.io/pvc-protection",
        CLASSES => "kubernetes.io/vac-protection",
        _ => "kubernetes.io/pv-protection",
    }
}

/// Gives an object the protection it should have, as it is now.
async fn settle(server: &Server, local: &Local, table: &str, key: &str, users: Option<&Users>) -> Result<(), Status> {
    let Some(entry) = server.store().get(table, key) else { return Ok(()) };
    let object = parse_stored(&entry)?;
    let meta = &object["metadata"];
    let finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
    let own = finalizer(table);
    let protected = finalizers.iter().any(|finalizer| finalizer == own);
    let deleting = meta.get("deletionTimestamp").is_some();
    let in_use = || match table {
        CLAIMS => users.is_none_or(|users| users.use_claim(&object)),
        CLASSES => is_named(server, key),
        _ => is_taken(&object),
    };
    let wanted = !deleting || (protected && in_use());
    if wanted == protected || (deleting && !protected) {
        return Ok(());
    }
    let mut finalizers: Vec<Value> = finalizers.into_iter().filter(|finalizer| finalizer != own).collect();
    if wanted {
        finalizers.push(own.into());
    }
    let patch = json!({"metadata": {
        "uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "finalizers": finalizers,
    }});
    let path = match key.split_once('/') {
        Some((namespace, name)) => format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"),
        None if table == CLASSES => format!("/apis/storage.k8s.io/v1/volumeattributesclasses/{key}"),
        None => format!("/api/v1/persistentvolumes/{key}"),
    };
    match local.merge(&path, &patch).await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}

/// Whether a claim or volume has, or is to have, the attributes of a class.
fn is_named(server: &Server, class: &str) -> bool {
    [CLAIMS, VOLUMES].iter().any(|table| {
        let list = server.store().list(table, KeyRange::prefix(""), None);
        list.map(|list| list.entries).unwrap_or_default().iter().filter_map(|entry| parse_stored(entry).ok()).any(
            |own| {
                let status = &own["status"];
                own["spec"]["volumeAttributesClassName"] == class
                    || status["currentVolumeAttributesClassName"] == class
                    || status["modifyVolumeStatus"]["targetVolumeAttributesClassName"] == class
            },
        )
    })
}

/// Whether a volume is a claim's: the reference comes first, and that it is Bound may be said last.
fn is_taken(volume: &Value) -> bool {
    let referring = volume["spec"]["claimRef"]["uid"].as_str().is_some_and(|uid| !uid.is_empty());
    match volume["status"]["phase"].as_str() {
        Some("Bound") => true,
        Some("Released" | "Failed") => false,
        _ => referring,
    }
}

/// What the pods of a namespace use. Only pods on a node count: no node starts a pod whose claim is being deleted.
#[derive(Default)]
struct Users {
    claims: BTreeSet<String>,
    /// Claims made for a pod, and the pod's uid.
    ephemeral: BTreeSet<(String, String)>,
}

impl Users {
    fn of(server: &Server, namespace: &str) -> Users {
        let mut users = Users::default();
        let prefix = format!("{namespace}/");
        let list = server.store().list(PODS, KeyRange::prefix(&prefix), None);
        for entry in list.map(|list| list.entries).unwrap_or_default() {
            if let Some(pod) = Pod::scan(&entry) {
                users.add(&pod);
            }
        }
        users
    }

    fn add(&mut self, pod: &Pod<'_>) {
        if pod.spec.node_name.is_empty() {
            return;
        }
        for volume in pod.spec.volumes.iter().flatten() {
            if let Some(claim) = &volume.persistent_volume_claim {
                self.claims.insert(claim.claim_name.to_string());
            }
            if volume.ephemeral.is_some() && !pod.is_shut_down() {
                let name = format!("{}-{}", &*pod.metadata.name, &*volume.name);
                self.ephemeral.insert((name, pod.metadata.uid.to_string()));
            }
        }
    }

    fn use_claim(&self, claim: &Value) -> bool {
        let meta = &claim["metadata"];
        let name = meta["name"].as_str().unwrap_or_default();
        let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.find(|own| own["controller"] == true).and_then(|own| own["uid"].as_str());
        self.claims.contains(name)
            || controller.is_some_and(|uid| self.ephemeral.contains(&(name.to_owned(), uid.to_owned())))
    }
}

/// The part of a pod that says what it uses.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: PodMeta<'a>,
    #[serde(borrow)]
    spec: PodSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    deletion_timestamp: Text<'a>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec<'a> {
    #[serde(borrow)]
    node_name: Text<'a>,
    #[serde(borrow)]
    volumes: Option<Vec<Volume<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    persistent_volume_claim: Option<ClaimSource<'a>>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSource<'a> {
    #[serde(borrow)]
    claim_name: Text<'a>,
}

impl<'a> Pod<'a> {
    fn scan(entry: &'a Entry) -> Option<Pod<'a>> {
        serde_json::from_slice(&entry.value).ok()
    }

    /// Whether its node is done with it, or somebody said not to wait for the node.
    fn is_shut_down(&self) -> bool {
        !self.metadata.deletion_timestamp.is_empty() && self.metadata.deletion_grace_period_seconds == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_its_claim_s_from_the_reference_on() {
        let (claim, reserved) = (json!({"name": "c", "uid": "u"}), json!({"name": "c"}));
        for (reference, phase, taken) in [
            (&claim, "Bound", true),
            (&claim, "Available", true),
            (&claim, "Pending", true),
            (&claim, "Released", false),
            (&claim, "Failed", false),
            (&reserved, "Available", false),
            (&Value::Null, "Available", false),
            (&Value::Null, "Bound", true),
        ] {
            let volume = json!({"spec": {"claimRef": reference}, "status": {"phase": phase}});
            assert_eq!(is_taken(&volume), taken, "{volume}");
        }
    }
}
