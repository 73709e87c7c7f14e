//! Processes that outlive xtask, known by a pid file in the state directory.
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::repository;

/// Starts `argv` as process `name` in a session of its own, so that neither xtask's end nor a
/// closed terminal ends it. It logs to `DIR/NAME.log`.
pub fn start(dir: &Path, name: &str, argv: &[String]) -> anyhow::Result<()> {
    if pid(dir, name).is_some() {
        bail!("{name} is already running in {}", dir.display());
    }
    let log = File::options().create(true).append(true).open(dir.join(format!("{name}.log")))?;
    // `setsid` replaces itself by the program: the pid stays that of the child.
    let setsid = repository::find_program("setsid", &[]);
    let mut words = setsid.iter().map(|p| p.as_os_str()).chain(argv.iter().map(|a| a.as_ref()));
    let mut command = Command::new(words.next().context("nothing to start")?);
    command.args(words).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    if setsid.is_none() {
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    let child = command.spawn().with_context(|| format!("starting {name} ({})", argv[0]))?;
    let pid = i32::try_from(child.id())?;
    let born = birth(pid).with_context(|| format!("{name} ended at once"))?;
    fs::write(dir.join(format!("{name}.pid")), format!("{pid} {born}"))?;
    Ok(())
}

/// The pid of process `name`, if it runs.
pub fn pid(dir: &Path, name: &str) -> Option<Pid> {
    let text = fs::read_to_string(dir.join(format!("{name}.pid"))).ok()?;
    let (pid, born) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok()?;
    if birth(pid)? == born { Pid::from_raw(pid) } else { None }
}

/// When a living process was started, in whatever unit the system has. With the pid it tells a
/// process from a later one that got the same pid. A zombie does not live.
fn birth(pid: i32) -> Option<String> {
    if !Path::new("/proc/self/stat").exists() {
        let output = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
        let born = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        return Some(born).filter(|b| !b.is_empty());
    }
    // `pid (name) state ...`: the name may hold anything, so fields count from the last parenthesis.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18).map(String::from),
    }
}

/// Ends process `name`: asks, waits for `patience`, then kills. Fine if it does not run.
pub fn stop(dir: &Path, name: &str, patience: Duration) -> anyhow::Result<()> {
    end(dir, name, &[(Signal::TERM, patience), AT_ONCE])
}

/// Ends process `name` without a chance to tidy up. Fine if it does not run.
pub fn kill(dir: &Path, name: &str) -> anyhow::Result<()> {
    end(dir, name, &[AT_ONCE])
}

/// The patience is for the system, which may have much to take down.
const AT_ONCE: (Signal, Duration) = (Signal::KILL, Duration::from_secs(10));

fn end(dir: &Path, name: &str, signals: &[(Signal, Duration)]) -> anyhow::Result<()> {
    for &(signal, patience) in signals {
        let Some(pid) = pid(dir, name) else { return Ok(()) };
        // It may end between the look and the signal.
        let _ = kill_process(pid, signal);
        let start = Instant::now();
        while self::pid(dir, name).is_some() && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(10));
        }
    }
    match pid(dir, name) {
        None => Ok(()),
        Some(pid) => bail!("{name} (pid {pid}) does not end, not even when killed"),
    }
}

/// The last lines of a process's log.
pub fn log_tail(dir: &Path, name: &str) -> String {
    let log = fs::read(dir.join(format!("{name}.log"))).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_started_found_and_stopped() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let argv = |script: &str| ["sh", "-c", script].map(String::from).to_vec();
        assert_eq!(pid(dir, "sleeper"), None);
        start(dir, "sleeper", &argv("echo up; while :; do sleep 0.05; done")).expect("started");
        let own = pid(dir, "sleeper").expect("running");
        assert!(start(dir, "sleeper", &argv("true")).is_err(), "started twice");
        // Only the signal can have ended it; by then it has spoken.
        while log_tail(dir, "sleeper").is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        stop(dir, "sleeper", Duration::from_secs(5)).expect("stopped");
        assert_eq!(pid(dir, "sleeper"), None);
        kill(dir, "sleeper").expect("stopped already");
        assert_eq!(log_tail(dir, "sleeper"), "up");

        // A pid that by now belongs to someone else is not ours.
        let other = std::process::id();
        assert_ne!(own.as_raw_nonzero().get() as u32, other);
        fs::write(dir.join("sleeper.pid"), format!("{other} 1")).expect("written");
        assert_eq!(pid(dir, "sleeper"), None);
    }
}
