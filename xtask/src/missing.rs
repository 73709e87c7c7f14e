//! What this machine lacks, told apart from what went wrong.

/// Something that must be installed first. xtask exits with [`Missing::EXIT_CODE`], so that a
/// script can tell "cannot be tried here" from "tried and failed".
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what} is missing, needed to {needed_to}: {remedy}")]
pub struct Missing {
    /// What is not there.
    pub what: String,
    /// What cannot be done without it.
    pub needed_to: String,
    /// How to get it.
    pub remedy: String,
}

impl Missing {
    /// `EX_UNAVAILABLE` of sysexits.h.
    pub const EXIT_CODE: u8 = 69;
}
