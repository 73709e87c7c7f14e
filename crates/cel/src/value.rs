//! Values at run time. They borrow from the JSON they came from wherever they can.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::budget::Budget;
use crate::decl::{DYN, DeclType, Kind, ListSemantics};
use crate::error::EvalError;
use crate::library::authz::AuthzValue;
use crate::library::named_format::NamedFormat;
use crate::library::net::Cidr;
use crate::library::quantity::Quantity;
use crate::library::semver::Semver;
use crate::library::url::Url;
use crate::time::Timestamp;

/// A string, borrowed from the input or made during evaluation.
#[derive(Clone, Debug)]
pub enum Str<'a> {
    /// Part of the input.
    Borrowed(&'a str),
    /// Made during evaluation.
    Shared(Arc<str>),
}

impl std::ops::Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Str::Borrowed(s) => s,
            Str::Shared(s) => s,
        }
    }
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Part of the input, with its declared type.
    Json(&'a [Json], &'a DeclType),
    /// Made during evaluation; it compares as its sources did.
    Shared(Arc<Vec<Value<'a>>>, Option<&'a DeclType>),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Part of the input, with its declared type.
    Json(&'a serde_json::Map<String, Json>, &'a DeclType),
    /// Made during evaluation.
    Shared(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    /// An object made during evaluation, with the name of its type.
    Made(&'a str, Arc<BTreeMap<Key<'a>, Value<'a>>>),
    /// Fields computed when asked for.
    Lazy(&'a dyn LazyFields),
}

/// An object whose fields are computed on first use, such as a policy's `variables`.
pub trait LazyFields: fmt::Debug + Send + Sync {
    /// The field's value; `None` if there is no such field.
    fn get<'s>(&'s self, field: &str, budget: &mut Budget) -> Option<Result<Value<'s>, EvalError>>;
}

/// A key of a map. Signed and unsigned numbers of one value are one key.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `uint`
    Uint(u64),
    /// `string`
    String(Str<'a>),
}

impl Key<'_> {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Key::Bool(b) => (0, i128::from(*b), ""),
            Key::Int(i) => (1, i128::from(*i), ""),
            Key::Uint(u) => (1, i128::from(*u), ""),
            Key::String(s) => (2, 0, s),
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `uint`
    Uint(u64),
    /// `double`
    Double(f64),
    /// `string`
    String(Str<'a>),
    /// `bytes`
    Bytes(Arc<[u8]>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// `list`
    List(List<'a>),
    /// `map` or object
    Map(Map<'a>),
    /// A type, by name.
    Type(&'static str),
    /// `optional_type`
    Optional(Option<Arc<Value<'a>>>),
    /// `kubernetes.Quantity`
    Quantity(Arc<Quantity>),
    /// `kubernetes.URL`
    Url(Arc<Url>),
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(Cidr),
    /// `kubernetes.NamedFormat`
    Format(&'static NamedFormat),
    /// `kubernetes.Semver`
    Semver(Arc<Semver>),
    /// `kubernetes.authorization.*`
    Authz(Arc<AuthzValue<'a>>),
}

impl<'a> Value<'a> {
    /// A string made during evaluation.
    pub fn string(s: impl Into<Arc<str>>) -> Self {
        Value::String(Str::Shared(s.into()))
    }

    /// A borrowed string.
    pub fn str(s: &'a str) -> Self {
        Value::String(Str::Borrowed(s))
    }

    /// A list made during evaluation.
    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List::Shared(Arc::new(items), None))
    }

    /// A map made during evaluation.
    pub fn map(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        Value::Map(Map::Shared(Arc::new(entries)))
    }

    /// An optional that has a value.
    pub fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    /// A view of JSON without a schema: whole numbers are `int`, others `double`.
    pub fn from_json(json: &'a Json) -> Self {
        Self::typed(json, &DYN).unwrap_or(Value::Null)
    }

    /// A view of JSON with its declared type. Only the top is looked at; what is below is
    /// converted when it is reached.
    pub fn typed(json: &'a Json, decl: &'a DeclType) -> Result<Self, EvalError> {
        if json.is_null() && !matches!(decl.kind(), Kind::Dyn | Kind::Plain(_)) {
            return if decl.nullable() {
                Ok(Value::Null)
            } else {
                Err(EvalError::failed("invalid data, got null for schema with nullable=false"))
            };
        }
        let mismatch = |expected: &str| Err(EvalError::failed(format!("invalid data, expected {expected}")));
        Ok(match (decl.kind(), json) {
            (Kind::Dyn | Kind::Plain(_), _) => match json {
                Json::Null => Value::Null,
                Json::Bool(b) => Value::Bool(*b),
                Json::Number(n) => match n.as_i64() {
                    Some(i) => Value::Int(i),
                    None => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
                },
                Json::String(s) => Value::str(s),
                Json::Array(items) => Value::List(List::Json(items, &DYN)),
                Json::Object(fields) => Value::Map(Map::Json(fields, &DYN)),
            },
            (Kind::String, Json::String(s)) => Value::str(s),
            (Kind::Object(_) | Kind::Map(_), Json::Object(fields)) => Value::Map(Map::Json(fields, decl)),
            (Kind::List(..), Json::Array(items)) => Value::List(List::Json(items, decl)),
            (Kind::Bool, Json::Bool(b)) => Value::Bool(*b),
            (Kind::Int, Json::Number(n)) => match whole(n) {
                Some(i) => Value::Int(i),
                None => return mismatch("int"),
            },
            (Kind::Double, Json::Number(n)) => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
            (Kind::IntOrString, Json::String(s)) => Value::str(s),
            (Kind::IntOrString, Json::Number(n)) => match whole(n) {
                Some(i) => Value::Int(i),
                None => return mismatch("a string or an integer"),
            },
            (Kind::Bytes | Kind::Duration | Kind::Date | Kind::DateTime, Json::String(s)) => formatted(decl, s)?,
            (Kind::Object(_) | Kind::Map(_), _) => return mismatch("a map for the provided schema with type=object"),
            (Kind::List(..), _) => return mismatch("an array for the provided schema with type=array"),
            (Kind::Bool, _) => return mismatch("bool"),
            (Kind::Int, _) => return mismatch("int"),
            (Kind::Double, _) => return mismatch("float"),
            (Kind::IntOrString, _) => return mismatch("a string or an integer"),
            (Kind::String | Kind::Bytes | Kind::Duration | Kind::Date | Kind::DateTime, _) => {
                return mismatch("string");
            }
        })
    }

    /// The name of the value's type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Url(_) => "kubernetes.URL",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Authz(authz) => authz.type_name(),
        }
    }

    /// `size()` as the cost model sees it: one for scalars.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Value::String(s) => str_size(s),
            Value::Bytes(b) => b.len() as u64,
            Value::List(l) => l.len() as u64,
            Value::Map(m) => m.len() as u64,
            Value::Optional(Some(inner)) => inner.cost_size(),
            Value::Ip(ip) => {
                if ip.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Value::Cidr(c) => u64::from(c.prefix).div_ceil(8),
            _ => 1,
        }
    }

    /// As a key of a map.
    pub(crate) fn as_key(&self) -> Option<Key<'a>> {
        Some(match self {
            Value::Bool(b) => Key::Bool(*b),
            Value::Int(i) => Key::Int(*i),
            Value::Uint(u) => Key::Uint(*u),
            Value::String(s) => Key::String(s.clone()),
            _ => return None,
        })
    }

    /// As a key to look up: doubles of whole value find the integer.
    pub(crate) fn lookup_key(&self) -> Option<Key<'a>> {
        match self {
            Value::Double(d) if d.fract() == 0.0 && *d >= -9.2e18 && *d < 9.2e18 => Some(Key::Int(*d as i64)),
            Value::Double(d) if d.fract() == 0.0 && *d >= 0.0 && *d < 1.8e19 => Some(Key::Uint(*d as u64)),
            other => other.as_key(),
        }
    }
}

/// Pays for a value that reading made anew: base64 is decoded each time it is reached.
pub(crate) fn paid<'a>(value: Value<'a>, budget: &mut Budget) -> Result<Value<'a>, EvalError> {
    if let Value::Bytes(bytes) = &value {
        budget.alloc(bytes.len() as u64)?;
    }
    Ok(value)
}

