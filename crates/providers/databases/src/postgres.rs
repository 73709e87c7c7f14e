//! PostgreSQL.
//!
//! A database is owned by a role of its own name that cannot log in. Who logs in is a member and acts as the owner from the first
//! statement on, so that what a login made outlives it: a rotation is a new login and, later, the end of the old one.
//!
//! *Invariant:* what an administrator runs means what it says: names are looked up in `pg_catalog` alone, whatever a database's owner has
//! set or made, and no text that a server answered is part of a script unless it is a plain name that we could have given.

mod configuration;
mod logins;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use conductor_local::{Account, Lack, Program, Stop, Trouble, inside, lack};
use rustix::process::Signal;

use self::configuration::{altered_in, arguments};
use self::logins::{end, end_sessions, leave, logins, roll_back, roll_back_all, shut, user_of};
use crate::client::{Client, Refused, nobody};
use crate::credentials::Login;
use crate::engine::{Access, Configuration, Engine, InstanceSpec, Names, Place, Seen, Server, said_version, satisfies};
use crate::refusals::between;

/// PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

/// The superuser of our own servers; only by the socket, which only its account and we can get to.
const ADMIN: &str = "conductor";

type Connect<'a> = &'a (dyn Fn(Option<&str>) -> Client + Sync);

/// Every place where a version may be installed.
fn places() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    let number = |p: &PathBuf| p.parent().and_then(|p| p.file_name()?.to_str()?.parse::<f64>().ok()).unwrap_or(0.0);
    all.sort_by(|a, b| number(b).total_cmp(&number(a)));
    all
}

/// `postgres (PostgreSQL) 15.14 (Debian …)`
fn version_in(words: &str) -> Option<String> {
    let number = words.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(number.to_owned())
}

