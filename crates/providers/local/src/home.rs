//! Where a provider keeps what it has: `DIR/providers/NAME`, or where the accounts that its processes run as can get.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::account::{Account, is_root};

/// A provider's directory.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    /// Where the data directory shows it.
    link: Option<PathBuf>,
}

impl Home {
    /// The home of a provider below a data directory. Nothing is made before something is kept.
    ///
    /// Servers that refuse root run as other users, who cannot enter a directory below, say, `/root`. Where we are root and not everyone
    /// can get to the data directory, the home is below `/var/lib/conductor` and a link in the data directory shows where.
    pub fn open(data_dir: &Path, name: &str) -> io::Result<Home> {
        let data_dir = data_dir.canonicalize()?;
        let link = data_dir.join("providers").join(name);
        let dir = match fs::read_link(&link) {
            Ok(there) => there,
            Err(_) if !link.exists() && is_root() && !enterable(&data_dir) => {
                Path::new("/var/lib/conductor").join(digest(&link)).join(name)
            }
            Err(_) => link.clone(),
        };
        Ok(Home { dir, link: Some(link) })
    }

    fn ensure(&self) -> io::Result<()> {
        let open = |dir: &Path| fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
        open(&self.dir)?;
        match &self.link {
            Some(link) if *link != self.dir && fs::read_link(link).is_err() => {
                open(link.parent().unwrap_or(link))?;
                std::os::unix::fs::symlink(&self.dir, link)
            }
            _ => Ok(()),
        }
    }

    /// One at a given place; for tests.
    pub fn at(dir: &Path) -> io::Result<Home> {
        fs::create_dir_all(dir)?;
        Ok(Home { dir: dir.canonicalize()?, link: None })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// A directory in it, made if need be, and owned by an account. An empty name is the home itself.
    pub fn make(&self, name: &str, owner: Option<&Account>) -> io::Result<PathBuf> {
        self.ensure()?;
        let path = self.dir.join(name);
        fs::create_dir_all(&path)?;
        own(&path, owner)?;
        Ok(path)
    }
}

/// Gives a file or directory to an account, if we may.
pub fn own(path: &Path, owner: Option<&Account>) -> io::Result<()> {
    match owner {
        Some(account) if is_root() => chown(path, Some(account.uid), Some(account.gid)),
        _ => Ok(()),
    }
}

/// Whether everyone may go through a directory and all above it.
fn enterable(dir: &Path) -> bool {
    dir.ancestors().all(|dir| dir.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0))
}

/// A short name for a path.
fn digest(path: &Path) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// How much a directory holds, in bytes on disk; files that vanish meanwhile do not count.
pub fn size_of(dir: &Path) -> u64 {
    let mut total = 0;
    let mut rest = vec![dir.to_path_buf()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => rest.push(entry.path()),
                Ok(meta) => total += meta.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    total
}

/// Writes a file that is there whole or not at all, after a crash too.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("may");
        let home = Home::open(dir.path(), "databases").expect("opens");
        assert!(!home.path().exists(), "nothing is kept yet");
        let made = home.make("sub", None).expect("makes");
        write_whole(&home.path().join("x"), b"12", 0o600).expect("writes");
        assert!(made.starts_with(home.path()));
        let again = Home::open(dir.path(), "databases").expect("opens");
        assert_eq!(fs::read(again.path().join("x")).expect("reads"), b"12");
        assert!(size_of(again.path()) > 0);
    }

    #[test]
    fn what_others_cannot_enter_is_known() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("may");
        assert!(!enterable(dir.path()));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("may");
        assert!(enterable(dir.path()));
    }
}
