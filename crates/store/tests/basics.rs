//! What a caller can rely on, one promise at a time.

use std::sync::Arc;
use std::time::Duration;

use conductor_store::{
    CommitError, EventKind, Expect, KeyRange, Op, OpenError, Options, ReadError, Store, Transaction, Value, Watch,
    WatchError,
};

fn memory() -> Store {
    Store::in_memory(Options::default())
}

fn put(store: &Store, table: &str, key: &str, value: &str) -> u64 {
    commit(store, [Op::put(table, key, value.as_bytes().to_vec(), Expect::Any)])
}

fn delete(store: &Store, table: &str, key: &str) -> u64 {
    commit(store, [Op::delete(table, key, Expect::Any)])
}

fn commit<const N: usize>(store: &Store, ops: [Op; N]) -> u64 {
    store.commit_blocking(Transaction::new(ops)).expect("commits").revision
}

/// The keys and values of a list, as `a=1 b=2`.
fn show(store: &Store, table: &str, range: KeyRange<'_>, at: Option<u64>) -> Result<String, ReadError> {
    let list = store.list(table, range, at)?;
    let entries: Vec<String> =
        list.entries.iter().map(|entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value))).collect();
    Ok(entries.join(" "))
}

#[test]
fn expectations_decide_and_failures_name_the_operation() {
    let check = |expect: Expect, key: &str, holds: bool| {
        let store = memory();
        put(&store, "t", "there", "1");
        let result = store.commit_blocking(Transaction::new([
            Op::put("t", "other", b"x".to_vec(), Expect::Any),
            Op::put("t", key, b"2".to_vec(), expect),
        ]));
        match result {
            Ok(done) => assert!(holds && done.revision == 3, "{expect:?} on {key}"),
            Err(CommitError::Precondition { op, current }) => {
                assert!(!holds, "{expect:?} on {key}");
                assert_eq!(op, 1);
                assert_eq!(current.is_some(), key == "there");
                assert_eq!(show(&store, "t", KeyRange::all(), None), Ok("there=1".to_owned()), "nothing happened");
            }
            Err(error) => panic!("{error}"),
        }
    };
    check(Expect::Any, "there", true);
    check(Expect::Any, "gone", true);
    check(Expect::Absent, "there", false);
    check(Expect::Absent, "gone", true);
    check(Expect::Exists, "there", true);
    check(Expect::Exists, "gone", false);
    check(Expect::Revision(1), "there", true);
    check(Expect::Revision(2), "there", false);
    check(Expect::Revision(1), "gone", false);
}

#[test]
fn each_change_has_its_own_revision_spliced_into_its_bytes() {
    let store = memory();
    let hole = || Value { bytes: b"<>".to_vec(), revision_at: Some(1) };
    let done = store
        .commit_blocking(Transaction::new([
            Op::put("a", "x", hole(), Expect::Absent),
            Op::check("a", "x", Expect::Revision(1)),
            Op::put("b", "y", hole(), Expect::Absent),
        ]))
        .expect("commits");
    assert_eq!(done.revision, 2);
    assert_eq!(&store.get("b", "y").expect("is there").value[..], b"<2>");
    let mut watch = store.watch("a", "", 2).expect("watches");
    let gone = Op::Delete { table: "a".into(), key: "x".into(), expect: Expect::Exists, final_value: Some(hole()) };
    let done = store.commit_blocking(gone.into()).expect("commits");
    assert_eq!(done.entries[0].as_ref().map(|entry| (entry.revision, entry.created)), Some((3, 1)));
    let event = watch.try_next().expect("goes on").expect("has one").remove(0);
    assert_eq!((event.kind, event.revision, &event.entry.value[..]), (EventKind::Delete, 3, &b"<3>"[..]));
    assert_eq!(event.previous.as_ref().map(|entry| &entry.value[..]), Some(&b"<1>"[..]));
}

#[test]
fn lists_go_by_prefix_and_page() {
    let store = memory();
    for key in ["a/1", "a/2", "a/3", "b/1", "a"] {
        put(&store, "t", key, "v");
    }
    let check = |prefix, start_after, limit, expected: &str, remaining: Option<usize>| {
        let range = KeyRange { prefix, start_after, limit };
        let list = store.list("t", range, None).expect("lists");
        let keys: Vec<&str> = list.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!((keys.join(" ").as_str(), list.remaining, list.more), (expected, remaining, remaining.is_some()));
        // The same through the path that undoes history.
        let at = store.revision();
        let later = [put(&store, "t", "a/2", "w"), put(&store, "t", "a/4", "w"), delete(&store, "t", "b/1")];
        let list = store.list("t", range, Some(at)).expect("lists");
        let keys: Vec<&str> = list.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!((keys.join(" ").as_str(), list.remaining, list.revision), (expected, remaining, at));
        assert!(list.entries.iter().all(|entry| !later.contains(&entry.revision)));
        delete(&store, "t", "a/4");
        put(&store, "t", "b/1", "v");
    };
    check("", None, None, "a a/1 a/2 a/3 b/1", None);
    check("a/", None, None, "a/1 a/2 a/3", None);
    check("a/", None, Some(2), "a/1 a/2", Some(1));
    check("a/", Some("a/2"), Some(2), "a/3", None);
    check("", Some("a"), Some(1), "a/1", Some(3));
    check("b/", Some("a/2"), None, "b/1", None);
    check("", None, Some(1), "a", Some(4));
    check("z", None, Some(1), "", None);
}

