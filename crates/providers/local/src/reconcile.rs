//! The loop that drives one kind: watch, reconcile, report; finalizer first, removal last.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conductor_claims::lifecycle::{Condition, ROTATION};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::controller::{Action, Config, applier};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;

use crate::kind::{Kind, Object, Report, Trouble};
use crate::status;

/// Holds an implementation until nothing of it is left outside.
const FINALIZER: &str = "conductor.io/provider";
/// Under which name our fields are owned.
const FIELD_MANAGER: &str = "conductor-provider";
/// How often everything is looked at although nothing was told, where its kind does not say.
const AGAIN: Duration = Duration::from_secs(60);
/// The same, at most, for what is to be removed and is not yet, because somebody uses it.
const HELD_AGAIN: Duration = Duration::from_secs(5);
/// How long one object may keep its loop; what takes longer is tried again.
const PATIENCE: Duration = Duration::from_secs(600);

/// A kind and what its loop knows.
pub(crate) struct Driver {
    pub(crate) kind: Arc<dyn Kind>,
    client: kube::Client,
    resource: ApiResource,
    /// What is missing on this machine; `None`: nothing.
    lack: Mutex<Option<String>>,
    failures: Mutex<HashMap<String, u32>>,
    store: Store<DynamicObject>,
    /// The versions of the Secrets as we wrote them, by namespace and name.
    secrets: Mutex<HashMap<(String, String), String>>,
    wanted: mpsc::UnboundedSender<ObjectRef<DynamicObject>>,
}

/// How long until something is looked at although nothing was told: what it says, or what `CONDUCTOR_LOOK_AGAIN_SECONDS` says for all of
/// them, which tests use that show what is told.
pub fn look_again(usual: Duration) -> Duration {
    static SAID: OnceLock<Option<Duration>> = OnceLock::new();
    let read = || std::env::var("CONDUCTOR_LOOK_AGAIN_SECONDS").ok()?.parse().ok().map(Duration::from_secs);
    SAID.get_or_init(read).unwrap_or(usual)
}

/// Now, as objects write it.
pub(crate) fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    conductor_machinery::time::Time::new(since.as_secs() as i64, 0).map(|t| t.to_string()).unwrap_or_default()
}

pub(crate) fn resource_of(kind: &dyn Kind) -> ApiResource {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.kind()), kind.plural())
}

/// A driver, and what runs it for ever.
pub(crate) fn drive(kind: Arc<dyn Kind>, client: kube::Client) -> (Arc<Driver>, impl Future<Output = ()> + Send) {
    let resource = resource_of(kind.as_ref());
    let writer = reflector::store::Writer::new(resource.clone());
    let store = writer.as_reader();
    let (wanted, wakes) = mpsc::unbounded_channel();
    let driver = Arc::new(Driver {
        kind,
        client: client.clone(),
        resource: resource.clone(),
        lack: Mutex::default(),
        failures: Mutex::default(),
        store: store.clone(),
        secrets: Mutex::default(),
        wanted,
    });
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let watched = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let known = store.clone();
    let shown = watched.flat_map(move |event| {
        let named = |object: &DynamicObject| ObjectRef::from_obj_with(object, resource.clone());
        futures::stream::iter(match event {
            Ok(watcher::Event::Apply(object)) => vec![named(&object)],
            // what a list shows is looked for in the store, and is there when the list is whole
            Ok(watcher::Event::InitDone) => known.state().iter().map(|object| named(object)).collect(),
            _ => Vec::new(),
        })
    });
    let queue = futures::stream::select(shown, stream(wakes)).map(Ok::<_, Infallible>);
    let running = driver.clone();
    let run = async move {
        let look = |object: Arc<DynamicObject>, driver: Arc<Driver>| {
            Box::pin(async move { driver.look(&object).await }) as futures::future::BoxFuture<'static, _>
        };
        let failed = |object: Arc<DynamicObject>, trouble: &Trouble, driver: Arc<Driver>| {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            tracing::info!(kind = driver.kind.kind(), name, %trouble, "will try again");
            Action::requeue(driver.failed(object.metadata.uid.as_deref().unwrap_or_default()))
        };
        let config = Config::default().concurrency(16);
        applier(look, failed, running, store, queue, config).for_each(|_| std::future::ready(())).await;
    };
    (driver, run)
}

