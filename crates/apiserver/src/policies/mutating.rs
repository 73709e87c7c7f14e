//! MutatingAdmissionPolicy: what expressions change about a write.

use cel::{Budget, Value as Cel, mutation};
use machinery::patch::{PatchError, apply_json_patch};
use machinery::schema::{ListKind, Schema, Shape};
use machinery::status::Status;
use serde_json::Value;

use super::expressions::{Asker, Compiler, Expression, Input, Scope};
use super::matching::{self, Criteria};
use super::params::{self, ParamKind};
use super::source::{Binding, Policy, Source};
use super::validating::Conditions;
use crate::admission::Attributes;
use crate::resource::Resource;

/// A compiled policy.
pub struct Mutating {
    name: String,
    criteria: Criteria,
    fail: bool,
    /// `reinvocationPolicy: IfNeeded`
    again: bool,
    params: Option<ParamKind>,
    conditions: Conditions,
    compiler: Compiler,
    mutations: Vec<Mutation>,
    names_namespace: bool,
    /// Whether its conditions can be using the request.
    conditions_name_request: bool,
}

enum Mutation {
    /// Merged into the object as server-side apply does.
    Apply(Expression),
    /// A JSON patch.
    Patch(Expression),
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The expressions of mutations may make objects and patches.
pub fn compiler(params: bool) -> Compiler {
    Compiler::over(cel::Env::mutation(), params, true)
}

impl Policy for Mutating {
    const POLICIES: &'static str = "admissionregistration.k8s.io/mutatingadmissionpolicies";
    const BINDINGS: &'static str = "admissionregistration.k8s.io/mutatingadmissionpolicybindings";

