//! The life of a claim.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::extract::{class_fields, class_view};
use crate::lifecycle::connection::{Connection, connection_removals, connection_writes};
use crate::lifecycle::grow::{REFUSED, grow};
use crate::lifecycle::implementation::implementations;
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::waiting::{pending, pending_with, quoting, wait};
use crate::lifecycle::write::{Plan, finalizer};
use crate::lifecycle::{CLAIM_FINALIZER, PROVISIONED_FOR, RESOURCE_FINALIZER, ROUTED, SHUT, WITHIN_CAPACITY};
use crate::matching::{Decision, Made, Reason, Refusal, Why};
use crate::names::derived;
use crate::rules::Rules;
use crate::template::{Expressions, render};
use crate::types::ResourceType;
use crate::views::{Ask, Phase, Taken};

/// What is to be known about a claim to say what comes next. All objects are as the API server has them.
pub struct ClaimScene<'s> {
    /// Its type.
    pub kind: &'s ResourceType,
    /// The claim.
    pub claim: &'s Value,
    /// What matching says; not needed for a claim that is being deleted.
    pub decision: Option<&'s Decision>,
    /// The resource it is bound or to be bound to; for provisioning, the one with the name [`ClaimScene::made_name`].
    pub resource: Option<&'s Value>,
    /// Its class, if there is one.
    pub class: Option<&'s Value>,
    /// Consumers that use it, for people: `Pod web-0`.
    pub consumers: &'s [String],
    /// Its connection details and the objects that exist for them.
    pub connection: Connection<'s>,
    /// Evaluates templates.
    pub expressions: &'s dyn Expressions,
    /// The time to write into conditions.
    pub now: &'s str,
}

/// The uid of an object.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub(crate) fn deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

/// The references of a resource.
pub(crate) fn references(resource: &Value) -> Vec<Value> {
    resource["spec"]["claimRefs"].as_array().cloned().unwrap_or_default()
}

/// Whether several claims may have a resource.
pub fn is_shared(kind: &ResourceType, resource: &Value) -> bool {
    resource["spec"]["maxClaims"].as_u64().unwrap_or(kind.max_claims.into()) > 1
}

/// Whether the resource refers to this very claim.
fn holds(resource: &Value, claim: &Value) -> bool {
    references(resource).iter().any(|r| r["uid"].as_str() == Some(uid(claim)) && !uid(claim).is_empty())
}

impl ClaimScene<'_> {
    /// The name of the resource that would be made for the claim.
    pub fn made_name(kind: &ResourceType, claim: &Value) -> String {
        derived(&kind.names.resource, uid(claim))
    }
}

/// The purpose of the write that puts a class on a claim that names none.
pub const CLASS_STANDS_IN: &str = "say the class that stands in";
/// The purpose of the write that says how much a class makes for a claim: quotas charge it, and may refuse it.
pub const GRANTED: &str = "say how much is made for the claim";

