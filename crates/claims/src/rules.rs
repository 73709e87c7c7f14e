//! What matching needs to know of a resource type.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::amount::Amount;
use crate::version::{Version, VersionRange};

/// How what a claim wants is compared with what a resource has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Match {
    /// The same value.
    Equal,
    /// The resource's value is the claim's or more (`true` is more than `false`; texts by the order of `values`).
    AtLeast,
    /// The resource's value is the claim's or less.
    AtMost,
    /// The claim writes a range, the resource one version.
    VersionRange,
    /// The claim writes a list, the resource has one of it.
    In,
    /// The resource has a list, the claim's list is part of it.
    Contains,
}

impl Match {
    /// Every way of matching, as a ResourceType writes it.
    pub const ALL: [(&'static str, Match); 6] = [
        ("Equal", Match::Equal),
        ("AtLeast", Match::AtLeast),
        ("AtMost", Match::AtMost),
        ("VersionRange", Match::VersionRange),
        ("In", Match::In),
        ("Contains", Match::Contains),
    ];

    /// Its name in a ResourceType.
    pub fn name(self) -> &'static str {
        Match::ALL.iter().find(|(_, m)| *m == self).map_or("Equal", |(name, _)| name)
    }
}

/// The type of an attribute's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Text, possibly one of some.
    Text,
    /// Yes or no.
    Flag,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// A quantity such as `500m`.
    Quantity,
    /// A version.
    Version,
}

/// One attribute, as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The name in `spec`.
    pub name: Arc<str>,
    /// Another name taken in `spec`, if any.
    pub alias: Option<Arc<str>>,
    /// What its values are.
    pub kind: Kind,
    /// How they match.
    pub matching: Match,
    /// The values allowed, in ascending order; empty: any.
    pub values: Vec<Arc<str>>,
    /// Whether every resource must have it.
    pub required: bool,
}

/// One capacity, as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The name in `spec.capacity` and `spec.resources.requests`.
    pub name: Arc<str>,
    /// Whether the request must be met exactly instead of at least.
    pub exact: bool,
}

/// The rules by which one resource type matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The claim's kind, for messages.
    pub claim: Arc<str>,
    /// The resource's kind, for messages.
    pub resource: Arc<str>,
    /// In the order of the type.
    pub attributes: Vec<Attribute>,
    /// In the order of the type, which is the order of tightness.
    pub capacities: Vec<Capacity>,
    /// Claims per resource, where the resource does not say.
    pub max_claims: u32,
    /// The Kubernetes binder's ways: access modes rank before size, a named volume's class must be equal, no default by requirement.
    pub volumes: bool,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// Text.
    Text(Arc<str>),
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(Amount),
    /// A quantity.
    Quantity(Amount),
    /// A version.
    Version(Arc<Version>),
    /// Several texts, sorted.
    Many(Arc<[Arc<str>]>),
}

impl Value {
    /// As a resource or claim writes it.
    pub fn json(&self) -> Json {
        match self {
            Value::Text(text) => json!(text.as_ref()),
            Value::Flag(flag) => json!(flag),
            // written as a number, whole or not, and never as a quantity such as 250500m
            Value::Number(number) => serde_json::from_str(&decimal(*number)).unwrap_or_default(),
            Value::Quantity(amount) => json!(amount.to_string()),
            Value::Version(version) => json!(version.text()),
            Value::Many(many) => json!(many.iter().map(AsRef::as_ref).collect::<Vec<&str>>()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Flag(flag) => write!(f, "{flag}"),
            // 3000 and not 3k: a count is no amount
            Value::Number(number) => f.write_str(&decimal(*number)),
            Value::Quantity(amount) => write!(f, "{amount}"),
            Value::Version(version) => write!(f, "{version}"),
            Value::Many(many) => write!(f, "[{}]", many.join(", ")),
        }
    }
}

/// A number as people write it: 250.5, 3000.
fn decimal(number: Amount) -> String {
    const NANO: u128 = 1_000_000_000;
    let (sign, nanos) = (if number.nanos() < 0 { "-" } else { "" }, number.nanos().unsigned_abs());
    match nanos % NANO {
        0 => format!("{sign}{}", nanos / NANO),
        rest => format!("{sign}{}.{}", nanos / NANO, format!("{rest:09}").trim_end_matches('0')),
    }
}

/// What a claim wants of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Want {
    /// A value, compared as the attribute says.
    Value(Value),
    /// A range of versions.
    Range(Arc<VersionRange>),
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Want::Value(value) => write!(f, "{value}"),
            Want::Range(range) => write!(f, "{range}"),
        }
    }
}

