//! Transactions as they are sent.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::MOST;
use crate::request::RequestInfo;
use crate::resource::Resource;

/// A transaction as it is sent. What is not plainly so is read as any other object, which says what is wrong with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent<'a> {
    #[serde(rename = "apiVersion")]
    api_version: Cow<'a, str>,
    kind: Cow<'a, str>,
    #[serde(default, rename = "metadata")]
    _metadata: Nothing,
    #[serde(borrow)]
    spec: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec<'a> {
    #[serde(borrow)]
    operations: Vec<Write<'a>>,
}

/// An operation as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Write<'a> {
    pub(super) verb: Verb,
    #[serde(borrow, default)]
    pub(super) group: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) version: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) resource: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) subresource: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(default)]
    patch_type: PatchType,
    #[serde(borrow, default)]
    pub(super) patch: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) field_manager: Cow<'a, str>,
    #[serde(default)]
    pub(super) force: bool,
    #[serde(default)]
    pub(super) preconditions: Option<Preconditions>,
    #[serde(borrow, default)]
    pub(super) propagation_policy: Option<Cow<'a, str>>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Create,
    Update,
    Patch,
    Delete,
    Check,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::Check => "check",
        }
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
enum PatchType {
    #[default]
    Merge,
    #[serde(rename = "JSON")]
    Json,
    Strategic,
    Apply,
}

impl PatchType {
    fn media(self) -> &'static str {
        match self {
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Json => "application/json-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Preconditions {
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) absent: bool,
}

/// The text of the spec and the operations in it, if it is plainly a transaction.
pub(super) fn read<'a>(resource: &Resource, body: &'a Bytes) -> Option<(&'a str, Vec<Write<'a>>)> {
    let sent: Sent<'_> = serde_json::from_slice(body).ok()?;
    if sent.kind != *resource.kind || sent.api_version != resource.api_version() {
        return None;
    }
    let spec: Spec<'_> = serde_json::from_str(sent.spec.get()).ok()?;
    let plain = spec.operations.iter().filter_map(|own| own.object).all(|object| object.get().starts_with('{'));
    (plain && (1..=MOST).contains(&spec.operations.len())).then_some((sent.spec.get(), spec.operations))
}

impl Write<'_> {
    /// What an operation asks for.
    pub(super) fn asked(&self) -> RequestInfo {
        // Names of new objects are their own: nobody is asked about another's.
        let name = if self.verb == Verb::Create { String::new() } else { self.name.to_string() };
        // A namespace is in itself, as in its path.
        let in_itself = self.namespace.is_empty() && self.group.is_empty() && self.resource == "namespaces";
        RequestInfo {
            is_resource: true,
            verb: if self.verb == Verb::Check { "get".into() } else { self.verb.name().into() },
            group: self.group.to_string(),
            version: self.version.to_string(),
            namespace: if in_itself { name.clone() } else { self.namespace.to_string() },
            resource: self.resource.to_string(),
            subresource: self.subresource.to_string(),
            name,
            ..RequestInfo::default()
        }
    }

    /// The body of the request that an operation stands for, and its type.
    pub(super) fn sent(&self, whole: &Bytes) -> (Bytes, &'static str) {
        let part = |raw: Option<&RawValue>| match raw {
            Some(raw) => whole.slice_ref(raw.get().as_bytes()),
            None => Bytes::from_static(b"null"),
        };
        match self.verb {
            Verb::Create | Verb::Update => (part(self.object), "application/json"),
            Verb::Patch => (part(self.patch), self.patch_type.media()),
            Verb::Delete => {
                let mut options = json!({});
                if let Some(policy) = &self.propagation_policy {
                    options["propagationPolicy"] = policy.as_ref().into();
                }
                (options.to_string().into(), "application/json")
            }
            Verb::Check => (Bytes::new(), "application/json"),
        }
    }
}
