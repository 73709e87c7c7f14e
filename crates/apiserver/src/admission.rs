//! The seam through which others have a say in every write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use machinery::status::Status;
use serde_json::Value;

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
