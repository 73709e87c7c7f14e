//! The server: what it is made of, and what all requests share.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Request, Response};
use machinery::status::Status;
use parking_lot::{Mutex, RwLock};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use store::{Entry, Op, Store};
use tokio::sync::watch;

use crate::admission::Admission;
use crate::audit::Audit;
use crate::auth::authn::{self, TokenFile};
use crate::auth::authz::Authorizer;
use crate::auth::nodes::Nodes;
use crate::auth::rbac::Rbac;
use crate::auth::shown::Marks;
use crate::auth::tokens::Tokens;
use crate::body::Body;
use crate::catalog::Catalog;
use crate::context::Context;
use crate::gate::{Gate, Pass};
use crate::heavy::Bodies;
use crate::metrics::Metrics;
use crate::pki::Pki;
use crate::plan::View;
use crate::resource::Resource;
use crate::user::User;

/// Who the server is to itself.
pub(crate) const OWN: &str = "system:apiserver";

/// How long it takes until somebody whom no turn was promised asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// What a server is made of.
pub struct Options {
    /// Where it keeps its state; in memory if nowhere.
    pub data_dir: Option<PathBuf>,
    /// Tokens that stand for users.
    pub token_file: Option<PathBuf>,
    /// How many reads (lists, gets) may run at once.
    pub max_reads: usize,
    /// How many writes may run at once.
    pub max_writes: usize,
    /// Further admission, after the built-in ones.
    pub admission: Vec<Box<dyn Admission>>,
    /// Who may do what; RBAC if not said.
    pub authorizer: Option<Box<dyn Authorizer>>,
    /// Who issues service-account tokens.
    pub issuer: String,
    /// Where to say who did what.
    pub audit: Option<Audit>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            data_dir: None,
            token_file: None,
            max_reads: 400,
            max_writes: 200,
            admission: Vec::new(),
            authorizer: None,
            issuer: "https://kubernetes.default.svc.cluster.local".into(),
            audit: None,
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// The data directory is somebody else's.
    #[error("{0} is not a data directory of conductor (it contains {1:?}): choose an empty one")]
    Foreign(PathBuf, String),
    /// The certificates.
    #[error(transparent)]
    Pki(#[from] crate::pki::PkiError),
    /// The token file.
    #[error(transparent)]
    Tokens(#[from] authn::TokenFileError),
    /// The service accounts' key.
    #[error("the service-account signing key cannot be used: {0}")]
    Key(ring::error::KeyRejected),
    /// What must exist could not be made.
    #[error("cannot prepare the server: {0}")]
    Bootstrap(Status),
    /// Listening failed.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, std::io::Error),
    /// TLS is not possible with these certificates.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// A Kubernetes API server. Cheap to clone.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

/// The server's insides, shared by all requests.
pub struct Inner {
    /// Where everything is.
    pub store: Store,
    /// What can be asked for.
    catalog: RwLock<Arc<Catalog>>,
    /// Who has a say in writes.
    pub admission: Vec<Box<dyn Admission>>,
    /// Who may do what.
    pub authorizer: Arc<dyn Authorizer>,
    /// Certificates.
    pub pki: Pki,
    /// Service-account tokens.
    pub tokens: Tokens,
    pub(crate) token_file: TokenFile,
    pub(crate) marks: Marks,
    /// What happened, in numbers.
    pub metrics: Metrics,
    random: SystemRandom,
    /// Calls other people's webhooks.
    pub webhooks: Arc<crate::webhook::WebhookClient>,
    /// Who writes next where many want to.
    pub turns: crate::plugins::quota::Turns,
    /// Parameters of policies, as they were last read.
    pub params: crate::policies::params::Known,
    /// What other servers have.
    pub(crate) remotes: crate::aggregation::Remotes,
    /// Whose requests are what.
    pub(crate) flows: crate::flow::Flows,
    /// For how many requests at once there is room.
    pub(crate) places: usize,
    pub(crate) reads: Gate,
    pub(crate) writes: Gate,
    /// For requests and answers that take the processor for long.
    heavy: Gate,
    pub(crate) bodies: Bodies,
    pub(crate) audit: Option<Audit>,
    /// The watches that run.
    pub(crate) watches: crate::watches::Watches,
    /// What clients have not read yet.
    pub(crate) unread: crate::unread::Unread,
    stop: watch::Sender<bool>,
    /// Counts changes of the catalog, for caches made from it.
    pub generation: AtomicUsize,
    /// Documents made from the catalog, kept until it changes.
    pub documents: Mutex<crate::openapi::Cache>,
}

/// A new uid.
pub fn random_uid() -> String {
    let mut b = [0u8; 16];
    let _ = SystemRandom::new().fill(&mut b);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    // Every answer has one: no formatting, one allocation.
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(36);
    for (at, byte) in b.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
    out
}

impl Server {
    /// Opens (or begins) the state and makes what must exist. It serves in process at once; see [`crate::http`] for sockets.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let (store, pki) = match &options.data_dir {
            Some(dir) => {
                refuse_foreign(dir)?;
                let store = Store::open(&dir.join("store"), store::Options::default())?;
                (store, Pki::open(&dir.join("pki"))?)
            }
            None => (Store::in_memory(store::Options::default()), Pki::ephemeral()?),
        };
        let tokens = Tokens::new(&pki.service_account_key, &options.issuer).map_err(StartError::Key)?;
        let token_file = match &options.token_file {
            Some(path) => TokenFile::read(path)?,
            None => TokenFile::default(),
        };
        let rbac = Arc::new(Rbac::new(store.clone()));
        let authorizer: Arc<dyn Authorizer> = match options.authorizer {
            Some(authorizer) => Arc::from(authorizer),
            None => Arc::new(Nodes::new(store.clone(), rbac.clone())),
        };
        let plugins = crate::plugins::defaults(&store, &authorizer, rbac);
        let webhooks = crate::webhook::WebhookClient::with_front_proxy(store.clone(), pki.front_proxy()?);
        let webhooks = Arc::new(webhooks);
        let flows = crate::flow::Flows::new(&store);
        let inner = Arc::new(Inner {
            store,
            webhooks,
            catalog: RwLock::new(Arc::new(Catalog::builtin())),
            admission: plugins.into_iter().chain(options.admission).collect(),
            authorizer,
            pki,
            tokens,
            token_file,
            marks: Default::default(),
            metrics: Metrics::default(),
            random: SystemRandom::new(),
            turns: Default::default(),
            params: Default::default(),
            remotes: Default::default(),
            flows,
            places: options.max_reads + options.max_writes,
            reads: Gate::new(options.max_reads),
            writes: Gate::new(options.max_writes),
            heavy: Gate::new(std::thread::available_parallelism().map_or(1, usize::from)),
            bodies: Bodies::new(),
            audit: options.audit,
            watches: Default::default(),
            unread: Default::default(),
            stop: watch::channel(false).0,
            generation: AtomicUsize::new(0),
            documents: Mutex::default(),
        });
        let server = Server(inner);
        let definitions = crate::controllers::crds::load(&server);
        crate::bootstrap::run(&server).await.map_err(StartError::Bootstrap)?;
        crate::auth::rbac::bootstrap::run(&server).await.map_err(StartError::Bootstrap)?;
        crate::flow::defaults::run(&server).await.map_err(StartError::Bootstrap)?;
        crate::aggregation::registered::bootstrap(&server).await.map_err(StartError::Bootstrap)?;
        crate::kubernetes::publish(&server, None).await.map_err(StartError::Bootstrap)?;
        crate::controllers::start(&server, definitions);
        Ok(server)
    }

    /// Has `/metrics` show what somebody else counts as well; the last one to say so stands.
    pub fn add_metrics(&self, more: impl Fn() -> String + Send + Sync + 'static) {
        *self.0.metrics.1.lock() = Some(Box::new(more));
    }

    /// The store under the server.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The certificates.
    pub fn pki(&self) -> &Pki {
        &self.0.pki
    }

    /// The server as a tower service, for a user, without a socket.
    pub fn service(&self, user: Arc<User>) -> Service {
        Service { server: self.clone(), user }
    }

    /// A client that talks to the server in process, as a user.
    #[cfg(feature = "client")]
    pub fn client(&self, user: Arc<User>) -> kube::Client {
        kube::Client::new(self.service(user), "default")
    }

    /// Ends all watches and lets nothing new begin.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
    }
}

