//! CEL in classes, templates and claims: what each place may name, checked before anything is made of it.

use std::sync::Arc;

use conductor_cel::{CompileErrors, DeclType, Env, Program, Type};
use serde_json::Value;

use crate::types::{ResourceType, schema};

/// A place where an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `spec.expression` of a claim.
    Claim,
    /// `offers` of a class.
    Offers,
    /// A template of a class.
    ClassTemplate,
    /// A template of a resource.
    ResourceTemplate,
    /// `readyWhen`.
    ReadyWhen,
    /// `connection`.
    Connection,
    /// The template of a volume's implementation.
    VolumeTemplate,
    /// The volume itself.
    Volume,
}

impl Place {
    fn variables(self) -> &'static [&'static str] {
        match self {
            Place::Claim => &["claim", "resource", "self"],
            Place::Offers => &["claim"],
            Place::ClassTemplate => &["claim", "class", "resource"],
            Place::ResourceTemplate => &["resource"],
            Place::ReadyWhen => &["implementation", "resource"],
            Place::Connection => &["claim", "implementation", "resource", "secret"],
            Place::VolumeTemplate => &["claim", "class"],
            Place::Volume => &["claim", "class", "implementation"],
        }
    }

    /// Whether what stands there must be true or false.
    fn decides(self) -> bool {
        matches!(self, Place::Claim | Place::ReadyWhen)
    }
}

/// The expression, ready to be evaluated with any of the variables.
pub fn compile(expression: &str) -> Result<Program, String> {
    let all = ["claim", "class", "resource", "implementation", "secret", "self"];
    let env = all.iter().fold(Env::templates(), |env, name| env.declare(name, Type::Dyn));
    env.compile(expression).map_err(|e| e.to_string())
}

/// What is wrong with an expression in its place. Of the fields of a type's own objects the names are checked and not the types: amounts are texts or
/// numbers, and what is not known here is known when it is evaluated.
pub fn check(kind: Option<&ResourceType>, place: Place, expression: &str) -> Result<(), String> {
    let here = place.variables();
    let wrong = |errors: &CompileErrors, only: &str| {
        let issues = errors.issues().iter().map(|issue| issue.message.as_str()).filter(|m| m.starts_with(only));
        let issues = issues.collect::<Vec<_>>().join("; ");
        format!("`{expression}` cannot be used here: {issues} (there is {} to name)", here.join(", "))
    };
    let plain = here.iter().fold(Env::templates(), |env, name| env.declare(name, Type::Dyn));
    let program = plain.compile(expression).map_err(|errors| wrong(&errors, ""))?;
    if place.decides() && !matches!(program.output_type(), Type::Bool | Type::Dyn) {
        return Err(format!("`{expression}` yields {}, and must be true or false", program.output_type()));
    }
    let Some(kind) = kind else { return Ok(()) };
    let named = here.iter().fold(Env::templates(), |env, name| match *name {
        "claim" => env.declare_schema(name, Arc::new(names("claim", &schema::claim(kind)))),
        "resource" | "self" => env.declare_schema(name, Arc::new(names("resource", &schema::resource(kind)))),
        _ => env.declare(name, Type::Dyn),
    });
    match named.compile(expression) {
        Err(errors) if errors.issues().iter().any(|issue| issue.message.starts_with(UNDEFINED)) => {
            Err(wrong(&errors, UNDEFINED))
        }
        _ => Ok(()),
    }
}

/// How CEL begins to say that an object has no such field.
const UNDEFINED: &str = "undefined field";

/// The declared type of an object by the names of its fields alone.
fn names(name: &str, schema: &Value) -> DeclType {
    let fields = schema["properties"].as_object().filter(|fields| !fields.is_empty() && name.matches('.').count() < 4);
    let Some(fields) = fields else { return DeclType::any() };
    DeclType::object(
        name,
        fields.iter().map(|(field, schema)| {
            let open = ["metadata", "status"].contains(&field.as_str());
            let decl = if open { DeclType::any() } else { names(&format!("{name}.{field}"), schema) };
            (field.clone(), Arc::new(decl), false)
        }),
    )
}
