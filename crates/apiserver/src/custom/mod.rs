//! Custom resources: what a CustomResourceDefinition makes of the objects it defines.

pub mod charge;
pub mod check;
mod columns;
mod conversion;
mod definition;
mod rules;

use std::sync::Arc;

use machinery::apply::{ConvertError, Converter};
use machinery::field;
use machinery::schema::{Schema, Structural};
use machinery::status::Status;
use serde_json::Value;
use store::{Entry, Memo};

pub use conversion::Webhook;
pub use definition::{Definition, Version};

use crate::resource::Decoded;

/// One served version of a custom resource.
#[derive(Debug)]
pub struct Custom {
    definition: Arc<Definition>,
    at: usize,
}

impl Custom {
    /// A version of a definition, by its place.
    pub fn new(definition: Arc<Definition>, at: usize) -> Custom {
        Custom { definition, at }
    }

    fn version(&self) -> &Version {
        &self.definition.versions[self.at]
    }

    fn structural(&self) -> &Structural {
        self.definition.structural(self.at)
    }

    /// The CustomResourceDefinition's name.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The warning that every use of a deprecated version gets.
    pub fn deprecation(&self) -> Option<&str> {
        self.version().deprecation.as_deref()
    }

    /// The schema, with apiVersion, kind and metadata.
    pub fn schema(&self) -> Schema<'_> {
        self.structural().full_schema()
    }

    /// Reads an object: unknown fields are pruned and reported.
    pub fn decode(&self, mut object: Value) -> Result<Decoded, Status> {
        let metadata = crate::resource::object_meta();
        let dropped = self.structural().coerce(&mut object, metadata).map_err(|error| self.unreadable(&error))?;
        // The object's own metadata comes first, that of embedded ones last.
        let own = |problem: &String| problem.starts_with("unknown field \"metadata.");
        let (mut strict, embedded): (Vec<String>, Vec<String>) = dropped.into_iter().partition(own);
        let mut pruned = self.structural().prune(&mut object);
        pruned.sort();
        strict.extend(pruned);
        strict.extend(embedded);
        Ok(Decoded { object, strict, said: Vec::new() })
    }

    fn unreadable(&self, error: &field::Error) -> Status {
        let (kind, version) = (&self.definition.kind, &self.version().name);
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}"))
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        self.structural().default(object);
    }

    /// Fills in the defaults of the part of an object that a request writes; the rest stays as it was stored, whatever
    /// defaults the version of the request has for it.
    pub fn default_part(&self, subresource: &str, object: &mut Value) {
        if !self.version().status {
            return self.default(object);
        }
        let take = |object: &mut Value| object.as_object_mut().and_then(|fields| fields.remove("status"));
        let mut status = take(object);
        if subresource == "status" {
            let mut part = Value::Object(status.into_iter().map(|status| ("status".to_owned(), status)).collect());
            self.default(&mut part);
            status = take(&mut part);
        } else {
            self.default(object);
            take(object);
        }
        if let (Some(fields), Some(status)) = (object.as_object_mut(), status) {
            fields.insert("status".into(), status);
        }
    }

    /// Fills in defaults and leaves nulls alone.
    pub fn fill(&self, object: &mut Value) {
        self.structural().fill(object);
    }

    /// Brings the metadata of a merged object into shape.
    pub fn settle(&self, mut object: Value) -> Result<Value, Status> {
        match self.structural().coerce(&mut object, crate::resource::object_meta()) {
            Ok(_) => Ok(object),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// A new object: no status if that is written on its own, the first generation.
    pub fn prepare_create(&self, object: &mut Value) {
        if self.version().status {
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
        }
        crate::write::meta_mut(object).insert("generation".into(), 1.into());
    }

    /// A changed object: the status stays if it is written on its own; the generation counts changes of everything else.
    pub fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.version().status {
            if let Some(fields) = new.as_object_mut() {
                match old.get("status") {
                    Some(status) => fields.insert("status".into(), status.clone()),
                    None => fields.remove("status"),
                };
            }
        }
        let has_status = self.version().status;
        let differs = |field: &String| {
            field != "metadata" && !(has_status && field == "status") && new.get(field) != old.get(field)
        };
        let keys =
            |object: &Value| object.as_object().map(|f| f.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        let changed = keys(new).iter().any(differs) || keys(old).iter().any(differs);
        if changed {
            count(new, old);
        }
    }

    /// Whether fields that reading changes make an update of what is otherwise as before. Those of the spec count.
    pub fn count_unsettled(&self, subresource: &str, fields: &[String], new: &mut Value, old: &Value) -> bool {
        let status = self.version().status;
        let mut written = fields.iter().filter(|field| match subresource {
            "status" => *field == "status",
            _ => !status || *field != "status",
        });
        let unsettled = written.clone().next().is_some();
        if subresource.is_empty() && written.any(|field| field != "metadata") {
            count(new, old);
        }
        unsettled
    }

    /// A changed status: everything else stays, save some metadata.
    pub fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").cloned();
        let managed = new["metadata"].get("managedFields").cloned();
        let mut object = old.clone();
        if let Some(fields) = object.as_object_mut() {
            match status {
                Some(status) => fields.insert("status".into(), status),
                None => fields.remove("status"),
            };
        }
        if old["status"].is_null() && object["status"].is_null() {
            // Nothing was there and null is no change: a schema that has no null drops it and refuses nothing.
            self.default_part("status", &mut object);
        }
        let meta = crate::write::meta_mut(&mut object);
        match managed {
            Some(managed) => meta.insert("managedFields".into(), managed),
            None => meta.remove("managedFields"),
        };
        *new = object;
    }

    /// What is wrong with an object. With `old`, what did not change is let pass, at most with a warning.
    pub fn validate(
        &self,
        subresource: &str,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> field::Errors {
        let version = self.version();
        let mut errors = match subresource {
            "status" => self.structural().validate_status(new, old),
            _ => self.structural().validate(new, old),
        };
        if let Some((spec, status, selector)) = &version.scale {
            errors.extend([spec, status].into_iter().filter_map(|path| replicas(new, path)));
            if let Err(why) = nested(new, selector, Value::is_string, "string") {
                errors.push(field::Error::invalid(&field::Path::root(&selector.replace('/', ".")), "", why));
            }
        }
        if let Some(rules) = self.definition.rules(self.at) {
            use field::Kind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            // Rules rely on the schema's types and bounds: what does not fit those is not shown to them.
            let blocks =
                |error: &field::Error| matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid);
            if errors.iter().any(blocks) {
                let why = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";
                errors.push(field::Error::invalid(&field::Path::root("<nil>"), Value::Null, why));
            } else {
                let before = old.map(|old| self.structural().before(old));
                errors.extend(rules.validate(new, old, before, warnings));
            }
        }
        errors
    }

    /// The selectable fields.
    pub fn fields(&self, object: &Value) -> Vec<(String, String)> {
        self.version().selectable.iter().map(|path| (path.name.clone(), path.text(object))).collect()
    }

    /// The names of the selectable fields.
    pub fn selectable(&self) -> impl Iterator<Item = &str> {
        self.version().selectable.iter().map(|path| &*path.name)
    }

    /// Whether a field is selectable.
    pub fn selects(&self, field: &str) -> bool {
        self.version().selectable.iter().any(|path| path.name == field)
    }

    /// Whether it is the version that is stored.
    pub fn is_storage(&self) -> bool {
        self.definition.storage() == self.at
    }

    /// Whether an entry was written in this version and under this schema, so that its bytes can be shown as they are.
    pub fn is_current(&self, entry: &Entry) -> bool {
        let since = self.definition.since.load(std::sync::atomic::Ordering::Relaxed);
        self.version().storage && entry.revision > since || entry.memo.get::<Shown>().is_some()
    }

    /// Who converts between this version and others.
    pub fn webhook(&self) -> Option<&Webhook> {
        self.definition.webhook.as_ref()
    }

    /// Entries as this version shows them, as far as a webhook is needed for it. Not to be called while a lock is held.
    /// `keep` is for what many watchers are shown.
    pub async fn show(&self, mut entries: Vec<Arc<Entry>>, keep: bool) -> Result<Vec<Arc<Entry>>, Status> {
        let Some(webhook) = self.webhook() else { return Ok(entries) };
        let own = self.definition.api_version(self.at);
        let (mut places, mut objects) = (Vec::new(), Vec::new());
        for (place, entry) in entries.iter_mut().enumerate() {
            if self.is_current(entry) {
                continue;
            }
            if let Some(kept) = webhook.kept(entry, self.at).filter(|_| keep) {
                *entry = kept;
                continue;
            }
            let object = crate::plan::parse_stored(entry)?;
            if object["apiVersion"] != own.as_str() {
                places.push(place);
                objects.push(self.as_stored(object)?);
            }
        }
        let converted = webhook.convert(objects, &own).await.map_err(failed)?;
        for (place, object) in places.into_iter().zip(converted) {
            let old = &entries[place];
            let memo = Memo::default();
            memo.get_or_init(|| Shown);
            let shown = Arc::new(Entry {
                key: old.key.clone(),
                value: serde_json::to_vec(&self.pruned(object)?).map_err(Status::internal)?.into(),
                created: old.created,
                revision: old.revision,
                memo,
            });
            if keep {
                webhook.keep(&shown, self.at);
            }
            entries[place] = shown;
        }
        Ok(entries)
    }

    /// A stored object as this version shows it, by webhook if need be.
    pub async fn shown(&self, object: Value) -> Result<Value, Status> {
        let own = self.definition.api_version(self.at);
        match self.webhook() {
            Some(webhook) if object["apiVersion"] != own.as_str() => {
                let object = self.as_stored(object)?;
                self.pruned(webhook.convert_one(object, &own).await.map_err(failed)?)
            }
            _ => Ok(self.read(object)),
        }
    }

    /// An object of this version as another version has it.
    pub async fn convert(&self, object: Value, to: &Custom) -> Result<Value, Status> {
        let api_version = to.definition.api_version(to.at);
        match self.webhook() {
            Some(webhook) if object["apiVersion"] != api_version.as_str() => {
                webhook.convert_one(object, &api_version).await.map_err(failed)
            }
            _ => {
                let mut object = object;
                object["apiVersion"] = api_version.into();
                Ok(object)
            }
        }
    }

    /// An object as the version that it is stored in has it.
    fn as_stored(&self, mut object: Value) -> Result<Value, Status> {
        let stored = object["apiVersion"].as_str().unwrap_or_default();
        let versions = &self.definition.versions;
        match (0..versions.len()).find(|at| self.definition.api_version(*at) == stored) {
            Some(at) => self.definition.structural(at).default(&mut object),
            None => {
                return Err(failed(format!("request to convert CR from an invalid group/version: {stored}")));
            }
        }
        Ok(object)
    }

    /// A converted object, without what this version does not know.
    fn pruned(&self, mut object: Value) -> Result<Value, Status> {
        let structural = self.structural();
        structural.coerce(&mut object, crate::resource::object_meta()).map_err(|error| failed(error.to_string()))?;
        structural.prune(&mut object);
        Ok(object)
    }

    /// A stored object as this version shows it: defaults that came later filled in, fields it does not know left out.
    pub fn read(&self, mut object: Value) -> Value {
        let own = self.definition.api_version(self.at);
        let stored = object["apiVersion"].as_str().unwrap_or_default();
        if stored != own {
            if let Some(at) =
                self.definition.versions.iter().position(|version| stored.ends_with(&format!("/{}", version.name)))
            {
                self.definition.structural(at).default(&mut object);
            }
            object["apiVersion"] = own.into();
            self.structural().prune(&mut object);
        } else {
            // The schema may have lost fields since.
            self.structural().prune(&mut object);
            self.structural().default(&mut object);
        }
        object
    }

    /// An object of this version as it is stored.
    pub async fn store(&self, mut object: Value) -> Result<Value, Status> {
        let storage = self.definition.storage();
        if storage == self.at {
            return Ok(object);
        }
        let api_version = self.definition.api_version(storage);
        match self.webhook() {
            Some(webhook) => object = webhook.convert_one(object, &api_version).await.map_err(failed)?,
            None => object["apiVersion"] = api_version.into(),
        }
        let structural = self.definition.structural(storage);
        structural.prune(&mut object);
        structural.default(&mut object);
        Ok(object)
    }

    /// Where replicas are wanted, replicas are counted, and the selector stands, as JSON pointers.
    pub fn scale(&self) -> Option<(String, String, String)> {
        self.version().scale.clone()
    }

    /// The same of all versions, each with its group; none for versions that do not scale.
    pub fn scales(&self) -> impl Iterator<Item = (String, Option<&(String, String, String)>)> {
        let versions = self.definition.versions.iter().enumerate();
        versions.map(|(at, version)| (self.definition.api_version(at), version.scale.as_ref()))
    }

    /// A table row.
    pub fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        columns::cells(&self.version().columns, object, now)
    }

    /// The columns of tables.
    pub fn columns(&self) -> Value {
        columns::definitions(&self.version().columns)
    }
}

