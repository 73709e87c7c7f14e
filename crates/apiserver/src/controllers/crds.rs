//! CustomResourceDefinitions: serves what they define, says so on them, and cleans up after them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Entry, KeyRange};

use crate::catalog::Catalog;
use crate::custom::{Definition, Webhook};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

/// The store's table of definitions.
pub const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Holds a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Definitions that are served, by name.
pub type Known = BTreeMap<String, Serving>;

/// A definition that is served.
pub struct Serving {
    /// Of the stored definition that was looked at last.
    revision: u64,
    mark: Mark,
    definition: Arc<Definition>,
}

/// Serves what is defined already. Called once, before the first request.
pub fn load(server: &Server) -> Known {
    let mut known = Known::new();
    refresh(server, &mut known);
    known
}

/// Follows the definitions for as long as the server runs.
pub async fn run(server: Server, mut known: Known) {
    let local = Local::new(&server, "kube-apiserver");
    loop {
        let revision = refresh(&server, &mut known);
        let done = match settle(&server, &local, &list(&server)).await {
            Ok(done) => done,
            Err(status) => {
                tracing::debug!(%status, "a definition could not be brought up to date; trying again");
                false
            }
        };
        let Ok(mut watch) = server.store().watch(TABLE, "", revision) else { continue };
        // What waits for others' finalizers is looked at again now and then.
        let patience = if done { Duration::from_secs(3600) } else { Duration::from_millis(200) };
        if let Ok(Err(_)) = tokio::time::timeout(patience, watch.next()).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn list(server: &Server) -> Vec<Arc<Entry>> {
    server.store().list(TABLE, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default()
}

/// Brings the catalog up to date; gives the revision it is up to date with.
fn refresh(server: &Server, known: &mut Known) -> u64 {
    let Ok(list) = server.store().list(TABLE, KeyRange::all(), None) else { return server.store().revision() };
    let mut changed = false;
    let mut over: Vec<Arc<Definition>> = Vec::new();
    let mut names = BTreeSet::new();
    for entry in &list.entries {
        let before = known.get_mut(&*entry.key);
        if let Some(serving) = before.as_ref().filter(|own| own.revision == entry.revision) {
            names.insert(serving.definition.name.clone());
            continue;
        }
        let Ok(crd) = parse_stored(entry) else { continue };
        if !condition(&crd, "NamesAccepted") {
            continue;
        }
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
        // Writes under the old schema may still be on their way: what is stored up to now is looked at again.
        let definition = Definition::read(&crd, server.store().revision());
        let mut definition = definition.converted_by(Webhook::read(&crd, &server.0.webhooks));
        if let Some(superseded) = superseded {
            definition.superseded = superseded;
        }
        let serving = Serving { revision: entry.revision, mark, definition: Arc::new(definition) };
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
        let mut resources: Vec<_> = known.values().flat_map(|serving| serving.definition.clone().resources()).collect();
        resources.sort_by(|a, b| {
            let version = || machinery::version::by_preference(&a.version, &b.version);
            a.group.cmp(&b.group).then_with(version).then_with(|| a.plural.cmp(&b.plural))
        });
        resources.into_iter().for_each(|resource| catalog.add(resource));
        server.0.change_catalog(catalog);
    }
    // Those who watch begin anew, as in Kubernetes, and find what is served now.
    for definition in over {
        definition.superseded.send_replace(true);
    }
    list.revision
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

fn condition(crd: &Value, kind: &str) -> bool {
    conditions(crd).iter().any(|own| own["type"] == kind && own["status"] == "True")
}

fn conditions(crd: &Value) -> &[Value] {
    crd["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Accepts names, says what is established, removes what is to go. Says whether nothing is left to wait for.
async fn settle(server: &Server, local: &Local, entries: &[Arc<Entry>]) -> Result<bool, Status> {
    let mut done = true;
    let crds: Vec<Value> = entries.iter().filter_map(|entry| parse_stored(entry).ok()).collect();
    for crd in &crds {
        if crd["metadata"].get("deletionTimestamp").is_some() {
            done &= remove(server, local, crd).await?;
            continue;
        }
        let status = accept(crd, &crds, &server.0.now());
        if status != crd["status"] {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}/status");
            let mut wanted = crd.clone();
            wanted["status"] = status;
            match local.update(&path, &wanted).await {
                Ok(_) => {}
                // Somebody changed or removed it meanwhile: it will be looked at again.
                Err(status) if matches!(status.code, 404 | 409) => {}
                Err(status) => return Err(status),
            }
        }
    }
    Ok(done)
}

/// The status a definition should have, given all others.
fn accept(crd: &Value, all: &[Value], now: &str) -> Value {
    let (spec, name) = (&crd["spec"], &crd["metadata"]["name"]);
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut taken_kinds: BTreeSet<&str> = BTreeSet::new();
    for other in
        all.iter().filter(|other| other["metadata"]["name"] != *name && other["spec"]["group"] == spec["group"])
    {
        let names = &other["status"]["acceptedNames"];
        taken.extend([names["plural"].as_str(), names["singular"].as_str()].into_iter().flatten());
        taken.extend(names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str));
        taken_kinds.extend([names["kind"].as_str(), names["listKind"].as_str()].into_iter().flatten());
    }
    taken.remove("");
    taken_kinds.remove("");
    let names = &spec["names"];
    let text = |field: &str| names[field].as_str().unwrap_or_default();
    let conflict = [("plural", "PluralConflict"), ("singular", "SingularConflict")]
        .iter()
        .find(|(field, _)| taken.contains(text(field)))
        .map(|(field, reason)| (*reason, text(field)))
        .or_else(|| {
            let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
            short.into_iter().find(|name| taken.contains(name)).map(|name| ("ShortNamesConflict", name))
        })
        .or_else(|| {
            [("kind", "KindConflict"), ("listKind", "ListKindConflict")]
                .iter()
                .find(|(field, _)| taken_kinds.contains(text(field)))
                .map(|(field, reason)| (*reason, text(field)))
        });
    let mut status = crd["status"].clone();
    let mut set = |kind: &str, value: &str, reason: &str, message: String| {
        let list = status["conditions"].as_array().cloned().unwrap_or_default();
        let before = list.iter().find(|own| own["type"] == kind);
        let since = match before {
            Some(own) if own["status"] == value => own["lastTransitionTime"].clone(),
            _ => now.into(),
        };
        let new =
            json!({"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message});
        let mut list = list;
        match list.iter_mut().find(|own| own["type"] == kind) {
            Some(own) if own["reason"] == reason && own["status"] == value => {}
            Some(own) => *own = new,
            None => list.push(new),
        }
        status["conditions"] = list.into();
    };
    match conflict {
        Some((reason, name)) => {
            set("NamesAccepted", "False", reason, format!("{name:?} is already in use"));
            if !condition(crd, "Established") {
                set("Established", "False", "NotAccepted", "not all names are accepted".into());
            }
        }
        None => {
            set("NamesAccepted", "True", "NoConflicts", "no conflicts found".into());
            // Established once it is served: the catalog takes it up when the names are accepted.
            if condition(crd, "NamesAccepted") {
                set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted".into());
            } else if !condition(crd, "Established") {
                set("Established", "False", "Installing", "the initial names have been accepted".into());
            }
        }
    }
    if let Some((value, reason, message)) = approval(crd) {
        set("KubernetesAPIApprovalPolicyConformant", value, reason, message);
    }
    if conflict.is_none() {
        status["acceptedNames"] = names.clone();
    }
    status
}

/// Whether a definition in one of Kubernetes' own groups says that it may be there; none of others do.
fn approval(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let community = ["k8s.io", "kubernetes.io"];
    if !community.iter().any(|own| group.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))) {
        return None;
    }
    let must = format!("protected groups must have approval annotation {ANNOTATION:?}");
    let url = |text: &str| text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some());
    Some(match crd["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default() {
        "" => ("False", "MissingAnnotation", format!("{must}, {SEE}")),
        said if said.starts_with("unapproved") => ("False", "UnapprovedAnnotation", format!("not approved: {said:?}")),
        said if url(said) => ("True", "ApprovedAnnotation", format!("approved in {said}")),
        _ => {
            let why = format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}");
            ("False", "InvalidAnnotation", why)
        }
    })
}

/// Deletes the objects of a definition that is being deleted; lets it go when there are none left. Says whether it is done.
async fn remove(server: &Server, local: &Local, crd: &Value) -> Result<bool, Status> {
    let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|own| own == FINALIZER) {
        return Ok(true);
    }
    let definition = Definition::read(crd, 0);
    let name = &definition.name;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
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
                    Err(status) => return Err(status),
                }
            }
        }
        if server.store().count(&table) > 0 {
            // Somebody's finalizers hold the rest.
            return Ok(false);
        }
    }
    let rest: Vec<&Value> = finalizers.iter().filter(|own| *own != FINALIZER).collect();
    let patch = json!({"metadata": {"finalizers": rest, "uid": crd["metadata"]["uid"]}});
    match local.merge(&path, &patch).await {
        Ok(_) => Ok(true),
        Err(status) if matches!(status.code, 404 | 409) => Ok(true),
        Err(status) => Err(status),
    }
}
