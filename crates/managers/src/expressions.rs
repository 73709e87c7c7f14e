//! Expressions of templates, classes and claims, in the project's CEL. Compiled once, metered always.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use conductor_cel::{Activation, Budget, Program, Value as Cel, limits};
use conductor_claims::expressions::compile;
use conductor_claims::matching::{Decision, Index, Judge, Reason};
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

    fn within(&self, expression: &str, scope: &BTreeMap<&str, &Value>, budget: &mut Budget) -> Result<Value, String> {
        let program = self.program(expression)?;
        let mut activation = Activation::new();
        for (name, value) in scope {
            activation = activation.with(name, Cel::from_json(value));
        }
        let value = program.evaluate(&activation, budget).map_err(|e| e.to_string())?;
        value.to_json().map_err(|e| e.to_string())
    }
}

impl Expressions for Evaluator {
    fn evaluate(&self, expression: &str, scope: &BTreeMap<&str, &Value>) -> Result<Value, String> {
        self.within(expression, scope, &mut Budget::kubernetes())
    }
}

/// What the expression of a claim may cost in one look, over all candidates together: some ten thousand simple ones.
const LOOK: u64 = 1_000_000;

/// Judges candidates for one claim.
pub struct ClaimJudge<'j> {
    evaluator: &'j Evaluator,
    rules: &'j Rules,
    claim: &'j Value,
    budget: RefCell<Budget>,
}

