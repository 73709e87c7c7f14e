//! What the watches of a type show, taken in: projected, indexed, and queued where there is something to do.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use conductor_claims::amount::Amount;
use conductor_claims::extract::templates;
use conductor_claims::views::{Offer, Phase};
use conductor_claims::volumes;
use serde_json::Value;

use super::{Desk, Item, Key, Seen, State, Turn};
use crate::api::{Names, Sink};
use crate::implementations::PATIENCE;
use crate::kind::Kind;

/// How long a uid is.
const UID: usize = 36;

/// Which of a type's kinds a watch shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Resources.
    Resource,
    /// Claims.
    Claim,
    /// Classes.
    Class,
}

/// Takes in one kind of a type.
pub(crate) struct DeskSink {
    pub(crate) desk: Arc<Desk>,
    pub(crate) role: Role,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn key_of(object: &Value) -> Key {
    (text(&object["metadata"]["namespace"]).into(), text(&object["metadata"]["name"]).into())
}

impl Sink for DeskSink {
    fn apply(&self, object: Value) {
        if self.role != Role::Claim {
            self.desk.changes.fetch_add(1, Ordering::Relaxed);
        }
        match self.role {
            Role::Resource => self.desk.resource_shown(object),
            Role::Claim => self.desk.claim_shown(object),
            Role::Class => self.desk.class_shown(object),
        }
    }

    fn delete(&self, object: Value) {
        if self.role != Role::Claim {
            self.desk.changes.fetch_add(1, Ordering::Relaxed);
        }
        match self.role {
            Role::Resource => self.desk.resource_gone(text(&object["metadata"]["name"])),
            Role::Claim => self.desk.claim_gone(&key_of(&object), Some(text(&object["metadata"]["uid"]))),
            Role::Class => self.desk.class_gone(text(&object["metadata"]["name"])),
        }
    }

    fn synced(&self, names: &Names) {
        let there = |namespace: &str, name: &str| names.contains(&(namespace.to_owned(), name.to_owned()));
        match self.role {
            Role::Resource => {
                let gone: Vec<Arc<str>> = {
                    let state = self.desk.state.lock();
                    state.index.offers().filter(|o| !there("", &o.name)).map(|o| o.name.clone()).collect()
                };
                gone.iter().for_each(|name| self.desk.resource_gone(name));
            }
            Role::Claim => {
                let gone: Vec<Key> = {
                    let state = self.desk.state.lock();
                    state.claims.keys().filter(|(namespace, name)| !there(namespace, name)).cloned().collect()
                };
                gone.iter().for_each(|key| self.desk.claim_gone(key, None));
            }
            Role::Class => {
                let gone: Vec<String> = {
                    let state = self.desk.state.lock();
                    state.classes.keys().filter(|name| !there("", name)).cloned().collect()
                };
                gone.iter().for_each(|name| self.desk.class_gone(name));
            }
        }
        self.desk.mark_synced(self.role);
    }
}

/// Whether a resource refuses claims for another reason than before.
fn counts_otherwise(before: &Offer, now: &Offer) -> bool {
    before.taken() != now.taken()
        || before.capacity != now.capacity
        || before.refs != now.refs
        || before.shape != now.shape
        || before.labels != now.labels
}

impl Desk {
    pub(super) fn enqueue(&self, items: Vec<Item>) {
        items.into_iter().for_each(|item| self.queue.add(item));
    }

