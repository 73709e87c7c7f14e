//! ResourceTypes and Managers: which types are served here, with which classes.

mod definitions;
mod judged;
mod managers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conductor_claims::types::TYPE;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::{Names, Sink, Watch};
use crate::desk::Context;
use crate::runtime::Desks;
use definitions::Guarded;
use judged::Judged;

/// Group and version of our own kinds.
pub(crate) const API_VERSION: &str = "conductor.io/v1alpha1";

#[derive(Default)]
struct Known {
    types: BTreeMap<String, Value>,
    managers: BTreeMap<String, Value>,
    /// Whether all of them were shown.
    managers_shown: bool,
    /// What providers say of the kinds they make.
    providers: BTreeMap<String, Value>,
    /// The definitions there are, each in its version.
    definitions: BTreeMap<String, String>,
    /// Those that are gone, of groups of kinds that classes make.
    undefined: BTreeSet<String>,
    /// The groups of kinds that classes make.
    groups: BTreeSet<String>,
    /// Whether what is served does not go with the definitions there are: it is about to.
    awaited: bool,
    /// Types to be looked at.
    dirty: BTreeSet<String>,
    /// Whether the managers are to be looked at.
    managers_dirty: bool,
    /// By type that is served, what guards it.
    guarded: BTreeMap<String, Guarded>,
}

/// Keeps the desks in step with the ResourceTypes and Managers there are.
pub(crate) struct Types {
    cx: Arc<Context>,
    desks: Arc<Desks>,
    workers: usize,
    known: Mutex<Known>,
    judged: Mutex<Judged>,
    changed: Notify,
    busy: AtomicBool,
    synced: AtomicBool,
}

/// The type of PersistentVolumes, as a Manager says it.
const VOLUMES: &str = "persistentvolumes";
/// How often what Managers show of their classes is brought up to date.
const REFRESH: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);
/// How often it is said that the Managers are not known yet.
const SILENT: Duration = Duration::from_secs(30);

impl Types {
    pub(crate) fn start(cx: &Arc<Context>, desks: &Arc<Desks>, workers: usize, tasks: &mut JoinSet<()>) -> Arc<Types> {
        let types = Arc::new(Types {
            cx: cx.clone(),
            desks: desks.clone(),
            workers,
            known: Mutex::default(),
            judged: Mutex::default(),
            changed: Notify::new(),
            busy: AtomicBool::new(false),
            synced: AtomicBool::new(false),
        });
        for (kind, shows) in
            [("ResourceType", Shows::Types), ("Manager", Shows::Managers), ("Provider", Shows::Providers)]
        {
            let sink = Arc::new(TypeSink { types: types.clone(), shows });
            tasks.spawn(Watch::all(API_VERSION, kind).run(cx.api.clone(), sink));
        }
        let definitions = Watch::all("apiextensions.k8s.io/v1", "CustomResourceDefinition").lean();
        tasks.spawn(definitions.run(cx.api.clone(), Arc::new(DefinitionSink(types.clone()))));
        let working = types.clone();
        tasks.spawn(async move { working.work().await });
        types
    }

    pub(crate) fn is_idle(&self) -> bool {
        let known = self.known.lock();
        let settled = known.dirty.is_empty() && !known.managers_dirty;
        settled && self.synced.load(Ordering::Acquire) && !self.busy.load(Ordering::Acquire)
    }

    /// Whether every type there was at the start is served.
    pub(crate) fn are_served(&self) -> bool {
        let known = self.known.lock();
        self.synced.load(Ordering::Acquire) && known.types.keys().all(|name| self.desks.get(name).is_some())
    }

    /// Brings one type up, or down; whether that could be done.
    async fn look(&self, name: String) -> bool {
        let object = self.known.lock().types.get(&name).cloned();
        let result = match object {
            Some(object) => self.define(&object).await,
            None => {
                self.desks.close(&name);
                self.known.lock().guarded.remove(&name);
                Ok(())
            }
        };
        let Err(trouble) = result else { return true };
        if trouble.code == 403 {
            // it is said on the type
            tracing::debug!(%name, %trouble, "the type will be tried again");
        } else {
            tracing::warn!(%name, %trouble, "the type will be tried again");
        }
        self.known.lock().dirty.insert(name);
        false
    }

