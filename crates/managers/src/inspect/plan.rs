//! What would happen if objects were applied, without doing it.

use std::collections::BTreeMap;

use conductor_claims::amount::Amount;
use conductor_claims::lifecycle::Target;
use conductor_claims::matching::Decision;
use conductor_claims::types::{CREATED_BY, CREATED_BY_GROUPS, ResourceType};
use conductor_machinery::patch::apply_merge_patch;
use http::Method;
use serde_json::{Value, json};

use super::allowed::{Allowed, Maker};
use super::explain::{sentence, trouble};
use super::{Snapshot, Unanswered, kinds};
use crate::api::{APPLY, Api, Failure, JSON};
use crate::expressions::{ClaimJudge, Evaluator};
use crate::kind::{Gvk, Kind, is_of};
use crate::rights;

/// What would become of one object.
pub struct Outlook {
    /// `KIND NAMESPACE/NAME`.
    pub object: String,
    /// What would happen.
    pub text: String,
    /// Whether it would be refused or would wait.
    pub trouble: bool,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Says what would become of each object, in their order; claims see the resources and classes before them.
pub async fn plan(api: &Api, objects: &[Value], namespace: &str) -> Result<Vec<Outlook>, Unanswered> {
    let mut types = kinds(api).await?;
    for object in objects.iter().filter(|o| text(&o["kind"]) == "ResourceType") {
        types.extend(ResourceType::parse(object).ok().map(|kind| Kind::Generated(Box::new(kind))));
    }
    let objects = &with_namespaces(api, objects, namespace).await?;
    let managers: Vec<Value> = objects.iter().filter(|o| is_manager(o)).map(youngest).collect();
    let consumers: Vec<&Value> = objects.iter().filter(|o| is_consumer(o)).collect();
    let mut snapshots: BTreeMap<String, Snapshot> = BTreeMap::new();
    let is_claim = |object: &Value| {
        types.iter().any(|kind| is_of(&kind.claim(), text(&object["apiVersion"]), text(&object["kind"])))
    };
    // in the end it is the same in which order they come: claims wait for the rest
    let mut order: Vec<usize> = (0..objects.len()).collect();
    order.sort_by_key(|number| is_claim(&objects[*number]));
    let mut all: Vec<(usize, Outlook)> = Vec::new();
    for number in order {
        let object = &objects[number];
        let (said, trouble) = match rehearse(api, &types, object, objects).await? {
            Rehearsed::Refused(refused) => {
                // our own review has said so already
                let refused = refused.split_once(" is refused: ").map_or(&*refused, |(_, why)| why);
                (format!("is refused: {refused}"), true)
            }
            Rehearsed::Taken(answer) => {
                let known = (managers.as_slice(), consumers.as_slice());
                outlook(api, &types, known, &mut snapshots, (object, answer), number).await?
            }
        };
        all.push((number, Outlook { object: shown(object), text: said, trouble }));
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, outlook)| outlook).collect())
}

