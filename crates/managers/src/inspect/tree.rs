//! Consumer, claim, resource, class and implementation, and how they are.

use std::fmt::Write;

use conductor_claims::lifecycle::{CLAIM_NAME, RESOURCE_REF, RESOURCE_UID, SYSTEM_NAMESPACE, condition_of};
use conductor_claims::volumes::IMPLEMENTATION;
use serde_json::{Value, json};

use super::{Snapshot, Unanswered, kind_and_name, kinds, resolve};
use crate::api::{Api, Failure};
use crate::consumers::{KINDS, uses};
use crate::kind::{Kind, is_of};

/// One object and what is below it.
pub struct Node {
    /// `KIND NAMESPACE/NAME`.
    pub object: String,
    /// How it is.
    pub health: String,
    /// What is below it.
    pub children: Vec<Node>,
}

/// Said of what the right to see is missing for.
const NOT_YOURS: &str = "not yours to see";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Node {
    fn new(kind: &str, namespace: &str, name: &str, health: impl Into<String>) -> Node {
        let slash = if namespace.is_empty() { "" } else { "/" };
        Node { object: format!("{kind} {namespace}{slash}{name}"), health: health.into(), children: Vec::new() }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, "", "");
        out
    }

    fn write(&self, out: &mut String, first: &str, rest: &str) {
        let dash = if self.health.is_empty() { "" } else { "  " };
        let _ = writeln!(out, "{first}{}{dash}{}", self.object, self.health);
        for (i, child) in self.children.iter().enumerate() {
            let last = i + 1 == self.children.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            child.write(out, &format!("{rest}{branch}"), &format!("{rest}{below}"));
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "object": self.object, "health": self.health,
            "children": self.children.iter().map(Node::json).collect::<Vec<_>>(),
        })
    }
}

/// How an object is, in a few words.
pub(super) fn health(object: &Value) -> String {
    let status = &object["status"];
    let phase = text(&status["phase"]);
    let ready = condition_of(object, "Ready");
    let (word, message) = match (phase, ready) {
        ("", Some((true, _, _))) => ("Ready", ""),
        ("", Some((false, reason, message))) => (reason, message),
        ("", None) => ("", ""),
        (phase, _) => {
            let bound = condition_of(object, "Bound").filter(|(holds, _, _)| !holds).map_or("", |(_, _, m)| m);
            (phase, if phase == "Bound" { text(&status["message"]) } else { bound })
        }
    };
    let unready = ready.filter(|(ready, _, _)| !ready).map_or("", |(_, _, message)| message);
    let message = [message, text(&status["message"]), unready].into_iter().find(|m| !m.is_empty()).unwrap_or_default();
    if message.is_empty() { word.to_owned() } else { format!("{word}: {message}") }
}

/// How what was asked for is, if it is there and ours to see.
fn told(live: Result<Option<Value>, Failure>) -> Result<String, Failure> {
    match live {
        Ok(live) => Ok(live.as_ref().map_or_else(|| "gone".to_owned(), health)),
        Err(failure) if failure.code == 403 => Ok(NOT_YOURS.to_owned()),
        Err(failure) => Err(failure),
    }
}

/// The tree of a claim or a resource, of what uses claims, or of what is behind a resource.
pub async fn tree(api: &Api, word: &str, namespace: &str) -> Result<Node, Unanswered> {
    let (word, name) = kind_and_name(word)?;
    let (kind, api_version, kind_name) = resolve(api, word).await?;
    let consumes = KINDS.contains(&(api_version.as_str(), kind_name.as_str()));
    let mut object = api.get(&api_version, &kind_name, namespace, name).await;
    if kind.is_none() && !consumes && matches!(object, Ok(None)) {
        // what is behind resources is all in one place
        object = api.get(&api_version, &kind_name, SYSTEM_NAMESPACE, name).await;
    }
    let object = match object {
        Err(failure) if failure.code == 403 => {
            return Err(Unanswered::Question(format!("{kind_name} {name} is {NOT_YOURS}: {}", failure.message)));
        }
        object => object?,
    };
    let Some(object) = object else {
        return Err(Unanswered::Question(format!("there is no {kind_name} {name}")));
    };
    let Some(kind) = kind else {
        return if consumes && object["metadata"]["labels"][RESOURCE_UID].is_null() {
            consumer(api, &object).await
        } else {
            implementation(api, &object).await
        };
    };
    if kind.claim().1 == kind_name {
        return claim(api, kind, &object).await;
    }
    if kind.resource().1 == kind_name {
        return resource(api, &kind, &object, true).await;
    }
    Err(Unanswered::Question(format!("{kind_name} is a class: conductor classes shows those")))
}

/// What an object that uses claims depends on.
async fn consumer(api: &Api, object: &Value) -> Result<Node, Unanswered> {
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let used = uses(object);
    let none = if used.is_empty() { "uses no claims" } else { "" };
    let said = [health(object), none.to_owned()].into_iter().filter(|said| !said.is_empty()).collect::<Vec<_>>();
    let mut node = Node::new(text(&object["kind"]), namespace, name, said.join("; "));
    let kinds = kinds(api).await?;
    for (word, used) in used {
        let Some(kind) = kinds.iter().find(|kind| kind.claim_words().contains(&word)) else {
            node.children.push(Node::new(&word, namespace, &used, "there is no such kind of claim"));
            continue;
        };
        let (version, claim_kind) = kind.claim();
        node.children.push(match api.get(&version, claim_kind, namespace, &used).await {
            Ok(Some(live)) => claim(api, kind.clone(), &live).await?,
            Ok(None) => Node::new(claim_kind, namespace, &used, "there is no such claim"),
            Err(failure) if failure.code == 403 => Node::new(claim_kind, namespace, &used, NOT_YOURS),
            Err(failure) => return Err(failure.into()),
        });
    }
    Ok(node)
}

