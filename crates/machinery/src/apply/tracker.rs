//! Keeps `metadata.managedFields` true when an object is created, updated or patched.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::blank::{blank, blank_custom};
use super::compare::{Comparison, compare_unmanaged};
use super::error::{ConvertError, ManagedError, UpdateError, listed};
use super::filter::Filter;
use super::managed::{Fields, Managed, ManagedEntry, ManagerId, Operation, cap};
use super::raw;
use super::reconcile::reconcile;
use super::set::FieldSet;
use super::types::Type;
use super::validate::validate;
use crate::schema::Schema;

/// Brings objects from one version of their kind to another.
pub trait Converter {
    /// The object in another version.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError>;

    /// The type of the kind in a version.
    fn schema(&self, api_version: &str) -> Option<Schema<'_>>;
}

/// For kinds of one version: there is no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneVersion;

impl Converter for OneVersion {
    fn convert(&self, _: &Value, _: &str) -> Result<Value, ConvertError> {
        Err(ConvertError::NoSuchVersion)
    }

    fn schema(&self, _: &str) -> Option<Schema<'_>> {
        None
    }
}

/// Tracks who manages the fields of objects of one kind, in one version, written through one (sub)resource.
///
/// Objects are passed in that version and in their stored form, defaults filled in.
#[derive(Clone, Copy)]
pub struct Tracker<'a> {
    /// The type of the objects.
    pub schema: Schema<'a>,
    /// Group and version: `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    /// What this (sub)resource resets and nobody can own through it.
    pub reset: &'a Filter,
    /// The same for what managers of the kind's other versions own.
    pub reset_elsewhere: &'a Filter,
    /// To the kind's other versions.
    pub converter: &'a dyn Converter,
    /// Custom resources: an object that does not exist has no fields at all, and its schema may have changed since its
    /// managers were recorded.
    pub custom: bool,
}

/// Fields that nobody manages.
pub(super) static STRIPPED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ])
});

/// The recorded managers of an object.
pub(super) fn managed_of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields").filter(|fields| !fields.is_null())
}

/// Removes and returns the recorded managers of an object.
pub(super) fn take_managed(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields").filter(|fields| !fields.is_null())
}

pub(super) fn put_managed(object: &mut Value, managed: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match managed {
        Some(managed) => {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("managedFields".to_owned(), managed);
            }
        }
        None => {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
    }
}

/// `[]` or `[{}]`: the client wants the managers forgotten.
fn is_reset(given: &Value) -> bool {
    let Value::Array(entries) = given else { return false };
    match entries.as_slice() {
        [] => true,
        [Value::Object(entry)] => entry.values().all(|value| value.is_null() || value == ""),
        _ => false,
    }
}

/// Whether nobody stands twice in a record. Writes through `scale` leave such records behind.
fn distinct(entries: &[Value]) -> bool {
    let same = |a: &Value, b: &Value| {
        ["manager", "operation", "apiVersion", "subresource"].iter().all(|name| a.get(*name) == b.get(*name))
    };
    entries.iter().enumerate().all(|(at, entry)| !entries[..at].iter().any(|other| same(entry, other)))
}

fn has_uid(object: &Value) -> bool {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("uid"))
        .and_then(Value::as_str)
        .is_some_and(|u| !u.is_empty())
}

impl<'a> Tracker<'a> {
    /// An object before it exists.
    pub(super) fn blank(&self) -> Value {
        if self.custom {
            blank_custom(self.api_version, self.kind)
        } else {
            blank(self.schema, self.api_version, self.kind)
        }
    }

    /// Records in `new` who manages its fields after a create (no `live`), update or patch by `manager` at `now`
    /// (RFC 3339, whole seconds, UTC).
    ///
    /// An update that changes no field leaves every entry as it was, times included. On an error all managers are
    /// forgotten, as in Kubernetes: it comes of objects that do not fit a schema that one of them used.
    pub fn update(&self, live: Option<&Value>, new: &mut Value, manager: &str, now: &str) -> Result<(), UpdateError> {
        let given = take_managed(new);
        match self.try_update(live, new, given, manager, now) {
            Ok(managed) => {
                put_managed(new, managed);
                Ok(())
            }
            // Records that cannot be read are forgotten.
            Err(UpdateError::Managed(_)) => {
                put_managed(new, None);
                Ok(())
            }
            Err(error) => {
                put_managed(new, None);
                Err(error)
            }
        }
    }