    async fn work(&self) {
        let mut counted = 0;
        let mut waiting = tokio::time::Instant::now();
        if self.desks.get(VOLUMES).is_some()
            && let Err(failure) = self.introduce_volumes().await
        {
            tracing::debug!(%failure, "the manager of volumes could not be made");
        }
        loop {
            let idle = tokio::time::timeout(REFRESH, self.changed.notified()).await.is_err();
            if !self.known.lock().managers_shown && waiting.elapsed() >= SILENT {
                waiting = tokio::time::Instant::now();
                tracing::warn!(
                    "nothing is bound or released before it is known which Managers there are, and the API server does not list them: \
                     is their kind defined (conductor install), and may managers list it?"
                );
            }
            let changes: u64 = self.desks.all().iter().map(|desk| desk.changes.load(Ordering::Relaxed)).sum();
            let refresh = idle && (changes != counted || self.known.lock().awaited);
            self.busy.store(true, Ordering::Release);
            let (dirty, mut managers) = {
                let mut known = self.known.lock();
                (std::mem::take(&mut known.dirty), std::mem::take(&mut known.managers_dirty))
            };
            managers |= refresh || !dirty.is_empty();
            let looked = futures::future::join_all(dirty.into_iter().map(|name| self.look(name))).await;
            let mut failed = looked.contains(&false);
            futures::future::join_all(self.due().iter().map(|name| async move {
                if let Err(trouble) = self.guard_again(name).await {
                    tracing::warn!(name, %trouble, "the roles and policies of the type will be applied again");
                }
            }))
            .await;
            if managers {
                counted = changes;
                if let Err(trouble) = self.serve().await {
                    tracing::warn!(%trouble, "the managers will be tried again");
                    self.known.lock().managers_dirty = true;
                    failed = true;
                }
            }
            self.busy.store(false, Ordering::Release);
            let again = {
                let known = self.known.lock();
                !known.dirty.is_empty() || known.managers_dirty
            };
            if failed {
                tokio::time::sleep(RETRY).await;
            }
            if again {
                self.changed.notify_one();
            }
        }
    }
}

/// A definition of ours that somebody deletes is made again; what classes make is judged by the definitions there are.
struct DefinitionSink(Arc<Types>);

impl DefinitionSink {
    /// Notes which version of a definition there is, if any.
    fn note(&self, name: &str, version: Option<&str>) {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        let concerns = {
            let mut known = self.0.known.lock();
            let before = match version {
                Some(version) => known.definitions.insert(name.to_owned(), version.to_owned()),
                None => known.definitions.remove(name),
            };
            let concerns = before.as_deref() != version && known.groups.contains(group);
            known.managers_dirty |= concerns;
            if version.is_some() {
                known.undefined.remove(name);
            } else if concerns {
                known.undefined.insert(name.to_owned());
            }
            concerns
        };
        if concerns {
            self.0.cx.api.look_again_at_group(group);
            self.0.changed.notify_one();
        }
    }
}

impl Sink for DefinitionSink {
    fn apply(&self, object: Value) {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        self.note(text("name"), Some(text("resourceVersion")));
    }

    fn delete(&self, object: Value) {
        self.note(object["metadata"]["name"].as_str().unwrap_or_default(), None);
        let kind = object["metadata"]["annotations"][TYPE].as_str().unwrap_or_default();
        let stays = {
            let mut known = self.0.known.lock();
            let stays = known.types.get(kind).is_some_and(|t| t["metadata"]["deletionTimestamp"].is_null());
            if stays {
                known.dirty.insert(kind.to_owned());
            }
            stays
        };
        if stays {
            // what it watches is gone with all there was of it
            self.0.desks.close(kind);
            self.0.changed.notify_one();
        }
    }

    fn synced(&self, names: &Names) {
        let gone: Vec<String> = {
            let known = self.0.known.lock();
            let there = |name: &String| names.contains(&(String::new(), name.clone()));
            known.definitions.keys().filter(|name| !there(name)).cloned().collect()
        };
        gone.iter().for_each(|name| self.note(name, None));
    }
}

#[derive(Clone, Copy)]
enum Shows {
    Types,
    Managers,
    Providers,
}

struct TypeSink {
    types: Arc<Types>,
    shows: Shows,
}

impl TypeSink {
    /// Notes that an object is there, or no more.
    fn note(&self, name: String, object: Option<Value>) {
        {
            let mut known = self.types.known.lock();
            let known = &mut *known;
            let all = match self.shows {
                Shows::Types => &mut known.types,
                Shows::Managers => &mut known.managers,
                Shows::Providers => &mut known.providers,
            };
            match object {
                Some(object) => drop(all.insert(name.clone(), object)),
                None => drop(all.remove(&name)),
            }
            match self.shows {
                Shows::Types => drop(known.dirty.insert(name)),
                Shows::Managers | Shows::Providers => known.managers_dirty = true,
            }
        }
        self.types.changed.notify_one();
    }
}

impl Sink for TypeSink {
    fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.note(name, Some(object));
    }

    fn delete(&self, object: Value) {
        self.note(object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), None);
    }

    fn synced(&self, names: &Names) {
        let gone: Vec<String> = {
            let known = self.types.known.lock();
            let all = match self.shows {
                Shows::Types => &known.types,
                Shows::Managers => &known.managers,
                Shows::Providers => &known.providers,
            };
            all.keys().filter(|name| !names.contains(&(String::new(), (*name).clone()))).cloned().collect()
        };
        gone.into_iter().for_each(|name| self.note(name, None));
        match self.shows {
            Shows::Types => self.types.synced.store(true, Ordering::Release),
            Shows::Managers => {
                {
                    let mut known = self.types.known.lock();
                    (known.managers_shown, known.managers_dirty) = (true, true);
                }
                // those that are open wait for nothing else
                self.types.brief();
            }
            Shows::Providers => self.types.known.lock().managers_dirty = true,
        }
        self.types.changed.notify_one();
    }
}
