//! A provider: some kinds, the rights they need, and the object in the API that says how it is here.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object, watcher};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::files::Files;
use crate::foreign::Foreign;
use crate::home::Home;
use crate::kind::{Finding, Kind, Scene, Wake};
use crate::promise::Ledger;
use crate::reconcile::{Driver, drive, now};

/// What a provider says about itself.
pub struct Provider {
    /// Its name: of its directory, its service account (`provider-NAME`) and its `Provider` object.
    pub name: &'static str,
    /// What must be in the API before it runs: CustomResourceDefinitions.
    pub definitions: Vec<Value>,
    /// What it may do besides reading and reporting its own kinds and keeping Secrets in the system namespace: PolicyRules.
    pub rules: Vec<Value>,
    /// Objects for the start, made once and then the administrator's: classes, managers.
    pub examples: Vec<Value>,
    /// Its kinds.
    pub kinds: Box<dyn FnOnce(&Scene) -> Vec<Arc<dyn Kind>> + Send + Sync>,
}

/// How often is looked whether what was missing is there, and whether what was there still is.
const CHECK: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// When something is tried again that the API server did not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs a provider for ever. What its machine lacks, and what it finds when asked for an audit, is in its `Provider` object:
///
/// ```yaml
/// apiVersion: conductor.io/v1alpha1
/// kind: Provider
/// metadata: {name: databases}
/// spec: {audit: 3}                      # asks for audit number 3
/// status:
///   audited: 3                          # and here is the answer
///   findings: []
///   kinds:
///     - {apiVersion: database.local.conductor.io/v1alpha1, kind: PostgresInstance, available: false,
///        message: "the program postgres is missing: apt-get install postgresql"}
///     - {apiVersion: volume.local.conductor.io/v1alpha1, kind: ImageVolume, available: true, most: {size: 251Gi},
///        lacks: [{field: fileSystem, value: xfs, message: "the program mkfs.xfs is missing: apt-get install xfsprogs"}]}
/// ```
///
/// In a home that is another data directory's nothing is done, and every kind and every object says so.
pub async fn run(provider: Provider, client: kube::Client, home: Home) {
    let drivers: Arc<OnceLock<Vec<Arc<Driver>>>> = Arc::default();
    let known = drivers.clone();
    let wake: Wake = Arc::new(move |uid| {
        known.get().into_iter().flatten().any(|driver| driver.wake(uid));
    });
    let ledger = Arc::new(Ledger::default());
    let files = Files::new(wake.clone());
    let scene = Scene { client: client.clone(), home, wake, files, ledger: ledger.clone() };
    let kinds = (provider.kinds)(&scene).into_iter().map(|kind| match scene.home.foreign() {
        Some(lack) => Arc::new(Foreign { kind, lack: lack.clone() }),
        None => kind,
    });
    let (all, loops): (Vec<_>, Vec<_>) = kinds.map(|kind| drive(kind, client.clone())).unzip();
    // before anything new is promised
    for driver in &all {
        note_promised(driver, &ledger).await;
    }
    let mut tasks = JoinSet::new();
    for each in loops {
        tasks.spawn(each);
    }
    let _ = drivers.set(all.clone());
    tasks.spawn(watch_secrets(client.clone(), all.clone()));
    let presence = Presence { name: provider.name, client, drivers: all, home: scene.home };
    tasks.spawn(presence.run());
    while tasks.join_next().await.is_some() {}
}

/// Notes what the objects of a kind were promised, as soon as the API server says which there are.
async fn note_promised(driver: &Driver, ledger: &Ledger) {
    let objects = loop {
        match driver.objects().await {
            Ok(objects) => break objects,
            Err(trouble) => tracing::debug!(kind = driver.kind.kind(), %trouble, "will ask again what there is"),
        }
        tokio::time::sleep(AGAIN).await;
    };
    for object in objects.iter().filter(|object| object.was_ready()) {
        for (stock, amount) in driver.kind.promised(object) {
            ledger.note(object.uid(), &stock, amount);
        }
    }
}

