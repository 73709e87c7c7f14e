//! Defaults must themselves be what the schema wants.
use serde_json::Value;

use super::surround::{Step, around, mentions};
use super::{Structural, StructuralOptions, build, check, embedded, is_meta_field, prune, validate};
use crate::field::{self, Error, Kind, Path};
use crate::schema::{MAX_DEPTH, Schema, Shape};

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Checks every default of a schema.
pub(super) fn all(built: &Structural, json: &Value, path: &Path, options: StructuralOptions<'_>) -> field::Errors {
    // Kubernetes looks at them as if nothing were int-or-string.
    let mut without = Value::Null;
    let other = mentions(json, INT_OR_STRING, MAX_DEPTH).then(|| {
        without = json.clone();
        forget(&mut without, MAX_DEPTH);
        build::build(&without, options.metadata)
    });
    let schema = other.as_ref().unwrap_or(built).schema();
    let mut walk = Walk { options, steps: Vec::new(), errors: Vec::new() };
    let whole = Inside { resource: schema, from: 0, meta: false, whole: true };
    walk.schema(schema, json, path, whole, MAX_DEPTH);
    walk.errors
}

fn forget(json: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let Some(fields) = json.as_object_mut() else { return };
    fields.remove(INT_OR_STRING);
    for (name, part) in fields {
        match name.as_str() {
            "properties" => {
                part.as_object_mut().into_iter().flat_map(|all| all.values_mut()).for_each(|of| forget(of, depth))
            }
            "items" | "additionalProperties" => forget(part, depth),
            _ => {}
        }
    }
}

/// What a schema is a part of.
#[derive(Clone, Copy)]
struct Inside<'a> {
    /// The nearest object with apiVersion, kind and metadata.
    resource: Schema<'a>,
    /// How many steps lead to that one.
    from: usize,
    /// At or within its apiVersion, kind or metadata.
    meta: bool,
    /// It is that object itself.
    whole: bool,
}

struct Walk<'a> {
    options: StructuralOptions<'a>,
    steps: Vec<Step<'a>>,
    errors: field::Errors,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: Schema<'a>, json: &'a Value, path: &Path, inside: Inside<'a>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let inside = match schema.node().embedded {
            true => Inside { resource: schema, from: self.steps.len(), meta: false, whole: true },
            false => inside,
        };
        if let Some(default) = json.get("default").filter(|default| !default.is_null()) {
            self.default(schema, json, default, path, inside);
        }
        // Maps are left out: defaults of their values are never used.
        match schema.shape() {
            Shape::List { items, .. } => {
                if let Some(json) = json.get("items") {
                    let below = Inside { whole: false, ..inside };
                    self.below(Step::Item, schema.at(*items), json, &path.child("items"), below, depth);
                }
            }
            Shape::Object(_) => {
                for (name, json) in json.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    let Some(field) = schema.field(name) else { continue };
                    let path = path.child("properties").key(name);
                    let meta = inside.meta || inside.whole && is_meta_field(name);
                    let below = Inside { meta, whole: false, ..inside };
                    self.below(Step::Field(name), schema.at(field.schema), json, &path, below, depth);
                }
            }
            _ => {}
        }
    }

    fn below(
        &mut self,
        step: Step<'a>,
        schema: Schema<'a>,
        json: &'a Value,
        path: &Path,
        inside: Inside<'a>,
        depth: usize,
    ) {
        self.steps.push(step);
        self.schema(schema, json, path, inside, depth);
        self.steps.pop();
    }

    fn default(&mut self, schema: Schema<'a>, json: &Value, default: &Value, stands: &Path, inside: Inside<'a>) {
        let path = &stands.child("default");
        let mut found = match inside.meta {
            true => self.within_metadata(default, path, inside),
            false => self.elsewhere(schema, default, path, inside),
        };
        if found.is_empty() {
            let wrong = validate::validate(default, None, schema);
            found.extend(wrong.into_iter().map(|error| under(path, error)));
        }
        if let (true, Some(expressions)) = (found.is_empty(), self.options.expressions) {
            found = expressions.judge(json, inside.whole, default, stands);
        }
        self.errors.extend(found);
        if let Some(unknown) = json.get("type").and_then(Value::as_str).filter(|kind| !check::TYPES.contains(kind)) {
            let (found, _) = validate::type_of(default);
            let detail = format!(" in body must be of type {unknown}: {}", Value::from(found));
            self.errors.push(Error::new(Kind::TypeInvalid, path, Some(found.into()), detail));
        }
    }

    fn elsewhere(&mut self, schema: Schema<'a>, default: &Value, path: &Path, inside: Inside<'a>) -> field::Errors {
        let mut pruned = default.clone();
        if !prune::prune_part(&mut pruned, schema, inside.whole).is_empty() {
            self.errors.push(Error::invalid(path, default.clone(), "must not have unknown fields"));
        }
        let wrong = self.metadata(default.clone(), schema, inside.whole);
        wrong.into_iter().map(|error| under(path, error)).collect()
    }

    /// Metadata makes sense only as a whole.
    fn within_metadata(&self, default: &Value, path: &Path, inside: Inside<'a>) -> field::Errors {
        let mut object = around(&self.steps[inside.from..], default.clone());
        for (key, value) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
            object.as_object_mut().map(|fields| fields.entry(key).or_insert_with(|| value.into()));
        }
        let wrong = self.metadata(object, inside.resource, true);
        if wrong.is_empty() {
            return wrong;
        }
        let detail = format!("must result in valid metadata: {}", field::aggregate(&wrong));
        vec![Error::invalid(path, default.clone(), detail)]
    }

    /// What is wrong with the apiVersion, kind and metadata of an object and of those in it.
    fn metadata(&self, mut object: Value, schema: Schema<'a>, whole: bool) -> field::Errors {
        if let Some(metadata) = self.options.metadata
            && let Err(error) = embedded::coerce_part(&mut object, schema, metadata, whole)
        {
            return vec![*error];
        }
        embedded::validate(&object, schema, whole)
    }
}

/// The same mistake, seen from the schema.
fn under(path: &Path, error: Error) -> Error {
    let path = match error.path.as_str() {
        "" => path.clone(),
        inner => path.child(inner),
    };
    Error { path, ..error }
}
