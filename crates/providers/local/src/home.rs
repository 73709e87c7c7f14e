//! Where a provider keeps what it has: `DIR/providers/NAME`, or where the accounts that its processes run as can get.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

use crate::account::{Account, is_root};

/// Directories that lead to what others have: who knows a name may go on, nobody may look around.
const WAY: u32 = 0o711;

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
                Path::new(crate::stray::HOMES).join(digest(&link)).join(name)
            }
            Err(_) => link.clone(),
        };
        // one of a time when everyone could look around; what is below follows with its object
        for way in [Some(dir.as_path()), link.parent()].into_iter().flatten() {
            let _ = tighten(way, WAY);
        }
        Ok(Home { dir, link: Some(link) })
    }

    fn ensure(&self) -> io::Result<()> {
        let open = |dir: &Path| fs::DirBuilder::new().recursive(true).mode(WAY).create(dir);
        open(&self.dir)?;
        match &self.link {
            Some(link) if *link != self.dir => {
                let shown = link.parent().unwrap_or(link);
                open(shown)?;
                // and back: whose it is can be told when the data directory is gone
                for (to, at) in [(shown, &*self.dir.with_file_name(crate::stray::OWNER)), (&*self.dir, link)] {
                    match std::os::unix::fs::symlink(to, at) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                        _ => {}
                    }
                }
                Ok(())
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

    /// A directory in it, made if need be, and owned by an account. An empty name is the home itself. Others may pass through it and not
    /// look around.
    pub fn make(&self, name: &str, owner: Option<&Account>) -> io::Result<PathBuf> {
        self.ensure()?;
        let mut path = self.dir.clone();
        for part in Path::new(name) {
            path.push(part);
            match fs::DirBuilder::new().mode(WAY).create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => tighten(&path, WAY)?,
            }
        }
        own(&path, owner)?;
        Ok(path)
    }

    /// A directory in it of one object's: ours, and an account may pass through it to what it has there.
    pub fn make_private(&self, name: &str, guest: Option<&Account>) -> io::Result<PathBuf> {
        let path = self.make(name, None)?;
        match guest {
            Some(account) if is_root() => {
                lchown(&path, Some(0), Some(account.gid))?;
                tighten(&path, 0o710)?;
            }
            _ => tighten(&path, 0o700)?,
        }
        Ok(path)
    }
}

/// Gives a file or directory to an account, if we may; a link itself, never what it leads to.
pub fn own(path: &Path, owner: Option<&Account>) -> io::Result<()> {
    match owner {
        Some(account) if is_root() => lchown(path, Some(account.uid), Some(account.gid)),
        _ => Ok(()),
    }
}

/// Gives a directory or file of ours this mode, if it is there and has another.
pub fn tighten(path: &Path, mode: u32) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_symlink() && meta.permissions().mode() & 0o7777 != mode => {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
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

/// Writes a file that is there whole or not at all, after a crash of the machine too.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write(path, content, mode, None, true)
}

/// The same for what a crash of the machine may take: only for what is looked at and written again. A sync would wait for all that others
/// have just written. The file stays ours, with an account's group: its mode says what that may do.
pub fn write_for_now(path: &Path, content: &[u8], mode: u32, group: Option<&Account>) -> io::Result<()> {
    write(path, content, mode, group, false)
}

/// Whatever bears the name of the new file before is removed, never written to.
fn write(path: &Path, content: &[u8], mode: u32, group: Option<&Account>, durable: bool) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // a new file follows no link
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    if let Some(account) = group.filter(|_| is_root()) {
        fchown(&file, None, Some(account.gid))?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    if durable {
        file.sync_data()?;
    }
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
        let mode = |path: &Path| path.metadata().expect("is there").permissions().mode() & 0o7777;
        assert_eq!((mode(again.path()), mode(&made)), (0o711, 0o711), "nobody looks around");
        let own = again.make_private("sub/one", None).expect("makes");
        assert_eq!(mode(&own), 0o700);
        // one of an older version is shut at the next start
        fs::set_permissions(again.path(), fs::Permissions::from_mode(0o755)).expect("may");
        Home::open(dir.path(), "databases").expect("opens");
        assert_eq!(mode(again.path()), 0o711);
    }

    #[test]
    fn no_link_leads_a_write_or_an_owner_elsewhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let (victim, file) = (dir.path().join("victim"), dir.path().join("file"));
        fs::write(&victim, "kept").expect("writes");
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).expect("may");
        std::os::unix::fs::symlink(&victim, dir.path().join("file.new")).expect("links");
        write_whole(&file, b"own", 0o640).expect("writes");
        assert_eq!(fs::read_to_string(&victim).expect("reads"), "kept");
        assert_eq!(fs::read_to_string(&file).expect("reads"), "own");
        assert!(fs::symlink_metadata(&file).expect("is there").is_file());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&victim, &link).expect("links");
        let other = Account { name: "other".into(), uid: 65_534, gid: 65_534 };
        own(&link, Some(&other)).expect("may");
        tighten(&link, 0o777).expect("may");
        let meta = fs::metadata(&victim).expect("is there");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&meta), rustix::process::geteuid().as_raw());
        assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
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
