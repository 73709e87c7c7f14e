//! API priority and fairness: which FlowSchema a request falls under, and by it which priority level.
//!
//! What follows from it here: the answer's headers say so, and what is exempt waits for nobody. Among all others turns are
//! by user (see [`crate::gate`]), whatever shares the levels have.

pub mod defaults;

use std::collections::HashMap;

use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use store::Store;

use crate::plugins::cached::Cached;
use crate::request::RequestInfo;
use crate::user::User;

/// The API group.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Where schemas are kept.
pub const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
/// Where levels are kept.
pub const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";

/// Classifies requests by the objects in a store.
pub struct Flows {
    schemas: Cached<Vec<Schema>>,
    levels: Cached<HashMap<String, Level>>,
}

/// What a request is.
#[derive(Debug)]
pub struct Class {
    schema: HeaderValue,
    level: HeaderValue,
    /// Whether it waits for nobody.
    pub exempt: bool,
}

#[derive(Debug)]
struct Level {
    uid: HeaderValue,
    exempt: bool,
    shares: u64,
}

#[derive(Debug)]
struct Schema {
    uid: HeaderValue,
    name: String,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    matching_precedence: i64,
    priority_level_configuration: Named,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Rule {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<PathRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
}

impl Flows {
    /// Classifies by what is in `store`, now and later.
    pub fn new(store: &Store) -> Flows {
        Flows { schemas: Cached::new(store, SCHEMAS, schemas), levels: Cached::new(store, LEVELS, levels) }
    }

