//! Everything of one type at one moment, and the index over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conductor_claims::amount::Amount;
use conductor_claims::lifecycle::{self, CLAIM_FINALIZER, ClaimScene, Connection, Verb, condition_of};
use conductor_claims::matching::{Decision, Index};
use conductor_claims::review::{Serving, serving};
use conductor_claims::selector::{Labels, node_of};
use conductor_claims::types::ResourceType;
use conductor_claims::volumes::{self, SELECTED_NODE};
use serde_json::{Value, json};

use super::Unanswered;
use crate::api::{Api, Failure};
use crate::consumers::{Consumers, Use};
use crate::expressions::Evaluator;
use crate::kind::{Kind, is_of};

/// Everything of one type.
pub struct Snapshot {
    /// The type.
    pub kind: Kind,
    /// Resources and classes, indexed.
    pub index: Index,
    /// Every resource.
    pub resources: Vec<Value>,
    /// Whether the resources are ours to see; without that right there are none here.
    pub seen: bool,
    /// Every class.
    pub classes: Vec<Value>,
    /// The classes that are served; `None`: every one.
    pub served: Option<BTreeSet<String>>,
    /// How each class stands, as its manager says.
    pub standing: BTreeMap<String, Value>,
    /// Who uses what.
    pub consumers: Arc<Consumers>,
}

/// Every type that is served: PersistentVolumes and those of the ResourceTypes.
pub async fn kinds(api: &Api) -> Result<Vec<Kind>, Failure> {
    let mut all = vec![Kind::Volumes];
    match api.list("conductor.io/v1alpha1", "ResourceType", "").await {
        Ok(types) => {
            let parsed = types.iter().filter_map(|object| ResourceType::parse(object).ok());
            all.extend(parsed.map(|kind| Kind::Generated(Box::new(kind))));
        }
        Err(failure) if matches!(failure.code, 403 | 404) => {}
        Err(failure) => return Err(failure),
    }
    Ok(all)
}

/// The type, group, version and kind a user means by a word.
pub async fn resolve(api: &Api, word: &str) -> Result<(Option<Kind>, String, String), Unanswered> {
    let Some((api_version, served)) = api.kind_of(word).await? else {
        return Err(Unanswered::Question(format!("there is no kind {word:?} here: kubectl api-resources lists them")));
    };
    let all = kinds(api).await?;
    let of = |kind: &&Kind| {
        [kind.claim(), kind.resource(), kind.class()].iter().any(|own| is_of(own, &api_version, &served.kind))
    };
    Ok((all.iter().find(of).cloned(), api_version, served.kind.clone()))
}

pub(super) async fn list(api: &Api, (api_version, kind): (String, &str)) -> Result<Vec<Value>, Failure> {
    match api.list(&api_version, kind, "").await {
        Err(failure) if failure.code == 404 => Ok(Vec::new()),
        other => other,
    }
}

/// The same; `None`: not ours to see.
pub(super) async fn list_seen(api: &Api, kind: (String, &str)) -> Result<Option<Vec<Value>>, Failure> {
    match list(api, kind).await {
        Err(failure) if failure.code == 403 => Ok(None),
        other => other.map(Some),
    }
}

/// How each class of a type stands, as the managers say.
fn standing(kind: &Kind, managers: &[Value]) -> BTreeMap<String, Value> {
    let own = managers.iter().filter(|manager| manager["spec"]["type"] == *kind.name());
    let classes = own.flat_map(|manager| manager["status"]["classes"].as_array().into_iter().flatten());
    classes.map(|class| (class["name"].as_str().unwrap_or_default().to_owned(), class.clone())).collect()
}

impl Snapshot {
    /// Reads everything of a type that is ours to see; claims are used in a namespace, or anywhere (empty).
    pub async fn read(api: &Api, kind: Kind, namespace: &str) -> Result<Snapshot, Failure> {
        Snapshot::read_with(api, kind, namespace, &[]).await
    }