    fn resource_shown(&self, object: Value) {
        let mut offer = self.kind.offer(&object);
        let name = offer.name.clone();
        let (mut items, mut left) = (Vec::new(), HashSet::new());
        {
            let mut state = self.state.lock();
            state.torn.remove(&name);
            if self.is_torn(&state, &offer) {
                state.torn.insert(name.clone(), offer.phase);
                offer.phase = Phase::Bound;
            }
            let before = state.index.get(&name).cloned();
            if let Some(old) = before.as_ref().filter(|b| b.uid != offer.uid) {
                let uid = old.uid.clone();
                state.resource_uids.remove(&uid);
                state.index.remove(&name);
                left = state.behind.remove(&uid).unwrap_or_default();
            }
            state.resource_uids.insert(offer.uid.clone(), name.clone());
            if matches!(self.kind, Kind::Generated(_)) {
                let wired =
                    !object["status"]["implementationRef"].is_null() || object["spec"]["connection"].is_object();
                if wired {
                    state.wired.insert(name.clone());
                } else {
                    state.wired.remove(&name);
                }
                self.follow_implementations(&object);
            }
            self.claims_concerned(&state, before.as_ref(), &offer, &mut items);
            let settled = self.resource_settled(&state, &object, &offer);
            if before.is_none_or(|before| counts_otherwise(&before, &offer)) {
                self.counted.notify_one();
            }
            state.keep_free(&offer, &object);
            let item = Item::Resource(name.clone());
            if state.ahead.shown(&item, offer.revision) {
                // looked at too early before
                let claims = offer.refs.iter().filter_map(|r| state.claim_uids.get(&r.uid)).chain(state.naming(&name));
                let claims = claims.map(|(namespace, name)| Item::Claim(namespace.clone(), name.clone()));
                items.extend(claims.filter(|claim| self.queue.is_wanted(claim)));
            }
            state.index.upsert(offer);
            items.extend(self.wake(&mut state, &name));
            if self.pin(&mut state, &item, object, settled) {
                items.push(item);
            }
        }
        self.enqueue(items);
        left.into_iter().for_each(|owned| self.cx.orphans.add(owned));
    }

    /// Claims that a change of their resource concerns: those it no longer refers to and, where a claim shows what its resource
    /// says, those it does.
    fn claims_concerned(&self, state: &State, before: Option<&Offer>, now: &Offer, items: &mut Vec<Item>) {
        let mut reserved = Vec::new();
        let mut concern = |uid: &Arc<str>| {
            if let Some((namespace, name)) = state.claim_uids.get(uid) {
                items.push(Item::Claim(namespace.clone(), name.clone()));
            }
        };
        // whom it is reserved for anew: a lost one waits for nothing else
        for r in now.refs.iter() {
            let old = before.is_some_and(|b| b.phase == now.phase && b.refs.iter().any(|old| old == r));
            let key = (r.namespace.clone(), r.name.clone());
            let lost = |seen: &Seen| !seen.bound && (r.uid.is_empty() || seen.resource.as_ref() == Some(&now.name));
            if !old && state.claims.get(&key).is_some_and(lost) {
                reserved.push(Item::Claim(key.0, key.1));
            }
        }
        let replaced = before.is_some_and(|b| b.uid != now.uid);
        for r in before.into_iter().flat_map(|b| b.refs.iter()).filter(|r| !r.uid.is_empty()) {
            if replaced || !now.refs.iter().any(|n| n.uid == r.uid) {
                concern(&r.uid);
            }
        }
        let showing = matches!(self.kind, Kind::Generated(_));
        let changed = before.is_none_or(|b| b.phase != now.phase || b.capacity != now.capacity || b.shape != now.shape);
        let wired = state.wired.contains(&now.name);
        for r in now.refs.iter().filter(|r| !r.uid.is_empty()) {
            let seen = state.claim_uids.get(&r.uid).and_then(|key| state.claims.get(key));
            let agreed = seen.is_some_and(|s| s.bound && s.resource.as_ref() == Some(&now.name));
            let broken = now.phase != Phase::Bound && !self.says_so_later(now) && agreed;
            if broken || (showing && (wired || (changed && !agreed))) {
                concern(&r.uid);
            }
        }
        items.append(&mut reserved);
    }

