//! A claim and its resource become a pair.

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::lifecycle::claim::{
    ClaimScene, RESOURCE_FAILED, claims_text, deleting, holds, is_shared, leaves, phase, references, uid,
};
use crate::lifecycle::connection::connection_writes;
use crate::lifecycle::grow::{REFUSED, grow};
use crate::lifecycle::reclaim::scrubbed_before;
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::waiting::quoting;
use crate::lifecycle::write::{Plan, finalizer};
use crate::lifecycle::{
    CLAIM_FINALIZER, MATCHES, PROVISIONED_FOR, REPORTED, RESOURCE_FINALIZER, ROUTED, WITHIN_CAPACITY,
};
use crate::matching::{Decision, Reason, Refusal, refuse_held};
use crate::rules::Rules;
use crate::types::ResourceType;
use crate::views::{Ask, By, Offer};

/// The purpose of the write that says Bound on a claim, and how much it has: quotas charge it, and may refuse it.
pub const SAY_BOUND: &str = "say Bound on the claim";

/// What is wrong with a resource that was made for the claim: a class may make something else than it is asked for.
pub(super) fn misfit(scene: &ClaimScene<'_>, resource: &Value) -> Option<String> {
    if resource["metadata"]["annotations"][PROVISIONED_FOR].as_str() != Some(uid(scene.claim)) {
        return None;
    }
    let rules = scene.kind.rules();
    let ask = crate::extract::ask(&rules, scene.claim, true, None).ok()?;
    let made = crate::extract::offer(&rules, resource);
    let what = match wrong_attribute(&rules, &ask, &made) {
        Some(what) => what,
        None => wrong_amount(&rules, &ask, &resource["status"]["capacity"])?,
    };
    let (kind, class) = (&scene.kind.names.resource, class_name(scene, resource));
    let class = class.as_str().unwrap_or_default();
    Some(format!(
        "{kind} {} was made for it, but {what}: class {class} does not make what the claim asks for; ask for what it makes, or choose another class",
        made.name
    ))
}

/// What a resource in use turns out not to be, or to have less of than was promised; what the claim asks for on top is another matter.
fn differs(scene: &ClaimScene<'_>, resource: &Value, refs: &[Value]) -> Option<String> {
    let rules = scene.kind.rules();
    let mut ask = crate::extract::ask(&rules, scene.claim, true, None).ok()?;
    let own = refs.iter().find(|r| r["uid"].as_str() == Some(uid(scene.claim)))?;
    for (lower, capacity) in ask.lower.iter_mut().zip(&rules.capacities) {
        let promised = Amount::from_json(&own["amounts"][capacity.name.as_ref()]).unwrap_or_default();
        *lower = promised.min(*lower);
    }
    ask.upper = ask.upper.iter().map(|_| None).collect();
    let has = crate::extract::offer(&rules, resource);
    let what = match wrong_attribute(&rules, &ask, &has) {
        Some(what) => what,
        None => wrong_amount(&rules, &ask, &resource["status"]["capacity"])?,
    };
    Some(format!(
        "{} {} is no longer what the claim asked for: {what}; have an administrator see to it, or make another claim",
        scene.kind.names.resource, has.name
    ))
}

/// An attribute that is not as a claim asks.
fn wrong_attribute(rules: &Rules, ask: &Ask, has: &Offer) -> Option<String> {
    let (at, _) = rules.attributes.iter().enumerate().find(|(i, rule)| {
        let has = has.shape.attributes.get(*i).and_then(Option::as_ref);
        // what nobody reports is as the class says
        has.is_some() && ask.wish.attributes[*i].as_ref().is_some_and(|want| !rule.satisfied(want, has))
    })?;
    Some(format!("its {}", crate::matching::refusal_text(rules, ask, Some(has), &Refusal::Attribute(at))))
}

