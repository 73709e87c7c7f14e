//! Processes that outlive Conductor.
//!
//! Each has a directory of its own with its record and its log. It leads a session of its own and bears the directory's path as marker in
//! its environment. *Invariant:* there is at most one for a directory, whoever was killed when: a record that was lost is made up
//! for by a look at every process' marker, and what is left of a dead one is ended before a new one starts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::identity::{self, MARKER, Seen};
use crate::{home, logs};

/// What to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Additions to its environment, which is otherwise empty but for PATH.
    pub environment: Vec<(String, String)>,
    /// Who it runs as; `None`: who we are.
    pub account: Option<Account>,
    /// Where it works.
    pub working_directory: PathBuf,
}

/// How to end a process: ask, wait, and then insist.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// The signal that asks.
    pub signal: Signal,
    /// How long it has to follow.
    pub patience: Duration,
}

impl Default for Stop {
    fn default() -> Stop {
        Stop { signal: Signal::TERM, patience: Duration::from_secs(10) }
    }
}

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub pid: i32,
    /// How often it was started again after it had ended by itself.
    pub restarts: u32,
    /// Whether this very call started it.
    pub fresh: bool,
}

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running(Running),
    /// It ended and is started again after this long.
    Waiting {
        /// How long until then.
        pause: Duration,
        /// How often it was started again.
        restarts: u32,
    },
}

/// What is known of a process, durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    pid: i32,
    started: u64,
    /// Seconds since 1970 when it was started.
    since: u64,
    /// Ends in a row that came too soon.
    failures: u32,
    /// Starts after an end.
    restarts: u32,
    /// How long its log was when it was started.
    #[serde(default)]
    said: u64,
    /// The program it runs, as far as that is known.
    #[serde(default)]
    program: Option<PathBuf>,
}

/// One that ran this long was fine.
const FINE: u64 = 60;

type Watched = HashMap<String, (i32, u64)>;

/// Starts, finds, and ends the processes below one directory. See the module.
#[derive(Clone)]
pub struct Supervisor {
    dir: PathBuf,
    ended: Arc<dyn Fn(&str) + Send + Sync>,
    locks: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    watched: Arc<Mutex<Watched>>,
    failed: Arc<Mutex<HashMap<String, Instant>>>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// How long to wait before the start after so many ends in a row.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        n => Duration::from_millis(100 << n.min(9)).min(Duration::from_secs(30)),
    }
}

impl Supervisor {
    /// Over a directory. `ended` is called with the name of each process that has ended by itself.
    pub fn new(dir: &Path, ended: impl Fn(&str) + Send + Sync + 'static) -> Supervisor {
        Supervisor {
            dir: dir.to_path_buf(),
            ended: Arc::new(ended),
            locks: Arc::default(),
            watched: Arc::default(),
            failed: Arc::default(),
        }
    }

