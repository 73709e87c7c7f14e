//! A plain HTTP/1.1 client over TLS that shows every byte: for load, for crashes, and for requests no client library would send.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use bytes::{Buf, Bytes, BytesMut};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It, or a file that it names, cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// Something in it is missing or of the wrong form.
    #[error("{0}: {1}")]
    Content(PathBuf, String),
}

/// A server and who one is to it.
#[derive(Clone)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    name: ServerName<'static>,
    host: String,
    roots: Arc<RootCertStore>,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

impl Endpoint {
    /// The server and user of a kubeconfig's current context.
    pub fn from_kubeconfig(path: &Path) -> Result<Endpoint, KubeconfigError> {
        let wrong = |what: String| KubeconfigError::Content(path.to_owned(), what);
        let text = std::fs::read_to_string(path).map_err(|error| KubeconfigError::Read(path.to_owned(), error))?;
        let config: Value = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let named = |list: &str, name: &Value, part: &str| {
            let all = config[list].as_array().map_or(&[][..], Vec::as_slice);
            all.iter().find(|one| one["name"] == *name).map(|one| one[part].clone()).unwrap_or_default()
        };
        let context = named("contexts", &config["current-context"], "context");
        let (cluster, user) =
            (named("clusters", &context["cluster"], "cluster"), named("users", &context["user"], "user"));
        let server = cluster["server"].as_str().ok_or_else(|| wrong("the current context has no server".into()))?;
        let host = server
            .strip_prefix("https://")
            .map(|rest| rest.trim_end_matches('/').to_owned())
            .ok_or_else(|| wrong(format!("the server {server} is not an https address")))?;
        let with_port =
            if host.rsplit(']').next().is_some_and(|end| end.contains(':')) || host.matches(':').count() == 1 {
                host.clone()
            } else {
                format!("{host}:443")
            };
        let address = with_port
            .to_socket_addrs()
            .ok()
            .and_then(|mut all| all.next())
            .ok_or_else(|| wrong(format!("{host} has no address")))?;
        let bare = with_port.rsplit_once(':').map_or(with_port.as_str(), |(bare, _)| bare).trim_matches(['[', ']']);
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| wrong(error.to_string()))?;

        let mut roots = RootCertStore::empty();
        if let Some(pem) = secret(path, &cluster, "certificate-authority")? {
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let added =
                    certificate.map_err(|e| e.to_string()).and_then(|c| roots.add(c).map_err(|e| e.to_string()));
                added.map_err(&wrong)?;
            }
        }
        let identity = match (secret(path, &user, "client-certificate")?, secret(path, &user, "client-key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        };
        let roots = Arc::new(roots);
        let tls = tls(&roots, identity, &[]).map_err(wrong)?;
        let token = user["token"].as_str().map(str::to_owned);
        Ok(Endpoint { address, name, host, roots, tls, token })
    }

    /// The same server, as nobody.
    pub fn anonymous(&self) -> Endpoint {
        let tls = tls(&self.roots, None, &[]).unwrap_or_else(|_| self.tls.clone());
        Endpoint { tls, token: None, ..self.clone() }
    }

    /// The same server, as whom a token stands for.
    pub fn with_token(&self, token: &str) -> Endpoint {
        Endpoint { token: Some(token.to_owned()), ..self.anonymous() }
    }

    /// TLS to the server, and nothing more. `alpn` are the protocols to offer.
    pub async fn stream(&self, alpn: &[&[u8]]) -> io::Result<TlsStream<TcpStream>> {
        let mut config = self.tls.clone();
        if !alpn.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        }
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        TlsConnector::from(config).connect(self.name.clone(), socket).await
    }

    /// A connection that is kept alive between requests.
    pub async fn connect(&self) -> io::Result<Connection> {
        let mut fixed = format!("Host: {}\r\nAccept: application/json\r\nUser-Agent: conductor-testkit\r\n", self.host);
        if let Some(token) = &self.token {
            fixed.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let stream = self.stream(&[]).await?;
        Ok(Connection { stream, fixed, buffer: BytesMut::with_capacity(16 * 1024), out: Vec::new(), body: Rest::None })
    }

    /// One request on a connection of its own.
    pub async fn request(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> io::Result<Answer> {
        self.connect().await?.request(method, path, body).await
    }
}

fn tls(
    roots: &Arc<RootCertStore>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots.clone());
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| error.to_string())?;
            builder.with_client_auth_cert(chain.map_err(|e| e.to_string())?, key).map_err(|error| error.to_string())?
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

/// `NAME-data` in base64, or the file that `NAME` names.
fn secret(kubeconfig: &Path, part: &Value, name: &str) -> Result<Option<Vec<u8>>, KubeconfigError> {
    if let Some(text) = part[format!("{name}-data")].as_str() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(text.trim());
        return decoded
            .map(Some)
            .map_err(|error| KubeconfigError::Content(kubeconfig.to_owned(), format!("{name}-data: {error}")));
    }
    let Some(file) = part[name].as_str() else { return Ok(None) };
    let file = kubeconfig.parent().unwrap_or(Path::new(".")).join(file);
    std::fs::read(&file).map(Some).map_err(|error| KubeconfigError::Read(file, error))
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// Status line and headers, as sent.
    pub head: Bytes,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }
}

