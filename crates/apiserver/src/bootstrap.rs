//! What must exist before the first request: namespaces, for a start.

use machinery::status::Status;
use serde_json::json;
use store::{Expect, Op, Transaction};

use crate::local::Local;
use crate::server::Server;

/// Makes what is missing.
pub async fn run(server: &Server) -> Result<(), Status> {
    let local = Local::new(server, "kube-apiserver");
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        if server.store().get(crate::catalog::NAMESPACES, name).is_none() {
            local.ensure("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        }
    }
    for name in ["default", "kube-system"] {
        crate::controllers::namespaces::ensure(server, &local, name).await;
    }
    // What servers beside this one trust, and since when old tokens are counted: others' programs look for both.
    let since = server.0.today();
    let trusted = json!({
        "client-ca-file": server.0.pki.ca(),
        "requestheader-client-ca-file": server.0.pki.front_proxy_ca(),
        "requestheader-allowed-names": json!([crate::pki::FRONT_PROXY]).to_string(),
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    });
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    for (name, data) in [
        ("extension-apiserver-authentication", trusted),
        ("kube-apiserver-legacy-service-account-token-tracking", json!({"since": since})),
    ] {
        let stored = server.store().get("core/configmaps", &format!("kube-system/{name}"));
        let Some(stored) = stored.and_then(|entry| crate::plan::parse_stored(&entry).ok()) else {
            local.ensure(maps, &json!({"metadata": {"name": name}, "data": data})).await?;
            continue;
        };
        let Some(data) = data.as_object().filter(|data| !data.contains_key("since")) else { continue };
        if data.iter().any(|(key, value)| stored["data"][key] != *value) {
            local.merge(&format!("{maps}/{name}"), &json!({"data": data})).await?;
        }
    }
    for (name, value, description) in [
        ("system-cluster-critical", 2_000_000_000, "For pods that the cluster cannot do without, on whichever node."),
        ("system-node-critical", 2_000_001_000, "For pods that their node cannot do without."),
    ] {
        if server.store().get("scheduling.k8s.io/priorityclasses", name).is_none() {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description});
            local.ensure("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
        }
    }
    crate::controllers::addresses::ensure_default(server, &local).await?;
    crate::plugins::addresses::adopt(server).await?;
    components(server).await
}

/// What a real one says about its parts, of which there is one here: where objects are kept. It can only be read.
async fn components(server: &Server) -> Result<(), Status> {
    let name = "etcd-0";
    let catalog = server.0.catalog();
    let Some(resource) = catalog.find("", "v1", "componentstatuses") else { return Ok(()) };
    if server.store().get(&resource.table, name).is_some() {
        return Ok(());
    }
    let status = json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
    });
    let op = Op::put(resource.table.clone(), name, resource.encode(&status), Expect::Absent);
    server.store().commit(Transaction { ops: vec![op] }).await.map(drop).map_err(crate::plan::commit_status)
}
