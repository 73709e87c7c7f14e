//! One list of writes, two transports: a Transaction where discovery offers it, ordered writes elsewhere.
//!
//! Nothing above knows which it was. Either way every write carries its precondition; in order, the first that fails ends the
//! list and what went before stays, which the next look resumes, and what nobody waits for is left to the look at its own object.

use std::sync::Arc;

use conductor_claims::lifecycle::{Plan, TEMPLATE_MANAGER, Verb, Version, Write};
use http::Method;
use serde_json::{Value, json};

use crate::api::{APPLY, Api, FIELD_MANAGER, Failure, JSON, MERGE, Served};
use crate::install::PROVISIONER;
use crate::metrics::Counters;

const GROUP_VERSION: &str = "transactions.conductor.io/v1alpha1";
const PATH: &str = "/apis/transactions.conductor.io/v1alpha1/transactions";
/// The most operations a Transaction takes.
const MOST: usize = 256;

/// A list of writes that did not go through to its end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{purpose}: {failure}")]
pub struct Broken {
    /// What the write that failed was for.
    pub purpose: &'static str,
    /// Why it failed.
    pub failure: Failure,
    /// The versions that the writes before it yielded.
    pub done: Vec<String>,
}

/// Sends lists of writes.
#[derive(Clone)]
pub struct Transport {
    api: Api,
    /// Writes implementations: what templates ask for is no more than the provisioner may do.
    provisioner: Api,
    transactions: bool,
    pub(crate) counters: Arc<Counters>,
}

impl Transport {
    /// Chooses by discovery.
    pub async fn discover(api: Api) -> Result<Transport, Failure> {
        let transactions = match api.served(GROUP_VERSION, "Transaction").await {
            Ok(_) => true,
            Err(failure) if failure.code == 404 => false,
            Err(failure) => return Err(failure),
        };
        Ok(Transport { transactions, ..Transport::ordered(api) })
    }

    /// Always in order, whatever discovery says; for tests.
    pub fn ordered(api: Api) -> Transport {
        Transport { provisioner: api.acting_as(PROVISIONER), api, transactions: false, counters: Arc::default() }
    }

    /// Whether lists go as one Transaction.
    pub fn is_transactional(&self) -> bool {
        self.transactions
    }

    /// Sends a plan's writes. The versions they yield, in their order; empty for what is gone or left for later.
    pub async fn send(&self, plan: &Plan) -> Result<Vec<String>, Broken> {
        let sent = self.send_all(plan).await;
        let done = sent.as_ref().map_or_else(|broken| broken.done.len(), Vec::len);
        let left = plan.writes.iter().take(done).filter(|write| self.leaves(write)).count();
        self.counters.sent(done - left, sent.is_err());
        sent
    }

    /// Whether a write is not sent with its list.
    fn leaves(&self, write: &Write) -> bool {
        write.can_wait && !self.transactions
    }

    async fn send_all(&self, plan: &Plan) -> Result<Vec<String>, Broken> {
        let mut done: Vec<String> = Vec::with_capacity(plan.writes.len());
        // a Transaction has one sender, and so the writes of one sender
        for list in plan.writes.chunk_by(|a, b| a.implementation == b.implementation) {
            if self.transactions && !list[0].implementation && list.len() > 1 && list.len() <= MOST {
                let versions = self.transaction(list, &done).await?;
                done.extend(versions);
                continue;
            }
            for write in list {
                if self.leaves(write) {
                    done.push(String::new());
                    continue;
                }
                match self.write(write, &done).await {
                    Ok(version) => done.push(version),
                    Err(failure) => return Err(Broken { purpose: write.purpose, failure, done }),
                }
            }
        }
        Ok(done)
    }

    async fn transaction(&self, writes: &[Write], done: &[String]) -> Result<Vec<String>, Broken> {
        let broken = |at: usize, failure| Broken {
            purpose: writes.get(at).map_or("send the writes", |w| w.purpose),
            failure,
            done: done.to_vec(),
        };
        let mut operations = Vec::with_capacity(writes.len());
        for (at, write) in writes.iter().enumerate() {
            let served = self.api.served(&write.target.api_version, &write.target.kind).await;
            operations.push((write, served.map_err(|failure| broken(at, failure))?));
        }
        let operations = operations.iter().map(|(write, served)| operation(write, served, done)).collect();
        let body = Sent { api_version: GROUP_VERSION, kind: "Transaction", spec: Spec { operations } };
        let body = serde_json::to_vec(&body).map_err(|error| broken(0, Failure::unreadable(&error.to_string())))?;
        let path = format!("{PATH}?fieldManager={FIELD_MANAGER}");
        let sent = self.api.call_bytes(Method::POST, &path, JSON, body).await;
        let answer = sent.map_err(|failure| broken(failed_at(&failure.message), failure))?;
        let answer: Answer =
            serde_json::from_slice(&answer).map_err(|error| broken(0, Failure::unreadable(&error.to_string())))?;
        let mut versions: Vec<String> = answer.status.results.into_iter().map(|done| done.version).collect();
        versions.resize(writes.len(), String::new());
        Ok(versions)
    }

