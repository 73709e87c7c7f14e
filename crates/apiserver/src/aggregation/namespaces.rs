//! What other servers have in a namespace goes with it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::proxy;
use crate::local::Local;
use crate::server::Server;

/// What is left in a namespace on other servers.
#[derive(Default)]
pub struct Left {
    /// How many objects of which resource.
    pub remaining: BTreeMap<String, usize>,
    /// Why something could not be deleted.
    pub failures: Vec<String>,
    /// Who does not answer, so that nobody knows.
    pub unknown: Vec<String>,
}

/// Deletes what other servers have in a namespace, and says what is left.
pub async fn empty(server: &Server, local: &Local, namespace: &str) -> Left {
    let mut left = Left::default();
    for remote in server.0.remotes.all() {
        let version = format!("{}/{}", remote.group, remote.version);
        let said = remote.said.lock().resources.clone();
        let Some(resources) = said.filter(|_| remote.is_available()) else {
            left.unknown.push(version);
            continue;
        };
        let can =
            |resource: &Value, verb: &str| resource["verbs"].as_array().is_some_and(|own| own.contains(&verb.into()));
        let content = resources.iter().filter(|own| own["scope"] == "Namespaced");
        for resource in content.filter(|own| can(own, "list") && can(own, "deletecollection")) {
            let plural = resource["resource"].as_str().unwrap_or_default();
            let path = format!("/apis/{version}/namespaces/{namespace}/{plural}");
            let count = async || match proxy::ask(&server.0, &remote, &path).await {
                Ok(list) => Ok(list["items"].as_array().map_or(0, Vec::len)),
                Err(why) => Err(why),
            };
            let counted = match count().await {
                Ok(0) => continue,
                Ok(_) => match local.delete(&path, &json!({"propagationPolicy": "Background"})).await {
                    Ok(_) => count().await,
                    Err(status) => Err(format!("{path} cannot be deleted: the server answers {}", status.code)),
                },
                Err(why) => Err(why),
            };
            match counted {
                Ok(0) => {}
                Ok(count) => drop(left.remaining.insert(format!("{plural}.{}", remote.group), count)),
                Err(why) => left.failures.push(why),
            }
        }
    }
    left
}