/// What keeps a claim that is not bound yet from having the resource that refers to it, and whether a manager wrote that reference.
pub(super) fn unfit(scene: &ClaimScene<'_>, resource: &Value) -> Option<(Refusal, bool)> {
    let rules = scene.kind.rules();
    let mut ask = crate::extract::ask(&rules, scene.claim, true, None).ok()?;
    let offer = crate::extract::offer(&rules, resource);
    // who may use which class is known to whoever decided
    if let Some(Decision::Wait { reason: Reason::ReservedRefused(name, Refusal::Barred), .. }) = scene.decision {
        ask.barred = offer.shape.class.iter().filter(|_| *name == offer.name).cloned().collect();
    }
    let begun = offer.refs.iter().any(|r| r.uid == ask.uid && r.by == By::Manager);
    refuse_held(&rules, &ask, &offer).map(|refusal| (refusal, begun))
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

pub(super) fn bind(scene: &ClaimScene<'_>, resource: &Value, plan: &mut Plan) {
    let (claim, rules) = (scene.claim, scene.kind.rules());
    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
    let own = resource["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(claim));
    if leaves(resource, claim) {
        return;
    }
    let mut refs = references(resource);
    if !holds(resource, claim) {
        let takes = matches!(phase(resource), "Available" | "Bound") && !deleting(resource);
        let ask = crate::extract::ask(&rules, claim, true, None).ok().filter(|_| takes);
        let Some(referring) = ask.and_then(|ask| referring(&rules, resource, claim, &ask)) else { return };
        refs = referring;
        let mut patch = json!({"spec": {"claimRefs": refs}});
        if let Some(list) = finalizer(resource, RESOURCE_FINALIZER, true) {
            patch["metadata"] = json!({"finalizers": list});
        }
        plan.patch(resource, patch, "refer to the claim");
    }
    // What was made for the claim says Bound before the claim names it: until then it may be removed, and a claim that names what is gone
    // would wait for it for ever. Anything else is named first: a claim that goes in between does not cost it its life.
    let held = finalizer(claim, CLAIM_FINALIZER, true);
    if own {
        if let Some(list) = &held {
            plan.patch(claim, json!({"metadata": {"finalizers": list}}), "hold the claim while it has a resource");
        }
        say_bound(resource, &refs, scene.now, plan);
    }
    let mut patch = Map::new();
    if claim["spec"]["resourceName"].as_str() != Some(name) {
        patch.insert("spec".into(), json!({"resourceName": name}));
    }
    if let Some(list) = held.filter(|_| !own) {
        patch.insert("metadata".into(), json!({"finalizers": list}));
    }
    if !patch.is_empty() {
        plan.patch(claim, Value::Object(patch), "name the resource");
    }
    if !own {
        say_bound(resource, &refs, scene.now, plan);
    }
    let (binding, conditions) = scene.connection.report(scene.kind, claim);
    let mut conditions = conditions;
    conditions
        .insert(0, Condition::new("Bound", true, "Bound", format!("bound to {} {name}", scene.kind.names.resource)));
    conditions.extend(quoting(scene.kind, claim));
    // what keeps the resource from being used for a while is the claim's to say, too
    let ready = condition_of(resource, "Ready").filter(|_| !resource["status"]["implementationRef"].is_null());
    let (mut reason, mut message) = (Value::Null, Value::Null);
    if let Some((ready, why, said)) = ready {
        conditions.push(Condition::new("Ready", ready, why, said));
        if !ready {
            (reason, message) = (json!(why), json!(said));
        }
    }
    if ready.is_none() && condition_of(claim, "Ready").is_some() {
        // what was said while it was lost
        conditions.push(Condition::new("Ready", true, "Ready", "ready to be used"));
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
    if let Some((false, why, _)) = condition_of(resource, REPORTED) {
        // what it is that reports so is not its user's to know
        let said = "what is behind it reports what cannot be read: an administrator sees on the resource what that is";
        conditions.push(Condition::new(REPORTED, false, why, said));
        if reason.is_null() {
            (reason, message) = (json!(why), json!(said));
        }
    } else if condition_of(claim, REPORTED).is_some() {
        conditions.push(Condition::new(REPORTED, true, "Read", "what is behind it reports what can be read"));
    }
    match differs(scene, resource, &refs).filter(|_| phase(claim) == "Bound") {
        Some(said) => {
            if reason.is_null() {
                (reason, message) = (json!("Mismatch"), json!(said));
            }
            conditions.push(Condition::new(MATCHES, false, "Mismatch", said));
        }
        None if condition_of(claim, MATCHES).is_some() => {
            conditions.push(Condition::new(MATCHES, true, "Matches", "it is what the claim asks for"));
        }
        None => {}
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
    let granted = match phase(claim) {
        // what it was charged when it got it
        "Bound" | "Lost" => claim["status"]["granted"].clone(),
        _ if own => claim["status"]["granted"].clone(),
        _ if is_shared(scene.kind, resource) => Value::Null,
        _ => unasked(&rules, claim, &capacity),
    };
    let fields = json!({
        "phase": "Bound",
        "reason": reason,
        "message": message,
        "class": class_name(scene, resource),
        "resourceUid": uid(resource),
        "capacity": capacity,
        "granted": granted,
        "attributes": offered(&rules, resource),
        "binding": binding,
    });
    // who is bound hears of details that are written; who is not yet has none before it is charged for what it gets
    let charged = phase(claim) == "Bound";
    if charged {
        connection_writes(scene.kind, claim, &scene.connection, plan);
    }
    if let Some(status) = status_patch(claim, fields, &conditions, scene.now) {
        plan.patch_status(claim, status, SAY_BOUND);
        if !charged {
            plan.event(claim, false, "Bound", format!("bound to {} {name}", scene.kind.names.resource));
        }
    }
    if !charged {
        connection_writes(scene.kind, claim, &scene.connection, plan);
    }
    // after the Secret has them, never before: who reads this ends the credentials of the rotation before
    let rotation = scene.connection.rotation;
    let own = refs.iter_mut().find(|r| r["uid"].as_str() == Some(uid(claim)));
    if let Some(own) = own.filter(|own| own["rotation"].as_i64().unwrap_or(0) < rotation)
        && scene.connection.is_given(scene.kind, claim)
    {
        own["rotation"] = json!(rotation);
        plan.patch(resource, json!({"spec": {"claimRefs": refs}}), "say which credentials the claim has");
    }
}

fn say_bound(resource: &Value, refs: &[Value], now: &str, plan: &mut Plan) {
    let mut told = vec![Condition::new("Bound", true, "Bound", "at least one claim uses it")];
    told.extend(scrubbed_before(resource));
    let claims = claims_text(refs);
    if (phase(resource) != "Bound" || resource["status"]["claims"] != claims)
        && let Some(status) = status_patch(
            resource,
            json!({"phase": "Bound", "reason": null, "message": null, "claims": claims}),
            &told,
            now,
        )
    {
        plan.patch_status(resource, status, "say Bound on the resource");
    }
}

/// Whether a claim has a resource from which somebody took the reference to it. A claim that lets go says Released on the resource first,
/// so one that stays and says Bound has it even then: nothing is done to it before this is asked.
pub fn is_torn(resource: &Value, claim: &Value) -> bool {
    let stays = !deleting(claim);
    let held = stays || finalizer(claim, CLAIM_FINALIZER, false).is_some();
    let has = match phase(claim) {
        "Bound" => (held && is_used(resource)) || (stays && phase(resource) == "Released"),
        // lost with what is behind it, not with the resource, which may have been another's since
        "Lost" => {
            held && phase(resource) == "Failed" && is_used(resource) && claim["status"]["reason"] == RESOURCE_FAILED
        }
        _ => false,
    };
    has && claim["spec"]["resourceName"] == resource["metadata"]["name"]
        && claim["status"]["resourceUid"].as_str() == Some(uid(resource))
        && !holds(resource, claim)
}

/// Whether a resource is in use, as far as it says itself: bound, or failed while it was.
pub fn is_used(resource: &Value) -> bool {
    let used = condition_of(resource, "Bound").is_some_and(|(used, _, _)| used);
    phase(resource) == "Bound" || (phase(resource) == "Failed" && used)
}

/// Puts the references back that [`is_torn`] misses, if there is room for them: a resource is not taken from under its claims by an edit.
pub(super) fn mend(kind: &ResourceType, resource: &Value, claims: &[&Value], now: &str, plan: &mut Plan) -> bool {
    let rules = kind.rules();
    let mut mended = resource.clone();
    let mut events = Vec::new();
    for claim in claims {
        // what it had: it may have asked for more meanwhile
        let Ok(mut ask) = crate::extract::ask(&rules, claim, true, None) else { continue };
        for (lower, capacity) in ask.lower.iter_mut().zip(&rules.capacities) {
            let has = Amount::from_json(&claim["status"]["capacity"][capacity.name.as_ref()]);
            *lower = has.map_or(*lower, |has| has.min(*lower));
        }
        let Some(refs) = referring(&rules, &mended, claim, &ask) else { continue };
        mended["spec"]["claimRefs"] = json!(refs);
        let text = |key: &str| claim["metadata"][key].as_str().unwrap_or_default();
        events.push(format!(
            "its reference to claim {}/{} was removed and is there again: delete the claim to release it",
            text("namespace"),
            text("name")
        ));
    }
    if events.is_empty() {
        return false;
    }
    let refs = references(&mended);
    let mut patch = json!({"spec": {"claimRefs": refs}});
    if let Some(list) = finalizer(resource, RESOURCE_FINALIZER, true).filter(|_| !deleting(resource)) {
        patch["metadata"] = json!({"finalizers": list});
    }
    // first: what is Bound and refers to nobody is seen to, what refers to somebody and is Released is not
    if phase(resource) == "Released" {
        say_bound(resource, &refs, now, plan);
    }
    plan.patch(resource, patch, "refer to the claim again");
    events.into_iter().for_each(|message| plan.event(resource, true, "StillBound", message));
    true
}

/// What a claim gets of which it asked for no amount: it is charged for that; null: nothing.
fn unasked(rules: &Rules, claim: &Value, capacity: &Value) -> Value {
    let asked = |name: &str| Amount::from_json(&claim["spec"]["resources"]["requests"][name]).unwrap_or_default();
    let asks = |name: &str| asked(name) > Amount::ZERO;
    let got = rules.capacities.iter().filter(|c| !asks(&c.name) && !capacity[c.name.as_ref()].is_null());
    let got: Map<String, Value> = got.map(|c| (c.name.to_string(), capacity[c.name.as_ref()].clone())).collect();
    if got.is_empty() { Value::Null } else { Value::Object(got) }
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
fn referring(rules: &Rules, resource: &Value, claim: &Value, ask: &Ask) -> Option<Vec<Value>> {
    let seen = crate::extract::offer(rules, resource);
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