/// A directory with things in it, but no store, is somebody else's: nothing is put there.
fn refuse_foreign(dir: &std::path::Path) -> Result<(), StartError> {
    if dir.join("store").exists() {
        return Ok(());
    }
    // A new file system is not quite empty, and a kubeconfig may be from before the directory was emptied.
    let ours = |name: &str| matches!(name, "pki" | "kubeconfig" | "lost+found");
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    match names.map(|name| name.to_string_lossy().into_owned()).find(|name| !ours(name)) {
        Some(found) => Err(StartError::Foreign(dir.to_owned(), found)),
        None => Ok(()),
    }
}

impl Inner {
    /// What can be asked for right now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    /// Changes what can be asked for.
    pub fn change_catalog(&self, catalog: Catalog) {
        *self.catalog.write() = Arc::new(catalog);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Seconds since 1970.
    pub fn now_seconds(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
    }

    /// Now, to the microsecond.
    pub fn now_precisely(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = machinery::time::Time::new(now.as_secs() as i64, 0).map(|own| own.to_string()).unwrap_or_default();
        format!("{}.{:06}Z", second.trim_end_matches('Z'), now.subsec_micros())
    }

    /// Now, as objects write it.
    pub fn now(&self) -> String {
        self.time_in(0)
    }

    /// The day, as `2026-01-31`.
    pub fn today(&self) -> String {
        self.now().chars().take(10).collect()
    }

    /// A time in the future, as objects write it.
    pub fn time_in(&self, seconds: i64) -> String {
        machinery::time::Time::new(self.now_seconds().saturating_add(seconds), 0)
            .map(|time| time.to_string())
            .unwrap_or_default()
    }

    /// A random number.
    pub fn random_u32(&self) -> u32 {
        let mut bytes = [0; 4];
        // The system's generator does not fail once it has started; a constant would still be a legal draw.
        let _ = self.random.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// A new uid.
    pub fn new_uid(&self) -> String {
        random_uid()
    }

    /// Waits until work that takes the processor for long may begin.
    pub async fn heavy_turn(&self, user: &User) -> Result<Option<Pass>, Status> {
        match user.name.as_str() {
            OWN => Ok(None),
            _ => self.heavy.enter(user.party()).await.map(Some),
        }
    }

    /// The same for what has to be done, however long it takes until it may.
    pub async fn heavy_turn_at_last(&self, user: &User) -> Option<Pass> {
        loop {
            match self.heavy_turn(user).await {
                Ok(turn) => return turn,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Tells when the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Whether a resource may be created without its namespace: reviews are never stored.
    pub fn namespaces_optional(&self, resource: &Resource) -> bool {
        !resource.has_verb("get")
    }

    /// Whether a namespace is on its way out.
    pub fn is_terminating(&self, namespace: &Entry) -> bool {
        terminating(namespace)
    }

    /// Further writes that belong to a write: what the object reserves or gives back.
    pub fn side_writes(
        &self,
        cx: &Context,
        view: &View<'_>,
        old: &Value,
        new: &Value,
        ops: &mut Vec<Op>,
    ) -> Result<(), Status> {
        crate::plugins::side_writes(cx, view, old, new, ops)
    }
}

struct Terminating(bool);

fn terminating(namespace: &Entry) -> bool {
    // the word may be a label's, too
    let look = || {
        memchr::memmem::find(&namespace.value, b"\"deletionTimestamp\"").is_some()
            && crate::plan::parse_stored(namespace)
                .map_or(true, |object| !object["metadata"]["deletionTimestamp"].is_null())
    };
    match namespace.memo.get_or_init(|| Terminating(look())) {
        Some(terminating) => terminating.0,
        // Somebody who watches with a selector was here first, and noted something else.
        None => look(),
    }
}

/// The server as a tower service for one user. Always ready: overload is answered with 429.
#[derive(Clone)]
pub struct Service {
    server: Server,
    user: Arc<User>,
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let server = self.server.clone();
        request.extensions_mut().insert(self.user.clone());
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use store::{Expect, Transaction};

    /// Whoever may make service accounts may make many.
    #[tokio::test]
    async fn the_accounts_of_a_namespace_share_their_turns() {
        let server = Server::start(Options::default()).await.unwrap().0;
        let room = std::thread::available_parallelism().map_or(1, usize::from);
        let mut turns = Vec::new();
        for n in 0..2 * room {
            let robot = User::service_account("shop", &format!("r{n}"));
            turns.extend(server.heavy_turn(&robot).now_or_never().map(|turn| turn.unwrap().unwrap()));
        }
        assert_eq!(turns.len(), (room * 3 / 4).max(1));
        // what has to be done is done when there is a turn
        let robot = User::service_account("shop", "last");
        let mut last = Box::pin(server.heavy_turn_at_last(&robot));
        assert!(last.as_mut().now_or_never().is_none());
        let jane = User::new("jane", Vec::<String>::new());
        assert!(room == 1 || server.heavy_turn(&jane).now_or_never().is_some());
        drop(turns);
        assert!(last.now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn a_namespace_that_goes_is_seen_to_go_whatever_others_noted_on_it() {
        let store = Store::in_memory(store::Options::default());
        for (name, text) in [("goes", r#"{"metadata":{"deletionTimestamp":"x"}}"#), ("stays", r#"{"metadata":{}}"#)] {
            let op = Op::put("n", name, text.as_bytes().to_vec(), Expect::Absent);
            store.commit(Transaction { ops: vec![op] }).await.unwrap();
            let entry = store.get("n", name).unwrap();
            entry.memo.get_or_init(|| "what a watch noted");
            assert_eq!(terminating(&entry), name == "goes");
        }
    }
}
