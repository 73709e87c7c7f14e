//! A desk: everything one type needs. Projections of what the watches show, the index over them, and the queue of what to look at.
//!
//! Objects are not kept: a claim or resource that is queued brings the object the watch showed, everything else is read when it
//! is needed. What this process has written and the watch has not shown is assumed in the index.

mod ahead;
mod offers;
mod saying;
mod sinks;
mod torn;
mod turns;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use conductor_claims::lifecycle::Plan;
use conductor_claims::matching::{Decision, Index};
use conductor_claims::rules::Rules;
use conductor_claims::selector::Labels;
use conductor_claims::views::{Ask, ClassAsk, Offer, Phase};
use conductor_claims::volumes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::{Api, Failure};
use crate::consumers::Consumers;
use crate::events::Events;
use crate::expressions::{ClaimJudge, Evaluator, Known};
use crate::gates::Gates;
use crate::kind::Kind;
use crate::orphans::Owned;
use crate::queue::Queue;
use crate::rights;
use crate::transport::{Broken, Transport};

use ahead::Ahead;
use saying::Said;
pub(crate) use sinks::{DeskSink, Role};
use turns::Turn;
pub(crate) use work::{Found, Outcome, Trouble};

/// Namespace and name.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// What there is to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Item {
    /// A claim.
    Claim(Arc<str>, Arc<str>),
    /// A resource.
    Resource(Arc<str>),
}

/// What all desks share.
pub struct Context {
    pub(crate) api: Api,
    /// Reads implementations, with no more rights than it takes.
    pub(crate) provisioner: Api,
    pub(crate) transport: Transport,
    pub(crate) consumers: Arc<Consumers>,
    pub(crate) events: Events,
    pub(crate) evaluator: Evaluator,
    /// Pods that wait for claims.
    pub(crate) gates: Arc<Gates>,
    /// Objects that may have lost their owner.
    pub(crate) orphans: Queue<Owned>,
    /// Asked to watch the implementations of a kind.
    pub(crate) follow: Box<dyn Fn(&str, &str) + Send + Sync>,
}

impl Context {
    /// Sends a plan, if there is something in it.
    pub(crate) async fn send(&self, plan: Plan) -> Result<(), Broken> {
        if plan.writes.is_empty() {
            return Ok(());
        }
        self.transport.send(&plan).await?;
        self.events.tell(plan.events);
        Ok(())
    }
}

/// A claim as far as it is remembered.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) uid: Arc<str>,
    pub(crate) revision: u64,
    pub(crate) resource: Option<Arc<str>>,
    /// Says Bound.
    pub(crate) bound: bool,
    /// Says how much it has, or had.
    pub(crate) had: bool,
    /// The resource it was last offered.
    pub(crate) offered: Option<Arc<str>>,
    /// What it last said about waiting.
    pub(crate) said: Option<Said>,
    /// When it is its turn, if resources are judged by its expression.
    pub(crate) turn: Option<Turn>,
}

pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) claims: HashMap<Key, Seen>,
    pub(crate) claim_uids: HashMap<Arc<str>, Key>,
    /// Names of resources, with the claims that name them.
    named: BTreeSet<(Arc<str>, Key)>,
    pub(crate) resource_uids: HashMap<Arc<str>, Arc<str>>,
    pub(crate) classes: BTreeMap<String, Arc<Value>>,
    /// Objects of queued items, as the watch showed them.
    pub(crate) pinned: HashMap<Item, Value>,
    /// Free resources as the watch showed them, in JSON: who binds one need not ask for it. What is not here is asked for.
    free: HashMap<Arc<str>, Box<[u8]>>,
    /// Resources that a claim has which they do not refer to, and what they say of themselves; see `Desk::know_torn`.
    torn: HashMap<Arc<str>, Phase>,
    /// Claims that a free resource was offered to without being taken.
    pub(crate) tried: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// Resources with an implementation or connection details.
    pub(crate) wired: HashSet<Arc<str>>,
    /// Implementations by the uid of their resource: what a late write made is looked at again when the resource is gone.
    pub(crate) behind: HashMap<Arc<str>, HashSet<Owned>>,
    /// Secrets with connection details, by namespace and name: the claims that show them.
    pub(crate) secrets: HashMap<(String, String), HashSet<Key>>,
    /// Which classes are served: `None` is all.
    pub(crate) served: Option<HashSet<String>>,
    /// Until when the expressions of a namespace's claims have used up its share of time.
    turns: HashMap<Arc<str>, Instant>,
    ahead: Ahead,
}

/// The bit after those of the watches' roles.
const SERVED: usize = 1 << 3;

/// How many free resources are kept as they were shown.
const MOST_FREE: usize = 8192;

