//! Implementations: what a resource intends, whether it is ready, and what becomes of one without an owner.

use std::collections::BTreeMap;

use base64::Engine;
use serde_json::{Value, json};

use crate::lifecycle::claim::{deleting, uid};
use crate::lifecycle::ownership;
use crate::lifecycle::reclaim::in_use;
use crate::lifecycle::status::condition_of;
use crate::lifecycle::write::{Plan, Target};
use crate::lifecycle::{CLAIM_UID, RECORDED, RESOURCE_NAME, RESOURCE_REF, RESOURCE_UID, RETAINED, SYSTEM_NAMESPACE};
use crate::names::joined;
use crate::template::{Expressions, render};
use crate::types::ResourceType;

/// An implementation a resource intends or adopts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Implementation {
    /// What it is.
    pub target: Target,
    /// The object to be made; `None`: it is adopted.
    pub wanted: Option<Value>,
    /// CEL that says when it is ready; the condition Ready if empty.
    pub ready_when: String,
    /// Whether it bears no data and may be made again.
    pub replaceable: bool,
}

/// What implementations a resource intends, or why that cannot be said; of one that is to go, also those it was recorded to have.
pub fn implementations(
    kind: &ResourceType,
    resource: &Value,
    with: &dyn Expressions,
) -> Result<Vec<Implementation>, String> {
    let intended = intended(kind, resource, with);
    if !deleting(resource) || in_use(resource).is_some() {
        return intended;
    }
    // a template that cannot be rendered any more leaves nothing behind
    let mut all = intended.unwrap_or_default();
    for made in resource["status"]["implementations"].as_array().into_iter().flatten() {
        let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
        let target = Target {
            api_version: text("apiVersion"),
            kind: text("kind"),
            namespace: text("namespace"),
            name: text("name"),
            status: false,
        };
        // under whatever version it was written
        let group = |target: &Target| target.api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let same = |own: &Target| {
            (group(own), &own.kind, &own.namespace, &own.name)
                == (group(&target), &target.kind, &target.namespace, &target.name)
        };
        if !all.iter().any(|own| same(&own.target)) {
            all.push(Implementation { target, wanted: None, ready_when: String::new(), replaceable: false });
        }
    }
    Ok(all)
}

fn intended(kind: &ResourceType, resource: &Value, with: &dyn Expressions) -> Result<Vec<Implementation>, String> {
    let spec = &resource["spec"];
    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let adopted = &spec["implementationRef"];
    if adopted.is_object() {
        return Ok(vec![Implementation {
            target: Target {
                api_version: text(&adopted["apiVersion"]),
                kind: text(&adopted["kind"]),
                namespace: place(&adopted["namespace"])?,
                name: text(&adopted["name"]),
                status: false,
            },
            wanted: None,
            ready_when: text(&spec["readyWhen"]),
            replaceable: false,
        }]);
    }
    let mut parts: Vec<(&str, &Value, String, bool)> = Vec::new();
    if spec["template"].is_object() {
        let replaceable = spec["replaceable"].as_bool().unwrap_or(false);
        parts.push(("", &spec["template"], text(&spec["readyWhen"]), replaceable));
    }
    for item in spec["templates"].as_array().into_iter().flatten().take(16) {
        let first = parts.is_empty();
        let ready = text(&item["readyWhen"]);
        let ready = if ready.is_empty() && first { text(&spec["readyWhen"]) } else { ready };
        let replaceable = item["replaceable"].as_bool().unwrap_or(false);
        parts.push((item["name"].as_str().unwrap_or_default(), &item["template"], ready, replaceable));
    }
    // only what does not change with the resource's life: a template sees the same on every look
    let seen = json!({
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "metadata": {"name": resource["metadata"]["name"], "uid": resource["metadata"]["uid"], "labels": resource["metadata"]["labels"]},
        "spec": resource["spec"],
    });
    let scope = BTreeMap::from([("resource", &seen)]);
    let mut all = Vec::new();
    for (suffix, template, ready_when, replaceable) in parts {
        let mut object = render(template, &scope, &[], with).map_err(|e| format!("template.{e}"))?;
        if !object.is_object() {
            return Err("template must be an object".into());
        }
        let place = place(&object["metadata"]["namespace"])?;
        // a report is the provider's to make
        object.as_object_mut().map(|fields| fields.remove("status"));
        encode_secret(&mut object);
        let own = if suffix.is_empty() { implementation_name(name) } else { joined(name, suffix) };
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        // what metadata does not have would be dropped on create and refused on apply (`label: foo`)
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.retain(|key, _| ["labels", "annotations", "finalizers"].contains(&key.as_str()));
        }
        object["metadata"]["name"] = json!(own);
        object["metadata"]["namespace"] = json!(place);
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"][RESOURCE_UID] = json!(uid(resource));
        object["metadata"]["labels"][RESOURCE_NAME] = json!(label_value(name));
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        object["metadata"]["annotations"][RESOURCE_REF] = json!(reference_to(resource));
        ownership::mark(&mut object);
        let target = Target::of(&object);
        if target.api_version.is_empty() || target.kind.is_empty() {
            return Err(format!("a template of {} {name} has no apiVersion or kind", kind.names.resource));
        }
        all.push(Implementation { target, wanted: Some(object), ready_when, replaceable });
    }
    Ok(all)
}