    /// Whether there is nothing to do about a resource, as far as can be seen from here: the common end of a bind.
    fn resource_settled(&self, state: &State, object: &Value, offer: &Offer) -> bool {
        if offer.deleting || state.wired.contains(&offer.name) {
            return false;
        }
        let known = match &self.kind {
            Kind::Volumes => object["metadata"]["annotations"][volumes::PROVISIONED_BY].is_null(),
            // what is to be made or adopted is not yet there, or is wired
            Kind::Generated(_) => {
                ["template", "templates", "implementationRef"].iter().all(|key| object["spec"][*key].is_null())
            }
        };
        let agreed = |uid: &Arc<str>| {
            let seen = state.claim_uids.get(uid).and_then(|key| state.claims.get(key));
            seen.is_some_and(|s| s.resource.as_ref().is_none_or(|r| *r == offer.name))
        };
        let bound = offer.phase == Phase::Bound && !offer.refs.is_empty();
        let free = offer.phase == Phase::Available && offer.refs.is_empty();
        let shows = || {
            let refs = object["spec"]["claimRefs"].as_array().map_or(&[][..], Vec::as_slice);
            object["status"]["claims"] == conductor_claims::lifecycle::claims_text(refs)
        };
        let ready = matches!(self.kind, Kind::Volumes) || (!object["status"]["conditions"].is_null() && shows());
        known && ready && (free || (bound && offer.refs.iter().all(|r| agreed(&r.uid))))
    }

    fn resource_gone(&self, name: &str) {
        let mut items = Vec::new();
        let left = {
            let mut state = self.state.lock();
            let Some(offer) = state.index.get(name).cloned() else { return };
            state.index.remove(name);
            state.free.remove(name);
            state.resource_uids.remove(&offer.uid);
            state.wired.remove(name);
            state.torn.remove(name);
            state.tried.remove(name);
            let item = Item::Resource(offer.name.clone());
            state.pinned.remove(&item);
            state.ahead.forget(&item);
            // and whom it was made for, by its name: it may have been removed to be made anew
            let maker = name.get(name.len().saturating_sub(UID)..).unwrap_or_default();
            for uid in offer.refs.iter().map(|r| r.uid.as_ref()).chain([maker]) {
                if let Some((namespace, name)) = state.claim_uids.get(uid) {
                    items.push(Item::Claim(namespace.clone(), name.clone()));
                }
            }
            // and whoever names it, though somebody took the reference away
            items.extend(state.naming(name).map(|(namespace, name)| Item::Claim(namespace.clone(), name.clone())));
            state.behind.remove(&offer.uid).unwrap_or_default()
        };
        self.counted.notify_one();
        self.enqueue(items);
        left.into_iter().for_each(|owned| self.cx.orphans.add_after(owned, PATIENCE));
    }

    fn claim_shown(&self, object: Value) {
        let key = key_of(&object);
        self.cx.gates.stir(&self.words, &key.0, &key.1);
        let uid: Arc<str> = text(&object["metadata"]["uid"]).into();
        let known = self.state.lock().claims.get(&key).map(|seen| seen.uid.clone());
        if known.is_some_and(|known| known != uid) {
            self.claim_gone(&key, None);
        }
        let item = Item::Claim(key.0.clone(), key.1.clone());
        let mut items = Vec::new();
        {
            let mut state = self.state.lock();
            let bound = text(&object["status"]["phase"]) == "Bound";
            let had = bound || !object["status"]["capacity"].is_null();
            let resource: Option<Arc<str>> = Some(self.kind.named(&object)).filter(|n| !n.is_empty()).map(Arc::from);
            // others that refer to it, from a bind whose outcome was not known, are to let go
            let held = resource.as_ref().map_or_else(Vec::new, |_| state.index.held_by(&uid));
            items.extend(held.into_iter().filter(|held| Some(held) != resource.as_ref()).map(Item::Resource));
            let settled = bound && self.claim_settled(&state, &object);
            // which may have been looked at before the claim said so, and found nothing to say
            let silent = resource.as_ref().filter(|_| bound).and_then(|name| state.index.get(name));
            let silent = silent.filter(|volume| self.says_so_later(volume) && volume.refs.iter().any(|r| r.uid == uid));
            let silent = silent.map(|volume| Item::Resource(volume.name.clone()));
            items.extend(silent.filter(|volume| !self.queue.is_wanted(volume)));
            let old = state.claims.remove(&key);
            let before = old.as_ref().and_then(|old| old.resource.clone());
            state.name(&key, before.as_ref(), resource.as_ref());
            let names = before.into_iter().chain(resource.clone());
            let (offered, said, turn) = old.map_or((None, None, None), |old| (old.offered, old.said, old.turn));
            let turn = Turn::needed(&object, resource.is_some()).then(|| turn.unwrap_or_default());
            state.claim_uids.insert(uid.clone(), key.clone());
            let revision = text(&object["metadata"]["resourceVersion"]).parse().unwrap_or(0);
            state.ahead.shown(&item, revision);
            state.claims.insert(key, Seen { uid: uid.clone(), revision, resource, bound, had, offered, said, turn });
            for name in names {
                items.extend(self.know_torn(&mut state, &name));
            }
            if settled {
                state.index.stop_waiting(&uid);
            }
            if self.pin(&mut state, &item, object, settled) {
                items.push(item);
            }
        }
        self.enqueue(items);
    }

