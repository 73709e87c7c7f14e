//! A disk that forgets what was not synced, fails, and runs full: nothing acknowledged is lost, nothing refused comes back.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use conductor_store::engine::Log;
use conductor_store::guarantees::{Seen, Written, digest};
use conductor_store::testing::{DiskOp, Random, SimulatedDisk};
use conductor_store::{CommitError, EventKind, Expect, KeyRange, Op, OpenError, Options, Store, Transaction};

fn options() -> Options {
    let mut options = Options::default();
    options.log.segment_bytes = 6_000;
    options.log.allocate_bytes = 2_048;
    options.log.checkpoint_bytes = 12_000;
    options.log.checkpoint_ratio = 0;
    options
}

fn open(disk: &SimulatedDisk) -> Result<Store, OpenError> {
    Store::with_engine(Box::new(Log::new(Arc::new(disk.clone()), options().log)), options())
}

/// Everything that the store has in its windows, by revision.
fn history(store: &Store) -> Vec<Written> {
    let mut all = Vec::new();
    for table in ["a", "b"] {
        let mut watch = store.watch(table, "", store.compacted(table)).expect("watches");
        while let Some(events) = watch.try_next().expect("goes on") {
            all.extend(events.iter().map(|event| Written::from(&**event)));
        }
    }
    all.sort_by_key(|written| written.seen.revision);
    all
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// At this last revision.
    Acknowledged(u64),
    Refused,
    /// The disk was too broken to say.
    Unknown,
}

/// Table, key and value of each put.
type Puts = Vec<(&'static str, String, Vec<u8>)>;

/// Transaction number `number`: one to three puts whose values name it.
fn transaction(number: u64, random: &mut Random) -> Puts {
    let count = 1 + random.below(3);
    let put = |index| {
        let most = if random.one_in(20) { 5_000 } else { 700 };
        let size = random.below(most) as usize;
        let mut value = format!("{number}/{index} of {count};").into_bytes();
        value.resize(value.len() + size, b'.');
        (if index % 2 == 0 { "a" } else { "b" }, format!("key-{}", random.below(12)), value)
    };
    (0..count).map(put).collect()
}

/// What one run wrote and how each write ended, in order of submission.
struct Run {
    transactions: Vec<(Puts, Outcome)>,
}

/// Commits bursts of transactions, numbered from `first`.
fn run(store: &Store, random: &mut Random, first: u64, bursts: u64) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut run = Run { transactions: Vec::new() };
    for _ in 0..bursts {
        let mut burst = Vec::new();
        for _ in 0..1 + random.below(6) {
            let number = first + (run.transactions.len() + burst.len()) as u64;
            let puts = transaction(number, random);
            let ops = puts.iter().map(|(table, key, value)| Op::put(*table, key.as_str(), value.clone(), Expect::Any));
            let commit = store.commit(Transaction::new(ops));
            burst.push((puts, commit));
        }
        for (puts, commit) in burst {
            let outcome = match runtime.block_on(commit) {
                Ok(done) => Outcome::Acknowledged(done.revision),
                Err(CommitError::Io { unknown: true, .. }) => Outcome::Unknown,
                Err(CommitError::Io { unknown: false, .. }) => Outcome::Refused,
                Err(error) => panic!("{error}"),
            };
            run.transactions.push((puts, outcome));
        }
    }
    run
}

/// Whether the revisions from `first` on are this transaction, whole.
fn stands_at(history: &[Written], first: u64, puts: &Puts) -> bool {
    let last = first + puts.len() as u64 - 1;
    puts.iter().zip(first..).all(|((table, key, value), revision)| {
        let seen = Seen {
            revision,
            table: (*table).to_owned(),
            key: key.clone(),
            kind: EventKind::Put,
            digest: digest(value),
        };
        let found = history.binary_search_by_key(&revision, |written| written.seen.revision);
        found.is_ok_and(|index| history[index] == Written { seen, first, last })
    })
}

