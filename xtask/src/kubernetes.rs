//! A real Kubernetes control plane on this machine: etcd, kube-apiserver, kube-controller-manager.
//!
//! [`up`] starts one in a state directory, [`down`] ends it and removes the directory. Several run
//! side by side in directories of their own. They listen on loopback only.
pub mod build;
mod pki;
mod ports;
mod probe;
mod process;

use std::fs::{self, DirBuilder, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::repository;
use build::Program;
use pki::{Authority, Usage, write_private};

/// What is started, in this order; stopped in the reverse.
const COMPONENTS: [Program; 3] = [Program::Etcd, Program::KubeApiserver, Program::KubeControllerManager];

/// A file that says that a directory is one of ours and may be removed.
const MARKER: &str = "conductor-real-kubernetes";

const KUBECONFIG: &str = "kubeconfig";

/// How a control plane is to be.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where it keeps its data, keys, logs and kubeconfig [default: target/kubernetes]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Do not run kube-controller-manager
    #[arg(long)]
    pub no_controller_manager: bool,
    /// The controllers to run, as kube-controller-manager takes them [default: all but those of ReplicaSets, Pods and autoscalers]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, conflicts_with = "no_controller_manager")]
    pub controllers: Option<String>,
    /// Lift the limit on the controllers' requests per second
    #[arg(long, conflicts_with = "no_controller_manager")]
    pub unlimited_qps: bool,
    /// Users by token, as kube-apiserver takes them: token,user,uid,"group1,group2"
    #[arg(long, value_name = "CSV")]
    pub token_auth_file: Option<PathBuf>,
    /// One more argument for kube-apiserver (repeatable)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub apiserver_arg: Vec<String>,
    /// One more argument for kube-controller-manager (repeatable)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub controller_manager_arg: Vec<String>,
}

impl Options {
    /// The defaults, in `state_dir`.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: Some(state_dir.into()),
            no_controller_manager: false,
            controllers: None,
            unlimited_qps: false,
            token_auth_file: None,
            apiserver_arg: Vec::new(),
            controller_manager_arg: Vec::new(),
        }
    }
}

/// A control plane that runs.
pub struct ControlPlane {
    /// Its state directory, absolute.
    pub dir: PathBuf,
    /// How long each component took to be ready; empty if it was running already.
    pub ready_after: Vec<(Program, Duration)>,
}

impl ControlPlane {
    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join(KUBECONFIG)
    }
}

/// A component that should run, and whether it does.
pub struct Component {
    /// Which.
    pub program: Program,
    /// Its pid, if it runs.
    pub pid: Option<i32>,
}

/// Starts a control plane and waits until it is ready. Leaves one that runs as it is.
///
/// Data of one that ended without [`down`] is removed: each starts empty.
pub fn up(options: &Options) -> anyhow::Result<ControlPlane> {
    let dir = state_dir(options.state_dir.as_deref())?;
    let _lock = lock(&dir)?;
    let components = components(&dir);
    if !components.is_empty() && components.iter().all(|c| c.pid.is_some()) {
        return Ok(ControlPlane { dir, ready_after: Vec::new() });
    }
    let programs: Vec<Program> = COMPONENTS
        .into_iter()
        .filter(|p| !(options.no_controller_manager && *p == Program::KubeControllerManager))
        .collect();
    build::build(&programs)?;
    remove(&dir)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    fs::write(dir.join(MARKER), "made by cargo xtask kubernetes up, removed by cargo xtask kubernetes down\n")?;
    let started = start(&dir, &programs, options);
    if started.is_err() {
        // The logs stay, so that one can see why; nothing keeps running.
        stop(&dir)?;
    }
    Ok(ControlPlane { ready_after: started?, dir })
}

/// Ends a control plane and removes its state directory. Fine if there is none.
pub fn down(state_dir: Option<&Path>) -> anyhow::Result<()> {
    let dir = self::state_dir(state_dir)?;
    let _lock = lock(&dir)?;
    stop(&dir)?;
    remove(&dir)
}

/// The state directory and the components that [`up`] started there.
pub fn status(state_dir: Option<&Path>) -> anyhow::Result<(PathBuf, Vec<Component>)> {
    let dir = self::state_dir(state_dir)?;
    let components = components(&dir);
    Ok((dir, components))
}

/// Kills one component at once, as a crash would.
pub fn kill(state_dir: Option<&Path>, program: Program) -> anyhow::Result<()> {
    process::kill(&self::state_dir(state_dir)?, program.name())
}

