//! What is noted of a request on its way, so that it is logged however it ends.

use std::sync::Arc;

use http::Response;
use machinery::status::Status;

use crate::audit::{Operations, Record};
use crate::body::Body;
use crate::context::Context;
use crate::flow::Class;
use crate::gate::Pass;
use crate::heavy;
use crate::server::Server;
use crate::user::User;

/// The code of a request whose client did not wait for its answer; nobody sees it but in the log.
const GONE: u16 = 499;

/// What is found out about a request on its way.
pub struct Noted {
    server: Server,
    /// What the audit log is told of it.
    pub record: Option<Record>,
    /// And of what it is made of, if it is a transaction.
    pub operations: Option<Operations>,
    /// Whose turn it is by.
    pub class: Option<Class>,
    /// What who is answered is told because of how they said who they are.
    pub warning: Option<&'static str>,
    /// Who is answered.
    pub user: Option<Arc<User>>,
    /// Kept until it is logged: the log has the body, and whoever floods it waits for it.
    pub place: Option<(heavy::Bytes, Option<Pass>)>,
    /// Whether its client is known to have gone away.
    gone: bool,
}

impl Noted {
    /// Nothing yet.
    pub fn new(server: &Server) -> Noted {
        let server = server.clone();
        Noted {
            server,
            record: None,
            operations: None,
            class: None,
            warning: None,
            user: None,
            place: None,
            gone: false,
        }
    }

    /// Tells the audit log something beside.
    pub fn annotate(&mut self, annotations: impl IntoIterator<Item = (String, String)>) {
        if let Some(record) = &mut self.record {
            record.annotate(annotations);
        }
    }

    /// Whether the audit log is to be told how it ends.
    pub fn is_logged(&self) -> bool {
        self.record.is_some() || self.operations.is_some()
    }

    /// Writes how the request ended into the audit log.
    pub async fn log(&mut self, response: &mut Response<Body>, stage: Option<&'static str>) {
        let Some(audit) = &self.server.0.audit else { return };
        let place = self.place.take();
        let (record, operations) = (self.record.take(), self.operations.take());
        if let Some(record) = record {
            let stage = stage.unwrap_or_else(|| record.last_stage());
            audit.last_stage(&self.server.0, self.user.as_deref(), record, response, stage).await;
        }
        if let Some(mut operations) = operations {
            operations.answered(response);
            // Boxed: few requests have any, and all would make room for it.
            Box::pin(audit.operations(&self.server.0, operations)).await;
        }
        drop(place);
    }
}

/// A client that went away without an answer may have done what it wanted: the log has it all the same.
impl Drop for Noted {
    fn drop(&mut self) {
        // A runtime that stops drops what it is given: that is the end of it.
        if self.gone || !self.is_logged() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let nothing = Noted::new(&self.server);
        let mut left = std::mem::replace(self, nothing);
        left.gone = true;
        runtime.spawn(async move {
            let message = "the client went away before its answer: what it asked for may have been done";
            let mut response = left.server.refuse(&Status::new(GONE, "", message));
            left.log(&mut response, None).await;
        });
    }
}

/// What admission and transactions tell the log, however the request ends.
pub struct Telling<'a> {
    /// The request.
    pub cx: Context,
    /// Where it is noted.
    pub noted: &'a mut Noted,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if let Some(record) = &mut self.noted.record {
            record.annotate(std::mem::take(&mut *self.cx.annotations.lock()));
        }
        if let Some(operations) = &mut self.noted.operations {
            operations.each = std::mem::take(&mut *self.cx.operations.lock());
        }
    }
}
