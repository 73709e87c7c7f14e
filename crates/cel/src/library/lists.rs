//! List functions: Kubernetes' own and cel-go's extension.

use std::cmp::Ordering;

use super::operators::add;
use super::{Context, Cost, Decl, Outcome};
use crate::compare::{compare, equal};
use crate::error::EvalError;
use crate::value::{List, Value};

const SORTABLE_TO_SELF: &[(&str, &str)] = &[
    ("list_int", "list<int>.() -> int"),
    ("list_uint", "list<uint>.() -> uint"),
    ("list_double", "list<double>.() -> double"),
    ("list_bool", "list<bool>.() -> bool"),
    ("list_duration", "list<duration>.() -> duration"),
    ("list_timestamp", "list<timestamp>.() -> timestamp"),
    ("list_string", "list<string>.() -> string"),
    ("list_bytes", "list<bytes>.() -> bytes"),
];

pub(crate) const KUBERNETES: &[Decl] = &[
    Decl {
        name: "isSorted",
        overloads: &[
            ("list_int", "list<int>.() -> bool"),
            ("list_uint", "list<uint>.() -> bool"),
            ("list_double", "list<double>.() -> bool"),
            ("list_bool", "list<bool>.() -> bool"),
            ("list_duration", "list<duration>.() -> bool"),
            ("list_timestamp", "list<timestamp>.() -> bool"),
            ("list_string", "list<string>.() -> bool"),
            ("list_bytes", "list<bytes>.() -> bool"),
        ],
        cost: Cost::Traverse,
        code: is_sorted,
    },
    // One group per type: the sum of an empty list is the zero of its type.
    Decl {
        name: "sum",
        overloads: &[("list_int_sum_int", "list<int>.() -> int")],
        cost: Cost::Traverse,
        code: |c, a| sum(c, a, Value::Int(0)),
    },
    Decl {
        name: "sum",
        overloads: &[("list_uint_sum_uint", "list<uint>.() -> uint")],
        cost: Cost::Traverse,
        code: |c, a| sum(c, a, Value::Uint(0)),
    },
    Decl {
        name: "sum",
        overloads: &[("list_double_sum_double", "list<double>.() -> double")],
        cost: Cost::Traverse,
        code: |c, a| sum(c, a, Value::Double(0.0)),
    },
    Decl {
        name: "sum",
        overloads: &[("list_duration_sum_duration", "list<duration>.() -> duration")],
        cost: Cost::Traverse,
        code: |c, a| sum(c, a, Value::Duration(0)),
    },
    Decl {
        name: "max",
        overloads: SORTABLE_TO_SELF,
        cost: Cost::Traverse,
        code: |c, a| extreme(c, a, "max", Ordering::Greater),
    },
    Decl {
        name: "min",
        overloads: SORTABLE_TO_SELF,
        cost: Cost::Traverse,
        code: |c, a| extreme(c, a, "min", Ordering::Less),
    },
    Decl {
        name: "indexOf",
        overloads: &[("list_a_index_of_int", "list<A>.(A) -> int")],
        cost: Cost::Traverse,
        code: index_of,
    },
    Decl {
        name: "lastIndexOf",
        overloads: &[("list_a_last_index_of_int", "list<A>.(A) -> int")],
        cost: Cost::Traverse,
        code: last_index_of,
    },
];

pub(crate) const EXTENDED: &[Decl] = &[
    Decl {
        name: "slice",
        overloads: &[("list_slice", "list<A>.(int, int) -> list<A>")],
        cost: Cost::ListOut,
        code: slice,
    },
    Decl {
        name: "flatten",
        overloads: &[
            ("list_flatten", "list<list<A>>.() -> list<A>"),
            ("list_flatten_int", "list<dyn>.(int) -> list<dyn>"),
        ],
        cost: Cost::Flatten,
        code: flatten,
    },
    Decl {
        name: "sort",
        overloads: &[
            ("list_int_sort", "list<int>.() -> list<int>"),
            ("list_uint_sort", "list<uint>.() -> list<uint>"),
            ("list_double_sort", "list<double>.() -> list<double>"),
            ("list_bool_sort", "list<bool>.() -> list<bool>"),
            ("list_duration_sort", "list<duration>.() -> list<duration>"),
            ("list_timestamp_sort", "list<timestamp>.() -> list<timestamp>"),
            ("list_string_sort", "list<string>.() -> list<string>"),
            ("list_bytes_sort", "list<bytes>.() -> list<bytes>"),
        ],
        cost: Cost::SelfCompare,
        code: sort,
    },
    Decl { name: "lists.range", overloads: &[("lists_range", "(int) -> list<int>")], cost: Cost::Range, code: range },
    Decl {
        name: "reverse",
        overloads: &[("list_reverse", "list<A>.() -> list<A>")],
        cost: Cost::ListOut,
        code: reverse,
    },
    Decl {
        name: "distinct",
        overloads: &[("list_distinct", "list<A>.() -> list<A>")],
        cost: Cost::SelfCompare,
        code: distinct,
    },
];

fn one_list<'v, 'a>(args: &'v [Value<'a>], name: &'static str) -> Result<&'v List<'a>, EvalError> {
    match args {
        [Value::List(list)] => Ok(list),
        _ => Err(EvalError::overload(name)),
    }
}