/// What would become of one object that is not refused, and whether it would wait.
async fn outlook(
    api: &Api,
    types: &[Kind],
    (managers, consumers): (&[Value], &[&Value]),
    snapshots: &mut BTreeMap<String, Snapshot>,
    (object, answer): (&Value, Option<Value>),
    number: usize,
) -> Result<(String, bool), Failure> {
    let mut object = writable(object);
    let (version, kind) = (text(&object["apiVersion"]).to_owned(), text(&object["kind"]).to_owned());
    if kind == "ResourceType"
        && let Ok(own) = ResourceType::parse(&object)
    {
        let names = &own.names;
        return Ok((format!("defines {}, {} and {}", names.resource, names.claim, names.class), false));
    }
    if is_manager(&object) {
        let classes = object["spec"]["classes"].as_array().into_iter().flatten();
        let classes = classes.map(|class| text(&class["name"])).collect::<Vec<_>>().join(", ");
        let of = text(&object["spec"]["type"]);
        let what = if classes.is_empty() { "every class that no other lists".to_owned() } else { classes };
        return Ok((format!("serves {what} of {of}"), false));
    }
    let is = |own: Gvk<'_>| is_of(&own, &version, &kind);
    let Some(of) = types.iter().find(|t| is(t.claim()) || is(t.resource()) || is(t.class())).cloned() else {
        return Ok(("is none of the engine's: applied as it is".into(), false));
    };
    let name = of.name();
    if !snapshots.contains_key(&name) {
        let snapshot = Snapshot::read_with(api, of.clone(), "", managers).await?;
        consumers.iter().for_each(|consumer| snapshot.consumers.see(consumer));
        snapshots.insert(name.clone(), snapshot);
    }
    let Some(snapshot) = snapshots.get_mut(&name) else { return Ok((String::new(), false)) };
    let (space, own) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]).to_owned());
    let live = if own.is_empty() { None } else { api.get(&version, &kind, space, &own).await? };
    // as it would be once it is there
    object["metadata"]["uid"] = json!(format!("planned-{number}"));
    if is(of.claim()) {
        // who makes one that is not there is us, if the server writes that down
        let written = live.as_ref().or(answer.as_ref());
        let by = |key: &str| written.map_or(Value::Null, |o| o["metadata"]["annotations"][key].clone());
        let new = live.is_none() && (answer.is_none() || by(CREATED_BY).is_string());
        let maker = if new { Maker::Us } else { Maker::Written };
        for key in [CREATED_BY, CREATED_BY_GROUPS] {
            object["metadata"]["annotations"][key] = by(key);
        }
        return Ok(match live {
            Some(live) if text(&live["status"]["phase"]) == "Pending" => {
                // as it would be: what the server and the managers gave it stays
                for key in ["class", "resourceName", "storageClassName", "volumeName"] {
                    if object["spec"][key].is_null() && !live["spec"][key].is_null() {
                        object["spec"][key] = live["spec"][key].clone();
                    }
                }
                object["metadata"]["uid"] = live["metadata"]["uid"].clone();
                object["status"] = live["status"].clone();
                let (said, waits) = claim(api, snapshot, &object, maker).await?;
                (format!("exists and is Pending; then {said}"), waits)
            }
            Some(live) => {
                let why = trouble(&live, None);
                let colon = if why.is_empty() { "" } else { ": " };
                let more = growth(&live, &object);
                (format!("exists and is {}{colon}{why}{more}", text(&live["status"]["phase"])), !why.is_empty())
            }
            None => claim(api, snapshot, &object, maker).await?,
        });
    }
    if is(of.resource()) {
        if let Some(live) = live {
            // what others wrote on it stays: its claims, above all
            object["metadata"]["uid"] = live["metadata"]["uid"].clone();
            let merged = apply_merge_patch(&live, &object).unwrap_or_else(|_| live.clone());
            snapshot.index.upsert(of.offer(&merged));
            let phase = Some(text(&live["status"]["phase"])).filter(|phase| !phase.is_empty()).unwrap_or("Pending");
            return Ok((format!("exists and is {phase}"), false));
        }
        let making = !object["spec"]["template"].is_null() || !object["spec"]["templates"].is_null();
        object["status"]["phase"] = json!("Available");
        snapshot.index.upsert(of.offer(&object));
        let said = if making { "makes its implementation, then is Available" } else { "becomes Available" };
        return Ok((said.to_owned(), false));
    }
    let served = snapshot.served.as_ref().is_none_or(|served| served.contains(&own));
    Ok(match of.profile(&object, served) {
        Ok(profile) => {
            let said = if profile.provisions { "makes resources on demand" } else { "makes nothing: for what exists" };
            snapshot.index.set_profile(profile);
            snapshot.classes.retain(|class| class["metadata"]["name"] != object["metadata"]["name"]);
            snapshot.classes.push(object);
            (said.to_owned(), false)
        }
        Err(errors) => (errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), true),
    })
}

fn is_manager(object: &Value) -> bool {
    text(&object["kind"]) == "Manager" && text(&object["apiVersion"]).starts_with("conductor.io/")
}

fn is_consumer(object: &Value) -> bool {
    let known = [("v1", "Pod"), ("v1", "Service"), ("networking.k8s.io/v1", "Ingress")];
    known.contains(&(text(&object["apiVersion"]), text(&object["kind"])))
}

/// An object as it can be written into. A file may have anything where an object is expected; to refuse that is the server's part.
fn writable(object: &Value) -> Value {
    let mut object = object.clone();
    for place in ["", "/metadata", "/metadata/annotations", "/spec", "/status"] {
        if let Some(odd) = object.pointer_mut(place).filter(|found| !found.is_object() && !found.is_null()) {
            *odd = json!({});
        }
    }
    object
}

/// An object as it would be once it is there: younger than all that are.
fn youngest(object: &Value) -> Value {
    let mut object = writable(object);
    object["metadata"]["creationTimestamp"] = json!("9999-12-31T23:59:59Z");
    object["metadata"]["uid"] = object["metadata"]["name"].clone();
    object
}

/// What a bound claim asks for beyond what it has.
fn growth(live: &Value, planned: &Value) -> String {
    let requests = planned["spec"]["resources"]["requests"].as_object().into_iter().flatten();
    let more = requests.filter_map(|(name, asked)| {
        let (had, wanted) = (&live["status"]["capacity"][name], Amount::from_json(asked).ok()?);
        let grows = Amount::from_json(had).is_ok_and(|had| wanted > had);
        grows.then(|| format!("; it asks for {name} {wanted} and has {}: it grows if its class lets it", text(had)))
    });
    more.collect()
}

