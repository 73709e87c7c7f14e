//! Kubernetes API machinery, pure: names, selectors, quantities, schemas, patches, server-side apply.
//!
//! Nothing here does I/O, reads a clock or draws random numbers: values in, values out.

pub mod apply;
pub mod field;
pub mod json;
pub mod jsonpath;
pub mod meta;
pub mod names;
pub mod patch;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
pub mod time;
pub mod version;
