//! The window of recent events of one table.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::Event;
use crate::options::Window;

/// Recent events in order of revision.
///
/// *Invariant*: every event of the table with a revision above `floor` is here. So a watch from `floor` or later has no gap,
/// and a read at `floor` or later can be had by undoing.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    events: VecDeque<Arc<Event>>,
    floor: u64,
    bytes: usize,
}

impl Ring {
    pub(crate) fn starting_at(floor: u64) -> Ring {
        Ring { floor, ..Ring::default() }
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The revision of the newest event there ever was, as far as this window can tell.
    pub(crate) fn newest(&self) -> u64 {
        self.events.back().map_or(self.floor, |event| event.revision)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds the newest event. What the bounds push out goes to `garbage`, for the caller to drop outside its lock.
    pub(crate) fn push(&mut self, event: Arc<Event>, window: &Window, garbage: &mut Vec<Arc<Event>>) {
        self.bytes += event.window_bytes();
        self.events.push_back(event);
        while self.events.len() > window.events || self.bytes > window.bytes {
            match self.pop() {
                Some(event) => garbage.push(event),
                None => break,
            }
        }
    }

    /// Forgets every event up to and including `revision`.
    pub(crate) fn compact(&mut self, revision: u64, garbage: &mut Vec<Arc<Event>>) {
        while self.events.front().is_some_and(|event| event.revision <= revision) {
            garbage.extend(self.pop());
        }
        // The floor moves only past events that are gone: who watches a quiet table is not ended by compaction.
        // A burst should not hold its memory for ever.
        if self.events.capacity() > 64 && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    fn pop(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.window_bytes();
        self.floor = event.revision;
        Some(event)
    }

    /// Events with a revision above `revision`, oldest first.
    pub(crate) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision <= revision);
        self.events.range(start..)
    }

    /// The newest event with a revision of at most `revision`.
    pub(crate) fn upto(&self, revision: u64) -> Option<&Arc<Event>> {
        let end = self.events.partition_point(|event| event.revision <= revision);
        self.events.get(end.checked_sub(1)?)
    }
}
