//! Namespaces: what each has from its first moment, and how it goes with everything in it.

use std::collections::BTreeMap;
use std::time::Duration;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{EventKind, KeyRange};

use crate::catalog::NAMESPACES;
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

/// The ConfigMap with the CA's certificate.
const CA: &str = "kube-root-ca.crt";

/// Gives every namespace its default service account and the CA's certificate, again if somebody deletes or changes them.
pub async fn provision(server: Server) {
    let local = Local::new(&server, "kube-controller-manager");
    'again: loop {
        let revision = server.store().revision();
        for name in names(&server) {
            ensure(&server, &local, &name).await;
        }
        let store = server.store();
        let watches = (
            store.watch(NAMESPACES, "", revision),
            store.watch("core/serviceaccounts", "", revision),
            store.watch("core/configmaps", "", revision),
        );
        let (Ok(mut namespaces), Ok(mut accounts), Ok(mut maps)) = watches else { continue };
        loop {
            let events = tokio::select! {
                events = namespaces.next() => events,
                events = accounts.next() => events,
                events = maps.next() => events,
            };
            let Ok(events) = events else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue 'again;
            };
            for event in events {
                let new_namespace =
                    &*event.table == NAMESPACES && event.kind == EventKind::Put && event.previous.is_none();
                let (gone, changed) = (event.kind == EventKind::Delete, event.previous.is_some());
                let (name, what) = event.key().split_once('/').unwrap_or((event.key(), ""));
                let lost = match &*event.table {
                    "core/serviceaccounts" => gone && what == "default",
                    "core/configmaps" => (gone || changed) && what == CA,
                    _ => false,
                };
                if new_namespace || lost {
                    ensure(&server, &local, name).await;
                }
            }
        }
    }
}

fn names(server: &Server) -> Vec<String> {
    let list = server.store().list(NAMESPACES, KeyRange::all(), None);
    list.map(|list| list.entries.iter().map(|entry| entry.key.to_string()).collect()).unwrap_or_default()
}

/// Makes what is missing in a namespace that stays.
pub async fn ensure(server: &Server, local: &Local, namespace: &str) {
    match server.store().get(NAMESPACES, namespace) {
        Some(entry) if !server.0.is_terminating(&entry) => {}
        _ => return,
    }
    let base = format!("/api/v1/namespaces/{namespace}");
    let store = server.store();
    if store.get("core/serviceaccounts", &format!("{namespace}/default")).is_none() {
        let account = json!({"metadata": {"name": "default", "namespace": namespace}});
        log(local.ensure(&format!("{base}/serviceaccounts"), &account).await);
    }
    let data = json!({"ca.crt": server.pki().ca()});
    match store.get("core/configmaps", &format!("{namespace}/{CA}")).map(|entry| parse_stored(&entry)) {
        None => {
            let map = json!({
                "metadata": {
                    "name": CA, "namespace": namespace,
                    "annotations": {"kubernetes.io/description": "The certificate of the CA that signs the API server's. Verify the server with it."},
                },
                "data": data,
            });
            log(local.ensure(&format!("{base}/configmaps"), &map).await);
        }
        Some(Ok(mut map)) if map["data"] != data => {
            map["data"] = data;
            log(local.update(&format!("{base}/configmaps/{CA}"), &map).await.map(drop));
        }
        Some(_) => {}
    }
}

fn log(result: Result<(), Status>) {
    if let Err(status) = result {
        tracing::debug!(%status, "a namespace could not be given what it should have");
    }
}

