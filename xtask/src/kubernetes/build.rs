//! Building programs from Go modules below `tools`, once per change of their sources.
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::missing::Missing;
use crate::repository;

/// A program that is built from Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// The store under the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers.
    KubeControllerManager,
    /// The command line client.
    Kubectl,
    /// Its plugin that converts manifests, which its own tests use.
    KubectlConvert,
    /// The package manager.
    Helm,
    /// Controllers written with client-go and controller-runtime.
    Clients,
    /// Kubernetes' own end-to-end tests.
    #[value(name = "e2e.test")]
    E2e,
    /// What runs them, several at once.
    Ginkgo,
    /// Finds nodes for Pods.
    KubeScheduler,
    /// Nodes, as far as these tests need some: no container is ever started.
    Fakelet,
}

impl Program {
    /// What `cargo xtask conformance` needs besides, and nobody else: its build takes minutes.
    pub const CONFORMANCE: [Program; 5] =
        [Self::E2e, Self::Ginkgo, Self::KubeScheduler, Self::Fakelet, Self::KubectlConvert];

    /// All that the tests need, in the order they are built: what takes longest first.
    pub const ALL: [Program; 6] =
        [Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl, Self::Etcd, Self::Helm, Self::Clients];

    /// The name of its executable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::KubectlConvert => "kubectl-convert",
            Self::Helm => "helm",
            Self::Clients => "clients",
            Self::E2e => "e2e.test",
            Self::Ginkgo => "ginkgo",
            Self::KubeScheduler => "kube-scheduler",
            Self::Fakelet => "fakelet",
        }
    }

    /// The directory below `tools` whose programs are cached together.
    fn family(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::E2e | Self::Ginkgo | Self::KubeScheduler | Self::Fakelet => "conformance",
            _ => "kubernetes",
        }
    }

    /// The Go module that builds it.
    fn module(self) -> PathBuf {
        let family = repository::root().join("tools").join(self.family());
        match self {
            Self::Etcd => family.join("etcd"),
            Self::Helm => family.join("helm"),
            _ => family,
        }
    }

    /// What Go is told to build, and how: a program of ours, one of a module that ours requires, or its tests as a program.
    fn target(self) -> (&'static str, String) {
        match self {
            Self::E2e => ("test", "k8s.io/kubernetes/test/e2e".into()),
            Self::Ginkgo => ("build", "github.com/onsi/ginkgo/v2/ginkgo".into()),
            Self::KubeScheduler | Self::KubectlConvert => ("build", format!("k8s.io/kubernetes/cmd/{}", self.name())),
            _ => ("build", format!("./cmd/{}", self.name())),
        }
    }

    /// Where it is once it is built.
    ///
    /// The directory's name has a hash of the sources, so other sources never find this program.
    pub fn path(self) -> anyhow::Result<PathBuf> {
        let sources = repository::root().join("tools").join(self.family());
        let hash = hash(&sources).with_context(|| format!("reading {}", sources.display()))?;
        let platform = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
        Ok(repository::tools()?.join(format!("{}-{platform}-{hash}", self.family())).join(self.name()))
    }
}

/// Builds those of `programs` that are not in the cache. Returns how long each of these took.
pub fn build(programs: &[Program]) -> anyhow::Result<Vec<(Program, Duration)>> {
    let mut built = Vec::new();
    for &program in programs {
        let path = program.path()?;
        if path.is_file() {
            continue;
        }
        let go = go()?;
        let dir = path.parent().context("a program lies in a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        // Two clones that build at once would do the same work twice: the second waits here and finds it done.
        let lock = File::create(dir.join(".lock"))?;
        lock.lock()?;
        if path.is_file() {
            continue;
        }
        let start = Instant::now();
        eprintln!("building {} (the first build takes minutes) ...", program.name());
        build_one(&go, program, &path)?;
        built.push((program, start.elapsed()));
        eprintln!("built {} in {:.1} s", program.name(), start.elapsed().as_secs_f64());
    }
    Ok(built)
}

fn build_one(go: &Path, program: Program, path: &Path) -> anyhow::Result<()> {
    let module = program.module();
    let name = program.name();
    // Appears under its name only when it is whole.
    let partial = path.with_file_name(format!(".{name}.partial"));
    let (verb, target) = program.target();
    let status = Command::new(go)
        .current_dir(&module)
        .arg(verb)
        .args((verb == "test").then_some("-c"))
        .args(["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags"])
        .arg(ldflags(program, &fs::read_to_string(module.join("go.mod"))?)?)
        .arg("-o")
        .arg(&partial)
        .arg(target)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .status()
        .with_context(|| format!("running {}", go.display()))?;
    if !status.success() {
        bail!("go could not build {name} in {}: {status}", module.display());
    }
    fs::rename(&partial, path)?;
    Ok(())
}

/// Strips the program and tells it its version, which is pinned in one place only, the go.mod.
fn ldflags(program: Program, go_mod: &str) -> anyhow::Result<String> {
    let mut flags = String::from("-s -w");
    match program {
        Program::Etcd | Program::Clients | Program::Ginkgo | Program::Fakelet => {}
        Program::Helm => {
            let version = required(go_mod, "helm.sh/helm/v4")?;
            flags += &format!(" -X helm.sh/helm/v4/internal/version.version={version}");
        }
        Program::KubeApiserver
        | Program::KubeControllerManager
        | Program::Kubectl
        | Program::KubectlConvert
        | Program::E2e
        | Program::KubeScheduler => {
            let version = required(go_mod, "k8s.io/kubernetes")?;
            let mut parts = version.trim_start_matches('v').split('.');
            let (major, minor) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                flags += &format!(
                    " -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
                     -X {package}.gitCommit= -X {package}.gitTreeState=clean"
                );
            }
        }
    }
    Ok(flags)
}

