//! Programs that tests use: found, or got.
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::kubernetes::build::{self, Program};
use crate::missing::Missing;
use crate::repository;

/// The tests that need a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tier {
    /// `cargo test`: real clients against the embedded server.
    Tests,
    /// The same scenarios on a real Kubernetes.
    Kubernetes,
    /// Providers of real infrastructure on this machine.
    Providers,
    /// Kubernetes' own tests, `cargo xtask conformance`.
    Conformance,
}

/// How a tool is got.
enum Source {
    /// Built from a Go module below `tools`. One on PATH is never taken: its version is anyone's guess.
    Go(Program),
    /// A Debian package. Also looked for in these directories, which PATH may lack.
    Apt { package: &'static str, also: &'static [&'static str] },
}

struct Tool {
    name: &'static str,
    source: Source,
    tier: Tier,
}

/// Debian keeps each version's server apart.
const POSTGRES: &[&str] = &[
    "/usr/lib/postgresql/18/bin",
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
];
const SBIN: &[&str] = &["/usr/sbin", "/sbin"];

const TOOLS: &[Tool] = &[
    Tool { name: "kubectl", source: Source::Go(Program::Kubectl), tier: Tier::Tests },
    Tool { name: "helm", source: Source::Go(Program::Helm), tier: Tier::Kubernetes },
    Tool { name: "etcd", source: Source::Go(Program::Etcd), tier: Tier::Kubernetes },
    Tool { name: "kube-apiserver", source: Source::Go(Program::KubeApiserver), tier: Tier::Kubernetes },
    Tool {
        name: "kube-controller-manager",
        source: Source::Go(Program::KubeControllerManager),
        tier: Tier::Kubernetes,
    },
    Tool { name: "clients", source: Source::Go(Program::Clients), tier: Tier::Kubernetes },
    Tool { name: "e2e.test", source: Source::Go(Program::E2e), tier: Tier::Conformance },
    Tool { name: "ginkgo", source: Source::Go(Program::Ginkgo), tier: Tier::Conformance },
    Tool { name: "kube-scheduler", source: Source::Go(Program::KubeScheduler), tier: Tier::Conformance },
    Tool { name: "fakelet", source: Source::Go(Program::Fakelet), tier: Tier::Conformance },
    Tool { name: "kubectl-convert", source: Source::Go(Program::KubectlConvert), tier: Tier::Conformance },
    Tool { name: "psql", source: Source::Apt { package: "postgresql-client", also: &[] }, tier: Tier::Providers },
    Tool { name: "postgres", source: Source::Apt { package: "postgresql", also: POSTGRES }, tier: Tier::Providers },
    Tool { name: "mariadbd", source: Source::Apt { package: "mariadb-server", also: SBIN }, tier: Tier::Providers },
    Tool { name: "haproxy", source: Source::Apt { package: "haproxy", also: SBIN }, tier: Tier::Providers },
    Tool { name: "curl", source: Source::Apt { package: "curl", also: &[] }, tier: Tier::Providers },
    Tool { name: "mkfs.ext4", source: Source::Apt { package: "e2fsprogs", also: SBIN }, tier: Tier::Providers },
    Tool { name: "mkfs.xfs", source: Source::Apt { package: "xfsprogs", also: SBIN }, tier: Tier::Providers },
];

/// Which tools.
#[derive(clap::Args)]
pub struct Options {
    /// The tools to get [default: those that `cargo xtask test` needs]
    names: Vec<String>,
    /// All tools that these tests need (repeatable)
    #[arg(long)]
    tier: Vec<Tier>,
    /// Print the path of this tool, for scripts; gets it first if need be
    #[arg(long, value_name = "TOOL", conflicts_with_all = ["names", "tier"])]
    path: Option<String>,
}

/// `cargo xtask tools`.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(name) = &options.path {
        println!("{}", ensure(find(name)?)?.0.display());
        return Ok(());
    }
    let mut wanted = options.names.iter().map(|name| find(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let default: &[Tier] = if wanted.is_empty() { &[Tier::Tests, Tier::Kubernetes] } else { &[] };
    let tiers = if options.tier.is_empty() { default } else { &options.tier };
    wanted.extend(TOOLS.iter().filter(|tool| tiers.contains(&tool.tier)));
    wanted.iter().try_for_each(|tool| report(tool))
}

/// Gets all tools of a tier, one line each.
pub fn ensure_tier(tier: Tier) -> anyhow::Result<()> {
    TOOLS.iter().filter(|tool| tool.tier == tier).try_for_each(report)
}

/// Where a tool is, if the machine has it.
pub fn path(name: &str) -> Option<PathBuf> {
    look(find(name).ok()?).ok().flatten()
}

fn find(name: &str) -> anyhow::Result<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name).with_context(|| {
        let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        format!("no tool is called {name}: there are {}", known.join(", "))
    })
}

fn report(tool: &Tool) -> anyhow::Result<()> {
    let (path, got) = ensure(tool)?;
    println!("{}: {} ({})", tool.name, path.display(), if got { "installed" } else { "found" });
    Ok(())
}

/// The tool's path, and whether it had to be got.
fn ensure(tool: &Tool) -> anyhow::Result<(PathBuf, bool)> {
    if let Some(path) = look(tool)? {
        return Ok((path, false));
    }
    match tool.source {
        Source::Go(program) => {
            build::build(&[program])?;
            Ok((program.path()?, true))
        }
        Source::Apt { package, .. } => {
            install(tool.name, package)?;
            let path = look(tool)?.with_context(|| format!("package {package} did not bring {}", tool.name))?;
            Ok((path, true))
        }
    }
}

fn look(tool: &Tool) -> anyhow::Result<Option<PathBuf>> {
    Ok(match tool.source {
        Source::Go(program) => Some(program.path()?).filter(|path| path.is_file()),
        Source::Apt { also, .. } => {
            let also: Vec<PathBuf> = also.iter().map(PathBuf::from).collect();
            repository::find_program(tool.name, &also)
        }
    })
}

fn install(name: &str, package: &str) -> anyhow::Result<()> {
    let may = rustix::process::geteuid().is_root() && repository::find_program("apt-get", &[]).is_some();
    if !may {
        return Err(Missing {
            what: name.into(),
            needed_to: "run the tests that use it".into(),
            remedy: format!("install it, on Debian with: sudo apt-get install {package}"),
        }
        .into());
    }
    eprintln!("installing {package} ...");
    let apt = |arguments: &[&str]| -> anyhow::Result<bool> {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o=Dpkg::Use-Pty=0"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        // What xtask prints on stdout is for scripts.
        command.stdout(std::io::stderr());
        Ok(command.status().context("running apt-get")?.success())
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    // A fresh machine has no package lists yet.
    if apt(&install)? || (apt(&["update"])? && apt(&install)?) {
        return Ok(());
    }
    bail!("apt-get could not install {package}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_that_go_builds_is_a_tool_of_that_name() {
        for program in Program::ALL.into_iter().chain(Program::CONFORMANCE) {
            let tool = find(program.name()).expect("in the table");
            assert!(matches!(tool.source, Source::Go(p) if p == program), "{}", tool.name);
        }
    }

    #[test]
    fn an_unknown_tool_is_refused_with_those_there_are() {
        let error = find("kubctl").err().expect("refused").to_string();
        assert!(error.contains("kubctl") && error.contains("kubectl"), "{error}");
    }
}
