//! Kinds that are shown in two versions and stored in one of them. What Kubernetes decides about such an object (defaults,
//! rules, the words of a refusal) it decides in the stored form, whichever the client speaks.

pub(crate) mod autoscaler;
mod event;

use conductor_machinery::apply::{ConvertError, Converter};
use conductor_machinery::schema::{self, Schema};
use serde_json::Value;

/// A form of a kind that is stored in another.
#[derive(Debug)]
pub struct Twin {
    kind: &'static str,
    /// Group and version of this form.
    shown: (&'static str, &'static str),
    /// Group and version it is stored in.
    stored: (&'static str, &'static str),
    to: fn(&mut Value),
    from: fn(&mut Value),
}

const TWINS: &[Twin] = &[
    Twin {
        kind: "Event",
        shown: ("events.k8s.io", "v1"),
        stored: ("", "v1"),
        to: event::to_core,
        from: event::from_core,
    },
    Twin {
        kind: "HorizontalPodAutoscaler",
        shown: ("autoscaling", "v1"),
        stored: ("autoscaling", "v2"),
        to: autoscaler::to_v2,
        from: autoscaler::to_v1,
    },
];

/// The stored form of a kind, if the one that is named is another.
pub fn twin(group: &str, version: &str, kind: &str) -> Option<&'static Twin> {
    TWINS.iter().find(|twin| twin.shown == (group, version) && twin.kind == kind)
}

/// The two forms of a kind, if it has two, whichever is named.
pub fn pair(group: &str, kind: &str) -> Option<&'static Twin> {
    TWINS.iter().find(|twin| twin.kind == kind && (twin.shown.0 == group || twin.stored.0 == group))
}

impl Twin {
    /// The group of the stored form.
    pub fn group(&self) -> &'static str {
        self.stored.0
    }

    /// The version of the stored form.
    pub fn version(&self) -> &'static str {
        self.stored.1
    }

    /// The type of the stored form.
    pub fn stored_schema(&self) -> Option<Schema<'static>> {
        crate::schema_of(self.stored.0, self.stored.1, self.kind)
    }

    /// An object of this form as it is stored.
    pub fn to_stored(&self, object: Value) -> Value {
        self.converted(object, self.to, self.stored)
    }

    /// A stored object in this form.
    pub fn from_stored(&self, object: Value) -> Value {
        self.converted(object, self.from, self.shown)
    }

    fn converted(&self, mut object: Value, change: fn(&mut Value), to: (&str, &str)) -> Value {
        change(&mut object);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), api_version(to).into());
        }
        // Decoding writes what the other type always writes.
        let Some(schema) = crate::schema_of(to.0, to.1, self.kind) else { return object };
        match schema::decode(object.clone(), schema) {
            Ok(decoded) => decoded.value,
            Err(_) => object,
        }
    }
}

impl Converter for Twin {
    fn convert(&self, object: &Value, wanted: &str) -> Result<Value, ConvertError> {
        let now = object["apiVersion"].as_str().unwrap_or_default();
        let [shown, stored] = [self.shown, self.stored].map(api_version);
        match wanted {
            wanted if wanted == now => Ok(object.clone()),
            wanted if wanted == stored => Ok(self.to_stored(object.clone())),
            wanted if wanted == shown => Ok(self.from_stored(object.clone())),
            _ => Err(ConvertError::NoSuchVersion),
        }
    }

    fn schema(&self, wanted: &str) -> Option<Schema<'_>> {
        let (group, version) = [self.shown, self.stored].into_iter().find(|own| api_version(*own) == wanted)?;
        crate::schema_of(group, version, self.kind)
    }
}

fn api_version((group, version): (&str, &str)) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests;
