//! JSON from clients, read as Kubernetes reads it: bounded, with fields that stand twice noticed, and whole numbers kept
//! whole.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

mod envelope;
mod surrogates;

pub use envelope::{Envelope, EnvelopeMeta, Text};

/// How deep objects and lists may be nested. (Kubernetes allows 10,000; what passes here can be walked recursively.)
pub const MAX_DEPTH: usize = 256;
/// More mistakes of one kind than this are not listed.
const MAX_DUPLICATES: usize = 100;

/// Why a text is no JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// A value and what is suspicious about its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value. Of a field that stands twice the last one counts.
    pub value: Value,
    /// The fields that stand twice, `spec.containers[0].name`, in the order they were found.
    pub duplicates: Vec<String>,
}

/// What strict field validation says about a field that stands twice: `duplicate field "spec.a"`.
pub fn duplicate(path: &str) -> String {
    format!("duplicate field {}", crate::field::quote(path))
}

/// Reads one value that is the whole text. Bytes that are no UTF-8 become U+FFFD, as Go does it, and so
/// do halves of surrogate pairs.
///
/// ```
/// use conductor_machinery::json;
/// let parsed = json::parse(br#"{"spec": {"a": 1, "a": 2}}"#).unwrap();
/// assert_eq!(parsed.value["spec"]["a"], 2);
/// assert_eq!(parsed.duplicates, ["spec.a"]);
/// ```
pub fn parse(bytes: &[u8]) -> Result<Parsed, ParseError> {
    let text = String::from_utf8_lossy(bytes);
    if text.trim_ascii().is_empty() {
        return Err(ParseError("unexpected end of JSON input".to_owned()));
    }
    read(&text).or_else(|error| match surrogates::replaced(&text) {
        Some(text) => read(&text),
        None => Err(error),
    })
}

fn read(text: &str) -> Result<Parsed, ParseError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The visitor counts the depth itself.
    deserializer.disable_recursion_limit();
    let parsed = from_deserializer(&mut deserializer).map_err(|error| ParseError(error.to_string()))?;
    deserializer.end().map_err(|error| ParseError(format!("more after the value: {error}")))?;
    Ok(parsed)
}

/// Reads a value by the same rules from any self-describing format.
pub fn from_deserializer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Parsed, D::Error> {
    let notes = Notes::default();
    let value = Node { notes: &notes, depth: 0 }.deserialize(deserializer)?;
    Ok(Parsed { value, duplicates: notes.duplicates.into_inner() })
}

/// The number as Kubernetes would write it again: a whole one without a fraction, also where it was written with one.
pub fn canonical_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(canonical_numbers),
        Value::Object(fields) => fields.values_mut().for_each(canonical_numbers),
        _ => {}
    }
}

fn whole(float: f64) -> Option<i64> {
    // Above 2^53 floats are whole by accident; up to 2^63 Go writes them without an exponent all the same.
    (float.fract() == 0.0 && float.abs() < 9.2e18).then_some(float as i64)
}

/// Sorts what strict validation objects to by its place in the text, as a decoder that reads it once finds it.
pub fn sort_by_place(bytes: &[u8], problems: &mut [String]) {
    let notes = Notes { places: Some(RefCell::default()), ..Notes::default() };
    let text = String::from_utf8_lossy(bytes);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    deserializer.disable_recursion_limit();
    if (Node { notes: &notes, depth: 0 }).deserialize(&mut deserializer).is_err() {
        return;
    }
    let places = notes.places.unwrap_or_default().into_inner();
    // A field is unknown where it first stands, and a duplicate where it stands again.
    let place = |problem: &String| {
        let mut of = places.iter().enumerate().filter(|(_, path)| problem.ends_with(path.as_str())).map(|(at, _)| at);
        let first = of.next();
        if problem.starts_with("duplicate") { of.next().or(first) } else { first }.unwrap_or(usize::MAX)
    };
    problems.sort_by_cached_key(place);
}

/// What is kept while reading: where we are, and what stood twice.
#[derive(Default)]
struct Notes {
    path: RefCell<String>,
    duplicates: RefCell<Vec<String>>,
    /// All fields in the order of the text, quoted, if that is asked for.
    places: Option<RefCell<Vec<String>>>,
}

impl Notes {
    /// Runs with the path longer by a field or an index.
    fn within<T>(&self, step: &dyn fmt::Display, dot: bool, run: impl FnOnce() -> T) -> T {
        use fmt::Write as _;
        let length = self.path.borrow().len();
        {
            let mut path = self.path.borrow_mut();
            if dot && length > 0 {
                path.push('.');
            }
            // Writing to a string cannot fail.
            let _ = write!(path, "{step}");
        }
        let result = run();
        self.path.borrow_mut().truncate(length);
        result
    }

    fn duplicate(&self, key: &str) {
        let path = self.within(&key, true, || self.path.borrow().clone());
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MAX_DUPLICATES && !duplicates.contains(&path) {
            duplicates.push(path);
        }
    }
}

/// A value somewhere in the tree.
#[derive(Clone, Copy)]
struct Node<'n> {
    notes: &'n Notes,
    depth: usize,
}

impl Node<'_> {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        Ok(Node { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Value::from(value)),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        // The reader gives `-0` as a float; it is the whole number zero.
        if value == 0.0 && value.is_sign_negative() {
            return Ok(Value::from(0));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut items = Vec::new();
        loop {
            let step = format_args!("[{}]", items.len()).to_string();
            match self.notes.within(&step, false, || list.next_element_seed(inner))? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if fields.contains_key(&key) {
                self.notes.duplicate(&key);
            }
            if let Some(places) = &self.notes.places {
                let path = self.notes.within(&key, true, || crate::field::quote(&self.notes.path.borrow()));
                places.borrow_mut().push(format!(" {path}"));
            }
            let value = self.notes.within(&key, true, || entries.next_value_seed(inner))?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests;
