//! Errors about a field of an object: which one, what is wrong with it, what would be right.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

/// Where in an object a field is, written as Kubernetes writes it: `spec.ports[0].name`, `data[my.key]`.
///
/// ```
/// use conductor_machinery::field::Path;
/// let path = Path::root("spec").child("ports").index(0).child("name");
/// assert_eq!(path.to_string(), "spec.ports[0].name");
/// assert_eq!(Path::root("data").key("a.b").to_string(), "data[a.b]");
/// assert_eq!(Path::root("status").child("").to_string(), "status[]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// The object itself.
    pub fn empty() -> Self {
        Path(String::new())
    }

    /// A top-level field.
    pub fn root(name: &str) -> Self {
        Path(name.to_owned())
    }

    /// A field of this one. Kubernetes shows one without a name as an entry without a key.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        match (self.0.as_str(), name) {
            ("", name) => Path(name.to_owned()),
            (_, "") => self.key(""),
            (own, name) => Path(format!("{own}.{name}")),
        }
    }

    /// An item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Path(format!("{}[{index}]", self.0))
    }

    /// An entry of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Path(format!("{}[{key}]", self.0))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// What kind of mistake it is. The names clients see are in [`Kind::reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A field that must be given is not.
    Required,
    /// The value is malformed.
    Invalid,
    /// The value is not one of the allowed ones.
    NotSupported,
    /// The value stands twice where it may stand once.
    Duplicate,
    /// The field may not be set or changed (here, or now).
    Forbidden,
    /// The value has too many bytes.
    TooLong,
    /// The value has too few characters.
    TooShort,
    /// The list or map has too many items.
    TooMany,
    /// The list or map has too few items.
    TooFew,
    /// The value has the wrong type.
    TypeInvalid,
    /// What the value refers to does not exist.
    NotFound,
    /// The server could not decide.
    Internal,
}

impl Kind {
    /// The name in `status.details.causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Kind::Required => "FieldValueRequired",
            Kind::Invalid => "FieldValueInvalid",
            Kind::NotSupported => "FieldValueNotSupported",
            Kind::Duplicate => "FieldValueDuplicate",
            Kind::Forbidden => "FieldValueForbidden",
            Kind::TooLong => "FieldValueTooLong",
            Kind::TooShort => "FieldValueTooShort",
            Kind::TooMany => "FieldValueTooMany",
            Kind::TooFew => "FieldValueTooFew",
            Kind::TypeInvalid => "FieldValueTypeInvalid",
            Kind::NotFound => "FieldValueNotFound",
            Kind::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Kind::Required => "Required value",
            Kind::Invalid => "Invalid value",
            Kind::NotSupported => "Unsupported value",
            Kind::Duplicate => "Duplicate value",
            Kind::Forbidden => "Forbidden",
            Kind::TooLong => "Too long",
            Kind::TooShort => "Too short",
            Kind::TooMany => "Too many",
            Kind::TooFew => "Too few",
            Kind::TypeInvalid => "Invalid value",
            Kind::NotFound => "Not found",
            Kind::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Kind::Required | Kind::Forbidden | Kind::TooLong | Kind::TooShort | Kind::Internal)
    }
}

/// One mistake in one field. `Display` words it as Kubernetes does:
/// `spec.type: Unsupported value: "Foo": supported values: "ClusterIP", "NodePort"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What kind of mistake.
    pub kind: Kind,
    /// Where.
    pub path: Path,
    /// The offending value as it is shown; `None` shows nothing.
    pub value: Option<Value>,
    /// What would be right.
    pub detail: String,
}

impl Error {
    /// A mistake of any kind.
    pub fn new(kind: Kind, path: &Path, value: Option<Value>, detail: impl Into<String>) -> Self {
        Error { kind, path: path.clone(), value, detail: detail.into() }
    }

    /// A required field is missing.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Kind::Required, path, None, detail)
    }

    /// A malformed value.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, path, Some(value.into()), detail)
    }

    /// A value of the wrong type.
    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Kind::TypeInvalid, path, Some(value.into()), detail)
    }

    /// A value that is not among the supported ones, which are listed sorted.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let mut names: Vec<String> = supported.iter().map(|name| quote(name)).collect();
        names.sort();
        let detail = if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        Self::new(Kind::NotSupported, path, Some(value.into()), detail)
    }

    /// A value that stands twice.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Kind::Duplicate, path, Some(value.into()), "")
    }

    /// A field that may not be set or changed.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, path, None, detail)
    }

    /// A value of more than `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        Self::new(Kind::TooLong, path, None, format!("may not be more than {max} {bytes}"))
    }

    /// A list or map of more than `max` items; `actual` is shown when known.
    pub fn too_many(path: &Path, actual: Option<usize>, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(Kind::TooMany, path, actual.map(Value::from), format!("must have at most {max} {items}"))
    }

    /// A value of fewer than `min` characters.
    pub fn too_short(path: &Path, min: usize) -> Self {
        let characters = if min == 1 { "character" } else { "characters" };
        Self::new(Kind::TooShort, path, None, format!("must be at least {min} {characters}"))
    }

    /// A list or map of fewer than `min` items.
    pub fn too_few(path: &Path, actual: usize, min: usize) -> Self {
        let items = if min == 1 { "item" } else { "items" };
        Self::new(Kind::TooFew, path, Some(actual.into()), format!("must have at least {min} {items}"))
    }

    /// The server could not decide.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Kind::Internal, path, None, detail)
    }

    /// A reference to nothing.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Kind::NotFound, path, Some(value.into()), "")
    }

    /// The message without the path, as it stands in `status.details.causes[].message`.
    pub fn message(&self) -> String {
        let mut text = self.kind.text().to_owned();
        let shown = self.value.as_ref().filter(|_| self.kind.shows_value());
        if let Some(value) = shown {
            text.push_str(": ");
            match value {
                Value::String(value) => text.push_str(&quote(value)),
                other => text.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

/// A text in double quotes as Go's `%q` writes it, which is what clients of Kubernetes see.
///
/// ```
/// use conductor_machinery::field::quote;
/// assert_eq!(quote("a\"\u{1}ä"), "\"a\\\"\\x01ä\"");
/// ```
pub fn quote(text: &str) -> String {
    use fmt::Write as _;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            // Writing to a string cannot fail.
            c if (c as u32) < 0x20 || c == '\u{7f}' => drop(write!(quoted, "\\x{:02x}", c as u32)),
            c if !is_printable(c) && (c as u32) < 0x1_0000 => drop(write!(quoted, "\\u{:04x}", c as u32)),
            c if !is_printable(c) => drop(write!(quoted, "\\U{:08x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Close to Go's notion: what Rust does not escape in the middle of a string.
pub(crate) fn is_printable(c: char) -> bool {
    c.is_ascii() || ['a', c].iter().collect::<String>().escape_debug().count() == 2
}

/// All mistakes of an object, in the order they were found.
pub type Errors = Vec<Error>;

/// Several mistakes as one text, each once: `[a: Required value, b: Required value]`.
pub fn aggregate(errors: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let mut known = HashSet::new();
    let texts = errors.into_iter().map(|error| error.to_string());
    let mut texts: Vec<String> = texts.filter(|text| known.insert(text.clone())).collect();
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}
