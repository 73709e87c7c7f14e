//! The audit log: who did what to what, one JSON line per stage of a request.

mod bodies;
mod file;
mod operations;
mod policy;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use bodies::Sent;
pub use file::Keep;
pub use operations::{Operation, Operations};
pub use policy::{Level, Policy, PolicyError};

use crate::auth::authz::Decision;
use crate::body::Body;
use crate::heavy::{LARGE, aside};
use crate::impersonation::Acting;
use crate::request::RequestInfo;
use crate::server::Inner;
use crate::user::User;

/// Bytes of lines that wait to be written; beyond it requests wait for the disk.
const WAITING: usize = 32 * 1024 * 1024;
/// What a line takes besides its text.
const LINE: usize = 64;
/// How much is said of texts that anybody may send, and what comes after what is cut off; both are Kubernetes'.
const MOST_TEXT: usize = 1024;
const CUT: &str = "...TRUNCATED";
/// The stages of an answer.
const STARTED: &str = "ResponseStarted";
const COMPLETE: &str = "ResponseComplete";
/// The annotation that names what a level promises and the event has not.
const LEFT_OUT: &str = "conductor.io/left-out";

/// Writes what a policy asks for.
pub struct Audit {
    policy: Policy,
    lines: mpsc::UnboundedSender<(String, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// One request on its way into the log.
pub struct Record {
    event: Value,
    level: Level,
    omit: Vec<String>,
    omit_managed: bool,
    last: &'static str,
    /// Whether its answer begins long before it ends: it has a stage for both.
    is_long: bool,
    sent: Option<Sent>,
    /// Whether its sender has not said who they are: what anybody may send is not said at length.
    nobodys: bool,
}

impl Audit {
    /// Appends to a file that only its owner may read, and keeps so much of it.
    pub fn open(file: &Path, keep: Keep, policy: Policy) -> std::io::Result<Audit> {
        let mut out = file::Rotated::open(file, keep)?;
        let (lines, mut incoming) = mpsc::unbounded_channel::<(String, OwnedSemaphorePermit)>();
        std::thread::Builder::new().name("audit".into()).spawn(move || {
            while let Some((line, _room)) = incoming.blocking_recv() {
                let mut result = out.write(&line);
                while let Ok((line, _room)) = incoming.try_recv() {
                    result = result.and(out.write(&line));
                }
                if let Err(error) = result.and_then(|()| out.flush()) {
                    tracing::error!(%error, "the audit log cannot be written");
                }
            }
        })?;
        Ok(Audit { policy, lines, room: Arc::new(Semaphore::new(WAITING)) })
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
        let mut record = Record::new(event, decision, info);
        if let Some(record) = &mut record {
            record.nobodys = is_nobody(real);
        }
        (record, operations)
    }

    /// The record of a request whose sender is not who they say, if it is to have one: only that it was refused.
    pub fn unauthenticated(&self, info: &RequestInfo, parts: &Parts, id: String, now: String) -> Option<Record> {
        let nobody = Arc::new(User::default());
        let acting = Acting { user: nobody.clone(), constraint: None };
        let mut record = self.begin(&nobody, &acting, info, parts, id, now).0?;
        (record.last, record.is_long) = (STARTED, false);
        Some(record)
    }

    /// Writes a stage of a request before its last.
    pub async fn stage(&self, record: &mut Record, stage: &str, now: String) {
        if record.writes(stage) {
            self.write(record.line(stage, now)).await;
        }
    }

    /// Writes the last stage of a request: what was sent, and how it ended.
    pub async fn last_stage(
        &self,
        server: &Arc<Inner>,
        user: Option<&User>,
        mut record: Record,
        response: &mut Response<Body>,
        stage: &str,
    ) {
        if record.writes(stage) || record.is_long {
            let (now, weight) = (server.now_precisely(), record.weight(response));
            let line = || {
                record.answered(response);
                record.read_sent();
                record.writes(stage).then(|| record.line(stage, now))
            };
            self.put(server, user, weight, line).await;
        }
        if record.is_long && stage == record.last {
            match response.body().len() {
                None => {
                    response.body_mut().kept = Some(Box::new(Long { server: server.clone(), record: Some(record) }))
                }
                Some(_) => self.stage(&mut record, COMPLETE, server.now_precisely()).await,
            }
        }
    }

    /// Writes a line that is made of so many bytes: if they are many, when it is its turn, and where it keeps nobody waiting.
    async fn put(&self, server: &Inner, user: Option<&User>, weight: usize, line: impl FnOnce() -> Option<String>) {
        let turn = match user.filter(|_| weight > LARGE) {
            Some(user) => server.heavy_turn_at_last(user).await,
            None => None,
        };
        let line = if weight > LARGE { aside(line) } else { line() };
        if let Some(line) = line {
            self.write(line).await;
        }
        drop(turn);
    }

    async fn write(&self, line: String) {
        // The log is as slow as its disk; losing lines is not an option.
        let room = u32::try_from((line.len() + LINE).min(WAITING)).unwrap_or(u32::MAX);
        if let Ok(room) = self.room.clone().acquire_many_owned(room).await {
            let _ = self.lines.send((line, room));
        }
    }
}

/// An answer without an end in sight; that it has ended is logged when it has.
struct Long {
    server: Arc<Inner>,
    record: Option<Record>,
}

impl Drop for Long {
    fn drop(&mut self) {
        let (Some(mut record), Ok(runtime)) = (self.record.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let server = self.server.clone();
        runtime.spawn(async move {
            if let Some(audit) = &server.audit {
                audit.stage(&mut record, COMPLETE, server.now_precisely()).await;
            }
        });
    }
}

/// What is the same in all events of a request.
fn begun(real: &Arc<User>, acting: &Acting, parts: &Parts, id: String, now: String) -> Value {
    let uri = parts.uri.path_and_query().map_or("", |own| own.as_str());
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": id, "stage": "",
        "requestURI": if is_nobody(real) { cut(uri.to_owned()) } else { uri.to_owned() },
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
        event["userAgent"] = cut(String::from_utf8_lossy(agent.as_bytes()).into_owned()).into();
    }
    event
}

fn is_nobody(user: &User) -> bool {
    user.name.is_empty() || user.is_anonymous()
}

/// A text, or the beginning of one that is long.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MOST_TEXT) {
        text.truncate(end);
        text.push_str(CUT);
    }
    text
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
            let mut object = json!({"resource": cut(info.resource.clone()), "apiVersion": cut(info.version.clone())});
            for (field, value) in [
                ("namespace", &info.namespace),
                ("name", &info.name),
                ("apiGroup", &info.group),
                ("subresource", &info.subresource),
            ] {
                if !value.is_empty() {
                    object[field] = cut(value.clone()).into();
                }
            }
            event["objectRef"] = object;
        }
        Some(Record {
            event,
            level: decision.level,
            omit: decision.omit,
            omit_managed: decision.omit_managed,
            last: if info.verb == "watch" { STARTED } else { COMPLETE },
            is_long: info.verb == "watch",
            sent: None,
            nobodys: false,
        })
    }

    /// The id of the request.
    pub fn id(&self) -> &str {
        self.event["auditID"].as_str().unwrap_or_default()
    }

    /// The stage that it is in when there is an answer: that to a watch begins long before it ends.
    pub fn last_stage(&self) -> &'static str {
        self.last
    }

    fn writes(&self, stage: &str) -> bool {
        !self.omit.iter().any(|own| own == stage)
    }

    fn line(&mut self, stage: &str, now: String) -> String {
        self.event["stage"] = stage.into();
        self.event["stageTimestamp"] = now.into();
        let mut line = self.event.to_string();
        line.push('\n');
        line
    }

    /// The body that was sent. It is read when the last stage is written.
    pub fn sent(&mut self, info: &RequestInfo, headers: &HeaderMap, body: &Bytes) {
        if self.level >= Level::Request && !body.is_empty() {
            self.sent = Some(Sent::new(info, headers, body.clone()));
        }
    }

    fn read_sent(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.show("requestObject", sent.read(), sent.len());
        }
    }

    /// How many bytes have to be read for the last stage.
    fn weight(&self, response: &Response<Body>) -> usize {
        let shown = self.level == Level::RequestResponse || response.status().as_u16() >= 400;
        self.sent.as_ref().map_or(0, Sent::len) + if shown { bodies::weight(response) } else { 0 }
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
    fn answered(&mut self, response: &mut Response<Body>) {
        self.event["responseStatus"] = status_of(response);
        if let Some(Value::String(said)) = self.event["responseStatus"].get_mut("message").filter(|_| self.nobodys) {
            *said = cut(std::mem::take(said));
        }
        // a refusal's status says it all, and that shortly
        if self.nobodys && response.status().as_u16() >= 400 {
            return;
        }
        // what streams is a watch, or of no resource
        let Some(len) = response.body().len().filter(|len| self.level == Level::RequestResponse && *len > 0) else {
            return;
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len <= bodies::MOST {
            response.body_mut().make_whole();
        }
        self.show("responseObject", bodies::answered(response), len);
    }

    fn shown(&self, mut object: Value) -> Value {
        if self.omit_managed {
            // a patch may be a list, and somebody may send anything
            let omit = |object: &mut Value| {
                if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    meta.remove("managedFields");
                }
            };
            omit(&mut object);
            object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(omit);
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

/// `responseStatus`: the code, and why if it is a refusal.
fn status_of(response: &Response<Body>) -> Value {
    let code = response.status().as_u16();
    let mut said = json!({"metadata": {}, "code": code});
    let refusal = if code >= 400 { bodies::answered(response).filter(|own| own["kind"] == "Status") } else { None };
    for field in ["status", "reason", "message"] {
        if let Some(value) = refusal.as_ref().and_then(|own| own.get(field)) {
            said[field] = value.clone();
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn info() -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: "create".into(),
            version: "v1".into(),
            resource: "configmaps".into(),
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn so_many_bytes_wait_for_the_disk() {
        let (lines, mut waiting) = mpsc::unbounded_channel();
        let audit = Audit { policy: Policy::at(Level::Request), lines, room: Arc::new(Semaphore::new(WAITING)) };
        for _ in 0..WAITING / (1024 * 1024) {
            assert!(audit.write("x".repeat(1024 * 1024 - LINE)).now_or_never().is_some());
        }
        let mut next = Box::pin(audit.write("x".into()));
        assert!(next.as_mut().now_or_never().is_none());
        drop(waiting.recv().await);
        assert!(next.now_or_never().is_some());
        // a line that is longer than all of that waits until it is alone
        while waiting.try_recv().is_ok() {}
        assert!(audit.write("x".repeat(2 * WAITING)).now_or_never().is_some());
    }

    #[test]
    fn what_is_sent_waits_as_it_was_sent() {
        let decision = Policy::at(Level::Request).decide(&User::default(), &info());
        let mut record = Record::new(json!({}), decision, &info()).unwrap();
        record.sent(&info(), &HeaderMap::new(), &Bytes::from_static(br#"{"data":{"k":"v"}}"#));
        assert!(record.event.get("requestObject").is_none());
        record.read_sent();
        assert_eq!(record.event["requestObject"], json!({"data": {"k": "v"}}));
    }
}
