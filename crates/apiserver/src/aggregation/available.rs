//! Says of every APIService whether it is available: local ones always are, others if their server answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use store::{KeyRange, Store};

use super::{PATH, Remote, TABLE, all, proxy};
use crate::controllers::follow::Follow;
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const SERVICES: &str = "core/services";
const SLICES: &str = "discovery.k8s.io/endpointslices";

/// How often servers that answer are asked again, and those that do not.
const WELL: Duration = Duration::from_secs(30);
const ILL: Duration = Duration::from_secs(1);
/// The least time between two rounds, however much changes.
const PAUSE: Duration = Duration::from_millis(100);

/// Follows APIServices and, while there are others' among them, what leads to these.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-apiserver");
    let mut follow = Follow::tables(server.store(), &[TABLE]);
    let mut again = None;
    loop {
        match again {
            Some(time) => drop(tokio::time::timeout(time, follow.changed()).await),
            None => follow.changed().await,
        }
        follow.read_woken(&mut |_, _| {});
        let services = all(&server);
        server.0.remotes.set(&services);
        let remotes = server.0.remotes.all();
        if remotes.is_empty() {
            follow.retain(|table| &**table == TABLE);
        } else {
            [SERVICES, SLICES].into_iter().for_each(|table| follow.add(table.into()));
        }
        let checks = services.iter().map(|service| {
            let of = |own: &str| service["spec"][own].as_str().unwrap_or_default();
            let remote = remotes.iter().find(|own| (&*own.group, &*own.version) == (of("group"), of("version")));
            settle(&server, &local, service, remote.map(|remote| &**remote))
        });
        let well = futures::future::join_all(checks).await.into_iter().all(|well| well);
        again = match (well, remotes.is_empty()) {
            (false, _) => Some(ILL),
            (true, false) => Some(WELL),
            (true, true) => None,
        };
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks at one, and says how it is; false if it is to be looked at again soon.
async fn settle(server: &Server, local: &Local, service: &Value, remote: Option<&Remote>) -> bool {
    let found = match remote {
        None if service["spec"].get("service").is_some() => return true,
        None => Ok(("Local", "Local APIServices are always available".to_owned())),
        Some(remote) => check(server, remote).await.map(|()| ("Passed", "all checks passed".to_owned())),
    };
    if let Some(remote) = remote {
        remote.available.store(found.is_ok(), Ordering::Release);
    }
    let (status, (reason, message)) = match &found {
        Ok(well) => ("True", well),
        Err(ill) => ("False", ill),
    };
    let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let before = conditions.iter().find(|own| own["type"] == "Available");
    let same = |field: &str, value: &str| before.is_some_and(|own| own[field] == value);
    if same("status", status) && same("reason", reason) && same("message", message) {
        return found.is_ok();
    }
    let since = match before {
        Some(before) if before["status"] == status => before["lastTransitionTime"].clone(),
        _ => server.0.now().into(),
    };
    let now = json!({
        "type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    let mut new = conditions.clone();
    match new.iter_mut().find(|own| own["type"] == "Available") {
        Some(own) => *own = now,
        None => new.push(now),
    }
    let path = format!("{PATH}/{}/status", service["metadata"]["name"].as_str().unwrap_or_default());
    let patch = json!({"metadata": {"uid": service["metadata"]["uid"]}, "status": {"conditions": new}});
    let written = local.merge(&path, &patch).await;
    found.is_ok() && written.is_ok()
}

/// All that a server has, in one piece.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Why a server is not available: a reason and a message.
type Ill = (&'static str, String);

async fn check(server: &Server, remote: &Remote) -> Result<(), Ill> {
    reachable(server.store(), remote)?;
    let failed = |why: String| ("FailedDiscoveryCheck", why);
    let path = format!("/apis/{}/{}", remote.group, remote.version);
    let older = proxy::ask_for(&server.0, remote, &path, "application/json").await.map_err(failed)?;
    let older: Value = serde_json::from_slice(&older).unwrap_or_default();
    // Who has all in one piece says more in it; not every server has.
    let whole = proxy::ask_for(&server.0, remote, "/apis", AGGREGATED).await.unwrap_or_default();
    let whole: Value = serde_json::from_slice(&whole).unwrap_or_default();
    // Not every server has these documents.
    let index = proxy::ask(&server.0, remote, "/openapi/v3").await.unwrap_or_default();
    let mut said = remote.said.lock();
    said.resources = remote.newest(&whole).or_else(|| remote.older(&older));
    said.document = index["paths"].get(path.trim_start_matches('/')).cloned();
    Ok(())
}

/// Whether its Service leads to it.
fn reachable(store: &Store, remote: &Remote) -> Result<(), Ill> {
    let (namespace, name, port) = remote.service();
    let here = format!("service/{name} in {namespace:?}");
    let Some(service) = store.get(SERVICES, &format!("{namespace}/{name}")).and_then(|entry| parse_stored(&entry).ok())
    else {
        return Err(("ServiceNotFound", format!("{here} is not present")));
    };
    if service["spec"]["type"] != "ClusterIP" {
        return Ok(());
    }
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(own) = ports.iter().find(|own| own["port"].as_u64() == Some(port.into())) else {
        return Err(("ServicePortError", format!("{here} is not listening on port {port}")));
    };
    let port_name = own["name"].as_str().unwrap_or_default();
    let entries = store.list(SLICES, KeyRange::prefix(&format!("{namespace}/")), None).map(|list| list.entries);
    let slices = entries.unwrap_or_default().into_iter().filter_map(|entry| parse_stored(&entry).ok());
    let slices: Vec<Value> =
        slices.filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name).collect();
    if slices.is_empty() {
        return Err(("EndpointsNotFound", format!("cannot find endpointslices for {here}")));
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let leads = slices.iter().any(|slice| {
        list(&slice["endpoints"]).iter().any(|endpoint| endpoint["conditions"]["ready"] != false)
            && list(&slice["ports"]).iter().any(|own| own["name"].as_str().unwrap_or_default() == port_name)
    });
    if leads {
        return Ok(());
    }
    let message = format!("endpointslices for {here} have no addresses with port name {port_name:?}");
    Err(("MissingEndpoints", message))
}
