//! The audit log: who did what to what, one JSON line per stage of a request.

mod bodies;
mod file;
mod operations;
mod policy;

use std::path::Path;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub use file::Keep;
pub use operations::{Operation, Operations};
pub use policy::{Level, Policy, PolicyError};

use crate::auth::authz::Decision;
use crate::body::Body;
use crate::impersonation::Acting;
use crate::request::RequestInfo;
use crate::user::User;

/// Lines that wait to be written; beyond it requests wait for the disk.
const WAITING: usize = 4096;
/// The annotation that names what a level promises and the event has not.
const LEFT_OUT: &str = "conductor.io/left-out";

/// Writes what a policy asks for.
pub struct Audit {
    policy: Policy,
    lines: mpsc::Sender<String>,
}

/// One request on its way into the log.
pub struct Record {
    event: Value,
    level: Level,
    omit: Vec<String>,
    omit_managed: bool,
    last: &'static str,
}

impl Audit {
    /// Appends to a file that only its owner may read, and keeps so much of it.
    pub fn open(file: &Path, keep: Keep, policy: Policy) -> std::io::Result<Audit> {
        let mut out = file::Rotated::open(file, keep)?;
        let (lines, mut incoming) = mpsc::channel::<String>(WAITING);
        std::thread::Builder::new().name("audit".into()).spawn(move || {
            while let Some(line) = incoming.blocking_recv() {
                let mut result = out.write(&line);
                while let Ok(line) = incoming.try_recv() {
                    result = result.and(out.write(&line));
                }
                if let Err(error) = result.and_then(|()| out.flush()) {
                    tracing::error!(%error, "the audit log cannot be written");
                }
            }
        })?;
        Ok(Audit { policy, lines })
    }

    /// Begins the record of a request, if it is to have one, and the operations of one that may have some.
    pub fn begin(
        &self,
        real: &Arc<User>,
        acting: &Acting,
        info: &RequestInfo,
        parts: &Parts,
        id: String,
        now: String,
    ) -> (Option<Record>, Option<Operations>) {
        let decision = self.policy.decide(real, info);
        // What a policy says of transactions says nothing of what is in them.
        let several = info.group == crate::transactions::GROUP;
        if decision.level == Level::None && !several {
            return (None, None);
        }
        let event = begun(real, acting, parts, id, now);
        let operations = several.then(|| Operations::of(real.clone(), event.clone()));
        (Record::new(event, decision, info), operations)
    }

    /// The record of a request whose sender is not who they say, if it is to have one: only that it was refused.
    pub fn unauthenticated(&self, info: &RequestInfo, parts: &Parts, id: String, now: String) -> Option<Record> {
        let nobody = Arc::new(User::default());
        let acting = Acting { user: nobody.clone(), constraint: None };
        let mut record = self.begin(&nobody, &acting, info, parts, id, now).0?;
        record.last = "ResponseStarted";
        Some(record)
    }

    /// Writes a stage of a request.
    pub async fn stage(&self, record: &mut Record, stage: &str, now: String) {
        if record.omit.iter().any(|own| own == stage) {
            return;
        }
        record.event["stage"] = stage.into();
        record.event["stageTimestamp"] = now.into();
        let mut line = record.event.to_string();
        line.push('\n');
        // The log is as slow as its disk; losing lines is not an option.
        let _ = self.lines.send(line).await;
    }
}

/// What is the same in all events of a request.
fn begun(real: &Arc<User>, acting: &Acting, parts: &Parts, id: String, now: String) -> Value {
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": id, "stage": "",
        "requestURI": parts.uri.path_and_query().map_or("", |own| own.as_str()),
        "user": real.to_json(), "sourceIPs": [source(parts)],
        "requestReceivedTimestamp": now, "stageTimestamp": now,
    });
    if !Arc::ptr_eq(real, &acting.user) {
        event["impersonatedUser"] = acting.user.to_json();
    }
    if let Some(constraint) = &acting.constraint {
        event["authenticationMetadata"] = json!({"impersonationConstraint": constraint});
    }
    if let Some(agent) = parts.headers.get(http::header::USER_AGENT) {
        event["userAgent"] = String::from_utf8_lossy(agent.as_bytes()).into();
    }
    event
}

