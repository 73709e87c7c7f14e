//! The objects that policies take as parameters.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::source::ParamRef;
use crate::admission::Attributes;
use crate::resource::Resource;

/// `paramKind`
#[derive(Clone, Debug)]
pub struct ParamKind {
    api_version: String,
    kind: String,
}

impl std::fmt::Display for ParamKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As Go writes a group, version and kind.
        let api_version =
            if self.api_version.contains('/') { self.api_version.clone() } else { format!("/{}", self.api_version) };
        write!(f, "{api_version}, Kind={}", self.kind)
    }
}

impl ParamKind {
    /// Reads it, if there is one.
    pub fn read(value: &Value) -> Option<ParamKind> {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        value.is_object().then(|| ParamKind { api_version: text("apiVersion"), kind: text("kind") })
    }

    fn resource(&self, attributes: &Attributes<'_>) -> Option<Arc<Resource>> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        attributes.cx.server.catalog().find_kind(group, version, &self.kind).cloned()
    }

    /// Whether there is such a kind right now; a policy whose kind is missing cannot be used.
    pub fn check(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        match self.resource(attributes) {
            Some(_) => Ok(()),
            None => Err(format!("failed to find resource referenced by paramKind: '{self}'")),
        }
    }
}

/// Parameters as they were last read: what has not changed is not read again with every request.
#[derive(Default)]
pub struct Known(Mutex<HashMap<(Arc<str>, String), Read>>);

struct Read {
    /// How it was shown, and in which revision.
    resource: Arc<Resource>,
    revision: u64,
    object: Arc<Value>,
}

/// How many are kept.
const MOST: usize = 1024;

/// One object, as the operations before this one in the same transaction would have it.
async fn read(resource: &Arc<Resource>, key: &str, attributes: &Attributes<'_>) -> Result<Option<Arc<Value>>, String> {
    let Known(known) = &attributes.cx.server.params;
    let id = (resource.table.clone(), key.to_owned());
    let entry = attributes.view.entry(&resource.table, key).filter(|_| !attributes.view.touches(&resource.table));
    if let Some(entry) = &entry {
        if let Some(own) = known.lock().get(&id) {
            if own.revision == entry.revision && Arc::ptr_eq(&own.resource, resource) {
                return Ok(Some(own.object.clone()));
            }
        }
    }
    let current = attributes.view.get(resource, key).await.map_err(|status| status.message)?;
    let Some(current) = current else { return Ok(None) };
    let object = current.object;
    // another may have been written between the two looks: only what was read from this very entry is kept
    if let Some(entry) = entry.filter(|entry| current.entry.is_some_and(|own| own.revision == entry.revision)) {
        let mut known = known.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(id, Read { resource: resource.clone(), revision: entry.revision, object: object.clone() });
    }
    Ok(Some(object))
}

/// The parameters of a binding for a request. `Null` stands for a policy or binding that takes none.
pub async fn collect(
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    attributes: &Attributes<'_>,
) -> Result<Vec<Arc<Value>>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![Arc::default()]) };
    let Some(resource) = kind.resource(attributes) else { return Err(format!("paramKind kind `{kind}` not known")) };
    let namespace = match (&reference.namespace, resource.namespaced) {
        (Some(_), false) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        (Some(own), true) => own.as_str(),
        (None, false) => "",
        (None, true) => match attributes.admission_namespace() {
            "" => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into()
                );
            }
            own => own,
        },
    };
    let params: Vec<Arc<Value>> = match (&reference.name, &reference.selector) {
        (Some(name), _) => read(&resource, &resource.key(namespace, name), attributes).await?.into_iter().collect(),
        (None, Some(Err(error))) => return Err(error.clone()),
        (None, Some(Ok(selector))) => {
            let prefix = resource.prefix(namespace);
            let mut params = Vec::new();
            let nothing = serde_json::Map::new();
            for key in &attributes.view.keys(&resource.table, &prefix) {
                let Some(object) = read(&resource, key, attributes).await? else { continue };
                if selector.matches(object["metadata"]["labels"].as_object().unwrap_or(&nothing)) {
                    params.push(object);
                }
            }
            params
        }
        (None, None) => return Err("one of name or selector must be provided".into()),
    };
    if params.is_empty() && reference.deny {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(params)
}
