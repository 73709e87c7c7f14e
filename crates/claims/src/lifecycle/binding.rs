//! A claim and its resource become a pair.

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::lifecycle::claim::{ClaimScene, claims_text, holds, is_shared, phase, references, uid};
use crate::lifecycle::connection::connection_writes;
use crate::lifecycle::grow::{REFUSED, grow};
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::waiting::quoting;
use crate::lifecycle::write::{Plan, finalizer};
use crate::lifecycle::{CLAIM_FINALIZER, PROVISIONED_FOR, RESOURCE_FINALIZER, ROUTED, WITHIN_CAPACITY};
use crate::matching::Refusal;
use crate::rules::Rules;
use crate::views::Ask;

/// What is wrong with a resource that was made for the claim: a class may make something else than it is asked for.
pub(super) fn misfit(scene: &ClaimScene<'_>, resource: &Value) -> Option<String> {
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

pub(super) fn bind(scene: &ClaimScene<'_>, resource: &Value, plan: &mut Plan) {
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
