//! Following tables of the store: what a controller knows is as new as it needs to be, and costs nothing while nothing happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use store::{Entry, Event, KeyRange, Store};

/// What is new about a table.
pub enum News {
    /// Everything that is there; whatever else was known is gone.
    All {
        /// What is there.
        entries: Vec<Arc<Entry>>,
        /// Whether the table was told before, so that there may be something else.
        again: bool,
    },
    /// What happened, in order.
    Events(Vec<Arc<Event>>),
}

/// Follows tables: every change is told exactly once, in order within its table.
///
/// Invariant: what happened up to `told` has been told. Waiting is separate from reading, so that a controller can also ask for
/// everything up to now without waiting, for instance before it takes an absence for a fact.
pub struct Follow {
    store: Store,
    told: BTreeMap<Arc<str>, Told>,
    /// Tables that may have something new.
    woken: BTreeSet<Arc<str>>,
    waiting: FuturesUnordered<BoxFuture<'static, Arc<str>>>,
    /// Tables for which nothing waits yet.
    unarmed: BTreeSet<Arc<str>>,
}

/// How much of a table has been told.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    Nothing,
    UpTo(u64),
    /// Not enough to go on: the window has moved on.
    TooLittle,
}

impl Follow {
    /// Follows nothing yet.
    pub fn new(store: &Store) -> Follow {
        Follow {
            store: store.clone(),
            told: BTreeMap::new(),
            woken: BTreeSet::new(),
            waiting: FuturesUnordered::new(),
            unarmed: BTreeSet::new(),
        }
    }

    /// Follows these tables.
    pub fn tables(store: &Store, tables: &[&str]) -> Follow {
        let mut follow = Follow::new(store);
        tables.iter().for_each(|table| follow.add((*table).into()));
        follow
    }

    /// Follows a table too, beginning with everything in it.
    pub fn add(&mut self, table: Arc<str>) {
        if !self.told.contains_key(&table) {
            self.told.insert(table.clone(), Told::Nothing);
            self.woken.insert(table.clone());
            self.unarmed.insert(table);
        }
    }

