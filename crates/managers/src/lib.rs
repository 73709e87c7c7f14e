//! The controllers of Conductor, on kube-rs. They see the Kubernetes API and nothing else.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), conductor_managers::Failure> {
//! use conductor_managers::{Managers, Options};
//! let mut managers = Managers::start(client, Options::default()).await?;
//! managers.run().await;
//! # Ok(())
//! # }
//! ```
//!
//! A [`desk`] serves one type: watches feed its index, its queue says what to look at, and what `claims` decides is sent by
//! the [`transport`]. ResourceTypes open and close desks ([`types`]).

pub mod api;
mod clock;
mod connection;
pub mod consumers;
mod desk;
mod events;
pub mod expressions;
pub mod gates;
mod generated;
mod implementations;
pub mod inspect;
pub mod install;
pub mod kind;
mod lease;
mod metrics;
mod orphans;
pub mod parties;
mod queue;
mod rights;
mod runtime;
pub mod transport;
mod types;
mod volumes;

pub use api::{Api, Failure};
pub use metrics::Metrics;
pub use runtime::{Managers, Options};
pub use volumes::TEMPLATE as VOLUME_TEMPLATE;
