//! The part of an object that garbage collection looks at.

use std::fmt;

use machinery::json::Text;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Holds an owner until its dependents no longer name it.
pub const ORPHAN: &str = "orphan";
/// Holds an owner until its blocking dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// What garbage collection needs of an object's metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta<'a> {
    /// The uid.
    #[serde(borrow)]
    pub uid: Text<'a>,
    /// The revision of the last write.
    #[serde(borrow)]
    pub resource_version: Text<'a>,
    /// Since when it is being deleted; empty if it is not.
    #[serde(borrow)]
    pub deletion_timestamp: Text<'a>,
    /// Who must agree before it is gone.
    #[serde(borrow, deserialize_with = "list")]
    pub finalizers: Vec<Text<'a>>,
    /// Its owners.
    #[serde(borrow, deserialize_with = "list")]
    pub owner_references: Vec<Reference<'a>>,
}

/// A reference to an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reference<'a> {
    /// The owner's group and version.
    #[serde(borrow)]
    pub api_version: Text<'a>,
    /// The owner's kind.
    #[serde(borrow)]
    pub kind: Text<'a>,
    /// The owner's name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// The owner's uid.
    #[serde(borrow)]
    pub uid: Text<'a>,
    /// Whether the owner's foreground deletion waits for this object.
    pub block_owner_deletion: Option<bool>,
}

impl<'a> Meta<'a> {
    /// Reads the metadata and stops there: stored objects have it in front of everything that is long.
    pub fn scan(object: &'a [u8]) -> Option<Meta<'a>> {
        let mut found = None;
        let mut deserializer = serde_json::Deserializer::from_slice(object);
        // The error is how the reading ends early.
        let _ = deserializer.deserialize_map(Scan(&mut found));
        found.filter(|meta: &Meta<'a>| !meta.uid.is_empty())
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        !self.deletion_timestamp.is_empty()
    }

    /// Whether somebody in particular must agree before it is gone.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|own| **own == *name)
    }

    /// Whether it waits for its dependents to go.
    pub fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    /// Whether it waits for its dependents to be orphaned.
    pub fn waits_for_orphans(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }
}

struct Scan<'f, 'a>(&'f mut Option<Meta<'a>>);

impl<'de> Visitor<'de> for Scan<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<Text<'de>>()? {
            if &*key == "metadata" {
                *self.0 = Some(entries.next_value()?);
                return Err(A::Error::custom("found"));
            }
            entries.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_nothing_behind_it() {
        let object = br#"{"kind":"X","apiVersion":"v1","metadata":{"name":"a","uid":"u","finalizers":null,
            "deletionTimestamp":"2026-01-01T00:00:00Z","ownerReferences":[{"apiVersion":"v1","kind":"Y","name":"b",
            "uid":"v","blockOwnerDeletion":true}]},"data": broken"#;
        let meta = Meta::scan(object).unwrap();
        assert_eq!((&*meta.uid, meta.is_deleting(), meta.waits_for_dependents()), ("u", true, false));
        assert_eq!((&*meta.owner_references[0].uid, meta.owner_references[0].block_owner_deletion), ("v", Some(true)));
        assert!(Meta::scan(b"{}").is_none());
        assert!(Meta::scan(br#"{"metadata":{}}"#).is_none());
        assert!(Meta::scan(b"[").is_none());
    }
}
