//! A cluster to test on, embedded or real. Dev-dependency only.
//!
//! [`Cluster`] is the same whether it is an API server in this process, one behind a socket, or somebody's real
//! Kubernetes, so a scenario is written once and runs on all of them. [`parity`] sends the same requests to two
//! clusters and says where the answers differ.

mod cluster;
mod exchange;
mod namespace;
pub mod parity;
mod plane;
pub mod sequences;
pub mod wire;

pub use cluster::{Cluster, KUBECONFIG, program, skip, unique};
pub use exchange::{Answer, Request};
pub use namespace::Namespace;
pub use plane::{Component, Plane, XTASK};
