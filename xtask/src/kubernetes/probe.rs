//! Asking a server whether it is ready, without an HTTP library.
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::pki::Identity;

const PATIENCE: Duration = Duration::from_secs(5);

/// The status code of `GET path`, without TLS.
pub fn http(address: SocketAddr, path: &str) -> anyhow::Result<u16> {
    get(connect(address)?, path)
}

/// The status code of `GET path`, with TLS.
pub fn https(address: SocketAddr, path: &str, tls: &Arc<ClientConfig>) -> anyhow::Result<u16> {
    let name = ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(Arc::clone(tls), name)?;
    get(StreamOwned::new(connection, connect(address)?), path)
}

/// TLS as the client `identity` that trusts `authority`.
pub fn tls(authority: &str, identity: &Identity) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn get(mut stream: impl Read + Write, path: &str) -> anyhow::Result<u16> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    match stream.read_exact(&mut head) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => anyhow::bail!("closed without an answer"),
        other => other?,
    }
    status(&head).context("not an HTTP answer")
}

/// The code in `HTTP/1.1 200`.
fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head).ok()?.strip_prefix("HTTP/1.")?.split_once(' ')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines() {
        assert_eq!(status(b"HTTP/1.1 200"), Some(200));
        assert_eq!(status(b"HTTP/1.0 503"), Some(503));
        assert_eq!(status(b"SSH-2.0-Open"), None);
    }
}
