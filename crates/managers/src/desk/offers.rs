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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use crate::api::Sink;
    use crate::desk::saying::tests::{claim, desk, show, volume, work_off};
    use crate::desk::{Desk, DeskSink, Item, Role};

    /// A desk at which as many claims wait, each for 1Ti. Nobody lets them say anew why, and nobody keeps time: only what a resource does
    /// brings them back.
    async fn waiting(claims: usize) -> Arc<Desk> {
        let desk = desk();
        (0..claims).for_each(|number| show(&desk, Role::Claim, claim(number)));
        while !desk.queue.is_quiet() {
            work_off(&desk).await;
        }
        assert_eq!(desk.state.lock().index.waiting(), claims);
        desk
    }

    fn large(name: &str) -> Value {
        let mut large = volume(name);
        large["spec"]["capacity"]["storage"] = json!("1Ti");
        large
    }

    /// The claims that are to be looked at now, in this order; what they are looked at with is up to the caller.
    async fn woken(desk: &Desk) -> Vec<String> {
        let mut all = Vec::new();
        while !desk.queue.is_quiet() {
            let item = desk.queue.next().await.key;
            if let Item::Claim(_, name) = &item {
                all.push(name.to_string());
            }
            desk.queue.done(&item);
        }
        all
    }

    #[tokio::test]
    async fn what_becomes_free_is_offered_at_once_to_one_claim_for_each() {
        let desk = waiting(3).await;
        show(&desk, Role::Resource, volume("small"));
        assert!(woken(&desk).await.is_empty(), "nobody can use it");
        show(&desk, Role::Resource, large("v1"));
        assert_eq!(woken(&desk).await, ["c0"], "the first in line, and nobody else");
        show(&desk, Role::Resource, large("v2"));
        assert_eq!(woken(&desk).await, ["c1"], "the one before has not been looked at yet, and has an offer");
    }

    #[tokio::test]
    async fn what_is_released_grows_or_is_freed_of_its_class_is_offered_at_once() {
        let desk = waiting(1).await;
        let mut shown = large("v");
        for (what, field, not_yet, now) in [
            ("it is bound", "/status/phase", json!("Bound"), json!("Available")),
            ("it is small", "/spec/capacity/storage", json!("1Gi"), json!("1Ti")),
            ("it is of a class", "/spec/storageClassName", json!("fast"), json!("")),
            ("it takes no writer", "/spec/accessModes", json!(["ReadOnlyMany"]), json!(["ReadWriteOnce"])),
        ] {
            let version =
                shown["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
            shown["spec"]["storageClassName"] = json!("");
            for (step, (value, expected)) in [(not_yet, &[][..]), (now, &["c0"])].into_iter().enumerate() {
                shown["metadata"]["resourceVersion"] = json!((version + 1 + step as u64).to_string());
                *shown.pointer_mut(field).expect("a field") = value;
                show(&desk, Role::Resource, shown.clone());
                assert_eq!(woken(&desk).await, expected, "{what}: {field}, step {step}");
            }
            // it did not get it, and waits on
            DeskSink { desk: desk.clone(), role: Role::Resource }.delete(shown.clone());
            show(&desk, Role::Claim, claim(0));
            while !desk.queue.is_quiet() {
                work_off(&desk).await;
            }
            assert_eq!(desk.state.lock().index.waiting(), 1, "{what}");
        }
    }

    #[tokio::test]
    async fn what_one_claim_does_not_take_is_offered_to_the_next_at_once() {
        let desk = waiting(3).await;
        show(&desk, Role::Resource, large("v"));
        for number in 0..3 {
            assert_eq!(woken(&desk).await, [format!("c{number}")]);
            // it was looked at, and could not have it
            desk.offer_on(&("default".into(), format!("c{number}").into()));
        }
        assert!(woken(&desk).await.is_empty(), "everybody was asked");
        // whoever goes with an offer passes it on
        let desk = waiting(2).await;
        show(&desk, Role::Resource, large("v"));
        DeskSink { desk: desk.clone(), role: Role::Claim }.delete(claim(0));
        assert_eq!(woken(&desk).await, ["c0", "c1"]);
    }
}
