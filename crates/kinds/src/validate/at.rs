//! A place in an object: its value and its path, so that a rule can read the one and name the other.

use conductor_machinery::field::{Error, Errors, Kind, Path};
use serde_json::Value;

use crate::value::{self, get};

/// A value and where it stands. Names may be dotted.
#[derive(Clone)]
pub(crate) struct At<'a> {
    pub(crate) value: &'a Value,
    pub(crate) path: Path,
}

impl<'a> At<'a> {
    /// The object itself.
    pub(crate) fn root(value: &'a Value) -> Self {
        At { value, path: Path::empty() }
    }

    /// A value that stands elsewhere.
    pub(crate) fn new(value: &'a Value, path: Path) -> Self {
        At { value, path }
    }

    /// A field of this value; null when it is not there.
    pub(crate) fn field(&self, name: &str) -> At<'a> {
        At { value: get(self.value, name), path: self.path.child(name) }
    }

    /// The items of a list.
    pub(crate) fn items(&self, name: &str) -> impl Iterator<Item = At<'a>> + use<'a> {
        let path = self.path.child(name);
        value::list(self.value, name).iter().enumerate().map(move |(i, value)| At { value, path: path.index(i) })
    }

    /// The entries of a map.
    pub(crate) fn entries(&self, name: &str) -> impl Iterator<Item = (&'a str, At<'a>)> + use<'a> {
        let path = self.path.child(name);
        value::entries(self.value, name).map(move |(key, value)| (key, At { value, path: path.key(key) }))
    }

    /// Where a field of this value is.
    pub(crate) fn at(&self, name: &str) -> Path {
        self.path.child(name)
    }

    pub(crate) fn exists(&self) -> bool {
        !self.value.is_null()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        value::has(self.value, name)
    }

    pub(crate) fn text(&self, name: &str) -> &'a str {
        value::text(self.value, name)
    }

    pub(crate) fn int(&self, name: &str) -> i64 {
        value::int(self.value, name).unwrap_or(0)
    }

    pub(crate) fn maybe_int(&self, name: &str) -> Option<i64> {
        value::int(self.value, name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        value::flag(self.value, name)
    }

    pub(crate) fn list(&self, name: &str) -> &'a [Value] {
        value::list(self.value, name)
    }

    pub(crate) fn get(&self, name: &str) -> &'a Value {
        get(self.value, name)
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        value::size(self.value, name)
    }
}

/// Shorthands for adding mistakes to a list of them.
pub(crate) trait Report {
    fn required(&mut self, path: &Path, detail: &str);
    fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>);
    fn forbidden(&mut self, path: &Path, detail: &str);
    fn duplicate(&mut self, path: &Path, value: impl Into<Value>);
    /// The supported values are listed in the order given.
    fn not_supported(&mut self, path: &Path, value: impl Into<Value>, supported: &[&str]);
    /// One mistake per message, all about the same value.
    fn each(&mut self, path: &Path, value: &str, messages: Vec<String>);
    /// A text that must be one of some.
    fn one_of(&mut self, at: &At<'_>, name: &str, supported: &[&str]);
    /// A text that must be there and be one of some.
    fn required_one_of(&mut self, at: &At<'_>, name: &str, supported: &[&str]);
    /// A text that must not be empty.
    fn required_text(&mut self, at: &At<'_>, name: &str);
    /// A number that must not be negative.
    fn not_negative(&mut self, at: &At<'_>, name: &str);
    /// A field that must be as it was.
    fn immutable(&mut self, new: &At<'_>, old: &At<'_>, name: &str);
}

/// What is said of a field that may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";
/// What is said of a number below zero.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

impl Report for Errors {
    fn required(&mut self, path: &Path, detail: &str) {
        self.push(Error::required(path, detail));
    }

    fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(Error::invalid(path, value, detail));
    }

    fn forbidden(&mut self, path: &Path, detail: &str) {
        self.push(Error::forbidden(path, detail));
    }

    fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.push(Error::duplicate(path, value));
    }

    fn not_supported(&mut self, path: &Path, value: impl Into<Value>, supported: &[&str]) {
        let names: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!("supported values: {}", names.join(", "));
        self.push(Error::new(Kind::NotSupported, path, Some(value.into()), detail));
    }

    fn each(&mut self, path: &Path, value: &str, messages: Vec<String>) {
        for message in messages {
            self.push(Error::invalid(path, value, message));
        }
    }

    fn one_of(&mut self, at: &At<'_>, name: &str, supported: &[&str]) {
        if at.has(name) && !supported.contains(&at.text(name)) {
            self.not_supported(&at.at(name), at.get(name).clone(), supported);
        }
    }

    fn required_one_of(&mut self, at: &At<'_>, name: &str, supported: &[&str]) {
        if at.text(name).is_empty() {
            self.required(&at.at(name), "");
        } else {
            self.one_of(at, name, supported);
        }
    }

    fn required_text(&mut self, at: &At<'_>, name: &str) {
        if at.text(name).is_empty() {
            self.required(&at.at(name), "");
        }
    }

    fn not_negative(&mut self, at: &At<'_>, name: &str) {
        if at.int(name) < 0 {
            self.invalid(&at.at(name), at.int(name), NEGATIVE);
        }
    }

    fn immutable(&mut self, new: &At<'_>, old: &At<'_>, name: &str) {
        let last = name.rsplit('.').next().unwrap_or(name);
        if !same_field(last, new.get(name), old.get(name)) {
            self.invalid(&new.at(name), new.get(name).clone(), IMMUTABLE);
        }
    }
}

/// Whether two values of one field mean the same, absence included.
pub(crate) fn same_field(name: &str, a: &Value, b: &Value) -> bool {
    let wrap = |value: &Value| Value::Object([(name.to_owned(), value.clone())].into_iter().collect());
    a == b || value::same(&wrap(a), &wrap(b))
}
