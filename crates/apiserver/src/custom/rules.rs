//! CEL rules of custom resources (`x-kubernetes-validations`): compiled with the definition, run on every write.

mod compile;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::{Activation, Budget, DeclType, EvalError, Program, Value as CelValue};
use machinery::field::{Error, Errors, Kind, Path};
use machinery::schema::{Before, Expressions, Keyed};
use serde_json::Value;

/// The rules of a schema, where it has any.
#[derive(Debug)]
pub struct Rules {
    own: Arc<Own>,
    kind: Box<str>,
    properties: BTreeMap<String, Rules>,
    values: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// The keys that tell the items of a list apart; without them old and new items cannot be compared.
    keys: Option<Vec<Box<str>>>,
}

/// The rules of one schema itself, and the type of its values.
#[derive(Debug, Default)]
struct Own {
    decl: Option<Arc<DeclType>>,
    rules: Vec<Rule>,
}

struct Rule {
    text: String,
    program: Result<Program, String>,
    message: Option<String>,
    message_program: Option<Result<Program, String>>,
    reason: Kind,
    /// The field that a refusal names, from where the rule stands.
    field: Path,
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
        compile::trusted(schema)
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

/// Judges the rules of one definition's schema. What its defaults may spend, they may together.
#[derive(Debug)]
pub struct Judge {
    budget: RefCell<Budget>,
    compiled: compile::Compiled,
    /// Whether a rule may cost more than one may.
    lenient: bool,
}

impl Judge {
    /// Of which nothing has been spent.
    pub fn new() -> Judge {
        Judge { budget: RefCell::new(Budget::kubernetes()), compiled: Default::default(), lenient: false }
    }

    /// The same for a schema that stood before: what one of its rules costs was accepted then.
    pub fn lenient() -> Judge {
        Judge { lenient: true, ..Judge::new() }
    }
}

impl Expressions for Judge {
    fn check(&self, schema: &Value, path: &Path, wrong: &[Error]) -> Errors {
        compile::check(&self.compiled, schema, path, wrong, self.lenient)
    }

    fn judge(&self, schema: &Value, whole: bool, default: &Value, path: &Path) -> Errors {
        let mut budget = self.budget.borrow_mut();
        if budget.remaining() == 0 {
            // it was said when it ran out
            return Vec::new();
        }
        let rules = compile::of_default(&self.compiled, schema, whole, default);
        let Some(rules) = rules else { return Vec::new() };
        let path = path.child("default");
        let mut warnings = Vec::new();
        let mut judged = |old: Option<&Value>| {
            let (mut found, mut own) = (Found { errors: Vec::new(), warnings: &mut warnings }, budget.clone());
            run(&rules, &path, default, (old, None), false, &mut own, &mut found);
            (found.errors, own)
        };
        // it stays what it is, and it comes where nothing was
        let (mut errors, mut spent) = judged(Some(default));
        if errors.is_empty() {
            let (as_new, own) = judged(None);
            errors = as_new;
            spent = if own.remaining() < spent.remaining() { own } else { spent };
        }
        *budget = spent;
        errors
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
    if let Some(decl) = &rules.own.decl {
        for rule in &rules.own.rules {
            if budget.remaining() == 0 {
                return found.errors.push(rules.failed(path, OUT_OF_BUDGET));
            }
            check(rule, rules, decl, path, new, old, unchanged, budget, found);
        }
    }
    match new {
        Value::Object(fields) => {
            let is_root = *path == Path::empty();
            for (name, value) in fields {
                // Both versions were brought to the same apiVersion and kind: nothing can be told of those.
                let told = !(is_root && matches!(&**name, "apiVersion" | "kind"));
                let unchanged = unchanged && told;
                let before = before.filter(|_| told).and_then(|before| before.key(name));
                let old = (old.and_then(|old| old.get(name)), before);
                if let Some(below) = rules.properties.get(name) {
                    run(below, &path.child(name), value, old, unchanged, budget, found);
                } else if let Some(below) = &rules.values {
                    run(below, &path.key(name), value, old, unchanged, budget, found);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &rules.items {
                let known = rules.keys.as_ref().and_then(|keys| Some(Keyed::new(old?.as_array()?, keys)));
                let before = before.and_then(Before::items);
                for (i, item) in items.iter().enumerate() {
                    let old = known.as_ref().and_then(|known| known.like(item));
                    let before = before.as_ref().and_then(|before| before.like(item));
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
    let at = if rule.field == Path::empty() { path.clone() } else { path.child(rule.field.as_str()) };
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
                let (program, activation) = (program.as_ref().ok()?, activation().ok()?);
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
