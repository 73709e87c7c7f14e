//! The guarantees of watch, each with a validator that says what broke.
//!
//! They take what a watcher was given as [`Step`]s, and the truth as a [`History`], so that they serve for the store itself and
//! for anything that serves watches on top of it.
//!
//! | guarantee | in words |
//! | --- | --- |
//! | [`ordered`] | events come in the order of their revisions |
//! | [`unique`] | no event comes twice |
//! | [`atomic`] | the events of a transaction come together |
//! | [`resumable`] | from any revision on, also after a restart, nothing is missing and nothing is made up |
//! | [`bookmarkable`] | a bookmark is a transaction boundary, and everything up to it has come before it |

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::{Event, EventKind};

/// An event as a watcher saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its revision.
    pub revision: u64,
    /// The table.
    pub table: String,
    /// The key.
    pub key: String,
    /// Put or delete.
    pub kind: EventKind,
    /// Stands for the bytes shown; see [`digest`].
    pub digest: u64,
}

impl From<&Event> for Seen {
    fn from(event: &Event) -> Self {
        Seen {
            revision: event.revision,
            table: event.table.to_string(),
            key: event.key().to_string(),
            kind: event.kind,
            digest: digest(&event.entry.value),
        }
    }
}

/// A short stand-in for bytes, the same in every process.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// What happened to a watcher, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It began, or began again, from this revision.
    From(u64),
    /// It was given these events at once.
    Batch(Vec<Seen>),
    /// It was told that it has everything up to this revision.
    Bookmark(u64),
}

/// One revision as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What a watcher must see of it.
    pub seen: Seen,
    /// The first revision of its transaction.
    pub first: u64,
    /// The last revision of its transaction.
    pub last: u64,
}

impl From<&Event> for Written {
    fn from(event: &Event) -> Self {
        Written { seen: event.into(), first: event.first, last: event.last }
    }
}

/// What was committed, by revision.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<Written>);

impl FromIterator<Written> for History {
    fn from_iter<I: IntoIterator<Item = Written>>(written: I) -> Self {
        let mut all: Vec<Written> = written.into_iter().collect();
        all.sort_by_key(|written| written.seen.revision);
        History(all)
    }
}

impl History {
    fn after(&self, revision: u64) -> &[Written] {
        &self.0[self.0.partition_point(|written| written.seen.revision <= revision)..]
    }

    fn get(&self, revision: u64) -> Option<&Written> {
        self.after(revision.checked_sub(1)?).first().filter(|written| written.seen.revision == revision)
    }

    /// Everything, in order.
    pub fn all(&self) -> &[Written] {
        &self.0
    }
}

/// A guarantee that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("watch is not {guarantee}: {detail}")]
pub struct Broken {
    /// Its name.
    pub guarantee: &'static str,
    /// What was seen.
    pub detail: String,
}

fn broken<T>(guarantee: &'static str, detail: impl Debug) -> Result<T, Broken> {
    Err(Broken { guarantee, detail: format!("{detail:?}") })
}

/// Events come in the order of their revisions, and never from before where the watch began.
pub fn ordered(steps: &[Step]) -> Result<(), Broken> {
    let mut before = 0;
    for step in steps {
        match step {
            Step::From(revision) => before = *revision,
            Step::Bookmark(_) => {}
            Step::Batch(events) => {
                for event in events {
                    if event.revision < before {
                        return broken("ordered", (before, event));
                    }
                    before = event.revision;
                }
            }
        }
    }
    Ok(())
}

/// No event comes twice, unless the watcher itself went back to before it.
pub fn unique(steps: &[Step]) -> Result<(), Broken> {
    let mut came = HashSet::new();
    for step in steps {
        match step {
            Step::From(from) => came.retain(|revision| revision <= from),
            Step::Bookmark(_) => {}
            Step::Batch(events) => {
                for event in events {
                    if !came.insert(event.revision) {
                        return broken("unique", event);
                    }
                }
            }
        }
    }
    Ok(())
}