/// The version of `module` that a go.mod requires.
fn required<'a>(go_mod: &'a str, module: &str) -> anyhow::Result<&'a str> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("require ").split_once(' '))
        .find(|(name, _)| *name == module)
        .and_then(|(_, version)| version.split_whitespace().next())
        .with_context(|| format!("go.mod does not require {module}"))
}

fn hash(sources: &Path) -> std::io::Result<String> {
    let mut files = Vec::new();
    collect(sources, &mut files)?;
    files.sort();
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    for file in files {
        let name = file.strip_prefix(sources).unwrap_or(&file).to_string_lossy();
        let content = fs::read(&file)?;
        digest.update(format!("{name}\0{}\0", content.len()).as_bytes());
        digest.update(&content);
    }
    Ok(digest.finish().as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The files a build reads: `*.go`, `go.mod`, `go.sum`.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "go" || e == "mod" || e == "sum") {
            files.push(path);
        }
    }
    Ok(())
}

/// The Go toolchain.
pub fn go() -> Result<PathBuf, Missing> {
    let missing = |what: &str| Missing {
        what: what.into(),
        needed_to: "build kubectl, helm and a real Kubernetes".into(),
        remedy: "install Go 1.26 or newer from https://go.dev/dl, and put its bin directory on PATH".into(),
    };
    let go = repository::find_program("go", &["/usr/local/go/bin".into(), "/usr/lib/go/bin".into()])
        .ok_or_else(|| missing("Go"))?;
    match Command::new(&go).arg("version").output() {
        Ok(output) if output.status.success() => Ok(go),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(missing("Go")),
        _ => Err(missing("a working Go")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.4\n\tgolang.org/x/net v0.1.0 // indirect\n)\n\
                          require helm.sh/helm/v4 v4.2.4\n\nreplace k8s.io/api => k8s.io/api v0.36.4\n";

    #[test]
    fn versions_come_from_go_mod() {
        let flags = ldflags(Program::Kubectl, GO_MOD).expect("a version");
        assert!(flags.contains("version.gitVersion=v1.36.4 "), "{flags}");
        assert!(flags.contains("version.gitMinor=36 "), "{flags}");
        let flags = ldflags(Program::Helm, GO_MOD).expect("a version");
        assert!(flags.ends_with("version.version=v4.2.4"), "{flags}");
        assert_eq!(required(GO_MOD, "golang.org/x/net").ok(), Some("v0.1.0"));
        assert!(required(GO_MOD, "k8s.io/kube").is_err());
    }

    #[test]
    fn every_program_has_its_sources_and_version() {
        for program in Program::ALL.into_iter().chain(Program::CONFORMANCE) {
            let module = program.module();
            let (_, target) = program.target();
            if target.starts_with("./") {
                assert!(module.join(&target).join("main.go").is_file(), "{program:?}");
            }
            let go_mod = fs::read_to_string(module.join("go.mod")).expect("a go.mod");
            ldflags(program, &go_mod).expect("a version");
        }
    }

    #[test]
    fn the_hash_follows_names_and_contents() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, content: &str| fs::write(dir.path().join(name), content).expect("a file");
        let hash = || hash(dir.path()).expect("a hash");
        write("go.mod", "a");
        let first = hash();
        write("README", "not read by go");
        assert_eq!(hash(), first);
        write("go.mod", "b");
        let second = hash();
        assert_ne!(second, first);
        fs::rename(dir.path().join("go.mod"), dir.path().join("go.sum")).expect("renamed");
        assert_ne!(hash(), second);
    }
}
