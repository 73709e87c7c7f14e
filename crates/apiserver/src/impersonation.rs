//! Acting as somebody else, for those who may: as anybody for everything (`impersonate`), or as some for some
//! (`impersonate:MODE` says as whom, `impersonate-on:MODE:VERB` what for).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use machinery::field::{Path, quote};
use machinery::names;
use machinery::status::Status;

use crate::auth::authz::{Decision, refusal};
use crate::request::RequestInfo;
use crate::server::Inner;
use crate::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};

/// Who a request acts as.
pub struct Acting {
    /// The user.
    pub user: Arc<User>,
    /// The verb that allowed it, if that is less than everything.
    pub constraint: Option<String>,
}

/// The user that a request acts as: the `Impersonate-*` headers', if its own user may do that.
pub fn effective(server: &Inner, user: Arc<User>, info: &RequestInfo, headers: &HeaderMap) -> Result<Acting, Status> {
    let Some(wanted) = Wanted::read(headers)? else { return Ok(Acting { user, constraint: None }) };
    let asker = Asker { server, user: &user, wanted: &wanted };
    let mut first = None;
    for mode in Mode::ALL.into_iter().filter(|mode| mode.applies(&wanted, &user)) {
        match asker.check(mode, info) {
            Ok(user) => {
                let constraint = (mode != Mode::Everything).then(|| mode.verb());
                return Ok(Acting { user, constraint });
            }
            Err(status) => drop(first.get_or_insert(status)),
        }
    }
    Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// What the headers ask for.
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Result<Option<Wanted>, Status> {
        let first = |name: &str| headers.get(name).map_or(Ok(String::new()), |value| said(name, value));
        let groups = headers.get_all(GROUP).iter().map(|value| said(GROUP, value));
        let mut wanted = Wanted {
            name: first("impersonate-user")?,
            uid: first("impersonate-uid")?,
            groups: groups.collect::<Result<_, _>>()?,
            extra: BTreeMap::new(),
        };
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix("impersonate-extra-") {
                // What is no escape stands for itself.
                let key = crate::request::percent_decode(key).map_or_else(|| key.to_owned(), Cow::into_owned);
                wanted.extra.entry(key).or_default().push(said(name.as_str(), value)?);
            }
        }
        match (wanted.name.is_empty(), wanted.is_name_only()) {
            (true, true) => Ok(None),
            (true, false) => Err(Status::bad_request(format!("requested {wanted} without impersonating a user name"))),
            _ => Ok(Some(wanted)),
        }
    }

    fn is_name_only(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    fn node(&self) -> Option<&str> {
        let name = self.name.strip_prefix("system:node:")?;
        names::dns1123_subdomain(name).is_empty().then_some(name)
    }

    fn account(&self) -> Option<(&str, &str)> {
        service_account(&self.name)
    }
}

/// As Go prints the structure: that is how clients of Kubernetes know it.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extra = match self.extra.is_empty() {
            true => "(nil)".to_owned(),
            false => {
                let entries = self.extra.iter().map(|(key, values)| format!("{}:{}", quote(key), go_list(values)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
        };
        let (name, uid, groups) = (quote(&self.name), quote(&self.uid), go_list(&self.groups));
        write!(f, "&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:map[string][]string{extra}}}")
    }
}

/// Texts as Go prints a list of them.
fn go_list(texts: &[String]) -> String {
    match texts {
        [] => "[]string(nil)".into(),
        _ => format!("[]string{{{}}}", texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", ")),
    }
}

/// What a header says, in any language. One that cannot be read is refused: without it the request would be made with its
/// sender's own rights.
fn said(name: &str, value: &HeaderValue) -> Result<String, Status> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| Status::bad_request(format!("the header {name} is not UTF-8")))
}

/// In which way somebody acts as somebody else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account as the node that its Pod is on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// As anybody, for everything.
    Everything,
}

impl Mode {
    /// Those that allow less come first.
    const ALL: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Everything];

    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Everything => "",
        }
    }

    fn verb(self) -> String {
        match self {
            Mode::Everything => "impersonate".into(),
            _ => format!("impersonate:{}", self.name()),
        }
    }

    fn applies(self, wanted: &Wanted, user: &User) -> bool {
        match self {
            Mode::AssociatedNode => {
                let on = user.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
                wanted.is_name_only()
                    && service_account(&user.name).is_some()
                    && wanted.node().is_some_and(|node| on == Some(&[node.to_owned()]))
            }
            Mode::ArbitraryNode => wanted.is_name_only() && wanted.node().is_some(),
            Mode::ServiceAccount => wanted.is_name_only() && wanted.account().is_some(),
            Mode::UserInfo => wanted.node().is_none() && wanted.account().is_none(),
            Mode::Everything => true,
        }
    }
}

