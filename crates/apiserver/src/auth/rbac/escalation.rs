//! Nobody gives away more than they have: who writes a role or a binding must hold every right in it, or the verb `escalate`
//! or `bind` on it.

use std::collections::{BTreeMap, BTreeSet};

use machinery::status::Status;
use serde_json::Value;

use super::index::RoleRef;
use super::rule::{Atom, Rule};
use super::{GROUP, Rbac, joined};
use crate::auth::authz::{Authorizer, Decision};
use crate::plan::View;
use crate::request::RequestInfo;
use crate::user::{MASTERS, User};

/// How many single rights are compared one by one.
const MOST: usize = 100_000;

/// Which of the four kinds is written, by its plural.
fn role_kind(plural: &str) -> Option<bool> {
    match plural {
        "roles" | "clusterroles" => Some(true),
        "rolebindings" | "clusterrolebindings" => Some(false),
        _ => None,
    }
}

/// A write of a role or a binding.
pub struct Grant<'a> {
    /// Who writes.
    pub user: &'a User,
    /// `roles`, `clusterroles`, `rolebindings`, `clusterrolebindings`.
    pub plural: &'a str,
    /// The namespace; empty for cluster-wide ones.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// As it will be.
    pub new: &'a Value,
    /// As it is; `Null` if it is new.
    pub old: &'a Value,
    /// What else the same transaction has planned.
    pub view: &'a View<'a>,
}

impl Rbac {
    /// Refuses a write that would give away rights its sender does not have.
    pub fn check(&self, authorizer: &dyn Authorizer, grant: &Grant<'_>) -> Result<(), Status> {
        let Some(is_role) = role_kind(grant.plural) else { return Ok(()) };
        if grant.user.in_group(MASTERS) || only_bookkeeping(grant.new, grant.old) {
            return Ok(());
        }
        let may = |verb: &'static str, resource: &str, name: &str| {
            let info = RequestInfo {
                is_resource: true,
                verb: verb.into(),
                group: GROUP.into(),
                version: "*".into(),
                namespace: grant.namespace.into(),
                resource: resource.into(),
                name: name.into(),
                ..RequestInfo::default()
            };
            matches!(authorizer.authorize(grant.user, &info), Decision::Allow(_))
        };
        let refuse = |why: String| Status::forbidden(GROUP, grant.plural, grant.name, why);
        if is_role {
            // A new object has no name of its own yet when it comes to rights on it.
            let known = if grant.old.is_null() { "" } else { grant.name };
            if may("escalate", grant.plural, known) {
                return Ok(());
            }
            let rules: Vec<Rule> = grant.new["rules"].as_array().into_iter().flatten().map(Rule::from_json).collect();
            self.holds(grant, &rules).map_err(refuse)?;
            if aggregates(grant.new) || aggregates(grant.old) {
                let why = |_| refuse("must have cluster-admin privileges to use the aggregationRule".into());
                self.holds(grant, &Rule::everything()).map_err(why)?;
            }
            return Ok(());
        }
        let role = RoleRef::from_json(&grant.new["roleRef"]);
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            // Not a role at all: validation says so.
            _ => return Ok(()),
        };
        if may("bind", plural, &role.name) {
            return Ok(());
        }
        let key = if plural == "roles" { format!("{}/{}", grant.namespace, role.name) } else { role.name.clone() };
        let rules = match grant.view.planned(&crate::catalog::table_name(GROUP, plural), &key) {
            Some(planned) => {
                planned.map(|role| role["rules"].as_array().into_iter().flatten().map(Rule::from_json).collect())
            }
            None => self.0.current().rules(&role, grant.namespace).cloned(),
        };
        match rules {
            Some(rules) => self.holds(grant, &rules).map_err(refuse),
            // Kubernetes names the binding's kind and the role's name.
            None => Err(Status::not_found(GROUP, grant.plural, &role.name)),
        }
    }

    /// Whether the sender has all of these rights where they would hold.
    fn holds(&self, grant: &Grant<'_>, rules: &[Rule]) -> Result<(), String> {
        let (own, problems) = self.rules_of(grant.user, grant.namespace);
        if rules.iter().map(Rule::size).fold(0, usize::saturating_add) > MOST {
            let whole = |rule: &Rule| own.iter().any(|own| own.covers_whole(rule));
            return if rules.iter().all(whole) {
                Ok(())
            } else {
                Err("the rules have too many combinations to compare with those of their sender: use fewer in one role"
                    .into())
            };
        }
        let lacking: Vec<Atom<'_>> =
            rules.iter().flat_map(Rule::atoms).filter(|atom| !own.iter().any(|rule| rule.covers(atom))).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            grant.user.name,
            quoted(grant.user.groups.iter().map(String::as_str)),
            describe(&lacking)
        );
        if !problems.is_empty() {
            why.push_str(&format!("; resolution errors: [{}]", joined(&problems)));
        }
        Err(why)
    }
}

/// `["a" "b"]`.
fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// Rights as rules, one line each, those on the same thing together.
fn describe(atoms: &[Atom<'_>]) -> String {
    // What the verbs are on, and the verbs in the order they were written.
    let mut together: BTreeMap<(Option<(&str, &str)>, Option<&str>), Vec<&str>> = BTreeMap::new();
    for atom in atoms {
        let (on, verb) = match *atom {
            Atom::Resource { verb, group, resource, name } => ((Some((group, resource)), name), verb),
            Atom::Path { verb, path } => ((None, Some(path)), verb),
        };
        let verbs = together.entry(on).or_default();
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    let mut lines = BTreeSet::new();
    for ((resource, name), verbs) in together {
        match (resource, name) {
            (Some((group, resource)), name) => {
                let names = name.map_or_else(String::new, |name| format!(", ResourceNames:[{name:?}]"));
                lines.insert(format!(
                    "{{APIGroups:[{group:?}], Resources:[{resource:?}]{names}, Verbs:{}}}",
                    quoted(verbs.into_iter())
                ));
            }
            (None, path) => {
                // Rights on paths are named one by one.
                for verb in verbs {
                    lines.insert(format!("{{NonResourceURLs:[{:?}], Verbs:[{verb:?}]}}", path.unwrap_or_default()));
                }
            }
        }
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn aggregates(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
}

/// Whether an update changes only what the garbage collector changes on its way to a deletion: owners and finalizers.
fn only_bookkeeping(new: &Value, old: &Value) -> bool {
    if old.is_null() {
        return false;
    }
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(meta) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"] {
                meta.remove(field);
            }
        }
        object
    };
    rest(new) == rest(old)
}
