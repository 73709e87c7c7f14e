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
    Ok(())
}
