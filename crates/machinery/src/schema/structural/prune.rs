//! Dropping what a schema does not know.
use serde_json::Value;

use super::is_meta_field;
use crate::schema::{MAX_DEPTH, Schema, Shape};

/// Prunes a whole object and gives the dropped fields as strict validation words them, sorted.
pub(super) fn prune(value: &mut Value, schema: Schema<'_>) -> Vec<String> {
    let mut walk = Walk { path: String::new(), unknown: Vec::new() };
    walk.value(value, Some(schema), true, MAX_DEPTH);
    walk.unknown.sort();
    walk.unknown.iter().map(|path| format!("unknown field {}", Value::from(path.as_str()))).collect()
}

/// Prunes a part of an object, or with `root` a whole one.
pub(super) fn prune_part(value: &mut Value, schema: Schema<'_>, root: bool) -> Vec<String> {
    let mut walk = Walk { path: String::new(), unknown: Vec::new() };
    walk.value(value, Some(schema), root, MAX_DEPTH);
    walk.unknown
}

struct Walk {
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    /// `root` is true for the object itself, whose metadata is not pruned.
    fn value(&mut self, value: &mut Value, schema: Option<Schema<'_>>, root: bool, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match value {
            Value::Object(map) => {
                let keeps = schema.is_some_and(|schema| schema.node().preserve_unknown);
                let resource = root || schema.is_some_and(|schema| schema.node().embedded);
                map.retain(|name, value| {
                    if resource && is_meta_field(name) {
                        return true;
                    }
                    let child = match schema.map(|schema| (schema, schema.shape())) {
                        Some((schema, Shape::Map(values))) => {
                            Some(Some(schema.at(*values)).filter(|of| !is_unknown(*of)))
                        }
                        Some((schema, _)) => schema.field(name).map(|field| Some(schema.at(field.schema))),
                        None => None,
                    };
                    match child {
                        Some(child) => {
                            self.within(name, |walk| walk.value(value, child, false, depth));
                            true
                        }
                        None => {
                            if !keeps && (!is_meta_field(name) || !self.path.is_empty()) {
                                let path = self.within(name, |walk| walk.path.clone());
                                self.unknown.push(path);
                            }
                            keeps
                        }
                    }
                });
            }
            Value::Array(items) => {
                // A list that keeps what it does not know says nothing on the fields of its items.
                let keeps = schema.is_some_and(|schema| schema.node().preserve_unknown);
                let of = schema.and_then(Schema::items);
                if keeps && of.is_none() {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.value(item, of, false, depth);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn within<T>(&mut self, name: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = run(self);
        self.path.truncate(length);
        result
    }
}

/// Whether the type is that of `additionalProperties: true`, of which nothing is known.
fn is_unknown(schema: Schema<'_>) -> bool {
    matches!(schema.shape(), Shape::Any) && !schema.node().preserve_unknown
}
