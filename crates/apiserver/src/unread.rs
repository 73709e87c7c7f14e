//! Answers whose clients have not read them yet. What they hold is bounded, for each user and for all together: beyond that nothing
//! more is answered at length, and connections on which nothing moves are closed to make room.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use machinery::status::Status;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many bytes one user may leave unread. One answer may be larger.
const EACH: usize = 512 * 1024 * 1024;
/// How many all.
const ALL: usize = 2 * 1024 * 1024 * 1024;
/// Answers up to this size do not count: they are gone with the connection's buffers.
const SMALL: u64 = 1024;
/// From when on somebody who reads nothing gives way, in milliseconds.
const STALLED: u64 = 10_000;
/// How often those are looked for at most, in milliseconds.
const LOOK: u64 = 1_000;

/// What waits to be read, in all connections.
#[derive(Clone)]
pub struct Unread(Arc<Shared>);

struct Shared {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    all: usize,
    by_user: HashMap<Arc<str>, usize>,
    answers: BTreeMap<u64, Answer>,
    last: u64,
    looked: Option<u64>,
}

struct Answer {
    user: Arc<str>,
    bytes: usize,
    moved: Arc<AtomicU64>,
    connection: Arc<Notify>,
}

/// One answer, until it was sent or is given up.
pub struct Waiting {
    unread: Unread,
    number: u64,
    moved: Arc<AtomicU64>,
}

impl Default for Unread {
    fn default() -> Unread {
        Unread(Arc::new(Shared { began: Instant::now(), state: Mutex::default() }))
    }
}

impl State {
    /// Whether so much more of a user's has room.
    fn has_room(&self, user: &str, bytes: usize) -> bool {
        let own = self.by_user.get(user).copied().unwrap_or_default();
        (own == 0 || own + bytes <= EACH) && (self.all == 0 || self.all + bytes <= ALL)
    }

    fn forget(&mut self, number: u64) -> Option<Answer> {
        let answer = self.answers.remove(&number)?;
        self.all -= answer.bytes;
        if let Some(own) = self.by_user.get_mut(&answer.user) {
            *own -= answer.bytes;
            if *own == 0 {
                self.by_user.remove(&answer.user);
            }
        }
        Some(answer)
    }

    /// Closes connections of those who read nothing, who has not for longest first, until there is room.
    fn make_room(&mut self, user: &str, bytes: usize, now: u64) {
        if self.looked.is_some_and(|at| now < at + LOOK) {
            return;
        }
        self.looked = Some(now);
        let moved = |answer: &Answer| answer.moved.load(Ordering::Relaxed);
        let stalled = self.answers.iter().filter(|(_, answer)| moved(answer) + STALLED <= now);
        let mut stalled: Vec<(u64, u64)> = stalled.map(|(number, answer)| (moved(answer), *number)).collect();
        stalled.sort_unstable();
        for (_, number) in stalled {
            let over = !(self.all == 0 || self.all + bytes <= ALL);
            if over || self.answers.get(&number).is_some_and(|answer| &*answer.user == user) {
                if let Some(answer) = self.forget(number) {
                    answer.connection.notify_one();
                }
            }
            if self.has_room(user, bytes) {
                return;
            }
        }
    }
}

impl Unread {
    fn now(&self) -> u64 {
        self.0.began.elapsed().as_millis() as u64
    }

    /// Counts an answer that goes out on a connection; 429 if there is no room for it. Small ones are not counted.
    pub fn begin(&self, user: &str, bytes: u64, connection: &Arc<Notify>) -> Result<Option<Waiting>, Status> {
        if bytes <= SMALL {
            return Ok(None);
        }
        self.begin_at(user, usize::try_from(bytes).unwrap_or(usize::MAX / 2), connection, self.now()).map(Some)
    }