/// Whose an implementation is.
async fn implementation(api: &Api, object: &Value) -> Result<Node, Unanswered> {
    let (meta, kind_name) = (&object["metadata"], text(&object["kind"]));
    let mut node = Node::new(kind_name, text(&meta["namespace"]), text(&meta["name"]), health(object));
    let kinds = kinds(api).await?;
    let reference: Vec<&str> = text(&meta["annotations"][RESOURCE_REF]).split(' ').collect();
    let owner = match (reference.as_slice(), text(&meta["annotations"][CLAIM_NAME]).split_once('/')) {
        ([version, of, name], _) => kinds.iter().find(|k| is_of(&k.resource(), version, of)).map(|k| (k, "", *name)),
        (_, Some((namespace, name))) => kinds.iter().find(|k| matches!(k, Kind::Volumes)).map(|k| (k, namespace, name)),
        _ => None,
    };
    let Some((kind, namespace, name)) = owner else {
        let said = format!(
            "{kind_name} is neither a claim nor a resource, and this one uses no claim and is behind no resource"
        );
        return Err(Unanswered::Question(said));
    };
    let (version, owner) = if namespace.is_empty() { kind.resource() } else { kind.claim() };
    node.children.push(match api.get(&version, owner, namespace, name).await {
        Ok(Some(live)) if namespace.is_empty() => resource(api, kind, &live, true).await?,
        Ok(Some(live)) => claim(api, kind.clone(), &live).await?,
        Ok(None) => Node::new(owner, namespace, name, "gone"),
        Err(failure) if failure.code == 403 => Node::new(owner, namespace, name, NOT_YOURS),
        Err(failure) => return Err(failure.into()),
    });
    Ok(node)
}

async fn claim(api: &Api, kind: Kind, object: &Value) -> Result<Node, Unanswered> {
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let mut node = Node::new(kind.claim().1, namespace, name, health(object));
    let named = kind.named(object).to_owned();
    let snapshot = Snapshot::read(api, kind, namespace).await?;
    for (consumer, used) in snapshot.consumers.of(&snapshot.kind.claim_words(), namespace, name) {
        let place = match (used.waits, used.node.as_str()) {
            (true, _) => "waits for its claims".to_owned(),
            (_, "") => String::new(),
            (_, node) => format!("on {node}"),
        };
        let (kind, name) = consumer.split_once(' ').unwrap_or(("", &consumer));
        node.children.push(Node::new(&format!("used by {kind}"), namespace, name, place));
    }
    let binding = text(&object["status"]["binding"]["name"]);
    if !binding.is_empty() {
        node.children.push(Node::new("Secret", namespace, binding, "connection details"));
        let own = |live: &Value| {
            let owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|owner| owner["uid"] == object["metadata"]["uid"])
        };
        for (kind, what) in [("ConfigMap", "the public part of it"), ("Service", "names the endpoint")] {
            match api.get("v1", kind, namespace, binding).await {
                Ok(Some(live)) if own(&live) => node.children.push(Node::new(kind, namespace, binding, what)),
                Err(failure) if failure.code != 403 => return Err(failure.into()),
                _ => {}
            }
        }
    }
    if named.is_empty() {
        // what is made for it, or reserved, is its own before it names it
        let uid = text(&object["metadata"]["uid"]);
        let refers = |r: &&Value| snapshot.kind.offer(r).refs.iter().any(|own| own.uid.as_ref() == uid);
        for live in snapshot.resources.iter().filter(refers) {
            node.children.push(resource(api, &snapshot.kind, live, false).await?);
        }
    } else {
        let live = snapshot.resources.iter().find(|r| text(&r["metadata"]["name"]) == named);
        match live {
            Some(live) => node.children.push(resource(api, &snapshot.kind, live, false).await?),
            None if !snapshot.seen => {
                node.children.push(Node::new(snapshot.kind.resource().1, "", &named, NOT_YOURS));
            }
            None => node.children.push(Node::new(snapshot.kind.resource().1, "", &named, "gone")),
        }
    }
    Ok(node)
}

async fn resource(api: &Api, kind: &Kind, object: &Value, with_claims: bool) -> Result<Node, Unanswered> {
    let mut node = Node::new(kind.resource().1, "", text(&object["metadata"]["name"]), health(object));
    let offer = kind.offer(object);
    if with_claims {
        for r in &offer.refs {
            let live = api.get(&kind.claim().0, kind.claim().1, &r.namespace, &r.name).await;
            node.children.push(Node::new(kind.claim().1, &r.namespace, &r.name, told(live)?));
        }
    }
    if let Some(class) = &offer.shape.class {
        let there = api.get(&kind.class().0, kind.class().1, "", class).await?.is_some();
        let what = if there { "" } else { "a name, which nothing is made by: there is no such object" };
        node.children.push(Node::new(kind.class().1, "", class, what));
    }
    let behind: Vec<Value> = match kind {
        Kind::Generated(_) => object["status"]["implementations"].as_array().cloned().unwrap_or_default(),
        Kind::Volumes => {
            serde_json::from_str(text(&object["metadata"]["annotations"][IMPLEMENTATION])).into_iter().collect()
        }
    };
    for i in &behind {
        let (version, kind) = (text(&i["apiVersion"]), text(&i["kind"]));
        let live = api.get(version, kind, text(&i["namespace"]), text(&i["name"])).await;
        node.children.push(Node::new(kind, text(&i["namespace"]), text(&i["name"]), told(live)?));
    }
    Ok(node)
}
