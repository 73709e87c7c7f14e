//! Devices: the expressions that select them, who may claim them with an administrator's rights, and who may say what becomes
//! of a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use cel::{DeclType, Env, Type};
use kinds::validate::devices::{LONGEST_EXPRESSION, MOST_ALTERNATIVES, MOST_REQUESTS, MOST_SELECTORS};
use machinery::field::{Error, Errors, Path};
use machinery::status::Status;
use serde_json::Value;

use crate::auth::authz::{Decision, refusal};
use crate::catalog::NAMESPACES;
use crate::context::Context;
use crate::plan::{View, parse_stored};
use crate::request::RequestInfo;
use crate::user::User;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Refuses such a claim elsewhere.
pub fn admin_access(cx: &Context, view: &View<'_>, claim: &Value) -> Result<(), Status> {
    let spec = if claim["spec"]["spec"].is_object() { &claim["spec"]["spec"] } else { &claim["spec"] };
    let requests = spec["devices"]["requests"].as_array().into_iter().flatten().enumerate();
    let wanted: Vec<usize> =
        requests.filter(|(_, request)| request["exactly"]["adminAccess"] == true).map(|(at, _)| at).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    if is_admins(cx, view) {
        return Ok(());
    }
    let detail = elsewhere();
    let path = Path::root("spec").child("devices").child("requests");
    let errors: Vec<Error> =
        wanted.into_iter().map(|at| Error::forbidden(&path.index(at).child("adminAccess"), detail.as_str())).collect();
    Err(cx.invalid(claim["metadata"]["name"].as_str().unwrap_or_default(), &errors))
}

fn is_admins(cx: &Context, view: &View<'_>) -> bool {
    let namespace = view.entry(NAMESPACES, &cx.info.namespace).and_then(|entry| parse_stored(&entry).ok());
    namespace.is_some_and(|namespace| namespace["metadata"]["labels"][LABEL] == "true")
}

fn elsewhere() -> String {
    format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace")
}

/// What a user may not change of a claim's status: what it is bound to is for those who bind, what a driver says is for who
/// speaks for the driver.
pub fn missing_rights(cx: &Context, view: &View<'_>, new: &Value, old: &Value) -> Errors {
    let (new, old, path) = (&new["status"], &old["status"], Path::root("status"));
    let mut errors = Errors::new();
    let admins = |status: &Value| {
        let mut results = status["allocation"]["devices"]["results"].as_array().into_iter().flatten();
        results.position(|result| result["adminAccess"] == true)
    };
    if let (None, Some(at)) = (admins(old), admins(new)) {
        if !is_admins(cx, view) {
            let path = path.child("allocation").child("devices").child("results").index(at).child("adminAccess");
            errors.push(Error::forbidden(&path, elsewhere()));
        }
    }
    let may = |verb: &str, subresource: &str, namespace: &str, name: &str| {
        let info = RequestInfo {
            verb: verb.to_owned().into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..cx.info.clone()
        };
        match cx.server.authorizer.authorize(&cx.user, &info) {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(reason) => Err(refusal(&cx.user, &info, &reason).message),
        }
    };
    let verb = &*cx.info.verb;
    if same(&new["allocation"], &old["allocation"]) && same(&new["reservedFor"], &old["reservedFor"]) {
        // nothing is bound anew
    } else if let Err(why) = may(verb, "binding", "", "") {
        let detail = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb={verb:?} permission: {why}"
        );
        errors.push(Error::forbidden(&path.child("allocation"), detail));
    }
    if new["allocation"].is_null() {
        return errors;
    }
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if is_on(&cx.user, &new["allocation"]) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    for driver in changed_drivers(new, old) {
        let refused: Vec<String> =
            verbs.iter().map_while(|verb| may(verb, "driver", &cx.info.namespace, &driver).err()).collect();
        if refused.len() == verbs.len() {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
                verbs.join(" "),
                refused[0]
            );
            errors.push(Error::forbidden(&path.child("devices"), detail));
        }
    }
    errors
}

/// Whether nothing but ways to write nothing differs.
fn same(new: &Value, old: &Value) -> bool {
    let is_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    new == old || (is_nothing(new) && is_nothing(old))
}

