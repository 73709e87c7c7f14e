//! Says in the status of ValidatingAdmissionPolicies whether their expressions fit the kinds they are about.

use std::time::Duration;

use http::Method;
use serde_json::json;
use store::KeyRange;

use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const MANAGER: &str = "validatingadmissionpolicy-status-controller";
const TABLE: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

/// Checks every policy once per generation.
pub async fn run(server: Server) {
    let local = Local::new(&server, MANAGER);
    loop {
        let Ok(list) = server.store().list(TABLE, KeyRange::all(), None) else { continue };
        let mut failed = false;
        for entry in &list.entries {
            let Ok(policy) = parse_stored(entry) else { continue };
            let generation = policy["metadata"]["generation"].as_i64().unwrap_or(0);
            if generation <= policy["status"]["observedGeneration"].as_i64().unwrap_or(0) {
                continue;
            }
            let warnings = crate::policies::types::warnings(&policy, &server.0.catalog());
            let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
            let name = &policy["metadata"]["name"];
            let status = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": name, "uid": policy["metadata"]["uid"]},
                "status": {"observedGeneration": generation, "typeChecking": checked},
            });
            let path = format!("{PATH}/{}/status?fieldManager={MANAGER}&force=true", entry.key);
            let body = status.to_string().into();
            if let Err(status) = local.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await {
                tracing::debug!(%status, %name, "the status of a policy could not be written");
                failed |= !matches!(status.code, 404 | 409);
            }
        }
        if failed {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        }
        let Ok(mut watch) = server.store().watch(TABLE, "", list.revision) else { continue };
        if watch.next().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
