//! Objects whose owner is gone.

use std::sync::Arc;

use conductor_claims::lifecycle::{CLAIM_NAME, CLAIM_UID, RESOURCE_REF, RESOURCE_UID, is_connection, orphan, owner};
use serde_json::Value;

use crate::api::{Api, Failure};
use crate::desk::{Context, Trouble};

/// An object that has an owner, or had one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owned {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Looks after orphans, for ever. They are nobody's: no desk, which comes and goes with its type, has them.
pub(crate) async fn work(cx: Arc<Context>) {
    loop {
        let owned = cx.orphans.next().await.key;
        match sweep(&cx, &owned).await {
            Ok(()) => cx.orphans.done(&owned),
            Err(trouble) => {
                trouble.log(&owned);
                cx.orphans.failed(&owned, trouble.cause());
            }
        }
    }
}

/// An object whose owner is gone is removed, where that is ours to do.
async fn sweep(cx: &Context, owned: &Owned) -> Result<(), Trouble> {
    let own = is_connection(&owned.api_version, &owned.kind);
    let api = if own { &cx.api } else { &cx.provisioner };
    let Some(object) = api.get(&owned.api_version, &owned.kind, &owned.namespace, &owned.name).await? else {
        return Ok(());
    };
    if owner(&object).is_some() && !owner_lives(&cx.api, &object).await? {
        cx.send(orphan(&object)).await?;
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether the owner of an object is there, as the server says. An owner that cannot be named is taken to be.
pub(crate) async fn owner_lives(api: &Api, object: &Value) -> Result<bool, Failure> {
    let (labels, annotations) = (&object["metadata"]["labels"], &object["metadata"]["annotations"]);
    let same = |live: Option<Value>, uid: &str| live.is_some_and(|o| text(&o["metadata"]["uid"]) == uid);
    if let Some(uid) = labels[RESOURCE_UID].as_str() {
        let mut parts = text(&annotations[RESOURCE_REF]).split(' ');
        let (Some(api_version), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Ok(true);
        };
        return Ok(same(api.get(api_version, kind, "", name).await?, uid));
    }
    if let Some(uid) = labels[CLAIM_UID].as_str() {
        let Some((namespace, name)) = text(&annotations[CLAIM_NAME]).split_once('/') else { return Ok(true) };
        return Ok(same(api.get("v1", "PersistentVolumeClaim", namespace, name).await?, uid));
    }
    Ok(true)
}
