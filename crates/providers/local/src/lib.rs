//! What the providers of this machine's infrastructure share.
//!
//! A provider is a controller that reconciles its own kinds through the Kubernetes API and reports by the implementation
//! contract. Here is what all of them need and none should write again:
//!
//! - [`Kind`] and [`Provider`]: what a provider says about itself, and the loop that drives it ([`run`]).
//! - [`Supervisor`]: processes that outlive Conductor, are found again by it, and are never two for one resource.
//! - [`Lack`]: what this machine has not got, with the command that gets it. Missing packages are no errors.
//! - [`promise::Ledger`]: how much of what this machine has may be promised.
//! - [`Files`]: what is to stay as it is on the disk, and who is told when it does not.
//! - [`Finding`]: what `conductor audit` says when the outside world and the API disagree.
//! - [`Home`]: where a provider keeps what it has.

pub mod account;
pub mod clock;
mod files;
mod foreign;
pub mod home;
pub mod identity;
pub mod inside;
pub mod install;
mod kind;
pub mod lack;
pub mod logs;
pub mod owner;
pub mod promise;
mod provider;
mod reconcile;
mod status;
pub mod stray;
mod supervisor;

pub use account::Account;
pub use files::{Files, Said};
pub use home::Home;
pub use kind::{BoxFuture, Finding, Kind, Object, Partial, Report, Scene, Scrubbed, Trouble, Wake};
pub use lack::Lack;
pub use promise::{Ledger, Stock};
pub use provider::{Provider, run};
pub use reconcile::{look_again, may_write};
pub use status::secret_name;
pub use supervisor::{Program, Running, State, Stop, Supervisor};

/// The group and version of the kinds that Conductor itself has.
pub const API_VERSION: &str = "conductor.io/v1alpha1";
/// Where implementations are.
pub const SYSTEM_NAMESPACE: &str = conductor_claims::lifecycle::SYSTEM_NAMESPACE;
