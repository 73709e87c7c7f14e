//! Images: files with a file system in them.
//!
//! *Invariant:* an image under its name is complete (it is made under another name and renamed), its file system bears the uid of its
//! ImageVolume, and nothing here ever replaces a file that exists. A file with another uid is someone else's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags};

use crate::host::{self, HostError};
use crate::mounts;

/// A file system that an image can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Any size; grows while mounted only where the process may use reserved blocks.
    Ext4,
    /// At least 300 MiB; grows while mounted.
    Xfs,
}

impl FileSystem {
    /// As written in a spec.
    pub fn parse(text: &str) -> Option<FileSystem> {
        match text {
            "ext4" => Some(FileSystem::Ext4),
            "xfs" => Some(FileSystem::Xfs),
            _ => None,
        }
    }

    /// As the kernel and `mkfs` call it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// The program that makes it.
    pub fn maker(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "mkfs.ext4",
            FileSystem::Xfs => "mkfs.xfs",
        }
    }

    /// No image is smaller.
    pub fn smallest(self) -> u64 {
        match self {
            FileSystem::Ext4 => 2 << 20,
            FileSystem::Xfs => 300 << 20,
        }
    }

    /// The size an image gets for an amount asked: enough, and in whole blocks.
    pub fn size_for(self, asked: u64) -> u64 {
        asked.max(self.smallest()).div_ceil(4096).saturating_mul(4096)
    }
}

