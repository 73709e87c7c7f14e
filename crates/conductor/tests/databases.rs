//! Real databases behind claims: `conductor up`, real PostgreSQL and MariaDB, the engines' own clients with the claim's Secret.
//!
//! `CONDUCTOR_CLAIMS=300` makes the test for leaks longer.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use common::{Conductor, JSON, Random, block_on};
use conductor_local::identity;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const CLAIMS: &str = "/apis/storage.conductor.io/v1alpha1/namespaces/default/relationaldatabaseclaims";
const RESOURCES: &str = "/apis/storage.conductor.io/v1alpha1/relationaldatabases";
const CLASSES: &str = "/apis/storage.conductor.io/v1alpha1/relationaldatabaseclasses";
const INSTANCES: &str = "/apis/database.local.conductor.io/v1alpha1/namespaces/conductor-system";
const MERGE: &str = "application/merge-patch+json";

/// A `conductor up` on a directory of its own. Whatever it started is ended with it.
struct World {
    data: PathBuf,
    conductor: Option<Conductor>,
    _directory: tempfile::TempDir,
}

/// Whether this machine has what a test needs; says aloud if not.
fn has(test: &str, programs: &[(&str, &str)]) -> bool {
    let missing = programs.iter().find(|(program, _)| {
        let debian: Vec<PathBuf> =
            fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|e| e.path().join("bin")).collect();
        conductor_local::lack::find_program(program, &debian).is_none()
    });
    if let Some((program, package)) = missing {
        conductor_testkit::skip(test, &format!("there is no {program}: apt-get install {package}"));
    }
    missing.is_none()
}

