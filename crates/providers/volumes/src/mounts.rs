//! What is mounted where, and which loop device shows which file: read from the kernel each time, never remembered.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::host::{self, HostError};

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// What is mounted, `/dev/loop3` say.
    pub device: PathBuf,
    /// `ext4`, `xfs`, ….
    pub file_system: String,
    /// How it is mounted, and what the file system says of itself: `rw`, `nosuid`, `emergency_ro`, ….
    pub options: Vec<String>,
}

impl Mount {
    /// Why nobody can write there, or read, who should: the file system had an error and has shut itself, or somebody has. `asked` is
    /// how it is to be mounted.
    pub fn fault(&self, asked: &[String]) -> Option<String> {
        let is = |option: &str| self.options.iter().any(|own| own == option);
        if let Some(shut) = ["emergency_ro", "shutdown"].into_iter().find(|option| is(option)) {
            return Some(shut.to_owned());
        }
        if is("ro") && !asked.iter().any(|option| option == "ro") {
            return Some("ro".to_owned());
        }
        // xfs does not say
        let error = fs::metadata(&self.point).err()?;
        (Errno::from_io_error(&error) == Some(Errno::IO)).then(|| error.to_string())
    }
}

/// A loop device in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The device.
    pub device: PathBuf,
    /// The file it shows, under the name it had last.
    pub file: PathBuf,
    /// Whether that file was deleted: its data lives for as long as the device does.
    pub deleted: bool,
}

/// Why a file system is still mounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Someone has files open in it.
    #[error("{0} is in use: stop what has files open there")]
    Busy(PathBuf),
    /// Something is in the directory that was written while nothing was mounted there.
    #[error("{0} has files in it that were written while it was not mounted: look at them, and move them away")]
    Littered(PathBuf),
    /// Anything else.
    #[error("cannot unmount {0}: {1}")]
    Other(PathBuf, io::Error),
}

/// Reads `/proc/self/mountinfo`; a line that is none is passed over.
pub fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    let mut all = Vec::new();
    for line in mountinfo.split(|b| *b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let Some(dash) = fields.iter().position(|f| *f == b"-") else { continue };
        let (Some(point), Some(kind), Some(device)) = (fields.get(4), fields.get(dash + 1), fields.get(dash + 2))
        else {
            continue;
        };
        let options = [fields.get(5), fields.get(dash + 3)].into_iter().flatten();
        let options = options.flat_map(|list| list.split(|b| *b == b','));
        all.push(Mount {
            point: unescaped(point),
            device: unescaped(device),
            file_system: String::from_utf8_lossy(kind).into_owned(),
            options: options.map(|option| String::from_utf8_lossy(option).into_owned()).collect(),
        });
    }
    all
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

/// Everything that is mounted, in the order in which it was.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// What is mounted at a point; of several, the one on top.
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.point == point))
}

/// Every loop device in use.
pub fn loops() -> io::Result<Vec<Loop>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        // the file is only there while the device shows something
        let Ok(mut file) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        if file.last() == Some(&b'\n') {
            file.pop();
        }
        let deleted = file.ends_with(b" (deleted)");
        if deleted {
            file.truncate(file.len() - b" (deleted)".len());
        }
        all.push(Loop {
            device: Path::new("/dev").join(entry.file_name()),
            file: PathBuf::from(std::ffi::OsString::from_vec(file)),
            deleted,
        });
    }
    Ok(all)
}

