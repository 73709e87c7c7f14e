//! Role-based access control, as in Kubernetes: `system:masters` may do everything, everyone else what roles give them.
//!
//! Roles and bindings are kept compiled and found by user and group. Before each decision the index is compared with the
//! store, which costs a look at four numbers: a right that was taken away is gone for the next request after the write was
//! answered.

pub mod aggregation;
pub mod bootstrap;
pub mod escalation;
mod index;
pub mod rule;

use machinery::status::qualified;
use serde_json::{Value, json};
use store::Store;

use self::index::{Index, RoleRef};
use self::rule::Rule;
use crate::auth::authz::{Authorizer, Decision};
use crate::auth::followed::Followed;
use crate::request::RequestInfo;
use crate::user::{MASTERS, User};

/// The API group of roles.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// Paths that anybody may use in any way, whatever the roles say.
const ALWAYS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Decides by the roles and bindings in a store.
pub struct Rbac(Followed<Index>);

impl Rbac {
    /// Decides by what is in `store`, now and later.
    pub fn new(store: Store) -> Rbac {
        Rbac(Followed::new(store))
    }

    /// All rules that a user has in a namespace, and what could not be found.
    fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        self.0.current().visit(user, namespace, &mut |binding, _, own| {
            match own {
                Some(own) => rules.extend_from_slice(own),
                None => missing.push(not_found(&binding.role)),
            }
            true
        });
        (rules, missing)
    }
}

/// Says that a role does not exist, as Kubernetes does.
fn not_found(role: &RoleRef) -> String {
    format!("{} {:?} not found", qualified(GROUP, &role.kind.to_lowercase()), role.name)
}

/// Several problems as one text.
fn joined(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, user: &User, info: &RequestInfo) -> Decision {
        if user.in_group(MASTERS) || (!info.is_resource && ALWAYS.contains(&info.path.as_str())) {
            return Decision::Allow(String::new());
        }
        let mut allowed = None;
        let mut missing = Vec::new();
        self.0.current().visit(user, &info.namespace, &mut |binding, at, rules| {
            match rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(info)) => {
                    allowed = Some(format!("RBAC: allowed by {}", binding.describe(at)));
                }
                Some(_) => {}
                None => missing.push(not_found(&binding.role)),
            }
            allowed.is_none()
        });
        match allowed {
            Some(reason) => Decision::Allow(reason),
            None if missing.is_empty() => Decision::NoOpinion(String::new()),
            None => Decision::NoOpinion(format!("RBAC: {}", joined(&missing))),
        }
    }

    fn rules(&self, user: &User, namespace: &str) -> Value {
        let (rules, missing) = self.rules_of(user, namespace);
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for rule in rules {
            let into = if rule.resources.is_empty() { &mut paths } else { &mut resources };
            into.push(rule.to_json());
        }
        // Kubernetes calls the list complete even where a role is missing: it would give nothing.
        let mut status = json!({"incomplete": false, "resourceRules": resources, "nonResourceRules": paths});
        if !missing.is_empty() {
            status["evaluationError"] = joined(&missing).into();
        }
        status
    }
}
