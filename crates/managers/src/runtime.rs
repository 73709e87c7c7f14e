//! The managers of one process: which watches run, which desks there are, and who leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use conductor_claims::lifecycle::{CLAIM_UID, RESOURCE_UID, SYSTEM_NAMESPACE};
use parking_lot::RwLock;
use tokio::task::{AbortHandle, JoinSet};

use crate::api::{Api, Failure, Watch};
use crate::consumers::{ConsumerSink, Consumers, KINDS};
use crate::desk::{Context, Desk, DeskSink, Role};
use crate::events::Events;
use crate::expressions::Evaluator;
use crate::gates::Gates;
use crate::implementations::{Following, OwnedSink, SecretSink, TemplateSink};
use crate::install::PROVISIONER;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::metrics::{Counters, Metrics};
use crate::queue::Queue;
use crate::transport::Transport;
use crate::types::Types;
use crate::volumes::TEMPLATE;

/// How many objects without an owner are looked at at the same time.
const SWEEPERS: usize = 4;

/// What the managers do and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether PersistentVolumes are ours to bind. On a cluster they are the cluster's, unless its own binder is off.
    pub volumes: bool,
    /// Whether ResourceTypes are served.
    pub types: bool,
    /// Lead only while holding the Lease, under this identity; `None`: lead at once.
    pub identity: Option<String>,
    /// How long the Lease holds without being renewed: whole seconds, and not less than one.
    pub lease: Duration,
    /// Whether writes go in order even where transactions are offered; for tests.
    pub ordered: bool,
    /// How many items of a type are worked on at the same time.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Options {
        let lease = Duration::from_secs(15);
        Options { volumes: true, types: true, identity: None, lease, ordered: false, workers: 32 }
    }
}

/// The desks there are, by name of their type.
#[derive(Default)]
pub(crate) struct Desks {
    desks: RwLock<BTreeMap<String, (Arc<Desk>, Vec<AbortHandle>)>>,
}

