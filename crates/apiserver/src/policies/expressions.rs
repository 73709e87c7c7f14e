//! The expressions of policies and webhooks: compiled once, evaluated for every request they apply to.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use cel::{Activation, Budget, DeclType, Env, EvalError, LazyFields, Map, Program, Type, Value as Cel};
use serde_json::Value;

use crate::admission::Attributes;
use crate::auth::authz::{Authorizer, Decision};
use crate::request::RequestInfo;
use crate::resource::Resource;
use crate::user::User;

/// What is said when everything that belongs together costs too much.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An expression, or why it cannot be used.
pub struct Expression {
    /// As written.
    pub source: String,
    program: Result<Program, String>,
    /// The variables it names, by their place.
    needs: Vec<usize>,
}

impl Expression {
    /// Why it cannot be used.
    pub fn error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    /// The type of its result; nothing is known if it cannot be used.
    pub fn output(&self) -> Type {
        self.program.as_ref().map_or(Type::Dyn, |program| program.output_type().clone())
    }
}

/// What expressions may name, and the variables so far.
pub struct Compiler {
    env: Env,
    /// Messages may not ask the authorizer.
    plain: Env,
    /// In the order they are declared; each sees those before it.
    pub variables: Vec<(String, Expression)>,
    /// The types of the variables.
    fields: Vec<(String, Arc<DeclType>, bool)>,
}

static ADMISSION: LazyLock<Env> = LazyLock::new(Env::admission);

impl Compiler {
    /// For expressions with or without `params`, and with `variables` if there can be any.
    pub fn new(params: bool, variables: bool) -> Compiler {
        Compiler::over(ADMISSION.clone(), params, variables)
    }

    /// The same over another environment.
    pub fn over(env: Env, params: bool, variables: bool) -> Compiler {
        let env = if params { env.declare("params", Type::Dyn) } else { env };
        let plain = env.clone().without("authorizer").without("authorizer.requestResource");
        let mut compiler = Compiler { env, plain, variables: Vec::new(), fields: Vec::new() };
        if variables {
            compiler.declare_variables();
        }
        compiler
    }

    fn declare_variables(&mut self) {
        let decl = Arc::new(DeclType::object("kubernetes.variables", self.fields.iter().cloned()));
        self.env = self.env.clone().declare_schema("variables", decl.clone());
        self.plain = self.plain.clone().declare_schema("variables", decl);
    }

    /// Adds a variable, which later expressions may use.
    pub fn variable(&mut self, name: &str, source: &str) {
        let expression = self.any(source);
        self.fields.push((name.to_owned(), Arc::new(DeclType::plain(expression.output())), true));
        self.variables.push((name.to_owned(), expression));
        self.declare_variables();
    }

    /// An expression that yields one of these types; any if there are none.
    pub fn compile(&self, source: &str, types: &[Type]) -> Expression {
        self.compile_in(&self.env, source, types)
    }

    /// An expression that may not ask the authorizer.
    pub fn compile_plain(&self, source: &str, types: &[Type]) -> Expression {
        self.compile_in(&self.plain, source, types)
    }

    fn any(&self, source: &str) -> Expression {
        self.compile_in(&self.env, source, &[])
    }

    fn compile_in(&self, env: &Env, source: &str, types: &[Type]) -> Expression {
        let program = match env.compile(source) {
            Err(error) => Err(format!("{} failed: {error}", error.stage())),
            Ok(program) if types.is_empty() || types.iter().any(|own| own.same(program.output_type())) => Ok(program),
            Ok(program) => {
                let got = type_name(program.output_type());
                Err(match types {
                    [one] => format!("must evaluate to {} but got {got}", type_name(one)),
                    many => {
                        let names: Vec<String> = many.iter().map(type_name).collect();
                        format!("must evaluate to one of [{}] but got {got}", names.join(" "))
                    }
                })
            }
        };
        let needs = self.variables.iter().enumerate().filter(|(_, (name, _))| names_variable(source, name));
        Expression { source: source.to_owned(), program, needs: needs.map(|(at, _)| at).collect() }
    }
}

fn type_name(own: &Type) -> String {
    match own {
        Type::Null => "null_type".to_owned(),
        own => own.to_string(),
    }
}

