//! What the audit log says about which requests: `audit.k8s.io/v1` `Policy`.

use serde_json::Value;

use crate::request::RequestInfo;
use crate::user::User;

/// How much is said about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Who did what to what, and how it ended.
    Metadata,
    /// And the object that was sent.
    Request,
    /// And the object that was answered.
    RequestResponse,
}

impl Level {
    /// As the log writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }

    fn read(text: &str) -> Option<Level> {
        [Level::None, Level::Metadata, Level::Request, Level::RequestResponse]
            .into_iter()
            .find(|own| own.as_str() == text)
    }
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file.
    #[error("cannot read the audit policy: {0}")]
    Io(#[from] std::io::Error),
    /// Its content.
    #[error("the audit policy is wrong: {0}")]
    Wrong(String),
}

/// Which requests are logged, and how much of them. The first rule that matches decides.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    omit: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    namespaces: Vec<String>,
    /// Group, resources with their parts, names.
    resources: Vec<(String, Vec<String>, Vec<String>)>,
    paths: Vec<String>,
    omit: Vec<String>,
    omit_managed: Option<bool>,
}

/// What a policy says about a request.
#[derive(Clone, Debug)]
pub struct Decision {
    /// How much is said.
    pub level: Level,
    /// Stages about which nothing is said.
    pub omit: Vec<String>,
    /// Whether managedFields are left out of objects.
    pub omit_managed: bool,
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

impl Policy {
    /// Everything at one level.
    pub fn at(level: Level) -> Policy {
        let rule = Rule {
            level,
            users: Vec::new(),
            groups: Vec::new(),
            verbs: Vec::new(),
            namespaces: Vec::new(),
            resources: Vec::new(),
            paths: Vec::new(),
            omit: Vec::new(),
            omit_managed: None,
        };
        Policy { rules: vec![rule], omit: vec!["RequestReceived".into()] }
    }

    /// Reads a policy file.
    pub fn open(path: &std::path::Path) -> Result<Policy, PolicyError> {
        let text = std::fs::read_to_string(path)?;
        let value: Value = serde_saphyr::from_str(&text).map_err(|error| PolicyError::Wrong(error.to_string()))?;
        Policy::read(&value)
    }

    /// Reads a policy.
    pub fn read(policy: &Value) -> Result<Policy, PolicyError> {
        let wrong = |why: String| Err(PolicyError::Wrong(why));
        if policy["kind"] != "Policy" || policy["apiVersion"] != "audit.k8s.io/v1" {
            return wrong("it must be a Policy of audit.k8s.io/v1".into());
        }
        let omit_managed = policy["omitManagedFields"].as_bool();
        let mut rules = Vec::new();
        for (at, rule) in policy["rules"].as_array().into_iter().flatten().enumerate() {
            let Some(level) = rule["level"].as_str().and_then(Level::read) else {
                return wrong(format!("rules[{at}].level must be None, Metadata, Request or RequestResponse"));
            };
            let resources = rule["resources"].as_array().into_iter().flatten().map(|own| {
                let group = own["group"].as_str().unwrap_or_default().to_owned();
                (group, strings(&own["resources"]), strings(&own["resourceNames"]))
            });
            rules.push(Rule {
                level,
                users: strings(&rule["users"]),
                groups: strings(&rule["userGroups"]),
                verbs: strings(&rule["verbs"]),
                namespaces: strings(&rule["namespaces"]),
                resources: resources.collect(),
                paths: strings(&rule["nonResourceURLs"]),
                omit: strings(&rule["omitStages"]),
                omit_managed: rule["omitManagedFields"].as_bool().or(omit_managed),
            });
        }
        if rules.is_empty() {
            return wrong("it has no rules".into());
        }
        let policy = Policy { rules, omit: strings(&policy["omitStages"]) };
        let mut stages = policy.omit.iter().chain(policy.rules.iter().flat_map(|rule| &rule.omit));
        match stages.find(|stage| !STAGES.contains(&stage.as_str())) {
            Some(stage) => wrong(format!("{stage} is no stage: use {}", STAGES.join(", "))),
            None => Ok(policy),
        }
    }

    /// What is said about a request.
    pub fn decide(&self, user: &User, info: &RequestInfo) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(user, info));
        let mut level = rule.map_or(Level::None, |rule| rule.level);
        if level > Level::Metadata && is_secret(info) {
            level = Level::Metadata;
        }
        let mut omit = self.omit.clone();
        omit.extend(rule.into_iter().flat_map(|rule| rule.omit.iter().cloned()));
        Decision { level, omit, omit_managed: rule.and_then(|rule| rule.omit_managed).unwrap_or(false) }
    }
}

