//! Changes to objects as clients send them: JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge patch.
//!
//! All three take the object as the client's version shows it and give the changed object, which is then decoded and
//! validated like any other. Objects and patches must have come through [`crate::json`], whose depth limit bounds the
//! recursion here.

mod json;
mod merge;
mod strategic;

pub use self::json::{MAX_COPIED_BYTES, MAX_OPERATIONS, apply_json_patch, json_patch_strict_errors};
pub use self::merge::{apply_merge_patch, merge_into};
pub use self::strategic::apply_strategic_merge_patch;

use crate::status::Status;

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is too large: 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not fit the object: 422.
    #[error("{0}")]
    DoesNotApply(String),
}

impl PatchError {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            PatchError::Malformed(_) => 400,
            PatchError::TooLarge(_) => 413,
            PatchError::DoesNotApply(_) => 422,
        }
    }

    /// What the client is told.
    pub fn to_status(&self) -> Status {
        match self {
            PatchError::Malformed(message) => Status::bad_request(message),
            PatchError::TooLarge(message) => Status::too_large(message),
            PatchError::DoesNotApply(message) => {
                let text = format!("the server rejected our request due to an error in our request: {message}");
                Status::bare(422, "Invalid", text)
            }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_strategic;
