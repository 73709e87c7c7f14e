//! A `conductor up` of a test's own.
#![allow(dead_code, reason = "each test uses its part")]

pub mod database;
pub mod web;
pub mod world;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use conductor_testkit::wire::Endpoint;
use rustix::process::{Pid, Signal, kill_process};

/// The content type of most bodies.
pub const JSON: &str = "application/json";

/// A server that runs until it is killed or dropped.
pub struct Conductor {
    child: Child,
    /// How to reach it as the administrator.
    pub endpoint: Endpoint,
    /// What it said on standard output until it was ready.
    pub greeting: String,
    log: PathBuf,
}

/// The command, on a data directory and a free port.
pub fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).args(arguments);
    command
}

impl Conductor {
    /// Starts one and waits until it is ready.
    pub fn start(data: &Path, arguments: &[&str]) -> Conductor {
        Self::run(&mut command(data, arguments), data)
    }

    /// Runs a command that ends up being a server on a data directory.
    pub fn run(command: &mut Command, data: &Path) -> Conductor {
        let log = data.with_extension("log");
        let file = std::fs::File::options().create(true).append(true).open(&log).expect("the log is made");
        let mut child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("conductor starts");
        let mut output = BufReader::new(child.stdout.take().expect("is piped"));
        let mut greeting = String::new();
        while !greeting.contains("next:") {
            let read = output.read_line(&mut greeting).expect("can be read");
            assert!(read > 0, "it ended before it was ready: {}", std::fs::read_to_string(&log).unwrap_or_default());
        }
        let line = greeting.lines().find_map(|line| line.trim().strip_prefix("kubeconfig")).expect("is said");
        let endpoint = Endpoint::from_kubeconfig(Path::new(line.trim())).expect("the kubeconfig can be used");
        Conductor { child, endpoint, greeting, log }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once.
    pub fn kill(mut self) {
        assert!(self.child.try_wait().expect("is ours").is_none(), "it went by itself: {}", self.log());
        self.child.kill().expect("is killed");
        self.child.wait().expect("is gone");
    }

    /// Asks it to stop, and says how it ended and after how long.
    pub fn stop(mut self, signal: Signal) -> (ExitStatus, Duration) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        let started = Instant::now();
        kill_process(pid, signal).expect("can be told");
        loop {
            if let Some(status) = self.child.try_wait().expect("is ours") {
                return (status, started.elapsed());
            }
            assert!(started.elapsed() < Duration::from_secs(30), "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("is ours").is_none()
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// MiB that it has in memory.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("is running");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("says so");
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
        kib / 1024
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs what a test does.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Random numbers that are the same for the same seed.
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }
}
