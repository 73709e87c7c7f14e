//! `metadata.managedFields`: who manages which fields.

use serde_json::{Map, Value};

use super::error::ManagedError;
use super::set::FieldSet;
use super::time;

/// What a manager did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Applied a configuration.
    Apply,
    /// Created, updated or patched.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who: there is one entry for each. One name that applies and updates is two managers; those who apply stay the same
/// manager from version to version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagerId {
    /// The name.
    pub manager: String,
    /// What it did.
    pub operation: Operation,
    /// The version it used; empty for [`Operation::Apply`].
    pub api_version: String,
    /// The subresource it wrote, empty for the object itself.
    pub subresource: String,
}

impl ManagerId {
    /// The manager of an operation.
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        ManagerId {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// What managers are sorted by where nothing else decides: Kubernetes' own text for them.
    pub(crate) fn sort_key(&self) -> String {
        let mut text = String::from("{");
        for (name, value) in [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.name()),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ] {
            if !value.is_empty() {
                text.push_str(if text.len() > 1 { ",\"" } else { "\"" });
                text.push_str(name);
                text.push_str("\":");
                super::path::write_json(&Value::from(value), &mut text);
            }
        }
        text.push('}');
        text
    }
}

/// The fields of an entry: left as JSON until somebody must look inside.
#[derive(Clone, Debug)]
pub(crate) enum Fields {
    Raw(Value),
    Set(FieldSet),
}

/// What is wrong with `metadata.managedFields`.
pub fn check_managers(list: Option<&Value>) -> Result<(), ManagedError> {
    for (at, entry) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
        ManagedEntry::read(at, entry.clone())?.set()?;
    }
    Ok(())
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, Debug)]
pub(crate) struct ManagedEntry {
    pub(crate) id: ManagerId,
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields,
}

