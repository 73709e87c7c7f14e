//! `cargo xtask test`: everything a change must pass.
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::ecosystem;
use crate::kubernetes::{self, build};
use crate::repository;
use crate::steps::Steps;
use crate::tools::{self, Tier};

/// Tells tests where a real Kubernetes is.
pub const KUBECONFIG: &str = "CONDUCTOR_KUBERNETES_KUBECONFIG";

/// Tells those tests how to start control planes of their own.
const XTASK: &str = "CONDUCTOR_XTASK";

/// Test targets with this prefix make up the tier on a real Kubernetes. Without [`KUBECONFIG`] they
/// say that they did nothing.
const TIER_PREFIX: &str = "kubernetes";

/// The load generator is checked and tested, too.
const BENCH: &str = "--features=xtask/bench";

const TIER: &str = "tests on a real Kubernetes";

/// How much is tested.
#[derive(clap::Args)]
pub struct Options {
    /// Leave out the tier that runs on a real Kubernetes
    #[arg(long, conflicts_with_all = ["require_kubernetes", "kubeconfig"])]
    quick: bool,
    /// Fail, rather than skip that tier, if there is no Go to build a Kubernetes with; also by CI=true
    #[arg(long)]
    require_kubernetes: bool,
    /// Run that tier on this cluster instead of one built and started for it, without the tests that crash control planes. It must
    /// be one for tests: Conductor is installed there, and namespaces apps and wordpress are made and removed
    #[arg(long, value_name = "FILE", env = KUBECONFIG)]
    kubeconfig: Option<PathBuf>,
}

/// `cargo xtask test`.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut steps = Steps::default();
    let result = run_steps(options, &mut steps);
    eprintln!("\n{}", steps.summary());
    result
}

fn run_steps(options: &Options, steps: &mut Steps) -> anyhow::Result<()> {
    let required = options.require_kubernetes || env::var("CI").is_ok_and(|ci| ci == "true");
    let go = build::go();
    match &go {
        Ok(_) => steps.run("tools for the tests", || tools::ensure_tier(Tier::Tests))?,
        Err(missing) if required => return Err(missing.clone().into()),
        Err(missing) => steps.skip("tools for the tests", missing.to_string()),
    }
    let infrastructure = "programs that providers run";
    match options.quick {
        true => steps.skip(infrastructure, "--quick"),
        // without them, the tests that need them say so
        false => match tools::ensure_tier(Tier::Providers) {
            Ok(()) => steps.run(infrastructure, || Ok(()))?,
            Err(error) => steps.skip(infrastructure, error.to_string()),
        },
    }
    steps.run("format", || cargo(&["fmt", "--all", "--check"], None))?;
    steps.run("lints", || {
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", BENCH, "--", "--deny", "warnings"], None)
    })?;
    // Without the advisories: their database is fetched, and a change must not fail by what was published meanwhile.
    let deny = ["deny", "--log-level=error", "check", "licenses", "bans", "sources"];
    match repository::find_program("cargo-deny", &[]) {
        Some(_) => steps.run("licences and sources", || cargo(&deny, None))?,
        None => steps.skip("licences and sources", "cargo-deny is not installed: cargo install cargo-deny"),
    }
    steps.run("tests", || cargo(&["test", "--quiet", "--workspace", BENCH], None))?;
    if options.quick {
        steps.skip(TIER, "--quick");
        return Ok(());
    }
    if let Some(kubeconfig) = &options.kubeconfig {
        let kubeconfig = fs::canonicalize(kubeconfig).with_context(|| format!("{}", kubeconfig.display()))?;
        return steps.run(TIER, || run_tier(Kubernetes::Given(&kubeconfig)));
    }
    if let Err(missing) = go {
        steps.skip(TIER, missing.to_string());
        return Ok(());
    }
    steps.run("build Kubernetes", || tools::ensure_tier(Tier::Kubernetes))?;
    let dir = repository::target().join("kubernetes-test");
    // One that an interrupted run left behind is not fresh.
    kubernetes::down(Some(&dir))?;
    // Kubernetes' controllers would otherwise hold themselves back, and each test that waits for them.
    let fast = kubernetes::Options { unlimited_qps: true, ..kubernetes::Options::new(&dir) };
    let plane = steps.run("start Kubernetes", || kubernetes::up(&fast))?;
    let result = steps.run(TIER, || run_tier(Kubernetes::Built(&plane.kubeconfig())));
    if result.is_err() && !required {
        eprintln!("Kubernetes keeps running for a look: KUBECONFIG={}", plane.kubeconfig().display());
        eprintln!("stop it with: cargo xtask kubernetes down --state-dir {}", dir.display());
        return result;
    }
    result.and(steps.run("stop Kubernetes", || kubernetes::down(Some(&dir))))
}

