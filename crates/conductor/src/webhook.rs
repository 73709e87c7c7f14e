//! Refusals on Kubernetes: the engine's one review, as a validating webhook.
//!
//! It has a certificate of its own, in a Secret, so that any number of processes serve under one. Requests go through when it cannot
//! be reached: nothing depends on it for correctness.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use conductor_apiserver::endpoint::{self, Endpoint};
use conductor_apiserver::pki::{Pair, Pki};
use conductor_claims::lifecycle::SYSTEM_NAMESPACE;
use conductor_claims::review::{Operation, Request};
use conductor_managers::Api;
use conductor_managers::api::Failure;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::review::Known;

/// The name of its Secret, of its Service and of its configuration.
pub const NAME: &str = "conductor-review";
/// Where it listens below its address.
const PATH: &str = "/review";
/// How the API server finds it.
#[derive(Clone, Debug)]
pub enum Place {
    /// At a URL.
    Url(String),
    /// By the Service of its name.
    Service,
}

/// A webhook that listens.
pub struct Webhook {
    known: Arc<Known>,
    place: Place,
    host: String,
    /// What the API server is to trust.
    ca: Mutex<String>,
    certificate: Arc<endpoint::Certificate>,
}

/// How often the certificate is looked at: another process may have replaced it.
const LOOK: Duration = Duration::from_secs(60);

impl Webhook {
    /// Begins to listen and to answer.
    pub async fn start(api: &Api, listen: SocketAddr, url: Option<String>) -> anyhow::Result<Arc<Webhook>> {
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        let place = match url {
            Some(url) => Place::Url(url.trim_end_matches('/').to_owned()),
            None if address.ip().is_unspecified() => Place::Service,
            None => Place::Url(format!("https://{address}")),
        };
        let host = match &place {
            Place::Service => format!("{NAME}.{SYSTEM_NAMESPACE}.svc"),
            Place::Url(url) => {
                let url: http::Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
                anyhow::ensure!(url.scheme_str() == Some("https"), "{url} must begin with https://");
                url.host().map(|host| host.trim_matches(['[', ']']).to_owned()).context("the URL has no host")?
            }
        };
        let pair = pair(api, &host).await.context("cannot keep the webhook's certificate")?;
        let ca = Mutex::new(pair.ca);
        let known = Arc::new(Known::default());
        known.follow(api);
        let endpoint = Endpoint::new(&pair.own, PATH)?;
        let (judging, certificate) = (known.clone(), endpoint.certificate());
        tokio::spawn(endpoint.serve(listener, move |review: Value| {
            let known = judging.clone();
            async move { judge(&known, &review["request"]).await }
        }));
        let webhook = Arc::new(Webhook { known, place, host, ca, certificate });
        let (keeping, api) = (webhook.clone(), api.clone());
        tokio::spawn(async move { keeping.keep(&api).await });
        Ok(webhook)
    }

    /// Keeps the certificate as its Secret has it, for as long as this runs.
    async fn keep(&self, api: &Api) {
        loop {
            tokio::time::sleep(LOOK).await;
            match pair(api, &self.host).await {
                Ok(pair) if *self.ca.lock() == pair.ca => {}
                Ok(pair) => match self.certificate.replace(&pair.own) {
                    Ok(()) => {
                        *self.ca.lock() = pair.ca;
                        self.known.changed.notify_one();
                    }
                    Err(error) => tracing::warn!(%error, "the webhook's certificate cannot be used"),
                },
                Err(error) => tracing::warn!(%error, "the webhook's certificate cannot be read"),
            }
        }
    }

    /// Where it is reached, for people.
    pub fn address(&self) -> String {
        match &self.place {
            Place::Url(url) => format!("{url}{PATH}"),
            Place::Service => format!("Service {SYSTEM_NAMESPACE}/{NAME}"),
        }
    }

    /// Has the API server ask it, about the kinds of all types there are, for as long as this runs.
    pub async fn register(&self, api: &Api) {
        let mut said = Value::Null;
        loop {
            let wanted = self.configuration();
            if wanted != said {
                match api.apply(&wanted).await {
                    Ok(_) => said = wanted,
                    Err(failure) => {
                        tracing::warn!(%failure, "the webhook could not be registered");
                        tokio::time::sleep(Duration::from_secs(2)).await;
                        continue;
                    }
                }
            }
            // somebody may have removed it meanwhile
            if tokio::time::timeout(LOOK, self.known.changed.notified()).await.is_err() {
                said = Value::Null;
            }
        }
    }

