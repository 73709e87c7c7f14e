//! Policies: what administrators say in CEL about the writes of others.
//!
//! They are found through the store like everything else, so that a policy counts from the moment its write was answered, and
//! compiled once for as long as they do not change.

pub mod check;
pub mod expressions;
pub mod matching;
mod mutating;
pub mod params;
mod source;
pub mod types;
mod validating;
pub mod webhooks;

use machinery::schema::Schema;
use machinery::status::Status;
use serde_json::{Value, json};
use store::Store;

use self::mutating::Mutating;
use self::source::Source;
use self::validating::Validating;
pub use self::webhooks::Webhooks;
use crate::admission::{Admission, Attributes, BoxFuture};
use crate::resource::Resource;

/// All policies, as one of those who have a say.
pub struct Policies {
    mutating: Source<Mutating>,
    validating: Source<Validating>,
}

impl Policies {
    /// Those in a store.
    pub fn new(store: &Store) -> Policies {
        Policies { mutating: Source::new(store), validating: Source::new(store) }
    }
}

impl Admission for Policies {
    fn name(&self) -> &'static str {
        "AdmissionPolicies"
    }

    fn mutate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        match self.mutating.concern(attributes) {
            true => Box::pin(mutating::mutate(&self.mutating, attributes)),
            false => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        match self.validating.concern(attributes) {
            true => Box::pin(validating::validate(&self.validating, attributes)),
            false => Box::pin(std::future::ready(Ok(()))),
        }
    }
}

/// The schema of what is written: a part of an object may be of a kind of its own.
pub fn schema_of_part(resource: &Resource, object: &Value) -> Option<Schema<'static>> {
    let kind = object["kind"].as_str().filter(|kind| *kind != &*resource.kind)?;
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    kinds::schema_of(group, version, kind)
}

/// An object that somebody has changed, as the server reads and defaults it.
pub fn settled(resource: &Resource, object: Value) -> Result<Value, Status> {
    if let Some(schema) = schema_of_part(resource, &object) {
        let (kind, version) = (object["kind"].to_string(), object["apiVersion"].to_string());
        return Ok(crate::resource::decode_builtin(schema, &kind, &version, object)?.object);
    }
    let mut object = resource.decode(object)?.object;
    resource.default(&mut object);
    Ok(object)
}

/// Whether expressions of a policy can be using something. Says yes rather too often than too rarely.
fn names(spec: &Value, what: &str) -> bool {
    spec.to_string().contains(what)
}

/// A namespace as expressions see it: without what is not theirs to know.
pub(crate) fn namespace_shown(mut namespace: Value) -> Value {
    if let Some(meta) = namespace["metadata"].as_object_mut() {
        meta.remove("managedFields");
        meta.remove("ownerReferences");
        meta.remove("selfLink");
    }
    json!({"metadata": namespace["metadata"], "spec": namespace["spec"], "status": namespace["status"]})
}