/// Starts one component again as [`up`] did, on its data and port. Does not wait until it is ready.
pub fn start_again(state_dir: Option<&Path>, program: Program) -> anyhow::Result<()> {
    let dir = self::state_dir(state_dir)?;
    let file = arguments_file(&dir, program);
    let argv = fs::read(&file).with_context(|| format!("{} was never started in {}", program.name(), dir.display()))?;
    process::start(&dir, program.name(), &serde_json::from_slice::<Vec<String>>(&argv)?)
}

fn state_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let dir = given.map_or_else(|| repository::target().join("kubernetes"), Path::to_path_buf);
    Ok(std::path::absolute(dir)?)
}

/// Held while a control plane starts or ends, so that two do not at once in one directory.
fn lock(dir: &Path) -> anyhow::Result<File> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        bail!("{} cannot be a state directory", dir.display());
    };
    fs::create_dir_all(parent)?;
    let file = File::create(parent.join(format!(".{}.lock", name.to_string_lossy())))?;
    file.lock()?;
    Ok(file)
}

fn components(dir: &Path) -> Vec<Component> {
    COMPONENTS
        .into_iter()
        .filter(|p| arguments_file(dir, *p).exists())
        .map(|program| Component {
            program,
            pid: process::pid(dir, program.name()).map(|pid| pid.as_raw_nonzero().get()),
        })
        .collect()
}

fn stop(dir: &Path) -> anyhow::Result<()> {
    for program in COMPONENTS.into_iter().rev() {
        process::stop(dir, program.name(), Duration::from_secs(5))?;
    }
    Ok(())
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    let empty = fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
    if empty {
        return Ok(());
    }
    if !dir.join(MARKER).exists() {
        bail!("{} holds other things than a control plane: give another --state-dir", dir.display());
    }
    stop(dir)?;
    fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}

fn start(dir: &Path, programs: &[Program], options: &Options) -> anyhow::Result<Vec<(Program, Duration)>> {
    let begin = Instant::now();
    let [etcd, peer, apiserver, controller_manager] = ports::free()?.map(|port| SocketAddr::from((LOOPBACK, port)));
    let probe = prepare_identities(dir, &format!("https://{apiserver}"))?;
    let mut ready_after = Vec::new();
    for &program in programs {
        let mut argv = vec![program.path()?.to_str().context("the tools directory must be utf-8")?.to_owned()];
        let path = |name: &str| dir.join(name).display().to_string();
        argv.extend(match program {
            Program::Etcd => etcd_arguments(&path, etcd, peer),
            Program::KubeApiserver => apiserver_arguments(&path, etcd, apiserver, options)?,
            _ => controller_manager_arguments(&path, controller_manager, options),
        });
        fs::write(arguments_file(dir, program), serde_json::to_vec_pretty(&argv)?)?;
        process::start(dir, program.name(), &argv)?;
        wait_until_ready(dir, program, || match program {
            Program::Etcd => probe::http(etcd, "/health"),
            Program::KubeApiserver => probe::https(apiserver, "/readyz", &probe),
            // With the default controllers, ready also means that they work: Pods need this account.
            _ if options.controllers.is_none() => {
                probe::https(apiserver, "/api/v1/namespaces/default/serviceaccounts/default", &probe)
            }
            _ => probe::https(controller_manager, "/healthz", &probe),
        })?;
        ready_after.push((program, begin.elapsed()));
    }
    Ok(ready_after)
}

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn arguments_file(dir: &Path, program: Program) -> PathBuf {
    dir.join(format!("{}.json", program.name()))
}

const FRONT_PROXY: &str = "front-proxy-client";

/// Makes keys, certificates and kubeconfigs, and returns the administrator's TLS.
fn prepare_identities(dir: &Path, server: &str) -> anyhow::Result<std::sync::Arc<rustls::ClientConfig>> {
    let authority = Authority::new("kubernetes")?;
    let names = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "10.96.0.1",
    ];
    let serving = authority.issue("kube-apiserver", Usage::Server(&names))?;
    let admin = authority.issue("kubernetes-admin", Usage::Client { group: Some("system:masters") })?;
    let manager = authority.issue("system:kube-controller-manager", Usage::Client { group: None })?;
    // By this one servers behind APIServices know it.
    let front = Authority::new("front-proxy")?;
    let proxy = front.issue(FRONT_PROXY, Usage::Client { group: None })?;
    let (signing_key, checking_key) = pki::signing_keys()?;
    for (name, content) in [
        ("ca.crt", &authority.certificate),
        ("ca.key", &authority.key),
        ("front-proxy-ca.crt", &front.certificate),
        ("front-proxy.crt", &proxy.certificate),
        ("front-proxy.key", &proxy.key),
        ("serving.crt", &serving.certificate),
        ("serving.key", &serving.key),
        ("service-accounts.key", &signing_key),
        ("service-accounts.pub", &checking_key),
        (KUBECONFIG, &pki::kubeconfig(server, &authority, "kubernetes-admin", &admin)),
        (
            "controller-manager.kubeconfig",
            &pki::kubeconfig(server, &authority, "system:kube-controller-manager", &manager),
        ),
    ] {
        write_private(&dir.join(name), content)?;
    }
    probe::tls(&authority.certificate, &admin)
}

