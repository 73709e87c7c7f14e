//! Asks another server in the name of whoever asks this one.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;

use super::Remote;
use crate::body::Body;
use crate::dispatch::answer;
use crate::server::Inner;
use crate::user::User;

/// What a server may say of itself at most.
const LIMIT: usize = 16 * 1024 * 1024;

/// Headers that are about one connection, or say who somebody is: the former end here, the latter this server alone says.
fn stays(name: &HeaderName) -> bool {
    const CONNECTION: [&str; 9] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
    ];
    let name = name.as_str();
    CONNECTION.contains(&name)
        || matches!(name, "host" | "content-length" | "authorization")
        || name.starts_with("x-remote-")
        || name.starts_with("impersonate-")
}

/// Says who asks.
fn introduce(headers: &mut HeaderMap, user: &User) {
    let mut say = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.append(name, value);
        }
    };
    say("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        say("x-remote-uid", &user.uid);
    }
    user.groups.iter().for_each(|group| say("x-remote-group", group));
    for (key, values) in &user.extra {
        // What no header's name may have is written as in an address.
        let key: String = key
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        values.iter().for_each(|value| say(&format!("x-remote-extra-{key}"), value));
    }
}

fn request(
    remote: &Remote,
    method: &Method,
    path: &str,
    user: &User,
    asked: &HeaderMap,
    body: Bytes,
) -> Request<Full<Bytes>> {
    let (namespace, name, port) = remote.service();
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method.clone();
    if let Ok(uri) = format!("https://{name}.{namespace}.svc:{port}{path}").parse() {
        *request.uri_mut() = uri;
    }
    for (name, value) in asked.iter().filter(|(name, _)| !stays(name)) {
        request.headers_mut().append(name, value.clone());
    }
    introduce(request.headers_mut(), user);
    request
}

/// Sends a request on, and gives what comes back as it comes. `time` is what it may take to begin.
pub async fn forward(
    server: &Inner,
    remote: &Remote,
    user: &User,
    parts: &http::request::Parts,
    body: Bytes,
    time: Duration,
) -> Response<Body> {
    const TEXT: &str = "text/plain; charset=utf-8";
    if !remote.is_available() {
        return answer(503, Body::whole("service unavailable\n"), TEXT);
    }
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = request(remote, &parts.method, path, user, &parts.headers, body);
    let sent = tokio::time::timeout(time, server.webhooks.send(&remote.config, request)).await;
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(why)) => {
            return answer(503, Body::whole(format!("error trying to reach service: {why}\n")), TEXT);
        }
        Err(_) => return answer(504, Body::whole("error trying to reach service: it took too long\n"), TEXT),
    };
    let (head, body) = response.into_parts();
    // What breaks off there ends here; who was promised more notices.
    let pieces = body.into_data_stream().take_while(|piece| futures::future::ready(piece.is_ok()));
    let pieces = pieces.filter_map(|piece| futures::future::ready(piece.ok()));
    let mut answer = Response::new(Body::stream(Box::pin(pieces)));
    *answer.status_mut() = head.status;
    for (name, value) in head.headers.iter().filter(|(name, _)| !stays(name) || **name == header::CONTENT_LENGTH) {
        answer.headers_mut().append(name, value.clone());
    }
    answer
}

/// Asks a server something about itself.
pub async fn ask(server: &Inner, remote: &Remote, path: &str) -> Result<Value, String> {
    let user = User::new("system:kube-aggregator", [crate::user::MASTERS]);
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let request = request(remote, &Method::GET, path, &user, &headers, Bytes::new());
    let url = request.uri().to_string();
    let exchange = async {
        let response =
            server.webhooks.send(&remote.config, request).await.map_err(|why| format!("Get {url:?}: {why}"))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("bad status from {url}: {}", status.as_u16()));
        }
        let body = Limited::new(response.into_body(), LIMIT).collect().await.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
    };
    let answered = tokio::time::timeout(Duration::from_secs(5), exchange).await;
    answered
        .unwrap_or_else(|_| Err(format!("Get {url:?}: context deadline exceeded")))
        .map_err(|why| format!("failing or missing response from {url}: {why}"))
}
