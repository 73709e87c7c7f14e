//! Authorization: may this user do this?

use std::sync::Arc;

use machinery::status::Status;
use serde_json::Value;

use crate::request::RequestInfo;
use crate::user::User;

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

/// 403, as Kubernetes words it.
pub fn refusal(user: &Arc<User>, info: &RequestInfo, reason: &str) -> Status {
    let more = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !info.is_resource {
        let message = format!("forbidden: User {:?} cannot {} path {:?}{more}", user.name, info.verb, info.path);
        return Status::bare(403, "Forbidden", message);
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
