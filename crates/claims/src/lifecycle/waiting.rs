//! What a claim that waits says.

use serde_json::{Value, json};

use crate::extract::unquoted_versions;
use crate::lifecycle::claim::ClaimScene;
use crate::lifecycle::status::{Condition, condition_of, status_patch};
use crate::lifecycle::write::Plan;
use crate::matching::{Reason, Refusal, Summary};
use crate::rules::{Attribute, Rules};
use crate::types::ResourceType;
use crate::views::{Phase, Taken};

/// Says why the claim waits.
pub(super) fn wait(scene: &ClaimScene<'_>, reason: &Reason, summary: &Summary, plan: &mut Plan) {
    let kind = &scene.kind.names;
    let rules = scene.kind.rules();
    let counted = summary.text(&rules);
    let (word, message) = match reason {
        Reason::NoMatch => {
            let makes = match scene.claim["spec"]["class"].as_str() {
                None => "; it names no class that could make one (conductor classes shows those there are)".to_owned(),
                Some("") => String::new(),
                Some(class) => format!("; class {class} makes none by itself, an administrator adds them"),
            };
            ("NoMatch", counted + &makes)
        }
        Reason::NamedMissing(name) => ("NamedMissing", format!("{} {name} does not exist", kind.resource)),
        Reason::NamedRefused(name, refusal) => {
            // why it failed is the claim's to say: who made it may not see the resource
            let failed = matches!(refusal, Refusal::Taken(Taken::Phase(Phase::Failed)));
            let why = scene.resource.filter(|_| failed).and_then(|r| r["status"]["message"].as_str());
            let named = scene.claim["spec"]["resourceName"].as_str().is_some_and(|named| !named.is_empty());
            let why = match why {
                // anybody can name anything: what is behind it is for those who may see it
                Some(_) if named => ": an administrator sees why on it".to_owned(),
                Some(why) => format!(": {why}"),
                None => String::new(),
            };
            let refused = differing(scene, &rules, refusal).unwrap_or_else(|| refused(&rules, refusal));
            let message = format!("{} {name} cannot be used: {refused}{why}", kind.resource);
            // made for it: what is wrong with that is what is wrong here
            let own = scene.resource.filter(|_| failed && !named).and_then(|r| r["status"]["reason"].as_str());
            (own.unwrap_or("NamedRefused"), message)
        }
        Reason::ReservedRefused(name, refusal) => (
            "ReservedRefused",
            format!(
                "{} {name} is reserved for this claim and cannot be used: {}",
                kind.resource,
                refused(&rules, refusal)
            ),
        ),
        Reason::BeingMade(name) => {
            // what keeps it from being ready is what the claim waits for
            let why =
                scene.resource.filter(|r| condition_of(r, "Ready").is_some_and(|(_, reason, _)| reason == "NotReady"));
            let why = why.and_then(|r| r["status"]["message"].as_str()).map(|why| format!(": {why}"));
            ("Provisioning", format!("{} {name} is being made{}", kind.resource, why.unwrap_or_default()))
        }
        Reason::FirstConsumer(class) => {
            ("WaitForFirstConsumer", format!("class {class} binds when a Pod, Ingress or Service uses the claim"))
        }
        Reason::ClassMissing(class) => ("ClassMissing", format!("there is no class {class}; {counted}")),
        Reason::ClassUnserved(class) => {
            ("ClassUnserved", format!("no manager serves class {class}: add it to one; {counted}"))
        }
        Reason::ClassRefused(class, refusals) => {
            let why = refusals.iter().map(|r| not_offered(scene, &rules, r).unwrap_or_else(|| refused(&rules, r)));
            let why = why.collect::<Vec<_>>().join(", ");
            ("ClassRefused", format!("class {class} cannot make it: {why}; {counted}"))
        }
        Reason::NotAllowed(class) => ("NotAllowed", not_allowed(class)),
        Reason::TooCostly => ("ExpressionTooCostly", too_costly(&kind.resource)),
    };
    pending(scene, word, &message, &[], plan);
}

/// What resource and claim say of an attribute that is not as it should be.
fn differing(scene: &ClaimScene<'_>, rules: &Rules, refusal: &Refusal) -> Option<String> {
    let Refusal::Attribute(i) = refusal else { return None };
    let attribute = rules.attributes.get(*i)?;
    Some(format!("{} is {}, asked {}", attribute.name, said(scene.resource?, attribute), said(scene.claim, attribute)))
}

