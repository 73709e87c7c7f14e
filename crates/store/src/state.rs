//! What is visible: tables of entries, their windows, and the revision at which all of it is true.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ReadError;
use crate::model::{Entry, Event, EventKind, KeyRange, List};
use crate::options::Window;
use crate::ring::Ring;

/// Counting what a limit cut off stops here: it happens under the lock.
const COUNT_AT_MOST: usize = 100_000;

/// A charge per entry for the map node, the key and the bookkeeping around the bytes.
const ENTRY_BYTES: usize = 160;

/// Everything readers see. Changed only by whole batches of transactions, under a write lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) revision: u64,
    /// The window of a table that is not there yet begins here: history before it was not recovered.
    pub(crate) floor: u64,
    tables: HashMap<Arc<str>, Table>,
    /// When the caller's clock stood where: `trim` turns ages into revisions with it.
    marks: Vec<(Duration, u64)>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: Arc<str>,
    pub(crate) entries: BTreeMap<Arc<str>, Arc<Entry>>,
    pub(crate) bytes: usize,
    pub(crate) ring: Ring,
}

impl State {
    pub(crate) fn table(&self, table: &str) -> Option<&Table> {
        self.tables.get(table)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<&Arc<Entry>> {
        self.tables.get(table)?.entries.get(key)
    }

    /// The oldest revision at which the table can be read or watched.
    pub(crate) fn oldest(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(self.floor, |table| table.ring.floor())
    }

    fn table_mut(&mut self, name: &Arc<str>) -> &mut Table {
        let floor = self.floor;
        self.tables.entry(name.clone()).or_insert_with(|| Table {
            name: name.clone(),
            entries: BTreeMap::new(),
            bytes: 0,
            ring: Ring::starting_at(floor),
        })
    }

    /// Puts an entry that a checkpoint holds; it leaves no event.
    pub(crate) fn restore(&mut self, table: &Arc<str>, entry: Arc<Entry>) {
        let table = self.table_mut(table);
        table.bytes += entry_bytes(&entry);
        if let Some(old) = table.entries.insert(entry.key.clone(), entry) {
            table.bytes -= entry_bytes(&old);
        }
    }

    /// Applies the events of whole transactions. Whatever is no longer needed goes to `garbage`.
    pub(crate) fn apply(&mut self, events: &[Arc<Event>], window: &Window, garbage: &mut Vec<Arc<Event>>) {
        for event in events {
            debug_assert_eq!(event.revision, self.revision + 1, "revisions are consecutive");
            self.revision = event.revision;
            let table = self.table_mut(&event.table);
            if let Some(previous) = &event.previous {
                table.bytes -= entry_bytes(previous);
            }
            match event.kind {
                EventKind::Put => {
                    table.bytes += entry_bytes(&event.entry);
                    table.entries.insert(event.entry.key.clone(), event.entry.clone());
                }
                EventKind::Delete => {
                    table.entries.remove(&event.entry.key);
                }
            }
            table.ring.push(event.clone(), window, garbage);
        }
    }

    pub(crate) fn compact(&mut self, revision: u64, garbage: &mut Vec<Arc<Event>>) {
        for table in self.tables.values_mut() {
            table.ring.compact(revision, garbage);
        }
    }

    /// Forgets events that were there `keep` before `now` already.
    pub(crate) fn trim(&mut self, now: Duration, keep: Duration, garbage: &mut Vec<Arc<Event>>) {
        let due = self.marks.partition_point(|(at, _)| at.saturating_add(keep) <= now);
        if let Some((_, revision)) = due.checked_sub(1).map(|last| self.marks[last]) {
            self.marks.drain(..due);
            self.compact(revision, garbage);
        }
        // One mark per revision is enough, and a clock that goes back must not unsort them.
        let newest = self.marks.last().copied();
        if newest.is_none_or(|(at, revision)| at < now && revision < self.revision) {
            self.marks.push((now, self.revision));
        }
    }

    pub(crate) fn list(&self, table: &str, range: KeyRange<'_>, at: Option<u64>) -> Result<List, ReadError> {
        let at = at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(ReadError::Future { current: self.revision });
        }
        let oldest = self.oldest(table);
        if at < oldest {
            return Err(ReadError::Compacted { oldest });
        }
        let mut list = List { revision: at, ..List::default() };
        let Some(table) = self.tables.get(table) else { return Ok(list) };
        let past = Past::of(table, at);
        list.revision = past.revision;
        table.list(range, &past.entries, &mut list);
        Ok(list)
    }

    /// The number of entries of a table now.
    pub(crate) fn count(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, |table| table.entries.len())
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    ENTRY_BYTES + entry.key.len() + entry.value.len()
}