    /// Follows only the tables that `keep` names; gives the others.
    pub fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) -> Vec<Arc<str>> {
        let dropped: Vec<Arc<str>> = self.told.keys().filter(|table| !keep(table)).cloned().collect();
        for table in &dropped {
            self.told.remove(table);
            self.woken.remove(table);
            self.unarmed.remove(table);
        }
        dropped
    }

    /// Waits until some table may have something new.
    pub async fn changed(&mut self) {
        for table in std::mem::take(&mut self.unarmed) {
            let watch = match self.told.get(&table) {
                Some(Told::UpTo(from)) => self.store.watch(&table, "", *from).ok(),
                // There is something to tell anyway.
                _ => None,
            };
            self.waiting.push(Box::pin(async move {
                let overtaken = match watch {
                    Some(mut watch) => watch.next().await.is_err(),
                    None => false,
                };
                if overtaken {
                    // Or the store is closing, and the controller ends with it.
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                table
            }));
        }
        if !self.woken.is_empty() {
            return;
        }
        match self.waiting.next().await {
            Some(table) => self.wake(table),
            None => std::future::pending().await,
        }
        while let Some(Some(table)) = futures::FutureExt::now_or_never(self.waiting.next()) {
            self.wake(table);
        }
    }

    fn wake(&mut self, table: Arc<str>) {
        if self.told.contains_key(&table) {
            self.woken.insert(table.clone());
            self.unarmed.insert(table);
        }
    }

    /// Tells what is new in the tables that have something new.
    pub fn read_woken(&mut self, tell: &mut impl FnMut(&Arc<str>, News)) {
        for table in std::mem::take(&mut self.woken) {
            self.read(&table, tell);
        }
    }

    /// Tells everything that has happened until now in any of the tables.
    pub fn read_all(&mut self, tell: &mut impl FnMut(&Arc<str>, News)) {
        self.woken.clear();
        let tables: Vec<Arc<str>> = self.told.keys().cloned().collect();
        for table in tables {
            self.read(&table, tell);
        }
    }

    fn read(&mut self, table: &Arc<str>, tell: &mut impl FnMut(&Arc<str>, News)) {
        let Some(told) = self.told.get_mut(table) else { return };
        let watch = match *told {
            Told::UpTo(from) => self.store.watch(table, "", from).ok(),
            Told::Nothing | Told::TooLittle => None,
        };
        let Some(mut watch) = watch else {
            if let Ok(list) = self.store.list(table, KeyRange::all(), None) {
                let again = *told != Told::Nothing;
                *told = Told::UpTo(list.revision);
                tell(table, News::All { entries: list.entries, again });
            }
            return;
        };
        loop {
            let events = match watch.try_next() {
                Ok(events) => events,
                Err(_) => {
                    *told = Told::TooLittle;
                    self.woken.insert(table.clone());
                    return;
                }
            };
            if let Some(progress) = watch.progress() {
                *told = Told::UpTo(progress);
            }
            match events {
                Some(events) => tell(table, News::Events(events)),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{EventKind, Expect, Op, Options, Transaction, Window};

    /// What is known after all that was told; every event must fit what was known before it.
    #[derive(Default)]
    struct Known(BTreeMap<String, u64>);

    impl Known {
        fn take_in(&mut self, table: &str, news: News) {
            match news {
                News::All { entries, again } => {
                    let before = self.0.len();
                    self.0.retain(|key, _| !key.starts_with(table));
                    assert!(again || self.0.len() == before, "a table was told twice from the start");
                    self.0.extend(entries.iter().map(|entry| (format!("{table}/{}", entry.key), entry.revision)));
                }
                News::Events(events) => {
                    for event in events {
                        let key = format!("{table}/{}", event.key());
                        let previous = event.previous.as_ref().map(|entry| entry.revision);
                        assert_eq!(self.0.get(&key).copied(), previous, "{key} was told twice or left out");
                        match event.kind {
                            EventKind::Put => self.0.insert(key, event.revision),
                            EventKind::Delete => self.0.remove(&key),
                        };
                    }
                }
            }
        }
    }

    async fn put(store: &Store, table: &str, key: &str) {
        store.commit(Transaction::from(Op::put(table, key, b"{}".to_vec(), Expect::Any))).await.unwrap();
    }

    #[tokio::test]
    async fn everything_is_told_once() {
        let window = Window { events: 4, ..Window::default() };
        let store = Store::in_memory(Options { window, ..Options::default() });
        put(&store, "a", "old").await;
        let mut follow = Follow::tables(&store, &["a", "b"]);
        let mut known = Known::default();
        follow.changed().await;
        follow.read_woken(&mut |table, news| known.take_in(table, news));
        assert_eq!(known.0.len(), 1);
        // Few changes at a time come as events, many as a new beginning.
        for (round, count) in [1, 3, 9, 0, 2, 30, 1].into_iter().enumerate() {
            for at in 0..count {
                put(&store, ["a", "b"][at % 2], &format!("{}", (at + round) % 7)).await;
            }
            if count > 0 {
                store.commit(Transaction::from(Op::delete("a", format!("{}", round % 7), Expect::Exists))).await.ok();
                follow.changed().await;
            }
            if round % 2 == 0 {
                follow.read_all(&mut |table, news| known.take_in(table, news));
            } else {
                follow.read_woken(&mut |table, news| known.take_in(table, news));
                follow.read_woken(&mut |table, news| known.take_in(table, news));
                follow.read_all(&mut |table, news| known.take_in(table, news));
            }
            let (_, lists) = store.list_many(&["a", "b"]);
            let there = ["a", "b"].iter().zip(lists).flat_map(|(table, list)| {
                list.into_iter().map(move |entry| (format!("{table}/{}", entry.key), entry.revision))
            });
            assert_eq!(known.0, there.collect::<BTreeMap<_, _>>(), "round {round}");
        }
        assert_eq!(follow.retain(|table| &**table == "a").len(), 1);
    }
}
