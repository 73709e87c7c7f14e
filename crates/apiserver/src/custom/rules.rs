//! CEL rules of custom resources (`x-kubernetes-validations`): compiled with the definition, run on every write.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::{Activation, Budget, CompileErrors, DeclType, Env, EvalError, Fidelity, Program, Type, Value as CelValue};
use machinery::field::{Error, Errors, Kind, Path};
use machinery::schema::Before;
use serde_json::Value;

/// The most that one rule may be estimated to cost.
const RULE_LIMIT: u64 = cel::limits::ESTIMATE_PER_RULE;
/// The most that all rules of a definition may be estimated to cost.
const TOTAL_LIMIT: u64 = cel::limits::ESTIMATE_PER_DEFINITION;

/// The rules of a schema, where it has any.
#[derive(Debug)]
pub struct Rules {
    decl: Option<Arc<DeclType>>,
    kind: Box<str>,
    rules: Vec<Rule>,
    properties: BTreeMap<String, Rules>,
    values: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// The keys that tell the items of a list apart; without them old and new items cannot be compared.
    keys: Option<Vec<String>>,
}

struct Rule {
    text: String,
    program: Result<Program, String>,
    message: Option<String>,
    message_program: Option<Program>,
    reason: Kind,
    field_path: String,
    uses_old: bool,
    optional_old: bool,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Rules {
    /// Compiles the rules of a schema that was checked before.
    pub fn trusted(schema: &Value) -> Option<Rules> {
        let mut compiling = Compiling { errors: None, costs: Vec::new() };
        build(schema, &Path::empty(), true, Some(1), false, &mut compiling)
    }

    /// What is wrong with the rules of a schema.
    pub fn check(schema: &Value, path: &Path) -> Errors {
        let mut errors = Vec::new();
        let mut compiling = Compiling { errors: Some(&mut errors), costs: Vec::new() };
        build(schema, path, true, Some(1), false, &mut compiling);
        let mut costs = compiling.costs;
        let total = costs.iter().fold(0u64, |sum, (cost, _)| sum.saturating_add(*cost));
        if total > TOTAL_LIMIT {
            costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            for (_, path) in costs.iter().take(4).filter(|(cost, _)| *cost > TOTAL_LIMIT / 100) {
                let detail =
                    "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                errors.push(Error::forbidden(path, detail));
            }
            errors.push(Error::forbidden(
                path,
                over_budget(
                    "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema",
                    total,
                    TOTAL_LIMIT,
                ),
            ));
        }
        errors
    }

    /// Runs the rules on an object. With `old`, what did not change is let pass, with a warning.
    pub fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        before: Option<Before<'_>>,
        warnings: &mut Vec<String>,
    ) -> Errors {
        let mut found = Found { errors: Vec::new(), warnings };
        let mut budget = Budget::kubernetes();
        run(self, &Path::empty(), new, (old, before), false, &mut budget, &mut found);
        found.errors
    }
}

/// What is wrong, and what only would be.
struct Found<'w> {
    errors: Errors,
    warnings: &'w mut Vec<String>,
}

