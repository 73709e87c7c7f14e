//! Removes what a manager applied before and does not apply any more, unless somebody else owns it.

use std::borrow::Cow;

use serde_json::Value;

use super::error::{ApplyError, ConvertError, UpdateError, listed};
use super::field_set::to_field_set;
use super::managed::Managed;
use super::remove::remove_items;
use super::set::FieldSet;
use super::tracker::Tracker;
use super::types::Type;
use super::validate::validate;
use crate::schema::Schema;

const DANGLING: &str = "failed add back dangling items: failed to convert pruned object to last applied version: ";

/// What a manager applied the time before.
pub(super) struct Last {
    pub(super) fields: FieldSet,
    pub(super) api_version: String,
}

/// An object and its version.
#[derive(Clone)]
struct Versioned<'v> {
    object: Cow<'v, Value>,
    api_version: String,
}

impl Tracker<'_> {
    /// The type in a version.
    fn schema_in(&self, api_version: &str) -> Option<Schema<'_>> {
        if api_version == self.api_version { Some(self.schema) } else { self.converter.schema(api_version) }
    }

    /// The object in another version; none if there is no such version.
    fn in_version<'v>(
        &self,
        from: &Versioned<'v>,
        api_version: &str,
        what: &str,
    ) -> Result<Option<Versioned<'v>>, UpdateError> {
        if from.api_version == api_version {
            return Ok(Some(from.clone()));
        }
        if api_version == self.api_version {
            return self.in_own_version(from, what);
        }
        let what = format!("failed to prune fields: {what}");
        let converted = self.converted(&from.object, api_version, &what)?;
        Ok(converted.map(|(object, _)| Versioned { object: Cow::Owned(object), api_version: api_version.to_owned() }))
    }

    /// Back in the version that was asked for, which the converter may call by a schema of its own.
    fn in_own_version<'v>(&self, from: &Versioned<'v>, what: &str) -> Result<Option<Versioned<'v>>, UpdateError> {
        let failed = |why: String| UpdateError::Convert(format!("failed to prune fields: {what}{why}"));
        match self.converter.convert(&from.object, self.api_version) {
            Ok(object) => {
                validate(&object, self.schema, false).map_err(|errors| failed(listed(&errors)))?;
                Ok(Some(Versioned { object: Cow::Owned(object), api_version: self.api_version.to_owned() }))
            }
            Err(ConvertError::NoSuchVersion) => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// The fields of an object in its version, with the declared fields around them.
fn named(object: &Value, schema: Schema<'_>) -> FieldSet {
    to_field_set(object, schema).with_named_fields(Type::root(schema))
}

/// The merged object without what the last configuration had, the new one (`set`) has not, and nobody else owns.
pub(super) fn prune(
    tracker: &Tracker<'_>,
    merged: &Value,
    set: &FieldSet,
    managed: &mut Managed,
    last: &Last,
) -> Result<Value, ApplyError> {
    let merged = Versioned { object: Cow::Borrowed(merged), api_version: tracker.api_version.to_owned() };
    let converted =
        tracker.in_version(&merged, &last.api_version, "failed to convert merged object to last applied version: ")?;
    let (Some(converted), Some(schema)) = (converted, tracker.schema_in(&last.api_version)) else {
        return Ok(merged.object.into_owned());
    };
    let root = Type::root(schema);
    let last_named = last.fields.with_named_fields(root);
    let removed = remove_items(&converted.object, &last_named, schema);
    let pruned = Versioned { object: Cow::Owned(removed), api_version: last.api_version.clone() };
    let pruned = add_back_owned(tracker, converted.clone(), pruned, set, managed)?;

    // Of what is missing now, only what the last configuration had may go.
    let pruned = match tracker.in_version(&pruned, &last.api_version, DANGLING)? {
        None => converted,
        Some(pruned) => {
            let missing = named(&converted.object, schema).difference(&named(&pruned.object, schema));
            let removed = remove_items(&converted.object, &missing.intersection(&last_named), schema);
            Versioned { object: Cow::Owned(removed), api_version: last.api_version.clone() }
        }
    };
    let back = tracker.in_version(&pruned, tracker.api_version, "")?;
    Ok(back.unwrap_or(merged).object.into_owned())
}

/// Adds back what somebody owns, the applying manager's new configuration included, in the versions they own it in.
fn add_back_owned<'v>(
    tracker: &Tracker<'_>,
    mut merged: Versioned<'v>,
    mut pruned: Versioned<'v>,
    set: &FieldSet,
    managed: &mut Managed,
) -> Result<Versioned<'v>, ApplyError> {
    let mut owned: Vec<(String, FieldSet)> = vec![(tracker.api_version.to_owned(), set.clone())];
    for entry in &mut managed.entries {
        let version = entry.api_version.clone();
        let fields = entry.set().map_err(UpdateError::from)?;
        match owned.iter_mut().find(|(known, _)| *known == version) {
            Some((_, all)) => *all = all.union(fields),
            None => owned.push((version, fields.clone())),
        }
    }
    // The version at hand first: conversion may need fields that it brings back.
    owned.sort_by_key(|(version, _)| *version != pruned.api_version);
    for (version, owned) in owned {
        let what = |which: &str| {
            format!("failed add back owned items: failed to convert {which} object at version {version}: ")
        };
        let (Some(schema), Some(whole), Some(part)) = (
            tracker.schema_in(&version),
            tracker.in_version(&merged, &version, &what("merged"))?,
            tracker.in_version(&pruned, &version, &what("pruned"))?,
        ) else {
            continue;
        };
        let keep = named(&part.object, schema).union(&owned.with_named_fields(Type::root(schema)));
        let drop = named(&whole.object, schema).difference(&keep);
        let object = remove_items(&whole.object, &drop, schema);
        pruned = Versioned { object: Cow::Owned(object), api_version: version };
        merged = whole;
    }
    Ok(pruned)
}
