//! kubectl's own tests: the shell scripts of Kubernetes' `test/cmd`, read from its Go module.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::report::Report;
use crate::kubernetes::build::{self, Program};
use crate::repository;

/// What the scripts read.
const PARTS: [&str; 5] =
    ["hack", "test/cmd", "test/fixtures", "test/e2e/testing-manifests", "third_party/forked/shell2junit"];

/// What they say of where they run, and how it is here: a file that is beside them, an address of our Services' range.
const INSTEAD: [(&str, &str); 2] =
    [("https://raw.githubusercontent.com/kubernetes/kubernetes/master/", ""), ("10.0.0.12", "10.96.0.12")];

/// Copies Kubernetes' scripts into `dir`, and says which file there has the tokens that they use.
pub fn prepare(dir: &Path) -> anyhow::Result<PathBuf> {
    let root = dir.join("cmd");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("_output/bin"))?;
    let mut list = Command::new(build::go()?);
    list.current_dir(repository::root().join("tools/kubernetes")).env("GOWORK", "off");
    let output = list.args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]).output()?;
    let module = String::from_utf8(output.stdout)?;
    ensure!(!module.trim().is_empty(), "go does not say where k8s.io/kubernetes is");
    let mut copy = Command::new("cp");
    copy.args(["-r", "--parents", "--no-preserve=mode"]).args(PARTS).arg(&root).current_dir(module.trim());
    ensure!(copy.status().context("running cp")?.success(), "Kubernetes' scripts could not be copied");
    // Its plugins are programs.
    let mut modes = Command::new("chmod");
    modes.args(["-R", "u+x"]).arg(root.join("test/fixtures/pkg/kubectl/plugins"));
    ensure!(modes.status().context("running chmod")?.success(), "plugins could not be made executable");
    for part in ["test/cmd", "hack/testdata"] {
        for file in fs::read_dir(root.join(part))? {
            let file = file?.path();
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let here = INSTEAD.iter().fold(text.clone(), |text, (there, here)| text.replace(there, here));
            if here != text {
                fs::write(&file, here)?;
            }
        }
    }
    for program in [Program::Kubectl, Program::KubectlConvert] {
        std::os::unix::fs::symlink(program.path()?, root.join("_output/bin").join(program.name()))?;
    }
    Ok(root.join("hack/testdata/auth-tokens.csv"))
}

/// Runs them on the server of `kubeconfig`: those functions that match `only` and not `skip`.
pub fn run(kubeconfig: &Path, only: &str, skip: &str, dir: &Path) -> anyhow::Result<Report> {
    let config = fs::read_to_string(kubeconfig)?;
    let port = config.lines().find_map(|line| line.trim().strip_prefix("server: ")?.rsplit_once(':'));
    let (_, port) = port.context("the kubeconfig names no server with a port")?;
    let logs = dir.join("functions");
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs)?;
    let output = Command::new("bash")
        .arg(repository::root().join("tools/conformance/cmd.sh"))
        .args([port.trim_end_matches('"'), only, skip])
        .arg(&logs)
        .current_dir(dir.join("cmd"))
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running bash")?;
    Ok(Report::of_functions(&String::from_utf8_lossy(&output.stdout)))
}
