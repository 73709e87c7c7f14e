//! The handle that callers hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::codec;
use crate::engine::{Directory, Engine, EngineStats, Log, Memory, Recovered};
use crate::error::{CommitError, OpenError, ReadError};
use crate::model::{Committed, Entry, KeyRange, List, Transaction};
use crate::options::Options;
use crate::state::{State, View};
use crate::wake::Wakers;
use crate::watch::Watch;
use crate::writer::{Queue, Writer};

/// A revisioned store. Clones are cheap and share it; when the last one goes, the writer finishes and the directory is free
/// (dropping waits for that).
#[derive(Clone)]
pub struct Store(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    /// The writer and the waker.
    threads: Mutex<[Option<JoinHandle<()>>; 2]>,
}

/// What the handle, the writer and the watchers share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// Locked for reading by readers, shortly; for writing only by the writer to apply what is durable already, and to trim.
    pub(crate) state: RwLock<State>,
    pub(crate) queue: Queue,
    pub(crate) engine_stats: Mutex<EngineStats>,
    /// How long it took to make batches durable, or to fail to.
    pub(crate) appends: Mutex<Durations>,
    /// Why the last write was not made durable, and when; none once one was.
    pub(crate) trouble: Mutex<Option<(Instant, Arc<std::io::Error>)>>,
    pub(crate) wakers: Wakers,
}

impl Store {
    /// Opens the store in a directory, which is made if it is missing, and holds the directory until the store is dropped.
    pub fn open(directory: &Path, options: Options) -> Result<Store, OpenError> {
        let disk = Arc::new(Directory::open(directory)?);
        let log = Log::new(disk, options.log.clone());
        Store::with_engine(Box::new(log), options)
    }

    /// A store that lives as long as the process.
    pub fn in_memory(options: Options) -> Store {
        let state = State::default();
        Store::start(Box::new(Memory::default()), state, options)
    }

    /// A store over any engine.
    pub fn with_engine(mut engine: Box<dyn Engine>, options: Options) -> Result<Store, OpenError> {
        let mut state = State::default();
        let mut garbage = Vec::new();
        engine.recover(&mut |recovered| match recovered {
            Recovered::Entries { base, chunk } => {
                state.floor = base;
                state.revision = base;
                codec::decode_entries(chunk, |table, entry| {
                    let table = state.table(table).map_or_else(|| table.into(), |table| table.name.clone());
                    state.restore(&table, Arc::new(entry));
                })
            }
            Recovered::Batch { first, last, batch } => {
                if first != state.revision + 1 {
                    return Err(format!("revision {first} should follow {}", state.revision));
                }
                codec::decode_batch(batch, first, &mut state, |state, events| {
                    state.apply(events, &options.window, &mut garbage);
                    garbage.clear();
                })?;
                if state.revision == last { Ok(()) } else { Err(format!("revisions up to {last} should be here")) }
            }
        })?;
        Ok(Store::start(engine, state, options))
    }

    fn start(engine: Box<dyn Engine>, state: State, options: Options) -> Store {
        let shared = Arc::new(Shared {
            queue: Queue::new(options.limits.clone()),
            engine_stats: Mutex::new(engine.stats()),
            appends: Mutex::default(),
            trouble: Mutex::default(),
            options,
            state: RwLock::new(state),
            wakers: Wakers::default(),
        });
        let writer = Writer::new(shared.clone(), engine);
        let wakers = shared.clone();
        let threads = [
            Builder::new().name("store-writer".to_owned()).spawn(move || writer.run()),
            Builder::new().name("store-waker".to_owned()).spawn(move || wakers.wakers.run()),
        ];
        if threads.iter().any(Result::is_err) {
            // Without its threads the store reads, and refuses writes.
            shared.queue.close();
        }
        Store(Arc::new(Handle { shared, threads: Mutex::new(threads.map(Result::ok)) }))
    }

    /// Why nothing can be written: what the disk said to the last attempt, and when that was.
    pub fn trouble(&self) -> Option<(Instant, Arc<std::io::Error>)> {
        self.0.shared.trouble.lock().clone()
    }

    /// The current revision, a transaction boundary.
    pub fn revision(&self) -> u64 {
        self.0.shared.state.read().revision
    }

    /// The oldest revision at which a table can be read and watched.
    pub fn compacted(&self, table: &str) -> u64 {
        self.0.shared.state.read().oldest(table)
    }

    /// An entry now.
    pub fn get(&self, table: &str, key: &str) -> Option<Arc<Entry>> {
        self.0.shared.state.read().get(table, key).cloned()
    }

    /// A consistent list, now or at an older revision.
    ///
    /// A revision in the middle of a transaction means the boundary behind it; the list says which.
    pub fn list(&self, table: &str, range: KeyRange<'_>, at: Option<u64>) -> Result<List, ReadError> {
        self.0.shared.state.read().list(table, range, at)
    }