/// What is wrong with replicas.
fn replicas(object: &Value, pointer: &str) -> Option<field::Error> {
    let path = field::Path::root(&pointer.replace('/', "."));
    let (count, why) = match nested(object, pointer, Value::is_i64, "int64") {
        Err(why) => (0, why),
        Ok(count) => match count.and_then(Value::as_i64).unwrap_or(0) {
            count @ ..0 => (count, "should be a non-negative integer".into()),
            count if count > i64::from(i32::MAX) => (count, format!("should be less than or equal to {}", i32::MAX)),
            _ => return None,
        },
    };
    Some(field::Error::invalid(&path, count, why))
}

/// A value deep in an object, which must be of a type if it is there; why not in the words of Kubernetes' accessors.
fn nested<'v>(
    object: &'v Value,
    pointer: &str,
    is: impl Fn(&Value) -> bool,
    wanted: &str,
) -> Result<Option<&'v Value>, String> {
    let names: Vec<&str> = pointer.split('/').skip(1).collect();
    let dotted = |names: &[&str]| format!(".{}", names.join("."));
    let wrong = |at: usize, value: &Value, wanted: &str| {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let kind = conversion::go_type(value);
        format!("{} accessor error: {shown} is of the type {kind}, expected {wanted}", dotted(&names[..at]))
    };
    let mut here = object;
    for (at, name) in names.iter().enumerate() {
        if here.is_null() {
            return Ok(None);
        }
        let Some(fields) = here.as_object() else { return Err(wrong(at + 1, here, "map[string]interface{}")) };
        match fields.get(*name) {
            Some(value) => here = value,
            None => return Ok(None),
        }
    }
    if names.is_empty() || is(here) { Ok(Some(here)) } else { Err(wrong(names.len(), here, wanted)) }
}

