//! Operators: declared like functions, so that the checker treats them as such.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Context, Cost, Decl, Outcome};
use crate::compare::{compare, contains, equal};
use crate::decl::ListSemantics;
use crate::error::EvalError;
use crate::value::{List, Map, Value, paid};

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "_+_",
        overloads: &[
            ("add_int64", "(int, int) -> int"),
            ("add_uint64", "(uint, uint) -> uint"),
            ("add_double", "(double, double) -> double"),
            ("add_string", "(string, string) -> string"),
            ("add_bytes", "(bytes, bytes) -> bytes"),
            ("add_list", "(list<A>, list<A>) -> list<A>"),
            ("add_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("add_duration_timestamp", "(duration, timestamp) -> timestamp"),
            ("add_duration_duration", "(duration, duration) -> duration"),
        ],
        cost: Cost::Plus,
        code: add_args,
    },
    Decl {
        name: "_-_",
        overloads: &[
            ("subtract_int64", "(int, int) -> int"),
            ("subtract_uint64", "(uint, uint) -> uint"),
            ("subtract_double", "(double, double) -> double"),
            ("subtract_timestamp_timestamp", "(timestamp, timestamp) -> duration"),
            ("subtract_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("subtract_duration_duration", "(duration, duration) -> duration"),
        ],
        cost: Cost::One,
        code: subtract,
    },
    Decl {
        name: "_*_",
        overloads: &[
            ("multiply_int64", "(int, int) -> int"),
            ("multiply_uint64", "(uint, uint) -> uint"),
            ("multiply_double", "(double, double) -> double"),
        ],
        cost: Cost::One,
        code: multiply,
    },
    Decl {
        name: "_/_",
        overloads: &[
            ("divide_int64", "(int, int) -> int"),
            ("divide_uint64", "(uint, uint) -> uint"),
            ("divide_double", "(double, double) -> double"),
        ],
        cost: Cost::One,
        code: divide,
    },
    Decl {
        name: "_%_",
        overloads: &[("modulo_int64", "(int, int) -> int"), ("modulo_uint64", "(uint, uint) -> uint")],
        cost: Cost::One,
        code: modulo,
    },
    Decl {
        name: "-_",
        overloads: &[("negate_int64", "(int) -> int"), ("negate_double", "(double) -> double")],
        cost: Cost::One,
        code: negate,
    },
    Decl { name: "!_", overloads: &[("logical_not", "(bool) -> bool")], cost: Cost::One, code: not },
    Decl { name: "_==_", overloads: &[("equals", "(A, A) -> bool")], cost: Cost::Comparison, code: eq },
    Decl { name: "_!=_", overloads: &[("not_equals", "(A, A) -> bool")], cost: Cost::Comparison, code: ne },
    Decl { name: "_<_", overloads: ORDER, cost: Cost::Comparison, code: lt },
    Decl { name: "_<=_", overloads: ORDER, cost: Cost::Comparison, code: le },
    Decl { name: "_>_", overloads: ORDER, cost: Cost::Comparison, code: gt },
    Decl { name: "_>=_", overloads: ORDER, cost: Cost::Comparison, code: ge },
    Decl {
        name: "@in",
        overloads: &[("in_list", "(A, list<A>) -> bool"), ("in_map", "(A, map<A, B>) -> bool")],
        cost: Cost::InList,
        code: is_in,
    },
    Decl {
        name: "_[_]",
        overloads: &[("index_list", "(list<A>, int) -> A"), ("index_map", "(map<A, B>, A) -> B")],
        cost: Cost::Index,
        code: index,
    },
];

const ORDER: &[(&str, &str)] = &[
    ("order_bool", "(bool, bool) -> bool"),
    ("order_int64", "(int, int) -> bool"),
    ("order_uint64", "(uint, uint) -> bool"),
    ("order_double", "(double, double) -> bool"),
    ("order_string", "(string, string) -> bool"),
    ("order_bytes", "(bytes, bytes) -> bool"),
    ("order_timestamp", "(timestamp, timestamp) -> bool"),
    ("order_duration", "(duration, duration) -> bool"),
];

const CROSS: &[(&str, &str)] = &[
    ("order_int64_double", "(int, double) -> bool"),
    ("order_int64_uint64", "(int, uint) -> bool"),
    ("order_uint64_double", "(uint, double) -> bool"),
    ("order_uint64_int64", "(uint, int) -> bool"),
    ("order_double_int64", "(double, int) -> bool"),
    ("order_double_uint64", "(double, uint) -> bool"),
];

