//! Devices that are claimed with an administrator's rights: only in namespaces that are marked for it.

use machinery::field::{Error, Path};
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
