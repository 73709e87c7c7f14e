//! A bound claim that asks for more: its resource grows, if its class lets it.
//!
//! In steps, each seen before the next: the resource intends more (its capacity, and what the class' template makes of the request), what
//! is behind it follows and reports, and then the claim's reference takes the amount. So nothing is promised that is not there.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::extract::{ask, class_fields, class_view, offer, profile};
use crate::lifecycle::PROVISIONED_FOR;
use crate::lifecycle::claim::{ClaimScene, GRANTED, RAISED, deleting, uid};
use crate::lifecycle::status::{Condition, condition_of};
use crate::lifecycle::waiting::refused;
use crate::lifecycle::write::Plan;
use crate::matching::{Judge, capacity};
use crate::rules::Rules;
use crate::template::{Expressions, difference, merge, render};
use crate::views::{Ask, Offer};

/// Kubernetes' condition of a claim whose resource is growing.
pub(super) const RESIZING: &str = "Resizing";
/// Its reason where the resource will not grow.
pub(super) const REFUSED: &str = "ResizeRefused";

fn amount(value: &Value) -> Amount {
    Amount::from_json(value).unwrap_or_default()
}

/// Lets a class' expressions be evaluated over a claim.
struct Over<'o>(&'o dyn Expressions, &'o Value);

impl Judge for Over<'_> {
    fn accepts(&self, _: &str, _: &Ask, _: &Offer) -> Result<bool, String> {
        Err("only what a class offers is evaluated here".into())
    }

    fn compute(&self, expression: &str, _: &Ask) -> Result<Value, String> {
        self.0.evaluate(expression, &BTreeMap::from([("claim", self.1)]))
    }
}

/// The next step for a claim that its resource refers to, in `refs`; what the claim says about it.
pub(super) fn grow(
    scene: &ClaimScene<'_>,
    rules: &Rules,
    resource: &Value,
    refs: &mut [Value],
    plan: &mut Plan,
) -> Option<Condition> {
    let claim = scene.claim;
    let requests = &claim["spec"]["resources"]["requests"];
    let own = refs.iter().position(|r| r["uid"].as_str() == Some(uid(claim)))?;
    let names: Vec<&str> = rules.capacities.iter().map(|c| c.name.as_ref()).collect();
    let had = |r: &Value, name: &str| amount(&r["amounts"][name]);
    let asks_more = names.iter().any(|name| amount(&requests[*name]) > had(&refs[own], name));
    let seen = offer(rules, resource);
    let others = |name: &str| -> Amount {
        let all = refs.iter().enumerate().filter(|(i, _)| *i != own && seen.max_claims > 1);
        all.fold(Amount::ZERO, |sum, (_, r)| sum.plus(had(r, name)))
    };
    let needed: Vec<Amount> = names.iter().map(|name| others(name).plus(amount(&requests[*name]))).collect();
    let within = |capacity: &[Amount]| needed.iter().zip(capacity).all(|(needed, has)| needed <= has);
    if !asks_more || within(&seen.capacity) {
        if asks_more {
            for name in names.iter().filter(|name| !requests[**name].is_null()) {
                refs[own]["amounts"][*name] = requests[*name].clone();
            }
            plan.patch(resource, json!({"spec": {"claimRefs": refs}}), "refer to the claim with what it asks for");
        }
        // what was said before is over
        let before = condition_of(claim, RESIZING).map(|(growing, reason, _)| (growing, reason.to_owned()));
        let (growing, _) = before.filter(|(_, reason)| reason != "Resized")?;
        let message = "it has what is asked for";
        if growing {
            plan.event(claim, false, "Resized", message);
        }
        return Some(Condition::new(RESIZING, false, "Resized", message));
    }
    if deleting(resource) {
        return Some(Condition::new(
            RESIZING,
            false,
            REFUSED,
            "what it is bound to is being deleted and does not grow",
        ));
    }
    let spec = |name: &&str| Amount::from_json(&resource["spec"]["capacity"][*name]).ok();
    let intent: Vec<Amount> = names.iter().zip(&seen.capacity).map(|(n, has)| spec(n).unwrap_or(*has)).collect();
    if !within(&intent) {
        match larger(scene, rules, resource, &refs[own]["amounts"], &needed, &intent, seen.max_claims > 1) {
            Ok(_) if let Some(why) = scene.growth_refused => {
                return Some(Condition::new(RESIZING, false, REFUSED, why));
            }
            Ok(patch) => {
                grant(scene, requests, &patch["capacity"], seen.max_claims > 1, plan);
                plan.patch(resource, json!({"spec": patch}), RAISED);
            }
            Err(why) => return Some(Condition::new(RESIZING, false, REFUSED, why)),
        }
    }
    Some(match condition_of(resource, "Resized") {
        Some((false, reason, message)) => Condition::new(RESIZING, true, reason, message),
        _ => Condition::new(RESIZING, true, "Growing", "what it is bound to is being made larger"),
    })
}

