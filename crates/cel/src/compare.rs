//! Equality and order of values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::budget::Budget;
use crate::decl::{Kind, ListSemantics};
use crate::error::EvalError;
use crate::value::{List, Map, Value, paid};

type Answer = Result<bool, EvalError>;

/// `a == b`. Values of different types are different, except numbers of equal value.
pub(crate) fn equal<'a>(a: &Value<'a>, b: &Value<'a>, budget: &mut Budget) -> Answer {
    budget.work(1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(a, b) == Some(Ordering::Equal)
        }
        (Value::String(a), Value::String(b)) => {
            budget.work(a.len().min(b.len()) as u64 / 64)?;
            **a == **b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.work(a.len().min(b.len()) as u64 / 64)?;
            a == b
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::List(a), Value::List(b)) => return lists(a, b, budget),
        (Value::Map(a), Value::Map(b)) => return maps(a, b, budget),
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => return equal(a, b, budget),
            _ => false,
        },
        (Value::Quantity(a), Value::Quantity(b)) => a.compare(b) == Ordering::Equal,
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Format(a), Value::Format(b)) => std::ptr::eq(*a, *b),
        (Value::Semver(a), Value::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Value::Authz(a), Value::Authz(b)) => std::sync::Arc::ptr_eq(a, b),
        _ => false,
    })
}

fn lists<'a>(a: &List<'a>, b: &List<'a>, budget: &mut Budget) -> Answer {
    if a.len() != b.len() {
        return Ok(false);
    }
    let semantics = match a.semantics() {
        ListSemantics::Atomic => b.semantics(),
        other => other,
    };
    match semantics {
        ListSemantics::Atomic => {
            for (x, y) in a.iter().zip(b.iter()) {
                let (x, y) = (paid(x?, budget)?, paid(y?, budget)?);
                if !equal(&x, &y, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListSemantics::Set => {
            budget.alloc(a.len() as u64 * 64)?;
            let index = index_by(a, budget, |v, _| v.as_key())?;
            for y in b.iter() {
                let y = y?;
                let found = match (&index, y.as_key()) {
                    (Some(index), Some(key)) => index.contains_key(&key),
                    _ => contains(a, &y, budget)?,
                };
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListSemantics::Map(keys) => {
            for y in b.iter() {
                let y = y?;
                let Some(x) = find_by_keys(a, &y, keys, budget)? else { return Ok(false) };
                if !equal(&a.get(x).unwrap_or(Ok(Value::Null))?, &y, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

type Index<'a> = BTreeMap<crate::value::Key<'a>, usize>;

fn index_by<'a>(
    list: &List<'a>,
    budget: &mut Budget,
    key: impl Fn(&Value<'a>, &mut Budget) -> Option<crate::value::Key<'a>>,
) -> Result<Option<Index<'a>>, EvalError> {
    let mut index = BTreeMap::new();
    for (i, item) in list.iter().enumerate() {
        budget.work(2)?;
        match key(&item?, budget) {
            Some(key) => index.insert(key, i),
            None => return Ok(None),
        };
    }
    Ok(Some(index))
}

/// Position in `list` of the item whose key properties equal those of `item`.
pub(crate) fn find_by_keys<'a>(
    list: &List<'a>,
    item: &Value<'a>,
    keys: &[String],
    budget: &mut Budget,
) -> Result<Option<usize>, EvalError> {
    'items: for (i, candidate) in list.iter().enumerate() {
        budget.work(1)?;
        let candidate = candidate?;
        for key in keys {
            let (x, y) = (key_property(&candidate, key, budget)?, key_property(item, key, budget)?);
            let same = match (x, y) {
                (Some(x), Some(y)) => equal(&x, &y, budget)?,
                (None, None) => true,
                _ => false,
            };
            if !same {
                continue 'items;
            }
        }
        return Ok(Some(i));
    }
    Ok(None)
}

fn key_property<'a>(item: &Value<'a>, key: &str, budget: &mut Budget) -> Result<Option<Value<'a>>, EvalError> {
    let Value::Map(map) = item else { return Ok(None) };
    let ident = crate::escape::escape(key);
    map.field(ident.as_deref().unwrap_or(key), budget).transpose()
}

fn maps<'a>(a: &Map<'a>, b: &Map<'a>, budget: &mut Budget) -> Answer {
    if a.len() != b.len() {
        return Ok(false);
    }
    // The keys are collected whatever the first of them says.
    budget.work(a.len() as u64)?;
    for key in a.keys() {
        let equal_entries = match (a.get(&key, budget), b.get(&key, budget)) {
            (Some(x), Some(y)) => equal(&x?, &y?, budget)?,
            (None, None) => true,
            _ => false,
        };
        if !equal_entries {
            return Ok(false);
        }
    }
    // Properties that the schema does not show to CEL count as well.
    if let (Map::Json(x, decl), Map::Json(y, _)) = (a, b)
        && let Kind::Object(fields) = decl.kind()
    {
        for (name, value) in *x {
            let hidden = crate::escape::escape(name).is_none_or(|ident| !fields.contains_key(ident.as_ref()));
            if hidden && !y.get(name).map_or(Ok(false), |other| raw(value, other, budget))? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn raw(a: &Json, b: &Json, budget: &mut Budget) -> Answer {
    equal(&Value::from_json(a), &Value::from_json(b), budget)
}

/// Whether the list has an element equal to `value`.
pub(crate) fn contains<'a>(list: &List<'a>, value: &Value<'a>, budget: &mut Budget) -> Answer {
    for item in list.iter() {
        if equal(&paid(item?, budget)?, value, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Order of two numbers of any type; `None` if one is not a number (or NaN).
pub(crate) fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        // As cel-go does: the integer is rounded to a double, beyond 2^53 with loss.
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Double(a), Value::Uint(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        (Value::Uint(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        _ => None,
    }
}

/// `a < b` and its like. `None` if the types have no common order.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Result<Ordering, EvalError>> {
    Some(Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            return Some(compare_numbers(a, b).ok_or_else(|| EvalError::failed("NaN values cannot be ordered")));
        }
        _ => return None,
    }))
}
