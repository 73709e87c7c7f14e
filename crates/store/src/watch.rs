//! Watching a table: a cursor into its window.

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::WatchError;
use crate::model::Event;
use crate::store::Shared;

/// Events of one table from a revision on, in order, without a gap or a repeat.
///
/// There is no queue per watcher: it reads the table's window, so the writer never waits for it, and one that the window
/// has overtaken gets [`WatchError::Compacted`]. Changes to other tables neither wake nor end it.
pub struct Watch {
    shared: Arc<Shared>,
    table: Arc<str>,
    prefix: Box<str>,
    cursor: u64,
    /// Whether the cursor is known to be a transaction boundary: where the caller began may not be one.
    boundary: bool,
    wake: watch::Receiver<()>,
}

impl Watch {
    pub(crate) fn new(
        shared: Arc<Shared>,
        table: Arc<str>,
        prefix: &str,
        cursor: u64,
        wake: watch::Receiver<()>,
    ) -> Watch {
        Watch { shared, table, prefix: prefix.into(), cursor, boundary: false, wake }
    }

    /// The next events, at least one, waiting for it. All events of a transaction that match come together.
    ///
    /// Safe to cancel: an event is consumed only when it is returned.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchError> {
        loop {
            // Marked as seen before looking, so that what comes in between wakes us.
            self.wake.borrow_and_update();
            if let Some(events) = self.try_next()? {
                return Ok(events);
            }
            if self.wake.changed().await.is_err() {
                // Closed. Whatever was applied before that is still to be delivered.
                return self.try_next()?.ok_or(WatchError::Closed);
            }
        }
    }

    /// The next events if there are some.
    pub fn try_next(&mut self) -> Result<Option<Vec<Arc<Event>>>, WatchError> {
        let state = self.shared.state.read();
        let oldest = state.oldest(&self.table);
        if self.cursor < oldest {
            return Err(WatchError::Compacted { oldest });
        }
        let window = &self.shared.options.window;
        let mut events = Vec::new();
        let mut bytes = 0;
        let mut seen = self.cursor;
        let mut drained = true;
        if let Some(table) = state.table(&self.table) {
            for event in table.ring.after(self.cursor) {
                // Stop only between transactions.
                if (events.len() >= window.batch_events || bytes >= window.batch_bytes) && event.first > seen {
                    drained = false;
                    break;
                }
                seen = event.last;
                if event.key().starts_with(&*self.prefix) {
                    bytes += event.entry.value.len();
                    events.push(event.clone());
                }
            }
        }
        self.cursor = if drained { state.revision } else { seen };
        self.boundary = true;
        Ok((!events.is_empty()).then_some(events))
    }

    /// Has all events after a revision come again: one of an event that was returned, behind which the others cannot be used
    /// yet. So nobody keeps alive what the window no longer has.
    pub fn rewind(&mut self, revision: u64) {
        self.cursor = self.cursor.min(revision);
        self.boundary = false;
    }

    /// The transaction boundary up to which this watcher has been given everything: what a bookmark may say.
    ///
    /// It moves on although the table is quiet. Nothing while the first events wait: where the watch
    /// began may lie inside a transaction.
    pub fn progress(&mut self) -> Option<u64> {
        let state = self.shared.state.read();
        let current = state.oldest(&self.table) <= self.cursor
            && state
                .table(&self.table)
                .is_none_or(|table| table.ring.after(self.cursor).all(|event| !event.key().starts_with(&*self.prefix)));
        if current {
            self.cursor = state.revision;
            self.boundary = true;
        }
        self.boundary.then_some(self.cursor)
    }

    /// The table watched.
    pub fn table(&self) -> &Arc<str> {
        &self.table
    }
}