#[test]
fn a_read_inside_a_transaction_sees_all_of_it() {
    let store = memory();
    put(&store, "t", "a", "0");
    commit(
        &store,
        [
            Op::put("t", "a", b"1".to_vec(), Expect::Any),
            Op::put("u", "x", b"1".to_vec(), Expect::Any),
            Op::put("t", "b", b"1".to_vec(), Expect::Any),
        ],
    );
    put(&store, "t", "c", "2");
    let check = |table, at, revision, expected: &str| {
        assert_eq!(show(&store, table, KeyRange::all(), Some(at)), Ok(expected.to_owned()), "at {at}");
        assert_eq!(store.list(table, KeyRange::all(), Some(at)).map(|list| list.revision), Ok(revision), "at {at}");
    };
    check("t", 1, 1, "a=0");
    check("t", 2, 4, "a=1 b=1");
    check("t", 3, 4, "a=1 b=1");
    check("t", 4, 4, "a=1 b=1");
    check("t", 5, 5, "a=1 b=1 c=2");
    check("u", 1, 1, "");
    check("u", 2, 4, "x=1");
    assert_eq!(show(&store, "t", KeyRange::all(), Some(6)), Err(ReadError::Future { current: 5 }));
}

#[test]
fn behind_the_window_everything_is_compacted() {
    let mut options = Options::default();
    options.window.events = 3;
    let store = Store::in_memory(options);
    let mut slow = store.watch("t", "", 0).expect("watches");
    let mut quiet = store.watch("quiet", "", 0).expect("watches");
    for value in ["1", "2", "3", "4", "5"] {
        put(&store, "t", "a", value);
    }
    let compacted = ReadError::Compacted { oldest: 2 };
    assert_eq!(store.compacted("t"), 2);
    assert_eq!(show(&store, "t", KeyRange::all(), Some(1)), Err(compacted));
    assert_eq!(show(&store, "t", KeyRange::all(), Some(2)), Ok("a=2".to_owned()));
    assert_eq!(store.watch("t", "", 1).err(), Some(compacted));
    assert_eq!(slow.try_next().err(), Some(WatchError::Compacted { oldest: 2 }));
    // The quiet table's watcher does not suffer, even from explicit compaction.
    store.compact(5);
    put(&store, "quiet", "b", "1");
    assert_eq!(quiet.try_next().expect("goes on").map(|events| events.len()), Some(1));
    assert_eq!(store.compacted("t"), 5);
}

#[test]
fn trimming_goes_by_the_age_the_caller_says() {
    let store = memory();
    let (second, keep) = (Duration::from_secs(1), Duration::from_secs(10));
    put(&store, "t", "a", "1");
    store.trim(second * 5, keep);
    put(&store, "t", "a", "2");
    store.trim(second * 14, keep);
    assert_eq!(store.compacted("t"), 0);
    store.trim(second * 15, keep);
    assert_eq!(store.compacted("t"), 1);
    store.trim(second * 24, keep);
    assert_eq!(store.compacted("t"), 2);
}

#[test]
fn limits_refuse_before_anything_is_queued() {
    let mut options = Options::default();
    options.limits.value_bytes = 10;
    options.limits.transaction_ops = 2;
    options.limits.transaction_bytes = 25;
    let store = Store::in_memory(options);
    let value = |size| Op::put("t", "k", vec![0; size], Expect::Any);
    let check = |ops: Vec<Op>, fits: bool| {
        let result = store.commit_blocking(Transaction::new(ops));
        assert_eq!(matches!(result, Err(CommitError::TooLarge { .. })), !fits, "{result:?}");
    };
    check(vec![value(10)], true);
    check(vec![value(11)], false);
    check(vec![value(1), value(1)], true);
    check(vec![value(1), value(1), value(1)], false);
    check(vec![value(10), value(10)], true);
    check(vec![value(10), Op::put("t", "longer", vec![0; 10], Expect::Any)], false);
    let hole = Value { bytes: vec![], revision_at: Some(1) };
    let result = store.commit_blocking(Op::put("t", "k", hole, Expect::Any).into());
    assert!(matches!(result, Err(CommitError::Hole { op: 0 })));
}