/// What a claim asks for that its class does not offer.
fn not_offered(scene: &ClaimScene<'_>, rules: &Rules, refusal: &Refusal) -> Option<String> {
    let Refusal::Attribute(i) = refusal else { return None };
    let attribute = rules.attributes.get(*i)?;
    Some(format!("it does not offer {} {}", attribute.name, said(scene.claim, attribute)))
}

/// An attribute as an object has it.
fn said(object: &Value, attribute: &Attribute) -> String {
    let names = [Some(&attribute.name), attribute.alias.as_ref()];
    let value = names.into_iter().flatten().map(|name| &object["spec"][name.as_ref()]).find(|v| !v.is_null());
    value.map_or_else(|| "none".to_owned(), |v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
}

/// Why an expression was not asked of every resource.
pub fn too_costly(resource: &str) -> String {
    format!(
        "spec.expression takes too long over every {resource} it is asked of: make it simpler, or leave it fewer by class, attributes or \
         selector"
    )
}

/// Why a class is not for the claim of somebody without the right to it.
pub(crate) fn not_allowed(class: &str) -> String {
    format!(
        "class {class} is for those who have the verb use on it, and who made this claim has not: ask an administrator for it, or \
         choose another class"
    )
}

/// A refusal for people, where the candidate is named already.
pub fn refused(rules: &Rules, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Class => "another class".into(),
        Refusal::Barred => "of a class that its maker may not use".into(),
        Refusal::Taken(Taken::Bound) => "it is bound to another claim".into(),
        Refusal::Taken(Taken::Reserved) => "it is reserved for another claim".into(),
        Refusal::Taken(Taken::Deleting) => "it is being deleted".into(),
        Refusal::Taken(Taken::Phase(phase)) => format!("it is {}", phase.name()),
        Refusal::Attribute(i) => rules.attributes.get(*i).map_or_else(String::new, |a| format!("another {}", a.name)),
        Refusal::Capability(name) => format!("cannot do {name}"),
        Refusal::Mode(name) => format!("does not allow {name}"),
        Refusal::Topology => "out of the node's reach".into(),
        Refusal::TooSmall(i) => rules.capacities.get(*i).map_or_else(String::new, |c| format!("too little {}", c.name)),
        Refusal::MakesLess(i, most) => {
            rules.capacities.get(*i).map_or_else(String::new, |c| format!("it makes at most {most} of {}", c.name))
        }
        Refusal::TooLarge(i) => {
            rules.capacities.get(*i).map_or_else(String::new, |c| format!("more {} than the limit", c.name))
        }
        Refusal::Selector => "not selected".into(),
        Refusal::Content => "makes empty ones only, and the claim names a dataSource".into(),
        Refusal::Expression(None) => "what it makes is ruled out by the claim's expression".into(),
        Refusal::Expression(Some(error)) => format!("the claim's expression fails: {error}"),
        Refusal::Offers(error) => format!("what it offers cannot be told: {error}"),
    }
}

pub(super) fn pending(scene: &ClaimScene<'_>, reason: &str, message: &str, more: &[Condition], plan: &mut Plan) {
    pending_with(scene, reason, message, more, json!({}), "say why the claim waits", plan);
}

pub(super) fn pending_with(
    scene: &ClaimScene<'_>,
    reason: &str,
    message: &str,
    more: &[Condition],
    also: Value,
    purpose: &'static str,
    plan: &mut Plan,
) {
    let mut conditions = vec![Condition::new("Bound", false, reason, message)];
    conditions.extend_from_slice(more);
    conditions.extend(quoting(scene.kind, scene.claim));
    let class = scene.class.map_or_else(|| scene.claim["spec"]["class"].clone(), |c| c["metadata"]["name"].clone());
    let mut fields = json!({"phase": "Pending", "reason": reason, "message": message, "class": class});
    for (key, value) in also.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    if let Some(status) = status_patch(scene.claim, fields, &conditions, scene.now) {
        let news = scene.claim["status"]["reason"].as_str() != Some(reason);
        plan.patch_status(scene.claim, status, purpose);
        if news {
            plan.event(scene.claim, false, "Pending", message);
        }
    }
}

/// Says of a claim or a resource that a version is a number, and no longer than it is.
pub(super) fn quoting(kind: &ResourceType, object: &Value) -> Option<Condition> {
    if let Some(first) = unquoted_versions(&kind.attributes, object).first() {
        let message = format!("{first} was written as a number: quote it, for 5.10 reads as 5.1");
        return Some(Condition::new(QUOTED, false, "Number", message));
    }
    condition_of(object, QUOTED)?;
    Some(Condition::new(QUOTED, true, "Quoted", "what is a version is written as text"))
}

/// Whether versions are written as text.
const QUOTED: &str = "VersionQuoted";
