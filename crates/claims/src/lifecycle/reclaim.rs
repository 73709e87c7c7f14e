//! What becomes of a resource that is released or deleted: kept, scrubbed for the next, or removed with what is behind it.

use serde_json::{Value, json};

use crate::lifecycle::claim::{deleting, phase, references, uid};
use crate::lifecycle::resource::{ResourceScene, called, is_unused, lost, made_in_vain, ours, policy, say, shut};
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::write::{Plan, finalizer};
use crate::lifecycle::{PROVISIONED_FOR, RESOURCE_FINALIZER, RETAINED, SCRUB_ASKED};
use crate::views::Reclaim;

/// What becomes of a resource that nobody uses any more.
pub(super) fn reclaim(scene: &ResourceScene<'_>, plan: &mut Plan) {
    match policy(scene.resource) {
        Reclaim::Delete => retire(scene.resource, "its reclaimPolicy is Delete", plan),
        Reclaim::Retain => {
            let may = scene.kind.reclaim_policies.contains(&Reclaim::Recycle);
            let or = if may { ", or set reclaimPolicy to Recycle" } else { "" };
            let message = format!(
                "kept with its data: delete it when the data is no longer needed (its implementation stays){or}"
            );
            if scene.resource["status"]["reason"] != "Retained" {
                shut(scene, true, plan);
            }
            say(scene, "Released", "Retained", &message, json!({}), &[], plan);
        }
        Reclaim::Recycle => {
            let Some(first) = scene.found.first().and_then(|f| f.object) else {
                let message = "nothing can scrub it: it has no implementation; scrub it by hand and make it anew";
                say(scene, "Released", "CannotScrub", message, json!({}), &[], plan);
                return;
            };
            if takes_no_scrub(first) {
                return cannot_scrub(scene, first, plan);
            }
            intend_scrub(scene, first, plan);
        }
    }
}

/// Intends the next scrub: none that was asked for or answered before counts for it.
fn intend_scrub(scene: &ResourceScene<'_>, first: &Value, plan: &mut Plan) {
    let number = |v: &Value| v.as_i64().unwrap_or(0);
    let seen = [&scene.resource["status"]["scrub"], &first["spec"]["scrub"], &first["status"]["scrubbed"]];
    let next = seen.into_iter().map(number).max().unwrap_or(0).saturating_add(1);
    say(scene, "Scrubbing", "Scrubbing", SCRUBBING, json!({"scrub": next}), &[], plan);
}

/// Deletes a resource, held first: what is behind it goes with it, and an edit may have taken the finalizer that sees to that.
pub(super) fn retire(resource: &Value, why: &'static str, plan: &mut Plan) {
    match finalizer(resource, RESOURCE_FINALIZER, true).filter(|_| !deleting(resource)) {
        Some(list) => plan.patch(
            resource,
            json!({"metadata": {"finalizers": list}}),
            "hold the resource until what is behind it is gone",
        ),
        None => plan.delete(resource, why),
    }
}

const SCRUBBING: &str = "being scrubbed before it is used again";

/// How an implementation is asked for a scrub: under a number, and by its uid.
pub(crate) fn asked_for(object: &Value, number: impl std::fmt::Display) -> Value {
    json!({"annotations": {SCRUB_ASKED: format!("{number} {}", uid(object))}})
}

/// Whether a scrub that an implementation shows was asked of another: it was made anew from that one's copy, with what is in it since.
pub fn is_asked_of_another(object: &Value) -> bool {
    let asked = object["metadata"]["annotations"][SCRUB_ASKED].as_str().and_then(|asked| asked.split_once(' '));
    asked.is_some_and(|(_, whom)| whom != uid(object))
}

/// Whether an implementation was asked for a scrub and dropped the question: its kind has no such field.
pub(crate) fn takes_no_scrub(object: &Value) -> bool {
    object["metadata"]["annotations"][SCRUB_ASKED].is_string() && object["spec"]["scrub"].is_null()
}

