//! What compiles runs to an end within its budget, and costs no more than was estimated.
#![no_main]

use std::sync::LazyLock;

use conductor_cel::{Activation, Budget, DeclType, Env, EvalError, Fidelity, Value};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value as Json, json};

static DECL: LazyLock<std::sync::Arc<DeclType>> = LazyLock::new(|| {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "d": {"type": "number"}, "b": {"type": "boolean"},
        "s": {"type": "string", "maxLength": 20},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}},
        "n": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "m": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}},
        "o": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}},
        "x": {"x-kubernetes-int-or-string": true}
    }});
    DeclType::from_structural(&schema, "self", false).unwrap()
});
static OBJECT: LazyLock<Json> = LazyLock::new(|| {
    json!({"i": 3, "d": 1.5, "b": true, "s": "héllo,1Gi", "l": ["a", "b", "10.0.0.1"], "n": [3, 1, 2],
        "m": {"k": 1}, "o": {"a": "x"}, "x": "50%"})
});

fuzz_target!(|source: &str| {
    let env = Env::templates().declare_schema("self", DECL.clone());
    let Ok(program) = env.compile(source) else { return };
    let Ok(object) = Value::typed(&OBJECT, &DECL) else { return };
    let activation = Activation::new().with("self", object);
    let mut budget = Budget::new(100_000, 100_000);
    let result = program.evaluate(&activation, &mut budget);
    let stopped = matches!(result, Err(EvalError::CostLimit | EvalError::BudgetExhausted));
    assert!(stopped || budget.last_cost() <= program.estimate(Fidelity::Sound).max);
    if let Ok(value) = result {
        let _ = value.to_json();
    }
});
