//! `Priority`: a Pod's class of priority as a number.

use std::collections::BTreeMap;

use machinery::status::Status;
use serde_json::Value;
use store::Store;

use super::cached::Cached;
use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};

struct Class {
    value: i64,
    policy: String,
}

struct Classes {
    by_name: BTreeMap<String, Class>,
    default: Option<String>,
}

fn classes(objects: Vec<Value>) -> Classes {
    let mut all = Classes { by_name: BTreeMap::new(), default: None };
    let mut least = i64::MAX;
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let value = object["value"].as_i64().unwrap_or(0);
        let policy = object["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned();
        // Should there be several defaults after all, the least important one counts.
        if object["globalDefault"] == true && value < least {
            least = value;
            all.default = Some(name.clone());
        }
        all.by_name.insert(name, Class { value, policy });
    }
    all
}

/// Resolves `priorityClassName`; there is one default class at most.
pub struct Priority(Cached<Classes>);

impl Priority {
    /// Knows the classes in a store.
    pub fn new(store: &Store) -> Priority {
        Priority(Cached::new(store, "scheduling.k8s.io/priorityclasses", classes))
    }

    fn resolve(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let classes = self.0.get(attributes.view);
        let given = attributes.object["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        let name = if given.is_empty() { classes.default.clone().unwrap_or_default() } else { given };
        let none = Class { value: 0, policy: "PreemptLowerPriority".into() };
        let class = match classes.by_name.get(&name) {
            Some(class) => class,
            None if name.is_empty() => &none,
            None => return Err(forbidden(attributes, format!("no PriorityClass with name {name} was found"))),
        };
        let spec = &attributes.object["spec"];
        if let Some(given) = spec["priority"].as_i64().filter(|given| *given != class.value) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
                 computed {} from the given PriorityClass name",
                class.value
            );
            return Err(forbidden(attributes, why));
        }
        if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != class.policy) {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                class.policy
            );
            return Err(forbidden(attributes, why));
        }
        let spec = &mut attributes.object["spec"];
        if !name.is_empty() {
            spec["priorityClassName"] = name.into();
        }
        spec["priority"] = class.value.into();
        spec["preemptionPolicy"] = class.policy.as_str().into();
        Ok(())
    }
}

impl Plugin for Priority {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.resource.gk() != ("", "Pod") || !attributes.subresource.is_empty() {
            return Ok(());
        }
        match attributes.operation {
            Operation::Create if attributes.object["spec"].is_object() => self.resolve(attributes),
            Operation::Update => {
                // What was computed at creation stays, though clients may leave it out.
                for field in ["priority", "preemptionPolicy"] {
                    let old = &attributes.old["spec"][field];
                    if attributes.object["spec"].is_object()
                        && attributes.object["spec"].get(field).is_none_or(Value::is_null)
                        && !old.is_null()
                    {
                        attributes.object["spec"][field] = old.clone();
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let class = attributes.resource.gk() == ("scheduling.k8s.io", "PriorityClass");
        if !class || attributes.object["globalDefault"] != true {
            return Ok(());
        }
        match &self.0.get(attributes.view).default {
            Some(other) if attributes.operation == Operation::Create || other != attributes.name => {
                let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
                Err(forbidden(attributes, why))
            }
            _ => Ok(()),
        }
    }
}