/// Number of code points; strings of plain ASCII are counted without decoding.
pub(crate) fn str_size(s: &str) -> u64 {
    if s.is_ascii() { s.len() as u64 } else { s.chars().count() as u64 }
}

fn whole(n: &serde_json::Number) -> Option<i64> {
    n.as_i64().or_else(|| n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9.2e18).map(|f| f as i64))
}

fn formatted<'a>(decl: &DeclType, s: &str) -> Result<Value<'a>, EvalError> {
    use base64::Engine;
    match decl.kind() {
        Kind::Bytes => match base64::engine::general_purpose::STANDARD.decode(s) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(_) => Err(EvalError::failed(format!("invalid byte formatted string {s}"))),
        },
        Kind::Duration => match crate::time::parse_duration(s) {
            Some(d) => Ok(Value::Duration(d)),
            None => Err(EvalError::failed(format!("Invalid duration {s}"))),
        },
        Kind::Date => match Timestamp::parse(&format!("{s}T00:00:00Z")) {
            Some(t) => Ok(Value::Timestamp(t)),
            None => Err(EvalError::failed(format!("Invalid date formatted string {s}"))),
        },
        _ => match Timestamp::parse(s) {
            Some(t) => Ok(Value::Timestamp(t)),
            None => Err(EvalError::failed(format!("Invalid date-time formatted string {s}"))),
        },
    }
}

