//! PersistentVolume, PersistentVolumeClaim and StorageClass: views and lives by the Kubernetes binder's rules.
//!
//! The same engine matches them; what differs is here. Their annotations and phases are Kubernetes'; what those cannot say is in
//! `status.reason` and `status.message` of the volume, in conditions of the claim, and in our annotations [`RECLAIM`] and [`SCRUB`].

mod keep;
mod life;
mod provision;
mod reclaim;
mod view;
mod volume;

pub use keep::{GROW, growth_refused, wants_more};
pub use life::{VolumeClaimScene, volume_claim, volume_claim_held, volume_claim_in_use, was_bound};
pub use provision::{Making, is_behind, made_name, made_name_for};
pub use reclaim::SCRUBBING;
pub use view::{ask, default_class, offer, profile, rules};
pub use volume::{VolumeScene, volume};

/// On a claim whose bind is complete; on a volume and a claim that a controller bound: `yes`.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On what a controller bound, and may unbind.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume that a provisioner made.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: the node its consumer was scheduled to.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Who is to make the volume of a claim, under the names that provisioners of Kubernetes look for.
pub const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// The class of a volume or claim, before there was a field for it.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a StorageClass that stands in for claims that name none.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Our provisioner's name in a StorageClass.
pub const PROVISIONER: &str = "volume.conductor.io";
/// On a volume whose policy is Retain: `Recycle` scrubs it and uses it again.
pub const RECLAIM: &str = "conductor.io/reclaim-policy";
/// On a volume made from a class of ours: what is behind it, as JSON with `apiVersion`, `kind`, `namespace`, `name`.
pub const IMPLEMENTATION: &str = "conductor.io/implementation";
/// On a volume being scrubbed: the number of the scrub.
pub const SCRUB: &str = "conductor.io/scrub";
