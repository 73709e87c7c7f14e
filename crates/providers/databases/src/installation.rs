//! Whose a database is in a server that others use, too: it bears the mark of the data directory that it was made from.
//!
//! A copy of a data directory has the same objects with the same uids, and so the same names of databases. But it is another directory:
//! it gets a mark of its own, and leaves alone what bears the one that it was copied with. A directory that was moved, and is another one
//! by that (between file systems), gets a new mark as well, and takes over what bears the old one: should there be a copy, or an original
//! elsewhere, that finds the new mark and leaves it alone.
//!
//! The file, of which lines can be added by hand:
//!
//! ```text
//! MARK
//! at DIRECTORY MACHINE PATH       where it was made, or was moved to
//! former MARK                     what bears it was taken over
//! copy MARK MACHINE PATH          what bears it is another's, of which this is a copy
//! ```
//!
//! What cannot be told apart: a disk that was copied as a whole and runs under the same machine id.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use conductor_local::{Home, Trouble, home};
use parking_lot::Mutex;

use crate::credentials;

const FILE: &str = "installation";

/// One at a time reads and renews it.
static KEEPING: Mutex<()> = Mutex::new(());

/// The marks of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    mark: String,
    at: Option<Place>,
    former: Vec<String>,
    others: Vec<(String, Place)>,
}

/// A directory somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// What a directory keeps when it is moved, and a copy of it has not: when it was made.
    directory: String,
    /// The machine's id and name.
    machine: String,
    path: PathBuf,
}

/// Whose something is that is in a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Ours, and marked so.
    Own,
    /// Ours, with a mark from before, or none of anybody's.
    Unmarked,
    /// Another data directory's: whose, and how it becomes ours.
    Other(String),
}

impl Installation {
    /// The one of a home, renewed if the home is not what it was.
    pub fn of(home: &Home) -> Result<Installation, Trouble> {
        let _alone = KEEPING.lock();
        let file = home.path().join(FILE);
        let kept = match fs::read(&file) {
            Ok(text) => read(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Trouble::io("read the installation's mark")(error)),
        };
        if kept.is_none() {
            home.make("", None).map_err(Trouble::io("make the provider's directory"))?;
        }
        let here = Place::of(home.path()).map_err(Trouble::io("look at the provider's directory"))?;
        let settled = match kept.clone() {
            Some(kept) => {
                let another = kept.is_elsewhere(&here.path);
                kept.settled(here, another, || credentials::random(12))?
            }
            None => Installation { mark: credentials::random(12)?, at: Some(here), ..Installation::default() },
        };
        if kept.as_ref() != Some(&settled) {
            home::write_whole(&file, &settled.written()?, 0o600)
                .map_err(Trouble::io("keep the installation's mark"))?;
        }
        Ok(settled)
    }

    /// What is made for an object is marked so.
    pub fn mark(&self, uid: &str) -> String {
        format!("conductor {} {uid}", self.mark)
    }

    /// What every mark of ours begins with, those of before too.
    pub fn prefixes(&self) -> Vec<String> {
        self.former.iter().chain([&self.mark]).map(|mark| format!("conductor {mark} ")).collect()
    }