impl Engine for Postgres {
    const INSTANCE: Names = Names { kind: "PostgresInstance", plural: "postgresinstances" };
    const DATABASE: Names = Names { kind: "PostgresDatabase", plural: "postgresdatabases" };
    const WORD: &'static str = "postgres";
    const TYPE: &'static str = "postgresql";
    const ENGINE: &'static str = "postgres";
    const ACCOUNTS: &'static [&'static str] = &["postgres"];
    const PORT: u16 = 5432;
    const SESSIONS: &'static str = "pg_stat_activity";
    const OWN_SETTINGS: &'static [&'static str] = &[
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "ident_file",
        "include",
        "include_dir",
        "include_if_exists",
        "listen_addresses",
        "port",
        "unix_socket_directories",
    ];
    const REFUSED_SETTINGS: &'static [&'static str] = &[
        "archive_cleanup_command",
        "archive_command",
        "archive_library",
        "dynamic_library_path",
        "extension_control_path",
        "jit_provider",
        // a mistake in one of these keeps everybody out: shared_preload_libraries is tried first
        "local_preload_libraries",
        "session_preload_libraries",
        "recovery_end_command",
        "restore_command",
        "ssl_passphrase_command",
    ];
    const ABBREVIATES: bool = false;

    fn server(version: &str) -> Result<Server, Lack> {
        let mut there = Vec::new();
        // each version of Debian's, then whatever else there is
        let each = places().into_iter().map(|dir| vec![dir]).chain([Vec::new()]);
        for program in each.filter_map(|dir| lack::find_program("postgres", &dir)) {
            let Some(has) = said_version(&program).as_deref().and_then(version_in) else { continue };
            if satisfies(&has, version) && program.with_file_name("initdb").exists() {
                return Ok(Server { program, version: has });
            }
            if !there.contains(&has) {
                there.push(has);
            }
        }
        if there.is_empty() || version.is_empty() {
            return Err(Lack::package("postgres", "postgresql"));
        }
        // the first number in it: 16 of ">= 16.2"
        let major = version.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty()).unwrap_or(version);
        let what = format!("PostgreSQL {version} (there is {})", there.join(", "));
        Err(Lack::new(what, format!("apt-get install postgresql-{major}")))
    }

    fn client() -> Result<PathBuf, Lack> {
        lack::program("psql", "postgresql-client", &places())
    }

    async fn initialize(server: &Server, data: &Path, account: Option<&Account>) -> Result<(), Trouble> {
        let run = |program: PathBuf, arguments: Vec<String>, input: &'static str| async move {
            let mut command = tokio::process::Command::new(&program);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .env("LC_ALL", "C.UTF-8")
                .current_dir("/")
                .kill_on_drop(true);
            if let Some(account) = account {
                command.uid(account.uid).gid(account.gid);
            }
            let what = format!("run {}", program.display());
            let mut child = command.spawn().map_err(Trouble::io(&what))?;
            if let Some(mut stdin) = child.stdin.take() {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await;
            }
            let output = child.wait_with_output().await.map_err(Trouble::io(&what))?;
            if output.status.success() {
                return Ok(());
            }
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Trouble::new("InitFailed", format!("{} failed: {words}", program.display())))
        };
        let data = data.display().to_string();
        let init =
            ["-D", &data, "-U", ADMIN, "-E", "UTF8", "--locale=C.UTF-8", "--wal-segsize=1", "--no-sync", "-A", "peer"];
        let init = init.map(str::to_owned).to_vec();
        run(server.program.with_file_name("initdb"), init, "").await?;
        // the database for the claim is there from the start: to copy it costs less than to create it
        let make = "alter database postgres rename to app\ncreate role app nologin\nalter database app owner to app\n\
                    revoke all on database app from public\nrevoke create on schema public from public\n\
                    revoke connect on database template1 from public\n";
        run(server.program.clone(), ["--single", "-D", &data, "template1"].map(str::to_owned).to_vec(), make).await
    }

    fn holds_data(data: &Path) -> bool {
        data.join("PG_VERSION").exists() && data.join("global/pg_control").exists()
    }

    fn configuration(spec: &InstanceSpec, memory: u64, place: &Place) -> Configuration {
        configuration::configuration(spec, memory, place)
    }

    fn program(server: &Server, place: &Place, at_start: &str) -> Program {
        let configuration = place.configuration().join("postgresql.conf");
        let mut command = vec![
            server.program.display().to_string(),
            "-D".into(),
            place.data.display().to_string(),
            "-c".into(),
            format!("config_file={}", configuration.display()),
        ];
        command.extend(arguments(at_start));
        Program {
            command,
            environment: Vec::new(),
            account: place.account.clone(),
            working_directory: place.data.clone(),
        }
    }

    fn altered(data: &Path) -> Option<(PathBuf, Vec<String>)> {
        let file = data.join("postgresql.auto.conf");
        let names = altered_in(&inside::read_small(&file)?);
        (!names.is_empty()).then_some((file, names))
    }

    fn trials(server: &Server, place: &Place, file: &Path) -> Vec<Vec<String>> {
        let (data, file) = (place.data.display().to_string(), format!("config_file={}", file.display()));
        let major = server.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        let asked = |what: &str| ["-D", &data, "-c", &file, "-C", what].map(str::to_owned).to_vec();
        match major.is_some_and(|major| major >= 15) {
            // what initdb asks, which takes the memory; and how much that is, for which libraries are loaded
            true => {
                vec![["--check", "-D", &data, "-c", &file].map(str::to_owned).to_vec(), asked("shared_memory_size")]
            }
            // older ones can only be asked whether they can read it
            false => vec![asked("port")],
        }
    }

    fn clear(place: &Place) {
        // the pid in them may be another's by now, or a zombie's that nobody has reaped
        let socket = place.run.join(format!(".s.PGSQL.{}", place.port));
        let lock = place.run.join(format!(".s.PGSQL.{}.lock", place.port));
        for file in [place.data.join("postmaster.pid"), lock, socket] {
            let _ = fs::remove_file(file);
        }
    }

    fn stop(data_goes: bool) -> Stop {
        match data_goes {
            true => Stop { signal: Signal::QUIT, patience: Duration::from_secs(5) },
            false => Stop { signal: Signal::INT, patience: Duration::from_secs(60) },
        }
    }

    async fn is_up(place: &Place, pid: i32) -> bool {
        // one that was killed leaves its file behind
        let state = inside::read_small(&place.data.join("postmaster.pid")).unwrap_or_default();
        let own = state.lines().next().is_some_and(|line| line.trim().parse() == Ok(pid));
        own && state.lines().nth(7).is_some_and(|line| line.trim() == "ready")
    }

    fn administrator(client: &Path, place: &Place, database: Option<&str>) -> Client {
        let host = place.run.display().to_string();
        let mut client = let_in(connect(client, &host, place.port, ADMIN, None, database.unwrap_or("template1")));
        client.runs_as = place.account.as_ref().map(|account| (account.uid, account.gid));
        client
    }

    // whether it would talk TLS; a child of the server's says so, and nothing is logged
    const PROBE: &'static [u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

    const SAYS_REFUSALS: bool = true;

    fn refused(line: &str) -> Option<&str> {
        let (_, said) = line.split_once("FATAL:  ")?;
        let refusals = [
            "password authentication failed for user",
            "is not permitted to log in",
            "does not exist",
            "permission denied for database",
            // a library that somebody wants loaded into every session
            "could not access file",
        ];
        refusals.iter().any(|words| said.contains(words)).then(|| between(said, "\"", '"'))?
    }

    fn remote(client: &Path, host: &str, port: u16, login: &Login, database: Option<&str>) -> Client {
        connect(client, host, port, &login.username, Some(&login.password), database.unwrap_or("postgres"))
    }

    fn registered(client: &Path, host: &str, port: u16, login: &Login, database: Option<&str>) -> Client {
        let_in(Postgres::remote(client, host, port, login, database))
    }

    async fn bring(connect: Connect<'_>, access: &Access<'_>, create: bool) -> Result<(), Refused> {
        let Access { database, login: Login { username, password }, superuser, mark, connections } = access;
        // the last statement waits for the disk, for all of them
        let mut sql = format!(
            "set synchronous_commit = off;\ndo $$ begin\n\
             if not exists (select from pg_catalog.pg_roles where rolname = '{database}') then create role {database} nologin; end if;\n\
             if not exists (select from pg_catalog.pg_roles where rolname = '{username}') then create role {username}; end if;\n\
             end $$;\n\
             alter role {username} login password '{password}' valid until 'infinity' connection limit {}{};\n\
             grant {database} to {username};\n",
            limit(*connections),
            if *superuser { " superuser" } else { "" },
        );
        sql += &format!("comment on role {database} is '{mark}';\ncomment on role {username} is '{mark}';\n");
        sql += &match superuser {
            true => format!("alter role {username} reset role;\n"),
            false => format!("alter role {username} set role = '{database}';\n"),
        };
        if create {
            // an administrator who is no superuser gives databases only to roles it is a member of
            sql += &format!(
                "grant {database} to current_user;\n\
                 select 'create database {database} owner {database} template template0' \
                 where not exists (select from pg_catalog.pg_database where datname = '{database}') \\gexec\n\
                 revoke all on database {database} from public;\n"
            );
        }
        sql += &opening(database, username);
        sql += &format!("set synchronous_commit = on;\ncomment on database {database} is '{mark}';\n");
        connect(None).run(&sql).await.map(drop)
    }

    async fn open(connect: Connect<'_>, access: &Access<'_>) -> Result<(), Refused> {
        connect(None).run(&opening(access.database, &access.login.username)).await.map(drop)
    }

    fn next_login(user: &str, rotation: i64, current: Option<&Login>, password: String) -> Login {
        // a rotation that was asked for twice gets two names
        let username = (rotation..).map(|n| format!("{user}_{n}"));
        let mut username = username.filter(|name| current.is_none_or(|login| login.username != *name));
        Login { username: username.next().unwrap_or_else(|| user.to_owned()), password }
    }

    async fn unknown_login(
        connect: Connect<'_>,
        database: &str,
        user: &str,
        rotation: i64,
        password: String,
    ) -> Result<Login, Refused> {
        let there = logins(&connect(None), database).await?;
        let mut names = (rotation.max(1)..).map(|n| format!("{user}_{n}"));
        let username = names.find(|name| !there.contains(name)).unwrap_or_else(|| user.to_owned());
        Ok(Login { username, password })
    }

    async fn add_login(connect: Connect<'_>, access: &Access<'_>, _: Option<&Login>) -> Result<(), Refused> {
        Postgres::bring(connect, access, false).await
    }

    async fn limit(connect: Connect<'_>, access: &Access<'_>) -> Result<(), Refused> {
        let (username, limit) = (&access.login.username, limit(access.connections));
        let sql = format!(
            "select 'alter role {username} connection limit {limit}' from pg_catalog.pg_roles \
             where rolname = '{username}' and rolconnlimit <> {limit} \\gexec\n"
        );
        connect(None).run(&sql).await.map(drop)
    }

    async fn retire(connect: Connect<'_>, access: &Access<'_>, at_once: bool) -> Result<(), Refused> {
        let Access { database, login, .. } = access;
        let mut others = logins(&connect(None), database).await?;
        others.retain(|name| *name != login.username && user_of(name) == user_of(&login.username));
        end(connect, database, &others, at_once).await
    }

    async fn dismiss(connect: Connect<'_>, database: &str, kept: &[String]) -> Result<(), Refused> {
        let mut others = logins(&connect(None), database).await?;
        others.retain(|name| user_of(name).is_some_and(|user| user != database && !kept.iter().any(|k| k == user)));
        end(connect, database, &others, true).await
    }

    async fn erase(connect: Connect<'_>, database: &str) -> Result<(), Refused> {
        let client = connect(None);
        let logins = logins(&client, database).await?;
        let roles: Vec<String> = logins.iter().cloned().chain([database.to_owned()]).collect();
        // its owner can shut it, and call it a template, and nobody drops those; one that a killed server left half dropped can only be
        // dropped
        let open = format!(
            "select 'alter database {database} {OPEN}' where exists \
             (select from pg_catalog.pg_database where datname = '{database}' and datconnlimit <> -2) \\gexec\n"
        );
        // what is prepared can hold the logins and the database themselves, and is rolled back where it was: both are tried before, and
        // done after
        let tried = shut(&client, &logins).await;
        for tried in [tried.as_ref().map(drop).map_err(Clone::clone), client.run(&open).await.map(drop)] {
            match tried {
                Err(Refused::Locked(_)) => {}
                tried => tried?,
            }
        }
        roll_back(connect, &roles).await?;
        roll_back_all(connect, database).await?;
        let numbers = match tried {
            Ok(numbers) => numbers,
            Err(_) => shut(&client, &logins).await?,
        };
        client.run(&format!("{open}drop database if exists {database} with (force);\n")).await?;
        leave(connect, &roles).await?;
        let sql: String = roles.iter().map(|role| format!("drop role if exists {role};\n")).collect();
        client.run(&sql).await?;
        // who was about to be connected when the login was shut
        end_sessions(&client, &numbers).await
    }

    async fn look(connect: Connect<'_>, database: &str) -> Result<Seen, Refused> {
        // whoever owns a database can change what is said of it, and only an administrator what is said of a role
        let sql = format!(
            "select d.size, r.mark, d.mark from (select 1) x left join (select pg_catalog.pg_database_size(oid) as size, \
             pg_catalog.shobj_description(oid, 'pg_database') as mark from pg_catalog.pg_database where datname = '{database}') d on true \
             left join (select pg_catalog.shobj_description(oid, 'pg_authid') as mark from pg_catalog.pg_roles \
             where rolname = '{database}') r on true;\n"
        );
        Ok(Seen::of(&connect(None).run(&sql).await?))
    }

    async fn mark(connect: Connect<'_>, database: &str, mark: &str) -> Result<(), Refused> {
        let client = connect(None);
        let roles = logins(&client, database).await?.into_iter().chain([database.to_owned()]);
        // the role's last: it is what counts
        let mut sql = format!("comment on database {database} is '{mark}';\n");
        sql.extend(roles.map(|role| format!("comment on role {role} is '{mark}';\n")));
        client.run(&sql).await.map(drop)
    }

    async fn has(connect: Connect<'_>, database: &str) -> Result<bool, Refused> {
        let sql = format!("select 1 from pg_catalog.pg_database where datname = '{database}';\n");
        connect(None).run(&sql).await.map(|rows| !rows.is_empty())
    }

    async fn content(connect: Connect<'_>, database: &str) -> Result<u64, Refused> {
        let own = "not in ('pg_catalog', 'information_schema', 'pg_toast') and n.nspname not like 'pg_temp%' and n.nspname not like 'pg_toast%'";
        let sql = format!(
            "select (select pg_catalog.count(*) from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
             where n.nspname {own}) \
             + (select pg_catalog.count(*) from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace \
             where n.nspname {own}) \
             + (select pg_catalog.count(*) from pg_catalog.pg_namespace n where n.nspname {own} and n.nspname <> 'public') \
             + (select pg_catalog.count(*) from pg_catalog.pg_largeobject_metadata);\n"
        );
        let rows = connect(Some(database)).run(&sql).await?;
        rows.first().and_then(|row| row.parse().ok()).ok_or_else(|| Refused::Failed("no count".into()))
    }

    async fn marked(connect: Connect<'_>, prefixes: &[String]) -> Result<Vec<(&'static str, String)>, Refused> {
        let any = prefixes.iter().map(|prefix| format!("'{prefix}%'")).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "select 'database', datname from pg_catalog.pg_database \
             where pg_catalog.shobj_description(oid, 'pg_database') like any (array[{any}]) \
             union all select 'role', rolname from pg_catalog.pg_roles \
             where pg_catalog.shobj_description(oid, 'pg_authid') like any (array[{any}]);\n"
        );
        let rows = connect(None).run(&sql).await?;
        let each = rows.iter().filter_map(|row| row.split_once('\t'));
        Ok(each.map(|(what, name)| (if what == "role" { "role" } else { "database" }, name.to_owned())).collect())
    }

    async fn version(connect: Connect<'_>) -> Result<String, Refused> {
        let rows = connect(None).run("show server_version;\n").await?;
        let first = rows.first().map(String::as_str).unwrap_or_default();
        Ok(first.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

/// A limit of connections as PostgreSQL has it.
fn limit(connections: Option<u32>) -> i64 {
    connections.map_or(-1, i64::from)
}

/// What undoes all that a database's owner can do to it, and a login to itself, that keeps logins out.
fn opening(database: &str, login: &str) -> String {
    let mut sql = format!(
        "alter database {database} owner to {database};\nalter database {database} {OPEN};\ngrant all on database {database} to {database};\n"
    );
    for of in [format!("database {database}"), format!("role {login}"), format!("role {login} in database {database}")]
    {
        sql += &format!("alter {of} reset local_preload_libraries;\n");
    }
    sql
}

/// A client that no library keeps out which the owner of a database wants loaded.
fn let_in(mut client: Client) -> Client {
    for (_, options) in client.environment.iter_mut().filter(|(name, _)| name == "PGOPTIONS") {
        options.push_str(" -c local_preload_libraries=");
    }
    client
}

/// A database that its owner has not shut, and that can be dropped.
const OPEN: &str = "with is_template false allow_connections true connection limit -1";

fn connect(client: &Path, host: &str, port: u16, user: &str, password: Option<&str>, database: &str) -> Client {
    let port = port.to_string();
    let arguments =
        ["-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", &port, "-U", user, "-d", database, "-f", "-"];
    let mut environment = vec![("PGCONNECT_TIMEOUT".to_owned(), "5".to_owned())];
    // never a file or a prompt
    environment.push(("PGPASSFILE".into(), "/nonexistent".into()));
    environment.push(("PGPASSWORD".into(), password.unwrap_or_default().into()));
    // what a connection asks for goes before what the owner of a database has set for it; who waits for a lock stands in everyone's way
    let options = "-c search_path=pg_catalog -c client_min_messages=warning -c default_transaction_read_only=off \
                   -c statement_timeout=0 -c lock_timeout=2s";
    environment.push(("PGOPTIONS".into(), options.into()));
    let arguments = arguments.map(str::to_owned).to_vec();
    Client { program: client.to_path_buf(), arguments, environment, runs_as: nobody() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version_in("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)").as_deref(), Some("15.14"));
        assert_eq!(version_in("nothing"), None);
    }

    #[test]
    fn a_rotation_never_reuses_the_current_name() {
        let current = Login { username: "app_2".into(), password: "x".into() };
        assert_eq!(Postgres::next_login("app", 2, Some(&current), "y".into()).username, "app_3");
        assert_eq!(Postgres::next_login("app", 2, None, "y".into()).username, "app_2");
    }
}
