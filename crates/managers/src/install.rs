//! What an API server needs before managers can work: our definitions, the built-in types, the system namespace.

use conductor_claims::lifecycle::SYSTEM_NAMESPACE;
use conductor_claims::types::{
    ResourceType, builtin_implementations, builtin_types, crds, manager_crd, resource_type_crd,
};
use serde_json::{Value, json};

use crate::api::{Api, Failure};

/// The definitions of our own kinds.
pub fn definitions() -> Vec<Value> {
    vec![resource_type_crd(), manager_crd(), volume_template_crd()]
}

/// The three definitions of each built-in type, for those who want to see or apply them by hand.
pub fn type_definitions() -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for object in builtin_types()? {
        let kind = ResourceType::parse(&object)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        all.extend(crds(&kind));
    }
    Ok(all)
}

/// Everything, in the order in which it is to be applied.
pub fn objects() -> Result<Vec<Value>, String> {
    let mut all = vec![namespace()];
    all.extend(definitions());
    all.extend(builtin_implementations()?);
    all.extend(builtin_types()?);
    Ok(all)
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
}

/// The definition of what a StorageClass of ours names in `parameters.template`.
pub fn volume_template_crd() -> Value {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "required": ["template"],
                "properties": {
                    "template": free,
                    "volume": free,
                    "readyWhen": {"type": "string", "maxLength": 4096},
                },
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "volumetemplates.conductor.io", "labels": {"app.kubernetes.io/managed-by": "conductor"}},
        "spec": {
            "group": "conductor.io",
            "scope": "Cluster",
            "names": {
                "kind": "VolumeTemplate", "listKind": "VolumeTemplateList", "plural": "volumetemplates",
                "singular": "volumetemplate", "categories": ["conductor"],
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    {"name": "Template", "type": "string", "jsonPath": ".spec.template.kind"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

/// Applies everything and waits until the definitions are served.
pub async fn install(api: &Api) -> Result<(), Failure> {
    let wrong = |message: String| Failure { code: 500, reason: "BuiltIn".into(), message };
    for object in objects().map_err(wrong)? {
        apply(api, &object).await?;
    }
    Ok(())
}

async fn apply(api: &Api, object: &Value) -> Result<(), Failure> {
    // a definition that was just made takes a moment to be served
    for _ in 0..100 {
        match api.apply(object).await {
            Err(failure) if failure.code == 404 => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            other => return other.map(drop),
        }
    }
    api.apply(object).await.map(drop)
}
