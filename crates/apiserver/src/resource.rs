//! A resource as the server serves it: built in or custom, the same to every verb.

use std::sync::Arc;

use machinery::field;
use machinery::schema::{self, Said, Schema};
use machinery::status::Status;
use serde_json::Value;

use crate::custom::Custom;

/// A part of an object with verbs of its own.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, …
    pub name: Box<str>,
    /// The group, version and kind of what it takes and gives, where that differs from the resource's own.
    pub group: Box<str>,
    /// See `group`.
    pub version: Box<str>,
    /// See `group`.
    pub kind: Box<str>,
    /// What can be done with it.
    pub verbs: Vec<Box<str>>,
}

/// One resource of one group and version.
#[derive(Debug)]
pub struct Resource {
    /// The API group; empty for core.
    pub group: Box<str>,
    /// The API version.
    pub version: Box<str>,
    /// The kind of its objects.
    pub kind: Box<str>,
    /// The kind of its lists.
    pub list_kind: Box<str>,
    /// Its name in paths.
    pub plural: Box<str>,
    /// Its name for one.
    pub singular: Box<str>,
    /// Abbreviations.
    pub short_names: Vec<Box<str>>,
    /// Groups of resources it belongs to: `all`, …
    pub categories: Vec<Box<str>>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<Box<str>>,
    /// Its parts.
    pub subresources: Vec<Subresource>,
    /// The store's table. Versions of one resource share it.
    pub table: Arc<str>,
    /// Where its rules come from.
    pub nature: Nature,
}

/// Where the rules of a resource come from.
#[derive(Debug)]
pub enum Nature {
    /// The generated table and the rules beside it.
    BuiltIn(schema::Id),
    /// A CustomResourceDefinition.
    Custom(Arc<Custom>),
}

/// Whether a client says the same version: that of the core group may be written with a slash, `/v1`.
pub fn same_version(said: &str, own: &str) -> bool {
    said == own || (!own.contains('/') && said.strip_prefix('/') == Some(own))
}

/// An object as it was sent, understood.
pub struct Decoded {
    /// The object, with known fields only.
    pub object: Value,
    /// What strict validation objects to: `unknown field "spec.x"`, `duplicate field "data.y"`.
    pub strict: Vec<String>,
    /// Built-in kinds: what was sent in other words than the object has it in.
    pub said: Vec<Said>,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The version that its objects are stored in.
    pub fn storage_version(&self) -> &str {
        match &self.nature {
            Nature::BuiltIn(_) => &self.version,
            Nature::Custom(custom) => {
                let definition = custom.definition();
                &definition.versions[definition.storage()].name
            }
        }
    }

