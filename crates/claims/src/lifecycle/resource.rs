//! The life of a resource and of its implementation.

use serde_json::{Value, json};

use crate::extract::seconds;
use crate::lifecycle::binding::{is_torn, is_used, mend};
use crate::lifecycle::claim::{claims_text, deleting, is_shared, phase, references, uid};
use crate::lifecycle::implementation::{drifted, implementations, is_ready, label_value, reference_to};
use crate::lifecycle::ownership;
use crate::lifecycle::reclaim::{in_use, is_unscrubbed, reclaim, remove, retire, scrub, scrubbed_before};
use crate::lifecycle::releasing::unrefer;
use crate::lifecycle::report::{BAD_REPORT, reported, sizes};
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::waiting::quoting;
use crate::lifecycle::write::{Plan, finalizer};
use crate::lifecycle::{
    ADOPTABLE, AT_ONCE, CLAIMS, PROVISIONED_FOR, RECORDED, REPLACED, RESOURCE_FINALIZER, RESOURCE_NAME, RESOURCE_REF,
    RESOURCE_UID, RESTARTED, RETAINED, ROTATE, SHUT,
};
use crate::template::Expressions;
use crate::types::ResourceType;
use crate::views::Reclaim;

/// Whether a claim that a resource refers to is there.
#[derive(Clone, Copy, Debug)]
pub enum Presence<'p> {
    /// As it is.
    Alive(&'p Value),
    /// Gone for good: asked of the API server itself, not of a cache that may be behind.
    Gone,
    /// Not known now; nothing is taken back on a guess.
    Unknown,
}

/// One implementation and what there is of it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'f> {
    /// The live object under the implementation's name.
    pub object: Option<&'f Value>,
    /// Whether the resource its label names (if not ours) still exists.
    pub other_owner: bool,
}

/// What is to be known about a resource to say what comes next. All objects are as the API server has them.
pub struct ResourceScene<'s> {
    /// Its type.
    pub kind: &'s ResourceType,
    /// The resource.
    pub resource: &'s Value,
    /// Whether a claim with this uid is there.
    pub claims: &'s dyn Fn(&str) -> Presence<'s>,
    /// Claims that have this very resource, which refers to nobody: somebody took the references away.
    pub torn: &'s [Value],
    /// Its implementations, in the order of [`implementations`].
    pub found: &'s [Found<'s>],
    /// Evaluates templates and `readyWhen`.
    pub expressions: &'s dyn Expressions,
    /// The time to write into conditions.
    pub now: &'s str,
}

/// What becomes of a resource when it is released.
pub(crate) fn policy(resource: &Value) -> Reclaim {
    resource["spec"]["reclaimPolicy"].as_str().and_then(Reclaim::parse).unwrap_or(Reclaim::Retain)
}

