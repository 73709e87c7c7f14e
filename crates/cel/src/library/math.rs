//! Mathematics. Not in Kubernetes' environments.

use std::cmp::Ordering;

use super::{Context, Cost, Decl, Outcome};
use crate::compare::compare_numbers;
use crate::error::EvalError;
use crate::value::Value;

const EXTREME: &[(&str, &str)] = &[
    ("double", "(double) -> double"),
    ("int", "(int) -> int"),
    ("uint", "(uint) -> uint"),
    ("double_double", "(double, double) -> double"),
    ("int_int", "(int, int) -> int"),
    ("uint_uint", "(uint, uint) -> uint"),
    ("int_uint", "(int, uint) -> dyn"),
    ("int_double", "(int, double) -> dyn"),
    ("double_int", "(double, int) -> dyn"),
    ("double_uint", "(double, uint) -> dyn"),
    ("uint_int", "(uint, int) -> dyn"),
    ("uint_double", "(uint, double) -> dyn"),
    ("list_double", "(list<double>) -> double"),
    ("list_int", "(list<int>) -> int"),
    ("list_uint", "(list<uint>) -> uint"),
];
const OF_DOUBLE: &[(&str, &str)] = &[("double", "(double) -> double")];
const TEST: &[(&str, &str)] = &[("double", "(double) -> bool")];
const SAME: &[(&str, &str)] = &[("double", "(double) -> double"), ("int", "(int) -> int"), ("uint", "(uint) -> uint")];
const BITS: &[(&str, &str)] = &[("int_int", "(int, int) -> int"), ("uint_uint", "(uint, uint) -> uint")];
const SHIFT: &[(&str, &str)] = &[("int_int", "(int, int) -> int"), ("uint_int", "(uint, int) -> uint")];

pub(crate) const DECLS: &[Decl] = &[
    Decl { name: "math.@min", overloads: EXTREME, cost: Cost::One, code: |c, a| extreme(c, a, Ordering::Less) },
    Decl { name: "math.@max", overloads: EXTREME, cost: Cost::One, code: |c, a| extreme(c, a, Ordering::Greater) },
    Decl { name: "math.ceil", overloads: OF_DOUBLE, cost: Cost::One, code: |_, a| real(a, f64::ceil) },
    Decl { name: "math.floor", overloads: OF_DOUBLE, cost: Cost::One, code: |_, a| real(a, f64::floor) },
    Decl { name: "math.round", overloads: OF_DOUBLE, cost: Cost::One, code: |_, a| real(a, f64::round) },
    Decl { name: "math.trunc", overloads: OF_DOUBLE, cost: Cost::One, code: |_, a| real(a, f64::trunc) },
    Decl { name: "math.isInf", overloads: TEST, cost: Cost::One, code: |_, a| test(a, f64::is_infinite) },
    Decl { name: "math.isNaN", overloads: TEST, cost: Cost::One, code: |_, a| test(a, f64::is_nan) },
    Decl { name: "math.isFinite", overloads: TEST, cost: Cost::One, code: |_, a| test(a, f64::is_finite) },
    Decl { name: "math.abs", overloads: SAME, cost: Cost::One, code: abs },
    Decl { name: "math.sign", overloads: SAME, cost: Cost::One, code: sign },
    Decl { name: "math.bitAnd", overloads: BITS, cost: Cost::One, code: |_, a| bits(a, |x, y| x & y) },
    Decl { name: "math.bitOr", overloads: BITS, cost: Cost::One, code: |_, a| bits(a, |x, y| x | y) },
    Decl { name: "math.bitXor", overloads: BITS, cost: Cost::One, code: |_, a| bits(a, |x, y| x ^ y) },
    Decl {
        name: "math.bitNot",
        overloads: &[("int", "(int) -> int"), ("uint", "(uint) -> uint")],
        cost: Cost::One,
        code: |_, a| match a {
            [Value::Int(i)] => Ok(Value::Int(!i)),
            [Value::Uint(u)] => Ok(Value::Uint(!u)),
            _ => Err(EvalError::overload("math.bitNot")),
        },
    },
    Decl { name: "math.bitShiftLeft", overloads: SHIFT, cost: Cost::One, code: |_, a| shift(a, true) },
    Decl { name: "math.bitShiftRight", overloads: SHIFT, cost: Cost::One, code: |_, a| shift(a, false) },
    Decl {
        name: "math.sqrt",
        overloads: &[("double", "(double) -> double"), ("int", "(int) -> double"), ("uint", "(uint) -> double")],
        cost: Cost::One,
        code: |_, a| match a {
            [Value::Double(d)] => Ok(Value::Double(d.sqrt())),
            [Value::Int(i)] => Ok(Value::Double((*i as f64).sqrt())),
            [Value::Uint(u)] => Ok(Value::Double((*u as f64).sqrt())),
            _ => Err(EvalError::overload("math.sqrt")),
        },
    },
];

