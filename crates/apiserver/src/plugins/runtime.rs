//! `RuntimeClass`: what a Pod's runtime costs, and where it runs.

use std::collections::BTreeMap;

use machinery::status::Status;
use serde_json::Value;
use store::Store;

use super::cached::Cached;
use super::tolerations::push;
use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};

/// Gives Pods the overhead and the scheduling of their runtime class.
pub struct RuntimeClass(Cached<BTreeMap<String, Value>>);

fn classes(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

impl RuntimeClass {
    /// Knows the classes in a store.
    pub fn new(store: &Store) -> RuntimeClass {
        RuntimeClass(Cached::new(store, "node.k8s.io/runtimeclasses", classes))
    }
}

fn amounts(map: &Value) -> BTreeMap<String, machinery::quantity::Quantity> {
    let read = |(name, amount): (&String, &Value)| {
        Some((name.clone(), machinery::quantity::Quantity::from_json(amount).ok()?))
    };
    map.as_object().into_iter().flatten().filter_map(read).collect()
}

impl Plugin for RuntimeClass {
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let spec = &attributes.object["spec"];
        let created = attributes.operation == Operation::Create && attributes.subresource.is_empty();
        let alone = || spec["runtimeClassName"].is_null() && !amounts(&spec["overhead"]).is_empty();
        if attributes.resource.gk() == ("", "Pod") && created && alone() {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden(attributes, why));
        }
        Ok(())
    }

    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.resource.gk() != ("", "Pod")
            || attributes.operation != Operation::Create
            || !attributes.subresource.is_empty()
            || !attributes.object["spec"].is_object()
        {
            return Ok(());
        }
        let overhead = amounts(&attributes.object["spec"]["overhead"]);
        let Some(name) = attributes.object["spec"]["runtimeClassName"].as_str() else { return Ok(()) };
        if name.is_empty() {
            return Err(Status::new(500, "", "resource name may not be empty"));
        }
        let classes = self.0.get(attributes.view);
        let Some(class) = classes.get(name) else {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            return Err(forbidden(attributes, why));
        };
        let fixed = &class["overhead"]["podFixed"];
        if !overhead.is_empty() && overhead != amounts(fixed) {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(forbidden(attributes, why));
        }
        if fixed.is_object() {
            attributes.object["spec"]["overhead"] = fixed.clone();
        }
        for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
            let own = &attributes.object["spec"]["nodeSelector"][key];
            if !own.is_null() && own != value {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(value),
                    text(own)
                );
                return Err(forbidden(attributes, why));
            }
            attributes.object["spec"]["nodeSelector"][key] = value.clone();
        }
        for toleration in class["scheduling"]["tolerations"].as_array().into_iter().flatten() {
            let own = &mut attributes.object["spec"]["tolerations"];
            if !own.as_array().into_iter().flatten().any(|own| own == toleration) {
                push(own, toleration.clone());
            }
        }
        Ok(())
    }
}
