//! Every invariant, checked on a live system.

use std::collections::BTreeSet;

use conductor_claims::invariants::{World, violations, volume_violations};
use conductor_claims::lifecycle::RESOURCE_UID;
use serde_json::Value;

use super::kinds;
use super::snapshot::list;
use crate::api::{Api, Failure};
use crate::kind::Kind;

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
                volume_violations(&objects, at_rest)
            }
            Kind::Generated(own) => {
                let implementations = behind(api, &resources).await?;
                let ours = |i: &&Value| {
                    let reference = i["metadata"]["annotations"][conductor_claims::lifecycle::RESOURCE_REF].as_str();
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

/// Every implementation with our label, of every kind that resources have.
async fn behind(api: &Api, resources: &[Value]) -> Result<Vec<Value>, Failure> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut kinds: BTreeSet<(String, String)> = BTreeSet::new();
    for resource in resources {
        for i in resource["status"]["implementations"].as_array().into_iter().flatten() {
            kinds.insert((text(&i["apiVersion"]), text(&i["kind"])));
        }
        let template = &resource["spec"]["template"];
        if template.is_object() {
            kinds.insert((text(&template["apiVersion"]), text(&template["kind"])));
        }
    }
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
