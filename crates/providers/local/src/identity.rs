//! Who a process is, as /proc says: a pid alone is reused, a pid with its start time and a marker of ours is not.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable in a supervised process' environment that says whose it is.
pub const MARKER: &str = "CONDUCTOR_PROCESS";

/// One process as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub pid: i32,
    /// When it started, in clock ticks since the machine did.
    pub started: u64,
    /// The session it is in; the leader's is its own pid.
    pub session: i32,
    /// Whether it has ended and only waits to be reaped.
    pub zombie: bool,
}

/// The process with this pid.
pub fn seen(pid: i32) -> Option<Seen> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `/proc/PID/stat`. The command's name is in parentheses and may hold anything, parentheses too.
fn parse_stat(stat: &str) -> Option<Seen> {
    let (pid, rest) = stat.split_once(' ')?;
    let rest: Vec<&str> = rest.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Seen {
        pid: pid.parse().ok()?,
        zombie: matches!(*rest.first()?, "Z" | "X" | "x"),
        session: rest.get(3)?.parse().ok()?,
        started: rest.get(19)?.parse().ok()?,
    })
}

/// How often an environment is looked at, a millisecond apart, that shows nothing.
const LOOKS: usize = 10;

/// What a process' environment says under [`MARKER`]; `None` too if we may not look.
pub fn marker(pid: i32) -> Option<String> {
    let mut environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    // while a program becomes another it shows none; threads of the kernel never do, and are no program
    let mut looks = 0;
    while environment.is_empty() && looks < LOOKS && fs::read_link(format!("/proc/{pid}/exe")).is_ok() {
        looks += 1;
        std::thread::sleep(Duration::from_millis(1));
        environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    }
    let prefix = format!("{MARKER}=");
    let found = environment.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()))?;
    String::from_utf8(found.to_vec()).ok()
}

/// Every process there is.
pub fn all() -> Vec<Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(seen).filter(|seen| !seen.zombie).collect()
}

/// The oldest living process that leads its session and bears this marker: its descendants inherit the marker.
pub fn leader(mark: &str) -> Option<Seen> {
    let leaders =
        all().into_iter().filter(|seen| seen.session == seen.pid && marker(seen.pid).as_deref() == Some(mark));
    leaders.min_by_key(|seen| (seen.started, seen.pid))
}

/// Living processes that belong to a marker: by their environment, by their session (`leader`'s), or because they work in a
/// directory below it, which nobody else can. PostgreSQL's children overwrite their environment and have sessions of their own. Who is who
/// we are may only be standing there, to look at it or to copy it: such a one must run the leader's program, as far as that is known.
pub fn belonging(mark: &str, leader: Option<i32>, dir: &Path, leads: Option<&Path>) -> Vec<Seen> {
    let (own, us) = (std::process::id() as i32, rustix::process::geteuid().as_raw());
    let stands = |pid: i32| {
        user(pid).is_none_or(|user| user == us) && leads.is_some_and(|it| program(pid).as_deref() != Some(it))
    };
    let ours = |seen: &Seen| {
        Some(seen.session) == leader
            || marker(seen.pid).as_deref() == Some(mark)
            || (working_directory(seen.pid).is_some_and(|at| at.starts_with(dir)) && !stands(seen.pid))
    };
    all().into_iter().filter(|seen| seen.pid != own && ours(seen)).collect()
}

/// Markers below a prefix that living session leaders bear, with their pids.
pub fn marked(prefix: &str) -> BTreeSet<(String, i32)> {
    let leaders = all().into_iter().filter(|seen| seen.session == seen.pid);
    let marks = leaders.filter_map(|seen| Some((marker(seen.pid)?, seen.pid)));
    marks.filter(|(mark, _)| mark.starts_with(prefix)).collect()
}

fn working_directory(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// The program that a process runs, under the name it had, should it have been replaced since.
pub fn program(pid: i32) -> Option<PathBuf> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let bytes = program.as_os_str().as_encoded_bytes();
    Some(bytes.strip_suffix(b" (deleted)").map_or(program.clone(), |name| PathBuf::from(OsStr::from_bytes(name))))
}

/// Who a process runs as.
fn user(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Resident memory in bytes that a process does not share with others, as far as the kernel says.
pub fn private_memory(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let private = rollup.lines().filter(|line| line.starts_with("Private_Clean") || line.starts_with("Private_Dirty"));
    Some(private.filter_map(kilobytes).sum::<u64>() * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_command_is_called() {
        let check = |stat: &str, expected: Option<(i32, i32, u64, bool)>| {
            let seen = parse_stat(stat).map(|s| (s.pid, s.session, s.started, s.zombie));
            assert_eq!(seen, expected, "{stat}");
        };
        let tail = "1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        check(&format!("12 (sleep) S {tail}"), Some((12, 7, 4711, false)));
        check(&format!("12 (a) b) Z {tail}"), Some((12, 7, 4711, true)));
        check("12 (sleep) S 1", None);
        check("", None);
    }

    #[test]
    fn this_process_is_seen() {
        let own = std::process::id() as i32;
        let seen = seen(own).expect("is there");
        assert!(!seen.zombie && seen.pid == own);
        assert!(all().contains(&seen));
    }
}
