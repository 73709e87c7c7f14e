//! An instance's directory: its port, its data, and the copy of a prepared data directory that it begins as.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use conductor_local::Account;
use conductor_local::account::OWN_IDS;
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
    /// The id its server runs as, its own; 0: the engine's account.
    pub account: u32,
    /// How much memory it was promised; 0: that was not kept.
    pub memory: u64,
    /// The database that was made in it; empty: none yet, or that was not kept.
    pub database: String,
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

/// A directory that only an account or, without one, only we can enter: made, or its or ours already. Where others may make directories
/// too, one of theirs is refused.
pub fn own_directory(path: &Path, owner: Option<&Account>) -> io::Result<()> {
    let made = match fs::DirBuilder::new().mode(0o700).create(path) {
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
        home::tighten(path, 0o700)?;
    }
    home::own(path, owner)
}

/// Whether nobody listens on a port.
pub fn is_free(address: &str, port: u16) -> bool {
    TcpListener::bind((address, port)).is_ok()
}

/// The facts of every instance below `dirs`.
fn all_facts(dirs: &[PathBuf]) -> Vec<Facts> {
    let each = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    each.map(|entry| Facts::read(&entry.path())).collect()
}

/// Where the search of an instance begins, among so many: so that what it is given tends to be the same again, and another's is another.
fn begin(uid: &str, count: u32) -> u32 {
    uid.bytes().fold(0x811c_9dc5u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193)) % count
}

/// A port that nobody listens on and no other instance below `dirs` has.
pub fn choose_port(dirs: &[PathBuf], address: &str, uid: &str) -> Option<u16> {
    let taken: Vec<u16> = all_facts(dirs).iter().map(|facts| facts.port).collect();
    let count = u32::from(PORTS.end - PORTS.start);
    let begin = begin(uid, count);
    let ports = (0..count).map(|i| PORTS.start + ((begin + i) % count) as u16);
    ports.into_iter().find(|port| !taken.contains(port) && is_free(address, *port))
}

/// An id that no other instance below `dirs` runs as.
pub fn choose_account(dirs: &[PathBuf], uid: &str) -> u32 {
    let taken: Vec<u32> = all_facts(dirs).iter().map(|facts| facts.account).collect();
    let count = OWN_IDS.end - OWN_IDS.start;
    let begin = begin(uid, count);
    let mut ids = (0..count).map(|i| OWN_IDS.start + (begin + i) % count);
    ids.find(|id| !taken.contains(id)).unwrap_or(OWN_IDS.start)
}

/// Copies a directory that nobody else can change, for an account; the file system shares blocks if it can. Never hard links: a data
/// directory that shares files with another is lost.
pub async fn copy(from: &Path, to: &Path, owner: Option<&Account>) -> io::Result<()> {
    let (from, to, owner) = (from.to_path_buf(), to.to_path_buf(), owner.cloned());
    let copy = move || copy_directory(&from, &to, owner.as_ref());
    tokio::task::spawn_blocking(copy).await.map_err(io::Error::other)?
}

fn copy_directory(from: &Path, to: &Path, owner: Option<&Account>) -> io::Result<()> {
    let owner_ids = owner.map(|account| (Some(account.uid), Some(account.gid))).unwrap_or_default();
    fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, new) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_directory(&entry.path(), &new, owner)?;
        } else if kind.is_file() {
            let mut file = fs::File::open(entry.path())?;
            let mut copy = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            io::copy(&mut file, &mut copy)?;
            fchown(&copy, owner_ids.0, owner_ids.1)?;
        } else {
            return Err(io::Error::other(format!("{} is neither file nor directory", entry.path().display())));
        }
    }
    home::own(to, owner)
}

/// Gives a directory of ours, that nobody else can enter yet, to an account with all that is in it.
pub async fn give(dir: &Path, owner: Option<&Account>) -> io::Result<()> {
    let Some(owner) = owner.cloned() else { return Ok(()) };
    let dir = dir.to_path_buf();
    let give = move || {
        inside::walk(&dir, &mut |parent, name, _| {
            let (user, group) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
            Ok(rustix::fs::chownat(parent, name, Some(user), Some(group), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?)
        })?;
        home::own(&dir, Some(&owner))
    };
    tokio::task::spawn_blocking(give).await.map_err(io::Error::other)?
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
    fn every_instance_has_an_id_of_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let dirs = [dir.path().to_path_buf()];
        let first = choose_account(&dirs, "a");
        assert!(OWN_IDS.contains(&first));
        assert_ne!(first, choose_account(&dirs, "b"));
        let one = dir.path().join("one");
        fs::create_dir(&one).expect("made");
        Facts { account: first, ..Facts::default() }.write(&one).expect("kept");
        assert_ne!(first, choose_account(&dirs, "a"));
    }

    #[test]
    fn a_copy_is_its_owners_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sub")).expect("made");
        fs::write(from.join("sub/file"), "words").expect("written");
        fs::write(from.join("empty"), "").expect("written");
        let owner = conductor_local::account::has_own_ids().then(|| Account::with_id(OWN_IDS.start));
        copy_directory(&from, &to, owner.as_ref()).expect("copies");
        assert_eq!(fs::read_to_string(to.join("sub/file")).expect("is there"), "words");
        for (path, mode) in [("", 0o700), ("sub", 0o700), ("sub/file", 0o600), ("empty", 0o600)] {
            let meta = fs::metadata(to.join(path)).expect("is there");
            let owner = owner.as_ref().map_or(rustix::process::geteuid().as_raw(), |account| account.uid);
            assert_eq!((meta.uid(), meta.mode() & 0o777), (owner, mode), "{path}");
        }
        // no link leads a copy elsewhere
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).expect("links");
        copy_directory(&from, &dir.path().join("other"), None).expect_err("is no file");
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
