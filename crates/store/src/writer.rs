//! The one writer: takes what is queued, decides it against the state, makes it durable, then shows it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::checkpoint::Snapshot;
use crate::codec;
use crate::engine::Engine;
use crate::error::CommitError;
use crate::model::{Committed, Entry, Event, EventKind, Memo, Op, Transaction};
use crate::options::Limits;
use crate::state::{State, touched};
use crate::store::Shared;

/// A batch is closed at this size, so that its latency stays bounded.
const BATCH_BYTES: usize = 8 << 20;

type Reply = oneshot::Sender<Result<Committed, CommitError>>;

enum Request {
    Commit { transaction: Transaction, bytes: usize, reply: Reply },
    Checkpoint(oneshot::Sender<io::Result<()>>),
    Checkpointed(io::Result<()>),
}

/// What waits for the writer.
pub(crate) struct Queue {
    limits: Limits,
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(limits: Limits) -> Queue {
        Queue { limits, waiting: Mutex::default(), filled: Condvar::new() }
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.filled.notify_one();
    }

    /// Checks a transaction against the limits and queues it.
    pub(crate) fn submit(
        &self,
        transaction: Transaction,
    ) -> Result<oneshot::Receiver<Result<Committed, CommitError>>, CommitError> {
        let bytes = self.measure(&transaction)?;
        let (reply, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err(CommitError::Closed);
        }
        if waiting.bytes > 0 && waiting.bytes + bytes > self.limits.queued_bytes {
            return Err(CommitError::Busy);
        }
        waiting.bytes += bytes;
        waiting.requests.push_back(Request::Commit { transaction, bytes, reply });
        drop(waiting);
        self.filled.notify_one();
        Ok(receiver)
    }

    fn measure(&self, transaction: &Transaction) -> Result<usize, CommitError> {
        // A charge per operation, so that many empty ones count too.
        const OP_BYTES: usize = 128;
        let within = |what, size, limit| {
            if size > limit { Err(CommitError::TooLarge { what, size, limit }) } else { Ok(()) }
        };
        within("number of operations", transaction.ops.len(), self.limits.transaction_ops)?;
        let mut bytes = 0;
        for (index, op) in transaction.ops.iter().enumerate() {
            if let Some(value) = op.value() {
                within("value", value.bytes.len(), self.limits.value_bytes)?;
                if value.revision_at.is_some_and(|at| at > value.bytes.len()) {
                    return Err(CommitError::Hole { op: index });
                }
            }
            bytes += op.bytes();
        }
        within("transaction", bytes, self.limits.transaction_bytes)?;
        Ok(bytes + transaction.ops.len() * OP_BYTES)
    }

    pub(crate) fn checkpoint(&self) -> io::Result<()> {
        let (reply, receiver) = oneshot::channel();
        self.push(Request::Checkpoint(reply));
        receiver.blocking_recv().unwrap_or_else(|_| Err(io::Error::other("the store is closed")))
    }