/// etcd as it comes: every write is on disk before it is acknowledged.
fn etcd_arguments(path: &dyn Fn(&str) -> String, client: SocketAddr, peer: SocketAddr) -> Vec<String> {
    vec![
        "--name=default".into(),
        format!("--data-dir={}", path("etcd")),
        format!("--listen-client-urls=http://{client}"),
        format!("--advertise-client-urls=http://{client}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=default=http://{peer}"),
        "--log-level=warn".into(),
    ]
}

fn apiserver_arguments(
    path: &dyn Fn(&str) -> String,
    etcd: SocketAddr,
    listen: SocketAddr,
    options: &Options,
) -> anyhow::Result<Vec<String>> {
    let mut arguments = vec![
        format!("--etcd-servers=http://{etcd}"),
        format!("--bind-address={}", listen.ip()),
        format!("--secure-port={}", listen.port()),
        // The `kubernetes` Service must name an address, and loopback ones are refused there. This one is
        // reserved for documentation; nothing is ever sent to it.
        "--advertise-address=192.0.2.1".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        format!("--client-ca-file={}", path("ca.crt")),
        format!("--tls-cert-file={}", path("serving.crt")),
        format!("--tls-private-key-file={}", path("serving.key")),
        format!("--requestheader-client-ca-file={}", path("front-proxy-ca.crt")),
        format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-uid-headers=X-Remote-Uid".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", path("front-proxy.crt")),
        format!("--proxy-client-key-file={}", path("front-proxy.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={}", path("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", path("service-accounts.key")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
    ];
    if let Some(file) = &options.token_auth_file {
        arguments.push(format!("--token-auth-file={}", std::path::absolute(file)?.display()));
    }
    arguments.extend(options.apiserver_arg.iter().cloned());
    Ok(arguments)
}

/// ReplicaSets, Pods and autoscalers are left alone, so that there are built-in kinds whose managers are only those of a test.
const DEFAULT_CONTROLLERS: &str =
    "*,-replicaset-controller,-pod-garbage-collector-controller,-horizontal-pod-autoscaler-controller";

fn controller_manager_arguments(path: &dyn Fn(&str) -> String, listen: SocketAddr, options: &Options) -> Vec<String> {
    let kubeconfig = path("controller-manager.kubeconfig");
    let mut arguments = vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--bind-address={}", listen.ip()),
        format!("--secure-port={}", listen.port()),
        format!("--tls-cert-file={}", path("serving.crt")),
        format!("--tls-private-key-file={}", path("serving.key")),
        format!("--root-ca-file={}", path("ca.crt")),
        format!("--service-account-private-key-file={}", path("service-accounts.key")),
        format!("--cluster-signing-cert-file={}", path("ca.crt")),
        format!("--cluster-signing-key-file={}", path("ca.key")),
        "--use-service-account-credentials=true".into(),
        "--leader-elect=false".into(),
    ];
    let controllers = options.controllers.as_deref().unwrap_or(DEFAULT_CONTROLLERS);
    arguments.push(format!("--controllers={controllers}"));
    if options.unlimited_qps {
        // Below zero means no limiter at all.
        arguments.push("--kube-api-qps=-1".into());
    }
    arguments.extend(options.controller_manager_arg.iter().cloned());
    arguments
}

fn wait_until_ready(dir: &Path, program: Program, probe: impl Fn() -> anyhow::Result<u16>) -> anyhow::Result<()> {
    let name = program.name();
    let begin = Instant::now();
    loop {
        let answer = probe();
        if matches!(answer, Ok(200)) {
            return Ok(());
        }
        let log = || format!("{}.log in {} ends with:\n{}", name, dir.display(), process::log_tail(dir, name));
        if process::pid(dir, name).is_none() {
            bail!("{name} ended before it was ready; {}", log());
        }
        if begin.elapsed() > Duration::from_secs(120) {
            let answer = answer.map_or_else(|e| e.to_string(), |code| format!("status {code}"));
            bail!("{name} is not ready after two minutes ({answer}); {}", log());
        }
        thread::sleep(Duration::from_millis(20));
    }
}