impl Attribute {
    /// Whether a resource that has `has` satisfies a claim that wants `want`.
    pub fn satisfied(&self, want: &Want, has: Option<&Value>) -> bool {
        let want = match (want, has) {
            (Want::Range(range), Some(Value::Version(version))) => return range.contains(version),
            (Want::Range(_), _) => return false,
            (Want::Value(want), _) => want,
        };
        let Some(has) = has else {
            // a flag that is not there is not set
            return match (want, self.matching) {
                (Value::Flag(false), Match::AtLeast | Match::Equal) | (Value::Flag(_), Match::AtMost) => true,
                (Value::Many(many), Match::Contains) => many.is_empty(),
                _ => false,
            };
        };
        match self.matching {
            Match::Equal | Match::VersionRange => want == has,
            Match::AtLeast => self.rank(has).is_some_and(|h| self.rank(want).is_some_and(|w| h >= w)),
            Match::AtMost => self.rank(has).is_some_and(|h| self.rank(want).is_some_and(|w| h <= w)),
            Match::In => match (want, has) {
                (Value::Many(many), Value::Text(text)) => many.contains(text),
                (want, has) => want == has,
            },
            Match::Contains => match (want, has) {
                (Value::Many(wanted), Value::Many(had)) => wanted.iter().all(|w| had.contains(w)),
                (Value::Text(wanted), Value::Many(had)) => had.contains(wanted),
                (want, has) => want == has,
            },
        }
    }

    /// How far a value is from another in the attribute's order, as a part of it; 1 where there is no order.
    pub(crate) fn apart(&self, from: &Value, to: &Value) -> f64 {
        let whole = match from {
            Value::Number(number) | Value::Quantity(number) => number.nanos() as f64,
            _ => self.values.len() as f64,
        };
        match (self.matching, self.rank(from), self.rank(to)) {
            (Match::AtLeast | Match::AtMost, Some(from), Some(to)) if whole != 0.0 => {
                ((to as f64 - from as f64) / whole).abs()
            }
            _ => 1.0,
        }
    }

    /// The place of a value in the attribute's order.
    fn rank(&self, value: &Value) -> Option<i128> {
        match value {
            Value::Flag(flag) => Some(i128::from(*flag)),
            Value::Number(number) | Value::Quantity(number) => Some(number.nanos()),
            Value::Text(text) => self.values.iter().position(|v| v == text).map(|p| p as i128),
            Value::Version(_) | Value::Many(_) => None,
        }
    }

    /// Reads a value of this attribute as a resource has it.
    pub fn read(&self, json: &serde_json::Value) -> Result<Option<Value>, String> {
        use serde_json::Value as Json;
        if json.is_null() {
            return Ok(None);
        }
        let amount = |json: &Json| Amount::from_json(json).map_err(|e| e.to_string());
        if self.matching == Match::Contains {
            return texts(json).map(|many| Some(Value::Many(many)));
        }
        let value = match (self.kind, json) {
            (Kind::Text, Json::String(text)) => Value::Text(text.as_str().into()),
            (Kind::Text, _) => return Err("must be a string".into()),
            (Kind::Flag, Json::Bool(flag)) => Value::Flag(*flag),
            (Kind::Flag, _) => return Err("must be true or false".into()),
            (Kind::Integer | Kind::Number, Json::Number(_)) => Value::Number(amount(json)?),
            (Kind::Quantity, _) => Value::Quantity(amount(json)?),
            (Kind::Integer | Kind::Number, _) => return Err("must be a number".into()),
            (Kind::Version, Json::String(text)) => Value::Version(Arc::new(Version::parse(text))),
            (Kind::Version, Json::Number(number)) => Value::Version(Arc::new(Version::parse(&number.to_string()))),
            (Kind::Version, _) => return Err("must be a version, as text".into()),
        };
        if let Value::Text(text) = &value
            && !self.values.is_empty()
            && !self.values.contains(text)
        {
            return Err(format!("must be one of {}", self.values.join(", ")));
        }
        Ok(Some(value))
    }

    /// Reads what a claim wants of this attribute.
    pub fn read_want(&self, json: &serde_json::Value) -> Result<Option<Want>, String> {
        use serde_json::Value as Json;
        match (self.matching, json) {
            (_, Json::Null) => Ok(None),
            (Match::VersionRange, Json::String(text)) => {
                VersionRange::parse(text).map(|r| Some(Want::Range(Arc::new(r)))).map_err(|e| e.to_string())
            }
            (Match::VersionRange, Json::Number(number)) => VersionRange::parse(&number.to_string())
                .map(|r| Some(Want::Range(Arc::new(r))))
                .map_err(|e| e.to_string()),
            (Match::VersionRange, _) => Err("must be a version range, as text".into()),
            (Match::In, Json::Array(_)) => texts(json).map(|many| Some(Want::Value(Value::Many(many)))),
            _ => Ok(self.read(json)?.map(Want::Value)),
        }
    }

    /// Whether a claim's value was an unquoted number with a fraction, which loses trailing zeros: 5.10 reads as 5.1.
    pub fn unquoted(&self, json: &serde_json::Value) -> bool {
        self.kind == Kind::Version && json.is_number()
    }
}

/// Reads a list of texts, sorted and without doubles; a single text is a list of one.
pub(crate) fn texts(json: &serde_json::Value) -> Result<Arc<[Arc<str>]>, String> {
    let mut many: Vec<Arc<str>> = match json {
        serde_json::Value::Null => Vec::new(),
        serde_json::Value::String(text) => vec![text.as_str().into()],
        serde_json::Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(Arc::from).ok_or_else(|| "must be a list of strings".to_owned()))
            .collect::<Result<_, _>>()?,
        _ => return Err("must be a list of strings".into()),
    };
    many.sort();
    many.dedup();
    Ok(many.into())
}
