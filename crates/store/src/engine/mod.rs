//! What makes batches durable. The store above knows only the [`Engine`] trait.

mod disk;
mod frame;
mod log;
mod memory;
mod recover;

use std::io;

pub use disk::{Directory, Disk, DiskFile};
pub use log::{Log, LogOptions};
pub use memory::Memory;

use crate::error::OpenError;

/// Keeps batches of revisions, opaque to it, and gives them back in order.
///
/// *Invariant*: when [`Engine::append`] has returned `Ok`, [`Engine::recover`] after any crash gives that batch back. When it has
/// returned an error with `unknown: false`, it never does.
pub trait Engine: Send + 'static {
    /// Hands over everything durable, oldest first. Called once, before anything else.
    ///
    /// `visit` may refuse what it gets with a reason; the engine turns that into an error that says where it lies.
    fn recover(&mut self, visit: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>) -> Result<(), OpenError>;

    /// Makes the revisions `first..=last` durable.
    fn append(&mut self, first: u64, last: u64, batch: &[u8]) -> Result<(), AppendError>;

    /// Whether enough has been appended, compared with `live` bytes of state, that a checkpoint pays.
    fn wants_checkpoint(&self, live: u64) -> bool;

    /// Begins a checkpoint of the state at the last appended revision; it is written on another thread.
    fn begin_checkpoint(&mut self) -> io::Result<Box<dyn Checkpoint>>;

    /// Told when a checkpoint has ended, one way or the other.
    fn end_checkpoint(&mut self, succeeded: bool);

    /// Numbers for the curious.
    fn stats(&self) -> EngineStats;
}

/// A checkpoint being written. Dropping it unfinished abandons it.
pub trait Checkpoint: Send {
    /// Adds entries of the state at revision `base`; the same `base` each time, before any batch.
    fn entries(&mut self, base: u64, chunk: &[u8]) -> io::Result<()>;
    /// Adds a batch of what happened after `base`.
    fn batch(&mut self, first: u64, last: u64, batch: &[u8]) -> io::Result<()>;
    /// Makes it durable and lets go of the log it replaces.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Something durable.
#[derive(Debug)]
pub enum Recovered<'a> {
    /// Entries of the state at `base`.
    Entries {
        /// The revision of the state.
        base: u64,
        /// The entries.
        chunk: &'a [u8],
    },
    /// The revisions `first..=last`.
    Batch {
        /// The first revision.
        first: u64,
        /// The last revision.
        last: u64,
        /// The events.
        batch: &'a [u8],
    },
}

/// Why a batch is not durable.
#[derive(Debug)]
pub struct AppendError {
    /// What the system said.
    pub error: io::Error,
    /// Whether the batch may nevertheless be there after a crash.
    pub unknown: bool,
}

/// Numbers about an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Bytes of log that a restart would read.
    pub log_bytes: u64,
    /// Bytes of the newest checkpoint.
    pub checkpoint_bytes: u64,
    /// Batches appended.
    pub batches: u64,
    /// Calls of `fdatasync` for batches.
    pub syncs: u64,
    /// Checkpoints completed since the start.
    pub checkpoints: u64,
}
