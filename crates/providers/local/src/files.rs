//! Files that are to stay as they are: whoever changes or removes one is noticed at once, not when it is looked at next.
//!
//! The kernel tells (inotify). Where it does not, or has told more than fits, what was missed is found by the next look, as ever: this is
//! about how soon.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::kind::Wake;

/// How much of a log is read at a time.
const READ: u64 = 64 << 10;
/// What comes within this time is looked at together: a log may be written to all the time.
const TOGETHER: Duration = Duration::from_millis(50);

/// Takes in what was added to a log.
pub type Said = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module. One for all kinds of a provider.
#[derive(Clone)]
pub struct Files(Option<Arc<Inner>>);

struct Inner {
    told: OwnedFd,
    wake: Wake,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is watched, by the kernel's number and by path.
    watched: HashMap<i32, PathBuf>,
    numbers: HashMap<PathBuf, i32>,
    kept: HashMap<PathBuf, Kept>,
    logs: HashMap<PathBuf, Log>,
}

struct Kept {
    uid: String,
    /// What is in it; `None`: it is there, and its coming and going is what counts.
    content: Option<u64>,
}

struct Log {
    uid: String,
    read: u64,
    said: Said,
}

fn digest(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

impl Kept {
    fn is_kept(&self, path: &Path) -> bool {
        self.content.is_some_and(|content| fs::read(path).is_ok_and(|there| digest(&there) == content))
    }
}

impl Files {
    /// Has objects looked at whose files are not as they were kept.
    pub fn new(wake: Wake) -> Files {
        let told = match inotify::init(CreateFlags::CLOEXEC) {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(%error, "changed files are noticed late: they cannot be watched");
                return Files(None);
            }
        };
        let inner = Arc::new(Inner { told, wake, state: Mutex::default() });
        let watching = inner.clone();
        std::thread::spawn(move || {
            let Err(error) = watching.watch();
            tracing::warn!(%error, "changed files are noticed late: they cannot be watched any more");
        });
        Files(Some(inner))
    }

    /// From now on a file of an object's is to have this content, or a file or directory is to be there. What is said of content before it
    /// is written is no news when it is.
    pub fn keep(&self, uid: &str, path: &Path, content: Option<&[u8]>) {
        let (Some(inner), Some(directory)) = (&self.0, path.parent()) else { return };
        let mut state = inner.state.lock();
        state.kept.insert(path.to_owned(), Kept { uid: uid.to_owned(), content: content.map(digest) });
        let changes = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inner.add(&mut state, directory, changes);
    }

    /// From now on `said` is told what is added to an object's log.
    pub fn follow(&self, uid: &str, log: &Path, said: impl FnOnce() -> Said) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state.lock();
        if state.logs.contains_key(log) && state.numbers.contains_key(log) {
            return;
        }
        let read = fs::metadata(log).map(|meta| meta.len()).unwrap_or(0);
        state.logs.insert(log.to_owned(), Log { uid: uid.to_owned(), read, said: said() });
        inner.add(&mut state, log, WatchFlags::MODIFY);
    }

    /// Nothing of an object's is kept any more.
    pub fn forget(&self, uid: &str) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state.lock();
        state.kept.retain(|_, kept| kept.uid != uid);
        state.logs.retain(|_, log| log.uid != uid);
        let needed: HashSet<&Path> =
            state.kept.keys().filter_map(|path| path.parent()).chain(state.logs.keys().map(PathBuf::as_path)).collect();
        let idle: Vec<(PathBuf, i32)> = state
            .numbers
            .iter()
            .filter(|(path, _)| !needed.contains(path.as_path()))
            .map(|(path, number)| (path.clone(), *number))
            .collect();
        for (path, number) in idle {
            state.numbers.remove(&path);
            state.watched.remove(&number);
            let _ = inotify::remove_watch(&inner.told, number);
        }
    }
}

impl Inner {
    fn add(&self, state: &mut State, path: &Path, flags: WatchFlags) {
        if state.numbers.contains_key(path) {
            return;
        }
        match inotify::add_watch(&self.told, path, flags) {
            Ok(number) => {
                state.numbers.insert(path.to_owned(), number);
                state.watched.insert(number, path.to_owned());
            }
            // what is not there is said by who looks for it
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => tracing::debug!(%error, path = %path.display(), "changes there are noticed late"),
        }
    }

