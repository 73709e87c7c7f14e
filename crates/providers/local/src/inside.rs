//! Directories that someone else writes into while we look: no link, device or pipe in them leads us anywhere.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fsync, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// No deeper: each level takes an open file.
const DEEPEST: usize = 128;

fn flags(more: OFlags) -> OFlags {
    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | more
}

/// Opens a directory itself, not what a link leads to.
pub fn open_directory(dir: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(dir, flags(OFlags::DIRECTORY), Mode::empty())?)
}

/// Shows everything below a directory, on the same file system, with the open directory it is in; a directory after what is in it. What
/// vanishes meanwhile is passed over.
pub fn walk(dir: &Path, each: &mut dyn FnMut(BorrowedFd<'_>, &CStr, &Stat) -> io::Result<()>) -> io::Result<()> {
    let root = open_directory(dir)?;
    let device = fstat(&root)?.st_dev;
    level(root.as_fd(), device, 0, each)
}

fn level(
    dir: BorrowedFd<'_>,
    device: u64,
    depth: usize,
    each: &mut dyn FnMut(BorrowedFd<'_>, &CStr, &Stat) -> io::Result<()>,
) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_dev == device => stat,
            Ok(_) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && depth < DEEPEST {
            match openat(dir, name, flags(OFlags::DIRECTORY), Mode::empty()) {
                Ok(below) => level(below.as_fd(), device, depth + 1, each)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        each(dir, name, &stat)?;
    }
    Ok(())
}

/// How much a directory holds, in bytes on disk.
pub fn size_of(dir: &Path) -> u64 {
    let mut total = 0;
    let _ = walk(dir, &mut |_, _, stat| {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            total += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
        Ok(())
    });
    total
}

/// Brings everything below a directory onto the disk for good.
pub fn sync(dir: &Path) -> io::Result<()> {
    walk(dir, &mut |at, name, stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::Directory | FileType::RegularFile) {
            return Ok(());
        }
        match openat(at, name, flags(OFlags::empty()), Mode::empty()) {
            Ok(file) if FileType::from_raw_mode(fstat(&file)?.st_mode) == kind => Ok(fsync(&file)?),
            // its owner has removed or replaced it
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })?;
    Ok(fsync(open_directory(dir)?)?)
}

/// Removes a directory and all below it, if it is there, however deeply its owner has nested it.
pub fn remove(dir: &Path) -> io::Result<()> {
    let root = match open_directory(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        root => root?,
    };
    // what is too deep comes up and is next; each round ends, for nobody is left who writes
    while !empty(root.as_fd(), root.as_fd(), 0, &mut 0)? {}
    std::fs::remove_dir(dir)
}

/// Empties a directory; `false`: something was moved up to the root instead.
fn empty(root: BorrowedFd<'_>, dir: BorrowedFd<'_>, depth: usize, moved: &mut u64) -> io::Result<bool> {
    let mut done = true;
    let names: Vec<CString> =
        Dir::read_from(dir)?.map(|entry| Ok(entry?.file_name().to_owned())).collect::<io::Result<_>>()?;
    for name in names.iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            // the latter is what POSIX has for directories
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        if depth >= DEEPEST {
            done = false;
            rename_up(root, dir, name, moved)?;
            continue;
        }
        let below = openat(dir, name, flags(OFlags::DIRECTORY), Mode::empty())?;
        if empty(root, below.as_fd(), depth + 1, moved)? {
            unlinkat(dir, name, AtFlags::REMOVEDIR)?;
        } else {
            done = false;
        }
    }
    Ok(done)
}

/// Moves a directory to the root, under a name that is free there.
fn rename_up(root: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        match renameat_with(dir, name, root, format!(".removed-{moved}"), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            outcome => return Ok(outcome?),
        }
    }
}

/// The text of a small file; none if it is no file itself, or more than 64 KiB.
pub fn read_small(path: &Path) -> Option<String> {
    const MOST: u64 = 64 << 10;
    let custom = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).ok()?;
    let file = File::options().read(true).custom_flags(custom).open(path).ok()?;
    let meta = file.metadata().ok()?;
    let mut text = String::new();
    (meta.is_file() && meta.len() <= MOST).then(|| file.take(MOST).read_to_string(&mut text).ok())??;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_nested_without_end_is_removed_and_links_with_what_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        fs::create_dir(&inside).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "kept").expect("written");
        let mut at = open_directory(&inside).expect("opens");
        // a file at every level would be no other case
        for level in 0..2_000 {
            if level % 500 == 0 {
                rustix::fs::symlinkat(&outside, &at, "away").expect("links");
            }
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("made");
            at = openat(&at, "d", flags(OFlags::DIRECTORY), Mode::empty()).expect("opens");
        }
        drop(at);
        // in little room, as if it were nested ten times as deeply
        let (small, deep) = (std::thread::Builder::new().stack_size(256 << 10), inside.clone());
        let removed = small.spawn(move || remove(&deep)).expect("starts").join();
        removed.expect("has room").expect("is removed");
        assert!(!inside.exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).expect("is there"), "kept");
        remove(&inside).expect("is gone already");
    }

    #[test]
    fn nothing_in_a_directory_leads_out_of_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("sub")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("large"), vec![1; 1 << 20]).expect("written");
        fs::write(inside.join("sub/small"), "12").expect("written");
        sync(&inside).expect("syncs");
        let own = size_of(&inside);
        assert!(own > 0);
        symlink(&outside, inside.join("sub/away")).expect("links");
        symlink(outside.join("large"), inside.join("file")).expect("links");
        rustix::fs::mknodat(rustix::fs::CWD, inside.join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("made");
        assert!(size_of(&inside) < own + (64 << 10), "what links lead to does not count");
        sync(&inside).expect("passes over pipes and links");
        symlink(&inside, dir.path().join("link")).expect("links");
        assert_eq!(size_of(&dir.path().join("link")), 0, "nor is the directory itself a link");
        assert_eq!(read_small(&inside.join("sub/small")).as_deref(), Some("12"));
        for other in ["file", "pipe", "sub", "none"] {
            assert_eq!(read_small(&inside.join(other)), None, "{other}");
        }
        assert_eq!(read_small(&outside.join("large")), None, "too large");
    }
}
