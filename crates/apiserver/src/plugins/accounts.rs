//! `ServiceAccount`: who a Pod is, and the token that proves it.

use machinery::status::Status;
use serde_json::{Value, json};

use super::tolerations::push;
use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};
use crate::auth::nodes::graph::{Used, is_mirror, used};

/// The store's table of accounts.
pub const TABLE: &str = "core/serviceaccounts";
const VOLUME: &str = "kube-api-access-";
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A little more than an hour: kubelets renew tokens that have an hour left.
const SECONDS: i64 = 3607;

/// Gives Pods a service account that exists, and its token.
pub struct Accounts {
    /// Draws the names of volumes.
    pub random: fn() -> u64,
}

/// The account of a new Pod, if it needs one.
pub fn wanted(attributes: &Attributes<'_>) -> Option<String> {
    let concerned = attributes.resource.gk() == ("", "Pod")
        && attributes.operation == Operation::Create
        && attributes.subresource.is_empty()
        && attributes.object["spec"].is_object()
        && !is_mirror(&attributes.object);
    let named = || attributes.object["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty());
    concerned.then(|| named().unwrap_or("default").to_owned())
}

impl Accounts {
    fn find(&self, attributes: &Attributes<'_>, name: &str) -> Result<Value, Status> {
        let key = format!("{}/{name}", attributes.namespace);
        attributes.view.object(TABLE, &key).ok_or_else(|| {
            let why = format!("error looking up service account {key}: serviceaccount {name:?} not found");
            forbidden(attributes, why)
        })
    }

    fn mount(&self, pod: &mut Value) {
        let spec = &mut pod["spec"];
        let names = spec["volumes"].as_array().into_iter().flatten().filter_map(|volume| volume["name"].as_str());
        let existing = names.filter(|name| name.starts_with(VOLUME)).map(str::to_owned).next();
        let name = existing.clone().unwrap_or_else(|| machinery::names::generate_name(VOLUME, self.random));
        let mut mounted = false;
        for list in ["initContainers", "containers"] {
            for container in kinds::value::list_mut(spec, list) {
                let mounts = &mut container["volumeMounts"];
                // Whoever mounts something else there does not want the token.
                if !mounts.as_array().into_iter().flatten().any(|mount| mount["mountPath"] == PATH) {
                    push(mounts, json!({"name": name, "readOnly": true, "mountPath": PATH}));
                    mounted = true;
                }
            }
        }
        if mounted && existing.is_none() {
            let sources = json!([
                {"serviceAccountToken": {"expirationSeconds": SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ]);
            push(&mut spec["volumes"], json!({"name": name, "projected": {"defaultMode": 420, "sources": sources}}));
        }
    }
}

/// A Pod that only shows what a node runs by itself is nobody, and has nothing to hide.
fn mirrors(attributes: &Attributes<'_>) -> Result<(), Status> {
    let pod = &attributes.object;
    let concerned = attributes.resource.gk() == ("", "Pod")
        && attributes.operation == Operation::Create
        && attributes.subresource.is_empty()
        && is_mirror(pod);
    if !concerned {
        return Ok(());
    }
    let found = used(pod);
    let uses = |what: Used| found.iter().any(|(used, _)| *used == what);
    let mut sources = pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    match () {
        () if uses(Used::Account) => Err(forbidden(attributes, "a mirror pod may not reference service accounts")),
        () if uses(Used::Secret) => Err(forbidden(attributes, "a mirror pod may not reference secrets")),
        () if sources.any(|source| source["serviceAccountToken"].is_object()) => {
            Err(forbidden(attributes, "a mirror pod may not use ServiceAccountToken volume projections"))
        }
        () => Ok(()),
    }
}

impl Plugin for Accounts {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        mirrors(attributes)?;
        let Some(name) = wanted(attributes) else { return Ok(()) };
        let account = self.find(attributes, &name)?;
        let spec = &mut attributes.object["spec"];
        spec["serviceAccountName"] = name.as_str().into();
        // The older name of the field says the same.
        spec["serviceAccount"] = name.into();
        let automount = spec["automountServiceAccountToken"].as_bool();
        if automount.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
            self.mount(&mut attributes.object);
        }
        let spec = &mut attributes.object["spec"];
        if spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) {
            let secrets = account["imagePullSecrets"].as_array().into_iter().flatten();
            let names: Vec<Value> = secrets.map(|secret| json!({"name": secret["name"]})).collect();
            if !names.is_empty() {
                spec["imagePullSecrets"] = names.into();
            }
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match wanted(attributes) {
            Some(name) => self.find(attributes, &name).map(drop),
            None => Ok(()),
        }
    }
}