    fn begin_at(&self, user: &str, bytes: usize, connection: &Arc<Notify>, now: u64) -> Result<Waiting, Status> {
        let mut state = self.0.state.lock();
        if !state.has_room(user, bytes) {
            state.make_room(user, bytes, now);
            if !state.has_room(user, bytes) {
                let text = "too many answers wait to be read: read those that were asked for, or try again later";
                return Err(Status::too_many_requests(text, 1));
            }
        }
        let known = state.by_user.get_key_value(user).map(|(known, _)| known.clone());
        let user: Arc<str> = known.unwrap_or_else(|| user.into());
        *state.by_user.entry(user.clone()).or_default() += bytes;
        state.all += bytes;
        state.last += 1;
        let (number, moved) = (state.last, Arc::new(AtomicU64::new(now)));
        state.answers.insert(number, Answer { user, bytes, moved: moved.clone(), connection: connection.clone() });
        Ok(Waiting { unread: self.clone(), number, moved })
    }
}

impl Waiting {
    /// A piece of it goes out.
    pub fn moved(&self) {
        self.moved.store(self.unread.now(), Ordering::Relaxed);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.unread.0.state.lock().forget(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const QUARTER: usize = EACH / 4;

    #[test]
    fn a_user_leaves_so_much_unread_and_no_more() {
        let (unread, connection) = (Unread::default(), Arc::new(Notify::new()));
        let mut held: Vec<_> = (0..4).map(|_| unread.begin_at("jane", QUARTER, &connection, 0).unwrap()).collect();
        let refused = unread.begin_at("jane", 2000, &connection, STALLED - 1).err().unwrap();
        assert!(refused.code == 429 && refused.retry_after == Some(1), "{refused}");
        assert!(unread.begin("jane", SMALL, &connection).unwrap().is_none(), "it would be told why");
        held.push(unread.begin_at("joe", EACH + 1, &connection, 0).unwrap());
        assert!(unread.begin_at("joe", 2000, &connection, 0).is_err(), "one was too large already");
        held.remove(0);
        held.push(unread.begin_at("jane", 2000, &connection, 0).unwrap());
        drop(held);
        let state = unread.0.state.lock();
        assert!(state.all == 0 && state.by_user.is_empty() && state.answers.is_empty());
        assert!(connection.notified().now_or_never().is_none(), "nobody was cut off");
    }

    #[test]
    fn who_reads_nothing_gives_way() {
        let unread = Unread::default();
        let connections: Vec<_> = (0..4).map(|_| Arc::new(Notify::new())).collect();
        let held: Vec<_> = connections.iter().map(|own| unread.begin_at("jane", QUARTER, own, 0).unwrap()).collect();
        held[0].moved.store(STALLED, Ordering::Relaxed);
        held[1].moved.store(1, Ordering::Relaxed);
        let other = Arc::new(Notify::new());
        let _joe = unread.begin_at("joe", QUARTER, &other, 0).unwrap();
        let more = unread.begin_at("jane", QUARTER, &other, STALLED + 1);
        assert!(more.is_ok());
        let closed: Vec<bool> = connections.iter().map(|own| own.notified().now_or_never().is_some()).collect();
        assert_eq!(closed, [false, false, true, false], "one of two that waited longest, and no more than needed");
        assert!(other.notified().now_or_never().is_none(), "somebody else's");
        drop((held, more));
        assert_eq!(unread.0.state.lock().all, QUARTER);
    }

    #[test]
    fn when_all_have_too_much_anybody_gives_way() {
        let unread = Unread::default();
        let connections: Vec<_> = (0..ALL / EACH).map(|_| Arc::new(Notify::new())).collect();
        let begin = |(number, own)| unread.begin_at(&format!("user {number}"), EACH, own, 0).unwrap();
        let _held: Vec<_> = connections.iter().enumerate().map(begin).collect();
        let own = Arc::new(Notify::new());
        assert!(unread.begin_at("jane", 2000, &own, 1).is_err());
        assert!(unread.begin_at("jane", 2000, &own, STALLED).is_ok());
        assert!(connections[0].notified().now_or_never().is_some());
        assert!(connections[1].notified().now_or_never().is_none());
    }
}
