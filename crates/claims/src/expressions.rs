//! CEL in classes, templates and claims: what each place may name, checked before anything is made of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use conductor_cel::{CompileErrors, DeclType, Env, Program, Type};
use serde_json::{Value, json};

use crate::declared::{self, Schema, open};
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
            Place::Connection => &["claim", "implementation", "implementations", "resource", "secret"],
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
    let all = ["claim", "class", "resource", "implementation", "implementations", "secret", "self"];
    let env = all.iter().fold(Env::templates(), |env, name| env.declare(name, Type::Dyn));
    env.compile(expression).map_err(|e| e.to_string())
}

/// What is known of the objects that expressions may name, beside the type: the fields of the class or resource they stand in, and the
/// schemas of other kinds.
pub struct Surroundings<'s> {
    /// The fields of the class or resource, for the parameters and the templates that it may name.
    pub beside: &'s Value,
    /// What variables are by their schemas, such as `implementation`; those of several templates as `implementations.NAME`.
    pub schemas: BTreeMap<String, Schema<'s>>,
}

impl<'s> Surroundings<'s> {
    /// What stands beside an expression, and nothing else.
    pub fn of(beside: &'s Value) -> Surroundings<'s> {
        Surroundings { beside, schemas: BTreeMap::new() }
    }
}

/// The expressions of one place. Of what they name, the names and types are checked as far as they are known: amounts are texts or numbers, and what
/// is not known here is known when it is evaluated.
pub struct Checker {
    place: Place,
    plain: Env,
    /// With what is known of the variables, and the same without what there is in a class.
    known: Env,
    unsure: Env,
}

/// How CEL begins to say that an object has no such field.
const UNDEFINED: &str = "undefined field";

impl Checker {
    /// For the expressions of a place.
    pub fn new(kind: Option<&ResourceType>, place: Place, around: &Surroundings<'_>) -> Checker {
        let here = place.variables();
        let plain = here.iter().fold(Env::templates(), |env, name| env.declare(name, Type::Dyn));
        let known = here.iter().fold(Env::templates(), |env, name| match declared_as(kind, place, around, name) {
            Some(decl) => env.declare_schema(name, Arc::new(decl)),
            None => env.declare(name, Type::Dyn),
        });
        let unsure = known.clone().declare("class", Type::Dyn);
        let unsure = if here.contains(&"class") { unsure } else { unsure.without("class") };
        Checker { place, plain, known, unsure }
    }

    /// The type of what an expression yields, or what is wrong with it.
    pub fn check(&self, expression: &str) -> Result<Type, String> {
        let here = self.place.variables();
        let wrong = |errors: &CompileErrors, counts: fn(&str) -> bool| {
            let issues = errors.issues().iter().map(|issue| issue.message.as_str()).filter(|m| counts(m));
            let issues: Vec<&str> = issues.collect();
            let issues = (!issues.is_empty()).then(|| issues.join("; "))?;
            Some(format!("`{expression}` cannot be used here: {issues} (there is {} to name)", here.join(", ")))
        };
        let yields = |yields: &Type| match yields {
            Type::Bool | Type::Dyn => Ok(yields.clone()),
            other if self.place.decides() => Err(format!("`{expression}` yields {other}, and must be true or false")),
            other => Ok(other.clone()),
        };
        let plain = self.plain.compile(expression);
        let plain = plain.map_err(|errors| wrong(&errors, |_| true).unwrap_or_else(|| errors.to_string()))?;
        // who asks whether there is a parameter knows that there may be none
        let known = if expression.contains("has(class.") { &self.unsure } else { &self.known };
        match known.compile(expression) {
            Ok(program) => yields(program.output_type()),
            Err(errors) => wrong(&errors, is_certain).map_or_else(|| yields(plain.output_type()), Err),
        }
    }
}

/// Whether a type error is one however the expression is evaluated. Objects are maps then, and anything may be null.
fn is_certain(message: &str) -> bool {
    message.starts_with(UNDEFINED) || !message.contains(declared::OBJECT) && !message.contains("null")
}

/// What is known of a variable.
fn declared_as(kind: Option<&ResourceType>, place: Place, around: &Surroundings<'_>, name: &str) -> Option<DeclType> {
    if let Some(schema) = around.schemas.get(name) {
        return Some(schema.declare(name));
    }
    match (name, kind) {
        ("secret", _) => Some(DeclType::map(Arc::new(DeclType::plain(Type::String)), None)),
        ("claim", Some(kind)) => Some(Schema::of(&schema::claim(kind)).declare("claim")),
        // what matching knows of it
        ("resource" | "self", Some(kind)) if place == Place::Claim => Some(candidate(kind)),
        ("resource", Some(kind)) => {
            let mut seen = schema::resource(kind);
            // what becomes of a resource changes, and a template does not with it
            if let (Place::ClassTemplate | Place::ResourceTemplate, Some(fields)) =
                (place, seen["properties"].as_object_mut())
            {
                fields.remove("status");
            }
            Some(Schema::of(&seen).declare("resource"))
        }
        ("class", Some(kind)) if place == Place::ClassTemplate => Some(class(kind, around.beside)),
        ("implementations", Some(_)) => {
            let templates = around.beside["templates"].as_array().into_iter().flatten();
            let fields = templates.filter_map(|template| template["name"].as_str()).map(|name| {
                let full = format!("implementations.{name}");
                let decl = around.schemas.get(&full).map_or_else(DeclType::any, |schema| schema.declare(&full));
                (name.to_owned(), Arc::new(decl), false)
            });
            Some(DeclType::object(&declared::object_name("implementations"), fields))
        }
        _ => None,
    }
}

/// A resource as the expression of a claim sees it.
fn candidate(kind: &ResourceType) -> DeclType {
    let full = schema::resource(kind);
    let names = kind.attributes.iter().map(|a| a.name.as_ref()).chain(["class", "capabilities"]);
    let mut spec: serde_json::Map<String, Value> =
        names.map(|name| (name.to_owned(), full["properties"]["spec"]["properties"][name].clone())).collect();
    let amounts = kind.capacities.iter().map(|c| (c.name.to_string(), json!({"type": "string"})));
    let amounts: serde_json::Map<String, Value> = amounts.collect();
    spec.insert("capacity".into(), json!({"type": "object", "properties": amounts}));
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let meta = json!({"type": "object", "properties": {"name": {"type": "string"}, "labels": labels}});
    let seen = json!({"type": "object", "properties": {
        "metadata": meta, "spec": {"type": "object", "properties": spec},
    }});
    Schema::of(&seen).declare("resource")
}

/// A class, with the parameters that it has, under `spec` and at the top.
fn class(kind: &ResourceType, beside: &Value) -> DeclType {
    let schema = schema::class(kind);
    let fields = |name: &str, more: Option<DeclType>| {
        let own = schema["properties"].as_object().into_iter().flatten().map(|(field, _)| field.as_str());
        let own = own.filter(|field| !["spec", "parameters"].contains(field));
        let own = own.map(|field| (field.to_owned(), Arc::new(declared::field(name, field)), false));
        let parameters = open(&format!("{name}.parameters"), &beside["parameters"]);
        let parameters = std::iter::once(("parameters".to_owned(), Arc::new(parameters), false));
        let more = more.map(|spec| ("spec".to_owned(), Arc::new(spec), false));
        DeclType::object(&declared::object_name(name), own.chain(parameters).chain(more))
    };
    fields("class", Some(fields("class.spec", None)))
}