    /// The directory of a process.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn mark(&self, name: &str) -> String {
        self.dir(name).display().to_string()
    }

    fn lock(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.locks.lock().entry(name.to_owned()).or_default().clone()
    }

    fn record(&self, name: &str) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.dir(name).join("process.json")).ok()?).ok()
    }

    fn keep(&self, name: &str, record: &Record) -> io::Result<()> {
        let content = serde_json::to_vec(record).map_err(io::Error::other)?;
        // what crashes the machine ends the process, too
        home::write_for_now(&self.dir(name).join("process.json"), &content, 0o600, None)
    }

    /// The living process of a name, if there is one: the one on record or, where none is on record, any that bears the marker. What a
    /// recorded one that died left behind bears the marker too, and is not it.
    pub fn find(&self, name: &str) -> Option<Seen> {
        let mark = self.mark(name);
        match self.record(name).filter(|record| record.pid != 0) {
            None => identity::leader(&mark),
            Some(record) => {
                let seen = identity::seen(record.pid)?;
                let same = seen.started == record.started && !seen.zombie;
                // a process that is just becoming another program (haproxy does to reload) has no environment for a moment: pid and start
                // time are its identity, and only another's marker speaks against it
                (same && identity::marker(seen.pid).is_none_or(|other| other == mark)).then_some(seen)
            }
        }
    }

    /// Every name below the directory that a living process bears, with its pid.
    pub fn alive(&self) -> Vec<(String, i32)> {
        let prefix = format!("{}/", self.dir.display());
        let marks = identity::marked(&prefix).into_iter();
        marks.filter_map(|(mark, pid)| Some((mark.strip_prefix(&prefix)?.to_owned(), pid))).collect()
    }

    /// Sees to it that the process of a name runs: finds it, or starts it, or says when it will.
    pub async fn ensure(&self, name: &str, program: &Program) -> io::Result<State> {
        self.ensure_after(name, program, false, || ()).await
    }

    /// The same; `clear` is called before a start, when nothing of the name lives. That nothing lives need not be looked for among all
    /// processes where it is `new`: what it works on was not there before.
    pub async fn ensure_after(
        &self,
        name: &str,
        program: &Program,
        new: bool,
        clear: impl FnOnce(),
    ) -> io::Result<State> {
        let lock = self.lock(name);
        let _alone = lock.lock().await;
        let dir = self.dir(name);
        let _ = logs::bound(&dir);
        let _ = home::tighten(&dir.join("process.json"), 0o600);
        let mut record = self.record(name).unwrap_or_default();
        let found = if new { None } else { self.find(name) };
        if let Some(seen) = found {
            let before = record.clone();
            if (seen.pid, seen.started) != (record.pid, record.started) {
                (record.pid, record.started, record.since) = (seen.pid, seen.started, now());
            }
            record.program = identity::program(seen.pid).or(record.program);
            if record != before {
                self.keep(name, &record)?;
            }
            self.watch(name, &seen, None);
            return Ok(State::Running(Running { pid: seen.pid, restarts: record.restarts, fresh: false }));
        }
        if record.pid != 0 {
            // it ended by itself, or with the machine
            let fine = now().saturating_sub(record.since) >= FINE;
            record.failures = if fine { 1 } else { record.failures.saturating_add(1) };
            record.restarts = record.restarts.saturating_add(1);
            self.end_rest(name, record.pid, record.program.as_deref()).await;
            record.pid = 0;
            self.keep(name, &record)?;
            self.failed.lock().insert(name.to_owned(), Instant::now());
        }
        let failed = self.failed.lock().get(name).copied();
        if let Some(at) = failed {
            let left = pause(record.failures).saturating_sub(at.elapsed());
            // the first start again is at once
            if record.failures > 1 && !left.is_zero() {
                return Ok(State::Waiting { pause: left, restarts: record.restarts });
            }
        }
        clear();
        record.said = fs::metadata(logs::path(&dir)).map(|meta| meta.len()).unwrap_or(0);
        // until it is seen what that becomes
        record.program = program.command.first().and_then(|program| fs::canonicalize(program).ok());
        let seen = self.start(name, program).await?;
        (record.pid, record.started, record.since) = (seen.pid, seen.started, now());
        self.keep(name, &record)?;
        Ok(State::Running(Running { pid: seen.pid, restarts: record.restarts, fresh: true }))
    }

    async fn start(&self, name: &str, program: &Program) -> io::Result<Seen> {
        let dir = self.dir(name);
        let log = logs::open(&dir)?;
        // setsid is util-linux's: it leads a new session and becomes the program, under the same pid
        let mut command = tokio::process::Command::new("setsid");
        command.args(&program.command).current_dir(&program.working_directory).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        command.envs(program.environment.iter().cloned()).env(MARKER, self.mark(name));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(false);
        if let Some(account) = &program.account {
            command.uid(account.uid).gid(account.gid);
        }
        let child = command.spawn()?;
        let pid = child.id().map(|pid| pid as i32).ok_or_else(|| io::Error::other("it ended at once"))?;
        let seen = identity::seen(pid).ok_or_else(|| io::Error::other("it ended at once"))?;
        self.watch(name, &seen, Some(child));
        Ok(seen)
    }

    /// Tells when a process ends. One that we started is reaped as well.
    fn watch(&self, name: &str, seen: &Seen, child: Option<tokio::process::Child>) {
        let identity = (seen.pid, seen.started);
        if self.watched.lock().insert(name.to_owned(), identity) == Some(identity) && child.is_none() {
            return;
        }
        let (name, supervisor, seen) = (name.to_owned(), self.clone(), seen.clone());
        tokio::spawn(async move {
            match child {
                Some(mut child) => drop(child.wait().await),
                None => ended(&seen).await,
            }
            let ours = {
                let mut watched = supervisor.watched.lock();
                let ours = watched.get(&name) == Some(&identity);
                if ours {
                    watched.remove(&name);
                }
                ours
            };
            if ours {
                (supervisor.ended)(&name);
            }
        });
    }

    /// Ends whatever a dead leader left behind.
    async fn end_rest(&self, name: &str, leader: i32, program: Option<&Path>) {
        let (mark, dir) = (self.mark(name), self.dir(name));
        for _ in 0..200 {
            let rest = identity::belonging(&mark, Some(leader).filter(|pid| *pid > 0), &dir, program);
            if rest.is_empty() {
                return;
            }
            for seen in rest {
                signal(&seen, Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the process of a name and all that belongs to it. Done when nothing of it lives.
    pub async fn stop(&self, name: &str, how: Stop) -> io::Result<()> {
        let lock = self.lock(name);
        let _alone = lock.lock().await;
        self.watched.lock().remove(name);
        let record = self.record(name).unwrap_or_default();
        if let Some(seen) = self.find(name) {
            let program = identity::program(seen.pid).or(record.program);
            signal(&seen, how.signal);
            if tokio::time::timeout(how.patience, ended(&seen)).await.is_err() {
                signal(&seen, Signal::KILL);
                let _ = tokio::time::timeout(Duration::from_secs(10), ended(&seen)).await;
            }
            self.end_rest(name, seen.pid, program.as_deref()).await;
        } else {
            self.end_rest(name, record.pid, record.program.as_deref()).await;
        }
        if self.find(name).is_some() {
            return Err(io::Error::other(format!("process {name} does not end")));
        }
        // a stop on purpose is no failure
        match fs::remove_file(self.dir(name).join("process.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.failed.lock().remove(name);
                Ok(())
            }
        }
    }

    /// What the process of a name has said since its last start, the end of it.
    pub fn last_words(&self, name: &str) -> String {
        let said = self.record(name).map_or(0, |record| record.said);
        logs::since(&self.dir(name), said).unwrap_or_default()
    }

    /// Sends a signal to the living process of a name: a reload, say. Whether there is one.
    pub fn signal(&self, name: &str, which: Signal) -> bool {
        self.find(name).is_some_and(|seen| signal(&seen, which))
    }
}

/// Sends a signal to this very process, never to another that got its pid.
fn signal(seen: &Seen, which: Signal) -> bool {
    let Some(fd) = hold(seen.pid) else { return false };
    let same = identity::seen(seen.pid).is_some_and(|now| now.started == seen.started);
    same && pidfd_send_signal(&fd, which).is_ok()
}

fn hold(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Waits until a process, anyone's child, has ended. It is looked at less and less often: tokio offers no safe way to be told.
async fn ended(seen: &Seen) {
    let mut pause = Duration::from_millis(1);
    while identity::seen(seen.pid).is_some_and(|now| now.started == seen.started && !now.zombie) {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn sleeper(dir: &Path, script: &str) -> Program {
        Program {
            command: vec!["sh".into(), "-c".into(), script.into()],
            environment: Vec::new(),
            account: None,
            working_directory: dir.to_path_buf(),
        }
    }

    fn set_up() -> (tempfile::TempDir, Supervisor, mpsc::UnboundedReceiver<String>) {
        let dir = tempfile::tempdir().expect("a directory");
        let (tell, told) = mpsc::unbounded_channel();
        let at = dir.path().canonicalize().expect("is there");
        fs::create_dir(at.join("one")).expect("made");
        let supervisor = Supervisor::new(&at, move |name| drop(tell.send(name.to_owned())));
        (dir, supervisor, told)
    }

    fn running(state: State) -> Running {
        match state {
            State::Running(running) => running,
            State::Waiting { .. } => panic!("does not run: {state:?}"),
        }
    }

    /// The program is there once `setsid` and `sh` have become it.
    async fn until(what: impl Fn() -> bool) {
        for _ in 0..500 {
            if what() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("does not happen");
    }

    #[tokio::test]
    async fn a_process_is_started_once_and_found_by_the_next_supervisor_without_its_record_too() {
        let (_dir, supervisor, _told) = set_up();
        let program = sleeper(&supervisor.dir("one"), "exec sleep 600");
        let first = running(supervisor.ensure("one", &program).await.expect("starts"));
        assert!(first.fresh);
        until(|| identity::leader(&supervisor.mark("one")).is_some()).await;
        let again = running(supervisor.ensure("one", &program).await.expect("finds"));
        assert_eq!((again.pid, again.fresh), (first.pid, false));
        let next = Supervisor::new(&supervisor.dir, |_| ());
        let adopted = running(next.ensure("one", &program).await.expect("finds"));
        assert_eq!((adopted.pid, adopted.fresh), (first.pid, false));
        fs::remove_file(next.dir("one").join("process.json")).expect("removed");
        let adopted = running(next.ensure("one", &program).await.expect("finds"));
        assert_eq!((adopted.pid, adopted.fresh), (first.pid, false));
        assert_eq!(next.alive(), [("one".to_owned(), first.pid)]);
        next.stop("one", Stop::default()).await.expect("ends");
        assert!(supervisor.find("one").is_none());
        assert!(next.alive().is_empty());
    }

    #[tokio::test]
    async fn one_that_is_killed_is_told_and_started_again_and_what_it_left_is_ended() {
        let (_dir, supervisor, mut told) = set_up();
        let dir = supervisor.dir("one");
        let program = sleeper(&dir, "sleep 600 & setsid sleep 601 & wait");
        let first = running(supervisor.ensure("one", &program).await.expect("starts"));
        let all = || identity::belonging(&supervisor.mark("one"), Some(first.pid), &dir, None);
        until(|| all().len() == 3).await;
        let children: Vec<i32> = all().iter().map(|s| s.pid).filter(|pid| *pid != first.pid).collect();
        signal(&supervisor.find("one").expect("runs"), Signal::KILL);
        assert_eq!(told.recv().await.as_deref(), Some("one"));
        let second = running(supervisor.ensure("one", &program).await.expect("starts"));
        assert!(second.fresh && second.pid != first.pid && second.restarts == 1);
        assert!(children.iter().all(|pid| identity::seen(*pid).is_none_or(|s| s.zombie)), "{children:?}");
        supervisor.stop("one", Stop { signal: Signal::TERM, patience: Duration::from_secs(5) }).await.expect("ends");
        assert!(identity::belonging(&supervisor.mark("one"), None, &dir, None).is_empty());
    }

    #[tokio::test]
    async fn who_only_stands_in_the_directory_is_left_alone() {
        let (_dir, supervisor, mut told) = set_up();
        let dir = supervisor.dir("one");
        let program = sleeper(&dir, "exec sleep 600");
        let first = running(supervisor.ensure("one", &program).await.expect("starts"));
        until(|| identity::program(first.pid).is_some_and(|program| program.ends_with("sleep"))).await;
        running(supervisor.ensure("one", &program).await.expect("finds"));
        let mut stands =
            std::process::Command::new("tail").args(["-f", "/dev/null"]).current_dir(&dir).spawn().expect("runs");
        // as what overwrites its environment and leads a session of its own
        let mut left = std::process::Command::new("sleep").arg("601").current_dir(&dir).spawn().expect("runs");
        signal(&supervisor.find("one").expect("runs"), Signal::KILL);
        assert_eq!(told.recv().await.as_deref(), Some("one"));
        assert!(running(supervisor.ensure("one", &program).await.expect("starts")).fresh);
        assert!(left.try_wait().expect("is ours").is_some(), "it runs the program of the dead one");
        supervisor.stop("one", Stop::default()).await.expect("ends");
        assert!(stands.try_wait().expect("is ours").is_none(), "it is somebody's");
        stands.kill().and_then(|()| stands.wait()).expect("ends");
    }

    #[tokio::test]
    async fn one_that_ends_at_once_is_started_less_and_less_often_and_its_words_are_kept() {
        let (_dir, supervisor, mut told) = set_up();
        let program = sleeper(&supervisor.dir("one"), "echo gone wrong; exit 1");
        running(supervisor.ensure("one", &program).await.expect("starts"));
        told.recv().await;
        running(supervisor.ensure("one", &program).await.expect("starts again at once"));
        told.recv().await;
        let state = supervisor.ensure("one", &program).await.expect("waits");
        assert!(matches!(state, State::Waiting { restarts: 2, .. }), "{state:?}");
        assert_eq!(logs::tail(&supervisor.dir("one"), 9).expect("is kept"), "gone wrong\ngone wrong");
        assert_eq!(supervisor.last_words("one"), "gone wrong");
        let steps: Vec<Duration> = (0..12).map(pause).collect();
        assert!(steps.is_sorted() && steps[11] == Duration::from_secs(30), "{steps:?}");
    }
}
