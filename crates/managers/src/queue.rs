//! The work queue: every item once, never two at the same time, failures later and later. What nobody waits for can be put off until
//! nothing else is in line.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// In which line an item is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Line {
    #[default]
    None,
    Ready,
    PutOff,
}

#[derive(Default)]
struct Item {
    line: Line,
    /// Being worked on.
    running: bool,
    /// Wanted again while being worked on.
    again: bool,
    /// How often it failed in a row.
    failures: u32,
    /// When it was put off first, if it has not been worked on since.
    since: Option<Instant>,
}

/// A time, and a number for those that have the same.
type When = (Instant, u64);

struct Inner<K> {
    ready: VecDeque<K>,
    /// Comes after all that is ready, and not much later than that; what is in another line by now is passed over.
    put_off: VecDeque<K>,
    /// Wanted later; of each item the earliest.
    later: BTreeMap<When, K>,
    timers: HashMap<K, When>,
    items: HashMap<K, Item>,
    counter: u64,
}

/// See the module.
pub struct Queue<K> {
    inner: Mutex<Inner<K>>,
    ready: Notify,
    timer: Notify,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        let inner = Inner {
            ready: VecDeque::new(),
            put_off: VecDeque::new(),
            later: BTreeMap::new(),
            timers: HashMap::new(),
            items: HashMap::new(),
            counter: 0,
        };
        Queue { inner: Mutex::new(inner), ready: Notify::new(), timer: Notify::new() }
    }
}

/// The first pause after a failure, and the longest.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest for who was overtaken: what it saw too late is shown soon, and nothing may tell it so.
const OVERTAKEN: Duration = Duration::from_secs(1);

/// The longest that an item is put off while others are in line.
const PUT_OFF: Duration = Duration::from_secs(30);

/// An item to be worked on.
#[derive(Debug, PartialEq, Eq)]
pub struct Next<K> {
    /// Which.
    pub key: K,
    /// How often it failed in a row.
    pub failures: u32,
    /// Whether it was put off until now, or for too long already.
    pub put_off: bool,
}

/// Why an item is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Someone else was faster.
    Overtaken,
    /// Anything else.
    Failed,
}

fn pause(failures: u32, cause: Cause) -> Duration {
    let longest = if cause == Cause::Overtaken { OVERTAKEN } else { LONGEST };
    FIRST.saturating_mul(1 << failures.min(13)).min(longest)
}