#[tokio::test]
async fn watchers_are_woken_and_told_of_the_end() {
    let store = memory();
    let mut watch = store.watch("t", "a/", 0).expect("watches");
    let waiting = tokio::spawn(async move {
        let first = watch.next().await.expect("an event");
        (first[0].key().clone(), watch.next().await.err())
    });
    let op = |key: &str| Transaction::from(Op::put("t", key, b"v".to_vec(), Expect::Any));
    store.commit(op("b/1")).await.expect("commits");
    store.commit(op("a/1")).await.expect("commits");
    // Only once the event was taken may the store end; the watcher holds no handle.
    tokio::task::yield_now().await;
    store.close();
    assert_eq!(waiting.await.expect("ends"), (Arc::from("a/1"), Some(WatchError::Closed)));
    assert!(matches!(store.commit(op("a/2")).await, Err(CommitError::Closed)));
    assert!(store.get("t", "a/1").is_some(), "a closed store still reads");
}

#[tokio::test]
async fn a_crowd_of_watchers_gets_every_event() {
    let store = memory();
    let watchers: Vec<_> = (0..50)
        .map(|_| {
            let mut watch = store.watch("t", "", 0).expect("watches");
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while let Ok(events) = watch.next().await {
                    seen.extend(events.iter().map(|event| event.revision));
                    if seen.len() == 100 {
                        break;
                    }
                }
                seen
            })
        })
        .collect();
    for number in 0..100 {
        let op = Op::put("t", format!("{}", number % 7), b"v".to_vec(), Expect::Any);
        store.commit(op.into()).await.expect("commits");
    }
    for watcher in watchers {
        assert!(watcher.await.expect("ends").into_iter().eq(1..=100));
    }
}

#[test]
fn a_watcher_gets_so_many_bytes_at_once_and_may_go_back() {
    let store = Store::in_memory(Options::default());
    for key in ["a", "b", "c"] {
        put(&store, "t", key, &"x".repeat(40_000));
    }
    let mut watch = store.watch("t", "", 0).expect("watches");
    let next = |watch: &mut Watch| -> Vec<u64> {
        watch.try_next().expect("goes on").unwrap_or_default().iter().map(|event| event.revision).collect()
    };
    assert_eq!(next(&mut watch), [1, 2]);
    watch.rewind(1);
    assert_eq!(watch.progress(), None, "it is not known to be between transactions");
    assert_eq!(next(&mut watch), [2, 3]);
    assert_eq!((next(&mut watch), watch.progress()), (vec![], Some(3)));
}

#[test]
fn progress_moves_on_when_others_are_busy() {
    let store = memory();
    let mut watch = store.watch("t", "a/", 0).expect("watches");
    put(&store, "other", "x", "1");
    assert_eq!(watch.progress(), Some(1));
    put(&store, "t", "b/1", "1");
    assert_eq!(watch.progress(), Some(2));
    put(&store, "t", "a/1", "1");
    put(&store, "other", "x", "1");
    assert_eq!(watch.progress(), Some(2), "an event waits");
    assert_eq!(watch.try_next().expect("goes on").map(|events| events.len()), Some(1));
    assert_eq!(watch.progress(), Some(4));
}

#[test]
fn everything_is_there_after_reopening() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let open = || Store::open(directory.path(), Options::default()).expect("opens");
    for checkpoint in [false, true] {
        let store = open();
        let before = store.revision();
        put(&store, "t", "a", "1");
        put(&store, "t", "a", "2");
        put(&store, "t", "b", "1");
        delete(&store, "t", "b");
        if checkpoint {
            store.checkpoint().expect("checkpoints");
            assert_eq!(store.stats().engine.checkpoints, 1);
        }
        drop(store);
        let store = open();
        assert_eq!(store.revision(), before + 4, "a deletion's revision is not given twice");
        assert_eq!(show(&store, "t", KeyRange::all(), None), Ok("a=2".to_owned()));
        assert_eq!(show(&store, "t", KeyRange::all(), Some(before + 1)), Ok("a=1".to_owned()));
        assert_eq!(show(&store, "t", KeyRange::all(), Some(before + 3)), Ok("a=2 b=1".to_owned()));
        let mut watch = store.watch("t", "", before + 1).expect("watches");
        let seen: Vec<u64> = watch.try_next().expect("ok").into_iter().flatten().map(|event| event.revision).collect();
        assert_eq!(seen, [before + 2, before + 3, before + 4]);
        delete(&store, "t", "a");
    }
}

#[test]
fn two_stores_on_one_directory_are_refused() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let first = Store::open(directory.path(), Options::default()).expect("opens");
    match Store::open(directory.path(), Options::default()) {
        Err(OpenError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{:?}", other.err()),
    }
    // one that is just going is waited for: what a killed process was about to start holds its files a moment longer
    let going = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(first);
    });
    Store::open(directory.path(), Options::default()).expect("opens");
    going.join().expect("went");
}
