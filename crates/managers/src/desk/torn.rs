//! Volumes that lost the reference to their claim before they ever said Bound: see `docs/adr/010-who-waits-goes-first.md`.

use std::sync::Arc;

use conductor_claims::views::{Offer, Phase};

use super::{Desk, Item, Key, State};

impl Desk {
    /// Whether a volume lost the reference to its claim before it ever said Bound: it looks free, and is not, for the claim says Bound and
    /// Pods may use it.
    pub(super) fn is_torn(&self, state: &State, offer: &Offer) -> bool {
        let has = |key: &Key| state.claims.get(key).is_some_and(|seen| seen.bound);
        self.says_so_later(offer) && offer.refs.is_empty() && state.naming(&offer.name).any(has)
    }

    /// Takes such a volume for one that says Bound, which is nobody else's and is mended, for as long as a claim has it. What is to be
    /// looked at for that.
    pub(super) fn know_torn(&self, state: &mut State, name: &Arc<str>) -> Vec<Item> {
        let was = state.torn.get(name).copied();
        let Some(offer) = state.index.get(name).filter(|offer| was.is_some() || offer.refs.is_empty()) else {
            return Vec::new();
        };
        // one that was torn refers to nobody, whoever is about to be written into it
        let said = Offer { phase: was.unwrap_or(offer.phase), refs: Box::default(), ..offer.clone() };
        let torn = self.is_torn(state, &said);
        if torn == was.is_some() {
            return Vec::new();
        }
        let mut items = vec![Item::Resource(name.clone())];
        if torn {
            state.torn.insert(name.clone(), said.phase);
            state.free.remove(name);
            state.index.set_phase(name, Phase::Bound);
        } else {
            state.torn.remove(name);
            state.index.set_phase(name, said.phase);
            items.extend(self.wake(state, name));
        }
        self.counted.notify_one();
        items
    }

    /// Takes back what was assumed of a claim: its resource may have been torn from another meanwhile.
    pub(crate) fn forget(&self, uid: &str) {
        let items = {
            let mut state = self.state.lock();
            let resource = state.index.forget(uid);
            resource.map_or_else(Vec::new, |name| self.know_torn(&mut state, &name))
        };
        self.enqueue(items);
    }
}
