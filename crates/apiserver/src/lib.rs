//! The Kubernetes API over a store: authentication, authorization, admission, registry, HTTP. Embeddable.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use conductor_apiserver::{Options, Server, User};
//! let server = Server::start(Options::default()).await?; // in memory; `data_dir` makes it durable
//! let client = server.client(User::new("me", ["system:masters"]));
//! # Ok(())
//! # }
//! ```

pub mod admission;
mod aggregation;
mod answer;
pub mod audit;
pub mod auth;
pub mod body;
mod bootstrap;
pub mod bulk;
pub mod catalog;
mod context;
mod controllers;
mod custom;
mod discovery;
mod dispatch;
pub mod endpoint;
mod flow;
mod gate;
mod heavy;
pub mod http;
mod impersonation;
mod internal;
mod kubernetes;
mod local;
mod managed;
mod media;
mod metrics;
mod noted;
mod openapi;
mod paths;
pub mod pki;
mod plan;
mod plugins;
mod policies;
mod render;
pub mod request;
pub mod resource;
mod reviews;
mod server;
mod signer;
mod table;
mod transactions;
mod unread;
pub mod user;
mod verbs;
mod watches;
pub mod webhook;
mod websocket;
mod write;
mod yaml;

pub use server::{Inner, Options, Server, Service, StartError};
pub use user::User;
