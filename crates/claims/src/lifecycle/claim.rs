//! The life of a claim.

use serde_json::{Value, json};

use crate::lifecycle::PROVISIONED_FOR;
use crate::lifecycle::binding::{bind, is_torn, mend, misfit, unfit};
use crate::lifecycle::connection::Connection;
use crate::lifecycle::making::{give_back, is_superseded, provision, renew};
use crate::lifecycle::releasing::{release, unrefer};
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::waiting::{pending, refused, wait};
use crate::lifecycle::write::Plan;
use crate::matching::{Decision, Reason, Refusal, Summary, Why};
use crate::names::derived;
use crate::template::Expressions;
use crate::types::ResourceType;
use crate::views::{Phase, Taken};

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
    /// Why the API server does not let its resource grow, if it does not: it may not have more.
    pub growth_refused: Option<&'s str>,
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
pub(super) fn holds(resource: &Value, claim: &Value) -> bool {
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
/// The purpose of the write that has a resource grow: whoever guards resources may refuse it.
pub const RAISED: &str = "let the resource grow with the claim";

/// What is to be written about a claim now.
pub fn claim(scene: &ClaimScene<'_>) -> Plan {
    let mut plan = Plan::default();
    if deleting(scene.claim) {
        release(scene, &mut plan);
        return plan;
    }
    if let Some(resource) = scene.resource.filter(|resource| is_torn(resource, scene.claim)) {
        if !mend(scene.kind, resource, &[scene.claim], scene.now, &mut plan) && phase(scene.claim) == "Bound" {
            say_torn(scene, &mut plan);
        }
        return plan;
    }
    let bound = phase(scene.claim) == "Bound" || phase(scene.claim) == "Lost";
    let named = scene.claim["spec"]["resourceName"].as_str().unwrap_or_default();
    if let Some(resource) = scene.resource.filter(|resource| !bound && is_superseded(scene, resource)) {
        give_back(scene, resource, &mut plan);
        return plan;
    }
    match scene.resource {
        Some(resource)
            if holds(resource, scene.claim)
                && matches!(phase(resource), "Available" | "Bound")
                && !leaves(resource, scene.claim) =>
        {
            match (misfit(scene, resource).filter(|_| !bound), unfit(scene, resource)) {
                (Some(message), _) => pending(scene, "Mismatch", &message, &[], &mut plan),
                // nothing came of what was begun: it is free for those it fits
                (None, Some((refusal, true))) => {
                    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
                    let why = refused(&scene.kind.rules(), &refusal);
                    let message = format!(
                        "{} {name} was to be its own and cannot be used: {why}; another is looked for",
                        scene.kind.names.resource
                    );
                    // the claim first: whoever is about to name the resource on it is overtaken here
                    pending(scene, "Mismatch", &message, &[], &mut plan);
                    unrefer(resource, &[uid(scene.claim)], scene.now, &mut plan);
                }
                (None, Some((refusal, false))) => {
                    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
                    let reason = Reason::ReservedRefused(name.into(), refusal);
                    wait(scene, &reason, &Summary::default(), &mut plan);
                }
                (None, None) => bind(scene, resource, &mut plan),
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

/// Says that the resource of a claim no longer refers to it, and has no room to: the claim has it nevertheless, and nobody else gets it.
fn say_torn(scene: &ClaimScene<'_>, plan: &mut Plan) {
    let named = scene.claim["spec"]["resourceName"].as_str().unwrap_or_default();
    let message = format!(
        "{} {named} has no room for the reference to this claim, which somebody removed: remove others from its claimRefs",
        scene.kind.names.resource
    );
    let condition = Condition::new("Ready", false, "Torn", message.clone());
    let fields = json!({"reason": "Torn", "message": message});
    if let Some(status) = status_patch(scene.claim, fields, &[condition], scene.now) {
        plan.patch_status(scene.claim, status, "say that its reference is missing");
    }
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

/// What is to be written about a claim that the API server does not let have what it would get: why.
pub fn refused_claim(claim: &Value, reason: &'static str, message: &str, now: &str) -> Plan {
    let mut plan = Plan::default();
    // who has something keeps it, and what protects it, whatever is refused on top
    let bound = matches!(phase(claim), "Bound" | "Lost");
    let condition = Condition::new("Bound", false, reason, message);
    let conditions: &[Condition] = if bound { &[] } else { std::slice::from_ref(&condition) };
    let fields = json!({"phase": if bound { phase(claim) } else { "Pending" }, "reason": reason, "message": message});
    if let Some(status) = status_patch(claim, fields, conditions, now) {
        plan.patch_status(claim, status, "say why the claim waits");
        plan.event(claim, true, reason, message);
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

pub(super) fn reserved_for(resource: &Value, claim: &Value) -> bool {
    references(resource).iter().any(|r| {
        r["uid"].as_str().unwrap_or_default().is_empty()
            && r["namespace"] == claim["metadata"]["namespace"]
            && r["name"] == claim["metadata"]["name"]
    })
}

/// A resource that is being deleted still serves the claims it is bound to, and waits for those that name it; it takes no new ones. What
/// was made for the claim and never bound may be gone already.
pub(super) fn leaves(resource: &Value, claim: &Value) -> bool {
    let named = claim["spec"]["resourceName"].as_str() == resource["metadata"]["name"].as_str();
    let own = resource["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(claim));
    deleting(resource) && phase(resource) != "Bound" && (own || !named)
}

/// The reason of a claim that is lost with what is behind its resource.
pub(super) const RESOURCE_FAILED: &str = "ResourceFailed";

fn lost(scene: &ClaimScene<'_>, named: &str, plan: &mut Plan) {
    let kind = &scene.kind.names.resource;
    let (reason, message) = match scene.resource {
        None => ("ResourceGone", format!("{kind} {named} is gone: restore it under this name, or delete the claim")),
        Some(resource) if holds(resource, scene.claim) => {
            let why = resource["status"]["message"].as_str().unwrap_or("its conditions say why");
            (RESOURCE_FAILED, format!("{kind} {named} is {}: {why}", phase(resource)))
        }
        Some(_) => (
            "ResourceTaken",
            format!(
                "{kind} {named} is no longer this claim's: make it anew under this name, reserved for the claim, or delete the claim"
            ),
        ),
    };
    // its own failure is said, and heals by itself; the claim is lost only where the data may be
    let mut conditions = vec![Condition::new("Bound", false, reason, message.clone())];
    if condition_of(scene.claim, "Ready").is_some() {
        conditions.push(Condition::new("Ready", false, reason, message.clone()));
    }
    let fields = json!({"phase": "Lost", "reason": reason, "message": message});
    if let Some(status) = status_patch(scene.claim, fields, &conditions, scene.now) {
        plan.patch_status(scene.claim, status, "say Lost on the claim");
        if phase(scene.claim) != "Lost" {
            plan.event(scene.claim, true, "Lost", message);
        }
    }
}
