//! Scrubbing: nothing of what was in a volume is left in it, and that is read back from the disk before anyone may say so.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, SeekFrom as RawSeek};
use rustix::io::Errno;

/// How data is made to disappear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Its blocks are given back to the disk; fast.
    Discard,
    /// It is overwritten with zeros where it lies.
    Zero,
    /// It is overwritten with noise, then with zeros.
    Shred,
}

impl Method {
    /// As written in a spec.
    pub fn parse(text: &str) -> Option<Method> {
        match text {
            "discard" => Some(Method::Discard),
            "zero" => Some(Method::Zero),
            "shred" => Some(Method::Shred),
            _ => None,
        }
    }

    /// As written in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Method::Discard => "discard",
            Method::Zero => "zero",
            Method::Shred => "shred",
        }
    }
}

/// Why a volume is not scrubbed.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    /// Reading or writing failed.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// The disk under the image cannot do it.
    #[error("the file system under {0} cannot discard: use the method zero or shred")]
    CannotDiscard(PathBuf),
    /// Something else than zeros was read back.
    #[error("{0} still holds data at byte {1}")]
    Remains(PathBuf, u64),
    /// Another file system is mounted below: what is in it is not this volume's.
    #[error("{0} is a mount point: unmount it")]
    OtherDevice(PathBuf),
    /// The file has more names, perhaps outside of the volume: overwriting it would destroy what others have.
    #[error("{0} has {1} hard links, and overwriting it would change them all: use the method discard, or remove them")]
    Linked(PathBuf, u64),
    /// Nested without end.
    #[error("{0} nests too deeply")]
    TooDeep(PathBuf),
    /// Something is there again.
    #[error("{0} holds {1} entries after it was emptied: something still writes into it")]
    NotEmpty(PathBuf, usize),
}

const CHUNK: usize = 1 << 20;
const MAX_DEPTH: usize = 512;

/// Scrubs a whole file, which afterwards reads as zeros.
pub fn image(path: &Path, method: Method) -> Result<(), ScrubError> {
    let at = |error| ScrubError::Io(path.to_owned(), error);
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(at)?;
    overwrite(&mut file, path, method)?;
    verify_zeros(&mut file, path)
}

fn overwrite(file: &mut File, path: &Path, method: Method) -> Result<(), ScrubError> {
    let at = |error| ScrubError::Io(path.to_owned(), error);
    let length = file.seek(SeekFrom::End(0)).map_err(at)?;
    match method {
        Method::Discard if length > 0 => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&*file, flags, 0, length) {
                Err(Errno::OPNOTSUPP) => return Err(ScrubError::CannotDiscard(path.to_owned())),
                result => result.map_err(|e| at(e.into()))?,
            }
        }
        Method::Discard => {}
        Method::Zero => fill(file, length, None).map_err(at)?,
        Method::Shred => {
            let mut noise = File::open("/dev/urandom").map_err(at)?;
            fill(file, length, Some(&mut noise)).map_err(at)?;
            // or the zeros could overtake the noise on their way to the disk
            file.sync_all().map_err(at)?;
            fill(file, length, None).map_err(at)?;
        }
    }
    file.sync_all().map_err(at)
}

/// Overwrites what a file holds, hole by hole: there is nothing in a hole.
fn fill(file: &mut File, length: u64, mut noise: Option<&mut File>) -> io::Result<()> {
    let mut buffer = vec![0u8; CHUNK];
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(&*file, RawSeek::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&*file, RawSeek::Hole(start))?;
        file.seek(SeekFrom::Start(start))?;
        let mut rest = end - start;
        while rest > 0 {
            let step = rest.min(CHUNK as u64) as usize;
            if let Some(noise) = noise.as_deref_mut() {
                noise.read_exact(&mut buffer[..step])?;
            }
            file.write_all(&buffer[..step])?;
            rest -= step as u64;
        }
        at = end;
    }
    Ok(())
}