    fn push(&self, request: Request) {
        let mut waiting = self.waiting.lock();
        if !waiting.closed || matches!(request, Request::Checkpointed(_)) {
            waiting.requests.push_back(request);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Waits for requests and takes a batch of them; nothing once the queue is closed and empty. Where several write at the same
    /// time, whoever is ready to run goes first: on a busy machine more is made durable at once, on any other nobody waits.
    fn take(&self, several: bool) -> Option<Vec<Request>> {
        let mut waiting = self.waiting.lock();
        while waiting.requests.is_empty() {
            if waiting.closed {
                return None;
            }
            self.filled.wait(&mut waiting);
        }
        if several || waiting.requests.len() > 1 {
            MutexGuard::unlocked(&mut waiting, std::thread::yield_now);
        }
        let mut batch = Vec::with_capacity(waiting.requests.len());
        let mut size = 0;
        while size < BATCH_BYTES
            && let Some(request) = waiting.requests.pop_front()
        {
            if let Request::Commit { bytes, .. } = &request {
                waiting.bytes -= bytes;
                size += bytes;
            }
            batch.push(request);
        }
        Some(batch)
    }
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    engine: Box<dyn Engine>,
    buffer: Vec<u8>,
    checkpointing: Option<JoinHandle<()>>,
    /// Who waits for the checkpoint that is running.
    waiting: Vec<oneshot::Sender<io::Result<()>>>,
    /// Who waits for the next one: the one that is running began before they asked.
    wanted: Vec<oneshot::Sender<io::Result<()>>>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, engine: Box<dyn Engine>) -> Writer {
        Writer { shared, engine, buffer: Vec::new(), checkpointing: None, waiting: Vec::new(), wanted: Vec::new() }
    }

    pub(crate) fn run(mut self) {
        let mut several = false;
        while let Some(requests) = self.shared.queue.take(several) {
            several = requests.len() > 1;
            let mut commits = Vec::with_capacity(requests.len());
            for request in requests {
                match request {
                    Request::Commit { transaction, reply, .. } => commits.push((transaction, reply)),
                    Request::Checkpoint(reply) => self.wanted.push(reply),
                    Request::Checkpointed(result) => self.checkpointed(result),
                }
            }
            self.commit(commits);
            let live = || self.shared.state.read().tables().map(|table| table.bytes as u64).sum();
            let due = !self.wanted.is_empty() || self.engine.wants_checkpoint(live());
            if due && self.checkpointing.is_none() {
                self.begin_checkpoint();
            }
        }
        if let Some(running) = self.checkpointing.take() {
            let _ = running.join();
        }
    }

    fn commit(&mut self, commits: Vec<(Transaction, Reply)>) {
        let mut outcomes = Vec::with_capacity(commits.len());
        let batch = {
            // Nobody else changes entries, so what holds here still holds when the batch is applied.
            let state = self.shared.state.read();
            let mut batch = Batch::new(&state);
            for (transaction, reply) in commits {
                outcomes.push((batch.decide(&state, transaction), reply));
            }
            batch
        };
        if let (Some(first), Some(last)) = (batch.events.first(), batch.events.last()) {
            self.buffer.clear();
            for event in &batch.events {
                codec::encode_event(&mut self.buffer, event);
            }
            let begun = Instant::now();
            let durable = self.engine.append(first.revision, last.revision, &self.buffer);
            self.shared.appends.lock().add(begun.elapsed());
            self.buffer.shrink_to(1 << 20);
            *self.shared.engine_stats.lock() = self.engine.stats();
            if let Err(failed) = durable {
                tracing::error!(error = %failed.error, unknown = failed.unknown, "cannot write to the log");
                // Also those that failed a precondition: it may have failed because of a write that now never happened.
                let cause = Arc::new(failed.error);
                *self.shared.trouble.lock() = Some((Instant::now(), cause.clone()));
                let error = CommitError::Io { error: cause, unknown: failed.unknown };
                for (_, reply) in outcomes {
                    let _ = reply.send(Err(error.clone()));
                }
                return;
            }
            *self.shared.trouble.lock() = None;
            let mut garbage = Vec::new();
            self.shared.state.write().apply(&batch.events, &self.shared.options.window, &mut garbage);
        }
        for (outcome, reply) in outcomes {
            let _ = reply.send(outcome);
        }
        for table in touched(&batch.events) {
            self.shared.wakers.wake(table);
        }
    }

    fn begin_checkpoint(&mut self) {
        self.waiting.append(&mut self.wanted);
        let begun = self.engine.begin_checkpoint().and_then(|checkpoint| {
            let snapshot = Snapshot::of(&self.shared.state.read(), self.shared.options.window.checkpoint_bytes);
            let shared = self.shared.clone();
            std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn(move || {
                let result = snapshot.write(checkpoint);
                shared.queue.push(Request::Checkpointed(result));
            })
        });
        match begun {
            Ok(thread) => self.checkpointing = Some(thread),
            Err(error) => self.checkpointed(Err(error)),
        }
    }

    fn checkpointed(&mut self, result: io::Result<()>) {
        if let Some(thread) = self.checkpointing.take() {
            let _ = thread.join();
        }
        self.engine.end_checkpoint(result.is_ok());
        *self.shared.engine_stats.lock() = self.engine.stats();
        if let Err(error) = &result {
            tracing::warn!(%error, "cannot write a checkpoint, the log goes on growing until the next attempt");
        }
        for reply in self.waiting.drain(..) {
            let _ = reply.send(match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            });
        }
    }
}

