//! Kubernetes' own end-to-end tests, those of them that need an API server and no container.
//!
//! Which these are is data, `tools/conformance/specs.json`. Nodes are played by `fakelet`, scheduler and workloads' controllers
//! are Kubernetes' own on either server, so that what fails here and passes there is a bug of ours. A suite may also be scripts:
//! kubectl's own tests.
mod cmd;
mod report;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::conductor::{self, Conductor};
use crate::kubernetes::build::{self, Program};
use crate::{kubernetes, repository};
use report::Report;

/// What to run, and on what.
#[derive(clap::Args)]
pub struct Options {
    /// The server to test, with all that belongs to it; a `conductor up` of its own, built in release, if not given
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Test a real Kubernetes, as `cargo xtask kubernetes up` starts it
    #[arg(long, conflicts_with = "kubeconfig")]
    real: bool,
    /// The conductor to test; one built in release if not given
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "real"])]
    program: Option<PathBuf>,
    /// Only these suites of tools/conformance/specs.json (repeatable)
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Instead of the suites, the specs whose names match this; with `--suite cmd`, only these of its functions
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// How many specs at once, where a suite does not say
    #[arg(long, value_name = "N", default_value_t = 4)]
    procs: usize,
    /// Where logs and reports go [default: target/conformance]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// `cargo xtask conformance`.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let specs = specs()?;
    ensure!(options.focus.is_none() || options.suite.iter().all(|name| name == "cmd"), "--focus is instead of --suite");
    let focused = options.focus.as_ref().map(|focus| json!({"name": "focus", "focus": focus}));
    let focused = focused.filter(|_| options.suite.is_empty());
    let suites = match &focused {
        Some(suite) => vec![suite],
        None => chosen(&specs, &options.suite)?,
    };
    let mut programs = Program::CONFORMANCE.to_vec();
    programs.extend([Program::Kubectl, Program::KubeControllerManager, Program::Etcd]);
    build::build(&programs)?;
    let dir = options.output.clone().unwrap_or_else(|| repository::target().join("conformance"));
    let dir = std::path::absolute(dir)?;
    fs::create_dir_all(&dir)?;
    let (scripts, specified): (Vec<&Value>, Vec<&Value>) =
        suites.into_iter().partition(|suite| suite["scripts"].is_string());
    let mut reports = Vec::new();
    for (suites, nodes) in [(specified, true), (scripts, false)] {
        if suites.is_empty() {
            continue;
        }
        let mut cluster = Cluster::start(options, &specs, &dir, nodes)?;
        for suite in suites {
            let name = suite["name"].as_str().unwrap_or_default();
            eprintln!("\n==> {name}");
            let report = if nodes {
                cluster.run(suite, &specs, options, &dir)?
            } else {
                let only = options.focus.as_deref().unwrap_or(".*");
                cmd::run(&cluster.kubeconfig, only, &skipped(&Value::Null, suite), &dir)?
            };
            println!("{name}: {}", report.counts());
            reports.push(report);
        }
        cluster.still_well()?;
    }
    let all = reports.into_iter().fold(Report::default(), Report::and);
    println!("\n{all}");
    let list = dir.join("results.txt");
    fs::write(&list, all.list()).with_context(|| format!("writing {}", list.display()))?;
    eprintln!("every spec and how it went: {}", list.display());
    ensure!(all.failed() == 0, "{} of Kubernetes' specs fail", all.failed());
    ensure!(all.passed() > 0, "no spec was run: see {}", dir.display());
    Ok(())
}

fn specs() -> anyhow::Result<Value> {
    let file = repository::root().join("tools/conformance/specs.json");
    let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{}", file.display()))
}