fn source(parts: &Parts) -> String {
    parts
        .extensions
        .get::<crate::http::Peer>()
        .map_or_else(|| "127.0.0.1".to_owned(), |peer| peer.address.ip().to_string())
}

impl Record {
    fn new(mut event: Value, decision: policy::Decision, info: &RequestInfo) -> Option<Record> {
        if decision.level == Level::None {
            return None;
        }
        event["level"] = decision.level.as_str().into();
        event["verb"] = info.verb.as_ref().into();
        if info.is_resource {
            let mut object = json!({"resource": info.resource, "apiVersion": info.version});
            for (field, value) in [
                ("namespace", &info.namespace),
                ("name", &info.name),
                ("apiGroup", &info.group),
                ("subresource", &info.subresource),
            ] {
                if !value.is_empty() {
                    object[field] = value.as_str().into();
                }
            }
            event["objectRef"] = object;
        }
        Some(Record {
            event,
            level: decision.level,
            omit: decision.omit,
            omit_managed: decision.omit_managed,
            last: if info.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" },
        })
    }

    /// The id of the request.
    pub fn id(&self) -> &str {
        self.event["auditID"].as_str().unwrap_or_default()
    }

    /// The stage that ends it: the answer to a watch begins long before it ends.
    pub fn last_stage(&self) -> &'static str {
        self.last
    }

    /// The body that was sent.
    pub fn sent(&mut self, headers: &HeaderMap, body: &[u8]) {
        if self.level >= Level::Request && !body.is_empty() {
            self.show("requestObject", bodies::read(headers, body), body.len());
        }
    }

    /// Shows an object, or says that it is not shown.
    fn show(&mut self, field: &str, object: Option<Value>, bytes: usize) {
        match object {
            Some(object) => self.event[field] = self.shown(object),
            None => {
                let said =
                    self.event["annotations"][LEFT_OUT].as_str().map(|own| format!("{own}; ")).unwrap_or_default();
                let why = if bytes > bodies::MOST { "too large" } else { "cannot be read" };
                self.annotate([(LEFT_OUT.to_owned(), format!("{said}{field}: {bytes} bytes, {why}"))]);
            }
        }
    }

    /// Whether its sender may send it.
    pub fn decided(&mut self, decision: &Decision) {
        self.annotate(said_of(decision));
    }

    /// What admission says about it.
    pub fn annotate(&mut self, annotations: impl IntoIterator<Item = (String, String)>) {
        for (key, value) in annotations {
            self.event["annotations"][key] = value.into();
        }
    }

    /// How it ended.
    pub fn answered(&mut self, response: &mut Response<Body>) {
        self.event["responseStatus"] = status_of(response);
        // what streams is a watch, or of no resource
        let Some(len) = response.body().len().filter(|len| self.level == Level::RequestResponse && *len > 0) else {
            return;
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len <= bodies::MOST {
            response.body_mut().make_whole();
        }
        self.show("responseObject", body_of(response), len);
    }

    fn shown(&self, mut object: Value) -> Value {
        if self.omit_managed {
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.remove("managedFields");
            }
        }
        object
    }
}

/// Whether somebody may do something, as annotations.
fn said_of(decision: &Decision) -> [(String, String); 2] {
    let (decision, reason) = match decision {
        Decision::Allow(reason) => ("allow", reason.as_str()),
        Decision::NoOpinion(reason) => ("forbid", reason.as_str()),
    };
    [("decision", decision), ("reason", reason)]
        .map(|(key, value)| (format!("authorization.k8s.io/{key}"), value.into()))
}

fn body_of(response: &Response<Body>) -> Option<Value> {
    bodies::read(response.headers(), &response.body().bytes()?)
}

/// `responseStatus`: the code, and why if it is a refusal.
fn status_of(response: &Response<Body>) -> Value {
    let code = response.status().as_u16();
    let mut said = json!({"metadata": {}, "code": code});
    let refusal = if code >= 400 { body_of(response).filter(|own| own["kind"] == "Status") } else { None };
    for field in ["status", "reason", "message"] {
        if let Some(value) = refusal.as_ref().and_then(|own| own.get(field)) {
            said[field] = value.clone();
        }
    }
    said
}