/// What is to be written about a resource now.
pub fn resource(scene: &ResourceScene<'_>) -> Plan {
    let mut plan = Plan::default();
    let resource = scene.resource;
    let stale = stale_references(scene);
    if !stale.is_empty() {
        let stale: Vec<&str> = stale.iter().map(String::as_str).collect();
        unrefer(resource, &stale, scene.now, &mut plan);
        return plan;
    }
    let live: Vec<Value> =
        references(resource).into_iter().filter(|r| !r["uid"].as_str().unwrap_or_default().is_empty()).collect();
    let torn: Vec<&Value> = scene.torn.iter().filter(|claim| is_torn(resource, claim)).collect();
    if let Some(first) = torn.first() {
        if !mend(scene.kind, resource, &torn, scene.now, &mut plan) {
            let text = |key: &str| first["metadata"][key].as_str().unwrap_or_default();
            let message = format!(
                "claim {}/{} has it, and there is no room for the reference to it: remove others from spec.claimRefs",
                text("namespace"),
                text("name")
            );
            say(scene, phase(resource), "Torn", &message, json!({}), &[], &mut plan);
        }
        return plan;
    }
    acknowledge(scene, &live, &mut plan);
    tell_claims(scene, &live, &mut plan);
    shut_out(scene, &mut plan);
    if deleting(resource) {
        // for as long as it is used it is looked after like any other
        match in_use(resource) {
            // its claim is about to let go
            Some(_) if matches!(phase(resource), "Released" | "Scrubbing") => {}
            Some(_) => provide(scene, &mut plan),
            None => remove(scene, &mut plan),
        }
        return plan;
    }
    match phase(resource) {
        // one that failed in use is released all the same: it is never free with what its claim left in it
        _ if live.is_empty() && is_used(resource) => {
            let message = "released; what becomes of it is up to its reclaimPolicy";
            let mut conditions = vec![Condition::new("Bound", false, "Released", message)];
            conditions.extend(scrubbed_before(resource));
            say(scene, "Released", "Released", message, json!({}), &conditions, &mut plan);
        }
        "Released" if live.is_empty() => reclaim(scene, &mut plan),
        "Released" => {}
        "Scrubbing" => scrub(scene, &mut plan),
        "Failed" if resource["status"]["reason"].as_str() == Some("ScrubFailed") => scrub(scene, &mut plan),
        // what failed after it was used is not free as soon as it is put right
        "Failed" if live.is_empty() && is_unscrubbed(resource) => match resource["status"]["reason"].as_str() {
            // in the midst of a scrub
            Some("ImplementationLost") => scrub(scene, &mut plan),
            _ => reclaim(scene, &mut plan),
        },
        _ if live.is_empty() && made_in_vain(resource) => {
            retire(resource, "its claim went before it was bound", &mut plan);
        }
        _ => provide(scene, &mut plan),
    }
    plan
}

/// Tells the implementation of the rotation whose credentials the Secrets of all its claims have, so that it can end those from before.
fn acknowledge(scene: &ResourceScene<'_>, live: &[Value], plan: &mut Plan) {
    let Some(object) = scene.found.first().and_then(|f| f.object).filter(|o| ours(o, scene.resource)) else { return };
    let rotated = object["status"]["rotated"].as_i64().unwrap_or(0);
    let told = object["metadata"]["annotations"][REPLACED].as_str().and_then(|n| n.parse::<i64>().ok()).unwrap_or(0);
    let all = live.iter().all(|r| r["rotation"].as_i64().unwrap_or(0) >= rotated);
    if rotated > told && all && !deleting(object) {
        let patch = json!({"metadata": {"annotations": {REPLACED: rotated.to_string()}}});
        // on the resource first: whoever would bind a claim by an older look, with the old credentials, is now too late
        if scene.resource["metadata"]["annotations"][REPLACED] != patch["metadata"]["annotations"][REPLACED] {
            plan.patch(scene.resource, patch.clone(), "let no claim be bound with the old credentials any more");
        }
        plan.patch(object, patch, "say that all claims have the new credentials");
        plan.of_implementation();
    }
}

/// Whether an implementation gives each of several claims its own connection.
fn is_per_claim(object: &Value) -> bool {
    object["status"]["connections"].is_array()
}

/// Tells an implementation that gives each claim its own login which claims share it: those that are not named any more lose theirs.
fn tell_claims(scene: &ResourceScene<'_>, live: &[Value], plan: &mut Plan) {
    let Some(object) = scene.found.first().and_then(|f| f.object).filter(|o| ours(o, scene.resource)) else { return };
    if deleting(object) || !is_per_claim(object) {
        return;
    }
    let told = &object["metadata"]["annotations"][CLAIMS];
    let sharing = live.iter().filter(|_| is_shared(scene.kind, scene.resource));
    let wanted = sharing.filter_map(|r| r["uid"].as_str()).collect::<Vec<_>>().join(" ");
    if told.as_str().unwrap_or_default() != wanted {
        let patch = json!({"metadata": {"annotations": {CLAIMS: wanted}}});
        plan.patch(object, patch, "say which claims share the implementation");
        plan.of_implementation();
    }
}

