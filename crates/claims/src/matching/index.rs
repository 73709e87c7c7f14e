//! The index: resources on shelves by class, in rooms by what they have in common, in each room ordered by what is left of them.
//!
//! A claim looks on one shelf, asks each room once, and walks a room's order from the tightest fit upwards. An attribute that nearly
//! every resource has a value of its own for (an address, say) would make as many rooms as resources: when a shelf gets more than
//! [`MAX_ROOMS`], its most varied attribute no longer divides rooms; it is looked up by value instead.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::matching::waiting::Waiting;
use crate::ordered::Ordered;
use crate::rules::{Match, Rules, Value};
use crate::selector::Labels;
use crate::views::{Ask, By, ClaimRef, Offer, Phase, Profile, Shape, Taken};

/// Rooms on a shelf before an attribute stops dividing them.
pub(crate) const MAX_ROOMS: usize = 96;

/// Free resources that have everything in common but their amounts, labels and names.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) all: Ordered,
    /// By the value of an attribute that does not divide rooms.
    pub(crate) by_value: HashMap<(usize, Value), Ordered>,
}

/// All resources of one class.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) total: usize,
    pub(crate) taken: BTreeMap<Taken, usize>,
    pub(crate) rooms: BTreeMap<Arc<Shape>, Room>,
    /// Attributes that do not divide rooms.
    pub(crate) varied: BTreeSet<usize>,
}

/// Namespace and name.
type ClaimName = (Arc<str>, Arc<str>);

/// A bind this process has written and the watch has not yet shown.
#[derive(Debug)]
struct Assumed {
    claim: ClaimRef,
    revision: Option<u64>,
}

/// Every resource and class of one type, projected and indexed. See the module.
#[derive(Debug)]
pub struct Index {
    pub(crate) rules: Arc<Rules>,
    slots: Vec<Option<Offer>>,
    vacant: Vec<u32>,
    by_name: HashMap<Arc<str>, u32>,
    pub(crate) shelves: BTreeMap<Option<Arc<str>>, Shelf>,
    held: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    reserved: HashMap<ClaimName, BTreeSet<Arc<str>>>,
    assumed: HashMap<Arc<str>, Vec<Assumed>>,
    assumed_of: HashMap<Arc<str>, Arc<str>>,
    pub(crate) profiles: BTreeMap<Arc<str>, Profile>,
    pub(crate) default_class: Option<Arc<str>>,
    pub(crate) waiting: Waiting,
    shapes: HashSet<Arc<Shape>>,
    labels: HashSet<Labels>,
    max_rooms: usize,
}

impl Index {
    /// An empty index for one type.
    pub fn new(rules: Arc<Rules>) -> Index {
        Index {
            waiting: Waiting::new(rules.capacities.len()),
            rules,
            slots: Vec::new(),
            vacant: Vec::new(),
            by_name: HashMap::new(),
            shelves: BTreeMap::new(),
            held: HashMap::new(),
            reserved: HashMap::new(),
            assumed: HashMap::new(),
            assumed_of: HashMap::new(),
            profiles: BTreeMap::new(),
            default_class: None,
            shapes: HashSet::new(),
            labels: HashSet::new(),
            max_rooms: MAX_ROOMS,
        }
    }

    /// The same with another limit of rooms per shelf; for tests of what happens beyond it.
    pub fn with_max_rooms(rules: Arc<Rules>, max_rooms: usize) -> Index {
        Index { max_rooms: max_rooms.max(1), ..Index::new(rules) }
    }

    /// The rules of the type.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no resource.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// A resource, with assumed binds in it.
    pub fn get(&self, name: &str) -> Option<&Offer> {
        self.slots[*self.by_name.get(name)? as usize].as_ref()
    }

