//! The admission that every server has, in the order of kube-apiserver, and the writes that belong to others.

mod grants;
mod in_use;
mod namespaces;
mod reservations;

use std::sync::Arc;

use machinery::status::Status;
use store::Store;

pub use self::reservations::side_writes;
use crate::admission::{Admission, Attributes, BoxFuture};
use crate::auth::authz::Authorizer;
use crate::auth::rbac::Rbac;

/// A built-in admission plug-in: never waits for anything.
pub trait Plugin: Send + Sync {
    /// Changes the object.
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let _ = attributes;
        Ok(())
    }

    /// Judges the object.
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let _ = attributes;
        Ok(())
    }
}

/// All built-in plug-ins as one.
struct BuiltIn(Vec<Box<dyn Plugin>>);

impl Admission for BuiltIn {
    fn name(&self) -> &'static str {
        "BuiltIn"
    }

    fn mutate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let result = self.0.iter().try_for_each(|plugin| plugin.mutate(attributes));
        Box::pin(std::future::ready(result))
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let result = self.0.iter().try_for_each(|plugin| plugin.validate(attributes));
        Box::pin(std::future::ready(result))
    }
}

/// The built-in admission, in order.
pub fn defaults(_store: &Store, authorizer: &Arc<dyn Authorizer>, rbac: Arc<Rbac>) -> Vec<Box<dyn Admission>> {
    vec![Box::new(BuiltIn(vec![
        Box::new(grants::Grants { authorizer: authorizer.clone(), rbac }),
        Box::new(namespaces::Lifecycle),
        Box::new(in_use::Protection),
    ]))]
}
