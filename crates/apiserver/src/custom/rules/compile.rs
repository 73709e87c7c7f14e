//! Compiling rules: what they say, and what they may cost.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::{CompileErrors, DeclType, Env, Fidelity, Program, Type};
use machinery::field::{Error, Errors, Kind, Path};
use machinery::schema::field_path;
use serde_json::Value;

use super::{Own, Rule, Rules};

/// The most that one rule may be estimated to cost.
const RULE_LIMIT: u64 = cel::limits::ESTIMATE_PER_RULE;
/// The most that all rules of a definition may be estimated to cost.
const TOTAL_LIMIT: u64 = cel::limits::ESTIMATE_PER_DEFINITION;

/// What was compiled of a definition, by where it stands: what is below several defaults is compiled once.
pub type Compiled = RefCell<HashMap<String, Arc<Own>>>;

/// What is found out while rules are compiled.
#[derive(Default)]
struct Compiling<'a> {
    compiled: Option<&'a Compiled>,
    /// Whether anybody asks what is wrong.
    asked: bool,
    errors: Errors,
    /// What each expression may cost, and where it stands.
    costs: Vec<(u64, Path)>,
    /// Where something else is wrong with the schema, in order: rules at and above that are not looked at.
    wrong: Vec<&'a str>,
}

impl Compiling<'_> {
    /// Takes note of what an expression may cost, and refuses it if that is too much.
    fn charge(&mut self, what: &str, cost: u64, path: Path) {
        if cost > RULE_LIMIT {
            self.errors.push(Error::forbidden(&path, over_budget(&format!("estimated {what} cost"), cost, RULE_LIMIT)));
        }
        self.costs.push((cost, path));
    }

    /// Refuses what all expressions together may cost, if that is too much.
    fn charge_all(&mut self, path: &Path) {
        let total = self.costs.iter().fold(0u64, |sum, (cost, _)| sum.saturating_add(*cost));
        if total <= TOTAL_LIMIT {
            return;
        }
        self.costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, path) in self.costs.iter().take(4).filter(|(cost, _)| *cost > TOTAL_LIMIT / 100) {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.push(Error::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.errors.push(Error::forbidden(path, over_budget(what, total, TOTAL_LIMIT)));
    }

    fn is_wrong(&self, path: &Path) -> bool {
        let is_there = |start: String, whole: bool| {
            let at = self.wrong.partition_point(|wrong| **wrong < *start);
            self.wrong.get(at).is_some_and(|wrong| if whole { **wrong == *start } else { wrong.starts_with(&start) })
        };
        let own = path.as_str();
        is_there(own.to_owned(), true) || ['.', '['].into_iter().any(|next| is_there(format!("{own}{next}"), false))
    }
}

