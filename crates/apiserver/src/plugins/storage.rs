//! `DefaultStorageClass` and `PersistentVolumeClaimResize`.

use std::collections::BTreeSet;

use machinery::quantity::Quantity;
use machinery::status::Status;
use serde_json::Value;
use store::Store;

use super::cached::{Cached, newest_default};
use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};

struct Classes {
    default: Option<String>,
    growing: BTreeSet<String>,
}

fn classes(objects: Vec<Value>) -> Classes {
    let growing = objects.iter().filter(|class| class["allowVolumeExpansion"] == true);
    Classes {
        default: newest_default(
            &objects,
            &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
        ),
        growing: growing.map(|class| class["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect(),
    }
}

/// The class of a claim, by field or by the older annotation; `None` if it names none.
pub fn class_of(claim: &Value) -> Option<&str> {
    let annotation = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    annotation.or_else(|| claim["spec"]["storageClassName"].as_str())
}

/// Gives claims that name no class the default one, and lets only those grow whose class allows it.
pub struct Claims(Cached<Classes>);

impl Claims {
    /// Knows the classes in a store.
    pub fn new(store: &Store) -> Claims {
        Claims(Cached::new(store, "storage.k8s.io/storageclasses", classes))
    }
}

fn is_claim(attributes: &Attributes<'_>) -> bool {
    attributes.resource.gk() == ("", "PersistentVolumeClaim") && attributes.subresource.is_empty()
}

impl Plugin for Claims {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if is_claim(attributes)
            && attributes.operation == Operation::Create
            && attributes.object["spec"].is_object()
            && class_of(&attributes.object).is_none()
        {
            if let Some(default) = &self.0.get(attributes.view).default {
                attributes.object["spec"]["storageClassName"] = default.as_str().into();
            }
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !is_claim(attributes) || attributes.operation != Operation::Update {
            return Ok(());
        }
        let size =
            |claim: &Value| Quantity::from_json(&claim["spec"]["resources"]["requests"]["storage"]).unwrap_or_default();
        let (new, old) = (&attributes.object, attributes.old);
        if size(new) <= size(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(forbidden(attributes, "Only bound persistent volume claims can be expanded"));
        }
        let class = class_of(new).filter(|class| !class.is_empty() && class_of(old) == Some(class));
        if class.is_some_and(|class| self.0.get(attributes.view).growing.contains(class)) {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        Err(forbidden(attributes, why))
    }
}