impl<K: Clone + Eq + Hash> Inner<K> {
    fn pop(&mut self, now: Instant) -> Option<Next<K>> {
        let is_put_off = |key: &K| self.items.get(key).is_some_and(|item| item.line == Line::PutOff);
        while self.put_off.front().is_some_and(|key| !is_put_off(key)) {
            self.put_off.pop_front();
        }
        let overdue = |key: &K| {
            let since = self.items.get(key).and_then(|item| item.since);
            since.is_some_and(|since| now.duration_since(since) >= PUT_OFF)
        };
        let (first, second) = match self.put_off.front().is_some_and(overdue) {
            true => (&mut self.put_off, &mut self.ready),
            false => (&mut self.ready, &mut self.put_off),
        };
        let key = first.pop_front().or_else(|| second.pop_front())?;
        let item = self.items.entry(key.clone()).or_default();
        let waited = item.since.is_some_and(|since| now.duration_since(since) >= PUT_OFF);
        let put_off = waited || item.line == Line::PutOff;
        (item.line, item.running) = (Line::None, true);
        Some(Next { key, failures: item.failures, put_off })
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Wants an item worked on as soon as possible, also if it was put off.
    pub fn add(&self, key: K) {
        let mut inner = self.inner.lock();
        let item = inner.items.entry(key.clone()).or_default();
        if item.running {
            item.again = true;
        } else if item.line != Line::Ready {
            item.line = Line::Ready;
            inner.ready.push_back(key);
            drop(inner);
            self.ready.notify_one();
        }
    }

    /// Wants an item worked on after a while at the latest: what is to be done then is found out anew each time.
    pub fn add_after(&self, key: K, pause: Duration) {
        let mut inner = self.inner.lock();
        let at = Instant::now() + pause;
        match inner.timers.get(&key).copied() {
            Some((earlier, _)) if earlier <= at => return,
            Some(when) => drop(inner.later.remove(&when)),
            None => {}
        }
        inner.counter += 1;
        let when = (at, inner.counter);
        inner.timers.insert(key.clone(), when);
        inner.later.insert(when, key);
        drop(inner);
        self.timer.notify_one();
    }

    /// Whether an item is in line, or will be: after it was worked on, or after a while.
    pub fn is_wanted(&self, key: &K) -> bool {
        let inner = self.inner.lock();
        inner.timers.contains_key(key) || inner.items.get(key).is_some_and(|item| item.line != Line::None || item.again)
    }

    /// Whether an item is being worked on.
    pub fn is_in_hand(&self, key: &K) -> bool {
        self.inner.lock().items.get(key).is_some_and(|item| item.running)
    }

    /// The next item. It must be given back with [`Queue::done`], [`Queue::failed`] or [`Queue::put_off`].
    pub async fn next(&self) -> Next<K> {
        loop {
            let notified = self.ready.notified();
            {
                let mut inner = self.inner.lock();
                if let Some(next) = inner.pop(Instant::now()) {
                    if !inner.ready.is_empty() || !inner.put_off.is_empty() {
                        self.ready.notify_one();
                    }
                    return next;
                }
            }
            notified.await;
        }
    }

    /// Nobody waits for what is to be done about the item: it comes when nothing else is in line.
    pub fn put_off(&self, key: &K) {
        let mut inner = self.inner.lock();
        let Some(item) = inner.items.get_mut(key) else { return };
        let again = std::mem::take(&mut item.again);
        item.running = false;
        item.since.get_or_insert_with(Instant::now);
        if again {
            item.line = Line::Ready;
            inner.ready.push_back(key.clone());
        } else {
            item.line = Line::PutOff;
            inner.put_off.push_back(key.clone());
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// The item is settled for now.
    pub fn done(&self, key: &K) {
        let mut inner = self.inner.lock();
        let Some(item) = inner.items.get_mut(key) else { return };
        item.running = false;
        (item.failures, item.since) = (0, None);
        if item.again {
            (item.again, item.line) = (false, Line::Ready);
            inner.ready.push_back(key.clone());
            drop(inner);
            self.ready.notify_one();
        } else if item.line == Line::None {
            inner.items.remove(key);
        }
    }

    /// The item is to be tried again, later and later; at once if it was wanted meanwhile, for there is something new to be seen.
    pub fn failed(&self, key: &K, cause: Cause) {
        let mut inner = self.inner.lock();
        let Some(item) = inner.items.get_mut(key) else { return };
        item.running = false;
        item.failures += 1;
        let pause = pause(item.failures, cause);
        if item.again {
            (item.again, item.line) = (false, Line::Ready);
            inner.ready.push_back(key.clone());
            drop(inner);
            self.ready.notify_one();
            return;
        }
        drop(inner);
        self.add_after(key.clone(), pause);
    }

    /// Moves items whose time has come; runs for ever.
    pub async fn keep_time(&self) {
        loop {
            let notified = self.timer.notified();
            let next = {
                let mut inner = self.inner.lock();
                let now = Instant::now();
                let mut due = Vec::new();
                while let Some(first) = inner.later.first_entry().filter(|first| first.key().0 <= now) {
                    let key = first.remove();
                    inner.timers.remove(&key);
                    due.push(key);
                }
                let next = inner.later.first_key_value().map(|((at, _), _)| *at);
                drop(inner);
                due.into_iter().for_each(|key| self.add(key));
                next
            };
            match next {
                Some(at) => {
                    tokio::select! { () = tokio::time::sleep_until(at) => {}, () = notified => {} }
                }
                None => notified.await,
            }
        }
    }

    /// How many items there are to work on, now or later.
    pub fn len(&self) -> usize {
        self.inner.lock().items.len()
    }

    /// Whether nothing is in line: whoever works has nothing else to do.
    pub fn is_quiet(&self) -> bool {
        let inner = self.inner.lock();
        inner.ready.is_empty() && inner.put_off.is_empty()
    }

    /// Whether nothing is to be done now or later.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.items.values().all(|item| item.line == Line::None && !item.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(key: &'static str, failures: u32) -> Next<&'static str> {
        Next { key, failures, put_off: false }
    }

    #[tokio::test]
    async fn what_is_put_off_comes_last_but_comes() {
        let queue: Queue<&str> = Queue::default();
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        assert_eq!(queue.next().await, next("a", 0));
        queue.put_off(&"a");
        assert!(queue.is_wanted(&"a") && !queue.is_idle());
        queue.add("d");
        for key in ["b", "c", "d"] {
            assert_eq!(queue.next().await, next(key, 0));
            queue.done(&key);
        }
        assert!(!queue.is_quiet());
        assert_eq!(queue.next().await, Next { key: "a", failures: 0, put_off: true });
        // who is wanted again waits no longer, and comes once
        queue.put_off(&"a");
        queue.add("b");
        queue.add("a");
        assert_eq!((queue.next().await, queue.next().await), (next("b", 0), next("a", 0)));
        queue.done(&"a");
        queue.done(&"b");
        let more = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(more.is_err() && queue.is_idle() && queue.is_quiet(), "{more:?}");
        // however much else there is
        queue.add("a");
        assert_eq!(queue.next().await.key, "a");
        queue.put_off(&"a");
        queue.add("b");
        let later = || queue.inner.lock().pop(Instant::now() + PUT_OFF).map(|next| next.key);
        assert_eq!((later(), later(), later()), (Some("a"), Some("b"), None));
    }

    #[tokio::test]
    async fn who_is_wanted_again_and_again_is_not_put_off_for_ever() {
        let queue: Queue<&str> = Queue::default();
        for _ in 0..3 {
            queue.add("a");
            assert_eq!(queue.next().await, next("a", 0));
            queue.put_off(&"a");
        }
        queue.add("a");
        queue.add("b");
        let later = || queue.inner.lock().pop(Instant::now() + PUT_OFF);
        assert_eq!(later(), Some(Next { key: "a", failures: 0, put_off: true }), "it waited long enough");
        queue.done(&"a");
        // where it was put off before is forgotten, and does not bring it before others
        queue.add("a");
        assert_eq!((later(), later(), later()), (Some(next("b", 0)), Some(next("a", 0)), None));
        queue.done(&"a");
        queue.done(&"b");
        assert!(queue.is_idle() && queue.len() == 0);
    }

    #[tokio::test]
    async fn items_are_worked_on_once_and_never_twice_at_the_same_time() {
        let queue: Queue<&str> = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let a = queue.next().await.key;
        queue.add("a"); // while it is worked on
        assert_eq!((a, queue.next().await.key), ("a", "b"));
        let third = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(third.is_err(), "a is still being worked on");
        queue.done(&"b");
        queue.done(&"a");
        assert_eq!(queue.next().await.key, "a");
        queue.done(&"a");
        assert!(queue.is_idle());
        assert_eq!(queue.len(), 0);
    }

    #[tokio::test]
    async fn failures_come_back_later_and_later() {
        for (cause, longest) in [(Cause::Failed, LONGEST), (Cause::Overtaken, OVERTAKEN)] {
            let pauses: Vec<Duration> = (1..20).map(|failures| pause(failures, cause)).collect();
            assert!(pauses.windows(2).all(|w| w[0] < w[1] || w[1] == longest), "{pauses:?}");
        }
        let queue: std::sync::Arc<Queue<&str>> = std::sync::Arc::default();
        let timer = queue.clone();
        let timer = tokio::spawn(async move { timer.keep_time().await });
        queue.add("a");
        for failures in 0..3 {
            assert_eq!(queue.next().await, next("a", failures));
            queue.failed(&"a", Cause::Failed);
        }
        assert_eq!(queue.next().await, next("a", 3));
        queue.done(&"a");
        queue.add("a");
        assert_eq!(queue.next().await, next("a", 0), "a success forgets the failures");
        timer.abort();
    }

    #[tokio::test]
    async fn who_is_wanted_later_several_times_comes_once_and_at_the_earliest() {
        let queue: std::sync::Arc<Queue<&str>> = std::sync::Arc::default();
        let timer = queue.clone();
        let timer = tokio::spawn(async move { timer.keep_time().await });
        for pause in [3_600_000, 20, 40, 20, 60] {
            queue.add_after("a", Duration::from_millis(pause));
        }
        assert_eq!(queue.next().await, next("a", 0), "an hour is not waited for");
        queue.done(&"a");
        let again = tokio::time::timeout(Duration::from_millis(200), queue.next()).await;
        assert!(again.is_err(), "one time is enough");
        timer.abort();
    }

    #[tokio::test]
    async fn who_is_wanted_while_failing_waits_for_nothing() {
        // nobody keeps time: what has to wait never comes
        let queue: Queue<&str> = Queue::default();
        queue.add("a");
        for failures in 0..20 {
            assert_eq!(queue.next().await, next("a", failures));
            queue.add("a");
            queue.failed(&"a", Cause::Failed);
        }
        assert_eq!(queue.next().await, next("a", 20));
        queue.failed(&"a", Cause::Failed);
        let next = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(next.is_err(), "nothing new is to be seen");
    }
}
