//! The file of the audit log: when it is full, it is put aside and a new one begun.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much of the log is kept; zero is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// Bytes of a file, which is put aside before it has more.
    pub size: u64,
    /// Files that were put aside; the oldest are removed.
    pub backups: usize,
    /// How long files that were put aside are kept.
    pub age: Duration,
}

/// A file, and those that were put aside: of `audit.log`, `audit-2026-01-31T12-00-00.000000.log`.
pub(super) struct Rotated {
    path: PathBuf,
    keep: Keep,
    out: BufWriter<File>,
    size: u64,
}

/// Only its owner may read it.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

impl Rotated {
    pub(super) fn open(path: &Path, keep: Keep) -> io::Result<Rotated> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        let log = Rotated { path: path.to_owned(), keep, out: BufWriter::with_capacity(64 * 1024, file), size };
        log.prune();
        Ok(log)
    }

    /// Writes a line, into a new file if it is too much for this one.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        if self.keep.size > 0 && self.size > 0 && self.size + line.len() as u64 > self.keep.size {
            if let Err(error) = self.rotate() {
                tracing::error!(%error, "a full audit log could not be put aside: it grows on");
            }
            // Or the next try comes when as much again is written.
            self.size = 0;
        }
        self.size += line.len() as u64;
        self.out.write_all(line.as_bytes())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.out.flush()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = machinery::time::Time::new(now.as_secs() as i64, 0).map(|own| own.to_string()).unwrap_or_default();
        let second = second.trim_end_matches('Z').replace(':', "-");
        let (begin, end) = self.around();
        let aside = self.path.with_file_name(format!("{begin}{second}.{:06}{end}", now.subsec_micros()));
        if aside.exists() {
            return Err(io::Error::other(format!("{} is there already", aside.display())));
        }
        std::fs::rename(&self.path, aside)?;
        self.out = BufWriter::with_capacity(64 * 1024, append(&self.path)?);
        self.prune();
        Ok(())
    }

    /// What the names of files that were put aside begin and end with.
    fn around(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let end = self.path.extension().map_or(String::new(), |own| format!(".{}", own.to_string_lossy()));
        (format!("{}-", text(self.path.file_stem())), end)
    }

    /// Removes what is too old or too many of what was put aside.
    fn prune(&self) {
        let (begin, end) = self.around();
        let is_ours = |name: &str| {
            let time = name.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end)).unwrap_or_default();
            let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            shape == "0000-00-00T00-00-00.000000"
        };
        let directory = self.path.parent().filter(|own| !own.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut aside: Vec<PathBuf> =
            files.filter(|file| is_ours(&file.file_name().to_string_lossy())).map(|file| file.path()).collect();
        aside.sort();
        let many = if self.keep.backups > 0 { aside.len().saturating_sub(self.keep.backups) } else { 0 };
        let is_old = |path: &Path| {
            let written = std::fs::metadata(path).and_then(|own| own.modified());
            let age = written.ok().and_then(|written| written.elapsed().ok()).unwrap_or_default();
            !self.keep.age.is_zero() && age > self.keep.age
        };
        for (at, path) in aside.iter().enumerate() {
            if at < many || is_old(path) {
                if let Err(error) = std::fs::remove_file(path) {
                    tracing::error!(%error, path = %path.display(), "an old audit log could not be removed");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, keep: Keep, lines: std::ops::Range<u32>) {
        let mut log = Rotated::open(path, keep).unwrap();
        for line in lines {
            log.write(&format!("line {line:04}\n")).unwrap();
        }
        log.flush().unwrap();
    }

    /// The files of the log, oldest first, the one that is written last.
    fn files(directory: &Path) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = std::fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|p| !p.ends_with("audit-notes.log"))
            .collect();
        all.sort_by_key(|path| (path.ends_with("audit.log"), path.clone()));
        all
    }

    #[test]
    fn a_full_file_is_put_aside_and_nothing_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let keep = Keep { size: 100, ..Keep::default() };
        // Also over restarts.
        write(&path, keep, 0..35);
        write(&path, keep, 35..77);
        let files = files(directory.path());
        assert_eq!(files.len(), 8, "{files:?}");
        let mut all = String::new();
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            assert!(text.len() <= 100, "{file:?}");
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
            all.push_str(&text);
        }
        assert_eq!(all, (0..77).map(|line| format!("line {line:04}\n")).collect::<String>());
    }

    #[test]
    fn only_so_many_and_so_old_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let notes = directory.path().join("audit-notes.log");
        std::fs::write(&notes, "mine").unwrap();
        write(&path, Keep { size: 100, backups: 2, ..Keep::default() }, 0..77);
        let kept = files(directory.path());
        let text: String = kept.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        assert_eq!(kept.len(), 3, "{kept:?}");
        assert_eq!(text, (50..77).map(|line| format!("line {line:04}\n")).collect::<String>());

        let week = Duration::from_secs(7 * 24 * 3600);
        File::options().append(true).open(&kept[0]).unwrap().set_modified(SystemTime::now() - 2 * week).unwrap();
        write(&path, Keep { age: week, ..Keep::default() }, 77..78);
        assert_eq!(files(directory.path()), kept[1..]);
        assert!(notes.exists());
    }

    #[test]
    fn without_a_size_it_is_one_file_and_a_long_line_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        write(&path, Keep::default(), 0..100);
        assert_eq!(files(directory.path()).len(), 1);
        write(&path, Keep { size: 1, ..Keep::default() }, 100..103);
        assert_eq!(files(directory.path()).len(), 4);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 0102\n");
    }
}
