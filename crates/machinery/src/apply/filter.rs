//! Which fields a write may own: a resource's strategy resets the others.

use super::compare::Comparison;
use super::set::FieldSet;

/// What a resource or subresource leaves out of what its writers own, because it resets it anyway.
#[derive(Clone, Debug, Default)]
pub enum Filter {
    /// Everything counts.
    #[default]
    Everything,
    /// All but these fields and what is below them, such as `status` on the main resource.
    Exclude(FieldSet),
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
        }
    }
}