/// Whether the objects of a request are secrets themselves: they are in no log, whatever a policy says.
fn is_secret(info: &RequestInfo) -> bool {
    matches!(
        (info.group.as_str(), info.resource.as_str(), info.subresource.as_str()),
        ("", "secrets", _) | ("", "serviceaccounts", "token") | ("authentication.k8s.io", "tokenreviews", _)
    ) || info.group == crate::transactions::GROUP
}

impl Rule {
    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        let has = |list: &[String], item: &str| list.is_empty() || list.iter().any(|own| own == item);
        if !has(&self.users, &user.name)
            || !(self.groups.is_empty() || self.groups.iter().any(|group| user.in_group(group)))
            || !has(&self.verbs, &info.verb)
        {
            return false;
        }
        if self.resources.is_empty() && self.namespaces.is_empty() && self.paths.is_empty() {
            return true;
        }
        if !info.is_resource {
            let meets = |own: &String| match own.strip_suffix('*') {
                Some(prefix) => info.path.starts_with(prefix),
                None => *own == info.path,
            };
            return self.paths.iter().any(meets);
        }
        if !self.paths.is_empty() || !has(&self.namespaces, &info.namespace) {
            return false;
        }
        let whole = match info.subresource.as_str() {
            "" => info.resource.clone(),
            part => format!("{}/{part}", info.resource),
        };
        let part = format!("*/{}", info.subresource);
        self.resources.is_empty()
            || self.resources.iter().any(|(group, resources, names)| {
                let named = has(names, &info.name);
                let listed = resources.is_empty()
                    || resources.iter().any(|own| {
                        *own == whole
                            || own == "*"
                            || (!info.subresource.is_empty()
                                && (*own == part || *own == format!("{}/*", info.resource)))
                    });
                *group == info.group && named && listed
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = Policy::read(&json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
            {"level": "None", "users": ["noisy"], "verbs": ["watch"]},
            {"level": "None", "nonResourceURLs": ["/healthz*", "/version"]},
            {"level": "Metadata", "resources": [{"group": "", "resources": ["configmaps"]}], "namespaces": ["kube-system"]},
            {"level": "Request", "resources": [{"group": "", "resources": ["pods/*"]}], "omitStages": ["ResponseStarted"]},
            {"level": "RequestResponse", "userGroups": ["team"]},
            {"level": "RequestResponse", "resources": [{"group": "apps", "resources": ["deployments"], "resourceNames": ["web"]}]},
        ]}))
        .unwrap();
        let info = |verb: &'static str, group: &str, namespace: &str, resource: &str, subresource: &str, name: &str| {
            RequestInfo {
                is_resource: !resource.is_empty(),
                verb: verb.into(),
                group: group.into(),
                namespace: namespace.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                name: name.into(),
                path: if resource.is_empty() { name.into() } else { String::new() },
                ..Default::default()
            }
        };
        for (user, groups, info, level) in [
            ("noisy", &["team"][..], info("watch", "", "x", "pods", "", ""), Level::None),
            ("noisy", &["team"][..], info("get", "", "x", "pods", "", ""), Level::RequestResponse),
            ("jane", &[][..], info("get", "", "", "", "", "/healthz/ping"), Level::None),
            ("jane", &[][..], info("get", "", "kube-system", "configmaps", "", "a"), Level::Metadata),
            ("jane", &[][..], info("get", "", "default", "configmaps", "", "a"), Level::None),
            ("jane", &[][..], info("create", "", "default", "pods", "eviction", "a"), Level::Request),
            ("jane", &[][..], info("update", "apps", "default", "deployments", "", "web"), Level::RequestResponse),
            ("jane", &[][..], info("update", "apps", "default", "deployments", "", "other"), Level::None),
            // Never the secrets themselves.
            ("jane", &["team"][..], info("get", "", "default", "secrets", "", "s"), Level::Metadata),
            ("jane", &["team"][..], info("create", "", "default", "serviceaccounts", "token", "s"), Level::Metadata),
        ] {
            let user = User::new(user, groups.iter().copied());
            assert_eq!(policy.decide(&user, &info).level, level, "{} {}", user.name, info.describe());
        }
        for wrong in [
            json!({}),
            json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}),
            json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "All"}]}),
        ] {
            assert!(Policy::read(&wrong).is_err(), "{wrong}");
        }
    }
}
