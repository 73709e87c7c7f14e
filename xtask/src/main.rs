//! Everything a developer of Conductor runs.
#[cfg(test)]
mod arrows;
mod bench;
mod conductor;
mod conformance;
mod ecosystem;
mod fuzz;
mod generate;
mod kubernetes;
mod missing;
mod repository;
mod steps;
mod test;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use kubernetes::build::{self, Program};
use missing::Missing;

/// Everything a developer of Conductor runs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, lints, all tests, and those on a real Kubernetes if there is Go to build one
    Test(test::Options),
    /// Get the programs that tests use and this machine lacks
    Tools(tools::Options),
    /// Load on an API server, ours or any other, and how fast it is
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run Kubernetes' own end-to-end tests, those that need no container, on ours or on any other
    Conformance(conformance::Options),
    /// Fetch other projects' definitions and examples to test with (tools/ecosystem.json), print the file that lists them
    Ecosystem,
    /// Run the fuzz targets, each for a while
    Fuzz(fuzz::Options),
    /// Write the table of built-in kinds (crates/kinds/data) from a real kube-apiserver's OpenAPI and Go's types
    Generate(generate::Options),
    /// A real Kubernetes control plane on this machine, to compare with
    #[command(subcommand)]
    Kubernetes(Kubernetes),
}

#[derive(Subcommand)]
enum Kubernetes {
    /// Build etcd, kube-apiserver, kube-controller-manager, kubectl and helm from their Go modules
    Build,
    /// Start a control plane, wait until it is ready, print its kubeconfig's path
    Up(kubernetes::Options),
    /// Stop it and remove its data
    Down(StateDir),
    /// Say what runs; fails unless all of it does
    Status(StateDir),
    /// Kill one component, as a crash would
    Kill {
        /// Which
        component: Program,
        #[command(flatten)]
        at: StateDir,
    },
    /// Start a killed component again, on its data and port
    Start {
        /// Which
        component: Program,
        #[command(flatten)]
        at: StateDir,
    },
}

#[derive(clap::Args)]
struct StateDir {
    /// The control plane's state directory [default: target/kubernetes]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            match error.is::<Missing>() {
                true => ExitCode::from(Missing::EXIT_CODE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Bench(bench) => bench::run(&bench),
        Command::Conformance(options) => conformance::run(&options),
        Command::Ecosystem => {
            println!("{}", ecosystem::fetch()?.display());
            Ok(())
        }
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Generate(options) => generate::generate(&options),
        Command::Test(options) => test::run(&options),
        Command::Tools(options) => tools::run(&options),
        Command::Kubernetes(command) => run_kubernetes(command),
    }
}

fn run_kubernetes(command: Kubernetes) -> anyhow::Result<()> {
    match command {
        Kubernetes::Build => {
            let built = build::build(&Program::ALL)?;
            if built.is_empty() {
                eprintln!("all built already");
            }
            for program in Program::ALL {
                println!("{}", program.path()?.display());
            }
        }
        Kubernetes::Up(options) => {
            let plane = kubernetes::up(&options)?;
            if plane.ready_after.is_empty() {
                eprintln!("already up in {}", plane.dir.display());
            }
            for (program, after) in &plane.ready_after {
                eprintln!("{} ready after {:.2} s", program.name(), after.as_secs_f64());
            }
            println!("{}", plane.kubeconfig().display());
        }
        Kubernetes::Down(at) => kubernetes::down(at.state_dir.as_deref())?,
        Kubernetes::Status(at) => {
            let (dir, components) = kubernetes::status(at.state_dir.as_deref())?;
            for component in &components {
                let state = component.pid.map_or("not running".into(), |pid| format!("running, pid {pid}"));
                println!("{}: {state}", component.program.name());
            }
            if components.is_empty() || components.iter().any(|c| c.pid.is_none()) {
                anyhow::bail!("no control plane is up in {}: cargo xtask kubernetes up", dir.display());
            }
        }
        Kubernetes::Kill { component, at } => kubernetes::kill(at.state_dir.as_deref(), component)?,
        Kubernetes::Start { component, at } => kubernetes::start_again(at.state_dir.as_deref(), component)?,
    }
    Ok(())
}