/// Reads a file from the disk, not from memory; anything but zeros is an error.
pub fn verify_zeros(file: &mut File, path: &Path) -> Result<(), ScrubError> {
    let failed = |error| ScrubError::Io(path.to_owned(), error);
    file.sync_all().map_err(failed)?;
    rustix::fs::fadvise(&*file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
    let mut buffer = vec![0u8; CHUNK];
    let mut at = 0u64;
    loop {
        let read = file.read_at(&mut buffer, at).map_err(failed)?;
        if read == 0 {
            return Ok(());
        }
        if let Some(found) = buffer[..read].iter().position(|byte| *byte != 0) {
            return Err(ScrubError::Remains(path.to_owned(), at + found as u64));
        }
        at += read as u64;
    }
}

/// Empties a directory. Links are removed, never followed; other file systems below it are left alone and fail it.
pub fn directory(path: &Path, method: Method) -> Result<(), ScrubError> {
    let failed = |error: Errno| ScrubError::Io(path.to_owned(), error.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let device = rustix::fs::fstat(&root).map_err(failed)?.st_dev;
    empty(&root, path, method, device, 0)?;
    rustix::fs::fsync(&root).map_err(failed)?;
    let left = entries(&root, path)?.len();
    if left > 0 {
        return Err(ScrubError::NotEmpty(path.to_owned(), left));
    }
    Ok(())
}

type Names = Vec<(std::ffi::CString, FileType)>;

fn entries(directory: &OwnedFd, path: &Path) -> Result<Names, ScrubError> {
    let failed = |error: Errno| ScrubError::Io(path.to_owned(), error.into());
    let mut all = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            all.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    Ok(all)
}

// Everything is opened relative to its directory and never through a link, so that whoever still has the volume cannot lead us out.
fn empty(directory: &OwnedFd, path: &Path, method: Method, device: u64, depth: usize) -> Result<(), ScrubError> {
    if depth > MAX_DEPTH {
        return Err(ScrubError::TooDeep(path.to_owned()));
    }
    for (name, _) in entries(directory, path)? {
        let below = path.join(name.to_string_lossy().as_ref());
        let failed = |error: Errno| ScrubError::Io(below.clone(), error.into());
        let stat = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if stat.st_dev != device {
            return Err(ScrubError::OtherDevice(below));
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let inner = rustix::fs::openat(directory, &name, flags, Mode::empty()).map_err(failed)?;
            empty(&inner, &below, method, device, depth + 1)?;
            rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR).map_err(failed)?;
            continue;
        }
        if kind == FileType::RegularFile && method != Method::Discard {
            if stat.st_nlink > 1 {
                return Err(ScrubError::Linked(below, stat.st_nlink));
            }
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let inner = rustix::fs::openat(directory, &name, flags, Mode::empty()).map_err(failed)?;
            // looked at again: it may have got another name, or be another file, since
            let opened = rustix::fs::fstat(&inner).map_err(failed)?;
            if opened.st_nlink > 1 || opened.st_ino != stat.st_ino {
                return Err(ScrubError::Linked(below, opened.st_nlink));
            }
            let mut file = File::from(inner);
            overwrite(&mut file, &below, method)?;
            verify_zeros(&mut file, &below)?;
        }
        rustix::fs::unlinkat(directory, &name, AtFlags::empty()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const METHODS: [Method; 3] = [Method::Discard, Method::Zero, Method::Shred];

    #[test]
    fn nothing_is_left_in_an_image() {
        let directory = tempfile::tempdir().expect("is made");
        for method in METHODS {
            assert_eq!(Method::parse(method.name()), Some(method));
            let path = directory.path().join(method.name());
            let file = File::create(&path).expect("is made");
            // data, a hole, and data at the very end
            file.write_all_at(&[0x5a; 100_000], 0).expect("is written");
            file.write_all_at(b"secret", (8 << 20) - 6).expect("is written");
            image(&path, method).expect("is scrubbed");
            assert_eq!(fs::read(&path).expect("is there"), vec![0; 8 << 20], "{method:?}");
        }
        image(&directory.path().join("none"), Method::Zero).expect_err("is not there");
    }

    #[test]
    fn what_is_read_back_decides() {
        let directory = tempfile::tempdir().expect("is made");
        let path = directory.path().join("image");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("is made");
        file.set_len(5 << 20).expect("grows");
        verify_zeros(&mut file, &path).expect("is empty");
        file.write_all_at(b"x", 3 << 20).expect("is written");
        let error = verify_zeros(&mut file, &path).expect_err("holds data");
        assert!(matches!(error, ScrubError::Remains(_, at) if at == 3 << 20), "{error}");
    }

    #[test]
    fn nothing_is_left_in_a_directory_and_nothing_beside_it_is_touched() {
        let directory = tempfile::tempdir().expect("is made");
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).expect("is made");
        fs::write(outside.join("kept"), "kept").expect("is written");
        for method in METHODS {
            let volume = directory.path().join(method.name());
            fs::create_dir_all(volume.join("a/b")).expect("is made");
            fs::write(volume.join("a/b/file"), "data").expect("is written");
            fs::write(volume.join("empty"), "").expect("is written");
            std::os::unix::fs::symlink(&outside, volume.join("link")).expect("is made");
            std::os::unix::fs::symlink(outside.join("kept"), volume.join("a/link")).expect("is made");
            super::directory(&volume, method).expect("is scrubbed");
            assert_eq!(fs::read_dir(&volume).expect("is there").count(), 0, "{method:?}");
        }
        assert_eq!(fs::read_to_string(outside.join("kept")).expect("is there"), "kept");
    }

    #[test]
    fn files_with_names_elsewhere_are_not_overwritten() {
        let directory = tempfile::tempdir().expect("is made");
        let volume = directory.path().join("volume");
        fs::create_dir(&volume).expect("is made");
        let outside = directory.path().join("kept");
        fs::write(&outside, "kept").expect("is written");
        fs::hard_link(&outside, volume.join("link")).expect("is made");
        let error = super::directory(&volume, Method::Zero).expect_err("is refused");
        assert!(matches!(error, ScrubError::Linked(_, 2)), "{error}");
        super::directory(&volume, Method::Discard).expect("is emptied");
        assert_eq!(fs::read_to_string(&outside).expect("is there"), "kept");
    }
}
