//! Random use against a naive model: what the store shows must be what a list of all states shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use conductor_store::engine::Log;
use conductor_store::guarantees::{self, History, Seen, Step, Written};
use conductor_store::testing::SimulatedDisk;
use conductor_store::{
    CommitError, EventKind, Expect, KeyRange, Op, Options, ReadError, Store, Transaction, Value, Watch, WatchError,
};
use proptest::prelude::*;

const TABLES: [&str; 2] = ["core/pods", "core/nodes"];
const KEYS: [&str; 6] = ["a", "a/1", "a/2", "ab", "b/1", "b/2"];
const PREFIXES: [&str; 4] = ["", "a", "a/", "b/"];

#[derive(Clone, Debug)]
enum Action {
    Commit(Vec<Draft>),
    /// Several at once, so that they share a batch.
    Burst(Vec<Vec<Draft>>),
    List {
        table: usize,
        prefix: usize,
        start_after: Option<usize>,
        limit: Option<usize>,
        back: u64,
    },
    Watch {
        table: usize,
        prefix: usize,
        back: u64,
    },
    Poll(usize),
    Progress(usize),
    Checkpoint,
    Reopen,
    Compact(u64),
}

#[derive(Clone, Debug)]
struct Draft {
    kind: u8,
    table: usize,
    key: usize,
    expect: u8,
    size: usize,
}

fn draft() -> impl Strategy<Value = Draft> {
    (0..8_u8, 0..TABLES.len(), 0..KEYS.len(), 0..12_u8, 0..200_usize)
        .prop_map(|(kind, table, key, expect, size)| Draft { kind, table, key, expect, size })
}

fn action() -> impl Strategy<Value = Action> {
    let (table, prefix, key) = (0..TABLES.len(), 0..PREFIXES.len(), proptest::option::of(0..KEYS.len()));
    let drafts = || proptest::collection::vec(draft(), 1..4);
    prop_oneof![
        8 => drafts().prop_map(Action::Commit),
        3 => proptest::collection::vec(drafts(), 2..5).prop_map(Action::Burst),
        4 => (table.clone(), prefix.clone(), key, proptest::option::of(0..4_usize), 0..20_u64).prop_map(
            |(table, prefix, start_after, limit, back)| Action::List { table, prefix, start_after, limit, back }
        ),
        2 => (table, prefix, 0..12_u64).prop_map(|(table, prefix, back)| Action::Watch { table, prefix, back }),
        4 => any::<usize>().prop_map(Action::Poll),
        2 => any::<usize>().prop_map(Action::Progress),
        1 => Just(Action::Checkpoint),
        1 => Just(Action::Reopen),
        1 => (0..20_u64).prop_map(Action::Compact),
    ]
}

type Objects = BTreeMap<(usize, String), (Vec<u8>, u64, u64)>;

/// All states there ever were, by the boundary at which they began.
struct Model {
    states: BTreeMap<u64, Objects>,
    history: Vec<Written>,
}

impl Model {
    fn revision(&self) -> u64 {
        self.states.last_key_value().map_or(0, |(revision, _)| *revision)
    }

    /// The state at a revision; inside a transaction, at its end.
    fn at(&self, revision: u64) -> (u64, &Objects) {
        let (boundary, objects) = self.states.range(revision..).next().expect("not in the future");
        (*boundary, objects)
    }

    /// What the operation at `index` of a failing transaction is, or the new state.
    fn commit(&mut self, ops: &[Op]) -> Result<u64, usize> {
        let before = self.revision();
        let mut objects = self.at(before).1.clone();
        let mut events: Vec<Seen> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let (Op::Put { table, key, expect, .. }
            | Op::Delete { table, key, expect, .. }
            | Op::Check { table, key, expect }) = op;
            let place = (TABLES.iter().position(|name| **name == **table).expect("known"), key.to_string());
            let current = objects.get(&place).cloned();
            let holds = match expect {
                Expect::Any => true,
                Expect::Absent => current.is_none(),
                Expect::Exists => current.is_some(),
                Expect::Revision(revision) => current.as_ref().is_some_and(|current| current.2 == *revision),
            };
            let revision = before + events.len() as u64 + 1;
            let fill = |value: &Value| {
                let mut bytes = value.bytes.clone();
                if let Some(at) = value.revision_at {
                    bytes.splice(at..at, revision.to_string().into_bytes());
                }
                bytes
            };
            let (kind, shown) = match (op, current) {
                (_, _) if !holds => return Err(index),
                (Op::Delete { .. }, None) => return Err(index),
                (Op::Check { .. }, _) => continue,
                (Op::Put { value, .. }, current) => {
                    let bytes = fill(value);
                    let created = current.map_or(revision, |current| current.1);
                    objects.insert(place, (bytes.clone(), created, revision));
                    (EventKind::Put, bytes)
                }
                (Op::Delete { final_value, .. }, Some(current)) => {
                    objects.remove(&place);
                    (EventKind::Delete, final_value.as_ref().map_or(current.0, fill))
                }
            };
            let digest = guarantees::digest(&shown);
            events.push(Seen { revision, table: table.to_string(), key: key.to_string(), kind, digest });
        }
        let last = before + events.len() as u64;
        self.history.extend(events.into_iter().map(|seen| Written { seen, first: before + 1, last }));
        self.states.insert(last, objects);
        Ok(last)
    }
}