impl State {
    /// Keeps a resource as it was shown if it is free, or forgets it.
    fn keep_free(&mut self, offer: &Offer, object: &Value) {
        let free = offer.phase == Phase::Available && offer.refs.is_empty() && !offer.deleting;
        if free && (self.free.len() < MOST_FREE || self.free.contains_key(&offer.name)) {
            self.free.insert(offer.name.clone(), object.to_string().into_bytes().into());
        } else {
            self.free.remove(&offer.name);
        }
    }

    /// Claims that name a resource, whomever it refers to.
    pub(crate) fn naming(&self, resource: &str) -> impl Iterator<Item = &Key> {
        let first = (Arc::from(resource), (Arc::from(""), Arc::from("")));
        let all = self.named.range(first..);
        all.take_while(move |(named, _)| **named == *resource).map(|(_, key)| key)
    }

    /// Remembers which resource a claim names, instead of what it named before.
    fn name(&mut self, key: &Key, before: Option<&Arc<str>>, now: Option<&Arc<str>>) {
        if before != now {
            before.map(|name| self.named.remove(&(name.clone(), key.clone())));
            now.map(|name| self.named.insert((name.clone(), key.clone())));
        }
    }

    /// Remembers what is behind the owner with a uid, or forgets it.
    fn note(&mut self, uid: &str, implementation: &Owned, gone: bool) {
        let behind = self.behind.entry(uid.into()).or_default();
        if gone {
            behind.remove(implementation);
        } else {
            behind.insert(implementation.clone());
        }
        if behind.is_empty() {
            self.behind.remove(uid);
        }
    }
}

/// Everything of one type. See the module.
pub struct Desk {
    pub(crate) cx: Arc<Context>,
    pub(crate) kind: Kind,
    pub(crate) rules: Arc<Rules>,
    pub(crate) words: Vec<String>,
    pub(crate) state: Mutex<State>,
    pub(crate) queue: Queue<Item>,
    /// Which of the three watches have shown everything once, and whether it was told what it serves: a bit each.
    synced: AtomicUsize,
    ready: Notify,
    /// Counts what resources and classes showed, so that nobody counts them anew without need.
    pub(crate) changes: AtomicU64,
    /// Told when what claims wait for has other numbers.
    counted: Notify,
}

impl Desk {
    /// An empty desk.
    pub(crate) fn new(cx: Arc<Context>, kind: Kind) -> Arc<Desk> {
        let rules = kind.rules();
        let state = State {
            index: Index::new(rules.clone()),
            claims: HashMap::new(),
            claim_uids: HashMap::new(),
            named: BTreeSet::new(),
            resource_uids: HashMap::new(),
            classes: BTreeMap::new(),
            pinned: HashMap::new(),
            free: HashMap::new(),
            torn: HashMap::new(),
            tried: HashMap::new(),
            wired: HashSet::new(),
            behind: HashMap::new(),
            secrets: HashMap::new(),
            served: None,
            turns: HashMap::new(),
            ahead: Ahead::default(),
        };
        Arc::new(Desk {
            words: kind.claim_words(),
            cx,
            kind,
            rules,
            state: Mutex::new(state),
            queue: Queue::default(),
            synced: AtomicUsize::new(0),
            ready: Notify::new(),
            changes: AtomicU64::new(0),
            counted: Notify::new(),
        })
    }