/// All events of a transaction that this watcher watches come in one batch.
///
/// Only a watch that begins inside a transaction gets the rest of it alone.
pub fn atomic(steps: &[Step], history: &History, watches: impl Fn(&Seen) -> bool) -> Result<(), Broken> {
    let mut from = 0;
    for step in steps {
        match step {
            Step::From(revision) => from = *revision,
            Step::Bookmark(_) => {}
            Step::Batch(events) => {
                for event in events {
                    let Some(written) = history.get(event.revision) else { return broken("atomic", event) };
                    let rest = history.after((written.first - 1).max(from));
                    let rest = rest.iter().take_while(|other| other.first == written.first);
                    for other in rest.filter(|other| watches(&other.seen)) {
                        if !events.contains(&other.seen) {
                            return broken("atomic", (event, "came without", &other.seen));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// From where the watch began, exactly what was committed and is watched has come, without a gap.
pub fn resumable(steps: &[Step], history: &History, watches: impl Fn(&Seen) -> bool) -> Result<(), Broken> {
    let mut at = 0;
    for step in steps {
        match step {
            Step::From(revision) => at = *revision,
            Step::Bookmark(_) => {}
            Step::Batch(events) => {
                for event in events {
                    let expected = history.after(at).iter().find(|written| watches(&written.seen));
                    if expected.is_none_or(|written| written.seen != *event) {
                        return broken("resumable", (event, "came instead of", expected));
                    }
                    at = event.revision;
                }
            }
        }
    }
    Ok(())
}

/// A bookmark falls on a transaction boundary; everything watched up to it has come before it and nothing up to it comes after.
pub fn bookmarkable(steps: &[Step], history: &History, watches: impl Fn(&Seen) -> bool) -> Result<(), Broken> {
    let (mut at, mut bookmark) = (0, 0);
    for step in steps {
        match step {
            Step::From(revision) => (at, bookmark) = (*revision, 0),
            Step::Bookmark(revision) => {
                if history.get(*revision).is_some_and(|written| written.last != *revision) {
                    return broken("bookmarkable", (revision, "is inside a transaction"));
                }
                let missing = history.after(at).iter().find(|written| watches(&written.seen));
                if let Some(missing) = missing.filter(|written| written.seen.revision <= *revision) {
                    return broken("bookmarkable", (revision, "came before", missing));
                }
                (at, bookmark) = (at.max(*revision), bookmark.max(*revision));
            }
            Step::Batch(events) => {
                for event in events {
                    if event.revision <= bookmark {
                        return broken("bookmarkable", (event, "came after", bookmark));
                    }
                    at = event.revision;
                }
            }
        }
    }
    Ok(())
}

/// All guarantees together.
pub fn all(steps: &[Step], history: &History, watches: impl Fn(&Seen) -> bool) -> Result<(), Broken> {
    ordered(steps)?;
    unique(steps)?;
    atomic(steps, history, &watches)?;
    resumable(steps, history, &watches)?;
    bookmarkable(steps, history, &watches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revision: u64) -> Seen {
        let key = format!("k{revision}");
        Seen { revision, table: "t".to_owned(), key, kind: EventKind::Put, digest: revision }
    }

    fn batch(revisions: &[u64]) -> Step {
        Step::Batch(revisions.iter().copied().map(seen).collect())
    }

    /// Revisions 1, 2+3, 4, 5; which guarantees the steps break.
    fn check(steps: &[Step], expected: &[&str]) {
        let transactions = [(1, 1), (2, 3), (2, 3), (4, 4), (5, 5)];
        let written = |((first, last), revision)| Written { seen: seen(revision), first, last };
        let history: History = transactions.into_iter().zip(1..).map(written).collect();
        let results = [
            ordered(steps),
            unique(steps),
            atomic(steps, &history, |_| true),
            resumable(steps, &history, |_| true),
            bookmarkable(steps, &history, |_| true),
        ];
        let broken: Vec<&str> = results.into_iter().filter_map(|result| result.err().map(|b| b.guarantee)).collect();
        assert_eq!(broken, expected, "{steps:?}");
        assert_eq!(all(steps, &history, |_| true).is_err(), !expected.is_empty());
    }

    #[test]
    fn each_validator_notices_what_it_is_for() {
        use Step::{Bookmark, From};
        check(&[batch(&[1]), batch(&[2, 3]), Bookmark(3), batch(&[4, 5]), Bookmark(5)], &[]);
        check(&[batch(&[1]), batch(&[2, 3]), From(1), batch(&[2, 3])], &[]);
        check(&[From(2), batch(&[3, 4])], &[]);
        check(&[batch(&[1]), batch(&[3, 2])], &["ordered", "resumable"]);
        check(&[batch(&[1]), batch(&[1])], &["unique", "resumable"]);
        check(&[batch(&[1]), batch(&[2]), batch(&[3])], &["atomic"]);
        check(&[batch(&[1]), batch(&[4])], &["resumable"]);
        check(&[From(1), batch(&[4])], &["resumable"]);
        check(&[batch(&[6])], &["atomic", "resumable"]);
        check(&[batch(&[1, 2, 3]), Bookmark(2)], &["bookmarkable"]);
        check(&[batch(&[1]), Bookmark(4)], &["bookmarkable"]);
        check(&[batch(&[1]), Bookmark(1), From(0), batch(&[1])], &[]);
    }
}
