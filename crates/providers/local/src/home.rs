//! Where a provider keeps what it has: `DIR/providers/NAME`, or where the accounts that its processes run as can get.
//!
//! *Invariant:* a home elsewhere is one data directory's. A copy of that leads there too, and has nothing to do with what is there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::account::{Account, is_root};
use crate::lack::Lack;
use crate::stray::{self, OWNER};

/// Directories that lead to what others have: who knows a name may go on, nobody may look around.
const WAY: u32 = 0o711;

/// A provider's directory.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    /// Where the data directory shows it.
    link: Option<PathBuf>,
    /// Held as long as we have one elsewhere.
    lock: Arc<OnceLock<File>>,
    foreign: Option<Lack>,
}

/// How long a process that was killed may seem to have a home: a child that it was about to start has its files until it is another program.
const LINGERING: Duration = Duration::from_secs(1);

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
            Err(_) if !link.exists() && is_root() && !enterable(&data_dir) => vacant(Path::new(stray::HOMES), &link)?,
            Err(_) => link.clone(),
        };
        let mut home = Home { dir, link: Some(link), lock: Arc::default(), foreign: None };
        home.foreign = home.take()?;
        if home.foreign.is_none() {
            // one of a time when everyone could look around; what is below follows with its object
            for way in [Some(home.dir.as_path()), home.link.as_deref().and_then(Path::parent)].into_iter().flatten() {
                let _ = tighten(way, WAY);
            }
        }
        Ok(home)
    }

    /// Why this home is not ours, and what to do: nothing in it is to be touched.
    pub fn foreign(&self) -> Option<&Lack> {
        self.foreign.as_ref()
    }

    /// The link to a home elsewhere, and the directory that it is in.
    fn shown(&self) -> Option<(&Path, &Path)> {
        let link = self.link.as_deref().filter(|link| *link != self.dir)?;
        Some((link, link.parent()?))
    }

    /// Takes a home elsewhere, if there is one; why it cannot be had.
    fn take(&self) -> io::Result<Option<Lack>> {
        let Some((link, shown)) = self.shown() else { return Ok(None) };
        if let Some(owner) = self.other(shown) {
            return Ok(Some(self.lack(link, &owner)));
        }
        let path = self.dir.with_extension("lock");
        let file = match File::options().create(true).truncate(false).write(true).open(path) {
            // nothing is kept yet
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let begun = Instant::now();
        let locked = loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LINGERING => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                locked => break locked,
            }
        };
        match locked {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what = format!("a place of its own ({} is in use by another process)", self.dir.display());
                return Ok(Some(Lack::new(what, "stop that one, then start this one again")));
            }
            locked => locked?,
        }
        // another may have taken it meanwhile
        if let Some(owner) = self.other(shown) {
            return Ok(Some(self.lack(link, &owner)));
        }
        let (of, new) = (self.dir.with_file_name(OWNER), self.dir.with_file_name("of.new"));
        if fs::read_link(&of).ok().as_deref() != Some(shown) {
            // whose it is can be told when the data directory is gone; one that was moved is elsewhere now
            let _ = fs::remove_file(&new);
            symlink(shown, &new)?;
            fs::rename(&new, &of)?;
        }
        let _ = self.lock.set(file);
        Ok(None)
    }

    /// The `providers` of another data directory that this is the home of.
    fn other(&self, shown: &Path) -> Option<PathBuf> {
        let id = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        stray::owner(&self.dir).filter(|owner| id(owner).is_none_or(|other| id(shown) != Some(other)))
    }

    fn lack(&self, link: &Path, owner: &Path) -> Lack {
        let owner = owner.parent().unwrap_or(owner).display();
        Lack::new(
            format!(
                "a place of its own ({} belongs to the data directory {owner}, and this is a copy of it)",
                self.dir.display()
            ),
            format!(
                "stop the server of {owner} and remove that directory to go on here with what it has, or remove the link {} to \
                 begin here without; then start this one again",
                link.display()
            ),
        )
    }

    fn ensure(&self) -> io::Result<()> {
        if let Some(lack) = &self.foreign {
            return Err(io::Error::other(lack.to_string()));
        }
        let open = |dir: &Path| fs::DirBuilder::new().recursive(true).mode(WAY).create(dir);
        let Some((link, shown)) = self.shown() else { return open(&self.dir) };
        open(shown)?;
        // first, so that no home is left that nothing leads to
        match symlink(&self.dir, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => open(&self.dir)?,
        }
        if self.lock.get().is_none()
            && let Some(lack) = self.take()?
        {
            return Err(io::Error::other(lack.to_string()));
        }
        Ok(())
    }

    /// One at a given place; for tests.
    pub fn at(dir: &Path) -> io::Result<Home> {
        fs::create_dir_all(dir)?;
        Ok(Home { dir: dir.canonicalize()?, link: None, lock: Arc::default(), foreign: None })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Directories with what Conductor keeps on this machine, its own and other providers': nothing in them is anybody else's.
    pub fn kept(&self) -> Vec<PathBuf> {
        // DIR/providers/NAME
        let data = self.link.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
        let shared = [stray::HOMES, "/var/cache/conductor"].map(PathBuf::from);
        [self.dir.clone()].into_iter().chain(data).chain(shared).collect()
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

/// A place for a home that nothing leads to yet. One of that name may be in use by a data directory that was here once.
fn vacant(homes: &Path, link: &Path) -> io::Result<PathBuf> {
    let digest = digest(link);
    for n in 0.. {
        let place = homes.join(if n == 0 { digest.clone() } else { format!("{digest}-{n}") });
        if !place.try_exists()? {
            return Ok(place.join(link.file_name().unwrap_or_default()));
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
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

    /// A data directory with a home elsewhere.
    fn moved_out(data: &Path, home: &Path) -> Home {
        fs::create_dir_all(data.join("providers")).expect("made");
        symlink(home, data.join("providers/databases")).expect("links");
        let opened = Home::open(data, "databases").expect("opens");
        opened.make("", None).expect("makes");
        opened
    }

    #[test]
    fn a_home_elsewhere_is_of_one_data_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().canonicalize().expect("is there").join(name);
        let (one, two, home) = (at("one"), at("two"), at("homes/1/databases"));
        let of = || fs::read_link(at("homes/1/of")).expect("is there");
        let foreign = |data: &Path| {
            let opened = Home::open(data, "databases").expect("opens");
            let why = opened.foreign().map(Lack::to_string).unwrap_or_default();
            assert_eq!(opened.make("sub", None).is_err(), !why.is_empty(), "{why}");
            why
        };
        let first = moved_out(&one, &home);
        assert_eq!(of(), one.join("providers"));
        // a copy
        fs::create_dir_all(two.join("providers")).expect("made");
        symlink(&home, two.join("providers/databases")).expect("links");
        let said = foreign(&two);
        assert!(said.contains(one.to_str().expect("is text")) && said.contains("remove the link"), "{said}");
        assert!(foreign(&one).contains("in use by another process"), "one at a time");
        // moved while it runs: nobody's any more, and in use
        fs::rename(&one, at("three")).expect("moves");
        assert!(foreign(&two).contains("in use by another process"));
        drop(first);
        assert_eq!(foreign(&at("three")), "");
        assert_eq!(of(), at("three").join("providers"), "it is where it was moved to");
        assert!(foreign(&two).contains("three"));
        // under two names
        symlink(at("three"), &one).expect("links");
        assert_eq!(foreign(&one), "");
        // a new one where it was has another home, and so has one that was made without
        let link = at("four/providers/databases");
        let next = vacant(&at("homes"), &link).expect("is found");
        assert_eq!(vacant(&at("homes"), &link).expect("is found"), next);
        fs::create_dir_all(&next).expect("made");
        assert_ne!(vacant(&at("homes"), &link).expect("is found"), next);
        // the original is gone
        fs::remove_dir_all(at("three")).expect("goes");
        assert_eq!(foreign(&two), "");
        assert_eq!(of(), two.join("providers"));
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
