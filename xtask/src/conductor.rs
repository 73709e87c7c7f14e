//! A `conductor up` of xtask's own, for as long as it is needed.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::repository;

/// The administrator's kubeconfig, in the directory that [`start`] was given.
pub const KUBECONFIG: &str = "data/kubeconfig";

/// A server that runs until this is dropped; its directory goes with it, unless it ended by itself.
pub struct Conductor {
    child: Child,
    dir: PathBuf,
}

/// Starts `conductor up` on an empty data directory in `dir`, and waits until it says that it is ready.
/// `tokens` says which tokens stand for whom, as `--token-auth-file` takes it.
pub fn start(program: &Path, dir: &Path, tokens: Option<&Path>) -> anyhow::Result<Conductor> {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir)?;
    let log = File::create(dir.join("log"))?;
    let mut command = Command::new(program);
    command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.join("data"));
    if let Some(tokens) = tokens {
        command.arg("--token-auth-file").arg(tokens);
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut conductor = Conductor { child, dir: dir.to_owned() };
    while !conductor.log().contains("is ready") {
        if let Some(report) = conductor.ended() {
            bail!(report);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(conductor)
}

impl Conductor {
    /// Its process.
    #[cfg_attr(not(feature = "bench"), allow(dead_code, reason = "only the load generator asks"))]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended by itself, and the end of its log; none if it runs.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        let log = self.dir.join("log");
        Some(format!("conductor up ended by itself ({status}); its log, {}, ends with:\n{end}", log.display()))
    }

    /// All that it said.
    pub fn log(&self) -> String {
        let log = fs::read(self.dir.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Builds `conductor` as users do, and says where it is.
pub fn build() -> anyhow::Result<PathBuf> {
    let status = repository::cargo().args(["build", "--release", "--package", "conductor"]).status()?;
    ensure!(status.success(), "conductor does not build: {status}");
    Ok(repository::target().join("release/conductor"))
}