fn header(head: &[u8], name: &str) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(head).ok()?;
    let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(String::from_utf8_lossy(found.value).into_owned())
}

/// How much of the body is still to come.
enum Rest {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

/// One connection to a server. Answers must be read to their end before the next request.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    fixed: String,
    buffer: BytesMut,
    out: Vec<u8>,
    body: Rest,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Connection {
    /// Sends a request (a body has a content type) and reads all of the answer.
    pub async fn request(&mut self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> io::Result<Answer> {
        self.send(method, path, body).await?;
        let (code, head) = self.head().await?;
        let body = self.rest().await?;
        Ok(Answer { code, head, body })
    }

    /// Sends a request.
    pub async fn send(&mut self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> io::Result<()> {
        use std::io::Write;
        self.out.clear();
        write!(self.out, "{method} {path} HTTP/1.1\r\n{}", self.fixed)?;
        match body {
            Some((kind, bytes)) => {
                write!(self.out, "Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
                self.out.extend_from_slice(bytes);
            }
            None => self.out.extend_from_slice(b"\r\n"),
        }
        let out = std::mem::take(&mut self.out);
        let sent = self.write(&out).await;
        self.out = out;
        sent
    }

    /// Sends bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.buffer.reserve(16 * 1024);
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Reads the status line and the headers of an answer.
    pub async fn head(&mut self) -> io::Result<(u16, Bytes)> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut response = httparse::Response::new(&mut headers);
            let parsed = response.parse(&self.buffer).map_err(|error| bad(&error.to_string()))?;
            let httparse::Status::Complete(length) = parsed else {
                if self.more().await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                continue;
            };
            let code = response.code.unwrap_or_default();
            let find = |name: &str| response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            self.body = match (find("content-length"), find("transfer-encoding")) {
                (Some(length), _) => {
                    let length = std::str::from_utf8(length.value).ok().and_then(|text| text.parse().ok());
                    Rest::Length(length.ok_or_else(|| bad("the length of the body is no number"))?)
                }
                (None, Some(_)) => Rest::Chunked,
                (None, None) if code == 204 || code == 304 => Rest::None,
                (None, None) => Rest::UntilClose,
            };
            return Ok((code, self.buffer.split_to(length).freeze()));
        }
    }

    /// The next piece of the body; none at its end.
    pub async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        match self.body {
            Rest::None => Ok(None),
            Rest::Length(0) => {
                self.body = Rest::None;
                Ok(None)
            }
            Rest::Length(left) => {
                if self.buffer.is_empty() && self.more().await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let piece = self.buffer.split_to(left.min(self.buffer.len())).freeze();
                self.body = Rest::Length(left - piece.len());
                Ok(Some(piece))
            }
            Rest::UntilClose => {
                if self.buffer.is_empty() && self.more().await? == 0 {
                    self.body = Rest::None;
                    return Ok(None);
                }
                Ok(Some(self.buffer.split().freeze()))
            }
            Rest::Chunked => self.chunk().await,
        }
    }

    async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let size = httparse::parse_chunk_size(&self.buffer).map_err(|_| bad("a chunk without a size"))?;
            if let httparse::Status::Complete((start, size)) = size {
                let size = usize::try_from(size).map_err(|_| bad("a chunk too large"))?;
                if self.buffer.len() >= start + size + 2 {
                    self.buffer.advance(start);
                    let piece = self.buffer.split_to(size).freeze();
                    self.buffer.advance(2);
                    if size == 0 {
                        self.body = Rest::None;
                        return Ok(None);
                    }
                    return Ok(Some(piece));
                }
                self.buffer.reserve(start + size + 2);
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// All of the body that is left.
    pub async fn rest(&mut self) -> io::Result<Bytes> {
        if let Rest::Length(length) = self.body {
            // All of it in one place, so that a long list is copied once.
            self.buffer.reserve(length.min(64 << 20).saturating_sub(self.buffer.len()));
            while self.buffer.len() < length {
                if self.stream.read_buf(&mut self.buffer).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            self.body = Rest::None;
            return Ok(self.buffer.split_to(length).freeze());
        }
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        let mut all: Option<BytesMut> = None;
        while let Some(piece) = self.piece().await? {
            all.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&piece);
        }
        Ok(all.map_or(first, BytesMut::freeze))
    }

    /// Begins a watch: the answer's code, then its [`Watch::line`]s.
    pub async fn watch(mut self, path: &str) -> io::Result<Watch> {
        self.send("GET", path, None).await?;
        let (code, _) = self.head().await?;
        Ok(Watch { code, connection: self, lines: BytesMut::new(), scanned: 0 })
    }
}

/// A watch that runs.
pub struct Watch {
    /// The status code it began with.
    pub code: u16,
    connection: Connection,
    lines: BytesMut,
    scanned: usize,
}

impl Watch {
    /// The next event as sent; none when the server has ended the watch.
    pub async fn line(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.lines[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.lines.split_to(self.scanned + end).freeze();
                self.lines.advance(1);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.lines.len();
            match self.connection.piece().await? {
                Some(piece) => self.lines.extend_from_slice(&piece),
                None if self.lines.is_empty() => return Ok(None),
                None => {
                    self.scanned = 0;
                    return Ok(Some(self.lines.split().freeze()));
                }
            }
        }
    }
}
