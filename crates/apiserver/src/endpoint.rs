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
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::pki::Pair;
use crate::server::StartError;

/// The most a request may have: two objects of the size that Kubernetes stores, and what is around them.
const MAX_BODY: usize = 4 << 20;
/// How many bodies are received at the same time, and how many are worked on: as JSON they take many times their size.
const BODIES: usize = 16;
const WORKED_ON: usize = 2;
/// How many clients there may be, and how many that have not yet shown what they are.
const CONNECTIONS: usize = 256;
const STRANGERS: usize = 1024;
/// How long a client may take for its greeting, and for a body.
const GREETING: Duration = Duration::from_secs(2);
const BODY: Duration = Duration::from_secs(3);
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(30);

/// The certificate, which can be replaced while it is in use.
#[derive(Debug)]
pub struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    fn key(pair: &Pair) -> Result<Arc<CertifiedKey>, StartError> {
        let bad = |error: &dyn std::fmt::Display| StartError::Tls(error.to_string());
        let (chain, key) = pair.der().map_err(|e| bad(&e))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|e| bad(&e))?;
        Ok(Arc::new(CertifiedKey::new(chain, key)))
    }

    /// Whoever comes from now on is shown this one.
    pub fn replace(&self, pair: &Pair) -> Result<(), StartError> {
        *self.0.write() = Certificate::key(pair)?;
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

/// See the module.
pub struct Endpoint {
    tls: TlsAcceptor,
    certificate: Arc<Certificate>,
    path: &'static str,
}

impl Endpoint {
    /// Under this certificate, at this path.
    pub fn new(pair: &Pair, path: &'static str) -> Result<Endpoint, StartError> {
        let certificate = Arc::new(Certificate(RwLock::new(Certificate::key(pair)?)));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| StartError::Tls(e.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(certificate.clone());
        Ok(Endpoint { tls: TlsAcceptor::from(Arc::new(config)), certificate, path })
    }

    /// Its certificate.
    pub fn certificate(&self) -> Arc<Certificate> {
        self.certificate.clone()
    }

    /// Answers for as long as it runs.
    pub async fn serve<H, F>(self, listener: TcpListener, handler: H)
    where
        H: Fn(Value) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Value> + Send,
    {
        let room = |places| Arc::new(Semaphore::new(places));
        let (strangers, clients) = (room(STRANGERS), room(CONNECTIONS));
        let work = Arc::new(Work { bodies: Semaphore::new(BODIES), worked_on: Semaphore::new(WORKED_ON) });
        loop {
            let Ok(place) = strangers.clone().acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, handler, path) = (self.tls.clone(), handler.clone(), self.path);
            let (clients, work) = (clients.clone(), work.clone());
            tokio::spawn(async move {
                let Ok(Ok(stream)) = tokio::time::timeout(GREETING, tls.accept(stream)).await else { return };
                let Ok(_client) = clients.try_acquire() else { return };
                drop(place);
                let service = service_fn(|request| answer(&handler, path, &work, request));
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(IDLE);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

/// What is being done for all clients together.
struct Work {
    bodies: Semaphore,
    worked_on: Semaphore,
}

async fn answer<H, F>(
    handler: &H,
    path: &str,
    work: &Work,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible>
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
    let received = {
        let _body = work.bodies.acquire().await;
        tokio::time::timeout(BODY, Limited::new(request.into_body(), MAX_BODY).collect()).await
    };
    let Ok(Ok(body)) = received else {
        return wrong(StatusCode::BAD_REQUEST, "the request could not be read: it is too long or too slow");
    };
    let _worked_on = work.worked_on.acquire().await;
    match serde_json::from_slice::<Value>(&body.to_bytes()) {
        Ok(request) => respond(StatusCode::OK, &handler(request).await),
        Err(error) => wrong(StatusCode::BAD_REQUEST, &format!("the request is no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

    async fn ask(address: std::net::SocketAddr, ca: &str, body: &str) -> std::io::Result<String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(address).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await?;
        let head =
            format!("POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        let _ = stream.write_all(body.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        Ok(answer)
    }

    #[tokio::test]
    async fn answers_and_takes_another_certificate() {
        let (first, second) = (Pki::ephemeral().unwrap(), Pki::ephemeral().unwrap());
        let pair = |pki: &Pki| pki.server(&[[127, 0, 0, 1].into()], &[]).unwrap();
        let endpoint = Endpoint::new(&pair(&first), "/x").unwrap();
        let certificate = endpoint.certificate();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(endpoint.serve(listener, |asked: Value| async move { json!({"asked": asked}) }));
        // those that say nothing keep nobody waiting
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        let answer = ask(address, first.ca(), "[1]").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"asked":[1]}"#), "{answer}");
        assert!(ask(address, first.ca(), "[1").await.unwrap().starts_with("HTTP/1.1 400"));
        assert!(ask(address, first.ca(), &" ".repeat(MAX_BODY + 1)).await.unwrap().starts_with("HTTP/1.1 400"));
        assert!(ask(address, second.ca(), "[1]").await.is_err());
        certificate.replace(&pair(&second)).unwrap();
        assert!(ask(address, second.ca(), "[1]").await.unwrap().starts_with("HTTP/1.1 200"));
    }
}
