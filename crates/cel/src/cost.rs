//! What calls cost at run time: Kubernetes' tables.

use crate::budget::Budget;
use crate::error::EvalError;
use crate::library::Cost;
use crate::value::{Value, str_size};

/// Making a list.
pub(crate) const LIST: u64 = 10;
/// Making a map.
pub(crate) const MAP: u64 = 30;
/// Making an object.
pub(crate) const STRUCT: u64 = 40;
/// An authorization check: two of them are what one expression can afford.
pub(crate) const CHECK: u64 = 350_000;
/// Reading a string through once, per code point.
pub(crate) const STRING: f64 = 0.1;
/// Size of a regex, per code point of its pattern.
pub(crate) const REGEX: f64 = 0.25;

/// `ceil(size * factor)`, saturating.
pub(crate) fn scaled(size: u64, factor: f64) -> u64 {
    // Casts saturate.
    (size as f64 * factor).ceil() as u64
}

/// `a + b`.
pub(crate) fn plus(a: &Value<'_>, b: &Value<'_>) -> u64 {
    match (a, b) {
        (Value::String(_), Value::String(_)) | (Value::Bytes(_), Value::Bytes(_)) => {
            scaled(a.cost_size().saturating_add(b.cost_size()), STRING)
        }
        _ => 1,
    }
}

/// Comparing all elements with each other.
pub(crate) fn self_compare(list: &Value<'_>) -> u64 {
    let Value::List(list) = list else { return 1 };
    let size = list.len() as u64;
    let textual = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let factor = if textual { 2.0 + STRING } else { 2.0 };
    ((size.saturating_mul(size) as f64 * factor) as u64).saturating_add(1 + LIST)
}

/// Reading a label or field selector.
pub(crate) fn selector_cost(size: u64) -> u64 {
    let requirements = scaled(size, 0.5);
    // An estimate may ask for a size without bound.
    requirements.saturating_mul(LIST + 40).saturating_add(scaled(size, STRING)).saturating_add(LIST)
}

/// The cost of a call.
pub(crate) fn actual(
    cost: Cost,
    args: &[Value<'_>],
    result: &Value<'_>,
    budget: &mut Budget,
) -> Result<u64, EvalError> {
    let size = |i: usize| args.get(i).map_or(1, Value::cost_size);
    Ok(match cost {
        Cost::One | Cost::Index => 1,
        Cost::Scan
        | Cost::Parse
        | Cost::Affix
        | Cost::StringToBytes
        | Cost::BytesToString
        | Cost::Quote
        | Cost::FormatString => scaled(size(0), STRING),
        Cost::ParseTwice | Cost::Replace | Cost::Split => scaled(size(0), 2.0 * STRING),
        Cost::Join => scaled(result.cost_size(), 2.0 * STRING),
        Cost::Substring => scaled(size(0), STRING).saturating_mul(scaled(size(1), STRING)),
        Cost::Regex { .. } => scaled(size(0) + 1, STRING).saturating_mul(scaled(size(1), REGEX)),
        Cost::Comparison => match (args.first(), args.get(1)) {
            (Some(Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bool(_)), _) => 1,
            (Some(Value::String(a)), Some(Value::String(b))) => scaled(shorter(a, b), STRING),
            _ => scaled(size(0).min(size(1)), STRING),
        },
        Cost::InList => match args.get(1) {
            Some(Value::List(list)) => list.len() as u64,
            _ => 1,
        },
        Cost::Plus => match args {
            [a, b] => plus(a, b),
            _ => 1,
        },
        Cost::Traverse => match args.first() {
            Some(value) => traversal(value, budget)?,
            None => 1,
        },
        Cost::ListOut | Cost::Range => result.cost_size().saturating_add(1 + LIST),
        Cost::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                _ => 1,
            };
            size(0).saturating_mul(depth).saturating_add(1 + LIST)
        }
        Cost::SelfCompare => args.first().map_or(1, self_compare),
        Cost::Sets(factor) => size(0).saturating_mul(size(1)).saturating_mul(u64::from(factor)).saturating_add(1),
        Cost::Check => CHECK,
        Cost::Selector => selector_cost(size(1)),
        Cost::ContainsIp => scaled(2 * size(0), STRING) + text(args.get(1)),
        Cost::ContainsCidr => scaled(2 * size(0), STRING) + scaled(size(0), STRING) + 1 + text(args.get(1)),
        Cost::Validate => {
            let regex = match args.first() {
                Some(Value::Format(format)) => format.regex_size,
                _ => 128,
            };
            scaled(size(1) + 1, STRING).saturating_mul(scaled(regex, REGEX))
        }
    })
}

/// The lesser number of code points, without reading a text that is certainly longer.
fn shorter(a: &str, b: &str) -> u64 {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if short.len() <= long.len() / 4 { str_size(short) } else { str_size(short).min(str_size(long)) }
}

fn text(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::String(s)) => scaled(str_size(s), STRING),
        _ => 0,
    }
}

/// The cost of walking through a value. Values nest no deeper than expressions and JSON do.
fn traversal(value: &Value<'_>, budget: &mut Budget) -> Result<u64, EvalError> {
    budget.work(1)?;
    Ok(match value {
        Value::String(_) | Value::Bytes(_) => (value.cost_size() as f64 * STRING) as u64,
        Value::List(list) => {
            let mut sum = 0u64;
            for item in list.iter() {
                sum = sum.saturating_add(traversal(&item?, budget)?);
            }
            sum
        }
        Value::Map(map) => {
            let mut sum = 0u64;
            for key in map.keys() {
                sum = sum.saturating_add(traversal(&key, budget)?);
                if let Some(item) = map.get(&key, budget) {
                    sum = sum.saturating_add(traversal(&item?, budget)?);
                }
            }
            sum
        }
        _ => 1,
    })
}