    async fn write(&self, write: &Write, done: &[String]) -> Result<String, Failure> {
        let target = &write.target;
        let api = if write.implementation { &self.provisioner } else { &self.api };
        let served = api.served(&target.api_version, &target.kind).await?;
        let name = if write.verb == Verb::Create { "" } else { &target.name };
        let path = served.path(&target.api_version, &target.namespace, name, target.status);
        let of_template = write.implementation && matches!(write.verb, Verb::Create | Verb::Apply);
        let manager = if of_template { TEMPLATE_MANAGER } else { FIELD_MANAGER };
        let mut path = format!("{path}?fieldManager={manager}");
        if of_template {
            // a field that its kind has not would be dropped, and missed at every look
            path += "&fieldValidation=Strict";
        }
        let expected = expected(write, done);
        let with_preconditions = || {
            let mut body = write.body.clone();
            if !write.uid.is_empty() {
                body["metadata"]["uid"] = json!(write.uid);
            }
            if let Some(version) = expected {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            body.to_string().into_bytes()
        };
        let answer = match write.verb {
            Verb::Create => api.change(Method::POST, &path, JSON, write.body.to_string().into_bytes()).await?,
            Verb::Patch => api.change(Method::PATCH, &path, MERGE, with_preconditions()).await?,
            Verb::Apply => {
                api.change(Method::PATCH, &format!("{path}&force=true"), APPLY, with_preconditions()).await?
            }
            Verb::Delete => {
                let mut options =
                    json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
                if !write.uid.is_empty() {
                    options["preconditions"]["uid"] = json!(write.uid);
                }
                if let Some(version) = expected {
                    options["preconditions"]["resourceVersion"] = json!(version);
                }
                api.call(Method::DELETE, &path, JSON, options.to_string().into_bytes()).await?
            }
        };
        Ok(answer["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
    }
}

/// A Transaction as it is sent.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent<'a> {
    api_version: &'a str,
    kind: &'a str,
    spec: Spec<'a>,
}

#[derive(serde::Serialize)]
struct Spec<'a> {
    operations: Vec<Operation<'a>>,
}

#[derive(Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Operation<'a> {
    verb: &'a str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<&'a Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    field_manager: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    preconditions: Option<Preconditions<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    propagation_policy: &'a str,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

fn operation<'a>(write: &'a Write, served: &'a Served, done: &'a [String]) -> Operation<'a> {
    let target = &write.target;
    let (group, version) = target.api_version.split_once('/').unwrap_or(("", &target.api_version));
    let whole = Operation {
        group,
        version,
        resource: &served.plural,
        subresource: if target.status && served.status { "status" } else { "" },
        namespace: if served.namespaced { &target.namespace } else { "" },
        name: &target.name,
        ..Operation::default()
    };
    // what follows a write of the same list sees that write: its version is the list's own affair
    let preconditions = Some(Preconditions { uid: &write.uid, resource_version: expected(write, done) });
    match write.verb {
        Verb::Create => Operation { verb: "create", object: Some(&write.body), ..whole },
        Verb::Patch => {
            Operation { verb: "patch", patch_type: Some("Merge"), patch: Some(&write.body), preconditions, ..whole }
        }
        Verb::Apply => Operation {
            verb: "patch",
            patch_type: Some("Apply"),
            patch: Some(&write.body),
            field_manager: FIELD_MANAGER,
            force: true,
            preconditions,
            ..whole
        },
        Verb::Delete => Operation { verb: "delete", propagation_policy: "Background", preconditions, ..whole },
    }
}

/// The version an object must have: as it was seen, or as an earlier write left it.
fn expected<'v>(write: &'v Write, done: &'v [String]) -> Option<&'v str> {
    let version = match &write.version {
        Version::Any => None,
        Version::Exactly(version) => Some(version.as_str()),
        Version::After(earlier) => done.get(*earlier).map(String::as_str),
    };
    version.filter(|version| !version.is_empty())
}

/// What is needed of an answer; the rest of it is passed over.
#[derive(serde::Deserialize)]
struct Answer {
    status: Results,
}

#[derive(serde::Deserialize)]
struct Results {
    #[serde(default)]
    results: Vec<Done>,
}

#[derive(serde::Deserialize)]
struct Done {
    #[serde(rename = "resourceVersion", default)]
    version: String,
}

/// The number of the operation that a failed Transaction names.
fn failed_at(message: &str) -> usize {
    message.strip_prefix("operation ").and_then(|m| m.split(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}