/// The objects, each in the namespace that it would be in.
async fn with_namespaces(api: &Api, objects: &[Value], namespace: &str) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for object in objects {
        let mut object = object.clone();
        let namespaced = match api.served(text(&object["apiVersion"]), text(&object["kind"])).await {
            Ok(served) => served.namespaced,
            Err(failure) if failure.code == 404 => false,
            Err(failure) => return Err(failure),
        };
        let meta = &object["metadata"];
        // the server is to see what is wrong in a file as it is
        if namespaced && (meta.is_object() || meta.is_null()) && meta["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        all.push(object);
    }
    Ok(all)
}

/// What the server says of an object.
enum Rehearsed {
    /// It does not take it.
    Refused(String),
    /// It takes it, as it would be then; `None`: it cannot tell, for what the object needs is not there yet.
    Taken(Option<Value>),
}

/// What the server says when an object is applied as a rehearsal, strictly, as kubectl would.
async fn rehearse(api: &Api, types: &[Kind], object: &Value, all: &[Value]) -> Result<Rehearsed, Failure> {
    let space = &object["metadata"]["namespace"];
    let brought = |o: &Value| text(&o["kind"]) == "Namespace" && o["metadata"]["name"] == *space;
    let mut target = Target::of(object);
    let name = std::mem::take(&mut target.name);
    let path = match api.path(&target).await {
        Ok(path) => path,
        Err(failure) if failure.code == 404 && (is_ours(types, object) || all.iter().any(|o| defines(o, object))) => {
            return Ok(Rehearsed::Taken(None));
        }
        Err(failure) if failure.code == 404 => {
            let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
            let why = format!("no {kind} is served in {version}: correct it, or install its definition first");
            return Ok(Rehearsed::Refused(why));
        }
        Err(failure) => return Err(failure),
    };
    const HOW: &str = "dryRun=All&fieldValidation=Strict&fieldManager=conductor-plan";
    let body = || object.to_string().into_bytes();
    let mut said = api.call(Method::POST, &format!("{path}?{HOW}"), JSON, body()).await;
    if said.as_ref().is_err_and(|failure| failure.code == 409) && !name.is_empty() {
        // as kubectl does: lists are merged by their keys, and what others own stays theirs
        said = api.call(Method::PATCH, &format!("{path}/{name}?{HOW}&force=true"), APPLY, body()).await;
    }
    match said {
        Err(failure) if matches!(failure.code, 400 | 403 | 422) => Ok(Rehearsed::Refused(failure.message)),
        Err(failure) if failure.reason == "Unreachable" => Err(failure),
        // its namespace, which nothing that is planned makes
        Err(failure) if failure.code == 404 && !all.iter().any(brought) => Ok(Rehearsed::Refused(failure.message)),
        said => Ok(Rehearsed::Taken(said.ok())),
    }
}

/// Whether an object is of a kind of these types, which may not be served yet.
fn is_ours(types: &[Kind], object: &Value) -> bool {
    let is = |own: Gvk<'_>| is_of(&own, text(&object["apiVersion"]), text(&object["kind"]));
    types.iter().any(|kind| is(kind.claim()) || is(kind.resource()) || is(kind.class()))
}

/// Whether one object defines the kind of another.
fn defines(definition: &Value, object: &Value) -> bool {
    let group = text(&object["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let spec = &definition["spec"];
    text(&definition["kind"]) == "CustomResourceDefinition"
        && text(&spec["group"]) == group
        && spec["names"]["kind"] == object["kind"]
}

async fn claim(api: &Api, snapshot: &mut Snapshot, object: &Value, maker: Maker) -> Result<(String, bool), Failure> {
    let ask = match snapshot.kind.ask(object, snapshot.needed(object), snapshot.node(api, object).await?) {
        Ok(ask) => ask,
        Err(errors) => return Ok((errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), true)),
    };
    let evaluator = Evaluator::default();
    let rules = snapshot.kind.rules();
    let mut allowed = Allowed::new(api, object, maker);
    let ask = allowed.bar(snapshot, ask).await?;
    let decision = ClaimJudge::new(&evaluator, &rules, object).decide(&snapshot.index, &ask);
    let decision = allowed.decision(snapshot, &ask, decision).await?;
    let proviso = allowed.proviso(rights::class_of(&decision, &snapshot.index).as_ref());
    let said = sentence(&decision, object, &ask, snapshot) + &proviso;
    if let Decision::Bind { resource, .. } = &decision {
        // what is bound is not there for the next
        snapshot.index.assume(&ask, resource);
    }
    let waits = match &decision {
        Decision::Wait { .. } => true,
        Decision::Provision { class, .. } => {
            snapshot.lacks(class).is_some() || snapshot.unmakeable(object, &decision).is_some()
        }
        Decision::Bind { .. } => false,
    };
    Ok((said, waits))
}

fn shown(object: &Value) -> String {
    let meta = &object["metadata"];
    let namespace = text(&meta["namespace"]);
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{}", text(&object["kind"]), text(&meta["name"]))
}
