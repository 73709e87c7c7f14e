//! What the server answers instead of an object: Kubernetes' `Status`, with its reasons, codes and causes.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::field;

/// One of several causes of a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// A machine-readable reason.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The field, if it is about one.
    pub field: String,
}

/// A failure (or, for some deletions, a success) as the API reports it.
///
/// ```
/// use conductor_machinery::status::Status;
/// let status = Status::not_found("", "pods", "web-0");
/// assert_eq!(status.code, 404);
/// assert_eq!(status.message, "pods \"web-0\" not found");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason: `NotFound`, `Conflict`, …; empty for success.
    pub reason: Cow<'static, str>,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// What it is about: name, group, kind (a resource's or kind's name), uid.
    pub name: String,
    /// The API group in question.
    pub group: String,
    /// The kind, or the resource where the kind is not known.
    pub kind: String,
    /// The uid of the object in question.
    pub uid: String,
    /// Details, mostly of invalid fields.
    pub causes: Vec<Cause>,
    /// When trying again makes sense.
    pub retry_after: Option<u32>,
    /// Where a list that cannot go on as it began can go on all the same.
    pub continue_token: String,
    /// Kubernetes' front answers with details that say nothing, and clients may compare.
    pub bare_details: bool,
}

/// `pods`, or `deployments.apps` with a group.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl Status {
    /// A failure with a code, a reason and a message.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Status {
            code,
            reason: reason.into(),
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after: None,
            continue_token: String::new(),
            bare_details: false,
        }
    }

    /// Says what the failure is about.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.group = group.to_owned();
        self.kind = kind.to_owned();
        self.name = name.to_owned();
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn cause(mut self, reason: &str, field: &str, message: impl Into<String>) -> Self {
        self.causes.push(Cause { reason: reason.to_owned(), message: message.into(), field: field.to_owned() });
        self
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: who are you?
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "Unauthorized", message)
    }

    /// 403: `what` says why.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let what = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} {name:?} is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 404: there is no such object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        Self::new(404, "NotFound", message).about(group, resource, name)
    }

    /// A failure that is about the request as such, not about an object.
    pub fn bare(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let mut status = Self::new(code, reason, message);
        status.bare_details = true;
        status
    }

    /// 404: there is no such resource or path.
    pub fn no_such_path() -> Self {
        Self::bare(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405: the path has no such method.
    pub fn method_not_allowed() -> Self {
        Self::bare(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 406: none of the offered media types.
    pub fn not_acceptable(supported: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", supported.join(", "));
        Self::bare(406, "NotAcceptable", message)
    }

    /// 409: the name is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409: the write lost against another, or a precondition failed.
    pub fn conflict(group: &str, resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, resource));
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// 410: the revision asked for is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415: the body's media type is not understood.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422: the object's fields are wrong, all of them listed.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[field::Error]) -> Self {
        let what = qualified(group, kind);
        // Equal messages are said once, as Kubernetes' aggregate does.
        let mut seen = HashSet::new();
        let lines = errors.iter().map(ToString::to_string).filter(|line| seen.insert(line.clone()));
        let lines: Vec<String> = lines.collect();
        let text = match lines.as_slice() {
            [] => String::new(),
            [one] => format!(": {one}"),
            many => format!(": [{}]", many.join(", ")),
        };
        let message = format!("{what} {name:?} is invalid{text}");
        let mut status = Self::new(422, "Invalid", message).about(group, kind, name);
        for error in errors {
            status = status.cause(error.kind.reason(), &error.path.to_string(), error.message());
        }
        status
    }

    /// 429: try again later.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut status = Self::new(429, "TooManyRequests", message);
        status.retry_after = Some(retry_after);
        status
    }

    /// 500: our fault.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut status = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        status.causes.push(Cause { reason: String::new(), message: message.to_string(), field: String::new() });
        status
    }

    /// 503: not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504: it took too long.
    pub fn timeout(message: impl Into<String>, retry_after: u32) -> Self {
        let mut status = Self::new(504, "Timeout", message);
        status.retry_after = Some(retry_after);
        status
    }

    /// The answer to a deletion that left nothing to show.
    pub fn deleted(group: &str, resource: &str, name: &str, uid: &str) -> Self {
        let mut status = Self::new(200, "", "").about(group, resource, name);
        status.uid = uid.to_owned();
        status
    }

    /// The JSON form.
    pub fn to_json(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                details.insert(key.into(), Value::from(text.as_str()));
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut entry = Map::new();
                for (key, text) in [("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)] {
                    if !text.is_empty() {
                        entry.insert(key.into(), Value::from(text.as_str()));
                    }
                }
                Value::Object(entry)
            });
            details.insert("causes".into(), causes.collect());
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        let success = (200..300).contains(&self.code);
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": if success { "Success" } else { "Failure" },
        });
        if !self.continue_token.is_empty() {
            status["metadata"]["continue"] = Value::from(self.continue_token.as_str());
        }
        if !self.message.is_empty() {
            status["message"] = Value::from(self.message.as_str());
        }
        if !self.reason.is_empty() {
            status["reason"] = Value::from(&*self.reason);
        }
        if !details.is_empty() || self.bare_details {
            status["details"] = Value::Object(details);
        }
        // Of successes only those that made something say so.
        if self.code != 200 {
            status["code"] = self.code.into();
        }
        status
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
