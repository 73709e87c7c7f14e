//! Measures the store and the ways to preallocate a log: `cargo run --release -p conductor-store --example bench [DIR]`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conductor_store::{Expect, KeyRange, Op, Options, Store, Transaction, Value};

const SECONDS: u64 = 3;

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(base).expect("makes a directory");
    preallocation(directory.path());
    for (name, clients) in [("durable", 1), ("durable", 32), ("memory", 1), ("memory", 32)] {
        let place = directory.path().join(format!("{name}-{clients}"));
        let store = if name == "memory" {
            Store::in_memory(Options::default())
        } else {
            Store::open(&place, Options::default()).expect("opens")
        };
        commits(name, &store, clients);
    }
    watchers(&directory.path().join("watchers"));
    memory(&directory.path().join("memory"));
}

/// What one fdatasync of 1.1 KiB costs, by how the space came about.
fn preallocation(directory: &Path) {
    const RECORD: usize = 1_100;
    const COUNT: u64 = 3_000;
    let length = RECORD as u64 * COUNT;
    let measure = |name: &str, prepare: &dyn Fn(&File)| {
        let path = directory.join("file");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).expect("creates");
        prepare(&file);
        file.sync_all().expect("syncs");
        let record = [7; RECORD];
        let mut took: Vec<Duration> = (0..COUNT)
            .map(|number| {
                let start = Instant::now();
                file.write_all_at(&record, number * RECORD as u64).expect("writes");
                file.sync_data().expect("syncs");
                start.elapsed()
            })
            .collect();
        took.sort_unstable();
        println!(
            "fdatasync, {name:<10} p50 {:>5.0} µs  p99 {:>5.0} µs",
            micros(took[took.len() / 2]),
            micros(took[took.len() * 99 / 100])
        );
    };
    for _ in 0..2 {
        measure("growing", &|_| {});
        measure("fallocate", &|file| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length).expect("allocates");
        });
        measure("zeros", &|file| file.write_all_at(&vec![0; length as usize], 0).expect("writes"));
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn put(key: String) -> Transaction {
    Op::put("core/configmaps", key, Value { bytes: vec![b'x'; 1024], revision_at: Some(100) }, Expect::Any).into()
}

/// Commits by so many tasks on one runtime thread, each waiting for its own.
fn commits(name: &str, store: &Store, clients: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let start = Instant::now();
    let tasks = (0..clients).map(|client| {
        let store = store.clone();
        async move {
            let mut took = Vec::new();
            while Instant::now() < end {
                let start = Instant::now();
                store.commit(put(format!("{client}/{}", took.len() % 300))).await.expect("commits");
                took.push(start.elapsed());
            }
            took
        }
    });
    let mut took: Vec<Duration> = runtime.block_on(async {
        let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("runs"));
        }
        all
    });
    let rate = took.len() as f64 / start.elapsed().as_secs_f64();
    took.sort_unstable();
    let (p50, p99, max) = (took[took.len() / 2], took[took.len() * 99 / 100], took[took.len() - 1]);
    let engine = store.stats().engine;
    println!(
        "{name:<8} {clients:>2} clients  {rate:>7.0} commits/s  p50 {:>5.0} µs  p99 {:>5.0} µs  max {:>6.0} µs  {:.1} per fdatasync, {} checkpoints",
        micros(p50),
        micros(p99),
        micros(max),
        took.len() as f64 / engine.syncs.max(1) as f64,
        engine.checkpoints
    );
}

/// One client commits while 1,000 watchers of its table, and then 1,000 of another, get every event.
fn watchers(directory: &Path) {
    const WATCHERS: usize = 1_000;
    const COMMITS: usize = 500;
    let store = Store::open(directory, Options::default()).expect("opens");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    for table in ["core/secrets", "core/configmaps"] {
        let seen = Arc::new(AtomicU64::new(0));
        for _ in 0..WATCHERS {
            let mut watch = store.watch(table, "", store.revision()).expect("watches");
            let seen = seen.clone();
            runtime.spawn(async move {
                while let Ok(events) = watch.next().await {
                    seen.fetch_add(events.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        for number in 0..COMMITS {
            store.commit_blocking(put(format!("w/{number}"))).expect("commits");
        }
        let committed = start.elapsed();
        let expected = if table == "core/configmaps" { (WATCHERS * COMMITS) as u64 } else { 0 };
        while seen.load(Ordering::Relaxed) < expected {
            std::thread::sleep(Duration::from_micros(100));
        }
        println!(
            "1000 watchers of {table:<16} one client {:>6.0} commits/s, {:>9.0} events/s delivered",
            COMMITS as f64 / committed.as_secs_f64(),
            expected as f64 / start.elapsed().as_secs_f64()
        );
    }
    store.close();
}

/// Resident memory, disk, and the time of opening and listing with 10,000 objects of 1 KiB.
fn memory(directory: &Path) {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
    };
    let store = Store::open(directory, Options::default()).expect("opens");
    let disk = std::process::Command::new("du").arg("-sk").arg(directory).output().expect("measures");
    println!("empty store on disk: {} KiB", String::from_utf8_lossy(&disk.stdout).split('\t').next().unwrap_or("?"));
    let before = resident();
    let pending: Vec<_> = (0..10_000).map(|number| store.commit(put(format!("n/{number}")))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for commit in pending {
        runtime.block_on(commit).expect("commits");
    }
    println!("10,000 x 1 KiB: {:.1} MiB resident more", (resident() - before) as f64 / 1048576.0);
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(store.list("core/configmaps", KeyRange::all(), None).expect("lists").entries.len(), 10_000);
    }
    println!("list of 10,000: {:.0} µs", micros(start.elapsed() / 20));
    drop(store);
    let start = Instant::now();
    let store = Store::open(directory, Options::default()).expect("opens");
    println!("open with 10,000 from the log: {:.1} ms", micros(start.elapsed()) / 1e3);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let start = Instant::now();
    let store = Store::open(directory, Options::default()).expect("opens");
    println!("open with 10,000 from a checkpoint: {:.1} ms", micros(start.elapsed()) / 1e3);
    drop(store);
}