    /// The schema of its objects.
    pub fn schema(&self) -> Schema<'_> {
        match &self.nature {
            Nature::BuiltIn(id) => kinds::types().schema(*id),
            Nature::Custom(custom) => custom.schema(),
        }
    }

    /// Whether a verb is offered.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| **own == *verb)
    }

    /// A part of it.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| &*sub.name == name)
    }

    /// The store's key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// The store's key prefix of a namespace; everything if it is empty.
    pub fn prefix(&self, namespace: &str) -> String {
        if self.namespaced && !namespace.is_empty() { format!("{namespace}/") } else { String::new() }
    }

    /// Whether it is made by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        matches!(self.nature, Nature::Custom(_))
    }

    /// Whether discovery shows it.
    pub fn is_announced(&self) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.definition().announced.load(std::sync::atomic::Ordering::Relaxed),
            Nature::BuiltIn(_) => true,
        }
    }

    /// Lets discovery show it.
    pub fn announce(&self) {
        if let Nature::Custom(custom) = &self.nature {
            custom.definition().announced.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// What its objects are charged by, if its definition says so.
    pub fn charge(&self) -> Option<&crate::custom::charge::Charge> {
        match &self.nature {
            Nature::Custom(custom) => custom.definition().charge.as_ref(),
            Nature::BuiltIn(_) => None,
        }
    }

    /// Whether its objects are secrets themselves: what is in them is said in no error text, for those go into logs.
    pub fn is_secret(&self) -> bool {
        self.gk() == ("", "Secret")
    }

    /// Group and kind, by which rules are found.
    pub fn gk(&self) -> (&str, &str) {
        (&self.group, &self.kind)
    }

    /// Checks apiVersion and kind, reads the fields, drops and reports unknown ones.
    pub fn decode(&self, object: Value) -> Result<Decoded, Status> {
        // Null is an object without fields, as in Go.
        let object = if object.is_null() && !self.is_custom() { Value::Object(Default::default()) } else { object };
        let fields = object.as_object().ok_or_else(|| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {0}): couldn't get version/kind; json parse error: expected an object of kind {0}",
                self.kind
            ))
        })?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let own = self.api_version();
        if kind.is_empty() && self.is_custom() {
            return Err(Status::bad_request(format!(
                "Object 'Kind' is missing: set kind: {} and apiVersion: {own}",
                self.kind
            )));
        }
        if self.is_custom() && api_version == own && *kind != *self.kind {
            let name = fields.get("metadata").and_then(|meta| meta["name"].as_str()).unwrap_or_default();
            let why = format!("must be {}", self.kind);
            let error = field::Error::invalid(&field::Path::root("kind"), kind, why);
            return Err(Status::invalid(&self.group, kind, name, &[error]));
        }
        let other = !api_version.is_empty() && !same_version(api_version, &own);
        if other || (!kind.is_empty() && *kind != *self.kind) {
            return Err(self.of_another_kind(api_version, kind, other));
        }
        match &self.nature {
            Nature::BuiltIn(id) => {
                let mut object = object;
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("apiVersion".into(), own.into());
                    fields.insert("kind".into(), (*self.kind).into());
                }
                decode_builtin(kinds::types().schema(*id), &self.kind, &self.version, object)
            }
            Nature::Custom(custom) => custom.decode(object),
        }
    }

    /// 400 for an object of another version or kind.
    fn of_another_kind(&self, api_version: &str, kind: &str, other: bool) -> Status {
        if api_version.matches('/').count() > 1 {
            return Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): unexpected GroupVersion string: {api_version}",
                self.kind
            ));
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let readable = || *kind == *self.kind && kinds::schema_of(group, version, kind).is_some();
        if other && (self.is_custom() || readable()) {
            return Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                self.api_version()
            ));
        }
        let version = if version.is_empty() { &self.version } else { version };
        Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: no kind {kind:?} is registered for version {api_version:?}",
            self.kind
        ))
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.internally(object, |object| {
                schema::apply_openapi_defaults(object, self.internal_schema());
                kinds::defaults::apply(self.internal_group(), &self.kind, object);
            }),
            Nature::Custom(custom) => custom.default(object),
        }
    }

    /// Fills in the defaults of what a request has changed, before it is stored.
    pub fn default_part(&self, subresource: &str, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.default(object),
            Nature::Custom(custom) => custom.default_part(subresource, object),
        }
    }

    /// Fills in the defaults of an object that was applied: what is null in it stays, to be refused.
    pub fn fill(&self, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.default(object),
            Nature::Custom(custom) => custom.fill(object),
        }
    }

    /// Brings a merged object into the form that reading it would give: merging leaves empty fields behind.
    pub fn settle(&self, object: Value) -> Result<Decoded, Status> {
        match &self.nature {
            Nature::BuiltIn(_) => self.decode(object),
            Nature::Custom(custom) => {
                Ok(Decoded { object: custom.settle(object)?, strict: Vec::new(), said: Vec::new() })
            }
        }
    }

    /// Counts what was sent empty where there is nothing as a change, for the kinds that do.
    pub fn count_empty(&self, subresource: &str, said: &[Said], new: &mut Value, old: &Value) {
        if subresource.is_empty() && !self.is_custom() {
            let empty = said.iter().filter(|said| said.value.is_array() || said.value.is_object());
            kinds::strategy::count_empty(&self.group, &self.kind, empty.map(|said| &*said.place), new, old);
        }
    }

    /// Whether fields that settling changed make an update of what is otherwise as before.
    pub fn count_unsettled(&self, subresource: &str, fields: &[String], new: &mut Value, old: &Value) -> bool {
        match &self.nature {
            Nature::BuiltIn(_) => false,
            Nature::Custom(custom) => custom.count_unsettled(subresource, fields, new, old),
        }
    }

    /// Makes an object ready to be created: nothing a client may not set is set.
    pub fn prepare_create(&self, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.internally(object, |object| {
                kinds::strategy::prepare_create(self.internal_group(), &self.kind, object);
            }),
            Nature::Custom(custom) => custom.prepare_create(object),
        }
    }

    /// Makes an object ready to replace `old`, or a part of it.
    pub fn prepare_update(&self, subresource: &str, new: &mut Value, old: &Value, now: &str) {
        match (&self.nature, subresource) {
            // Where a Pod is put is no change of what it should be: its generation stays, its status says so.
            (Nature::BuiltIn(_), "binding") => {}
            (Nature::BuiltIn(_), subresource) => {
                let (group, old) = (self.internal_group(), &*self.internal(old));
                self.internally(new, |new| match subresource {
                    "" | "scale" => kinds::strategy::prepare_update(group, &self.kind, new, old),
                    _ => kinds::strategy::prepare_subresource_update(group, &self.kind, subresource, new, old, now),
                });
            }
            (Nature::Custom(custom), "status") => custom.prepare_status_update(new, old),
            (Nature::Custom(custom), _) => custom.prepare_update(new, old),
        }
    }

    /// What is wrong with a new object.
    pub fn validate_create(&self, object: &Value) -> field::Errors {
        match &self.nature {
            Nature::BuiltIn(_) => {
                let object = &*self.internal(object);
                // Two kinds are first asked for the little that was ever asked of them.
                let late = matches!(self.gk(), ("", "Event") | ("policy", "PodDisruptionBudget"));
                let mut errors = if late { field::Errors::new() } else { self.validate_meta(object) };
                if self.gk() == CRD {
                    errors.extend(crate::custom::check::create(object));
                } else {
                    errors.extend(kinds::validate::create(&self.group, &self.kind, object));
                    if crate::policies::check::applies(&self.group) {
                        errors.extend(crate::policies::check::check(&self.kind, object));
                    }
                    if &*self.group == "resource.k8s.io" {
                        errors.extend(crate::plugins::devices::check(&self.kind, object));
                    }
                    if self.gk() == ("certificates.k8s.io", "CertificateSigningRequest") {
                        errors.extend(crate::plugins::certificates::check(object));
                    }
                }
                if errors.is_empty() {
                    // Whatever a kind allows, a name is part of a path.
                    let (meta, path) = (&object["metadata"], field::Path::root("metadata"));
                    let rule = machinery::names::name_is_path_segment;
                    errors = machinery::meta::validate_object_meta(meta, self.namespaced, rule, &path);
                }
                errors
            }
            Nature::Custom(custom) => {
                let mut errors = self.validate_meta(object);
                errors.extend(custom.validate("", object, None, &mut Vec::new()));
                errors
            }
        }
    }

    /// What is wrong with a changed object; `warnings` are about what was wrong before and is let pass.
    pub fn validate_update(
        &self,
        subresource: &str,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> field::Errors {
        let path = field::Path::root("metadata");
        let (new, old) = (&*self.internal(new), &*self.internal(old));
        let mut errors = machinery::meta::validate_object_meta_update(&new["metadata"], &old["metadata"], &path);
        match &self.nature {
            Nature::BuiltIn(_) if self.gk() == CRD => {
                if subresource.is_empty() {
                    errors.extend(crate::custom::check::update(new, old));
                }
            }
            Nature::BuiltIn(_) if subresource == "status" => {
                errors.extend(kinds::validate::status_update(&self.group, &self.kind, new, old));
            }
            Nature::BuiltIn(_) if subresource.is_empty() || subresource == "scale" => {
                errors.extend(kinds::validate::update(&self.group, &self.kind, new, old));
                if self.gk() == ("resource.k8s.io", "DeviceClass") && new["spec"] != old["spec"] {
                    errors.extend(crate::plugins::devices::check(&self.kind, new));
                }
                if crate::policies::check::applies(&self.group)
                    && (new["spec"] != old["spec"] || new["webhooks"] != old["webhooks"])
                {
                    errors.extend(crate::policies::check::check(&self.kind, new));
                }
            }
            Nature::BuiltIn(_) => {
                errors.extend(kinds::validate::subresource_update(&self.group, &self.kind, subresource, new, old));
            }
            Nature::Custom(custom) => errors.extend(custom.validate(subresource, new, Some(old), warnings)),
        }
        errors
    }

    fn validate_meta(&self, object: &Value) -> field::Errors {
        let rule = match &self.nature {
            Nature::BuiltIn(_) => kinds::validate::name_rule(&self.group, &self.kind),
            Nature::Custom(_) => machinery::names::name_is_subdomain,
        };
        let path = field::Path::root("metadata");
        let mut errors = machinery::meta::validate_object_meta(&object["metadata"], self.namespaced, rule, &path);
        if !self.is_custom() {
            errors.extend(kinds::validate::finalizers(&self.group, &self.kind, object));
        }
        errors
    }

    /// Whether the status can be written on its own only.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// The fields that field selectors know, with their values.
    pub fn fields(&self, object: &Value) -> Vec<(String, String)> {
        let meta = &object["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap_or_default().to_owned();
        let mut fields =
            vec![("metadata.name".to_owned(), text("name")), ("metadata.namespace".to_owned(), text("namespace"))];
        match &self.nature {
            Nature::BuiltIn(_) => fields.extend(
                kinds::fields::selectable(&self.group, &self.kind, object)
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value)),
            ),
            Nature::Custom(custom) => fields.extend(custom.fields(object)),
        }
        fields
    }

    /// Whether a field selector may name a field.
    pub fn selects(&self, field: &str) -> bool {
        // Of built-in kinds without fields of their own, those that are in no namespace can be asked for it, too.
        let plain = || match &self.nature {
            Nature::BuiltIn(_) => kinds::fields::supported(&self.group, &self.kind).is_empty(),
            Nature::Custom(_) => false,
        };
        field == "metadata.name"
            || (field == "metadata.namespace" && (self.namespaced || plain()))
            || match &self.nature {
                Nature::BuiltIn(_) => kinds::fields::supported(&self.group, &self.kind).contains(&field),
                Nature::Custom(custom) => custom.selects(field),
            }
    }

    /// What a client is told that selects by a field that cannot be selected by.
    pub fn unknown_field(&self, field: &str) -> String {
        // Kinds that can be selected by fields of their own are asked in their own words.
        let own = match &self.nature {
            Nature::BuiltIn(_) => match self.gk() {
                ("batch", "Job") => return format!("field label {field:?} not supported for Job"),
                ("resource.k8s.io", "ResourceSlice") => {
                    return format!(
                        "field label not supported for {}, Kind={}: {field}",
                        self.api_version(),
                        self.kind
                    );
                }
                (group, kind) => !kinds::fields::supported(group, kind).is_empty(),
            },
            Nature::Custom(_) => true,
        };
        if own {
            return format!("field label not supported: {field}");
        }
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }

    /// Entries that can be read in this version: those whose definition names a webhook are converted by it. To be called
    /// before [`Self::read`], and not while a lock is held. `keep` is for what many watchers are shown.
    pub async fn show(&self, entries: Vec<Arc<store::Entry>>, keep: bool) -> Result<Vec<Arc<store::Entry>>, Status> {
        match &self.nature {
            Nature::Custom(custom) if custom.webhook().is_some() => custom.show(entries, keep).await,
            _ => Ok(entries),
        }
    }

    /// Whether some entries cannot be read without a webhook.
    pub fn needs_webhook(&self) -> bool {
        matches!(&self.nature, Nature::Custom(custom) if custom.webhook().is_some())
    }

    /// Whether its objects are stored in this version.
    pub fn is_storage(&self) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.is_storage(),
            Nature::BuiltIn(_) => self.twin().is_none(),
        }
    }

    /// Whether it goes, with all its objects.
    pub fn is_terminating(&self) -> bool {
        matches!(&self.nature, Nature::Custom(custom) if custom.definition().terminating)
    }

    /// Says when what defines it has changed or gone.
    pub fn superseded(&self) -> Option<tokio::sync::watch::Receiver<bool>> {
        match &self.nature {
            Nature::Custom(custom) => Some(custom.definition().superseded.subscribe()),
            Nature::BuiltIn(_) => None,
        }
    }

    /// One entry that can be read in this version.
    pub async fn show_one(&self, entry: Arc<store::Entry>) -> Result<Arc<store::Entry>, Status> {
        match &self.nature {
            Nature::Custom(custom) if custom.webhook().is_some() => {
                let mut shown = custom.show(vec![entry], false).await?;
                shown.pop().ok_or_else(|| Status::internal("a conversion gave nothing"))
            }
            _ => Ok(entry),
        }
    }

    /// A stored object as this version shows it; see [`Self::show`].
    pub fn read(&self, entry: &store::Entry) -> Result<Value, Status> {
        let object = crate::plan::parse_stored(entry)?;
        Ok(match &self.nature {
            Nature::Custom(custom) if !custom.is_current(entry) => {
                if custom.webhook().is_some() && object["apiVersion"] != self.api_version() {
                    return Err(Status::internal(format!("{} is read before it is converted", entry.key)));
                }
                custom.read(object)
            }
            _ => match self.twin() {
                Some(twin) => twin.from_stored(object),
                None => object,
            },
        })
    }

    /// What is stored, as this version shows it. `entry` is where it is stored, if it is already.
    pub async fn open(&self, object: Arc<Value>, entry: Option<&store::Entry>) -> Result<Arc<Value>, Status> {
        match (&self.nature, self.twin()) {
            (Nature::Custom(custom), _) if !entry.is_some_and(|entry| custom.is_current(entry)) => {
                custom.shown(Arc::unwrap_or_clone(object)).await.map(Arc::new)
            }
            (_, Some(twin)) => Ok(Arc::new(twin.from_stored(Arc::unwrap_or_clone(object)))),
            _ => Ok(object),
        }
    }

    /// Whether a stored object's bytes are what this version of the resource shows.
    pub fn is_current(&self, entry: &store::Entry) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.is_current(entry),
            Nature::BuiltIn(_) => self.twin().is_none(),
        }
    }

    /// Whether writing an object that reads like the stored one would change nothing: what a version does not know of is
    /// lost when it is written in that version.
    pub async fn is_stored(&self, entry: &store::Entry, object: &Value) -> Result<bool, Status> {
        let mut written = match &self.nature {
            Nature::Custom(custom) if !custom.is_current(entry) => custom.store(object.clone()).await?,
            Nature::BuiltIn(_) if !self.stores_as_shown() => self.internal(object).into_owned(),
            _ => return Ok(true),
        };
        let mut stored = serde_json::from_slice::<Value>(&entry.value).unwrap_or_default();
        for one in [&mut stored, &mut written] {
            crate::write::meta_mut(one).remove("resourceVersion");
        }
        Ok(stored == written)
    }

    /// Whether an object is stored as this version shows it.
    pub fn stores_as_shown(&self) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.is_storage(),
            Nature::BuiltIn(_) => self.twin().is_none(),
        }
    }

    /// The object as it would be read after it was written: what the stored version does not know of is lost.
    pub async fn as_read_back(&self, object: Value) -> Result<Value, Status> {
        match &self.nature {
            Nature::Custom(custom) if !custom.is_storage() => custom.shown(custom.store(object).await?).await,
            _ => Ok(object),
        }
    }

    /// The stored form, in the version that is stored.
    pub async fn to_store(&self, object: &Value) -> Result<store::Value, Status> {
        match &self.nature {
            Nature::Custom(custom) if !custom.is_storage() => Ok(self.encode(&custom.store(object.clone()).await?)),
            _ => Ok(self.encode(object)),
        }
    }

    /// The same in the place of what is stored: the half that a write is not about stays as it is there, also where this
    /// version cannot say it.
    pub async fn to_replace(
        &self,
        object: &Value,
        subresource: &str,
        entry: Option<&store::Entry>,
    ) -> Result<store::Value, Status> {
        let (Some(_), Some(entry)) = (self.twin(), entry) else { return self.to_store(object).await };
        let mut internal = self.internal(object).into_owned();
        let mut stored = crate::plan::parse_stored(entry)?;
        let half = if subresource == "status" { "spec" } else { "status" };
        if let Some(kept) = stored.get_mut(half) {
            internal[half] = kept.take();
        }
        Ok(self.encode_internal(&internal))
    }

    /// The stored form of an object in the version that is stored, with a hole where the revision goes.
    pub fn encode(&self, object: &Value) -> store::Value {
        self.encode_internal(&self.internal(object))
    }

    fn encode_internal(&self, object: &Value) -> store::Value {
        let mut bytes = Vec::with_capacity(1024);
        let schema = (!self.is_custom()).then(|| self.internal_schema());
        let revision_at = schema::encode_object(object, schema, &mut bytes);
        // The version that the object had before is not the one it will have.
        if let Some(at) = revision_at {
            let length = bytes[at..].iter().position(|byte| *byte == b'"').unwrap_or(0);
            bytes.drain(at..at + length);
        }
        store::Value { bytes, revision_at }
    }
}

/// The type of metadata.
pub fn object_meta() -> Schema<'static> {
    kinds::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("the generated table has ObjectMeta")
}

/// The kind that makes kinds.
pub const CRD: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

/// Decodes a built-in kind, given by its schema.
pub fn decode_builtin(schema: Schema<'_>, kind: &str, version: &str, object: Value) -> Result<Decoded, Status> {
    // No managers at all is a wish to forget them, and not the same as saying nothing.
    let forget = object["metadata"]["managedFields"].as_array().is_some_and(Vec::is_empty);
    match schema::decode(object, schema) {
        Ok(decoded) => {
            let mut object = decoded.value;
            if forget {
                crate::write::meta_mut(&mut object).insert("managedFields".into(), Value::Array(Vec::new()));
            }
            Ok(Decoded { object, strict: decoded.unknown, said: decoded.said })
        }
        Err(error) => {
            Err(Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}")))
        }
    }
}
