//! Requests as data, and what came back.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// A request to an API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body, as it is sent.
    pub body: String,
}

impl Request {
    /// A request without a body.
    pub fn new(method: &str, path: impl Into<String>) -> Request {
        Request { method: method.into(), path: path.into(), ..Request::default() }
    }

    /// The same with a JSON body.
    pub fn json(method: &str, path: impl Into<String>, body: &Value) -> Request {
        Request::new(method, path).body(body.to_string())
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<String>) -> Request {
        self.body = body.into();
        self
    }

    /// With this header.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Whether a header is set.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name))
    }
}

/// An API server's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub bytes: Bytes,
    /// The body as JSON (also if it is YAML): null if it is none, a list if it is several documents, as in watches.
    pub body: Value,
}

impl Answer {
    /// Reads the body.
    pub fn new(code: u16, headers: HeaderMap, bytes: Bytes) -> Answer {
        let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&bytes).into_iter().collect();
        let body = match documents {
            Ok(mut one) if one.len() == 1 => one.remove(0),
            Ok(none) if none.is_empty() => Value::Null,
            Ok(several) => Value::Array(several),
            Err(_) if yaml(&headers) => {
                std::str::from_utf8(&bytes).ok().and_then(|text| serde_saphyr::from_str(text).ok()).unwrap_or_default()
            }
            Err(_) => Value::Null,
        };
        Answer { code, headers, bytes, body }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<String> {
        self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    /// The body of an answer that must be a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {}", self.code, self.text());
        self.body
    }
}

fn yaml(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/yaml"))
}