    pub(crate) fn slot(&self, slot: u32) -> Option<&Offer> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Every resource, in no order.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.slots.iter().flatten()
    }

    /// Every class.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.profiles.values()
    }

    /// Takes in a resource as the watch shows it. Assumed binds it does not show yet stay on.
    pub fn upsert(&mut self, mut offer: Offer) {
        if let Some(assumed) = self.assumed.get_mut(&offer.name) {
            let (revision, refs) = (offer.revision, &offer.refs);
            let mut seen = Vec::new();
            assumed.retain(|a| {
                let shown = refs.iter().any(|r| r.uid == a.claim.uid) || a.revision.is_some_and(|r| revision >= r);
                if shown {
                    seen.push(a.claim.uid.clone());
                }
                !shown
            });
            for a in assumed.iter() {
                refer(&mut offer, &a.claim);
            }
            if assumed.is_empty() {
                self.assumed.remove(&offer.name);
            }
            for uid in seen {
                self.assumed_of.remove(&uid);
            }
        }
        self.take_out(&offer.name);
        self.put_in(offer);
    }

    /// Says where a resource is in its life, whatever it was shown to say of that.
    pub fn set_phase(&mut self, name: &str, phase: Phase) {
        if let Some(offer) = self.take_out(name) {
            self.put_in(Offer { phase, ..offer });
        }
    }

    /// Forgets a resource.
    pub fn remove(&mut self, name: &str) -> bool {
        for assumed in self.assumed.remove(name).unwrap_or_default() {
            self.assumed_of.remove(&assumed.claim.uid);
        }
        self.take_out(name).is_some()
    }

    /// Remembers a bind this process is about to write, so that no other claim is given the same.
    pub fn assume(&mut self, ask: &Ask, resource: &str) -> bool {
        let Some(mut offer) = self.take_out(resource) else { return false };
        let claim = ClaimRef {
            uid: ask.uid.clone(),
            namespace: ask.namespace.clone(),
            name: ask.name.clone(),
            amounts: ask.lower.clone(),
            by: By::Manager,
        };
        let name = offer.name.clone();
        if !offer.refs.iter().any(|r| r.uid == ask.uid) {
            refer(&mut offer, &claim);
            self.assumed.entry(name.clone()).or_default().push(Assumed { claim, revision: None });
            self.assumed_of.insert(ask.uid.clone(), name);
        }
        self.put_in(offer);
        true
    }

    /// Says which revision of the resource holds an assumed bind; the assumption ends when the watch has come that far.
    pub fn confirm(&mut self, claim_uid: &str, revision: u64) {
        let name = self.assumed_of.get(claim_uid);
        if name.and_then(|name| self.get(name)).is_some_and(|offer| offer.revision >= revision) {
            // it has come that far already, and shows something else
            self.forget(claim_uid);
            return;
        }
        if let Some(assumed) = self.assumed_of.get(claim_uid).and_then(|name| self.assumed.get_mut(name)) {
            for a in assumed.iter_mut().filter(|a| a.claim.uid.as_ref() == claim_uid) {
                a.revision = Some(revision);
            }
        }
    }

    /// Takes an assumed bind back: the write failed, or the claim is gone. The resource that it was of.
    pub fn forget(&mut self, claim_uid: &str) -> Option<Arc<str>> {
        let name = self.assumed_of.remove(claim_uid)?;
        if let Some(assumed) = self.assumed.get_mut(&name) {
            assumed.retain(|a| a.claim.uid.as_ref() != claim_uid);
            if assumed.is_empty() {
                self.assumed.remove(&name);
            }
        }
        if let Some(mut offer) = self.take_out(&name) {
            offer.refs = std::mem::take(&mut offer.refs)
                .into_vec()
                .into_iter()
                .filter_map(|mut r| match (r.uid.as_ref() == claim_uid, r.by) {
                    (true, By::Manager) => None,
                    (true, By::Admin) => {
                        r.uid = Arc::from("");
                        Some(r)
                    }
                    (false, _) => Some(r),
                })
                .collect();
            self.put_in(offer);
        }
        Some(name)
    }

    /// Takes in a class.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profiles.insert(profile.name.clone(), profile);
    }

    /// Forgets a class.
    pub fn remove_profile(&mut self, name: &str) -> bool {
        self.profiles.remove(name).is_some()
    }

    /// Says which class stands in for claims that name none.
    pub fn set_default_class(&mut self, class: Option<Arc<str>>) {
        self.default_class = class;
    }

    /// The class that stands in for claims that name none.
    pub fn default_class(&self) -> Option<&str> {
        self.default_class.as_deref()
    }

    /// Notes that a claim waits, so that [`Index::offer_to`] finds it.
    pub fn wait(&mut self, ask: &Ask) {
        self.waiting.insert(ask);
    }

    /// The claim waits no more: bound, changed or gone.
    pub fn stop_waiting(&mut self, uid: &str) -> bool {
        self.waiting.remove(uid)
    }

    /// How many claims wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Namespace and name of every claim that waits, in no order.
    pub fn waiting_claims(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.waiting.names()
    }

    /// Waiting claims that this resource could satisfy, the best first: those that name it or are named by it, then the oldest.
    pub fn offer_to(&self, resource: &str, limit: usize) -> Vec<(Arc<str>, Arc<str>)> {
        let Some(offer) = self.get(resource) else { return Vec::new() };
        self.waiting.satisfied_by(&self.rules, self.default_class(), offer, limit)
    }

    /// Names of resources that refer to the claim with this uid; sorted.
    pub fn held_by(&self, uid: &str) -> Vec<Arc<str>> {
        self.held.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Names of resources that hold a reference to this claim, by uid or, reserved, by name; sorted.
    pub(crate) fn holders(&self, ask: &Ask) -> (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>) {
        let held = self.held.get(&ask.uid).cloned().unwrap_or_default();
        let reserved = self.reserved.get(&(ask.namespace.clone(), ask.name.clone())).cloned().unwrap_or_default();
        (held, reserved)
    }

    /// About how many bytes the projections and indexes hold; strings and shapes shared between offers count once.
    pub fn bytes(&self) -> usize {
        let text = |s: &Arc<str>| s.len() + 16;
        let offers: usize = self
            .offers()
            .map(|o| {
                text(&o.name)
                    + text(&o.uid)
                    + size_of_val(&*o.capacity)
                    + o.refs
                        .iter()
                        .map(|r| size_of_val(r) + text(&r.uid) + text(&r.name) + size_of_val(&*r.amounts))
                        .sum::<usize>()
            })
            .sum();
        let orders: usize = self
            .shelves
            .values()
            .flat_map(|s| s.rooms.values())
            .map(|r| r.all.bytes() + r.by_value.values().map(|o| o.bytes() + 96).sum::<usize>())
            .sum();
        let labels: usize =
            self.labels.iter().map(|l| 64 + l.iter().map(|(k, v)| k.len() + v.len() + 64).sum::<usize>()).sum();
        offers
            + orders
            + labels
            + self.slots.capacity() * size_of::<Option<Offer>>()
            + self.by_name.capacity() * (size_of::<(Arc<str>, u32)>() + 1)
            + self.held.capacity() * (size_of::<(Arc<str>, BTreeSet<Arc<str>>)>() + 1)
            + self.held.len() * 200
    }

    fn key(&self, offer: &Offer) -> Vec<i128> {
        (0..self.rules.capacities.len()).map(|i| offer.free(i).nanos()).collect()
    }

    fn intern(&mut self, offer: &mut Offer) {
        match self.shapes.get(&offer.shape) {
            Some(shape) => offer.shape = shape.clone(),
            None => {
                self.shapes.insert(offer.shape.clone());
            }
        }
        match self.labels.get(&offer.labels) {
            Some(labels) => offer.labels = labels.clone(),
            None => {
                self.labels.insert(offer.labels.clone());
            }
        }
    }

    fn put_in(&mut self, mut offer: Offer) {
        self.intern(&mut offer);
        for r in &offer.refs {
            if r.uid.is_empty() {
                let claim = (r.namespace.clone(), r.name.clone());
                self.reserved.entry(claim).or_default().insert(offer.name.clone());
            } else {
                self.held.entry(r.uid.clone()).or_default().insert(offer.name.clone());
            }
        }
        let name = offer.name.clone();
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(offer);
                slot
            }
            None => {
                self.slots.push(Some(offer));
                (self.slots.len() - 1) as u32
            }
        };
        self.by_name.insert(name, slot);
        self.shelve(slot, true);
    }

    fn take_out(&mut self, name: &str) -> Option<Offer> {
        let slot = *self.by_name.get(name)?;
        self.shelve(slot, false);
        self.by_name.remove(name);
        let mut offer = self.slots[slot as usize].take()?;
        self.vacant.push(slot);
        for r in &offer.refs {
            if r.uid.is_empty() {
                let claim = (r.namespace.clone(), r.name.clone());
                if let Some(names) = self.reserved.get_mut(&claim) {
                    names.remove(name);
                    if names.is_empty() {
                        self.reserved.remove(&claim);
                    }
                }
            } else if let Some(names) = self.held.get_mut(&r.uid) {
                names.remove(name);
                if names.is_empty() {
                    self.held.remove(&r.uid);
                }
            }
        }
        // two owners left: the set and this offer
        if Arc::strong_count(&offer.labels) <= 2 {
            self.labels.remove(&offer.labels);
        }
        if Arc::strong_count(&offer.shape) <= 2 {
            self.shapes.remove(&offer.shape);
            offer.shape = Arc::new(offer.shape.as_ref().clone());
        }
        Some(offer)
    }

    /// Puts a slot's offer on its shelf, or takes it off.
    fn shelve(&mut self, slot: u32, put: bool) {
        let Some(offer) = self.slots[slot as usize].as_ref() else { return };
        let (class, taken, key, shape) =
            (offer.shape.class.clone(), offer.taken(), self.key(offer), offer.shape.clone());
        let shelf = self.shelves.entry(class.clone()).or_default();
        let step = |count: &mut usize| *count = if put { *count + 1 } else { count.saturating_sub(1) };
        step(&mut shelf.total);
        if let Some(taken) = taken {
            let count = shelf.taken.entry(taken).or_default();
            step(count);
            if *count == 0 {
                shelf.taken.remove(&taken);
            }
        } else {
            let slots = &self.slots;
            let name = |s: u32| slots[s as usize].as_ref().map(|o| &o.name);
            let tie = |a: u32, b: u32| -> Ordering { name(a).cmp(&name(b)) };
            shelf.place(&self.rules, &shape, &key, slot, put, &tie);
        }
        if shelf.total == 0 {
            self.shelves.remove(&class);
        } else if put && shelf.rooms.len() > self.max_rooms {
            self.vary(class);
        }
    }

    /// Too many rooms: the attribute with the most values stops dividing them.
    fn vary(&mut self, class: Option<Arc<str>>) {
        let Some(shelf) = self.shelves.get_mut(&class) else { return };
        let values =
            |attribute: usize| shelf.rooms.keys().map(|s| s.attributes.get(attribute)).collect::<BTreeSet<_>>().len();
        let most = (0..self.rules.attributes.len()).filter(|a| !shelf.varied.contains(a)).map(|a| (values(a), a)).max();
        let Some((count, attribute)) = most.filter(|(count, _)| *count > 1) else { return };
        debug_assert!(count > 1);
        shelf.varied.insert(attribute);
        shelf.rooms.clear();
        let slots = &self.slots;
        let name = |s: u32| slots[s as usize].as_ref().map(|o| &o.name);
        let tie = |a: u32, b: u32| -> Ordering { name(a).cmp(&name(b)) };
        for (slot, offer) in slots.iter().enumerate() {
            if let Some(offer) = offer
                && offer.shape.class == class
                && offer.taken().is_none()
            {
                let key: Vec<i128> = (0..self.rules.capacities.len()).map(|i| offer.free(i).nanos()).collect();
                shelf.place(&self.rules, &offer.shape, &key, slot as u32, true, &tie);
            }
        }
    }
}