    /// Keeps an object for who looks at it, who then need not ask for it; whether it is to be looked at.
    fn pin(&self, state: &mut State, item: &Item, object: Value, settled: bool) -> bool {
        if !settled || self.queue.is_wanted(item) {
            state.pinned.insert(item.clone(), object);
        } else {
            state.pinned.remove(item);
        }
        !settled
    }

    /// Whether a claim and its resource agree and nothing is left to write.
    pub(crate) fn claim_settled(&self, state: &State, object: &Value) -> bool {
        let meta = &object["metadata"];
        if !meta["deletionTimestamp"].is_null() || text(&object["status"]["phase"]) != "Bound" {
            return false;
        }
        let name = self.kind.named(object);
        let Some(offer) = state.index.get(name) else { return false };
        let uid = text(&meta["uid"]);
        let says_so = offer.phase == Phase::Bound || self.says_so_later(offer);
        let holds = offer.refs.iter().any(|r| r.uid.as_ref() == uid) && says_so && !offer.deleting;
        let finalizer = |name: &str| meta["finalizers"].as_array().is_some_and(|f| f.iter().any(|f| text(f) == name));
        let said = conductor_claims::lifecycle::condition_of(object, "Bound").is_none_or(|(holds, _, _)| holds);
        holds
            && said
            && match &self.kind {
                Kind::Volumes => {
                    let amount = |value: &Value| Amount::from_json(value).unwrap_or_default();
                    let asked = amount(&object["spec"]["resources"]["requests"]["storage"]);
                    meta["annotations"][volumes::BIND_COMPLETED].is_string()
                        && asked <= amount(&object["status"]["capacity"]["storage"])
                }
                Kind::Generated(_) => {
                    !state.wired.contains(name)
                        && finalizer(conductor_claims::lifecycle::CLAIM_FINALIZER)
                        && self.has_its_size(offer, object)
                }
            }
    }

    /// Whether a claim asks for no more than its reference says, and says so.
    fn has_its_size(&self, offer: &Offer, claim: &Value) -> bool {
        let own = offer.refs.iter().find(|r| r.uid.as_ref() == text(&claim["metadata"]["uid"]));
        let asked = |name: &str| Amount::from_json(&claim["spec"]["resources"]["requests"][name]).unwrap_or_default();
        let has = |i: usize| own.and_then(|own| own.amounts.get(i).copied()).unwrap_or_default();
        let resizing = conductor_claims::lifecycle::condition_of(claim, "Resizing");
        self.rules.capacities.iter().enumerate().all(|(i, c)| asked(&c.name) <= has(i))
            && resizing.is_none_or(|(_, reason, _)| reason == "Resized")
    }