/// The elements, owned, paid for.
fn elements<'a>(ctx: &mut Context<'_>, list: &List<'a>) -> Result<Vec<Value<'a>>, EvalError> {
    ctx.budget.alloc(list.len() as u64 * size_of::<Value<'_>>() as u64)?;
    list.iter().collect()
}

fn order(a: &Value<'_>, b: &Value<'_>, name: &'static str) -> Result<Ordering, EvalError> {
    compare(a, b).unwrap_or(Err(EvalError::overload(name)))
}

fn is_sorted<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let list = one_list(args, "isSorted")?;
    let mut previous: Option<Value<'a>> = None;
    for item in list.iter() {
        ctx.budget.work(1)?;
        let item = item?;
        if let Some(previous) = previous
            && order(&previous, &item, "isSorted")?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], zero: Value<'a>) -> Outcome<'a> {
    let list = one_list(args, "sum")?;
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        ctx.budget.work(1)?;
        let item = item?;
        if !matches!(item, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) {
            return Err(EvalError::overload("sum"));
        }
        total = Some(match total {
            None => item,
            Some(total) => add(ctx, total, item)?,
        });
    }
    Ok(total.unwrap_or(zero))
}

fn extreme<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], name: &'static str, wanted: Ordering) -> Outcome<'a> {
    let list = one_list(args, name)?;
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        ctx.budget.work(1)?;
        let item = item?;
        let better = match &best {
            Some(best) => order(&item, best, name)? == wanted,
            None => true,
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::failed(format!("{name} called on empty list")))
}

fn index_of<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), needle] = args else { return Err(EvalError::overload("indexOf")) };
    for (i, item) in list.iter().enumerate() {
        if equal(&item?, needle, ctx.budget)? {
            return Ok(Value::Int(i as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn last_index_of<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), needle] = args else { return Err(EvalError::overload("lastIndexOf")) };
    for i in (0..list.len()).rev() {
        if let Some(item) = list.get(i)
            && equal(&item?, needle, ctx.budget)?
        {
            return Ok(Value::Int(i as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn slice<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(EvalError::overload("slice"));
    };
    let fail = |what: &str| Err(EvalError::failed(format!("cannot slice({start}, {end}), {what}")));
    if *start < 0 || *end < 0 {
        return fail("negative indexes not supported");
    }
    if start > end {
        return fail("start index must be less than or equal to end index");
    }
    if *end > list.len() as i64 {
        return fail(&format!("list is length {}", list.len()));
    }
    if let List::Json(items, decl) = list {
        let part = items.get(*start as usize..*end as usize).unwrap_or_default();
        return Ok(Value::List(List::Json(part, decl)));
    }
    ctx.budget.alloc((end - start) as u64 * size_of::<Value<'_>>() as u64)?;
    let items = (*start as usize..*end as usize).filter_map(|i| list.get(i)).collect::<Result<Vec<_>, _>>()?;
    Ok(Value::list(items))
}

fn flatten<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(EvalError::overload("flatten")),
    };
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(ctx, list, depth, &mut out)?;
    Ok(Value::list(out))
}

/// Recurses as deep as the value is nested, which is bounded by the expression and by JSON.
fn flatten_into<'a>(
    ctx: &mut Context<'_>,
    list: &List<'a>,
    depth: i64,
    out: &mut Vec<Value<'a>>,
) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(ctx, &inner, depth - 1, out)?,
            other => {
                ctx.budget.alloc(size_of::<Value<'_>>() as u64)?;
                out.push(other);
            }
        }
    }
    Ok(())
}

/// Sorts items by their keys; the keys must be of one type.
pub(crate) fn sort_by_keys<'a>(
    ctx: &mut Context<'_>,
    items: Vec<Value<'a>>,
    keys: &[Value<'a>],
) -> Result<Vec<Value<'a>>, EvalError> {
    let comparable = |v: &Value<'_>| {
        matches!(
            v,
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Bool(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
                | Value::String(_)
                | Value::Bytes(_)
        )
    };
    if let Some(first) = keys.first() {
        if !keys.iter().all(comparable) {
            return Err(EvalError::failed("list elements must be comparable"));
        }
        if keys.iter().any(|k| k.type_name() != first.type_name()) {
            return Err(EvalError::failed("list elements must have the same type"));
        }
    }
    let n = items.len() as u64;
    ctx.budget.work(n.saturating_mul(u64::from(n.max(1).ilog2()) + 1))?;
    let mut positions: Vec<usize> = (0..items.len().min(keys.len())).collect();
    positions.sort_by(|a, b| match compare(&keys[*a], &keys[*b]) {
        Some(Ok(order)) => order,
        _ => Ordering::Equal,
    });
    Ok(positions.into_iter().map(|i| items[i].clone()).collect())
}

fn sort<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let list = one_list(args, "sort")?;
    let items = elements(ctx, list)?;
    let keys = items.clone();
    Ok(Value::list(sort_by_keys(ctx, items, &keys)?))
}

fn range<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Int(n)] = args else { return Err(EvalError::overload("lists.range")) };
    let n = (*n).max(0);
    ctx.budget.alloc((n as u64).saturating_mul(size_of::<Value<'_>>() as u64))?;
    Ok(Value::list((0..n).map(Value::Int).collect()))
}

fn reverse<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let list = one_list(args, "reverse")?;
    let mut items = elements(ctx, list)?;
    items.reverse();
    Ok(Value::list(items))
}

fn distinct<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let list = one_list(args, "distinct")?;
    let mut out: Vec<Value<'a>> = Vec::new();
    'items: for item in list.iter() {
        let item = item?;
        for seen in &out {
            if equal(seen, &item, ctx.budget)? {
                continue 'items;
            }
        }
        ctx.budget.alloc(size_of::<Value<'_>>() as u64)?;
        out.push(item);
    }
    Ok(Value::list(out))
}