/// What is to be written about a claim now.
pub fn claim(scene: &ClaimScene<'_>) -> Plan {
    let mut plan = Plan::default();
    if deleting(scene.claim) {
        release(scene, &mut plan);
        return plan;
    }
    let bound = phase(scene.claim) == "Bound" || phase(scene.claim) == "Lost";
    let named = scene.claim["spec"]["resourceName"].as_str().unwrap_or_default();
    match scene.resource {
        Some(resource)
            if holds(resource, scene.claim)
                && matches!(phase(resource), "Available" | "Bound")
                && !deleting_unbound(resource) =>
        {
            match misfit(scene, resource).filter(|_| !bound) {
                Some(message) => pending(scene, "Mismatch", &message, &[], &mut plan),
                None => bind(scene, resource, &mut plan),
            }
        }
        _ if bound && !named.is_empty() && !healed(scene) => lost(scene, named, &mut plan),
        // on the claim before anything else, where quotas see it
        _ if !bound && named.is_empty() && scene.claim["spec"]["class"].is_null() && scene.class.is_some() => {
            let class = scene.class.map_or(&Value::Null, |class| &class["metadata"]["name"]);
            plan.patch(scene.claim, json!({"spec": {"class": class}}), CLASS_STANDS_IN);
        }
        _ => match scene.decision {
            Some(Decision::Bind { resource: name, .. }) => {
                let found = scene.resource.filter(|r| r["metadata"]["name"].as_str() == Some(name));
                let class = found.map_or(&Value::Null, |r| &r["spec"]["class"]);
                match found {
                    None => {}
                    // that of the resource it is to have, for the same reason
                    Some(_) if !bound && scene.claim["spec"]["class"].is_null() && class.is_string() => {
                        plan.patch(scene.claim, json!({"spec": {"class": class}}), CLASS_STANDS_IN);
                    }
                    Some(resource) => bind(scene, resource, &mut plan),
                }
            }
            Some(Decision::Provision { class, made }) => provision(scene, class, made, &mut plan),
            Some(Decision::Wait { reason, summary }) => {
                let failed = Refusal::Taken(Taken::Phase(Phase::Failed));
                let begun = matches!(reason, Reason::BeingMade(_))
                    || (!bound && matches!(reason, Reason::NamedRefused(_, refusal) if *refusal == failed));
                if begun {
                    renew(scene, &mut plan);
                }
                wait(scene, reason, summary, &mut plan);
            }
            None => {}
        },
    }
    plan
}

/// What is to be written about a claim that cannot be read: what is wrong with it.
pub fn unreadable_claim(claim: &Value, errors: &[crate::errors::FieldError], now: &str) -> Plan {
    let mut plan = Plan::default();
    let message = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let condition = Condition::new("Bound", false, "Invalid", message.clone());
    let phase = if phase(claim).is_empty() { "Pending" } else { phase(claim) };
    let fields = json!({"phase": phase, "reason": "Invalid", "message": message});
    if let Some(status) = status_patch(claim, fields, &[condition], now) {
        plan.patch_status(claim, status, "say what is wrong with the claim");
        plan.event(claim, true, "Invalid", message);
    }
    plan
}

/// What is to be written about a claim whose resource the API server does not let be made: why.
pub fn refused_claim(claim: &Value, message: &str, now: &str) -> Plan {
    let mut plan = Plan::default();
    let condition = Condition::new("Bound", false, "ProvisioningFailed", message);
    let fields = json!({"phase": "Pending", "reason": "ProvisioningFailed", "message": message});
    if let Some(status) = status_patch(claim, fields, &[condition], now) {
        plan.patch_status(claim, status, "say why the claim waits");
        plan.event(claim, true, "ProvisioningFailed", message);
    }
    plan
}

/// Whether a lost claim may have the resource again: one reserved for it, or another object that an administrator put under the name.
/// The same object, free again, may have been scrubbed: its data would be gone without a word. That the index still shows it held means
/// nothing: the object is as the API server has it.
fn healed(scene: &ClaimScene<'_>) -> bool {
    let Some(Decision::Bind { why, .. }) = scene.decision else { return false };
    let another = scene.resource.is_some_and(|r| scene.claim["status"]["resourceUid"].as_str() != Some(uid(r)));
    *why == Why::Reserved || another || scene.resource.is_some_and(|r| reserved_for(r, scene.claim))
}

/// Whose a resource is, for tables: `apps/blog, apps/shop and 3 more`; null: nobody's.
pub fn claims_text(references: &[Value]) -> Value {
    const SHOWN: usize = 3;
    let text = |r: &Value, key: &str| r[key].as_str().unwrap_or_default().to_owned();
    let some = references.iter().take(SHOWN).map(|r| text(r, "namespace") + "/" + &text(r, "name"));
    match (references.len().saturating_sub(SHOWN), some.collect::<Vec<_>>().join(", ")) {
        (_, some) if some.is_empty() => Value::Null,
        (0, some) => json!(some),
        (more, some) => json!(format!("{some} and {more} more")),
    }
}

fn reserved_for(resource: &Value, claim: &Value) -> bool {
    references(resource).iter().any(|r| {
        r["uid"].as_str().unwrap_or_default().is_empty()
            && r["namespace"] == claim["metadata"]["namespace"]
            && r["name"] == claim["metadata"]["name"]
    })
}

