//! What differs between types: which kinds there are and how the engine sees them.

use std::sync::Arc;

use conductor_claims::errors::FieldError;
use conductor_claims::rules::Rules;
use conductor_claims::selector::Labels;
use conductor_claims::types::{Names, ResourceType, group_of};
use conductor_claims::views::{Ask, Offer, Profile};
use conductor_claims::{extract, volumes};
use serde_json::Value;

/// A type: PersistentVolumes, or what a ResourceType says.
#[derive(Clone, Debug)]
pub enum Kind {
    /// PersistentVolume, PersistentVolumeClaim, StorageClass.
    Volumes,
    /// A generated type.
    Generated(Box<ResourceType>),
}

/// Group, version and kind.
pub type Gvk<'k> = (String, &'k str);

/// Whether an object's kind is this one, in whichever version.
pub fn is_of(own: &Gvk<'_>, api_version: &str, kind: &str) -> bool {
    group_of(&own.0) == group_of(api_version) && own.1 == kind
}

impl Kind {
    /// What matching needs to know.
    pub fn rules(&self) -> Arc<Rules> {
        match self {
            Kind::Volumes => volumes::rules(),
            Kind::Generated(kind) => kind.rules(),
        }
    }

    /// The name of the type, as a Manager says it.
    pub fn name(&self) -> String {
        match self {
            Kind::Volumes => "persistentvolumes".into(),
            Kind::Generated(kind) => kind.name(),
        }
    }

    /// The resource's kind.
    pub fn resource(&self) -> Gvk<'_> {
        match self {
            Kind::Volumes => ("v1".into(), "PersistentVolume"),
            Kind::Generated(kind) => (kind.api_version(), &kind.names.resource),
        }
    }

    /// The claim's kind.
    pub fn claim(&self) -> Gvk<'_> {
        match self {
            Kind::Volumes => ("v1".into(), "PersistentVolumeClaim"),
            Kind::Generated(kind) => (kind.api_version(), &kind.names.claim),
        }
    }

    /// The class's kind.
    pub fn class(&self) -> Gvk<'_> {
        match self {
            Kind::Volumes => ("storage.k8s.io/v1".into(), "StorageClass"),
            Kind::Generated(kind) => (kind.api_version(), &kind.names.class),
        }
    }

    /// Words by which a consumer may name a claim of this type, in lower case.
    pub fn claim_words(&self) -> Vec<String> {
        let (_, claim) = self.claim();
        let mut words = vec![claim.to_ascii_lowercase(), Names::plural(claim)];
        match self {
            Kind::Volumes => words.push("pvc".into()),
            Kind::Generated(kind) => {
                words.extend(kind.names.short.claim.iter().map(|short| short.to_ascii_lowercase()));
                // as kubectl takes them, and to tell apart those of two groups
                let whole: Vec<String> = words.iter().map(|word| format!("{word}.{}", kind.group)).collect();
                words.extend(whole);
            }
        }
        words
    }

    /// A resource as matching sees it.
    pub fn offer(&self, object: &Value) -> Offer {
        match self {
            Kind::Volumes => volumes::offer(object),
            Kind::Generated(kind) => extract::offer(&kind.rules(), object),
        }
    }

    /// A claim as matching sees it.
    pub fn ask(&self, object: &Value, needed: bool, node: Option<Labels>) -> Result<Ask, Vec<FieldError>> {
        match self {
            Kind::Volumes => volumes::ask(object, needed, node),
            Kind::Generated(kind) => extract::ask(&kind.rules(), object, needed, node),
        }
    }

    /// A class as matching sees it.
    pub fn profile(&self, object: &Value, served: bool) -> Result<Profile, Vec<FieldError>> {
        match self {
            // a manager serves what is made here: claims of other classes are handed to their provisioners by whoever sees them
            Kind::Volumes => Ok(volumes::profile(object, served || object["provisioner"] != volumes::PROVISIONER)),
            Kind::Generated(kind) => extract::profile(&kind.rules(), object, served),
        }
    }

    /// The resource a claim names; empty: none.
    pub fn named<'c>(&self, claim: &'c Value) -> &'c str {
        let field = match self {
            Kind::Volumes => "volumeName",
            Kind::Generated(_) => "resourceName",
        };
        claim["spec"][field].as_str().unwrap_or_default()
    }
}
