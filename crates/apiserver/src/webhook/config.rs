//! Where a webhook is, as `clientConfig` says it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::WebhookError;

/// A webhook's `clientConfig`: the same in CustomResourceDefinitions and in webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Where it is.
    pub destination: Destination,
    /// Who signs its certificate, in PEM; the system's authorities if not said.
    pub ca_bundle: Option<Box<[u8]>>,
    /// Whether whatever certificate it has is believed.
    pub insecure: bool,
    /// Whether it is told, by a certificate of ours, that it may believe what is said of who asks.
    pub front_proxy: bool,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// At an address: `https://host[:port]/path`.
    Url(http::Uri),
    /// Behind a Service.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
        /// The Service's port.
        port: u16,
        /// The path there, with its leading slash.
        path: String,
    },
}

impl ClientConfig {
    /// Reads a `clientConfig`.
    pub fn read(config: &Value) -> Result<ClientConfig, WebhookError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ca_bundle = match config["caBundle"].as_str().map(str::trim).filter(|bundle| !bundle.is_empty()) {
            None => None,
            Some(bundle) => {
                let bytes = STANDARD
                    .decode(bundle)
                    .map_err(|error| WebhookError::Config(format!("caBundle is not base64: {error}")))?;
                // Only white space is as good as nothing.
                (!bytes.trim_ascii().is_empty()).then(|| bytes.into_boxed_slice())
            }
        };
        let service = &config["service"];
        let destination = if service.is_object() {
            let path = text(&service["path"]);
            Destination::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
                path: if path.starts_with('/') { path } else { format!("/{path}") },
            }
        } else {
            match config["url"].as_str().filter(|url| !url.is_empty()) {
                None => {
                    let why = "webhook configuration must have either service or URL";
                    return Err(WebhookError::Config(why.into()));
                }
                Some(url) => {
                    let uri: http::Uri =
                        url.parse().map_err(|error| WebhookError::Config(format!("Unparsable URL: {error}")))?;
                    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) {
                        return Err(WebhookError::Config(format!("Unparsable URL: {url} is not https://host/path")));
                    }
                    Destination::Url(uri)
                }
            }
        };
        Ok(ClientConfig { destination, ca_bundle, insecure: false, front_proxy: false })
    }

    /// The address that is posted to, with the time that the webhook has.
    pub fn url(&self, timeout: Duration) -> String {
        let seconds = timeout.as_millis().div_ceil(1000).max(1);
        match &self.destination {
            Destination::Url(uri) => {
                let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
                format!("https://{host}{}?timeout={seconds}s", uri.path())
            }
            Destination::Service { namespace, name, port, path } => {
                format!("https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s")
            }
        }
    }
}