/// Whether an expression can be using a variable. Says yes rather too often than too rarely.
fn names_variable(source: &str, name: &str) -> bool {
    source.contains("variables") && source.contains(name)
}

/// What expressions see of a request.
pub struct Input<'a> {
    /// The object.
    pub object: &'a Value,
    /// As it is.
    pub old: &'a Value,
    /// The request.
    pub request: &'a Value,
    /// The namespace, if it has one.
    pub namespace: &'a Value,
    /// The parameters, if there are any.
    pub params: &'a Value,
    /// Answers what the user may do.
    pub asker: &'a Asker<'a>,
}

impl<'a> Input<'a> {
    fn activation(&self) -> Activation<'a> {
        Activation::new()
            .with("object", Cel::from_json(self.object))
            .with("oldObject", Cel::from_json(self.old))
            .with("request", Cel::from_json(self.request))
            .with("namespaceObject", Cel::from_json(self.namespace))
            .with("params", Cel::from_json(self.params))
            .with("authorizer", Cel::authorizer(self.asker))
            .with("authorizer.requestResource", Cel::resource_check(self.asker, self.asker.own.clone()))
    }
}

/// The variables of one evaluation, each computed at most once, when the first expression needs it.
pub struct Scope<'a> {
    variables: &'a [(String, Expression)],
    base: Activation<'a>,
    known: Known<'a>,
}

struct Known<'a> {
    variables: &'a [(String, Expression)],
    values: Vec<Option<Result<Cel<'a>, EvalError>>>,
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("variables")
    }
}

impl LazyFields for Known<'_> {
    fn get<'s>(&'s self, field: &str, _: &mut Budget) -> Option<Result<Cel<'s>, EvalError>> {
        let at = self.variables.iter().position(|(name, _)| name == field)?;
        self.values.get(at)?.clone()
    }
}

/// How an evaluation went wrong.
#[derive(Debug)]
pub enum Failure {
    /// This expression has no result.
    This(String),
    /// Nothing more may be evaluated.
    All(String),
}

impl Failure {
    /// What went wrong.
    pub fn message(self) -> String {
        match self {
            Failure::This(message) | Failure::All(message) => message,
        }
    }
}

impl<'a> Scope<'a> {
    /// Nothing is computed yet.
    pub fn new(variables: &'a [(String, Expression)], input: &Input<'a>) -> Scope<'a> {
        let values = variables.iter().map(|_| None).collect();
        Scope { variables, base: input.activation(), known: Known { variables, values } }
    }

    /// Computes what an expression needs. Errors matter to who uses the variable, except that of the budget.
    fn prepare(&mut self, needs: &[usize], budget: &mut Budget) -> Result<(), Failure> {
        for at in needs {
            if self.known.values[*at].is_some() {
                continue;
            }
            let (name, expression) = &self.variables[*at];
            self.prepare(&expression.needs, budget)?;
            let failed = |text: String| EvalError::Failed(Cow::Owned(text));
            let value = match &expression.program {
                Err(error) => Err(failed(format!("composited variable {name:?} fails to compile: {error}"))),
                Ok(program) => {
                    // What a variable is made of is copied: it outlives what it was made from.
                    let activation = self
                        .base
                        .clone()
                        .with("variables", Cel::Map(Map::Shared(Arc::new(self.shared(&expression.needs)))));
                    match program.evaluate(&activation, budget) {
                        Err(EvalError::BudgetExhausted) => return Err(Failure::All(OUT_OF_BUDGET.to_owned())),
                        Err(error) => {
                            // The first variable that failed is the reason of those that use it.
                            let first =
                                expression.needs.iter().find_map(|at| self.known.values[*at].as_ref()?.as_ref().err());
                            let why = first.unwrap_or(&error);
                            Err(failed(format!("composited variable {name:?} fails to evaluate: {why}")))
                        }
                        value => value,
                    }
                }
            };
            self.known.values[*at] = Some(value);
        }
        Ok(())
    }

    /// The variables that could be computed, as a map.
    fn shared(&self, needs: &[usize]) -> std::collections::BTreeMap<cel::Key<'a>, Cel<'a>> {
        let mut map = std::collections::BTreeMap::new();
        for at in needs {
            if let Some(Ok(value)) = &self.known.values[*at] {
                map.insert(cel::Key::String(cel::Str::Borrowed(&self.variables[*at].0)), value.clone());
            }
        }
        map
    }

    /// Evaluates an expression and hands its result to `read`.
    pub fn evaluate<T>(
        &mut self,
        expression: &'a Expression,
        budget: &mut Budget,
        read: impl FnOnce(Cel<'_>) -> T,
    ) -> Result<T, Failure> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Err(Failure::This(format!("compilation error: {error}"))),
        };
        self.prepare(&expression.needs, budget)?;
        let activation = self.base.clone().with("variables", Cel::Map(Map::Lazy(&self.known)));
        match program.evaluate(&activation, budget) {
            Ok(value) => Ok(read(value)),
            Err(EvalError::BudgetExhausted) => Err(Failure::All(OUT_OF_BUDGET.to_owned())),
            Err(error) => Err(Failure::This(format!("expression '{}' resulted in error: {error}", expression.source))),
        }
    }
}