    fn claim_gone(&self, key: &Key, uid: Option<&str>) {
        self.cx.gates.stir(&self.words, &key.0, &key.1);
        let mut items = Vec::new();
        let left = {
            let mut state = self.state.lock();
            let Some(seen) = state.claims.get(key).cloned() else { return };
            if uid.is_some_and(|uid| uid != seen.uid.as_ref()) {
                return;
            }
            state.claims.remove(key);
            state.name(key, seen.resource.as_ref(), None);
            state.claim_uids.remove(&seen.uid);
            state.index.stop_waiting(&seen.uid);
            let item = Item::Claim(key.0.clone(), key.1.clone());
            state.pinned.remove(&item);
            state.ahead.forget(&item);
            items.extend(state.index.held_by(&seen.uid).into_iter().map(Item::Resource));
            // one that no longer refers to it may have waited for it nevertheless
            items.extend(seen.resource.clone().map(Item::Resource));
            let assumed = state.index.forget(&seen.uid).filter(|name| seen.resource.as_ref() != Some(name));
            items.extend(assumed.map_or_else(Vec::new, |name| self.know_torn(&mut state, &name)));
            items.extend(seen.resource.map_or_else(Vec::new, |name| self.know_torn(&mut state, &name)));
            if let Some(offered) = seen.offered {
                items.extend(self.wake(&mut state, &offered));
            }
            state.behind.remove(&seen.uid).unwrap_or_default()
        };
        self.enqueue(items);
        left.into_iter().for_each(|owned| self.cx.orphans.add_after(owned, PATIENCE));
    }

    fn class_shown(&self, object: Value) {
        // what a process before this one made and could not remove is found, although nobody claims such a thing any more
        for template in templates(&object) {
            (self.cx.follow)(text(&template["apiVersion"]), text(&template["kind"]));
        }
        {
            let mut state = self.state.lock();
            state.classes.insert(text(&object["metadata"]["name"]).to_owned(), Arc::new(object));
            self.set_classes(&mut state);
        }
        self.touch_waiting();
    }

    fn class_gone(&self, name: &str) {
        {
            let mut state = self.state.lock();
            if state.classes.remove(name).is_none() {
                return;
            }
            state.index.remove_profile(name);
            self.set_classes(&mut state);
        }
        self.touch_waiting();
    }

    /// Brings the index in step with the classes and with who serves them.
    pub(crate) fn set_classes(&self, state: &mut State) {
        let profiles: Vec<_> = state
            .classes
            .iter()
            .filter_map(|(name, object)| {
                let served = state.served.as_ref().is_none_or(|served| served.contains(name));
                self.kind.profile(object, served).ok()
            })
            .collect();
        profiles.into_iter().for_each(|profile| state.index.set_profile(profile));
        if matches!(self.kind, Kind::Volumes) {
            let default = volumes::default_class(state.classes.values().map(AsRef::as_ref));
            state.index.set_default_class(default);
        }
    }

    fn follow_implementations(&self, object: &Value) {
        for implementation in object["status"]["implementations"].as_array().into_iter().flatten() {
            (self.cx.follow)(text(&implementation["apiVersion"]), text(&implementation["kind"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use conductor_claims::matching::Decision;
    use serde_json::json;

    use super::*;
    use crate::desk::saying;
    use crate::desk::saying::tests::{claim, desk, show};

    #[tokio::test]
    async fn who_names_what_is_gone_is_looked_at_though_it_does_not_refer_to_it() {
        let desk = desk();
        let volume = json!({"metadata": {"name": "v", "uid": "v"}, "spec": {}, "status": {"phase": "Available"}});
        show(&desk, Role::Resource, volume.clone());
        for (name, names) in [("c", "v"), ("other", "v2"), ("none", "")] {
            let mut claim = json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {}});
            if !names.is_empty() {
                claim["spec"]["volumeName"] = json!(names);
            }
            show(&desk, Role::Claim, claim);
        }
        while !desk.queue.is_quiet() {
            let item = desk.queue.next().await.key;
            desk.queue.done(&item);
        }
        DeskSink { desk: desk.clone(), role: Role::Resource }.delete(volume);
        let item = desk.queue.next().await.key;
        assert_eq!(item, Item::Claim("n".into(), "c".into()));
        desk.queue.done(&item);
        assert!(desk.queue.is_quiet());
        // what a claim named before is forgotten with it
        DeskSink { desk: desk.clone(), role: Role::Claim }
            .delete(json!({"metadata": {"namespace": "n", "name": "c", "uid": "c"}}));
        assert_eq!(desk.state.lock().naming("v").count(), 0);
    }

    /// What is in line, in order.
    async fn line(desk: &Desk) -> Vec<Item> {
        let mut line = Vec::new();
        while !desk.queue.is_quiet() {
            let item = desk.queue.next().await.key;
            desk.queue.done(&item);
            line.push(item);
        }
        line
    }

    fn referring(version: &str, claim: Option<&str>) -> Value {
        let mut volume = json!({
            "metadata": {"name": "v", "uid": "v", "resourceVersion": version},
            "spec": {"capacity": {"storage": "1Ti"}, "accessModes": ["ReadWriteOnce"], "storageClassName": ""},
            "status": {"phase": "Available"},
        });
        if let Some(uid) = claim {
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "c1", "uid": uid});
        }
        volume
    }

    fn bound(version: &str) -> Value {
        let mut claim = claim(1);
        claim["metadata"]["resourceVersion"] = json!(version);
        claim["metadata"]["annotations"] = json!({volumes::BIND_COMPLETED: "yes"});
        claim["spec"]["volumeName"] = json!("v");
        claim["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Ti"}});
        claim
    }