/// A Secret as it is kept: text that is there for writing only would be missed at every look.
fn encode_secret(object: &mut Value) {
    let plain = |texts: &Value| texts.as_object().is_some_and(|texts| texts.values().all(Value::is_string));
    let is_secret = object["kind"] == "Secret" && object["apiVersion"] == "v1";
    // what is wrong about it is for the server to say
    if !is_secret || !plain(&object["stringData"]) || !(object["data"].is_null() || object["data"].is_object()) {
        return;
    }
    let written = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
    for (key, value) in written.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        object["data"][key] = json!(base64::engine::general_purpose::STANDARD.encode(text));
    }
}

/// The namespace of an implementation, whatever its kind makes of it: the system's own.
pub(crate) fn place(said: &Value) -> Result<String, String> {
    match said.as_str().unwrap_or_default() {
        "" | SYSTEM_NAMESPACE => Ok(SYSTEM_NAMESPACE.to_owned()),
        other => Err(format!(
            "metadata.namespace: implementations live in {SYSTEM_NAMESPACE}, not in {other}: leave the namespace out"
        )),
    }
}

fn implementation_name(resource: &str) -> String {
    let fits =
        resource.len() <= 63 && !resource.contains('.') && resource.starts_with(|c: char| c.is_ascii_lowercase());
    if fits { resource.to_owned() } else { joined(resource, "i") }
}

/// How an implementation names its resource.
pub(crate) fn reference_to(resource: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text(&resource["apiVersion"]), text(&resource["kind"]), text(&resource["metadata"]["name"]))
}

pub(crate) fn label_value(name: &str) -> String {
    if name.len() <= 63 { name.to_owned() } else { joined(name, "r") }
}

pub(crate) fn is_ready(
    implementation: &Implementation,
    object: &Value,
    resource: &Value,
    with: &dyn Expressions,
) -> Result<bool, String> {
    if implementation.ready_when.is_empty() {
        return Ok(condition_of(object, "Ready").is_some_and(|(ready, _, _)| ready));
    }
    let scope = BTreeMap::from([("implementation", object), ("resource", resource)]);
    with.evaluate(&implementation.ready_when, &scope).map(|v| v == Value::Bool(true))
}

/// Whether a field of ours has another value.
pub(crate) fn drifted(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().any(|(key, value)| match live.get(key) {
            Some(live) => drifted(live, value),
            None => !value.is_null() && value.as_object().is_none_or(|m| !m.is_empty()),
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() < wanted.len() || wanted.iter().zip(live).any(|(w, l)| drifted(l, w))
        }
        (live, wanted) => live != wanted,
    }
}

/// What becomes of an object whose owner (the resource or claim its label names) is gone, as the API server itself says.
///
/// Connection details go with their claim. An implementation that no resource ever took into service is a late write of another
/// manager's, and goes. One in service may hold data: its resource was removed by force, and an administrator is to decide
/// ([`crate::invariants`] names it).
pub fn orphan(object: &Value) -> Plan {
    let mut plan = Plan::default();
    let meta = &object["metadata"];
    let labelled = meta["labels"][RESOURCE_UID].is_string();
    // elsewhere it is a label that anybody may write
    let implementation = labelled && matches!(meta["namespace"].as_str(), None | Some("" | SYSTEM_NAMESPACE));
    let kept = [RETAINED, RECORDED].iter().any(|a| meta["annotations"][a].as_str() == Some("true"));
    let connection = !labelled && meta["labels"][CLAIM_UID].is_string();
    if ((implementation && !kept) || connection) && !deleting(object) {
        plan.delete(object, "its owner is gone");
    }
    let target = Target::of(object);
    if implementation || !is_connection(&target.api_version, &target.kind) {
        plan.of_implementation();
    }
    plan
}

/// Whether a kind is one of those that connection details have, which the managers write themselves.
pub fn is_connection(api_version: &str, kind: &str) -> bool {
    let kinds = [("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Service"), ("discovery.k8s.io/v1", "EndpointSlice")];
    kinds.contains(&(api_version, kind))
}

/// The uid of the owner whose going makes an object an [`orphan`].
pub fn owner(object: &Value) -> Option<&str> {
    let labels = &object["metadata"]["labels"];
    labels[RESOURCE_UID].as_str().or_else(|| labels[CLAIM_UID].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_owner_is_gone_goes_where_implementations_live() {
        let goes = |namespace: Value, label: &str| {
            let meta = json!({"name": "x", "namespace": namespace, "uid": "u", "labels": {label: "gone"}});
            !orphan(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta})).is_empty()
        };
        assert!(goes(json!(SYSTEM_NAMESPACE), RESOURCE_UID) && goes(Value::Null, RESOURCE_UID));
        assert!(!goes(json!("team"), RESOURCE_UID), "anybody may write that");
        assert!(goes(json!("team"), CLAIM_UID));
    }

    #[test]
    fn a_secret_is_as_it_is_kept() {
        let secret = |more: Value| {
            let mut object = json!({"apiVersion": "v1", "kind": "Secret"});
            for (field, value) in more.as_object().expect("fields") {
                object[field] = value.clone();
            }
            encode_secret(&mut object);
            object
        };
        let kept = secret(json!({"stringData": {"a": "secret"}, "data": {"b": "eA=="}}));
        assert_eq!(kept["data"], json!({"a": "c2VjcmV0", "b": "eA=="}));
        assert!(!drifted(&kept, &kept) && kept.get("stringData").is_none());
        for wrong in [json!({"stringData": {"a": 1}}), json!({"stringData": {"a": "x"}, "data": "y"})] {
            assert_eq!(secret(wrong.clone())["stringData"], wrong["stringData"]);
        }
    }
}
