//! An instance's directory: its port, its data, and the copy of a prepared data directory that it begins as.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use conductor_local::Account;
use conductor_local::home::{self, write_whole};
use conductor_local::inside;
use serde::{Deserialize, Serialize};

/// Where ports are taken from: below those the kernel gives to clients.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// What is known of an instance besides its spec, durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The port it listens on.
    pub port: u16,
    /// The settings it was started with.
    pub at_start: String,
    /// The version its data was made by.
    pub version: String,
    /// Whether the copy it began as is on disk for good.
    pub synced: bool,
}

impl Facts {
    /// Those of an instance's directory.
    pub fn read(dir: &Path) -> Facts {
        let content = fs::read(dir.join("instance.json")).unwrap_or_default();
        serde_json::from_slice(&content).unwrap_or_default()
    }

    /// Keeps them.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        write_whole(&dir.join("instance.json"), &serde_json::to_vec(self).map_err(io::Error::other)?, 0o600)
    }
}

/// A directory outside of the home, for an account or for us: made, or ours already. Where others may make directories too, one of theirs
/// is refused.
pub fn own_directory(path: &Path, owner: Option<&Account>) -> io::Result<()> {
    let made = match fs::DirBuilder::new().mode(if owner.is_some() { 0o711 } else { 0o700 }).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        made => made.is_ok(),
    };
    let meta = fs::symlink_metadata(path)?;
    let ours = [Some(rustix::process::geteuid().as_raw()), owner.map(|account| account.uid)];
    if !meta.is_dir() || !ours.contains(&Some(meta.uid())) {
        let message = format!("{} is another's: remove it, or use a shorter --data-dir", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if !made {
        home::tighten(path, if owner.is_some() { 0o711 } else { 0o700 })?;
    }
    home::own(path, owner)
}

/// Whether nobody listens on a port.
pub fn is_free(address: &str, port: u16) -> bool {
    TcpListener::bind((address, port)).is_ok()
}

/// A port that nobody listens on and no other instance below `dirs` has. Where the search begins depends on the instance, so that
/// its port tends to be the same again.
pub fn choose_port(dirs: &[PathBuf], address: &str, uid: &str) -> Option<u16> {
    let each = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let taken: Vec<u16> = each.map(|entry| Facts::read(&entry.path()).port).collect();
    let count = u32::from(PORTS.end - PORTS.start);
    let begin = uid.bytes().fold(0u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(b))) % count;
    let ports = (0..count).map(|i| PORTS.start + ((begin + i) % count) as u16);
    ports.into_iter().find(|port| !taken.contains(port) && is_free(address, *port))
}

/// Copies a directory with all owners and times, sharing blocks where the file system can. Never hard links: a data directory that
/// shares files with another is lost.
pub async fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = tokio::process::Command::new("cp")
        .args(["-a", "--reflink=auto", "--"])
        .args([from, to])
        .kill_on_drop(true)
        .status()
        .await?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp: {status}"))) }
}

/// Removes a directory and all below it, if it is there.
pub async fn remove(dir: &Path) -> io::Result<()> {
    let dir = dir.to_path_buf();
    tokio::task::spawn_blocking(move || inside::remove(&dir)).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_anothers_is_not_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = dir.path().join("own");
        own_directory(&own, None).expect("is made");
        own_directory(&own, None).expect("is ours");
        assert_eq!(fs::metadata(&own).expect("is there").mode() & 0o777, 0o700);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).expect("links");
        let refused = own_directory(&link, None).expect_err("whose link it is cannot be told").to_string();
        assert!(refused.contains("another's"), "{refused}");
        if conductor_local::account::is_root() {
            std::os::unix::fs::chown(&own, Some(65_534), None).expect("may");
            own_directory(&own, None).expect_err("is another's");
        }
    }

    #[test]
    fn ports_are_free_and_nobody_elses() {
        let dir = tempfile::tempdir().expect("a directory");
        let dirs = [dir.path().to_path_buf()];
        let first = choose_port(&dirs, "127.0.0.1", "a").expect("one is free");
        assert!(PORTS.contains(&first));
        let one = dir.path().join("one");
        fs::create_dir(&one).expect("made");
        Facts { port: first, ..Facts::default() }.write(&one).expect("kept");
        assert_eq!(Facts::read(&one).port, first);
        let second = choose_port(&dirs, "127.0.0.1", "a").expect("one is free");
        assert_ne!(first, second);
        let _listening = TcpListener::bind(("127.0.0.1", second)).expect("binds");
        let third = choose_port(&dirs, "127.0.0.1", "a").expect("one is free");
        assert!(third != first && third != second);
    }
}