    /// Everything of several tables, all at one revision.
    pub fn list_many(&self, tables: &[&str]) -> (u64, Vec<Vec<Arc<Entry>>>) {
        self.view(|view| {
            let entries =
                |table: &&str| view.list(table, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
            (view.revision(), tables.iter().map(entries).collect())
        })
    }

    /// Reads whatever `read` looks up, all at one revision. It runs under the read lock: keep it short.
    pub fn view<R>(&self, read: impl FnOnce(View<'_>) -> R) -> R {
        read(View(&self.0.shared.state.read()))
    }

    /// The number of entries of a table now.
    pub fn count(&self, table: &str) -> usize {
        self.0.shared.state.read().count(table)
    }

    /// Commits a transaction. It is queued by the call itself; dropping the future does not take it back.
    pub fn commit(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send + use<> {
        let queued = self.0.shared.queue.submit(transaction);
        // The handle is kept so that the store does not close under a commit that is on its way.
        let store = self.clone();
        async move {
            let result = queued?.await.unwrap_or(Err(CommitError::Closed));
            drop(store);
            result
        }
    }

    /// Commits a transaction and blocks the thread until it is durable. Not for async code.
    pub fn commit_blocking(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        self.0.shared.queue.submit(transaction)?.blocking_recv().unwrap_or(Err(CommitError::Closed))
    }

    /// Watches the keys of a table that begin with `prefix`: every event with a revision above `from`.
    pub fn watch(&self, table: &str, prefix: &str, from: u64) -> Result<Watch, ReadError> {
        let name = {
            let state = self.0.shared.state.read();
            if from > state.revision {
                return Err(ReadError::Future { current: state.revision });
            }
            let oldest = state.oldest(table);
            if from < oldest {
                return Err(ReadError::Compacted { oldest });
            }
            state.table(table).map_or_else(|| table.into(), |table| table.name.clone())
        };
        let wake = self.0.shared.wakers.subscribe(&name);
        Ok(Watch::new(self.0.shared.clone(), name, prefix, from, wake))
    }

    /// Forgets the history up to and including a revision.
    pub fn compact(&self, revision: u64) {
        let mut garbage = Vec::new();
        self.0.shared.state.write().compact(revision, &mut garbage);
    }

    /// Forgets history that is older than `keep`. Call it now and then with a clock that does not go back (any epoch): an event is
    /// as old as the first call after it.
    pub fn trim(&self, now: Duration, keep: Duration) {
        let mut garbage = Vec::new();
        self.0.shared.state.write().trim(now, keep, &mut garbage);
    }

    /// Writes a checkpoint now and waits for it; it also happens by itself. Not for async code.
    pub fn checkpoint(&self) -> std::io::Result<()> {
        self.0.shared.queue.checkpoint()
    }

    /// Numbers about the store.
    pub fn stats(&self) -> Stats {
        let engine = *self.0.shared.engine_stats.lock();
        let state = self.0.shared.state.read();
        let tables = state.tables().map(|table| {
            let stats = TableStats {
                objects: table.entries.len(),
                bytes: table.bytes,
                window_events: table.ring.len(),
                window_bytes: table.ring.bytes(),
                compacted: table.ring.floor(),
            };
            (table.name.clone(), stats)
        });
        Stats { revision: state.revision, tables: tables.collect(), engine, appends: *self.0.shared.appends.lock() }
    }

    /// Ends the store for all its clones: commits that are queued still happen, watches end, the directory is released.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Handle {
    fn close(&self) {
        self.shared.queue.close();
        let [writer, waker] = &mut *self.threads.lock();
        // The writer first: what it still commits is still shown.
        drop(writer.take().map(JoinHandle::join));
        self.shared.wakers.close();
        drop(waker.take().map(JoinHandle::join));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// Numbers about a store.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The current revision.
    pub revision: u64,
    /// Per table.
    pub tables: BTreeMap<Arc<str>, TableStats>,
    /// The engine's.
    pub engine: EngineStats,
    /// How long it took to make batches durable, or to fail to.
    pub appends: Durations,
}

/// How long something took, time after time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    /// How often it took at most as long as the bound at the same place of [`Durations::BOUNDS`] and longer than the one before.
    pub buckets: [u64; Durations::BOUNDS.len()],
    /// How often it happened.
    pub count: u64,
    /// Seconds in all.
    pub sum: f64,
}

impl Durations {
    /// Upper bounds, in seconds: those of a disk, and beyond what anybody has patience for.
    pub const BOUNDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 1.0, 2.0, 5.0, 10.0];

    pub(crate) fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.count += 1;
        self.sum += seconds;
        if let Some(at) = Durations::BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at] += 1;
        }
    }
}

/// Numbers about a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Entries.
    pub objects: usize,
    /// Their bytes in memory, about.
    pub bytes: usize,
    /// Events in the window.
    pub window_events: usize,
    /// Bytes that only the window keeps.
    pub window_bytes: usize,
    /// The oldest revision that can be read.
    pub compacted: u64,
}
