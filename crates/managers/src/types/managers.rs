//! Manager objects: which classes are served, which stands in for none, and how much there is of each.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use conductor_claims::extract::class_fields;
use conductor_claims::lifecycle::{Condition, condition_of, status_patch};
use conductor_claims::review::{NO_DEFAULT, Serving, serving, standing, stands_for};
use conductor_claims::template::Expressions;
use conductor_claims::views::Phase;
use conductor_claims::volumes::PROVISIONER;
use http::Method;
use serde_json::{Value, json};

use super::{API_VERSION, Types, VOLUMES};
use crate::api::{FIELD_MANAGER, Failure, JSON, MERGE, typed};
use crate::clock::now;
use crate::desk::Desk;
use crate::expressions::Evaluator;
use crate::kind::Kind;
use crate::volumes::TEMPLATE;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a manager asks for that managers do not do yet: said, for whoever relies on it would learn it too late.
fn not_kept(manager: &Value) -> Option<Condition> {
    const LATER: [&str; 5] = ["maxInstances", "minFree", "maxFree", "sizeDistribution", "scrub"];
    let classes = manager["spec"]["classes"].as_array().into_iter().flatten();
    let asked = classes.flat_map(|class| {
        let fields = LATER.iter().filter(|field| !class[**field].is_null());
        fields.map(|field| format!("{field} of class {}", text(&class["name"])))
    });
    // the tightest fit is what there is
    let scores = manager["spec"]["scoring"].as_array().into_iter().flatten().map(|score| text(&score["name"]));
    let scores = scores.filter(|name| *name != "TightestFit").map(|name| format!("scoring by {name}"));
    let asked: Vec<String> = asked.chain(scores).collect();
    let message = format!(
        "{}: pools of resources made ahead are not kept yet, nor limits of their number, nor any scoring but TightestFit",
        asked.join(", ")
    );
    match (asked.is_empty(), condition_of(manager, KEPT)) {
        (false, _) => Some(Condition::new(KEPT, false, "NotYet", message)),
        (true, Some(_)) => Some(Condition::new(KEPT, true, "Nothing", "nothing is asked of it that is not done")),
        (true, None) => None,
    }
}

/// What a manager of volumes asks for in vain, if it was there before that was refused.
fn not_default(manager: &Value) -> Option<Condition> {
    let asked = manager["spec"]["type"] == VOLUMES && !text(&manager["spec"]["defaultClass"]).is_empty();
    match (asked, condition_of(manager, STANDS_IN)) {
        (true, _) => Some(Condition::new(STANDS_IN, false, "SaidOnStorageClass", NO_DEFAULT)),
        (false, Some(_)) => Some(Condition::new(STANDS_IN, true, "Nothing", "nothing is asked of it that is not done")),
        (false, None) => None,
    }
}

/// Tells a desk of volumes which StorageClasses are served; which of them stands in is said on them.
fn serve_volumes(desk: &Desk, served: Option<HashSet<String>>) {
    {
        let mut state = desk.state.lock();
        if state.served == served {
            return;
        }
        state.served = served;
        desk.set_classes(&mut state);
    }
    desk.touch_waiting();
}

/// Whether the class that a manager names stands in for claims that name none.
const STANDS_IN: &str = "DefaultClassKept";
/// Whether a manager does all that is asked of it.
const KEPT: &str = "PoolsKept";

impl Types {
    /// Tells every desk what the managers serve, as soon as they are known: a desk that has not been told makes nothing.
    pub(super) fn brief(&self) {
        let managers: Vec<Value> = {
            let known = self.known.lock();
            if !known.managers_shown {
                return;
            }
            known.managers.values().cloned().collect()
        };
        for desk in self.desks.all() {
            let Serving { classes, default } = serving(&desk.kind.name(), &managers);
            let classes = classes.map(|all| all.into_iter().collect());
            match &desk.kind {
                Kind::Generated(_) => desk.set_served(classes, default.map(Arc::from)),
                Kind::Volumes => serve_volumes(&desk, classes),
            }
            desk.may_begin();
        }
    }

    /// Tells every desk what the managers serve, and every manager how it stands.
    pub(super) async fn serve(&self) -> Result<(), Failure> {
        self.brief();
        let managers: Vec<Value> = {
            let mut known = self.known.lock();
            known.awaited = false;
            known.managers.values().cloned().collect()
        };
        for manager in &managers {
            self.report(manager, &managers).await?;
        }
        self.forget_unasked();
        Ok(())
    }

