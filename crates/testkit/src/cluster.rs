//! Clusters: embedded, served, real.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conductor_apiserver::http::Listening;
use conductor_apiserver::{Options, Server, User};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::{Answer, Namespace, Request};

/// The variable that says where a real Kubernetes is.
pub const KUBECONFIG: &str = "CONDUCTOR_KUBERNETES_KUBECONFIG";

/// The user that tests are, on every cluster.
const ADMIN: &str = "kubernetes-admin";
/// An answer that takes longer than this is none.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster to test on. Cheap to clone; it ends with its last clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    server: Option<Server>,
    kubeconfig: Option<PathBuf>,
    // Both live for as long as the cluster does.
    _listening: Option<Listening>,
    _dir: Option<tempfile::TempDir>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.stop();
        }
    }
}

impl Cluster {
    /// An API server in this process, in memory, without a socket.
    pub async fn embedded() -> Cluster {
        let server = Server::start(Options::default()).await.expect("the embedded server starts");
        let client = server.client(User::new(ADMIN, ["system:masters"]));
        Cluster::new("embedded", client, Some(server), None, None, None)
    }

    /// An API server in this process behind TLS on a free port of loopback, with a kubeconfig for programs.
    pub async fn served() -> Cluster {
        let server = Server::start(Options::default()).await.expect("the embedded server starts");
        let listening = server.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("loopback has a free port");
        let url = format!("https://{}", listening.address);
        let text = server.pki().kubeconfig(&url, ADMIN, Some("system:masters")).expect("a kubeconfig can be made");
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, text).expect("the temporary directory can be written");
        let client = client_of(&path).await;
        Cluster::new("served", client, Some(server), Some(path), Some(listening), Some(dir))
    }

    /// The real Kubernetes that [`KUBECONFIG`] names, if it does.
    pub async fn real() -> Option<Cluster> {
        Some(Cluster::at(Path::new(&std::env::var_os(KUBECONFIG)?)).await)
    }

    /// The real Kubernetes of a kubeconfig.
    pub(crate) async fn at(kubeconfig: &Path) -> Cluster {
        let client = client_of(kubeconfig).await;
        Cluster::new("real", client, None, Some(kubeconfig.to_owned()), None, None)
    }

    fn new(
        name: &'static str,
        client: Client,
        server: Option<Server>,
        kubeconfig: Option<PathBuf>,
        listening: Option<Listening>,
        dir: Option<tempfile::TempDir>,
    ) -> Cluster {
        let inner = Inner { name, server, kubeconfig, _listening: listening, _dir: dir };
        Cluster { client, inner: Arc::new(inner) }
    }

    /// A client that is a service account of the cluster, with a token as Pods have them. The cluster must have a kubeconfig.
    pub async fn account(&self, namespace: &str, name: &str) -> Client {
        let kubeconfig = self.kubeconfig().expect("a cluster with a kubeconfig");
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 10_800},
        });
        let made = self.send(&Request::json("POST", path, &asked)).await.ok();
        let token = made["status"]["token"].as_str().expect("a token").to_owned();
        let mut config = config_of(kubeconfig).await;
        config.auth_info = AuthInfo { token: Some(token.into()), ..Default::default() };
        Client::try_from(config).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()))
    }

    /// What it is called in messages.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// A client of the cluster.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The server, if it is in this process.
    pub fn server(&self) -> Option<&Server> {
        self.inner.server.as_ref()
    }

    /// Where programs find the cluster; an embedded one has no such place.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.inner.kubeconfig.as_deref()
    }

    /// Sends a request as it is. Bodies are JSON unless a header says otherwise.
    pub async fn send(&self, request: &Request) -> Answer {
        let sent = self.try_send(request).await;
        sent.unwrap_or_else(|why| panic!("{}: {} {}: {why}", self.name(), request.method, request.path))
    }

    /// The same, where the connection may break.
    pub async fn try_send(&self, request: &Request) -> Result<Answer, String> {
        let mut built = http::Request::builder().method(request.method.as_str()).uri(request.path.as_str());
        if !request.body.is_empty() && !request.has("content-type") {
            built = built.header("content-type", "application/json");
        }
        if !request.has("accept") {
            built = built.header("accept", "application/json");
        }
        if !request.has("user-agent") {
            built = built.header("user-agent", "testkit/1");
        }
        for (name, value) in &request.headers {
            built = built.header(name, value);
        }
        let built = built
            .body(Body::from(request.body.clone().into_bytes()))
            .unwrap_or_else(|error| panic!("{} {}: {error}", request.method, request.path));
        let exchange = async {
            let response = self.client.send(built).await?;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await?.to_bytes();
            Ok::<_, kube::Error>(Answer::new(parts.status.as_u16(), parts.headers, bytes))
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer in {PATIENCE:?}")),
        }
    }

    /// A new namespace for one test; it is deleted when dropped.
    pub async fn namespace(&self) -> Namespace {
        Namespace::create(self, &unique("test")).await
    }
}

/// A name that no other run and no other test has.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    format!("{prefix}-{:x}-{count}", since ^ (u64::from(std::process::id()) << 20))
}

async fn client_of(kubeconfig: &Path) -> Client {
    let config = config_of(kubeconfig).await;
    Client::try_from(config).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()))
}

async fn config_of(kubeconfig: &Path) -> kube::Config {
    let read = Kubeconfig::read_from(kubeconfig).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    // Only loopback and what the kubeconfig names is talked to.
    config.proxy_url = None;
    // Tests are about each answer, also those that say "try again".
    config.default_retry = false;
    config
}

/// A program that tests need: where a variable says, or on the path.
pub fn program(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Says aloud that a test did nothing, and why.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}
