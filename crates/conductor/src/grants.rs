//! The kinds of a type that somebody adds are the managers' to serve. On a cluster an administrator says so with a ClusterRole; here
//! who may write a ResourceType is one, and the one file is enough.

use std::sync::Arc;
use std::time::Duration;

use conductor_claims::types::{ResourceType, builtin_types, managing};
use conductor_managers::Api;
use conductor_managers::api::{Names, Sink, Watch};
use serde_json::{Value, json};

struct Grants(Api);

/// Gives the managers what they need for every type there is and comes to be.
pub fn follow(api: &Api) {
    tokio::spawn(Watch::all("conductor.io/v1alpha1", "ResourceType").run(api.clone(), Arc::new(Grants(api.clone()))));
}

impl Sink for Grants {
    fn apply(&self, object: Value) {
        let Ok(kind) = ResourceType::parse(&object) else { return };
        // Kubernetes' own groups are nobody's to give; those of the types that come with it are given already
        let builtin =
            || builtin_types().unwrap_or_default().iter().any(|own| own["spec"]["group"] == kind.group.as_str());
        if ["k8s.io", "kubernetes.io"].iter().any(|own| kind.group.ends_with(own)) || builtin() {
            return;
        }
        let mut role = managing(&kind);
        role["metadata"]["ownerReferences"] = json!([{
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        }]);
        let api = self.0.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                match api.apply(&role).await {
                    Ok(_) => return,
                    Err(failure) => tracing::warn!(%failure, "the managers may not serve a type yet"),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }

    fn delete(&self, _: Value) {}

    fn synced(&self, _: &Names) {}
}
