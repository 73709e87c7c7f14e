//! Where paths lead.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::{MAX_VALUES, Node, PathError};

type Values<'a> = Vec<Cow<'a, Value>>;

fn error(message: impl Into<String>) -> PathError {
    PathError(message.into())
}

/// Walks one step after the other.
pub(super) fn list<'a>(mut values: Values<'a>, nodes: &[Node], allow_missing: bool) -> Result<Values<'a>, PathError> {
    for node in nodes {
        values = step(values, node, allow_missing)?;
        if values.len() > MAX_VALUES {
            return Err(error("the path leads to too many values"));
        }
    }
    Ok(values)
}

fn step<'a>(values: Values<'a>, node: &Node, allow_missing: bool) -> Result<Values<'a>, PathError> {
    let same = |value: Value| values.iter().map(|_| Cow::Owned(value.clone())).collect();
    match node {
        Node::Text(text) => Ok(vec![Cow::Owned(Value::from(text.as_str()))]),
        Node::Number(number) => Ok(same(number.clone())),
        Node::Bool(truth) => Ok(same(Value::Bool(*truth))),
        Node::Field(name) => field(values, name, allow_missing),
        Node::Wildcard => Ok(values.into_iter().flat_map(children).collect()),
        Node::Recursive => {
            let mut found = Values::new();
            for value in values {
                descend(value, &mut found)?;
            }
            Ok(found)
        }
        Node::Union(parts) => {
            let mut found = Values::new();
            for part in parts {
                found.extend(list(values.clone(), part, allow_missing)?);
            }
            Ok(found)
        }
        Node::Slice { start, end, derived, step } => slice(values, *start, *end, *derived, *step),
        Node::Filter { left, operator, right } => filter(values, left, operator, right, allow_missing),
        Node::Identifier(name) => match name.as_str() {
            "range" => Ok(values),
            "end" => Ok(Values::new()),
            other => Err(error(format!("unrecognized identifier {other}"))),
        },
    }
}

fn field<'a>(values: Values<'a>, name: &str, allow_missing: bool) -> Result<Values<'a>, PathError> {
    let asked = !values.is_empty();
    let found: Values<'a> = values
        .into_iter()
        .filter_map(|value| match value {
            Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
            Cow::Owned(value) => value.as_object()?.get(name).cloned().map(Cow::Owned),
        })
        .collect();
    if found.is_empty() && asked && !allow_missing {
        return Err(error(format!("{name} is not found")));
    }
    Ok(found)
}

/// What is directly in a value.
fn children(value: Cow<'_, Value>) -> Values<'_> {
    match value {
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(fields)) => fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        _ => Values::new(),
    }
}

/// The value and all that is in it, without what holds nothing; texts count as holding something.
fn descend<'a>(value: Cow<'a, Value>, found: &mut Values<'a>) -> Result<(), PathError> {
    if found.len() > MAX_VALUES {
        return Err(error("the path leads to too many values"));
    }
    let holds = match &*value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    };
    if holds {
        found.push(value.clone());
        for child in children(value) {
            descend(child, found)?;
        }
    }
    Ok(())
}

fn slice<'a>(
    values: Values<'a>,
    start: Option<i64>,
    end: Option<i64>,
    derived: bool,
    step: Option<i64>,
) -> Result<Values<'a>, PathError> {
    let mut found = Values::new();
    for value in values.into_iter().filter(|value| !value.is_null()) {
        if !value.is_array() {
            return Err(error("not array or slice"));
        }
        let items = children(value);
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
        let first = from_end(start.unwrap_or(0));
        let last = match end.unwrap_or(length) {
            0 if derived => length,
            end => from_end(end),
        };
        if first == last {
            return Ok(found);
        }
        let outside = |index: i64| error(format!("array index out of bounds: index {index}, length {length}"));
        if !(0..length).contains(&first) {
            return Err(outside(first));
        }
        if !(0..=length).contains(&last) {
            return Err(outside(last.saturating_sub(1)));
        }
        if first > last {
            return Err(error(format!("starting index {first} is greater than ending index {last}")));
        }
        let step = match step {
            None => 1,
            Some(step) => {
                usize::try_from(step).ok().filter(|step| *step > 0).ok_or_else(|| error("step must be > 0"))?
            }
        };
        let count = |index: i64| usize::try_from(index).unwrap_or(0);
        found.extend(items.into_iter().skip(count(first)).take(count(last - first)).step_by(step));
    }
    Ok(found)
}

fn filter<'a>(
    values: Values<'a>,
    left: &[Node],
    operator: &str,
    right: &[Node],
    allow_missing: bool,
) -> Result<Values<'a>, PathError> {
    let mut found = Values::new();
    for value in values {
        if !value.is_array() {
            return Err(error("not array or slice and cannot be filtered"));
        }
        for item in children(value) {
            let lefts = list(vec![item.clone()], left, allow_missing);
            if operator == "exists" {
                if lefts.is_ok_and(|lefts| !lefts.is_empty()) {
                    found.push(item);
                }
                continue;
            }
            let Some(left) = one(lefts?)? else { continue };
            let Some(right) = one(list(vec![item.clone()], right, allow_missing)?)? else { continue };
            if compare(&left, operator, &right)? {
                found.push(item);
            }
        }
    }
    Ok(found)
}

fn one(values: Values<'_>) -> Result<Option<Cow<'_, Value>>, PathError> {
    match values.len() {
        0 | 1 => Ok(values.into_iter().next()),
        _ => Err(error("can only compare one element at a time")),
    }
}

fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, PathError> {
    let mismatch = || error("incompatible types for comparison");
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            (None, None) => a.as_f64().partial_cmp(&b.as_f64()).ok_or_else(mismatch)?,
            _ => return Err(mismatch()),
        },
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, "==" | "!=") => left.cmp(right),
        (
            Value::Bool(_) | Value::String(_) | Value::Number(_),
            Value::Bool(_) | Value::String(_) | Value::Number(_),
        ) => {
            return Err(mismatch());
        }
        _ => return Err(error("invalid type for comparison")),
    };
    match operator {
        "==" => Ok(order == Ordering::Equal),
        "!=" => Ok(order != Ordering::Equal),
        "<" => Ok(order == Ordering::Less),
        "<=" => Ok(order != Ordering::Greater),
        ">" => Ok(order == Ordering::Greater),
        ">=" => Ok(order != Ordering::Less),
        other => Err(error(format!("unrecognized filter operator {other}"))),
    }
}
