//! Matching: which resource, or which class, satisfies a claim.
//!
//! [`Index::decide`] finds the best through indexes and keeps no ledger; [`Index::explain`] asks every candidate and says what refused
//! it. Both use the same predicates ([`refuse`]), and a property test holds them to each other.

mod decide;
mod explain;
mod index;
mod predicate;
mod profile;
mod remedy;
mod summary;
mod waiting;

pub use decide::{Decision, Reason, Why};
pub(crate) use explain::refusal_text;
pub use explain::{Candidate, Ledger};
pub use index::Index;
pub(crate) use predicate::refuse_held;
pub use predicate::{Exemption, Judge, NoJudge, Refusal, refusals, refuse};
pub(crate) use profile::capacity;
pub(crate) use profile::free_choice;
pub use profile::{Made, make};
pub use remedy::{Change, Field, Remedy};
pub use summary::{Count, Summary};
