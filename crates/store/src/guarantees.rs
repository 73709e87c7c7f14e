//! The guarantees of watch, each with a validator.
