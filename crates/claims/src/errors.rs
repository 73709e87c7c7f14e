//! Errors that name the field they are about.

use std::fmt;

/// What is wrong with one field of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// The path, such as `spec.attributes.engine.match`.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// A path to a field, grown while walking an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The object itself.
    pub fn root() -> Path {
        Path::default()
    }

    /// A field below.
    pub fn field(&self, name: impl fmt::Display) -> Path {
        Path(if self.0.is_empty() { name.to_string() } else { format!("{}.{name}", self.0) })
    }

    /// An item of the list here.
    pub fn index(&self, index: usize) -> Path {
        Path(format!("{}[{index}]", self.0))
    }

    /// An error about this field.
    pub fn error(&self, message: impl Into<String>) -> FieldError {
        FieldError { field: self.0.clone(), message: message.into() }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
