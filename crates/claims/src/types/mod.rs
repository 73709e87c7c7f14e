//! Resource types: the data that makes one kind of resource different from another.

mod access;
mod builtin;
mod compatibility;
mod crd;
mod model;
pub(crate) mod schema;

pub use access::{CREATED_BY, CREATED_BY_GROUPS, Guarded, USE_LABEL, access, groups, guards, managing, role, rule};
pub use builtin::{builtin_implementations, builtin_types, read_yaml};
pub use compatibility::incompatibilities;
pub use crd::{RETIRED, TYPE, crds, keep_versions, manager_crd, resource_type_crd};
pub use model::{Names, RESERVED, ResourceType, ShortNames, group_of};