/// Adds a reference; a reservation by name becomes this very claim's.
fn refer(offer: &mut Offer, claim: &ClaimRef) {
    let mut refs = std::mem::take(&mut offer.refs).into_vec();
    let reserved = |r: &&mut ClaimRef| r.uid.is_empty() && r.namespace == claim.namespace && r.name == claim.name;
    match refs.iter_mut().find(reserved) {
        Some(reservation) => reservation.uid = claim.uid.clone(),
        None => refs.push(claim.clone()),
    }
    offer.refs = refs.into();
}

impl Shelf {
    fn place(
        &mut self,
        rules: &Rules,
        shape: &Arc<Shape>,
        key: &[i128],
        slot: u32,
        put: bool,
        tie: &impl Fn(u32, u32) -> Ordering,
    ) {
        let dimensions = rules.capacities.len();
        let door = if self.varied.is_empty() {
            shape.clone()
        } else {
            let mut reduced = shape.as_ref().clone();
            for attribute in &self.varied {
                if let Some(value) = reduced.attributes.get_mut(*attribute) {
                    *value = None;
                }
            }
            Arc::new(reduced)
        };
        let room = self
            .rooms
            .entry(door.clone())
            .or_insert_with(|| Room { all: Ordered::new(dimensions, dimensions), by_value: HashMap::new() });
        let change = |order: &mut Ordered| {
            if put {
                order.insert(key, slot, tie);
            } else {
                order.remove(key, slot, tie);
            }
        };
        change(&mut room.all);
        for attribute in &self.varied {
            let equal = rules.attributes.get(*attribute).is_some_and(|a| a.matching == Match::Equal);
            let Some(value) = shape.attributes.get(*attribute).cloned().flatten().filter(|_| equal) else { continue };
            let entry = (*attribute, value);
            let order = room.by_value.entry(entry.clone()).or_insert_with(|| Ordered::new(dimensions, dimensions));
            change(order);
            if order.is_empty() {
                room.by_value.remove(&entry);
            }
        }
        if room.all.is_empty() {
            self.rooms.remove(&door);
        }
    }
}
