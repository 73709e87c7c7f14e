//! The decision for one claim, through the index.

use std::sync::Arc;

use crate::amount::Amount;
use crate::matching::index::{Index, Room};
use crate::matching::predicate::{
    Exemption, Judge, Refusal, class_fits, refuse, refuse_held, refuse_late, refuse_shape,
};
use crate::matching::profile::{Made, make};
use crate::matching::summary::{Count, Summary};
use crate::ordered::{Ordered, Visit};
use crate::rules::Match;
use crate::views::{Ask, ClassAsk, Phase, Profile, Shape, Taken};

/// Why a claim gets a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The resource already refers to the claim: a bind to be finished.
    Held,
    /// The claim names it.
    Named,
    /// It is reserved for the claim.
    Reserved,
    /// It is the tightest fit.
    Matched,
}

/// Why a claim waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing fits, and no class makes it.
    NoMatch,
    /// The resource it names does not exist.
    NamedMissing(Arc<str>),
    /// The resource it names does not satisfy it.
    NamedRefused(Arc<str>, Refusal),
    /// The resource reserved for it does not satisfy it.
    ReservedRefused(Arc<str>, Refusal),
    /// Its resource is being made.
    BeingMade(Arc<str>),
    /// No consumer needs it yet.
    FirstConsumer(Arc<str>),
    /// There is no class of that name, and no resource of it fits.
    ClassMissing(Arc<str>),
    /// No manager serves its class.
    ClassUnserved(Arc<str>),
    /// Its class cannot make what it asks.
    ClassRefused(Arc<str>, Vec<Refusal>),
    /// Who made the claim may not use this class, as the API server says.
    NotAllowed(Arc<str>),
    /// Its expression takes more than a claim may over the resources there are.
    TooCostly,
}

/// What is to be done about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bind it to this resource.
    Bind {
        /// The resource.
        resource: Arc<str>,
        /// Why this one.
        why: Why,
    },
    /// Make one from this class.
    Provision {
        /// The class.
        class: Arc<str>,
        /// What is to be made.
        made: Made,
    },
    /// Nothing now.
    Wait {
        /// Why.
        reason: Reason,
        /// What refused the resources, by number.
        summary: Summary,
    },
}

impl Index {
    /// The class of a claim, with the default standing in.
    pub fn class_of(&self, ask: &Ask) -> Option<Arc<str>> {
        match &ask.wish.class {
            ClassAsk::Named(name) => Some(name.clone()),
            ClassAsk::Without => None,
            ClassAsk::Unset => self.default_class.clone(),
        }
    }

    /// What is to be done about this claim.
    ///
    /// Explicit before matching, matching before provisioning. Costs O(log n), and one step for each candidate that its selector or
    /// expression refuses.
    pub fn decide(&self, ask: &Ask, judge: &dyn Judge) -> Decision {
        if let Some(decision) = self.explicit(ask, judge) {
            return decision;
        }
        let class = self.class_of(ask);
        let profile = class.as_ref().and_then(|name| self.profiles.get(name));
        if let (Some(class), Some(profile)) = (&class, profile)
            && profile.late
            && !ask.needed
        {
            return wait(Reason::FirstConsumer(class.clone()), self.blank(ask));
        }
        let mut summary = self.blank(ask);
        if let Some(resource) = self.tightest(ask, judge, &mut summary) {
            return Decision::Bind { resource, why: Why::Matched };
        }
        let reserved = || self.reserved_refused(ask, judge);
        let reason = match (class, profile) {
            (None, _) => reserved().unwrap_or(Reason::NoMatch),
            (Some(class), None) => reserved().unwrap_or(Reason::ClassMissing(class)),
            (Some(class), Some(profile)) if !profile.served => Reason::ClassUnserved(class),
            (Some(_), Some(profile)) if !provisions(profile) => reserved().unwrap_or(Reason::NoMatch),
            (Some(class), Some(profile)) => match make(&self.rules, judge, ask, profile) {
                Ok(made) => return Decision::Provision { class, made },
                Err(refused) => Reason::ClassRefused(class, refused),
            },
        };
        wait(reason, summary)
    }

