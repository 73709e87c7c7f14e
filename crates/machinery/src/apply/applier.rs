//! Apply: merge a configuration, remove what its manager no longer applies, find conflicts.

use std::borrow::Cow;

use serde_json::Value;

use super::conflict::Conflict;
use super::error::{ApplyError, UpdateError};
use super::field_set::to_field_set;
use super::last_applied;
use super::managed::{Fields, Managed, ManagedEntry, ManagerId, Operation};
use super::merge::merge;
use super::path::same;
use super::prune::{Last, prune};
use super::set::FieldSet;
use super::tracker::{STRIPPED, Tracker, managed_of, put_managed, take_managed};
use super::validate::validate;

/// The manager of fields that nobody was recorded for when the object was first applied to.
const BEFORE: &str = "before-first-apply";

/// What an apply came to.
pub(super) struct Outcome {
    /// The merged object without its record; none if it equals the live one.
    pub(super) object: Option<Value>,
    pub(super) managed: Managed,
}

impl Tracker<'_> {
    /// Applies a configuration by `manager` at `now` to the live object, or creates it.
    ///
    /// The result is the whole object with its managers recorded; defaults are still to be filled in. What others manage
    /// with another value is a conflict, unless `force` takes it. A configuration equal to what is there changes nothing;
    /// see also [`keep_times_if_unchanged`](super::keep_times_if_unchanged).
    pub fn apply(
        &self,
        live: Option<&Value>,
        patch: &Value,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Value, ApplyError> {
        self.check_patch(patch)?;
        let recorded = live.and_then(managed_of).cloned().map_or_else(|| Ok(Managed::default()), Managed::read);
        let mut managed = recorded.map_err(UpdateError::from)?;
        let live = match live {
            Some(live) => {
                let mut live = live.clone();
                take_managed(&mut live);
                live
            }
            None => self.blank(),
        };
        self.check_typed(patch, false, "patch", patch)?;
        if self.custom {
            // Its schema may have changed; a built-in object fits by construction.
            self.check_typed(&live, true, "live", patch)?;
        }
        if managed.entries.is_empty() {
            managed = self.updated(&self.blank(), &live, managed, BEFORE, now)?;
        }
        let id = ManagerId::new(manager, Operation::Apply, self.api_version, self.subresource);
        let kubectl = manager == "kubectl";
        let again = if kubectl && !force { managed.clone() } else { Managed::default() };
        let outcome = match self.merged(&live, patch, managed, &id, force) {
            // kubectl moves from client-side to server-side apply without conflicts over what it applied itself.
            Err(ApplyError::Conflicts(conflicts)) if kubectl => match last_applied::owned(self, &live) {
                None => return Err(ApplyError::Conflicts(conflicts)),
                Some(owned) => {
                    let others: Vec<Conflict> = conflicts.into_iter().filter(|c| !owned.has(&c.path)).collect();
                    if !others.is_empty() {
                        return Err(ApplyError::Conflicts(others));
                    }
                    self.merged(&live, patch, again, &id, true)?
                }
            },
            outcome => outcome?,
        };
        let Outcome { object, mut managed } = outcome;
        if let Some(entry) = managed.get_mut(&id) {
            if object.is_some() {
                entry.time = Some(now.to_owned());
            }
            let stripped = entry.set().map_err(UpdateError::from)?.difference(&STRIPPED);
            entry.fields = Fields::Set(stripped);
        }
        managed.drop_empty();
        let mut object = object.unwrap_or(live);
        put_managed(&mut object, managed.write());
        if kubectl {
            last_applied::renew(&mut object, patch);
        }
        Ok(object)
    }

    /// The patch must name its type, and no managers.
    fn check_patch(&self, patch: &Value) -> Result<(), ApplyError> {
        let text = |name: &str| patch.get(name).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != self.api_version || kind != self.kind {
            let slash = if api_version.contains('/') { "" } else { "/" };
            return Err(ApplyError::BadRequest(format!("invalid object type: {slash}{api_version}, Kind={kind}")));
        }
        if managed_of(patch).is_some_and(Value::is_array) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        Ok(())
    }

    fn check_typed(&self, object: &Value, duplicates: bool, what: &str, named: &Value) -> Result<(), ApplyError> {
        validate(object, self.schema, duplicates).map_err(|errors| {
            let meta =
                |name: &str| named.get("metadata").and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or("");
            let slash = if self.api_version.contains('/') { "" } else { "/" };
            let what = format!(
                "failed to create typed {what} object ({}/{}; {slash}{}, Kind={})",
                meta("namespace"),
                meta("name"),
                self.api_version,
                self.kind,
            );
            ApplyError::Misfit { what, errors }
        })
    }

    /// Merges, prunes and compares.
    fn merged(
        &self,
        live: &Value,
        patch: &Value,
        mut managed: Managed,
        id: &ManagerId,
        force: bool,
    ) -> Result<Outcome, ApplyError> {
        self.reconcile(&mut managed, live)?;
        let merged = merge(live, patch, self.schema)
            .map_err(|error| ApplyError::Invalid(format!("failed to merge config: {error}")))?;
        let set = self.reset.keep(to_field_set(patch, self.schema));
        let (last, time) = match managed.take(id) {
            Some(mut entry) => {
                let fields = std::mem::take(entry.set().map_err(UpdateError::from)?);
                (Some(Last { fields, api_version: entry.api_version }), entry.time)
            }
            None => (None, None),
        };
        // What was applied before is applied again, with content: nothing can go. With managers of other versions it is done
        // nevertheless: whether the object can be converted shows first there.
        let needless = last.as_ref().is_none_or(|last| {
            let one_version = || managed.entries.iter().all(|entry| entry.api_version == self.api_version);
            last.fields.is_empty()
                || last.api_version == self.api_version
                    && last.fields.difference(&set).is_empty()
                    && !hollow(patch)
                    && one_version()
        });
        let pruned = match last {
            Some(last) if !needless => Cow::Owned(prune(self, &merged, &set, &mut managed, &last)?),
            _ => Cow::Borrowed(&merged),
        };
        self.settle(live, &pruned, &mut managed, force)?;
        let own =
            ManagedEntry { id: id.clone(), api_version: self.api_version.to_owned(), time, fields: Fields::Set(set) };
        managed.entries.push(own);
        let object = (!same(live, &pruned)).then(|| pruned.into_owned());
        Ok(Outcome { object, managed })
    }

    /// Takes from the other managers what the new object changes or lacks; without `force` a change is a conflict.
    fn settle(&self, live: &Value, new: &Value, managed: &mut Managed, force: bool) -> Result<(), ApplyError> {
        let comparison = self.compared(live, new)?;
        let changed_and_removed =
            |comparison: super::Comparison| (comparison.modified.union(&comparison.added), comparison.removed);
        let own = changed_and_removed(comparison);
        let mut others: Vec<(String, Option<(FieldSet, FieldSet)>)> = Vec::new();
        let mut conflicts: Vec<(String, ManagerId, FieldSet)> = Vec::new();
        let mut kept = Vec::with_capacity(managed.entries.len() + 1);
        for mut entry in std::mem::take(&mut managed.entries) {
            let (changed, removed) = if entry.api_version == self.api_version {
                (&own.0, &own.1)
            } else {
                let at = match others.iter().position(|(version, _)| *version == entry.api_version) {
                    Some(at) => at,
                    None => {
                        let seen = self.compared_in(&entry.api_version, live, new)?;
                        others.push((entry.api_version.clone(), seen.map(changed_and_removed)));
                        others.len() - 1
                    }
                };
                match &others[at].1 {
                    Some((changed, removed)) => (changed, removed),
                    None => continue,
                }
            };
            if !changed.is_empty() || !removed.is_empty() {
                let set = entry.set().map_err(UpdateError::from)?;
                let taken = set.intersection(changed);
                let left = set.difference(&taken).difference(removed);
                if !taken.is_empty() {
                    conflicts.push((entry.id.sort_key(), entry.id.clone(), taken));
                }
                entry.fields = Fields::Set(left);
            }
            if !entry.is_empty() {
                kept.push(entry);
            }
        }
        managed.entries = kept;
        if force || conflicts.is_empty() {
            return Ok(());
        }
        conflicts.sort_by(|l, r| l.0.cmp(&r.0));
        let each = |(_, manager, set): (String, ManagerId, FieldSet)| {
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        };
        Err(ApplyError::Conflicts(conflicts.into_iter().flat_map(each).collect()))
    }
}

/// Whether a null or an empty object stands anywhere: they own a field without saying what is in it.
fn hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty() || fields.values().any(hollow),
        Value::Array(items) => items.iter().any(hollow),
        _ => false,
    }
}