    fn try_update(
        &self,
        live: Option<&Value>,
        new: &Value,
        given: Option<Value>,
        manager: &str,
        now: &str,
    ) -> Result<Option<Value>, UpdateError> {
        if self.custom {
            // Validation lets some misfits pass (anything may stand for a string with a format), and the live object may be
            // of an older schema. Built-in kinds fit once they are decoded.
            for object in live.into_iter().chain([new]) {
                validate(object, self.schema, true)
                    .map_err(|errors| UpdateError::Convert(format!("failed to convert object: {}", listed(&errors))))?;
            }
        }
        let recorded = live.and_then(managed_of);
        // The usual client sends back what it read.
        let untouched = given.as_ref().is_none_or(|given| Some(given) == recorded);
        if let Some(live) = live
            && let Some(recorded) = recorded.filter(|recorded| untouched && self.current(recorded))
        {
            let comparison = self.compared(live, new)?;
            if comparison.is_same() {
                return Ok(given.or_else(|| Some(recorded.clone())));
            }
            let managed = Managed::read(given.unwrap_or_else(|| recorded.clone()))?;
            return self.finished(self.updated_by(comparison, live, new, managed, manager, now)?);
        }
        let managed = self.base(live, given, untouched)?;
        let exists = live.is_some_and(has_uid);
        if exists && managed.entries.is_empty() {
            // Nobody tracked it so far, or the client asked to stop.
            return Ok(None);
        }
        let live = match live {
            Some(live) => Cow::Borrowed(live),
            None => Cow::Owned(self.blank()),
        };
        self.finished(self.updated(&live, new, managed, manager, now)?)
    }

    fn finished(&self, mut managed: Managed) -> Result<Option<Value>, UpdateError> {
        cap(&mut managed)?;
        Ok(managed.write())
    }

    /// Whether all managers are of our version and fit the schema, so that nothing but a change can change them.
    fn current(&self, recorded: &Value) -> bool {
        recorded.as_array().is_some_and(|entries| {
            !entries.is_empty()
                && distinct(entries)
                && entries.iter().all(|entry| {
                    let fits = || entry.get("fieldsV1").is_some_and(|raw| raw::fits(raw, Type::root(self.schema)));
                    entry.get("apiVersion").and_then(Value::as_str) == Some(self.api_version)
                        && (!self.custom || fits())
                })
        })
    }

    /// The managers an update starts from: those the client sent, if it sent any that can be read, else the live ones.
    /// Through a subresource always the live ones.
    fn base(&self, live: Option<&Value>, given: Option<Value>, untouched: bool) -> Result<Managed, ManagedError> {
        let recorded = live.and_then(managed_of);
        if let Some(given) = given {
            if untouched {
                return Managed::read(given);
            }
            if self.subresource.is_empty() {
                if is_reset(&given) {
                    return Ok(Managed::default());
                }
                if let Ok(mut managed) = Managed::read(given)
                    && managed.read_sets().is_ok()
                    && !managed.entries.is_empty()
                {
                    return Ok(managed);
                }
            }
        }
        recorded.map_or_else(|| Ok(Managed::default()), |recorded| Managed::read(recorded.clone()))
    }

