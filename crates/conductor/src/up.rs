//! `conductor up`: everything, in one process, on one machine.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use conductor_apiserver::audit::{Audit, Keep, Level, Policy};
use conductor_apiserver::http::Listening;
use conductor_apiserver::{Options as ServerOptions, Server, User, pki};
use conductor_managers::{Managers, Options, install};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::review::{Known, Review};

/// Serve the Kubernetes API on this machine: TLS, authentication and a durable store from the first start.
///
/// kubectl and every other Kubernetes client can talk to it with the kubeconfig that is written at start. State survives
/// restarts and crashes; one process at a time may use a data directory.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor up\n  conductor up --data-dir /var/lib/conductor --listen 127.0.0.1:6443\n\nThen, in another terminal:\n  export KUBECONFIG=$HOME/.conductor/kubeconfig\n  kubectl get namespaces"
)]
pub struct Args {
    #[command(flatten)]
    data_dir: DataDir,
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Where to write the administrator's kubeconfig [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Tokens that stand for users, one per line: token,user,uid,"group1,group2"
    #[arg(long, value_name = "CSV")]
    token_auth_file: Option<PathBuf>,
    /// Say who did what, one JSON line per request (audit.k8s.io/v1), in this file
    #[arg(long, value_name = "FILE")]
    audit_log_file: Option<PathBuf>,
    /// What the audit log says about which requests: a Policy of audit.k8s.io/v1 [default: metadata of everything]
    #[arg(long, value_name = "YAML", requires = "audit_log_file")]
    audit_policy_file: Option<PathBuf>,
    /// How large the audit log gets before it is put aside, beside it with the time in its name, and begun anew; 0: it grows on
    #[arg(long, value_name = "MIB", requires = "audit_log_file", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// How many audit logs that were put aside are kept, the newest; 0: all
    #[arg(long, value_name = "FILES", requires = "audit_log_file", default_value_t = 10)]
    audit_log_maxbackup: usize,
    /// For how many days audit logs that were put aside are kept; 0: for ever
    #[arg(long, value_name = "DAYS", requires = "audit_log_file", default_value_t = 0)]
    audit_log_maxage: u64,
}

/// How long the managers lead without a word: a `conductor manager` beside this server waits as long.
const LEASE: Duration = Duration::from_secs(60);

/// How long the types of claims may keep the word that it is ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a server keeps its state.
#[derive(clap::Args)]
pub struct DataDir {
    /// Where all state of the server is kept: objects, certificates, keys [default: ~/.conductor]
    #[arg(long, value_name = "DIR", env = "CONDUCTOR_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

impl DataDir {
    /// The directory that is meant.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        let home = || std::env::var_os("HOME").filter(|home| !home.is_empty());
        let usual = || home().map(|home| PathBuf::from(home).join(".conductor"));
        self.data_dir.clone().or_else(usual).context("HOME is not set: say where state is kept with --data-dir DIR")
    }
}

