//! The operations of a transaction in the log: each as if it were sent alone, by what the policy says of it, not of transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use machinery::json::Envelope;
use serde_json::Value;
use store::Entry;

use super::{Audit, Level, Record, bodies, said_of, status_of};
use crate::auth::authz::Decision;
use crate::body::Body;
use crate::request::RequestInfo;
use crate::resource::Resource;
use crate::server::Inner;
use crate::user::User;

/// What a request was made of, on its way into the log.
pub struct Operations {
    user: Arc<User>,
    /// What the events of all of them say. How the whole ended is how each of them did.
    event: Value,
    /// Each of them.
    pub each: Vec<Operation>,
}

/// One operation.
pub struct Operation {
    info: RequestInfo,
    /// The object, the patch or the options of a deletion.
    sent: Bytes,
    /// What it wrote, and how that is read.
    pub written: Option<(Arc<Resource>, Arc<Entry>)>,
    /// What authorization and admission said of it.
    pub annotations: BTreeMap<String, String>,
}

impl Operation {
    /// Before it is known whether anything comes of it.
    pub fn new(info: RequestInfo, sent: Bytes) -> Operation {
        Operation { info, sent, written: None, annotations: BTreeMap::new() }
    }

    /// Whether its sender may send it.
    pub fn decided(&mut self, decision: &Decision) {
        self.annotations.extend(said_of(decision));
    }

    /// The name of a new object: it is in the object, or was generated.
    fn new_name(&self) -> Option<String> {
        if self.info.verb != "create" {
            return None;
        }
        if let Some((_, entry)) = &self.written {
            return entry.key.rsplit('/').next().map(str::to_owned);
        }
        Envelope::scan(&self.sent).ok().map(|own| own.metadata.name.to_string()).filter(|name| !name.is_empty())
    }

    /// What it wrote, in the version that it was sent in.
    async fn shown(&self) -> Option<(Arc<Resource>, Arc<Entry>)> {
        let (resource, entry) = self.written.as_ref().filter(|(_, entry)| entry.value.len() <= bodies::MOST)?;
        Some((resource.clone(), resource.show_one(entry.clone()).await.ok()?))
    }
}

impl Operations {
    pub(super) fn of(user: Arc<User>, event: Value) -> Operations {
        Operations { user, event, each: Vec::new() }
    }

    /// How the whole ended.
    pub fn answered(&mut self, response: &Response<Body>) {
        self.event["responseStatus"] = status_of(response);
    }
}

impl Audit {
    /// Writes what became of the operations.
    pub async fn operations(&self, server: &Inner, all: Operations) {
        let now = server.now_precisely();
        for operation in all.each {
            let decision = self.policy.decide(&all.user, &operation.info);
            let Some(mut record) = Record::new(all.event.clone(), decision, &operation.info) else { continue };
            if !record.writes(record.last) {
                continue;
            }
            if let Some(name) = operation.new_name() {
                record.event["objectRef"]["name"] = name.into();
            }
            record.sent(&operation.info, &HeaderMap::new(), &operation.sent);
            let written = if record.level == Level::RequestResponse { operation.shown().await } else { None };
            let len = operation.written.as_ref().map_or(0, |(_, entry)| entry.value.len());
            let weight = operation.sent.len() + written.as_ref().map_or(0, |_| len);
            let now = now.clone();
            self.put(server, Some(&all.user), weight, move || {
                record.read_sent();
                if record.level == Level::RequestResponse && len > 0 {
                    let object = written.and_then(|(resource, entry)| resource.read(&entry).ok());
                    record.show("responseObject", object, len);
                }
                record.annotate(operation.annotations);
                Some(record.line(record.last, now))
            })
            .await;
        }
    }
}
