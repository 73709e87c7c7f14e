//! Authorization: may this user do this?

use std::sync::Arc;

use machinery::status::Status;
use serde_json::{Value, json};

use crate::request::RequestInfo;
use crate::user::{MASTERS, User};

/// An answer to "may they?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes, because.
    Allow(String),
    /// No one says yes; why, if there is more to say.
    NoOpinion(String),
}

/// Decides what users may do.
pub trait Authorizer: Send + Sync {
    /// May `user` do what `info` says?
    fn authorize(&self, user: &User, info: &RequestInfo) -> Decision;

    /// What a user may do in a namespace, as the status of a `SelfSubjectRulesReview`.
    fn rules(&self, user: &User, namespace: &str) -> Value;
}

/// Only `system:masters` may do anything, besides what everybody must be able to find out about the server itself.
pub struct MastersOnly;

/// Paths that anybody may read.
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// Paths that everyone who has said who they are may read.
const DISCOVERY: &[&str] = &["/api", "/apis", "/openapi", "/.well-known", "/openid"];

impl Authorizer for MastersOnly {
    fn authorize(&self, user: &User, info: &RequestInfo) -> Decision {
        if user.in_group(MASTERS) {
            return Decision::Allow("system:masters".into());
        }
        if !info.is_resource && info.verb == "get" {
            if PUBLIC.contains(&info.path.as_str()) {
                return Decision::Allow("public".into());
            }
            let below = |root: &&str| info.path == **root || info.path.starts_with(&format!("{root}/"));
            if !user.is_anonymous() && DISCOVERY.iter().any(|root| below(&root)) {
                return Decision::Allow("discovery".into());
            }
        }
        let own_review = info.verb == "create"
            && !user.is_anonymous()
            && matches!(
                (info.group.as_str(), info.resource.as_str()),
                ("authentication.k8s.io", "selfsubjectreviews")
                    | ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
            );
        if own_review {
            return Decision::Allow("about oneself".into());
        }
        Decision::NoOpinion(String::new())
    }

    fn rules(&self, user: &User, _namespace: &str) -> Value {
        if user.in_group(MASTERS) {
            return json!({
                "incomplete": false,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            });
        }
        json!({"incomplete": false, "resourceRules": [], "nonResourceRules": []})
    }
}

/// 403, as Kubernetes words it.
pub fn refusal(user: &Arc<User>, info: &RequestInfo, reason: &str) -> Status {
    let more = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !info.is_resource {
        let message = format!("forbidden: User {:?} cannot {} path {:?}{more}", user.name, info.verb, info.path);
        return Status::new(403, "Forbidden", message);
    }
    let mut resource = info.resource.clone();
    if !info.subresource.is_empty() {
        resource = format!("{resource}/{}", info.subresource);
    }
    let scope = if info.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", info.namespace)
    };
    let why = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}{more}",
        user.name, info.verb, info.group
    );
    Status::forbidden(&info.group, &info.resource, &info.name, why)
}