    /// Makes the manager of a type that is new: it serves every class that no other lists. It goes with its type.
    pub(super) async fn introduce(&self, kind: &str, plural: &str, owner: Option<&Value>) -> Result<(), Failure> {
        let mut manager = json!({
            "apiVersion": API_VERSION, "kind": "Manager", "metadata": {"name": plural}, "spec": {"type": kind},
        });
        if let Some(owner) = owner {
            manager["metadata"]["ownerReferences"] = json!([{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"],
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }]);
        }
        let path = format!("/apis/{API_VERSION}/managers?fieldManager={FIELD_MANAGER}");
        match self.cx.api.call(Method::POST, &path, JSON, manager.to_string().into_bytes()).await {
            // one of this name is there, or admission knows another that does the same: nothing is missing
            Err(failure) if failure.code != 409 && !failure.is_refusal() => Err(failure),
            _ => Ok(()),
        }
    }

    /// The same for volumes, whose type has no beginning: where there is any, who removed that one had a reason.
    pub(super) async fn introduce_volumes(&self) -> Result<(), Failure> {
        let managers = self.cx.api.list(API_VERSION, "Manager", "").await?;
        match managers.iter().any(|manager| manager["spec"]["type"] == VOLUMES) {
            true => Ok(()),
            false => self.introduce(VOLUMES, VOLUMES, None).await,
        }
    }