impl<'a> List<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Shared(items, _) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            List::Json(items, decl) => items.get(index).map(|item| Value::typed(item, element(decl))),
            List::Shared(items, _) => items.get(index).map(|v| Ok(v.clone())),
        }
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    pub(crate) fn decl(&self) -> Option<&'a DeclType> {
        match self {
            List::Json(_, decl) => Some(decl),
            List::Shared(_, decl) => *decl,
        }
    }

    pub(crate) fn semantics(&self) -> &'a ListSemantics {
        match self.decl().map(DeclType::kind) {
            Some(Kind::List(_, semantics)) => semantics,
            _ => &ListSemantics::Atomic,
        }
    }
}

/// The declared type of a list's elements.
pub(crate) fn element(decl: &DeclType) -> &DeclType {
    match decl.kind() {
        Kind::List(e, _) => e,
        _ => &DYN,
    }
}

impl<'a> Map<'a> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(fields, _) => fields.len(),
            Map::Shared(entries) | Map::Made(_, entries) => entries.len(),
            Map::Lazy(_) => 0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field, by escaped name for objects.
    pub fn field(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Map::Json(fields, decl) => match decl.kind() {
                Kind::Object(_) => {
                    let field = decl.field(name)?;
                    let json = fields.get(&field.property)?;
                    // An absent field and one that is null are the same.
                    (!json.is_null()).then(|| Value::typed(json, &field.decl).and_then(|v| paid(v, budget)))
                }
                Kind::Map(value) => {
                    fields.get(name).map(|json| Value::typed(json, value).and_then(|v| paid(v, budget)))
                }
                _ => fields.get(name).map(|json| Ok(Value::from_json(json))),
            },
            Map::Shared(entries) | Map::Made(_, entries) => {
                entries.get(&Key::String(Str::Borrowed(name))).map(|v| Ok(v.clone()))
            }
            Map::Lazy(lazy) => lazy.get(name, budget),
        }
    }

    /// The value at a key.
    pub fn get(&self, key: &Value<'a>, budget: &mut Budget) -> Option<Result<Value<'a>, EvalError>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name, budget),
            (Map::Shared(entries), key) => entries.get(&key.lookup_key()?).map(|v| Ok(v.clone())),
            _ => None,
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Json(fields, decl) => match decl.kind() {
                Kind::Object(_) => fields
                    .keys()
                    .filter_map(|name| match crate::escape::escape(name)? {
                        Cow::Borrowed(name) => decl.field(name).map(|_| Value::str(name)),
                        Cow::Owned(ident) => decl.field(&ident).map(|_| Value::string(ident)),
                    })
                    .collect(),
                _ => fields.keys().map(|name| Value::str(name)).collect(),
            },
            Map::Shared(entries) | Map::Made(_, entries) => entries.keys().map(Key::to_value).collect(),
            Map::Lazy(_) => Vec::new(),
        }
    }
}

impl<'a> Key<'a> {
    pub(crate) fn to_value(&self) -> Value<'a> {
        match self {
            Key::Bool(b) => Value::Bool(*b),
            Key::Int(i) => Value::Int(*i),
            Key::Uint(u) => Value::Uint(*u),
            Key::String(s) => Value::String(s.clone()),
        }
    }
}
