//! Objects whose owner is gone.

use conductor_claims::lifecycle::{CLAIM_NAME, CLAIM_UID, RESOURCE_REF, RESOURCE_UID};
use serde_json::Value;

use crate::api::{Api, Failure};

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
