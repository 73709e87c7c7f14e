//! The managers of the `scale` subresource: those of the object's replicas, seen as managers of a Scale.

use serde_json::Value;

use super::error::ManagedError;
use super::managed::{Fields, Managed, ManagedEntry};
use super::path::Path;
use super::set::FieldSet;

/// The version a Scale has.
pub const SCALE_VERSION: &str = "autoscaling/v1";

/// Where the replicas are, in every version of a kind; none for versions without a scale subresource.
#[derive(Clone, Debug, Default)]
pub struct ReplicaPaths(pub Vec<(String, Option<Path>)>);

impl ReplicaPaths {
    /// A kind of one version with `spec.replicas`.
    pub fn standard(api_version: &str) -> Self {
        ReplicaPaths(vec![(api_version.to_owned(), Some(replicas()))])
    }

    fn of(&self, api_version: &str) -> Option<Option<&Path>> {
        self.0.iter().find(|(version, _)| version == api_version).map(|(_, path)| path.as_ref())
    }
}

fn replicas() -> Path {
    Path::fields(&["spec", "replicas"])
}

fn read(managed: Option<&Value>) -> Result<Managed, ManagedError> {
    let mut managed = Managed::read(managed.cloned().unwrap_or_default())?;
    managed.read_sets()?;
    Ok(managed)
}

fn only(path: Path) -> Fields {
    Fields::Set(FieldSet::from_iter([path]))
}

/// The managedFields of the Scale of an object with these managedFields.
pub fn scale_managers(parent: Option<&Value>, paths: &ReplicaPaths) -> Result<Option<Value>, ManagedError> {
    let mut scale = Managed::default();
    for mut entry in read(parent)?.entries {
        let Some(Some(path)) = paths.of(&entry.api_version) else { continue };
        if entry.set()?.has(path) {
            scale.entries.push(ManagedEntry {
                fields: only(replicas()),
                api_version: SCALE_VERSION.to_owned(),
                ..entry
            });
        }
    }
    Ok(scale.write())
}

/// The managedFields of an object after its Scale was written and has the managedFields `scale` now.
///
/// Who wrote the Scale gets the replicas, without a time, as in Kubernetes.
pub fn parent_managers(
    parent: Option<&Value>,
    scale: Option<&Value>,
    api_version: &str,
    paths: &ReplicaPaths,
) -> Result<Option<Value>, ManagedError> {
    let mut of_scale = read(scale)?;
    let mut out = Managed::default();
    for mut entry in read(parent)?.entries {
        let Some(path) = paths.of(&entry.api_version) else { continue };
        let Some(path) = path.filter(|path| entry.set().is_ok_and(|set| set.has(path))) else {
            out.entries.push(entry);
            continue;
        };
        // As in Kubernetes, those who update have the Scale's version in their identity there and never find their
        // entry again: they lose the replicas to an entry of their own, without a time.
        if of_scale.take(&entry.id).is_none() {
            let left = entry.set()?.difference(&FieldSet::from_iter([path.clone()]));
            entry.fields = Fields::Set(left);
        }
        out.entries.push(entry);
    }
    let path = paths.of(api_version).flatten().cloned().unwrap_or_else(replicas);
    for mut entry in of_scale.entries {
        if entry.set()?.has(&replicas()) {
            if !entry.id.api_version.is_empty() {
                entry.id.api_version = api_version.to_owned();
            }
            out.entries.push(ManagedEntry {
                id: entry.id,
                api_version: api_version.to_owned(),
                time: None,
                fields: only(path.clone()),
            });
        }
    }
    out.drop_empty();
    Ok(out.write())
}
