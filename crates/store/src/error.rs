//! What can go wrong, per thing one can ask for.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::Entry;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the directory open.
    #[error("data directory {path} is in use{}: stop that process or choose another directory", holder(.pid))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that holds it, if it left its id.
        pid: Option<u32>,
    },
    /// The directory holds something else.
    #[error("{path} is not a store (it contains {found:?}): choose an empty directory")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A file that does not belong to a store.
        found: String,
    },
    /// Written by a newer program.
    #[error("{file} has format version {found}, this program reads up to {supported}: use a newer program")]
    NewerFormat {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version understood here.
        supported: u32,
    },
    /// A file is damaged where a crash cannot have damaged it.
    #[error("{file} is corrupt at byte {offset}: {reason}; restore the directory from a backup")]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The file system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn holder(pid: &Option<u32>) -> String {
    pid.map_or_else(|| " by another process".to_owned(), |pid| format!(" by process {pid}"))
}

/// Why a read or the start of a watch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The revision is behind the table's window.
    #[error("the revision is compacted, the oldest that can be read is {oldest}: list again")]
    Compacted {
        /// The oldest revision that can be asked for.
        oldest: u64,
    },
    /// The revision has not happened yet.
    #[error("the revision is in the future, the current one is {current}: try again later")]
    Future {
        /// The current revision.
        current: u64,
    },
}

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The watcher was too slow: the table's window has moved past it.
    #[error("the watch fell behind, the oldest revision that can be watched from is {oldest}: list again")]
    Compacted {
        /// The oldest revision that can be asked for.
        oldest: u64,
    },
    /// The store was closed; everything before that has been delivered.
    #[error("the store is closed")]
    Closed,
}

/// Why a transaction did not happen.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// An expectation did not hold; nothing was written.
    #[error("precondition of operation {op} does not hold")]
    Precondition {
        /// Which operation.
        op: usize,
        /// The entry as it is, if there is one.
        current: Option<Arc<Entry>>,
    },
    /// Beyond a limit; nothing was written.
    #[error("{what} is too large: {size}, the limit is {limit}")]
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// How large.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
    /// A value's hole for the revision lies outside its bytes; nothing was written.
    #[error("operation {op} has its revision hole outside the value")]
    Hole {
        /// Which operation.
        op: usize,
    },
    /// Too much is waiting for the disk already; nothing was written.
    #[error("too many writes are waiting for the disk: try again")]
    Busy,
    /// The disk is full or failing. Nobody has seen the write, and nobody will while this process runs; reads go on and the
    /// next commit tries again by itself.
    #[error("cannot write to the log: {error}")]
    Io {
        /// What the system said.
        error: Arc<io::Error>,
        /// True if the disk failed so badly that the write could not even be invalidated: it may come back after a crash.
        unknown: bool,
    },
    /// The store is closed; nothing was written.
    #[error("the store is closed")]
    Closed,
}