    #[tokio::test]
    async fn a_volume_is_looked_at_after_its_claim_was_bound_whichever_is_shown_last() {
        let volume = || Item::Resource("v".into());
        let desk = desk();
        show(&desk, Role::Claim, claim(1));
        show(&desk, Role::Resource, referring("2", Some("u1")));
        assert!(line(&desk).await.contains(&volume()));
        show(&desk, Role::Claim, bound("3"));
        assert!(line(&desk).await.contains(&volume()), "it does not say Bound yet");
        let mut said = referring("4", Some("u1"));
        said["status"]["phase"] = json!("Bound");
        show(&desk, Role::Resource, said);
        line(&desk).await;
        show(&desk, Role::Claim, bound("5"));
        assert_eq!(line(&desk).await, Vec::new());
        // and the other way round
        let desk = saying::tests::desk();
        show(&desk, Role::Claim, bound("3"));
        show(&desk, Role::Resource, referring("2", Some("u1")));
        assert!(line(&desk).await.contains(&volume()));
    }

    #[tokio::test]
    async fn a_volume_without_the_reference_of_its_bound_claim_is_nobody_elses() {
        let is_offered = |desk: &Desk| {
            let other = claim(2);
            let ask = desk.kind.ask(&other, true, None).expect("an ask");
            let decision = desk.decide(&ask, &other);
            desk.state.lock().index.forget("u2");
            matches!(decision, Decision::Bind { .. })
        };
        for claim_first in [true, false] {
            let desk = desk();
            if claim_first {
                show(&desk, Role::Claim, bound("3"));
            }
            show(&desk, Role::Resource, referring("2", Some("u1")));
            line(&desk).await;
            show(&desk, Role::Resource, referring("4", None));
            assert_eq!(is_offered(&desk), !claim_first);
            show(&desk, Role::Claim, bound("3"));
            assert!(!is_offered(&desk), "who has it is to refer to it again");
            // which is done at once
            let line = line(&desk).await;
            let item = Item::Resource("v".into());
            assert!(line.contains(&item) && !desk.can_wait(&item), "{line:?}");
            assert!(!desk.claim_settled(&desk.state.lock(), &bound("3")));
            // that may fail, and is tried again
            desk.state.lock().index.forget("u1");
            show(&desk, Role::Resource, referring("5", None));
            assert!(!is_offered(&desk));
            // until the claim is gone, or without it
            let mut without = bound("6");
            without["spec"]["volumeName"] = json!("another");
            show(&desk, Role::Claim, without);
            assert!(is_offered(&desk));
            show(&desk, Role::Claim, bound("7"));
            assert!(!is_offered(&desk));
            DeskSink { desk: desk.clone(), role: Role::Claim }.delete(bound("8"));
            assert!(is_offered(&desk));
            // or an administrator gives it to another
            show(&desk, Role::Claim, bound("9"));
            assert!(!is_offered(&desk));
            show(&desk, Role::Resource, referring("10", Some("u2")));
            assert!(!desk.claim_settled(&desk.state.lock(), &bound("9")), "its claim is to say so");
        }
    }
}