/// Why an image is not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Reading or writing failed.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// A program refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no room for it.
    #[error(
        "{0} has no room for {1} bytes and what is kept free there for everyone else: free some, or use a class that does not \
         preallocate"
    )]
    NoRoom(PathBuf, u64),
    /// It is in use, and cannot be changed so.
    #[error(transparent)]
    InUse(#[from] mounts::UnmountError),
    /// It could not be mounted again.
    #[error(transparent)]
    Mount(#[from] mounts::MountError),
}

/// The file system in a file and the uid it bears; `None`: neither ext4 nor xfs.
pub fn identity(path: &Path) -> io::Result<Option<(FileSystem, String)>> {
    let mut file = File::open(path)?;
    let mut start = [0u8; 2048];
    let mut filled = 0;
    while filled < start.len() {
        match file.read(&mut start[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    if start.starts_with(b"XFSB") {
        return Ok(Some((FileSystem::Xfs, dashed(&start[32..48]))));
    }
    if start[1024 + 0x38..1024 + 0x3a] == [0x53, 0xef] {
        return Ok(Some((FileSystem::Ext4, dashed(&start[1024 + 0x68..1024 + 0x78]))));
    }
    Ok(None)
}

/// Whether a file system bears the mark of an error that nobody has mended: ext4's.
pub fn has_errors(path: &Path) -> io::Result<bool> {
    let mut state = [0u8; 4];
    match File::open(path)?.read_exact_at(&mut state, 1024 + 0x38) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| state[..2] == [0x53, 0xef] && state[2] & 2 != 0),
    }
}

/// Mends what can be mended in an image that is not mounted without anybody being asked.
pub fn check(path: &Path, file_system: FileSystem, whole: bool) -> Result<(), HostError> {
    match file_system {
        FileSystem::Ext4 => {
            let mut arguments = vec!["-p".as_ref()];
            arguments.extend(whole.then_some(AsRef::<std::ffi::OsStr>::as_ref("-f")));
            arguments.push(host::text(path));
            // 1: errors corrected, which is fine
            host::run_until("e2fsck", &arguments, |code| code <= 1).map(drop)
        }
        // it looks after itself when it is mounted
        FileSystem::Xfs => Ok(()),
    }
}

/// Sixteen bytes as a UUID is written.
fn dashed(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Whether so much more can be taken of a disk. A reserve stays: the disk may be the one that holds everyone's objects, which a claim
/// must not be able to fill at once.
fn has_room(missing: u64, free: u64, whole: u64) -> bool {
    let reserve = (whole / 20).min(1 << 30);
    missing == 0 || free >= missing.saturating_add(reserve)
}

/// What an image is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// Where.
    pub path: &'w Path,
    /// How large, in bytes: see [`FileSystem::size_for`].
    pub size: u64,
    /// With what in it.
    pub file_system: FileSystem,
    /// The uid its file system bears.
    pub uid: &'w str,
    /// Whether all its blocks are taken from the disk at once, so that none can be missing later.
    pub preallocate: bool,
}

impl Wanted<'_> {
    fn error(&self, error: io::Error) -> ImageError {
        if error.kind() == io::ErrorKind::StorageFull {
            return ImageError::NoRoom(self.path.parent().unwrap_or(self.path).to_owned(), self.size);
        }
        ImageError::Io(self.path.to_owned(), error)
    }

    /// Where it is while it is being made.
    pub fn unfinished(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.new"))
    }

    /// Makes the image. Fails if there is a file of that name.
    pub fn make(&self) -> Result<(), ImageError> {
        let unfinished = self.unfinished();
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.error(error)),
            _ => {}
        }
        let made = self.make_as(&unfinished);
        if made.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    fn make_as(&self, unfinished: &Path) -> Result<(), ImageError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished);
        let file = file.map_err(|e| self.error(e))?;
        self.allocate(&file)?;
        self.format(unfinished)?;
        file.sync_all().map_err(|e| self.error(e))?;
        rustix::fs::renameat_with(CWD, unfinished, CWD, self.path, RenameFlags::NOREPLACE)
            .map_err(|e| self.error(e.into()))?;
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| self.error(e))
    }

    /// Makes a file as long as wanted and takes its blocks. One that is longer stays so: there is a file system in it, and data.
    fn allocate(&self, file: &File) -> Result<(), ImageError> {
        let length = self.length(file)?;
        if self.preallocate {
            let disk = rustix::fs::fstatvfs(file).map_err(|e| self.error(e.into()))?;
            if !has_room(self.missing(file)?, disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize) {
                return Err(self.error(io::ErrorKind::StorageFull.into()));
            }
            let taken = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length.max(self.size));
            if let Err(error) = taken {
                // what was taken beyond its end is given back
                file.set_len(length).map_err(|e| self.error(e))?;
                return Err(self.error(error.into()));
            }
        }
        // only now: who asks for less again finds it as long as it was
        if length < self.size {
            file.set_len(self.size).map_err(|e| self.error(e))?;
        }
        self.trim(file)
    }

    /// Gives back the blocks beyond its end: who took them, for more than is wanted by now, did not come to make it longer.
    fn trim(&self, file: &File) -> Result<(), ImageError> {
        let there = file.metadata().map_err(|e| self.error(e))?;
        if there.blocks() * 512 <= there.len().next_multiple_of(there.blksize().max(1)) {
            return Ok(());
        }
        file.set_len(there.len()).map_err(|e| self.error(e))
    }

    fn length(&self, file: &File) -> Result<u64, ImageError> {
        file.metadata().map(|meta| meta.len()).map_err(|e| self.error(e))
    }

    /// Takes those of its blocks from the disk that it should have and has not.
    pub fn reserve(&self) -> Result<(), ImageError> {
        if !self.preallocate {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(self.path).map_err(|e| self.error(e))?;
        if self.missing(&file)? == 0 {
            return self.trim(&file);
        }
        self.allocate(&file)?;
        file.sync_all().map_err(|e| self.error(e))
    }

    /// How much of it has no place on the disk.
    fn missing(&self, file: &File) -> Result<u64, ImageError> {
        let there = file.metadata().map_err(|e| self.error(e))?;
        Ok(self.size.max(there.len()).saturating_sub(there.blocks() * 512))
    }

    /// Puts a new, empty file system into a file, over whatever is in it.
    pub fn format(&self, path: &Path) -> Result<(), ImageError> {
        let uuid = format!("uuid={}", self.uid);
        let file = path.as_os_str();
        match self.file_system {
            FileSystem::Ext4 => {
                // nothing reserved for root: the limit is the claim's; what takes long is left for later
                let how = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
                let arguments =
                    ["-q", "-F", "-m", "0", "-U", self.uid, "-E", how].map(AsRef::<std::ffi::OsStr>::as_ref);
                host::run("mkfs.ext4", &[&arguments[..], &[file]].concat())?;
            }
            FileSystem::Xfs => {
                let arguments = ["-q", "-f", "-K", "-m", &uuid].map(AsRef::<std::ffi::OsStr>::as_ref);
                host::run("mkfs.xfs", &[&arguments[..], &[file]].concat())?;
            }
        }
        Ok(())
    }

    /// Grows the image to the size wanted, and its file system with it. `point` is where it is mounted; it is there again afterwards.
    pub fn grow(&self, point: &Path, options: &[String]) -> Result<(), ImageError> {
        let file = OpenOptions::new().write(true).open(self.path).map_err(|e| self.error(e))?;
        if self.length(&file)? < self.size || self.preallocate {
            self.allocate(&file)?;
            file.sync_all().map_err(|e| self.error(e))?;
        }
        let mounted = mounts::at(point).map_err(|e| self.error(e))?;
        match (self.file_system, mounted) {
            (FileSystem::Xfs, Some(mount)) => {
                host::run("losetup", &["-c".as_ref(), host::text(&mount.device)])?;
                host::run("xfs_growfs", &[host::text(point)])?;
            }
            (FileSystem::Xfs, None) => {
                mounts::mount_image(self.path, point, "xfs", options)?;
                host::run("xfs_growfs", &[host::text(point)])?;
            }
            (FileSystem::Ext4, Some(mount)) if crate::lacks::may_grow_mounted_ext4() => {
                host::run("losetup", &["-c".as_ref(), host::text(&mount.device)])?;
                host::run("resize2fs", &[host::text(&mount.device)])?;
            }
            (FileSystem::Ext4, mounted) => {
                if mounted.is_some() {
                    mounts::unmount(point)?;
                }
                let checked = check(self.path, FileSystem::Ext4, true);
                let grown = checked.and_then(|()| host::run("resize2fs", &[host::text(self.path)]));
                // whatever came of it, what was usable before is usable again
                mounts::mount_image(self.path, point, "ext4", options)?;
                grown?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b7c51f4-5a39-4bb1-9e53-2c8a4ac1a9d1";

    #[test]
    fn sizes_fit_the_file_system() {
        let check =
            |fs: FileSystem, asked: u64, expected: u64| assert_eq!(fs.size_for(asked), expected, "{fs:?} {asked}");
        check(FileSystem::Ext4, 0, 2 << 20);
        check(FileSystem::Ext4, (10 << 20) + 1, (10 << 20) + 4096);
        check(FileSystem::Xfs, 1, 300 << 20);
        check(FileSystem::Xfs, 1 << 30, 1 << 30);
        for fs in [FileSystem::Ext4, FileSystem::Xfs] {
            assert_eq!(FileSystem::parse(fs.name()), Some(fs));
        }
        assert_eq!(FileSystem::parse("btrfs"), None);
    }

    #[test]
    fn a_disk_is_never_taken_whole() {
        const GIB: u64 = 1 << 30;
        let check = |missing: u64, free: u64, whole: u64, expected: bool| {
            assert_eq!(has_room(missing, free, whole), expected, "{missing} of {free} of {whole}");
        };
        check(GIB, 3 * GIB, 100 * GIB, true);
        check(2 * GIB, 3 * GIB, 100 * GIB, true);
        check(2 * GIB + 1, 3 * GIB, 100 * GIB, false);
        // a small disk keeps a twentieth
        check(9 * GIB / 10, GIB, 2 * GIB, true);
        check(GIB, GIB, 2 * GIB, false);
        check(u64::MAX, GIB, GIB, false);
        check(0, 0, GIB, true);
        // and says so before it is full
        let directory = tempfile::tempdir().expect("is made");
        let path = directory.path().join("huge");
        let wanted = Wanted { path: &path, size: 1 << 43, file_system: FileSystem::Ext4, uid: UID, preallocate: true };
        let error = wanted.make().expect_err("no machine has that");
        assert!(matches!(error, ImageError::NoRoom(..)), "{error}");
    }

    #[test]
    fn an_image_that_is_longer_than_wanted_is_not_cut() {
        const MIB: usize = 1 << 20;
        let directory = tempfile::tempdir().expect("is made");
        let path = directory.path().join("image");
        // grown before, written to beyond what is wanted, and some of it given back
        let data = vec![7u8; 2 * MIB];
        let file = File::create(&path).expect("is made");
        file.set_len(4 * MIB as u64).and_then(|()| file.write_all_at(&data, 2 * MIB as u64)).expect("is written");
        let wanted = Wanted { path: &path, size: 2 << 20, file_system: FileSystem::Ext4, uid: UID, preallocate: true };
        wanted.reserve().expect("is reserved");
        let meta = file.metadata().expect("is there");
        assert_eq!(meta.len(), 4 << 20);
        assert!(meta.blocks() * 512 >= 4 << 20, "all of it is reserved: {}", meta.blocks());
        assert!(fs::read(&path).expect("is read")[2 * MIB..] == data);
        // what there is no room for is not begun
        let wanted = Wanted { size: 1 << 60, ..wanted };
        assert!(wanted.reserve().is_err());
        assert_eq!(file.metadata().expect("is there").len(), 4 << 20);
    }

    #[test]
    fn blocks_beyond_the_end_are_given_back() {
        let directory = tempfile::tempdir().expect("is made");
        let path = directory.path().join("image");
        let check = |size: u64, expected: u64| {
            // whoever was to make it longer was killed when the blocks were taken
            let file = File::create(&path).expect("is made");
            file.set_len(2 << 20).expect("is as long");
            rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 16 << 20).expect("are taken");
            assert!(file.metadata().expect("is there").blocks() * 512 >= 16 << 20);
            let wanted = Wanted { path: &path, size, file_system: FileSystem::Ext4, uid: UID, preallocate: true };
            match size > 2 << 20 {
                true => wanted.allocate(&file).expect("is longer"),
                false => wanted.reserve().expect("is reserved"),
            }
            let there = file.metadata().expect("is there");
            assert_eq!(there.len(), expected, "{size}");
            let taken = there.blocks() * 512;
            assert!((expected..expected + (1 << 20)).contains(&taken), "{size}: {taken}");
        };
        check(2 << 20, 2 << 20);
        check(1 << 20, 2 << 20);
        check(4 << 20, 4 << 20);
    }

    #[test]
    fn an_image_bears_its_uid_and_replaces_nothing() {
        let directory = tempfile::tempdir().expect("is made");
        for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
            if host::find(file_system.maker()).is_none() {
                println!("skipped: {} is not installed", file_system.maker());
                continue;
            }
            let path = directory.path().join(file_system.name());
            let size = file_system.size_for(1);
            let wanted = Wanted { path: &path, size, file_system, uid: UID, preallocate: false };
            wanted.make().expect("is made");
            assert_eq!(identity(&path).expect("is read"), Some((file_system, UID.to_owned())));
            assert_eq!(fs::metadata(&path).expect("is there").len(), size);
            fs::write(&path, "someone's data").expect("is written");
            wanted.make().expect_err("there is a file");
            assert_eq!(fs::read(&path).expect("is there"), b"someone's data");
            assert_eq!(identity(&path).expect("is read"), None);
            assert!(!wanted.unfinished().exists());
        }
    }
}
