//! One request on its way through the server.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use machinery::field::{self, Path};
use machinery::json;
use machinery::schema::{self};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use crate::admission::{Attributes, Operation};
use crate::media::{self, Accept, Encoding};
use crate::plan::View;
use crate::request::{Query, RequestInfo};
use crate::resource::{Decoded, Resource, same_version};
use crate::server::Inner;
use crate::user::User;
use crate::yaml;

/// One request about a resource.
pub struct Context {
    /// The server.
    pub server: Arc<Inner>,
    /// What is asked.
    pub info: RequestInfo,
    /// With which parameters.
    pub query: Query,
    /// With which headers.
    pub headers: HeaderMap,
    /// Until when it must have its answer.
    pub deadline: tokio::time::Instant,
    /// By whom.
    pub user: Arc<User>,
    /// About what.
    pub resource: Arc<Resource>,
    /// What the answer should look like.
    pub accept: Accept,
    /// What the client should be told besides.
    pub warnings: Mutex<Vec<String>>,
    /// What the audit log should be told besides.
    pub annotations: Mutex<std::collections::BTreeMap<String, String>>,
    /// What the audit log should be told of what a transaction is made of; nothing where there is no log.
    pub operations: Mutex<Vec<crate::audit::Operation>>,
}

/// What to do with fields that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Say nothing.
    Ignore,
    /// Say so and go on.
    Warn,
    /// Refuse.
    Strict,
}

/// How a write is to be done.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Do everything but store it.
    pub dry_run: bool,
    /// What to do with unknown fields.
    pub field_validation: FieldValidation,
    /// Who owns the fields that are set.
    pub manager: String,
    /// Server-side apply: take fields from others.
    pub force: bool,
    /// Whether admission has had its say already, about what led to this write.
    pub admitted: bool,
}

