//! Whether what a service account's token was made for is still there.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::time::Time;
use serde::Deserialize;
use store::Store;

use super::shown::Held;
use super::tokens::Claims;

/// Service accounts in the store.
pub const ACCOUNTS: &str = "core/serviceaccounts";
/// Secrets in the store.
pub const SECRETS: &str = "core/secrets";
/// The type of a Secret that holds a token.
pub const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The label that says on which day the token of a Secret was last used.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label of a Secret whose token is no longer good.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// How long tokens outlive what they are for, in seconds: what is deleted may have something left to do.
const LEEWAY: i64 = 60;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Meta,
    r#type: String,
    data: Option<BTreeMap<String, String>>,
}

/// What an account lists, as much as somebody likes: read only for tokens of Secrets.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Listing {
    secrets: Option<Vec<Named>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    uid: String,
    deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

impl Meta {
    /// Whether it was to be gone a while ago: what holds it (a finalizer is anybody's to set) holds no tokens.
    fn is_deleted(&self, now: i64) -> bool {
        let since = self.deletion_timestamp.as_ref().map(|time| time.parse::<Time>().map_or(0, |time| time.seconds));
        since.is_some_and(|since| since.saturating_add(LEEWAY) < now)
    }

    fn label(&self, key: &str) -> &str {
        self.labels.as_ref().and_then(|own| own.get(key)).map_or("", String::as_str)
    }
}

/// Why a token that was signed here is not good, or the Secret that holds it: it dies with its account and with what it is bound
/// to, and one of a Secret is good only while that Secret holds it and is not labelled as no longer valid.
pub fn check(
    store: &Store,
    claims: &Claims,
    token: &str,
    now: i64,
    today: impl Fn() -> String,
) -> Result<Option<Held>, &'static str> {
    let get = |table: &str, key: &str| -> Option<Object> { serde_json::from_slice(&store.get(table, key)?.value).ok() };
    let whose = store.get(ACCOUNTS, &format!("{}/{}", claims.namespace, claims.name)).ok_or("its account is gone")?;
    let account: Object = serde_json::from_slice(&whose.value).map_err(|_| "its account is gone")?;
    if account.metadata.uid != claims.uid {
        return Err("its account was made anew");
    }
    if account.metadata.is_deleted(now) {
        return Err("its account is deleted");
    }
    if let Some((kind, name, uid)) = &claims.bound {
        let key = if kind == "node" { name.clone() } else { format!("{}/{name}", claims.namespace) };
        let object = get(&format!("core/{kind}s"), &key).ok_or("what it is bound to is gone")?;
        if object.metadata.uid != *uid {
            return Err("what it is bound to was made anew");
        }
        if object.metadata.is_deleted(now) {
            return Err("what it is bound to is deleted");
        }
    }
    let Some(name) = &claims.secret else { return Ok(None) };
    if account.metadata.deletion_timestamp.is_some() {
        return Err("its account is being deleted");
    }
    let key = format!("{}/{name}", claims.namespace);
    let secret = get(SECRETS, &key).ok_or("its Secret is gone")?;
    if secret.metadata.deletion_timestamp.is_some() {
        return Err("its Secret is being deleted");
    }
    // Kubernetes does not look at the type: a copy of a revoked token in any Secret of the name would be good again.
    if secret.r#type != TOKEN_TYPE {
        return Err("its Secret is of another type");
    }
    let held = secret.data.as_ref().and_then(|data| data.get("token"));
    // A token whose signature is good is compared: there is nothing left to guess from how long it takes.
    if held.and_then(|held| STANDARD.decode(held).ok()).is_none_or(|held| held != token.as_bytes()) {
        return Err("its Secret holds another token");
    }
    let listing: Listing = serde_json::from_slice(&whose.value).unwrap_or_default();
    Ok(Some(Held {
        namespace: claims.namespace.clone(),
        name: name.clone(),
        account: format!("system:serviceaccount:{}:{}", claims.namespace, claims.name),
        is_listed: listing.secrets.iter().flatten().any(|own| own.name == *name),
        is_invalid: !secret.metadata.label(INVALID_SINCE).is_empty(),
        is_marked: secret.metadata.label(LAST_USED) == today(),
        uid: secret.metadata.uid,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_after_its_deletion_is_deleted() {
        let deleted = |time: Option<&str>, now| {
            Meta { deletion_timestamp: time.map(str::to_owned), ..Meta::default() }.is_deleted(now)
        };
        assert!(!deleted(None, i64::MAX));
        let time = Some("1970-01-01T00:10:00Z");
        assert!(!deleted(time, 600) && !deleted(time, 600 + LEEWAY) && deleted(time, 601 + LEEWAY));
        assert!(deleted(Some("whenever"), 1 + LEEWAY));
    }
}
