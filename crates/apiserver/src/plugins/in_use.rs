//! Volumes and claims stay while they are in use.

use machinery::status::Status;
use serde_json::json;

use super::Plugin;
use crate::admission::{Attributes, Operation};

/// `StorageObjectInUseProtection`: gives new objects a finalizer that a controller takes off.
pub struct Protection;

impl Plugin for Protection {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.operation != Operation::Create
            || !attributes.subresource.is_empty()
            || attributes.resource.is_custom()
        {
            return Ok(());
        }
        let (group, kind) = attributes.resource.gk();
        let wanted = kinds::strategy::finalizers_on_create(group, kind);
        if wanted.is_empty() {
            return Ok(());
        }
        let meta = crate::write::meta_mut(&mut attributes.object);
        let finalizers = meta.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut() {
            for finalizer in wanted {
                if !list.iter().any(|own| own == finalizer) {
                    list.push((*finalizer).into());
                }
            }
        }
        Ok(())
    }
}
