//! A write is planned first and committed then: all verbs, and transactions of several of them, share this.
//!
//! A plan is made against a [`View`] and names what it saw; if that has changed by the time it is committed, the plan is made
//! anew. Nothing is locked while it is made.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;
use store::{CommitError, Entry, Expect, Op, Store};

use crate::resource::Resource;

/// What a plan sees: the store, and the writes planned before it in the same transaction.
pub struct View<'a> {
    store: &'a Store,
    pending: HashMap<(Arc<str>, String), Pending>,
    /// What was read last, for who looks at it again.
    last: Mutex<Option<(Arc<Entry>, Value)>>,
    /// Whether what is planned is written down when everything is.
    writes_later: bool,
}

struct Pending {
    object: Option<Arc<Value>>,
    resource: Arc<Resource>,
    /// What the first write of the transaction to this key expects.
    base: Option<Arc<Entry>>,
}

/// An object as a plan sees it.
pub struct Current {
    /// The object.
    pub object: Arc<Value>,
    /// The stored entry it comes from; none if it is only planned so far.
    pub entry: Option<Arc<Entry>>,
    /// What the write that replaces it must expect.
    pub expect: Expect,
}

impl<'a> View<'a> {
    /// The store as it is.
    pub fn new(store: &'a Store) -> View<'a> {
        View { store, pending: HashMap::new(), last: Mutex::default(), writes_later: false }
    }

    /// The same for several writes: what each makes of an object is written down once all of them are planned.
    pub fn of_several(store: &'a Store) -> View<'a> {
        View { writes_later: true, ..View::new(store) }
    }

    /// The stored form of what a plan makes of an object: empty if [`View::write_down`] is to make it.
    pub async fn stored_form(
        &self,
        resource: &Resource,
        object: &Value,
        subresource: &str,
        entry: Option<&Entry>,
    ) -> Result<store::Value, Status> {
        if self.writes_later && resource.stores_as_shown() {
            return Ok(store::Value::default());
        }
        resource.to_replace(object, subresource, entry).await
    }

    /// Writes down what a step puts, if that was left for later.
    pub fn write_down(&self, op: &mut Op) {
        let Op::Put { table, key, value, .. } = op else { return };
        if value.bytes.is_empty() {
            if let Some(Pending { object: Some(object), resource, .. }) =
                self.pending.get(&(table.clone(), key.to_string()))
            {
                *value = resource.encode(object);
            }
        }
    }

    /// The object under a key, as its resource shows it.
    pub async fn get(&self, resource: &Resource, key: &str) -> Result<Option<Current>, Status> {
        let Some(mut current) = self.stored(resource, key)? else { return Ok(None) };
        current.object = resource.open(current.object, current.entry.as_deref()).await?;
        Ok(Some(current))
    }

    /// The object under a key, as it is stored.
    pub fn stored(&self, resource: &Resource, key: &str) -> Result<Option<Current>, Status> {
        if !self.pending.is_empty() {
            if let Some(pending) = self.pending.get(&(resource.table.clone(), key.to_owned())) {
                let expect = pending.base.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
                return Ok(pending.object.clone().map(|object| Current { object, entry: None, expect }));
            }
        }
        match self.store.get(&resource.table, key) {
            None => Ok(None),
            Some(entry) => {
                let known = self.last.lock().take_if(|(last, _)| Arc::ptr_eq(last, &entry));
                let object = known.map_or_else(|| parse_stored(&entry), |(_, object)| Ok(object))?;
                let expect = Expect::Revision(entry.revision);
                Ok(Some(Current { object: Arc::new(object), entry: Some(entry), expect }))
            }
        }
    }

    /// Which object is under a key.
    pub fn identity(&self, resource: &Resource, key: &str) -> Result<Option<Identity>, Status> {
        if !self.pending.is_empty() {
            if let Some(pending) = self.pending.get(&(resource.table.clone(), key.to_owned())) {
                let expect = pending.base.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
                let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().into();
                return Ok(pending.object.as_ref().map(|object| Identity {
                    uid: text(object, "uid"),
                    version: text(object, "resourceVersion"),
                    expect,
                }));
            }
        }
        let Some(entry) = self.store.get(&resource.table, key) else { return Ok(None) };
        // who asks which one it is goes on to change it
        let object = parse_stored(&entry)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let expect = Expect::Revision(entry.revision);
        let identity = Identity { uid: text("uid"), version: text("resourceVersion"), expect };
        *self.last.lock() = Some((entry, object));
        Ok(Some(identity))
    }

    /// Takes a step of a transaction into the view and into its list of steps; `object` is what it writes, if that is at hand.
    /// Several writes to one object become one step; says whether the list got longer.
    pub fn absorb(&mut self, resource: &Arc<Resource>, op: Op, object: Option<Value>, ops: &mut Vec<Op>) -> bool {
        let Some((table, key)) = key_of(&op) else { return false };
        let id = (table.clone(), key.to_string());
        let touched = self.pending.contains_key(&id);
        let base = match self.pending.get(&id) {
            Some(pending) => pending.base.clone(),
            None => self.store.get(&table, &key),
        };
        match op {
            // What the transaction itself has written needs no check.
            Op::Check { .. } if touched => false,
            Op::Check { .. } => {
                ops.push(op);
                true
            }
            Op::Put { value, expect, .. } => {
                let object = pending_object(table == resource.table, object, &value, base.as_deref()).map(Arc::new);
                self.pending.insert(id, Pending { object, resource: resource.clone(), base });
                match own_step(ops, &table, &key) {
                    Some(Op::Put { value: own, .. }) if touched => {
                        *own = value;
                        false
                    }
                    _ => {
                        let expect = if touched { Expect::Any } else { expect };
                        ops.push(Op::Put { table, key, value, expect });
                        true
                    }
                }
            }
            Op::Delete { expect, final_value, .. } => {
                if let Some(earlier) = own_step(ops, &table, &key) {
                    self.write_down(earlier);
                }
                self.pending.insert(id, Pending { object: None, resource: resource.clone(), base });
                let expect = if touched { Expect::Any } else { expect };
                ops.push(Op::Delete { table, key, expect, final_value });
                true
            }
        }
    }

    /// Whether the transaction itself has made what is under a key.
    pub fn is_pending(&self, table: &str, key: &str) -> bool {
        !self.pending.is_empty()
            && self.pending.get(&(table.into(), key.to_owned())).is_some_and(|own| own.object.is_some())
    }

    /// Whether there is something under a key, after what the transaction has done so far.
    pub fn is_taken(&self, table: &str, key: &str) -> bool {
        if !self.pending.is_empty() {
            if let Some(pending) = self.pending.get(&(table.into(), key.to_owned())) {
                return pending.object.is_some();
            }
        }
        self.store.get(table, key).is_some()
    }

    /// What the transaction has planned for a key: an object, that there be none, or nothing yet.
    pub fn planned(&self, table: &str, key: &str) -> Option<Option<&Value>> {
        if self.pending.is_empty() {
            return None;
        }
        self.pending.get(&(table.into(), key.to_owned())).map(|own| own.object.as_deref())
    }

    /// Whether the transaction writes to a table.
    pub fn touches(&self, table: &str) -> bool {
        self.pending.keys().any(|(own, _)| &**own == table)
    }

    /// The object under a key of any table, as it is stored or planned.
    pub fn object(&self, table: &str, key: &str) -> Option<Value> {
        match self.planned(table, key) {
            Some(planned) => planned.cloned(),
            None => self.store.get(table, key).and_then(|entry| parse_stored(&entry).ok()),
        }
    }

    /// The keys of a table below a prefix, in order, as they are stored or planned.
    pub fn keys(&self, table: &str, prefix: &str) -> BTreeSet<String> {
        let list = self.store.list(table, store::KeyRange::prefix(prefix), None);
        let entries = list.map(|list| list.entries).unwrap_or_default();
        let mut keys: BTreeSet<String> = entries.iter().map(|entry| entry.key.to_string()).collect();
        for ((own, key), pending) in &self.pending {
            if &**own == table && key.starts_with(prefix) {
                match pending.object {
                    Some(_) => keys.insert(key.clone()),
                    None => keys.remove(key),
                };
            }
        }
        keys
    }

    /// The objects of a table below a prefix, as they are stored or planned.
    pub fn list(&self, table: &str, prefix: &str) -> Vec<Value> {
        self.keys(table, prefix).iter().filter_map(|key| self.object(table, key)).collect()
    }

    /// The stored entry under a key, for checks.
    pub fn entry(&self, table: &str, key: &str) -> Option<Arc<Entry>> {
        self.store.get(table, key)
    }
}

/// The last of the steps that is about a key.
fn own_step<'o>(ops: &'o mut [Op], table: &Arc<str>, key: &Arc<str>) -> Option<&'o mut Op> {
    ops.iter_mut().rev().find(|own| key_of(own).is_some_and(|(t, k)| t == *table && k == *key))
}

