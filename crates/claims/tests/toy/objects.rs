//! Objects for tests, and what must be true of them.

use conductor_claims::invariants::violations;
use conductor_claims::types::ResourceType;
use serde_json::{Value, json};

use super::{Api, Key};

pub fn kind() -> ResourceType {
    ResourceType::parse(&json!({"spec": {
        "group": "a.example.com", "version": "v1", "names": {"resource": "Database"},
        "attributes": {"engine": {"type": "string"}},
        "capacities": {"storage": {}},
        "reclaimPolicies": ["Delete", "Retain", "Recycle"],
    }}))
    .expect("a type")
}

pub fn resource(name: &str, size: &str, policy: &str, shared: u32, template: bool) -> Value {
    let mut object = json!({
        "apiVersion": "a.example.com/v1", "kind": "Database", "metadata": {"name": name},
        "spec": {"engine": "mysql", "capacity": {"storage": size}, "reclaimPolicy": policy, "maxClaims": shared, "class": "fast"},
    });
    if template {
        object["spec"]["template"] =
            json!({"apiVersion": "p/v1", "kind": "Thing", "spec": {"size": "${resource.spec.capacity.storage}"}});
    }
    object
}

pub fn claim(name: &str, size: &str, class: &str) -> Value {
    json!({
        "apiVersion": "a.example.com/v1", "kind": "DatabaseClaim", "metadata": {"name": name, "namespace": "apps"},
        "spec": {"class": class, "resources": {"requests": {"storage": size}}},
    })
}

pub fn class(name: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "a.example.com/v1", "kind": "DatabaseClass", "metadata": {"name": name},
        "reclaimPolicy": policy, "allowExpansion": true,
        "template": {"apiVersion": "p/v1", "kind": "Thing", "spec": {"size": "${claim.spec.resources.requests.storage}", "of": "${resource.metadata.name}"}},
    })
}

pub fn key(kind: &str, namespace: &str, name: &str) -> Key {
    (kind.into(), namespace.into(), name.into())
}

pub fn phase<'a>(api: &'a Api, key: &Key) -> &'a str {
    api.objects.get(key).map_or("gone", |o| o["status"]["phase"].as_str().unwrap_or_default())
}

pub fn assert_sound(api: &Api, at_rest: bool) {
    let kind = kind();
    let broken = violations(&api.world(&kind), at_rest);
    assert!(broken.is_empty(), "{broken:#?}\n{:#?}", api.objects.values().collect::<Vec<_>>());
}

/// Nobody takes anything by force here, so a claim that says Bound is held, and none is ever lost.
pub fn nothing_lost(api: &Api) -> Vec<String> {
    let held = |claim: &Value| {
        let name = claim["spec"]["resourceName"].as_str().unwrap_or_default();
        let refs =
            api.objects.get(&key("Database", "", name)).map(|r| r["spec"]["claimRefs"].to_string()).unwrap_or_default();
        refs.contains(&format!("{:?}", claim["metadata"]["uid"].as_str().unwrap_or_default()))
    };
    let wrong = |claim: &&Value| match claim["status"]["phase"].as_str() {
        Some("Lost") => true,
        Some("Bound") => claim["metadata"]["deletionTimestamp"].is_null() && !held(claim),
        _ => false,
    };
    api.of_kind("DatabaseClaim").map(|(_, c)| c).filter(wrong).map(|c| format!("lost: {c}")).collect()
}