fn chosen<'a>(specs: &'a Value, names: &[String]) -> anyhow::Result<Vec<&'a Value>> {
    let all = specs["suites"].as_array().context("specs.json has no suites")?;
    if names.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |name: &String| {
        all.iter().find(|suite| suite["name"] == **name).with_context(|| {
            let known: Vec<&str> = all.iter().filter_map(|suite| suite["name"].as_str()).collect();
            format!("no suite is called {name}: there are {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// What is left out, as one expression.
fn skipped(specs: &Value, suite: &Value) -> String {
    let lists = [&specs["skip"], &suite["skip"]];
    let expressions =
        lists.iter().filter_map(|list| list.as_array()).flatten().filter_map(|skip| skip["specs"].as_str());
    expressions.collect::<Vec<_>>().join("|")
}

/// A process that ends with this.
struct Helper(Child);

impl Helper {
    fn start(program: Program, arguments: &[String], log: &Path) -> anyhow::Result<Helper> {
        let log = File::create(log)?;
        let child = Command::new(program.path()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.name()))?;
        Ok(Helper(child))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Asked first: what it started itself ends with it then.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..200 {
            if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control plane that runs, and what plays its nodes.
struct Cluster {
    kubeconfig: PathBuf,
    /// Dropped before the server they talk to.
    helpers: Vec<(Program, Helper)>,
    ours: Option<Conductor>,
    real: Option<PathBuf>,
}

impl Cluster {
    /// Starts one; without `nodes` nothing runs in it, and there is a user by token for kubectl's tests.
    fn start(options: &Options, specs: &Value, dir: &Path, nodes: bool) -> anyhow::Result<Cluster> {
        let tokens = if nodes { None } else { Some(cmd::prepare(dir)?) };
        let mut cluster = Cluster { kubeconfig: PathBuf::new(), helpers: Vec::new(), ours: None, real: None };
        if let Some(file) = &options.kubeconfig {
            cluster.kubeconfig = std::path::absolute(file)?;
        } else if options.real {
            let state = dir.join("real");
            let mut asked = kubernetes::Options::new(&state);
            // There is no kube-proxy to lead from a Service to its Pods.
            asked.apiserver_arg = vec!["--enable-aggregator-routing=true".into()];
            asked.unlimited_qps = true;
            asked.controllers = Some("*".into());
            asked.token_auth_file = tokens;
            kubernetes::down(Some(&state))?;
            cluster.real = Some(state.clone());
            cluster.kubeconfig = kubernetes::up(&asked)?.kubeconfig();
        } else {
            let program = options.program.clone().map_or_else(conductor::build, Ok)?;
            let state = dir.join("ours");
            cluster.ours = Some(conductor::start(&program, &state, tokens.as_deref())?);
            cluster.kubeconfig = state.join(conductor::KUBECONFIG);
            cluster.manage(specs, dir)?;
        }
        if !nodes {
            return Ok(cluster);
        }
        cluster.help(Program::KubeScheduler, &[], dir)?;
        let kubeconfig = cluster.kubeconfig.display();
        let arguments = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--state-dir={}", dir.join("pods").display()),
            format!("--etcd={}", Program::Etcd.path()?.display()),
        ];
        let nodes = Helper::start(Program::Fakelet, &arguments, &dir.join("fakelet.log"))?;
        cluster.helpers.push((Program::Fakelet, nodes));
        Ok(cluster)
    }

    /// Runs Kubernetes' controllers beside our server, without those that it has itself.
    fn manage(&mut self, specs: &Value, dir: &Path) -> anyhow::Result<()> {
        let own = specs["ownControllers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let others = own.iter().filter_map(Value::as_str).map(|name| format!(",-{name}"));
        let arguments = [format!("--controllers=*{}", others.collect::<String>()), "--kube-api-qps=-1".into()];
        self.help(Program::KubeControllerManager, &arguments, dir)
    }

    /// Runs a part of Kubernetes' own control plane.
    fn help(&mut self, program: Program, more: &[String], dir: &Path) -> anyhow::Result<()> {
        let kubeconfig = self.kubeconfig.display();
        let mut arguments = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".into(),
            "--secure-port=0".into(),
            format!("--cert-dir={}", dir.join("certificates").display()),
            "--leader-elect=false".into(),
        ];
        arguments.extend_from_slice(more);
        let helper = Helper::start(program, &arguments, &dir.join(format!("{}.log", program.name())))?;
        self.helpers.push((program, helper));
        Ok(())
    }

    fn run(&mut self, suite: &Value, specs: &Value, options: &Options, dir: &Path) -> anyhow::Result<Report> {
        let name = suite["name"].as_str().unwrap_or_default();
        let file = format!("{name}.json");
        let _ = fs::remove_file(dir.join(&file));
        let log = File::create(dir.join(format!("{name}.log")))?;
        let procs = suite["procs"].as_u64().map_or_else(|| options.procs.to_string(), |n| n.to_string());
        let focus = suite["focus"].as_str().context("a suite without focus")?;
        let kubectl = Program::Kubectl.path()?;
        let kubeconfig = self.kubeconfig.display();
        let mut command = Command::new(Program::Ginkgo.path()?);
        command.args(["--timeout=2h", "--poll-progress-after=0", "--no-color", "--keep-going"]);
        command.args([format!("--procs={procs}"), format!("--skip={}", skipped(specs, suite))]);
        command.args([format!("--json-report={file}"), format!("--output-dir={}", dir.display())]);
        command.arg(format!("--focus={focus}"));
        command.arg(Program::E2e.path()?).arg("--");
        command.args([format!("--kubeconfig={kubeconfig}"), format!("--kubectl-path={}", kubectl.display())]);
        command.args(["--provider=skeleton", "--num-nodes=2", "--allowed-not-ready-nodes=10", "--minStartupPods=0"]);
        command.args(["--dump-logs-on-failure=false", "--disable-log-dump", "--prepull-images=false"]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let first = kubectl.parent().map(Path::to_path_buf);
        command.env("PATH", std::env::join_paths(first.into_iter().chain(std::env::split_paths(&path)))?);
        command.env("KUBECONFIG", &self.kubeconfig).stdout(log.try_clone()?).stderr(log);
        // Its exit code says only whether all passed; the report says more.
        command.status().context("running ginkgo")?;
        let text = fs::read(dir.join(&file))
            .with_context(|| format!("no report: see {}", dir.join(format!("{name}.log")).display()))?;
        Report::read(&serde_json::from_slice(&text)?)
    }

    /// Says so if a process ended by itself, or a request panicked.
    fn still_well(&mut self) -> anyhow::Result<()> {
        for (program, helper) in &mut self.helpers {
            if let Some(status) = helper.0.try_wait()? {
                bail!("{} ended by itself: {status}", program.name());
            }
        }
        let Some(ours) = &mut self.ours else { return Ok(()) };
        if let Some(how) = ours.ended() {
            bail!(how);
        }
        let log = ours.log();
        let panicked: Vec<&str> = log.lines().filter(|line| line.contains("panicked")).collect();
        ensure!(panicked.is_empty(), "conductor's log has panics:\n{}", panicked.join("\n"));
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.helpers.clear();
        if let Some(state) = &self.real
            && let Err(error) = kubernetes::down(Some(state))
        {
            eprintln!("warning: the control plane in {} could not be stopped: {error:#}", state.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_a_focus_and_every_skip_a_reason() {
        let specs = specs().expect("valid");
        let suites = chosen(&specs, &[]).expect("suites");
        assert!(!suites.is_empty());
        for suite in suites {
            assert!(suite["name"].is_string(), "{suite}");
            assert!(suite["focus"].is_string() || suite["scripts"].is_string(), "{suite}");
            for list in [&specs["skip"], &suite["skip"]] {
                for skip in list.as_array().into_iter().flatten() {
                    assert!(skip["specs"].is_string() && skip["why"].is_string(), "{skip}");
                }
            }
        }
        assert!(chosen(&specs, &["apps".into()]).is_ok_and(|suites| suites.len() == 1));
        let error = chosen(&specs, &["aps".into()]).expect_err("unknown").to_string();
        assert!(error.contains("apps"), "{error}");
    }
}
