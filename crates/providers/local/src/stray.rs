//! What is left of a data directory that was removed while something of it ran: nobody looks after that any more.

use std::fs;
use std::io::ErrorKind;
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

/// Whether a path is known not to be there: what we may not look at is somebody else's, and may well be.
pub fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

/// The `providers` of the data directory that a home is of: the one that the home names and that leads to it. Where we may not look it
/// may well be.
pub fn owner(home: &Path) -> Option<PathBuf> {
    let named = fs::read_link(home.with_file_name(OWNER)).ok()?;
    let led = match fs::read_link(named.join(home.file_name()?)) {
        Ok(there) => there == home,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput),
    };
    led.then_some(named)
}

/// Homes of a provider whose data directory is gone, with where that was.
fn homes(all: &Path, provider: &str) -> Vec<(PathBuf, PathBuf)> {
    let each = fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path().join(provider));
    let left = each.filter(|home| home.is_dir() && owner(home).is_none());
    left.filter_map(|home| Some((fs::read_link(home.with_file_name(OWNER)).ok()?, home)))
        .map(|(named, home)| (home, named))
        .collect()
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
    let gone = homes(Path::new(HOMES), provider);
    for (mark, pid) in identity::marked("/") {
        let path = Path::new(&mark);
        let lost = is_gone(path) || gone.iter().any(|(home, _)| path.starts_with(home));
        if lost && !path.starts_with(own) && is_of(path, provider) {
            findings.push(Finding {
                object: format!("process {pid}"),
                invariant: "process-has-data-directory".into(),
                message: format!("the data directory that it belongs to ({mark}) was removed: kill {pid}"),
            });
        }
    }
    findings.extend(left(&gone, own));
    findings
}

/// What is said of homes without a data directory, all but our own.
fn left(gone: &[(PathBuf, PathBuf)], own: &Path) -> Vec<Finding> {
    let others = gone.iter().filter(|(home, _)| home != own);
    let each = others.map(|(home, named)| Finding {
        object: home.display().to_string(),
        invariant: "home-has-data-directory".into(),
        message: format!(
            "the data directory that it belongs to ({}) was removed or moved: start one that was moved where it is now; for one that \
             was removed, end what runs and unmount what is mounted there, then remove it",
            named.parent().unwrap_or(named).display()
        ),
    });
    each.collect()
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
        let home = |name: &str| dir.path().join("homes").join(name).join("databases");
        let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at);
        for (name, owner) in [("kept", &data), ("other", &data), ("left", &dir.path().join("gone/providers"))] {
            fs::create_dir_all(home(name)).expect("made");
            link(owner, &home(name).with_file_name(OWNER)).expect("links");
        }
        link(&home("kept"), &data.join("databases")).expect("links");
        fs::create_dir_all(home("unknown")).expect("made");
        let mut found: Vec<PathBuf> =
            homes(&dir.path().join("homes"), "databases").into_iter().map(|(home, _)| home).collect();
        found.sort();
        assert_eq!(found, [home("left"), home("other")]);
        assert_eq!(homes(&dir.path().join("homes"), "volumes"), []);
        let said = left(&homes(&dir.path().join("homes"), "databases"), &home("left"));
        assert_eq!(said.len(), 1, "nobody counts what is its own: {said:?}");
        assert_eq!(owner(&home("kept")), Some(data.clone()));

        // what cannot be looked at is not gone: a loop of links cannot, whoever asks
        let knot = dir.path().join("knot");
        std::os::unix::fs::symlink(&knot, &knot).expect("links");
        assert!(!is_gone(&knot) && is_gone(&dir.path().join("nothing")) && !is_gone(&data));
    }
}
