//! Devices: the expressions that select them, and who may claim them with an administrator's rights.

use std::sync::{Arc, LazyLock};

use cel::{DeclType, Env, Type};
use machinery::field::{Error, Errors, Path};
use machinery::status::Status;
use serde_json::Value;

use crate::catalog::NAMESPACES;
use crate::context::Context;
use crate::plan::{View, parse_stored};

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
    let namespace = view.entry(NAMESPACES, &cx.info.namespace).and_then(|entry| parse_stored(&entry).ok());
    if namespace.is_some_and(|namespace| namespace["metadata"]["labels"][LABEL] == "true") {
        return Ok(());
    }
    let detail = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    let path = Path::root("spec").child("devices").child("requests");
    let errors: Vec<Error> =
        wanted.into_iter().map(|at| Error::forbidden(&path.index(at).child("adminAccess"), detail.as_str())).collect();
    Err(cx.invalid(claim["metadata"]["name"].as_str().unwrap_or_default(), &errors))
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

/// What is wrong with the expressions of a class or claim that select devices.
pub fn check(kind: &str, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let spec = Path::root("spec");
    let requests = |errors: &mut Errors, spec: &Value, path: &Path| {
        for (at, request) in spec["devices"]["requests"].as_array().into_iter().flatten().enumerate() {
            let path = path.child("devices").child("requests").index(at);
            selectors(errors, &request["exactly"], &path.child("exactly"));
            for (at, sub) in request["firstAvailable"].as_array().into_iter().flatten().enumerate() {
                selectors(errors, sub, &path.child("firstAvailable").index(at));
            }
        }
    };
    match kind {
        "DeviceClass" => selectors(&mut errors, &object["spec"], &spec),
        "ResourceClaim" => requests(&mut errors, &object["spec"], &spec),
        "ResourceClaimTemplate" => requests(&mut errors, &object["spec"]["spec"], &spec.child("spec")),
        _ => {}
    }
    errors
}

fn selectors(errors: &mut Errors, holder: &Value, path: &Path) {
    for (at, selector) in holder["selectors"].as_array().into_iter().flatten().enumerate() {
        if !selector["cel"].is_object() {
            continue;
        }
        let source = selector["cel"]["expression"].as_str().unwrap_or_default();
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
