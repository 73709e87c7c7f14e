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
fn stays(name: &HeaderName, all: &HeaderMap) -> bool {
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
    // Some servers take one for the other.
    let name = name.as_str().replace('_', "-");
    let listed = all.get_all(header::CONNECTION).iter().map(|list| String::from_utf8_lossy(list.as_bytes()));
    CONNECTION.contains(&&*name)
        || matches!(&*name, "host" | "content-length" | "authorization")
        || ["x-remote-", "impersonate-", "sec-websocket-"].iter().any(|prefix| name.starts_with(prefix))
        || listed.into_iter().any(|list| list.split(',').any(|own| own.trim().eq_ignore_ascii_case(&name)))
}

/// Says who asks; all of it, or nobody is asked.
fn introduce(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    let mut say = |name: &str, value: &str| -> Result<(), String> {
        let unsaid = |_| format!("no header can say {value:?}, which is in {name} of whoever asks");
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(unsaid)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        headers.append(name, value);
        Ok(())
    };
    say("x-remote-user", &user.name)?;
    if !user.uid.is_empty() {
        say("x-remote-uid", &user.uid)?;
    }
    user.groups.iter().try_for_each(|group| say("x-remote-group", group))?;
    for (key, values) in &user.extra {
        // What no header's name may have is written as in an address.
        let key: String = key
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        values.iter().try_for_each(|value| say(&format!("x-remote-extra-{key}"), value))?;
    }
    Ok(())
}

fn request(
    remote: &Remote,
    method: &Method,
    path: &str,
    user: &User,
    asked: &HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let (namespace, name, port) = remote.service();
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method.clone();
    let uri = format!("https://{name}.{namespace}.svc:{port}{path}");
    *request.uri_mut() = uri.parse().map_err(|error| format!("{uri:?} is no address: {error}"))?;
    for (name, value) in asked.iter().filter(|(name, _)| !stays(name, asked)) {
        request.headers_mut().append(name, value.clone());
    }
    introduce(request.headers_mut(), user)?;
    Ok(request)
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
    let unreachable =
        |code: u16, why: &str| answer(code, Body::whole(format!("error trying to reach service: {why}\n")), TEXT);
    let request = match request(remote, &parts.method, path, user, &parts.headers, body) {
        Ok(request) => request,
        Err(why) => return unreachable(500, &why),
    };
    let sent = tokio::time::timeout(time, server.webhooks.send(&remote.config, request)).await;
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(why)) => return unreachable(503, &why),
        Err(_) => return unreachable(504, "it took too long"),
    };
    let (head, body) = response.into_parts();
    if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
        // A client would follow, and show there who it is.
        return answer(
            502,
            Body::whole("the backend attempted to redirect this request, which is not permitted"),
            TEXT,
        );
    }
    if head.status.is_informational() {
        return unreachable(502, "it answers in another protocol");
    }
    // What breaks off there ends here; who was promised more notices.
    let pieces = body.into_data_stream().take_while(|piece| futures::future::ready(piece.is_ok()));
    let pieces = pieces.filter_map(|piece| futures::future::ready(piece.ok()));
    let mut answer = Response::new(Body::stream(Box::pin(pieces)));
    *answer.status_mut() = head.status;
    for (name, value) in
        head.headers.iter().filter(|(name, _)| !stays(name, &head.headers) || **name == header::CONTENT_LENGTH)
    {
        answer.headers_mut().append(name, value.clone());
    }
    answer
}

/// Asks a server something about itself.
pub async fn ask(server: &Inner, remote: &Remote, path: &str) -> Result<Value, String> {
    let body = ask_for(server, remote, path, "application/json").await?;
    serde_json::from_slice(&body).map_err(|error| format!("failing or missing response from {path}: {error}"))
}

/// The same, in a form, whatever it says.
pub async fn ask_for(server: &Inner, remote: &Remote, path: &str, form: &'static str) -> Result<Bytes, String> {
    let user = User::new("system:kube-aggregator", [crate::user::MASTERS]);
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static(form));
    let request = request(remote, &Method::GET, path, &user, &headers, Bytes::new())?;
    let url = request.uri().to_string();
    let exchange = async {
        let response =
            server.webhooks.send(&remote.config, request).await.map_err(|why| format!("Get {url:?}: {why}"))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("bad status from {url}: {}", status.as_u16()));
        }
        let body = Limited::new(response.into_body(), LIMIT).collect().await.map_err(|error| error.to_string())?;
        Ok(body.to_bytes())
    };
    let answered = tokio::time::timeout(Duration::from_secs(5), exchange).await;
    answered
        .unwrap_or_else(|_| Err(format!("Get {url:?}: context deadline exceeded")))
        .map_err(|why| format!("failing or missing response from {url}: {why}"))
}