fn stream<T>(mut receiver: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> {
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

/// What takes too long is given up, said, and tried again.
async fn in_time<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let late = || Trouble::new("TooSlow", "it took too long and is tried again");
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(late()))
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// What a rotation left out goes: apply owns all of them.
fn applying() -> PatchParams {
    PatchParams { force: true, ..PatchParams::apply(FIELD_MANAGER) }
}

/// Whether an object's connection Secret, or that for one of several claims, is its own to write; an error: the API server does not take
/// it. To be asked before anything is changed that only the Secret will tell.
pub async fn may_write(client: &kube::Client, object: &Object, claim: Option<&str>) -> Result<bool, Trouble> {
    let api: Api<Secret> = Api::namespaced(client.clone(), object.namespace());
    let name = status::secret_name(object, claim);
    if let Some(there) = api.get_opt(&name).await? {
        let owners = there.metadata.owner_references.unwrap_or_default();
        if !owners.iter().any(|owner| owner.uid == object.uid()) {
            return Ok(false);
        }
    }
    let secret = status::secret(object, &name, &BTreeMap::new(), None);
    match api.patch(&name, &PatchParams { dry_run: true, ..applying() }, &Patch::Apply(&secret)).await {
        Ok(_) => Ok(true),
        Err(error) => {
            let message = format!(
                "its connection Secret {}/{name} is gone and cannot be written again: {error}; those who know what was in it go on",
                object.namespace()
            );
            Err(Trouble::new("SecretRefused", message))
        }
    }
}

impl Driver {
    /// Everything there is of the kind, as the watch showed it.
    pub(crate) fn shown(&self) -> Vec<Arc<DynamicObject>> {
        self.store.state()
    }

    /// Everything there is of the kind, as the API server has it.
    pub(crate) async fn objects(&self) -> Result<Vec<Object>, Trouble> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &self.resource);
        let list = api.list(&Default::default()).await?;
        Ok(list.items.iter().map(|item| self.object(item)).collect())
    }

    fn object(&self, object: &DynamicObject) -> Object {
        let mut value = serde_json::to_value(object).unwrap_or_default();
        value["apiVersion"] = json!(self.kind.api_version());
        value["kind"] = json!(self.kind.kind());
        Object(value)
    }

    /// Wants the object with a uid looked at; whether it is of this kind.
    pub(crate) fn wake(&self, uid: &str) -> bool {
        let found = self.shown().into_iter().find(|o| o.metadata.uid.as_deref() == Some(uid));
        found.is_some_and(|o| self.wanted.send(ObjectRef::from_obj_with(&*o, self.resource.clone())).is_ok())
    }

    /// Whether a version of a Secret is the one that we wrote.
    pub(crate) fn wrote(&self, namespace: &str, name: &str, version: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.secrets.lock().get(&key).is_some_and(|written| written == version)
    }

    /// Forgets a Secret that is gone.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.secrets.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Notes what is missing; everything is looked at when that changes.
    pub(crate) fn set_lack(&self, lack: Option<String>) {
        if std::mem::replace(&mut *self.lack.lock(), lack.clone()) != lack {
            for object in self.shown() {
                let _ = self.wanted.send(ObjectRef::from_obj_with(&*object, self.resource.clone()));
            }
        }
    }

    fn failed(&self, uid: &str) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(uid.to_owned()).or_default();
        *count = count.saturating_add(1);
        Duration::from_millis(100 << (*count).min(9)).min(Duration::from_secs(30))
    }

    fn api(&self, object: &Object) -> Api<DynamicObject> {
        match object.namespace() {
            "" => Api::all_with(self.client.clone(), &self.resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
        }
    }

    async fn look(&self, shown: &DynamicObject) -> Result<Action, Trouble> {
        // as it is, not as the watch showed it: a status from before our last write would have a scrub done twice
        let shown = self.object(shown);
        let live = self.api(&shown).get_opt(shown.name()).await?;
        let Some(mut object) = live.map(|live| self.object(&live)).filter(|live| live.uid() == shown.uid()) else {
            return Ok(Action::await_change());
        };
        let uid = object.uid().to_owned();
        let outcome = match object.is_deleting() {
            true => self.remove(&mut object).await,
            false => self.keep(&mut object, None).await,
        };
        let after = outcome?;
        // what is to be removed and is still there was tried in vain
        if !object.is_deleting() {
            self.failures.lock().remove(&uid);
        }
        Ok(after)
    }

    /// Keeps it as it is asked for, also if it is to be removed and `held` says why it cannot be yet.
    async fn keep(&self, object: &mut Object, held: Option<Trouble>) -> Result<Action, Trouble> {
        if !self.finalizers(object).iter().any(|f| f == FINALIZER) {
            match self.set_finalizer(object, true).await {
                // the watch shows it again, with the finalizer
                Ok(()) => {}
                Err(error) if is_race(&error) || is_gone(&error) => return Ok(Action::await_change()),
                Err(error) => return Err(error.into()),
            }
        }
        let lack = self.lack.lock().clone();
        let report = match lack {
            Some(lack) if !object.was_ready() => Ok(Report::not_ready("Unavailable", lack)),
            _ => in_time(self.kind.reconcile(object)).await,
        };
        let (mut report, trouble) = match report {
            Ok(report) => (report, None),
            Err(trouble) => (Report { not_ready: Some(trouble.clone()), ..Report::default() }, Some(trouble)),
        };
        let mut trouble = trouble;
        if let Some(refused) = self.refused(object, &report).await? {
            trouble.clone_from(&refused.not_ready);
            report = refused;
        }
        if let Some(logs) = self.kind.logs(object) {
            report.status.insert("logs".into(), json!(logs.display().to_string()));
        }
        if let Some(held) = held {
            report.conditions.push(Condition::new("Removable", false, held.reason, held.message));
            report.again = Some(self.failed(object.uid()).min(HELD_AGAIN));
        }
        match self.write(object, &report).await {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(Action::await_change()),
            Err(error) => return Err(error.into()),
        }
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        self.kind.written(object).await?;
        Ok(Action::requeue(report.again.unwrap_or_else(|| look_again(AGAIN))))
    }

    async fn remove(&self, object: &mut Object) -> Result<Action, Trouble> {
        if self.finalizers(object).iter().any(|f| f == FINALIZER) {
            if let Err(trouble) = in_time(self.kind.remove(object)).await {
                if trouble.is_held() {
                    return self.keep(object, Some(trouble)).await;
                }
                let report = Report::not_ready("RemovalFailed", format!("it cannot be removed: {trouble}"));
                let _ = self.write(&mut object.clone(), &report).await;
                return Err(trouble);
            }
            match self.set_finalizer(object, false).await {
                Ok(()) => {}
                Err(error) if is_race(&error) || is_gone(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.failures.lock().remove(object.uid());
        Ok(Action::await_change())
    }

    fn finalizers(&self, object: &Object) -> Vec<String> {
        let list = object.0["metadata"]["finalizers"].as_array().into_iter().flatten();
        list.filter_map(|f| f.as_str().map(str::to_owned)).collect()
    }

    async fn set_finalizer(&self, object: &Object, there: bool) -> Result<(), kube::Error> {
        let mut list = self.finalizers(object);
        list.retain(|f| f != FINALIZER);
        if there {
            list.push(FINALIZER.to_owned());
        }
        let metadata = json!({
            "finalizers": list, "uid": object.uid(), "resourceVersion": object.0["metadata"]["resourceVersion"],
        });
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.api(object).patch(object.name(), &PatchParams::default(), &patch).await.map(drop)
    }

    /// Whether a Secret to be written is another's; what is said then, and all that is.
    async fn refused(&self, object: &Object, report: &Report) -> Result<Option<Report>, kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), object.namespace());
        let own = report.connection.iter().map(|_| None);
        for claim in own.chain(report.connections.iter().flatten().map(|(claim, _)| Some(claim.as_str()))) {
            let name = status::secret_name(object, claim);
            let Some(there) = api.get_opt(&name).await? else { continue };
            let owners = there.metadata.owner_references.unwrap_or_default();
            if let Some(refused) = status::refusal(object, &name, &owners) {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// Writes the connection Secrets, then the status that names them; the object is as it is then.
    async fn write(&self, object: &mut Object, report: &Report) -> Result<(), kube::Error> {
        if let Some(details) = &report.connection {
            self.write_secret(object, &status::secret_name(object, None), details, report.rotated).await?;
        }
        for (claim, details) in report.connections.iter().flatten() {
            self.write_secret(object, &status::secret_name(object, Some(claim)), details, report.rotated).await?;
        }
        if let Some(connections) = &report.connections {
            let told = object.status("connections").as_array().into_iter().flatten();
            let told = told.filter_map(|told| told["claimUid"].as_str()).map(str::to_owned);
            for gone in told.filter(|claim| !connections.contains_key(claim)).collect::<Vec<_>>() {
                self.remove_secret(object, &status::secret_name(object, Some(&gone))).await?;
            }
        }
        let Some(status) = status::patch(object, report, &now()) else { return Ok(()) };
        let patch = Patch::Merge(json!({"metadata": {"uid": object.uid()}, "status": status}));
        let after = self.api(object).patch_status(object.name(), &PatchParams::default(), &patch).await?;
        *object = self.object(&after);
        Ok(())
    }

    /// Removes a Secret, if it is the object's.
    async fn remove_secret(&self, object: &Object, name: &str) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), object.namespace());
        let Some(there) = api.get_opt(name).await? else { return Ok(()) };
        let owners = there.metadata.owner_references.unwrap_or_default();
        if !owners.iter().any(|owner| owner.uid == object.uid()) {
            return Ok(());
        }
        let preconditions = Preconditions { uid: there.metadata.uid, resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(name, &params).await {
            Err(error) if !is_gone(&error) && !is_race(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn write_secret(
        &self,
        object: &Object,
        name: &str,
        details: &BTreeMap<String, String>,
        rotation: Option<i64>,
    ) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), object.namespace());
        let annotations: BTreeMap<&str, String> = rotation.iter().map(|n| (ROTATION, n.to_string())).collect();
        if let Some(there) = api.get_opt(name).await? {
            let noted = there.metadata.annotations.unwrap_or_default();
            let noted = annotations.iter().all(|(key, value)| noted.get(*key) == Some(value));
            let data = there.data.unwrap_or_default();
            let same = |(key, value): (&String, &String)| data.get(key).is_some_and(|v| v.0 == value.as_bytes());
            if noted && data.len() == details.len() && details.iter().all(same) {
                return Ok(());
            }
        }
        let secret = status::secret(object, name, details, rotation);
        let written = api.patch(name, &applying(), &Patch::Apply(&secret)).await?;
        let version = written.metadata.resource_version.unwrap_or_default();
        self.secrets.lock().insert((object.namespace().to_owned(), name.to_owned()), version);
        Ok(())
    }
}
