//! Path elements: how a child is selected in its parent, their order, and how they are written.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};

/// Selects a child of a value.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object or a key of a map: `f:name`.
    Field(Box<str>),
    /// The list item with these key fields, sorted by name: `k:{"port":80,"protocol":"TCP"}`.
    Key(Box<[(Box<str>, Value)]>),
    /// The list item with this value: `v:"a"`.
    Value(Value),
    /// The list item at this position: `i:0`. Only ever read, never written by us.
    Index(i64),
}

/// Why a path element cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not of the form `x:…`.
    #[error("path element {0:?} must begin with f:, k:, v: or i:")]
    Prefix(String),
    /// The part after the colon is malformed.
    #[error("path element {0:?} is malformed: {1}")]
    Content(String, String),
}

/// A kind of value's place in the order of values.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// The order of numbers by value. Exact: sorting relies on its being a total order, whatever a client sends.
fn order_numbers(left: &Number, right: &Number) -> Ordering {
    let whole = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let float = |number: &Number| number.as_f64().unwrap_or(0.0);
    // A float beyond all whole numbers here compares by size alone; below, its whole part is exact.
    let mixed = |int: i128, float: f64| {
        if float.abs() >= 1e20 {
            return if float > 0.0 { Ordering::Less } else { Ordering::Greater };
        }
        int.cmp(&(float.floor() as i128)).then(if float.fract() == 0.0 { Ordering::Equal } else { Ordering::Less })
    };
    match (whole(left), whole(right)) {
        (Some(l), Some(r)) => l.cmp(&r),
        (Some(l), None) => mixed(l, float(right)),
        (None, Some(r)) => mixed(r, float(left)).reverse(),
        (None, None) => float(left).partial_cmp(&float(right)).unwrap_or(Ordering::Equal),
    }
}

/// The total order of values: numbers (by value, however they are written), strings, booleans, lists, maps, null.
pub(crate) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => order_numbers(l, r),
        (Value::String(l), Value::String(r)) => l.cmp(r),
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Array(l), Value::Array(r)) => {
            let pairs = l.iter().zip(r).map(|(l, r)| order(l, r));
            pairs.into_iter().find(|o| o.is_ne()).unwrap_or_else(|| l.len().cmp(&r.len()))
        }
        (Value::Object(l), Value::Object(r)) => {
            let pairs = l.iter().zip(r).map(|((lk, lv), (rk, rv))| lk.cmp(rk).then_with(|| order(lv, rv)));
            pairs.into_iter().find(|o| o.is_ne()).unwrap_or_else(|| l.len().cmp(&r.len()))
        }
        (l, r) => rank(l).cmp(&rank(r)),
    }
}

/// Equality of values where `1` and `1.0` are the same.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || order(left, right).is_eq(),
        (Value::Array(l), Value::Array(r)) => l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same(l, r)),
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().zip(r).all(|((lk, lv), (rk, rv))| lk == rk && same(lv, rv))
        }
        _ => left == right,
    }
}

impl PathElement {
    /// A field element.
    pub fn field(name: &str) -> Self {
        PathElement::Field(name.into())
    }

    /// A key element; the fields may come in any order.
    pub fn key<'k>(fields: impl IntoIterator<Item = (&'k str, Value)>) -> Self {
        let mut fields: Vec<(Box<str>, Value)> = fields.into_iter().map(|(k, v)| (k.into(), v)).collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        PathElement::Key(fields.into())
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }

    /// Reads an element as FieldsV1 writes it. `None` for kinds of elements of the future, which are ignored.
    pub fn parse(text: &str) -> Result<Option<Self>, PathError> {
        let malformed = |why: &dyn fmt::Display| PathError::Content(text.to_owned(), why.to_string());
        let bytes = text.as_bytes();
        if bytes.len() < 2 || bytes[1] != b':' || !bytes[0].is_ascii() {
            return Err(PathError::Prefix(text.to_owned()));
        }
        let content = &text[2..];
        Ok(Some(match bytes[0] {
            b'f' => PathElement::Field(content.into()),
            b'v' => PathElement::Value(serde_json::from_str(content).map_err(|e| malformed(&e))?),
            b'k' => {
                // A Map is sorted by key, which is the order wanted.
                let fields: Map<String, Value> = serde_json::from_str(content).map_err(|e| malformed(&e))?;
                PathElement::Key(fields.into_iter().map(|(k, v)| (k.into_boxed_str(), v)).collect())
            }
            b'i' => PathElement::Index(content.parse().map_err(|e| malformed(&e))?),
            _ => return Ok(None),
        }))
    }

    /// Writes the element as FieldsV1 does.
    pub fn write(&self, out: &mut String) {
        match self {
            PathElement::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            PathElement::Key(fields) => write_key(fields.iter().map(|(k, v)| (&**k, v)), out),
            PathElement::Value(value) => {
                out.push_str("v:");
                write_json(value, out);
            }
            PathElement::Index(index) => {
                let _ = write!(out, "i:{index}");
            }
        }
    }
}

/// Writes `k:{…}`; the fields must be sorted by name.
pub(crate) fn write_key<'k>(fields: impl Iterator<Item = (&'k str, &'k Value)>, out: &mut String) {
    out.push_str("k:{");
    for (at, (name, value)) in fields.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_text(name, out);
        out.push(':');
        write_json(value, out);
    }
    out.push('}');
}

/// Compact JSON as Go writes it: `<`, `>`, `&` and the two line separators escaped, whole floats without a fraction.
pub(crate) fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_text(text, out),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 1e15);
            let _ = match whole {
                Some(float) => write!(out, "{float:.0}"),
                None => write!(out, "{number}"),
            };
        }
        other => escape(&other.to_string(), out),
    }
}

fn write_text(text: &str, out: &mut String) {
    if text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&') || b == b' ') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        escape(&Value::from(text).to_string(), out);
    }
}

fn escape(json: &str, out: &mut String) {
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            _ => out.push(c),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(l), PathElement::Field(r)) => l.cmp(r),
            (PathElement::Key(l), PathElement::Key(r)) => {
                order_keys(l.iter().map(|(k, v)| (&**k, v)), r.iter().map(|(k, v)| (&**k, v)))
            }
            (PathElement::Value(l), PathElement::Value(r)) => order(l, r),
            (PathElement::Index(l), PathElement::Index(r)) => l.cmp(r),
            (l, r) => l.rank().cmp(&r.rank()),
        }
    }
}

/// The order of two sorted lists of key fields.
pub(crate) fn order_keys<'k>(
    mut left: impl Iterator<Item = (&'k str, &'k Value)>,
    mut right: impl Iterator<Item = (&'k str, &'k Value)>,
) -> Ordering {
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some((lk, lv)), Some((rk, rv))) => {
                let found = lk.cmp(rk).then_with(|| order(lv, rv));
                if found.is_ne() {
                    return found;
                }
            }
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// For people: `.name`, `[port=80,protocol="TCP"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(fields) => {
                f.write_char('[')?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if at > 0 { "," } else { "" })?;
                }
                f.write_char(']')
            }
            PathElement::Value(value) => write!(f, "[={value}]"),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path from the root of an object, shown as Kubernetes shows it: `.spec.ports[port=80,protocol="TCP"].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl Path {
    /// A path of fields only.
    pub fn fields(names: &[&str]) -> Self {
        Path(names.iter().map(|name| PathElement::field(name)).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}
