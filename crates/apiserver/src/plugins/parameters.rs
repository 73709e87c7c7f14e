//! Who writes a policy or its binding may read what it takes as parameters: a policy's message shows it to anybody.

use machinery::field::{Error, Path};
use serde_json::Value;

use crate::auth::authz::Decision;
use crate::context::Context;
use crate::plan::View;
use crate::request::RequestInfo;
use crate::user::{MASTERS, User};

const GROUP: &str = "admissionregistration.k8s.io";
/// What somebody must be able to read of whom it cannot be said what they read.
const ANY: &str = "*";

/// The objects that are read: group, version and plural.
type Objects = [String; 3];

/// Why a user may not write this, as far as it is about what they may read.
pub fn unreadable(cx: &Context, view: &View<'_>, new: &Value, old: &Value) -> Option<Error> {
    let (group, kind) = cx.resource.gk();
    if group != GROUP || !cx.info.subresource.is_empty() || cx.user.in_group(MASTERS) {
        return None;
    }
    match kind {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => of_policy(cx, new, old),
        "ValidatingAdmissionPolicyBinding" => of_binding(cx, view, new, "ValidatingAdmissionPolicy"),
        "MutatingAdmissionPolicyBinding" => of_binding(cx, view, new, "MutatingAdmissionPolicy"),
        _ => None,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn of_policy(cx: &Context, new: &Value, old: &Value) -> Option<Error> {
    let kind = &new["spec"]["paramKind"];
    if kind.is_null() || *kind == old["spec"]["paramKind"] || may(cx, "get", ANY, ANY, &objects(cx, kind).0) {
        return None;
    }
    let detail = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        in_go(&cx.user),
        text(&kind["kind"]),
        text(&kind["apiVersion"])
    );
    Some(Error::forbidden(&Path::root("spec").child("paramKind"), detail))
}

/// Also where nothing of it changes: Kubernetes compares what is never the same.
fn of_binding(cx: &Context, view: &View<'_>, new: &Value, policies: &str) -> Option<Error> {
    let (reference, policy) = (&new["spec"]["paramRef"], text(&new["spec"]["policyName"]));
    if reference.is_null() {
        return None;
    }
    let catalog = cx.server.catalog();
    let table = catalog.find_kind(GROUP, "v1", policies);
    let found = table.and_then(|resource| view.object(&resource.table, &resource.key("", policy)));
    let kind = found.as_ref().map_or(&Value::Null, |policy| &policy["spec"]["paramKind"]);
    let any = || [ANY; 3].map(str::to_owned);
    let (read, known) = if kind.is_null() { (any(), true) } else { objects(cx, kind) };
    let (name, namespace) = (text(&reference["name"]), text(&reference["namespace"]));
    let verb = if name.is_empty() { "list" } else { "get" };
    if may(cx, verb, namespace, name, &read) {
        return None;
    }
    let user = in_go(&cx.user);
    let minimum = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
    );
    let detail = match (&found, known) {
        (None, _) => format!("unable to get policy {policy} {minimum}"),
        (_, false) => format!("unable to resolve paramKind {} {minimum}", shown(kind)),
        // in this order there
        _ if policies == "MutatingAdmissionPolicy" => {
            format!("user {verb} does not have \"{user}\" permission on the object referenced by paramRef")
        }
        _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    };
    Some(Error::forbidden(&Path::root("spec").child("paramRef"), detail))
}

/// What a `paramKind` means, and whether there is such a kind.
fn objects(cx: &Context, kind: &Value) -> (Objects, bool) {
    let version = text(&kind["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let catalog = cx.server.catalog();
    let found = catalog.find_kind(group, version, text(&kind["kind"]));
    let plural = found.map_or(ANY, |resource| &resource.plural);
    ([group, version, plural].map(str::to_owned), found.is_some())
}

fn may(cx: &Context, verb: &'static str, namespace: &str, name: &str, [group, version, plural]: &Objects) -> bool {
    let info = RequestInfo {
        is_resource: true,
        verb: verb.into(),
        group: group.clone(),
        version: version.clone(),
        resource: plural.clone(),
        namespace: namespace.into(),
        name: name.into(),
        ..RequestInfo::default()
    };
    matches!(cx.server.authorizer.authorize(&cx.user, &info), Decision::Allow(_))
}

/// A user as Go prints one.
fn in_go(user: &User) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, all)| format!("{key}:[{}]", all.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

/// A `paramKind` as Go prints one.
fn shown(kind: &Value) -> String {
    format!("&{{{} {}}}", text(&kind["apiVersion"]), text(&kind["kind"]))
}
