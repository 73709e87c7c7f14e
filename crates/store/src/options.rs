//! What can be set about a store.

use crate::engine::LogOptions;

/// Settings of a store; the defaults suit a control plane of up to some hundred thousand objects.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a single write may be.
    pub limits: Limits,
    /// How much recent history each table keeps.
    pub window: Window,
    /// The durable log; ignored in memory.
    pub log: LogOptions,
}

/// Bounds on what callers may ask for; beyond them a commit is refused, never queued.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one value.
    pub value_bytes: usize,
    /// Operations in one transaction.
    pub transaction_ops: usize,
    /// Bytes of all keys and values of one transaction.
    pub transaction_bytes: usize,
    /// Bytes of all transactions waiting for the writer; beyond it commits are answered `Busy`.
    pub queued_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { value_bytes: 3 << 20, transaction_ops: 4096, transaction_bytes: 16 << 20, queued_bytes: 64 << 20 }
    }
}

/// Bounds of the history that one table keeps for watchers and for reads at older revisions.
///
/// They hold per table, so that a busy table never ends the watchers of a quiet one.
#[derive(Clone, Debug)]
pub struct Window {
    /// Number of events.
    pub events: usize,
    /// Bytes held only by the window: superseded and deleted values and a fixed charge per event.
    pub bytes: usize,
    /// Of the newest history, how many bytes a checkpoint carries over a restart (for all tables together).
    pub checkpoint_bytes: usize,
    /// Events one call of `Watch::next` returns at most, rounded up to a whole transaction.
    pub batch_events: usize,
    /// Bytes of values that it returns at most, rounded up likewise.
    pub batch_bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Window { events: 65_536, bytes: 16 << 20, checkpoint_bytes: 4 << 20, batch_events: 512, batch_bytes: 64 << 10 }
    }
}