/// Where the tier runs.
#[derive(Clone, Copy)]
enum Kubernetes<'k> {
    /// On one that was built here, as its tests may build more.
    Built(&'k Path),
    /// On somebody's.
    Given(&'k Path),
}

fn run_tier(kubernetes: Kubernetes<'_>) -> anyhow::Result<()> {
    let metadata = repository::cargo()
        .args(["metadata", "--format-version=1", "--no-deps"])
        .output()
        .context("running cargo metadata")?;
    if !metadata.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&metadata.stderr));
    }
    if !has_tier(&serde_json::from_slice(&metadata.stdout)?) {
        eprintln!("no test target is called {TIER_PREFIX}* yet");
        return Ok(());
    }
    // The output is shown: what was compared, and how often, is the point of these tests.
    // All of it, whatever fails first: each takes its time, and the next run would show the next only.
    let targets = format!("{TIER_PREFIX}*");
    cargo(&["test", "--workspace", "--no-fail-fast", "--test", &targets, "--", "--nocapture"], Some(kubernetes))
}

fn has_tier(metadata: &Value) -> bool {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    list(metadata, "packages").iter().flat_map(|package| list(package, "targets")).any(|target| {
        let test = list(&target, "kind").iter().any(|kind| kind == "test");
        test && target["name"].as_str().is_some_and(|name| name.starts_with(TIER_PREFIX))
    })
}

/// Runs cargo. Tests find kubectl and helm on PATH and by `CONDUCTOR_KUBECTL` and `CONDUCTOR_HELM`.
fn cargo(arguments: &[&str], kubernetes: Option<Kubernetes<'_>>) -> anyhow::Result<()> {
    let mut command = repository::cargo();
    command.args(arguments).env_remove(KUBECONFIG).env_remove(XTASK);
    let variables = [("CONDUCTOR_KUBECTL", "kubectl"), ("CONDUCTOR_HELM", "helm"), ("CONDUCTOR_CLIENTS", "clients")];
    for (variable, tool) in variables {
        if let Some(path) = tools::path(tool) {
            command.env(variable, path);
        }
    }
    if let Some(dir) = tools::path("kubectl").and_then(|path| Some(path.parent()?.to_path_buf())) {
        let inherited = env::var_os("PATH").unwrap_or_default();
        command.env("PATH", env::join_paths(std::iter::once(dir).chain(env::split_paths(&inherited)))?);
    }
    if let Some(Kubernetes::Built(kubeconfig) | Kubernetes::Given(kubeconfig)) = kubernetes {
        command.env(KUBECONFIG, kubeconfig);
        command.env(ecosystem::VARIABLE, ecosystem::fetch()?);
    }
    if let Some(Kubernetes::Built(_)) = kubernetes {
        // tests that crash a control plane start one of their own
        command.env(XTASK, env::current_exe()?);
    }
    match command.status().context("running cargo")? {
        status if status.success() => Ok(()),
        status => bail!("cargo {}: {status}", arguments.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_tier_is_found_by_the_names_of_test_targets() {
        let check = |kind: &str, name: &str, expected: bool| {
            let metadata = json!({"packages": [{"targets": [{"kind": [kind], "name": name}]}]});
            assert_eq!(has_tier(&metadata), expected, "{kind} {name}");
        };
        check("test", "kubernetes_parity", true);
        check("test", "parity", false);
        check("lib", "kubernetes_parity", false);
    }
}
