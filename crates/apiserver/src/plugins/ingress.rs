//! `DefaultIngressClass`.

use machinery::status::Status;
use serde_json::Value;
use store::Store;

use super::Plugin;
use super::cached::{Cached, newest_default};
use crate::admission::{Attributes, Operation};

/// Gives Ingresses that name no class the default one.
pub struct DefaultClass(Cached<Option<String>>);

impl DefaultClass {
    /// Knows the classes in a store.
    pub fn new(store: &Store) -> DefaultClass {
        let make = |objects: Vec<Value>| newest_default(&objects, &["ingressclass.kubernetes.io/is-default-class"]);
        DefaultClass(Cached::new(store, "networking.k8s.io/ingressclasses", make))
    }
}

impl Plugin for DefaultClass {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let object = &attributes.object;
        let concerned = attributes.resource.gk() == ("networking.k8s.io", "Ingress")
            && attributes.operation == Operation::Create
            && attributes.subresource.is_empty()
            && object["spec"].get("ingressClassName").is_none_or(Value::is_null)
            && object["metadata"]["annotations"].get("kubernetes.io/ingress.class").is_none();
        if concerned && object["spec"].is_object() {
            if let Some(default) = &*self.0.get(attributes.view) {
                attributes.object["spec"]["ingressClassName"] = default.as_str().into();
            }
        }
        Ok(())
    }
}