    fn read(object: &Value) -> Mutating {
        let spec = &object["spec"];
        let params = ParamKind::read(&spec["paramKind"]);
        let mut compiler = compiler(params.is_some());
        for variable in spec["variables"].as_array().into_iter().flatten() {
            compiler.variable(text(&variable["name"]), text(&variable["expression"]));
        }
        let mutation = |own: &Value| match own["patchType"].as_str() {
            Some("JSONPatch") => {
                Mutation::Patch(compiler.compile(text(&own["jsonPatch"]["expression"]).trim(), &[mutation::patch()]))
            }
            _ => {
                let source = text(&own["applyConfiguration"]["expression"]).trim();
                Mutation::Apply(compiler.compile(source, &[mutation::configuration()]))
            }
        };
        Mutating {
            name: text(&object["metadata"]["name"]).to_owned(),
            criteria: Criteria::read(&spec["matchConstraints"]),
            fail: spec["failurePolicy"] != "Ignore",
            again: spec["reinvocationPolicy"] == "IfNeeded",
            conditions: Conditions::read(&spec["matchConditions"], &compiler),
            mutations: spec["mutations"].as_array().into_iter().flatten().map(mutation).collect(),
            params,
            compiler,
            names_namespace: super::names(spec, "namespaceObject"),
            conditions_name_request: super::names(&spec["matchConditions"], "request")
                || super::names(&spec["variables"], "request") && super::names(&spec["matchConditions"], "variables"),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn criteria(&self) -> &Criteria {
        &self.criteria
    }
}

/// Why the policies refuse a write.
#[derive(Default)]
struct Errors {
    messages: Vec<String>,
    /// Of the first one.
    reason: Option<&'static str>,
}

impl Errors {
    fn add(&mut self, policy: &Mutating, binding: Option<&Binding>, reason: &'static str, why: &str) {
        if policy.fail {
            self.reason.get_or_insert(reason);
            self.messages.push(match binding {
                Some(binding) => {
                    format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name)
                }
                None => format!("policy {:?} denied request: {why}", policy.name),
            });
        }
    }
}

/// Lets all policies change the object.
pub async fn mutate(source: &Source<Mutating>, attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let hooks = source.get();
    if hooks.is_empty() || matching::exempt(attributes.resource) || !attributes.object.is_object() {
        return Ok(());
    }
    let mut errors = Errors::default();
    let rounds = &mut attributes.reinvocation.policies;
    if attributes.reinvocation.again {
        if rounds.last.as_ref() != Some(&attributes.object) {
            rounds.require();
        }
        if rounds.due.is_empty() {
            return Ok(());
        }
    }
    // Who applies is decided before anybody changes anything.
    let mut invocations = Vec::new();
    for hook in hooks.iter() {
        let policy = &*hook.policy;
        let matched = match policy.criteria.matches(attributes, false) {
            Ok(Some(matched)) => matched,
            Ok(None) => continue,
            Err(status) => {
                errors.add(policy, None, "Forbidden", &format!("failed to configure policy: {}", status.message));
                continue;
            }
        };
        if let Some(Err(error)) = policy.params.as_ref().map(|kind| kind.check(attributes)) {
            errors.add(policy, None, "Forbidden", &format!("failed to configure policy: {error}"));
            continue;
        }
        for binding in &hook.bindings {
            let failed = |error: String| format!("failed to configure binding: {error}");
            match binding.criteria.matches(attributes, true) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(status) => {
                    errors.add(policy, Some(binding), "Forbidden", &failed(status.message));
                    continue;
                }
            }
            match params::collect(policy.params.as_ref(), binding.params.as_ref(), attributes).await {
                Ok(params) => {
                    invocations.extend(params.into_iter().map(|params| (policy, &**binding, matched.clone(), params)));
                }
                Err(error) => errors.add(policy, Some(binding), "Forbidden", &failed(error)),
            }
        }
    }
    if !invocations.is_empty() {
        let mut asked = false;
        for (policy, binding, matched, params) in &invocations {
            let asked_for = |needed: bool| if needed { attributes.shown_request(matched) } else { Default::default() };
            let resource = attributes.resource;
            let same = std::sync::Arc::ptr_eq(matched, resource);
            let converted = match same {
                // most policies have nothing to say: what they would see is not copied for that
                true => None,
                false => {
                    let object = matching::converted(&attributes.object, resource, matched).await?;
                    Some((object, matching::converted(attributes.old, resource, matched).await?))
                }
            };
            let seen = match &converted {
                Some((object, old)) => (object, old),
                None => (&attributes.object, attributes.old),
            };
            let request = asked_for(policy.conditions_name_request);
            if !holds(policy, binding, &request, params, seen, attributes, &mut errors) {
                continue;
            }
            asked = true;
            let request = &*asked_for(true);
            let namespace = if policy.names_namespace { attributes.shown_namespace()? } else { Default::default() };
            let key = key(policy, binding, params);
            if attributes.reinvocation.again && !attributes.reinvocation.policies.is_due(&key) {
                continue;
            }
            let asker = Asker::new(attributes);
            let input = Input { object: seen.0, old: seen.1, request, namespace: &namespace, params, asker: &asker };
            let changed = invoke(policy, binding, matched, &input, &mut errors);
            if let Some(changed) = changed {
                attributes.reinvocation.policies.require();
                attributes.reinvocation.wanted = true;
                attributes.object = match same {
                    true => changed,
                    false => matching::converted(&changed, matched, resource).await?,
                };
            }
            if policy.again {
                attributes.reinvocation.policies.invoked(key);
            }
        }
        let round = &mut attributes.reinvocation;
        if asked && !round.again && !round.policies.invoked.is_empty() {
            round.policies.last = Some(attributes.object.clone());
        }
    }
    match errors.messages.first() {
        None => Ok(()),
        Some(first) => {
            let mut status = crate::plugins::forbidden(attributes, "");
            status.message = first.clone();
            status.reason = errors.reason.unwrap_or("Forbidden").into();
            Err(errors.messages.iter().fold(status, |status, message| status.cause("", "", message)))
        }
    }
}

/// Whether the conditions of a policy hold.
fn holds(
    policy: &Mutating,
    binding: &Binding,
    request: &Value,
    params: &Value,
    (object, old): (&Value, &Value),
    attributes: &Attributes<'_>,
    errors: &mut Errors,
) -> bool {
    let asker = Asker::new(attributes);
    // The conditions do not see the namespace.
    let input = Input { object, old, request, namespace: &Value::Null, params, asker: &asker };
    policy.conditions.hold(&policy.compiler.variables, &input, policy.fail).unwrap_or_else(|error| {
        errors.add(policy, Some(binding), "Invalid", &error);
        false
    })
}

/// A policy, bound, with one set of parameters.
fn key(policy: &Mutating, binding: &Binding, params: &Value) -> String {
    let meta = &params["metadata"];
    format!("{}/{}/{}/{}", policy.name, binding.name, text(&meta["namespace"]), text(&meta["name"]))
}

/// Gives the object, in the policy's version, if the policy changed it.
fn invoke(
    policy: &Mutating,
    binding: &Binding,
    matched: &Resource,
    input: &Input<'_>,
    errors: &mut Errors,
) -> Option<Value> {
    let mut object = None;
    for mutation in &policy.mutations {
        let input = Input { object: object.as_ref().unwrap_or(input.object), ..*input };
        let changed = mutation.apply(policy, &input, matched);
        match changed.and_then(|changed| super::settled(matched, changed).map_err(|status| status.message)) {
            Ok(changed) => object = Some(changed),
            Err(error) => errors.add(policy, Some(binding), "Invalid", &error),
        }
    }
    object.filter(|object| object != input.object)
}

impl Mutation {
    /// The object as the mutation makes it.
    fn apply<'a>(&'a self, policy: &'a Mutating, input: &Input<'a>, resource: &Resource) -> Result<Value, String> {
        let mut scope = Scope::new(&policy.compiler.variables, input);
        let mut budget = Budget::kubernetes();
        match self {
            Mutation::Apply(expression) => {
                if let Some(error) = expression.error() {
                    return Err(error.to_owned());
                }
                let read = |value: Cel<'_>| {
                    mutation::check_names(&value).map_err(|error| format!("type mismatch: {error}"))?;
                    value.to_json().map_err(|error| error.to_string())
                };
                let mut patch = scope.evaluate(expression, &mut budget, read).map_err(|f| f.message())??;
                patch["apiVersion"] = input.object["apiVersion"].clone();
                patch["kind"] = input.object["kind"].clone();
                let schema = super::schema_of_part(resource, input.object).unwrap_or_else(|| resource.schema());
                merge(input.object, &patch, schema).map_err(|error| format!("error applying patch: {error}"))
            }
            Mutation::Patch(expression) => {
                if let Some(error) = expression.error() {
                    return Err(error.to_owned());
                }
                let patch =
                    scope.evaluate(expression, &mut budget, |value| operations(&value)).map_err(|f| f.message())??;
                match apply_json_patch(input.object, &patch) {
                    Ok(object) => Ok(object),
                    // A test that fails means that nothing is to be done.
                    Err(PatchError::DoesNotApply(why)) if why.contains("test failed") => Ok(input.object.clone()),
                    Err(error) => Err(format!("JSON Patch: {error}")),
                }
            }
        }
    }
}

