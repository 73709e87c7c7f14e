//! Claims that wait, found by the resource that could satisfy them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::matching::predicate::{class_fits, refuse_shape};
use crate::ordered::{Ordered, Visit};
use crate::rules::Rules;
use crate::views::{Ask, ClassAsk, Offer, Wish};

#[derive(Debug)]
struct Waiter {
    ask: Ask,
}

/// Waiting claims in groups that wish the same, each ordered by age and bounded by amounts.
///
/// Invariant: the key of a claim is its age, then the negated request of each capacity, so that "asks for no more than" is "at or
/// above" in every dimension.
#[derive(Debug)]
pub(crate) struct Waiting {
    dimensions: usize,
    slots: Vec<Option<Waiter>>,
    vacant: Vec<u32>,
    by_uid: HashMap<Arc<str>, u32>,
    by_resource: HashMap<Arc<str>, BTreeSet<u32>>,
    by_name: HashMap<(Arc<str>, Arc<str>), u32>,
    groups: BTreeMap<ClassAsk, BTreeMap<Arc<Wish>, Ordered>>,
}

impl Waiting {
    pub(crate) fn new(capacities: usize) -> Waiting {
        Waiting {
            dimensions: capacities + 1,
            slots: Vec::new(),
            vacant: Vec::new(),
            by_uid: HashMap::new(),
            by_resource: HashMap::new(),
            by_name: HashMap::new(),
            groups: BTreeMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub(crate) fn names(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.by_name.keys().cloned().collect()
    }

    fn key(&self, ask: &Ask) -> Vec<i128> {
        let mut key = vec![i128::from(ask.since)];
        key.extend((1..self.dimensions).map(|i| -ask.lower.get(i - 1).copied().unwrap_or_default().nanos()));
        key
    }

    fn ask(&self, slot: u32) -> Option<&Ask> {
        self.slots.get(slot as usize)?.as_ref().map(|w| &w.ask)
    }

    fn order(slots: &[Option<Waiter>], a: u32, b: u32) -> Ordering {
        let name = |s: u32| slots[s as usize].as_ref().map(|w| (&w.ask.namespace, &w.ask.name, &w.ask.uid));
        name(a).cmp(&name(b))
    }

    pub(crate) fn insert(&mut self, ask: &Ask) {
        self.remove(&ask.uid);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let key = self.key(ask);
        self.slots[slot as usize] = Some(Waiter { ask: ask.clone() });
        self.by_uid.insert(ask.uid.clone(), slot);
        self.by_name.insert((ask.namespace.clone(), ask.name.clone()), slot);
        if let Some(resource) = &ask.resource_name {
            self.by_resource.entry(resource.clone()).or_default().insert(slot);
            return;
        }
        let dimensions = self.dimensions;
        let group = self.groups.entry(ask.wish.class.clone()).or_default();
        let order = group.entry(ask.wish.clone()).or_insert_with(|| Ordered::new(dimensions, 1));
        let slots = &self.slots;
        order.insert(&key, slot, &|a, b| Waiting::order(slots, a, b));
    }

    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        let Some(slot) = self.by_uid.remove(uid) else { return false };
        let Some(ask) = self.ask(slot).cloned() else { return false };
        let key = self.key(&ask);
        if let Some(names) = ask.resource_name.as_ref().and_then(|r| self.by_resource.get_mut(r)) {
            names.remove(&slot);
        } else if let Some(group) = self.groups.get_mut(&ask.wish.class) {
            if let Some(order) = group.get_mut(&ask.wish) {
                let slots = &self.slots;
                order.remove(&key, slot, &|a, b| Waiting::order(slots, a, b));
                if order.is_empty() {
                    group.remove(&ask.wish);
                }
            }
            if group.is_empty() {
                self.groups.remove(&ask.wish.class);
            }
        }
        if let Some(resource) =
            ask.resource_name.as_ref().filter(|r| self.by_resource.get(*r).is_some_and(BTreeSet::is_empty))
        {
            self.by_resource.remove(resource);
        }
        let name = (ask.namespace.clone(), ask.name.clone());
        if self.by_name.get(&name) == Some(&slot) {
            self.by_name.remove(&name);
        }
        self.slots[slot as usize] = None;
        self.vacant.push(slot);
        true
    }

    pub(crate) fn satisfied_by(
        &self,
        rules: &Rules,
        default: Option<&str>,
        offer: &Offer,
        limit: usize,
    ) -> Vec<(Arc<str>, Arc<str>)> {
        let mut explicit: BTreeSet<u32> = self.by_resource.get(&offer.name).cloned().unwrap_or_default();
        for r in &offer.refs {
            explicit.extend(self.by_name.get(&(r.namespace.clone(), r.name.clone())));
        }
        let mut matched: BTreeSet<(i64, Arc<str>, Arc<str>)> = BTreeSet::new();
        if offer.taken().is_none() {
            let mut lower = vec![i128::MIN];
            lower.extend((0..rules.capacities.len()).map(|i| -offer.free(i).nanos()));
            let class = offer.shape.class.clone();
            let asks = [ClassAsk::Unset, class.map_or(ClassAsk::Without, ClassAsk::Named)];
            let groups = asks.iter().filter_map(|c| self.groups.get(c)).flatten();
            for (wish, order) in groups {
                if !class_fits(wish, default, offer.shape.class.as_deref(), rules.volumes)
                    || refuse_shape(rules, wish, &offer.shape).is_some()
                    || wish.selector.as_ref().is_some_and(|s| !s.matches(&offer.labels))
                {
                    continue;
                }
                let mut found = 0;
                order.first(&lower, |slot, _| {
                    let Some(ask) = self.ask(slot) else { return Visit::Skip };
                    let small = (0..rules.capacities.len())
                        .all(|i| ask.ceiling(rules, i).is_none_or(|upper| offer.free(i) <= upper));
                    if small && !ask.is_barred(offer.shape.class.as_ref()) {
                        matched.insert((ask.since, ask.namespace.clone(), ask.name.clone()));
                        found += 1;
                    }
                    if found >= limit { Visit::Stop } else { Visit::Skip }
                });
            }
        }
        let mut first: Vec<_> = explicit
            .iter()
            .filter_map(|s| self.ask(*s))
            .map(|a| (a.since, a.namespace.clone(), a.name.clone()))
            .collect();
        first.sort();
        first.extend(matched);
        let mut seen = BTreeSet::new();
        first
            .into_iter()
            .map(|(_, namespace, name)| (namespace, name))
            .filter(|claim| seen.insert(claim.clone()))
            .take(limit)
            .collect()
    }
}