/// Empties namespaces that are being deleted, and lets them go.
pub async fn remove(server: Server) {
    let local = Local::new(&server, "namespace-controller");
    loop {
        let Ok(list) = server.store().list(NAMESPACES, KeyRange::all(), None) else { continue };
        let mut waiting = false;
        for entry in list.entries.iter().filter(|entry| server.0.is_terminating(entry)) {
            let Ok(namespace) = parse_stored(entry) else { continue };
            match empty(&server, &local, &namespace).await {
                Ok(done) => waiting |= !done,
                Err(status) => {
                    waiting = true;
                    tracing::debug!(%status, namespace = &*entry.key, "a namespace is not empty yet");
                }
            }
        }
        let Ok(mut watch) = server.store().watch(NAMESPACES, "", list.revision) else { continue };
        // While something holds a namespace, it is looked at again even if nobody touches the namespace itself.
        let patience = if waiting { Duration::from_millis(100) } else { Duration::from_secs(3600) };
        if let Ok(Err(_)) = tokio::time::timeout(patience, watch.next()).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Deletes what is in a namespace. Says whether the namespace is gone.
async fn empty(server: &Server, local: &Local, namespace: &Value) -> Result<bool, Status> {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    let catalog = server.0.catalog();
    let mut remaining: BTreeMap<String, usize> = BTreeMap::new();
    let mut holders: BTreeMap<String, usize> = BTreeMap::new();
    // What cannot be deleted, because a webhook refuses it for instance, keeps nothing else from going.
    let mut failures: Vec<String> = Vec::new();
    let mut resources = catalog.by_table();
    // Pods go first, as long as all is there that they may need to end well.
    resources.sort_by_key(|resource| resource.gk() != ("", "Pod"));
    for resource in resources {
        if !resource.namespaced || !resource.has_verb("delete") {
            continue;
        }
        if remaining.contains_key("pods.") {
            break;
        }
        let prefix = resource.prefix(name);
        let Ok(list) = server.store().list(&resource.table, KeyRange::prefix(&prefix), None) else { continue };
        let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
        for entry in &list.entries {
            let own = entry.key.rsplit('/').next().unwrap_or_default();
            let path = format!("{root}/{}/namespaces/{name}/{}/{own}", resource.version, resource.plural);
            let object = parse_stored(entry)?;
            if object["metadata"].get("deletionTimestamp").is_none() {
                match local.delete(&path, &json!({"propagationPolicy": "Background"})).await {
                    Ok(_) => {}
                    Err(status) if matches!(status.code, 404 | 409) => {}
                    Err(status) => failures.push(status.message),
                }
            }
            if let Some(entry) = server.store().get(&resource.table, &entry.key) {
                let what = format!("{}.{}", resource.plural, resource.group);
                *remaining.entry(what).or_default() += 1;
                let object = parse_stored(&entry)?;
                for finalizer in object["metadata"]["finalizers"].as_array().into_iter().flatten() {
                    *holders.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
                }
            }
        }
    }
    let mut elsewhere = crate::aggregation::namespaces::empty(server, local, name).await;
    remaining.append(&mut elsewhere.remaining);
    failures.append(&mut elsewhere.failures);
    let path = format!("/api/v1/namespaces/{name}");
    if remaining.is_empty() && failures.is_empty() && elsewhere.unknown.is_empty() {
        // All others who hold the namespace keep it; we no longer do.
        let mut wanted = namespace.clone();
        let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = finalizers.iter().filter(|own| *own != "kubernetes").cloned().collect();
        let before = finalizers.len();
        let held =
            !rest.is_empty() || namespace["metadata"]["finalizers"].as_array().is_some_and(|own| !own.is_empty());
        if rest.len() == before && held {
            return Ok(true);
        }
        wanted["spec"]["finalizers"] = rest.into();
        return match local.update(&format!("{path}/finalize"), &wanted).await {
            Ok(_) => Ok(true),
            Err(status) if matches!(status.code, 404 | 409) => Ok(false),
            Err(status) => Err(status),
        };
    }
    let conditions = conditions(namespace, &remaining, &holders, &failures, &elsewhere.unknown, &server.0.now());
    if conditions != namespace["status"]["conditions"] {
        let mut wanted = namespace.clone();
        wanted["status"]["conditions"] = conditions;
        match local.update(&format!("{path}/status"), &wanted).await {
            Ok(_) => {}
            Err(status) if matches!(status.code, 404 | 409) => {}
            Err(status) => return Err(status),
        }
    }
    Ok(false)
}

/// What holds a namespace, said on it.
fn conditions(
    namespace: &Value,
    remaining: &BTreeMap<String, usize>,
    holders: &BTreeMap<String, usize>,
    failures: &[String],
    unknown: &[String],
    now: &str,
) -> Value {
    let list = |counts: &BTreeMap<String, usize>, what: &str| {
        let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {what} {count}")).collect();
        parts.join(", ")
    };
    let content = format!(
        "Some resources are remaining: {}",
        list(remaining, "has").replace(", ", " resource instances, ") + " resource instances"
    );
    let finalizers = format!(
        "Some content in the namespace has finalizers remaining: {}",
        list(holders, "in").replace(", ", " resource instances, ") + " resource instances"
    );
    let failed = format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", "));
    let undiscovered = format!("Discovery failed for some groups, {} failing: {}", unknown.len(), unknown.join(", "));
    // Of each condition: what it says while all is well, and what of something that is not.
    let all = [
        (
            "NamespaceDeletionDiscoveryFailure",
            ("ResourcesDiscovered", "All resources successfully discovered"),
            (!unknown.is_empty()).then_some(("DiscoveryFailed", undiscovered)),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            None,
        ),
        (
            "NamespaceDeletionContentFailure",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            (!failures.is_empty()).then_some(("ContentDeletionFailed", failed)),
        ),
        (
            "NamespaceContentRemaining",
            ("ContentRemoved", "All content successfully removed"),
            (!remaining.is_empty()).then_some(("SomeResourcesRemain", content)),
        ),
        (
            "NamespaceFinalizersRemaining",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            (!holders.is_empty()).then_some(("SomeFinalizersRemain", finalizers)),
        ),
    ];
    let before = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let made = all.into_iter().map(|(kind, well, ill)| {
        let (status, reason, message) = match ill {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", well.0, well.1.to_owned()),
        };
        let since = before
            .iter()
            .find(|own| own["type"] == kind && own["status"] == status)
            .map_or_else(|| Value::from(now), |own| own["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    });
    made.collect()
}