    /// Whose something is, by its mark. What nobody has marked is whose its name says.
    pub fn owner(&self, home: &Home, mark: &str) -> Owner {
        let mut words = mark.split(' ');
        let found = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("conductor"), Some(mark), Some(_), None) if is_mark(mark) => mark,
            _ => return Owner::Unmarked,
        };
        if found == self.mark {
            return Owner::Own;
        }
        if self.former.iter().any(|mark| mark == found) {
            return Owner::Unmarked;
        }
        let take = format!("echo former {found} >> {}", home.path().join(FILE).display());
        let Some((_, place)) = self.others.iter().find(|(mark, _)| mark == found) else {
            return Owner::Other(format!(
                "it bears the mark of another data directory ({found}) and is left alone: if that is no more, {take}"
            ));
        };
        let path = place.data_dir().display();
        let here = self.at.as_ref().is_some_and(|at| at.machine == place.machine);
        let machine = place.machine.rsplit('/').next().unwrap_or_default();
        let whose = if here { path.to_string() } else { format!("{path} on {machine}") };
        Owner::Other(format!(
            "it belongs to the data directory {whose}, of which this is a copy, and is left alone: to go on here with it, stop the \
             server of that one, remove it, and {take}"
        ))
    }

    /// Whether the directory that this was in is there still, and is another than this.
    fn is_elsewhere(&self, here: &Path) -> bool {
        let Some(at) = self.at.as_ref().map(|at| at.path.as_path()).filter(|at| *at != here) else { return false };
        let id = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        if id(at).is_some_and(|other| id(here) == Some(other)) {
            return false;
        }
        match fs::read(at.join(FILE)) {
            Ok(text) => read(&text).is_some_and(|other| other.mark == self.mark || other.former.contains(&self.mark)),
            // where we may not look it may well be
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }

    /// What it is here; `another`: where it was there is another one.
    fn settled<E>(
        mut self,
        here: Place,
        another: bool,
        new: impl Fn() -> Result<String, E>,
    ) -> Result<Installation, E> {
        let Some(at) = self.at.replace(here.clone()) else {
            // of a version that did not say where: of several such, who is first renews the marks in the server
            self.former.push(std::mem::replace(&mut self.mark, new()?));
            return Ok(self);
        };
        let same = at.directory == here.directory;
        if same && !another && !at.is_other_machine(&here) {
            return Ok(self);
        }
        let before = std::mem::replace(&mut self.mark, new()?);
        if another || same || at.machine != here.machine {
            let all = self.former.drain(..).chain([before]);
            let there = Place { directory: String::new(), ..at };
            self.others.extend(all.map(|mark| (mark, there.clone())));
        } else {
            self.former.push(before);
        }
        Ok(self)
    }

    fn written(&self) -> Result<Vec<u8>, Trouble> {
        let mut text = format!("{}\n", self.mark).into_bytes();
        for (words, place) in self
            .at
            .iter()
            .map(|at| (format!("at {}", at.directory), at))
            .chain(self.others.iter().map(|(mark, place)| (format!("copy {mark}"), place)))
        {
            let path = place.path.as_os_str().as_bytes();
            if path.contains(&b'\n') {
                let message = "the path of the data directory has a line break: move it";
                return Err(Trouble::new("Invalid", message));
            }
            text.extend(format!("{words} {} ", place.machine).bytes());
            text.extend(path);
            text.push(b'\n');
        }
        for mark in &self.former {
            text.extend(format!("former {mark}\n").bytes());
        }
        Ok(text)
    }
}

/// What a file says; `None`: nothing.
fn read(text: &[u8]) -> Option<Installation> {
    let mut found = Installation::default();
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        let words: Vec<&[u8]> = line.splitn(4, |b| *b == b' ').collect();
        let text = |word: &[u8]| String::from_utf8_lossy(word).trim().to_owned();
        let place = |machine: &[u8], path: &[u8], directory: &[u8]| Place {
            directory: text(directory),
            machine: text(machine),
            path: PathBuf::from(OsStr::from_bytes(path)),
        };
        match words.as_slice() {
            [mark] if number == 0 => found.mark = text(mark),
            [b"at", directory, machine, path] => found.at = Some(place(machine, path, directory)),
            [b"copy", mark, machine, path] => found.others.push((text(mark), place(machine, path, b""))),
            [b"former", mark, ..] => found.former.push(text(mark)),
            _ => {}
        }
    }
    is_mark(&found.mark).then_some(found)
}