/// Marks an entry that has been converted to the version it is shown in.
struct Shown;

/// A conversion that failed, as Kubernetes answers it.
fn failed(why: String) -> Status {
    Status::new(500, "", why)
}

impl Converter for Definition {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError> {
        if !(0..self.versions.len()).any(|at| self.api_version(at) == api_version) {
            let why = format!("request to convert CR to an invalid group/version: {api_version}");
            return Err(ConvertError::Failed(why));
        }
        // Nothing is pruned: who has set fields that another manager's version does not know cannot be compared with it.
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(object)
    }

    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        let at = (0..self.versions.len()).find(|at| self.api_version(*at) == api_version)?;
        Some(self.structural(at).full_schema())
    }
}
/// A whole number is written as one, as Go does: 1, not 1.0. Until then they are not the same, there as here.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9.2e18) {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// What is said about new finalizers whose names others may use as well.
pub fn finalizer_warnings<'a>(new: &'a Value, old: &'a Value) -> impl Iterator<Item = String> {
    let of = |object: &'a Value| object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let added = of(new).filter(move |name| !of(old).any(|known| known == *name)).filter_map(Value::as_str);
    let common =
        added.filter(|name| !name.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(name));
    common.map(|name| {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )
    })
}

/// The next generation.
fn count(new: &mut Value, old: &Value) {
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    crate::write::meta_mut(new).insert("generation".into(), (generation + 1).into());
}