    /// The object in another version, which it must fit; none if there is no such version.
    pub(super) fn converted(
        &self,
        object: &Value,
        api_version: &str,
        what: &str,
    ) -> Result<Option<(Value, Schema<'_>)>, UpdateError> {
        let failed = |why: String| UpdateError::Convert(format!("{what}{why}"));
        let Some(schema) = self.converter.schema(api_version) else {
            return match self.converter.convert(object, api_version) {
                Ok(_) | Err(ConvertError::NoSuchVersion) => Ok(None),
                Err(error) => Err(failed(error.to_string())),
            };
        };
        match self.converter.convert(object, api_version) {
            Ok(mut object) => {
                take_managed(&mut object);
                validate(&object, schema, false).map_err(|errors| failed(listed(&errors)))?;
                Ok(Some((object, schema)))
            }
            Err(ConvertError::NoSuchVersion) => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// The comparison of two objects as a manager of another version sees it; none if that version is gone.
    pub(super) fn compared_in(
        &self,
        api_version: &str,
        live: &Value,
        new: &Value,
    ) -> Result<Option<Comparison>, UpdateError> {
        let Some((live, schema)) = self.converted(live, api_version, "failed to convert old object: ")? else {
            return Ok(None);
        };
        let Some((new, _)) = self.converted(new, api_version, "failed to convert new object: ")? else {
            return Ok(None);
        };
        Ok(Some(self.reset_elsewhere.filtered(compare_unmanaged(&live, &new, schema)?)))
    }

    /// The comparison in our own version.
    pub(super) fn compared(&self, live: &Value, new: &Value) -> Result<Comparison, UpdateError> {
        Ok(self.reset.filtered(compare_unmanaged(live, new, self.schema)?))
    }

    /// The managers after an update.
    pub(super) fn updated(
        &self,
        live: &Value,
        new: &Value,
        mut managed: Managed,
        manager: &str,
        now: &str,
    ) -> Result<Managed, UpdateError> {
        if self.custom {
            self.reconcile(&mut managed, live)?;
        }
        self.updated_by(self.compared(live, new)?, live, new, managed, manager, now)
    }

    fn updated_by(
        &self,
        comparison: Comparison,
        live: &Value,
        new: &Value,
        mut managed: Managed,
        manager: &str,
        now: &str,
    ) -> Result<Managed, UpdateError> {
        let mut change = Change::new(comparison);
        let id = ManagerId::new(manager, Operation::Update, self.api_version, self.subresource);
        let mut others: Vec<(String, Option<Change>)> = Vec::new();
        let mut kept = Vec::with_capacity(managed.entries.len() + 1);
        for mut entry in std::mem::take(&mut managed.entries) {
            if entry.is_empty() {
                continue;
            }
            let own = entry.id == id;
            if entry.api_version == self.api_version {
                change.take_from(&mut entry, own);
            } else {
                let at = match others.iter().position(|(version, _)| *version == entry.api_version) {
                    Some(at) => at,
                    None => {
                        let seen = self.compared_in(&entry.api_version, live, new)?;
                        others.push((entry.api_version.clone(), seen.map(Change::new)));
                        others.len() - 1
                    }
                };
                match &mut others[at].1 {
                    Some(change) => change.take_from(&mut entry, false),
                    None => continue,
                }
            }
            if !entry.is_empty() {
                kept.push(entry);
            }
        }
        managed.entries = kept;
        let set = &change.owned;
        if !set.is_empty() {
            match managed.get_mut(&id) {
                Some(entry) => {
                    match &mut entry.fields {
                        Fields::Raw(raw) => {
                            let tree = change.owned_tree.get_or_insert_with(|| set.to_json());
                            if !raw::covers(raw, tree) {
                                raw::add(raw, tree);
                            }
                        }
                        Fields::Set(own) => *own = own.union(set),
                    }
                    entry.time = Some(now.to_owned());
                }
                None => managed.entries.push(ManagedEntry {
                    id,
                    api_version: self.api_version.to_owned(),
                    time: Some(now.to_owned()),
                    fields: Fields::Set(std::mem::take(&mut change.owned)),
                }),
            }
        }
        Ok(managed)
    }

    /// Brings the sets to what the schema of their version now says of lists and maps; forgets those of versions that
    /// are gone.
    pub(super) fn reconcile(&self, managed: &mut Managed, live: &Value) -> Result<(), UpdateError> {
        let mut kept = Vec::with_capacity(managed.entries.len());
        for mut entry in std::mem::take(&mut managed.entries) {
            let schema = if entry.api_version == self.api_version {
                self.schema
            } else {
                match self.converted(live, &entry.api_version, "")? {
                    Some((_, schema)) => schema,
                    None => continue,
                }
            };
            if let Fields::Raw(raw) = &entry.fields
                && raw::fits(raw, Type::root(schema))
            {
                kept.push(entry);
                continue;
            }
            if let Some(set) = reconcile(entry.set()?, schema) {
                entry.fields = Fields::Set(set);
            }
            kept.push(entry);
        }
        managed.entries = kept;
        Ok(())
    }
}

/// What one update changes, in one version.
struct Change {
    /// What managers lose: changed or removed.
    touched: FieldSet,
    removed: FieldSet,
    /// What the updating manager owns now.
    owned: FieldSet,
    touched_tree: Option<Value>,
    removed_tree: Option<Value>,
    owned_tree: Option<Value>,
}

impl Change {
    fn new(comparison: Comparison) -> Self {
        let changed = comparison.modified.union(&comparison.added);
        Change {
            touched: changed.union(&comparison.removed),
            removed: comparison.removed,
            owned: changed.difference(&STRIPPED),
            touched_tree: None,
            removed_tree: None,
            owned_tree: None,
        }
    }

    /// Takes from a manager what it loses. The updating manager gets back what it changes itself.
    fn take_from(&mut self, entry: &mut ManagedEntry, own: bool) {
        let (lost, tree) =
            if own { (&self.removed, &mut self.removed_tree) } else { (&self.touched, &mut self.touched_tree) };
        if lost.is_empty() {
            return;
        }
        match &mut entry.fields {
            Fields::Raw(raw) => {
                let tree = tree.get_or_insert_with(|| lost.to_json());
                if raw::shares_member(raw, tree) {
                    raw::subtract(raw, tree);
                }
            }
            Fields::Set(set) => *set = set.difference(lost),
        }
    }
}