    /// Explicit bindings: held, named, reserved.
    pub(crate) fn explicit(&self, ask: &Ask, judge: &dyn Judge) -> Option<Decision> {
        let (held, reserved) = self.holders(ask);
        let named = ask.resource_name.as_ref();
        // of several that hold the claim after a lost race, the claim's own word decides, then the first by name
        let holder = named.filter(|n| held.contains(*n)).or(if named.is_some() { None } else { held.first() });
        if let Some(name) = holder {
            let offer = self.get(name)?;
            return Some(match (offer.deleting, offer.phase) {
                (false, Phase::Available | Phase::Bound)
                    if let Some(refusal) = refuse_held(&self.rules, ask, offer) =>
                {
                    wait(Reason::ReservedRefused(name.clone(), refusal), self.blank(ask))
                }
                (false, Phase::Available | Phase::Bound) => Decision::Bind { resource: name.clone(), why: Why::Held },
                (true, _) => wait(Reason::NamedRefused(name.clone(), Refusal::Taken(Taken::Deleting)), self.blank(ask)),
                (false, Phase::Pending | Phase::Provisioning) => wait(Reason::BeingMade(name.clone()), self.blank(ask)),
                (false, phase) => {
                    wait(Reason::NamedRefused(name.clone(), Refusal::Taken(Taken::Phase(phase))), self.blank(ask))
                }
            });
        }
        let default = self.default_class();
        if let Some(name) = named {
            let Some(offer) = self.get(name) else {
                return Some(wait(Reason::NamedMissing(name.clone()), self.blank(ask)));
            };
            // what an administrator reserved for it takes no other right because it says so, too
            let why = if offer.reference(ask).is_some() { Why::Reserved } else { Why::Named };
            return Some(match refuse(&self.rules, judge, default, ask, offer, Exemption::named(&self.rules)) {
                None => Decision::Bind { resource: name.clone(), why },
                Some(refusal) => wait(Reason::NamedRefused(name.clone(), refusal), self.blank(ask)),
            });
        }
        let mut refused = None;
        for name in reserved {
            let Some(offer) = self.get(&name) else { continue };
            match refuse(&self.rules, judge, default, ask, offer, Exemption::reserved()) {
                None => return Some(Decision::Bind { resource: name, why: Why::Reserved }),
                Some(refusal) => refused = refused.or(Some((name, refusal))),
            }
        }
        // of volumes another will do, as it does for Kubernetes, where waiting would not help
        let (name, refusal) = refused?;
        let comes = matches!(refusal, Refusal::Taken(Taken::Phase(_)));
        (comes || !self.rules.volumes).then(|| wait(Reason::ReservedRefused(name, refusal), self.blank(ask)))
    }

    /// Why a volume that is reserved for a claim is not for it after all.
    fn reserved_refused(&self, ask: &Ask, judge: &dyn Judge) -> Option<Reason> {
        let (_, reserved) = self.holders(ask);
        let name = reserved.into_iter().next().filter(|_| self.rules.volumes)?;
        let offer = self.get(&name)?;
        let refusal = refuse(&self.rules, judge, self.default_class(), ask, offer, Exemption::reserved())?;
        Some(Reason::ReservedRefused(name, refusal))
    }

    fn blank(&self, ask: &Ask) -> Summary {
        Summary {
            total: self.len(),
            asked: ask.lower.first().copied().unwrap_or_default(),
            limit: if self.rules.capacities.is_empty() { None } else { ask.ceiling(&self.rules, 0) },
            ..Summary::default()
        }
    }

    /// The tightest fit; where there is none, the summary says what refused the others.
    fn tightest(&self, ask: &Ask, judge: &dyn Judge, summary: &mut Summary) -> Option<Arc<str>> {
        let rules = &self.rules;
        let floor = ask.floor(rules);
        let mut best: Option<(usize, Vec<i128>, &Arc<str>)> = None;
        let mut seen = 0;
        let wanted = self.class_of(ask);
        let shelves = match (&ask.wish.class, &wanted) {
            (ClassAsk::Unset, None) if !rules.volumes => self.shelves.range::<Option<Arc<str>>, _>(..),
            _ => self.shelves.range(wanted.clone()..=wanted),
        };
        for (class, shelf) in shelves {
            debug_assert!(class_fits(&ask.wish, self.default_class(), class.as_deref(), rules.volumes));
            seen += shelf.total;
            if ask.is_barred(class.as_ref()) {
                summary.add(Count::Barred, shelf.total);
                continue;
            }
            for (taken, number) in &shelf.taken {
                summary.add(Count::Taken(*taken), *number);
            }
            for (shape, room) in &shelf.rooms {
                if let Some(refusal) = self.refuse_room(ask, shape, &shelf.varied) {
                    summary.add(Count::of(&refusal), room.all.len());
                    continue;
                }
                let rank = if rules.volumes { shape.modes.len() } else { 0 };
                let (order, exact) = self.order(ask, room, &shelf.varied);
                let Some(order) = order else {
                    summary.add(Count::Attributes, room.all.len());
                    continue;
                };
                summary.add(Count::Attributes, room.all.len() - order.len());
                let found = self.walk(ask, judge, order, &floor, exact, summary, |key, name| {
                    best.as_ref().is_some_and(|(r, k, n)| (*r, k.as_slice(), *n) < (rank, key, name))
                });
                if let Some((key, name)) = found {
                    best = Some((rank, key, name));
                }
            }
        }
        summary.add(Count::Class, self.len() - seen);
        best.map(|(_, _, name)| name.clone())
    }

