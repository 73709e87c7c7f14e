//! What the specs of volumes say, read strictly.

use std::path::{Component, Path, PathBuf};

use conductor_local::Trouble;
use conductor_machinery::quantity::{Format, Quantity};
use serde::Deserialize;
use serde_json::Value;

use crate::image::FileSystem;
use crate::scrub::Method;

/// What both kinds have: how they appear as a PersistentVolume, and who owns what is in them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Shown {
    /// The class of the PersistentVolume; only for volumes that an administrator declares.
    pub storage_class_name: String,
    /// Its access modes.
    pub access_modes: Vec<String>,
    /// What becomes of it: Retain, Delete or Recycle.
    pub reclaim_policy: String,
    /// Owner of the root directory, `UID:GID`.
    pub owner: String,
    /// Its mode, octal.
    pub mode: String,
    /// How many times the disk may be promised to all volumes.
    pub overcommit: Option<u64>,
}

/// An ImageVolume's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSpec {
    size: Value,
    file_system: String,
    scrub_method: String,
    /// Whether its blocks are taken from the disk at once.
    pub preallocate: bool,
    mount_options: Vec<String>,
    directory: String,
    /// How it appears.
    #[serde(flatten)]
    pub shown: Shown,
}

/// A DirectoryVolume's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DirectorySpec {
    size: Value,
    path: String,
    scrub_method: String,
    /// How it appears.
    #[serde(flatten)]
    pub shown: Shown,
}

fn invalid(message: String) -> Trouble {
    Trouble::new("Invalid", message)
}

fn bytes(size: &Value) -> Result<u64, Trouble> {
    let wrong = || invalid(format!("spec.size is {size}: say an amount such as 10Gi"));
    let size = Quantity::from_json(size).map_err(|_| wrong())?;
    size.as_i64().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0 && *n < 1 << 60).ok_or_else(wrong)
}

fn method(text: &str) -> Result<Method, Trouble> {
    if text.is_empty() {
        return Ok(Method::Discard);
    }
    Method::parse(text).ok_or_else(|| invalid(format!("spec.scrubMethod is {text}: say discard, zero or shred")))
}

/// A path that means one place: absolute, without `.` and `..`.
fn plain(text: &str, field: &str) -> Result<PathBuf, Trouble> {
    let path = Path::new(text);
    let plain = path.is_absolute() && path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    match plain && path != Path::new("/") && !text.contains('\0') {
        true => Ok(path.to_owned()),
        false => Err(invalid(format!("{field} is {text:?}: say an absolute path below /, without . and .."))),
    }
}

impl ImageSpec {
    /// How large it is to be, in whole blocks.
    pub fn size(&self) -> Result<u64, Trouble> {
        Ok(self.file_system()?.size_for(bytes(&self.size)?))
    }

    /// What is in it.
    pub fn file_system(&self) -> Result<FileSystem, Trouble> {
        let text = if self.file_system.is_empty() { "ext4" } else { &self.file_system };
        FileSystem::parse(text).ok_or_else(|| invalid(format!("spec.fileSystem is {text}: say ext4 or xfs")))
    }

    /// How it is scrubbed.
    pub fn method(&self) -> Result<Method, Trouble> {
        method(&self.scrub_method)
    }

    /// Options for `mount`; none may smuggle in a second one.
    pub fn mount_options(&self) -> Result<&[String], Trouble> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_=:.-".contains(c);
        match self.mount_options.iter().find(|option| option.is_empty() || !option.chars().all(plain)) {
            Some(option) => Err(invalid(format!("spec.mountOptions has {option:?}: write one option per entry"))),
            None => Ok(&self.mount_options),
        }
    }

    /// Where its image is kept, if not with the others.
    pub fn directory(&self) -> Result<Option<PathBuf>, Trouble> {
        if self.directory.is_empty() { Ok(None) } else { plain(&self.directory, "spec.directory").map(Some) }
    }
}

impl DirectorySpec {
    /// How large it is said to be; nothing enforces it.
    pub fn size(&self) -> Result<u64, Trouble> {
        bytes(&self.size)
    }

    /// The directory an administrator declares; `None`: one of our own.
    pub fn path(&self) -> Result<Option<PathBuf>, Trouble> {
        if self.path.is_empty() { Ok(None) } else { plain(&self.path, "spec.path").map(Some) }
    }

    /// How it is scrubbed.
    pub fn method(&self) -> Result<Method, Trouble> {
        method(&self.scrub_method)
    }
}

impl Shown {
    /// Owner and mode of the root directory, as far as they are said.
    pub fn permissions(&self) -> Result<(Option<(u32, u32)>, Option<u32>), Trouble> {
        let owner = match self.owner.as_str() {
            "" => None,
            text => {
                let ids = text.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
                Some(ids.ok_or_else(|| invalid(format!("spec.owner is {text}: say UID:GID in numbers")))?)
            }
        };
        let mode = match self.mode.as_str() {
            "" => None,
            text => {
                let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777);
                Some(mode.ok_or_else(|| invalid(format!("spec.mode is {text}: say it in octal, 0770")))?)
            }
        };
        Ok((owner, mode))
    }
}

/// An amount of bytes, as people write it.
pub fn amount(bytes: u64) -> String {
    Quantity::new(i64::try_from(bytes).unwrap_or(i64::MAX), Format::BinarySi).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_read_strictly() {
        let check = |spec: Value, expected: Result<u64, &str>| {
            let spec: ImageSpec = serde_json::from_value(spec).expect("is read");
            let all = || {
                spec.method()?;
                spec.mount_options()?;
                spec.directory()?;
                spec.shown.permissions()?;
                spec.size()
            };
            match (all(), expected) {
                (Ok(size), Ok(expected)) => assert_eq!(size, expected, "{spec:?}"),
                (Err(trouble), Err(word)) => assert!(trouble.message.contains(word), "{trouble}"),
                (outcome, expected) => panic!("{spec:?}: {outcome:?}, not {expected:?}"),
            }
        };
        check(json!({"size": "64Mi"}), Ok(64 << 20));
        check(json!({"size": "1Gi", "fileSystem": "xfs", "scrubMethod": "shred", "scrub": 3}), Ok(1 << 30));
        check(json!({"size": 5_000_000, "owner": "1000:1000", "mode": "0770"}), Ok(5_001_216));
        check(json!({}), Err("size"));
        check(json!({"size": "-1Gi"}), Err("size"));
        check(json!({"size": "1Gi", "fileSystem": "btrfs"}), Err("ext4 or xfs"));
        check(json!({"size": "1Gi", "scrubMethod": "pray"}), Err("discard, zero or shred"));
        check(json!({"size": "1Gi", "mountOptions": ["noatime,suid"]}), Err("one option"));
        check(json!({"size": "1Gi", "mountOptions": ["noatime", "logbufs=8"]}), Ok(1 << 30));
        check(json!({"size": "1Gi", "directory": "/srv/../etc"}), Err("without"));
        check(json!({"size": "1Gi", "owner": "root"}), Err("UID:GID"));
        check(json!({"size": "1Gi", "mode": "4755"}), Err("octal"));
    }

    #[test]
    fn directories_are_one_place() {
        let check = |path: &str, fine: bool| {
            let spec: DirectorySpec = serde_json::from_value(json!({"size": "1Gi", "path": path})).expect("is read");
            assert_eq!(spec.path().is_ok(), fine, "{path}");
        };
        check("", true);
        check("/srv/data", true);
        check("srv/data", false);
        check("/", false);
        check("/srv/../etc", false);
    }
}