/// Whether a word can be the mark of a data directory.
pub fn is_mark(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

impl Place {
    fn of(path: &Path) -> std::io::Result<Place> {
        let meta = path.metadata()?;
        let made = meta.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        // some file systems do not know; some number anew with each start what they show
        let directory =
            made.map_or_else(|| format!("inode-{}", meta.ino()), |made| format!("made-{}", made.as_nanos()));
        let word = |text: String| text.split_whitespace().collect::<String>();
        let id = word(fs::read_to_string("/etc/machine-id").unwrap_or_default());
        let name = word(fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default());
        Ok(Place { directory, machine: format!("{id}/{name}"), path: path.to_owned() })
    }

    /// Whether two machines have ids, and not the same. Their names may change.
    fn is_other_machine(&self, other: &Place) -> bool {
        let id = |place: &Place| place.machine.split('/').next().unwrap_or_default().to_owned();
        !id(self).is_empty() && !id(other).is_empty() && id(self) != id(other)
    }

    /// The data directory that a provider's directory is in, where it is in one.
    fn data_dir(&self) -> &Path {
        let providers = self.path.parent().filter(|parent| parent.ends_with("providers"));
        providers.and_then(Path::parent).unwrap_or(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn place(directory: &str, machine: &str, path: &str) -> Place {
        Place { directory: directory.into(), machine: machine.into(), path: path.into() }
    }

    #[test]
    fn what_was_copied_is_told_from_what_was_moved() {
        let before = Installation {
            mark: "X".into(),
            at: Some(place("made-1", "m/h", "/a")),
            former: vec!["W".into()],
            others: vec![("V".into(), place("", "m/h", "/z"))],
        };
        // what came of it: the mark, those that were taken over, and those that are another's
        let check = |here: Place, another: bool, expected: (&str, &[&str], &[&str])| {
            let new = || Ok::<_, ()>("Y".to_owned());
            let settled = before.clone().settled(here.clone(), another, new).expect("settles");
            let others: Vec<&str> = settled.others.iter().map(|(mark, _)| mark.as_str()).collect();
            let former: Vec<&str> = settled.former.iter().map(String::as_str).collect();
            assert_eq!((settled.mark.as_str(), former.as_slice(), others.as_slice()), expected, "{here:?} {another}");
            assert_eq!(settled.at.as_ref(), Some(&here), "it is known where it is");
            let again = settled.clone().settled(here, false, new).expect("settles");
            assert_eq!(again, settled, "once is enough");
            assert_eq!(read(&settled.written().expect("is written")).map(|read| read.mark), Some(settled.mark));
        };
        let (own, moved, copied) =
            (("X", &["W"][..], &["V"][..]), ("Y", &["W", "X"][..], &["V"][..]), ("Y", &[][..], &["V", "W", "X"][..]));
        check(place("made-1", "m/h", "/a"), false, own);
        check(place("made-1", "m/h", "/b"), false, own);
        check(place("made-1", "m/renamed", "/a"), false, own);
        check(place("made-1", "/container", "/a"), false, own);
        // to another file system, or back from a backup
        check(place("made-2", "m/h", "/b"), false, moved);
        check(place("made-2", "m/h", "/a"), false, moved);
        check(place("made-2", "m/h", "/b"), true, copied);
        // the original may be there
        check(place("made-2", "n/i", "/a"), false, copied);
        check(place("made-2", "m/i", "/a"), false, copied);
        check(place("made-1", "n/h", "/a"), false, copied);
        // a snapshot beside the original
        check(place("made-1", "m/h", "/b"), true, copied);
    }

    #[test]
    fn one_of_an_earlier_version_takes_over_what_it_had() {
        let old = read(b"abcDEF234567").expect("is one");
        assert_eq!((old.mark.as_str(), &old.at), ("abcDEF234567", &None));
        let new = old.settled(place("made-1", "m/h", "/a"), false, || Ok::<_, ()>("Y".into())).expect("settles");
        assert_eq!((new.mark.as_str(), new.former), ("Y", vec!["abcDEF234567".to_owned()]));
        for nothing in ["", "\n", "two words", "x'; drop"] {
            assert_eq!(read(nothing.as_bytes()), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_directory_keeps_its_mark_and_its_copy_gets_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).join("providers/databases");
        let of = |name: &str| {
            let home = Home::at(&at(name)).expect("is there");
            let own = Installation::of(&home).expect("is kept");
            assert_eq!(Installation::of(&home).expect("is kept"), own);
            (own, home)
        };
        let copy = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|name| dir.path().join(name));
            assert!(Command::new("cp").arg("-a").args([from, to]).status().expect("runs").success());
        };
        let (first, _) = of("one");
        let mark = first.mark("uid");
        copy("one", "two");
        let (second, home) = of("two");
        let Owner::Other(why) = second.owner(&home, &mark) else { panic!("it is the original's: {second:?}") };
        assert!(why.contains(&format!("{}, of which this is a copy", dir.path().join("one").display())), "{why}");
        let (own, home) = of("one");
        assert_eq!((own.owner(&home, &mark), own), (Owner::Own, first.clone()));

        // moved
        fs::rename(dir.path().join("one"), dir.path().join("three")).expect("moves");
        let (moved, home) = of("three");
        assert_eq!(moved.owner(&home, &mark), Owner::Own);
        copy("three", "four");
        fs::remove_dir_all(dir.path().join("three")).expect("goes");
        let (moved, home) = of("four");
        assert_ne!(moved.mark("uid"), mark);
        assert_eq!(moved.owner(&home, &mark), Owner::Unmarked, "it is taken over");
        assert_eq!(moved.prefixes().len(), 2);
        let (second, home) = of("two");
        let Owner::Other(why) = second.owner(&home, &moved.mark("uid")) else { panic!("it is another's") };
        assert!(why.contains("another data directory"), "{why}");

        // what is said to do
        let Owner::Other(why) = second.owner(&home, &mark) else { panic!("it is the original's") };
        let (_, command) = why.rsplit_once("and echo").expect("is said");
        assert!(Command::new("sh").args(["-c", &format!("echo {command}")]).status().expect("runs").success());
        let (second, home) = of("two");
        assert_eq!(second.owner(&home, &mark), Owner::Unmarked);
        for nobodys in ["", "a shop's", "conductor", "conductor a b c", "conductor x' uid"] {
            assert_eq!(second.owner(&home, nobodys), Owner::Unmarked, "{nobodys}");
        }
    }
}
