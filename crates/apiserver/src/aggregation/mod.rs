//! APIServices: which groups and versions there are, and who serves them.

pub mod registered;

use serde_json::Value;
use store::KeyRange;

use crate::plan::parse_stored;
use crate::server::Server;

const GROUP: &str = "apiregistration.k8s.io";
/// The store's table of APIServices.
const TABLE: &str = "apiregistration.k8s.io/apiservices";
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// All APIServices, as they are stored.
fn all(server: &Server) -> Vec<Value> {
    let entries = server.store().list(TABLE, KeyRange::all(), None).map(|list| list.entries).unwrap_or_default();
    entries.iter().filter_map(|entry| parse_stored(entry).ok()).collect()
}
