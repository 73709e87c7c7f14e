//! The lives of claims and resources, as lists of writes.
//!
//! [`claim`] and [`resource`] look at one object and what belongs to it and say which writes come next, in order. Any prefix of the
//! list is a legal state: looking again says the rest. Every write carries its precondition, so that a stale look costs a conflict
//! and never a wrong write. Nothing to write means settled, or waiting for someone else, which the object then says.
//!
//! What makes it crash-safe and race-safe, in this order:
//! the resource refers to the claim, the claim names the resource (once, for good), the resource says Bound, the claim says Bound.
//! A reference whose claim is gone, or names another resource, is taken back. A resource was used if it ever said Bound; only then
//! is it reclaimed. An implementation exists only after the resource that intends it holds our finalizer; an implementation whose
//! resource is gone is swept ([`orphan`]).

mod binding;
mod claim;
mod connection;
mod grow;
mod implementation;
mod making;
mod ownership;
mod reclaim;
mod releasing;
mod report;
mod resource;
mod status;
mod waiting;
mod write;

pub use binding::{SAY_BOUND, is_torn, is_used};
pub use claim::{
    CLASS_STANDS_IN, ClaimScene, GRANTED, RAISED, claim, claims_text, is_shared, refused_claim, unreadable_claim,
};
pub use connection::{Connection, binding_name, connection_writes, public_keys, writes_connection};
pub use implementation::{Implementation, implementations, is_connection, orphan, owner};
pub use ownership::{TEMPLATE_HASH, TEMPLATE_MANAGER, is_outdated};
pub use reclaim::is_asked_of_another;
pub use resource::{
    BACK_TO_TEMPLATE, Found, Presence, ResourceScene, SILENCE, is_leaving, ours, resource, resource_failed,
};
pub use status::{Condition, condition_of, status_patch};
pub use waiting::{refused, too_costly};
pub use write::{Event, Plan, Target, Verb, Version, Write};

/// What the lives of volumes share.
pub(crate) mod parts {
    pub(crate) use super::claim::{deleting, phase, uid};
    pub(crate) use super::implementation::{is_ready, place, reference_to};
    pub(crate) use super::reclaim::{asked_for, takes_no_scrub};
    pub(crate) use super::releasing::used_by;
    pub(crate) use super::status::status_patch;
    pub(crate) use super::waiting::{not_allowed, refused};
    pub(crate) use super::write::finalizer;
}

/// Holds a claim until its resource is released.
pub const CLAIM_FINALIZER: &str = "conductor.io/claim";
/// Holds a resource until its implementation is reclaimed.
pub const RESOURCE_FINALIZER: &str = "conductor.io/resource";
/// On an implementation: the uid of its resource.
pub const RESOURCE_UID: &str = "conductor.io/resource-uid";
/// On an implementation: the name of its resource.
pub const RESOURCE_NAME: &str = "conductor.io/resource";
/// On an implementation: apiVersion, kind and name of its resource, with spaces between.
pub const RESOURCE_REF: &str = "conductor.io/resource-ref";
/// The reason of a condition Ready that holds again: what is behind ended by itself and was started again.
pub const RESTARTED: &str = "Restarted";
/// The condition that what is in use is no more than the capacity, where that is measured and not enforced.
pub const WITHIN_CAPACITY: &str = "WithinCapacity";
/// The condition on a resource that what its implementation reports can be read.
pub const REPORTED: &str = "Reported";
/// The condition on a claim that its resource is what the claim asked for.
pub const MATCHES: &str = "Matches";
/// The condition on a claim that all Ingresses and Services that name it are carried; the provider of its balancer writes it.
pub const ROUTED: &str = "Routed";
/// On a Secret in the system's own namespace that resources may adopt as their implementation.
pub const ADOPTABLE: &str = "conductor.io/adoptable";
/// On an implementation that outlived its resource by policy.
pub const RETAINED: &str = "conductor.io/retained";
/// On an implementation that its resource has taken into service; from then on it may hold data.
pub const RECORDED: &str = "conductor.io/recorded";
/// On a connection Secret: the number of the rotation that its credentials are from.
pub const ROTATION: &str = "conductor.io/rotation";
/// On an implementation and its resource: the rotation whose credentials the Secrets of all claims have; those from before it may go.
pub const REPLACED: &str = "conductor.io/replaced";
/// On an implementation: the rotation of its credentials that its resource asks for, beside what its spec says.
pub const ROTATE: &str = "conductor.io/rotate";
/// On an implementation: the rotation that ends what there was before it at once, for nobody has a right to it any more.
pub const AT_ONCE: &str = "conductor.io/rotate-at-once";
/// On an implementation: the number of the scrub that was asked for, beside `spec.scrub`, which a kind may not have, and the uid of whom:
/// what is made anew from a copy is not asked.
pub const SCRUB_ASKED: &str = "conductor.io/scrub-asked";
/// On an implementation that gives each of several claims its own login (`status.connections`): the uids of the claims that share it.
pub const CLAIMS: &str = "conductor.io/claim-uids";
/// On a resource that one of several claims has left: the credentials that it had are to be replaced.
pub const SHUT: &str = "conductor.io/shut";
/// On a resource made for a claim: the claim's uid.
pub const PROVISIONED_FOR: &str = "conductor.io/provisioned-for";
/// On connection objects: the uid of their claim.
pub const CLAIM_UID: &str = "conductor.io/claim-uid";
/// On what was made for a claim: its namespace and name, with a slash between.
pub const CLAIM_NAME: &str = "conductor.io/claim-name";
/// Where implementations live.
pub const SYSTEM_NAMESPACE: &str = "conductor-system";