const POSTGRES: &[(&str, &str)] = &[("postgres", "postgresql"), ("psql", "postgresql-client")];
const MARIADB: &[(&str, &str)] = &[("mariadbd", "mariadb-server"), ("mariadb", "mariadb-client")];

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().expect("makes a directory");
        let data = directory.path().join("data");
        fs::create_dir(&data).expect("makes a directory");
        // the engines run as users of their own, who must get there
        for dir in [directory.path(), &data] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("may");
        }
        let conductor = Some(Conductor::start(&data, &[]));
        World { data, conductor, _directory: directory }
    }

    fn home(&self) -> PathBuf {
        self.data.canonicalize().expect("is there").join("providers/databases")
    }

    fn kill_conductor(&mut self) {
        self.conductor.take().expect("runs").kill();
    }

    fn start_conductor(&mut self) {
        self.conductor = Some(Conductor::start(&self.data, &[]));
    }

    fn request(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> (u16, Value) {
        let text = body.map(|(kind, body)| (kind, body.to_string()));
        let body = text.as_ref().map(|(kind, text)| (*kind, text.as_bytes()));
        let endpoint = &self.conductor.as_ref().expect("runs").endpoint;
        let answer = block_on(endpoint.request(method, path, body)).expect("answers");
        (answer.code, answer.json())
    }

    fn get(&self, path: &str) -> Option<Value> {
        match self.request("GET", path, None) {
            (200, value) => Some(value),
            (404, _) => None,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn create(&self, path: &str, object: &Value) {
        let begun = Instant::now();
        loop {
            match self.request("POST", path, Some((JSON, object))) {
                (201, _) => return,
                // the kind was not yet defined
                (404, _) if begun.elapsed() < Duration::from_secs(30) => std::thread::sleep(Duration::from_millis(50)),
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    fn patch(&self, path: &str, patch: Value) -> Value {
        let (code, value) = self.request("PATCH", path, Some((MERGE, &patch)));
        assert_eq!(code, 200, "{path}: {value}");
        value
    }

    /// Waits for an object to be as it should.
    fn until(&self, path: &str, what: &str, fine: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        let mut last = Value::Null;
        while begun.elapsed() < Duration::from_secs(120) {
            last = self.get(path).unwrap_or_default();
            if fine(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!(
            "{path} is not {what}: {}\n{}",
            last["status"],
            self.conductor.as_ref().map(Conductor::log).unwrap_or_default()
        );
    }

    fn gone(&self, path: &str) {
        let begun = Instant::now();
        while let Some(there) = self.get(path) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{path} does not go: {there}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn claim(&self, name: &str, spec: Value) {
        let claim = json!({
            "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClaim",
            "metadata": {"name": name}, "spec": spec,
        });
        self.create(CLAIMS, &claim);
    }

    /// The details of a bound claim, as an application finds them.
    fn details(&self, name: &str) -> BTreeMap<String, String> {
        let usable = |c: &Value| c["status"]["phase"] == "Bound" && c["status"]["binding"]["name"].is_string();
        let claim = self.until(&format!("{CLAIMS}/{name}"), "bound", usable);
        let secret = claim["status"]["binding"]["name"].as_str().expect("is named");
        self.secret("default", secret)
    }

    fn secret(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret = self.until(&path, "there", |s| s["data"]["uri"].is_string());
        let plain = |v: &Value| {
            let bytes =
                base64::engine::general_purpose::STANDARD.decode(v.as_str().expect("is text")).expect("is base64");
            String::from_utf8(bytes).expect("is text")
        };
        secret["data"].as_object().expect("has data").iter().map(|(k, v)| (k.clone(), plain(v))).collect()
    }

    /// The implementation behind a claim: its path and itself.
    fn implementation(&self, claim: &str) -> (String, Value) {
        let claim = self.get(&format!("{CLAIMS}/{claim}")).expect("is there");
        let resource = claim["spec"]["resourceName"].as_str().expect("is bound");
        let resource = self.get(&format!("{RESOURCES}/{resource}")).expect("is there");
        let reference = &resource["status"]["implementations"][0];
        let plural = format!("{}s", reference["kind"].as_str().expect("has a kind").to_ascii_lowercase());
        let path = format!("{INSTANCES}/{plural}/{}", reference["name"].as_str().expect("has a name"));
        let object = self.get(&path).expect("is there");
        (path, object)
    }

    /// Has an implementation looked at now.
    fn poke(&self, path: &str) {
        let stamp = format!("{:?}", Instant::now());
        self.patch(path, json!({"metadata": {"annotations": {"test/poke": stamp}}}));
    }

    /// The directory and the living server of an instance.
    fn server(&self, implementation: &Value) -> (PathBuf, Option<i32>) {
        let uid = implementation["metadata"]["uid"].as_str().expect("has a uid");
        let word = if implementation["kind"] == "PostgresInstance" { "postgres" } else { "mariadb" };
        let dir = self.home().join(word).join(uid);
        let mark = dir.display().to_string();
        (dir, identity::leader(&mark).map(|seen| seen.pid))
    }

    fn audit(&self) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_conductor"))
            .args(["audit", "--kubeconfig"])
            .arg(self.data.join("kubeconfig"))
            .output()
            .expect("runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    }

    fn conductor(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_conductor"))
            .args(arguments)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .output()
            .expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.conductor.take());
        for (_, pid) in identity::marked(&self.home().display().to_string()) {
            kill(pid, Signal::KILL);
        }
    }
}

fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).expect("a process id"), signal);
}

fn resource_of(implementation: &Value) -> String {
    let resource = implementation["metadata"]["annotations"]["conductor.io/resource-ref"].as_str().expect("is ours");
    format!("{RESOURCES}/{}", resource.split(' ').next_back().expect("has a name"))
}

fn ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

/// Runs statements with the engine's own client and the Secret's details; what they answer.
fn sql(details: &BTreeMap<String, String>, statements: &str) -> Result<String, String> {
    let mut command;
    if details["type"] == "postgresql" {
        command = Command::new("psql");
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statements, &details["uri"]]);
    } else {
        command = Command::new("mariadb");
        let login =
            [format!("-h{}", details["host"]), format!("-P{}", details["port"]), format!("-u{}", details["username"])];
        command.args(["--no-defaults", "--protocol=tcp", "-BN"]).args(login).args([
            "-e",
            statements,
            &details["database"],
        ]);
        command.env("MYSQL_PWD", &details["password"]);
    }
    let output = command.output().expect("the client runs");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The same, patiently: a server that starts refuses for a moment.
fn sql_soon(details: &BTreeMap<String, String>, statements: &str) -> String {
    let begun = Instant::now();
    loop {
        match sql(details, statements) {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a watch shows of a claim, in order.
struct Watching {
    runtime: tokio::runtime::Runtime,
    watch: conductor_testkit::wire::Watch,
}

impl Watching {
    fn new(world: &World, path: &str) -> Watching {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let endpoint = world.conductor.as_ref().expect("runs").endpoint.clone();
        let path = format!("{path}?watch=true");
        let watch = runtime.block_on(async move { endpoint.connect().await?.watch(&path).await }).expect("watches");
        Watching { runtime, watch }
    }

    fn until(&mut self, fine: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(60), self.watch.line()).await.expect("something is shown")
            });
            let line = line.expect("can be read").expect("goes on");
            let event: Value = serde_json::from_slice(&line).expect("is JSON");
            if fine(&event["object"]) {
                return event["object"].clone();
            }
        }
    }
}

fn outlives(class: &str) {
    let mut world = World::new();
    world.claim("db", json!({"class": class}));
    let details = world.details("db");
    sql(&details, "create table t (n int); insert into t values (42)").expect("may");
    assert_eq!(sql(&details, "select n from t").as_deref(), Ok("42"));
    let (path, implementation) = world.implementation("db");
    let (dir, pid) = world.server(&implementation);
    let pid = pid.expect("a server runs");
    // passwords are nowhere in a list of processes, and `conductor connect` is the client
    let ask = if class == "postgres" { "-XqAtc" } else { "-BNe" };
    assert_eq!(world.conductor(&["connect", "db", "--", ask, "select n from t"]).trim(), "42");
    assert!(
        world.conductor(&["logs", "relationaldatabaseclaim/db"]).contains("ready"),
        "the log says that it is ready"
    );

    world.kill_conductor();
    assert_eq!(sql(&details, "select n from t").as_deref(), Ok("42"), "Conductor is not needed to use it");
    world.start_conductor();
    world.poke(&path);
    assert_eq!(world.details("db"), details);
    assert_eq!(world.server(&implementation).1, Some(pid), "it is the same process");

    let mut watch = Watching::new(&world, CLAIMS);
    kill(pid, Signal::KILL);
    let said = watch.until(|c| condition(c, "Ready")["status"] == "False");
    assert_eq!(said["status"]["phase"], "Bound", "it is still the claim's: {said}");
    watch.until(ready);
    let mended = world.until(&path, "ready after a restart", |i| ready(i) && i["status"]["restarts"] == 1);
    assert_eq!(mended["status"]["port"], implementation["status"]["port"]);
    assert_eq!(sql_soon(&details, "select n from t"), "42");
    assert_ne!(world.server(&implementation).1, Some(pid));
    let (fine, said) = world.audit();
    assert!(fine, "{said}");

    world.request("DELETE", &format!("{CLAIMS}/db"), None);
    world.gone(&path);
    assert!(!dir.exists() && world.server(&implementation).1.is_none(), "nothing is left");
    let (fine, said) = world.audit();
    assert!(fine, "{said}");
}

#[test]
fn a_postgres_claim_is_a_real_database_that_outlives_conductor_and_its_own_crash() {
    if has("PostgreSQL", POSTGRES) {
        outlives("postgres");
    }
}

#[test]
fn a_mariadb_claim_is_a_real_database_that_outlives_conductor_and_its_own_crash() {
    if has("MariaDB", MARIADB) {
        outlives("mariadb");
    }
}

#[test]
fn drift_is_corrected_lost_data_is_said_and_credentials_rotate() {
    if !has("drift", POSTGRES) {
        return;
    }
    let world = World::new();
    world.claim("db", json!({"class": "postgres", "resources": {"requests": {"storage": "2Gi"}}}));
    let details = world.details("db");
    sql(&details, "create table t (n int); insert into t values (7)").expect("may");
    let (path, implementation) = world.implementation("db");
    let (dir, pid) = world.server(&implementation);

    // someone makes the login useless and edits the configuration
    let socket = world.home().join("run/postgres").display().to_string();
    let port = implementation["status"]["port"].to_string();
    let drop = format!("alter role {} nologin", details["username"]);
    let admin = ["-XqAt", "-h", &socket, "-p", &port, "-U", "conductor", "-d", "app", "-c", &drop];
    assert!(Command::new("psql").args(admin).status().expect("runs").success());
    let file = dir.join("data/postgresql.conf");
    let before = fs::read_to_string(&file).expect("is there");
    fs::write(&file, format!("{before}fsync = off\n")).expect("may");
    assert!(sql(&details, "select 1").is_err());
    world.poke(&path);
    assert_eq!(sql_soon(&details, "select n from t"), "7");
    assert_eq!(fs::read_to_string(&file).expect("is there"), before);
    assert_eq!(world.server(&implementation).1, pid, "drift needs no restart");

    // a rotation: both work until its time is over, then only the new one; what the old one made stays
    world.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 2}}));
    world.until(&path, "rotated", |i| i["status"]["rotated"] == 1);
    assert_eq!(
        sql(&details, "select n from t").as_deref(),
        Ok("7"),
        "the old login works until the Secret is replaced"
    );
    let begun = Instant::now();
    let new = loop {
        let new = world.details("db");
        if new["password"] != details["password"] {
            break new;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the claim's Secret is replaced");
    };
    assert_eq!(sql(&new, "select n from t").as_deref(), Ok("7"));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert!(sql(&details, "select 1").is_err(), "the old login is refused");
    assert_eq!(sql(&new, "insert into t values (8); select count(*) from t").as_deref(), Ok("2"));

    // more memory is a new start with the same data
    world.patch(&path, json!({"spec": {"memory": "128Mi"}}));
    world.until(&path, "ready again", |i| ready(i) && i["status"]["observedGeneration"] == i["metadata"]["generation"]);
    assert_eq!(sql_soon(&new, "show shared_buffers"), "32MB");
    assert_eq!(sql_soon(&new, "select count(*) from t"), "2");

    // the data is gone: said, and not made anew; back again: healed
    let (_, pid) = world.server(&implementation);
    fs::rename(dir.join("data"), dir.join("away")).expect("may");
    kill(pid.expect("runs"), Signal::KILL);
    let lost = world.until(&path, "lost", |i| condition(i, "Ready")["reason"] == "Lost");
    assert!(condition(&lost, "Ready")["message"].as_str().is_some_and(|m| m.contains("backup")), "{lost}");
    world.poke(&path);
    world.until(&resource_of(&implementation), "saying so", |r| r["status"]["phase"] == "Failed");
    let claim = world.until(&format!("{CLAIMS}/db"), "lost", |c| c["status"]["phase"] == "Lost");
    assert!(claim["status"]["message"].as_str().is_some_and(|m| m.contains("backup")), "{claim}");
    assert!(!dir.join("data").exists(), "data is never made anew under a live claim");
    let (fine, said) = world.audit();
    assert!(!fine && said.contains("data-there"), "{said}");
    fs::rename(dir.join("away"), dir.join("data")).expect("may");
    world.poke(&path);
    world.until(&path, "healed", ready);
    world.until(&format!("{CLAIMS}/db"), "healed", |c| c["status"]["phase"] == "Bound" && ready(c));
    assert_eq!(sql_soon(&new, "select count(*) from t"), "2");

    // a leftover is found
    fs::create_dir(world.home().join("postgres/stray")).expect("may");
    let (fine, said) = world.audit();
    assert!(!fine && said.contains("no-leftover-directory"), "{said}");
}