fn over_budget(what: &str, cost: u64, limit: u64) -> String {
    let factor = match cost as f64 / limit as f64 {
        factor if cost == u64::MAX || factor > 100.0 => "more than 100x".to_owned(),
        // Lest it read as no excess at all.
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// How often a schema's value can occur in an object.
type Cardinality = Option<u64>;

fn multiply(cardinality: Cardinality, bound: &Value) -> Cardinality {
    Some(cardinality?.saturating_mul(bound.as_u64()?))
}

/// Where a schema stands.
#[derive(Clone)]
struct Place<'a> {
    path: Path,
    /// An object with apiVersion, kind and metadata.
    whole: bool,
    cardinality: Cardinality,
    /// The schema whose values have no counterparts in the old object that could be told.
    lost: Option<Path>,
    /// The value that the rules are for; those of fields that it does not have are not needed.
    value: Option<&'a Value>,
}

impl<'a> Place<'a> {
    fn root(path: &Path) -> Self {
        Place { path: path.clone(), whole: true, cardinality: Some(1), lost: None, value: None }
    }

    fn field(&self, name: &str) -> Option<Self> {
        let value = match self.value {
            Some(value) => Some(value.get(name)?),
            None => None,
        };
        let path = self.path.child("properties").key(name);
        Some(Place { path, whole: false, value, lost: self.lost.clone(), cardinality: self.cardinality })
    }

    /// `told`: which of them is which is known.
    fn items(&self, key: &str, bound: &Value, told: bool) -> Self {
        let cardinality = multiply(self.cardinality, bound);
        let lost = self.lost.clone().or_else(|| (!told).then(|| self.path.clone()));
        Place { path: self.path.child(key), whole: false, value: None, lost, cardinality }
    }
}

/// Compiles the rules of a schema that was checked before.
pub fn trusted(schema: &Value) -> Option<Rules> {
    build(schema, Place::root(&Path::empty()), &mut Compiling::default())
}

/// The same for a default of a schema that stands at `path`.
pub fn of_default(compiled: &Compiled, schema: &Value, whole: bool, default: &Value, path: &Path) -> Option<Rules> {
    let place = Place { whole, value: Some(default), ..Place::root(path) };
    build(schema, place, &mut Compiling { compiled: Some(compiled), ..Compiling::default() })
}

/// What is wrong with the rules of a schema, of which something else may be `wrong`.
pub fn check(compiled: &Compiled, schema: &Value, path: &Path, wrong: &[Error]) -> Errors {
    let mut wrong: Vec<&str> = wrong.iter().map(|error| error.path.as_str()).collect();
    wrong.sort_unstable();
    let mut compiling = Compiling { compiled: Some(compiled), asked: true, wrong, ..Compiling::default() };
    build(schema, Place::root(path), &mut compiling);
    compiling.charge_all(path);
    compiling.errors
}

/// Compiles what is at and below a schema; `None` if there are no rules.
fn build(schema: &Value, place: Place<'_>, compiling: &mut Compiling<'_>) -> Option<Rules> {
    let own = own(schema, &place, compiling);
    let mut properties = BTreeMap::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let below = place.field(name).and_then(|place| build(property, place, compiling));
        properties.extend(below.map(|below| (name.clone(), below)));
    }
    let values = schema.get("additionalProperties").filter(|values| values.is_object()).and_then(|values| {
        let place = place.items("additionalProperties", &schema["maxProperties"], true);
        build(values, place, compiling).map(Box::new)
    });
    let is_map = schema["x-kubernetes-list-type"] == "map";
    let items = schema
        .get("items")
        .filter(|items| items.is_object())
        .and_then(|items| build(items, place.items("items", &schema["maxItems"], is_map), compiling).map(Box::new));
    if own.rules.is_empty() && properties.is_empty() && values.is_none() && items.is_none() {
        return None;
    }
    let keys = is_map.then(|| {
        let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        keys.filter_map(Value::as_str).map(Into::into).collect()
    });
    let kind = schema["type"].as_str().unwrap_or_default().into();
    Some(Rules { own, kind, properties, values, items, keys })
}

