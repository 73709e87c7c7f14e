//! A real Kubernetes control plane of a test's own: with the controllers it wants, to be crashed as it likes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Cluster;
use crate::cluster::{KUBECONFIG, unique};

/// The variable that says which program starts and crashes control planes: xtask, which sets it for the tests it runs.
pub const XTASK: &str = "CONDUCTOR_XTASK";

/// Its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server.
    Apiserver,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::Apiserver => "kube-apiserver",
        }
    }
}

/// A control plane that runs for as long as this lives.
pub struct Plane {
    xtask: PathBuf,
    dir: PathBuf,
}

impl Plane {
    /// Starts one with these controllers (`*,-persistentvolume-binder-controller`). None if tests are run without the tier on a
    /// real Kubernetes, or on a cluster that somebody gave for it, and why.
    pub fn start(controllers: &str) -> Result<Plane, String> {
        if std::env::var_os(KUBECONFIG).is_none() {
            return Err(format!("{KUBECONFIG} is not set"));
        }
        let xtask = std::env::var_os(XTASK)
            .ok_or_else(|| {
                format!("there is no control plane of its own ({XTASK} is not set), and a given one is not crashed")
            })?
            .into();
        let plane = Plane { xtask, dir: std::env::temp_dir().join(unique("conductor-plane")) };
        plane.run(&["up", "--unlimited-qps", "--controllers", controllers]);
        Ok(plane)
    }

    fn run(&self, arguments: &[&str]) {
        let output = Command::new(&self.xtask)
            .arg("kubernetes")
            .args(arguments)
            .arg("--state-dir")
            .arg(&self.dir)
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.xtask.display()));
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Where programs find it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The cluster it serves.
    pub async fn cluster(&self) -> Cluster {
        Cluster::at(&self.kubeconfig()).await
    }

    /// Kills a component, as a crash would.
    pub fn kill(&self, component: Component) {
        self.run(&["kill", component.name()]);
    }

    /// Starts a killed component again, on its data and port.
    pub fn revive(&self, component: Component) {
        self.run(&["start", component.name()]);
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let down = Command::new(&self.xtask).args(["kubernetes", "down", "--state-dir"]).arg(&self.dir).output();
        if !down.is_ok_and(|output| output.status.success()) {
            eprintln!("the control plane in {} could not be stopped", self.dir.display());
        }
    }
}