/// The drivers of devices whose state is said anew.
fn changed_drivers(new: &Value, old: &Value) -> BTreeSet<String> {
    let by_device = |status: &Value| -> BTreeMap<Vec<String>, Value> {
        let list = status["devices"].as_array().into_iter().flatten();
        let key = |own: &Value| {
            let text = |field: &str| own[field].as_str().unwrap_or_default().to_owned();
            ["driver", "pool", "device", "shareID"].map(text).to_vec()
        };
        list.map(|own| (key(own), own.clone())).collect()
    };
    let (new, old) = (by_device(new), by_device(old));
    let changed = |key: &&Vec<String>| new.get(*key) != old.get(*key);
    new.keys().chain(old.keys()).filter(changed).map(|key| key[0].clone()).collect()
}

/// Whether a user is a service account on the one node that an allocation is for.
fn is_on(user: &User, allocation: &Value) -> bool {
    let Some([term]) = allocation["nodeSelector"]["nodeSelectorTerms"].as_array().map(Vec::as_slice) else {
        return false;
    };
    let Some([field]) = term["matchFields"].as_array().map(Vec::as_slice) else { return false };
    let plain = term["matchExpressions"].as_array().is_none_or(Vec::is_empty)
        && field["key"] == "metadata.name"
        && field["operator"] == "In";
    let on = user.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
    match (field["values"].as_array().map(Vec::as_slice), on) {
        (Some([Value::String(node)]), Some([own])) => {
            plain && node == own && user.name.starts_with("system:serviceaccount:")
        }
        _ => false,
    }
}

/// What an expression sees of a device.
static DEVICE: LazyLock<Env> = LazyLock::new(|| {
    let text = Arc::new(DeclType::plain(Type::String).with_max_elements(63));
    let by_domain =
        |value: DeclType| Arc::new(DeclType::map(Arc::new(DeclType::map(Arc::new(value), Some(32))), Some(32)));
    let fields = [
        ("driver".to_owned(), text, true),
        ("allowMultipleAllocations".to_owned(), Arc::new(DeclType::plain(Type::Bool)), true),
        ("attributes".to_owned(), by_domain(DeclType::any()), true),
        ("capacity".to_owned(), by_domain(DeclType::plain(Type::Opaque("kubernetes.Quantity"))), true),
    ];
    Env::templates().declare_schema("device", Arc::new(DeclType::object("kubernetes.DRADevice", fields)))
});

/// The items of a list that does not have too many: what has more is refused for that alone.
fn items<'a>(holder: &'a Value, name: &str, most: usize) -> &'a [Value] {
    holder[name].as_array().filter(|list| list.len() <= most).map(Vec::as_slice).unwrap_or_default()
}

/// What is wrong with the expressions of a class or claim that select devices.
pub fn check(kind: &str, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let spec = Path::root("spec");
    match kind {
        "DeviceClass" => selectors(&mut errors, &object["spec"], &spec),
        "ResourceClaim" => requests(&mut errors, &object["spec"], &spec),
        "ResourceClaimTemplate" => requests(&mut errors, &object["spec"]["spec"], &spec.child("spec")),
        _ => {}
    }
    errors
}

/// A request is for something, or for the first of some; one for both is refused whatever they are.
fn requests(errors: &mut Errors, spec: &Value, path: &Path) {
    for (at, request) in items(&spec["devices"], "requests", MOST_REQUESTS).iter().enumerate() {
        let path = path.child("devices").child("requests").index(at);
        let has_alternatives = request["firstAvailable"].as_array().is_some_and(|list| !list.is_empty());
        match (request["exactly"].is_object(), has_alternatives) {
            (true, false) => selectors(errors, &request["exactly"], &path.child("exactly")),
            (false, true) => {
                for (at, sub) in items(request, "firstAvailable", MOST_ALTERNATIVES).iter().enumerate() {
                    selectors(errors, sub, &path.child("firstAvailable").index(at));
                }
            }
            _ => {}
        }
    }
}

fn selectors(errors: &mut Errors, holder: &Value, path: &Path) {
    for (at, selector) in items(holder, "selectors", MOST_SELECTORS).iter().enumerate() {
        let source = selector["cel"]["expression"].as_str().unwrap_or_default();
        if !selector["cel"].is_object() || source.len() > LONGEST_EXPRESSION {
            continue;
        }
        let wrong = match DEVICE.compile(source) {
            Err(error) => format!("compilation failed: {error}"),
            Ok(program) => match program.output_type() {
                Type::Bool | Type::Dyn => continue,
                other => format!("must evaluate to bool or the unknown type, not {other}"),
            },
        };
        errors.push(Error::invalid(&path.child("selectors").index(at).child("cel").child("expression"), source, wrong));
    }
}