/// Acknowledged transactions are all there, refused ones are not, others are whole or not at all, nothing else is there, and
/// what a watcher `saw` before is there still. Gives what one sees now.
fn verify(store: &Store, runs: &[Run], saw: &[Written]) -> Vec<Written> {
    let history = history(store);
    let before = store.compacted("a").max(store.compacted("b"));
    let lost = saw.iter().find(|written| written.seen.revision > before && !history.contains(written));
    assert_eq!(lost, None, "was shown and is lost");
    let transactions = || runs.iter().flat_map(|run| &run.transactions);
    let oldest = store.compacted("a").max(store.compacted("b"));
    for (puts, outcome) in transactions() {
        let first = match outcome {
            Outcome::Acknowledged(last) => last + 1 - puts.len() as u64,
            _ => {
                let shown = digest(&puts[0].2);
                let found: Vec<&Written> = history.iter().filter(|w| w.seen.digest == shown).collect();
                assert!(found.len() <= 1);
                match found.first() {
                    None => continue,
                    Some(found) => {
                        assert_eq!(*outcome, Outcome::Unknown, "what was refused came back");
                        found.first
                    }
                }
            }
        };
        if first > oldest {
            assert!(stands_at(&history, first, puts), "{outcome:?} is not there, or not whole");
        }
    }
    // Revisions have no hole up to the newest, which is that of the last transaction that counts.
    let revisions: Vec<u64> = history.iter().map(|w| w.seen.revision).filter(|revision| *revision > oldest).collect();
    assert_eq!(revisions, (oldest + 1..=store.revision()).collect::<Vec<_>>());
    let acknowledged = transactions().filter_map(|(_, outcome)| match outcome {
        Outcome::Acknowledged(revision) => Some(*revision),
        _ => None,
    });
    assert!(acknowledged.max().unwrap_or(0) <= store.revision());
    // The tables are what the history leads to.
    let newest: BTreeMap<_, _> = history.iter().map(|w| ((&w.seen.table, &w.seen.key), w.seen.digest)).collect();
    for ((table, key), expected) in newest {
        let entry = store.get(table, key).expect("nothing is deleted here");
        assert_eq!(digest(&entry.value), expected);
    }
    history
}

fn seeds() -> u64 {
    std::env::var("STORE_CRASHES").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

#[test]
fn a_power_failure_at_any_moment_loses_nothing_acknowledged() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let mut disk = SimulatedDisk::new(seed);
        let mut runs = Vec::new();
        let mut saw = Vec::new();
        for round in 0..4 {
            // From some operation on, nothing works: the moment of the crash. What is in flight is unknown.
            let last = disk.ops() + random.below(if round == 0 { 60 } else { 150 });
            disk.set_fault(move |_, op| (op > last).then_some(ErrorKind::Other));
            if let Ok(store) = open(&disk) {
                saw = verify(&store, &runs, &saw);
                let number = 1000 * (round + 1);
                runs.push(run(&store, &mut random, number, 12));
                saw = verify(&store, &runs, &saw);
            }
            disk = if random.one_in(4) { disk.after_kill() } else { disk.after_power_failure(random.number()) };
        }
        let store = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        verify(&store, &runs, &saw);
    }
}

