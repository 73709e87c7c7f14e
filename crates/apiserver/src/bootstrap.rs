//! What must exist before the first request: namespaces, for a start.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use machinery::status::Status;
use serde_json::{Value, json};

use crate::server::Server;
use crate::user::User;

/// Makes what is missing.
pub async fn run(server: &Server) -> Result<(), Status> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        if server.store().get(crate::catalog::NAMESPACES, name).is_none() {
            create(server, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        }
    }
    Ok(())
}

/// Creates an object the ordinary way, as the server itself. One that exists is left alone.
pub async fn create(server: &Server, path: &str, object: &Value) -> Result<(), Status> {
    let mut request = Request::new(Full::new(Bytes::from(object.to_string())));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = path.parse().map_err(Status::internal)?;
    let user_agent = http::HeaderValue::from_static("kube-apiserver");
    request.headers_mut().insert(http::header::USER_AGENT, user_agent);
    request.extensions_mut().insert(User::loopback());
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    if code == 409 || code < 300 {
        return Ok(());
    }
    let body = response.into_body().into_bytes();
    Err(Status::internal(format!("creating {path} gave {code}: {}", String::from_utf8_lossy(&body))))
}