/// Runs until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    let data_dir = args.data_dir.path()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let known = Arc::new(Known::default());
    let audit = match &args.audit_log_file {
        None => None,
        Some(file) => {
            let policy = match &args.audit_policy_file {
                Some(path) => Policy::open(path).with_context(|| format!("cannot use {}", path.display()))?,
                None => Policy::at(Level::Metadata),
            };
            let keep = Keep {
                size: args.audit_log_maxsize.saturating_mul(1 << 20),
                backups: args.audit_log_maxbackup,
                age: Duration::from_secs(args.audit_log_maxage.saturating_mul(24 * 3600)),
            };
            Some(Audit::open(file, keep, policy).with_context(|| format!("cannot write {}", file.display()))?)
        }
    };
    let server = Server::start(ServerOptions {
        data_dir: Some(data_dir.clone()),
        token_file: args.token_auth_file,
        audit,
        admission: vec![Box::new(Review(known.clone()))],
        ..ServerOptions::default()
    })
    .await
    .with_context(|| format!("cannot start on data directory {}{}", data_dir.display(), left_mounted(&data_dir)))?;
    let listening =
        server.listen(args.listen).await.context("choose another --listen address, or port 0 for a free one")?;
    let path = args.kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
    let url = format!("https://{}", reachable(listening.address));
    let kubeconfig = server.pki().kubeconfig(&url, "admin", Some("system:masters"))?;
    match pki::write_secret(&path, kubeconfig.as_bytes()) {
        // A full disk keeps nobody from what is there.
        Err(error) if path.exists() => tracing::warn!(%error, "the kubeconfig of an earlier start stays as it is"),
        written => written?,
    }

    let (types, served) = oneshot::channel();
    let managing = tokio::spawn(manage(server.clone(), known, data_dir.clone(), types));
    // Whoever reads that it is ready can make a claim. What goes wrong with the types is logged, and the API is there all the same.
    tokio::select! {
        _ = served => {}
        _ = tokio::time::sleep(PATIENCE) => tracing::warn!("the types of claims are not served yet; the API is"),
        _ = terminate.recv() => return stop(&server, listening, &managing).await,
        _ = interrupt.recv() => return stop(&server, listening, &managing).await,
    }

    // Nobody need listen: a closed standard output does not end the server.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "conductor is ready on {url} after {:.0} ms", started.elapsed().as_secs_f64() * 1000.0);
    let _ = writeln!(out, "  state       {}", data_dir.display());
    let _ = writeln!(out, "  kubeconfig  {}", path.display());
    let own = std::env::args().next().unwrap_or_else(|| "conductor".into());
    let _ = writeln!(
        out,
        "\nnext: in another terminal, see what can be claimed, claim some of it, and why it is bound or waits"
    );
    let _ = writeln!(out, "  export KUBECONFIG={}", path.display());
    let _ = writeln!(out, "  {own} classes");
    let _ = writeln!(out, "  kubectl apply -f examples/volume-claim.yaml");
    let _ = writeln!(out, "  {own} explain pvc/files");
    let _ = out.flush();

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop(&server, listening, &managing).await
}

/// What to do where a data directory was removed while volumes of it were mounted; empty: none are, or it is whole.
fn left_mounted(data_dir: &Path) -> String {
    let whole = data_dir.join("pki").exists();
    let all = conductor_volumes::mounts::all().unwrap_or_default();
    let below: Vec<String> =
        all.iter().filter(|m| m.point.starts_with(data_dir)).map(|m| m.point.display().to_string()).collect();
    match whole || below.is_empty() {
        true => String::new(),
        false => format!(
            ", which seems to be what is left of one that was removed (umount {}; rm -r {})",
            below.join(" "),
            data_dir.display()
        ),
    }
}

async fn stop(server: &Server, listening: Listening, managing: &JoinHandle<()>) -> anyhow::Result<()> {
    eprintln!("stopping");
    managing.abort();
    listening.stop().await;
    server.store().close();
    Ok(())
}

/// Installs what managers and providers need, then runs them, each as the service account it would have on a cluster.
/// `types` is dropped when every type is served, or when something stands in their way.
async fn manage(server: Server, known: Arc<Known>, data_dir: PathBuf, types: oneshot::Sender<()>) {
    let admin = User::new("conductor:up", ["system:masters"]);
    let api = conductor_managers::Api::new(server.client(admin));
    // Another start has made them, and they were served with the first request.
    let mut types = Some(types);
    if install::is_there(&api).await {
        types = None;
    }
    // A webhook that is down, say, may stand in the way for a while.
    while let Err(error) = install::install(&api).await {
        tracing::error!(%error, "the types could not be installed, and no managers run; will try again");
        types = None;
        tokio::time::sleep(PATIENCE).await;
    }
    known.follow(&api);
    crate::grants::follow(&api);
    let own = |name: &str| {
        let account = conductor_local::install::account(name);
        server.client(User::service_account(conductor_local::SYSTEM_NAMESPACE, &account))
    };
    let _providing = crate::providers::start(crate::providers::all(), &api, &data_dir, own);
    let account = User::service_account("conductor-system", install::ACCOUNT);
    // One name for every start: after a crash nobody waits for the Lease of who is gone.
    let options = Options { identity: Some("conductor-up".into()), lease: LEASE, ..Options::default() };
    loop {
        match Managers::start(server.client(account.clone()), options.clone()).await {
            Ok(mut managers) => {
                let metrics = managers.metrics();
                server.add_metrics(move || metrics.text());
                let patience = Instant::now() + PATIENCE;
                while types.is_some() && !managers.types_are_served() && Instant::now() < patience {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                types = None;
                managers.run().await;
            }
            Err(error) => {
                tracing::error!(%error, "no managers run");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

/// The address that clients on this machine use.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    address
}