#[test]
fn what_a_failing_disk_refused_never_comes_back() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed ^ 0xf00d);
        let disk = SimulatedDisk::new(seed);
        let store = open(&disk).expect("opens");
        let mut faults = Random::new(seed);
        let often = 4 + faults.below(30);
        disk.set_fault(move |op, _| {
            let kind = if op == DiskOp::Allocate { ErrorKind::StorageFull } else { ErrorKind::Other };
            faults.one_in(often).then_some(kind)
        });
        let mut runs = vec![run(&store, &mut random, 0, 25)];
        // Reads go on, and see only what was acknowledged.
        let saw = verify(&store, &runs, &[]);
        let refused = runs[0].transactions.iter().filter(|(_, outcome)| !matches!(outcome, Outcome::Acknowledged(_)));
        assert!(refused.count() < runs[0].transactions.len(), "seed {seed}: some get through");
        // The disk recovers, and so does the store, by itself.
        if random.one_in(2) {
            disk.heal();
            let healed = run(&store, &mut random, 5000, 3);
            assert!(healed.transactions.iter().all(|(_, outcome)| matches!(outcome, Outcome::Acknowledged(_))));
            runs.push(healed);
            // Whatever was unknown has been voided by the first success after it.
            for (_, outcome) in &mut runs[0].transactions {
                if *outcome == Outcome::Unknown {
                    *outcome = Outcome::Refused;
                }
            }
        }
        let left = disk.after_power_failure(random.number());
        drop(store);
        let store = open(&left).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        verify(&store, &runs, &saw);
    }
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let disk = SimulatedDisk::new(7);
    let store = open(&disk).expect("opens");
    let put = |key: &str| store.commit_blocking(Op::put("a", key, vec![b'.'; 500], Expect::Any).into());
    let mut watch = store.watch("a", "", 0).expect("watches");
    disk.set_capacity(9_000);
    let written = (0..100).take_while(|number| put(&format!("key-{number}")).is_ok()).count();
    assert!(written > 4, "some fit");
    let revision = store.revision();
    let result = put("key-more");
    assert!(
        matches!(
            result.clone(),
            Err(CommitError::Io { error, unknown: false }) if error.kind() == ErrorKind::StorageFull
        ),
        "{result:?}"
    );
    assert_eq!(store.revision(), revision);
    assert_eq!(store.list("a", KeyRange::all(), None).expect("lists").entries.len(), written);
    let seen = watch.try_next().expect("goes on").expect("has some").len();
    assert_eq!(seen, written);
    disk.set_capacity(usize::MAX);
    assert_eq!(put("key-more").expect("there is room again").revision, revision + 1);
    assert_eq!(watch.try_next().expect("goes on").map(|events| events.len()), Some(1));
    drop(store);
    let store = open(&disk.after_power_failure(1)).expect("opens");
    assert_eq!(store.revision(), revision + 1);
}

#[test]
fn a_checkpoint_that_fails_harms_nothing() {
    let check = |failing: DiskOp| {
        let disk = SimulatedDisk::new(3);
        let store = open(&disk).expect("opens");
        let put = |number: u32| {
            store.commit_blocking(Op::put("a", format!("key-{number}"), vec![b'.'; 500], Expect::Any).into())
        };
        put(1).expect("commits");
        disk.set_fault(move |op, _| (op == failing).then_some(ErrorKind::StorageFull));
        store.checkpoint().expect_err("fails");
        disk.heal();
        put(2).expect("commits");
        store.checkpoint().expect("checkpoints");
        put(3).expect("commits");
        drop(store);
        let store = open(&disk.after_power_failure(3)).expect("opens");
        assert_eq!((store.count("a"), store.revision()), (3, 3), "after a failed {failing:?}");
    };
    for failing in [DiskOp::Create, DiskOp::Write, DiskOp::Sync, DiskOp::Rename, DiskOp::SyncDirectory] {
        check(failing);
    }
}

#[test]
fn a_rotation_that_failed_half_way_does_not_void_later_writes() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new(seed);
        let store = open(&disk).expect("opens");
        let put = |size| store.commit_blocking(Op::put("a", format!("{size}"), vec![b'.'; size], Expect::Any).into());
        put(4_000).expect("commits");
        // The new segment has its name, but nobody knows for how long.
        disk.set_fault(|op, _| (op == DiskOp::SyncDirectory).then_some(ErrorKind::Other));
        put(4_001).expect_err("needs a new segment");
        disk.heal();
        put(10).expect("would fit into the old one");
        let store = open(&disk.after_power_failure(seed)).expect("opens");
        assert_eq!((store.count("a"), store.revision()), (2, 2));
    }
}

#[test]
fn what_only_the_page_cache_holds_is_made_durable_before_it_is_shown() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new(seed);
        let store = open(&disk).expect("opens");
        // Killed between the write and its sync; or after the sync failed, which leaves the pages clean but not on disk.
        let mut written = 0;
        let sync_fails = seed % 2 == 0;
        disk.set_fault(move |op, _| {
            written += u32::from(written > 0 || op == DiskOp::Write);
            match written {
                0 | 1 => None,
                2 if sync_fails => Some(ErrorKind::Other),
                _ => Some(ErrorKind::NotConnected),
            }
        });
        let result = store.commit_blocking(Op::put("a", "key", vec![b'.'; 5_000], Expect::Any).into());
        assert!(matches!(result, Err(CommitError::Io { unknown: true, .. })));
        let disk = disk.after_kill();
        assert_eq!(open(&disk).expect("opens").count("a"), 1);
        assert_eq!(open(&disk.after_power_failure(seed)).expect("opens").count("a"), 1);
    }
}