/// Says on the claim what it is to have, before its resource intends it: it is charged for that, also if it asks for less again, for what
/// has grown does not shrink.
fn grant(scene: &ClaimScene<'_>, requests: &Value, raised: &Value, shared: bool, plan: &mut Plan) {
    let had = &scene.claim["status"]["granted"];
    let mut granted = had.as_object().cloned().unwrap_or_default();
    for (name, whole) in raised.as_object().into_iter().flatten() {
        // of what several share, its own part
        let own = if shared { &requests[name] } else { whole };
        if amount(own) > amount(&had[name]) {
            granted.insert(name.clone(), own.clone());
        }
    }
    if *had != Value::Object(granted.clone()) && !granted.is_empty() {
        plan.patch_status(scene.claim, json!({"granted": granted}), GRANTED);
    }
}

/// What a resource's spec is to have so that it has at least `needed`; or why that cannot be.
fn larger(
    scene: &ClaimScene<'_>,
    rules: &Rules,
    resource: &Value,
    amounts: &Value,
    needed: &[Amount],
    intent: &[Amount],
    shared: bool,
) -> Result<Value, String> {
    let (claim, kind) = (scene.claim, &scene.kind.names.resource);
    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
    let no = |why: String| format!("{why}: ask for what it has, or make another claim");
    let templates = resource["spec"]["template"].is_object() || resource["spec"]["templates"].is_array();
    let class = scene.class.filter(|class| templates && class["metadata"]["name"] == resource["spec"]["class"]);
    let Some(class) = class else { return Err(no(format!("no class makes {kind} {name} larger"))) };
    let called = class["metadata"]["name"].as_str().unwrap_or_default();
    let fields = class_fields(class);
    if fields["allowExpansion"] != true {
        return Err(no(format!("class {called} does not let what it made grow (allowExpansion)")));
    }
    let unread = |_| no(format!("class {called} cannot be read"));
    let profile = profile(rules, class, true).map_err(unread)?;
    let mut wanted = ask(rules, claim, true, None).map_err(unread)?;
    wanted.lower = needed.into();
    if shared {
        // a limit is of what this claim takes, not of what all of them share
        wanted.upper = wanted.upper.iter().map(|_| None).collect();
    }
    let (made, refusals) = capacity(rules, &Over(scene.expressions, claim), &wanted, &profile);
    if !refusals.is_empty() {
        let why = refusals.iter().map(|refusal| refused(rules, refusal)).collect::<Vec<_>>().join(", ");
        return Err(no(format!("class {called} makes none so large: {why}")));
    }
    let raised = rules.capacities.iter().zip(made.iter().zip(intent)).filter(|(_, (made, intent))| made > intent);
    let raised: Map<String, Value> =
        raised.map(|(c, (made, _))| (c.name.to_string(), json!(made.to_string()))).collect();
    let mut patch = json!({"capacity": raised});
    // of a template only what it makes of the amounts: all else may have been changed since by who may
    if resource["metadata"]["annotations"][PROVISIONED_FOR].is_string() {
        let mut before = claim.clone();
        for capacity in &rules.capacities {
            before["spec"]["resources"]["requests"][capacity.name.as_ref()] = amounts[capacity.name.as_ref()].clone();
        }
        let view = class_view(class);
        let rendered = |claim: &Value, template: &Value| {
            let scope = BTreeMap::from([("claim", claim), ("class", &view)]);
            render(template, &scope, &["resource"], scene.expressions).map_err(|e| no(format!("class {called}: {e}")))
        };
        for key in ["template", "templates"].into_iter().filter(|key| !fields[*key].is_null()) {
            let (old, new) = (rendered(&before, &fields[key])?, rendered(claim, &fields[key])?);
            patch[key] = match (resource["spec"][key].clone(), new.as_array()) {
                (Value::Array(mut all), Some(new)) => {
                    for (i, new) in new.iter().enumerate() {
                        if let Some(live) = all.iter_mut().find(|live| live["name"] == new["name"]) {
                            merge(live, &difference(&old[i], new));
                        }
                    }
                    Value::Array(all)
                }
                _ => difference(&old, &new),
            };
        }
    }
    Ok(patch)
}
