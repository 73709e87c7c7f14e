//! The built-in kinds of Kubernetes as data: schema table, discovery, defaults, validation, columns. Pure.

pub mod columns;
pub mod compute;
pub mod defaults;
pub mod fields;
pub mod pod_security;
pub mod resources;
pub mod strategy;
pub mod table;
pub mod twins;
pub mod validate;
pub mod value;
pub mod warnings;

pub use resources::{Resource, Subresource, find, find_kind, resources};
pub use table::{kinds, schema_of, type_name, type_named, types};
