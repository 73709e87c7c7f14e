//! Every invariant, checked on a live system.

use std::collections::BTreeSet;

use conductor_claims::extract::class_fields;
use conductor_claims::invariants::{World, violations, volume_violations};
use conductor_claims::lifecycle::{RESOURCE_REF, RESOURCE_UID, RETAINED};
use serde_json::Value;

use super::kinds;
use super::snapshot::list;
use crate::api::{Api, Failure};
use crate::kind::Kind;
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

/// Checks every type. What managers are still working on may show: look twice.
pub async fn audit(api: &Api) -> Result<Vec<Finding>, Failure> {
    check(api, true).await
}

/// Checks what must hold at rest or, while managers are at work, what must hold after every single write.
pub async fn check(api: &Api, at_rest: bool) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for kind in kinds(api).await? {
        let resources = list(api, kind.resource()).await?;
        let claims = list(api, kind.claim()).await?;
        let broken = match &kind {
            Kind::Volumes => {
                let objects: Vec<&Value> = resources.iter().chain(&claims).collect();
                if at_rest {
                    findings.extend(left_over(api, &resources).await?);
                }
                volume_violations(&objects, at_rest)
            }
            Kind::Generated(own) => {
                let classes = list(api, kind.class()).await?;
                let templates = classes.iter().map(|class| &class_fields(class)["template"]);
                let templates = templates.chain(resources.iter().map(|resource| &resource["spec"]["template"]));
                let mut kinds = kinds_of(templates);
                for resource in &resources {
                    kinds.extend(kinds_of(resource["status"]["implementations"].as_array().into_iter().flatten()));
                }
                let implementations = behind(api, kinds).await?;
                let ours = |i: &&Value| {
                    let reference = i["metadata"]["annotations"][RESOURCE_REF].as_str();
                    reference.is_some_and(|r| r.starts_with(&format!("{} {} ", own.api_version(), own.names.resource)))
                };
                let world = World {
                    kind: own,
                    claims: claims.iter().collect(),
                    resources: resources.iter().collect(),
                    implementations: implementations.iter().filter(ours).collect(),
                };
                violations(&world, at_rest)
            }
        };
        findings.extend(broken.into_iter().map(|v| Finding {
            invariant: v.invariant.to_owned(),
            object: v.object,
            message: v.message,
        }));
    }
    Ok(findings)
}

/// What is known to be broken and says so: nobody's mistake in the books, and somebody's work.
pub async fn troubled(api: &Api) -> Result<Vec<String>, Failure> {
    let mut said = Vec::new();
    for kind in kinds(api).await? {
        for (of, phase) in [(kind.claim(), "Lost"), (kind.resource(), "Failed")] {
            for object in list(api, of.clone()).await?.iter().filter(|object| object["status"]["phase"] == phase) {
                let meta = &object["metadata"];
                let name = [&meta["namespace"], &meta["name"]].into_iter().filter_map(Value::as_str);
                let name = name.collect::<Vec<_>>().join("/");
                let condition = object["status"]["conditions"].as_array().into_iter().flatten();
                let condition = condition.filter(|c| c["status"] == "False").map(|c| &c["message"]).next();
                let why = Some(&object["status"]["message"]).filter(|m| m.is_string()).or(condition);
                let why = why.and_then(Value::as_str).unwrap_or("kubectl describe shows what is known");
                said.push(format!("{} {name} is {phase}: {why}", of.1));
            }
        }
    }
    Ok(said)
}

/// What is behind volumes that are gone, and was not kept by their policy: somebody removed them by force.
async fn left_over(api: &Api, volumes: &[Value]) -> Result<Vec<Finding>, Failure> {
    let templates = list(api, (VOLUME_TEMPLATE.0.to_owned(), VOLUME_TEMPLATE.1)).await?;
    let kinds = kinds_of(templates.iter().map(|template| &template["spec"]["template"]));
    let there: BTreeSet<&str> = volumes.iter().filter_map(|volume| volume["metadata"]["uid"].as_str()).collect();
    let mut findings = Vec::new();
    for object in behind(api, kinds).await? {
        let meta = &object["metadata"];
        let kept = meta["annotations"][RETAINED] == "true" || !meta["deletionTimestamp"].is_null();
        let reference = meta["annotations"][RESOURCE_REF].as_str().and_then(|r| r.strip_prefix("v1 PersistentVolume "));
        let owner = meta["labels"][RESOURCE_UID].as_str().unwrap_or_default();
        if let Some(volume) = reference.filter(|_| !kept && !there.contains(owner)) {
            findings.push(Finding {
                invariant: "an implementation has its volume".into(),
                object: format!("{} {}", text(&object["kind"]), text(&meta["name"])),
                message: format!(
                    "PersistentVolume {volume} is gone, and what is behind it stays with its data: delete it, or make the volume again"
                ),
            });
        }
    }
    Ok(findings)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// apiVersion and kind of each object that is one.
fn kinds_of<'o>(objects: impl Iterator<Item = &'o Value>) -> BTreeSet<(String, String)> {
    objects.filter(|o| o.is_object()).map(|o| (text(&o["apiVersion"]), text(&o["kind"]))).collect()
}

/// Every implementation with our label, of these kinds.
async fn behind(api: &Api, kinds: BTreeSet<(String, String)>) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for (api_version, kind) in kinds {
        match api.list(&api_version, &kind, RESOURCE_UID).await {
            Ok(list) => all.extend(list),
            Err(failure) if failure.code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(all)
}
