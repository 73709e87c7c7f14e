//! Paths of JSON patches.

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

pub(crate) const DECLS: &[Decl] = &[Decl {
    name: "jsonpatch.escapeKey",
    overloads: &[("string_jsonpatch_escapeKey_string", "(string) -> string")],
    cost: Cost::One,
    code: escape_key,
}];

fn escape_key<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(key)] = args else { return Err(EvalError::overload("jsonpatch.escapeKey")) };
    ctx.budget.alloc(key.len() as u64 * 2)?;
    Ok(Value::string(key.replace('~', "~0").replace('/', "~1")))
}