/// Answers `authorizer` questions for the user of a request.
pub struct Asker<'a> {
    authorizer: &'a dyn Authorizer,
    user: &'a User,
    /// `authorizer.requestResource`
    own: cel::Attributes,
}

impl<'a> Asker<'a> {
    /// For the user of a write.
    pub fn new(attributes: &'a Attributes<'_>) -> Asker<'a> {
        let own = cel::Attributes {
            group: attributes.resource.group.to_string(),
            resource: attributes.resource.plural.to_string(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.admission_namespace().to_owned(),
            name: attributes.asked_name().to_owned(),
            ..Default::default()
        };
        Asker { authorizer: &*attributes.cx.server.authorizer, user: attributes.user, own }
    }
}

impl std::fmt::Debug for Asker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("authorizer")
    }
}

impl cel::Authorizer for Asker<'_> {
    fn authorize(&self, asked: &cel::Attributes) -> cel::Decision {
        let info = match &asked.path {
            Some(path) => RequestInfo { path: path.clone(), verb: asked.verb.clone().into(), ..Default::default() },
            None => RequestInfo {
                is_resource: true,
                verb: asked.verb.clone().into(),
                group: asked.group.clone(),
                version: "*".into(),
                resource: asked.resource.clone(),
                subresource: asked.subresource.clone(),
                namespace: asked.namespace.clone(),
                name: asked.name.clone(),
                ..Default::default()
            },
        };
        let account = asked.service_account.as_ref().map(|(namespace, name)| User::service_account(namespace, name));
        match self.authorizer.authorize(account.as_deref().unwrap_or(self.user), &info) {
            Decision::Allow(reason) => cel::Decision { allowed: true, reason, error: None },
            Decision::NoOpinion(reason) => cel::Decision { allowed: false, reason, error: None },
        }
    }
}

/// The request as expressions see it; webhooks get the objects and an id besides.
pub fn request(attributes: &Attributes<'_>, matched: &Resource) -> Value {
    let kind = |own: &Resource| serde_json::json!({"group": own.group, "version": own.version, "kind": own.kind});
    let resource =
        |own: &Resource| serde_json::json!({"group": own.group, "version": own.version, "resource": own.plural});
    let mut request = serde_json::json!({
        "kind": kind(matched),
        "resource": resource(matched),
        "requestKind": kind(attributes.resource),
        "requestResource": resource(attributes.resource),
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user.to_json(),
        "dryRun": attributes.dry_run,
        "options": attributes.options(),
    });
    // A part may be of a kind of its own.
    let of_part = attributes.object["kind"].as_str().filter(|kind| *kind != &*attributes.resource.kind);
    if let Some(kind) = of_part.filter(|_| !attributes.subresource.is_empty()) {
        let api_version = attributes.object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        for field in ["kind", "requestKind"] {
            request[field] = serde_json::json!({"group": group, "version": version, "kind": kind});
        }
    }
    for (name, value) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.asked_name()),
        ("namespace", attributes.admission_namespace()),
    ] {
        if !value.is_empty() {
            request[name] = value.into();
        }
    }
    request
}
