//! `patch`, in all its forms.

use bytes::Bytes;
use machinery::json::duplicate;
use machinery::patch;
use machinery::schema::Schema;
use machinery::status::Status;
use serde_json::Value;

use crate::context::{Context, WriteOptions, parse_json};
use crate::plan::{Plan, View};
use crate::resource::{Decoded, same_version};
use crate::write::{Change, Done};
use crate::{managed, media, yaml};

/// What is said in errors in place of what is in a Secret.
const REDACTED: &str = "<secret contents redacted>";

/// A patch that has been read.
pub(super) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    /// The patched object; what is applied is merged elsewhere, by its managers.
    pub(super) fn change(&self, old: &Value, schema: Schema<'_>) -> Result<Value, Status> {
        let patched = match self {
            Patch::Apply(applied) => return Ok(applied.clone()),
            Patch::Json(patch) => patch::apply_json_patch(old, patch),
            Patch::Merge(patch) => patch::apply_merge_patch(old, patch),
            Patch::Strategic(patch) => patch::apply_strategic_merge_patch(old, patch, schema),
        };
        patched.map_err(|error| error.to_status())
    }

    /// 422: what the patch makes of an object is wrong.
    pub(super) fn refused(&self, old: &Value, schema: Schema<'_>, why: String) -> Status {
        let shown = match self {
            Patch::Strategic(patch) => go_text(patch),
            // made anew: reading it takes it apart
            _ => self.change(old, schema).unwrap_or_default().to_string(),
        };
        invalid(shown, why)
    }
}

fn invalid(shown: impl Into<Value>, why: String) -> Status {
    let path = machinery::field::Path::root("patch");
    Status::invalid("", "", "", &[machinery::field::Error::invalid(&path, shown, why)])
}

impl Context {
    /// `PATCH`.
    pub async fn patch(&self, body: Bytes) -> Result<Done, Status> {
        let body = &body;
        self.run(move |view| async move { self.plan_of_patch(&view, body).await }).await
    }

    /// Plans a `PATCH`.
    pub async fn plan_of_patch(&self, view: &View<'_>, body: &Bytes) -> Result<Plan, Status> {
        let options = self.write_options("PatchOptions")?;
        let (patch, problems) = self.read_patch(body)?;
        let key = self.resource.key(&self.info.namespace, &self.info.name);
        if let Patch::Apply(applied) = &patch {
            if self.info.subresource.is_empty() && view.stored(&self.resource, &key)?.is_none() {
                return self.plan_create_by_apply(view, applied, problems, &options).await;
            }
        }
        let current = self.current(view).await?;
        let change = self.patched(&patch, problems, &current.object, &options).await?;
        self.plan_replace(view, &options, &current, change).await
    }

    /// Whether the body is said to be a patch of a kind that there is.
    pub fn is_patch(&self) -> bool {
        let kinds = ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"];
        media::content_type(&self.headers).strip_prefix("application/").is_some_and(|kind| kinds.contains(&kind))
    }

