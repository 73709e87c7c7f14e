//! Calls to other people's webhooks: JSON out, JSON back, over verified TLS.
//!
//! ```ignore
//! let config = ClientConfig::read(&webhook["clientConfig"])?;
//! let review: Value = server.webhooks.call(&config, &review, Duration::from_secs(10)).await?;
//! ```
//!
//! A webhook is somebody else's program: it may be slow, gone, or send anything. A call ends after its timeout, reads no more
//! than its limit, and no lock and no place in the store's queue is held meanwhile. Connections are kept for the next call.

mod config;
mod connect;
mod error;
mod verify;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use serde_json::Value;
use store::Store;

pub use config::{ClientConfig, Destination};
pub use error::WebhookError;

use crate::pki::Pair;
use connect::Connector;

/// How many destinations are remembered with their connections.
const DESTINATIONS: usize = 256;
/// How many idle connections each destination keeps, and for how long.
const IDLE: usize = 16;
const IDLE_FOR: Duration = Duration::from_secs(60);
/// What an answer may have at least; larger questions may have larger answers.
const ANSWER: usize = 8 * 1024 * 1024;

type Http = Client<Connector, Full<Bytes>>;

/// Calls webhooks. One per server.
pub struct WebhookClient {
    store: Store,
    /// How this server shows that it is itself.
    front_proxy: Option<Pair>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    clients: HashMap<ClientConfig, (u64, Http)>,
    /// Counts uses, so that the one that was not used for longest can go.
    clock: u64,
}

impl WebhookClient {
    /// A client that finds Services and their endpoints in the store.
    pub fn new(store: Store) -> WebhookClient {
        WebhookClient { store, front_proxy: None, known: Mutex::default() }
    }

    /// One that shows this certificate to who is to believe it.
    pub fn with_front_proxy(store: Store, pair: Pair) -> WebhookClient {
        WebhookClient { front_proxy: Some(pair), ..WebhookClient::new(store) }
    }

    /// Sends a request as it is, and gives the answer as it comes.
    pub async fn send(
        &self,
        config: &ClientConfig,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<hyper::body::Incoming>, String> {
        self.client(config)?.request(request).await.map_err(|error| error::cause(&error))
    }

    /// Sends `body` to a webhook and gives its answer.
    pub async fn call(&self, config: &ClientConfig, body: &Value, timeout: Duration) -> Result<Value, WebhookError> {
        let body = serde_json::to_vec(body).map_err(|error| WebhookError::Other(error.to_string()))?;
        let url = config.url(timeout);
        let limit = ANSWER.max(body.len().saturating_mul(4));
        let exchange = self.exchange(config, &url, body.into(), limit);
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(WebhookError::post(&url, "context deadline exceeded")),
        }
    }

    async fn exchange(
        &self,
        config: &ClientConfig,
        url: &str,
        body: Bytes,
        limit: usize,
    ) -> Result<Value, WebhookError> {
        let client = self.client(config).map_err(|why| WebhookError::post(url, why))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, concat!("kube-apiserver-admission conductor/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| WebhookError::post(url, error))?;
        let response = client.request(request).await.map_err(|error| WebhookError::post(url, error::cause(&error)))?;
        let (head, mut body) = response.into_parts();
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                WebhookError::Other(format!(
                    "unexpected error when reading response body. Please retry. Original error: {}",
                    error::cause(&error)
                ))
            })?;
            if let Ok(data) = frame.into_data() {
                if read.len() + data.len() > limit {
                    return Err(WebhookError::TooLarge { limit });
                }
                read.extend_from_slice(&data);
            }
        }
        if !head.status.is_success() {
            return Err(error::refused(head.status.as_u16(), &head.headers, &read));
        }
        match machinery::json::parse(&read) {
            Ok(parsed) if parsed.value.is_object() => Ok(parsed.value),
            Ok(_) => Err(WebhookError::Malformed("expected a JSON object".into())),
            Err(error) => Err(WebhookError::Malformed(error.to_string())),
        }
    }

    /// The client of a destination, with the connections it has open.
    fn client(&self, config: &ClientConfig) -> Result<Http, String> {
        let mut known = self.known.lock();
        known.clock += 1;
        let clock = known.clock;
        if let Some((used, client)) = known.clients.get_mut(config) {
            *used = clock;
            return Ok(client.clone());
        }
        let identity = self.front_proxy.as_ref().filter(|_| config.front_proxy);
        let tls = verify::client_tls(config.ca_bundle.as_deref(), config.insecure, identity)?;
        let connector = Connector::new(self.store.clone(), config.destination.clone(), Arc::new(tls));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE)
            .pool_idle_timeout(IDLE_FOR)
            .build(connector);
        if known.clients.len() >= DESTINATIONS {
            if let Some(oldest) =
                known.clients.iter().min_by_key(|(_, (used, _))| *used).map(|(config, _)| config.clone())
            {
                known.clients.remove(&oldest);
            }
        }
        known.clients.insert(config.clone(), (clock, client.clone()));
        Ok(client)
    }
}

/// Whether something is certificates of authorities.
pub fn is_bundle(bytes: &[u8]) -> bool {
    verify::client_tls(Some(bytes), false, None).is_ok()
}