/// A resource that is being deleted still serves the claims it is bound to, and takes no new ones.
fn deleting_unbound(resource: &Value) -> bool {
    deleting(resource) && phase(resource) != "Bound"
}

/// What was begun for the claim and never was ready follows its class: nothing is in it yet, and a mistake in the class can be mended. Of
/// another kind it is made only for a new claim.
fn renew(scene: &ClaimScene<'_>, plan: &mut Plan) {
    let own = |r: &&Value| r["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(scene.claim));
    let (Some(resource), Some(class)) = (scene.resource.filter(own), scene.class) else { return };
    if deleting(resource) || resource["spec"]["class"] != class["metadata"]["name"] {
        return;
    }
    let Ok(wanted) = from_class(scene, class) else { return };
    let kinds = |spec: &dyn Fn(&str) -> Value| {
        let one = |template: &Value| (template["apiVersion"].clone(), template["kind"].clone());
        let several = spec("templates").as_array().into_iter().flatten().map(one).collect::<Vec<_>>();
        (one(&spec("template")), several)
    };
    let has = |key: &str| resource["spec"][key].clone();
    let wants = |key: &str| wanted.get(key).cloned().unwrap_or_default();
    if kinds(&has) != kinds(&wants) {
        return;
    }
    let changed = FROM_CLASS.iter().filter(|key| has(key) != wants(key));
    let patch: Map<String, Value> = changed.map(|key| ((*key).to_owned(), instead(&has(key), &wants(key)))).collect();
    if !patch.is_empty() {
        plan.patch(resource, json!({"spec": patch}), "follow the class");
    }
}

/// The merge patch that puts one value in the place of another.
fn instead(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = new.iter().map(|(key, value)| (key.clone(), instead(&old.get(key).cloned().unwrap_or_default(), value)));
    Value::Object(gone.chain(kept).collect())
}

/// What of a class a resource has that is made from it.
const FROM_CLASS: [&str; 5] = ["template", "templates", "replaceable", "readyWhen", "connection"];

/// The same, for a claim; or what in it fails.
fn from_class(scene: &ClaimScene<'_>, class: &Value) -> Result<Map<String, Value>, String> {
    let fields = class_fields(class);
    let view = class_view(class);
    let scope = BTreeMap::from([("claim", scene.claim), ("class", &view)]);
    let mut spec = Map::new();
    for key in FROM_CLASS {
        let Some(value) = fields.get(key).filter(|v| !v.is_null()) else { continue };
        let value = match key {
            "template" | "templates" => {
                render(value, &scope, &["resource"], scene.expressions).map_err(|error| format!("{key}.{error}"))?
            }
            _ => value.clone(),
        };
        spec.insert(key.into(), value);
    }
    Ok(spec)
}

/// What is wrong with a resource that was made for the claim: a class may make something else than it is asked for.
fn misfit(scene: &ClaimScene<'_>, resource: &Value) -> Option<String> {
    if resource["metadata"]["annotations"][PROVISIONED_FOR].as_str() != Some(uid(scene.claim)) {
        return None;
    }
    let rules = scene.kind.rules();
    let ask = crate::extract::ask(&rules, scene.claim, true, None).ok()?;
    let made = crate::extract::offer(&rules, resource);
    let wrong = rules.attributes.iter().enumerate().find(|(i, rule)| {
        let has = made.shape.attributes.get(*i).and_then(Option::as_ref);
        // what nobody reports is as the class says
        has.is_some() && ask.wish.attributes[*i].as_ref().is_some_and(|want| !rule.satisfied(want, has))
    });
    let what = match wrong {
        Some((at, _)) => {
            format!("its {}", crate::matching::refusal_text(&rules, &ask, Some(&made), &Refusal::Attribute(at)))
        }
        None => wrong_amount(&rules, &ask, &resource["status"]["capacity"])?,
    };
    let (kind, class) = (&scene.kind.names.resource, class_name(scene, resource));
    let class = class.as_str().unwrap_or_default();
    Some(format!(
        "{kind} {} was made for it, but {what}: class {class} does not make what the claim asks for; ask for what it makes, or choose another class",
        made.name
    ))
}

/// An amount that is reported and is not what a claim asks for.
fn wrong_amount(rules: &Rules, ask: &Ask, reported: &Value) -> Option<String> {
    rules.capacities.iter().enumerate().find_map(|(i, capacity)| {
        let has = Amount::from_json(reported.get(capacity.name.as_ref())?).ok()?;
        let asked = ask.lower.get(i).copied().unwrap_or_default();
        let limit = ask.upper.get(i).copied().flatten();
        match limit.filter(|limit| has > *limit) {
            _ if has < asked => Some(format!("it has {has} of {}, asked {asked}", capacity.name)),
            Some(limit) => Some(format!("it has {has} of {}, limit {limit}", capacity.name)),
            None => None,
        }
    })
}

fn bind(scene: &ClaimScene<'_>, resource: &Value, plan: &mut Plan) {
    let (claim, rules) = (scene.claim, scene.kind.rules());
    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
    let mut refs = references(resource);
    if !holds(resource, claim) {
        let Some(referring) = referring(scene, &rules, resource) else { return };
        refs = referring;
        let mut patch = json!({"spec": {"claimRefs": refs}});
        if let Some(list) = finalizer(resource, RESOURCE_FINALIZER, true) {
            patch["metadata"] = json!({"finalizers": list});
        }
        plan.patch(resource, patch, "refer to the claim");
    }
    let mut patch = Map::new();
    if claim["spec"]["resourceName"].as_str() != Some(name) {
        patch.insert("spec".into(), json!({"resourceName": name}));
    }
    if let Some(list) = finalizer(claim, CLAIM_FINALIZER, true) {
        patch.insert("metadata".into(), json!({"finalizers": list}));
    }
    if !patch.is_empty() {
        plan.patch(claim, Value::Object(patch), "name the resource");
    }
    let told = Condition::new("Bound", true, "Bound", "at least one claim uses it");
    let claims = claims_text(&refs);
    if (phase(resource) != "Bound" || resource["status"]["claims"] != claims)
        && let Some(status) = status_patch(
            resource,
            json!({"phase": "Bound", "reason": null, "message": null, "claims": claims}),
            &[told],
            scene.now,
        )
    {
        plan.patch_status(resource, status, "say Bound on the resource");
    }
    let (binding, conditions) = scene.connection.report(scene.kind, claim);
    let mut conditions = conditions;
    conditions
        .insert(0, Condition::new("Bound", true, "Bound", format!("bound to {} {name}", scene.kind.names.resource)));
    quoting(&rules, claim, &mut conditions);
    // what keeps the resource from being used for a while is the claim's to say, too
    let ready = condition_of(resource, "Ready").filter(|_| !resource["status"]["implementationRef"].is_null());
    let (mut reason, mut message) = (Value::Null, Value::Null);
    if let Some((ready, why, said)) = ready {
        conditions.push(Condition::new("Ready", ready, why, said));
        if !ready {
            (reason, message) = (json!(why), json!(said));
        }
    }
    if let Some(broken) = conditions.iter().find(|c| c.kind == "ConnectionReady" && !c.status && reason.is_null()) {
        (reason, message) = (json!(broken.reason), json!(broken.message));
    }
    if let Some((fits, why, said)) = condition_of(resource, WITHIN_CAPACITY) {
        conditions.push(Condition::new(WITHIN_CAPACITY, fits, why, said));
        if !fits && reason.is_null() {
            (reason, message) = (json!(why), json!(said));
        }
    }
    if let Some((false, why, said)) = condition_of(claim, ROUTED).filter(|_| reason.is_null()) {
        (reason, message) = (json!(why), json!(said));
    }
    if let Some(resizing) = grow(scene, &rules, resource, &mut refs, plan) {
        if resizing.reason == REFUSED && reason.is_null() {
            (reason, message) = (json!(resizing.reason), json!(resizing.message));
        }
        conditions.push(resizing);
    }
    let capacity = capacity(scene, resource, &refs);
    let own = resource["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(claim));
    let fields = json!({
        "phase": "Bound",
        "reason": reason,
        "message": message,
        "class": class_name(scene, resource),
        "resourceUid": uid(resource),
        "capacity": capacity,
        "granted": if own { claim["status"]["granted"].clone() } else { Value::Null },
        "attributes": offered(&rules, resource),
        "binding": binding,
    });
    if let Some(status) = status_patch(claim, fields, &conditions, scene.now) {
        plan.patch_status(claim, status, "say Bound on the claim");
        if phase(claim) != "Bound" {
            plan.event(claim, false, "Bound", format!("bound to {} {name}", scene.kind.names.resource));
        }
    }
    connection_writes(scene.kind, claim, &scene.connection, plan);
    // after the Secret has them, never before: who reads this ends the credentials of the rotation before
    let rotation = scene.connection.rotation;
    let own = refs.iter_mut().find(|r| r["uid"].as_str() == Some(uid(claim)));
    if let Some(own) = own.filter(|own| own["rotation"].as_i64().unwrap_or(0) < rotation)
        && scene.connection.is_writable(scene.kind, claim)
    {
        own["rotation"] = json!(rotation);
        plan.patch(resource, json!({"spec": {"claimRefs": refs}}), "say which credentials the claim has");
    }
}

/// What a claim has: all of its resource, or its part of one that several share.
fn capacity(scene: &ClaimScene<'_>, resource: &Value, refs: &[Value]) -> Value {
    let own = refs.iter().find(|r| r["uid"].as_str() == Some(uid(scene.claim)));
    match (own, &resource["status"]["capacity"]) {
        (Some(own), _) if is_shared(scene.kind, resource) => own["amounts"].clone(),
        (_, Value::Object(map)) if !map.is_empty() => json!(map),
        _ => resource["spec"]["capacity"].clone(),
    }
}

fn class_name(scene: &ClaimScene<'_>, resource: &Value) -> Value {
    match (&scene.claim["spec"]["class"], &resource["spec"]["class"]) {
        (Value::String(class), _) if !class.is_empty() => json!(class),
        (_, Value::String(class)) => json!(class),
        _ => Value::Null,
    }
}

fn offered(rules: &Rules, resource: &Value) -> Value {
    let seen = crate::extract::offer(rules, resource);
    let pairs = rules.attributes.iter().zip(seen.shape.attributes.iter());
    let map: Map<String, Value> = pairs.filter_map(|(a, v)| Some((a.name.to_string(), v.as_ref()?.json()))).collect();
    Value::Object(map)
}

/// The references with this claim among them; `None` if there is no room, which a fresh look will see.
fn referring(scene: &ClaimScene<'_>, rules: &Rules, resource: &Value) -> Option<Vec<Value>> {
    let claim = scene.claim;
    let seen = crate::extract::offer(rules, resource);
    let ask = crate::extract::ask(rules, claim, true, None).ok()?;
    if seen.deleting || !matches!(phase(resource), "Available" | "Bound") {
        return None;
    }
    let mut refs = references(resource);
    let amounts: Map<String, Value> = rules
        .capacities
        .iter()
        .zip(ask.lower.iter())
        .filter(|(_, a)| **a > Amount::ZERO)
        .map(|(c, a)| (c.name.to_string(), json!(a.to_string())))
        .collect();
    let reserved = refs.iter().position(|r| {
        r["uid"].as_str().unwrap_or_default().is_empty()
            && r["namespace"] == claim["metadata"]["namespace"]
            && r["name"] == claim["metadata"]["name"]
    });
    if seen.max_claims > 1 {
        for (i, lower) in ask.lower.iter().enumerate() {
            let kept =
                reserved.and_then(|r| seen.refs.get(r)).and_then(|r| r.amounts.get(i).copied()).unwrap_or_default();
            if seen.free(i).plus(kept) < *lower {
                return None;
            }
        }
    }
    match reserved {
        Some(at) => {
            refs[at]["uid"] = json!(uid(claim));
            refs[at]["amounts"] = Value::Object(amounts);
        }
        None if refs.len() as u64 >= u64::from(seen.max_claims) => return None,
        None => refs.push(json!({
            "uid": uid(claim),
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "amounts": amounts,
            "by": "Manager",
        })),
    }
    Some(refs)
}

fn provision(scene: &ClaimScene<'_>, class: &str, made: &Made, plan: &mut Plan) {
    let (claim, kind) = (scene.claim, scene.kind);
    let name = ClaimScene::made_name(kind, claim);
    if let Some(taken) = scene.resource.filter(|r| r["metadata"]["name"].as_str() == Some(&name)) {
        if !holds(taken, claim) {
            let message = format!(
                "{} {name} exists and is not this claim's: remove it or make the claim anew",
                kind.names.resource
            );
            pending(scene, "NameTaken", &message, &[], plan);
        }
        return;
    }
    let Some(object) = scene.class else { return };
    let fields = class_fields(object);
    let rules = kind.rules();
    let mut spec = Map::new();
    for (attribute, value) in rules.attributes.iter().zip(made.attributes.iter()) {
        if let Some(value) = value {
            spec.insert(attribute.name.to_string(), value.json());
        }
    }
    let capacity: Map<String, Value> = rules
        .capacities
        .iter()
        .zip(made.capacity.iter())
        .filter(|(_, a)| **a > Amount::ZERO)
        .map(|(c, a)| (c.name.to_string(), json!(a.to_string())))
        .collect();
    let amounts: Map<String, Value> = rules
        .capacities
        .iter()
        .filter(|c| !claim["spec"]["resources"]["requests"][c.name.as_ref()].is_null())
        .map(|c| (c.name.to_string(), claim["spec"]["resources"]["requests"][c.name.as_ref()].clone()))
        .collect();
    spec.insert("capacity".into(), Value::Object(capacity));
    if !made.capabilities.is_empty() {
        spec.insert("capabilities".into(), json!(made.capabilities.iter().map(AsRef::as_ref).collect::<Vec<&str>>()));
    }
    if !made.modes.is_empty() {
        spec.insert("accessModes".into(), json!(made.modes.iter().map(AsRef::as_ref).collect::<Vec<&str>>()));
    }
    spec.insert("class".into(), json!(class));
    spec.insert("reclaimPolicy".into(), fields.get("reclaimPolicy").cloned().unwrap_or_else(|| json!("Delete")));
    spec.insert(
        "claimRefs".into(),
        json!([{
            "uid": uid(claim),
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "amounts": amounts,
            "by": "Manager",
        }]),
    );
    match from_class(scene, object) {
        Ok(own) => spec.extend(own),
        Err(error) => {
            pending(scene, "TemplateFailed", &format!("class {class} cannot make it: {error}"), &[], plan);
            return;
        }
    }
    let resource = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.names.resource,
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_FOR: uid(claim)},
            "finalizers": [RESOURCE_FINALIZER],
        },
        "spec": spec,
    });
    // what cannot be made is known before there is a resource that nobody can use
    let mut rehearsed = resource.clone();
    rehearsed["metadata"]["uid"] = json!(uid(claim));
    if let Err(error) = implementations(kind, &rehearsed, scene.expressions) {
        return pending(scene, "TemplateFailed", &format!("class {class} cannot make it: {error}"), &[], plan);
    }
    plan.create(resource, "make a resource for the claim");
    pending_with(
        scene,
        "Provisioning",
        &format!("{} {name} is being made from class {class}", kind.names.resource),
        &[],
        json!({"granted": granted(&rules, claim, made)}),
        GRANTED,
        plan,
    );
}

