//! Who may use a class: those who have the verb `use` on it, where its label says that it takes that.

use std::sync::Arc;

use conductor_claims::matching::{Decision, Index, Reason, Summary, Why};
use conductor_claims::types::{CREATED_BY, CREATED_BY_GROUPS, USE_LABEL, groups};
use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Failure, JSON};
use crate::kind::Kind;

/// The class that a decision comes down to. What an administrator reserved for a claim, and what it has, takes no right.
pub(crate) fn class_of(decision: &Decision, index: &Index) -> Option<Arc<str>> {
    match decision {
        Decision::Bind { resource, why: Why::Named | Why::Matched } => index.get(resource)?.shape.class.clone(),
        Decision::Provision { class, .. } => Some(class.clone()),
        _ => None,
    }
}

/// Whether a class is only for those who have the verb.
pub(crate) fn is_limited(class: &Value) -> bool {
    class["metadata"]["labels"][USE_LABEL] == "required"
}

/// What is decided about the claim of somebody without the right.
pub(crate) fn refused(class: Arc<str>) -> Decision {
    Decision::Wait { reason: Reason::NotAllowed(class), summary: Summary::default() }
}

/// Whether who made a claim has the verb `use` on a class, by the word of the API server.
pub(crate) async fn may_use(api: &Api, kind: &Kind, claim: &Value, class: &str) -> Result<bool, Failure> {
    let said = |key: &str| claim["metadata"]["annotations"][key].as_str().unwrap_or_default();
    if said(CREATED_BY).is_empty() {
        return Ok(false);
    }
    let groups: Vec<String> = groups(said(CREATED_BY_GROUPS)).collect();
    let spec = json!({"user": said(CREATED_BY), "groups": groups});
    review(api, "SubjectAccessReview", spec, kind, class).await
}

/// Whether we have it ourselves, which everybody may ask.
pub(crate) async fn we_may_use(api: &Api, kind: &Kind, class: &str) -> Result<bool, Failure> {
    review(api, "SelfSubjectAccessReview", json!({}), kind, class).await
}

async fn review(api: &Api, review: &str, mut spec: Value, kind: &Kind, class: &str) -> Result<bool, Failure> {
    let (api_version, kind) = kind.class();
    let served = api.served(&api_version, kind).await?;
    spec["resourceAttributes"] = json!({
        "verb": "use", "group": api_version.split_once('/').map_or("", |(group, _)| group),
        "resource": served.plural, "name": class,
    });
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": review, "spec": spec});
    let path = format!("/apis/authorization.k8s.io/v1/{}s", review.to_ascii_lowercase());
    let answer = api.call(Method::POST, &path, JSON, body.to_string().into_bytes()).await?;
    Ok(answer["status"]["allowed"] == true)
}
