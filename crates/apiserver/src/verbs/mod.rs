//! The verbs of the API.

mod connect;
pub mod delete;
pub mod eviction;
pub mod get;
pub mod list;
pub mod patch;
mod scale;
pub mod select;
pub mod subresources;
pub mod watch;
pub mod write;
