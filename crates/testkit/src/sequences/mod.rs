//! Random operations of several managers on the same objects, sent to two clusters: after each, both must show the same
//! object, the same managers with the same fields and times, and the same conflicts.
//!
//! All sequences go in step: a round is one operation of each, and begins with a new second, so that the times in
//! managedFields, which are whole seconds, say in which round they were written, on both clusters.

mod more;
mod operations;
mod random;
mod run;
mod subjects;

pub use random::Random;
pub use run::{Divergence, Plan, Summary, run};
