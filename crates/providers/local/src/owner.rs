//! Whose an implementation is: what a resource is made of does not go before the resource does.

use conductor_claims::lifecycle::{RESOURCE_REF, RESOURCE_UID, RETAINED, claims_text};
use conductor_claims::types::Names;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};

use crate::kind::{Object, Trouble};

/// Why an implementation may not be removed, if it may not: the resource that it is behind is there and stays.
pub async fn holder(client: &kube::Client, object: &Object) -> Result<Option<String>, Trouble> {
    let Some((uid, kind, name)) = owner(object) else { return Ok(None) };
    let resource = ApiResource::from_gvk_with_plural(&kind, &Names::plural(&kind.kind));
    match Api::<DynamicObject>::all_with(client.clone(), &resource).get_opt(&name).await {
        Ok(Some(found)) if found.uid().as_deref() == Some(&uid) && found.metadata.deletion_timestamp.is_none() => {
            let claims = claims_text(found.data["spec"]["claimRefs"].as_array().map_or(&[], Vec::as_slice));
            let used = claims.as_str().map(|claims| format!(", which {claims} uses")).unwrap_or_default();
            Ok(Some(format!("{} {name}{used}, is made of it: it goes when that is gone", kind.kind)))
        }
        Ok(_) => Ok(None),
        // a type that is not ours to see: whoever deletes what is behind it has to know
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The resource that an implementation says it is behind: uid, kind and name.
fn owner(object: &Object) -> Option<(String, GroupVersionKind, String)> {
    let meta = &object.0["metadata"];
    let uid = meta["labels"][RESOURCE_UID].as_str().filter(|uid| !uid.is_empty())?;
    if meta["annotations"][RETAINED].as_str() == Some("true") {
        return None;
    }
    let mut words = meta["annotations"][RESOURCE_REF].as_str()?.split(' ');
    let (api_version, kind, name) = (words.next()?, words.next()?, words.next()?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some((uid.to_owned(), GroupVersionKind::gvk(group, version, kind), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_implementation_says_whose_it_is() {
        let of = |annotations: Value, uid: &str| {
            owner(&Object(json!({"metadata": {"labels": {RESOURCE_UID: uid}, "annotations": annotations}})))
        };
        let reference = "storage.conductor.io/v1alpha1 RelationalDatabase db";
        let (uid, kind, name) = of(json!({RESOURCE_REF: reference}), "u").expect("is whole");
        assert_eq!(
            (uid.as_str(), kind.group.as_str(), kind.kind.as_str(), name.as_str()),
            ("u", "storage.conductor.io", "RelationalDatabase", "db")
        );
        assert!(of(json!({RESOURCE_REF: reference}), "").is_none(), "nobody's");
        assert!(of(json!({RESOURCE_REF: reference, RETAINED: "true"}), "u").is_none(), "it outlived its resource");
        assert!(of(json!({}), "u").is_none());
    }
}
