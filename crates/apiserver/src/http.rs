//! The server on a socket: TLS, HTTP/1.1 and HTTP/2, slow clients ended, everything stopped in time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::auth::authn;
use crate::body::PIECE;
use crate::bulk::{self, Sending};
use crate::server::{Server, StartError};
use crate::user::User;
use crate::websocket::{Handshake, Place};

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The user that the client certificate names.
    pub user: Option<Arc<User>>,
    /// Whether there is a certificate that does not say who that is: then it is not somebody in particular either.
    pub is_unclear: bool,
    /// Where from.
    pub address: SocketAddr,
}

/// How long a client may take for the TLS handshake, and then for its first request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take from one request to the whole headers of the next.
const IDLE: Duration = Duration::from_secs(90);
/// Connections beyond this many wait to be accepted; fewer where the process may not open as many files.
const CONNECTIONS: usize = 20_000;
/// Files that are not connections: the store's, the log's, those of requests to webhooks.
const OTHER_FILES: u64 = 64;
/// Requests at once on one HTTP/2 connection. A client with more opens another.
const STREAMS: u32 = 1000;
/// Headers of one request, and their bytes. Go's servers count only the bytes, up to a MiB; here each connection may hold as
/// many before anybody has said who they are, and room for each header is made beforehand.
const HEADERS: usize = 256;
const HEADER_BYTES: usize = 256 * 1024;
/// How often a warning is repeated.
const WARNING: Duration = Duration::from_secs(10);

/// How many connections there is room for. The process may open as many files as the system lets it.
fn connections() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    CONNECTIONS.min(usize::try_from(files.saturating_sub(OTHER_FILES).max(16)).unwrap_or(CONNECTIONS))
}

/// A server that listens.
pub struct Listening {
    /// Where.
    pub address: SocketAddr,
    stop: tokio::sync::oneshot::Sender<()>,
    done: tokio::task::JoinHandle<()>,
}

impl Listening {
    /// Stops accepting, ends watches, lets running requests finish (for at most two seconds).
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.done.await;
    }
}

impl Server {
    /// Listens on an address with TLS; port 0 picks a free one.
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, StartError> {
        let failed = |error| StartError::Listen(address.to_string(), error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let acceptor = TlsAcceptor::from(Arc::new(self.tls(address.ip())?));
        if let Err(status) = crate::kubernetes::publish(self, Some(address)).await {
            tracing::warn!(%status, "the Service kubernetes does not say where the server listens");
        }
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let server = self.clone();
        let threads = bulk::Threads::start().map_err(failed)?;
        let done = tokio::spawn(async move { server.accept(listener, acceptor, threads, stopped).await });
        Ok(Listening { address, stop, done })
    }

    fn tls(&self, ip: IpAddr) -> Result<rustls::ServerConfig, StartError> {
        let bad = |error: &dyn std::fmt::Display| StartError::Tls(error.to_string());
        let mut addresses: Vec<IpAddr> =
            vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into(), [10, 96, 0, 1].into()];
        if !ip.is_unspecified() && !addresses.contains(&ip) {
            addresses.push(ip);
        }
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let pair = self.pki().server(&addresses, &names)?;
        let (chain, key) = pair.der().map_err(|e| bad(&e))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.pki().ca().as_bytes()) {
            roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // A certificate is welcome, not required: tokens come without one.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|e| bad(&e))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|e| bad(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.send_half_rtt_data = true;
        Ok(config)
    }

    async fn accept(
        self,
        listener: TcpListener,
        acceptor: TlsAcceptor,
        threads: bulk::Threads,
        mut stopped: tokio::sync::oneshot::Receiver<()>,
    ) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_headers(HEADERS)
            .max_buf_size(HEADER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .max_send_buf_size(PIECE)
            .max_header_list_size(256 * 1024);
        let builder = Arc::new(builder);
        let there = threads.handle();
        let pace = Arc::new(bulk::Pace::default());
        let graceful = GracefulShutdown::new();
        let room = Arc::new(tokio::sync::Semaphore::new(connections()));
        let mut warned: Option<Instant> = None;
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut stopped => break,
            };
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: others will close theirs.
                    if warned.is_none_or(|at| at.elapsed() > WARNING) {
                        tracing::warn!(%error, "a connection could not be accepted");
                        warned = Some(Instant::now());
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = socket.set_nodelay(true);
            let (acceptor, builder, server, watcher, there, pace) =
                (acceptor.clone(), builder.clone(), self.clone(), graceful.watcher(), there.clone(), pace.clone());
            tokio::spawn(async move {
                let place: Place = Arc::new(permit);
                let taken = place.clone();
                let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(socket)).await {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => return tracing::debug!(%error, %address, "the TLS handshake failed"),
                    Err(_) => return tracing::debug!(%address, "the TLS handshake took too long"),
                };
                let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let named = certificate.map_or(Ok(None), |own| authn::user_of_certificate(own));
                if let Err(error) = &named {
                    tracing::debug!(%error, %address, "a client certificate was refused");
                }
                let peer = Peer { is_unclear: named.is_err(), user: named.ok().flatten(), address };
                let asked = Arc::new(AtomicBool::new(false));
                let asking = asked.clone();
                let sending = Sending::at(pace);
                let (answering, close) = (sending.clone(), sending.close().clone());
                let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                    asking.store(true, Ordering::Relaxed);
                    request.extensions_mut().insert(peer.clone());
                    let (server, sending, place) = (server.clone(), answering.clone(), taken.clone());
                    async move {
                        let handshake = Handshake::of(&mut request);
                        let mut response = server.handle(request).await;
                        if let Some(handshake) = handshake {
                            response = handshake.answer(response, place);
                        }
                        if let Err(status) = response.body_mut().sent_by(&sending, &server.0.unread) {
                            response = server.refuse(&status);
                        }
                        Ok::<_, std::convert::Infallible>(response)
                    }
                });
                let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
                let connection = watcher.watch(connection);
                let connection = async move {
                    tokio::select! {
                        ended = connection => ended.map_err(|error| error.to_string()),
                        () = close.notified() => Err("its client reads nothing, and others need the room".to_owned()),
                    }
                };
                let connection = bulk::drive(Box::pin(connection), sending, there);
                // Who opens a connection and asks nothing has no business with one.
                let silent = async {
                    tokio::time::sleep(PATIENCE).await;
                    if asked.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    ended = connection => if let Some(Err(error)) = ended {
                        tracing::debug!(%error, %address, "a connection ended");
                    },
                    () = silent => tracing::debug!(%address, "a connection without a request is closed"),
                }
            });
        }
        drop(listener);
        self.stop();
        if tokio::time::timeout(Duration::from_secs(2), graceful.shutdown()).await.is_err() {
            tracing::debug!("some connections were still open at the end");
        }
    }
}
