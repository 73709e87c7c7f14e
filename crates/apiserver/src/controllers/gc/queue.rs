//! What is to be looked at: each object once, failures again later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::graph::{Due, Uid};

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);

/// A queue in which each object is at most once.
#[derive(Default)]
pub struct Queue {
    ready: VecDeque<Uid>,
    items: HashMap<Uid, Item>,
    later: BTreeMap<(Instant, u64), Uid>,
    count: u64,
}

struct Item {
    due: Due,
    failures: u32,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Ready,
    Later((Instant, u64)),
    Running,
    /// Running, and to be run once more.
    Again,
}

impl Queue {
    /// Adds an object, at once even if it failed before.
    pub fn add(&mut self, due: Due) {
        let uid = due.uid.clone();
        match self.items.get_mut(&uid) {
            None => {
                self.items.insert(uid.clone(), Item { due, failures: 0, state: State::Ready });
                self.ready.push_back(uid);
            }
            Some(item) => {
                item.due = Due { fresh: due.fresh || item.due.fresh, ..due };
                match item.state {
                    State::Later(at) => {
                        self.later.remove(&at);
                        item.state = State::Ready;
                        self.ready.push_back(uid);
                    }
                    State::Running => item.state = State::Again,
                    State::Ready | State::Again => {}
                }
            }
        }
    }

    /// Takes the objects whose turn it is.
    pub fn take(&mut self, limit: usize) -> Vec<Due> {
        self.wake(Instant::now());
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(uid) = self.ready.pop_front() else { break };
            if let Some(item) = self.items.get_mut(&uid) {
                item.state = State::Running;
                taken.push(item.due.clone());
                item.due.fresh = false;
            }
        }
        taken
    }

    fn wake(&mut self, now: Instant) {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let uid = first.remove();
            if let Some(item) = self.items.get_mut(&uid) {
                item.state = State::Ready;
                self.ready.push_back(uid);
            }
        }
    }

    /// Says how it went with an object that was taken.
    pub fn done(&mut self, uid: &Uid, well: bool) {
        let Some(item) = self.items.get_mut(uid) else { return };
        if item.state == State::Again {
            item.state = State::Ready;
            self.ready.push_back(uid.clone());
        } else if well {
            self.items.remove(uid);
        } else {
            let wait = FIRST.saturating_mul(1 << item.failures.min(16)).min(LONGEST);
            item.failures += 1;
            self.count += 1;
            let at = (Instant::now() + wait, self.count);
            item.state = State::Later(at);
            self.later.insert(at, uid.clone());
        }
    }

    /// Tries everything again now that failed before.
    pub fn retry_all(&mut self) {
        for (_, uid) in std::mem::take(&mut self.later) {
            if let Some(item) = self.items.get_mut(&uid) {
                item.state = State::Ready;
                self.ready.push_back(uid);
            }
        }
    }

    /// When the next failure is to be tried again.
    pub fn next(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.later.keys().next().map(|(at, _)| *at) } else { Some(Instant::now()) }
    }
}
