//! A server in memory and requests to it, for tests.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conductor_apiserver::{Options, Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// A server and somebody who talks to it.
#[derive(Clone)]
pub struct Api {
    pub server: Server,
    pub user: Arc<User>,
}

impl Api {
    /// In memory, as an administrator.
    pub async fn new() -> Api {
        let server = Server::start(Options::default()).await.expect("an empty server starts");
        Api { server, user: User::new("admin", ["system:masters"]) }
    }

    /// Any request: code and body.
    pub async fn send(&self, method: Method, path: &str, kind: &str, body: impl Into<Bytes>) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("user-agent", "test")
            .extension(self.user.clone())
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.server.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let value =
            serde_json::from_slice(&body).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).as_ref()));
        (code, value)
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "application/json", "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.send(Method::DELETE, path, "application/json", "").await
    }

    /// Must succeed.
    pub async fn create(&self, path: &str, body: &Value) -> Value {
        let (code, value) = self.post(path, body).await;
        assert_eq!(code, 201, "creating in {path}: {value}");
        value
    }

    /// Waits (without end in sight only if the server is broken) until a path answers as wanted.
    pub async fn eventually(&self, path: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
        let mut last = (0, Value::Null);
        for _ in 0..1000 {
            last = self.get(path).await;
            if wanted(last.0, &last.1) {
                return last.1;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} never became as wanted; last {last:?}");
    }

    /// Installs a definition and waits until it is served.
    pub async fn define(&self, crd: &Value) {
        self.create(CRDS, crd).await;
        let name = crd["metadata"]["name"].as_str().unwrap();
        self.eventually(&format!("{CRDS}/{name}"), |_, crd| established(crd)).await;
    }
}

pub const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub fn established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|own| own["type"] == "Established" && own["status"] == "True")
}

/// A definition `{plural}.example.com` with the given versions.
pub fn crd(plural: &str, kind: &str, versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": versions,
        },
    })
}

/// A served and stored version with a schema of `spec` and `status`.
pub fn version(name: &str, spec: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": true,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}},
    })
}
