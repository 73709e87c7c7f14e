//! Every invariant, checked on a live system.

use std::collections::BTreeSet;

use conductor_claims::extract::{seconds, templates};
use conductor_claims::invariants::{HAS_ITS_CLAIM, World, violations, volume_violations};
use conductor_claims::lifecycle::{RESOURCE_REF, RESOURCE_UID, RETAINED, SYSTEM_NAMESPACE};
use serde_json::Value;

use super::kinds;
use super::snapshot::list_seen;
use crate::api::{Api, Failure};
use crate::clock::now;
use crate::kind::{Kind, is_of};
use crate::volumes::TEMPLATE as VOLUME_TEMPLATE;

/// Something that is not as it must be.
pub struct Finding {
    /// The invariant.
    pub invariant: String,
    /// The object it is broken on.
    pub object: String,
    /// What is wrong.
    pub message: String,
}

/// What an audit found.
#[derive(Default)]
pub struct Audited {
    /// What is not as it must be.
    pub findings: Vec<Finding>,
    /// The kinds that are not ours to see: what is about them was not checked.
    pub unseen: BTreeSet<String>,
    /// How many types were checked.
    pub types: usize,
}

impl Audited {
    /// What there is of a kind; `None`, and noted: it is not ours to see.
    async fn look(&mut self, api: &Api, kind: (String, &str)) -> Result<Option<Vec<Value>>, Failure> {
        let name = kind.1.to_owned();
        let seen = list_seen(api, kind).await?;
        if seen.is_none() {
            self.unseen.insert(name);
        }
        Ok(seen)
    }

