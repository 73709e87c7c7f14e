//! Damaged, incomplete and foreign directories: cut where a crash explains it, refused where not, never misread.

use std::sync::Arc;

use conductor_store::engine::Log;
use conductor_store::testing::SimulatedDisk;
use conductor_store::{Expect, KeyRange, Op, OpenError, Options, Store};

const SEGMENT_1: &str = "segment-00000000000000000001";
const SEGMENT_2: &str = "segment-00000000000000000002";
const HEAD: usize = 56;

fn options(segment_bytes: u64) -> Options {
    let mut options = Options::default();
    options.log.segment_bytes = segment_bytes;
    options.log.allocate_bytes = 64;
    options
}

fn open_with(disk: &SimulatedDisk, segment_bytes: u64) -> Result<Store, OpenError> {
    let options = options(segment_bytes);
    Store::with_engine(Box::new(Log::new(Arc::new(disk.clone()), options.log.clone())), options)
}

fn open(disk: &SimulatedDisk) -> Result<Store, OpenError> {
    open_with(disk, 1 << 20)
}

fn put(store: &Store, number: u64) {
    let op = Op::put("t", format!("key-{number}"), format!("value {number}").into_bytes(), Expect::Absent);
    store.commit_blocking(op.into()).expect("commits");
}

/// A disk with this many commits.
fn disk(commits: u64, segment_bytes: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let store = open_with(&disk, segment_bytes).expect("opens");
    (1..=commits).for_each(|number| put(&store, number));
    disk
}