/// A list of `JSONPatch` objects as a JSON patch.
fn operations(value: &Cel<'_>) -> Result<Value, String> {
    let Cel::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".into());
    };
    let mut patch = Vec::new();
    for operation in list.iter() {
        let operation = operation.map_err(|error| error.to_string())?;
        if let Cel::Map(fields) = &operation {
            if let Some(Ok(value)) = fields.field("value", &mut Budget::kubernetes()) {
                mutation::check_names(&value).map_err(|error| format!("type mismatch: {error}"))?;
            }
        }
        patch.push(operation.to_json().map_err(|error| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}")
        })?);
    }
    Ok(Value::Array(patch))
}

fn merge(object: &Value, patch: &Value, schema: Schema<'_>) -> Result<Value, String> {
    if let Err(problems) = machinery::apply::validate(patch, schema, false) {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(format!("failed to convert patch object to typed object: {}", problems.join("\n")));
    }
    let mut atomics = Vec::new();
    find_atomics(patch, schema, String::new(), &mut atomics, 0);
    if !atomics.is_empty() {
        let list = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {list}"));
    }
    machinery::apply::merge(object, patch, schema).map_err(|error| format!("failed to merge patch: {error}"))
}

/// Replacing a part of what is one value would lose the rest of it: that must be said with a JSON patch.
fn find_atomics(value: &Value, schema: Schema<'_>, path: String, found: &mut Vec<String>, depth: usize) {
    if depth > 64 {
        return;
    }
    match (value, schema.shape()) {
        (Value::Object(fields), Shape::Object(_)) => {
            if schema.node().atomic {
                found.push(path.clone());
            }
            for (name, below) in fields {
                if let Some(child) = schema.child(name) {
                    find_atomics(below, child, format!("{path}.{name}"), found, depth + 1);
                }
            }
        }
        (Value::Object(_), Shape::Map(_)) if schema.node().atomic => found.push(path),
        (Value::Array(items), Shape::List { items: of, list }) => {
            if *list == ListKind::Atomic {
                found.push(path.clone());
            }
            for (i, item) in items.iter().enumerate() {
                find_atomics(item, schema.at(*of), format!("{path}[{i}]"), found, depth + 1);
            }
        }
        _ => {}
    }
}
