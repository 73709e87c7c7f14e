//! Directories that are in one another: what is written to, or scrubbed from, one of them is so in the other.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use conductor_local::{Object, Trouble};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};

use crate::spec::DirectorySpec;
use crate::{API_VERSION, file_name};

/// What every machine stands on: whoever has one of these for a volume has the machine, and a scrub would end it.
const MACHINE: [&str; 14] = [
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var",
];
/// What is no file of anybody's.
const KERNEL: [&str; 2] = ["/proc", "/sys"];

/// Whether a directory is another one or below it, under whatever names. What is not there is in nothing.
fn within(inner: &Path, outer: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let (Ok(inner), Some(outer)) = (fs::canonicalize(inner), id(outer)) else { return false };
    inner.ancestors().any(|path| id(path) == Some(outer))
}

/// Whether two directories are the same or one is below the other.
fn overlap(one: &Path, other: &Path) -> bool {
    within(one, other) || within(other, one)
}

/// Who of two stands: who was of use before, then the older.
fn rank(object: &Object) -> (bool, &str, &str) {
    (!object.was_ready(), object.0["metadata"]["creationTimestamp"].as_str().unwrap_or_default(), object.uid())
}

/// The other DirectoryVolumes whose directory is also in part this one's, the one that stands first, first.
pub async fn others(client: &kube::Client, object: &Object, path: &Path) -> Result<Vec<Object>, Trouble> {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    let kind = GroupVersionKind::gvk(group, version, "DirectoryVolume");
    let kind = ApiResource::from_gvk_with_plural(&kind, "directoryvolumes");
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let all = all.list(&ListParams::default()).await?;
    let all = all.items.iter().map(|item| Object(serde_json::to_value(item).unwrap_or_default()));
    let mut found: Vec<Object> = all
        .filter(|other| other.uid() != object.uid())
        .filter(|other| {
            let declared = other.spec::<DirectorySpec>().and_then(|spec| spec.path()).ok().flatten();
            declared.is_some_and(|declared| overlap(path, &declared))
        })
        .collect();
    found.sort_by(|a, b| rank(a).cmp(&rank(b)));
    Ok(found)
}

/// Refuses a declared directory that is in part another volume's, which was there first, or holds what is Conductor's own (`kept`) or the
/// machine's.
pub fn refuse(object: &Object, path: &Path, kept: &[PathBuf], others: &[Object]) -> Result<(), Trouble> {
    if let Some(kept) = kept.iter().find(|kept| overlap(path, kept)) {
        let message =
            format!("in {} is what Conductor itself keeps in {}: declare another", path.display(), kept.display());
        return Err(Trouble::new("Overlaps", message));
    }
    let mut needed = MACHINE.iter().filter(|of| within(Path::new(of), path));
    let mut no_files = KERNEL.iter().filter(|of| within(path, Path::new(of)));
    if let Some(needed) = needed.next().or_else(|| no_files.next()) {
        let message = format!(
            "{} is the machine's own ({needed}): declare a directory that is for the volume alone",
            path.display()
        );
        return Err(Trouble::new("Overlaps", message));
    }
    match others.first().filter(|other| rank(other) < rank(object)) {
        None => Ok(()),
        Some(other) => Err(Trouble::new(
            "Overlaps",
            format!(
                "{} is in part the directory of DirectoryVolume {}: what is in it would be two claims', declare another or delete one of both",
                path.display(),
                file_name(other)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn directories_overlap_under_whatever_names() {
        let dir = tempfile::tempdir().expect("is made");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b/c")).expect("is made");
        fs::create_dir_all(at("ab")).expect("is made");
        std::os::unix::fs::symlink(at("a"), at("link")).expect("links");
        let check = |one: &str, other: &str, expected: bool| {
            assert_eq!(overlap(&at(one), &at(other)), expected, "{one} {other}");
            assert_eq!(overlap(&at(other), &at(one)), expected, "{other} {one}");
        };
        check("a", "a", true);
        check("a", "a/", true);
        check("a", "a/b/c", true);
        check("a", "ab", false);
        check("link/b", "a", true);
        check("link/b", "a/b/c", true);
        check("a/b", "ab", false);
        check("a", "missing", false);
    }

    #[test]
    fn the_first_of_two_stands() {
        let dir = tempfile::tempdir().expect("is made");
        let object = |uid: &str, created: &str, ready: Option<&str>| {
            Object(json!({
                "metadata": {"name": uid, "namespace": "conductor-system", "uid": uid, "creationTimestamp": created},
                "status": {"readySince": ready},
            }))
        };
        let (old, new) = (object("z", "2026-01-01T00:00:00Z", None), object("a", "2026-01-02T00:00:00Z", None));
        let used = object("b", "2026-01-03T00:00:00Z", Some("2026-01-03T00:00:00Z"));
        let elsewhere = tempfile::tempdir().expect("is made");
        let check = |own: &Object, other: &Object, fine: bool| {
            let refused = refuse(own, dir.path(), &[elsewhere.path().to_owned()], std::slice::from_ref(other));
            assert_eq!(refused.is_ok(), fine, "{refused:?}");
        };
        check(&old, &new, true);
        check(&new, &old, false);
        check(&old, &used, false);
        check(&used, &old, true);
        assert!(refuse(&old, dir.path(), &[dir.path().join(".")], &[]).is_err(), "it is Conductor's own");
        for machines in ["/etc", "/usr", "/var", "/proc", "/proc/self", "/sys/kernel", "/dev", "/tmp/../etc"] {
            assert!(refuse(&old, Path::new(machines), &[], &[]).is_err(), "{machines}");
        }
    }
}
