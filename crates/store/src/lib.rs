//! The revisioned store: transactions, watch, compaction, over a durable log.
//!
//! The working set lives in memory as serialised bytes; one writer thread commits transactions in groups, each group made
//! durable by one `fdatasync` before anybody can see any of it. It knows nothing of Kubernetes: tables, keys and values are
//! names and bytes.
//!
//! - A **revision** is one put or one delete. There is one counter for the whole store; it never goes back.
//! - A **transaction** is a list of operations with preconditions: all of it happens, or nothing. Its puts and deletes get
//!   consecutive revisions. Lists, snapshots and [`Watch::progress`] fall only on transaction boundaries.
//! - Each table keeps a **window** of recent events, bounded by bytes, count and age. A watch is a cursor into it, a read at an
//!   older revision undoes it. Behind the window everything is [`ReadError::Compacted`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use conductor_store::{Expect, KeyRange, Op, Options, Store, Transaction, Value};
//! let store = Store::in_memory(Options::default());
//! let mut watch = store.watch("core/configmaps", "default/", store.revision())?;
//! // The hole at byte 5 is filled with the revision that the commit assigns.
//! let value = Value { bytes: br#"{"v":}"#.to_vec(), revision_at: Some(5) };
//! let done = store.commit_blocking(Transaction::new([Op::put("core/configmaps", "default/a", value, Expect::Absent)]))?;
//! assert_eq!(done.revision, 1);
//! let list = store.list("core/configmaps", KeyRange::prefix("default/"), None)?;
//! assert_eq!(&list.entries[0].value[..], br#"{"v":1}"#);
//! let events = watch.try_next()?.unwrap_or_default();
//! assert_eq!(events[0].revision, 1);
//! # Ok(())
//! # }
//! ```

mod checkpoint;
mod codec;
pub mod engine;
mod error;
pub mod guarantees;
mod model;
mod options;
mod ring;
mod state;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod wake;
mod watch;
mod writer;

pub use error::{CommitError, OpenError, ReadError, WatchError};
pub use model::{Committed, Entry, Event, EventKind, Expect, KeyRange, List, Memo, Op, Transaction, Value};
pub use options::{Limits, Options, Window};
pub use state::View;
pub use store::{Durations, Stats, Store, TableStats};
pub use watch::Watch;
