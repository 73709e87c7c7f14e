//! A small client for tests: JSON in, JSON out.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use conductor_apiserver::{Options, Server, User};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// A server and a user of it.
#[derive(Clone)]
pub struct Client(pub Server);

impl Client {
    pub async fn in_memory() -> Client {
        Client(Server::start(Options::default()).await.unwrap())
    }

    pub async fn open(dir: &Path) -> Client {
        Client(Server::start(Options { data_dir: Some(dir.into()), ..Options::default() }).await.unwrap())
    }

    /// Ends the server as a crash would, as far as its controllers can tell.
    pub fn close(self) {
        self.0.stop();
        self.0.store().close();
    }

    pub async fn send(&self, method: Method, path: &str, kind: &'static str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        request.extensions_mut().insert(User::new("me", ["system:masters"]));
        let response = self.0.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn create(&self, path: &str, object: Value) -> Value {
        let (code, answer) = self.send(Method::POST, path, "application/json", object).await;
        assert_eq!(code, 201, "POST {path}: {answer}");
        answer
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        let (code, answer) = self.send(Method::GET, path, "application/json", Value::Null).await;
        assert!(matches!(code, 200 | 404), "GET {path}: {answer}");
        (code == 200).then_some(answer)
    }

    pub async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await.unwrap()["items"].as_array().cloned().unwrap_or_default()
    }

    pub async fn merge(&self, path: &str, patch: Value) -> Value {
        let (code, answer) = self.send(Method::PATCH, path, "application/merge-patch+json", patch).await;
        assert_eq!(code, 200, "PATCH {path}: {answer}");
        answer
    }

    pub async fn delete(&self, path: &str, policy: &str) {
        let options = if policy.is_empty() { Value::Null } else { json!({"propagationPolicy": policy}) };
        let (code, answer) = self.send(Method::DELETE, path, "application/json", options).await;
        assert!(matches!(code, 200 | 202), "DELETE {path}: {answer}");
    }

    /// Waits until something holds of an object (or of its absence).
    pub async fn until(&self, path: &str, what: &str, holds: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        for _ in 0..3000 {
            let object = self.get(path).await;
            if holds(object.as_ref()) {
                return object;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path}: never {what}; it is {:?}", self.get(path).await);
    }

    pub async fn gone(&self, path: &str) {
        self.until(path, "gone", |object| object.is_none()).await;
    }
}

/// A ConfigMap with owners.
pub fn map(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// A reference to an owner.
pub fn reference(owner: &Value) -> Value {
    let meta = &owner["metadata"];
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]})
}

/// A reference to an owner whose foreground deletion waits for the dependent.
pub fn blocking(owner: &Value) -> Value {
    let mut reference = reference(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn at(name: &str) -> String {
    format!("{MAPS}/{name}")
}
