//! What can go wrong with a request.

use serde_json::Value;

/// A request that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The HTTP status; 0 if there was no answer, so that nobody knows whether it was done.
    pub code: u16,
    /// The API's word for it: `Conflict`, `AlreadyExists`, `NotFound`.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

impl Failure {
    pub(crate) fn unsent(error: &str) -> Failure {
        Failure { code: 0, reason: "Unreachable".into(), message: format!("the API server does not answer: {error}") }
    }

    pub(crate) fn unreadable(error: &str) -> Failure {
        Failure { code: 0, reason: "Unreadable".into(), message: format!("the answer cannot be read: {error}") }
    }

    pub(crate) fn missing(message: String) -> Failure {
        Failure { code: 404, reason: "NotFound".into(), message }
    }

    pub(crate) fn answered(code: u16, body: &[u8]) -> Failure {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let message = match text("message") {
            empty if empty.is_empty() => format!("the API server answered {code}"),
            message => message,
        };
        Failure { code, reason: text("reason"), message }
    }

    /// Whether someone else was faster: a fresh look settles it.
    pub fn is_race(&self) -> bool {
        matches!(self.code, 404 | 409)
    }

    /// Whether it was refused for good: the same again will be refused again.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code, 400 | 403 | 405 | 413 | 415 | 422)
    }
}