/// A watcher and what it was shown.
struct Watcher {
    watch: Watch,
    table: usize,
    prefix: &'static str,
    steps: Vec<Step>,
    at: u64,
}

struct World {
    disk: SimulatedDisk,
    options: Options,
    store: Option<Store>,
    model: Model,
    watchers: Vec<Watcher>,
}

impl World {
    fn new() -> World {
        let mut options = Options::default();
        options.window.events = 12;
        options.window.bytes = 6_000;
        options.window.checkpoint_bytes = 2_000;
        options.window.batch_events = 3;
        options.window.batch_bytes = 300;
        options.log.segment_bytes = 700;
        options.log.allocate_bytes = 256;
        options.log.checkpoint_bytes = 3_000;
        options.log.checkpoint_ratio = 1;
        let model = Model { states: [(0, Objects::new())].into(), history: Vec::new() };
        let mut world = World { disk: SimulatedDisk::new(1), options, store: None, model, watchers: Vec::new() };
        world.open();
        world
    }

    fn open(&mut self) {
        let log = Log::new(Arc::new(self.disk.clone()), self.options.log.clone());
        self.store = Some(Store::with_engine(Box::new(log), self.options.clone()).expect("opens"));
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("is open")
    }

    fn ops(&self, drafts: &[Draft]) -> Vec<Op> {
        let revision = self.model.revision();
        let op = |draft: &Draft| {
            let (table, key) = (TABLES[draft.table], KEYS[draft.key]);
            let current = self.store().get(table, key);
            // Mostly right, so that transactions of several operations get through.
            let expect = match (draft.expect, &current) {
                (0, _) => Expect::Absent,
                (1, _) => Expect::Exists,
                (2, _) => Expect::Revision(revision),
                (3..=5, Some(current)) => Expect::Revision(current.revision),
                (3..=5, None) => Expect::Absent,
                _ => Expect::Any,
            };
            let value = Value {
                bytes: vec![b'v'; draft.size],
                revision_at: (!draft.size.is_multiple_of(3)).then_some(draft.size / 2),
            };
            match draft.kind {
                0 => Op::check(table, key, expect),
                1 => Op::delete(table, key, expect),
                2 => Op::Delete { table: table.into(), key: key.into(), expect, final_value: Some(value) },
                _ => Op::put(table, key, value, expect),
            }
        };
        drafts.iter().map(op).collect()
    }

    fn commit(&mut self, transactions: Vec<Vec<Op>>) {
        let results: Vec<_> =
            transactions.iter().map(|ops| self.store().commit(Transaction { ops: ops.clone() })).collect();
        for (ops, result) in transactions.into_iter().zip(results) {
            let expected = self.model.commit(&ops);
            match (expected, block_on(result)) {
                (Ok(_), Ok(done)) => {
                    assert_eq!(done.entries.len(), ops.len());
                    assert!(done.revision <= self.store().revision(), "acknowledged is visible");
                }
                (Err(index), Err(CommitError::Precondition { op, .. })) => assert_eq!(op, index),
                (expected, found) => panic!("{ops:?}: {expected:?} but {found:?}"),
            }
        }
        assert_eq!(self.store().revision(), self.model.revision());
    }

    fn list(&self, table: usize, range: KeyRange<'_>, at: u64) {
        let oldest = self.store().compacted(TABLES[table]);
        let list = match self.store().list(TABLES[table], range, Some(at)) {
            Ok(list) => list,
            Err(error) => {
                assert!(at < oldest);
                assert_eq!(error, ReadError::Compacted { oldest });
                return;
            }
        };
        assert!(at >= oldest);
        let (_, objects) = self.model.at(at);
        let matching: Vec<_> = objects
            .iter()
            .filter(|((of, key), _)| *of == table && key.starts_with(range.prefix))
            .filter(|((_, key), _)| range.start_after.is_none_or(|after| key.as_str() > after))
            .map(|((_, key), (bytes, created, revision))| (key.as_str(), bytes.as_slice(), *created, *revision))
            .collect();
        let limit = range.limit.unwrap_or(usize::MAX).min(matching.len());
        let found: Vec<_> =
            list.entries.iter().map(|entry| (&*entry.key, &entry.value[..], entry.created, entry.revision)).collect();
        assert_eq!(found, matching[..limit], "at {at}");
        assert_eq!(list.remaining.unwrap_or(0), matching.len() - limit);
        assert_eq!(list.more, limit < matching.len());
        // The revision it says must show the same list, and nothing half.
        assert_eq!(self.model.at(list.revision).1, objects);
    }

