//! Any JSON is a schema or none, and any other JSON can be looked at through it.
#![no_main]

use conductor_cel::{Activation, Budget, DeclType, Env, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, &str)| {
    let (schema, object, source) = input;
    let Ok(schema) = serde_json::from_str(schema) else { return };
    let Ok(object) = serde_json::from_str(object) else { return };
    let Some(decl) = DeclType::from_structural(&schema, "self", true) else { return };
    let Ok(program) = Env::kubernetes_crd().declare_schema("self", decl.clone()).compile(source) else { return };
    let Ok(value) = Value::typed(&object, &decl) else { return };
    let _ = program.evaluate(&Activation::new().with("self", value), &mut Budget::new(10_000, 10_000));
});
