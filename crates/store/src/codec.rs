//! How transactions and entries look as bytes in the log and in checkpoints.
//!
//! A batch is a run of events; revisions are implied by the first one, and what can be derived from the state before (the
//! previous entry, the revision of creation) is not written. Integers are little-endian.

use std::sync::Arc;

use bytes::Bytes;

use crate::model::{Entry, Event, EventKind, Memo};
use crate::state::State;

const DELETE: u8 = 1;
const HAS_VALUE: u8 = 2;
const ENDS_TRANSACTION: u8 = 4;

/// Appends one event to a batch.
pub(crate) fn encode_event(out: &mut Vec<u8>, event: &Event) {
    let delete = event.kind == EventKind::Delete;
    let value = if delete && event.shows_previous() { None } else { Some(&event.entry.value) };
    let mut flags = 0;
    flags |= if delete { DELETE } else { 0 };
    flags |= if value.is_some() { HAS_VALUE } else { 0 };
    flags |= if event.revision == event.last { ENDS_TRANSACTION } else { 0 };
    out.push(flags);
    encode_bytes(out, event.table.as_bytes());
    encode_bytes(out, event.entry.key.as_bytes());
    if let Some(value) = value {
        encode_bytes(out, value);
    }
}

/// Appends one entry to a chunk of a checkpoint.
pub(crate) fn encode_entry(out: &mut Vec<u8>, table: &str, entry: &Entry) {
    encode_bytes(out, table.as_bytes());
    encode_bytes(out, entry.key.as_bytes());
    out.extend_from_slice(&entry.created.to_le_bytes());
    out.extend_from_slice(&entry.revision.to_le_bytes());
    encode_bytes(out, &entry.value);
}

fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Limits keep every length far below 4 GiB.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads a chunk of a checkpoint.
pub(crate) fn decode_entries(chunk: &[u8], mut each: impl FnMut(&str, Entry)) -> Result<(), String> {
    let mut reader = Reader(chunk);
    while !reader.0.is_empty() {
        let table = reader.text()?;
        let key = reader.text()?;
        let created = reader.u64()?;
        let revision = reader.u64()?;
        let value = Bytes::copy_from_slice(reader.bytes()?);
        each(table, Entry { key: key.into(), value, created, revision, memo: Memo::default() });
    }
    Ok(())
}

/// Reads a batch that begins at revision `first` and applies it transaction by transaction.
pub(crate) fn decode_batch(
    batch: &[u8],
    first: u64,
    state: &mut State,
    mut apply: impl FnMut(&mut State, &[Arc<Event>]),
) -> Result<(), String> {
    let mut reader = Reader(batch);
    let mut next = first;
    while !reader.0.is_empty() {
        // The last revision of a transaction is known only at its end, so find that first.
        let mut ops = Vec::new();
        loop {
            let flags = reader.u8()?;
            let (table, key) = (reader.text()?, reader.text()?);
            let value = if flags & HAS_VALUE != 0 { Some(reader.bytes()?) } else { None };
            ops.push((flags, table, key, value));
            if flags & ENDS_TRANSACTION != 0 {
                break;
            }
        }
        let last = next + ops.len() as u64 - 1;
        let mut events: Vec<Arc<Event>> = Vec::with_capacity(ops.len());
        for (revision, (flags, table, key, value)) in (next..).zip(ops) {
            let earlier = events.iter().rev().find(|event| &*event.table == table && &**event.key() == key);
            let previous = match earlier {
                Some(event) => (event.kind == EventKind::Put).then(|| event.entry.clone()),
                None => state.get(table, key).cloned(),
            };
            let delete = flags & DELETE != 0;
            let value = match (value, &previous) {
                (Some(value), _) => Bytes::copy_from_slice(value),
                (None, Some(previous)) if delete => previous.value.clone(),
                _ => return Err(format!("revision {revision} has no value")),
            };
            events.push(Arc::new(Event {
                table: state.table(table).map_or_else(|| table.into(), |table| table.name.clone()),
                revision,
                first: next,
                last,
                kind: if delete { EventKind::Delete } else { EventKind::Put },
                entry: Arc::new(Entry {
                    key: previous.as_ref().map_or_else(|| key.into(), |previous| previous.key.clone()),
                    value,
                    created: previous.as_ref().map_or(revision, |previous| previous.created),
                    revision,
                    memo: Memo::default(),
                }),
                previous,
                memo: Memo::default(),
            }));
        }
        apply(state, &events);
        next = last + 1;
    }
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("a record ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "a record ends early".to_owned())
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    fn text(&mut self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a name is not UTF-8".to_owned())
    }
}
