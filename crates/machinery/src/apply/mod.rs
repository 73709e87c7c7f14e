//! Server-side apply and managedFields, as Kubernetes has them.
//!
//! Every object records who manages which of its fields ([`FieldSet`], written as FieldsV1). A [`Tracker`] keeps the
//! record true for creates, updates and patches, and merges what is applied.

#![allow(dead_code, reason = "apply itself follows")]

mod blank;
mod compare;
mod conflict;
mod error;
mod fields_v1;
mod filter;
mod items;
mod managed;
mod path;
mod raw;
mod reconcile;
mod set;
mod time;
mod tracker;
mod types;

pub use blank::{blank, blank_custom};
pub use compare::{Comparison, compare};
pub use conflict::Conflict;
pub use error::{ApplyError, ConvertError, ManagedError, TypeError, UpdateError};
pub use fields_v1::{FieldsError, MAX_DEPTH, MAX_ELEMENTS};
pub use filter::{Filter, Match};
pub use items::ItemError;
pub use managed::{MAX_UPDATE_MANAGERS, ManagerId, Operation};
pub use path::{Path, PathElement, PathError};
pub use set::FieldSet;
pub use tracker::{Converter, OneVersion, Tracker};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests_update;
