//! `conductor provider`: this machine's infrastructure for any API server.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use conductor_managers::Api;
use rustix::fs::{FlockOperation, flock};
use tokio::signal::unix::{SignalKind, signal};

use crate::manager::Cluster;
use crate::providers;
use crate::up::DataDir;

/// Run providers of this machine's infrastructure against any API server, as `conductor up` does against its own.
///
/// With `conductor manager` beside it, claims in a cluster are served by databases and balancers of this machine. What they need is installed
/// first, which takes an administrator. What others are to reach needs an address that is not this machine's alone: `spec.address` in
/// the class' template, or an AddressPool of such addresses. The provider of volumes also registers this machine as a Node.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor provider databases --data-dir /var/lib/conductor-provider\n  conductor provider databases balancers --kubeconfig admin.conf"
)]
pub struct Args {
    /// Which: databases, volumes, balancers
    #[arg(required = true, value_name = "PROVIDER")]
    names: Vec<String>,
    #[command(flatten)]
    data_dir: DataDir,
    #[command(flatten)]
    cluster: Cluster,
}

/// Runs until it is told to stop. What was started goes on.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let known: Vec<&str> = providers::all().iter().map(|provider| provider.name).collect();
    if let Some(other) = args.names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no provider {other}: there are {}", known.join(", "));
    }
    let dir = args.data_dir.path()?;
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let _locks = args.names.iter().map(|name| lock(&dir, name)).collect::<anyhow::Result<Vec<File>>>()?;
    let client = args.cluster.client().await?;
    let api = Api::new(client.clone());
    crate::manager::install(&api).await?;
    let chosen = providers::all().into_iter().filter(|provider| args.names.iter().any(|name| name == provider.name));
    let mut running = providers::start(chosen.collect(), &api, &dir, |_| client.clone());
    eprintln!("providing {}; state is in {}", args.names.join(", "), dir.display());
    tokio::select! {
        // they run for ever, or say why not
        _ = running.join_next() => bail!("a provider has ended: see what it said"),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    eprintln!("stopping");
    Ok(())
}

/// One process at a time has a provider's directory.
fn lock(dir: &Path, name: &str) -> anyhow::Result<File> {
    // the whole directory is a server's own
    ensure!(
        !dir.join("store").exists(),
        "{} is the data directory of a conductor up, which runs its own providers: choose another --data-dir",
        dir.display()
    );
    let path = dir.join(format!("{name}.lock"));
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("provider {name} already runs on {}", dir.display()))?;
    Ok(file)
}