impl Desks {
    pub(crate) fn all(&self) -> Vec<Arc<Desk>> {
        self.desks.read().values().map(|(desk, _)| desk.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Desk>> {
        self.desks.read().get(name).map(|(desk, _)| desk.clone())
    }

    /// Opens a desk; one that was there under the name is closed.
    pub(crate) fn open(&self, cx: &Arc<Context>, kind: Kind, workers: usize) -> Arc<Desk> {
        let name = kind.name();
        self.close(&name);
        let desk = Desk::new(cx.clone(), kind);
        let mut tasks = Vec::new();
        let mut run = |task: tokio::task::JoinHandle<()>| tasks.push(task.abort_handle());
        let kinds = [
            (Role::Class, desk.kind.class()),
            (Role::Resource, desk.kind.resource()),
            (Role::Claim, desk.kind.claim()),
        ];
        for (role, (api_version, kind)) in kinds {
            let watch = Watch::all(&api_version, kind);
            let sink = Arc::new(DeskSink { desk: desk.clone(), role });
            run(tokio::spawn(watch.run(cx.api.clone(), sink)));
        }
        for _ in 0..workers.max(1) {
            run(tokio::spawn(desk.clone().work()));
        }
        let timer = desk.clone();
        run(tokio::spawn(async move { timer.queue.keep_time().await }));
        let refresh = desk.clone();
        run(tokio::spawn(async move { refresh.refresh().await }));
        self.desks.write().insert(name, (desk.clone(), tasks));
        cx.gates.stir_all();
        desk
    }

    fn close_all(&self) {
        let desks = std::mem::take(&mut *self.desks.write());
        for (_, (_, tasks)) in desks {
            tasks.iter().for_each(AbortHandle::abort);
        }
    }

    /// Closes a desk.
    pub(crate) fn close(&self, name: &str) {
        let desk = self.desks.write().remove(name);
        if let Some((_, tasks)) = desk {
            tasks.iter().for_each(AbortHandle::abort);
        }
    }
}

impl Drop for Managers {
    fn drop(&mut self) {
        self.desks.close_all();
    }
}

/// Running managers; they stop when this is dropped.
pub struct Managers {
    cx: Arc<Context>,
    desks: Arc<Desks>,
    types: Option<Arc<Types>>,
    transactional: bool,
    counters: Arc<Counters>,
    lease: Option<Arc<Lease>>,
    tasks: JoinSet<()>,
}

impl Managers {
    /// Starts the managers. Returns when they are running, which is not to say that they have seen everything.
    pub async fn start(client: kube::Client, options: Options) -> Result<Managers, Failure> {
        let api = Api::new(client);
        let mut tasks = JoinSet::new();
        let lease =
            options.identity.as_ref().map(|identity| Arc::new(Lease::new(api.clone(), identity, options.lease)));
        if let Some(lease) = lease.clone() {
            lease.acquire().await?;
            tasks.spawn(async move { lease.hold().await });
        }
        let transport =
            if options.ordered { Transport::ordered(api.clone()) } else { Transport::discover(api.clone()).await? };
        let (transactional, counters) = (transport.is_transactional(), transport.counters.clone());
        let (events, writer) = Events::new(api.clone());
        tasks.spawn(writer);
        let (following, mut wanted) = Following::new();
        let consumers = Arc::new(Consumers::default());
        let follow = following.clone();
        let gates = Arc::new(Gates::default());
        let cx = Arc::new(Context {
            gates: gates.clone(),
            api: api.clone(),
            provisioner: api.acting_as(PROVISIONER),
            transport,
            consumers: consumers.clone(),
            events,
            evaluator: Evaluator::default(),
            orphans: Queue::default(),
            follow: Box::new(move |api_version, kind| follow.follow(api_version, kind)),
        });
        let desks = Arc::new(Desks::default());
        if options.types {
            tasks.spawn(gates.clone().work(api.clone(), cx.events.clone(), Arc::downgrade(&desks)));
        }
        let listening = Arc::downgrade(&desks);
        consumers.listen(move |kind, namespace, name| {
            for desk in listening.upgrade().into_iter().flat_map(|desks| desks.all()) {
                if desk.words.iter().any(|word| word == kind) {
                    desk.touch_claim(namespace, name);
                }
            }
        });
        for (api_version, kind) in KINDS.into_iter().filter(|(_, kind)| options.types || *kind == "Pod") {
            let sink = Arc::new(ConsumerSink { consumers: consumers.clone(), gates: gates.clone(), kind });
            tasks.spawn(Watch::all(api_version, kind).run(api.clone(), sink));
        }
        if options.volumes {
            let desk = desks.open(&cx, Kind::Volumes, options.workers);
            if !options.types {
                // there are no Managers to be told by
                desk.may_begin();
            }
            let sink = Arc::new(TemplateSink { following });
            tasks.spawn(Watch::all(TEMPLATE.0, TEMPLATE.1).run(api.clone(), sink));
        }
        let mut types = None;
        if options.types {
            for (api_version, kind) in [("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Service")] {
                let sink = Arc::new(OwnedSink { cx: cx.clone(), desks: desks.clone() });
                tasks.spawn(Watch::all(api_version, kind).labelled(CLAIM_UID).run(api.clone(), sink));
            }
            let sink = Arc::new(SecretSink { desks: desks.clone() });
            tasks.spawn(Watch::all("v1", "Secret").within(SYSTEM_NAMESPACE).run(api.clone(), sink));
            types = Some(Types::start(&cx, &desks, options.workers, &mut tasks));
        }
        for _ in 0..SWEEPERS {
            tasks.spawn(crate::orphans::work(cx.clone()));
        }
        let timer = cx.clone();
        tasks.spawn(async move { timer.orphans.keep_time().await });
        let (owned, watching, of) = (desks.clone(), api.acting_as(PROVISIONER), cx.clone());
        tasks.spawn(async move {
            let mut watches = JoinSet::new();
            while let Some((api_version, kind)) = wanted.recv().await {
                for selector in [RESOURCE_UID.to_owned(), format!("{CLAIM_UID},!{RESOURCE_UID}")] {
                    let sink = Arc::new(OwnedSink { cx: of.clone(), desks: owned.clone() });
                    watches.spawn(Watch::all(&api_version, &kind).labelled(&selector).run(watching.clone(), sink));
                }
            }
        });
        Ok(Managers { cx, desks, types, transactional, counters, lease, tasks })
    }

    /// Whether everything has been seen once and nothing is being worked on; what was just written may still be on its way here.
    pub fn is_idle(&self) -> bool {
        self.desks.all().iter().all(|desk| desk.is_idle())
            && self.cx.orphans.is_idle()
            && self.types.as_ref().is_none_or(|types| types.is_idle())
    }

    /// Whether all types have been seen, and what they are made of is there.
    pub fn types_are_served(&self) -> bool {
        self.types.as_ref().is_none_or(|types| types.are_served())
    }

    /// What they have and do, in numbers.
    pub fn metrics(&self) -> Metrics {
        Metrics { desks: self.desks.clone(), counters: self.counters.clone() }
    }

    /// Whether lists of writes go as one Transaction.
    pub fn is_transactional(&self) -> bool {
        self.transactional
    }

    /// Runs until one of the tasks ends, which they do only when the Lease is lost.
    pub async fn run(&mut self) {
        self.tasks.join_next().await;
    }

    /// Stops everything, then lets another process lead.
    pub async fn stop(mut self) {
        self.desks.close_all();
        self.tasks.shutdown().await;
        if let Some(lease) = &self.lease {
            lease.release().await;
        }
    }
}
