//! What can go wrong.

use std::fmt;

use super::conflict::Conflict;
use super::fields_v1::FieldsError;
use crate::status::Status;

/// A value does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    /// Where, as a path of server-side apply.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// The value in question as JSON, where it is said.
    pub found: Option<String>,
}

impl TypeError {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        TypeError { path: path.into(), message: message.into(), found: None }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.found {
            Some(found) => write!(f, ", got {found}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TypeError {}

/// Several of them as one text.
pub(crate) fn listed(errors: &[TypeError]) -> String {
    match errors {
        [one] => one.to_string(),
        many => {
            let each: String = many.iter().map(|error| format!("\n  {error}")).collect();
            format!("errors:{each}")
        }
    }
}

/// Why an object cannot be brought to another version of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// There is no such version (any more): entries of it are forgotten.
    #[error("no such version")]
    NoSuchVersion,
    /// The conversion failed.
    #[error("{0}")]
    Failed(String),
}

/// Why `metadata.managedFields` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    /// Neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// Not FieldsV1.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// Not an object.
    #[error("managed fields entry {0} must be an object")]
    NotAnObject(usize),
    /// The fields themselves.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

/// Why the managers of an object's fields could not be brought up to date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// An object does not fit its type.
    #[error("failed to compare objects: {0}")]
    Type(#[from] TypeError),
    /// The recorded managers cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Managed(#[from] ManagedError),
    /// An object could not be brought to another version.
    #[error("{0}")]
    Convert(String),
}

/// Why an apply is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others manage some of the fields.
    #[error("{}", super::conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// The request is wrong: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The object does not fit its schema; Kubernetes answers 500 without a reason.
    #[error("{what}: {}", listed(.errors))]
    Misfit {
        /// Which object.
        what: String,
        /// Where and why.
        errors: Vec<TypeError>,
    },
    /// It cannot be merged or compared: 500 as well.
    #[error("{0}")]
    Invalid(String),
}

impl ApplyError {
    /// The same without the values that do not fit, for kinds whose values are secret.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        if let ApplyError::Misfit { errors, .. } = &mut self {
            errors.iter_mut().for_each(|error| error.found = None);
        }
        self
    }
}

impl From<UpdateError> for ApplyError {
    fn from(error: UpdateError) -> Self {
        ApplyError::Invalid(error.to_string())
    }
}

impl From<ApplyError> for Status {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::Conflicts(conflicts) => {
                let status = Status::new(409, "Conflict", message);
                conflicts.iter().fold(status, |status, conflict| {
                    let with = format!("conflict with {}", conflict.manager);
                    status.cause("FieldManagerConflict", &conflict.path.to_string(), with)
                })
            }
            ApplyError::BadRequest(_) => Status::bad_request(message),
            ApplyError::Misfit { .. } | ApplyError::Invalid(_) => Status::new(500, "", message),
        }
    }
}