    fn configuration(&self) -> Value {
        let mut client = json!({"caBundle": STANDARD.encode(self.ca.lock().as_bytes())});
        match &self.place {
            Place::Url(url) => client["url"] = json!(format!("{url}{PATH}")),
            Place::Service => client["service"] = json!({"namespace": SYSTEM_NAMESPACE, "name": NAME, "path": PATH}),
        }
        let hook = |name: &str, rules: Value, conditions: Value| {
            json!({
                "name": name, "clientConfig": client, "rules": rules, "matchConditions": conditions,
                "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 5, "admissionReviewVersions": ["v1"],
            })
        };
        let rule = |group: &str, resources: Value, operations: &[&str]| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources});
        let writes = ["CREATE", "UPDATE"];
        let own = json!(["resourcetypes", "managers", "volumetemplates"]);
        let mut rules = vec![rule("conductor.io", own, &["CREATE", "UPDATE", "DELETE"])];
        rules.extend(self.known.groups().iter().map(|group| rule(group, json!(["*"]), &writes)));
        let consumers = json!([
            rule("", json!(["pods", "services"]), &writes),
            rule("networking.k8s.io", json!(["ingresses"]), &writes),
        ]);
        let names = "has(object.metadata.annotations) && object.metadata.annotations.exists(key, key in ['conductor.io/claims', 'network.conductor.io/claim'])";
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "conductor"}},
            "webhooks": [
                hook("types.review.conductor.io", json!(rules), json!([])),
                hook("consumers.review.conductor.io", consumers, json!([{"name": "names-claims", "expression": names}])),
            ],
        })
    }
}

struct Certificate {
    ca: String,
    own: Pair,
}

/// The certificate that all processes share; made anew before it runs out, or when it is for another host.
async fn pair(api: &Api, host: &str) -> anyhow::Result<Certificate> {
    // processes that have not looked yet still show the one before
    let mut before = String::new();
    const HOST: &str = "conductor.io/host";
    const UNTIL: &str = "conductor.io/made-on-day";
    let today = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs() / 86_400;
    for _ in 0..5 {
        let live = api.get("v1", "Secret", SYSTEM_NAMESPACE, NAME).await?;
        if let Some(live) = &live {
            let note = |key: &str| live["metadata"]["annotations"][key].as_str().unwrap_or_default();
            let day: u64 = note(UNTIL).parse().unwrap_or(0);
            let text = |key: &str| {
                let bytes = STANDARD.decode(live["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
                String::from_utf8(bytes).unwrap_or_default()
            };
            if note(HOST) == host && today < day + 300 {
                let own = Pair { certificate: text("tls.crt"), key: text("tls.key") };
                return Ok(Certificate { ca: text("ca.crt") + &text("before.crt"), own });
            }
            before = text("ca.crt");
        }
        let pki = Pki::ephemeral()?;
        let made = match host.parse() {
            Ok(address) => pki.server(&[address], &[])?,
            Err(_) => pki.server(&[], &[host])?,
        };
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE, "annotations": {HOST: host, UNTIL: today.to_string()}},
            "data": {
                "ca.crt": STANDARD.encode(pki.ca()),
                "before.crt": STANDARD.encode(&before),
                "tls.crt": STANDARD.encode(&made.certificate),
                "tls.key": STANDARD.encode(&made.key),
            },
        });
        let collection = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets");
        let written = match live {
            None => {
                api.call(http::Method::POST, &collection, "application/json", secret.to_string().into_bytes()).await
            }
            Some(live) => {
                secret["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                let path = format!("{collection}/{NAME}");
                api.call(http::Method::PUT, &path, "application/json", secret.to_string().into_bytes()).await
            }
        };
        match written {
            Ok(_) => return Ok(Certificate { ca: pki.ca().to_owned() + &before, own: made }),
            // another process was faster
            Err(Failure { code: 409, .. }) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    anyhow::bail!("Secret {SYSTEM_NAMESPACE}/{NAME} keeps changing: do two processes serve it under two addresses?")
}

async fn judge(known: &Known, request: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let operation = match request["operation"].as_str() {
        Some("CREATE") => Some(Operation::Create),
        Some("UPDATE") => Some(Operation::Update),
        Some("DELETE") => Some(Operation::Delete),
        _ => None,
    };
    let plain = text(&request["subResource"]).is_empty();
    let reviewed = match operation.filter(|_| plain) {
        None => Ok(Vec::new()),
        Some(operation) => {
            let asked = Request { operation, object: &request["object"], old: &request["oldObject"] };
            let (group, kind) = (text(&request["kind"]["group"]), text(&request["kind"]["kind"]));
            known.review(&group, &kind, &text(&request["name"]), &asked).await
        }
    };
    let response = match reviewed {
        Ok(warnings) => json!({"uid": request["uid"], "allowed": true, "warnings": warnings}),
        Err(message) => json!({
            "uid": request["uid"], "allowed": false,
            "status": {"code": 422, "reason": "Invalid", "message": message},
        }),
    };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
