//! One rule of a role, and what it allows.

use serde_json::{Map, Value};

use crate::request::RequestInfo;

/// Verbs on resources or on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What may be done; `*` for everything.
    pub verbs: Vec<String>,
    /// In which API groups; empty for the core group, `*` for all.
    pub groups: Vec<String>,
    /// To which resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// To which objects only; all if empty.
    pub names: Vec<String>,
    /// On which paths: `/healthz`, `/apis/*`, `*`.
    pub paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|own| own == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|own| own == wanted || own == "*")
}

/// Whether a path of a rule is, or stands for, another path.
fn path_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

impl Rule {
    /// Reads a rule as objects write it.
    pub fn from_json(rule: &Value) -> Rule {
        let list = |name: &str| {
            rule[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// The rule as objects write it.
    pub fn to_json(&self) -> Value {
        let mut rule = Map::new();
        for (name, list) in [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ] {
            if !list.is_empty() || name == "verbs" {
                rule.insert(name.into(), list.clone().into());
            }
        }
        rule.into()
    }

    /// Everything on everything.
    pub fn everything() -> [Rule; 2] {
        let all = || vec!["*".to_owned()];
        [
            Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), paths: all(), ..Rule::default() },
        ]
    }

    /// Whether it allows a request.
    pub fn allows(&self, info: &RequestInfo) -> bool {
        if !has_or_all(&self.verbs, &info.verb) {
            return false;
        }
        if !info.is_resource {
            return self.paths.iter().any(|own| path_covers(own, &info.path));
        }
        has_or_all(&self.groups, &info.group)
            && self.is_about(&info.resource, &info.subresource)
            && (self.names.is_empty() || has(&self.names, &info.name))
    }

    fn is_about(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|own| {
            if own == "*" {
                return true;
            }
            if subresource.is_empty() {
                return own == resource;
            }
            // `*/scale` is the scale of anything.
            own.strip_suffix(subresource)
                .and_then(|rest| rest.strip_suffix('/'))
                .is_some_and(|rest| rest == "*" || rest == resource)
        })
    }

    /// The rule in pieces that have one verb, and one resource and name, or one path, each.
    pub fn atoms(&self) -> impl Iterator<Item = Atom<'_>> {
        let names = move || {
            let own = self.names.iter().map(|name| Some(name.as_str()));
            own.chain(self.names.is_empty().then_some(None))
        };
        let resources = self.groups.iter().flat_map(move |group| {
            self.resources.iter().flat_map(move |resource| {
                self.verbs
                    .iter()
                    .flat_map(move |verb| names().map(move |name| Atom::Resource { verb, group, resource, name }))
            })
        });
        let paths =
            self.paths.iter().flat_map(move |path| self.verbs.iter().map(move |verb| Atom::Path { verb, path }));
        resources.chain(paths)
    }

    /// How many pieces it has.
    pub fn size(&self) -> usize {
        let objects = self.groups.len().saturating_mul(self.resources.len()).saturating_mul(self.names.len().max(1));
        objects.saturating_add(self.paths.len()).saturating_mul(self.verbs.len())
    }

    /// Whether it gives all that another rule gives, seen list by list. Never says yes wrongly.
    pub fn covers_whole(&self, other: &Rule) -> bool {
        let all = |own: &[String], other: &[String]| has(own, "*") || other.iter().all(|one| has(own, one));
        all(&self.verbs, &other.verbs)
            && all(&self.groups, &other.groups)
            && all(&self.resources, &other.resources)
            && other.paths.iter().all(|path| self.paths.iter().any(|own| path_covers(own, path)))
            && self.names.is_empty()
    }

    /// Whether it gives all that a piece of another rule gives.
    pub fn covers(&self, atom: &Atom<'_>) -> bool {
        match *atom {
            Atom::Path { verb, path } => {
                // A rule that is bound to names says nothing of paths.
                self.names.is_empty()
                    && has_or_all(&self.verbs, verb)
                    && self.paths.iter().any(|own| path_covers(own, path))
            }
            Atom::Resource { verb, group, resource, name } => {
                has_or_all(&self.verbs, verb)
                    && has_or_all(&self.groups, group)
                    && (has_or_all(&self.resources, resource)
                        || resource.split_once('/').is_some_and(|(_, sub)| {
                            self.resources.iter().any(|own| own.strip_prefix("*/") == Some(sub))
                        }))
                    && (self.names.is_empty() || name.is_some_and(|name| has(&self.names, name)))
            }
        }
    }
}