    /// What a request is: the schema that comes first among those that match and have a level.
    pub fn classify(&self, user: &User, info: &RequestInfo) -> Option<Class> {
        let (schemas, levels) = (self.schemas.latest(), self.levels.latest());
        let matching = schemas.iter().filter(|schema| schema.spec.rules.iter().any(|rule| rule.matches(user, info)));
        let mut found =
            matching.filter_map(|schema| Some((schema, levels.get(&schema.spec.priority_level_configuration.name)?)));
        let (schema, level) = found.next()?;
        Some(Class { schema: schema.uid.clone(), level: level.uid.clone(), exempt: level.exempt })
    }
}

impl Flows {
    /// The levels by name, with what each has of so many places by its shares.
    pub fn seats(&self, places: usize) -> Vec<(String, u64)> {
        let levels = self.levels.latest();
        let all: u64 = levels.values().map(|level| level.shares).sum::<u64>().max(1);
        let part = |level: &Level| (places as u64).saturating_mul(level.shares).div_ceil(all);
        let mut seats: Vec<_> = levels.iter().map(|(name, level)| (name.clone(), part(level))).collect();
        seats.sort();
        seats
    }
}

impl Class {
    /// Says it to the client.
    pub fn tell(self, headers: &mut HeaderMap) {
        headers.insert("x-kubernetes-pf-flowschema-uid", self.schema);
        headers.insert("x-kubernetes-pf-prioritylevel-uid", self.level);
    }
}

fn uid(object: &Value) -> Option<HeaderValue> {
    HeaderValue::from_str(object["metadata"]["uid"].as_str()?).ok()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn schemas(objects: Vec<Value>) -> Vec<Schema> {
    let read = |object: &Value| {
        Some(Schema { uid: uid(object)?, name: name(object), spec: Spec::deserialize(&object["spec"]).ok()? })
    };
    let mut all: Vec<Schema> = objects.iter().filter_map(read).collect();
    all.sort_by(|a, b| (a.spec.matching_precedence, &a.name).cmp(&(b.spec.matching_precedence, &b.name)));
    all
}

fn levels(objects: Vec<Value>) -> HashMap<String, Level> {
    let read = |object: &Value| {
        let exempt = object["spec"]["type"] == "Exempt";
        let part = if exempt { "exempt" } else { "limited" };
        let shares = object["spec"][part]["nominalConcurrencyShares"].as_u64().unwrap_or(0);
        Some((name(object), Level { uid: uid(object)?, exempt, shares }))
    };
    objects.iter().filter_map(read).collect()
}

/// Whether a list has it; a lone `*` has everything.
fn has(list: &[String], wanted: &str) -> bool {
    matches!(list, [only] if only == "*") || list.iter().any(|own| own == wanted)
}

impl Rule {
    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        if !self.subjects.iter().any(|subject| subject.matches(user)) {
            return false;
        }
        match info.is_resource {
            true => self.resource_rules.iter().any(|rule| rule.matches(info)),
            false => self.non_resource_rules.iter().any(|rule| rule.matches(info)),
        }
    }
}

impl Subject {
    fn matches(&self, user: &User) -> bool {
        if let Some(own) = &self.user {
            return own.name == "*" || own.name == user.name;
        }
        if let Some(group) = &self.group {
            return group.name == "*" || user.in_group(&group.name);
        }
        let Some(account) = &self.service_account else { return false };
        let parts = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        parts.is_some_and(|(namespace, name)| {
            namespace == account.namespace && (account.name == "*" || account.name == name)
        })
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let resource = match info.subresource.is_empty() {
            true => has(&self.resources, &info.resource),
            false => has(&self.resources, &format!("{}/{}", info.resource, info.subresource)),
        };
        resource
            && has(&self.verbs, &info.verb)
            && has(&self.api_groups, &info.group)
            && match info.namespace.is_empty() {
                true => self.cluster_scope,
                false => has(&self.namespaces, &info.namespace),
            }
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let below = |path: &String| {
            let root = path.trim_end_matches('*');
            let rest = info.path.strip_prefix(root);
            path == "*" || *path == info.path || rest.is_some_and(|rest| root.ends_with('/') || rest.starts_with('/'))
        };
        has(&self.verbs, &info.verb) && self.paths.iter().any(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    fn request(method: &str, path: &str) -> RequestInfo {
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse("")).unwrap()
    }

    #[test]
    fn requests_fall_under_the_first_schema_that_matches() {
        let mut objects: Vec<Value> = defaults::objects().into_iter().map(|(_, object)| object).collect();
        for object in &mut objects {
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
        }
        let (own, levels): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|object| object["kind"] == "FlowSchema");
        let (schemas, levels) = (schemas(own), self::levels(levels));
        assert_eq!((schemas.len(), levels.len()), (11, 8));
        let check = |user: &User, info: &RequestInfo, expected: &str| {
            let found = schemas.iter().find(|schema| schema.spec.rules.iter().any(|rule| rule.matches(user, info)));
            assert_eq!(found.map(|schema| &*schema.name), Some(expected), "{user:?} {info:?}");
        };
        let user = |name: &str| User::new(name, Vec::<String>::new());
        let (pods, lease) =
            (request("GET", "/api/v1/pods"), request("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/x"));
        let node = User::new("system:node:n", ["system:nodes"]);
        check(&User::new("root", [crate::user::MASTERS]), &pods, "exempt");
        check(&user("ann"), &pods, "global-default");
        check(&User::anonymous(), &request("GET", "/healthz"), "probes");
        check(&User::anonymous(), &request("GET", "/healthz/ping"), "probes");
        check(&User::anonymous(), &request("GET", "/healthzzz"), "global-default");
        check(&user("system:kube-scheduler"), &lease, "system-leader-election");
        check(&user("system:kube-scheduler"), &pods, "kube-scheduler");
        check(&node, &lease, "system-node-high");
        check(&node, &request("PATCH", "/api/v1/nodes/n/status"), "system-node-high");
        check(&node, &request("GET", "/api/v1/nodes/n/proxy"), "system-nodes");
        check(&User::service_account("kube-system", "x"), &pods, "kube-system-service-accounts");
        check(&User::service_account("kube-systems", "x"), &pods, "service-accounts");
        assert!(levels["exempt"].exempt && !levels["catch-all"].exempt);
    }
}
