//! Who is it, and may they?

pub mod accounts;
pub mod authn;
pub mod authz;
pub mod followed;
pub mod nodes;
pub mod rbac;
pub mod shown;
pub mod tokens;