fn extreme<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], wanted: Ordering) -> Outcome<'a> {
    let values: Vec<Value<'a>> = match args {
        [Value::List(list)] => {
            ctx.budget.alloc(list.len() as u64 * 32)?;
            list.iter().collect::<Result<_, _>>()?
        }
        other => other.to_vec(),
    };
    let mut best: Option<Value<'a>> = None;
    for value in values {
        if !matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_)) {
            return Err(EvalError::overload("math.@min or math.@max"));
        }
        match &best {
            Some(best) if compare_numbers(&value, best) != Some(wanted) => {}
            _ => best = Some(value),
        }
    }
    best.ok_or(EvalError::failed("math.least() and math.greatest() need at least one element"))
}

fn real<'a>(args: &[Value<'a>], f: fn(f64) -> f64) -> Outcome<'a> {
    match args {
        [Value::Double(d)] => Ok(Value::Double(f(*d))),
        _ => Err(EvalError::overload("math")),
    }
}

fn test<'a>(args: &[Value<'a>], f: fn(f64) -> bool) -> Outcome<'a> {
    match args {
        [Value::Double(d)] => Ok(Value::Bool(f(*d))),
        _ => Err(EvalError::overload("math")),
    }
}

fn abs<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Double(d)] => Ok(Value::Double(d.abs())),
        [Value::Int(i)] => i.checked_abs().map(Value::Int).ok_or(EvalError::failed("integer overflow")),
        [Value::Uint(u)] => Ok(Value::Uint(*u)),
        _ => Err(EvalError::overload("math.abs")),
    }
}

fn sign<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Double(d)] if d.is_nan() || *d == 0.0 => Ok(Value::Double(*d)),
        [Value::Double(d)] => Ok(Value::Double(d.signum())),
        [Value::Int(i)] => Ok(Value::Int(i.signum())),
        [Value::Uint(u)] => Ok(Value::Uint(u64::from(*u > 0))),
        _ => Err(EvalError::overload("math.sign")),
    }
}

fn bits<'a>(args: &[Value<'a>], f: fn(u64, u64) -> u64) -> Outcome<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(f(*a as u64, *b as u64) as i64)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(f(*a, *b))),
        _ => Err(EvalError::overload("math.bit")),
    }
}

fn shift<'a>(args: &[Value<'a>], left: bool) -> Outcome<'a> {
    let (bits, by) = match args {
        [Value::Int(a), Value::Int(by)] => (*a as u64, *by),
        [Value::Uint(a), Value::Int(by)] => (*a, *by),
        _ => return Err(EvalError::overload("math.bitShift")),
    };
    let Ok(by) = u32::try_from(by.min(64)) else {
        return Err(EvalError::failed(format!(
            "math.bitShift{}() negative offset: {by}",
            if left { "Left" } else { "Right" }
        )));
    };
    let shifted = if left { bits.checked_shl(by) } else { bits.checked_shr(by) }.unwrap_or(0);
    Ok(match args {
        [Value::Int(_), _] => Value::Int(shifted as i64),
        _ => Value::Uint(shifted),
    })
}
