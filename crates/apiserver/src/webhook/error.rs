//! Why a webhook gave no answer, in the words that Kubernetes has for it.

use std::error::Error;
use std::io;

use http::HeaderMap;
use serde_json::Value;

/// Why a webhook gave no answer. Its text is what Kubernetes puts after `failed to call webhook: ` and the like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The configuration does not say where the webhook is.
    #[error("{0}")]
    Config(String),
    /// The webhook could not be reached, or not in time.
    #[error("Post {url:?}: {why}")]
    Unreachable {
        /// What was posted to.
        url: String,
        /// What happened.
        why: String,
    },
    /// The webhook answered with an error.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// What it means.
        message: String,
    },
    /// The answer is not JSON.
    #[error("the webhook's answer cannot be read: {0}")]
    Malformed(String),
    /// The answer does not end.
    #[error("the webhook's answer is larger than {limit} bytes")]
    TooLarge {
        /// What was read before giving up.
        limit: usize,
    },
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl WebhookError {
    /// The webhook could not be reached.
    pub(super) fn post(url: &str, why: impl std::fmt::Display) -> WebhookError {
        WebhookError::Unreachable { url: url.to_owned(), why: why.to_string() }
    }
}

/// What lies under an error of the HTTP client.
pub(super) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(error) = at.downcast_ref::<super::connect::ConnectError>() {
            return error.to_string();
        }
        if let Some(error) = at.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionAborted => "EOF".to_owned(),
                io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
                _ => error.to_string(),
            };
        }
        if at.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return "EOF".to_owned();
        }
        match at.source() {
            Some(source) => at = source,
            None => return at.to_string(),
        }
    }
}

/// An answer that is no success.
pub(super) fn refused(code: u16, headers: &HeaderMap, body: &[u8]) -> WebhookError {
    let json: Option<Value> = machinery::json::parse(body).ok().map(|parsed| parsed.value);
    // A webhook that speaks Kubernetes says it itself.
    if let Some(status) = json.filter(|json| json["kind"] == "Status" && json["apiVersion"] == "v1") {
        if let Some(message) = status["message"].as_str().filter(|message| !message.is_empty()) {
            return WebhookError::Refused { code, message: message.to_owned() };
        }
    }
    let textual = headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_none_or(|kind| kind.starts_with("text/"));
    let said = if textual {
        String::from_utf8_lossy(&body[..body.len().min(2048)]).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    let message = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => said,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code >= 500 => {
            format!("an error on the server ({said:?}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    WebhookError::Refused { code, message }
}
