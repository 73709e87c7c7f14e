//! The work queue: every item once, never two at the same time, failures later and later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Default)]
struct Item {
    /// In `ready`.
    queued: bool,
    /// Being worked on.
    running: bool,
    /// Wanted again while being worked on.
    again: bool,
    /// How often it failed in a row.
    failures: u32,
}

/// A time, and a number for those that have the same.
type When = (Instant, u64);

struct Inner<K> {
    ready: VecDeque<K>,
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

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Wants an item worked on as soon as possible.
    pub fn add(&self, key: K) {
        let mut inner = self.inner.lock();
        let item = inner.items.entry(key.clone()).or_default();
        if item.running {
            item.again = true;
        } else if !item.queued {
            item.queued = true;
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
        inner.timers.contains_key(key) || inner.items.get(key).is_some_and(|item| item.queued || item.again)
    }

    /// Whether an item is being worked on.
    pub fn is_in_hand(&self, key: &K) -> bool {
        self.inner.lock().items.get(key).is_some_and(|item| item.running)
    }

    /// The next item. It must be given back with [`Queue::done`] or [`Queue::failed`].
    pub async fn next(&self) -> (K, u32) {
        loop {
            let notified = self.ready.notified();
            {
                let mut inner = self.inner.lock();
                if let Some(key) = inner.ready.pop_front() {
                    let item = inner.items.entry(key.clone()).or_default();
                    (item.queued, item.running) = (false, true);
                    let failures = item.failures;
                    if !inner.ready.is_empty() {
                        self.ready.notify_one();
                    }
                    return (key, failures);
                }
            }
            notified.await;
        }
    }

    /// The item is settled for now.
    pub fn done(&self, key: &K) {
        let mut inner = self.inner.lock();
        let Some(item) = inner.items.get_mut(key) else { return };
        item.running = false;
        item.failures = 0;
        if item.again {
            (item.again, item.queued) = (false, true);
            inner.ready.push_back(key.clone());
            drop(inner);
            self.ready.notify_one();
        } else if !item.queued {
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
            (item.again, item.queued) = (false, true);
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
        self.inner.lock().ready.is_empty()
    }

    /// Whether nothing is to be done now or later.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.items.values().all(|i| !i.queued && !i.running) && inner.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn items_are_worked_on_once_and_never_twice_at_the_same_time() {
        let queue: Queue<&str> = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let (a, _) = queue.next().await;
        queue.add("a"); // while it is worked on
        assert_eq!((a, queue.next().await.0), ("a", "b"));
        let third = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(third.is_err(), "a is still being worked on");
        queue.done(&"b");
        queue.done(&"a");
        assert_eq!(queue.next().await.0, "a");
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
            assert_eq!(queue.next().await, ("a", failures));
            queue.failed(&"a", Cause::Failed);
        }
        assert_eq!(queue.next().await, ("a", 3));
        queue.done(&"a");
        queue.add("a");
        assert_eq!(queue.next().await, ("a", 0), "a success forgets the failures");
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
        assert_eq!(queue.next().await, ("a", 0), "an hour is not waited for");
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
            assert_eq!(queue.next().await, ("a", failures));
            queue.add("a");
            queue.failed(&"a", Cause::Failed);
        }
        assert_eq!(queue.next().await, ("a", 20));
        queue.failed(&"a", Cause::Failed);
        let next = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(next.is_err(), "nothing new is to be seen");
    }
}
