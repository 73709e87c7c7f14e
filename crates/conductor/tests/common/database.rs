//! Claims of databases, and the engines' own clients.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use conductor_local::identity;
use serde_json::{Value, json};

use super::world::{World, ready, soon};

/// Claims of databases.
pub const CLAIMS: &str = "/apis/storage.conductor.io/v1alpha1/namespaces/default/relationaldatabaseclaims";
/// Databases.
pub const RESOURCES: &str = "/apis/storage.conductor.io/v1alpha1/relationaldatabases";
/// Their classes.
pub const CLASSES: &str = "/apis/storage.conductor.io/v1alpha1/relationaldatabaseclasses";
/// What is behind them.
pub const INSTANCES: &str = "/apis/database.local.conductor.io/v1alpha1/namespaces/conductor-system";

/// Makes a claim.
pub fn claim(world: &World, name: &str, spec: Value) {
    let claim = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClaim",
        "metadata": {"name": name}, "spec": spec,
    });
    world.create(CLAIMS, &claim);
}

/// Makes a class.
pub fn class(world: &World, name: &str, reclaim: &str, kind: &str, spec: Value) {
    let class = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": name},
        "spec": {
            "reclaimPolicy": reclaim, "allowExpansion": true,
            "offers": {"engine": ["postgres", "mysql"]},
            "template": {"apiVersion": "database.local.conductor.io/v1alpha1", "kind": kind, "spec": spec},
        },
    });
    world.create(CLASSES, &class);
}

/// Starts a server that several claims share, and registers it by its own connection Secret.
pub fn shared_server(world: &World, kind: &str) {
    shared_server_with(world, kind, json!({}));
}

/// The same with settings.
pub fn shared_server_with(world: &World, kind: &str, settings: Value) {
    let server = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": kind,
        "metadata": {"name": "shared"}, "spec": {"superuser": true, "settings": settings},
    });
    let plural = format!("{}s", kind.to_ascii_lowercase());
    world.create(&format!("{INSTANCES}/{plural}"), &server);
    world.until(&format!("{INSTANCES}/{plural}/shared"), "ready", ready);
}

/// The Secret that a shared server is registered by.
pub fn shared_secret(kind: &str) -> String {
    format!("shared-{}", kind.to_ascii_lowercase())
}

/// The implementation behind a claim: its path and itself.
pub fn behind(world: &World, claim: &str) -> (String, Value) {
    let claim = world.get(&format!("{CLAIMS}/{claim}")).expect("is there");
    let resource = claim["spec"]["resourceName"].as_str().expect("is bound");
    let resource = world.get(&format!("{RESOURCES}/{resource}")).expect("is there");
    let reference = &resource["status"]["implementations"][0];
    let plural = format!("{}s", reference["kind"].as_str().expect("has a kind").to_ascii_lowercase());
    let path = format!("{INSTANCES}/{plural}/{}", reference["name"].as_str().expect("has a name"));
    let object = world.get(&path).expect("is there");
    (path, object)
}

/// The directory and the living server of an instance.
pub fn server(world: &World, implementation: &Value) -> (PathBuf, Option<i32>) {
    let uid = implementation["metadata"]["uid"].as_str().expect("has a uid");
    let word = if implementation["kind"] == "PostgresInstance" { "postgres" } else { "mariadb" };
    let dir = world.home("databases").join(word).join(uid);
    let mark = dir.display().to_string();
    (dir, identity::leader(&mark).map(|seen| seen.pid))
}

/// Where the socket of an instance is.
pub fn socket(world: &World, implementation: &Value) -> PathBuf {
    let uid = implementation["metadata"]["uid"].as_str().expect("has a uid").replace('-', "");
    let word = if implementation["kind"] == "PostgresInstance" { "postgres" } else { "mariadb" };
    world.home("databases").join("run").join(word).join(&uid[..12])
}

/// The path of the resource an implementation is behind.
pub fn resource_of(implementation: &Value) -> String {
    let resource = implementation["metadata"]["annotations"]["conductor.io/resource-ref"].as_str().expect("is ours");
    format!("{RESOURCES}/{}", resource.split(' ').next_back().expect("has a name"))
}

/// Runs statements with the engine's own client and the Secret's details; what they answer.
pub fn sql(details: &BTreeMap<String, String>, statements: &str) -> Result<String, String> {
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
pub fn sql_soon(details: &BTreeMap<String, String>, statements: &str) -> String {
    soon("an answer", || sql(details, statements).ok())
}

/// A client that stays connected.
pub struct Session {
    client: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Connects; `None`: it is refused.
    pub fn open(details: &BTreeMap<String, String>) -> Option<Session> {
        let mut command;
        if details["type"] == "postgresql" {
            command = Command::new("psql");
            command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", &details["uri"]]);
        } else {
            command = Command::new("mariadb");
            let login = ["host", "port", "user"]
                .map(|key| format!("--{key}={}", details[key.replace("user", "username").as_str()]));
            command.args(["--no-defaults", "--protocol=tcp", "--skip-reconnect", "-nBN"]).args(login);
            command.arg(&details["database"]).env("MYSQL_PWD", &details["password"]);
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = command.spawn().expect("the client runs");
        let (input, output) = (client.stdin.take().expect("is piped"), client.stdout.take().expect("is piped"));
        let mut session = Session { client, input, output: BufReader::new(output) };
        session.ask("select 1").map(|_| session)
    }

    /// What statements answer, in one line; `None`: it is connected no more, or they are refused, which ends it.
    pub fn ask(&mut self, statements: &str) -> Option<String> {
        self.input.write_all(format!("{statements};\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.output.read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim().to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = (self.client.kill(), self.client.wait());
    }
}

/// What an application does, wherever its claim is served.
pub fn application(details: &BTreeMap<String, String>) {
    sql(details, "create table greeting (words varchar(20)); insert into greeting values ('hello')").expect("may");
    assert_eq!(sql(details, "select words from greeting").as_deref(), Ok("hello"));
}

/// How many databases and roles of claims a shared PostgreSQL server has.
pub fn left_in_postgres(world: &World) -> String {
    let count = "select (select count(*) from pg_database where datname like 'c\\_%') + (select count(*) from pg_roles where rolname like 'c\\_%')";
    sql_soon(&world.secret("conductor-system", &shared_secret("PostgresInstance")), count)
}

/// How many databases and users of claims a shared MariaDB server has.
pub fn left_in_mariadb(world: &World) -> String {
    let count = "select (select count(*) from information_schema.schemata where schema_name like 'c\\_%') + (select count(*) from mysql.user where user like 'c\\_%')";
    sql_soon(&world.secret("conductor-system", &shared_secret("MariaDBInstance")), count)
}
