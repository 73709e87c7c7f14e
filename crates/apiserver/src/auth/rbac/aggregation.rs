//! ClusterRoles that gather the rules of others by their labels.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use machinery::selector::Selector;
use serde_json::{Value, json};
use store::KeyRange;

use super::GROUP;
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const MANAGER: &str = "clusterrole-aggregation-controller";
const TABLE: &str = "rbac.authorization.k8s.io/clusterroles";

/// The rules that a role should have, if it gathers any: those of all roles it selects, in order of name, each once.
pub fn gathered(role: &Value, all: &BTreeMap<String, Value>) -> Option<Vec<Value>> {
    let selectors = role.get("aggregationRule")?["clusterRoleSelectors"].as_array()?;
    let own = role["metadata"]["name"].as_str().unwrap_or_default();
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let selector = Selector::from_object(selector).ok()?;
        for (_, other) in all.iter().filter(|(name, _)| *name != own) {
            let none = serde_json::Map::new();
            let labels = other["metadata"]["labels"].as_object().unwrap_or(&none);
            if !selector.matches(labels) {
                continue;
            }
            for rule in other["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

/// Gathers until nothing changes any more: what is gathered may be gathered again.
pub fn settle(all: &mut BTreeMap<String, Value>) {
    // Each round carries rules one step further; more steps than roles there cannot be.
    for _ in 0..all.len() {
        let changed: Vec<(String, Vec<Value>)> = all
            .iter()
            .filter_map(|(name, role)| {
                let rules = gathered(role, all)?;
                let same = role["rules"].as_array().is_some_and(|own| *own == rules);
                (!same).then(|| (name.clone(), rules))
            })
            .collect();
        if changed.is_empty() {
            return;
        }
        for (name, rules) in changed {
            if let Some(role) = all.get_mut(&name) {
                role["rules"] = rules.into();
            }
        }
    }
}

/// Keeps gathering roles as they should be.
pub async fn run(server: Server) {
    let local = Local::new(&server, MANAGER);
    loop {
        let Ok(list) = server.store().list(TABLE, KeyRange::all(), None) else { continue };
        let mut all = BTreeMap::new();
        for entry in &list.entries {
            if let Ok(role) = parse_stored(entry) {
                all.insert(entry.key.to_string(), role);
            }
        }
        let before = all.clone();
        settle(&mut all);
        let mut failed = false;
        for (name, role) in &all {
            if before.get(name).is_some_and(|before| before["rules"] != role["rules"]) {
                let path = format!("/apis/{GROUP}/v1/clusterroles/{}?fieldManager={MANAGER}&force=true", encoded(name));
                let patch = json!({
                    "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
                    "metadata": {"name": name, "uid": role["metadata"]["uid"]}, "rules": role["rules"],
                });
                let body = Bytes::from(patch.to_string());
                if let Err(status) = local.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await {
                    tracing::debug!(%status, name, "a role could not gather its rules");
                    failed |= !matches!(status.code, 404 | 409);
                }
            }
        }
        if failed {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        }
        let Ok(mut watch) = server.store().watch(TABLE, "", list.revision) else { continue };
        if watch.next().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A name as part of a path.
fn encoded(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_gather_across_several_steps() {
        let role = |name: &str, labels: &[&str], gathers: Option<&str>, verbs: &[&str]| {
            let labels: serde_json::Map<String, Value> =
                labels.iter().map(|label| ((*label).to_owned(), "true".into())).collect();
            let mut role = json!({"metadata": {"name": name, "labels": labels}, "rules": [{"verbs": verbs}]});
            if let Some(label) = gathers {
                role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
            }
            (name.to_owned(), role)
        };
        let mut all = BTreeMap::from([
            role("admin", &[], Some("to-admin"), &["stale"]),
            role("edit", &["to-admin"], Some("to-edit"), &[]),
            role("view", &["to-edit"], Some("to-view"), &[]),
            role("a", &["to-view"], None, &["get"]),
            role("b", &["to-edit", "to-view"], None, &["list"]),
            role("ring", &["ring"], Some("ring"), &["gone"]),
        ]);
        settle(&mut all);
        assert_eq!(all["view"]["rules"], json!([{"verbs": ["get"]}, {"verbs": ["list"]}]));
        assert_eq!(all["edit"]["rules"], json!([{"verbs": ["list"]}, {"verbs": ["get"]}]));
        assert_eq!(all["admin"]["rules"], all["edit"]["rules"]);
        assert_eq!(all["ring"]["rules"], json!([]));
    }
}
