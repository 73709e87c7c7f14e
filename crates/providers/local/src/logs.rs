//! What supervised processes say, kept within bounds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How large a log may grow before its older half is set aside; one older one is kept.
const MOST: u64 = 4 << 20;

/// What tenants' servers say is not everyone's to read.
const OURS: u32 = 0o600;

/// Where the log of a process is, in its directory.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// The log, to be appended to.
pub(crate) fn open(dir: &Path) -> io::Result<File> {
    bound(dir)?;
    OpenOptions::new().create(true).append(true).mode(OURS).open(path(dir))
}

/// Sets a log that has grown too large aside. The process keeps its file, so the content is copied and the file emptied; lines written
/// in between are lost.
pub(crate) fn bound(dir: &Path) -> io::Result<()> {
    let log = path(dir);
    for kept in [&log, &dir.join("log.1")] {
        crate::home::tighten(kept, OURS)?;
    }
    match fs::metadata(&log) {
        Ok(meta) if meta.len() > MOST => {
            fs::copy(&log, dir.join("log.1"))?;
            OpenOptions::new().write(true).open(&log)?.set_len(0)
        }
        _ => Ok(()),
    }
}

/// The last lines of a log, at most `lines` of them and 64 KiB.
pub fn tail(dir: &Path, lines: usize) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&tail_bytes(dir, lines)?).into_owned())
}

/// The same as it was written, whatever that is.
pub fn tail_bytes(dir: &Path, lines: usize) -> io::Result<Vec<u8>> {
    let said = read(dir, 0)?;
    let all: Vec<&[u8]> = said.trim_ascii_end().split(|byte| *byte == b'\n').collect();
    Ok(all[all.len().saturating_sub(lines)..].join(&b'\n'))
}

/// What was said since a log was so long, at most 64 KiB; all of it where it was emptied since then.
pub(crate) fn since(dir: &Path, begin: u64) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read(dir, begin)?).trim_end().to_owned())
}

fn read(dir: &Path, begin: u64) -> io::Result<Vec<u8>> {
    const SEEN: u64 = 64 << 10;
    let mut file = File::open(path(dir))?;
    let length = file.metadata()?.len();
    let begin = if begin > length { 0 } else { begin };
    file.seek(SeekFrom::Start(begin.max(length.saturating_sub(SEEN))))?;
    let mut bytes = Vec::new();
    file.take(SEEN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_is_bounded_and_its_end_is_shown() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut writer = open(dir.path()).expect("opens");
        writer.write_all(b"one\ntwo\nthree\n").expect("writes");
        assert_eq!(tail(dir.path(), 2).expect("reads"), "two\nthree");
        writer.write_all(b"caf\xe9\n").expect("writes");
        assert_eq!(tail_bytes(dir.path(), 2).expect("reads"), b"three\ncaf\xe9");
        assert_eq!(tail(dir.path(), 1).expect("reads"), "caf\u{fffd}");
        writer.write_all(&vec![b'x'; MOST as usize]).expect("writes");
        bound(dir.path()).expect("bounds");
        for kept in ["log", "log.1"] {
            let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(dir.path().join(kept)).expect("is there"));
            assert_eq!(mode & 0o777, 0o600, "{kept} is ours alone");
        }
        // the process goes on writing into the file it has
        writer.write_all(b"four\n").expect("writes");
        assert_eq!(fs::read_to_string(path(dir.path())).expect("reads"), "four\n");
    }
}
