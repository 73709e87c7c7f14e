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

/// What is found out while rules are compiled.
struct Compiling<'a> {
    errors: Option<&'a mut Errors>,
    /// What each expression may cost, and where it stands.
    costs: Vec<(u64, Path)>,
}

impl Compiling<'_> {
    fn report(&mut self, error: Error) {
        if let Some(errors) = self.errors.as_deref_mut() {
            errors.push(error);
        }
    }

    /// Takes note of what an expression may cost, and refuses it if that is too much.
    fn charge(&mut self, what: &str, cost: u64, path: Path) {
        if cost > RULE_LIMIT {
            self.report(Error::forbidden(&path, over_budget(&format!("estimated {what} cost"), cost, RULE_LIMIT)));
        }
        if self.errors.is_some() {
            self.costs.push((cost, path));
        }
    }
}

/// How often a schema's value can occur in an object.
type Cardinality = Option<u64>;

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

fn over_budget(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if cost == u64::MAX || factor > 100.0 { "more than 100x".to_owned() } else { format!("{factor:.1}x") };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

fn multiply(cardinality: Cardinality, bound: &Value) -> Cardinality {
    Some(cardinality?.saturating_mul(bound.as_u64()?))
}

/// Compiles what is at and below a schema; `None` if there are no rules.
fn build(
    schema: &Value,
    path: &Path,
    root: bool,
    cardinality: Cardinality,
    uncorrelatable: bool,
    compiling: &mut Compiling<'_>,
) -> Option<Rules> {
    let embedded = root || schema["x-kubernetes-embedded-resource"] == true;
    let list = schema["x-kubernetes-validations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let decl = if list.is_empty() { None } else { DeclType::from_structural(schema, "self", embedded) };
    let rules = list
        .iter()
        .enumerate()
        .map(|(i, rule)| {
            let path = path.child("x-kubernetes-validations").index(i);
            compile(rule, decl.as_ref(), &path, cardinality, uncorrelatable, compiling)
        })
        .collect::<Vec<_>>();
    let mut properties = BTreeMap::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = path.child("properties").key(name);
        if let Some(below) = build(property, &path, false, cardinality, uncorrelatable, compiling) {
            properties.insert(name.clone(), below);
        }
    }
    let values = schema.get("additionalProperties").filter(|values| values.is_object()).and_then(|values| {
        let cardinality = multiply(cardinality, &schema["maxProperties"]);
        build(values, &path.child("additionalProperties"), false, cardinality, uncorrelatable, compiling).map(Box::new)
    });
    let is_map = schema["x-kubernetes-list-type"] == "map";
    let items = schema.get("items").filter(|items| items.is_object()).and_then(|items| {
        let cardinality = multiply(cardinality, &schema["maxItems"]);
        build(items, &path.child("items"), false, cardinality, uncorrelatable || !is_map, compiling).map(Box::new)
    });
    if rules.is_empty() && properties.is_empty() && values.is_none() && items.is_none() {
        return None;
    }
    let keys = is_map.then(|| {
        let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        keys.filter_map(Value::as_str).map(str::to_owned).collect()
    });
    let kind = schema["type"].as_str().unwrap_or_default().into();
    Some(Rules { decl, kind, rules, properties, values, items, keys })
}

fn compile(
    rule: &Value,
    decl: Option<&Arc<DeclType>>,
    path: &Path,
    cardinality: Cardinality,
    uncorrelatable: bool,
    compiling: &mut Compiling<'_>,
) -> Rule {
    let text = rule["rule"].as_str().unwrap_or_default().to_owned();
    let optional_old = rule["optionalOldSelf"] == true;
    let env = decl.map(|decl| {
        let env = Env::kubernetes_crd().declare_schema("self", decl.clone());
        if optional_old {
            env.declare_optional_schema("oldSelf", decl)
        } else {
            env.declare_schema("oldSelf", decl.clone())
        }
    });
    let compiled = match &env {
        None => Err("compilation failed: the schema has no type that CEL knows".to_owned()),
        Some(env) => {
            let failed = |error: CompileErrors| format!("{} failed: {error}", error.stage());
            env.compile(&text).map_err(failed).and_then(|program| match program.output_type() {
                Type::Bool => Ok(program),
                _ => Err("cel expression must evaluate to a bool".to_owned()),
            })
        }
    };
    let occurs = cardinality.unwrap_or_else(|| decl.map_or(1, |decl| decl.max_cardinality()));
    let mut uses_old = false;
    match &compiled {
        Ok(program) => {
            uses_old = program.uses("oldSelf");
            let cost = program.estimate(Fidelity::Kubernetes).max.saturating_mul(occurs);
            compiling.charge("rule", cost, path.child("rule"));
            if uses_old && uncorrelatable {
                let detail = "oldSelf cannot be used on the uncorrelatable portion of the schema within a list that is not a map";
                compiling.report(Error::invalid(&path.child("rule"), text.as_str(), detail));
            }
            if !uses_old && rule.get("optionalOldSelf").is_some_and(|own| !own.is_null()) {
                let detail = "may not be set if oldSelf is not used in rule";
                compiling.report(Error::invalid(&path.child("optionalOldSelf"), optional_old, detail));
            }
        }
        Err(error) => {
            compiling.report(Error::invalid(&path.child("rule"), rule.clone(), error.as_str()));
        }
    }
    let message = rule["messageExpression"].as_str().filter(|text| !text.trim().is_empty() && compiled.is_ok());
    let message_program = message.and_then(|text| match env.as_ref()?.compile(text) {
        Ok(program) if matches!(program.output_type(), Type::String) => {
            let cost = program.estimate(Fidelity::Kubernetes).max;
            compiling.charge("messageExpression", cost, path.child("messageExpression"));
            Some(program)
        }
        Ok(_) => {
            let detail = "messageExpression must evaluate to a string";
            compiling.report(Error::invalid(&path.child("messageExpression"), rule.clone(), detail));
            None
        }
        Err(error) => {
            let stage = error.stage().trim_start_matches("program ");
            let detail = format!("messageExpression {stage} failed: {error}");
            compiling.report(Error::invalid(&path.child("messageExpression"), rule.clone(), detail));
            None
        }
    });
    Rule {
        message: rule["message"].as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
        message_program,
        reason: match rule["reason"].as_str() {
            Some("FieldValueRequired") => Kind::Required,
            Some("FieldValueForbidden") => Kind::Forbidden,
            Some("FieldValueDuplicate") => Kind::Duplicate,
            _ => Kind::Invalid,
        },
        field_path: rule["fieldPath"].as_str().unwrap_or_default().trim().trim_start_matches('.').to_owned(),
        program: compiled,
        uses_old,
        optional_old,
        text,
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
