//! A write is planned first and committed then: all verbs, and transactions of several of them, share this.
//!
//! A plan is made against a [`View`] and names what it saw; if that has changed by the time it is committed, the plan is made
//! anew. Nothing is locked while it is made.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::status::Status;
use serde_json::Value;
use store::{CommitError, Entry, Expect, Op, Store};

use crate::resource::Resource;

/// What a plan sees: the store, and the writes planned before it in the same transaction.
pub struct View<'a> {
    store: &'a Store,
    pending: HashMap<(Arc<str>, String), Pending>,
}

struct Pending {
    object: Option<Value>,
    /// What the first write of the transaction to this key expects.
    base: Option<Arc<Entry>>,
}

/// An object as a plan sees it.
pub struct Current {
    /// The object.
    pub object: Value,
    /// The stored entry it comes from; none if it is only planned so far.
    pub entry: Option<Arc<Entry>>,
    /// What the write that replaces it must expect.
    pub expect: Expect,
}

impl<'a> View<'a> {
    /// The store as it is.
    pub fn new(store: &'a Store) -> View<'a> {
        View { store, pending: HashMap::new() }
    }

    /// The object under a key.
    pub fn get(&self, resource: &Resource, key: &str) -> Result<Option<Current>, Status> {
        if !self.pending.is_empty() {
            if let Some(pending) = self.pending.get(&(resource.table.clone(), key.to_owned())) {
                let expect = pending.base.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
                return Ok(pending.object.clone().map(|object| Current { object, entry: None, expect }));
            }
        }
        match self.store.get(&resource.table, key) {
            None => Ok(None),
            Some(entry) => {
                let object = resource.read(&entry)?;
                let expect = Expect::Revision(entry.revision);
                Ok(Some(Current { object, entry: Some(entry), expect }))
            }
        }
    }

    /// The stored entry under a key, for checks.
    pub fn entry(&self, table: &str, key: &str) -> Option<Arc<Entry>> {
        self.store.get(table, key)
    }
}

/// Reads what the server itself has stored.
pub fn parse_stored(entry: &Entry) -> Result<Value, Status> {
    serde_json::from_slice(&entry.value)
        .map_err(|error| Status::internal(format!("the stored object {} cannot be read: {error}", entry.key)))
}

/// What a write will do and answer.
pub struct Plan {
    /// What to commit; empty if there is nothing to change.
    pub ops: Vec<Op>,
    /// Which operation is the object in question.
    pub main: usize,
    /// What to answer.
    pub answer: Answer,
    /// Whether a plan that was overtaken may be made anew.
    pub retry: bool,
}

/// What a write answers.
pub enum Answer {
    /// The object as it was stored.
    Stored {
        /// 200 or 201.
        code: u16,
    },
    /// The object as it would have been stored, or is already.
    Object {
        /// 200 or 201.
        code: u16,
        /// The object.
        object: Value,
    },
    /// The stored object, unchanged.
    Unchanged(Arc<Entry>),
    /// No object, a status.
    Status(Status),
}

impl Plan {
    /// Nothing to do.
    pub fn nothing(answer: Answer) -> Plan {
        Plan { ops: Vec::new(), main: 0, answer, retry: false }
    }
}

/// Why a commit did not happen, for the client.
pub fn commit_status(error: CommitError) -> Status {
    match error {
        CommitError::TooLarge { what, size, limit } => {
            Status::too_large(format!("{what} is too large: it has {size} bytes, the limit is {limit}"))
        }
        CommitError::Busy => {
            let mut status =
                Status::too_many_requests("too many writes are waiting for the disk, please try again later", 1);
            status.retry_after = Some(1);
            status
        }
        CommitError::Closed => Status::unavailable("the server is shutting down"),
        error @ CommitError::Io { .. } => {
            tracing::error!(%error, "a write failed");
            Status::internal(format!(
                "{error}; nothing was stored: free or repair the disk of the data directory and try again"
            ))
        }
        error => Status::internal(error),
    }
}
