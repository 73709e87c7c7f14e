//! Whether the expressions of a policy fit the kinds it is about: said in its status, never a reason to refuse.

use std::sync::Arc;

use cel::{DeclType, Env, ListSemantics, Type};
use machinery::schema::{ListKind, Schema, Shape, Text};
use serde_json::{Value, json};

use super::expressions::Compiler;
use crate::catalog::Catalog;
use crate::resource::Resource;

/// More kinds than these are not looked at.
const KINDS: usize = 10;
/// Types nest no deeper than this for the checker; what is below is taken as it comes.
const DEPTH: usize = 16;

/// The CEL type of a resource's objects.
pub fn declared(resource: &Resource) -> Arc<DeclType> {
    declare(resource.schema(), &format!("{}.{}.{}", resource.group, resource.version, resource.kind), 0)
}

fn declare(schema: Schema<'_>, name: &str, depth: usize) -> Arc<DeclType> {
    if depth > DEPTH {
        return Arc::new(DeclType::any());
    }
    Arc::new(match schema.shape() {
        Shape::Any => DeclType::any(),
        Shape::IntOrString => DeclType::any(),
        Shape::Boolean => DeclType::plain(Type::Bool),
        Shape::Integer { .. } => DeclType::plain(Type::Int),
        Shape::Number => DeclType::plain(Type::Double),
        Shape::String(Text::Time | Text::MicroTime) => DeclType::plain(Type::Timestamp),
        Shape::String(Text::Bytes) => DeclType::plain(Type::Bytes),
        Shape::String(_) => DeclType::plain(Type::String),
        Shape::Map(values) => DeclType::map(declare(schema.at(*values), &format!("{name}.@values"), depth + 1), None),
        Shape::List { items, list } => {
            let semantics = match list {
                ListKind::Atomic => ListSemantics::Atomic,
                ListKind::Set => ListSemantics::Set,
                ListKind::Map(keys) => ListSemantics::Map(keys.iter().map(ToString::to_string).collect()),
            };
            DeclType::list(declare(schema.at(*items), &format!("{name}.@items"), depth + 1), semantics, None)
        }
        // Nothing is known of its fields.
        Shape::Object(fields) if fields.is_empty() => DeclType::any(),
        Shape::Object(fields) => {
            let fields = fields.iter().map(|field| {
                let below = declare(schema.at(field.schema), &format!("{name}.{}", field.name), depth + 1);
                (field.name.to_string(), below, field.required)
            });
            DeclType::object(name, fields)
        }
    })
}

/// The kinds that a policy's rules name, without those that name any.
fn kinds_of(policy: &Value, catalog: &Catalog) -> Vec<Arc<Resource>> {
    let mut found: Vec<Arc<Resource>> = Vec::new();
    for rule in policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let list = |name: &str| -> Vec<&str> {
            let mut list: Vec<&str> = rule[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            list.sort_unstable();
            list
        };
        let (groups, versions) = (list("apiGroups"), list("apiVersions"));
        if groups.iter().chain(&versions).any(|own| own.contains('*')) {
            continue;
        }
        let resources: Vec<&str> = list("resources").into_iter().filter(|own| !own.contains(['*', '/'])).collect();
        for group in &groups {
            for version in &versions {
                for plural in &resources {
                    if let Some(resource) = catalog.find(group, version, plural) {
                        if found.len() < KINDS && !found.iter().any(|own| Arc::ptr_eq(own, resource)) {
                            found.push(resource.clone());
                        }
                    }
                }
            }
        }
    }
    let by = |own: &Arc<Resource>| (own.group.clone(), own.version.clone(), own.kind.clone());
    found.sort_by_key(by);
    found
}

/// `status.typeChecking.expressionWarnings`
pub fn warnings(policy: &Value, catalog: &Catalog) -> Vec<Value> {
    let spec = &policy["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let params = ParamType::of(spec, catalog);
    let compilers: Vec<(String, Compiler)> = kinds_of(policy, catalog)
        .iter()
        .map(|resource| {
            let decl = declared(resource);
            let env = Env::admission()
                .declare_schema("object", decl.clone())
                .declare_schema("oldObject", decl)
                .without("authorizer.requestResource");
            let env = params.declare(env);
            let mut compiler = Compiler::over(env, false, true);
            for variable in spec["variables"].as_array().into_iter().flatten() {
                compiler.variable(&text(&variable["name"]), &text(&variable["expression"]));
            }
            (format!("{}, Kind={}", resource.api_version(), resource.kind), compiler)
        })
        .collect();
    let mut warnings = Vec::new();
    for (i, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            let Some(source) = validation[field].as_str().filter(|source| !source.is_empty()) else { continue };
            let found: Vec<String> = compilers
                .iter()
                .filter_map(|(kind, compiler)| {
                    let expression = compiler.compile(source, &[]);
                    let error = expression.error()?;
                    Some(format!("{kind}: {}\n", error.strip_prefix("compilation failed: ").unwrap_or(error)))
                })
                .collect();
            if !found.is_empty() {
                let reference = format!("spec.validations[{i}].{field}");
                warnings.push(json!({"fieldRef": reference, "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// What `params` is.
enum ParamType {
    None,
    Unknown,
    Known(Arc<DeclType>),
}

impl ParamType {
    fn of(spec: &Value, catalog: &Catalog) -> ParamType {
        let kind = &spec["paramKind"];
        if !kind.is_object() {
            return ParamType::None;
        }
        let api_version = kind["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = catalog.find_kind(group, version, kind["kind"].as_str().unwrap_or_default());
        resource.map_or(ParamType::Unknown, |own| ParamType::Known(declared(own)))
    }

    fn declare(&self, env: Env) -> Env {
        match self {
            ParamType::None => env,
            ParamType::Unknown => env.declare("params", Type::Dyn),
            ParamType::Known(decl) => env.declare_schema("params", decl.clone()),
        }
    }
}
