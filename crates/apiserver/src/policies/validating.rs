//! ValidatingAdmissionPolicy: what expressions say of a write.

use cel::{Budget, Type, Value as Cel, limits};
use machinery::status::Status;
use serde_json::{Value, json};

use super::expressions::{Asker, Compiler, Expression, Failure, Input, Scope};
use super::matching::{self, Criteria};
use super::params::{self, ParamKind};
use super::source::{Binding, Policy, Source};
use crate::admission::Attributes;

/// Annotations in the audit log are cut to this length.
const ANNOTATION: usize = 10 * 1024;

/// A compiled policy.
pub struct Validating {
    name: String,
    criteria: Criteria,
    /// `failurePolicy: Fail`
    fail: bool,
    params: Option<ParamKind>,
    conditions: Conditions,
    compiler: Compiler,
    validations: Vec<Validation>,
    annotations: Vec<(String, Expression)>,
    names_namespace: bool,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: &'static str,
}

/// `matchConditions`: all must hold for a policy or webhook to be asked.
pub struct Conditions(Vec<Expression>);

impl Conditions {
    /// Compiles them.
    pub fn read(list: &Value, compiler: &Compiler) -> Conditions {
        let list = list.as_array().into_iter().flatten();
        Conditions(list.map(|own| compiler.compile(text(&own["expression"]).trim(), &[Type::Bool])).collect())
    }

    /// Whether all hold. One that does not hold decides even if another fails.
    pub fn hold<'a>(
        &'a self,
        variables: &'a [(String, Expression)],
        input: &Input<'a>,
        fail: bool,
    ) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let mut scope = Scope::new(variables, input);
        let mut budget = Budget::new(limits::PER_CALL, limits::MATCH_CONDITIONS);
        let mut errors = Vec::new();
        for condition in &self.0 {
            match scope.evaluate(condition, &mut budget, |value| matches!(value, Cel::Bool(true))) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(Failure::This(error)) => errors.push(error),
                Err(Failure::All(error)) => {
                    errors = vec![error];
                    break;
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if !fail => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Policy for Validating {
    const POLICIES: &'static str = "admissionregistration.k8s.io/validatingadmissionpolicies";
    const BINDINGS: &'static str = "admissionregistration.k8s.io/validatingadmissionpolicybindings";

    fn read(object: &Value) -> Validating {
        let spec = &object["spec"];
        let params = ParamKind::read(&spec["paramKind"]);
        let mut compiler = Compiler::new(params.is_some(), true);
        for variable in spec["variables"].as_array().into_iter().flatten() {
            compiler.variable(text(&variable["name"]), text(&variable["expression"]));
        }
        let validation = |own: &Value| Validation {
            expression: compiler.compile(text(&own["expression"]), &[Type::Bool]),
            message: text(&own["message"]).trim().to_owned(),
            message_expression: own["messageExpression"]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(|source| compiler.compile_plain(source, &[Type::String])),
            reason: reason(&own["reason"]),
        };
        let annotation = |own: &Value| {
            let types = [Type::String, Type::Null];
            (text(&own["key"]).to_owned(), compiler.compile(text(&own["valueExpression"]), &types))
        };
        Validating {
            name: text(&object["metadata"]["name"]).to_owned(),
            criteria: Criteria::read(&spec["matchConstraints"]),
            fail: spec["failurePolicy"] != "Ignore",
            conditions: Conditions::read(&spec["matchConditions"], &compiler),
            validations: spec["validations"].as_array().into_iter().flatten().map(validation).collect(),
            annotations: spec["auditAnnotations"].as_array().into_iter().flatten().map(annotation).collect(),
            params,
            compiler,
            names_namespace: super::names(spec, "namespaceObject"),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn criteria(&self) -> &Criteria {
        &self.criteria
    }
}

/// The reasons that a validation may give.
fn reason(value: &Value) -> &'static str {
    match value.as_str() {
        Some("Unauthorized") => "Unauthorized",
        Some("Forbidden") => "Forbidden",
        Some("RequestEntityTooLarge") => "RequestEntityTooLarge",
        _ => "Invalid",
    }
}

/// Why a policy refuses a write.
struct Refusal {
    /// Which of the validations; the place among the decisions.
    index: usize,
    message: String,
    reason: &'static str,
}

/// What a policy says with one set of parameters.
#[derive(Default)]
struct Outcome {
    refusals: Vec<Refusal>,
    annotations: Vec<(String, String)>,
    /// Errors of annotations refuse a write whatever the binding's actions.
    errors: Vec<String>,
}

impl Validating {
    fn evaluate<'a>(&'a self, input: &Input<'a>) -> Outcome {
        let mut out = Outcome::default();
        let failed = |index: usize, message: String| Refusal { index, message, reason: "Invalid" };
        // The conditions do not see the namespace.
        let without = Input { namespace: &Value::Null, ..*input };
        match self.conditions.hold(&self.compiler.variables, &without, self.fail) {
            Ok(true) => {}
            Ok(false) => return out,
            Err(message) => {
                out.refusals.push(failed(0, message));
                return out;
            }
        }
        let mut scope = Scope::new(&self.compiler.variables, input);
        let mut budget = Budget::kubernetes();
        let mut verdicts = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            match scope.evaluate(&validation.expression, &mut budget, |value| matches!(value, Cel::Bool(true))) {
                Err(Failure::All(message)) => {
                    if self.fail {
                        out.refusals.push(failed(0, message));
                    }
                    return out;
                }
                verdict => verdicts.push(verdict),
            }
        }
        // Messages are paid from what the validations left.
        for (index, (validation, verdict)) in self.validations.iter().zip(verdicts).enumerate() {
            match verdict {
                Ok(true) => {}
                Err(failure) => {
                    if self.fail {
                        out.refusals.push(failed(index, failure.message()));
                    }
                }
                Ok(false) => match validation.said(&mut scope, &mut budget) {
                    Ok(message) => out.refusals.push(Refusal { index, message, reason: validation.reason }),
                    Err(error) if self.fail => {
                        out.refusals.push(failed(index, format!("failed messageExpression: {error}")));
                    }
                    Err(_) => {}
                },
            }
        }
        let mut budget = Budget::kubernetes();
        let mut scope = Scope::new(&self.compiler.variables, input);
        for (key, expression) in &self.annotations {
            let read = |value: Cel<'_>| match value {
                Cel::String(text) => Ok(text.trim().to_owned()),
                Cel::Null => Ok(String::new()),
                other => Err(format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                    expression.source,
                    other.type_name()
                )),
            };
            match scope.evaluate(expression, &mut budget, read) {
                Ok(Ok(value)) if value.is_empty() => {}
                Ok(Ok(value)) => out.annotations.push((key.clone(), cut(value))),
                Ok(Err(error)) => out.errors.push(error),
                Err(Failure::All(error)) => {
                    out = Outcome::default();
                    if self.fail {
                        out.refusals.push(failed(0, error));
                    }
                    return out;
                }
                Err(failure) => {
                    if self.fail {
                        out.errors.push(failure.message());
                    }
                }
            }
        }
        out
    }
}

