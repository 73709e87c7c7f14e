//! Which objects are meant: by their labels (`app=web,tier in (a,b),!old`) or by some of their fields
//! (`metadata.name=web`).

use std::fmt;

use serde_json::{Map, Value};

use crate::field::{Error, Errors, Kind, Path};
use crate::names;

mod fields;
mod parse;

pub use fields::{FieldRequirement, FieldSelector, escape, unescape};

/// Why a text is no selector, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub(crate) String);

/// How a label relates to the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `in`
    In,
    /// `notin`; also true of objects without the label.
    NotIn,
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`; also true of objects without the label.
    NotEquals,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// `>`, on whole numbers.
    GreaterThan,
    /// `<`, on whole numbers.
    LessThan,
}

/// What one label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// Checks key and values; the mistakes are at `path` (its `key` and `values`).
    pub fn new(key: &str, operator: Operator, values: Vec<String>, path: &Path) -> Result<Self, Errors> {
        let mut errors = Errors::new();
        let messages = names::qualified_name(key);
        if !messages.is_empty() {
            errors.push(Error::invalid(&path.child("key"), key, messages.join("; ")));
        }
        let at = path.child("values");
        let detail = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                "for 'in', 'notin' operators, values set can't be empty"
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                "exact-match compatibility requires one single value"
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                "values set must be empty for exists and does not exist"
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                "for 'Gt', 'Lt' operators, exactly one value is required"
            }
            _ => "",
        };
        if !detail.is_empty() {
            errors.push(Error::new(Kind::Invalid, &at, Some(Value::from(values.clone())), detail));
        }
        let numeric = matches!(operator, Operator::GreaterThan | Operator::LessThan);
        for (index, value) in values.iter().enumerate().filter(|(_, value)| numeric && value.parse::<i64>().is_err()) {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(Error::invalid(&at.index(index), value.as_str(), detail));
        }
        for (index, value) in values.iter().enumerate() {
            let messages = names::label_value(value);
            if !messages.is_empty() {
                errors.push(Error::invalid(&at.index(index).key(key), value.as_str(), messages.join("; ")));
            }
        }
        if errors.is_empty() { Ok(Requirement { key: key.to_owned(), operator, values }) } else { Err(errors) }
    }

    /// The label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it relates to the values.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether it holds for the value of its label.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let among = |value: &str| self.values.iter().any(|wanted| wanted == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(among),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(among),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                match (value.and_then(number), self.values.first().and_then(|wanted| number(wanted))) {
                    (Some(value), Some(limit)) if self.operator == Operator::GreaterThan => value > limit,
                    (Some(value), Some(limit)) => value < limit,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A label selector: all its requirements must hold. Written, its requirements are sorted by label.
///
/// ```
/// use conductor_machinery::selector::Selector;
/// let selector = Selector::parse("tier in (b, a), app=web, !old").unwrap();
/// assert_eq!(selector.to_string(), "app=web,!old,tier in (a,b)");
/// assert!(selector.matches_pairs([("app", "web"), ("tier", "a")].into_iter()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// None selects nothing at all.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Selects every object.
    pub fn everything() -> Self {
        Selector { requirements: Some(Vec::new()) }
    }

    /// Selects no object.
    pub fn nothing() -> Self {
        Selector { requirements: None }
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text).map(Selector::of)
    }

    /// All of these requirements.
    pub fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Selector { requirements: Some(requirements) }
    }

    /// Selects objects with at least these labels, as `spec.selector` of a Service does. Nothing is validated, and no labels
    /// select everything.
    pub fn from_labels(labels: &Map<String, Value>) -> Self {
        let equals = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            operator: Operator::Equals,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
        };
        Selector::of(labels.iter().map(equals).collect())
    }

    /// From a `LabelSelector` object. Null selects nothing, an empty object everything. The object should have passed
    /// [`validate_label_selector`]; what it refuses is an error here, too.
    pub fn from_object(selector: &Value) -> Result<Self, String> {
        let Value::Object(selector) = selector else {
            return if selector.is_null() {
                Ok(Self::nothing())
            } else {
                Err("a label selector is an object".to_owned())
            };
        };
        let mut requirements = Vec::new();
        let mut add = |key: &str, operator, values| -> Result<(), String> {
            let requirement = Requirement::new(key, operator, values, &Path::empty());
            requirements.push(requirement.map_err(|errors| join(&errors))?);
            Ok(())
        };
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            add(key, Operator::Equals, vec![value.as_str().unwrap_or_default().to_owned()])?;
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let name = text(expression, "operator");
            let operator = match name {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return Err(format!("{name:?} is not a valid label selector operator")),
            };
            let values = strings(expression.get("values")).map(str::to_owned).collect();
            add(text(expression, "key"), operator, values)?;
        }
        Ok(Selector::of(requirements))
    }

    /// Whether labels, looked up one by one, satisfy it.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.requirements {
            Some(requirements) => requirements.iter().all(|requirement| requirement.holds(label(&requirement.key))),
            None => false,
        }
    }

    /// Whether the labels of an object (`metadata.labels`) satisfy it.
    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Whether labels given as pairs satisfy it.
    pub fn matches_pairs<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> bool {
        self.matches_with(|key| labels.clone().find(|(label, _)| *label == key).map(|(_, value)| value))
    }

    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether it is known to select nothing.
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// Its requirements, sorted by label; none for a selector of nothing.
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }

    /// The one value that the first requirement on this label demands, if it demands one.
    pub fn exact(&self, label: &str) -> Option<&str> {
        let first = self.requirements().iter().find(|requirement| requirement.key == label)?;
        match (first.operator, first.values.as_slice()) {
            (Operator::In | Operator::Equals | Operator::DoubleEquals, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements().iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Several mistakes in one line, as Kubernetes' aggregates are written.
fn join(errors: &[Error]) -> String {
    match errors {
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(Error::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Checks labels: every key and every value.
pub fn validate_labels(labels: &Map<String, Value>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (key, value) in labels {
        errors
            .extend(names::qualified_name(key).into_iter().map(|message| Error::invalid(path, key.as_str(), message)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).into_iter().map(|message| Error::invalid(path, value, message)));
    }
    errors
}

/// Checks a `LabelSelector` object. `allow_invalid_values` is for objects that had invalid values all along.
pub fn validate_label_selector(selector: &Value, allow_invalid_values: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        errors.extend(validate_labels(labels, &path.child("matchLabels")));
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    for (index, expression) in expressions.enumerate() {
        let path = path.child("matchExpressions").index(index);
        errors.extend(validate_expression(expression, allow_invalid_values, &path));
    }
    errors
}

fn validate_expression(expression: &Value, allow_invalid_values: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let values: Vec<&str> = strings(expression.get("values")).collect();
    match text(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    let key = text(expression, "key");
    errors
        .extend(names::qualified_name(key).into_iter().map(|message| Error::invalid(&path.child("key"), key, message)));
    if !allow_invalid_values {
        for (index, value) in values.into_iter().enumerate() {
            let path = path.child("values").index(index);
            errors.extend(names::label_value(value).into_iter().map(|message| Error::invalid(&path, value, message)));
        }
    }
    errors
}

#[cfg(test)]
mod tests;
