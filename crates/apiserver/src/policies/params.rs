//! The objects that policies take as parameters.

use serde_json::Value;

use super::source::ParamRef;
use crate::admission::Attributes;

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

    fn resource(&self, attributes: &Attributes<'_>) -> Option<std::sync::Arc<crate::resource::Resource>> {
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

/// The parameters of a binding for a request. `Null` stands for a policy or binding that takes none.
pub async fn collect(
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    attributes: &Attributes<'_>,
) -> Result<Vec<Value>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![Value::Null]) };
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
    // As the operations before this one in the same transaction would have it.
    let found = async |key: &str| attributes.view.get(&resource, key).await.map_err(|status| status.message);
    let params: Vec<Value> = match (&reference.name, &reference.selector) {
        (Some(name), _) => {
            let current = found(&resource.key(namespace, name)).await?;
            current.into_iter().map(|current| current.object).collect()
        }
        (None, Some(Err(error))) => return Err(error.clone()),
        (None, Some(Ok(selector))) => {
            let prefix = resource.prefix(namespace);
            let mut params = Vec::new();
            let nothing = serde_json::Map::new();
            for key in &attributes.view.keys(&resource.table, &prefix) {
                let Some(current) = found(key).await? else { continue };
                if selector.matches(current.object["metadata"]["labels"].as_object().unwrap_or(&nothing)) {
                    params.push(current.object);
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