impl Validation {
    /// What is said of an object that fails it.
    fn said<'a>(&'a self, scope: &mut Scope<'a>, budget: &mut Budget) -> Result<String, String> {
        if let Some(expression) = &self.message_expression {
            let read = |value: Cel<'_>| match value {
                Cel::String(text) => Some(text.trim().to_owned()),
                _ => None,
            };
            match scope.evaluate(expression, budget, read) {
                Err(Failure::All(error)) => return Err(error),
                Ok(Some(said)) if !said.is_empty() && said.len() <= limits::MESSAGE_BYTES && !said.contains('\n') => {
                    return Ok(said);
                }
                _ => {}
            }
        }
        Ok(match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression.source.trim()),
            said => said.to_owned(),
        })
    }
}

fn cut(mut value: String) -> String {
    if value.len() > ANNOTATION {
        let end = (0..=ANNOTATION).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
        value.truncate(end);
    }
    value
}

/// What all policies say, in one answer: the first refusal.
struct Verdict<'p> {
    refusal: Option<(&'p Validating, Option<&'p Binding>, Refusal)>,
}

impl<'p> Verdict<'p> {
    fn refuse(&mut self, policy: &'p Validating, binding: Option<&'p Binding>, refusal: Refusal) {
        self.refusal.get_or_insert((policy, binding, refusal));
    }