    fn watch(&mut self, table: usize, prefix: &'static str, from: u64) {
        match self.store().watch(TABLES[table], prefix, from) {
            Ok(watch) => {
                let steps = vec![Step::From(from)];
                self.watchers.push(Watcher { watch, table, prefix, steps, at: from });
            }
            Err(error) => {
                let oldest = self.store().compacted(TABLES[table]);
                assert!(from < oldest);
                assert_eq!(error, ReadError::Compacted { oldest });
            }
        }
    }

    fn poll(&mut self, index: usize) {
        let oldest = |table: usize| self.store().compacted(TABLES[table]);
        let oldest = [oldest(0), oldest(1)];
        if self.watchers.is_empty() {
            return;
        }
        let index = index % self.watchers.len();
        let watcher = &mut self.watchers[index];
        match watcher.watch.try_next() {
            Ok(None) => {}
            Ok(Some(events)) => {
                watcher.at = events.last().map_or(watcher.at, |event| event.revision);
                watcher.steps.push(Step::Batch(events.iter().map(|event| Seen::from(&**event)).collect()));
            }
            Err(WatchError::Compacted { .. }) => {
                assert!(watcher.at < oldest[watcher.table], "only who is behind is ended");
                self.finish(index);
            }
            Err(WatchError::Closed) => panic!("the store is open"),
        }
    }

    fn progress(&mut self, index: usize) {
        if self.watchers.is_empty() {
            return;
        }
        let index = index % self.watchers.len();
        let watcher = &mut self.watchers[index];
        if let Some(progress) = watcher.watch.progress() {
            watcher.at = watcher.at.max(progress);
            watcher.steps.push(Step::Bookmark(progress));
        }
    }

    fn finish(&mut self, index: usize) {
        let watcher = self.watchers.swap_remove(index);
        let history: History = self.model.history.iter().cloned().collect();
        let watches = |seen: &Seen| seen.table == TABLES[watcher.table] && seen.key.starts_with(watcher.prefix);
        guarantees::all(&watcher.steps, &history, watches).unwrap_or_else(|broken| panic!("{broken}"));
    }

    /// Closes and opens the store; watchers go on from where they were.
    fn reopen(&mut self) {
        let resumed: Vec<_> =
            self.watchers.drain(..).map(|watcher| (watcher.table, watcher.prefix, watcher.at, watcher.steps)).collect();
        self.store = None;
        self.open();
        assert_eq!(self.store().revision(), self.model.revision());
        for (table, prefix, at, mut steps) in resumed {
            let before = self.watchers.len();
            self.watch(table, prefix, at);
            if let Some(watcher) = self.watchers.get_mut(before) {
                // Not a new beginning: the steps before and after must join.
                steps.push(Step::From(at));
                watcher.steps = steps;
            }
        }
    }

    fn run(&mut self, action: Action) {
        match action {
            Action::Commit(drafts) => self.commit(vec![self.ops(&drafts)]),
            Action::Burst(all) => self.commit(all.iter().map(|drafts| self.ops(drafts)).collect()),
            Action::List { table, prefix, start_after, limit, back } => {
                let range = KeyRange { prefix: PREFIXES[prefix], start_after: start_after.map(|key| KEYS[key]), limit };
                self.list(table, range, self.model.revision().saturating_sub(back));
            }
            Action::Watch { table, prefix, back } => {
                self.watch(table, PREFIXES[prefix], self.model.revision().saturating_sub(back));
            }
            Action::Poll(index) => self.poll(index),
            Action::Progress(index) => self.progress(index),
            Action::Checkpoint => self.store().checkpoint().expect("checkpoints"),
            Action::Reopen => self.reopen(),
            Action::Compact(back) => self.store().compact(self.model.revision().saturating_sub(back)),
        }
    }

    fn end(mut self) {
        for index in 0..self.watchers.len() * 20 {
            self.poll(index);
        }
        while !self.watchers.is_empty() {
            self.finish(0);
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

proptest! {
    #[test]
    fn the_store_shows_what_the_model_shows(actions in proptest::collection::vec(action(), 1..60)) {
        let mut world = World::new();
        for action in actions {
            world.run(action);
        }
        world.reopen();
        let revision = world.model.revision();
        for table in 0..TABLES.len() {
            world.list(table, KeyRange::all(), revision);
        }
        world.end();
    }
}
