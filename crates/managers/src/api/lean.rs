//! Objects as the managers read them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// An object without `metadata.managedFields`: half of it, and nobody here looks at it.
pub(crate) struct Lean(pub(crate) Value);

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lean, D::Error> {
        deserializer.deserialize_map(Fields).map(|fields| Lean(Value::Object(fields)))
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = match name.as_str() {
                "metadata" => entries.next_value::<Metadata>()?.0,
                _ => entries.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

struct Metadata(Value);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
        deserializer.deserialize_any(Metadata(Value::Null))
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_unit<E>(self) -> Result<Metadata, E> {
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Metadata, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if name == "managedFields" {
                entries.next_value::<IgnoredAny>()?;
            } else {
                fields.insert(name, entries.next_value()?);
            }
        }
        Ok(Metadata(Value::Object(fields)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_read_but_who_manages_what() {
        let object = json!({"kind": "X", "metadata": {"name": "a", "managedFields": [{"manager": "m"}], "labels": {"b": "c"}}, "spec": {"metadata": {"managedFields": 1}}});
        let Lean(read) = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(
            read,
            json!({"kind": "X", "metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"metadata": {"managedFields": 1}}})
        );
        let Lean(read) = serde_json::from_str(r#"{"metadata": null, "items": [1]}"#).unwrap();
        assert_eq!(read, json!({"metadata": null, "items": [1]}));
        assert!(serde_json::from_str::<Lean>("[]").is_err());
    }
}
