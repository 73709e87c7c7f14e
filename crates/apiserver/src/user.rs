//! Who sends a request.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of everyone who has said who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of those who have not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An authenticated (or anonymous) user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// A stable identifier, if the authenticator knows one.
    pub uid: String,
    /// The groups, `system:authenticated` or `system:unauthenticated` among them.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user who has said who they are.
    pub fn new(name: &str, groups: impl IntoIterator<Item = impl Into<String>>) -> Arc<User> {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Arc::new(User { name: name.into(), uid: String::new(), groups, extra: BTreeMap::new() })
    }

    /// The service account of a namespace.
    pub fn service_account(namespace: &str, name: &str) -> Arc<User> {
        User::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        )
    }

    /// Nobody in particular.
    pub fn anonymous() -> Arc<User> {
        User::new("system:anonymous", [UNAUTHENTICATED])
    }

    /// The server itself.
    pub fn loopback() -> Arc<User> {
        User::new("system:apiserver", [MASTERS])
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether it is nobody in particular.
    pub fn is_anonymous(&self) -> bool {
        self.in_group(UNAUTHENTICATED)
    }

    /// Whom counts what the user takes of what everyone shares. Who may make one service account may make many: those of a namespace
    /// count as one, but for the system's own.
    pub fn party(&self) -> &str {
        let namespace = |group: &&String| group.starts_with("system:serviceaccounts:");
        let system = ["system:serviceaccounts:kube-system", "system:serviceaccounts:conductor-system"];
        self.groups.iter().find(namespace).filter(|group| !system.contains(&group.as_str())).unwrap_or(&self.name)
    }

    /// As `authentication.k8s.io` `UserInfo`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut info = serde_json::Map::new();
        info.insert("username".into(), self.name.as_str().into());
        if !self.uid.is_empty() {
            info.insert("uid".into(), self.uid.as_str().into());
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), self.groups.clone().into());
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), serde_json::to_value(&self.extra).unwrap_or_default());
        }
        info.into()
    }
}
