//! Who uses which claim: Pods by their volumes and annotations, Ingresses and Services by theirs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::api::{Api, Failure, Names, Sink};
use crate::gates::{Gates, is_gated, named};

/// On a Pod: claims of other types than volumes, `KIND/NAME` with commas between.
pub const CLAIMS: &str = "conductor.io/claims";
/// On an Ingress or a Service: the name of its IngressClaim.
pub const INGRESS_CLAIM: &str = "network.conductor.io/claim";

/// The kinds of objects that use claims.
pub const KINDS: [(&str, &str); 3] = [("v1", "Pod"), ("networking.k8s.io/v1", "Ingress"), ("v1", "Service")];

/// A claim as consumers name it: the kind's word in lower case, namespace, name.
type Claim = (String, String, String);
/// Kind, namespace, name.
type Consumer = (String, String, String);
/// How a consumer uses its claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The node it runs on; empty: none yet.
    pub node: String,
    /// Whether it waits until its claims are bound: it needs them, and does not keep them.
    pub waits: bool,
}

/// Told that the consumers of a claim have changed.
type Listener = Box<dyn Fn(&str, &str, &str) + Send + Sync>;

#[derive(Default)]
struct Uses {
    /// By claim: its consumers.
    by_claim: HashMap<Claim, BTreeMap<String, Use>>,
    by_consumer: HashMap<Consumer, Vec<Claim>>,
}

/// The uses in one namespace as the API server had them: by word and name of the claim, its consumers.
struct Look {
    began: Instant,
    uses: HashMap<(String, String), BTreeSet<String>>,
}

/// Every use of every claim.
#[derive(Default)]
pub struct Consumers {
    uses: Mutex<Uses>,
    /// By namespace; claims that are released together share a look.
    looks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Look>>>>>,
    listeners: RwLock<Vec<Listener>>,
}

/// The claims that an object uses: a word for their kind, in lower case, and their name.
pub(crate) fn uses(object: &Value) -> Vec<(String, String)> {
    let annotations = &object["metadata"]["annotations"];
    let mut all = Vec::new();
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => {
            let pod = object["metadata"]["name"].as_str().unwrap_or_default();
            for volume in object["spec"]["volumes"].as_array().into_iter().flatten() {
                let claim = &volume["persistentVolumeClaim"]["claimName"];
                if let Some(name) = claim.as_str() {
                    all.push(("persistentvolumeclaim".to_owned(), name.to_owned()));
                } else if volume["ephemeral"].is_object() {
                    let name = format!("{pod}-{}", volume["name"].as_str().unwrap_or_default());
                    all.push(("persistentvolumeclaim".to_owned(), name));
                }
            }
            all.extend(named(object));
        }
        "Ingress" | "Service" => {
            if let Some(name) = annotations[INGRESS_CLAIM].as_str() {
                all.push(("ingressclaim".to_owned(), name.to_owned()));
            }
        }
        _ => {}
    }
    all
}

