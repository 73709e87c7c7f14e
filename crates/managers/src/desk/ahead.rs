//! What this process has written and the watches have not shown yet: an object from before that is not looked at.

use std::collections::HashMap;
use std::time::Duration;

use conductor_claims::lifecycle::Plan;
use conductor_claims::views::Phase;
use tokio::time::Instant;

use super::{Desk, Item, State};

/// When what was written is looked for again.
pub(super) const SHOWN: Duration = Duration::from_millis(50);
/// How long a watch may be behind: after that what it shows counts, for revisions may have begun anew.
const LONGEST: Duration = Duration::from_secs(5);

/// By object the revision that it has by now, and when that was written.
#[derive(Default)]
pub(super) struct Ahead(HashMap<Item, (u64, Instant)>);

impl Ahead {
    fn wrote(&mut self, item: Item, revision: u64) {
        self.0.insert(item, (revision, Instant::now()));
    }

    /// A watch shows an object at a revision; whether that is what was waited for.
    pub(super) fn shown(&mut self, item: &Item, revision: u64) -> bool {
        let shown = self.0.get(item).is_some_and(|(written, _)| *written <= revision);
        shown && self.0.remove(item).is_some()
    }

    /// It is gone.
    pub(super) fn forget(&mut self, item: &Item) {
        self.0.remove(item);
    }

    fn has(&self, item: &Item) -> bool {
        self.0.get(item).is_some_and(|(_, written)| written.elapsed() < LONGEST)
    }

    /// Whether everything that was written has been shown.
    pub(super) fn is_caught_up(&self) -> bool {
        self.0.values().all(|(_, written)| written.elapsed() >= LONGEST)
    }
}

impl State {
    /// The revision at which an object was shown last.
    fn revision(&self, item: &Item) -> Option<u64> {
        match item {
            Item::Claim(namespace, name) => {
                self.claims.get(&(namespace.clone(), name.clone())).map(|seen| seen.revision)
            }
            Item::Resource(name) => self.index.get(name).map(|offer| offer.revision),
        }
    }
}

impl Desk {
    /// Notes the revisions that a plan's writes yielded.
    pub(super) fn note_written(&self, plan: &Plan, versions: &[String]) {
        let (resource, claim) = (self.kind.resource(), self.kind.claim());
        let mut state = self.state.lock();
        for (write, version) in plan.writes.iter().zip(versions) {
            let target = &write.target;
            let is = |kind: &crate::kind::Gvk<'_>| target.kind == kind.1 && target.api_version == kind.0;
            let item = if is(&resource) {
                Item::Resource(target.name.as_str().into())
            } else if is(&claim) {
                Item::Claim(target.namespace.as_str().into(), target.name.as_str().into())
            } else {
                continue;
            };
            let Ok(revision) = version.parse() else { continue };
            if state.revision(&item).is_some_and(|shown| shown < revision) {
                state.ahead.wrote(item, revision);
            }
        }
    }

    /// Whether looking at an item now would be of no use: what this process wrote of it has not been shown, or it is free and whoever
    /// has its claim in hand is about to bind it, or has.
    pub(super) fn is_too_early(&self, item: &Item) -> bool {
        let state = self.state.lock();
        if state.ahead.has(item) {
            return true;
        }
        match item {
            Item::Claim(namespace, name) => {
                let seen = state.claims.get(&(namespace.clone(), name.clone()));
                let resource = seen.and_then(|seen| seen.resource.clone());
                resource.is_some_and(|resource| state.ahead.has(&Item::Resource(resource)))
            }
            Item::Resource(name) => {
                let free = state.index.get(name).filter(|offer| offer.phase == Phase::Available && !offer.deleting);
                let refs = free.into_iter().flat_map(|offer| offer.refs.iter());
                refs.filter_map(|r| state.claim_uids.get(&r.uid))
                    .map(|(namespace, name)| Item::Claim(namespace.clone(), name.clone()))
                    .any(|claim| self.queue.is_in_hand(&claim) || state.ahead.has(&claim))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_waited_for_until_it_is_shown_gone_or_late() {
        let claim = || Item::Claim("apps".into(), "c".into());
        let ahead = || {
            let mut ahead = Ahead::default();
            ahead.wrote(claim(), 7);
            assert!(ahead.has(&claim()) && !ahead.is_caught_up() && !ahead.has(&Item::Resource("c".into())));
            ahead
        };
        let mut shown = ahead();
        assert!(!shown.shown(&claim(), 6) && shown.has(&claim()), "an older version is not what was written");
        assert!(shown.shown(&claim(), 8) && !shown.has(&claim()) && shown.is_caught_up());
        assert!(!shown.shown(&claim(), 9), "nobody waits any more");
        let mut gone = ahead();
        gone.forget(&claim());
        assert!(!gone.has(&claim()) && gone.is_caught_up());
        // a watch that misses it holds nothing up for ever
        let Some(long_ago) = Instant::now().checked_sub(LONGEST) else { return };
        let late = Ahead(HashMap::from([(claim(), (7, long_ago))]));
        assert!(!late.has(&claim()) && late.is_caught_up());
    }
}
