//! Really killing the process, again and again, under concurrent load.
//!
//! The child writes and watches and says on its standard output what was acknowledged and what was seen; the parent kills it
//! at any moment, looks at what is there, and starts it again, watchers going on from where they were.
//! `STORE_KILLS` sets how often (20 if not set).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use conductor_store::guarantees::{self, History, Seen, Step, Written, digest};
use conductor_store::testing::Random;
use conductor_store::{CommitError, EventKind, Expect, KeyRange, Op, Options, Store, Transaction};

const TABLES: [&str; 3] = ["left", "right", "counter"];
const WRITERS: u64 = 6;
const DIRECTORY: &str = "STORE_KILL_DIRECTORY";
const FROM: &str = "STORE_KILL_FROM";
const SEED: &str = "STORE_KILL_SEED";

fn options() -> Options {
    let mut options = Options::default();
    // Small, so that segments and checkpoints come and go all the time; history must reach over all of it.
    options.log.segment_bytes = 64 << 10;
    options.log.allocate_bytes = 16 << 10;
    options.log.checkpoint_bytes = 512 << 10;
    options.log.checkpoint_ratio = 0;
    options.window.events = 1 << 20;
    options.window.bytes = 64 << 20;
    options.window.checkpoint_bytes = 16 << 20;
    options
}

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // The parent may be gone; then so will we be.
    let _ = out.write_fmt(format_args!("{line}\n"));
}

#[test]
#[ignore = "the child that the other test kills"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let from = std::env::var(FROM).expect("is set");
    let seed: u64 = std::env::var(SEED).expect("is set").parse().expect("a number");
    let store = Store::open(Path::new(&directory), options()).expect("opens");
    say(format_args!("open {}", store.revision()));
    let mut threads = Vec::new();
    for (table, from) in TABLES.into_iter().zip(from.split(',')) {
        let mut watch = store.watch(table, "", from.parse().expect("a number")).expect("resumes");
        threads.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            while let Ok(events) = runtime.block_on(watch.next()) {
                let show = |event: &Seen| format!("{} {} {:?} {}", event.revision, event.key, event.kind, event.digest);
                let shown: Vec<String> = events.iter().map(|event| show(&Seen::from(&**event))).collect();
                say(format_args!("saw {table} {}", shown.join(";")));
                if let Some(progress) = watch.progress() {
                    say(format_args!("bookmark {table} {progress}"));
                }
            }
        }));
    }
    for writer in 0..WRITERS {
        let store = store.clone();
        threads.push(std::thread::spawn(move || write(&store, writer, &mut Random::new(seed ^ writer << 32))));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("goes on"));
}