/// Applies an example's file.
fn apply_file(world: &World, file: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let text = fs::read_to_string(&path).expect("is there");
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).expect("is YAML");
        let path = match object["kind"].as_str().expect("has a kind") {
            "RelationalDatabaseClass" => CLASSES.to_owned(),
            "RelationalDatabaseClaim" => CLAIMS.to_owned(),
            kind => format!("{INSTANCES}/{}s", kind.to_ascii_lowercase()),
        };
        world.create(&path, &object);
    }
}

#[test]
fn the_same_application_directory_runs_over_two_sets_of_classes() {
    if !has("portability", POSTGRES) {
        return;
    }
    for (classes, kind) in [("own-servers", "PostgresInstance"), ("shared-server", "PostgresDatabase")] {
        let world = World::new();
        apply_file(&world, &format!("classes/{classes}.yaml"));
        apply_file(&world, "shop/claim.yaml");
        application(&world.details("shop-db"));
        assert_eq!(world.implementation("shop-db").1["kind"], kind);
    }
}

fn class(world: &World, name: &str, reclaim: &str, kind: &str, spec: Value) {
    let class = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": name},
        "spec": {
            "reclaimPolicy": reclaim,
            "offers": {"engine": ["postgres", "mysql"]},
            "template": {"apiVersion": "database.local.conductor.io/v1alpha1", "kind": kind, "spec": spec},
        },
    });
    world.create(CLASSES, &class);
}

