//! Conductor: a control plane for infrastructure.

mod up;

use clap::{Parser, Subcommand};

/// A control plane for infrastructure: says what there is, claims what is needed, binds the one to the other.
#[derive(Parser)]
#[command(name = "conductor", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the Kubernetes API on this machine, with everything Conductor does
    Up(up::Args),
}

fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CONDUCTOR_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = match Cli::parse().command {
        Command::Up(args) => runtime.block_on(up::run(args)),
    };
    // Whatever still runs has had its chance; do not wait for it.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    result
}
