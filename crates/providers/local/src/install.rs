//! What the API needs before a provider runs: its definitions, its account, and no more rights than it needs.

use serde_json::{Value, json};

use crate::provider::Provider;
use crate::{API_VERSION, SYSTEM_NAMESPACE};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

const INFRASTRUCTURE: &str = "infrastructure-admin";
const INFRASTRUCTURE_EVERYWHERE: &str = "infrastructure-view";

/// The name of a provider's service account in the system namespace.
pub fn account(name: &str) -> String {
    format!("provider-{name}")
}

/// Everything but the examples, in the order in which it is to be applied.
pub fn objects(provider: &Provider) -> Vec<Value> {
    let name = provider.name;
    let role = format!("conductor:provider-{name}");
    let subject = json!([{"kind": "ServiceAccount", "name": account(name), "namespace": SYSTEM_NAMESPACE}]);
    let reference = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    let mut rules = Vec::new();
    let mut granted = Vec::new();
    let (mut administered, mut administered_everywhere) = (Vec::new(), Vec::new());
    for definition in &provider.definitions {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let own = plural.as_str().unwrap_or_default();
        rules.push(json!({"apiGroups": [group], "resources": [own], "verbs": ["get", "list", "watch", "patch"]}));
        rules.push(json!({"apiGroups": [group], "resources": [format!("{own}/status")], "verbs": ["patch"]}));
        // an owner that blocks no deletion needs no more
        let work = ["get", "list", "watch", "create", "update", "patch", "delete"];
        granted.push(json!({"apiGroups": [group], "resources": [own], "verbs": work}));
        let all = [&work[..], &["deletecollection"]].concat();
        let administer = match definition["spec"]["scope"].as_str() {
            Some("Cluster") => &mut administered_everywhere,
            _ => &mut administered,
        };
        administer.push(json!({"apiGroups": [group], "resources": [own], "verbs": all}));
    }
    rules.push(
        json!({"apiGroups": ["conductor.io"], "resources": ["providers"], "verbs": ["get", "list", "watch"], "resourceNames": [name]}),
    );
    rules.push(
        json!({"apiGroups": ["conductor.io"], "resources": ["providers/status"], "verbs": ["patch"], "resourceNames": [name]}),
    );
    rules.extend(provider.rules.iter().cloned());
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]}]);
    let within = |kind: &str| json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": role, "namespace": SYSTEM_NAMESPACE}});
    let everywhere = |kind: &str| json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": role}});
    let with = |mut object: Value, fields: Value| {
        for (key, value) in fields.as_object().into_iter().flatten() {
            object[key.as_str()] = value.clone();
        }
        object
    };
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account(name), "namespace": SYSTEM_NAMESPACE}}),
        with(everywhere("ClusterRole"), json!({"rules": rules})),
        with(everywhere("ClusterRoleBinding"), json!({"roleRef": reference("ClusterRole"), "subjects": subject})),
        with(within("Role"), json!({"rules": secrets})),
        with(within("RoleBinding"), json!({"roleRef": reference("Role"), "subjects": subject})),
        // what the managers may make
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole",
            "metadata": {
                "name": format!("conductor:provisioner-{name}"),
                "labels": {"conductor.io/aggregate-to-provisioner": "true"},
            },
            "rules": granted,
        }),
    ];
    // what infrastructure admins may: in the system namespace, and of what is in none
    for (label, rules) in [(INFRASTRUCTURE, administered), (INFRASTRUCTURE_EVERYWHERE, administered_everywhere)] {
        if rules.is_empty() {
            continue;
        }
        let name = format!("conductor:{label}-{name}");
        let metadata = json!({"name": name, "labels": {format!("conductor.io/aggregate-to-{label}"): "true"}});
        all.push(json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules}));
    }
    all.extend(provider.definitions.iter().cloned());
    all.push(json!({"apiVersion": API_VERSION, "kind": "Provider", "metadata": {"name": name}}));
    all
}

/// Reads a file of several objects, as it is built into a provider.
pub fn parse(yaml: &str) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for document in yaml.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).map_err(|e| format!("{e}"))?;
        if !object.is_null() {
            all.push(object);
        }
    }
    Ok(all)
}