pub(crate) const CROSS_TYPE: &[Decl] = &[
    Decl { name: "_<_", overloads: CROSS, cost: Cost::Comparison, code: lt },
    Decl { name: "_<=_", overloads: CROSS, cost: Cost::Comparison, code: le },
    Decl { name: "_>_", overloads: CROSS, cost: Cost::Comparison, code: gt },
    Decl { name: "_>=_", overloads: CROSS, cost: Cost::Comparison, code: ge },
];

fn overflow<'a>() -> Outcome<'a> {
    Err(EvalError::failed("integer overflow"))
}

fn unsigned_overflow<'a>() -> Outcome<'a> {
    Err(EvalError::failed("unsigned integer overflow"))
}

fn add_args<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => add(ctx, a.clone(), b.clone()),
        _ => Err(EvalError::overload("_+_")),
    }
}

/// `a + b`. Takes its operands, so that growing a list in a loop need not copy it.
pub(crate) fn add<'a>(ctx: &mut Context<'_>, a: Value<'a>, b: Value<'a>) -> Outcome<'a> {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => return a.checked_add(b).map(Value::Int).map_or_else(overflow, Ok),
        (Value::Uint(a), Value::Uint(b)) => {
            return a.checked_add(b).map(Value::Uint).map_or_else(unsigned_overflow, Ok);
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::String(a), Value::String(b)) => {
            ctx.budget.alloc((a.len() + b.len()) as u64)?;
            let mut out = String::with_capacity(a.len() + b.len());
            out.push_str(&a);
            out.push_str(&b);
            Value::string(out)
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            ctx.budget.alloc((a.len() + b.len()) as u64)?;
            Value::Bytes([&*a, &*b].concat().into())
        }
        (Value::List(a), Value::List(b)) => return concat(ctx, a, b),
        (Value::Timestamp(t), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(t)) => {
            Value::Timestamp(t.add(d).ok_or(EvalError::failed("timestamp overflow"))?)
        }
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_add(b).ok_or(EvalError::failed("duration overflow"))?)
        }
        _ => return Err(EvalError::overload("_+_")),
    })
}

fn concat<'a>(ctx: &mut Context<'_>, a: List<'a>, b: List<'a>) -> Outcome<'a> {
    if b.is_empty() && a.decl().is_some() {
        return Ok(Value::List(a));
    }
    let size = size_of::<Value<'_>>() as u64;
    let decl = a.decl();
    let semantics = a.semantics();
    let mut items = match a {
        List::Shared(mut shared, _) => match Arc::get_mut(&mut shared) {
            Some(items) => std::mem::take(items),
            None => {
                ctx.budget.alloc(shared.len() as u64 * size)?;
                (*shared).clone()
            }
        },
        json => {
            ctx.budget.alloc(json.len() as u64 * size)?;
            json.iter().collect::<Result<Vec<_>, _>>()?
        }
    };
    ctx.budget.alloc(b.len() as u64 * size)?;
    for item in b.iter() {
        let item = item?;
        match semantics {
            ListSemantics::Atomic => items.push(item),
            ListSemantics::Set => {
                let mut known = false;
                for other in &items {
                    if equal(other, &item, ctx.budget)? {
                        known = true;
                        break;
                    }
                }
                if !known {
                    items.push(item);
                }
            }
            ListSemantics::Map(keys) => {
                let list = List::Shared(Arc::new(std::mem::take(&mut items)), decl);
                let at = crate::compare::find_by_keys(&list, &item, keys, ctx.budget)?;
                let List::Shared(shared, _) = list else { return Err(EvalError::overload("_+_")) };
                items = Arc::try_unwrap(shared).unwrap_or_default();
                match at.and_then(|i| items.get_mut(i)) {
                    Some(slot) => *slot = item,
                    None => items.push(item),
                }
            }
        }
    }
    Ok(Value::List(List::Shared(Arc::new(items), decl)))
}

fn subtract<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => return a.checked_sub(*b).map(Value::Int).map_or_else(overflow, Ok),
        [Value::Uint(a), Value::Uint(b)] => {
            return a.checked_sub(*b).map(Value::Uint).map_or_else(unsigned_overflow, Ok);
        }
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            Value::Duration(a.since(b).ok_or(EvalError::failed("duration overflow"))?)
        }
        [Value::Timestamp(t), Value::Duration(d)] => {
            let back = d.checked_neg().and_then(|d| t.add(d));
            Value::Timestamp(back.ok_or(EvalError::failed("timestamp overflow"))?)
        }
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(a.checked_sub(*b).ok_or(EvalError::failed("duration overflow"))?)
        }
        _ => return Err(EvalError::overload("_-_")),
    })
}