    fn watch(&self) -> io::Result<std::convert::Infallible> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = inotify::Reader::new(&self.told, &mut buffer);
        let (mut all, mut touched) = (false, HashSet::new());
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    all |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    let gone = event.events().intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF);
                    touched.insert((event.wd(), name, gone));
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if events.is_buffer_empty() {
                std::thread::sleep(TOGETHER);
                self.tell(std::mem::take(&mut touched), std::mem::take(&mut all));
            }
        }
    }

    fn tell(&self, touched: HashSet<(i32, Option<std::ffi::OsString>, bool)>, all: bool) {
        let (mut uids, mut said) = (HashSet::new(), Vec::new());
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            for (number, name, gone) in touched {
                let Some(watched) = state.watched.get(&number).cloned() else { continue };
                if gone {
                    state.watched.remove(&number);
                    state.numbers.remove(&watched);
                    let _ = inotify::remove_watch(&self.told, number);
                    let below = state.kept.iter().filter(|(path, _)| path.parent() == Some(&watched));
                    uids.extend(below.map(|(_, kept)| kept.uid.clone()));
                } else if let Some(log) = state.logs.get_mut(&watched) {
                    said.extend(log.more(&watched).map(|more| (log.said.clone(), more)));
                } else if let Some(name) = name {
                    let path = watched.join(name);
                    let changed = state.kept.get(&path).filter(|kept| !kept.is_kept(&path));
                    uids.extend(changed.map(|kept| kept.uid.clone()));
                }
            }
            if all {
                uids.extend(state.kept.values().map(|kept| kept.uid.clone()));
            }
        }
        uids.iter().for_each(|uid| (self.wake)(uid));
        said.iter().for_each(|(said, more)| said(more));
    }
}

impl Log {
    /// What was added since it was read last; of much, the end.
    fn more(&mut self, path: &Path) -> Option<String> {
        let mut file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        let begin = if self.read > length { 0 } else { self.read }.max(length.saturating_sub(READ));
        self.read = length;
        file.seek(SeekFrom::Start(begin)).ok()?;
        let mut bytes = Vec::new();
        file.take(length - begin).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn changes_by_others_are_told_and_our_own_are_not() {
        let root = tempfile::tempdir().expect("a directory");
        let (told, hears) = mpsc::channel();
        let files = Files::new(Arc::new(move |uid: &str| drop(told.send(uid.to_owned()))));
        let expect = |uid: &str| {
            let heard = hears.recv_timeout(Duration::from_secs(30)).expect("is told");
            assert_eq!(heard, uid);
            // several events of one change may be told one by one
            while hears.recv_timeout(4 * TOGETHER).is_ok_and(|heard| heard == uid) {}
        };
        let at = |name: &str| root.path().join(name);
        let restored = || fs::create_dir(at("d")).expect("is made");
        restored();
        for name in ["a", "b", "c"] {
            files.keep(name, &at(name), Some(b"ours"));
            crate::home::write_for_now(&at(name), b"ours", 0o600, None).expect("writes");
        }
        files.keep("d", &at("d"), None);
        // none of which was news
        fs::write(at("a"), "theirs").expect("writes");
        expect("a");
        fs::rename(at("a"), at("b")).expect("renames");
        let both: HashSet<String> =
            (0..2).map(|_| hears.recv_timeout(Duration::from_secs(30)).expect("told")).collect();
        assert_eq!(both, HashSet::from(["a".to_owned(), "b".to_owned()]));
        fs::write(at("else"), "nobody's").expect("writes");
        fs::remove_dir(at("d")).expect("is removed");
        expect("d");
        restored();
        expect("d");
        files.forget("c");
        fs::remove_file(at("c")).expect("is removed");
        // a directory that goes takes all with it, and is watched again when it is there again
        let inner = at("inner");
        for round in 0..2 {
            fs::create_dir(&inner).expect("is made");
            files.keep("e", &inner.join("e"), Some(b"ours"));
            fs::write(inner.join("e"), "ours").expect("writes");
            fs::remove_dir_all(&inner).expect("is removed");
            expect("e");
            assert!(!files.0.as_ref().expect("watches").state.lock().numbers.contains_key(&inner), "round {round}");
        }
    }

    #[test]
    fn a_log_is_read_as_it_grows() {
        let root = tempfile::tempdir().expect("a directory");
        let log = root.path().join("log");
        fs::write(&log, "before\n").expect("writes");
        let files = Files::new(Arc::new(|_: &str| {}));
        let (told, hears) = mpsc::channel();
        files.follow("a", &log, || Arc::new(move |more: &str| drop(told.send(more.to_owned()))));
        let mut file = File::options().append(true).open(&log).expect("opens");
        let mut check = |text: &str| {
            file.write_all(text.as_bytes()).expect("writes");
            let mut heard = String::new();
            while heard != text {
                heard += &hears.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("{text}, not {heard}"));
            }
        };
        check("one\n");
        check("two\n");
        // one that was emptied is read from its beginning
        File::options().write(true).open(&log).and_then(|log| log.set_len(0)).expect("is emptied");
        check("3\n");
    }
}
