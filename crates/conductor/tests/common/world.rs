//! A `conductor up` with its providers, and what they make of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use conductor_local::{identity, lack};
use conductor_volumes::mounts;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Conductor, JSON, block_on, command};

/// The content type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// How long anything may take on a busy machine before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Programs and the packages that bring them.
pub type Programs<'p> = &'p [(&'p str, &'p str)];
/// PostgreSQL, server and client.
pub const POSTGRES: Programs<'static> = &[("postgres", "postgresql"), ("psql", "postgresql-client")];
/// MariaDB, server and client.
pub const MARIADB: Programs<'static> = &[("mariadbd", "mariadb-server"), ("mariadb", "mariadb-client")];
/// Images with file systems.
pub const IMAGES: Programs<'static> = &[("mkfs.ext4", "e2fsprogs"), ("mkfs.xfs", "xfsprogs"), ("mount", "mount")];
/// The load balancer and a client for it.
pub const HAPROXY: Programs<'static> = &[("haproxy", "haproxy"), ("curl", "curl")];

/// Where Debian keeps each version of PostgreSQL.
pub fn debian_postgres() -> Vec<PathBuf> {
    fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|e| e.path().join("bin")).collect()
}

/// Whether this machine has what a test needs; says aloud if not.
pub fn has(test: &str, programs: Programs<'_>) -> bool {
    let missing = programs.iter().find(|(program, _)| lack::find_program(program, &debian_postgres()).is_none());
    if let Some((program, package)) = missing {
        conductor_testkit::skip(test, &format!("there is no {program}: apt-get install {package}"));
    }
    missing.is_none()
}

/// Whether this process may mount; says aloud if not.
pub fn may_mount(test: &str) -> bool {
    let may = has(test, IMAGES) && rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !may {
        conductor_testkit::skip(test, "it needs root and loop devices");
    }
    may
}

/// A `conductor up` on a directory of its own. Whatever it started, mounted and made is ended with it.
pub struct World {
    /// Its data directory.
    pub data: PathBuf,
    conductor: Option<Conductor>,
    variables: Vec<(String, String)>,
    directory: Arc<tempfile::TempDir>,
}

impl World {
    /// A new one, running.
    pub fn new() -> World {
        World::with(&[])
    }

    /// The same with variables in its environment.
    pub fn with(variables: &[(&str, &str)]) -> World {
        World::of_mode(0o755, variables)
    }

    /// One whose data directory is for its user alone, as `~/.conductor` is.
    pub fn private() -> World {
        World::of_mode(0o700, &[])
    }

    fn of_mode(mode: u32, variables: &[(&str, &str)]) -> World {
        let directory = tempfile::tempdir().expect("makes a directory");
        let data = directory.path().join("data");
        fs::create_dir(&data).expect("makes a directory");
        // servers run as users of their own, who must get there
        for (dir, mode) in [(directory.path(), 0o755), (&data, mode)] {
            fs::set_permissions(dir, fs::Permissions::from_mode(mode)).expect("may");
        }
        let data = data.canonicalize().expect("is there");
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut world = World { data, conductor: None, variables, directory: Arc::new(directory) };
        world.start_conductor();
        world
    }

    /// A copy of its data directory, running beside it.
    pub fn copy(&self) -> World {
        let (data, variables) = (self.data.with_file_name("copy"), self.variables.clone());
        let copied = Command::new("cp").arg("-a").args([&self.data, &data]).status().expect("runs");
        assert!(copied.success());
        let mut world = World { data, conductor: None, variables, directory: self.directory.clone() };
        world.start_conductor();
        world
    }

    /// Where a provider keeps what it has.
    pub fn home(&self, provider: &str) -> PathBuf {
        let home = self.data.join("providers").join(provider);
        fs::read_link(&home).unwrap_or(home)
    }

    /// Kills it at once.
    pub fn kill_conductor(&mut self) {
        self.conductor.take().expect("runs").kill();
    }

    /// Starts it on what is there.
    pub fn start_conductor(&mut self) {
        let mut command = command(&self.data, &[]);
        command.envs(self.variables.iter().cloned());
        self.conductor = Some(Conductor::run(&mut command, &self.data));
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        self.conductor.as_ref().map(Conductor::log).unwrap_or_default()
    }

