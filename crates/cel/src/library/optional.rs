//! Optional values.

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

pub(crate) const DECLS: &[Decl] = &[
    Decl { name: "optional.of", overloads: &[("optional_of", "(A) -> optional<A>")], cost: Cost::One, code: of },
    Decl {
        name: "optional.ofNonZeroValue",
        overloads: &[("optional_ofNonZeroValue", "(A) -> optional<A>")],
        cost: Cost::One,
        code: of_non_zero,
    },
    Decl {
        name: "optional.none",
        overloads: &[("optional_none", "() -> optional<A>")],
        cost: Cost::One,
        code: |_, _| Ok(Value::Optional(None)),
    },
    Decl { name: "value", overloads: &[("optional_value", "optional<A>.() -> A")], cost: Cost::One, code: value },
    Decl {
        name: "hasValue",
        overloads: &[("optional_hasValue", "optional<A>.() -> bool")],
        cost: Cost::One,
        code: has_value,
    },
    // `or` and `orValue` do not evaluate what they do not need; their code is in the evaluator.
    Decl {
        name: "or",
        overloads: &[("optional_or_optional", "optional<A>.(optional<A>) -> optional<A>")],
        cost: Cost::One,
        code: |_, _| Err(EvalError::overload("or")),
    },
    Decl {
        name: "orValue",
        overloads: &[("optional_orValue_value", "optional<A>.(A) -> A")],
        cost: Cost::One,
        code: |_, _| Err(EvalError::overload("orValue")),
    },
    Decl {
        name: "_[?_]",
        overloads: &[
            ("list_optindex_optional_int", "(list<A>, int) -> optional<A>"),
            ("optional_list_optindex_optional_int", "(optional<list<A>>, int) -> optional<A>"),
            ("map_optindex_optional_value", "(map<A, B>, A) -> optional<B>"),
            ("optional_map_optindex_optional_value", "(optional<map<A, B>>, A) -> optional<B>"),
        ],
        cost: Cost::One,
        code: |_, _| Err(EvalError::overload("_[?_]")),
    },
    Decl {
        name: "_[_]",
        overloads: &[
            ("optional_list_index_int", "(optional<list<A>>, int) -> optional<A>"),
            ("optional_map_index_value", "(optional<map<A, B>>, A) -> optional<B>"),
        ],
        cost: Cost::One,
        code: |_, _| Err(EvalError::overload("_[_]")),
    },
    Decl {
        name: "first",
        overloads: &[("list_first", "list<A>.() -> optional<A>")],
        cost: Cost::One,
        code: |_, a| end(a, true),
    },
    Decl {
        name: "last",
        overloads: &[("list_last", "list<A>.() -> optional<A>")],
        cost: Cost::One,
        code: |_, a| end(a, false),
    },
    Decl {
        name: "optional.unwrap",
        overloads: &[("optional_unwrap", "(list<optional<A>>) -> list<A>")],
        cost: Cost::One,
        code: unwrap,
    },
    Decl {
        name: "unwrapOpt",
        overloads: &[("optional_unwrapOpt", "list<optional<A>>.() -> list<A>")],
        cost: Cost::One,
        code: unwrap,
    },
];

fn of<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    args.first().cloned().map(Value::some).ok_or(EvalError::overload("optional.of"))
}

fn of_non_zero<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [value] = args else { return Err(EvalError::overload("optional.ofNonZeroValue")) };
    let zero = match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(i) => *i == 0,
        Value::Uint(u) => *u == 0,
        Value::Double(d) => *d == 0.0,
        Value::String(s) => s.is_empty(),
        Value::Bytes(b) => b.is_empty(),
        Value::Duration(d) => *d == 0,
        Value::Timestamp(t) => t.seconds() == -62_135_596_800 && t.nanos() == 0,
        Value::List(l) => l.is_empty(),
        Value::Map(m) => m.is_empty(),
        Value::Optional(o) => o.is_none(),
        _ => false,
    };
    Ok(if zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn value<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(EvalError::failed("optional.none() dereference")),
        _ => Err(EvalError::overload("value")),
    }
}

fn has_value<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(EvalError::overload("hasValue")),
    }
}

fn end<'a>(args: &[Value<'a>], first: bool) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(EvalError::overload("first or last")) };
    let at = if first { 0 } else { list.len().wrapping_sub(1) };
    Ok(match list.get(at) {
        Some(value) => Value::some(value?),
        None => Value::Optional(None),
    })
}

fn unwrap<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(EvalError::overload("optional.unwrap")) };
    ctx.budget.alloc(list.len() as u64 * size_of::<Value<'_>>() as u64)?;
    let mut out = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => out.push((*value).clone()),
            Value::Optional(None) => {}
            _ => return Err(EvalError::overload("optional.unwrap")),
        }
    }
    Ok(Value::list(out))
}