impl Consumers {
    /// Calls back whenever the consumers of a claim change.
    pub fn listen(&self, listener: impl Fn(&str, &str, &str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Consumers of a claim, under any of these words for its kind.
    pub fn of(&self, words: &[String], namespace: &str, name: &str) -> Vec<(String, Use)> {
        let uses = self.uses.lock();
        if uses.by_claim.is_empty() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for word in words {
            let claim = (word.clone(), namespace.to_owned(), name.to_owned());
            let of_word = uses.by_claim.get(&claim).into_iter().flatten();
            all.extend(of_word.map(|(consumer, used)| (consumer.clone(), used.clone())));
        }
        all
    }

    /// Consumers that keep a claim by the word of the API server, asked now: one that the watch has not shown yet keeps it, too.
    pub async fn live(
        &self,
        api: &Api,
        words: &[String],
        namespace: &str,
        name: &str,
    ) -> Result<BTreeSet<String>, Failure> {
        let asked = Instant::now();
        let slot = self.looks.lock().entry(namespace.to_owned()).or_default().clone();
        let found = {
            let mut look = slot.lock().await;
            if look.as_ref().is_none_or(|look| look.began < asked) {
                *look = Some(look_at(api, namespace).await?);
            }
            let uses = look.iter().flat_map(|look| &look.uses);
            let own = uses.filter(|((word, claim), _)| claim == name && words.contains(word));
            own.flat_map(|(_, consumers)| consumers.clone()).collect()
        };
        drop(slot);
        self.looks.lock().retain(|_, slot| Arc::strong_count(slot) > 1);
        Ok(found)
    }

    /// Takes in one consumer as it is.
    pub fn see(&self, object: &Value) {
        let key = key(object);
        let claims = uses(object).into_iter().map(|(kind, name)| (kind, key.1.clone(), name)).collect();
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        self.set(key, claims, &Use { node, waits: is_gated(object) });
    }

    fn set(&self, consumer: Consumer, claims: Vec<Claim>, used: &Use) {
        let mut changed: Vec<Claim> = Vec::new();
        {
            let mut uses = self.uses.lock();
            let shown = shown(&consumer);
            let before = uses.by_consumer.remove(&consumer).unwrap_or_default();
            for claim in before.into_iter().filter(|c| !claims.contains(c)) {
                if let Some(consumers) = uses.by_claim.get_mut(&claim) {
                    consumers.remove(&shown);
                    if consumers.is_empty() {
                        uses.by_claim.remove(&claim);
                    }
                }
                changed.push(claim);
            }
            for claim in &claims {
                let consumers = uses.by_claim.entry(claim.clone()).or_default();
                if consumers.insert(shown.clone(), used.clone()).as_ref() != Some(used) {
                    changed.push(claim.clone());
                }
            }
            if !claims.is_empty() {
                uses.by_consumer.insert(consumer, claims);
            }
        }
        if changed.is_empty() {
            return;
        }
        for listener in self.listeners.read().iter() {
            for (kind, namespace, name) in &changed {
                listener(kind, namespace, name);
            }
        }
    }
}

async fn look_at(api: &Api, namespace: &str) -> Result<Look, Failure> {
    let mut look = Look { began: Instant::now(), uses: HashMap::new() };
    for (api_version, kind) in KINDS {
        for object in api.list_in(api_version, kind, namespace, "").await?.into_iter().filter(|o| !is_gated(o)) {
            for claim in uses(&object) {
                look.uses.entry(claim).or_default().insert(shown(&key(&object)));
            }
        }
    }
    Ok(look)
}

/// A consumer for people.
fn shown(consumer: &Consumer) -> String {
    format!("{} {}", consumer.0, consumer.2)
}

/// Takes in consumers of one kind.
pub struct ConsumerSink {
    /// Where to.
    pub consumers: Arc<Consumers>,
    /// And where Pods go that wait.
    pub gates: Arc<Gates>,
    /// The kind.
    pub kind: &'static str,
}

fn key(object: &Value) -> Consumer {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

impl Sink for ConsumerSink {
    fn apply(&self, object: Value) {
        self.consumers.see(&object);
        if self.kind == "Pod" {
            self.gates.see(&object);
        }
    }

    fn delete(&self, object: Value) {
        self.gone(key(&object));
    }

    fn synced(&self, names: &Names) {
        let gone: Vec<Consumer> = {
            let uses = self.consumers.uses.lock();
            let there = |c: &&Consumer| c.0 != self.kind || names.contains(&(c.1.clone(), c.2.clone()));
            uses.by_consumer.keys().filter(|c| !there(c)).cloned().collect()
        };
        gone.into_iter().for_each(|consumer| self.gone(consumer));
    }
}

impl ConsumerSink {
    fn gone(&self, consumer: Consumer) {
        if self.kind == "Pod" {
            self.gates.forget(&(consumer.1.clone(), consumer.2.clone()));
        }
        self.consumers.set(consumer, Vec::new(), &Use::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn consumers_name_claims() {
        let check = |object: Value, expected: &[(&str, &str)]| {
            let expected: Vec<_> = expected.iter().map(|(k, n)| ((*k).to_owned(), (*n).to_owned())).collect();
            assert_eq!(uses(&object), expected, "{object}");
        };
        check(
            json!({"kind": "Pod", "metadata": {"name": "web", "annotations": {CLAIMS: "RelationalDatabaseClaim/db, bucketclaim/b"}},
                "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}]}}),
            &[
                ("persistentvolumeclaim", "data"),
                ("persistentvolumeclaim", "web-e"),
                ("relationaldatabaseclaim", "db"),
                ("bucketclaim", "b"),
            ],
        );
        check(
            json!({"kind": "Ingress", "metadata": {"annotations": {INGRESS_CLAIM: "front"}}}),
            &[("ingressclaim", "front")],
        );
        check(json!({"kind": "Service", "metadata": {}}), &[]);
    }

    #[test]
    fn what_changes_is_told_once() {
        let consumers = Arc::new(Consumers::default());
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = told.clone();
        consumers.listen(move |kind, namespace, name| log.lock().push(format!("{kind} {namespace}/{name}")));
        let sink = ConsumerSink { consumers: consumers.clone(), gates: Arc::default(), kind: "Pod" };
        let pod = |node: &str| {
            json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "a"},
                "spec": {"nodeName": node, "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}})
        };
        let words = vec!["persistentvolumeclaim".to_owned()];
        sink.apply(pod(""));
        sink.apply(pod(""));
        assert_eq!(consumers.of(&words, "a", "c"), [("Pod p".to_owned(), Use::default())]);
        sink.apply(pod("n1"));
        let there = Use { node: "n1".into(), waits: false };
        assert_eq!(consumers.of(&words, "a", "c"), [("Pod p".to_owned(), there)]);
        sink.synced(&Names::new());
        assert!(consumers.of(&words, "a", "c").is_empty());
        assert_eq!(told.lock().len(), 3);
    }
}
