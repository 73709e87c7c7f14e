//! Which kinds the server has and where.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conductor_claims::types::group_of;
use parking_lot::Mutex;
use serde_json::Value;

use super::{Api, Failure, is_name, segment};

/// A kind as the server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its kind.
    pub kind: String,
    /// Its name in paths.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether status is written apart.
    pub status: bool,
    /// Other names people use.
    pub aliases: Vec<String>,
}

impl Served {
    /// The path of an object or, without a name, of a collection.
    pub fn path(&self, api_version: &str, namespace: &str, name: &str, status: bool) -> String {
        let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
        let mut path = format!("{root}{api_version}");
        if self.namespaced && !namespace.is_empty() {
            path += &format!("/namespaces/{}", segment(namespace));
        }
        path += &format!("/{}", self.plural);
        if !name.is_empty() {
            path += &format!("/{}", segment(name));
        }
        if status && self.status {
            path += "/status";
        }
        path
    }
}

struct Group {
    kinds: HashMap<String, Arc<Served>>,
    read: Instant,
}

/// What is known, by group and version.
#[derive(Default)]
pub struct Discovery {
    groups: Mutex<HashMap<String, Group>>,
}

/// How long a kind that is not there is believed not to be.
const STALE: Duration = Duration::from_millis(200);

impl Discovery {
    pub(super) async fn served(&self, api: &Api, api_version: &str, kind: &str) -> Result<Arc<Served>, Failure> {
        let missing = || Failure::missing(format!("kind {kind} of {api_version} is not served here"));
        if let Some(group) = self.groups.lock().get(api_version) {
            match group.kinds.get(kind) {
                Some(served) => return Ok(served.clone()),
                None if group.read.elapsed() < STALE => return Err(missing()),
                None => {}
            }
        }
        let kinds = self.read(api, api_version).await?;
        let found = kinds.get(kind).cloned().ok_or_else(missing);
        self.groups.lock().insert(api_version.to_owned(), Group { kinds, read: Instant::now() });
        found
    }

    pub(super) fn forget(&self, api_version: &str) {
        self.groups.lock().remove(api_version);
    }

    pub(super) fn forget_group(&self, group: &str) {
        self.groups.lock().retain(|api_version, _| group_of(api_version) != group);
    }

    async fn read(&self, api: &Api, api_version: &str) -> Result<HashMap<String, Arc<Served>>, Failure> {
        if !api_version.split('/').all(is_name) {
            return Err(Failure::missing(format!("{api_version:?} is no group and version")));
        }
        let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
        let list = api.read(&format!("{root}{api_version}")).await?.unwrap_or_default();
        let mut kinds: HashMap<String, Served> = HashMap::new();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let resources = list["resources"].as_array().cloned().unwrap_or_default();
        for resource in resources.iter().filter(|r| !text(&r["name"]).contains('/')) {
            let mut aliases = vec![text(&resource["name"]), text(&resource["singularName"])];
            aliases.extend(resource["shortNames"].as_array().into_iter().flatten().map(text));
            kinds.insert(
                text(&resource["kind"]),
                Served {
                    kind: text(&resource["kind"]),
                    plural: text(&resource["name"]),
                    namespaced: resource["namespaced"].as_bool().unwrap_or(false),
                    status: false,
                    aliases,
                },
            );
        }
        for resource in &resources {
            if let Some(plural) = text(&resource["name"]).strip_suffix("/status")
                && let Some(served) = kinds.values_mut().find(|s| s.plural == plural)
            {
                served.status = true;
            }
        }
        Ok(kinds.into_iter().map(|(kind, served)| (kind, Arc::new(served))).collect())
    }

    pub(super) async fn kind_of(&self, api: &Api, word: &str) -> Result<Option<(String, Arc<Served>)>, Failure> {
        let word = word.to_ascii_lowercase();
        let (word, group) = word.split_once('.').map_or((word.as_str(), None), |(w, g)| (w, Some(g.to_owned())));
        let list = api.read("/apis").await?.unwrap_or_default();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let mut versions = vec!["v1".to_owned()];
        versions.extend(
            list["groups"].as_array().into_iter().flatten().map(|g| text(&g["preferredVersion"]["groupVersion"])),
        );
        for version in versions.iter().filter(|v| !v.is_empty()) {
            let own = version.split_once('/').map_or("", |(g, _)| g);
            if group.as_ref().is_some_and(|g| g != own && g.split_once('.').map(|(_, g)| g) != Some(own)) {
                continue;
            }
            let kinds = self.read(api, version).await?;
            let named = |s: &&Arc<Served>| s.kind.eq_ignore_ascii_case(word) || s.aliases.iter().any(|a| a == word);
            if let Some(served) = kinds.values().find(named) {
                return Ok(Some((version.clone(), served.clone())));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_writes_leads_nowhere_else() {
        let served = Served {
            kind: "Thing".into(),
            plural: "things".into(),
            namespaced: true,
            status: true,
            aliases: Vec::new(),
        };
        let check = |namespace: &str, name: &str, expected: &str| {
            assert_eq!(served.path("a.example/v1", namespace, name, false), format!("/apis/a.example/v1{expected}"));
        };
        check("n", "x.y-1", "/namespaces/n/things/x.y-1");
        check("n", "conductor:managers", "/namespaces/n/things/conductor:managers");
        check("n", "?watch=true", "/namespaces/n/things/%3Fwatch%3Dtrue");
        check("n", "../../secrets/x", "/namespaces/n/things/..%2F..%2Fsecrets%2Fx");
        check("..", "..", "/namespaces/%2E%2E/things/%2E%2E");
        check("n", "a%2f#", "/namespaces/n/things/a%252f%23");
    }
}