    async fn report(&self, manager: &Value, all: &[Value]) -> Result<(), Failure> {
        let standing = standing(manager, all);
        let kind = text(&manager["spec"]["type"]);
        let desk = self.desks.get(kind);
        let condition = match (&desk, standing.conflicts.is_empty()) {
            (None, _) => Condition::new("Active", false, "TypeMissing", format!("there is no resource type {kind}")),
            (_, true) => Condition::new("Active", true, "Serving", "all its classes are its own"),
            (_, false) => {
                let inactive = standing.classes.is_empty() && !standing.default && !standing.rest;
                let message = format!("{}: the older manager stands", standing.conflicts.join("; "));
                Condition::new("Active", !inactive, "Conflict", message)
            }
        };
        let is_served = desk.is_some();
        let mut classes = Vec::new();
        if let Some(desk) = desk {
            for (name, class, count) in census(&desk, manager, all) {
                let (lacks, most) = match &class {
                    None => (Some(format!("there is no class {name}")), BTreeMap::new()),
                    Some(class) => self.means(&desk.kind, class).await?,
                };
                let mut entry = json!({
                    "name": name, "available": lacks.is_none(), "instances": count.instances, "free": count.free,
                    "bound": count.bound, "scrubbing": count.scrubbing, "failed": count.failed,
                });
                if let Some(lacks) = lacks {
                    entry["message"] = json!(lacks);
                }
                if !most.is_empty() {
                    entry["most"] = json!(most);
                }
                classes.push(entry);
            }
        }
        let conditions: Vec<Condition> =
            [Some(condition), not_kept(manager), not_default(manager)].into_iter().flatten().collect();
        let shown = |available: bool| {
            let names =
                classes.iter().filter(|class| class["available"] == available).map(|class| text(&class["name"]));
            let names: Vec<&str> = names.collect();
            if names.is_empty() { Value::Null } else { json!(names.join(", ")) }
        };
        let asks = manager["spec"]["default"] == true;
        let default = if asks { json!(standing.default && is_served) } else { Value::Null };
        let fields = json!({"served": shown(true), "lacking": shown(false), "classes": classes, "default": default});
        let Some(status) = status_patch(manager, fields, &conditions, &now()) else {
            return Ok(());
        };
        let patch = json!({"metadata": {"uid": manager["metadata"]["uid"]}, "status": status});
        let path = format!("/apis/{API_VERSION}/managers/{}/status", text(&manager["metadata"]["name"]));
        match self.cx.api.call(Method::PATCH, &path, MERGE, patch.to_string().into_bytes()).await {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }

    /// What is missing for a class to make resources here (`None`: nothing, or it makes none), and the most it makes of each capacity.
    async fn means(&self, kind: &Kind, class: &Arc<Value>) -> Result<(Option<String>, Most), Failure> {
        let (maker, templates): (Arc<Value>, Vec<Value>) = match kind {
            Kind::Generated(_) => {
                let fields = class_fields(class);
                let many = fields["templates"].as_array().into_iter().flatten().map(|t| t["template"].clone());
                (class.clone(), many.chain(Some(fields["template"].clone())).filter(Value::is_object).collect())
            }
            Kind::Volumes if text(&class["provisioner"]) != PROVISIONER => (class.clone(), Vec::new()),
            Kind::Volumes => {
                let name = text(&class["parameters"]["template"]);
                let Some(template) = self.cx.api.get(TEMPLATE.0, TEMPLATE.1, "", name).await? else {
                    let lack = format!("there is no {} {name:?}, which its parameters name", TEMPLATE.1);
                    return Ok((Some(lack), Most::new()));
                };
                let templates = vec![template["spec"]["template"].clone()];
                (Arc::new(typed(template, TEMPLATE.0, TEMPLATE.1)), templates)
            }
        };
        for template in &templates {
            if let Some(lack) = self.unserved(template).await? {
                return Ok((Some(lack), Most::new()));
            }
        }
        if let Some(fault) = self.faults(kind, &maker, &templates).await? {
            return Ok((Some(fault), Most::new()));
        }
        if let Some(lack) = templates.iter().find_map(|template| self.lack_of(template, class)) {
            return Ok((Some(lack), Most::new()));
        }
        let known = self.known.lock();
        let kinds: Vec<&Value> = known.providers.values().flat_map(kinds_of).collect();
        Ok((None, templates.iter().flat_map(|template| bounds(template, &kinds)).collect()))
    }

    /// What the provider of a template's kind says its machine lacks, for the kind or for what the template makes of it.
    fn lack_of(&self, template: &Value, class: &Value) -> Option<String> {
        let known = self.known.lock();
        let own: Vec<&Value> = known.providers.values().flat_map(kinds_of).filter(|k| is_of(k, template)).collect();
        let some = own.iter().flat_map(|k| k["lacks"].as_array().into_iter().flatten());
        let mut made = some.filter(|lack| makes(lack, template, class));
        let lacking = own.iter().find(|k| k["available"] == false).copied().or_else(|| made.next())?;
        Some(text(&lacking["message"]).to_owned())
    }
}

/// Amounts by the capacity they are of.
type Most = BTreeMap<String, String>;

/// What a provider says of its kinds.
fn kinds_of(provider: &Value) -> impl Iterator<Item = &Value> {
    provider["status"]["kinds"].as_array().into_iter().flatten()
}

fn is_of(kind: &Value, template: &Value) -> bool {
    kind["apiVersion"] == template["apiVersion"] && kind["kind"] == template["kind"]
}

/// The most that a template can make of each capacity: what its provider says about the fields that a capacity is put into.
fn bounds(template: &Value, kinds: &[&Value]) -> Most {
    let mut all = Most::new();
    let own = kinds.iter().filter(|kind| is_of(kind, template));
    for (field, most) in own.flat_map(|kind| kind["most"].as_object().into_iter().flatten()) {
        let expression = text(&template["spec"][field]).trim().strip_prefix("${").and_then(|e| e.strip_suffix('}'));
        let path = expression.unwrap_or_default().trim();
        let capacity = ["claim.spec.resources.requests.", "resource.spec.capacity."];
        let capacity = capacity.iter().find_map(|stem| path.strip_prefix(stem)).filter(|name| is_word(name));
        if let (Some(capacity), Some(most)) = (capacity, most.as_str()) {
            all.insert(capacity.to_owned(), most.to_owned());
        }
    }
    all
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a template of a class makes objects with a field as it is lacking for, as far as that is known without a claim.
fn makes(lack: &Value, template: &Value, class: &Value) -> bool {
    let field = &template["spec"][text(&lack["field"])];
    let expression = field.as_str().and_then(|text| text.trim().strip_prefix("${")?.strip_suffix('}'));
    match expression {
        Some(expression) => {
            let scope = BTreeMap::from([("class", class)]);
            Evaluator::default().evaluate(expression, &scope).is_ok_and(|value| value == lack["value"])
        }
        None => *field == lack["value"],
    }
}

#[derive(Default)]
struct Count {
    instances: u64,
    free: u64,
    bound: u64,
    scrubbing: u64,
    failed: u64,
}

/// The classes of a manager, each with its object if there is one, and how much there is of it.
fn census(desk: &Desk, manager: &Value, all: &[Value]) -> Vec<(String, Option<Arc<Value>>, Count)> {
    let state = desk.state.lock();
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for offer in state.index.offers() {
        let Some(class) = offer.shape.class.as_deref() else { continue };
        let count = counts.entry(class).or_default();
        count.instances += 1;
        count.free += u64::from(offer.taken().is_none());
        match offer.phase {
            Phase::Bound => count.bound += 1,
            Phase::Scrubbing => count.scrubbing += 1,
            Phase::Failed => count.failed += 1,
            _ => {}
        }
    }
    let classes = stands_for(manager, all, state.classes.keys().map(String::as_str));
    let row = |name: String| {
        let count = counts.remove(name.as_str()).unwrap_or_default();
        (name.clone(), state.classes.get(&name).cloned(), count)
    };
    classes.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_said() {
        let check = |spec: Value, expected: &[&str]| {
            let said = not_kept(&json!({"spec": spec})).map(|condition| condition.message);
            let words = |said: &String| expected.iter().all(|word| said.contains(word));
            assert_eq!(said.as_ref().is_some_and(words), !expected.is_empty(), "{said:?}");
        };
        check(json!({"classes": [{"name": "c"}], "scoring": [{"name": "TightestFit", "weight": 1}]}), &[]);
        check(json!({"classes": [{"name": "c", "minFree": 3}]}), &["minFree of class c"]);
        check(
            json!({"scoring": [{"name": "Spread"}, {"name": "CEL", "expression": "x("}]}),
            &["scoring by Spread", "scoring by CEL"],
        );
    }

    #[test]
    fn a_default_class_of_volumes_is_said_to_be_in_vain() {
        let said = |of: &str, class: Value, before: Value| {
            let status = json!({"conditions": before});
            let manager = json!({"spec": {"type": of, "default": true, "defaultClass": class}, "status": status});
            not_default(&manager).map(|condition| condition.status)
        };
        let before = json!([{"type": STANDS_IN, "status": "False"}]);
        assert_eq!(said(VOLUMES, json!("fast"), json!([])), Some(false));
        assert_eq!(said(VOLUMES, Value::Null, before), Some(true), "it is not said for ever");
        assert_eq!(said(VOLUMES, Value::Null, json!([])), None);
        assert_eq!(said("caches.lab.example.com", json!("fast"), json!([])), None);
    }

    #[test]
    fn what_a_provider_has_bounds_the_capacity_that_is_put_there() {
        let provided = json!({"apiVersion": "v", "kind": "Disk", "most": {"size": "251Gi"}});
        let check = |kind: &str, size: &str, expected: &[(&str, &str)]| {
            let template = json!({"apiVersion": "v", "kind": kind, "spec": {"size": size}});
            let expected = expected.iter().map(|(c, a)| ((*c).to_owned(), (*a).to_owned())).collect();
            assert_eq!(bounds(&template, &[&provided]), expected, "{kind} {size}");
        };
        check("Disk", "${claim.spec.resources.requests.storage}", &[("storage", "251Gi")]);
        check("Disk", "${ resource.spec.capacity.storage }", &[("storage", "251Gi")]);
        check("Disk", "10Gi", &[]);
        check("Disk", "${resource.spec.capacity.storage * 2}", &[]);
        check("Other", "${resource.spec.capacity.storage}", &[]);
    }

    #[test]
    fn a_template_makes_what_its_class_says() {
        let class = json!({"parameters": {"fileSystem": "xfs"}});
        let check = |lack: Value, spec: Value, expected: bool| {
            assert_eq!(makes(&lack, &json!({"spec": spec}), &class), expected, "{lack} {spec}");
        };
        let xfs = || json!({"field": "fileSystem", "value": "xfs"});
        check(xfs(), json!({"fileSystem": "xfs", "size": "1Gi"}), true);
        check(xfs(), json!({"fileSystem": "${class.parameters.fileSystem}"}), true);
        check(xfs(), json!({"fileSystem": "${claim.spec.kind}"}), false);
        check(xfs(), json!({}), false);
        check(
            json!({"field": "fileSystem", "value": "ext4"}),
            json!({"fileSystem": "${class.parameters.fileSystem}"}),
            false,
        );
        check(json!({"field": "fileSystem"}), json!({}), true);
        check(json!({"field": "ports"}), json!({"ports": {"http": 8080}}), false);
    }
}
