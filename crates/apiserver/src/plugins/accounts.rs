//! `ServiceAccount`: who a Pod is, and the token that proves it.

use std::collections::HashSet;

use kinds::value::{annotation, list, text};
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
/// Says of an account that its Pods may use the Secrets it lists and no others.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
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

    /// Holds the containers that a Pod is debugged with to the Secrets of its account.
    fn debugged(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let spec = &attributes.object["spec"];
        let name = text(spec, "serviceAccountName");
        if name.is_empty() {
            let why = format!("no service account specified for pod {}/{}", attributes.namespace, attributes.name);
            return Err(forbidden(attributes, why));
        }
        let account = self.find(attributes, name)?;
        if !enforces(&account) {
            return Ok(());
        }
        // kube-apiserver does not mark this error as a refusal, so that its clients get it as it is, with 500.
        let (who, secrets) = (text(&account, "metadata.name"), listed(&account, "secrets"));
        secrets_of_containers(who, &secrets, list(spec, "ephemeralContainers"), "ephemeral container")
            .map_err(|why| Status::new(500, "", why))
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

/// Whether a Pod gets containers to look into it with.
fn is_debugged(attributes: &Attributes<'_>) -> bool {
    attributes.resource.gk() == ("", "Pod")
        && attributes.operation == Operation::Update
        && attributes.subresource == "ephemeralcontainers"
}

/// Whether an account keeps its Pods to its own Secrets: its annotation is true as Go reads it.
fn enforces(account: &Value) -> bool {
    matches!(annotation(account, ENFORCE), Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// What an account lists, to be asked often: both lists are as long as somebody likes.
fn listed<'a>(account: &'a Value, field: &str) -> HashSet<&'a str> {
    list(account, field).iter().map(|own| text(own, "name")).collect()
}

/// Refuses a Pod that uses Secrets which its account does not list.
fn secrets_of_pod(account: &Value, spec: &Value) -> Result<(), String> {
    let who = text(account, "metadata.name");
    let secrets = listed(account, "secrets");
    for volume in list(spec, "volumes").iter().filter(|volume| volume["secret"].is_object()) {
        let secret = text(volume, "secret.secretName");
        if !secrets.contains(secret) {
            let what = format!("volume with secret.secretName=\"{secret}\"");
            return Err(format!("{what} is not allowed because service account {who} does not reference that secret"));
        }
    }
    secrets_of_containers(who, &secrets, list(spec, "initContainers"), "init container")?;
    secrets_of_containers(who, &secrets, list(spec, "containers"), "container")?;
    let secrets = listed(account, "imagePullSecrets");
    for (at, secret) in list(spec, "imagePullSecrets").iter().map(|own| text(own, "name")).enumerate() {
        if !secrets.contains(secret) {
            let why = format!("service account {who} does not reference that imagePullSecret");
            return Err(format!("imagePullSecrets[{at}].name=\"{secret}\" is not allowed because {why}"));
        }
    }
    Ok(())
}

/// Refuses containers whose variables come from Secrets that the account does not list.
fn secrets_of_containers(who: &str, secrets: &HashSet<&str>, containers: &[Value], what: &str) -> Result<(), String> {
    for container in containers {
        let variables = list(container, "env").iter().map(|own| {
            let how = format!("envVar {}", text(own, "name"));
            (how, &own["valueFrom"]["secretKeyRef"])
        });
        let sources = list(container, "envFrom").iter().map(|own| ("envFrom".to_owned(), &own["secretRef"]));
        for (how, reference) in variables.chain(sources).filter(|(_, reference)| reference.is_object()) {
            let secret = text(reference, "name");
            if !secrets.contains(secret) {
                let name = text(container, "name");
                return Err(format!(
                    "{what} {name} with {how} referencing secret.secretName=\"{secret}\" is not allowed because \
                     service account {who} does not reference that secret"
                ));
            }
        }
    }
    Ok(())
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
        if is_debugged(attributes) {
            return self.debugged(attributes);
        }
        let Some(name) = wanted(attributes) else { return Ok(()) };
        let account = self.find(attributes, &name)?;
        if !enforces(&account) {
            return Ok(());
        }
        secrets_of_pod(&account, &attributes.object["spec"]).map_err(|why| forbidden(attributes, why))
    }
}