/// The rules of a schema itself.
fn own(schema: &Value, place: &Place<'_>, compiling: &mut Compiling<'_>) -> Arc<Own> {
    let list = schema["x-kubernetes-validations"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() || compiling.is_wrong(&place.path) {
        return Arc::default();
    }
    let known = compiling.compiled.and_then(|compiled| compiled.borrow().get(place.path.as_str()).cloned());
    let own = known.unwrap_or_else(|| {
        let whole = place.whole || schema["x-kubernetes-embedded-resource"] == true;
        let decl = DeclType::from_structural(schema, "self", whole);
        let rules = list.iter().map(|rule| {
            let field = field_path(schema, rule["fieldPath"].as_str().unwrap_or_default(), true);
            Rule { field: field.map(|(path, _)| path).unwrap_or_default(), ..compile(rule, decl.as_ref()) }
        });
        let own = Arc::new(Own { rules: rules.collect(), decl });
        if let Some(compiled) = compiling.compiled {
            compiled.borrow_mut().insert(place.path.as_str().to_owned(), own.clone());
        }
        own
    });
    if compiling.asked {
        for (i, (said, rule)) in list.iter().zip(&own.rules).enumerate() {
            let path = place.path.child("x-kubernetes-validations").index(i);
            report(said, rule, own.decl.as_ref(), &path, place, compiling);
        }
    }
    own
}

fn compile(rule: &Value, decl: Option<&Arc<DeclType>>) -> Rule {
    let text = rule["rule"].as_str().unwrap_or_default().to_owned();
    let optional_old = rule["optionalOldSelf"] == true;
    let env = decl.map(|decl| environment(decl, optional_old));
    let program = match &env {
        None => Err("compilation failed: the schema has no type that CEL knows".to_owned()),
        Some(env) => {
            let failed = |error: CompileErrors| format!("{} failed: {error}", error.stage());
            env.compile(&text).map_err(failed).and_then(|program| match program.output_type() {
                Type::Bool => Ok(program),
                _ => Err("cel expression must evaluate to a bool".to_owned()),
            })
        }
    };
    let env = env.filter(|_| program.is_ok());
    Rule {
        message: rule["message"].as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
        message_program: env.and_then(|env| message(rule, &env)),
        reason: match rule["reason"].as_str() {
            Some("FieldValueRequired") => Kind::Required,
            Some("FieldValueForbidden") => Kind::Forbidden,
            Some("FieldValueDuplicate") => Kind::Duplicate,
            _ => Kind::Invalid,
        },
        field: Path::empty(),
        // What does not compile uses nothing.
        uses_old: program.as_ref().is_ok_and(|program| program.uses("oldSelf")),
        program,
        optional_old,
        text,
    }
}

/// Says what is wrong with a rule where it stands, and what it may cost there.
fn report(
    said: &Value,
    rule: &Rule,
    decl: Option<&Arc<DeclType>>,
    path: &Path,
    place: &Place<'_>,
    compiling: &mut Compiling<'_>,
) {
    let at = path.child("rule");
    match &rule.program {
        Ok(program) => {
            let occurs = place.cardinality.unwrap_or_else(|| decl.map_or(1, |decl| decl.max_cardinality()));
            let cost = program.estimate(Fidelity::Kubernetes).max.saturating_mul(occurs);
            compiling.charge("rule", cost, at.clone());
        }
        Err(error) => compiling.errors.push(Error::invalid(&at, said.clone(), error.as_str())),
    }
    if let (true, Some(lost)) = (rule.uses_old, &place.lost) {
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
        compiling.errors.push(Error::invalid(&at, rule.text.as_str(), detail));
    }
    if !rule.uses_old && said.get("optionalOldSelf").is_some_and(|own| !own.is_null()) {
        let detail = "may not be set if oldSelf is not used in rule";
        compiling.errors.push(Error::invalid(&path.child("optionalOldSelf"), rule.optional_old, detail));
    }
    let at = path.child("messageExpression");
    match &rule.message_program {
        Some(Ok(program)) => compiling.charge("messageExpression", program.estimate(Fidelity::Kubernetes).max, at),
        Some(Err(detail)) => compiling.errors.push(Error::invalid(&at, said.clone(), detail.as_str())),
        None => {}
    }
}

fn environment(decl: &Arc<DeclType>, optional_old: bool) -> Env {
    let env = Env::kubernetes_crd().declare_schema("self", decl.clone());
    match optional_old {
        true => env.declare_optional_schema("oldSelf", decl),
        false => env.declare_schema("oldSelf", decl.clone()),
    }
}

/// A rule's messageExpression, or what is wrong with it.
fn message(rule: &Value, env: &Env) -> Option<Result<Program, String>> {
    let text = rule["messageExpression"].as_str().filter(|text| !text.trim().is_empty())?;
    Some(match env.compile(text) {
        Ok(program) if matches!(program.output_type(), Type::String) => Ok(program),
        Ok(_) => Err("messageExpression must evaluate to a string".to_owned()),
        Err(error) => {
            let stage = error.stage().trim_start_matches("program ");
            Err(format!("messageExpression {stage} failed: {error}"))
        }
    })
}
