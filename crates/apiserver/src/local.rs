//! The server as its own client: controllers inside the server do everything through the same path as everybody else.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use machinery::status::Status;
use serde_json::Value;

use crate::server::Server;
use crate::user::User;

/// A client in the server's own process, acting under a name of its own.
#[derive(Clone)]
pub struct Local {
    server: Server,
    agent: HeaderValue,
}

impl Local {
    /// Acts as a part of the server; `agent` owns the fields it sets.
    pub fn new(server: &Server, agent: &'static str) -> Local {
        Local { server: server.clone(), agent: HeaderValue::from_static(agent) }
    }

    /// Sends a request; failures come back as their status.
    pub async fn send(&self, method: Method, path: &str, kind: &'static str, body: Bytes) -> Result<Value, Status> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(Status::internal)?;
        request.headers_mut().insert(header::USER_AGENT, self.agent.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        request.extensions_mut().insert(User::loopback());
        let response = self.server.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().into_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if code < 300 {
            return Ok(value);
        }
        let reason = match code {
            404 => "NotFound",
            409 if value["reason"] == "AlreadyExists" => "AlreadyExists",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            _ => "InternalError",
        };
        Err(Status::new(code, reason, value["message"].as_str().unwrap_or_default()))
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, Status> {
        self.send(Method::POST, path, JSON, object.to_string().into()).await
    }

    /// Creates an object unless there is one already.
    pub async fn ensure(&self, path: &str, object: &Value) -> Result<(), Status> {
        match self.create(path, object).await {
            Ok(_) => Ok(()),
            Err(status) if status.reason == "AlreadyExists" => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// Replaces an object or a part of it.
    pub async fn update(&self, path: &str, object: &Value) -> Result<Value, Status> {
        self.send(Method::PUT, path, JSON, object.to_string().into()).await
    }

    /// Merges into an object or a part of it.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Status> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
    }

    /// Deletes an object or, without a name, a collection.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, Status> {
        self.send(Method::DELETE, path, JSON, options.to_string().into()).await
    }
}

const JSON: &str = "application/json";