/// What is made for a claim where that is more than it asks for; null: nowhere.
fn granted(rules: &Rules, claim: &Value, made: &Made) -> Value {
    let asked = |name: &str| Amount::from_json(&claim["spec"]["resources"]["requests"][name]).unwrap_or_default();
    let pairs = rules.capacities.iter().zip(made.capacity.iter());
    let more: Map<String, Value> = pairs
        .filter(|(capacity, amount)| **amount > asked(&capacity.name))
        .map(|(capacity, amount)| (capacity.name.to_string(), json!(amount.to_string())))
        .collect();
    if more.is_empty() { Value::Null } else { Value::Object(more) }
}

fn lost(scene: &ClaimScene<'_>, named: &str, plan: &mut Plan) {
    let kind = &scene.kind.names.resource;
    let (reason, message) = match scene.resource {
        None => ("ResourceGone", format!("{kind} {named} is gone: restore it under this name, or delete the claim")),
        Some(resource) if holds(resource, scene.claim) => {
            let why = resource["status"]["message"].as_str().unwrap_or("its conditions say why");
            ("ResourceFailed", format!("{kind} {named} is {}: {why}", phase(resource)))
        }
        Some(_) => (
            "ResourceTaken",
            format!(
                "{kind} {named} is no longer this claim's: make it anew under this name, reserved for the claim, or delete the claim"
            ),
        ),
    };
    // its own failure is said, and heals by itself; the claim is lost only where the data may be
    let condition = Condition::new("Bound", false, reason, message.clone());
    let fields = json!({"phase": "Lost", "reason": reason, "message": message});
    if let Some(status) = status_patch(scene.claim, fields, &[condition], scene.now) {
        plan.patch_status(scene.claim, status, "say Lost on the claim");
        if phase(scene.claim) != "Lost" {
            plan.event(scene.claim, true, "Lost", message);
        }
    }
}

