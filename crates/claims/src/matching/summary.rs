//! The one line a waiting claim says about itself, from counters.

use std::collections::BTreeMap;
use std::fmt;

use crate::amount::Amount;
use crate::matching::predicate::Refusal;
use crate::rules::Rules;
use crate::views::{Phase, Taken};

/// What refused some resources, coarse enough to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Count {
    /// Less than asked of the first capacity.
    TooSmall,
    /// More than the limit of the first capacity.
    TooLarge,
    /// Less or more than asked of another capacity.
    OtherCapacity,
    /// Another class.
    Class,
    /// A class that who made the claim may not use.
    Barred,
    /// Not free.
    Taken(Taken),
    /// An attribute, a capability, an access mode.
    Attributes,
    /// Not usable where the consumer runs.
    Topology,
    /// Labels.
    Selector,
    /// The claim's expression.
    Expression,
}

impl Count {
    /// Where a refusal is counted.
    pub fn of(refusal: &Refusal) -> Count {
        match refusal {
            Refusal::Class => Count::Class,
            Refusal::Barred => Count::Barred,
            Refusal::Taken(taken) => Count::Taken(*taken),
            Refusal::Attribute(_) | Refusal::Capability(_) | Refusal::Mode(_) | Refusal::Content => Count::Attributes,
            Refusal::Topology => Count::Topology,
            Refusal::TooSmall(0) | Refusal::MakesLess(0, _) => Count::TooSmall,
            Refusal::TooLarge(0) => Count::TooLarge,
            Refusal::TooSmall(_) | Refusal::MakesLess(..) | Refusal::TooLarge(_) => Count::OtherCapacity,
            Refusal::Selector => Count::Selector,
            Refusal::Expression(_) | Refusal::Offers(_) => Count::Expression,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Count::TooSmall => "too small",
            Count::TooLarge => "too large",
            Count::OtherCapacity => "with too little or too much else",
            Count::Class => "of another class",
            Count::Barred => "of a class that its maker may not use",
            Count::Taken(Taken::Bound) => "bound",
            Count::Taken(Taken::Reserved) => "reserved",
            Count::Taken(Taken::Deleting) => "being deleted",
            Count::Taken(Taken::Phase(phase)) => match phase {
                Phase::Pending => "not ready yet",
                Phase::Provisioning => "being made",
                Phase::Available | Phase::Bound => "not free",
                Phase::Released => "released, not yet reclaimed",
                Phase::Scrubbing => "being scrubbed",
                Phase::Failed => "failed",
            },
            Count::Attributes => "with other attributes",
            Count::Topology => "out of reach of the consumer's node",
            Count::Selector => "not selected",
            Count::Expression => "refused by the expression",
        }
    }
}

/// How many resources there are and what refused them.
///
/// Prints as `0/12 match: 5 too small (largest 20Gi, asked 25Gi), 4 of another class, 3 bound`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// All resources of the type.
    pub total: usize,
    /// How many were refused by what; adds up to `total` when nothing matched.
    pub counts: BTreeMap<Count, usize>,
    /// Of those too small, the largest.
    pub largest: Option<Amount>,
    /// What was asked of the first capacity.
    pub asked: Amount,
    /// Of those too large, the limit.
    pub limit: Option<Amount>,
}

impl Summary {
    pub(crate) fn add(&mut self, count: Count, number: usize) {
        if number > 0 {
            *self.counts.entry(count).or_default() += number;
        }
    }

    pub(crate) fn too_small(&mut self, number: usize, largest: Option<i128>) {
        self.add(Count::TooSmall, number);
        self.largest = self.largest.max(largest.map(Amount::from_nanos));
    }

    /// The reasons, the most frequent first.
    pub fn leading(&self) -> Vec<(Count, usize)> {
        let mut counts: Vec<_> = self.counts.iter().map(|(c, n)| (*c, *n)).collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        counts
    }

    /// The line, with the kinds of the type.
    pub fn text(&self, rules: &Rules) -> String {
        if self.total == 0 {
            return format!("there is no {} yet", rules.resource);
        }
        self.to_string()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} match", self.total)?;
        for (position, (count, number)) in self.leading().into_iter().enumerate() {
            write!(f, "{} {number} {}", if position == 0 { ":" } else { "," }, count.text())?;
            match (count, self.largest, self.limit) {
                (Count::TooSmall, Some(largest), _) => write!(f, " (largest {largest}, asked {})", self.asked)?,
                (Count::TooLarge, _, Some(limit)) => write!(f, " (limit {limit})")?,
                _ => {}
            }
        }
        Ok(())
    }
}
