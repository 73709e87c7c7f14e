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

/// How many of the dearest expressions are named if all together cost too much.
const DEAREST: usize = 4;
const VALIDATIONS: &str = "x-kubernetes-validations";

/// What was compiled of a definition, by the schema it is of: what is below several defaults is compiled once. The address tells schemas
/// apart as long as the definition is where it is; where they stand, in text, does not.
pub type Compiled = RefCell<HashMap<*const Value, Arc<Own>>>;

/// What is found out while rules are compiled.
#[derive(Default)]
struct Compiling<'a> {
    compiled: Option<&'a Compiled>,
    /// Whether anybody asks what is wrong.
    asked: bool,
    /// Whether a rule may cost more than one may.
    lenient: bool,
    errors: Errors,
    /// What all expressions together may cost.
    total: u64,
    /// The dearest ones: what they may cost, and where they stand.
    dearest: Vec<(u64, Path)>,
    /// Where something else is wrong with the schema, in order: rules at and above that are not looked at.
    wrong: Vec<&'a str>,
}

impl Compiling<'_> {
    /// Takes note of what an expression may cost, and refuses it if that is too much.
    fn charge(&mut self, what: &str, cost: u64, path: impl Fn() -> Path) {
        if cost > RULE_LIMIT && !self.lenient {
            self.errors
                .push(Error::forbidden(&path(), over_budget(&format!("estimated {what} cost"), cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        let at = self.dearest.partition_point(|(dearer, _)| *dearer >= cost);
        if cost >= TOTAL_LIMIT / 100 && at < DEAREST {
            self.dearest.truncate(DEAREST - 1);
            self.dearest.insert(at, (cost, path()));
        }
    }

    /// Refuses what all expressions together may cost, if that is too much.
    fn charge_all(&mut self, path: &Path) {
        if self.total <= TOTAL_LIMIT {
            return;
        }
        for (_, path) in &self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.push(Error::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.errors.push(Error::forbidden(path, over_budget(what, self.total, TOTAL_LIMIT)));
    }

    fn is_wrong(&self, place: &Place<'_>) -> bool {
        if self.wrong.is_empty() {
            return false;
        }
        let is_there = |start: String, whole: bool| {
            let at = self.wrong.partition_point(|wrong| **wrong < *start);
            self.wrong.get(at).is_some_and(|wrong| if whole { **wrong == *start } else { wrong.starts_with(&start) })
        };
        let path = place.path();
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

/// How a schema is reached from the one it is in.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Element(&'static str),
}

/// Where a schema stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The schema it is in, and the step from there; without, it stands at `root`.
    above: Option<(&'a Place<'a>, Step<'a>)>,
    root: &'a Path,
    /// An object with apiVersion, kind and metadata.
    whole: bool,
    cardinality: Cardinality,
    /// The schema whose values have no counterparts in the old object that could be told.
    lost: Option<&'a Place<'a>>,
    /// The value that the rules are for; those of what it does not have are not needed.
    value: Option<&'a Value>,
}

impl<'a> Place<'a> {
    fn root(root: &'a Path) -> Self {
        Place { above: None, root, whole: true, cardinality: Some(1), lost: None, value: None }
    }

    fn field(&'a self, name: &'a str) -> Option<Self> {
        let value = match self.value {
            Some(value) => Some(value.get(name)?),
            None => None,
        };
        Some(Place { above: Some((self, Step::Field(name))), whole: false, value, ..*self })
    }

    /// `told`: which of them is which is known.
    fn elements(&'a self, key: &'static str, bound: &Value, told: bool) -> Option<Self> {
        let is_empty = match self.value {
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) => true,
            None => false,
        };
        let above = Some((self, Step::Element(key)));
        let cardinality = multiply(self.cardinality, bound);
        let lost = self.lost.or((!told).then_some(self));
        (!is_empty).then_some(Place { above, whole: false, value: None, lost, cardinality, ..*self })
    }

    /// Written down only where somebody is told of it: it may be long.
    fn path(&self) -> Path {
        match self.above {
            Some((above, Step::Field(name))) => above.path().child("properties").key(name),
            Some((above, Step::Element(key))) => above.path().child(key),
            None => self.root.clone(),
        }
    }
}

/// Compiles the rules of a schema that was checked before.
pub fn trusted(schema: &Value) -> Option<Rules> {
    build(schema, &Place::root(&Path::empty()), &mut Compiling::default())
}

/// The same for a default of a schema.
pub fn of_default(compiled: &Compiled, schema: &Value, whole: bool, default: &Value) -> Option<Rules> {
    let root = Path::empty();
    let place = Place { whole, value: Some(default), ..Place::root(&root) };
    build(schema, &place, &mut Compiling { compiled: Some(compiled), ..Compiling::default() })
}

/// What is wrong with the rules of a schema, of which something else may be `wrong`.
pub fn check(compiled: &Compiled, schema: &Value, path: &Path, wrong: &[Error], lenient: bool) -> Errors {
    let mut wrong: Vec<&str> = wrong.iter().map(|error| error.path.as_str()).collect();
    wrong.sort_unstable();
    let mut compiling = Compiling { compiled: Some(compiled), asked: true, lenient, wrong, ..Compiling::default() };
    build(schema, &Place::root(path), &mut compiling);
    compiling.charge_all(path);
    compiling.errors
}

/// Compiles what is at and below a schema; `None` if there are no rules.
fn build(schema: &Value, place: &Place<'_>, compiling: &mut Compiling<'_>) -> Option<Rules> {
    let own = own(schema, place, compiling);
    let mut properties = BTreeMap::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let below = place.field(name).and_then(|place| build(property, &place, compiling));
        properties.extend(below.map(|below| (name.clone(), below)));
    }
    let values = schema.get("additionalProperties").filter(|values| values.is_object()).and_then(|values| {
        let place = place.elements("additionalProperties", &schema["maxProperties"], true)?;
        build(values, &place, compiling).map(Box::new)
    });
    let is_map = schema["x-kubernetes-list-type"] == "map";
    let items = schema.get("items").filter(|items| items.is_object()).and_then(|items| {
        let place = place.elements("items", &schema["maxItems"], is_map)?;
        build(items, &place, compiling).map(Box::new)
    });
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
    let list = schema[VALIDATIONS].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() || compiling.is_wrong(place) {
        return Arc::default();
    }
    let known = compiling.compiled.and_then(|compiled| compiled.borrow().get(&std::ptr::from_ref(schema)).cloned());
    let own = known.unwrap_or_else(|| {
        let whole = place.whole || schema["x-kubernetes-embedded-resource"] == true;
        let decl = DeclType::from_structural(schema, "self", whole);
        let rules = list.iter().map(|rule| {
            let field = field_path(schema, rule["fieldPath"].as_str().unwrap_or_default(), true);
            Rule { field: field.map(|(path, _)| path).unwrap_or_default(), ..compile(rule, decl.as_ref()) }
        });
        let own = Arc::new(Own { rules: rules.collect(), decl });
        if let Some(compiled) = compiling.compiled {
            compiled.borrow_mut().insert(std::ptr::from_ref(schema), own.clone());
        }
        own
    });
    if compiling.asked {
        for (i, (said, rule)) in list.iter().zip(&own.rules).enumerate() {
            report(said, rule, i, own.decl.as_ref(), place, compiling);
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
    index: usize,
    decl: Option<&Arc<DeclType>>,
    place: &Place<'_>,
    compiling: &mut Compiling<'_>,
) {
    let at = |name: &str| place.path().child(VALIDATIONS).index(index).child(name);
    match &rule.program {
        Ok(program) => {
            let occurs = place.cardinality.unwrap_or_else(|| decl.map_or(1, |decl| decl.max_cardinality()));
            let cost = program.estimate(Fidelity::Kubernetes).max.saturating_mul(occurs);
            compiling.charge("rule", cost, || at("rule"));
        }
        Err(error) => compiling.errors.push(Error::invalid(&at("rule"), said.clone(), error.as_str())),
    }
    if let (true, Some(lost)) = (rule.uses_old, &place.lost) {
        let lost = lost.path();
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
        compiling.errors.push(Error::invalid(&at("rule"), rule.text.as_str(), detail));
    }
    if !rule.uses_old && said.get("optionalOldSelf").is_some_and(|own| !own.is_null()) {
        let detail = "may not be set if oldSelf is not used in rule";
        compiling.errors.push(Error::invalid(&at("optionalOldSelf"), rule.optional_old, detail));
    }
    match &rule.message_program {
        Some(Ok(program)) => {
            let cost = program.estimate(Fidelity::Kubernetes).max;
            compiling.charge("messageExpression", cost, || at("messageExpression"));
        }
        Some(Err(detail)) => {
            compiling.errors.push(Error::invalid(&at("messageExpression"), said.clone(), detail.as_str()));
        }
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

#[cfg(test)]
mod tests;