/// The smallest right: either some rule gives it or none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom<'a> {
    /// A verb on a resource, or on one object of it.
    Resource {
        /// The verb.
        verb: &'a str,
        /// The API group.
        group: &'a str,
        /// The resource, with its subresource.
        resource: &'a str,
        /// The object; all of them if none.
        name: Option<&'a str>,
    },
    /// A verb on a path.
    Path {
        /// The verb.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(verb: &str, what: &str) -> RequestInfo {
        if what.starts_with('/') {
            return RequestInfo { verb: verb.to_owned().into(), path: what.into(), ..RequestInfo::default() };
        }
        // group:resource[/subresource][=name]
        let (group, rest) = what.split_once(':').unwrap();
        let (rest, name) = rest.split_once('=').unwrap_or((rest, ""));
        let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        RequestInfo {
            is_resource: true,
            verb: verb.to_owned().into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..RequestInfo::default()
        }
    }

    fn check(rule: Value, verb: &str, what: &str, expected: bool) {
        assert_eq!(Rule::from_json(&rule).allows(&ask(verb, what)), expected, "{rule}: {verb} {what}");
    }

    #[test]
    fn a_rule_allows_what_it_says() {
        let pods = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]});
        for (verb, what, expected) in [
            ("get", ":pods=a", true),
            ("list", ":pods", true),
            ("get", ":pods/log=a", true),
            ("get", ":pods/status=a", false),
            ("create", ":pods", false),
            ("get", "apps:pods=a", false),
            ("get", ":pods/log/x=a", false),
            ("get", "/pods", false),
        ] {
            check(pods.clone(), verb, what, expected);
        }
        let scale = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]});
        check(scale.clone(), "update", "apps:deployments/scale=a", true);
        check(scale.clone(), "update", "apps:deployments=a", false);
        check(scale.clone(), "update", "apps:deployments/xscale=a", false);
        check(scale, "update", "apps:scale=a", false);
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        check(all.clone(), "proxy", "x:y/z=a", true);
        check(all, "get", "/metrics", false);
        let named = json!({"verbs": ["get", "list", "create"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]});
        check(named.clone(), "get", ":secrets=a", true);
        check(named.clone(), "get", ":secrets=b", false);
        check(named.clone(), "list", ":secrets", false);
        check(named.clone(), "list", ":secrets=a", true);
        check(named, "create", ":secrets", false);
        let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]});
        check(paths.clone(), "get", "/healthz", true);
        check(paths.clone(), "get", "/healthz/x", false);
        check(paths.clone(), "get", "/apis/apps", true);
        check(paths.clone(), "get", "/apis", false);
        check(paths.clone(), "post", "/healthz", false);
        check(paths, "get", ":healthz", false);
    }

    #[test]
    fn covering_is_exact() {
        let covers = |own: Value, other: Value| {
            let (own, other) = (Rule::from_json(&own), Rule::from_json(&other));
            other.atoms().all(|atom| own.covers(&atom))
        };
        let rule = |verbs: &[&str], resources: &[&str], names: &[&str]| json!({"verbs": verbs, "apiGroups": [""], "resources": resources, "resourceNames": names});
        assert!(covers(rule(&["*"], &["*"], &[]), rule(&["get", "x"], &["pods", "pods/log"], &["a"])));
        assert!(!covers(rule(&["get"], &["*"], &[]), rule(&["*"], &["pods"], &[])));
        assert!(!covers(rule(&["get"], &["pods"], &["a"]), rule(&["get"], &["pods"], &[])));
        assert!(!covers(rule(&["get"], &["pods"], &["a"]), rule(&["get"], &["pods"], &["a", "b"])));
        assert!(covers(rule(&["get"], &["*/log"], &[]), rule(&["get"], &["pods/log"], &[])));
        assert!(!covers(rule(&["get"], &["pods/*"], &[]), rule(&["get"], &["pods/log"], &[])));
        assert!(!covers(rule(&["get"], &["pods"], &[]), rule(&["get"], &["pods/log"], &[])));
        let paths = |own: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": own});
        assert!(covers(paths(&["/a/*"]), paths(&["/a/b", "/a/*"])));
        assert!(!covers(paths(&["/a/b"]), paths(&["/a/*"])));
        assert!(!covers(rule(&["*"], &["*"], &[]), paths(&["/a"])));
    }
}