/// Has the credentials replaced that one of several claims had. A rotation that is under way may have given it the next ones already:
/// then there is another one afterwards.
fn shut_out(scene: &ResourceScene<'_>, plan: &mut Plan) {
    if scene.resource["metadata"]["annotations"][SHUT].is_null() {
        return;
    }
    let begun = plan.writes.len();
    // who had its own has lost it
    let own = scene.found.first().and_then(|f| f.object).is_some_and(is_per_claim);
    if !own {
        shut(scene, false, plan);
    }
    if own || plan.writes.len() > begun || scene.found.is_empty() {
        plan.patch(scene.resource, json!({"metadata": {"annotations": {SHUT: null}}}), "say that they are replaced");
    }
}

/// Has the credentials replaced that a claim had: its data is kept, and is no longer its user's to read. What is removed or scrubbed
/// afterwards loses them anyway.
pub(super) fn shut(scene: &ResourceScene<'_>, at_once: bool, plan: &mut Plan) {
    let Some(object) = scene.found.first().and_then(|f| f.object).filter(|o| ours(o, scene.resource)) else { return };
    let asked = object["metadata"]["annotations"][ROTATE].as_str().and_then(|n| n.parse().ok()).unwrap_or(0);
    let [wanted, done] = [&object["spec"]["rotate"], &object["status"]["rotated"]].map(|n| n.as_i64().unwrap_or(0));
    let next = wanted.max(done).saturating_add(1);
    // one that is asked for and not yet done is this one
    if !deleting(object) && next > asked {
        let mut annotations = json!({ROTATE: next.to_string()});
        if at_once {
            annotations[AT_ONCE] = json!(next.to_string());
        }
        let patch = json!({"metadata": {"annotations": annotations}});
        plan.patch(object, patch, "replace the credentials that the claim had");
        plan.of_implementation();
    }
}

/// What is to be written about a resource that something outside keeps from being made.
pub fn resource_failed(resource: &Value, reason: &str, message: &str, now: &str) -> Plan {
    let mut plan = Plan::default();
    let condition = Condition::new("Ready", false, reason, message);
    // one that is used or was, and may have to be scrubbed first, is still that
    let phase = match phase(resource) {
        kept @ ("Bound" | "Released" | "Scrubbing") => kept,
        _ => "Failed",
    };
    let fields = json!({"phase": phase, "reason": reason, "message": message});
    if let Some(status) = status_patch(resource, fields, &[condition], now) {
        plan.patch_status(resource, status, "say what keeps the resource from being made");
        plan.event(resource, true, "Failed", message);
    }
    plan
}

/// Whether a resource is to go and was not yet bound: whether a claim names it is to be asked of the API server itself.
pub fn is_leaving(resource: &Value) -> bool {
    deleting(resource) && phase(resource) != "Bound" && condition_of(resource, "Bound").is_none_or(|(used, _, _)| !used)
}

/// References by a manager whose claim is gone or is another resource's; and an administrator's whose claim is gone.
fn stale_references(scene: &ResourceScene<'_>) -> Vec<String> {
    let name = &scene.resource["metadata"]["name"];
    // a bind that was begun before somebody deleted the resource will not come about, unless the claim names it already
    let unbindable = is_leaving(scene.resource);
    let stale = |r: &Value| {
        let claim = r["uid"].as_str().filter(|u| !u.is_empty())?;
        let gone = match (scene.claims)(claim) {
            Presence::Gone => true,
            Presence::Unknown => false,
            Presence::Alive(object) => {
                let named = object["spec"]["resourceName"].as_str().unwrap_or_default();
                let elsewhere = Some(named) != name.as_str() && (!named.is_empty() || unbindable);
                (r["by"].as_str() == Some("Manager") || unbindable) && elsewhere
            }
        };
        gone.then(|| claim.to_owned())
    };
    references(scene.resource).iter().filter_map(stale).collect()
}

/// Made for a claim, and never bound.
pub(super) fn is_unused(resource: &Value) -> bool {
    resource["metadata"]["annotations"][PROVISIONED_FOR].is_string() && condition_of(resource, "Bound").is_none()
}

/// Made for a claim that went before it was ever bound: it holds nothing. One that is recycled, and can be used, stays for the next.
pub(super) fn made_in_vain(resource: &Value) -> bool {
    resource["metadata"]["annotations"][PROVISIONED_FOR].is_string()
        && (policy(resource) != Reclaim::Recycle || phase(resource) != "Available")
        && references(resource).is_empty()
        && matches!(phase(resource), "" | "Pending" | "Provisioning" | "Available" | "Failed")
        && condition_of(resource, "Bound").is_none()
}

