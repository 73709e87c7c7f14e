//! From a destination to a TLS connection: Services are found in the store, addresses by the system.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use store::{KeyRange, Store};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::config::Destination;
use super::verify;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// Connects to one destination.
#[derive(Clone)]
pub struct Connector {
    store: Store,
    destination: Destination,
    tls: Arc<rustls::ClientConfig>,
}

impl Connector {
    /// Connects to a destination, trusting who `tls` trusts.
    pub fn new(store: Store, destination: Destination, tls: Arc<rustls::ClientConfig>) -> Connector {
        Connector { store, destination, tls }
    }

    async fn connect(self) -> Result<Stream, ConnectError> {
        let (host, port, name) = match &self.destination {
            Destination::Url(uri) => {
                let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
                (host.clone(), uri.port_u16().unwrap_or(443), host)
            }
            Destination::Service { namespace, name, port, .. } => {
                let (host, port) = resolve(&self.store, namespace, name, *port)?;
                (host, port, format!("{name}.{namespace}.svc"))
            }
        };
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| dial(&host, port, &error))?;
        // Questions are small and wait for their answers.
        let _ = stream.set_nodelay(true);
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| ConnectError(format!("tls: {name:?} is no name that a certificate can be for")))?;
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        let stream = connector
            .connect(server_name, stream)
            .await
            .map_err(|error| ConnectError(verify::in_words(&error, &name)))?;
        Ok(Stream(TokioIo::new(stream)))
    }
}

/// `dial tcp 10.0.0.1:443: connect: connection refused`.
fn dial(host: &str, port: u16, error: &io::Error) -> ConnectError {
    let at = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    };
    ConnectError(match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {at}: connect: connection refused"),
        io::ErrorKind::HostUnreachable => format!("dial tcp {at}: connect: no route to host"),
        io::ErrorKind::NetworkUnreachable => format!("dial tcp {at}: connect: network is unreachable"),
        io::ErrorKind::TimedOut => format!("dial tcp {at}: i/o timeout"),
        _ if host.parse::<IpAddr>().is_err() && error.raw_os_error().is_none() => {
            format!("dial tcp: lookup {host}: no such host")
        }
        _ => format!("dial tcp {at}: {error}"),
    })
}

/// An address of a Service. There is no kube-proxy to send what goes to a cluster IP on, so it is one of its endpoints.
pub fn resolve(store: &Store, namespace: &str, name: &str, port: u16) -> Result<(String, u16), ConnectError> {
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let service = store
        .get("core/services", &format!("{namespace}/{name}"))
        .ok_or_else(|| ConnectError(format!("service {name:?} not found")))?;
    let service = read(&service.value);
    if service["spec"]["type"] == "ExternalName" {
        return Ok((service["spec"]["externalName"].as_str().unwrap_or_default().to_owned(), port));
    }
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = ports
        .iter()
        .find(|own| own["port"].as_u64() == Some(u64::from(port)))
        .ok_or_else(|| ConnectError(format!("no service port {port} found for service {name:?}")))?;
    let port_name = own["name"].as_str().unwrap_or_default();
    let list = store.list("discovery.k8s.io/endpointslices", KeyRange::prefix(&format!("{namespace}/")), None);
    let mut slices: Vec<Value> = list
        .map(|list| list.entries)
        .unwrap_or_default()
        .iter()
        .map(|entry| read(&entry.value))
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name)
        .collect();
    let family = &service["spec"]["ipFamilies"][0];
    slices.sort_by_key(|slice| slice["addressType"] != *family);
    let mut ready = Vec::new();
    for slice in &slices {
        let ports = slice["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(to) = ports
            .iter()
            .filter(|own| own["name"].as_str().unwrap_or_default() == port_name)
            .find_map(|own| own["port"].as_u64().and_then(|port| u16::try_from(port).ok()))
        else {
            continue;
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] != false {
                ready.extend(endpoint["addresses"][0].as_str().map(|address| (address.to_owned(), to)));
            }
        }
        if !ready.is_empty() {
            break;
        }
    }
    if ready.is_empty() {
        return Err(ConnectError(format!("no endpoints available for service {name:?}")));
    }
    // Each new connection goes to another one; which, need not be foretold.
    let at = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % ready.len();
    Ok(ready.swap_remove(at))
}

static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// A TLS connection as the HTTP client wants it.
pub struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
