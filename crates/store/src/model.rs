//! The nouns: entries, transactions, events.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// A place where a layer above keeps something it derived from the bytes (parsed labels, say), once for all readers.
///
/// The store never looks into it and does not count its memory.
#[derive(Default)]
pub struct Memo(OnceLock<Box<dyn Any + Send + Sync>>);

impl Memo {
    /// The memo as a `T`, made by `make` if nobody has made it yet; `None` if somebody else put another type there.
    pub fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }

    /// The memo if it is there and a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get().and_then(|memo| memo.downcast_ref())
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Memo(set)" } else { "Memo(unset)" })
    }
}

/// One version of one key.
#[derive(Debug)]
pub struct Entry {
    /// The key within its table.
    pub key: Arc<str>,
    /// The bytes, with the revision spliced in if the value had a hole for it.
    pub value: Bytes,
    /// The revision of the put that created the key.
    pub created: u64,
    /// The revision of this version.
    pub revision: u64,
    /// Derived data of the layer above.
    pub memo: Memo,
}

/// Bytes to store, with an optional hole for the revision they get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The bytes without the revision.
    pub bytes: Vec<u8>,
    /// Where the decimal revision is inserted on commit; at most `bytes.len()`.
    pub revision_at: Option<usize>,
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value { bytes, revision_at: None }
    }
}

impl Value {
    /// The bytes with `revision` in the hole.
    pub(crate) fn fill(self, revision: u64) -> Bytes {
        match self.revision_at {
            None => Bytes::from(self.bytes),
            Some(at) => {
                let digits = revision.to_string();
                let mut filled = Vec::with_capacity(self.bytes.len() + digits.len());
                filled.extend_from_slice(&self.bytes[..at]);
                filled.extend_from_slice(digits.as_bytes());
                filled.extend_from_slice(&self.bytes[at..]);
                Bytes::from(filled)
            }
        }
    }
}

/// What must hold of a key for an operation to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// The key is not there.
    Absent,
    /// The key is there.
    Exists,
    /// The key is there at exactly this revision.
    Revision(u64),
}

impl Expect {
    /// Whether `current` meets the expectation.
    pub fn holds(self, current: Option<&Entry>) -> bool {
        match self {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Exists => current.is_some(),
            Expect::Revision(revision) => current.is_some_and(|entry| entry.revision == revision),
        }
    }
}

/// One step of a transaction. Steps run in order; each sees what the ones before it did.
#[derive(Clone, Debug)]
pub enum Op {
    /// Create or replace a key.
    Put {
        /// The table.
        table: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The new bytes.
        value: Value,
        /// What must hold before.
        expect: Expect,
    },
    /// Remove a key. A key that is not there fails the precondition, whatever is expected.
    Delete {
        /// The table.
        table: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// What must hold before.
        expect: Expect,
        /// What the delete event shows; the previous bytes if not given.
        final_value: Option<Value>,
    },
    /// Change nothing, but fail the transaction unless the expectation holds.
    Check {
        /// The table.
        table: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// What must hold.
        expect: Expect,
    },
}

impl Op {
    /// A put.
    pub fn put(table: impl Into<Arc<str>>, key: impl Into<Arc<str>>, value: impl Into<Value>, expect: Expect) -> Op {
        Op::Put { table: table.into(), key: key.into(), value: value.into(), expect }
    }

    /// A delete whose event shows the previous bytes.
    pub fn delete(table: impl Into<Arc<str>>, key: impl Into<Arc<str>>, expect: Expect) -> Op {
        Op::Delete { table: table.into(), key: key.into(), expect, final_value: None }
    }

    /// A check.
    pub fn check(table: impl Into<Arc<str>>, key: impl Into<Arc<str>>, expect: Expect) -> Op {
        Op::Check { table: table.into(), key: key.into(), expect }
    }

    /// Bytes that count against the limits.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Put { table, key, value, .. } => table.len() + key.len() + value.bytes.len(),
            Op::Delete { table, key, final_value, .. } => {
                table.len() + key.len() + final_value.as_ref().map_or(0, |value| value.bytes.len())
            }
            Op::Check { table, key, .. } => table.len() + key.len(),
        }
    }

    /// The value that the operation carries, if any.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Op::Put { value, .. } => Some(value),
            Op::Delete { final_value, .. } => final_value.as_ref(),
            Op::Check { .. } => None,
        }
    }
}

/// Operations that happen all or not at all.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The steps, in order.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// A transaction of these steps.
    pub fn new(ops: impl IntoIterator<Item = Op>) -> Transaction {
        Transaction { ops: ops.into_iter().collect() }
    }
}

impl From<Op> for Transaction {
    fn from(op: Op) -> Self {
        Transaction { ops: vec![op] }
    }
}

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Committed {
    /// A transaction boundary at which everything of this transaction is visible: its last revision, or for one that wrote
    /// nothing the revision at which its checks held.
    pub revision: u64,
    /// Per operation: the new entry of a put, the final entry of a delete (at the delete's revision), the checked entry.
    pub entries: Vec<Option<Arc<Entry>>>,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Created (no previous entry) or replaced.
    Put,
    /// Removed.
    Delete,
}

/// One revision: one put or delete of one key.
#[derive(Debug)]
pub struct Event {
    /// The table.
    pub table: Arc<str>,
    /// The revision; every revision has exactly one event.
    pub revision: u64,
    /// The first revision of the event's transaction.
    pub first: u64,
    /// The last revision of the event's transaction: the boundary behind it.
    pub last: u64,
    /// Put or delete.
    pub kind: EventKind,
    /// What to show: the new entry of a put, the final one of a delete (whose revision is the delete's).
    pub entry: Arc<Entry>,
    /// The entry before, if the key was there.
    pub previous: Option<Arc<Entry>>,
    /// Derived data of the layer above.
    pub memo: Memo,
}

impl Event {
    /// The key.
    pub fn key(&self) -> &Arc<str> {
        &self.entry.key
    }

    /// Whether the final value of a delete is just the bytes that were there before.
    pub(crate) fn shows_previous(&self) -> bool {
        self.previous.as_ref().is_some_and(|previous| {
            previous.value.as_ptr() == self.entry.value.as_ptr() && previous.value.len() == self.entry.value.len()
        })
    }

    /// Bytes that only the window keeps alive, and a fixed charge for the event itself.
    pub(crate) fn window_bytes(&self) -> usize {
        const CHARGE: usize = 192;
        const ENTRY: usize = 160;
        let previous = self.previous.as_ref().map_or(0, |entry| ENTRY + entry.value.len());
        let last = match self.kind {
            EventKind::Put => 0,
            EventKind::Delete if self.shows_previous() => ENTRY,
            EventKind::Delete => ENTRY + self.entry.value.len(),
        };
        CHARGE + previous + last
    }
}

/// Which keys of a table to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyRange<'a> {
    /// Only keys that begin with this.
    pub prefix: &'a str,
    /// Only keys behind this one.
    pub start_after: Option<&'a str>,
    /// At most so many.
    pub limit: Option<usize>,
}

impl<'a> KeyRange<'a> {
    /// Every key.
    pub fn all() -> Self {
        KeyRange::default()
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &'a str) -> Self {
        KeyRange { prefix, ..KeyRange::default() }
    }
}

/// A consistent list of a table.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// The transaction boundary at which it was true; watch from here to go on without a gap.
    pub revision: u64,
    /// The entries, by key.
    pub entries: Vec<Arc<Entry>>,
    /// Whether the limit cut it; go on with `start_after` the last key, at `revision`.
    pub more: bool,
    /// How many entries were cut off, if that was cheap to say.
    pub remaining: Option<usize>,
}
