//! Roles and bindings in memory, found by who they are for.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use store::Entry;

use super::rule::Rule;
use crate::auth::followed::Follower;
use crate::user::User;

const CLUSTER_ROLES: usize = 0;
const ROLES: usize = 1;
const CLUSTER_BINDINGS: usize = 2;
const BINDINGS: usize = 3;

/// Which role a binding gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// The role's name.
    pub name: String,
}

impl RoleRef {
    /// Reads `roleRef`.
    pub fn from_json(reference: &Value) -> RoleRef {
        let text = |name: &str| reference[name].as_str().unwrap_or_default().to_owned();
        RoleRef { kind: text("kind"), name: text("name") }
    }
}

/// A binding, without its subjects.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for cluster role bindings.
    pub namespace: String,
    /// What it gives.
    pub role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { user: String, namespace: String, name: String },
}

impl Binding {
    fn read(entry: &Entry, in_namespace: bool) -> Option<Binding> {
        let object: Value = serde_json::from_slice(&entry.value).ok()?;
        let (namespace, name) = match entry.key.split_once('/') {
            Some((namespace, name)) if in_namespace => (namespace, name),
            _ => ("", &*entry.key),
        };
        let subject = |subject: &Value| {
            let text = |field: &str| subject[field].as_str().unwrap_or_default().to_owned();
            match subject["kind"].as_str()? {
                "User" => Some(Subject::User(text("name"))),
                "Group" => Some(Subject::Group(text("name"))),
                "ServiceAccount" => {
                    let own = text("namespace");
                    let home = if own.is_empty() { namespace } else { &own };
                    if home.is_empty() {
                        return None;
                    }
                    let user = format!("system:serviceaccount:{home}:{}", text("name"));
                    Some(Subject::ServiceAccount { user, namespace: home.to_owned(), name: text("name") })
                }
                _ => None,
            }
        };
        Some(Binding {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            role: RoleRef::from_json(&object["roleRef"]),
            subjects: object["subjects"].as_array().into_iter().flatten().filter_map(subject).collect(),
        })
    }

    /// `ClusterRoleBinding "x" of ClusterRole "y" to Group "z"`: why somebody may do something.
    pub fn describe(&self, at: usize) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let to = match self.subjects.get(at) {
            Some(Subject::User(user)) => format!("User {user:?}"),
            Some(Subject::Group(group)) => format!("Group {group:?}"),
            Some(Subject::ServiceAccount { namespace, name, .. }) => {
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
            None => "nobody".into(),
        };
        format!("{kind} {name:?} of {} {:?} to {to}", self.role.kind, self.role.name)
    }
}

/// Bindings by whom they are for; the number says which of a binding's subjects that is.
#[derive(Default)]
struct Holders {
    users: HashMap<String, Vec<(Arc<Binding>, usize)>>,
    groups: HashMap<String, Vec<(Arc<Binding>, usize)>>,
}

impl Holders {
    fn of(&mut self, subject: &Subject) -> (&mut HashMap<String, Vec<(Arc<Binding>, usize)>>, String) {
        match subject {
            Subject::Group(group) => (&mut self.groups, group.clone()),
            Subject::User(user) | Subject::ServiceAccount { user, .. } => (&mut self.users, user.clone()),
        }
    }

    fn add(&mut self, binding: &Arc<Binding>) {
        for (at, subject) in binding.subjects.iter().enumerate() {
            let (map, name) = self.of(subject);
            map.entry(name).or_default().push((binding.clone(), at));
        }
    }

    fn remove(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            let (map, name) = self.of(subject);
            if let Some(list) = map.get_mut(&name) {
                list.retain(|(own, _)| !Arc::ptr_eq(own, binding));
                if list.is_empty() {
                    map.remove(&name);
                }
            }
        }
    }

    /// Shows the bindings of a user until one says stop.
    fn visit(&self, user: &User, visit: &mut impl FnMut(&Binding, usize) -> bool) -> bool {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        let lists = self.users.get(&user.name).into_iter().chain(groups);
        for (binding, at) in lists.flatten() {
            if !visit(binding, *at) {
                return false;
            }
        }
        true
    }
}

/// All roles and bindings.
#[derive(Default)]
pub struct Index {
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    /// By table and key, to find what to take back when one changes.
    bindings: HashMap<(bool, Arc<str>), Arc<Binding>>,
    cluster: Holders,
    namespaces: HashMap<String, Holders>,
}

impl Follower for Index {
    const TABLES: &'static [&'static str] = &[
        "rbac.authorization.k8s.io/clusterroles",
        "rbac.authorization.k8s.io/roles",
        "rbac.authorization.k8s.io/clusterrolebindings",
        "rbac.authorization.k8s.io/rolebindings",
    ];

    fn put(&mut self, table: usize, entry: &Entry) {
        self.remove(table, &entry.key);
        match table {
            CLUSTER_ROLES => {
                self.cluster_roles.insert(entry.key.to_string(), rules(entry));
            }
            ROLES => {
                if let Some((namespace, name)) = entry.key.split_once('/') {
                    self.roles.entry(namespace.to_owned()).or_default().insert(name.to_owned(), rules(entry));
                }
            }
            _ => {
                let in_namespace = table == BINDINGS;
                let Some(binding) = Binding::read(entry, in_namespace) else { return };
                let binding = Arc::new(binding);
                if in_namespace {
                    self.namespaces.entry(binding.namespace.clone()).or_default().add(&binding);
                } else {
                    self.cluster.add(&binding);
                }
                self.bindings.insert((in_namespace, entry.key.clone()), binding);
            }
        }
    }

    fn remove(&mut self, table: usize, key: &Arc<str>) {
        match table {
            CLUSTER_ROLES => {
                self.cluster_roles.remove(&**key);
            }
            ROLES => {
                if let Some((namespace, name)) = key.split_once('/') {
                    if let Some(roles) = self.roles.get_mut(namespace) {
                        roles.remove(name);
                        if roles.is_empty() {
                            self.roles.remove(namespace);
                        }
                    }
                }
            }
            CLUSTER_BINDINGS | BINDINGS => {
                let in_namespace = table == BINDINGS;
                let Some(binding) = self.bindings.remove(&(in_namespace, key.clone())) else { return };
                if !in_namespace {
                    self.cluster.remove(&binding);
                } else if let Some(holders) = self.namespaces.get_mut(&binding.namespace) {
                    holders.remove(&binding);
                    if holders.users.is_empty() && holders.groups.is_empty() {
                        self.namespaces.remove(&binding.namespace);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Index {
    /// The rules of a role, as seen from a namespace.
    pub fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace)?.get(&role.name),
            _ => None,
        }
    }

    /// Shows every binding of a user that counts in a namespace, with its rules (none if the role is missing), until one says
    /// stop.
    pub fn visit(
        &self,
        user: &User,
        namespace: &str,
        visit: &mut impl FnMut(&Binding, usize, Option<&[Rule]>) -> bool,
    ) {
        let mut visit = |binding: &Binding, at: usize| {
            visit(binding, at, self.rules(&binding.role, &binding.namespace).map(|rules| &**rules))
        };
        if !self.cluster.visit(user, &mut visit) || namespace.is_empty() {
            return;
        }
        if let Some(holders) = self.namespaces.get(namespace) {
            holders.visit(user, &mut visit);
        }
    }
}

fn rules(entry: &Entry) -> Arc<[Rule]> {
    let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
    object["rules"].as_array().into_iter().flatten().map(Rule::from_json).collect()
}