fn release(scene: &ClaimScene<'_>, plan: &mut Plan) {
    let claim = scene.claim;
    let Some(rest) = finalizer(claim, CLAIM_FINALIZER, false) else { return };
    if !scene.consumers.is_empty() {
        let shown = scene.consumers.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let more = scene.consumers.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!("used by {shown}{more}: it goes when they are gone");
        let condition = Condition::new("Released", false, "InUse", message.clone());
        if let Some(status) =
            status_patch(claim, json!({"reason": "InUse", "message": message}), &[condition], scene.now)
        {
            plan.patch_status(claim, status, "say what holds the claim");
        }
        return;
    }
    connection_removals(claim, &scene.connection, plan);
    if let Some(resource) = scene.resource.filter(|r| holds(r, claim)) {
        unrefer(resource, &[uid(claim)], scene.now, plan);
    }
    plan.patch(claim, json!({"metadata": {"finalizers": rest}}), "let the claim go");
}

/// Takes references back. A resource that was Bound and has none left is Released.
pub(crate) fn unrefer(resource: &Value, claims: &[&str], now: &str, plan: &mut Plan) {
    let mut left = Vec::new();
    let mut open = 0;
    for mut r in references(resource) {
        let gone = r["uid"].as_str().is_some_and(|u| claims.contains(&u));
        match (gone, r["by"].as_str()) {
            (true, Some("Manager")) => {}
            (true, _) => {
                // the administrator's reservation stands for whoever comes under that name
                open += 1;
                r["uid"] = json!("");
                left.push(r);
            }
            (false, _) => {
                open += usize::from(r["uid"].as_str().unwrap_or_default().is_empty());
                left.push(r);
            }
        }
    }
    let last = left.len() == open;
    let claims = claims_text(&left);
    // one that failed in use is released all the same
    let used = condition_of(resource, "Bound").is_some_and(|(bound, _, _)| bound);
    if last && (phase(resource) == "Bound" || (phase(resource) == "Failed" && used)) {
        let message = "released; what becomes of it is up to its reclaimPolicy";
        let condition = Condition::new("Bound", false, "Released", message);
        let fields = json!({"phase": "Released", "reason": "Released", "message": message, "claims": claims});
        if let Some(status) = status_patch(resource, fields, &[condition], now) {
            plan.patch_status(resource, status, "say Released on the resource");
        }
    } else if let Some(status) = status_patch(resource, json!({"claims": claims}), &[], now) {
        plan.patch_status(resource, status, "say whose the resource is");
    }
    let mut patch = json!({"spec": {"claimRefs": left}});
    if !last && left.len() < references(resource).len() {
        // who is gone has what the others use
        patch["metadata"]["annotations"][SHUT] = json!("true");
    }
    plan.patch(resource, patch, "take the reference back");
}
