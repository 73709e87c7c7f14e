//! What PostgreSQL and MariaDB have to say for themselves; everything else is the same for both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use conductor_claims::version::{Version, VersionRange};
use conductor_local::{Account, Lack, Program, Stop, Trouble};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, Refused};
use crate::credentials::Login;

/// A kind's names.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Its kind.
    pub kind: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
}

/// An installed server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its program.
    pub program: PathBuf,
    /// Its version: `15.14`.
    pub version: String,
}

/// Where an instance's things are.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its data.
    pub data: PathBuf,
    /// Where its socket is.
    pub run: PathBuf,
    /// The address it listens on.
    pub address: String,
    /// The port it listens on.
    pub port: u16,
    /// Who it runs as.
    pub account: Option<Account>,
}

impl Place {
    /// Where its configuration is: beside its data, for the data is its account's, and so whatever its users make of it.
    pub fn configuration(&self) -> &Path {
        self.data.parent().unwrap_or(&self.data)
    }

    /// Where clients of this machine reach it.
    pub fn host(&self) -> &str {
        if self.address == "0.0.0.0" { "127.0.0.1" } else { &self.address }
    }
}

/// A database and who may use it.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// The database.
    pub database: &'a str,
    /// The login that is to work.
    pub login: &'a Login,
    /// Whether it may do everything on the server.
    pub superuser: bool,
    /// What marks the database as ours.
    pub mark: &'a str,
    /// How many may connect at a time; `None`: as many as the server takes.
    pub connections: Option<u32>,
}

/// A database in a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many bytes it holds; `None`: there is no such database.
    pub size: Option<u64>,
    /// What an administrator has said of whose it is; nobody else can.
    pub mark: String,
    /// What is said of the database itself, last when it is made: anyone who uses it may change that later.
    pub comment: String,
}

impl Seen {
    /// Size, mark and comment as the first row has them, tab-separated.
    pub fn of(rows: &[String]) -> Seen {
        let mut fields = rows.first().map(String::as_str).unwrap_or_default().splitn(3, '\t').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        Seen { size: next().parse().ok(), mark: next(), comment: next() }
    }

    /// What says whose it is: where no administrator has said it, whatever is said of the database.
    pub fn whose(&self) -> &str {
        if self.mark.is_empty() { &self.comment } else { &self.mark }
    }
}

/// What an instance is asked to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceSpec {
    /// What the class calls the engine.
    pub engine: Option<String>,
    /// The version: `15`, `15.14` or `>= 14`, as text or number.
    pub version: Value,
    /// How much it may hold.
    pub storage: Value,
    /// How much memory it is set up for.
    pub memory: Value,
    /// The database's name.
    pub database: Option<String>,
    /// The address to listen on.
    pub address: Option<String>,
    /// The port to listen on.
    pub port: Option<u16>,
    /// How many may connect.
    pub max_connections: Option<u32>,
    /// More settings, in the engine's own words.
    pub settings: BTreeMap<String, Value>,
    /// How many times what the machine has may be promised to all.
    pub overcommit: Option<u64>,
    /// Whether the login may do everything on the server.
    pub superuser: bool,
    /// For how many seconds the old credentials work after every Secret was replaced.
    pub rotation_grace_seconds: Option<u64>,
}

impl InstanceSpec {
    /// Name and value of each setting that may be written to the engine's file.
    pub fn settings<E: Engine>(&self) -> impl Iterator<Item = (&str, String)> {
        let each = self.settings.iter().map(|(key, value)| (key.as_str(), setting::<E>(key, value)));
        each.filter_map(|(key, text)| Some((key, text.ok()?)))
    }

    /// Why settings cannot be written; `None`: they all can.
    pub fn refused<E: Engine>(&self) -> Option<String> {
        let each = self.settings.iter().filter_map(|(key, value)| Some((key, setting::<E>(key, value).err()?)));
        each.map(|(key, why)| format!("spec.settings[{key:?}]: {why}: take it away")).next()
    }
}

/// Whether a name stands for one of several settings, in whatever form the engine takes it.
fn names<E: Engine>(mut name: &str, settings: &[&str]) -> bool {
    const BEFORE: [&str; 5] = ["loose_", "enable_", "disable_", "maximum_", "skip_"];
    let is = |name: &str| settings.iter().any(|own| *own == name || (E::ABBREVIATES && own.starts_with(name)));
    loop {
        if is(name) {
            return true;
        }
        match BEFORE.iter().find_map(|before| name.strip_prefix(before)) {
            Some(rest) if E::ABBREVIATES => name = rest,
            _ => return false,
        }
    }
}

/// What a setting is set to.
fn setting<E: Engine>(key: &str, value: &Value) -> Result<String, &'static str> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let own = key.to_ascii_lowercase().replace('-', "_");
    match () {
        () if !key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')) => {
            Err("no setting has this name")
        }
        () if text.contains(['\n', '\r']) => Err("a value is no more than a line"),
        () if names::<E>(&own, E::OWN_SETTINGS) => Err("Conductor sets it itself"),
        () if names::<E>(&own, E::REFUSED_SETTINGS) => Err("it would run programs, load code or let everybody in"),
        () if own.contains("preload_libraries") && text.contains('/') => Err("libraries are named without a path"),
        () => Ok(text),
    }
}