pub(super) fn say(
    scene: &ResourceScene<'_>,
    phase_now: &str,
    reason: &str,
    message: &str,
    more: Value,
    conditions: &[Condition],
    plan: &mut Plan,
) {
    let claims = claims_text(&references(scene.resource));
    let mut fields = json!({"phase": phase_now, "reason": reason, "message": message, "claims": claims});
    if reason.is_empty() {
        (fields["reason"], fields["message"]) = (Value::Null, Value::Null);
    }
    let mut conditions = conditions.to_vec();
    if let Some(held) = in_use(scene.resource) {
        if reason.is_empty() {
            (fields["reason"], fields["message"]) = (json!("InUse"), json!(held));
        }
        conditions.push(Condition::new("Removable", false, "InUse", held));
    }
    conditions.extend(quoting(scene.kind, scene.resource));
    for (key, value) in more.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    if let Some(status) = status_patch(scene.resource, fields, &conditions, scene.now) {
        plan.patch_status(scene.resource, status, "say where the resource is in its life");
        if matches!(phase_now, "Failed") && phase(scene.resource) != phase_now {
            plan.event(scene.resource, true, "Failed", message);
        }
    }
}

/// Kind and name.
pub(super) fn called(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Whether an object may hold credentials, and nobody who may write it has said that it is to be adopted: who makes resources may not be
/// who reads such objects, and what is adopted is shown to claims and removed with its resource.
fn is_withheld(object: &Value) -> bool {
    let says = |name: &str| object["metadata"]["annotations"][name].as_str() == Some("true");
    object["apiVersion"] == "v1" && object["kind"] == "Secret" && !says(ADOPTABLE) && !says(RETAINED)
}

/// The resource that an implementation says it is of.
fn owner_of(object: &Value) -> String {
    let said = object["metadata"]["annotations"][RESOURCE_REF].as_str().unwrap_or_default();
    let mut parts = said.split(' ').skip(1);
    match (parts.next(), parts.next()) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        _ => "another resource".to_owned(),
    }
}

/// Whether an implementation is this resource's: made for it, or adopted. Nothing of any other is anybody's to hear of.
pub fn ours(object: &Value, resource: &Value) -> bool {
    object["metadata"]["labels"][RESOURCE_UID].as_str() == Some(uid(resource))
}

pub(super) fn lost(scene: &ResourceScene<'_>, name: &str, plan: &mut Plan) {
    let message = format!(
        "its implementation {name} vanished and may have held data: restore it under this name with the label {RESOURCE_UID}: {}, or \
         delete the resource",
        uid(scene.resource)
    );
    let condition = Condition::new("Ready", false, "ImplementationLost", message.clone());
    say(scene, "Failed", "ImplementationLost", &message, json!({}), &[condition], plan);
}