/// Has an object looked at when somebody else changes or removes one of its connection Secrets.
async fn watch_secrets(client: kube::Client, drivers: Vec<Arc<Driver>>) {
    let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, crate::SYSTEM_NAMESPACE);
    let ours = watcher::Config::default().labels("app.kubernetes.io/managed-by=conductor");
    let mut shown = std::pin::pin!(watcher(api, ours).default_backoff());
    while let Some(event) = shown.next().await {
        match event {
            Ok(watcher::Event::Apply(secret)) => secret_changed(&drivers, &secret, false),
            Ok(watcher::Event::Delete(secret)) => secret_changed(&drivers, &secret, true),
            // everything is looked at when we begin
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the Secrets are not shown"),
        }
    }
}

fn secret_changed(drivers: &[Arc<Driver>], secret: &PartialObjectMeta<Secret>, gone: bool) {
    let meta = &secret.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, version) = (text(&meta.namespace), text(&meta.name), text(&meta.resource_version));
    for driver in drivers {
        if gone {
            driver.forget(&namespace, &name);
        } else if driver.wrote(&namespace, &name, &version) {
            return;
        }
    }
    for owner in meta.owner_references.iter().flatten() {
        let _ = drivers.iter().any(|driver| driver.kind.kind() == owner.kind && driver.wake(&owner.uid));
    }
}

/// Keeps the `Provider` object true.
struct Presence {
    name: &'static str,
    client: kube::Client,
    drivers: Vec<Arc<Driver>>,
    home: Home,
}

impl Presence {
    fn api(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("conductor.io", "v1alpha1", "Provider");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "providers"))
    }

    async fn run(self) {
        let mut checked: Option<Instant> = None;
        let mut said = Value::Null;
        let mut shown = watch_object(self.api(), self.name).default_backoff().boxed();
        let mut own = None;
        loop {
            let lacks = |kind: &Value| kind["available"] == false || !kind["lacks"].is_null();
            let lacking = said.as_array().is_none_or(|kinds| kinds.iter().any(lacks));
            let pause = if lacking { CHECK.0 } else { CHECK.1 };
            if checked.is_none_or(|at| at.elapsed() >= pause) {
                checked = Some(Instant::now());
                let kinds = self.check().await;
                if kinds != said && self.tell(&kinds).await && self.say(in_words(&kinds)).await.is_some() {
                    said = kinds;
                }
            }
            if let Some(number) = own.as_ref().and_then(asked) {
                let findings = self.audit().await;
                let answer = json!({"audited": number, "auditedAt": now(), "findings": findings});
                own = self.say(answer).await.or(own);
            }
            let pause = match own.as_ref().and_then(asked) {
                Some(_) => AGAIN,
                None => pause.saturating_sub(checked.map_or(Duration::ZERO, |at| at.elapsed())),
            };
            tokio::select! {
                event = shown.next() => match event {
                    Some(Ok(object)) => own = object,
                    Some(Err(error)) => tracing::debug!(provider = self.name, %error, "the Provider object is not shown"),
                    None => tokio::time::sleep(AGAIN).await,
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// What each kind lacks.
    async fn check(&self) -> Value {
        let each = self.drivers.iter().map(|driver| async move {
            let lack = driver.kind.check().await.err().map(|lack| lack.to_string());
            driver.set_lack(lack.clone());
            let mut entry = json!({
                "apiVersion": driver.kind.api_version(), "kind": driver.kind.kind(), "available": lack.is_none(),
            });
            let some = if lack.is_none() { driver.kind.lacks() } else { Vec::new() }.into_iter();
            if let Some(lack) = lack {
                entry["message"] = json!(lack);
            }
            let some: Vec<Value> = some
                .map(|some| match some.value {
                    Some(value) => json!({"field": some.field, "value": value, "message": some.lack.to_string()}),
                    None => json!({"field": some.field, "message": some.lack.to_string()}),
                })
                .collect();
            if !some.is_empty() {
                entry["lacks"] = Value::Array(some);
            }
            let most: BTreeMap<&str, String> = driver.kind.bounded().into_iter().collect();
            if !most.is_empty() {
                entry["most"] = json!(most);
            }
            entry
        });
        Value::Array(join_all(each).await)
    }

    /// Tells the managers which kinds can be made here, in the ConfigMap they read that from: under `Kind.group` what is missing.
    async fn tell(&self, kinds: &Value) -> bool {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let each = kinds.as_array().into_iter().flatten().map(|entry| {
            let version = text(&entry["apiVersion"]);
            let group = version.split_once('/').map_or("", |(group, _)| group);
            (format!("{}.{group}", text(&entry["kind"])), text(&entry["message"]))
        });
        let name = crate::install::account(self.name);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": crate::SYSTEM_NAMESPACE, "labels": {"conductor.io/provider": self.name},
            },
            "data": each.collect::<BTreeMap<String, String>>(),
        });
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), crate::SYSTEM_NAMESPACE);
        let mut params = PatchParams::apply("conductor-provider");
        params.force = true;
        match api.patch(&name, &params, &Patch::Apply(&object)).await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(provider = self.name, %error, "the provider's ConfigMap could not be written");
                false
            }
        }
    }

    async fn audit(&self) -> Value {
        let mut findings: Vec<Finding> = crate::stray::audit(self.name, self.home.path());
        if let Some(lack) = self.home.foreign() {
            findings.push(Finding {
                object: format!("Provider {}", self.name),
                invariant: "home-is-own".into(),
                message: lack.to_string(),
            });
        }
        for driver in &self.drivers {
            let found = match driver.objects().await {
                Ok(objects) => driver.kind.audit(&objects).await,
                Err(trouble) => Err(trouble),
            };
            match found {
                Ok(found) => findings.extend(found),
                Err(trouble) => findings.push(Finding {
                    object: driver.kind.kind().to_owned(),
                    invariant: "audit-possible".into(),
                    message: format!("the audit failed: {trouble}"),
                }),
            }
        }
        let each = findings
            .iter()
            .take(1000)
            .map(|f| json!({"object": f.object, "invariant": f.invariant, "message": f.message}));
        each.collect()
    }

    /// Says something in the Provider object; gives it as it is then.
    async fn say(&self, status: Value) -> Option<DynamicObject> {
        let patch = Patch::Merge(json!({"status": status}));
        let said = self.api().patch_status(self.name, &PatchParams::default(), &patch).await;
        said.inspect_err(|error| {
            tracing::debug!(provider = self.name, %error, "the Provider object could not be written");
        })
        .ok()
    }
}

