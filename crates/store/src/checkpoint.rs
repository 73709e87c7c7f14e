//! Turning the state into a checkpoint that also carries the newest history over a restart.
//!
//! A checkpoint at revision C is the state at an earlier revision B, had by undoing the windows, and then the transactions
//! from B to C as they stand in the log. So a restart right after a checkpoint can still serve watches from B on.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::codec;
use crate::engine::Checkpoint;
use crate::model::{Entry, Event};
use crate::state::State;

const CHUNK: usize = 256 << 10;

/// The state at one revision, taken under the read lock and written without it.
pub(crate) struct Snapshot {
    revision: u64,
    tables: Vec<(Arc<str>, Vec<Arc<Entry>>)>,
    /// Newest first.
    history: Vec<Arc<Event>>,
}

impl Snapshot {
    /// Copies the references to all entries and to the newest `history` bytes of events.
    pub(crate) fn of(state: &State, history: usize) -> Snapshot {
        let tables =
            state.tables().map(|table| (table.name.clone(), table.entries.values().cloned().collect())).collect();
        let mut events: Vec<&Arc<Event>> = Vec::new();
        for table in state.tables() {
            let mut bytes = 0;
            let newest = table.ring.after(0).rev().take_while(|event| {
                bytes += event.entry.value.len() + event.window_bytes();
                bytes <= history
            });
            events.extend(newest);
        }
        events.sort_unstable_by_key(|event| std::cmp::Reverse(event.revision));
        Snapshot { revision: state.revision, tables, history: whole(events, state.revision, history) }
    }

    /// Writes everything.
    pub(crate) fn write(self, mut out: Box<dyn Checkpoint>) -> io::Result<()> {
        let base = self.revision - self.history.len() as u64;
        // What the keys that history touches were at `base`; the oldest event of each has the last word.
        let mut then: HashMap<(&str, &str), Option<&Arc<Entry>>> = HashMap::new();
        for event in &self.history {
            then.insert((&event.table, event.key()), event.previous.as_ref());
        }
        let mut chunk = Vec::with_capacity(CHUNK * 2);
        for (table, entries) in &self.tables {
            for entry in entries.iter().filter(|entry| !then.contains_key(&(&**table, &*entry.key))) {
                codec::encode_entry(&mut chunk, table, entry);
                flush(&mut chunk, CHUNK, |chunk| out.entries(base, chunk))?;
            }
        }
        for ((table, _), entry) in then {
            if let Some(entry) = entry {
                codec::encode_entry(&mut chunk, table, entry);
                flush(&mut chunk, CHUNK, |chunk| out.entries(base, chunk))?;
            }
        }
        // Written even if empty: it says what `base` is.
        out.entries(base, &chunk)?;
        chunk.clear();
        let mut first = base + 1;
        for event in self.history.iter().rev() {
            codec::encode_event(&mut chunk, event);
            if event.revision == event.last {
                let mut wrote = false;
                flush(&mut chunk, CHUNK, |chunk| {
                    wrote = true;
                    out.batch(first, event.last, chunk)
                })?;
                first = if wrote { event.last + 1 } else { first };
            }
        }
        if !chunk.is_empty() {
            out.batch(first, self.revision, &chunk)?;
        }
        out.finish()
    }
}

fn flush(chunk: &mut Vec<u8>, at_least: usize, write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
    if chunk.len() >= at_least {
        write(chunk)?;
        chunk.clear();
    }
    Ok(())
}

/// The longest run of whole transactions, newest first, without a hole and within the bytes.
fn whole(events: Vec<&Arc<Event>>, revision: u64, bytes: usize) -> Vec<Arc<Event>> {
    let (mut used, mut complete) = (0, 0);
    for (index, (event, expected)) in events.iter().zip((0..=revision).rev()).enumerate() {
        used += event.entry.value.len() + event.window_bytes();
        if event.revision != expected || used > bytes {
            break;
        }
        if event.revision == event.first {
            complete = index + 1;
        }
    }
    events.into_iter().take(complete).cloned().collect()
}