impl Context {
    /// A warning for the client; each is said once.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&text) && warnings.len() < 64 {
            warnings.push(text);
        }
    }

    /// 404 for the object in question.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, &self.info.name)
    }

    /// 409 for the object in question.
    pub fn conflict(&self, why: impl std::fmt::Display) -> Status {
        Status::conflict(&self.resource.group, &self.resource.plural, &self.info.name, why)
    }

    /// 422 for the object in question.
    pub fn invalid(&self, name: &str, errors: &[field::Error]) -> Status {
        Status::invalid(self.resource.internal_group(), &self.resource.kind, name, errors)
    }

    /// The options of a write.
    pub fn write_options(&self, kind: &str) -> Result<WriteOptions, Status> {
        let mut errors = Vec::new();
        // What is said without a value is said: a script that lost its variable must not write.
        let dry: Vec<&str> = self.query.all("dryRun").collect();
        let dry_run = !dry.is_empty();
        if dry.iter().any(|value| *value != "All") {
            errors.push(field::Error::not_supported(&Path::root("dryRun"), dry, &["All"]));
        }
        let manager = self.query.get("fieldManager").unwrap_or_default();
        let path = Path::root("fieldManager");
        if manager.len() > 128 {
            errors.push(field::Error::too_long(&path, 128));
        }
        if let Some(bad) = manager.chars().find(|c| c.is_control()) {
            errors.push(field::Error::invalid(
                &path,
                manager,
                format!("should only contain printable characters, not {bad:?}"),
            ));
        }
        let field_validation = match self.query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                let supported = ["", "Ignore", "Warn", "Strict"];
                errors.push(field::Error::not_supported(&Path::root("fieldValidation"), other, &supported));
                FieldValidation::Strict
            }
        };
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", kind, "", &errors));
        }
        let manager = if manager.is_empty() { self.manager_of_agent() } else { manager.to_owned() };
        Ok(WriteOptions { dry_run, field_validation, manager, force: self.query.flag("force"), admitted: false })
    }

    fn manager_of_agent(&self) -> String {
        let agent = self.headers.get(http::header::USER_AGENT).map_or(&b""[..], |own| own.as_bytes());
        let agent = String::from_utf8_lossy(agent);
        let name: String =
            agent.split('/').next().unwrap_or("").chars().filter(|c| !c.is_control()).take(128).collect();
        if name.is_empty() { "unknown".into() } else { name }
    }

    /// Reads the body as an object of the resource (or of `kind` for subresources that take another).
    pub fn decode(&self, body: &Bytes, options: &WriteOptions) -> Result<Value, Status> {
        self.read(body, options).map(|decoded| decoded.object)
    }

    /// The same, with what was said in other words.
    pub fn read(&self, body: &Bytes, options: &WriteOptions) -> Result<Decoded, Status> {
        let (value, duplicates) = self.parse(body, Some(self.resource.schema()))?;
        let decoded = self.resource.decode(value)?;
        let typed = (!self.resource.is_custom()).then(|| self.resource.schema());
        self.strict(body, typed, duplicates, decoded, options)
    }

    /// Reads the body as another built-in kind, such as `Scale` on a Deployment. Any version of the kind's group is named
    /// by the caller.
    pub fn decode_as(
        &self,
        body: &Bytes,
        (group, version, kind): (&str, &str, &str),
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let schema = kinds::schema_of(group, version, kind)
            .ok_or_else(|| Status::internal(format!("no schema for {kind} in {group}/{version}")))?;
        let (mut value, duplicates) = self.parse(body, Some(schema))?;
        let Some(fields) = value.as_object_mut() else {
            return Err(Status::bad_request(format!("the body must be a {kind} object")));
        };
        let said = fields.get("kind").and_then(Value::as_str).unwrap_or(kind).to_owned();
        if said != kind {
            return Err(Status::bad_request(format!("the body is a {said}, but the path takes a {kind}")));
        }
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        // Scales come in the versions of several groups, Evictions in an older one.
        let said = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if !said.is_empty()
            && !same_version(said, &api_version)
            && kind != "Scale"
            && (said, kind) != ("policy/v1beta1", "Eviction")
        {
            let of = said.rsplit('/').next().unwrap_or_default();
            return Err(Status::bad_request(format!(
                "{kind} in version {of:?} cannot be handled as a {kind}: no kind {kind:?} is registered for version {said:?}"
            )));
        }
        fields.insert("kind".into(), kind.into());
        fields.insert("apiVersion".into(), api_version.into());
        let decoded = crate::resource::decode_builtin(schema, kind, version, value)?;
        self.strict(body, Some(schema), duplicates, decoded, options).map(|decoded| decoded.object)
    }

    fn strict(
        &self,
        body: &[u8],
        typed: Option<schema::Schema<'_>>,
        mut duplicates: Vec<String>,
        mut decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<Decoded, Status> {
        let json = media::body_encoding(&self.headers)? == Encoding::Json;
        let typed = typed.filter(|_| json);
        if let Some(schema) = typed {
            duplicates.retain(|field| schema.reads(field));
        }
        let said = duplicates.into_iter().map(|field| if json { json::duplicate(&field) } else { field });
        let mut problems: Vec<String> = said.chain(std::mem::take(&mut decoded.strict)).collect();
        if problems.len() > 1 && typed.is_some() {
            json::sort_by_place(body, &mut problems);
        }
        let (kind, version) = (&self.resource.kind, &self.resource.version);
        self.object_to(problems, options, |list| {
            Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {list}"
            ))
        })?;
        Ok(decoded)
    }

    /// Says what strict validation objects to, as refusal or as warnings.
    pub fn object_to(
        &self,
        problems: Vec<String>,
        options: &WriteOptions,
        refused: impl FnOnce(String) -> Status,
    ) -> Result<(), Status> {
        match options.field_validation {
            FieldValidation::Strict if !problems.is_empty() => return Err(refused(problems.join(", "))),
            FieldValidation::Warn => {
                problems.iter().flat_map(|problem| yaml::warnings(problem)).for_each(|text| self.warn(text));
            }
            _ => {}
        }
        Ok(())
    }

    /// Parses a body by its content type; gives the fields that stand twice, or for YAML what is said of them.
    pub fn parse(&self, body: &Bytes, schema: Option<schema::Schema<'_>>) -> Result<(Value, Vec<String>), Status> {
        match media::body_encoding(&self.headers)? {
            Encoding::Json => parse_json(body, &self.resource.kind),
            Encoding::Yaml => yaml::parse(body).map(|(value, twice)| (value, twice.into_iter().collect())),
            Encoding::Protobuf => {
                let schema = schema.ok_or_else(|| Status::unsupported_media_type("protobuf is not understood here"))?;
                if self.resource.is_custom() {
                    return Err(Status::unsupported_media_type(
                        "the body of the request was in an unknown format - accepted media types include: \
                         application/json, application/yaml",
                    ));
                }
                let value = schema::protobuf::from_protobuf(body, schema)
                    .map_err(|error| Status::bad_request(format!("the body cannot be read as protobuf: {error}")))?;
                Ok((value, Vec::new()))
            }
        }
    }

    /// Runs admission in both its phases' first half: everyone may change the object.
    pub async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        for admission in &self.server.admission {
            admission.mutate(attributes).await?;
        }
        if attributes.reinvocation.wanted {
            // Once more, for those who have not seen what others did; not endlessly.
            attributes.reinvocation.again = true;
            for admission in &self.server.admission {
                admission.mutate(attributes).await?;
            }
        }
        Ok(())
    }

    /// Runs admission's second half: everyone judges the result.
    pub async fn judge(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let mut verdict = Ok(());
        for admission in &self.server.admission {
            verdict = admission.validate(attributes).await;
            if verdict.is_err() {
                break;
            }
        }
        // Those who are refused are warned as well.
        for warning in attributes.warnings.drain(..) {
            self.warn(warning);
        }
        verdict
    }

    /// Tells the audit log something about the request; what was said first stands.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.annotations.lock();
        if annotations.len() < 64 {
            annotations.entry(key.into()).or_insert_with(|| value.into());
        }
    }

    /// The attributes of a write for admission.
    pub fn attributes<'a>(
        &'a self,
        view: &'a View<'a>,
        operation: Operation,
        name: &'a str,
        object: Value,
        old: &'a Value,
        dry_run: bool,
    ) -> Attributes<'a> {
        Attributes {
            operation,
            resource: &self.resource,
            subresource: &self.info.subresource,
            namespace: if self.resource.namespaced { &self.info.namespace } else { "" },
            name,
            user: &self.user,
            dry_run,
            object,
            old,
            warnings: Vec::new(),
            reinvocation: Default::default(),
            cx: self,
            view,
            shown: Default::default(),
        }
    }
}

/// JSON, and the fields that stand twice. What it should be is said if it is none.
pub fn parse_json(body: &[u8], kind: &str) -> Result<(Value, Vec<String>), Status> {
    if body.is_empty() {
        return Err(Status::bad_request("the body is empty: send an object"));
    }
    match json::parse(body) {
        Ok(parsed) => Ok((parsed.value, parsed.duplicates)),
        Err(error) => Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error}"
        ))),
    }
}
