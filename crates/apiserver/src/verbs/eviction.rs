//! `pods/eviction`: a deletion that disruption budgets may refuse.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Response};
use machinery::field::{Error, Path};
use machinery::selector::Selector;
use machinery::status::Status;
use serde_json::{Value, json};

use super::subresources::{admit, stored};
use crate::body::Body;
use crate::context::Context;
use crate::local::Local;
use crate::server::Server;

/// A budget that so many evictions are charged to, and none of them seen by its controller, takes no more.
const MAX_DISRUPTED: usize = 2000;
/// How often a budget is looked at again when its controller writes at the same time.
const ATTEMPTS: usize = 20;
const BREAKING: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// `POST`. Boxed, because the server asks itself on the way.
pub fn create(cx: &Context, body: Bytes) -> BoxFuture<'_, Result<Response<Body>, Status>> {
    Box::pin(evict(cx, body))
}

async fn evict(cx: &Context, body: Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let eviction = cx.decode_as(&body, ("policy", "v1", "Eviction"), &options)?;
    if eviction["metadata"]["name"] != *cx.info.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    cx.check_namespace(&eviction)?;
    if eviction["deleteOptions"][BREAKING] == true {
        let path = Path::root("deleteOptions").child(BREAKING);
        let error = Error::invalid(&path, true, "can not be set for pod eviction, try after removing the option");
        return Err(Status::invalid("policy", "Eviction", &cx.info.name, &[error]));
    }
    let mut delete = match &eviction["deleteOptions"] {
        Value::Object(options) => Value::Object(options.clone()),
        _ => json!({}),
    };
    if options.dry_run {
        let own = delete["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
        if !own.is_empty() && own != ["All"] {
            return Err(Status::bad_request(format!(
                "Non-matching dry-run options in request and content: [All] and [{}]",
                own.join(" ")
            )));
        }
        delete["dryRun"] = json!(["All"]);
    }
    let dry_run = delete["dryRun"].as_array().is_some_and(|list| !list.is_empty());
    admit(cx, eviction, dry_run).await?;
    crate::plugins::nodes::may_evict(cx)?;
    let pod = stored(cx).await?;
    let local = Local::new(&Server(cx.server.clone()), "kube-apiserver");
    // What does not run, or no longer, is not disrupted.
    let runs = !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
    if runs && pod["metadata"].get("deletionTimestamp").is_none() {
        charge(cx, &local, &pod, dry_run).await?;
    }
    let wanted = &delete["preconditions"];
    let holds = |field: &str| wanted[field].as_str().is_none_or(|wanted| pod["metadata"][field] == wanted);
    if !dry_run && holds("uid") && holds("resourceVersion") {
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", cx.info.namespace, cx.info.name);
        let why = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": cx.server.now(),
        }]}});
        let kind = "application/strategic-merge-patch+json";
        let marked = local.send(Method::PATCH, &path, kind, why.to_string().into()).await?;
        if delete["preconditions"]["resourceVersion"].is_string() {
            delete["preconditions"]["resourceVersion"] = marked["metadata"]["resourceVersion"].clone();
        }
    }
    cx.delete_with(&delete).await?;
    Ok(cx.server.plain_status(&Status::new(201, "", ""), cx.accept))
}

/// Charges the eviction to the Pod's budget, if it has one and needs it.
async fn charge(cx: &Context, local: &Local, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let budgets = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", cx.info.namespace);
    for _ in 0..ATTEMPTS {
        let mut own = budgets_of(cx, pod)?;
        let Some(mut budget) = own.pop() else { return Ok(()) };
        if !own.is_empty() {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "", why));
        }
        let number = |name: &str| budget["status"][name].as_i64().unwrap_or(0);
        let ready = pod["status"]["conditions"].as_array().into_iter().flatten();
        if !ready.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True") {
            let healthy = number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
            if healthy || budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
                return Ok(());
            }
        }
        allow(&budget)?;
        if dry_run {
            return Ok(());
        }
        let left = number("disruptionsAllowed") - 1;
        let now = cx.server.now();
        budget["status"]["disruptionsAllowed"] = left.into();
        budget["status"]["disruptedPods"][&cx.info.name] = now.clone().into();
        if left == 0 {
            exhausted(&mut budget["status"], &now);
        }
        let name = budget["metadata"]["name"].as_str().unwrap_or_default();
        match local.update(&format!("{budgets}/{name}/status"), &budget).await {
            Err(status) if status.code == 409 => {}
            other => return other.map(drop),
        }
    }
    Err(Status::timeout("couldn't update PodDisruptionBudget due to conflicts", 10))
}

fn budgets_of(cx: &Context, pod: &Value) -> Result<Vec<Value>, Status> {
    let prefix = format!("{}/", cx.info.namespace);
    let list = cx.server.store.list("policy/poddisruptionbudgets", store::KeyRange::prefix(&prefix), None);
    let labels = pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let mut budgets = Vec::new();
    for entry in list.map(|list| list.entries).unwrap_or_default() {
        let budget = crate::plan::parse_stored(&entry)?;
        let Ok(selector) = Selector::from_object(&budget["spec"]["selector"]) else { continue };
        if selector.matches(&labels) {
            budgets.push(budget);
        }
    }
    Ok(budgets)
}

/// Whether a budget allows one disruption more.
fn allow(budget: &Value) -> Result<(), Status> {
    let status = &budget["status"];
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let number = |name: &str| status[name].as_i64().unwrap_or(0);
    let forbidden = |why: &str| Status::forbidden("policy", "poddisruptionbudget", name, why);
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Status::too_many_requests(REFUSED, 10).cause("DisruptionBudget", "", why));
    }
    if number("disruptionsAllowed") < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return Err(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if number("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let refused = conditions
        .filter(|one| one["type"] == "DisruptionAllowed" && one["status"] == "False")
        .map(|one| (text(&one["reason"]), text(&one["message"])))
        .find(|(_, message)| !message.is_empty());
    let (desired, current) = (number("desiredHealthy"), number("currentHealthy"));
    let why = match refused {
        Some((reason, message)) if reason == "SyncFailed" => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Err(Status::new(429, "TooManyRequests", REFUSED).cause("DisruptionBudget", "", why))
}

/// Says on a budget that it is used up.
fn exhausted(status: &mut Value, now: &str) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": status["observedGeneration"],
    });
    match status["conditions"].as_array_mut() {
        Some(conditions) => {
            conditions.retain(|one| one["type"] != "DisruptionAllowed");
            conditions.push(condition);
        }
        None => status["conditions"] = json!([condition]),
    }
}
