//! The project's one CEL: checker, evaluator with a cost limit, Kubernetes' libraries. Pure.
//!
#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! An expression is parsed (`parser`), checked against declared variables and functions
//! (`checker`), planned (`plan`) and then evaluated any number of times (`eval`). Values borrow
//! from the JSON they view. Whatever an expression does is metered ([`Budget`]); what it can do
//! at most is known beforehand ([`Program::estimate`]).

mod admission;
mod ast;
mod budget;
mod checker;
mod compare;
mod cost;
mod decl;
mod env;
mod error;
mod escape;
mod estimate;
mod estimate_calls;
mod eval;
mod fold;
mod json;
mod lexer;
mod library;
mod literals;
mod macros;
pub mod mutation;
mod parser;
mod plan;
mod program;
#[cfg(test)]
mod soundness;
mod source;
mod structural;
mod syntax;
mod time;
mod types;
mod validate;
mod value;

pub use budget::{Budget, limits};
pub use decl::{DeclType, Field, Kind, ListSemantics, MAX_REQUEST_SIZE};
pub use env::Env;
pub use error::EvalError;
pub use escape::{RESERVED, escape, unescape};
pub use estimate::{CostEstimate, Fidelity};
pub use library::authz::{Attributes, Authorizer, AuthzValue, Decision};
pub use library::named_format::NamedFormat;
pub use library::net::Cidr;
pub use library::quantity::Quantity;
pub use library::semver::Semver;
pub use library::url::Url;
pub use program::{Activation, Program};
pub use source::{CompileErrors, Issue};
pub use time::Timestamp;
pub use types::Type;
pub use value::{Key, LazyFields, List, Map, Str, Value};
