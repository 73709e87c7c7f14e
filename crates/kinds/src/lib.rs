//! The built-in kinds of Kubernetes as data: schema table, discovery, defaults, validation, columns. Pure.

pub mod defaults;
pub mod value;
