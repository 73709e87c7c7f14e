//! What is made from tables of the store and kept as new as they are.

use std::sync::Arc;

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use store::{Entry, EventKind, KeyRange, Store};

/// Something that knows what is in some tables.
pub trait Follower: Default {
    /// The tables.
    const TABLES: &'static [&'static str];

    /// An object is there, perhaps in the place of another.
    fn put(&mut self, table: usize, entry: &Entry);

    /// An object is gone.
    fn remove(&mut self, table: usize, key: &Arc<str>);
}

/// A follower and how far it is.
///
/// Invariant: it shows each table as it was at the table's revision in `seen`.
struct State<T> {
    seen: Vec<u64>,
    follower: T,
}

/// A follower that is as new as the store whenever it is looked at, which costs a look at one number for each table. It is
/// made when it is first needed.
pub struct Followed<T> {
    store: Store,
    state: RwLock<Option<State<T>>>,
}

impl<T: Follower> Followed<T> {
    /// Of this store.
    pub fn new(store: Store) -> Followed<T> {
        Followed { store, state: RwLock::new(None) }
    }

    /// The follower, as new as the store.
    pub fn current(&self) -> MappedRwLockReadGuard<'_, T> {
        let state = self.state.read();
        if state.as_ref().is_some_and(|state| state.is_current(&self.store)) {
            return RwLockReadGuard::map(state, follower);
        }
        drop(state);
        let mut state = self.state.write();
        match &mut *state {
            Some(state) => state.follow(&self.store),
            state => *state = Some(State::load(&self.store)),
        }
        RwLockReadGuard::map(parking_lot::RwLockWriteGuard::downgrade(state), follower)
    }
}

fn follower<T>(state: &Option<State<T>>) -> &T {
    match state {
        Some(state) => &state.follower,
        None => unreachable!("made before it is looked at"),
    }
}

impl<T: Follower> State<T> {
    fn load(store: &Store) -> State<T> {
        let (seen, lists) = store.view(|view| {
            let all =
                |table: &&str| view.list(table, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
            let seen = T::TABLES.iter().map(|table| view.changed(table)).collect();
            (seen, T::TABLES.iter().map(all).collect::<Vec<_>>())
        });
        let mut follower = T::default();
        for (table, list) in lists.iter().enumerate() {
            list.iter().for_each(|entry| follower.put(table, entry));
        }
        State { seen, follower }
    }

    fn is_current(&self, store: &Store) -> bool {
        store.view(|view| T::TABLES.iter().zip(&self.seen).all(|(table, seen)| view.changed(table) == *seen))
    }

    /// Takes in what happened since; everything anew if too much did.
    fn follow(&mut self, store: &Store) {
        for (table, name) in T::TABLES.iter().enumerate() {
            let now = store.view(|view| view.changed(name));
            if now == self.seen[table] {
                continue;
            }
            let Ok(mut watch) = store.watch(name, "", self.seen[table]) else {
                *self = State::load(store);
                return;
            };
            loop {
                match watch.try_next() {
                    Ok(Some(events)) => {
                        for event in events {
                            match event.kind {
                                EventKind::Put => self.follower.put(table, &event.entry),
                                EventKind::Delete => self.follower.remove(table, &event.entry.key),
                            }
                            self.seen[table] = event.revision;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        *self = State::load(store);
                        return;
                    }
                }
            }
        }
    }
}
