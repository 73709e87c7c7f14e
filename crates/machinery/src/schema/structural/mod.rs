//! The schemas of custom resources: checked by Kubernetes' rules for structural schemas, then used to prune, fill in defaults and
//! validate.
mod build;
mod check;
mod check_defaults;
mod defaults;
mod embedded;
mod field_path;
mod formats;
mod keyed;
mod lists;
mod nested;
mod prune;
mod surround;
mod validate;

use serde_json::Value;

pub use field_path::field_path;
pub use formats::unrecognized_formats;
pub use keyed::Keyed;
pub use validate::{Before, BeforeItems};

use super::{Id, Schema, Types};
use crate::field::{self, Path};

/// The schema of one version of a custom resource.
#[derive(Debug)]
pub struct Structural {
    types: Types,
    root: Id,
    full: Id,
}

/// How a schema is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct StructuralOptions<'a> {
    /// The type of metadata (`io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`): with it, the metadata of objects and of objects in
    /// them is read strictly.
    pub metadata: Option<Schema<'a>>,
    /// The status subresource is on: the root may say less.
    pub status: bool,
    /// Who understands the schema's expressions.
    pub expressions: Option<&'a dyn Expressions>,
}

/// Who understands the rules of a schema that are expressions (`x-kubernetes-validations`).
pub trait Expressions: std::fmt::Debug {
    /// What is wrong with the rules, save those of schemas at or below which something else is wrong.
    fn check(&self, schema: &Value, path: &Path, wrong: &[field::Error]) -> field::Errors;

    /// What is wrong with a default by the rules of its schema, which stands at `path`. `whole`: it is an object with apiVersion, kind
    /// and metadata.
    fn judge(&self, schema: &Value, whole: bool, default: &Value, path: &Path) -> field::Errors;
}

impl Structural {
    /// Reads `openAPIV3Schema` of a CustomResourceDefinition that was decoded before. `path` is where it stands, as its errors show it:
    /// `spec.validation.openAPIV3Schema`.
    pub fn from_crd_schema(json: &Value, path: &Path, options: StructuralOptions<'_>) -> Result<Self, field::Errors> {
        let mut errors = check::root(json, path, options.status);
        // A schema that uses what is not supported is not looked at for its structure.
        let buildable = check::is_buildable(json);
        let structural = if buildable { nested::check(json, path) } else { Vec::new() };
        let sound = buildable && structural.is_empty();
        errors.extend(structural);
        if !sound {
            errors.extend(check::schema(json, path));
            if errors.is_empty() {
                errors.push(field::Error::invalid(path, "", "the schema uses what is not supported"));
            }
            return Err(errors);
        }
        let built = build::build(json, options.metadata);
        let defaults = check_defaults::all(&built, json, path, options);
        let wrong = check::schema(json, path);
        let rules = match options.expressions.filter(|_| defaults.is_empty()) {
            Some(expressions) => expressions.check(json, path, &wrong),
            None => Vec::new(),
        };
        errors.extend(defaults.into_iter().chain(wrong).chain(rules));
        if errors.is_empty() { Ok(built) } else { Err(errors) }
    }

    /// A schema that was checked before (a stored one), without checking it again.
    pub fn trusted(json: &Value, metadata: Option<Schema<'_>>) -> Self {
        surround::trusted(json, metadata)
    }

    /// The schema without what stands around an object.
    pub fn schema(&self) -> Schema<'_> {
        self.types.schema(self.root)
    }

    /// The schema with apiVersion, kind and metadata, for what looks at whole objects: server-side apply, OpenAPI.
    pub fn full_schema(&self) -> Schema<'_> {
        self.types.schema(self.full)
    }

    /// Drops nulls that may not be, then fills in defaults. Kubernetes does this first, on every write and every read.
    pub fn default(&self, value: &mut Value) {
        defaults::prune_nulls(value, Some(self.schema()));
        defaults::fill(value, Some(self.schema()));
    }

    /// Fills in defaults only, also where a null may not be.
    pub fn fill(&self, value: &mut Value) {
        defaults::fill(value, Some(self.schema()));
    }

    /// Drops what the schema does not know and names it as strict validation words it, sorted. The object's own apiVersion, kind
    /// and metadata are left alone, see [`Structural::coerce`].
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        prune::prune(value, self.schema())
    }

    /// Brings the metadata of the object and of objects in it into shape; names the fields dropped from it.
    pub fn coerce(&self, value: &mut Value, metadata: Schema<'_>) -> Result<Vec<String>, Box<field::Error>> {
        embedded::coerce(value, self.schema(), metadata)
    }

    /// All mistakes of an object, save those of its own metadata and of CEL rules. With `old`, what did not change is let pass.
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> field::Errors {
        let errors = validate::validate(value, old, self.schema());
        self.complete(errors, value, old)
    }

    /// The same for a status that is written on its own: of the schema only its part counts, and names are as from there.
    pub fn validate_status(&self, value: &Value, old: Option<&Value>) -> field::Errors {
        let mut errors = field::Errors::new();
        if let (Some(status), Some(field)) = (value.get("status"), self.schema().field("status")) {
            let old = old.and_then(|old| old.get("status"));
            errors = validate::validate(status, old, self.schema().at(field.schema));
        }
        for error in &mut errors {
            let below = error.path != field::Path::empty();
            error.path = field::Path::root(&if below { format!("status.{}", error.path) } else { "status".to_owned() });
        }
        self.complete(errors, value, old)
    }

    /// Adds what is not the schema's to say.
    fn complete(&self, mut errors: field::Errors, value: &Value, old: Option<&Value>) -> field::Errors {
        errors.extend(embedded::validate(value, self.schema(), false));
        if old.is_none_or(|old| lists::validate(old, self.schema()).is_empty()) {
            errors.extend(lists::validate(value, self.schema()));
        }
        errors
    }

    /// An object as it was, to tell what did not change.
    pub fn before<'a>(&'a self, old: &'a Value) -> Before<'a> {
        Before::new(old, self.schema())
    }

    /// About how many bytes it takes in memory.
    pub fn memory(&self) -> usize {
        self.types.memory()
    }
}

/// Fields that every object has, whatever its schema says.
fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

#[cfg(test)]
mod tests;
