//! A claim lets go of its resource.

use serde_json::{Value, json};

use crate::lifecycle::binding::is_used;
use crate::lifecycle::claim::{ClaimScene, claims_text, holds, references, uid};
use crate::lifecycle::connection::connection_removals;
use crate::lifecycle::reclaim::scrubbed_before;
use crate::lifecycle::status::{Condition, status_patch};
use crate::lifecycle::write::{Plan, finalizer};
use crate::lifecycle::{CLAIM_FINALIZER, SHUT};

/// What keeps a claim that is to go: those who use it.
pub(crate) fn used_by(consumers: &[String]) -> String {
    let shown = consumers.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let more = consumers.len().saturating_sub(3);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("used by {shown}{more}: it goes when they are gone")
}

pub(super) fn release(scene: &ClaimScene<'_>, plan: &mut Plan) {
    let claim = scene.claim;
    let Some(rest) = finalizer(claim, CLAIM_FINALIZER, false) else { return };
    if !scene.consumers.is_empty() {
        let message = used_by(scene.consumers);
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
    if last && is_used(resource) {
        let message = "released; what becomes of it is up to its reclaimPolicy";
        let mut conditions = vec![Condition::new("Bound", false, "Released", message)];
        conditions.extend(scrubbed_before(resource));
        let fields = json!({"phase": "Released", "reason": "Released", "message": message, "claims": claims});
        if let Some(status) = status_patch(resource, fields, &conditions, now) {
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
