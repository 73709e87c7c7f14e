//! What is left of a data directory that was removed while something of it ran: nobody looks after that any more.

use std::fs;
use std::path::{Path, PathBuf};

use crate::identity;
use crate::kind::Finding;

/// Where homes are that cannot be in their data directory.
pub const HOMES: &str = "/var/lib/conductor";
/// The link in there that shows the data directory.
pub const OWNER: &str = "of";

/// Whether a rule is about what another system left behind, which is nothing that this one's state could be wrong by.
pub fn is_elsewhere(invariant: &str) -> bool {
    invariant.ends_with("-has-data-directory")
}

/// Homes whose data directory is gone, with where that was.
fn homes(all: &Path) -> Vec<(PathBuf, PathBuf)> {
    let each = fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path());
    let owned = each.filter_map(|home| Some((fs::read_link(home.join(OWNER)).ok()?, home)));
    owned.filter(|(owner, _)| !owner.exists()).map(|(owner, home)| (home, owner)).collect()
}

/// Whether a path is below a provider's home.
pub fn is_of(path: &Path, provider: &str) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str()).rev().skip(1).peekable();
    let below = |part: &std::ffi::OsStr| part == "providers";
    while let Some(part) = parts.next() {
        if part == provider && (path.starts_with(HOMES) || parts.peek().is_some_and(|above| below(above))) {
            return true;
        }
    }
    false
}

/// What is left of a provider's elsewhere: not below its own home, which it looks at itself.
pub fn audit(provider: &str, own: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let gone = homes(Path::new(HOMES));
    for (mark, pid) in identity::marked("/") {
        let path = Path::new(&mark);
        let lost = !path.exists() || gone.iter().any(|(home, _)| path.starts_with(home));
        if lost && !path.starts_with(own) && is_of(path, provider) {
            findings.push(Finding {
                object: format!("process {pid}"),
                invariant: "process-has-data-directory".into(),
                message: format!("the data directory that it belongs to ({mark}) was removed: kill {pid}"),
            });
        }
    }
    for (home, owner) in gone.iter().filter(|(home, _)| !own.starts_with(home)) {
        let dir = home.join(provider);
        if dir.exists() {
            findings.push(Finding {
                object: dir.display().to_string(),
                invariant: "home-has-data-directory".into(),
                message: format!(
                    "the data directory that it belongs to ({}) was removed: end what runs and unmount what is mounted there, then remove it",
                    owner.parent().unwrap_or(owner).display()
                ),
            });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_providers() {
        let check = |path: &str, expected: bool| assert_eq!(is_of(Path::new(path), "databases"), expected, "{path}");
        check("/d/providers/databases/postgres/1", true);
        check("/var/lib/conductor/0123/databases/postgres/1", true);
        check("/d/providers/balancers/databases", false);
        check("/d/databases/postgres/1", false);
        check("/d/providers/databases", false);
    }

    #[test]
    fn what_another_system_left_is_told_from_what_this_one_did() {
        for (rule, expected) in [
            ("home-has-data-directory", true),
            ("process-has-data-directory", true),
            ("loop-device-has-data-directory", true),
            ("no-leftover-directory", false),
            ("data-there", false),
        ] {
            assert_eq!(is_elsewhere(rule), expected, "{rule}");
        }
    }

    #[test]
    fn a_home_without_its_data_directory_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data/providers");
        fs::create_dir_all(&data).expect("made");
        for (name, owner) in [("kept", &data), ("left", &dir.path().join("gone/providers"))] {
            fs::create_dir_all(dir.path().join("homes").join(name)).expect("made");
            std::os::unix::fs::symlink(owner, dir.path().join("homes").join(name).join(OWNER)).expect("links");
        }
        fs::create_dir_all(dir.path().join("homes/unknown")).expect("made");
        let found: Vec<PathBuf> = homes(&dir.path().join("homes")).into_iter().map(|(home, _)| home).collect();
        assert_eq!(found, [dir.path().join("homes/left")]);
    }
}