/// The kinds, and what of them tables show: a column has one text only.
fn in_words(kinds: &Value) -> Value {
    let all = || kinds.as_array().into_iter().flatten();
    let texts = |of: &mut dyn Iterator<Item = &Value>| {
        let mut all: Vec<&str> = of.filter_map(Value::as_str).collect();
        // what is so for all kinds is said once
        all.dedup();
        if all.is_empty() { Value::Null } else { json!(all.join(", ")) }
    };
    json!({
        "kinds": kinds,
        "provides": texts(&mut all().map(|kind| &kind["kind"])),
        "lacks": texts(&mut all().filter(|kind| kind["available"] == false).map(|kind| &kind["message"])),
        "partlyLacks": texts(&mut all().flat_map(|kind| kind["lacks"].as_array().into_iter().flatten()).map(|lack| &lack["message"])),
    })
}

/// The audit that is asked for and not yet answered.
fn asked(provider: &DynamicObject) -> Option<i64> {
    let wanted = provider.data["spec"]["audit"].as_i64()?;
    (wanted > provider.data["status"]["audited"].as_i64().unwrap_or(0)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_all_of_it() {
        let kinds = json!([
            {"kind": "ImageVolume", "available": true, "lacks": [{"field": "fileSystem", "value": "xfs", "message": "no xfs"}]},
            {"kind": "DirectoryVolume", "available": false, "message": "no disk"},
        ]);
        let said = in_words(&kinds);
        assert_eq!(said["provides"], "ImageVolume, DirectoryVolume");
        assert_eq!((&said["lacks"], &said["partlyLacks"]), (&json!("no disk"), &json!("no xfs")));
        assert_eq!(in_words(&json!([]))["lacks"], Value::Null, "what is no more is removed");
    }
}
