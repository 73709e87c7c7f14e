//! Base64.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "base64.decode",
        overloads: &[("base64_decode_string", "(string) -> bytes")],
        cost: Cost::Parse,
        code: decode,
    },
    Decl {
        name: "base64.encode",
        overloads: &[("base64_encode_bytes", "(bytes) -> string")],
        cost: Cost::Parse,
        code: encode,
    },
];

fn decode<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return Err(EvalError::overload("base64.decode")) };
    ctx.budget.alloc(s.len() as u64)?;
    match STANDARD.decode(&**s).or_else(|_| STANDARD_NO_PAD.decode(&**s)) {
        Ok(bytes) => Ok(Value::Bytes(bytes.into())),
        Err(_) => Err(EvalError::failed("illegal base64 data")),
    }
}

fn encode<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Bytes(b)] = args else { return Err(EvalError::overload("base64.encode")) };
    ctx.budget.alloc(b.len() as u64 * 4 / 3 + 4)?;
    Ok(Value::string(STANDARD.encode(b)))
}
