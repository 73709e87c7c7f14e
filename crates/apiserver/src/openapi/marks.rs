//! What Kubernetes' types say of themselves only in comments of its sources, so that the table of built-in kinds lacks it.

use machinery::schema::{ListKind, Schema, Shape};
use serde_json::{Map, Value, json};

/// What a field says besides what its type is.
pub fn of_field(owner: &str, field: &str, schema: Schema<'_>, beside: &mut Map<String, Value>) {
    let mut put = |key: &str, value: &str| beside.insert(key.into(), value.into());
    match (last(owner), field) {
        ("PodDisruptionBudgetSpec", "selector") => {
            put("x-kubernetes-patch-strategy", "replace");
        }
        ("PersistentVolumeClaimStatus", "allocatedResourceStatuses") => {
            put("x-kubernetes-map-type", "granular");
        }
        ("APIServiceSpec", "caBundle") => {
            put("x-kubernetes-list-type", "atomic");
        }
        // All lists say what they are, except those that discovery has and the objects in a list.
        ("APIResource", "verbs") => {}
        (list, "items") if list.ends_with("List") => {}
        _ => {
            if matches!(schema.shape(), Shape::List { list: ListKind::Atomic, .. }) {
                put("x-kubernetes-list-type", "atomic");
            }
        }
    }
}

/// Which fields of a type exclude each other, and which one says which it is.
pub fn unions(name: &str) -> Option<Value> {
    let (discriminator, fields) = match last(name) {
        "AppArmorProfile" | "SeccompProfile" => ("type", json!({"localhostProfile": "LocalhostProfile"})),
        "PodSchedulingGroup" => ("", json!({"podGroupName": "PodGroupName"})),
        "LimitResponse" => ("type", json!({"queuing": "Queuing"})),
        "PriorityLevelConfigurationSpec" => ("type", json!({"exempt": "Exempt", "limited": "Limited"})),
        "Subject" if name.contains(".flowcontrol.") => {
            ("kind", json!({"group": "Group", "serviceAccount": "ServiceAccount", "user": "User"}))
        }
        _ => return None,
    };
    let mut union = json!({"fields-to-discriminateBy": fields});
    if !discriminator.is_empty() {
        union["discriminator"] = discriminator.into();
    }
    Some(json!([union]))
}

/// A type's name without its package.
pub fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