/// Writes pairs that must stay together, and counts in a counter that all writers share.
fn write(store: &Store, writer: u64, random: &mut Random) {
    loop {
        let key = format!("{writer}/{}", random.below(20));
        let value = format!("{}{}", random.number(), ".".repeat(random.below(600) as usize)).into_bytes();
        let mut ops = Vec::new();
        for table in ["left", "right"] {
            let there = store.get(table, &key).is_some();
            ops.push(if there && random.below(4) == 0 && table == "right" {
                Op::delete(table, key.as_str(), Expect::Exists)
            } else {
                Op::put(table, key.as_str(), value.clone(), Expect::Any)
            });
        }
        // Only two of them count: with more, most commits would fail the precondition.
        let count = (writer < 2).then(|| {
            let counter = store.get("counter", "shared");
            let count = counter.as_ref().map_or(0, |entry| number(&entry.value)) + 1;
            let expect = counter.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
            ops.push(Op::put("counter", "shared", count.to_string().into_bytes(), expect));
            count
        });
        match store.commit_blocking(Transaction { ops }) {
            Ok(done) => say(format_args!("acknowledged {} {} {}", done.revision, count.unwrap_or(0), digest(&value))),
            Err(CommitError::Precondition { op: 2, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn number(text: &[u8]) -> u64 {
    String::from_utf8_lossy(text).parse().expect("a number")
}

/// What the parent knows.
#[derive(Default)]
struct Truth {
    history: Vec<Written>,
    /// Per table, everything its watcher was ever shown, over all restarts.
    watchers: BTreeMap<&'static str, Vec<Step>>,
    /// Revision, count, digest of the value.
    acknowledged: Vec<(u64, u64, u64)>,
}

impl Truth {
    fn revision(&self) -> u64 {
        self.history.last().map_or(0, |written| written.seen.revision)
    }

    /// Where each watcher goes on: behind the last event or bookmark that reached us.
    fn resume_at(&self, table: &str) -> u64 {
        let last = self.watchers.get(table).and_then(|steps| steps.last());
        match last {
            None => 0,
            Some(Step::From(revision) | Step::Bookmark(revision)) => *revision,
            Some(Step::Batch(events)) => events.last().map_or(0, |event| event.revision),
        }
    }

    fn heard(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(3, ' ');
        match (words.next()?, words.next()?, words.next()) {
            ("acknowledged", revision, Some(rest)) => {
                let (count, digest) = rest.split_once(' ')?;
                self.acknowledged.push((revision.parse().ok()?, count.parse().ok()?, digest.parse().ok()?));
            }
            ("bookmark", table, Some(revision)) => {
                let table = TABLES.into_iter().find(|name| *name == table)?;
                self.watchers.entry(table).or_default().push(Step::Bookmark(revision.parse().ok()?));
            }
            ("saw", table, Some(rest)) => {
                let table = TABLES.into_iter().find(|name| *name == table)?;
                let seen = |event: &str| {
                    let words: Vec<&str> = event.split(' ').collect();
                    let [revision, key, kind, digest] = words[..] else { return None };
                    Some(Seen {
                        revision: revision.parse().ok()?,
                        table: table.to_owned(),
                        key: key.to_owned(),
                        kind: if kind == "Put" { EventKind::Put } else { EventKind::Delete },
                        digest: digest.parse().ok()?,
                    })
                };
                let batch: Option<Vec<Seen>> = rest.split(';').map(seen).collect();
                self.watchers.entry(table).or_default().push(Step::Batch(batch?));
            }
            _ => {}
        }
        Some(())
    }

    /// Starts the child, kills it after a while, and takes in what it said.
    fn round(&mut self, directory: &Path, random: &mut Random) {
        let from: Vec<u64> = TABLES.iter().map(|table| self.resume_at(table)).collect();
        for (table, from) in TABLES.into_iter().zip(&from) {
            self.watchers.entry(table).or_default().push(Step::From(*from));
        }
        let from: Vec<String> = from.iter().map(u64::to_string).collect();
        let mut child = Command::new(std::env::current_exe().expect("is known"))
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(FROM, from.join(","))
            .env(SEED, random.number().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(child.stdout.take().expect("is piped"));
        let (opened, has_opened) = std::sync::mpsc::channel();
        let listener = std::thread::spawn(move || {
            let mut lines = Vec::new();
            // Bytes, because the last line may be cut anywhere.
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if line.starts_with("open ") {
                    let _ = opened.send(());
                }
                lines.push(line);
            }
            lines
        });
        if random.one_in(8) {
            // Also while it starts.
            std::thread::sleep(Duration::from_micros(random.below(8_000)));
        } else {
            has_opened.recv_timeout(Duration::from_secs(30)).expect("opens");
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
        }
        assert!(child.try_wait().expect("is ours").is_none(), "the child went by itself");
        child.kill().expect("is killed");
        child.wait().expect("is gone");
        let mut lines = listener.join().expect("listens");
        // The last line may be half of one.
        lines.pop();
        for line in lines {
            self.heard(&line);
        }
    }

    /// Opens what is left and compares.
    fn verify(&mut self, directory: &Path) {
        let store = Store::open(directory, options()).expect("opens after a kill");
        let known = self.revision();
        for table in TABLES {
            let mut watch = store.watch(table, "", known).expect("history reaches back");
            while let Some(events) = watch.try_next().expect("goes on") {
                self.history.extend(events.iter().map(|event| Written::from(&**event)));
            }
        }
        self.history.sort_by_key(|written| written.seen.revision);
        let revisions = self.history.iter().map(|written| written.seen.revision);
        assert!(revisions.eq(1..=store.revision()), "every revision exactly once");

        // Nothing acknowledged is lost and nothing is half there.
        for (revision, count, value) in self.acknowledged.drain(..) {
            let last = &self.history[revision as usize - 1];
            let size = if count > 0 { 3 } else { 2 };
            assert_eq!((last.first, last.last), (revision + 1 - size, revision));
            if count > 0 {
                assert_eq!(last.seen.digest, digest(count.to_string().as_bytes()), "revision {revision}");
            }
            let left = &self.history[(revision - size) as usize];
            assert_eq!((left.seen.table.as_str(), left.seen.digest), ("left", value), "revision {revision}");
        }
        // The counter lost none and gained none.
        let counted = store.get("counter", "shared").map_or(0, |entry| number(&entry.value));
        assert_eq!(counted, self.history.iter().filter(|written| written.seen.table == "counter").count() as u64);

        // The tables are what the history leads to.
        for table in TABLES {
            let mut objects = BTreeMap::new();
            for Written { seen, .. } in self.history.iter().filter(|written| written.seen.table == table) {
                match seen.kind {
                    EventKind::Put => objects.insert(seen.key.as_str(), (seen.revision, seen.digest)),
                    EventKind::Delete => objects.remove(seen.key.as_str()),
                };
            }
            let list = store.list(table, KeyRange::all(), None).expect("lists");
            let found: BTreeMap<&str, _> =
                list.entries.iter().map(|entry| (&*entry.key, (entry.revision, digest(&entry.value)))).collect();
            assert_eq!(found, objects);
        }

        // No watcher was ever shown what is not there, and resuming left no gap.
        let history: History = self.history.iter().cloned().collect();
        for (table, steps) in &self.watchers {
            guarantees::all(steps, &history, |seen| seen.table == *table)
                .unwrap_or_else(|broken| panic!("{table}: {broken}"));
        }
    }
}

#[test]
fn kill_loses_nothing_acknowledged_and_watches_resume() {
    let kills: u64 = std::env::var("STORE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut random = Random::new(kills);
    let mut truth = Truth::default();
    for _ in 0..kills {
        truth.round(directory.path(), &mut random);
        // Not each time: the child's own recovery must come after a kill too.
        if random.one_in(2) {
            truth.verify(directory.path());
        }
    }
    truth.verify(directory.path());
    assert!(truth.revision() > kills * 10, "there was load");
}
