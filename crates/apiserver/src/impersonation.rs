//! Acting as somebody else, for those who may.

use std::sync::Arc;

use http::HeaderMap;
use machinery::names;
use machinery::status::Status;

use crate::auth::authz::{Decision, refusal};
use crate::request::RequestInfo;
use crate::server::Inner;
use crate::user::User;

/// The user that a request acts as: the `Impersonate-*` headers', if its own user may do that.
pub fn effective(server: &Inner, user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let name = text("impersonate-user").filter(|name| !name.is_empty());
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    let uid = text("impersonate-uid");
    let mut extra: Vec<(String, String)> = Vec::new();
    for (key, value) in headers {
        if let (Some(key), Ok(value)) = (key.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
            let key = crate::request::percent_decode(key).map(|key| key.into_owned()).unwrap_or_default();
            extra.push((key, value.to_owned()));
        }
    }
    let Some(name) = name else {
        if groups.is_empty() && uid.is_none() && extra.is_empty() {
            return Ok(user);
        }
        return Err(Status::bad_request("Impersonate-Group, -Uid and -Extra need Impersonate-User besides"));
    };
    let mut asks: Vec<RequestInfo> = Vec::new();
    let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| RequestInfo {
        is_resource: true,
        path: String::new(),
        verb: "impersonate".into(),
        group: group.into(),
        version: "v1".into(),
        namespace: namespace.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        name: name.into(),
        field_selector: String::new(),
    };
    let account = service_account(&name);
    match account {
        Some((namespace, account)) => asks.push(ask("", "serviceaccounts", "", namespace, account)),
        None => asks.push(ask("", "users", "", "", &name)),
    }
    asks.extend(groups.iter().map(|group| ask("", "groups", "", "", group)));
    asks.extend(uid.iter().map(|uid| ask("authentication.k8s.io", "uids", "", "", uid)));
    asks.extend(extra.iter().map(|(key, value)| ask("authentication.k8s.io", "userextras", key, "", value)));
    for ask in &asks {
        if let Decision::NoOpinion(reason) = server.authorizer.authorize(&user, ask) {
            return Err(refusal(&user, ask, &reason));
        }
    }
    let mut effective = if groups.is_empty() {
        match account {
            Some((namespace, account)) => (*User::service_account(namespace, account)).clone(),
            None if name == "system:anonymous" => (*User::anonymous()).clone(),
            None => (*User::new(&name, Vec::<String>::new())).clone(),
        }
    } else {
        (*User::new(&name, groups)).clone()
    };
    effective.uid = uid.unwrap_or_default();
    for (key, value) in extra {
        effective.extra.entry(key).or_default().push(value);
    }
    Ok(Arc::new(effective))
}

/// Namespace and name of a service account; names that none can have are those of users.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(account).is_empty();
    valid.then_some((namespace, account))
}
