//! One HTTPS endpoint that takes JSON and answers JSON, for webhooks beside an API server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

use crate::pki::Pair;
use crate::server::StartError;

/// The most a request may have.
const MAX_BODY: usize = 8 << 20;
/// How many are answered at the same time.
const MAX_CONNECTIONS: usize = 256;
/// How long a client may take to say what it wants, and to be idle.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub struct Endpoint {
    tls: TlsAcceptor,
    path: &'static str,
}

impl Endpoint {
    /// Under this certificate, at this path.
    pub fn new(pair: &Pair, path: &'static str) -> Result<Endpoint, StartError> {
        let bad = |error: &dyn std::fmt::Display| StartError::Tls(error.to_string());
        let (chain, key) = pair.der().map_err(|e| bad(&e))?;
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| bad(&e))?;
        Ok(Endpoint { tls: TlsAcceptor::from(Arc::new(config)), path })
    }

    /// Answers for as long as it runs.
    pub async fn serve<H, F>(self, listener: TcpListener, handler: H)
    where
        H: Fn(Value) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Value> + Send,
    {
        let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, handler, path) = (self.tls.clone(), handler.clone(), self.path);
            tokio::spawn(async move {
                let _place = place;
                let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else { return };
                let service = service_fn(|request| answer(&handler, path, request));
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

async fn answer<H, F>(handler: &H, path: &str, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible>
where
    H: Fn(Value) -> F,
    F: Future<Output = Value>,
{
    let respond = |status: StatusCode, body: &Value| {
        let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    };
    let wrong = |status, message: &str| respond(status, &json!({"message": message}));
    if request.uri().path() != path || request.method() != Method::POST {
        return wrong(StatusCode::NOT_FOUND, &format!("POST JSON to {path}"));
    }
    let body = tokio::time::timeout(PATIENCE, Limited::new(request.into_body(), MAX_BODY).collect()).await;
    let Ok(Ok(body)) = body else {
        return wrong(StatusCode::BAD_REQUEST, "the request could not be read: it is too long or too slow");
    };
    match serde_json::from_slice::<Value>(&body.to_bytes()) {
        Ok(request) => respond(StatusCode::OK, &handler(request).await),
        Err(error) => wrong(StatusCode::BAD_REQUEST, &format!("the request is no JSON: {error}")),
    }
}
