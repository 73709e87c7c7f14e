//! The object around a default: what stands within metadata is judged and pruned as a part of it.
use serde_json::{Map, Value};

use super::{Structural, build, embedded};
use crate::schema::{MAX_DEPTH, Schema};

/// A step from an object to a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Item,
}

/// An object that has nothing but a value at the end of a way.
pub(super) fn around(steps: &[Step<'_>], value: Value) -> Value {
    steps.iter().rev().fold(value, |value, step| match step {
        Step::Field(name) => Value::Object(Map::from_iter([((*name).to_owned(), value)])),
        Step::Item => Value::Array(vec![value]),
    })
}

/// What stands at the end of the way.
fn within(steps: &[Step<'_>], object: Value) -> Option<Value> {
    steps.iter().try_fold(object, |mut value, step| match step {
        Step::Field(name) => value.as_object_mut()?.remove(*name),
        Step::Item => value.as_array_mut()?.pop(),
    })
}

/// A schema whose defaults have no metadata that nobody knows; `None` where there is nothing to leave out.
pub(super) fn prune(json: &Value, metadata: Schema<'_>) -> Option<Value> {
    let mentions = |key: &str| mentions(json, key, MAX_DEPTH);
    if !mentions("x-kubernetes-embedded-resource") || !mentions("default") {
        return None;
    }
    let built = build::build(json, None);
    let mut pruned = json.clone();
    let pruner = Pruner { root: built.schema(), metadata };
    pruner.walk(&mut pruned, &mut Vec::new(), MAX_DEPTH);
    (pruned != *json).then_some(pruned)
}

/// The schemas within a schema where defaults can stand.
pub(super) fn parts(json: &Value) -> impl Iterator<Item = &Value> {
    let fields = json.get("properties").and_then(Value::as_object).into_iter().flat_map(|all| all.values());
    fields.chain(json.get("items")).chain(json.get("additionalProperties"))
}

pub(super) fn mentions(json: &Value, key: &str, depth: usize) -> bool {
    depth > 0 && (json.get(key).is_some() || parts(json).any(|part| mentions(part, key, depth - 1)))
}

struct Pruner<'a> {
    root: Schema<'a>,
    metadata: Schema<'a>,
}

impl Pruner<'_> {
    fn walk<'j>(&self, json: &'j mut Value, steps: &mut Vec<Step<'j>>, depth: usize) {
        let (Some(depth), Some(schema)) = (depth.checked_sub(1), json.as_object_mut()) else { return };
        if let Some(default) = schema.get_mut("default") {
            match self.pruned(default, steps) {
                Some(pruned) => *default = pruned,
                None => drop(schema.remove("default")),
            }
        }
        for (key, part) in schema {
            match key.as_str() {
                "items" => self.below(part, Step::Item, steps, depth),
                "additionalProperties" => self.below(part, Step::Field("*"), steps, depth),
                "properties" => {
                    for (name, part) in part.as_object_mut().into_iter().flatten() {
                        self.below(part, Step::Field(name), steps, depth);
                    }
                }
                _ => {}
            }
        }
    }

    fn below<'j>(&self, json: &'j mut Value, step: Step<'j>, steps: &mut Vec<Step<'j>>, depth: usize) {
        steps.push(step);
        self.walk(json, steps, depth);
        steps.pop();
    }

    fn pruned(&self, default: &Value, steps: &[Step<'_>]) -> Option<Value> {
        let mut object = around(steps, default.clone());
        match embedded::coerce(&mut object, self.root, self.metadata) {
            Ok(_) => within(steps, object),
            // It was stored before such defaults were refused.
            Err(_) => Some(default.clone()),
        }
    }
}

/// A schema as it is used: [`prune`]d.
pub(super) fn trusted(json: &Value, metadata: Option<Schema<'_>>) -> Structural {
    let pruned = metadata.and_then(|metadata| prune(json, metadata));
    build::build(pruned.as_ref().unwrap_or(json), metadata)
}
