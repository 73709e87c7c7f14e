//! `DefaultTolerationSeconds` and `TaintNodesByCondition`: Pods wait five minutes for a node that is away; nodes begin not ready.

use machinery::status::Status;
use serde_json::{Value, json};

use super::Plugin;
use crate::admission::{Attributes, Operation};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const SECONDS: i64 = 300;

/// Gives Pods tolerations for nodes that are away for a while.
pub struct DefaultSeconds;

impl Plugin for DefaultSeconds {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let concerned = attributes.resource.gk() == ("", "Pod")
            && attributes.subresource.is_empty()
            && matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.object["spec"].is_object();
        if !concerned {
            return Ok(());
        }
        for key in [NOT_READY, UNREACHABLE] {
            let tolerates = |own: &Value| {
                let text = |field: &str| own[field].as_str().unwrap_or_default();
                (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "" | "NoExecute")
            };
            let own = &mut attributes.object["spec"]["tolerations"];
            if own.as_array().into_iter().flatten().any(tolerates) {
                continue;
            }
            push(own, json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}));
        }
        Ok(())
    }
}

/// Keeps Pods off new nodes until somebody finds them ready.
pub struct NodesBeginNotReady;

impl Plugin for NodesBeginNotReady {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.resource.gk() != ("", "Node")
            || attributes.operation != Operation::Create
            || !attributes.subresource.is_empty()
        {
            return Ok(());
        }
        if !attributes.object["spec"].is_object() {
            attributes.object["spec"] = json!({});
        }
        let taints = &mut attributes.object["spec"]["taints"];
        let same = |own: &Value| own["key"] == NOT_READY && own["effect"] == "NoSchedule";
        if !taints.as_array().into_iter().flatten().any(same) {
            push(taints, json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}

/// Adds to a list, made if missing.
pub fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}
