//! Which fields a write may own: a resource's strategy resets the others.

use super::compare::Comparison;
use super::path::PathElement;
use super::set::{Entry, FieldSet};

/// What a resource or subresource leaves out of what its writers own, because it resets it anyway.
#[derive(Clone, Debug, Default)]
pub enum Filter {
    /// Everything counts.
    #[default]
    Everything,
    /// All but these fields and what is below them, such as `status` on the main resource.
    Exclude(FieldSet),
    /// Only what one of these prefixes matches, such as `spec.containers[*].resources` on a Pod's `resize`.
    Include(Vec<Vec<Match>>),
}

/// One step of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Any element.
    Any,
    /// This one.
    Element(PathElement),
}

impl Match {
    /// A field.
    pub fn field(name: &str) -> Self {
        Match::Element(PathElement::field(name))
    }

    fn accepts(&self, element: &PathElement) -> bool {
        match self {
            Match::Any => true,
            Match::Element(own) => own == element,
        }
    }
}

impl Filter {
    /// What counts of a comparison.
    pub(super) fn filtered(&self, comparison: Comparison) -> Comparison {
        Comparison {
            added: self.keep(comparison.added),
            modified: self.keep(comparison.modified),
            removed: self.keep(comparison.removed),
        }
    }

    /// What counts of a set.
    pub fn keep(&self, set: FieldSet) -> FieldSet {
        match self {
            Filter::Everything => set,
            _ if set.is_empty() => set,
            Filter::Exclude(fields) => set.recursive_difference(fields),
            Filter::Include(prefixes) => {
                let prefixes: Vec<&[Match]> = prefixes.iter().map(Vec::as_slice).collect();
                include(&set, &prefixes)
            }
        }
    }
}

/// The members on the way along a prefix count too, as in Kubernetes.
fn include(set: &FieldSet, prefixes: &[&[Match]]) -> FieldSet {
    if prefixes.iter().any(|prefix| prefix.is_empty()) {
        return set.clone();
    }
    let entries = set.entries.iter().filter_map(|entry| {
        let below: Vec<&[Match]> =
            prefixes.iter().filter(|prefix| prefix[0].accepts(&entry.element)).map(|prefix| &prefix[1..]).collect();
        if below.is_empty() {
            return None;
        }
        let children = include(&entry.children, &below);
        let kept = Entry { element: entry.element.clone(), member: entry.member, children };
        (kept.member || !kept.children.is_empty()).then_some(kept)
    });
    FieldSet { entries: entries.collect() }
}