type Changes = HashMap<(Arc<str>, Arc<str>), Option<Arc<Entry>>>;

/// Transactions decided but not yet durable: later ones in the batch build on earlier ones, readers see none of them.
struct Batch {
    revision: u64,
    events: Vec<Arc<Event>>,
    changes: Changes,
}

/// An event before its transaction's last revision is known.
struct Draft {
    table: Arc<str>,
    kind: EventKind,
    entry: Arc<Entry>,
    previous: Option<Arc<Entry>>,
}

impl Batch {
    fn new(state: &State) -> Batch {
        Batch { revision: state.revision, events: Vec::new(), changes: HashMap::new() }
    }

    fn current(&self, state: &State, own: &Changes, table: &Arc<str>, key: &Arc<str>) -> Option<Arc<Entry>> {
        if self.changes.is_empty() && own.is_empty() {
            return state.get(table, key).cloned();
        }
        let place = (table.clone(), key.clone());
        match own.get(&place).or_else(|| self.changes.get(&place)) {
            Some(changed) => changed.clone(),
            None => state.get(table, key).cloned(),
        }
    }

    fn decide(&mut self, state: &State, transaction: Transaction) -> Result<Committed, CommitError> {
        let first = self.revision + 1;
        let mut own = Changes::new();
        let mut drafts: Vec<Draft> = Vec::new();
        let mut entries = Vec::with_capacity(transaction.ops.len());
        for (index, op) in transaction.ops.into_iter().enumerate() {
            let (table, key, expect) = match &op {
                Op::Put { table, key, expect, .. }
                | Op::Delete { table, key, expect, .. }
                | Op::Check { table, key, expect } => (table, key, *expect),
            };
            let current = self.current(state, &own, table, key);
            let missing = matches!(op, Op::Delete { .. }) && current.is_none();
            if missing || !expect.holds(current.as_deref()) {
                return Err(CommitError::Precondition { op: index, current });
            }
            let revision = first + drafts.len() as u64;
            let (table, key, kind, value) = match op {
                Op::Check { .. } => {
                    entries.push(current);
                    continue;
                }
                Op::Put { table, key, value, .. } => (table, key, EventKind::Put, value.fill(revision)),
                Op::Delete { table, key, final_value, .. } => {
                    let value = match (final_value, &current) {
                        (Some(value), _) => value.fill(revision),
                        (None, Some(current)) => current.value.clone(),
                        (None, None) => continue,
                    };
                    (table, key, EventKind::Delete, value)
                }
            };
            // Names that the state has already are shared, not kept again.
            let table = state.table(&table).map_or(table, |table| table.name.clone());
            let key = current.as_ref().map_or(key, |current| current.key.clone());
            let entry = Arc::new(Entry {
                key: key.clone(),
                value,
                created: current.as_ref().map_or(revision, |current| current.created),
                revision,
                memo: Memo::default(),
            });
            entries.push(Some(entry.clone()));
            own.insert((table.clone(), key), (kind == EventKind::Put).then(|| entry.clone()));
            drafts.push(Draft { table, kind, entry, previous: current });
        }
        let last = self.revision + drafts.len() as u64;
        self.events.extend(drafts.into_iter().map(|Draft { table, kind, entry, previous }| {
            Arc::new(Event {
                table,
                revision: entry.revision,
                first,
                last,
                kind,
                entry,
                previous,
                memo: Memo::default(),
            })
        }));
        self.changes.extend(own);
        self.revision = last;
        Ok(Committed { revision: last, entries })
    }
}
