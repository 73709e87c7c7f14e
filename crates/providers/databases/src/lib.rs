//! Databases: a server of its own for each `PostgresInstance` and `MariaDBInstance`, and a database with its own role in a server that
//! someone runs for each `PostgresDatabase` and `MariaDBDatabase`.
//!
//! SQL goes through the engines' own command-line clients. They come with the servers, speak every version's protocol and
//! authentication, and cost no build time; one call brings a database in step, so a process per look is cheap enough.

mod access;
mod client;
mod credentials;
mod database;
mod definitions;
mod engine;
mod grant;
mod installation;
mod instance;
mod layout;
mod left;
mod mariadb;
mod postgres;
mod probe;
mod refusals;
mod template;
mod trial;
mod trust;

use std::sync::Arc;

use conductor_local::{Kind, Provider, Scene};
use serde_json::json;

use database::Database;
use instance::Instance;
use mariadb::MariaDb;
use postgres::Postgres;

/// The group and version of these kinds.
pub const API_VERSION: &str = "database.local.conductor.io/v1alpha1";

/// The provider, as `conductor up` runs it.
pub fn provider() -> Provider {
    Provider {
        name: "databases",
        definitions: definitions::all(),
        // whose its databases are: what is in use does not go
        rules: vec![
            json!({"apiGroups": ["storage.conductor.io"], "resources": ["relationaldatabases"], "verbs": ["get"]}),
        ],
        examples: definitions::examples(),
        kinds: Box::new(kinds),
    }
}

fn kinds(scene: &Scene) -> Vec<Arc<dyn Kind>> {
    vec![
        Arc::new(Instance::<Postgres>::new(scene)),
        Arc::new(Database::<Postgres>::new(scene)),
        Arc::new(Instance::<MariaDb>::new(scene)),
        Arc::new(Database::<MariaDb>::new(scene)),
    ]
}