/// Mounts an image on a new directory, through a loop device that the kernel frees with the mount.
///
/// The mount point exists only while something is mounted there: who looks for it at the wrong time finds nothing, instead of an
/// empty directory to write into.
pub fn mount_image(image: &Path, point: &Path, file_system: &str, options: &[String]) -> Result<(), MountError> {
    match fs::create_dir(point) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::read_dir(point).map_err(|e| MountError::Point(point.to_owned(), e))?.count();
            if found > 0 {
                return Err(MountError::NotEmpty(point.to_owned(), found));
            }
        }
        Err(error) => return Err(MountError::Point(point.to_owned(), error)),
    }
    // who writes here while nothing is mounted writes beside the volume
    if let Ok(directory) = conductor_local::inside::open_directory(point) {
        let _ = rustix::fs::fchmod(&directory, rustix::fs::Mode::empty());
    }
    let mut all = vec!["loop".to_owned(), "nosuid".to_owned(), "nodev".to_owned()];
    all.extend_from_slice(options);
    let all = all.join(",");
    let arguments =
        ["-t".as_ref(), file_system.as_ref(), "-o".as_ref(), all.as_ref(), host::text(image), host::text(point)];
    let mounted = host::run("mount", &arguments);
    if mounted.is_err() {
        let _ = fs::remove_dir(point);
    }
    Ok(mounted.map(drop)?)
}

/// Calls back each time when something was mounted or unmounted, for ever. The kernel tells it to who polls its table.
pub fn watch(mut changed: impl FnMut(&[Mount])) -> io::Result<Infallible> {
    let table = fs::File::open("/proc/self/mountinfo")?;
    loop {
        let told = match poll(&mut [PollFd::new(&table, PollFlags::PRI)], None) {
            Err(Errno::INTR) => 0,
            told => told?,
        };
        if told > 0 {
            changed(&all()?);
        }
    }
}

/// Why an image is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory is not as it must be.
    #[error("cannot use {0} as mount point: {1}")]
    Point(PathBuf, io::Error),
    /// Files would be hidden.
    #[error("{0} holds {1} entries that were written while nothing was mounted there: move them away")]
    NotEmpty(PathBuf, usize),
    /// `mount` refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Unmounts what is at a point, if anything, and removes the directory.
pub fn unmount(point: &Path) -> Result<(), UnmountError> {
    let other = |error| UnmountError::Other(point.to_owned(), error);
    while at(point).map_err(other)?.is_some() {
        match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) => return Err(UnmountError::Busy(point.to_owned())),
            Err(error) => return Err(other(error.into())),
        }
    }
    match fs::remove_dir(point) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Err(UnmountError::Littered(point.to_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(other(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_a_mount_point_are_said_and_stay() {
        let point = std::env::temp_dir().join(format!("conductor-littered-{}", std::process::id()));
        fs::create_dir(&point).expect("may");
        fs::write(point.join("left"), "here").expect("may");
        let said = unmount(&point).expect_err("it is not empty").to_string();
        assert!(said.contains("move them away"), "{said}");
        fs::remove_file(point.join("left")).expect("is still there");
        unmount(&point).expect("is empty");
        assert!(!point.exists());
    }

    #[test]
    fn file_systems_that_are_shut_are_told_from_those_that_are_to_be_so() {
        let check = |own: &str, said: &str, asked: &[&str], expected: Option<&str>| {
            let line = format!("64 27 7:0 / /nowhere {own} - ext4 /dev/loop0 {said}\n");
            let asked: Vec<String> = asked.iter().map(|option| (*option).to_owned()).collect();
            assert_eq!(parse(line.as_bytes())[0].fault(&asked).as_deref(), expected, "{line}");
        };
        check("rw,nosuid,relatime", "rw", &[], None);
        check("rw,relatime", "rw,emergency_ro", &[], Some("emergency_ro"));
        check("rw,relatime", "rw,shutdown", &["noatime"], Some("shutdown"));
        check("rw,relatime", "ro", &[], Some("ro"));
        check("ro,relatime", "ro", &["ro"], None);
        check("ro,relatime", "ro,emergency_ro", &["ro"], Some("emergency_ro"));
        check("rw,errors=remount-ro", "rw,errors=remount-ro", &["errors=remount-ro"], None);
    }

    #[test]
    fn the_kernels_table_is_read() {
        let table = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            bad line\n\
            45 22 7:3 / /srv/a\\040b\\134 rw shared:5 master:1 - xfs /dev/loop3 rw\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[1].point, Path::new("/srv/a b\\"));
        assert_eq!(mounts[1].device, Path::new("/dev/loop3"));
        assert_eq!(mounts[1].file_system, "xfs");
        assert!(at(Path::new("/")).expect("is read").is_some());
    }
}