/// Starts a server that several claims share, and registers it by its own connection Secret.
fn shared_server(world: &World, kind: &str) {
    let server = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": kind,
        "metadata": {"name": "shared"}, "spec": {"superuser": true},
    });
    let plural = format!("{}s", kind.to_ascii_lowercase());
    world.create(&format!("{INSTANCES}/{plural}"), &server);
    world.until(&format!("{INSTANCES}/{plural}/shared"), "ready", ready);
}

/// What an application does, wherever its claim is served.
fn application(details: &BTreeMap<String, String>) {
    sql(details, "create table greeting (words varchar(20)); insert into greeting values ('hello')").expect("may");
    assert_eq!(sql(details, "select words from greeting").as_deref(), Ok("hello"));
}

fn portable(engine: &str, instance: &str, database: &str) {
    let world = World::new();
    shared_server(&world, instance);
    let asked = json!({"engine": engine, "class": "standard", "resources": {"requests": {"storage": "1Gi"}}});
    let sets = [
        (instance, json!({"storage": "${resource.spec.capacity.storage}"})),
        (
            database,
            json!({"serverSecretRef": {"name": "shared-connection"}, "storage": "${resource.spec.capacity.storage}"}),
        ),
    ];
    for (kind, template) in sets {
        class(&world, "standard", "Recycle", kind, template);
        world.claim("db", asked.clone());
        let first = world.details("db");
        application(&first);
        let (path, implementation) = world.implementation("db");
        assert_eq!(implementation["kind"], kind);
        assert!(condition(&implementation, "WithinCapacity")["status"] == "True", "{implementation}");

        // released and recycled: the next claim finds nothing of it, and the old login is refused
        world.request("DELETE", &format!("{CLAIMS}/db"), None);
        world.gone(&format!("{CLAIMS}/db"));
        let scrubbed = world.until(&path, "scrubbed", |i| i["status"]["scrubbed"] == 1);
        assert_eq!(condition(&scrubbed, "Scrubbed")["status"], "True", "{scrubbed}");
        world.until(&resource_of(&implementation), "free", |r| r["status"]["phase"] == "Available");
        world.claim("db", asked.clone());
        let second = world.details("db");
        assert_eq!(world.implementation("db").0, path, "it is used again");
        assert_ne!(first["password"], second["password"]);
        assert!(sql(&first, "select 1").is_err(), "the old login is refused");
        application(&second);
        // another's database in the same server is closed to it
        if kind == database {
            world.claim("other", asked.clone());
            let mut other = world.details("other");
            application(&other);
            let swap = other["uri"].replace(&other["database"], &second["database"]).replacen(
                &second["database"],
                &other["username"],
                0,
            );
            other.insert("uri".into(), swap);
            other.insert("database".into(), second["database"].clone());
            assert!(sql(&other, "select words from greeting").is_err(), "claims are kept apart");
            world.request("DELETE", &format!("{CLAIMS}/other"), None);
            world.gone(&format!("{CLAIMS}/other"));
        }
        world.request("DELETE", &format!("{CLAIMS}/db"), None);
        world.gone(&format!("{CLAIMS}/db"));
        // the administrator clears the class away, with what it kept for reuse
        world.request("DELETE", &format!("{CLASSES}/standard"), None);
        for resource in world.get(RESOURCES).expect("a list")["items"].as_array().into_iter().flatten() {
            let name = resource["metadata"]["name"].as_str().expect("has a name");
            world.until(&format!("{RESOURCES}/{name}"), "free", |r| r["status"]["phase"] == "Available");
            world.patch(&format!("{RESOURCES}/{name}"), json!({"spec": {"reclaimPolicy": "Delete"}}));
            world.request("DELETE", &format!("{RESOURCES}/{name}"), None);
            world.gone(&format!("{RESOURCES}/{name}"));
        }
        world.gone(&path);
    }
    let admin = world.secret("conductor-system", "shared-connection");
    let left = if engine == "postgres" {
        sql(
            &admin,
            "select count(*) from pg_database where datname like 'c\\_%'; select count(*) from pg_roles where rolname like 'c\\_%'",
        )
    } else {
        sql(
            &admin,
            "select count(*) from information_schema.schemata where schema_name like 'c\\_%'; select count(*) from mysql.user where user like 'c\\_%'",
        )
    };
    assert_eq!(left.as_deref(), Ok("0\n0"), "no database and no role is left");
    let (fine, said) = world.audit();
    assert!(fine, "{said}");
}

