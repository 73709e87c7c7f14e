//! A webhook to test with: a real HTTPS server on loopback that answers what a function says.
#![allow(dead_code, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;

/// What a webhook answers.
pub enum Answer {
    /// 200 with an object.
    Json(Value),
    /// A status, a content type and some bytes.
    Raw(u16, &'static str, Vec<u8>),
    /// Nothing: the connection is closed.
    HangUp,
    /// Nothing, for a long time.
    Silence,
}

/// A running webhook. Ends when dropped.
pub struct Webhook {
    pub address: SocketAddr,
    /// Who signed its certificate, in PEM.
    pub ca: String,
    /// How many connections it was opened.
    pub connections: Arc<AtomicUsize>,
    /// How many requests it was sent.
    pub requests: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a webhook's certificate is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    ByAuthority,
    /// By itself, and it says that it is an authority: what `openssl req -x509` makes.
    ByItself,
}

impl Webhook {
    /// Starts one whose certificate is for `names` and that answers with what `answer` says to (path, body).
    pub async fn start(
        names: &[&str],
        signed: Signed,
        answer: impl Fn(&str, Value) -> Answer + Send + Sync + 'static,
    ) -> Webhook {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(names).expect("names");
        let (certificate, ca) = match signed {
            Signed::ByItself => {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                let own = params.self_signed(&key).expect("a certificate");
                (own.der().clone(), own.pem())
            }
            Signed::ByAuthority => {
                let ca_key = KeyPair::generate().expect("a key");
                let mut ca = CertificateParams::default();
                ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                let ca_certificate = ca.self_signed(&ca_key).expect("a certificate");
                let issuer = Issuer::new(ca, ca_key);
                (params.signed_by(&key, &issuer).expect("a certificate").der().clone(), ca_certificate.pem())
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate and its key");
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let answer = Arc::new(answer);
        let (opened, asked) = (connections.clone(), requests.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, asked, opened) =
                    (acceptor.clone(), answer.clone(), asked.clone(), opened.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    opened.fetch_add(1, Ordering::SeqCst);
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (answer, asked) = (answer.clone(), asked.clone());
                        async move {
                            asked.fetch_add(1, Ordering::SeqCst);
                            let path = request.uri().to_string();
                            let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
                            let body = serde_json::from_slice(&body).unwrap_or_default();
                            let (code, kind, bytes) = match answer(&path, body) {
                                Answer::Json(value) => (200, "application/json", value.to_string().into_bytes()),
                                Answer::Raw(code, kind, bytes) => (code, kind, bytes),
                                Answer::HangUp => return Err(std::io::Error::other("hung up")),
                                Answer::Silence => std::future::pending().await,
                            };
                            let mut response = Response::new(Full::new(Bytes::from(bytes)));
                            *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                            response.headers_mut().insert("content-type", kind.parse().expect("a type"));
                            Ok::<_, std::io::Error>(response)
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Webhook { address, ca, connections, requests, task }
    }

    /// Its `clientConfig`, by address.
    pub fn client_config(&self, path: &str) -> Value {
        serde_json::json!({"url": format!("https://localhost:{}{path}", self.address.port()), "caBundle": self.ca_bundle()})
    }

    /// The caBundle of a `clientConfig`.
    pub fn ca_bundle(&self) -> String {
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &self.ca)
    }
}