    fn misconfigured(&mut self, policy: &'p Validating, binding: Option<&'p Binding>, error: String) {
        if policy.fail {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let message = format!("failed to configure {what}: {error}");
            self.refuse(policy, binding, Refusal { index: 0, message, reason: "Invalid" });
        }
    }
}

/// Asks all policies.
pub async fn validate(source: &Source<Validating>, attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let hooks = source.get();
    if hooks.is_empty() || matching::exempt(attributes.resource) {
        return Ok(());
    }
    let mut verdict = Verdict { refusal: None };
    let mut warnings = Vec::new();
    for hook in hooks.iter() {
        let policy = &*hook.policy;
        let matched = match policy.criteria.matches(attributes, false) {
            Ok(Some(matched)) => matched,
            Ok(None) => continue,
            Err(status) => {
                verdict.misconfigured(policy, None, status.message);
                continue;
            }
        };
        if let Some(Err(error)) = policy.params.as_ref().map(|kind| kind.check(attributes)) {
            verdict.misconfigured(policy, None, error);
            continue;
        }
        let (object, old);
        let (object, old) = if std::sync::Arc::ptr_eq(&matched, attributes.resource) {
            (&attributes.object, attributes.old)
        } else {
            object = matching::converted(&attributes.object, attributes.resource, &matched).await?;
            old = matching::converted(attributes.old, attributes.resource, &matched).await?;
            (&object, &old)
        };
        let mut said: Vec<(String, String)> = Vec::new();
        for binding in &hook.bindings {
            match binding.criteria.matches(attributes, true) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(status) => {
                    verdict.misconfigured(policy, Some(binding), status.message);
                    continue;
                }
            }
            let params = match params::collect(policy.params.as_ref(), binding.params.as_ref(), attributes).await {
                Ok(params) => params,
                Err(error) => {
                    verdict.misconfigured(policy, Some(binding), error);
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            let namespace = if policy.names_namespace { attributes.shown_namespace()? } else { Default::default() };
            let asker = Asker::new(attributes);
            for params in &params {
                let request = &attributes.shown_request(&matched);
                let input = Input { object, old, request, namespace: &namespace, params, asker: &asker };
                let outcome = policy.evaluate(&input);
                for refusal in outcome.refusals {
                    act(policy, binding, refusal, attributes, &mut verdict, &mut warnings);
                }
                for error in outcome.errors {
                    verdict.refuse(policy, Some(binding), Refusal { index: 0, message: error, reason: "Invalid" });
                }
                for own in outcome.annotations {
                    if !said.contains(&own) {
                        said.push(own);
                    }
                }
            }
        }
        for (key, _) in &policy.annotations {
            let values: Vec<&str> =
                said.iter().filter(|(own, _)| own == key).map(|(_, value)| value.as_str()).collect();
            if !values.is_empty() {
                attributes.cx.annotate(format!("{}/{key}", policy.name), values.join(", "));
            }
        }
    }
    attributes.warnings.extend(warnings);
    match verdict.refusal {
        None => Ok(()),
        Some((policy, binding, refusal)) => Err(refused(attributes, policy, binding, refusal)),
    }
}

/// Does what a binding says should be done with a refusal.
fn act<'p>(
    policy: &'p Validating,
    binding: &'p Binding,
    refusal: Refusal,
    attributes: &Attributes<'_>,
    verdict: &mut Verdict<'p>,
    warnings: &mut Vec<String>,
) {
    let does = |action: &str| binding.actions.iter().any(|own| own == action);
    if does("Audit") {
        let failures = json!([{
            "message": refusal.message, "policy": policy.name, "binding": binding.name,
            "expressionIndex": refusal.index, "validationActions": binding.actions,
        }]);
        attributes.cx.annotate("validation.policy.admission.k8s.io/validation_failure", failures.to_string());
    }
    if does("Warn") {
        warnings.push(format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
            policy.name, binding.name, refusal.message
        ));
    }
    if does("Deny") {
        verdict.refuse(policy, Some(binding), refusal);
    }
}

fn refused(attributes: &Attributes<'_>, policy: &Validating, binding: Option<&Binding>, refusal: Refusal) -> Status {
    let by = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{}'{by} denied request: {}", policy.name, refusal.message);
    let mut status = crate::plugins::forbidden(attributes, &message).cause("", "", message);
    status.reason = refusal.reason.into();
    status.code = match refusal.reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status
}
