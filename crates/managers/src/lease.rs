//! Leadership by a Lease: one process works, others wait.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Failure, JSON};
use crate::clock::{now_micro, seconds};
use conductor_claims::extract;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/conductor-system/leases";
const NAME: &str = "conductor-managers";
/// How long a Lease holds without being renewed, and how often it is.
const HOLDS: i64 = 15;
const RENEW: Duration = Duration::from_secs(4);

/// A claim to lead.
pub(crate) struct Lease {
    api: Api,
    identity: String,
}

impl Lease {
    pub(crate) fn new(api: Api, identity: &str) -> Lease {
        Lease { api, identity: identity.to_owned() }
    }

    /// Waits until this process leads.
    pub(crate) async fn acquire(&self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(failure) => tracing::debug!(%failure, "the lease could not be taken"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Renews; returns when leadership is lost.
    pub(crate) async fn hold(&self) {
        let mut renewed = seconds();
        loop {
            tokio::time::sleep(RENEW).await;
            match self.attempt().await {
                Ok(true) => renewed = seconds(),
                Ok(false) => return tracing::warn!("another process leads now"),
                Err(failure) => tracing::warn!(%failure, "the lease could not be renewed"),
            }
            if seconds() - renewed >= HOLDS - 2 {
                return tracing::warn!("the lease could not be renewed in time");
            }
        }
    }

    /// Gives the Lease back, so that the next need not wait until it runs out.
    pub(crate) async fn release(&self) {
        let path = format!("{PATH}/{NAME}");
        let Ok(Some(mut lease)) = self.api.read(&path).await else { return };
        if lease["spec"]["holderIdentity"].as_str() == Some(&self.identity) {
            lease["spec"]["holderIdentity"] = json!("");
            if let Err(failure) = self.write(Method::PUT, &path, &lease).await {
                tracing::debug!(%failure, "the lease could not be given back");
            }
        }
    }

    /// Takes or renews the Lease; whether it is ours now.
    async fn attempt(&self) -> Result<bool, Failure> {
        let path = format!("{PATH}/{NAME}");
        let live = self.api.read(&path).await?;
        let spec = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": HOLDS,
            "renewTime": now_micro(),
        });
        let Some(mut lease) = live else {
            let mut spec = spec;
            spec["acquireTime"] = spec["renewTime"].clone();
            let body = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": NAME, "namespace": "conductor-system"}, "spec": spec,
            });
            return self.write(Method::POST, PATH, &body).await;
        };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let renewed = extract::seconds(lease["spec"]["renewTime"].as_str().unwrap_or_default());
        let ours = holder == self.identity;
        if !ours && !holder.is_empty() && seconds() - renewed < HOLDS {
            return Ok(false);
        }
        if !ours {
            let changes = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
            lease["spec"]["leaseTransitions"] = json!(changes + 1);
            lease["spec"]["acquireTime"] = spec["renewTime"].clone();
        }
        for (key, value) in spec.as_object().into_iter().flatten() {
            lease["spec"][key] = value.clone();
        }
        self.write(Method::PUT, &path, &lease).await
    }

    async fn write(&self, method: Method, path: &str, body: &Value) -> Result<bool, Failure> {
        match self.api.call(method, path, JSON, body.to_string().into_bytes()).await {
            Ok(_) => Ok(true),
            // someone else was faster
            Err(failure) if failure.code == 409 => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
