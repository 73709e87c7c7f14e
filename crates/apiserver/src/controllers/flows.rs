//! Says in the status of FlowSchemas whether their priority level exists, and brings back the schemas and levels that a
//! server cannot do without.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use store::KeyRange;

use super::follow::Follow;
use crate::flow::defaults::{self, condition};
use crate::flow::{GROUP, LEVELS, SCHEMAS};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Follows schemas and levels.
pub async fn run(server: Server) {
    let local = Local::new(&server, MANAGER);
    let mut follow = Follow::tables(server.store(), &[SCHEMAS, LEVELS]);
    loop {
        follow.changed().await;
        follow.read_woken(&mut |_, _| {});
        while !settle(&server, &local).await {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Makes everything as it should be; false if it must be tried again.
async fn settle(server: &Server, local: &Local) -> bool {
    let mut well = defaults::run(server).await.is_ok();
    let list = |table: &str| -> Vec<Value> {
        let entries = server.store().list(table, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
        entries.iter().filter_map(|entry| parse_stored(entry).ok()).collect()
    };
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let levels: BTreeSet<String> = list(LEVELS).iter().map(name).collect();
    for schema in list(SCHEMAS) {
        let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        let wanted = condition(level, levels.contains(level), &server.0.now());
        let conditions = schema["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let same =
            |own: &Value| ["type", "status", "reason", "message"].iter().all(|field| own[field] == wanted[field]);
        if conditions.iter().any(same) {
            continue;
        }
        let status = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "FlowSchema",
            "metadata": {"name": schema["metadata"]["name"], "uid": schema["metadata"]["uid"]},
            "status": {"conditions": [wanted]},
        });
        let path = format!("/apis/{SCHEMAS}/{}/status?fieldManager={MANAGER}&force=true", name(&schema));
        let path = path.replacen(GROUP, &format!("{GROUP}/v1"), 1);
        let body = status.to_string().into();
        if let Err(status) = local.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await {
            tracing::debug!(%status, "the status of a FlowSchema could not be written");
            well &= matches!(status.code, 404 | 409);
        }
    }
    well
}
