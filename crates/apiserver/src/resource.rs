//! A resource as the server serves it: built in or custom, the same to every verb.

mod rules;
mod stored;

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
                let schema = kinds::types().schema(*id);
                let mut decoded = decode_builtin(schema, &self.kind, &self.version, object)?;
                self.keep_empty(&mut decoded);
                Ok(decoded)
            }
            Nature::Custom(custom) => custom.decode(object),
        }
    }

    /// Puts empty lists back that defaults tell from none.
    fn keep_empty(&self, decoded: &mut Decoded) {
        for said in &decoded.said {
            if kinds::defaults::tells_empty(&self.group, &self.kind, &said.place)
                && let Some((holder, field)) = said.place.rsplit_once('/')
                && let Some(Value::Object(fields)) = decoded.object.pointer_mut(holder)
            {
                fields.insert(field.into(), said.value.clone());
            }
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