    /// Every implementation with our label, of these kinds: anywhere, or where they are made.
    async fn behind(&mut self, api: &Api, kinds: BTreeSet<(String, String)>) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        for (api_version, kind) in kinds {
            let mut listed = api.list(&api_version, &kind, RESOURCE_UID).await;
            if matches!(&listed, Err(failure) if failure.code == 403) {
                listed = api.list_in(&api_version, &kind, SYSTEM_NAMESPACE, RESOURCE_UID).await;
            }
            match listed {
                Ok(list) => all.extend(list),
                Err(failure) if failure.code == 404 => {}
                Err(failure) if failure.code == 403 => drop(self.unseen.insert(kind)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }
}

/// Checks every type, as far as it is ours to see. What managers are still working on may show: look twice.
pub async fn audit(api: &Api) -> Result<Audited, Failure> {
    check(api, true).await
}

/// Checks what must hold at rest or, while managers are at work, what must hold after every single write.
pub async fn check(api: &Api, at_rest: bool) -> Result<Audited, Failure> {
    let mut audited = Audited::default();
    for kind in kinds(api).await? {
        let resources = audited.look(api, kind.resource()).await?;
        let claims = audited.look(api, kind.claim()).await?;
        // Nothing is said about claims alone.
        let Some(resources) = resources else { continue };
        audited.types += 1;
        let broken = match &kind {
            Kind::Volumes => {
                let objects: Vec<&Value> = resources.iter().chain(claims.iter().flatten()).collect();
                if at_rest {
                    left_over(api, &resources, &mut audited).await?;
                }
                let mut broken = volume_violations(&objects, at_rest);
                broken.retain(|violation| claims.is_some() || violation.invariant != HAS_ITS_CLAIM);
                broken
            }
            Kind::Generated(own) => {
                let classes = audited.look(api, kind.class()).await?.unwrap_or_default();
                let implementations = audited.behind(api, kinds_behind(&classes, &resources)).await?;
                let ours = |i: &&Value| {
                    let reference = text(&i["metadata"]["annotations"][RESOURCE_REF]);
                    let mut reference = reference.split(' ');
                    let (version, named) = (reference.next().unwrap_or_default(), reference.next().unwrap_or_default());
                    is_of(&kind.resource(), version, named)
                };
                let world = World {
                    kind: own,
                    claims: claims.as_ref().map(|claims| claims.iter().collect()),
                    resources: resources.iter().collect(),
                    implementations: implementations.iter().filter(ours).collect(),
                };
                violations(&world, at_rest)
            }
        };
        audited.findings.extend(broken.into_iter().map(|v| Finding {
            invariant: v.invariant.to_owned(),
            object: v.object,
            message: v.message,
        }));
    }
    Ok(audited)
}

/// How many seconds something may take to go.
const LINGERS: i64 = 60;

/// What is known to be broken, or does not go, and says so: nobody's mistake in the books, and somebody's work. Of claims those in a namespace, for who
/// sees no others; `None`: nothing of it is ours to see.
pub async fn troubled(api: &Api, namespace: &str) -> Result<Option<Vec<String>>, Failure> {
    let mut said = None;
    let mut all = Vec::new();
    for kind in kinds(api).await? {
        for (of, phase) in [(kind.claim(), "Lost"), (kind.resource(), "Failed")] {
            all.push((of.0, of.1.to_owned(), phase));
        }
    }
    let providers = list_seen(api, ("conductor.io/v1alpha1".to_owned(), "Provider")).await?.unwrap_or_default();
    let provided = kinds_of(providers.iter().flat_map(|p| p["status"]["kinds"].as_array().into_iter().flatten()));
    // how they are is their resources' to say
    all.extend(provided.into_iter().map(|(api_version, kind)| (api_version, kind, "going")));
    for (api_version, kind, phase) in all {
        let mut objects = list_seen(api, (api_version.clone(), &kind)).await?;
        if objects.is_none() && phase == "Lost" {
            objects = api.list_in(&api_version, &kind, namespace, "").await.ok();
        }
        let Some(objects) = objects else { continue };
        let now = seconds(&now());
        said.get_or_insert_with(Vec::new)
            .extend(objects.iter().filter_map(|object| trouble(object, &kind, phase, now)));
    }
    Ok(said)
}

/// What is wrong with an object that is in a bad phase, or does not go.
fn trouble(object: &Value, kind: &str, phase: &str, now: i64) -> Option<String> {
    let meta = &object["metadata"];
    let lingers = meta["deletionTimestamp"].as_str().filter(|since| now - seconds(since) > LINGERS);
    if object["status"]["phase"] != phase && lingers.is_none() {
        return None;
    }
    let name = [&meta["namespace"], &meta["name"]].into_iter().filter_map(Value::as_str);
    let name = name.collect::<Vec<_>>().join("/");
    let condition = object["status"]["conditions"].as_array().into_iter().flatten();
    let condition = condition.filter(|c| c["status"] == "False").map(|c| &c["message"]).next();
    let why = Some(&object["status"]["message"]).filter(|m| m.is_string()).or(condition);
    let why = why.and_then(Value::as_str).unwrap_or("kubectl describe shows what is known");
    Some(match lingers {
        Some(since) => format!("{kind} {name} is being deleted since {since}: {why}"),
        None => format!("{kind} {name} is {phase}: {why}"),
    })
}

/// What is behind volumes that are gone, and was not kept by their policy: somebody removed them by force.
async fn left_over(api: &Api, volumes: &[Value], audited: &mut Audited) -> Result<(), Failure> {
    let templates = audited.look(api, (VOLUME_TEMPLATE.0.to_owned(), VOLUME_TEMPLATE.1)).await?.unwrap_or_default();
    let mut kinds = kinds_of(templates.iter().map(|template| &template["spec"]["template"]));
    // what no template makes any more may be there all the same
    let providers = audited.look(api, ("conductor.io/v1alpha1".to_owned(), "Provider")).await?.unwrap_or_default();
    kinds.extend(kinds_of(providers.iter().flat_map(|p| p["status"]["kinds"].as_array().into_iter().flatten())));
    let there: BTreeSet<&str> = volumes.iter().filter_map(|volume| volume["metadata"]["uid"].as_str()).collect();
    for object in audited.behind(api, kinds).await? {
        let meta = &object["metadata"];
        let kept = meta["annotations"][RETAINED] == "true" || !meta["deletionTimestamp"].is_null();
        let reference = meta["annotations"][RESOURCE_REF].as_str().and_then(|r| r.strip_prefix("v1 PersistentVolume "));
        let owner = meta["labels"][RESOURCE_UID].as_str().unwrap_or_default();
        if let Some(volume) = reference.filter(|_| !kept && !there.contains(owner)) {
            audited.findings.push(Finding {
                invariant: "an implementation has its volume".into(),
                object: format!("{} {}", text(&object["kind"]), text(&meta["name"])),
                message: format!(
                    "PersistentVolume {volume} is gone, and what is behind it stays with its data: delete it, or make the volume again"
                ),
            });
        }
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The kinds of all that may be behind resources: what they, or classes, make or made.
fn kinds_behind(classes: &[Value], resources: &[Value]) -> BTreeSet<(String, String)> {
    let made = resources.iter().flat_map(|r| r["status"]["implementations"].as_array().into_iter().flatten());
    kinds_of(classes.iter().chain(resources).flat_map(templates).chain(made))
}

/// apiVersion and kind of each object that is one.
fn kinds_of<'o>(objects: impl Iterator<Item = &'o Value>) -> BTreeSet<(String, String)> {
    objects.filter(|o| o.is_object()).map(|o| (text(&o["apiVersion"]), text(&o["kind"]))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_kinds_that_may_be_behind_resources_are_looked_for() {
        let of = |kind: &str| json!({"apiVersion": "v1", "kind": kind});
        let classes = [
            json!({"template": of("A")}),
            json!({"spec": {"templates": [{"name": "b", "template": of("B")}, {"name": "c", "template": of("C")}]}}),
        ];
        let resources = [
            json!({"spec": {"templates": [{"template": of("D")}]}, "status": {"implementations": [of("E")]}}),
            json!({"spec": {"template": of("F")}}),
            json!({"spec": {}}),
        ];
        let kinds: Vec<String> = kinds_behind(&classes, &resources).into_iter().map(|(_, kind)| kind).collect();
        assert_eq!(kinds, ["A", "B", "C", "D", "E", "F"]);
    }

    #[test]
    fn what_does_not_go_is_said_with_its_reason() {
        let object = |since: Value, phase: Value| {
            let why = json!({"type": "Ready", "status": "False", "message": "others are in it"});
            let meta = json!({"namespace": "n", "name": "a", "deletionTimestamp": since});
            json!({"metadata": meta, "status": {"phase": phase, "conditions": [why]}})
        };
        let now = seconds("2026-01-01T00:02:00Z");
        let check = |since: Value, phase: Value, bad: &str, expected: Option<&str>| {
            assert_eq!(trouble(&object(since, phase), "PostgresInstance", bad, now).as_deref(), expected);
        };
        let long = "PostgresInstance n/a is being deleted since 2026-01-01T00:00:00Z: others are in it";
        check(json!("2026-01-01T00:00:00Z"), Value::Null, "going", Some(long));
        check(json!("2026-01-01T00:01:30Z"), Value::Null, "going", None);
        check(Value::Null, Value::Null, "going", None);
        check(Value::Null, json!("Failed"), "Failed", Some("PostgresInstance n/a is Failed: others are in it"));
        check(Value::Null, json!("Bound"), "Failed", None);
    }
}
