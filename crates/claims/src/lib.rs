//! The nouns of Conductor, pure: matching, scoring, lifecycle, pool planning, review: snapshot in, decisions out.
//!
//! Nothing here knows a clock, a network or a runtime: every function takes what is and says what is to be done.

pub mod amount;
pub mod declared;
pub mod errors;
pub mod expressions;
pub mod extract;
pub mod invariants;
pub mod lifecycle;
pub mod matching;
pub mod names;
mod ordered;
pub mod review;
pub mod rules;
pub mod selector;
pub mod template;
pub mod types;
pub mod version;
pub mod views;
pub mod volumes;
