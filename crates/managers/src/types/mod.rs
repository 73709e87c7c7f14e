//! ResourceTypes and Managers: which types are served here, with which classes.

mod definitions;
mod managers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::{Names, Sink, Watch};
use crate::desk::Context;
use crate::runtime::Desks;

/// Group and version of our own kinds.
pub(crate) const API_VERSION: &str = "conductor.io/v1alpha1";

#[derive(Default)]
struct Known {
    types: BTreeMap<String, Value>,
    managers: BTreeMap<String, Value>,
    /// Types to be looked at.
    dirty: BTreeSet<String>,
    /// Whether the managers are to be looked at.
    managers_dirty: bool,
}

/// Keeps the desks in step with the ResourceTypes and Managers there are.
pub(crate) struct Types {
    cx: Arc<Context>,
    desks: Arc<Desks>,
    workers: usize,
    known: Mutex<Known>,
    changed: Notify,
    busy: AtomicBool,
    synced: AtomicBool,
}

/// How often what Managers show of their classes is brought up to date.
const REFRESH: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);

impl Types {
    pub(crate) fn start(cx: &Arc<Context>, desks: &Arc<Desks>, workers: usize, tasks: &mut JoinSet<()>) -> Arc<Types> {
        let types = Arc::new(Types {
            cx: cx.clone(),
            desks: desks.clone(),
            workers,
            known: Mutex::default(),
            changed: Notify::new(),
            busy: AtomicBool::new(false),
            synced: AtomicBool::new(false),
        });
        for kind in ["ResourceType", "Manager"] {
            let sink = Arc::new(TypeSink { types: types.clone(), managers: kind == "Manager" });
            tasks.spawn(Watch::all(API_VERSION, kind).run(cx.api.clone(), sink));
        }
        let working = types.clone();
        tasks.spawn(async move { working.work().await });
        types
    }

    pub(crate) fn is_idle(&self) -> bool {
        let known = self.known.lock();
        let settled = known.dirty.is_empty() && !known.managers_dirty;
        settled && self.synced.load(Ordering::Acquire) && !self.busy.load(Ordering::Acquire)
    }

    async fn work(&self) {
        let mut counted = 0;
        loop {
            let idle = tokio::time::timeout(REFRESH, self.changed.notified()).await.is_err();
            let changes: u64 = self.desks.all().iter().map(|desk| desk.changes.load(Ordering::Relaxed)).sum();
            let refresh = idle && changes != counted;
            self.busy.store(true, Ordering::Release);
            let (dirty, mut managers) = {
                let mut known = self.known.lock();
                (std::mem::take(&mut known.dirty), std::mem::take(&mut known.managers_dirty))
            };
            managers |= refresh || !dirty.is_empty();
            for name in dirty {
                let object = self.known.lock().types.get(&name).cloned();
                let result = match object {
                    Some(object) => self.define(&object).await,
                    None => {
                        self.desks.close(&name);
                        Ok(())
                    }
                };
                if let Err(trouble) = result {
                    tracing::warn!(%name, %trouble, "the type will be tried again");
                    self.known.lock().dirty.insert(name);
                }
            }
            if managers {
                counted = changes;
                if let Err(trouble) = self.serve().await {
                    tracing::warn!(%trouble, "the managers will be tried again");
                    self.known.lock().managers_dirty = true;
                }
            }
            self.busy.store(false, Ordering::Release);
            let again = {
                let known = self.known.lock();
                !known.dirty.is_empty() || known.managers_dirty
            };
            if again {
                tokio::time::sleep(RETRY).await;
                self.changed.notify_one();
            }
        }
    }
}

struct TypeSink {
    types: Arc<Types>,
    managers: bool,
}

impl Sink for TypeSink {
    fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        {
            let mut known = self.types.known.lock();
            if self.managers {
                known.managers.insert(name, object);
                known.managers_dirty = true;
            } else {
                known.types.insert(name.clone(), object);
                known.dirty.insert(name);
            }
        }
        self.types.changed.notify_one();
    }

    fn delete(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        {
            let mut known = self.types.known.lock();
            if self.managers {
                known.managers.remove(&name);
                known.managers_dirty = true;
            } else {
                known.types.remove(&name);
                known.dirty.insert(name);
            }
        }
        self.types.changed.notify_one();
    }

    fn synced(&self, names: &Names) {
        {
            let mut known = self.types.known.lock();
            let there = |name: &String| names.contains(&(String::new(), name.clone()));
            if self.managers {
                known.managers.retain(|name, _| there(name));
                known.managers_dirty = true;
            } else {
                let gone: Vec<String> = known.types.keys().filter(|name| !there(name)).cloned().collect();
                for name in gone {
                    known.types.remove(&name);
                    known.dirty.insert(name);
                }
                self.types.synced.store(true, Ordering::Release);
            }
        }
        self.types.changed.notify_one();
    }
}
