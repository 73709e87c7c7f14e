//! Policies and their bindings, compiled, as new as the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;
use store::{KeyRange, Store};

use super::matching::Criteria;
use crate::admission::Attributes;

/// A policy with what binds it to requests.
pub struct Hook<P> {
    /// The policy.
    pub policy: Arc<P>,
    /// Its bindings, by name.
    pub bindings: Vec<Arc<Binding>>,
}

/// A binding of a policy.
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Which of the policy's requests it is about.
    pub criteria: Criteria,
    /// Where the parameters are.
    pub params: Option<ParamRef>,
    /// `Deny`, `Warn`, `Audit`.
    pub actions: Vec<String>,
    policy: String,
    version: Version,
}

/// Which objects are parameters.
pub struct ParamRef {
    /// By name.
    pub name: Option<String>,
    /// In this namespace; in the request's if none.
    pub namespace: Option<String>,
    /// By labels.
    pub selector: Option<Result<machinery::selector::Selector, String>>,
    /// Whether a request is refused if there are none.
    pub deny: bool,
}

/// What an object was made from.
type Version = (String, i64);

fn version(object: &Value) -> Version {
    let meta = &object["metadata"];
    (meta["uid"].as_str().unwrap_or_default().to_owned(), meta["generation"].as_i64().unwrap_or(0))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Binding {
    fn read(object: &Value) -> Binding {
        let spec = &object["spec"];
        let reference = &spec["paramRef"];
        let some = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let params = reference.is_object().then(|| ParamRef {
            name: some(&reference["name"]),
            namespace: some(&reference["namespace"]),
            selector: reference.get("selector").map(machinery::selector::Selector::from_object),
            deny: reference["parameterNotFoundAction"] == "Deny",
        });
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Binding {
            name: text(&object["metadata"]["name"]),
            criteria: Criteria::read(&spec["matchResources"]),
            params,
            actions: actions.map(text).collect(),
            policy: text(&spec["policyName"]),
            version: version(object),
        }
    }
}

/// A kind of policy.
pub trait Policy: Send + Sync + Sized {
    /// The table of its objects.
    const POLICIES: &'static str;
    /// The table of its bindings.
    const BINDINGS: &'static str;
    /// Compiles it.
    fn read(object: &Value) -> Self;
    /// Its name.
    fn name(&self) -> &str;
    /// Which requests it is about.
    fn criteria(&self) -> &Criteria;
}

type Seen = (u64, u64);

/// Policies of a kind. Before each use the tables' revisions are compared: what was written before counts.
pub struct Source<P> {
    store: Store,
    kept: RwLock<Kept<P>>,
}

struct Kept<P> {
    seen: Option<Seen>,
    hooks: Arc<Hooks<P>>,
    policies: HashMap<Version, Arc<P>>,
}

/// What has a binding.
struct Hooks<P> {
    all: Arc<Vec<Hook<P>>>,
    /// The names of the resources that their rules are about.
    plurals: HashSet<Box<str>>,
}

impl<P: Policy> Source<P> {
    /// Those in a store.
    pub fn new(store: &Store) -> Source<P> {
        let none = Hooks { all: Arc::default(), plurals: HashSet::new() };
        let kept = Kept { seen: None, hooks: Arc::new(none), policies: HashMap::new() };
        Source { store: store.clone(), kept: RwLock::new(kept) }
    }

    /// Whether any of them may have something to say about a write: for most there is none.
    pub fn concern(&self, attributes: &Attributes<'_>) -> bool {
        let hooks = self.hooks();
        hooks.plurals.contains("*") || hooks.plurals.contains(&*attributes.resource.plural)
    }

    /// Policies that have a binding, by name.
    pub fn get(&self) -> Arc<Vec<Hook<P>>> {
        self.hooks().all.clone()
    }

    fn hooks(&self) -> Arc<Hooks<P>> {
        let now = self.store.view(|view| (view.changed(P::POLICIES), view.changed(P::BINDINGS)));
        {
            let kept = self.kept.read();
            if kept.seen == Some(now) {
                return kept.hooks.clone();
            }
        }
        let mut kept = self.kept.write();
        let (seen, policies, bindings) = self.store.view(|view| {
            let all =
                |table: &str| view.list(table, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
            let seen = (view.changed(P::POLICIES), view.changed(P::BINDINGS));
            (seen, all(P::POLICIES), all(P::BINDINGS))
        });
        let parse = |entries: Vec<Arc<store::Entry>>| -> Vec<Value> {
            entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value).ok()).collect()
        };
        let known: HashMap<Version, Arc<Binding>> = kept
            .hooks
            .all
            .iter()
            .flat_map(|hook| &hook.bindings)
            .map(|own| (own.version.clone(), own.clone()))
            .collect();
        let mut by_policy: HashMap<String, Vec<Arc<Binding>>> = HashMap::new();
        for object in parse(bindings) {
            let binding = known.get(&version(&object)).cloned().unwrap_or_else(|| Arc::new(Binding::read(&object)));
            by_policy.entry(binding.policy.clone()).or_default().push(binding);
        }
        let mut compiled = HashMap::new();
        let mut hooks = Vec::new();
        for object in parse(policies) {
            let own = version(&object);
            let policy = kept.policies.get(&own).cloned().unwrap_or_else(|| Arc::new(P::read(&object)));
            compiled.insert(own, policy.clone());
            if let Some(bindings) = by_policy.remove(policy.name()) {
                hooks.push(Hook { policy, bindings });
            }
        }
        let plurals = hooks.iter().flat_map(|hook| hook.policy.criteria().plurals()).map(Into::into).collect();
        let hooks = Hooks { all: Arc::new(hooks), plurals };
        *kept = Kept { seen: Some(seen), hooks: Arc::new(hooks), policies: compiled };
        kept.hooks.clone()
    }
}
