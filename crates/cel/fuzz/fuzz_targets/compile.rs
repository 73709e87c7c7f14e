//! Any text is compiled or refused with a place; nothing panics.
#![no_main]

use conductor_cel::{Env, Type};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let env = Env::templates().declare("x", Type::Dyn).declare("l", Type::list(Type::Int));
    match env.compile(source) {
        Ok(program) => {
            let _ = program.output_type().to_string();
        }
        Err(errors) => assert!(errors.to_string().contains("ERROR: <input>:")),
    }
});