/// Somebody who wants to act as somebody else.
struct Asker<'a> {
    server: &'a Inner,
    user: &'a Arc<User>,
    wanted: &'a Wanted,
}

/// From so many on it is asked about all at once first.
const MANY: usize = 4;

impl Asker<'_> {
    fn check(&self, mode: Mode, info: &RequestInfo) -> Result<Arc<User>, Status> {
        if mode != Mode::Everything {
            let verb = format!("impersonate-on:{}:{}", mode.name(), info.verb);
            self.ask(mode, &RequestInfo { verb: verb.into(), ..info.clone() })?;
        }
        let Wanted { name, uid, groups, extra } = self.wanted;
        let mut actual = User { name: name.clone(), uid: uid.clone(), groups: groups.clone(), extra: extra.clone() };
        // Who they are: what is written today is about users in the group of users.
        let group = if mode == Mode::Everything { "" } else { AUTHENTICATION };
        let mut who = self.about(mode, group, "users", name);
        match (self.wanted.node(), self.wanted.account()) {
            (Some(node), _) if mode != Mode::Everything => {
                who.resource = "nodes".into();
                // Whose Pods may be on any node needs the right for all.
                who.name = if mode == Mode::AssociatedNode { "*" } else { node }.into();
                actual.groups = vec!["system:nodes".into()];
            }
            (_, Some((namespace, account))) => {
                (who.resource, who.namespace, who.name) = ("serviceaccounts".into(), namespace.into(), account.into());
                if groups.is_empty() {
                    actual.groups = User::service_account(namespace, account).groups.clone();
                    actual.groups.retain(|group| group != AUTHENTICATED);
                }
            }
            _ => {}
        }
        self.ask(mode, &who)?;
        if !uid.is_empty() {
            self.ask(mode, &self.about(mode, AUTHENTICATION, "uids", uid))?;
        }
        self.groups(mode, group)?;
        self.extra(mode)?;
        let everyone = match actual.name == "system:anonymous" {
            true => Some(UNAUTHENTICATED),
            false => (!actual.in_group(UNAUTHENTICATED)).then_some(AUTHENTICATED),
        };
        if let Some(group) = everyone.filter(|group| !actual.in_group(group)) {
            actual.groups.push(group.into());
        }
        Ok(Arc::new(actual))
    }

    fn groups(&self, mode: Mode, group: &str) -> Result<(), Status> {
        let groups = &self.wanted.groups;
        if mode != Mode::Everything {
            for (name, what) in [("", "empty string"), (MASTERS, "system:masters")] {
                if groups.iter().any(|own| own == name) {
                    let why = format!("impersonating the {what} group is not allowed");
                    return Err(refusal(self.user, &self.about(mode, group, "groups", name), &why));
                }
            }
            if groups.len() >= MANY && self.ask(mode, &self.about(mode, group, "groups", "*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|own| self.ask(mode, &self.about(mode, group, "groups", own)))
    }

    fn extra(&self, mode: Mode) -> Result<(), Status> {
        let extra = &self.wanted.extra;
        let about = |key: &str, value: &str| {
            let info = self.about(mode, AUTHENTICATION, "userextras", value);
            RequestInfo { subresource: key.into(), ..info }
        };
        if mode != Mode::Everything {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(refusal(self.user, &about("", ""), &why));
            }
            let many = extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.ask(mode, &about("*", "*")).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            values.iter().try_for_each(|value| self.ask(mode, &about(key, value)))?;
        }
        Ok(())
    }

    fn about(&self, mode: Mode, group: &str, resource: &str, name: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: mode.verb().into(),
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            name: name.into(),
            ..RequestInfo::default()
        }
    }

    fn ask(&self, mode: Mode, info: &RequestInfo) -> Result<(), Status> {
        let decision = match mode {
            Mode::AssociatedNode => {
                // That the node is theirs has been looked at; which one it is is nobody's business.
                let mut user = (**self.user).clone();
                let keys = std::mem::take(&mut user.extra).into_keys().collect();
                user.extra.insert("authentication.kubernetes.io/associated-node-keys".into(), keys);
                self.server.authorizer.authorize(&user, info)
            }
            _ => self.server.authorizer.authorize(self.user, info),
        };
        match decision {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(reason) => Err(refusal(self.user, info, &reason)),
        }
    }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const GROUP: &str = "impersonate-group";

/// What is wrong about a key and its values, for those who may not do everything.
fn wrong_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    let errors = names::domain_prefixed_path(&Path::root("extra").child("key"), key);
    if let Some(error) = errors.first() {
        return Some(format!("impersonating an invalid key in extra is not allowed: {error}"));
    }
    if key.to_lowercase() != key {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".into())
}

/// Namespace and name of a service account; names that none can have are those of users.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(account).is_empty();
    valid.then_some((namespace, account))
}
