//! The three small views through which the engine sees a resource, a claim and a class.
//!
//! They are projections: what matching needs and nothing else, a few hundred bytes each.

use std::sync::Arc;

use crate::amount::Amount;
use crate::rules::{Rules, Value, Want};
use crate::selector::{Labels, Selector, Topology};

/// Who wrote a claim reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum By {
    /// A manager, while binding; it may roll it back.
    Manager,
    /// An administrator, as a reservation; it is never rolled back.
    Admin,
}

/// One entry of a resource's claim references.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// The claim's uid; empty in a reservation for a claim that may not exist yet.
    pub uid: Arc<str>,
    /// The claim's namespace.
    pub namespace: Arc<str>,
    /// The claim's name.
    pub name: Arc<str>,
    /// What it takes of each capacity, where the resource is shared.
    pub amounts: Box<[Amount]>,
    /// Who wrote it.
    pub by: By,
}

impl ClaimRef {
    /// Whether it stands for this claim: the same uid, or no uid and the same name.
    pub fn names(&self, ask: &Ask) -> bool {
        if self.uid.is_empty() { self.namespace == ask.namespace && self.name == ask.name } else { self.uid == ask.uid }
    }
}

/// Where a resource is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Not yet looked at.
    Pending,
    /// Its implementation is being made.
    Provisioning,
    /// Ready to be bound.
    Available,
    /// Has at least one claim.
    Bound,
    /// Given back, not yet clean.
    Released,
    /// Being cleaned.
    Scrubbing,
    /// Something went wrong; its conditions say what.
    Failed,
}

impl Phase {
    /// Every phase with its name.
    pub const ALL: [(&'static str, Phase); 7] = [
        ("Pending", Phase::Pending),
        ("Provisioning", Phase::Provisioning),
        ("Available", Phase::Available),
        ("Bound", Phase::Bound),
        ("Released", Phase::Released),
        ("Scrubbing", Phase::Scrubbing),
        ("Failed", Phase::Failed),
    ];

    /// Its name in `status.phase`.
    pub fn name(self) -> &'static str {
        Phase::ALL.iter().find(|(_, p)| *p == self).map_or("Pending", |(name, _)| name)
    }

    /// Reads `status.phase`; what is not known counts as Pending.
    pub fn parse(text: &str) -> Phase {
        Phase::ALL.iter().find(|(name, _)| *name == text).map_or(Phase::Pending, |(_, phase)| *phase)
    }
}

/// What many resources have in common; interned, so that a million alike cost one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The class, if any.
    pub class: Option<Arc<str>>,
    /// Attribute values, in the order of the rules.
    pub attributes: Box<[Option<Value>]>,
    /// Functions it can do.
    pub capabilities: Arc<[Arc<str>]>,
    /// Access modes it can be mounted with.
    pub modes: Arc<[Arc<str>]>,
    /// Where it can be used; anywhere if not said.
    pub topology: Option<Arc<Topology>>,
}

/// A resource as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resourceVersion as a number, 0 if it is none.
    pub revision: u64,
    /// What it has in common with others.
    pub shape: Arc<Shape>,
    /// Its capacities, in the order of the rules.
    pub capacity: Box<[Amount]>,
    /// Its labels.
    pub labels: Labels,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Claims bound or reserved.
    pub refs: Box<[ClaimRef]>,
    /// How many claims it takes.
    pub max_claims: u32,
}

/// Why a resource is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Taken {
    /// As many claims as it takes.
    Bound,
    /// Kept for a claim.
    Reserved,
    /// Not Available yet or any more.
    Phase(Phase),
    /// Going away.
    Deleting,
}

impl Offer {
    /// Why it cannot be given to any claim that comes along; `None` if it can.
    pub fn taken(&self) -> Option<Taken> {
        if self.deleting {
            return Some(Taken::Deleting);
        }
        if self.refs.len() as u64 >= u64::from(self.max_claims) {
            return Some(match self.phase {
                Phase::Bound => Taken::Bound,
                Phase::Available => Taken::Reserved,
                other => Taken::Phase(other),
            });
        }
        match self.phase {
            Phase::Available => None,
            // shared, and room left
            Phase::Bound if !self.refs.is_empty() => None,
            other => Some(Taken::Phase(other)),
        }
    }

    /// What is left of a capacity.
    pub fn free(&self, capacity: usize) -> Amount {
        let all = self.capacity.get(capacity).copied().unwrap_or_default();
        if self.max_claims <= 1 {
            return all;
        }
        self.refs.iter().fold(all, |left, r| left.less(r.amounts.get(capacity).copied().unwrap_or_default()))
    }

    /// The reference to this claim, if it holds one.
    pub fn reference(&self, ask: &Ask) -> Option<&ClaimRef> {
        self.refs
            .iter()
            .find(|r| !r.uid.is_empty() && r.uid == ask.uid)
            .or_else(|| self.refs.iter().find(|r| r.names(ask)))
    }
}

/// Which class a claim wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClassAsk {
    /// It says none: the default class stands in; without a default, any.
    #[default]
    Unset,
    /// It says `""`: a resource without class.
    Without,
    /// This one.
    Named(Arc<str>),
}

