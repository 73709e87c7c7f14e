//! Nobody gives away more than they have.

use std::sync::Arc;

use machinery::status::Status;

use super::Plugin;
use crate::admission::{Attributes, Operation};
use crate::auth::authz::Authorizer;
use crate::auth::rbac::escalation::Grant;
use crate::auth::rbac::{GROUP, Rbac};

/// Checks writes of roles and bindings, after everybody else has changed them.
pub struct Grants {
    /// Says who may `escalate` and `bind`.
    pub authorizer: Arc<dyn Authorizer>,
    /// Knows the rules that users have.
    pub rbac: Arc<Rbac>,
}

impl Plugin for Grants {
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if &*attributes.resource.group != GROUP
            || !matches!(attributes.operation, Operation::Create | Operation::Update)
        {
            return Ok(());
        }
        let grant = Grant {
            user: attributes.user,
            plural: &attributes.resource.plural,
            namespace: attributes.namespace,
            name: attributes.name,
            new: &attributes.object,
            old: attributes.old,
            view: attributes.view,
        };
        self.rbac.check(&*self.authorizer, &grant)
    }
}
