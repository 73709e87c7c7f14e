//! The verbs of the API.

pub mod delete;
pub mod get;
pub mod list;
pub mod patch;
pub mod select;
pub mod subresources;
pub mod watch;
pub mod write;
