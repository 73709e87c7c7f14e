//! The servers that are measured.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::wire::Endpoint;
use anyhow::{Context, bail, ensure};

use crate::conductor::{self, Conductor};
use crate::kubernetes::{self, build::Program};

/// What our managers are called where they run apart from the server.
pub const MANAGERS: &str = "managers";

/// A server that runs, for as long as this lives.
pub struct Subject {
    /// How to reach it.
    pub endpoint: Endpoint,
    /// From its start to being ready, if it was started here.
    pub ready: Option<Duration>,
    process: Process,
    /// Our managers, where they run apart from the server.
    managers: Option<Child>,
}

enum Process {
    Foreign,
    Ours(Conductor),
    Kubernetes(PathBuf),
}

impl Subject {
    /// A server that somebody else runs.
    pub fn foreign(kubeconfig: &Path) -> anyhow::Result<Subject> {
        Ok(Subject {
            endpoint: Endpoint::from_kubeconfig(kubeconfig)?,
            ready: None,
            process: Process::Foreign,
            managers: None,
        })
    }

    /// A new `conductor up` on an empty data directory.
    pub fn conductor(program: &Path, dir: &Path) -> anyhow::Result<Subject> {
        let started = Instant::now();
        let process = Process::Ours(conductor::start(program, dir, None)?);
        let endpoint = Endpoint::from_kubeconfig(&dir.join(conductor::KUBECONFIG))?;
        let mut subject = Subject { endpoint, ready: None, process, managers: None };
        subject.wait_ready()?;
        subject.ready = Some(started.elapsed());
        Ok(subject)
    }

    /// A new etcd, kube-apiserver and kube-controller-manager.
    pub fn kubernetes(dir: &Path) -> anyhow::Result<Subject> {
        Subject::plane(dir, None)
    }

    /// The same without its own binder of volumes, and with our managers instead.
    pub fn managed(dir: &Path, program: &Path) -> anyhow::Result<Subject> {
        let mut subject = Subject::plane(dir, Some("*,-persistentvolume-binder-controller".into()))?;
        let log = fs::File::create(dir.join("managers.log"))?;
        let managers = Command::new(program)
            .args(["manager", "--volumes", "--kubeconfig"])
            .arg(managers_kubeconfig(dir, program)?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        subject.managers = Some(managers);
        Ok(subject)
    }

    fn plane(dir: &Path, controllers: Option<String>) -> anyhow::Result<Subject> {
        let mut options = kubernetes::Options::new(dir);
        options.unlimited_qps = true;
        options.controllers = controllers;
        kubernetes::down(Some(dir))?;
        let plane = kubernetes::up(&options)?;
        let ready = plane.ready_after.iter().map(|(_, after)| *after).max();
        let process = Process::Kubernetes(dir.to_owned());
        let endpoint = Endpoint::from_kubeconfig(&plane.kubeconfig());
        let subject = Subject { endpoint: endpoint?, ready, process, managers: None };
        subject.wait_ready()?;
        Ok(subject)
    }

    fn wait_ready(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            for _ in 0..3000 {
                if self.endpoint.request("GET", "/readyz", None).await.is_ok_and(|answer| answer.code == 200) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            bail!("the server is not ready")
        })
    }

    /// How a server of ours ended by itself, and the end of its log; none if it runs. Its directory then stays.
    pub fn ended(&mut self) -> Option<String> {
        let Process::Ours(conductor) = &mut self.process else { return None };
        conductor.ended()
    }

    /// Its processes, by name.
    fn processes(&self) -> Option<Vec<(&'static str, u32)>> {
        match &self.process {
            Process::Foreign => None,
            Process::Ours(conductor) => Some(vec![("conductor", conductor.pid())]),
            Process::Kubernetes(dir) => {
                let (_, components) = kubernetes::status(Some(dir)).ok()?;
                let own = components.iter().filter_map(|one| Some((one.program.name(), one.pid?.try_into().ok()?)));
                Some(own.chain(self.managers.iter().map(|child| (MANAGERS, child.id()))).collect())
            }
        }
    }

    /// Resident memory of all its processes in MiB, if they run here and the system tells.
    pub fn memory(&self) -> Option<f64> {
        let kib: Option<Vec<f64>> = self.processes()?.into_iter().map(|(_, pid)| resident(pid)).collect();
        Some(kib?.into_iter().sum::<f64>() / 1024.0)
    }

    /// Processor time of each of its processes so far: what a busy neighbour does not change.
    pub fn processors(&self) -> Option<Vec<(&'static str, Duration)>> {
        self.processes()?.into_iter().map(|(name, pid)| Some((name, processor(pid)?))).collect()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(managers) = &mut self.managers {
            let _ = managers.kill();
            let _ = managers.wait();
        }
        end(&mut self.process);
    }
}

fn end(process: &mut Process) {
    match process {
        Process::Foreign | Process::Ours(_) => {}
        Process::Kubernetes(dir) => {
            if let Err(error) = kubernetes::down(Some(dir)) {
                eprintln!("warning: the control plane in {} could not be stopped: {error:#}", dir.display());
            }
        }
    }
}

/// Installs what the managers need as an administrator would, and gives them a kubeconfig of their own service account: as in a Deployment,
/// they come with a token.
fn managers_kubeconfig(dir: &Path, program: &Path) -> anyhow::Result<PathBuf> {
    let (admin, own) = (dir.join("kubeconfig"), dir.join("managers.kubeconfig"));
    let kubectl = |config: &Path, words: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(Program::Kubectl.path()?);
        let output = command.arg("--kubeconfig").arg(config).args(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {} failed: {}", words.join(" "), said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let objects = dir.join("managers.yaml");
    fs::write(&objects, Command::new(program).arg("install").output()?.stdout)?;
    let objects = objects.display().to_string();
    // what is of a kind that was just defined is taken at the second try
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", &objects];
    let begun = Instant::now();
    while let Err(error) = kubectl(&admin, &apply) {
        ensure!(begun.elapsed() < Duration::from_secs(30), error);
        std::thread::sleep(Duration::from_millis(500));
    }
    let token = kubectl(&admin, &["create", "token", "managers", "-n", "conductor-system", "--duration", "12h"])?;
    fs::copy(&admin, &own)?;
    kubectl(&own, &["config", "set-credentials", "managers", &format!("--token={token}")])?;
    kubectl(&own, &["config", "set-context", "--current", "--user=managers"])?;
    Ok(own)
}

/// Processor time that a process has used.
fn processor(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; after it come the fields from the third on.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // Linux says these in hundredths of a second, whatever its own clock does.
    Some(Duration::from_millis(ticks * 10))
}

/// KiB that a process has in memory.
fn resident(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
