//! `NodeRestriction`, of tokens: a node may have those of the Pods that are on it, for whom their volumes say.

use std::sync::Arc;

use machinery::field;
use machinery::status::Status;
use serde_json::Value;

use crate::auth::authz::{Authorizer, Decision};
use crate::auth::nodes::graph::claim_of;
use crate::auth::nodes::node_of;
use crate::context::Context;
use crate::plan::parse_stored;
use crate::request::RequestInfo;

/// Whether a node may have a token: for a Pod that is on it, and for whom that Pod's volumes say.
pub fn may_have(cx: &Context, request: &Value) -> Result<(), Status> {
    let Some(node) = node_of(&cx.user) else { return Ok(()) };
    let refuse = |why: String| Status::forbidden("", "serviceaccounts", &cx.info.name, why);
    let pod = bound(cx, node, &request["spec"]["boundObjectRef"])?;
    let audiences = request["spec"]["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let audience = match audiences {
        [] => "",
        [one] => text(one),
        _ => return Err(refuse("node may only request 0 or 1 audiences".into())),
    };
    match is_named(cx, &pod, audience) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(why) => return Err(refuse(format!("error validating audience {audience:?}: {why}"))),
    }
    if may_ask_for(cx, audience) {
        return Ok(());
    }
    Err(refuse(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        cx.user.name
    )))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The Pod of the node that the token is to be bound to.
fn bound(cx: &Context, node: &str, reference: &Value) -> Result<Value, Status> {
    let refuse = |why: String| Err(Status::forbidden("", "serviceaccounts", &cx.info.name, why));
    let (name, uid) = (text(&reference["name"]), text(&reference["uid"]));
    if reference["apiVersion"] != "v1" || reference["kind"] != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod".into());
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid".into());
    }
    let Some(pod) = stored(cx, "core/pods", &format!("{}/{name}", cx.info.namespace)) else {
        return Err(Status::not_found("", "pod", name));
    };
    if pod["metadata"]["uid"] != *uid {
        return refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if pod["spec"]["nodeName"] != *node {
        return refuse("node requested token bound to a pod scheduled on a different node".into());
    }
    Ok(pod)
}

fn stored(cx: &Context, table: &str, key: &str) -> Option<Value> {
    cx.server.store.get(table, key).and_then(|entry| parse_stored(&entry).ok())
}

/// Whether one of the Pod's volumes has tokens for the audience; that none has is known only if all that
/// they lead to is there.
fn is_named(cx: &Context, pod: &Value, audience: &str) -> Result<bool, String> {
    let mut missing: Vec<String> = Vec::new();
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        match names(cx, pod, volume, audience) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(why) => missing.push(why),
        }
    }
    if missing.is_empty() { Ok(false) } else { Err(field::aggregate(&missing)) }
}

fn names(cx: &Context, pod: &Value, volume: &Value, audience: &str) -> Result<bool, String> {
    let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
    if sources.any(|source| {
        let token = &source["serviceAccountToken"];
        token.is_object() && text(&token["audience"]) == audience
    }) {
        return Ok(true);
    }
    let driver = if volume["ephemeral"].is_object() {
        driver_of(cx, text(&claim_of(pod, volume)))?
    } else if volume["persistentVolumeClaim"].is_object() {
        driver_of(cx, text(&volume["persistentVolumeClaim"]["claimName"]))?
    } else {
        text(&volume["csi"]["driver"]).to_owned()
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let driver = stored(cx, "storage.k8s.io/csidrivers", &driver)
        .ok_or_else(|| format!("csidriver.storage.k8s.io {driver:?} not found"))?;
    let mut requests = driver["spec"]["tokenRequests"].as_array().into_iter().flatten();
    Ok(requests.any(|request| text(&request["audience"]) == audience))
}

/// The driver of a claim's volume; empty if it needs none.
fn driver_of(cx: &Context, claim: &str) -> Result<String, String> {
    let found = stored(cx, "core/persistentvolumeclaims", &format!("{}/{claim}", cx.info.namespace));
    let found = found.ok_or_else(|| format!("persistentvolumeclaim {claim:?} not found"))?;
    let volume = text(&found["spec"]["volumeName"]);
    let found = stored(cx, "core/persistentvolumes", volume);
    let found = found.ok_or_else(|| format!("persistentvolume {volume:?} not found"))?;
    Ok(text(&found["spec"]["csi"]["driver"]).to_owned())
}

fn may_ask_for(cx: &Context, audience: &str) -> bool {
    let info = RequestInfo {
        is_resource: true,
        verb: "request-serviceaccounts-token-audience".into(),
        version: "v1".into(),
        namespace: cx.info.namespace.clone(),
        resource: audience.into(),
        name: cx.info.name.clone(),
        ..RequestInfo::default()
    };
    let authorizer: &Arc<dyn Authorizer> = &cx.server.authorizer;
    matches!(authorizer.authorize(&cx.user, &info), Decision::Allow(_))
}
