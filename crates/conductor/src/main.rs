//! Conductor: a control plane for infrastructure.

mod audit;
mod classes;
mod connect;
mod explain;
mod grants;
mod install;
mod logs;
mod manager;
mod out;
mod plan;
mod provider;
mod providers;
mod review;
mod tree;
mod up;
mod user;
mod webhook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use conductor_managers::api::Failure;

// Objects are trees of small pieces, made and dropped on several threads: the system's allocator takes a third of the time for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Run the managers alone, against any API server
    Manager(manager::Args),
    /// Run providers of this machine's infrastructure, against any API server
    Provider(provider::Args),
    /// Print what a cluster needs, as YAML for kubectl apply
    Install(install::Args),
    /// Say why a claim is bound to what it is, or why it waits
    Explain(explain::Args),
    /// Say what would happen if a file were applied
    Plan(plan::Args),
    /// Show a claim or a resource with all that belongs to it
    Tree(tree::Args),
    /// Show what can be claimed
    Classes(classes::Args),
    /// Check that everything is as it must be, here and outside
    Audit(audit::Args),
    /// Give people access
    User(user::Args),
    /// Open the client that goes with a claim, with its credentials
    Connect(connect::Args),
    /// Show the log of the process behind a claim
    Logs(logs::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let unreachable = |e: &(dyn std::error::Error + 'static)| {
                e.downcast_ref::<Failure>().is_some_and(|failure| failure.reason == "Unreachable")
            };
            let hint = match error.chain().any(unreachable) {
                true => ": start one with conductor up, or see where KUBECONFIG or --kubeconfig points",
                false => "",
            };
            eprintln!("error: {error:#}{hint}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    // The allocator asks for huge pages, which are never full here: without them a third less memory is in use.
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true).ok();
    // what the client says there is in the error as well
    let usual = || "warn,kube_client::client::builder=off".into();
    let filter = tracing_subscriber::EnvFilter::try_from_env("CONDUCTOR_LOG").unwrap_or_else(|_| usual());
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = match Cli::parse().command {
        Command::Up(args) => runtime.block_on(up::run(args)),
        Command::Manager(args) => runtime.block_on(manager::run(args)),
        Command::Provider(args) => runtime.block_on(provider::run(args)),
        Command::Install(args) => install::run(&args),
        Command::Explain(args) => runtime.block_on(explain::run(args)),
        Command::Plan(args) => runtime.block_on(plan::run(args)),
        Command::Tree(args) => runtime.block_on(tree::run(args)),
        Command::Classes(args) => runtime.block_on(classes::run(args)),
        Command::Audit(args) => runtime.block_on(audit::run(args)),
        Command::User(args) => runtime.block_on(user::run(args)),
        Command::Connect(args) => runtime.block_on(connect::run(args)),
        Command::Logs(args) => runtime.block_on(logs::run(args)),
    };
    // Whatever still runs has had its chance; do not wait for it.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    result
}