fn multiply<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => a.checked_mul(*b).map(Value::Int).map_or_else(overflow, Ok),
        [Value::Uint(a), Value::Uint(b)] => a.checked_mul(*b).map(Value::Uint).map_or_else(unsigned_overflow, Ok),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(EvalError::overload("_*_")),
    }
}

fn divide<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(EvalError::failed("division by zero")),
        [Value::Int(a), Value::Int(b)] => a.checked_div(*b).map(Value::Int).map_or_else(overflow, Ok),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a / b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(EvalError::overload("_/_")),
    }
}

fn modulo<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(EvalError::failed("modulus by zero")),
        [Value::Int(a), Value::Int(b)] => a.checked_rem(*b).map(Value::Int).map_or_else(overflow, Ok),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a % b)),
        _ => Err(EvalError::overload("_%_")),
    }
}

fn negate<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(a)] => a.checked_neg().map(Value::Int).map_or_else(overflow, Ok),
        [Value::Double(a)] => Ok(Value::Double(-a)),
        _ => Err(EvalError::overload("-_")),
    }
}

fn not<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bool(b)] => Ok(Value::Bool(!b)),
        _ => Err(EvalError::overload("!_")),
    }
}

fn eq<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => Ok(Value::Bool(equal(a, b, ctx.budget)?)),
        _ => Err(EvalError::overload("_==_")),
    }
}

fn ne<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => Ok(Value::Bool(!equal(a, b, ctx.budget)?)),
        _ => Err(EvalError::overload("_!=_")),
    }
}

fn ordered<'a>(args: &[Value<'a>], name: &'static str, holds: fn(Ordering) -> bool) -> Outcome<'a> {
    match args {
        [a, b] => match compare(a, b) {
            Some(ordering) => Ok(Value::Bool(holds(ordering?))),
            None => Err(EvalError::overload(name)),
        },
        _ => Err(EvalError::overload(name)),
    }
}

fn lt<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, "_<_", Ordering::is_lt)
}

fn le<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, "_<=_", Ordering::is_le)
}

fn gt<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, "_>_", Ordering::is_gt)
}

fn ge<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, "_>=_", Ordering::is_ge)
}

fn is_in<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [needle, Value::List(list)] => Ok(Value::Bool(contains(list, needle, ctx.budget)?)),
        [key, Value::Map(map)] => match map.get(key, ctx.budget) {
            Some(Err(e)) if e.is_fatal() => Err(e),
            found => Ok(Value::Bool(found.is_some())),
        },
        _ => Err(EvalError::overload("@in")),
    }
}

fn index<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [operand, key] => match lookup(ctx, operand, key)? {
            Some(value) => Ok(value),
            None => Err(missing(operand, key)),
        },
        _ => Err(EvalError::overload("_[_]")),
    }
}

/// What to say of a key that is not there.
pub(crate) fn missing(operand: &Value<'_>, key: &Value<'_>) -> EvalError {
    let shown = match key {
        Value::String(s) => s.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Double(d) => d.to_string(),
        Value::Bool(b) => b.to_string(),
        other => other.type_name().to_owned(),
    };
    match operand {
        Value::List(_) => EvalError::failed(format!("index out of bounds: {shown}")),
        _ => EvalError::no_such_key(&shown),
    }
}

/// The element at an index or key; `None` if there is none.
pub(crate) fn lookup<'a>(
    ctx: &mut Context<'_>,
    operand: &Value<'a>,
    key: &Value<'a>,
) -> Result<Option<Value<'a>>, EvalError> {
    match operand {
        Value::List(list) => {
            let index = match key {
                Value::Int(i) => usize::try_from(*i).ok(),
                Value::Uint(u) => usize::try_from(*u).ok(),
                Value::Double(d) if d.fract() == 0.0 => (*d >= 0.0).then_some(*d as usize),
                Value::Double(_) => return Err(EvalError::failed("unsupported index value in list")),
                other => {
                    return Err(EvalError::failed(format!("unsupported index type '{}' in list", other.type_name())));
                }
            };
            match index.and_then(|i| list.get(i)) {
                Some(item) => paid(item?, ctx.budget).map(Some),
                None => Ok(None),
            }
        }
        Value::Map(Map::Shared(_)) if key.lookup_key().is_none() => {
            if matches!(key, Value::Double(_)) {
                Ok(None)
            } else {
                Err(EvalError::failed(format!("unsupported key type: {}", key.type_name())))
            }
        }
        Value::Map(map) => map.get(key, ctx.budget).transpose(),
        _ => Err(EvalError::overload("_[_]")),
    }
}
