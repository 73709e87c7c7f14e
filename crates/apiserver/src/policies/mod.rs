//! Policies: what administrators say in CEL about the writes of others.
//!
//! They are found through the store like everything else, so that a policy counts from the moment its write was answered, and
//! compiled once for as long as they do not change.

pub mod check;
pub mod expressions;
pub mod matching;
mod params;
mod source;
pub mod types;
mod validating;

use machinery::status::Status;
use serde_json::{Value, json};
use store::Store;

use self::source::Source;
use self::validating::Validating;
use crate::admission::{Admission, Attributes, BoxFuture};

/// All policies, as one of those who have a say.
pub struct Policies {
    validating: Source<Validating>,
}

impl Policies {
    /// Those in a store.
    pub fn new(store: &Store) -> Policies {
        Policies { validating: Source::new(store) }
    }
}

impl Admission for Policies {
    fn name(&self) -> &'static str {
        "AdmissionPolicies"
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(std::future::ready(validating::validate(&self.validating, attributes)))
    }
}

/// A namespace as expressions see it: without what is not theirs to know.
fn namespace_shown(mut namespace: Value) -> Value {
    if let Some(meta) = namespace["metadata"].as_object_mut() {
        meta.remove("managedFields");
        meta.remove("ownerReferences");
        meta.remove("selfLink");
    }
    json!({"metadata": namespace["metadata"], "spec": namespace["spec"], "status": namespace["status"]})
}
