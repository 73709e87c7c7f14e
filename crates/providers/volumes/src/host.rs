//! The host's own programs: `mkfs`, `mount`, `losetup`.
//!
//! Loop devices are set up by `ioctl`, which is unsafe code that this workspace has none of; making a file system takes the host's
//! program anyway; and util-linux, which every Debian has, settles races for a free loop device. So the programs it is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It is not installed.
    #[error("{program} is not installed: {remedy}")]
    Missing {
        /// The program.
        program: String,
        /// What to do.
        remedy: String,
    },
    /// It ran and failed.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program.
        program: String,
        /// Its last words.
        said: String,
    },
}

/// Where a program is.
pub fn find(program: &str) -> Option<PathBuf> {
    conductor_local::lack::find_program(program, &[])
}

/// The Debian package a program comes with.
pub fn package_of(program: &str) -> &'static str {
    match program {
        "mkfs.xfs" | "xfs_growfs" => "xfsprogs",
        "mkfs.ext4" | "resize2fs" | "e2fsck" => "e2fsprogs",
        _ => "mount util-linux",
    }
}

/// Runs a program to its end; what it printed.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<String, HostError> {
    run_until(program, arguments, |code| code == 0)
}

/// Runs a program whose success has more than one number.
pub fn run_until<A: AsRef<OsStr>>(
    program: &str,
    arguments: &[A],
    fine: impl Fn(i32) -> bool,
) -> Result<String, HostError> {
    let failed = |said: String| HostError::Failed { program: program.to_owned(), said };
    let Some(path) = find(program) else {
        let remedy = format!("apt-get install {}", package_of(program));
        return Err(HostError::Missing { program: program.to_owned(), remedy });
    };
    let output = Command::new(path)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.code().is_some_and(fine) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [&output.stderr, &output.stdout].map(|said| String::from_utf8_lossy(said).trim().to_owned());
    let said = said.into_iter().find(|said| !said.is_empty()).unwrap_or_else(|| output.status.to_string());
    Err(failed(shortened(&said)))
}

/// The end of a long text, where the reason usually is, in one line.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = line.char_indices().rev().nth(300).map_or(0, |(at, _)| at);
    line[start..].to_owned()
}

/// Text of a path for a program's arguments.
pub fn text(path: &Path) -> &OsStr {
    path.as_os_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_say_why_they_failed() {
        assert_eq!(run("echo", &["a"]).expect("runs"), "a\n");
        let missing = run("mkfs.nothing", &["a"]).expect_err("is not there").to_string();
        assert!(missing.contains("not installed") && missing.contains("apt-get install"), "{missing}");
        let failed = run("ls", &["/nowhere/at/all"]).expect_err("fails").to_string();
        assert!(failed.contains("/nowhere/at/all") && !failed.contains('\n'), "{failed}");
        assert!(run_until("false", &[] as &[&str], |code| code == 1).is_ok());
    }

    #[test]
    fn long_texts_keep_their_end() {
        assert_eq!(shortened("a\n b"), "a b");
        let long = shortened(&format!("{}ä end", "ö".repeat(1000)));
        assert!(long.ends_with("ä end") && long.chars().count() == 301, "{long}");
    }
}