impl ManagedEntry {
    /// Reads an entry; its fields are not looked at yet.
    fn read(at: usize, entry: Value) -> Result<Self, ManagedError> {
        let Value::Object(mut entry) = entry else { return Err(ManagedError::NotAnObject(at)) };
        let mut text = |name: &str| match entry.get_mut(name) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        };
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedError::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(ManagedError::ApiVersion);
        }
        let fields_type = text("fieldsType");
        if fields_type != "FieldsV1" {
            return Err(ManagedError::FieldsType(fields_type, at));
        }
        let id = ManagerId {
            manager: text("manager"),
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
            subresource: text("subresource"),
        };
        let time = time::normal(text("time"));
        let fields = match entry.get_mut("fieldsV1") {
            Some(fields) => Fields::Raw(fields.take()),
            None => Fields::Set(FieldSet::new()),
        };
        Ok(ManagedEntry { id, api_version, time, fields })
    }

    /// The fields, read now if they were not yet.
    pub(crate) fn set(&mut self) -> Result<&mut FieldSet, ManagedError> {
        if let Fields::Raw(raw) = &self.fields {
            // A missing or empty object at the top is the empty set.
            let set = if raw.is_null() { FieldSet::new() } else { FieldSet::from_json(raw)? };
            self.fields = Fields::Set(set);
        }
        match &mut self.fields {
            Fields::Set(set) => Ok(set),
            Fields::Raw(_) => Err(ManagedError::NotAnObject(0)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Raw(Value::Object(map)) => map.is_empty(),
            Fields::Raw(other) => other.is_null(),
            Fields::Set(set) => set.is_empty(),
        }
    }

    fn write(self) -> Value {
        let mut entry = Map::new();
        let texts = [
            ("manager", self.id.manager),
            ("operation", self.id.operation.name().to_owned()),
            ("apiVersion", self.api_version),
            ("time", self.time.unwrap_or_default()),
            ("fieldsType", "FieldsV1".to_owned()),
            ("subresource", self.id.subresource),
        ];
        for (name, text) in texts {
            if !text.is_empty() {
                entry.insert(name.to_owned(), Value::String(text));
            }
        }
        let fields = match self.fields {
            Fields::Raw(raw) => raw,
            Fields::Set(set) => set.to_json(),
        };
        entry.insert("fieldsV1".to_owned(), fields);
        Value::Object(entry)
    }
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managed {
    pub(crate) entries: Vec<ManagedEntry>,
}

impl Managed {
    /// Reads `metadata.managedFields`, its sets only on demand.
    pub(crate) fn read(value: Value) -> Result<Self, ManagedError> {
        let Value::Array(values) = value else { return Ok(Managed::default()) };
        let mut managed = Managed { entries: Vec::with_capacity(values.len()) };
        for (at, value) in values.into_iter().enumerate() {
            let entry = ManagedEntry::read(at, value)?;
            match managed.get_mut(&entry.id) {
                Some(same) => *same = entry,
                None => managed.entries.push(entry),
            }
        }
        Ok(managed)
    }

    /// Reads all sets.
    pub(crate) fn read_sets(&mut self) -> Result<(), ManagedError> {
        self.entries.iter_mut().try_for_each(|entry| entry.set().map(|_| ()))
    }

    pub(crate) fn get_mut(&mut self, id: &ManagerId) -> Option<&mut ManagedEntry> {
        self.entries.iter_mut().find(|entry| entry.id == *id)
    }

    pub(crate) fn take(&mut self, id: &ManagerId) -> Option<ManagedEntry> {
        let at = self.entries.iter().position(|entry| entry.id == *id)?;
        Some(self.entries.remove(at))
    }

    pub(crate) fn drop_empty(&mut self) {
        self.entries.retain(|entry| !entry.is_empty());
    }

    /// Writes `metadata.managedFields`, sorted as Kubernetes sorts; nothing if there are no managers.
    pub(crate) fn write(mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.sort_by(|l, r| {
            let seconds = |entry: &ManagedEntry| entry.time.as_deref().and_then(time::seconds).unwrap_or(0);
            (l.id.operation.cmp(&r.id.operation))
                .then_with(|| seconds(l).cmp(&seconds(r)))
                .then_with(|| l.id.manager.cmp(&r.id.manager))
                .then_with(|| l.api_version.cmp(&r.api_version))
                .then_with(|| l.id.subresource.cmp(&r.id.subresource))
        });
        Some(Value::Array(self.entries.into_iter().map(ManagedEntry::write).collect()))
    }
}

/// How many entries of updates are kept apart.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that older updates are gathered under.
const ANCIENT: &str = "ancient-changes";

/// Gathers the oldest updates into one entry for each version until at most [`MAX_UPDATE_MANAGERS`] are left.
pub(crate) fn cap(managed: &mut Managed) -> Result<(), ManagedError> {
    let updates = managed.entries.iter().filter(|entry| entry.id.operation == Operation::Update);
    let mut oldest: Vec<(i64, String, ManagerId)> = updates
        .map(|e| (e.time.as_deref().and_then(time::seconds).unwrap_or(0), e.id.sort_key(), e.id.clone()))
        .collect();
    let mut count = oldest.len();
    if count <= MAX_UPDATE_MANAGERS {
        return Ok(());
    }
    oldest.sort_by(|l, r| (l.0, &l.1).cmp(&(r.0, &r.1)));
    // The first of a version stays as it is until there is a second to join it with.
    let mut first_of: Vec<(String, ManagerId)> = Vec::new();
    for (_, _, id) in oldest {
        if count <= MAX_UPDATE_MANAGERS {
            break;
        }
        let Some((_, first)) = first_of.iter().find(|(version, _)| *version == id.api_version) else {
            first_of.push((id.api_version.clone(), id));
            continue;
        };
        let bucket = ManagerId::new(ANCIENT, Operation::Update, &id.api_version, "");
        if managed.get_mut(&bucket).is_none()
            && let Some(entry) = managed.get_mut(first)
        {
            entry.id = bucket.clone();
        }
        if id == bucket {
            // The bucket itself is the younger of the two: it stays, and only the count matters.
            continue;
        }
        let Some(mut joined) = managed.take(&id) else { continue };
        let set = joined.set()?.clone();
        if let Some(entry) = managed.get_mut(&bucket) {
            let both = set.union(entry.set()?);
            entry.fields = Fields::Set(both);
            entry.time = joined.time;
        }
        count -= 1;
    }
    Ok(())
}
