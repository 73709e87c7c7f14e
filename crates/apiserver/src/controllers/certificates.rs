//! Signs the CertificateSigningRequests of this server's own signers once they are approved.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use store::KeyRange;

use super::follow::Follow;
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;
use crate::signer::{self, Refusal, Signer};

const TABLE: &str = "certificates.k8s.io/certificatesigningrequests";
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Follows the requests.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-controller-manager");
    let mut follow = Follow::tables(server.store(), &[TABLE]);
    loop {
        follow.changed().await;
        follow.read_woken(&mut |_, _| {});
        while !settle(&server, &local).await {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Whether there is something to do about a request, and who does it.
fn due(request: &Value) -> Option<Signer> {
    let conditions = request["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |kind: &str| conditions.iter().any(|own| own["type"] == kind && own["status"] == "True");
    let signed = request["status"].get("certificate").is_some();
    let waits = is("Approved") && !is("Denied") && !is("Failed") && !signed;
    Signer::named(request["spec"]["signerName"].as_str()?).filter(|_| waits)
}

/// Signs what is due; false if it must be tried again.
async fn settle(server: &Server, local: &Local) -> bool {
    let mut well = true;
    let entries = server.store().list(TABLE, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
    for mut request in entries.iter().filter_map(|entry| parse_stored(entry).ok()) {
        let Some(signer) = due(&request) else { continue };
        let name = request["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match signed(server, signer, &request["spec"]) {
            Ok(certificate) => request["status"]["certificate"] = STANDARD.encode(certificate).into(),
            Err(Refusal::Never(why)) => {
                let failed = json!({
                    "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why,
                    "lastUpdateTime": server.0.now(),
                });
                if let Some(conditions) = request["status"]["conditions"].as_array_mut() {
                    conditions.push(failed);
                }
            }
            Err(Refusal::Failed(why)) => {
                tracing::warn!(name, why, "a certificate could not be signed");
                continue;
            }
        }
        if let Err(status) = local.update(&format!("{PATH}/{name}/status"), &request).await {
            tracing::debug!(%status, "a certificate could not be written");
            well &= matches!(status.code, 404 | 409);
        }
    }
    well
}

fn signed(server: &Server, signer: Signer, spec: &Value) -> Result<String, Refusal> {
    let pem = STANDARD.decode(spec["request"].as_str().unwrap_or_default());
    let pem = pem.map_err(|error| Refusal::Failed(error.to_string()))?;
    let usages: Vec<&str> = spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let seconds = spec["expirationSeconds"].as_i64();
    signer::sign(server.pki(), signer, &pem, &usages, seconds, time::OffsetDateTime::now_utc())
}