    /// The same with managers that are not there yet, or otherwise.
    pub async fn read_with(api: &Api, kind: Kind, namespace: &str, planned: &[Value]) -> Result<Snapshot, Failure> {
        let resources = list_seen(api, kind.resource()).await?;
        let seen = resources.is_some();
        let resources = resources.unwrap_or_default();
        let classes = list_seen(api, kind.class()).await?.unwrap_or_default();
        let mut managers = list_seen(api, ("conductor.io/v1alpha1".into(), "Manager")).await?.unwrap_or_default();
        for planned in planned {
            match managers.iter_mut().find(|own| own["metadata"]["name"] == planned["metadata"]["name"]) {
                Some(own) => own["spec"] = planned["spec"].clone(),
                None => managers.push(planned.clone()),
            }
        }
        let consumers = Arc::new(Consumers::default());
        for (api_version, consumer) in [("v1", "Pod"), ("v1", "Service"), ("networking.k8s.io/v1", "Ingress")] {
            if let Ok(objects) = api.list_in(api_version, consumer, namespace, "").await {
                objects.into_iter().for_each(|object| consumers.see(&object));
            }
        }
        let standing = standing(&kind, &managers);
        let mut index = Index::new(kind.rules());
        for resource in &resources {
            index.upsert(kind.offer(resource));
        }
        let Serving { classes: served, default } = serving(&kind.name(), &managers);
        let default = match kind {
            // said on the class
            Kind::Volumes => volumes::default_class(&classes),
            Kind::Generated(_) => default.map(Arc::from),
        };
        for class in &classes {
            let name = class["metadata"]["name"].as_str().unwrap_or_default();
            let served = served.as_ref().is_none_or(|s| s.contains(name));
            if let Ok(mut profile) = kind.profile(class, served) {
                let most = standing.get(name).map_or(&Value::Null, |class| &class["most"]);
                for (i, capacity) in kind.rules().capacities.iter().enumerate() {
                    if let Ok(most) = Amount::from_json(&most[capacity.name.as_ref()]) {
                        profile.bound(i, most);
                    }
                }
                index.set_profile(profile);
            }
        }
        index.set_default_class(default);
        Ok(Snapshot { kind, index, resources, seen, classes, served, standing, consumers })
    }

    /// What keeps a class from making resources, as far as its manager knows.
    pub fn lacks(&self, class: &str) -> Option<&str> {
        self.standing.get(class).filter(|class| class["available"] == false)?["message"].as_str()
    }

    /// Whether a consumer needs a claim.
    pub fn needed(&self, claim: &Value) -> bool {
        self.users(claim).iter().any(|used| !matches!(self.kind, Kind::Volumes) || !used.node.is_empty())
    }

    /// The labels of the node from which a volume is to be reached; `None`: any node, or not ours to see.
    pub async fn node(&self, api: &Api, claim: &Value) -> Result<Option<Labels>, Failure> {
        if !matches!(self.kind, Kind::Volumes) {
            return Ok(None);
        }
        let selected = claim["metadata"]["annotations"][SELECTED_NODE].as_str().unwrap_or_default().to_owned();
        let scheduled = self.users(claim).into_iter().map(|used| used.node);
        let Some(node) = std::iter::once(selected).chain(scheduled).find(|node| !node.is_empty()) else {
            return Ok(None);
        };
        match api.get("v1", "Node", "", &node).await {
            Err(failure) if failure.code == 403 => Ok(None),
            node => Ok(node?.map(|node| node_of(&node))),
        }
    }

    fn users(&self, claim: &Value) -> Vec<Use> {
        let text = |key: &str| claim["metadata"][key].as_str().unwrap_or_default();
        let users = self.consumers.of(&self.kind.claim_words(), text("namespace"), text("name"));
        users.into_iter().map(|(_, used)| used).collect()
    }

    /// Why a class cannot make what a claim asks for, although it offers it: what the engine itself would say.
    pub fn unmakeable(&self, claim: &Value, decision: &Decision) -> Option<String> {
        let (Kind::Generated(kind), Decision::Provision { class, .. }) = (&self.kind, decision) else { return None };
        let named = |own: &&Value| own["metadata"]["name"].as_str() == Some(class.as_ref());
        let mut claim = claim.clone();
        claim["metadata"]["finalizers"] = json!([CLAIM_FINALIZER]);
        claim["status"] = Value::Null;
        let plan = lifecycle::claim(&ClaimScene {
            kind,
            claim: &claim,
            decision: Some(decision),
            resource: None,
            class: self.classes.iter().find(named),
            consumers: &[],
            connection: Connection::default(),
            growth_refused: None,
            expressions: &Evaluator::default(),
            now: "",
        });
        if plan.writes.iter().any(|write| write.verb == Verb::Create) {
            return None;
        }
        plan.writes.iter().find_map(|write| {
            let (bound, _, message) = condition_of(&write.body, "Bound")?;
            (!bound).then(|| message.to_owned())
        })
    }
}
