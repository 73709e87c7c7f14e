//! The form in which Kubernetes decides about an object, where it is another than the one a client speaks.

use std::borrow::Cow;

use kinds::twins::{Twin, twin};
use machinery::schema::Schema;
use serde_json::Value;

use crate::resource::{Nature, Resource};

impl Resource {
    /// Where its objects are stored in another form than this one.
    pub fn twin(&self) -> Option<&'static Twin> {
        match &self.nature {
            Nature::BuiltIn(_) => twin(&self.group, &self.version, &self.kind),
            Nature::Custom(_) => None,
        }
    }

    /// The form of an object in which its rules are written.
    pub fn internal<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match self.twin() {
            Some(twin) if object.is_object() => Cow::Owned(twin.to_stored(object.clone())),
            _ => Cow::Borrowed(object),
        }
    }

    /// Its metadata where nothing else is shown: as its rules see it, without what stands for other fields.
    pub fn metadata(&self, object: &Value) -> Value {
        let mut meta = self.internal(object)["metadata"].clone();
        if self.gk() == ("apps", "DaemonSet")
            && let Some(annotations) = meta["annotations"].as_object_mut()
        {
            annotations.remove(kinds::strategy::TEMPLATE_GENERATION);
            if annotations.is_empty() {
                meta.as_object_mut().map(|meta| meta.remove("annotations"));
            }
        }
        meta
    }

    /// The group in which they are written.
    pub fn internal_group(&self) -> &str {
        match self.twin() {
            Some(twin) => twin.group(),
            None => &self.group,
        }
    }

    /// The type of that form.
    pub(crate) fn internal_schema(&self) -> Schema<'_> {
        self.twin().and_then(Twin::stored_schema).unwrap_or_else(|| self.schema())
    }

    /// Changes an object in that form.
    pub(crate) fn internally(&self, object: &mut Value, change: impl FnOnce(&mut Value)) {
        match self.twin() {
            Some(twin) => {
                let mut internal = twin.to_stored(object.take());
                change(&mut internal);
                *object = twin.from_stored(internal);
            }
            None => change(object),
        }
    }
}