/// What a database in a shared server is asked to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatabaseSpec {
    /// What the class calls the engine.
    pub engine: Option<String>,
    /// How much it may hold.
    pub storage: Value,
    /// The Secret with `host`, `port`, `username`, `password` of someone who may make databases and roles.
    pub server_secret_ref: SecretRef,
    /// How many may connect at a time.
    pub max_connections: Option<u32>,
    /// For how many seconds the old credentials work after every Secret was replaced.
    pub rotation_grace_seconds: Option<u64>,
}

/// A Secret in the implementation's own namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
}

/// Where a shared server is, and its administrator.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Someone who may make databases and roles.
    pub login: Login,
}

impl Shared {
    /// Host and port.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Configuration: what can be changed while the server runs, and what it must be started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The file.
    pub file: PathBuf,
    /// Its content.
    pub content: String,
    /// The part that only a new start brings.
    pub at_start: String,
    /// More files, with their content.
    pub more: Vec<(PathBuf, String)>,
}

/// What a future of an engine is.
pub trait Answer<T>: Future<Output = Result<T, Refused>> + Send {}
impl<T, F: Future<Output = Result<T, Refused>> + Send> Answer<T> for F {}

/// PostgreSQL or MariaDB.
pub trait Engine: Send + Sync + 'static {
    /// Servers of their own.
    const INSTANCE: Names;
    /// Databases in shared servers.
    const DATABASE: Names;
    /// A word for its directory and templates.
    const WORD: &'static str;
    /// The `type` of a service binding, and the scheme of its uri.
    const TYPE: &'static str;
    /// What it calls itself where the class says nothing.
    const ENGINE: &'static str;
    /// The accounts its server may run as, if we are root.
    const ACCOUNTS: &'static [&'static str];
    /// Its usual port.
    const PORT: u16;
    /// Where a server says whose transactions are open.
    const SESSIONS: &'static str;
    /// Settings that a server here stands on, in lower case with underscores: nobody else's.
    const OWN_SETTINGS: &'static [&'static str];
    /// Settings that run programs, load code or let everybody in: whoever writes a class is not to do that on this machine.
    const REFUSED_SETTINGS: &'static [&'static str];
    /// Whether the beginning of a setting's name stands for it.
    const ABBREVIATES: bool;

    /// The installed server that satisfies a version, or what is missing.
    fn server(version: &str) -> Result<Server, Lack>;

    /// The client program, or what is missing.
    fn client() -> Result<PathBuf, Lack>;

    /// Makes a data directory from nothing, as the account.
    fn initialize(
        server: &Server,
        data: &Path,
        account: Option<&Account>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Whether a directory holds data of this engine.
    fn holds_data(data: &Path) -> bool;

    /// The configuration of an instance.
    fn configuration(spec: &InstanceSpec, memory: u64, place: &Place) -> Configuration;

    /// What to run. `at_start` is the part of the configuration that it is started with.
    fn program(server: &Server, place: &Place, at_start: &str) -> Program;

    /// Settings that somebody has made inside the server, which its next start is with: the file that has them, and their names.
    fn altered(_data: &Path) -> Option<(PathBuf, Vec<String>)> {
        None
    }

    /// The arguments with which the server starts, finds nothing to do, and ends: alone, and reached by nobody. Of several starts each shows
    /// something else.
    fn trials(server: &Server, place: &Place, file: &Path) -> Vec<Vec<String>>;

    /// Clears away what a killed server left that would keep the next from starting. Only called where none runs.
    fn clear(place: &Place);

    /// How it is ended in peace, and how it is ended when its data goes too.
    fn stop(data_goes: bool) -> Stop;

    /// Whether the server with this process id takes connections, as far as can be seen from outside.
    fn is_up(place: &Place, pid: i32) -> impl Future<Output = bool> + Send;

    /// What a client may send that a server answers before it knows who asks; empty: clients of ours ask it with every look anyway.
    const PROBE: &'static [u8];

    /// Whether its log says of everyone who is refused that they are, and why.
    const SAYS_REFUSALS: bool;

    /// The user or database that a line of the server's log says was refused to somebody.
    fn refused(line: &str) -> Option<&str>;

    /// The administrator of an instance: by its socket, without a password.
    fn administrator(client: &Path, place: &Place, database: Option<&str>) -> Client;

    /// Anyone, over the network.
    fn remote(client: &Path, host: &str, port: u16, login: &Login, database: Option<&str>) -> Client;

    /// The administrator of a server that is registered: whom no owner of a database keeps out of it.
    fn registered(client: &Path, host: &str, port: u16, login: &Login, database: Option<&str>) -> Client {
        Self::remote(client, host, port, login, database)
    }

    /// Sees to it that the database and its login are there and as they should be. `connect` gives the administrator's client for a
    /// database; `None` is any that is always there.
    fn bring(connect: &(dyn Fn(Option<&str>) -> Client + Sync), access: &Access<'_>, create: bool) -> impl Answer<()>;

    /// Undoes what those who use a database can do that keeps its logins out; what they have for passwords stays.
    fn open(connect: &(dyn Fn(Option<&str>) -> Client + Sync), access: &Access<'_>) -> impl Answer<()>;

    /// Sees to it that as many can connect as should.
    fn limit(connect: &(dyn Fn(Option<&str>) -> Client + Sync), access: &Access<'_>) -> impl Answer<()>;

    /// Lets only the current login work, of those of its user. What others have prepared to commit is theirs to end, unless their time is
    /// over `at_once`.
    fn retire(connect: &(dyn Fn(Option<&str>) -> Client + Sync), access: &Access<'_>, at_once: bool)
    -> impl Answer<()>;

    /// Ends the logins of a database's claims, all but those of the users that are kept, and whatever is done with them. What was made
    /// with them stays the database's.
    fn dismiss(connect: &(dyn Fn(Option<&str>) -> Client + Sync), database: &str, kept: &[String]) -> impl Answer<()>;

    /// A user's login for a rotation: another one, or another password where the engine lets two of them work.
    fn next_login(user: &str, rotation: i64, current: Option<&Login>, password: String) -> Login;

    /// A user's login where nobody knows the current one: no other that there is.
    fn unknown_login(
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        database: &str,
        user: &str,
        rotation: i64,
        password: String,
    ) -> impl Answer<Login>;

    /// Makes the next login work while the current one does too, or, where that is not known, whatever there is.
    fn add_login(
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        access: &Access<'_>,
        current: Option<&Login>,
    ) -> impl Answer<()>;

    /// Drops a database and its logins, if they are there.
    fn erase(connect: &(dyn Fn(Option<&str>) -> Client + Sync), database: &str) -> impl Answer<()>;

    /// Looks at a database.
    fn look(connect: &(dyn Fn(Option<&str>) -> Client + Sync), database: &str) -> impl Answer<Seen>;

    /// Marks a database that is there, and its logins.
    fn mark(connect: &(dyn Fn(Option<&str>) -> Client + Sync), database: &str, mark: &str) -> impl Answer<()>;

    /// Whether the server has a database.
    fn has(connect: &(dyn Fn(Option<&str>) -> Client + Sync), database: &str) -> impl Answer<bool>;

    /// How many things of users are in a database: tables, views, functions.
    fn content(connect: &(dyn Fn(Option<&str>) -> Client + Sync), database: &str) -> impl Answer<u64>;

    /// What was made in a server by those whose marks begin so: what it is, and its name.
    fn marked(
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        prefixes: &[String],
    ) -> impl Answer<Vec<(&'static str, String)>>;

    /// The server's version, as it says itself.
    fn version(connect: &(dyn Fn(Option<&str>) -> Client + Sync)) -> impl Answer<String>;
}

/// A quantity in bytes.
pub fn bytes(value: &Value) -> Result<Option<u64>, Trouble> {
    if value.is_null() {
        return Ok(None);
    }
    let amount = conductor_claims::amount::Amount::from_json(value)
        .map_err(|e| Trouble::new("Invalid", format!("{value} is no quantity: {e}")))?;
    Ok(Some(u64::try_from(amount.nanos() / 1_000_000_000).unwrap_or(u64::MAX)))
}

/// A version as text; a number is taken as it reads.
pub fn version_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    }
}

/// What a program says with `--version`. Asked once for as long as the program stays the same.
pub fn said_version(program: &Path) -> Option<String> {
    type Said = BTreeMap<PathBuf, (SystemTime, String)>;
    static SAID: Mutex<Said> = Mutex::new(BTreeMap::new());
    let changed = program.metadata().ok()?.modified().ok()?;
    if let Some((when, said)) = SAID.lock().get(program)
        && *when == changed
    {
        return Some(said.clone());
    }
    let output = std::process::Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    SAID.lock().insert(program.to_path_buf(), (changed, said.clone()));
    Some(said)
}

/// Whether a version is one that is wanted, as claims say it: 15.14 is a `15`, and `>= 14`. Nothing wanted takes any.
pub fn satisfies(have: &str, want: &str) -> bool {
    want.is_empty() || VersionRange::parse(want).is_ok_and(|range| range.contains(&Version::parse(have)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_series() {
        let check =
            |have: &str, want: &str, expected: bool| assert_eq!(satisfies(have, want), expected, "{have} {want}");
        check("15.14", "", true);
        check("15.14", "15", true);
        check("15.14", "15.14", true);
        check("15.14", "15.1", false);
        check("15.14", "16", false);
        check("15.14", ">= 14", true);
        check("15.14", ">= 16", false);
        check("15.14", "nonsense >", false);
    }
}
