//! Questions about a live system, answered by anyone with the rights to read: explain, plan, tree, classes, audit.

mod allowed;
mod audit;
mod classes;
mod explain;
mod plan;
mod snapshot;
mod tree;

pub use audit::{Audited, Finding, audit, check, troubled};
pub use classes::{ClassRow, classes};
pub use explain::{Explanation, explain};
pub use plan::{Outlook, plan};
pub use snapshot::{Snapshot, kinds, resolve};
pub use tree::{Node, tree};

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The API server said no or nothing.
    #[error(transparent)]
    Failure(#[from] crate::api::Failure),
    /// The question is wrong.
    #[error("{0}")]
    Question(String),
}

/// The part before and after the slash of KIND/NAME.
pub fn kind_and_name(word: &str) -> Result<(&str, &str), Unanswered> {
    let parts = word.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
    parts.ok_or_else(|| Unanswered::Question(format!("{word:?} is not KIND/NAME, such as pvc/data")))
}
