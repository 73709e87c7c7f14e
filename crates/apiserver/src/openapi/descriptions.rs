//! What types and fields of built-in kinds mean, in Kubernetes' own words. They come from the crate `k8s-openapi` when a
//! document is made; none of them are kept.

use std::collections::HashMap;

/// Descriptions of types and their fields.
#[derive(Default)]
pub struct Descriptions(HashMap<String, Described>);

#[derive(Default)]
struct Described {
    text: Option<String>,
    fields: HashMap<String, String>,
}

impl Descriptions {
    /// Of a type.
    pub fn of_type(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.text.as_deref()
    }

    /// Of a field of a type.
    pub fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        self.0.get(name)?.fields.get(field).map(String::as_str)
    }
}

#[cfg(not(feature = "descriptions"))]
impl Descriptions {
    /// Nothing: the feature `descriptions` is off.
    pub fn load() -> Descriptions {
        Descriptions::default()
    }
}

#[cfg(feature = "descriptions")]
impl Descriptions {
    /// All that the crate knows.
    pub fn load() -> Descriptions {
        let mut types = source::types();
        let text = |value: Option<&mut serde_json::Value>| match value.map(serde_json::Value::take) {
            Some(serde_json::Value::String(text)) => Some(text),
            _ => None,
        };
        let describe = |(name, schema): (&String, &mut serde_json::Value)| {
            let mut described = Described { text: text(schema.get_mut("description")), ..Described::default() };
            for (field, schema) in
                schema.get_mut("properties").and_then(|all| all.as_object_mut()).into_iter().flatten()
            {
                if let Some(text) = text(schema.get_mut("description")) {
                    described.fields.insert(field.clone(), text);
                }
            }
            (name.clone(), described)
        };
        Descriptions(types.iter_mut().map(describe).collect())
    }
}

#[cfg(feature = "descriptions")]
mod source;