    /// What refuses a whole room; attributes that do not divide rooms are not asked.
    fn refuse_room(
        &self,
        ask: &Ask,
        shape: &Arc<Shape>,
        varied: &std::collections::BTreeSet<usize>,
    ) -> Option<Refusal> {
        if varied.is_empty() || !varied.iter().any(|a| ask.wish.attributes.get(*a).is_some_and(Option::is_some)) {
            return refuse_shape(&self.rules, &ask.wish, shape);
        }
        let mut wish = ask.wish.as_ref().clone();
        for attribute in varied {
            if let Some(want) = wish.attributes.get_mut(*attribute) {
                *want = None;
            }
        }
        refuse_shape(&self.rules, &wish, shape)
    }

    /// The order to walk in a room, and whether everything in it has the attributes wanted.
    fn order<'r>(
        &self,
        ask: &Ask,
        room: &'r Room,
        varied: &std::collections::BTreeSet<usize>,
    ) -> (Option<&'r Ordered>, bool) {
        let mut order = Some(&room.all);
        let mut left = 0;
        for attribute in varied {
            let Some(Some(want)) = ask.wish.attributes.get(*attribute) else { continue };
            let rule = &self.rules.attributes[*attribute];
            match want {
                crate::rules::Want::Value(value) if rule.matching == Match::Equal && !rule.satisfied(want, None) => {
                    let narrower = room.by_value.get(&(*attribute, value.clone()));
                    match (order, narrower) {
                        (Some(o), Some(n)) if std::ptr::eq(o, &room.all) || n.len() < o.len() => {
                            left += usize::from(!std::ptr::eq(o, &room.all));
                            order = Some(n);
                        }
                        (_, None) => return (None, true),
                        _ => left += 1,
                    }
                }
                _ => left += 1,
            }
        }
        (order, left == 0)
    }

    #[allow(clippy::too_many_arguments)]
    fn walk<'i>(
        &'i self,
        ask: &Ask,
        judge: &dyn Judge,
        order: &Ordered,
        floor: &[i128],
        exact: bool,
        summary: &mut Summary,
        worse: impl Fn(&[i128], &Arc<str>) -> bool,
    ) -> Option<(Vec<i128>, &'i Arc<str>)> {
        let rules = &self.rules;
        let ceiling: Vec<Option<i128>> =
            (0..rules.capacities.len()).map(|i| ask.ceiling(rules, i).map(Amount::nanos)).collect();
        let above = |key: &[i128], i: usize| ceiling[i].is_some_and(|c| key[i] > c);
        let mut refused: Vec<(Count, usize)> = Vec::new();
        let mut visited = 0;
        let mut best_key = Vec::new();
        let mut beaten = false;
        let found = order.first(floor, |slot, key| {
            if !key.is_empty() && above(key, 0) {
                return Visit::Stop;
            }
            let Some(offer) = self.slot(slot) else { return Visit::Skip };
            if worse(key, &offer.name) {
                beaten = true;
                return Visit::Stop;
            }
            visited += 1;
            let refusal = if (1..key.len()).any(|i| above(key, i)) {
                Some(Refusal::TooLarge(1))
            } else if !exact && let Some(refusal) = refuse_shape(rules, &ask.wish, &offer.shape) {
                Some(refusal)
            } else {
                refuse_late(judge, ask, offer)
            };
            match refusal {
                Some(refusal) => {
                    refused.push((Count::of(&refusal), 1));
                    Visit::Skip
                }
                None => {
                    best_key = key.to_vec();
                    Visit::Take
                }
            }
        });
        if let Some(offer) = found.filter(|_| !beaten).and_then(|slot| self.slot(slot)) {
            return Some((best_key, &offer.name));
        }
        if !beaten && !floor.is_empty() {
            let (small, largest) = order.below(floor[0]);
            summary.too_small(small, largest);
            let large = match ceiling[0] {
                Some(c) => order.len() - order.below(c.saturating_add(1)).0,
                None => 0,
            };
            // a limit below the request leaves nothing; what is in neither part counts once
            let large = large.min(order.len() - small);
            summary.add(Count::TooLarge, large);
            summary.add(Count::OtherCapacity, (order.len() - small - large).saturating_sub(visited));
        }
        for (count, number) in refused {
            summary.add(count, number);
        }
        None
    }
}

/// Whether a class can be asked to make something.
pub(crate) fn provisions(profile: &Profile) -> bool {
    profile.provisions && !profile.deleting && profile.served
}

fn wait(reason: Reason, summary: Summary) -> Decision {
    Decision::Wait { reason, summary }
}
