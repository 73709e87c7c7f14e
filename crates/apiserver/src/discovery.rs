//! Discovery: which groups, versions and resources there are.

use serde_json::{Value, json};

use crate::aggregation::{Remotes, Version};
use crate::catalog::Catalog;
use crate::resource::{Resource, Subresource};

/// `/api`.
pub fn core() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    })
}

/// `/apis`.
pub fn groups(catalog: &Catalog, remotes: &Remotes) -> Value {
    let groups: Vec<Value> = remotes
        .groups(catalog)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_entry(group, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub fn group(catalog: &Catalog, remotes: &Remotes, name: &str) -> Option<Value> {
    let groups = remotes.groups(catalog);
    let (group, versions) = groups.iter().find(|(group, _)| *group == name && !group.is_empty())?;
    let mut entry = group_entry(group, versions);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

fn group_entry(group: &str, versions: &[Version]) -> Value {
    let entry = |version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(|(version, _)| entry(version)).collect();
    let preferred = versions.first().map_or("", |(version, _)| version);
    json!({"name": group, "versions": all, "preferredVersion": entry(preferred)})
}

/// `/api/v1`, `/apis/{group}/{version}`.
pub fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    let own = catalog.all().iter().filter(|own| &*own.group == group && &*own.version == version);
    for resource in own.filter(|own| own.is_announced()) {
        entries.push(legacy(resource));
        entries.extend(resource.subresources.iter().map(|sub| legacy_subresource(resource, sub)));
    }
    // A version of which nothing is established is not there.
    if entries.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": entries});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn legacy(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": *resource.plural, "singularName": *resource.singular, "namespaced": resource.namespaced,
        "kind": *resource.kind, "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = strings(&resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = strings(&resource.categories);
    }
    // The state of components is asked for, not stored.
    if resource.has_verb("get") && &*resource.kind != "ComponentStatus" {
        entry["storageVersionHash"] = storage_hash(resource).into();
    }
    entry
}

fn legacy_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, sub.name), "singularName": "", "namespaced": resource.namespaced,
        "kind": *sub.kind, "verbs": sorted(&sub.verbs),
    });
    if (&sub.group, &sub.version) != (&resource.group, &resource.version) {
        if !sub.group.is_empty() {
            entry["group"] = (*sub.group).into();
        }
        entry["version"] = (*sub.version).into();
    }
    entry
}

/// `/api` and `/apis` with all that is below them.
pub fn aggregated(catalog: &Catalog, remotes: &Remotes, wanted: impl Fn(&str) -> bool) -> Value {
    let mut items = Vec::new();
    for (group, versions) in remotes.groups(catalog).iter().filter(|(group, _)| wanted(group)) {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, remote)| {
                if let Some(remote) = remote {
                    return remote.discovery();
                }
                let resources: Vec<Value> = catalog
                    .all()
                    .iter()
                    .filter(|own| *own.group == **group && *own.version == **version && own.is_announced())
                    .map(|resource| modern(resource))
                    .collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let meta = if group.is_empty() { json!({}) } else { json!({"name": group}) };
        items.push(json!({"metadata": meta, "versions": versions}));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn modern(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": *resource.plural, "singularResource": *resource.singular, "verbs": verbs(resource),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = strings(&resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = strings(&resource.categories);
    }
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource
            .subresources
            .iter()
            .map(|sub| {
                json!({
                    "subresource": *sub.name, "verbs": sorted(&sub.verbs),
                    "responseKind": kind(&sub.group, &sub.version, &sub.kind),
                })
            })
            .collect();
    }
    entry
}

fn strings(list: &[Box<str>]) -> Value {
    list.iter().map(|text| Value::from(&**text)).collect()
}

/// Sorted, but for custom resources, whose order Kubernetes wrote down.
fn verbs(resource: &Resource) -> Value {
    if resource.is_custom() { strings(&resource.verbs) } else { sorted(&resource.verbs) }
}

fn sorted(list: &[Box<str>]) -> Value {
    let mut list: Vec<&str> = list.iter().map(|text| &**text).collect();
    list.sort_unstable();
    list.into()
}

fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let (group, version) = match resource.twin() {
        Some(twin) => (twin.group(), twin.version()),
        None => (&*resource.group, resource.storage_version()),
    };
    let text = format!("{group}/{version}/{}", resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}
