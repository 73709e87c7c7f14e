//! What is wrong with the expressions of a policy or webhook when it is written.

use cel::Type;
use machinery::field::{Error, Errors, Path};
use serde_json::Value;

use super::expressions::{Compiler, Expression};

/// Longest expression of an audit annotation.
const ANNOTATION_EXPRESSION: usize = 5 * 1024;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

fn report(errors: &mut Errors, path: &Path, expression: &Expression) {
    if let Some(error) = expression.error() {
        errors.push(Error::invalid(path, expression.source.as_str(), error));
    }
}

/// The kinds whose expressions are checked here.
pub fn applies(group: &str) -> bool {
    group == "admissionregistration.k8s.io"
}

/// The expressions of an object.
pub fn check(kind: &str, object: &Value) -> Errors {
    let mut errors = Errors::new();
    match kind {
        "ValidatingAdmissionPolicy" => policy(&mut errors, object),
        "MutatingAdmissionPolicy" => mutating(&mut errors, object),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let compiler = Compiler::new(false, false);
            for (i, hook) in list(&object["webhooks"]) {
                conditions(&mut errors, &hook["matchConditions"], &Path::root("webhooks").index(i), &compiler);
            }
        }
        _ => {}
    }
    errors
}

fn conditions(errors: &mut Errors, all: &Value, path: &Path, compiler: &Compiler) {
    for (i, condition) in list(all) {
        let source = text(&condition["expression"]).trim();
        if !source.is_empty() {
            let expression = compiler.compile(source, &[Type::Bool]);
            report(errors, &path.child("matchConditions").index(i).child("expression"), &expression);
        }
    }
}

/// Declares the variables of a policy and reports those that cannot be used.
fn variables(errors: &mut Errors, spec: &Value, compiler: &mut Compiler) {
    for (i, variable) in list(&spec["variables"]) {
        let source = text(&variable["expression"]);
        if source.trim().is_empty() {
            continue;
        }
        compiler.variable(text(&variable["name"]), source);
        if let Some((_, expression)) = compiler.variables.last() {
            report(errors, &Path::root("spec").child("variables").index(i).child("expression"), expression);
        }
    }
}

fn mutating(errors: &mut Errors, object: &Value) {
    let spec = &object["spec"];
    let root = Path::root("spec");
    let params = spec["paramKind"].is_object();
    conditions(errors, &spec["matchConditions"], &root, &Compiler::new(params, false));
    let mut compiler = super::mutating::compiler(params);
    variables(errors, spec, &mut compiler);
    for (i, mutation) in list(&spec["mutations"]) {
        let path = root.child("mutations").index(i);
        let kind = text(&mutation["patchType"]);
        let (own, other, output) = match kind {
            "JSONPatch" => ("jsonPatch", "applyConfiguration", cel::mutation::patch()),
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", cel::mutation::configuration()),
            "" => {
                errors.push(Error::required(&path.child("patchType"), ""));
                continue;
            }
            other => {
                let supported = ["ApplyConfiguration", "JSONPatch"];
                errors.push(Error::not_supported(&path.child("patchType"), other, &supported));
                continue;
            }
        };
        if !mutation[own].is_object() {
            let detail = format!("must be specified when patchType is {kind}");
            errors.push(Error::required(&path.child(own), detail));
        } else {
            let at = path.child(own).child("expression");
            match text(&mutation[own]["expression"]).trim() {
                "" => errors.push(Error::required(&at, "")),
                source => report(errors, &at, &compiler.compile(source, &[output])),
            }
        }
        if mutation[other].is_object() {
            let detail = format!("must not be specified when patchType is {kind}");
            errors.push(Error::invalid(&path.child(other), format!("{{{other}}}"), detail));
        }
    }
}

fn policy(errors: &mut Errors, object: &Value) {
    let spec = &object["spec"];
    let root = Path::root("spec");
    let params = spec["paramKind"].is_object();
    conditions(errors, &spec["matchConditions"], &root, &Compiler::new(params, false));
    let mut compiler = Compiler::new(params, list(&spec["variables"]).next().is_some());
    variables(errors, spec, &mut compiler);
    for (i, validation) in list(&spec["validations"]) {
        let path = root.child("validations").index(i);
        let source = text(&validation["expression"]).trim();
        if !source.is_empty() {
            report(errors, &path.child("expression"), &compiler.compile(source, &[Type::Bool]));
        }
        let source = text(&validation["messageExpression"]);
        if validation.get("messageExpression").is_some() && source.trim().is_empty() && !source.is_empty() {
            errors.push(Error::invalid(&path.child("messageExpression"), source, "must be non-empty if specified"));
        } else if !source.is_empty() {
            report(errors, &path.child("messageExpression"), &compiler.compile_plain(source.trim(), &[Type::String]));
        }
    }
    let name = text(&object["metadata"]["name"]);
    for (i, annotation) in list(&spec["auditAnnotations"]) {
        let path = root.child("auditAnnotations").index(i);
        let key = text(&annotation["key"]);
        if name.is_empty() {
            errors.push(Error::invalid(&path.child("key"), key, "requires metadata.name be non-empty"));
        } else {
            let full = format!("{name}/{key}");
            for detail in machinery::names::qualified_name(&full) {
                errors.push(Error::invalid(&path.child("key"), full.as_str(), detail));
            }
        }
        let source = text(&annotation["valueExpression"]).trim();
        let at = path.child("valueExpression");
        if source.len() > ANNOTATION_EXPRESSION {
            errors.push(Error::required(&at, format!("must not exceed {ANNOTATION_EXPRESSION} bytes in length")));
        } else if !source.is_empty() {
            report(errors, &at, &compiler.compile(source, &[Type::String, Type::Null]));
        }
    }
}
