//! What is made for a claim from its class.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::extract::{class_fields, class_view};
use crate::lifecycle::claim::{ClaimScene, GRANTED, deleting, holds, references, uid};
use crate::lifecycle::implementation::implementations;
use crate::lifecycle::reclaim::{is_nobody_elses, retire};
use crate::lifecycle::resource::is_unused;
use crate::lifecycle::status::instead;
use crate::lifecycle::waiting::{pending, pending_with};
use crate::lifecycle::write::Plan;
use crate::lifecycle::{PROVISIONED_FOR, RESOURCE_FINALIZER};
use crate::matching::{Exemption, Made, NoJudge, Refusal, free_choice, refusals};
use crate::rules::{Rules, Want};
use crate::template::render;
use crate::views::ClassAsk;

/// What was begun for the claim and never was ready follows its class: nothing is in it yet, and a mistake in the class can be mended. Of
/// another kind it is made only for a new claim.
pub(super) fn renew(scene: &ClaimScene<'_>, plan: &mut Plan) {
    let own = |r: &&Value| r["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(scene.claim));
    let (Some(resource), Some(class)) = (scene.resource.filter(own), scene.class) else { return };
    if deleting(resource) || resource["spec"]["class"] != class["metadata"]["name"] {
        return;
    }
    let Ok(wanted) = from_class(scene, class) else { return };
    let kinds = |spec: &dyn Fn(&str) -> Value| {
        let one = |template: &Value| (template["apiVersion"].clone(), template["kind"].clone());
        let named = |item: &Value| (item["name"].clone(), one(&item["template"]));
        let several = spec("templates").as_array().into_iter().flatten().map(named).collect::<Vec<_>>();
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

/// Whether what was made for the claim, and was never bound, was made for something else than the claim asks for now.
pub(super) fn is_superseded(scene: &ClaimScene<'_>, resource: &Value) -> bool {
    let (claim, rules) = (scene.claim, scene.kind.rules());
    let made = resource["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(claim));
    let named = claim["spec"]["resourceName"].as_str().is_some_and(|name| !name.is_empty());
    let own = references(resource).into_iter().find(|r| r["uid"].as_str() == Some(uid(claim)));
    let Some(own) =
        own.filter(|_| made && !named && is_unused(resource) && is_nobody_elses(resource) && !deleting(resource))
    else {
        return false;
    };
    let Ok(ask) = crate::extract::ask(&rules, claim, true, None) else { return false };
    // as it was to be: what is reported otherwise is its class's mistake, and would be so again
    let mut intended = resource.clone();
    intended["status"] = json!({"phase": "Available"});
    let intended = crate::extract::offer(&rules, &intended);
    let class = match &ask.wish.class {
        ClassAsk::Named(class) => Some(class) != intended.shape.class.as_ref(),
        ClassAsk::Without => intended.shape.class.is_some(),
        ClassAsk::Unset => false,
    };
    let amount = |value: &Value| Amount::from_json(value).unwrap_or_default();
    let asked = |name: &str| amount(&claim["spec"]["resources"]["requests"][name]);
    let amounts = rules.capacities.iter().any(|c| asked(&c.name) != amount(&own["amounts"][c.name.as_ref()]));
    let exempt = Exemption { selector: true, ..Exemption::reserved() };
    // what the class left for whoever makes it to choose is nothing that it was not made for
    let open = |refusal: &Refusal| match refusal {
        Refusal::Attribute(at) => {
            let left = intended.shape.attributes.get(*at).is_none_or(Option::is_none);
            let want = ask.wish.attributes.get(*at).and_then(Option::as_ref);
            // a range that names a version would have been made with it
            left && matches!(want, Some(Want::Range(_))) && free_choice(rules.attributes[*at].matching, want).is_none()
        }
        _ => false,
    };
    class || amounts || refusals(&rules, &NoJudge, None, &ask, &intended, exempt).iter().any(|why| !open(why))
}

/// Gives back what was made for something else: there is nothing in it, and what the claim asks for now is made in its place.
pub(super) fn give_back(scene: &ClaimScene<'_>, resource: &Value, plan: &mut Plan) {
    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
    let message = format!(
        "{} {name} was begun for what the claim asked for before: it is removed first",
        scene.kind.names.resource
    );
    // the claim first: whoever looked at an older one is overtaken here
    // and is no longer charged for it
    pending_with(scene, "Provisioning", &message, &[], json!({"granted": null}), GRANTED, plan);
    retire(resource, "the claim asks for something else now", plan);
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

pub(super) fn provision(scene: &ClaimScene<'_>, class: &str, made: &Made, plan: &mut Plan) {
    let (claim, kind) = (scene.claim, scene.kind);
    let name = ClaimScene::made_name(kind, claim);
    if let Some(taken) = scene.resource.filter(|r| r["metadata"]["name"].as_str() == Some(&name)) {
        let own = taken["metadata"]["annotations"][PROVISIONED_FOR].as_str() == Some(uid(claim));
        if own && deleting(taken) {
            let message = format!("{} {name} is removed first, and then made anew", kind.names.resource);
            return pending(scene, "Provisioning", &message, &[], plan);
        }
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