/// Which key a step is about.
pub fn key_of(op: &Op) -> Option<(Arc<str>, Arc<str>)> {
    match op {
        Op::Put { table, key, .. } | Op::Delete { table, key, .. } | Op::Check { table, key, .. } => {
            Some((table.clone(), key.clone()))
        }
    }
}

/// A written value as the operations after it find it: with the version it replaces.
fn pending_object(main: bool, object: Option<Value>, value: &store::Value, base: Option<&Entry>) -> Option<Value> {
    let read = || serde_json::from_slice(&value.bytes).ok();
    let mut object = match object.or_else(read) {
        Some(object @ Value::Object(_)) => object,
        // What other tables hold need not be objects.
        _ if !main => return Some(Value::Null),
        _ => return None,
    };
    let meta = crate::write::meta_mut(&mut object);
    // "0" is the version of what has none yet: it is never a condition.
    let version = base.map_or(0, |entry| entry.revision);
    meta.insert("resourceVersion".into(), version.to_string().into());
    Some(object)
}

/// Which object it is, and in which version.
pub struct Identity {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// What the write that replaces it must expect.
    pub expect: Expect,
}

fn unreadable(entry: &Entry, error: &serde_json::Error) -> Status {
    Status::internal(format!("the stored object {} cannot be read: {error}", entry.key))
}

/// Reads what the server itself has stored.
pub fn parse_stored(entry: &Entry) -> Result<Value, Status> {
    serde_json::from_slice(&entry.value).map_err(|error| unreadable(entry, &error))
}

/// What a write will do and answer.
pub struct Plan {
    /// What to commit; empty if there is nothing to change.
    pub ops: Vec<Op>,
    /// Which operation is the object in question.
    pub main: usize,
    /// What that operation writes; none if it removes it.
    pub object: Option<Value>,
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
        Plan { ops: Vec::new(), main: 0, object: None, answer, retry: false }
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
                "{error}; nothing was stored: free or repair the disk of the data directory and try again (deleting objects does not help: that is written, too)"
            ))
        }
        error => Status::internal(error),
    }
}