/// What several claims have in common; the part of an [`Ask`] that is not an amount or a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wish {
    /// The class.
    pub class: ClassAsk,
    /// What it wants of each attribute, in the order of the rules.
    pub attributes: Box<[Option<Want>]>,
    /// Functions the resource must be able to do.
    pub capabilities: Arc<[Arc<str>]>,
    /// Access modes it must allow.
    pub modes: Arc<[Arc<str>]>,
    /// Labels it must have.
    pub selector: Option<Arc<Selector>>,
    /// A CEL expression that must hold.
    pub expression: Option<Arc<str>>,
    /// Labels of the node where it will be used, if known.
    pub node: Option<Labels>,
    /// Whether it is to begin with what something else holds.
    pub content: bool,
}

/// A claim as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// When it was made, in seconds or any other ascending number: the oldest is served first.
    pub since: i64,
    /// What it has in common with others.
    pub wish: Arc<Wish>,
    /// At least this much of each capacity.
    pub lower: Box<[Amount]>,
    /// At most this much.
    pub upper: Box<[Option<Amount>]>,
    /// The resource it names.
    pub resource_name: Option<Arc<str>>,
    /// Whether a consumer needs it now; only late-binding classes care.
    pub needed: bool,
    /// Classes that who made it may not use: what is of them is not even looked at, unless it is named or reserved.
    pub barred: Box<[Arc<str>]>,
    /// Whether it has its resource, or had it: what refers to it then is its own, whatever it is.
    pub bound: bool,
}

impl Ask {
    /// Whether who made it may not use a class.
    pub(crate) fn is_barred(&self, class: Option<&Arc<str>>) -> bool {
        class.is_some_and(|class| self.barred.contains(class))
    }

    /// The bounds of the amounts, as keys of the index.
    pub(crate) fn floor(&self, rules: &Rules) -> Vec<i128> {
        (0..rules.capacities.len()).map(|i| self.lower.get(i).copied().unwrap_or_default().nanos()).collect()
    }

    /// The most it takes of a capacity.
    pub fn ceiling(&self, rules: &Rules, capacity: usize) -> Option<Amount> {
        let upper = self.upper.get(capacity).copied().flatten();
        let lower = self.lower.get(capacity).copied().unwrap_or_default();
        match rules.capacities.get(capacity) {
            Some(c) if c.exact && lower > Amount::ZERO => Some(upper.map_or(lower, |u| u.min(lower))),
            _ => upper,
        }
    }
}

/// How a class makes one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source<T> {
    /// One of these; the first that satisfies, of versions the highest.
    OneOf(Vec<T>),
    /// Computed from the claim.
    Expression(Arc<str>),
}

/// How much a class makes of a capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// As much as is asked, within these bounds.
    Between {
        /// No less than this.
        least: Amount,
        /// No more than this.
        most: Option<Amount>,
        /// So much for a claim that asks for none.
        usual: Amount,
    },
    /// One of these; the smallest that satisfies.
    OneOf(Vec<Amount>),
    /// Computed from the claim.
    Expression(Arc<str>),
}

/// What becomes of a released resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reclaim {
    /// It is removed with its implementation.
    Delete,
    /// It stays as it is until an administrator acts.
    Retain,
    /// It is scrubbed and used again.
    Recycle,
}

impl Reclaim {
    /// Every policy with its name.
    pub const ALL: [(&'static str, Reclaim); 3] =
        [("Delete", Reclaim::Delete), ("Retain", Reclaim::Retain), ("Recycle", Reclaim::Recycle)];

    /// Its name in `reclaimPolicy`.
    pub fn name(self) -> &'static str {
        Reclaim::ALL.iter().find(|(_, r)| *r == self).map_or("Retain", |(name, _)| name)
    }

    /// Reads `reclaimPolicy`.
    pub fn parse(text: &str) -> Option<Reclaim> {
        Reclaim::ALL.iter().find(|(name, _)| *name == text).map(|(_, policy)| *policy)
    }
}

/// A class as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: Arc<str>,
    /// What it offers of each attribute; `None`: whatever is asked.
    pub attributes: Box<[Option<Source<Value>>]>,
    /// How much it offers of each capacity; `None`: whatever is asked.
    pub capacity: Box<[Option<Measure>]>,
    /// Functions its resources can do; `None`: whatever is asked.
    pub capabilities: Option<Arc<[Arc<str>]>>,
    /// Access modes its resources allow; `None`: whatever is asked.
    pub modes: Option<Arc<[Arc<str>]>>,
    /// Whether it says how a resource is made.
    pub provisions: bool,
    /// Whether binding waits for a consumer.
    pub late: bool,
    /// What becomes of its resources.
    pub reclaim: Option<Reclaim>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether a manager serves it.
    pub served: bool,
}

impl Profile {
    /// Makes no more than this of a capacity, whatever the class says: there is no more.
    pub fn bound(&mut self, capacity: usize, most: Amount) {
        let Some(measure) = self.capacity.get_mut(capacity) else { return };
        *measure = match measure.take() {
            None => Some(Measure::Between { least: Amount::ZERO, most: Some(most), usual: Amount::ZERO }),
            // what it says makes no sense here shows when it is tried
            Some(Measure::Between { least, .. }) if least > most => Some(Measure::OneOf(vec![most])),
            Some(Measure::Between { least, most: said, usual }) => {
                Some(Measure::Between { least, most: Some(said.map_or(most, |said| said.min(most))), usual })
            }
            Some(Measure::OneOf(amounts)) if amounts.iter().any(|a| *a <= most) => {
                Some(Measure::OneOf(amounts.into_iter().filter(|a| *a <= most).collect()))
            }
            other => other,
        };
    }
}
