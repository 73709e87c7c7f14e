//! The lives of claims and resources on a toy API server, story by story.

mod connections;
mod making;
mod references;
mod reports;
mod scrubbing;
mod sharing;
#[path = "../toy/mod.rs"]
mod toy;
