//! Expressions of templates, classes and claims, in the project's CEL. Compiled once, metered always.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use conductor_cel::{Activation, Budget, Program, Value as Cel};
use conductor_claims::expressions::compile;
use conductor_claims::matching::Judge;
use conductor_claims::rules::Rules;
use conductor_claims::template::Expressions;
use conductor_claims::views::{Ask, Offer};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// Programs kept before they are all compiled again.
const KEPT: usize = 4096;

/// Evaluates expressions over JSON.
#[derive(Default)]
pub struct Evaluator {
    programs: Mutex<HashMap<String, Arc<Program>>>,
}

impl Evaluator {
    fn program(&self, expression: &str) -> Result<Arc<Program>, String> {
        if let Some(program) = self.programs.lock().get(expression) {
            return Ok(program.clone());
        }
        let program = compile(expression)?;
        let mut programs = self.programs.lock();
        if programs.len() >= KEPT {
            programs.clear();
        }
        Ok(programs.entry(expression.to_owned()).or_insert_with(|| Arc::new(program)).clone())
    }
}

impl Expressions for Evaluator {
    fn evaluate(&self, expression: &str, scope: &BTreeMap<&str, &Value>) -> Result<Value, String> {
        let program = self.program(expression)?;
        let mut activation = Activation::new();
        for (name, value) in scope {
            activation = activation.with(name, Cel::from_json(value));
        }
        let value = program.evaluate(&activation, &mut Budget::kubernetes()).map_err(|e| e.to_string())?;
        value.to_json().map_err(|e| e.to_string())
    }
}

/// Judges candidates for one claim.
pub struct ClaimJudge<'j> {
    /// Evaluates.
    pub evaluator: &'j Evaluator,
    /// The rules of the claim's type.
    pub rules: &'j Rules,
    /// The claim.
    pub claim: &'j Value,
}

impl Judge for ClaimJudge<'_> {
    fn accepts(&self, expression: &str, _: &Ask, offer: &Offer) -> Result<bool, String> {
        let resource = resource_of(self.rules, offer);
        let scope = BTreeMap::from([("resource", &resource), ("claim", self.claim), ("self", &resource)]);
        match self.evaluator.evaluate(expression, &scope)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(format!("the expression yields {other}, not true or false")),
        }
    }

    fn compute(&self, expression: &str, _: &Ask) -> Result<Value, String> {
        self.evaluator.evaluate(expression, &BTreeMap::from([("claim", self.claim)]))
    }
}

/// A resource as a claim's expression sees it: what matching knows of it, in the shape of the object.
fn resource_of(rules: &Rules, offer: &Offer) -> Value {
    let labels: Map<String, Value> = offer.labels.iter().map(|(k, v)| (k.to_string(), json!(v.to_string()))).collect();
    let capacity: Map<String, Value> = rules
        .capacities
        .iter()
        .zip(offer.capacity.iter())
        .map(|(c, a)| (c.name.to_string(), json!(a.to_string())))
        .collect();
    let mut spec = json!({"capacity": capacity});
    if let Some(class) = &offer.shape.class {
        spec["class"] = json!(class.as_ref());
    }
    for (rule, value) in rules.attributes.iter().zip(offer.shape.attributes.iter()) {
        if let Some(value) = value {
            spec[rule.name.as_ref()] = value.json();
        }
    }
    spec["capabilities"] = json!(offer.shape.capabilities.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
    json!({"metadata": {"name": offer.name.as_ref(), "labels": labels}, "spec": spec})
}