/// The same disk with one file changed.
fn with(disk: &SimulatedDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> SimulatedDisk {
    let copy = disk.after_kill();
    let mut bytes = disk.bytes(name).expect("is there");
    change(&mut bytes);
    copy.set_bytes(name, bytes);
    copy
}

/// Exactly the first commits are there, and the store goes on from them.
fn is_prefix(store: &Store) -> u64 {
    let list = store.list("t", KeyRange::all(), None).expect("lists");
    let revision = store.revision();
    assert_eq!(list.entries.len() as u64, revision);
    for entry in &list.entries {
        assert_eq!(*entry.key, format!("key-{}", entry.revision));
        assert_eq!(&entry.value[..], format!("value {}", entry.revision).as_bytes());
    }
    revision
}

/// Where the frames of the only segment end, from how it grew.
fn frame_ends(commits: u64) -> Vec<usize> {
    let used = |bytes: Vec<u8>| bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    (0..=commits).map(|count| used(disk(count, 1 << 20).bytes(SEGMENT_1).expect("is there")).max(HEAD)).collect()
}

#[test]
fn a_log_cut_anywhere_keeps_every_whole_write() {
    let ends = frame_ends(4);
    let disk = disk(4, 1 << 20);
    for length in HEAD..=ends[4] {
        // Once as a shorter file, once as a file whose end was never written.
        for zeros in [false, true] {
            let cut = with(&disk, SEGMENT_1, |bytes| {
                bytes.truncate(length);
                bytes.resize(if zeros { ends[4] + 100 } else { length }, 0);
            });
            let store = open(&cut).unwrap_or_else(|error| panic!("cut at {length}: {error}"));
            let whole = ends[1..].iter().filter(|end| **end <= length).count() as u64;
            assert_eq!(is_prefix(&store), whole, "cut at {length}");
            put(&store, whole + 1);
            drop(store);
            assert_eq!(is_prefix(&open(&cut.after_power_failure(1)).expect("opens")), whole + 1);
        }
    }
    for length in 0..HEAD {
        let cut = with(&disk, SEGMENT_1, |bytes| bytes.truncate(length));
        assert!(matches!(open(&cut).err(), Some(OpenError::Corrupt { .. } | OpenError::Foreign { .. })));
    }
}

#[test]
fn a_flipped_bit_is_refused_unless_it_hit_the_last_write() {
    let ends = frame_ends(3);
    let disk = disk(3, 1 << 20);
    for at in 0..ends[3] {
        for bit in [0, 5] {
            let flipped = with(&disk, SEGMENT_1, |bytes| bytes[at] ^= 1 << bit);
            match open(&flipped) {
                // Nothing tells a damaged last write from one that a crash tore.
                Ok(store) => {
                    assert!(at >= ends[2], "byte {at}");
                    assert_eq!(is_prefix(&store), 2);
                }
                Err(OpenError::Corrupt { file, offset, .. }) => {
                    assert!(at < ends[2], "byte {at}");
                    assert!(file.ends_with(SEGMENT_1));
                    assert!(offset as usize <= at, "says {offset}, is {at}");
                }
                Err(OpenError::Foreign { .. } | OpenError::NewerFormat { .. }) => assert!(at < HEAD),
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
    }
}

#[test]
fn in_a_finished_segment_and_in_a_checkpoint_no_damage_passes() {
    let check = |disk: &SimulatedDisk, name: &str, length: usize| {
        for at in 0..length {
            let flipped = with(disk, name, |bytes| bytes[at] ^= 4);
            assert!(open(&flipped).is_err(), "byte {at} of {name}");
            let cut = with(disk, name, |bytes| bytes.truncate(at));
            assert!(open(&cut).is_err(), "{name} cut at {at}");
        }
    };
    let segments = disk(6, 200);
    let finished = segments.bytes(SEGMENT_1).expect("is there");
    assert!(segments.bytes(SEGMENT_2).is_some());
    check(&segments, SEGMENT_1, finished.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));

    let checkpointed = disk(5, 1 << 20);
    let store = open(&checkpointed).expect("opens");
    store.checkpoint().expect("checkpoints");
    drop(store);
    assert_eq!(is_prefix(&open(&checkpointed).expect("opens")), 5);
    let name = "checkpoint-00000000000000000005";
    check(&checkpointed, name, checkpointed.bytes(name).expect("is there").len());
}

#[test]
fn what_is_missing_or_foreign_is_named() {
    // What the error is, as one word and the file.
    let check = |change: &dyn Fn(&SimulatedDisk), expected: &str, file: &str| {
        let disk = disk(6, 200);
        change(&disk);
        let error = open(&disk).err().unwrap_or_else(|| panic!("{expected} {file} should be refused"));
        let kind = match &error {
            OpenError::Corrupt { .. } => "corrupt",
            OpenError::Foreign { .. } => "foreign",
            OpenError::NewerFormat { .. } => "newer",
            _ => "other",
        };
        assert_eq!(kind, expected, "{error}");
        assert!(error.to_string().contains(file), "{error}");
    };
    use conductor_store::engine::Disk as _;
    let remove = |name: &'static str| move |disk: &SimulatedDisk| disk.remove(name).expect("removes");
    check(&remove("format"), "corrupt", "format");
    check(&remove(SEGMENT_1), "corrupt", SEGMENT_1);
    check(&remove(SEGMENT_2), "corrupt", SEGMENT_2);
    check(
        &|disk| disk.set_bytes("format", b"something else entirely, and long enough for a head at that".to_vec()),
        "foreign",
        "format",
    );
    let newer = |disk: &SimulatedDisk| {
        let mut bytes = disk.bytes("format").expect("is there");
        bytes[18] = 200;
        disk.set_bytes("format", bytes);
    };
    check(&newer, "newer", "format");
    // A segment of another store.
    check(
        &|disk| disk.set_bytes(SEGMENT_1, self::disk(6, 200).bytes(SEGMENT_1).expect("is there")),
        "corrupt",
        SEGMENT_1,
    );

    let disk = SimulatedDisk::new(1);
    disk.set_bytes("holiday.jpg", vec![1, 2, 3]);
    assert!(matches!(open(&disk).err(), Some(OpenError::Foreign { found, .. }) if found == "holiday.jpg"));
}

#[test]
fn a_value_that_looks_like_a_log_does_not_confuse_recovery() {
    let other = disk(3, 1 << 20).bytes(SEGMENT_1).expect("is there");
    let disk = SimulatedDisk::new(1);
    let store = open(&disk).expect("opens");
    put(&store, 1);
    store.commit_blocking(Op::put("t", "log", other.clone(), Expect::Any).into()).expect("commits");
    drop(store);
    // The last write is torn in its first bytes; the frames of the other log inside it are whole.
    let end = disk.bytes(SEGMENT_1).expect("is there").windows(8).position(|bytes| bytes == &other[..8]);
    let at = disk.bytes(SEGMENT_1).expect("is there").windows(3).position(|bytes| bytes == b"log").expect("is there");
    assert!(end.is_some());
    let store = open(&with(&disk, SEGMENT_1, |bytes| bytes[at] = 0)).expect("opens");
    assert_eq!(is_prefix(&store), 1);
}