/// Makes or adopts the implementations and says when the resource is Available.
fn provide(scene: &ResourceScene<'_>, plan: &mut Plan) {
    let resource = scene.resource;
    let before = phase(resource);
    let bound = condition_of(resource, "Bound").is_some_and(|(now, _, _)| now) && !references(resource).is_empty();
    let fail = |reason: &str, message: &str, plan: &mut Plan| {
        let condition = Condition::new("Ready", false, reason, message);
        say(scene, "Failed", reason, message, json!({}), &[condition], plan);
    };
    let intended = match implementations(scene.kind, resource, scene.expressions) {
        Ok(intended) => intended,
        Err(message) => return fail("TemplateFailed", &message, plan),
    };
    // the intent is durable before the outside world is touched
    if !intended.is_empty()
        && !deleting(resource)
        && let Some(list) = finalizer(resource, RESOURCE_FINALIZER, true)
    {
        plan.patch(
            resource,
            json!({"metadata": {"finalizers": list}}),
            "hold the resource while it has an implementation",
        );
    }
    let recorded = resource["status"]["implementations"].as_array().cloned().unwrap_or_default();
    // made for a claim that was never bound to it: it holds nothing, and is made again if it vanishes
    let unused = is_unused(resource);
    let mut vanished = false;
    let mut records = Vec::new();
    for (i, implementation) in intended.iter().enumerate() {
        let target = &implementation.target;
        let object = scene.found.get(i).and_then(|f| f.object);
        let mut record = json!({
            "apiVersion": target.api_version, "kind": target.kind, "namespace": target.namespace, "name": target.name,
        });
        let old = recorded.get(i).map_or(&Value::Null, |r| &r["uid"]);
        match object.filter(|o| ours(o, resource)) {
            Some(object) => record["uid"] = object["metadata"]["uid"].clone(),
            None if !old.is_null() && !implementation.replaceable && !unused => record["uid"] = old.clone(),
            None => vanished |= !old.is_null() && object.is_none() && unused,
        }
        records.push(record);
    }
    let mut progress = json!({});
    if !records.is_empty() {
        progress["implementations"] = json!(records);
        progress["implementationRef"] = records[0]["name"].clone();
    }
    // whoever would bind the claim by an older look is too late once this is written, and it is written first
    let preparing = matches!(before, "" | "Pending") && !intended.is_empty() || vanished;
    if preparing {
        let condition = Condition::new("Ready", false, "Provisioning", "its implementation is being made");
        say(
            scene,
            "Provisioning",
            "Provisioning",
            "its implementation is being made",
            progress.clone(),
            &[condition],
            plan,
        );
    }
    let mut ready = true;
    let mut why = String::new();
    for (i, implementation) in intended.iter().enumerate() {
        let found = scene.found.get(i).copied().unwrap_or(Found { object: None, other_owner: false });
        let kept = &records[i]["uid"];
        let name = format!("{} {}", implementation.target.kind, implementation.target.name);
        let Some(object) = found.object else {
            match &implementation.wanted {
                _ if !kept.is_null() => return lost(scene, &implementation.target.name, plan),
                Some(wanted) => {
                    plan.create(wanted.clone(), "make the implementation");
                    plan.of_implementation();
                }
                None => why = format!("{name} does not exist"),
            }
            ready = false;
            continue;
        };
        if !ours(object, resource) {
            let willing = !deleting(object) && !is_withheld(object);
            let adoptable = implementation.wanted.is_none() && !found.other_owner && willing;
            if !adoptable {
                let why = match implementation.wanted {
                    // whoever restores what vanished may have forgotten whose it is
                    Some(_) if recorded.get(i).is_some_and(|r| !r["uid"].is_null()) => {
                        let label = format!("{RESOURCE_UID}: {}", uid(resource));
                        let message = format!(
                            "{name} exists without the label {label}: set it if this is what was lost, or remove it"
                        );
                        return fail("NameTaken", &message, plan);
                    }
                    // there may be data in it: nobody is told to remove it
                    Some(_) if found.other_owner => {
                        format!("is the implementation of {}: make this resource under another name", owner_of(object))
                    }
                    Some(_) if object["metadata"]["annotations"][RETAINED].as_str() == Some("true") => {
                        "was kept with the data of a resource that is gone: adopt it with implementationRef, or make this resource \
                         under another name"
                            .to_owned()
                    }
                    Some(_) => {
                        "exists and is not this resource's: make this resource under another name, or adopt it with \
                         implementationRef"
                            .to_owned()
                    }
                    None if found.other_owner => {
                        format!("is the implementation of {}: adopt one that is nobody's", owner_of(object))
                    }
                    None if is_withheld(object) => format!(
                        "is adopted only where whoever may write it says so: it needs the annotation {ADOPTABLE}: \"true\""
                    ),
                    None => "is being deleted: adopt one that stays".to_owned(),
                };
                return fail("NameTaken", &format!("{name} {why}"), plan);
            }
            let labels = json!({RESOURCE_UID: uid(resource), RESOURCE_NAME: label_value(resource["metadata"]["name"].as_str().unwrap_or_default())});
            plan.patch(
                object,
                json!({"metadata": {"labels": labels, "annotations": {RETAINED: null, RESOURCE_REF: reference_to(resource)}}}),
                "adopt the implementation",
            );
            plan.of_implementation();
            ready = false;
            continue;
        }
        if !kept.is_null() && kept != &object["metadata"]["uid"] {
            return lost(scene, &implementation.target.name, plan);
        }
        if deleting(object) {
            ready = false;
            why = format!("{name} is being deleted by someone else");
            continue;
        }
        if object["metadata"]["annotations"][RECORDED].as_str() != Some("true") {
            plan.patch(
                object,
                json!({"metadata": {"annotations": {RECORDED: "true"}}}),
                "mark the implementation as in service",
            );
            plan.of_implementation();
        }
        if let Some(wanted) = implementation.wanted.as_ref().filter(|w| drifted(object, w)) {
            if let Some(owners) = ownership::applied(object).filter(|_| ownership::is_outdated(object, wanted)) {
                plan.patch(object, json!({"metadata": {"managedFields": owners}}), "own what the template named");
                plan.of_implementation();
            }
            plan.apply(object, wanted.clone(), BACK_TO_TEMPLATE);
            plan.of_implementation();
        }
        match is_ready(implementation, object, resource, scene.expressions) {
            Ok(true) => {}
            Ok(false) => {
                ready = false;
                let said = condition_of(object, "Ready").map_or("", |(_, _, message)| message);
                // the provider's word that what it held is gone: its claims are lost, until it is back
                if condition_of(object, "Ready").is_some_and(|(_, reason, _)| reason == "Lost") {
                    return fail("Lost", &format!("{name} has lost its data: {said}"), plan);
                }
                why = match said {
                    "" if !implementation.ready_when.is_empty() => {
                        format!("{name} is not ready: readyWhen does not hold yet")
                    }
                    // nobody may be there to report
                    "" if is_silent(object, scene.now) => {
                        format!("{name} is not ready: nothing has reported on it yet; does its provider run?")
                    }
                    "" => format!("{name} is not ready yet"),
                    said => format!("{name} is not ready: {said}"),
                };
            }
            Err(error) => {
                ready = false;
                why = format!("readyWhen of {name} failed: {error}");
            }
        }
    }
    if preparing {
        return;
    }
    if !ready {
        // a resource in use that is not ready for a while stays in use
        let phase_now = if bound || before == "Bound" { "Bound" } else { "Provisioning" };
        let message = if why.is_empty() { "its implementation is being made".to_owned() } else { why };
        let mut conditions = vec![Condition::new("Ready", false, "NotReady", message.clone())];
        conditions.extend(sizes(scene));
        return say(scene, phase_now, "NotReady", &message, progress, &conditions, plan);
    }
    let (report, read) = reported(scene);
    for (key, value) in report {
        progress[key.as_str()] = value;
    }
    let phase_now = if bound || before == "Bound" { "Bound" } else { "Available" };
    // an interruption is over soon, and may be over before anyone looks: that there was one stays to be read
    let restarted = scene.found.iter().filter_map(|f| condition_of(f.object?, "Ready"));
    let restarted = restarted.into_iter().find(|(ready, reason, _)| *ready && *reason == RESTARTED);
    let condition = match restarted {
        Some((_, reason, message)) => Condition::new("Ready", true, reason, message),
        None => Condition::new("Ready", true, "Ready", "ready to be used"),
    };
    let bad = read.as_ref().filter(|read| !read.status).map(|read| read.message.clone()).unwrap_or_default();
    let reason = if bad.is_empty() { "" } else { BAD_REPORT };
    let conditions: Vec<Condition> = std::iter::once(condition).chain(sizes(scene)).chain(read).collect();
    say(scene, phase_now, reason, &bad, progress, &conditions, plan);
}

/// The purpose of the write that makes an implementation what its template says.
pub const BACK_TO_TEMPLATE: &str = "bring the implementation back to its template";

/// How many seconds an implementation may take until something reports on it.
pub const SILENCE: i64 = 10;

/// Whether nothing has reported on an implementation for so long that there may be nobody to.
fn is_silent(object: &Value, now: &str) -> bool {
    let made = seconds(object["metadata"]["creationTimestamp"].as_str().unwrap_or_default());
    object["status"].is_null() && seconds(now) - made >= SILENCE
}
