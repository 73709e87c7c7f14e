//! The same requests to two clusters, and where the answers differ.
//!
//! What is sent is data: [`scenario`] reads written scenarios, [`breadth`] makes some for every built-in resource,
//! [`random`] some for custom ones.
//! [`normalise`] takes out what must differ (uids, times, versions); [`known`] reads the differences that
//! `docs/parity.md` lists; everything else counts against us.

pub mod breadth;
mod compare;
pub mod formats;
mod known;
mod normalise;
pub mod random;
pub mod rules;
mod run;
mod scenario;
mod variants;

pub use compare::{Difference, differences};
pub use known::{Known, Rule};
pub use normalise::normalise;
pub use run::{Comparison, Report, compare_all};
pub use scenario::{ParseError, Scenario, Step};
