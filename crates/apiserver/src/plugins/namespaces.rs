//! The namespaces that everything relies on cannot be deleted.

use machinery::status::Status;

use super::Plugin;
use crate::admission::{Attributes, Operation};

/// `NamespaceLifecycle`; that a namespace exists and stays is checked by the commit itself.
pub struct Lifecycle;

impl Plugin for Lifecycle {
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let immortal = attributes.operation == Operation::Delete
            && attributes.resource.gk() == ("", "Namespace")
            && matches!(attributes.name, "default" | "kube-system" | "kube-public");
        if immortal {
            return Err(Status::forbidden("", "namespaces", attributes.name, "this namespace may not be deleted"));
        }
        Ok(())
    }
}