fn cannot_scrub(scene: &ResourceScene<'_>, object: &Value, plan: &mut Plan) {
    let message = format!(
        "nothing can scrub it: a {} has no spec.scrub; scrub it by hand and make it anew, or set its reclaimPolicy to Delete or Retain",
        object["kind"].as_str().unwrap_or_default()
    );
    say(scene, "Released", "CannotScrub", &message, json!({}), &[], plan);
}

/// Drives the implementation through scrub number N; Available only when it says that N is done.
pub(super) fn scrub(scene: &ResourceScene<'_>, plan: &mut Plan) {
    let wanted = &scene.resource["status"]["scrub"];
    let Some(first) = scene.found.first().and_then(|f| f.object).filter(|o| ours(o, scene.resource) && !deleting(o))
    else {
        let name = scene.resource["status"]["implementationRef"].as_str().unwrap_or_default();
        lost(scene, name, plan);
        return;
    };
    if takes_no_scrub(first) {
        return cannot_scrub(scene, first, plan);
    }
    // what was restored from a copy has its data again, whatever the copy says of a scrub
    let copied = is_asked_of_another(first);
    let asked = first["spec"]["scrub"] == *wanted && !copied;
    let answered = first["status"]["scrubbed"] == *wanted;
    // what is being overwritten cannot be kept any more; what failed, or was not begun, can
    let begun = asked && phase(scene.resource) == "Scrubbing";
    let held = references(scene.resource).iter().any(|r| r["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
    match policy(scene.resource) {
        Reclaim::Recycle => {}
        _ if held => {}
        Reclaim::Retain if begun => {}
        Reclaim::Retain | Reclaim::Delete => return reclaim(scene, plan),
    }
    // nor does it answer to a number that it was once asked to go beyond
    let beyond = first["status"]["scrubbed"].as_i64() > wanted.as_i64();
    if beyond || (copied && answered) {
        return intend_scrub(scene, first, plan);
    }
    if !asked {
        let patch = json!({"metadata": asked_for(first, wanted), "spec": {"scrub": wanted}});
        plan.patch(first, patch, "ask for a scrub");
        plan.of_implementation();
        return;
    }
    if !answered {
        // one that cannot be scrubbed yet says why, and goes on trying
        let why = condition_of(first, "Ready").filter(|(ready, _, why)| !ready && !why.is_empty());
        let silent = first["status"]["scrubbed"].is_null() && condition_of(first, "Scrubbed").is_none();
        let message = match why {
            Some((_, _, why)) => format!("{SCRUBBING}: {why}"),
            None if silent => format!(
                "{SCRUBBING}: {} has not answered yet (its provider answers spec.scrub with status.scrubbed)",
                called(first)
            ),
            None => SCRUBBING.to_owned(),
        };
        say(scene, "Scrubbing", "Scrubbing", &message, json!({}), &[], plan);
        return;
    }
    match condition_of(first, "Scrubbed").filter(|_| !is_unknown(first, "Scrubbed")) {
        Some((true, _, _)) => {
            let done = Condition::new("Scrubbed", true, "Verified", "scrubbed and free");
            say(scene, "Available", "", "", json!({}), &[done], plan);
        }
        Some((false, _, why)) => {
            let message = format!(
                "it could not be scrubbed and is not used again: {why}; set its reclaimPolicy to Delete, or to Retain and then to Recycle to \
                 have it scrubbed once more, or delete it"
            );
            say(
                scene,
                "Failed",
                "ScrubFailed",
                &message,
                json!({}),
                &[Condition::new("Scrubbed", false, "ScrubFailed", &message)],
                plan,
            );
        }
        None => {
            let message = format!(
                "{SCRUBBING}: {} has not said how scrub {wanted} went (its provider says so with the condition Scrubbed)",
                called(first)
            );
            say(scene, "Scrubbing", "Scrubbing", &message, json!({}), &[], plan);
        }
    }
}

/// What is to be said of a scrub after which somebody used the resource: it counts for nobody else.
pub(super) fn scrubbed_before(resource: &Value) -> Option<Condition> {
    condition_of(resource, "Scrubbed")?;
    Some(Condition::new("Scrubbed", false, "Used", "used since it was last scrubbed"))
}

/// Whether somebody used a resource and it was not scrubbed since.
pub(super) fn is_unscrubbed(resource: &Value) -> bool {
    condition_of(resource, "Bound").is_some() && condition_of(resource, "Scrubbed").is_none_or(|(done, _, _)| !done)
}

/// Whether an object has a condition and does not know yet what to say of it.
fn is_unknown(object: &Value, kind: &str) -> bool {
    let list = object["status"]["conditions"].as_array().into_iter().flatten();
    list.into_iter().any(|c| c["type"] == kind && !matches!(c["status"].as_str(), Some("True" | "False")))
}

/// What keeps a resource that is to go: the claims that use it.
pub(super) fn in_use(resource: &Value) -> Option<String> {
    let live: Vec<Value> =
        references(resource).into_iter().filter(|r| r["uid"].as_str().is_some_and(|uid| !uid.is_empty())).collect();
    let first = live.first().filter(|_| deleting(resource) && !is_never_used(resource))?;
    let text = |key: &str| first[key].as_str().unwrap_or_default();
    let more = if live.len() > 1 { format!(" and {} more", live.len() - 1) } else { String::new() };
    Some(format!("used by claim {}/{}{more}: it goes when they are gone", text("namespace"), text("name")))
}

/// Whether a resource refers to no claim but the one that it was made for.
pub(super) fn is_nobody_elses(resource: &Value) -> bool {
    let own = &resource["metadata"]["annotations"][PROVISIONED_FOR];
    references(resource).iter().all(|r| r["uid"] == *own)
}

/// What was made for a claim and could never be bound to it holds nothing: the claim gets another.
fn is_never_used(resource: &Value) -> bool {
    is_unused(resource)
        && matches!(phase(resource), "" | "Pending" | "Provisioning" | "Available" | "Failed")
        && is_nobody_elses(resource)
}

/// A resource on its way out that nobody uses: by its policy with or without its implementation.
pub(super) fn remove(scene: &ResourceScene<'_>, plan: &mut Plan) {
    let resource = scene.resource;
    let Some(rest) = finalizer(resource, RESOURCE_FINALIZER, false) else { return };
    let never_used = is_never_used(resource);
    let keep = policy(resource) == Reclaim::Retain && !never_used && !made_in_vain(resource);
    let mut gone = true;
    let mut waits = Vec::new();
    for object in scene.found.iter().filter_map(|f| f.object).filter(|o| ours(o, resource)) {
        if keep {
            if object["metadata"]["annotations"][RETAINED].as_str() != Some("true") {
                plan.patch(object, json!({"metadata": {"annotations": {RETAINED: "true"}}}), "keep the implementation");
                plan.of_implementation();
            }
        } else {
            gone = false;
            if deleting(object) {
                let why = condition_of(object, "Ready").filter(|(ready, _, why)| !ready && !why.is_empty());
                let why = why.map_or_else(String::new, |(_, _, why)| format!(": {why}"));
                waits.push(format!("{}{why}", called(object)));
            } else {
                plan.delete(object, "remove the implementation");
                plan.of_implementation();
            }
        }
    }
    if gone {
        plan.patch(resource, json!({"metadata": {"finalizers": rest}}), "let the resource go");
    }
    if waits.is_empty() {
        return;
    }
    let message = format!(
        "being deleted; it goes when its implementation is gone, {}; if that can never be, remove the finalizers there: what it holds is \
         then left behind",
        waits.join(", ")
    );
    let condition = Condition::new("Removable", false, "Deleting", message.clone());
    if let Some(status) =
        status_patch(resource, json!({"reason": "Deleting", "message": message}), &[condition], scene.now)
    {
        plan.patch_status(resource, status, "say what holds the resource");
    }
}
