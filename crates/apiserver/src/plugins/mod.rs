//! The admission that every server has, in the order of kube-apiserver, and the writes that belong to others.

mod accounts;
pub mod addresses;
pub mod cached;
pub mod certificates;
pub mod devices;
mod grants;
mod in_use;
mod ingress;
mod limits;
mod namespaces;
pub mod node_tokens;
pub mod nodes;
mod on_node;
mod parameters;
mod pod_security;
mod priority;
pub mod quota;
mod runtime;
pub mod services;
mod storage;
mod tolerations;

use std::sync::Arc;
use std::time::Duration;

use machinery::field::Errors;
use machinery::status::Status;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use store::{Op, Store};

use crate::admission::{Admission, Attributes, BoxFuture, Operation};
use crate::auth::authz::Authorizer;
use crate::auth::rbac::Rbac;
use crate::context::Context;
use crate::plan::View;

pub use parameters::unreadable;

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

/// 403 for a write.
pub fn forbidden(attributes: &Attributes<'_>, why: impl std::fmt::Display) -> Status {
    Status::forbidden(&attributes.resource.group, &attributes.resource.plural, attributes.name, why)
}

/// A random number.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // The system's generator does not fail once it has started; a constant would still be a legal draw.
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// All built-in plug-ins as one.
struct BuiltIn {
    store: Store,
    plugins: Vec<Box<dyn Plugin>>,
}

/// How long a Pod waits for the default account of a new namespace.
const PATIENCE: Duration = Duration::from_secs(1);

impl BuiltIn {
    /// Namespaces get their default account from a controller: Pods may come a moment before it.
    async fn wait_for_account(&self, namespace: &str) {
        let key = format!("{namespace}/default");
        let wait = async {
            while self.store.get(accounts::TABLE, &key).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, wait).await;
    }
}

/// Evictions, bindings, requests for tokens and Scales are no objects of the kinds that the plug-ins know, but for one of them.
fn is_part(attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Create && !attributes.subresource.is_empty() || attributes.subresource == "scale"
}

impl Admission for BuiltIn {
    fn name(&self) -> &'static str {
        "BuiltIn"
    }

    fn mutate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        if is_part(attributes) {
            return Box::pin(std::future::ready(on_node::Topology.mutate(attributes)));
        }
        // A namespace that is only planned gets nothing from a controller yet.
        let early = accounts::wanted(attributes).is_some_and(|name| {
            name == "default"
                && attributes.view.planned(crate::catalog::NAMESPACES, attributes.namespace).is_none()
                && attributes.view.object(accounts::TABLE, &format!("{}/default", attributes.namespace)).is_none()
        });
        if early {
            return Box::pin(async move {
                self.wait_for_account(attributes.namespace).await;
                self.plugins.iter().try_for_each(|plugin| plugin.mutate(attributes))
            });
        }
        let result = self.plugins.iter().try_for_each(|plugin| plugin.mutate(attributes));
        Box::pin(std::future::ready(result))
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        if is_part(attributes) {
            return Box::pin(std::future::ready(Ok(())));
        }
        let result = self.plugins.iter().try_for_each(|plugin| plugin.validate(attributes));
        Box::pin(std::future::ready(result))
    }
}

/// The built-in admission, in kube-apiserver's order. Who may give which rights comes first: nothing else matters without it.
pub fn defaults(store: &Store, authorizer: &Arc<dyn Authorizer>, rbac: Arc<Rbac>) -> Vec<Box<dyn Admission>> {
    let plugins: Vec<Box<dyn Plugin>> = vec![
        Box::new(grants::Grants { authorizer: authorizer.clone(), rbac }),
        Box::new(namespaces::Lifecycle),
        Box::new(limits::Limits),
        Box::new(accounts::Accounts { random }),
        Box::new(nodes::Nodes),
        Box::new(tolerations::NodesBeginNotReady),
        Box::new(pod_security::PodSecurity),
        Box::new(priority::Priority::new(store)),
        Box::new(tolerations::DefaultSeconds),
        Box::new(storage::Claims::new(store)),
        Box::new(in_use::Protection),
        Box::new(runtime::RuntimeClass::new(store)),
        Box::new(certificates::Requests(authorizer.clone())),
        Box::new(ingress::DefaultClass::new(store)),
        Box::new(on_node::Topology),
        Box::new(on_node::Resize),
    ];
    vec![
        Box::new(BuiltIn { store: store.clone(), plugins }),
        Box::new(crate::policies::Policies::new(store)),
        Box::new(crate::policies::Webhooks::new(store)),
    ]
}

/// What a user may not change of an object for want of a right to that part of it.
pub fn missing_rights(cx: &Context, view: &View<'_>, new: &Value, old: &Value) -> Errors {
    match (cx.resource.gk(), cx.info.subresource.as_str()) {
        (("resource.k8s.io", "ResourceClaim"), "status") => devices::missing_rights(cx, view, new, old),
        _ => Errors::new(),
    }
}

/// What the server decides about an object after admission and before validation: addresses and ports, the sender of a
/// request.
pub fn complete(cx: &Context, view: &View<'_>, new: &mut Value, old: &Value, dry_run: bool) -> Result<(), Status> {
    match cx.resource.gk() {
        ("", "Service") => services::allocate(cx, view, new, old, dry_run),
        ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate") if old.is_null() => {
            devices::admin_access(cx, view, new)
        }
        ("certificates.k8s.io", "CertificateSigningRequest") if old.is_null() => {
            certificates::sign(new, &cx.user);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Writes that belong to a write: what the object takes or gives back.
pub fn side_writes(cx: &Context, view: &View<'_>, old: &Value, new: &Value, ops: &mut Vec<Op>) -> Result<(), Status> {
    services::reserve(cx, view, old, new, ops)?;
    quota::charge(cx, view, old, new, ops)
}
