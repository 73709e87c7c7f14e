//! A server and requests to it as anybody, in process.

#![allow(dead_code)]

use std::sync::Arc;

use conductor_apiserver::{Options, Server, User};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// A user with groups.
pub fn user(name: &str, groups: &[&str]) -> Arc<User> {
    User::new(name, groups.iter().copied())
}

/// A server in memory.
#[derive(Clone)]
pub struct World(pub Server);

impl World {
    /// A new one.
    pub async fn new() -> World {
        World(Server::start(Options::default()).await.unwrap())
    }

    /// One that keeps its state.
    pub async fn open(dir: &std::path::Path) -> World {
        let options = Options { data_dir: Some(dir.to_owned()), ..Options::default() };
        World(Server::start(options).await.unwrap())
    }

    /// Ends it and lets go of its state.
    pub fn close(&self) {
        self.0.stop();
        self.0.store().close();
    }

    /// Sends a request; patches are merge patches.
    pub async fn send(&self, user: &Arc<User>, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.send_as(user, method, path, kind, body).await
    }

    /// Sends a request with a content type.
    pub async fn send_as(&self, user: &Arc<User>, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let mut request = request.body(Full::new(bytes::Bytes::from(bytes))).unwrap();
        request.extensions_mut().insert(user.clone());
        let response = self.0.handle(request).await;
        let code = response.status().as_u16();
        // A watch has no end to wait for: what it answers is enough.
        if path.contains("/watch/") {
            return (code, Value::Null);
        }
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Reads a path to the end of its answer, which a watch has after its time.
    pub async fn text(&self, user: &Arc<User>, path: &str) -> (u16, String) {
        let mut request = Request::get(path).body(Full::new(bytes::Bytes::new())).unwrap();
        request.extensions_mut().insert(user.clone());
        let response = self.0.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends a request as an administrator; gives its status and the warnings it comes with.
    pub async fn warned(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<String>) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let mut request = request.body(Full::new(bytes::Bytes::from(body.to_string()))).unwrap();
        request.extensions_mut().insert(user("admin", &["system:masters"]));
        let response = self.0.handle(request).await;
        let warnings = response.headers().get_all("warning").iter().map(|own| own.to_str().unwrap().to_owned());
        (response.status().as_u16(), warnings.collect())
    }

    /// Sends a request with a bearer token; gives its status.
    pub async fn with_token(&self, token: &str, method: &str, path: &str) -> u16 {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::new(bytes::Bytes::new())).unwrap();
        self.0.handle(request).await.status().as_u16()
    }

    /// Sends a request as an administrator.
    pub async fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.send(&user("admin", &["system:masters"]), method, path, body).await
    }

    /// Creates an object as an administrator.
    pub async fn make(&self, path: &str, object: Value) -> Value {
        let (code, answer) = self.admin("POST", path, &object).await;
        assert_eq!(code, 201, "{path} {object}: {answer}");
        answer
    }

    /// Creates a namespace.
    pub async fn namespace(&self, name: &str) {
        self.make("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    }
}