/// How a table differed at an older revision from what it is now.
struct Past<'a> {
    revision: u64,
    /// Keys changed since, with the entry they had then.
    entries: BTreeMap<&'a str, Option<&'a Arc<Entry>>>,
}

impl<'a> Past<'a> {
    /// Undoes what happened after `at`. A revision in the middle of a transaction means the boundary behind it, so that no
    /// reader ever sees half a transaction.
    fn of(table: &'a Table, at: u64) -> Past<'a> {
        let mut past = Past { revision: at, entries: BTreeMap::new() };
        for event in table.ring.after(at).rev() {
            if event.first <= at {
                past.revision = past.revision.max(event.last);
                break;
            }
            past.entries.insert(event.key(), event.previous.as_ref());
        }
        // The transaction that spans `at` may have only its beginning in this table.
        if let Some(event) = table.ring.upto(at) {
            past.revision = past.revision.max(event.last);
        }
        past
    }
}

impl Table {
    fn list(&self, range: KeyRange<'_>, past: &BTreeMap<&str, Option<&Arc<Entry>>>, list: &mut List) {
        let limit = range.limit.unwrap_or(usize::MAX);
        let (start, prefix) = (start(range), range.prefix);
        let now =
            self.entries.range::<str, _>((start, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        if past.is_empty() {
            let whole = prefix.is_empty() && range.start_after.is_none();
            let mut rest = now;
            if limit >= self.entries.len() && whole {
                list.entries.reserve_exact(self.entries.len());
            }
            list.entries.extend(rest.by_ref().take(limit).map(|(_, entry)| entry.clone()));
            list.cut(if whole { self.entries.len() - list.entries.len() } else { rest.take(COUNT_AT_MOST).count() });
            return;
        }
        let then = past
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, entry)| entry.map(|entry| (*key, entry)));
        let unchanged = now.map(|(key, entry)| (&**key, entry)).filter(|(key, _)| !past.contains_key(key));
        let mut rest = Merge { left: unchanged.peekable(), right: then.peekable() };
        list.entries.extend(rest.by_ref().take(limit).cloned());
        list.cut(rest.take(COUNT_AT_MOST).count());
    }
}

impl List {
    fn cut(&mut self, remaining: usize) {
        self.more = remaining > 0;
        self.remaining = (remaining > 0 && remaining < COUNT_AT_MOST).then_some(remaining);
    }
}

fn start<'a>(range: KeyRange<'a>) -> Bound<&'a str> {
    match range.start_after {
        Some(after) if after >= range.prefix => Bound::Excluded(after),
        _ => Bound::Included(range.prefix),
    }
}

/// Two streams of entries with disjoint keys, merged by key.
struct Merge<L: Iterator, R: Iterator> {
    left: std::iter::Peekable<L>,
    right: std::iter::Peekable<R>,
}

impl<'a, L, R> Iterator for Merge<L, R>
where
    L: Iterator<Item = (&'a str, &'a Arc<Entry>)>,
    R: Iterator<Item = (&'a str, &'a Arc<Entry>)>,
{
    type Item = &'a Arc<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let left_first = match (self.left.peek(), self.right.peek()) {
            (Some((left, _)), Some((right, _))) => left < right,
            (left, _) => left.is_some(),
        };
        let next = if left_first { self.left.next() } else { self.right.next() };
        next.map(|(_, entry)| entry)
    }
}

/// A consistent view of the whole store, for reading several tables at one revision.
///
/// It holds the read lock: look things up, clone the `Arc`s, and leave.
pub struct View<'a>(pub(crate) &'a State);

impl View<'_> {
    /// The revision, a transaction boundary.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// An entry now.
    pub fn get(&self, table: &str, key: &str) -> Option<&Arc<Entry>> {
        self.0.get(table, key)
    }

    /// A list, now or at an older revision.
    pub fn list(&self, table: &str, range: KeyRange<'_>, at: Option<u64>) -> Result<List, ReadError> {
        self.0.list(table, range, at)
    }

    /// The number of entries of a table now.
    pub fn count(&self, table: &str) -> usize {
        self.0.count(table)
    }

    /// The revision at which a table was last changed, as far as its window tells. Whoever has read the table at this
    /// revision or later has seen everything: while it stays the same, the table does.
    pub fn changed(&self, table: &str) -> u64 {
        self.0.table(table).map_or(self.0.floor, |table| table.ring.newest())
    }

    /// The names of all tables that were ever written to.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.tables.keys()
    }
}

/// Names of the tables among `events`, each once.
pub(crate) fn touched(events: &[Arc<Event>]) -> HashSet<&Arc<str>> {
    events.iter().map(|event| &event.table).collect()
}
