//! Conflicts: fields that an apply would change and that others manage.

use std::fmt;

use super::managed::{ManagerId, Operation};
use super::path::Path;

/// One field that another manager holds with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who holds it.
    pub manager: ManagerId,
    /// The field.
    pub path: Path,
}

/// `"kubectl" with subresource "status" using apps/v1`; the version only of those who update.
impl fmt::Display for ManagerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Update => write!(f, " using {}", self.api_version),
            Operation::Apply => Ok(()),
        }
    }
}

/// What the client reads; conflicts come sorted by manager.
pub(crate) fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