    /// One request: the answer's code and content.
    pub fn request(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> (u16, Value) {
        let text = body.map(|(kind, body)| (kind, body.to_string()));
        let body = text.as_ref().map(|(kind, text)| (*kind, text.as_bytes()));
        let endpoint = &self.conductor.as_ref().expect("runs").endpoint;
        let answer = block_on(endpoint.request(method, path, body)).expect("answers");
        (answer.code, answer.json())
    }

    /// An object, if it is there.
    pub fn get(&self, path: &str) -> Option<Value> {
        match self.request("GET", path, None) {
            (200, value) => Some(value),
            (404, _) => None,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// Everything of a list.
    pub fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).unwrap_or_default()["items"].as_array().cloned().unwrap_or_default()
    }

    /// Makes an object.
    pub fn create(&self, path: &str, object: &Value) -> Value {
        let begun = Instant::now();
        loop {
            match self.request("POST", path, Some((JSON, object))) {
                (201, made) => return made,
                // the kind was not yet defined
                (404, _) if begun.elapsed() < Duration::from_secs(30) => std::thread::sleep(Duration::from_millis(50)),
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    /// Changes an object.
    pub fn patch(&self, path: &str, patch: Value) -> Value {
        let (code, value) = self.request("PATCH", path, Some((MERGE, &patch)));
        assert_eq!(code, 200, "{path}: {value}");
        value
    }

    /// Asks for an object to be deleted.
    pub fn delete(&self, path: &str) {
        let (code, value) = self.request("DELETE", path, None);
        assert!(matches!(code, 200 | 202), "{path}: {code} {value}");
    }

    /// The same, and waits until it is gone.
    pub fn delete_now(&self, path: &str) {
        self.delete(path);
        self.gone(path);
    }

    /// Waits for an object to be as it should.
    pub fn until(&self, path: &str, what: &str, fine: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        let mut last = Value::Null;
        while begun.elapsed() < PATIENCE {
            last = self.get(path).unwrap_or_default();
            if fine(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{path} is not {what}: {}\n{}", shown(last), self.log());
    }

    /// Waits until an object is gone.
    pub fn gone(&self, path: &str) {
        let begun = Instant::now();
        while let Some(there) = self.get(path) {
            assert!(begun.elapsed() < PATIENCE, "{path} does not go: {}\n{}", shown(there), self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The content of a Secret that has these keys.
    pub fn secret(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret = self.until(&path, "there", |s| s["data"]["uri"].is_string());
        let plain = |v: &Value| {
            let bytes =
                base64::engine::general_purpose::STANDARD.decode(v.as_str().expect("is text")).expect("is base64");
            String::from_utf8(bytes).expect("is text")
        };
        secret["data"].as_object().expect("has data").iter().map(|(k, v)| (k.clone(), plain(v))).collect()
    }

    /// The details of a bound claim, as an application finds them.
    pub fn details(&self, claims: &str, name: &str) -> BTreeMap<String, String> {
        let usable = |c: &Value| c["status"]["phase"] == "Bound" && c["status"]["binding"]["name"].is_string();
        let claim = self.until(&format!("{claims}/{name}"), "bound", usable);
        self.secret("default", claim["status"]["binding"]["name"].as_str().expect("is named"))
    }

    /// Has an implementation looked at now.
    pub fn poke(&self, path: &str) {
        let stamp = format!("{:?}", Instant::now());
        self.patch(path, json!({"metadata": {"annotations": {"test/poke": stamp}}}));
    }

    /// `conductor audit`: whether all is well, and what it says.
    pub fn audit(&self) -> (bool, String) {
        self.run(&["audit"])
    }

    /// Sees to it that an audit finds nothing.
    pub fn audit_is_clean(&self) {
        // what managers are working on at the moment may show
        let begun = Instant::now();
        loop {
            let (fine, said) = self.audit();
            if fine {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{said}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A command of the binary: whether it went well, and all it says.
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_conductor"))
            .args(arguments)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .output()
            .expect("runs");
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.success(), said.concat())
    }

    /// The same for one that must go well: what it prints.
    pub fn conductor(&self, arguments: &[&str]) -> String {
        let (fine, said) = self.run(arguments);
        assert!(fine, "{arguments:?}: {said}");
        said
    }

    /// Processes that a provider supervises, with the paths that mark them.
    pub fn processes(&self, provider: &str) -> Vec<(String, i32)> {
        identity::marked(&format!("{}/", self.home(provider).display())).into_iter().collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.conductor.take());
        for provider in ["databases", "balancers"] {
            for (mark, pid) in self.processes(provider) {
                let rest = identity::belonging(&mark, Some(pid), Path::new(&mark), None);
                rest.iter().for_each(|seen| kill(seen.pid, Signal::KILL));
            }
        }
        let volumes = self.home("volumes");
        for mount in mounts::all().unwrap_or_default().iter().filter(|m| m.point.starts_with(&volumes)) {
            let _ = rustix::mount::unmount(&mount.point, rustix::mount::UnmountFlags::DETACH);
            let _ = mounts::unmount(&mount.point);
        }
        let elsewhere = |home: &PathBuf| !home.starts_with(&self.data);
        for home in
            ["databases", "balancers", "volumes"].map(|name| self.home(name)).iter().filter(|home| elsewhere(home))
        {
            let _ = home.parent().map(fs::remove_dir_all);
        }
    }
}

/// An object for a person to read.
fn shown(mut object: Value) -> String {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    format!("{object:#}")
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).expect("a process id"), signal);
}

/// A condition of an object.
pub fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

/// Whether an object says that it is ready.
pub fn ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

/// Whether a text of an object contains a word.
pub fn says(value: &Value, word: &str) -> bool {
    value.as_str().is_some_and(|text| text.contains(word))
}

/// Waits for something that no object shows.
pub fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
