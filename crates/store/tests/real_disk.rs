//! A really full file system and a really failing `fdatasync`.
//!
//! Each runs in a child of this test: on a small tmpfs in a mount namespace of its own (needs root), and under `strace`, which
//! makes system calls fail. Where that is not possible it says so; the simulated disk covers the same ground everywhere.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use conductor_store::{CommitError, Committed, Expect, KeyRange, Op, Options, Store};

const DIRECTORY: &str = "STORE_DISK_DIRECTORY";

fn open(directory: &Path) -> Store {
    let mut options = Options::default();
    options.log.segment_bytes = 1 << 20;
    options.log.allocate_bytes = 256 << 10;
    Store::open(directory, options).expect("opens")
}

fn put(store: &Store, key: &str) -> Result<Committed, CommitError> {
    store.commit_blocking(Op::put("t", key, vec![b'.'; 10_000], Expect::Any).into())
}

/// Runs the test `name` of this binary under a command, if that command works here.
fn run_under(command: &mut Command, probe: &mut Command, name: &str) {
    if !probe.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {probe:?} does not work here");
        return;
    }
    let directory = tempfile::tempdir().expect("makes a directory");
    let output = command
        .arg(std::env::current_exe().expect("is known"))
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn writes_fail_cleanly_on_a_full_tmpfs_and_recover() {
    let script = format!("mount -t tmpfs -o size=6m none \"${DIRECTORY}\" && exec \"$@\"");
    run_under(
        Command::new("unshare").args(["--mount", "sh", "-c", &script, "sh"]),
        Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]),
        "on_a_small_disk",
    );
}

#[test]
#[ignore = "the child of the test above"]
fn on_a_small_disk() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let store = open(directory);
    std::fs::write(directory.join("ballast"), vec![1; 2 << 20]).expect("fits");
    let written = (0..1_000).take_while(|number| put(&store, &number.to_string()).is_ok()).count();
    assert!((100..600).contains(&written), "{written}");
    for _ in 0..3 {
        let full = put(&store, "more").expect_err("is full");
        assert!(
            matches!(&full, CommitError::Io { error, unknown: false } if error.kind() == ErrorKind::StorageFull),
            "{full}"
        );
    }
    assert_eq!(store.list("t", KeyRange::all(), None).expect("lists").entries.len(), written);
    std::fs::remove_file(directory.join("ballast")).expect("removes");
    put(&store, "more").expect("there is room again");
    drop(store);
    assert_eq!(open(directory).count("t"), written + 1);
}

#[test]
fn failing_fdatasync_refuses_writes_and_recovers() {
    run_under(
        Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "-e", "inject=fdatasync:error=EIO:when=30..45"]),
        Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]),
        "with_failing_syncs",
    );
}

#[test]
#[ignore = "the child of the test above"]
fn with_failing_syncs() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let store = open(directory);
    let mut watch = store.watch("t", "", 0).expect("watches");
    let outcomes: Vec<bool> = (0..80).map(|number| put(&store, &number.to_string()).is_ok()).collect();
    assert!(outcomes.contains(&false), "some were refused");
    assert!(outcomes[70..].iter().all(|done| *done), "it recovers by itself");
    let acknowledged = outcomes.iter().filter(|done| **done).count();
    let mut seen = 0;
    while let Some(events) = watch.try_next().expect("goes on") {
        seen += events.len();
    }
    assert_eq!(seen, acknowledged, "only what is durable is shown");
    drop(store);
    let store = open(directory);
    for (number, done) in outcomes.iter().enumerate() {
        assert_eq!(store.get("t", &number.to_string()).is_some(), *done, "write {number}");
    }
}
