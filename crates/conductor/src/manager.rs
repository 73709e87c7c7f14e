//! `conductor manager`: the managers alone, against any API server.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use conductor_managers::{Api, Managers, Options, install};
use kube::config::{Kubeconfig, KubeconfigError};
use tokio::signal::unix::{SignalKind, signal};

use crate::webhook::Webhook;

/// Which API server, and as whom.
#[derive(clap::Args)]
pub struct Cluster {
    /// How to reach the API server [default: KUBECONFIG, then ~/.conductor/kubeconfig, then the cluster it runs in]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Which of its contexts
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
}

impl Cluster {
    /// The client, and the namespace its context means.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        let options = kube::config::KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        let ours = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".conductor/kubeconfig"));
        let from_env = std::env::var_os("KUBECONFIG").is_some_and(|v| !v.is_empty());
        let file = match (&self.kubeconfig, from_env) {
            (Some(file), _) => Some(file.clone()),
            (None, true) => None,
            (None, false) => ours.filter(|file| file.exists()),
        };
        let named = match (&file, from_env) {
            (Some(file), _) => file.display().to_string(),
            (None, true) => std::env::var("KUBECONFIG").unwrap_or_default(),
            (None, false) => "~/.kube/config".to_owned(),
        };
        let unusable = |error: KubeconfigError| unusable(&named, &error);
        let config = match file {
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(&file).map_err(unusable)?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?
            }
            None if self.context.is_some() || from_env => {
                kube::Config::from_kubeconfig(&options).await.map_err(unusable)?
            }
            None => kube::Config::infer().await.ok().context(
                "there is no kubeconfig, neither in ~/.conductor nor in ~/.kube: start a server with conductor up, or say \
                 which with KUBECONFIG or --kubeconfig FILE",
            )?,
        };
        kube::Client::try_from(config).with_context(|| format!("kubeconfig {named} cannot be used"))
    }

    /// The API behind it.
    pub async fn api(&self) -> anyhow::Result<(Api, String)> {
        let client = self.client().await?;
        let namespace = client.default_namespace().to_owned();
        Ok((Api::new(client), namespace))
    }
}

/// Which file cannot be used, why, and what to do.
fn unusable(file: &str, error: &KubeconfigError) -> anyhow::Error {
    let (why, what) = match error {
        KubeconfigError::ReadConfig(error, _) => (error.to_string(), "see that it is there and may be read"),
        KubeconfigError::Parse(_) => ("it is no YAML of a kubeconfig".to_owned(), "correct it"),
        KubeconfigError::CurrentContextNotSet => ("it has no current-context".to_owned(), "say which with --context"),
        KubeconfigError::LoadContext(name) => (format!("it has no context {name}"), "correct --context"),
        other => (other.to_string(), "correct it"),
    };
    anyhow::anyhow!(
        "cannot use kubeconfig {file}: {why}: {what}, or name another with --kubeconfig FILE; conductor up writes one into its data directory"
    )
}

/// Run the managers: bind claims, make what is missing, clean what comes back.
///
/// What they need is installed first, as `conductor install` prints it. Any number of processes may run; the one that holds the
/// Lease conductor-system/conductor-managers works, the others wait. PersistentVolumes are left to the cluster's own binder
/// unless --volumes is given.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor manager\n  conductor manager --kubeconfig admin.conf --volumes\n  conductor manager --webhook 127.0.0.1:9443"
)]
pub struct Args {
    #[command(flatten)]
    cluster: Cluster,
    /// Bind PersistentVolumes too; only where no other binder does
    #[arg(long)]
    volumes: bool,
    /// Leave ResourceTypes alone
    #[arg(long)]
    no_types: bool,
    /// Install nothing: definitions, types and roles are there, or someone else sees to them
    #[arg(long)]
    no_install: bool,
    /// Refuse at admission what cannot be, as `conductor up` does: listen here for the API server's webhook
    #[arg(long, value_name = "ADDR:PORT")]
    webhook: Option<SocketAddr>,
    /// How the API server reaches it [default: that address, or for 0.0.0.0 the Service conductor-system/conductor-review]
    #[arg(long, value_name = "URL", requires = "webhook")]
    webhook_url: Option<String>,
    /// The name under which this process leads [default: host name and process id]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
}

/// Installs what managers and providers need. Who may not has it installed by an administrator.
pub async fn install(api: &Api) -> anyhow::Result<()> {
    match install::install(api).await {
        // as a service account it may not give itself rights
        Err(failure) if failure.code == 403 => {
            eprintln!("installing nothing, for that takes an administrator (conductor install): {failure}");
            Ok(())
        }
        installed => installed.context("cannot install what is needed"),
    }
}

/// Runs until leadership is lost.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = args.cluster.client().await?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let identity = args.identity.unwrap_or_else(|| format!("{}-{}", host.trim(), std::process::id()));
    if !args.no_install {
        install(&Api::new(client.clone())).await?;
    }
    let api = Api::new(client.clone());
    let webhook = match args.webhook {
        Some(listen) => Some(Webhook::start(&api, listen, args.webhook_url).await?),
        None => None,
    };
    eprintln!("waiting to lead as {identity}");
    let options =
        Options { volumes: args.volumes, types: !args.no_types, identity: Some(identity), ..Options::default() };
    let starting = Managers::start(client, options);
    let mut managers = tokio::select! {
        started = starting => started.context("cannot start the managers")?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let how = if managers.is_transactional() { "transactions" } else { "ordered writes" };
    eprintln!("leading; writes go as {how}");
    if let Some(webhook) = &webhook {
        eprintln!("requests are reviewed at {}", webhook.address());
    }
    let registering = async {
        match &webhook {
            Some(webhook) => webhook.register(&api).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = registering => {}
        () = managers.run() => anyhow::bail!("leadership was lost: start again to wait for it"),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    eprintln!("stopping");
    managers.stop().await;
    Ok(())
}
