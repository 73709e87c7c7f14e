//! Waking claims: a free resource is offered to the claims it could satisfy, best first, one for each place it has.

use std::sync::Arc;

use super::{Desk, Item, Key, State};

impl State {
    /// The next claims a resource is to be offered to; they no longer count as waiting until they are looked at.
    pub(super) fn offer(&mut self, name: &Arc<str>) -> Vec<Key> {
        let Some(offer) = self.index.get(name) else {
            self.tried.remove(name);
            return Vec::new();
        };
        let free = offer.taken().is_none();
        let room = if free { (offer.max_claims as usize).saturating_sub(offer.refs.len()).max(1) } else { 0 };
        let explicit = offer.refs.len() + 1;
        let tried = self.tried.get(name).map_or(0, |t| t.len());
        let limit = room + explicit + tried;
        let mut chosen = Vec::new();
        for key in self.index.offer_to(name, limit) {
            let Some(seen) = self.claims.get_mut(&key) else { continue };
            let tried = self.tried.entry(name.clone()).or_default();
            if chosen.len() >= room.max(explicit) || !tried.insert(seen.uid.clone()) {
                continue;
            }
            seen.offered = Some(name.clone());
            let uid = seen.uid.clone();
            self.index.stop_waiting(&uid);
            chosen.push(key);
        }
        if chosen.is_empty() {
            self.tried.remove(name);
        }
        chosen
    }
}

impl Desk {
    /// After a claim was looked at: what it was offered and did not take is offered to the next.
    pub(super) fn offer_on(&self, key: &Key) {
        let next = {
            let mut state = self.state.lock();
            let Some(resource) = state.claims.get_mut(key).and_then(|seen| seen.offered.take()) else { return };
            match state.index.get(&resource) {
                Some(offer) if offer.taken().is_none() => state.offer(&resource),
                _ => {
                    state.tried.remove(&resource);
                    Vec::new()
                }
            }
        };
        for (namespace, name) in next {
            self.queue.add(Item::Claim(namespace, name));
        }
    }

    /// Offers a resource anew to whoever waits for such a one.
    pub(super) fn wake(&self, state: &mut State, resource: &Arc<str>) -> Vec<Item> {
        state.tried.remove(resource);
        if state.index.waiting() == 0 {
            return Vec::new();
        }
        state.offer(resource).into_iter().map(|(namespace, name)| Item::Claim(namespace, name)).collect()
    }
}