    /// The patch, and what strict validation objects to in its text.
    pub(super) fn read_patch(&self, body: &Bytes) -> Result<(Patch, Vec<String>), Status> {
        let media = media::content_type(&self.headers);
        let known = matches!(
            media.strip_prefix("application/"),
            Some("json-patch+json" | "merge-patch+json" | "strategic-merge-patch+json")
        );
        if known && self.query.get("force").is_some() {
            let path = machinery::field::Path::root("force");
            let error = machinery::field::Error::forbidden(&path, "may not be specified for non-apply patch");
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        match media {
            "application/json-patch+json" => {
                let (patch, twice) = parse_json(body, "JSON")?;
                let problems = patch::json_patch_strict_errors(body, &patch, &twice);
                Ok((Patch::Json(patch), problems))
            }
            "application/merge-patch+json" => patch_json(body).map(|(patch, twice)| (Patch::Merge(patch), twice)),
            "application/strategic-merge-patch+json" if !self.resource.is_custom() => {
                patch_json(body).map(|(patch, twice)| (Patch::Strategic(patch), twice))
            }
            "application/apply-patch+yaml" => {
                if self.query.get("fieldManager").is_none() {
                    let path = machinery::field::Path::root("fieldManager");
                    let error = machinery::field::Error::required(&path, "is required for apply patch");
                    return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
                }
                let (mut value, twice) = yaml::parse(body)?;
                let own = self.resource.api_version();
                if let Some(Value::String(said)) = value.get_mut("apiVersion").filter(|said| **said != own) {
                    if same_version(said, &own) {
                        *said = own;
                    }
                }
                Ok((Patch::Apply(value), twice.into_iter().collect()))
            }
            _ if self.resource.is_custom() => Err(Status::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::bare(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
        }
    }

    async fn patched(
        &self,
        patch: &Patch,
        mut problems: Vec<String>,
        old: &Value,
        options: &WriteOptions,
    ) -> Result<Change, Status> {
        if let Patch::Apply(applied) = patch {
            let (Decoded { object, said, .. }, unsettled) = self.applied(Some(old), applied, problems, options).await?;
            // Without a version of its own, what was overtaken is applied anew.
            let conditional = !applied["metadata"]["resourceVersion"].is_null();
            return Ok(Change { object, conditional, tracked: true, unsettled, said });
        }
        let mut patched = match patch {
            // Who manages what is brought up to date by what there was, unless the patch says something about it.
            Patch::Merge(merge) if merge["metadata"].get("managedFields").is_none() => {
                patch::merge_into(without_managers(old), merge).map_err(|error| error.to_status())?
            }
            _ => patch.change(old, self.resource.schema()).map_err(|status| match patch {
                // what is wrong with such a patch is said with its values
                Patch::Strategic(_) if self.resource.is_secret() => {
                    Status { message: format!("malformed strategic merge patch: {REDACTED}"), ..status }
                }
                _ => status,
            })?,
        };
        let same_version = patched["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"];
        let refused = |why: String| match self.resource.is_secret() {
            true => invalid(REDACTED, why),
            false => patch.refused(old, self.resource.schema(), why),
        };
        if let (Patch::Strategic(_), Some(fields)) = (patch, patched.as_object_mut()) {
            // What such a patch says of the kind is not looked at: people patch with manifests of older versions.
            for field in ["apiVersion", "kind"] {
                fields.insert(field.into(), old[field].clone());
            }
        }
        if let Patch::Strategic(_) = patch {
            // Kubernetes reads the result of such a patch in another way, and says so in other words.
            if let Err(error) = machinery::schema::decode(patched.clone(), self.resource.schema()) {
                return Err(refused(error.of_conversion()));
            }
        }
        if let Some(said) = patched["apiVersion"].as_str().filter(|_| self.resource.is_custom()) {
            let own = self.resource.api_version();
            if !said.is_empty() && said != own {
                let path = machinery::field::Path::root("apiVersion");
                let error = machinery::field::Error::invalid(&path, said, format!("must be {own}"));
                return Err(self.invalid(&self.info.name, &[error]));
            }
        }
        let mut decoded = self.resource.decode(patched).map_err(|status| match status.code {
            400 => {
                let what = format!(
                    "{0} in version {1:?} cannot be handled as a {0}: ",
                    self.resource.kind, self.resource.version
                );
                refused(status.message.strip_prefix(&what).unwrap_or(&status.message).to_owned())
            }
            _ => status,
        })?;
        problems.append(&mut decoded.strict);
        self.object_to(problems, options, |list| refused(format!("strict decoding error: {list}")))?;
        // If the patch says nothing of the version, it is none of its conditions.
        let Decoded { object, said, .. } = decoded;
        Ok(Change { object, conditional: !same_version, tracked: false, unsettled: Vec::new(), said })
    }

    /// The merged object as it would be read, and which of its fields that changed: merging leaves empty fields behind.
    async fn applied(
        &self,
        old: Option<&Value>,
        applied: &Value,
        problems: Vec<String>,
        options: &WriteOptions,
    ) -> Result<(Decoded, Vec<String>), Status> {
        let object = managed::apply(self, old, applied, options, &self.server.now()).await?;
        self.object_to_applied(problems, options)?;
        if !self.resource.is_custom() {
            return Ok((self.resource.settle(object)?, Vec::new()));
        }
        let merged = object.clone();
        let settled = self.resource.settle(object)?;
        let fields = merged.as_object().into_iter().flatten();
        // A status of null is kept where anything may stand, and else forgotten.
        let null = |name: &str| name == "status" && old.is_some_and(|old| old.get(name) != Some(&Value::Null));
        let goes = |name: &str, value: &Value| settled.object.get(name) != Some(value) || value.is_null() && null(name);
        let unsettled = fields.filter(|(name, value)| goes(name, value)).map(|(name, _)| name.clone()).collect();
        Ok((settled, unsettled))
    }

    /// Says what strict validation objects to in what was applied.
    pub(super) fn object_to_applied(&self, problems: Vec<String>, options: &WriteOptions) -> Result<(), Status> {
        self.object_to(problems, options, |list| {
            Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {list}"))
        })
    }

    async fn plan_create_by_apply(
        &self,
        view: &View<'_>,
        applied: &Value,
        problems: Vec<String>,
        options: &WriteOptions,
    ) -> Result<Plan, Status> {
        let (sent, _) = self.applied(None, applied, problems, options).await?;
        let uid = sent.object["metadata"]["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(self.conflict(why));
        }
        // what may be done to this name says nothing of another
        self.check_namespace(&sent.object)?;
        self.check_name(&sent.object)?;
        let version = sent.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && version != "0" {
            return Err(self.conflict("the object does not exist, so it cannot have the given resourceVersion"));
        }
        self.plan_create(view, sent, true, options).await
    }
}

/// An object without `managedFields`: half of it, and not to be copied and read for nothing.
fn without_managers(object: &Value) -> Value {
    let copy = |(name, value): (&String, &Value)| (name.clone(), value.clone());
    let fields = object.as_object().into_iter().flatten().map(|field| match field {
        (name, Value::Object(metadata)) if name == "metadata" => {
            let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
            (name.clone(), Value::Object(kept.map(copy).collect()))
        }
        field => copy(field),
    });
    Value::Object(fields.collect())
}

fn patch_json(body: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let (patch, twice) = parse_json(body, "JSON")?;
    Ok((patch, twice.iter().map(|field| duplicate(field)).collect()))
}

/// A value as Go prints it: `map[metadata:map[labels:wrong]]`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            fields.sort_unstable();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}
