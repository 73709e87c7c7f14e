//! The few things the log asks of a file system, so that tests can put a worse one in its place.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::OpenError;

/// A flat directory of files.
pub trait Disk: Send + Sync + 'static {
    /// Where it is, for messages.
    fn path(&self) -> &Path;
    /// The names of all files except the lock.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file, or empties the one that is there.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file over whatever has the new name. Durable after `sync`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after `sync`.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send {
    /// Its length.
    fn length(&self) -> io::Result<u64>;
    /// Reads at an offset; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes at an offset. Durable after `sync`.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reserves space up to `length`, so that writes below it neither grow the file nor run out of space.
    fn allocate(&mut self, offset: u64, length: u64) -> io::Result<()>;
    /// Cuts the file.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Makes writes and the length durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A real directory, held by this process alone for as long as this lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: File,
    _lock: File,
}

const LOCK: &str = "lock";
/// How long a process that was killed may seem to hold it: a child that it was about to start has its files until it is another program.
const LINGERING: Duration = Duration::from_secs(1);

impl Directory {
    /// Opens the directory, makes it (mode 0700) if it is missing, and locks it.
    pub fn open(path: &Path) -> Result<Directory, OpenError> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| OpenError::Io { action, path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create directory"))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(failed("open the lock file in"))?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if begun.elapsed() < LINGERING => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    let mut pid = String::new();
                    let _ = lock.read_to_string(&mut pid);
                    return Err(OpenError::Locked { path: path.to_owned(), pid: pid.trim().parse().ok() });
                }
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            }
        }
        // Only a help for people: on a full disk the lock holds all the same.
        let _ = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
        let handle = File::open(path).map_err(failed("open directory"))?;
        Ok(Directory { path: path.to_owned(), handle, _lock: lock })
    }
}

impl Disk for Directory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != LOCK {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(RealFile(options.open(self.path.join(name))?)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Box::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&mut self, offset: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        match fallocate(&self.0, FallocateFlags::empty(), offset, length) {
            Ok(()) => Ok(()),
            // A file system that cannot reserve still gets the length, which spares growing at each batch.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.0.set_len(offset + length),
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
