//! Server-side apply and managedFields, as Kubernetes has them.
//!
//! Every object records who manages which of its fields ([`FieldSet`], written as FieldsV1). A [`Tracker`] keeps the
//! record true for creates, updates and patches, and merges what is applied.

mod applier;
mod blank;
mod compare;
mod conflict;
mod error;
mod field_set;
mod fields_v1;
mod filter;
mod items;
mod last_applied;
mod managed;
mod merge;
mod path;
mod prune;
mod raw;
mod reconcile;
mod remove;
mod scale;
mod set;
mod time;
mod tracker;
mod types;
mod unchanged;
mod validate;

pub use blank::{blank, blank_custom};
pub use compare::{Comparison, compare};
pub use conflict::Conflict;
pub use error::{ApplyError, ConvertError, ManagedError, TypeError, UpdateError};
pub use field_set::to_field_set;
pub use fields_v1::{FieldsError, MAX_DEPTH, MAX_ELEMENTS};
pub use filter::Filter;
pub use items::ItemError;
pub use last_applied::LAST_APPLIED;
pub use managed::{MAX_UPDATE_MANAGERS, ManagerId, Operation, check_managers};
pub use merge::merge;
pub use path::{Path, PathElement, PathError};
pub use remove::remove_items;
pub use scale::{ReplicaPaths, SCALE_VERSION, parent_managers, scale_managers};
pub use set::FieldSet;
pub use tracker::{Converter, OneVersion, Tracker};
pub use unchanged::keep_times_if_unchanged;
pub use validate::validate;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests_apply;
#[cfg(test)]
mod tests_properties;
#[cfg(test)]
mod tests_update;
#[cfg(test)]
mod tests_versions;
