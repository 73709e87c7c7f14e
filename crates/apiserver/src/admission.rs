//! The seam through which others have a say in every write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use crate::context::Context;
use crate::plan::View;
use crate::resource::Resource;
use crate::user::User;

/// A future that borrows.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Made.
    Create,
    /// Changed.
    Update,
    /// Removed.
    Delete,
    /// Connected to (`exec`, `proxy`, …).
    Connect,
}

impl Operation {
    /// As admission webhooks and policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A write on its way.
pub struct Attributes<'a> {
    /// What is done.
    pub operation: Operation,
    /// To what kind of thing.
    pub resource: &'a Arc<Resource>,
    /// To which part of it; empty for the whole.
    pub subresource: &'a str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The name; empty while it is still to be generated.
    pub name: &'a str,
    /// By whom.
    pub user: &'a Arc<User>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The object as it will be; `Null` for deletions.
    pub object: Value,
    /// The object as it is; `Null` for creations.
    pub old: &'a Value,
    /// What the client should be told besides.
    pub warnings: Vec<String>,
    /// Who is to be asked again, should somebody change the object after them.
    pub(crate) reinvocation: Reinvocation,
    /// The request behind it.
    pub(crate) cx: &'a Context,
    /// What the write sees of the store.
    pub(crate) view: &'a View<'a>,
    /// What policies see of it besides the object.
    pub(crate) shown: Shown,
}

/// What policies see of a write besides the object: made for the first that asks.
#[derive(Default)]
pub(crate) struct Shown {
    request: Mutex<Option<(Arc<Resource>, Arc<Value>)>>,
    namespace: Mutex<Option<Arc<Value>>>,
}

/// What policies and webhooks have done to an object, and whether they are asked again.
#[derive(Default)]
pub(crate) struct Reinvocation {
    /// Whether this is the second round.
    pub again: bool,
    /// Whether there should be one.
    pub wanted: bool,
    /// Of policies.
    pub policies: Rounds,
    /// Of webhooks.
    pub webhooks: Rounds,
}

/// The rounds of one kind of mutation.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The object as they left it.
    pub last: Option<Value>,
    pub(crate) invoked: Vec<String>,
    pub(crate) due: Vec<String>,
}

impl Rounds {
    /// Somebody changed the object: those who were asked before are asked again.
    pub fn require(&mut self) {
        self.due.append(&mut self.invoked);
    }

    /// Somebody who wants to be asked again was asked.
    pub fn invoked(&mut self, who: String) {
        self.invoked.push(who);
    }

    /// Whether somebody is asked again.
    pub fn is_due(&self, who: &str) -> bool {
        self.due.iter().any(|own| own == who)
    }
}

impl Attributes<'_> {
    /// The namespace as Kubernetes' admission has it: that of a Namespace is its own name.
    pub fn admission_namespace(&self) -> &str {
        if self.resource.gk() == ("", "Namespace") { self.name } else { self.namespace }
    }

    /// The name that was asked for: who deletes a collection asks for none.
    pub fn asked_name(&self) -> &str {
        if self.cx.info.verb == "deletecollection" { "" } else { self.name }
    }

    /// The request, as those see it who see the object in this version.
    pub(crate) fn shown_request(&self, matched: &Arc<Resource>) -> Arc<Value> {
        let mut known = self.shown.request.lock();
        match &*known {
            Some((of, request)) if Arc::ptr_eq(of, matched) => request.clone(),
            _ => {
                let request = Arc::new(crate::policies::expressions::request(self, matched));
                *known = Some((matched.clone(), request.clone()));
                request
            }
        }
    }

    /// The namespace, without what is not for expressions to know.
    pub(crate) fn shown_namespace(&self) -> Result<Arc<Value>, Status> {
        let mut known = self.shown.namespace.lock();
        if let Some(namespace) = &*known {
            return Ok(namespace.clone());
        }
        let namespace = Arc::new(match self.namespace {
            "" => Value::Null,
            name => crate::policies::namespace_shown(self.namespace_object(name)?),
        });
        *known = Some(namespace.clone());
        Ok(namespace)
    }

    /// A namespace, as the write sees it: one made in the same transaction counts.
    pub(crate) fn namespace_object(&self, name: &str) -> Result<Value, Status> {
        let catalog = self.cx.server.catalog();
        let resource =
            catalog.find("", "v1", "namespaces").ok_or_else(|| Status::internal("there are no namespaces"))?;
        let found = self.view.stored(resource, name)?;
        found
            .map(|current| Arc::unwrap_or_clone(current.object))
            .ok_or_else(|| Status::not_found("", "namespaces", name))
    }

    /// The options of the operation, as admission shows them.
    pub(crate) fn options(&self) -> Value {
        if self.operation == Operation::Connect {
            return Value::Null;
        }
        let query = &self.cx.query;
        // Of a patch, too: what it comes to is an update.
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Delete => "DeleteOptions",
            _ => "UpdateOptions",
        };
        let mut options = serde_json::json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        for name in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            if let Some(value) = query.get(name).filter(|value| !value.is_empty()) {
                options[name] = value.into();
            }
        }
        if self.dry_run {
            options["dryRun"] = serde_json::json!(["All"]);
        }
        options
    }
}

/// Has a say in writes: first all change what they want to change, then all judge the result.
pub trait Admission: Send + Sync {
    /// Its name, for messages and metrics.
    fn name(&self) -> &'static str;

    /// Changes the object.
    fn mutate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let _ = attributes;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Judges the object.
    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let _ = attributes;
        Box::pin(std::future::ready(Ok(())))
    }
}