impl<'j> ClaimJudge<'j> {
    /// For one look at a claim.
    pub fn new(evaluator: &'j Evaluator, rules: &'j Rules, claim: &'j Value) -> ClaimJudge<'j> {
        let budget = RefCell::new(Budget::new(limits::PER_CALL, LOOK));
        ClaimJudge { evaluator, rules, claim, budget }
    }

    /// The same, where all candidates together may cost any amount.
    pub fn unhurried(evaluator: &'j Evaluator, rules: &'j Rules, claim: &'j Value) -> ClaimJudge<'j> {
        let budget = RefCell::new(Budget::new(limits::PER_CALL, u64::MAX));
        ClaimJudge { budget, ..ClaimJudge::new(evaluator, rules, claim) }
    }

    /// What is to be done about the claim. One whose expression costs too much waits, and says so.
    pub fn decide(&self, index: &Index, ask: &Ask) -> Decision {
        self.settled(index.decide(ask, self))
    }

    /// The same by what is known of the candidates, without evaluating anything; and those that nothing is known of yet, or some of them:
    /// with none of these the decision stands.
    pub(crate) fn decide_by(&self, known: &Known, index: &Index, ask: &Ask) -> (Decision, Vec<Offer>) {
        let foreseen = Foreseen { judge: self, known, unknown: RefCell::default() };
        let decision = self.settled(index.decide(ask, &foreseen));
        (decision, foreseen.unknown.into_inner())
    }

    /// Finds out about candidates, up to the first that is accepted: it is the best of them.
    pub(crate) fn learn(&self, ask: &Ask, unknown: Vec<Offer>, known: &mut Known) {
        let Some(expression) = &ask.wish.expression else { return };
        for offer in unknown {
            let verdict = self.accepts(expression, ask, &offer);
            let accepted = verdict == Ok(true);
            known.insert(offer.name.clone(), (offer.revision, verdict));
            if accepted {
                return;
            }
        }
    }

    fn is_spent(&self) -> bool {
        self.budget.borrow().remaining() == 0
    }

    fn settled(&self, decision: Decision) -> Decision {
        match decision {
            Decision::Wait { summary, .. } if self.is_spent() => Decision::Wait { reason: Reason::TooCostly, summary },
            decision => decision,
        }
    }
}

/// What a claim's expression says of resources, each at one revision.
pub(crate) type Known = HashMap<Arc<str>, (u64, Result<bool, String>)>;

/// How many candidates are noted at first; then as many as are known already.
const NOTED: usize = 64;

/// Judges by what is known. Whom nothing is known of is noted, and refused for the time being.
struct Foreseen<'f, 'j> {
    judge: &'f ClaimJudge<'j>,
    known: &'f Known,
    unknown: RefCell<Vec<Offer>>,
}

impl Judge for Foreseen<'_, '_> {
    fn accepts(&self, expression: &str, ask: &Ask, offer: &Offer) -> Result<bool, String> {
        let known = self.known.get(&offer.name).filter(|(revision, _)| *revision == offer.revision);
        match known {
            Some((_, verdict)) => verdict.clone(),
            // what a class would make has no revision, and there are few of them
            None if offer.revision == 0 || self.judge.is_spent() => self.judge.accepts(expression, ask, offer),
            None => {
                let mut unknown = self.unknown.borrow_mut();
                if unknown.len() < self.known.len().max(NOTED) {
                    unknown.push(offer.clone());
                }
                Ok(false)
            }
        }
    }

    fn compute(&self, expression: &str, ask: &Ask) -> Result<Value, String> {
        self.judge.compute(expression, ask)
    }
}

impl Judge for ClaimJudge<'_> {
    fn accepts(&self, expression: &str, _: &Ask, offer: &Offer) -> Result<bool, String> {
        let mut budget = self.budget.borrow_mut();
        if budget.remaining() == 0 {
            return Err("it takes too long".into());
        }
        let resource = resource_of(self.rules, offer);
        let scope = BTreeMap::from([("resource", &resource), ("claim", self.claim), ("self", &resource)]);
        match self.evaluator.within(expression, &scope, &mut budget)? {
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

#[cfg(test)]
mod tests {
    use conductor_claims::extract::{ask, offer};
    use conductor_claims::types::ResourceType;

    use super::*;

    #[test]
    fn all_candidates_together_cost_no_more_than_a_look_may() {
        let kind = json!({"spec": {
            "group": "a.example.com", "version": "v1", "names": {"resource": "Gpu"},
            "attributes": {"cores": {"type": "integer"}, "watts": {"type": "number"}},
        }});
        let kind = ResourceType::parse(&kind).expect("a type");
        let rules = kind.rules();
        let mut index = Index::new(rules.clone());
        for number in 0..300 {
            let name = format!("g{number}");
            let spec = json!({"cores": number, "watts": f64::from(number) + 0.5});
            let object = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "7"}, "spec": spec, "status": {"phase": "Available"}});
            index.upsert(offer(&rules, &object));
        }
        let evaluator = Evaluator::default();
        let decide = |expression: &str, unhurried: bool| {
            let claim =
                json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {"expression": expression}});
            let ask = ask(&rules, &claim, true, None).expect("an ask");
            let judge = match unhurried {
                true => ClaimJudge::unhurried(&evaluator, &rules, &claim),
                false => ClaimJudge::new(&evaluator, &rules, &claim),
            };
            let decision = judge.decide(&index, &ask);
            // what is found out apart from deciding leads to the same
            let judge = match unhurried {
                true => ClaimJudge::unhurried(&evaluator, &rules, &claim),
                false => ClaimJudge::new(&evaluator, &rules, &claim),
            };
            let mut known = Known::default();
            let by_steps = loop {
                let (decision, unknown) = judge.decide_by(&known, &index, &ask);
                if unknown.is_empty() {
                    break decision;
                }
                judge.learn(&ask, unknown, &mut known);
            };
            assert_eq!(decision, by_steps, "{expression}");
            decision
        };
        let bound = |decision: Decision| matches!(decision, Decision::Bind { resource, .. } if *resource == *"g299");
        assert!(bound(decide("resource.spec.cores == 299", false)));
        assert!(bound(decide("resource.spec.watts > 299.0", false)), "a number is a number");
        let digits = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let slow =
            format!("[{digits}].all(a, [{digits}].exists(b, b == 99 - a || a * b < 0)) && resource.spec.cores == 299");
        let Decision::Wait { reason, .. } = decide(&slow, false) else { panic!("it is too much") };
        assert_eq!(reason, Reason::TooCostly);
        assert!(bound(decide(&slow, true)), "who asks has the time");
    }
}