    /// Whether everything has been seen once and nothing is being worked on.
    pub fn is_idle(&self) -> bool {
        self.is_synced() && self.queue.is_idle() && self.state.lock().ahead.is_caught_up()
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) == SERVED | (SERVED - 1)
    }

    fn mark_synced(&self, role: Role) {
        self.mark(1 << role as usize);
    }

    /// Says that it was told what it serves, or that it serves everything.
    pub(crate) fn may_begin(&self) {
        self.mark(SERVED);
    }

    fn mark(&self, bit: usize) {
        self.synced.fetch_or(bit, Ordering::AcqRel);
        if self.is_synced() {
            self.ready.notify_waiters();
        }
    }

    async fn until_synced(&self) {
        loop {
            let notified = self.ready.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_synced() {
                return;
            }
            notified.await;
        }
    }

    /// Decides about a claim; a bind is assumed at once, a claim that waits is noted as waiting.
    pub(crate) fn decide(&self, ask: &Ask, claim: &Value) -> Decision {
        let judge = ClaimJudge::new(&self.cx.evaluator, &self.rules, claim);
        let (begun, mut known) = (Instant::now(), Known::default());
        let (mut state, decision) = loop {
            let mut state = self.state.lock();
            state.index.stop_waiting(&ask.uid);
            if ask.wish.expression.is_none() {
                let decision = judge.decide(&state.index, ask);
                break (state, decision);
            }
            let (decision, unknown) = judge.decide_by(&known, &state.index, ask);
            if unknown.is_empty() {
                state.charge(ask, begun.elapsed());
                break (state, decision);
            }
            // expressions take their time, and nobody else waits for it: what is found out holds of a resource at its revision
            drop(state);
            turns::aside(|| judge.learn(ask, unknown, &mut known));
        };
        match &decision {
            Decision::Bind { resource, .. } => {
                state.index.assume(ask, resource);
            }
            Decision::Wait { .. } | Decision::Provision { .. } => state.index.wait(ask),
        }
        decision
    }

    /// The classes that who made a claim may not use, for one that takes resources of any.
    async fn barred(&self, ask: &Ask, claim: &Value) -> Result<Box<[Arc<str>]>, Failure> {
        let limited: Vec<Arc<str>> = {
            let state = self.state.lock();
            let any = ask.wish.class == ClassAsk::Unset && ask.resource_name.is_none() && !self.rules.volumes;
            if !any || state.index.default_class().is_some() {
                return Ok(Box::default());
            }
            let limited = state.classes.iter().filter(|(_, class)| rights::is_limited(class));
            limited.map(|(name, _)| Arc::from(name.as_str())).collect()
        };
        let mut barred = Vec::new();
        for class in limited {
            if !rights::may_use(&self.cx.api, &self.kind, claim, &class).await? {
                barred.push(class);
            }
        }
        Ok(barred.into())
    }

    /// Decides about a claim, with the word of the API server on whether who made it may use the class this comes down to. What an
    /// administrator reserved for it needs no such word.
    pub(crate) async fn decide_allowed(&self, ask: &Ask, claim: &Value) -> Result<Decision, Failure> {
        let barred = self.barred(ask, claim).await?;
        let limited;
        let ask = match barred.is_empty() {
            true => ask,
            false => {
                limited = Ask { barred, ..ask.clone() };
                &limited
            }
        };
        let decision = self.decide(ask, claim);
        let class = {
            let state = self.state.lock();
            let limited = |name: &Arc<str>| state.classes.get(name.as_ref()).is_some_and(|c| rights::is_limited(c));
            // one that stands in for none is written on the claim, whatever comes of it
            let waits = matches!(decision, Decision::Wait { .. });
            let stands_in = waits && ask.wish.class == ClassAsk::Unset && ask.resource_name.is_none();
            let class = rights::class_of(&decision, &state.index);
            class.or_else(|| state.index.class_of(ask).filter(|_| stands_in)).filter(limited)
        };
        let Some(class) = class else { return Ok(decision) };
        let allowed = rights::may_use(&self.cx.api, &self.kind, claim, &class).await;
        if !matches!(allowed, Ok(true)) {
            self.forget(&ask.uid);
            let mut state = self.state.lock();
            state.index.stop_waiting(&ask.uid);
            state.index.wait(ask);
        }
        Ok(if allowed? { decision } else { rights::refused(class) })
    }

    /// Sends a claim's plan and settles what was assumed about it.
    pub(crate) async fn send_for_claim(&self, uid: &str, plan: Plan) -> Result<(), Broken> {
        let (_, resource) = self.kind.resource();
        if !plan.writes.iter().any(|w| w.target.kind == resource) {
            // nothing is written that the watch could show: what was assumed is not so, or is shown by and by
            self.forget(uid);
        }
        if plan.writes.is_empty() {
            return Ok(());
        }
        let revision = |versions: &[String]| -> Option<u64> {
            let of_resource = plan.writes.iter().zip(versions).rev().filter(|(w, _)| w.target.kind == resource);
            of_resource.filter_map(|(_, version)| version.parse().ok()).next()
        };
        match self.transmit(&plan).await {
            Ok(versions) => {
                match revision(&versions) {
                    Some(revision) => self.state.lock().index.confirm(uid, revision),
                    None => self.forget(uid),
                }
                self.cx.events.tell(plan.events);
                Ok(())
            }
            Err(broken) => {
                match revision(&broken.done) {
                    // the resource refers to the claim already: it stays assumed until the watch shows it
                    Some(revision) => self.state.lock().index.confirm(uid, revision),
                    None => self.forget(uid),
                }
                Err(broken)
            }
        }
    }

    /// Sends a plan's writes and remembers what they yielded.
    async fn transmit(&self, plan: &Plan) -> Result<Vec<String>, Broken> {
        let sent = self.cx.transport.send(plan).await;
        self.note_written(plan, sent.as_ref().unwrap_or_else(|broken| &broken.done));
        sent
    }

    /// Sends any other plan.
    pub(crate) async fn send(&self, plan: Plan) -> Result<(), Broken> {
        if plan.writes.is_empty() {
            return Ok(());
        }
        self.transmit(&plan).await?;
        self.cx.events.tell(plan.events);
        Ok(())
    }

    /// What volumes ask of a node, if it is there.
    pub(crate) async fn node_labels(&self, node: &str) -> Result<Option<Labels>, Failure> {
        if node.is_empty() {
            return Ok(None);
        }
        let object = self.cx.api.get("v1", "Node", "", node).await?;
        Ok(object.as_ref().map(conductor_claims::selector::node_of))
    }

    /// Wants a claim looked at.
    pub(crate) fn touch_claim(&self, namespace: &str, name: &str) {
        let key = (Arc::from(namespace), Arc::from(name));
        if self.state.lock().claims.contains_key(&key) {
            self.queue.add(Item::Claim(key.0, key.1));
        }
    }

    /// Notes that a claim shows what a Secret holds.
    pub(crate) fn note_secret(&self, namespace: &str, name: &str, claim: &Value) {
        let text = |key: &str| claim["metadata"][key].as_str().unwrap_or_default().into();
        let key = (text("namespace"), text("name"));
        let secret = (namespace.to_owned(), name.to_owned());
        self.state.lock().secrets.entry(secret).or_default().insert(key);
    }

    /// Wants claims looked at that show what a Secret holds.
    pub(crate) fn touch_secret(&self, namespace: &str, name: &str) {
        let secret = (namespace.to_owned(), name.to_owned());
        let keys: Vec<Key> = {
            let mut state = self.state.lock();
            let Some(keys) = state.secrets.remove(&secret) else { return };
            let kept: HashSet<Key> = keys.into_iter().filter(|key| state.claims.contains_key(key)).collect();
            let all = kept.iter().cloned().collect();
            if !kept.is_empty() {
                state.secrets.insert(secret, kept);
            }
            all
        };
        keys.into_iter().for_each(|(namespace, name)| self.queue.add(Item::Claim(namespace, name)));
    }

    /// Wants the resource with this uid looked at, and its claims, because an implementation of it is there or gone; whether it
    /// is one of ours.
    pub(crate) fn touch_resource_uid(&self, uid: &str, implementation: &Owned, gone: bool) -> bool {
        let mut items = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(name) = state.resource_uids.get(uid).cloned() else { return false };
            state.note(uid, implementation, gone);
            items.push(Item::Resource(name.clone()));
            for r in state.index.get(&name).into_iter().flat_map(|o| o.refs.iter()) {
                if let Some((namespace, name)) = state.claim_uids.get(&r.uid) {
                    items.push(Item::Claim(namespace.clone(), name.clone()));
                }
            }
        }
        items.into_iter().for_each(|item| self.queue.add(item));
        true
    }

    /// Wants what waits for implementations looked at that nobody will show any more: they may have gone before they were followed.
    pub(crate) fn touch_unfollowed(&self) {
        let items: Vec<Item> = {
            let state = self.state.lock();
            let moves = |offer: &Offer| offer.deleting || !matches!(offer.phase, Phase::Available | Phase::Bound);
            let lacks = |offer: &Offer| state.wired.contains(&offer.name) && !state.behind.contains_key(&offer.uid);
            let waiting = state.index.offers().filter(|offer| moves(offer) || lacks(offer));
            waiting.map(|offer| Item::Resource(offer.name.clone())).collect()
        };
        items.into_iter().for_each(|item| self.queue.add(item));
    }

    /// Wants the claim with this uid looked at; whether it is one of ours.
    pub(crate) fn touch_claim_uid(&self, uid: &str, implementation: &Owned, gone: bool) -> bool {
        let (namespace, name) = {
            let mut state = self.state.lock();
            // the volume that was made of it, whose own it may not be yet
            let made = volumes::made_name_for(uid);
            if matches!(self.kind, Kind::Volumes) && state.index.get(&made).is_some() {
                self.queue.add(Item::Resource(made.into()));
            }
            let Some(key) = state.claim_uids.get(uid).cloned() else { return false };
            // of volumes only: what is made for another claim has a resource from the start
            if matches!(self.kind, Kind::Volumes) {
                state.note(uid, implementation, gone);
            }
            key
        };
        self.queue.add(Item::Claim(namespace, name));
        true
    }

    /// Says which classes a manager serves (`None`: all) and which stands in for none.
    pub(crate) fn set_served(&self, served: Option<HashSet<String>>, default: Option<Arc<str>>) {
        {
            let mut state = self.state.lock();
            if state.served == served && state.index.default_class() == default.as_deref() {
                return;
            }
            state.served = served;
            self.set_classes(&mut state);
            state.index.set_default_class(default);
        }
        self.touch_waiting();
    }

    /// Wants every claim that waits looked at.
    pub(crate) fn touch_waiting(&self) {
        for (namespace, name) in self.unbound() {
            self.queue.add(Item::Claim(namespace, name));
        }
    }
}
