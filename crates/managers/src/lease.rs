//! Leadership by a Lease: one process works, others wait.
//!
//! Clocks of several machines are not compared: a Lease has run out for who has seen it unchanged for as long as it holds.

use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::{Api, Failure, JSON};
use crate::clock::now_micro;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/conductor-system/leases";
const NAME: &str = "conductor-managers";
/// How long the right to lead may be on its way.
const PATIENCE: Duration = Duration::from_secs(10);

/// A claim to lead.
pub(crate) struct Lease {
    api: Api,
    identity: String,
    /// How long it holds without being renewed.
    holds: Duration,
    /// The version of the Lease that was last seen, and since when.
    seen: Mutex<Option<(String, Instant)>>,
}

impl Lease {
    pub(crate) fn new(api: Api, identity: &str, holds: Duration) -> Lease {
        Lease { api, identity: identity.to_owned(), holds, seen: Mutex::default() }
    }

    /// Waits until this process leads; fails if that is not for it to do.
    pub(crate) async fn acquire(&self) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            match self.attempt().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // a right that was just given is known a moment later
                Err(failure) if matches!(failure.code, 401 | 403) && began.elapsed() > PATIENCE => return Err(failure),
                Err(failure) => tracing::debug!(%failure, "the lease could not be taken"),
            }
            tokio::time::sleep(self.holds / 15).await;
        }
    }

    /// Renews; returns when leadership is lost, and in time before another may have it.
    pub(crate) async fn hold(&self) {
        let mut renewed = Instant::now();
        loop {
            let end = renewed + self.holds * 4 / 5;
            tokio::time::sleep_until(end.min(Instant::now() + self.holds / 4)).await;
            let asked = Instant::now();
            match tokio::time::timeout_at(end, self.attempt()).await {
                Ok(Ok(true)) => renewed = asked,
                Ok(Ok(false)) => return tracing::warn!("another process leads now"),
                Ok(Err(failure)) => tracing::warn!(%failure, "the lease could not be renewed"),
                Err(_) => return tracing::warn!("the lease could not be renewed in time"),
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
            "leaseDurationSeconds": self.holds.as_secs().max(1),
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
        let ours = holder == self.identity;
        if !ours && !holder.is_empty() && !self.has_run_out(&lease) {
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

    /// Whether the Lease of another has not changed for as long as it holds.
    fn has_run_out(&self, lease: &Value) -> bool {
        let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let said = lease["spec"]["leaseDurationSeconds"].as_u64().map_or(self.holds, Duration::from_secs);
        let mut seen = self.seen.lock();
        match &*seen {
            Some((known, since)) if known == version => since.elapsed() >= said,
            _ => {
                *seen = Some((version.to_owned(), Instant::now()));
                false
            }
        }
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
