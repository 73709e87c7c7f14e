//! What must exist before the first request: namespaces, for a start.

use machinery::status::Status;
use serde_json::json;

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
    for (name, value, description) in [
        ("system-cluster-critical", 2_000_000_000, "For pods that the cluster cannot do without, on whichever node."),
        ("system-node-critical", 2_000_001_000, "For pods that their node cannot do without."),
    ] {
        if server.store().get("scheduling.k8s.io/priorityclasses", name).is_none() {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description});
            local.ensure("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
        }
    }
    Ok(())
}