/// `within`: whether what it is in did not change, which decides for what has no counterpart of its own.
fn run(
    rules: &Rules,
    path: &Path,
    new: &Value,
    (old, before): (Option<&Value>, Option<Before<'_>>),
    within: bool,
    budget: &mut Budget,
    found: &mut Found<'_>,
) {
    if new.is_null() {
        return;
    }
    let old = old.filter(|old| !old.is_null());
    // What did not change was accepted before, be the rules newer than it.
    let unchanged = before.map_or(within, |before| before.same(new));
    if let Some(decl) = &rules.decl {
        for rule in &rules.rules {
            if budget.remaining() == 0 {
                return found.errors.push(rules.failed(path, OUT_OF_BUDGET));
            }
            check(rule, rules, decl, path, new, old, unchanged, budget, found);
        }
    }
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                let old = (old.and_then(|old| old.get(name)), before.and_then(|before| before.key(name)));
                if let Some(below) = rules.properties.get(name) {
                    run(below, &path.child(name), value, old, unchanged, budget, found);
                } else if let Some(below) = &rules.values {
                    run(below, &path.key(name), value, old, unchanged, budget, found);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &rules.items {
                for (i, item) in items.iter().enumerate() {
                    let old = rules.keys.as_ref().and_then(|keys| {
                        let same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
                        old?.as_array()?.iter().find(same)
                    });
                    let before = before.and_then(|before| before.item(item));
                    run(below, &path.index(i), item, (old, before), unchanged, budget, found);
                }
            }
        }
        _ => {}
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Rules {
    /// A rule that could not be decided: the type stands for the value, as in Kubernetes.
    fn failed(&self, path: &Path, detail: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, path, Some((*self.kind).into()), detail)
    }
}

/// Objects and lists are not shown in errors.
fn shown(rules: &Rules, value: &Value) -> Option<Value> {
    (!matches!(&*rules.kind, "object" | "array")).then(|| value.clone())
}

#[allow(clippy::too_many_arguments, reason = "one rule on one value, and everything around both")]
fn check(
    rule: &Rule,
    rules: &Rules,
    decl: &Arc<DeclType>,
    path: &Path,
    new: &Value,
    old: Option<&Value>,
    unchanged: bool,
    budget: &mut Budget,
    found: &mut Found<'_>,
) {
    let program = match &rule.program {
        Ok(program) => program,
        Err(error) => {
            return found.errors.push(rules.failed(path, format!("rule compile error: {error}")));
        }
    };
    if rule.uses_old && old.is_none() && !rule.optional_old {
        return;
    }
    let mut at = path.clone();
    for part in rule.field_path.split('.').filter(|part| !part.is_empty()) {
        at = at.child(part);
    }
    let activation = || -> Result<Activation<'_>, cel::EvalError> {
        let mut activation = Activation::new().with("self", CelValue::typed(new, decl)?);
        match (old, rule.optional_old) {
            (Some(old), false) => activation = activation.with("oldSelf", CelValue::typed(old, decl)?),
            (Some(old), true) => activation = activation.with("oldSelf", CelValue::some(CelValue::typed(old, decl)?)),
            (None, true) => activation = activation.with("oldSelf", CelValue::Optional(None)),
            (None, false) => {}
        }
        Ok(activation)
    };
    let result = activation().and_then(|activation| program.evaluate_bool(&activation, budget));
    let said = rule.message.clone().unwrap_or_else(|| format!("failed rule: {}", rule.text.trim()));
    match result {
        Ok(true) => {}
        Ok(false) => {
            let computed = rule.message_program.as_ref().and_then(|program| {
                let activation = activation().ok()?;
                match program.evaluate(&activation, budget).ok()?.to_json().ok()? {
                    Value::String(text) => {
                        let text = text.trim().to_owned();
                        (!text.is_empty() && !text.contains('\n') && text.len() <= cel::limits::MESSAGE_BYTES)
                            .then_some(text)
                    }
                    _ => None,
                }
            });
            // Kubernetes' own mistakes of this kind have no message, so those of rules lose theirs.
            let said = if rule.reason == Kind::Duplicate { String::new() } else { computed.unwrap_or(said) };
            let error = Error::new(rule.reason, &at, shown(rules, new), said);
            if unchanged && !rule.uses_old {
                found.warnings.push(error.to_string());
            } else {
                found.errors.push(error);
            }
        }
        Err(error) => {
            let named = rule.message.as_deref().unwrap_or(rule.text.trim());
            let detail = match error {
                EvalError::BudgetExhausted => OUT_OF_BUDGET.to_owned(),
                EvalError::NoSuchOverload(_) => format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {named}"
                ),
                EvalError::CostLimit | EvalError::MemoryLimit => format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {named}"
                ),
                EvalError::Failed(_) => format!("{error} evaluating rule: {named}"),
            };
            // Not being able to tell is an error, whatever was there before.
            found.errors.push(rules.failed(path, detail));
        }
    }
}