#[test]
fn one_application_runs_on_own_and_on_shared_postgres_servers() {
    if has("portability on PostgreSQL", POSTGRES) {
        portable("postgres", "PostgresInstance", "PostgresDatabase");
    }
}

#[test]
fn one_application_runs_on_own_and_on_shared_mariadb_servers() {
    if has("portability on MariaDB", MARIADB) {
        portable("mysql", "MariaDBInstance", "MariaDBDatabase");
    }
}

#[test]
fn nothing_is_left_of_claims_whoever_is_killed_meanwhile() {
    if !has("leaks", POSTGRES) {
        return;
    }
    let count: u64 = std::env::var("CONDUCTOR_CLAIMS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let mut random = Random(7);
    let mut world = World::new();
    shared_server(&world, "PostgresInstance");
    class(&world, "own", "Delete", "PostgresInstance", json!({}));
    class(&world, "part", "Delete", "PostgresDatabase", json!({"serverSecretRef": {"name": "shared-connection"}}));
    let mut alive: Vec<String> = Vec::new();
    let (mut made, mut kills) = (0, 0);
    while made < count || !alive.is_empty() {
        match random.below(10) {
            0..5 if made < count => {
                let name = format!("db-{made}");
                world.claim(&name, json!({"class": if random.below(2) == 0 { "own" } else { "part" }}));
                alive.push(name);
                made += 1;
            }
            5..8 if !alive.is_empty() => {
                let name = alive.swap_remove(random.below(alive.len() as u64) as usize);
                if random.below(2) == 0 {
                    application(&world.details(&name));
                }
                world.request("DELETE", &format!("{CLAIMS}/{name}"), None);
            }
            8 => {
                kills += 1;
                world.kill_conductor();
                world.start_conductor();
            }
            9 => {
                let all: Vec<i32> =
                    identity::marked(&world.home().display().to_string()).into_iter().map(|(_, pid)| pid).collect();
                if !all.is_empty() {
                    kills += 1;
                    kill(all[random.below(all.len() as u64) as usize], Signal::KILL);
                }
            }
            _ => {}
        }
    }
    let begun = Instant::now();
    let empty = |path: &str| world.get(path).is_some_and(|list| list["items"].as_array().is_some_and(Vec::is_empty));
    while !(empty(CLAIMS) && empty(RESOURCES)) {
        assert!(begun.elapsed() < Duration::from_secs(300), "not everything goes");
        std::thread::sleep(Duration::from_millis(100));
    }
    world.until(&format!("{INSTANCES}/postgresinstances/shared"), "ready", ready);
    let alive: Vec<_> = identity::marked(&world.home().display().to_string()).into_iter().collect();
    assert_eq!(alive.len(), 1, "only the shared server runs: {alive:?}");
    let dirs = fs::read_dir(world.home().join("postgres")).expect("is there").count();
    assert_eq!(dirs, 1, "only the shared server has a directory");
    let sockets = fs::read_dir(world.home().join("run/postgres")).expect("is there").count();
    assert_eq!(sockets, 2, "only the shared server has a socket and its lock");
    let admin = world.secret("conductor-system", "shared-connection");
    let left = "select (select count(*) from pg_database where datname like 'c\\_%') + (select count(*) from pg_roles where rolname like 'c\\_%')";
    assert_eq!(sql_soon(&admin, left), "0", "no database and no role is left");
    let (fine, said) = world.audit();
    assert!(fine, "{said}");
    println!("{made} claims made and deleted, {kills} processes killed");
}
