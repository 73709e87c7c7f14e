//! MariaDB, which speaks MySQL's protocol and serves claims for `mysql` where a class offers that.
//!
//! What a user made bears the user's name (views, routines), so a rotation gives the same user a second password for a while.

mod users;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use conductor_local::{Account, Lack, Program, Stop, Trouble, lack};
use rustix::process::Signal;
use tokio::net::UnixStream;

use self::users::{
    MARKER_HOST, NOBODYS, claim_users, end_sessions, hashes, is_settled, markers, marking, prepared, see_ended,
};
use crate::client::{Client, Refused, nobody};
use crate::credentials::Login;
use crate::engine::{Access, Configuration, Engine, InstanceSpec, Names, Place, Seen, Server, said_version, satisfies};
use crate::refusals::between;

/// MariaDB.
#[derive(Clone, Copy, Debug)]
pub struct MariaDb;

/// The administrator of our own servers; only by the socket, which only its account and we can get to.
const ADMIN: &str = "conductor";

type Connect<'a> = &'a (dyn Fn(Option<&str>) -> Client + Sync);

/// Sizes that the data directory is made with; the server must be started with the same.
const FILES: [&str; 2] = ["innodb-log-file-size=4M", "innodb-data-file-path=ibdata1:10M:autoextend"];

fn own_name() -> String {
    Account::current().map_or_else(|| "root".to_owned(), |account| account.name)
}

fn socket(place: &Place) -> PathBuf {
    place.run.join(format!("mariadb-{}.sock", place.port))
}

/// `mariadbd  Ver 10.11.19-MariaDB-…`
fn version_in(words: &str) -> Option<String> {
    let number = words.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(number.split('-').next().unwrap_or(number).to_owned())
}

impl Engine for MariaDb {
    const INSTANCE: Names = Names { kind: "MariaDBInstance", plural: "mariadbinstances" };
    const DATABASE: Names = Names { kind: "MariaDBDatabase", plural: "mariadbdatabases" };
    const WORD: &'static str = "mariadb";
    const TYPE: &'static str = "mysql";
    const ENGINE: &'static str = "mariadb";
    const ACCOUNTS: &'static [&'static str] = &["mysql"];
    const PORT: u16 = 3306;
    const SESSIONS: &'static str = "information_schema.processlist";
    const OWN_SETTINGS: &'static [&'static str] = &[
        "bind_address",
        "datadir",
        "init_file",
        "pid_file",
        "port",
        "secure_file_priv",
        "skip_name_resolve",
        "skip_networking",
        "socket",
        "user",
    ];
    const REFUSED_SETTINGS: &'static [&'static str] = &[
        "basedir",
        "character_sets_dir",
        "chroot",
        "getopt_prefix_matching",
        "lc_messages_dir",
        "plugin_dir",
        "plugin_load",
        "plugin_load_add",
        "skip_grant_tables",
        "wsrep_notify_cmd",
        "wsrep_provider",
        "wsrep_sst_method",
    ];
    const ABBREVIATES: bool = true;

    fn server(version: &str) -> Result<Server, Lack> {
        let program = lack::program("mariadbd", "mariadb-server", &[])?;
        lack::program("mariadb-install-db", "mariadb-server", &[])?;
        let broken = || Lack::new("a mariadbd that runs", "apt-get install --reinstall mariadb-server");
        let has = said_version(&program).as_deref().and_then(version_in).ok_or_else(broken)?;
        if satisfies(&has, version) {
            return Ok(Server { program, version: has });
        }
        Err(Lack::new(format!("MariaDB {version} (there is {has})"), "install it, or ask for the version there is"))
    }

    fn client() -> Result<PathBuf, Lack> {
        lack::program("mariadb", "mariadb-client", &[])
    }

    async fn initialize(_: &Server, data: &Path, account: Option<&Account>) -> Result<(), Trouble> {
        let program = lack::program("mariadb-install-db", "mariadb-server", &[])?;
        let mut command = tokio::process::Command::new(&program);
        command.args([
            "--no-defaults",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        command.arg(format!("--auth-root-socket-user={}", own_name())).arg(format!("--datadir={}", data.display()));
        command.args(FILES.map(|f| format!("--{f}")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8").current_dir("/");
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        let output = command.output().await.map_err(Trouble::io("run mariadb-install-db"))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Trouble::new("InitFailed", format!("mariadb-install-db failed: {words}")))
    }

    fn holds_data(data: &Path) -> bool {
        data.join("ibdata1").exists() && data.join("mysql").is_dir()
    }

    fn configuration(spec: &InstanceSpec, memory: u64, place: &Place) -> Configuration {
        const MIB: u64 = 1 << 20;
        let mut at_start = format!(
            "# written by Conductor: changes here are undone, use spec.settings\n[mariadbd]\n{}\nmax-connections={}\n\
             innodb-buffer-pool-size={}M\nkey-buffer-size=1M\naria-pagecache-buffer-size=1M\nperformance-schema=OFF\nskip-log-bin\n",
            FILES.join("\n"),
            spec.max_connections.unwrap_or(100).clamp(5, 10_000),
            (memory / 2 / MIB).clamp(8, 512 << 10),
        );
        for (key, text) in spec.settings::<MariaDb>() {
            at_start.push_str(&format!("{key}={text}\n"));
        }
        // of two lines the last holds, and a name may be written short
        at_start.push_str(&format!(
            "datadir={}\nsocket={}\npid-file={}\nbind-address={}\nport={}\nsecure-file-priv={}\n",
            place.data.display(),
            socket(place).display(),
            place.data.join("mariadbd.pid").display(),
            place.address,
            place.port,
            // whoever may do everything on this server has no business in the files of others with the same account
            place.data.display(),
        ));
        // an administrator without a password, for who can enter the directory of its socket: its account or root. By name it would be
        // everyone on this machine
        let init = place.configuration().join("init.sql");
        at_start.push_str(&format!("skip-name-resolve\ninit-file={}\n", init.display()));
        let administrator = format!(
            "create user if not exists '{ADMIN}'@'localhost';\ngrant all on *.* to '{ADMIN}'@'localhost' with grant option;\n"
        );
        let file = place.configuration().join("conductor.cnf");
        Configuration { file, content: at_start.clone(), at_start, more: vec![(init, administrator)] }
    }

    fn program(server: &Server, place: &Place, _: &str) -> Program {
        let file = place.configuration().join("conductor.cnf");
        Program {
            command: vec![server.program.display().to_string(), format!("--defaults-file={}", file.display())],
            environment: Vec::new(),
            account: place.account.clone(),
            working_directory: place.data.clone(),
        }
    }

    fn trials(_: &Server, _: &Place, file: &Path) -> Vec<Vec<String>> {
        // options of plugins that were installed by a statement are not known there: they take the prefix loose-
        vec![vec![format!("--defaults-file={}", file.display()), "--bootstrap".into()]]
    }

    fn clear(place: &Place) {
        let _ = std::fs::remove_file(socket(place));
    }

    fn stop(data_goes: bool) -> Stop {
        match data_goes {
            true => Stop { signal: Signal::KILL, patience: Duration::from_secs(5) },
            false => Stop { signal: Signal::TERM, patience: Duration::from_secs(60) },
        }
    }

    async fn is_up(place: &Place, _: i32) -> bool {
        // one that hangs has so many waiting that nobody more may
        UnixStream::connect(socket(place)).await.map_or_else(|e| e.kind() == ErrorKind::WouldBlock, |_| true)
    }

    // who connects and says nothing more is a line in its log
    const PROBE: &'static [u8] = &[];

    fn administrator(client: &Path, place: &Place, database: Option<&str>) -> Client {
        let mut client = connect(client, ADMIN, None, database);
        client.runs_as = place.account.as_ref().map(|account| (account.uid, account.gid));
        client.arguments.push(format!("--socket={}", socket(place).display()));
        client
    }

    // not of those whose database is gone
    const SAYS_REFUSALS: bool = false;

    fn refused(line: &str) -> Option<&str> {
        between(line, "Access denied for user '", '\'')
    }

    fn remote(client: &Path, host: &str, port: u16, login: &Login, database: Option<&str>) -> Client {
        let mut client = connect(client, &login.username, Some(&login.password), database);
        client.arguments.extend(["--protocol=tcp".into(), format!("--host={host}"), format!("--port={port}")]);
        client
    }

    async fn bring(connect: Connect<'_>, access: &Access<'_>, create: bool) -> Result<(), Refused> {
        let Access { database, login: Login { username, password }, superuser, mark, connections } = access;
        let mut sql = String::new();
        if create {
            // whose it is, is said before there is anything of it
            sql += &marking(&connect(None), database, mark).await?;
            sql += &format!(
                "create database if not exists {database} character set utf8mb4 comment '{mark}';\n\
                 alter database {database} comment '{mark}';\n"
            );
        }
        sql += &format!(
            "create user if not exists '{username}'@'%';\n\
             alter user '{username}'@'%' identified via {} or {NOBODYS} with max_user_connections {} account unlock;\n\
             grant all on `{}`.* to '{username}'@'%';\n",
            using(password),
            connections.unwrap_or(0),
            // a name in a grant is a pattern
            database.replace('_', "\\_"),
        );
        if *superuser {
            sql += &format!("grant all on *.* to '{username}'@'%' with grant option;\n");
        }
        connect(None).run(&sql).await.map(drop)
    }

    async fn open(_: Connect<'_>, _: &Access<'_>) -> Result<(), Refused> {
        // nothing that a user may do there keeps others out
        Ok(())
    }

    fn next_login(user: &str, _: i64, current: Option<&Login>, password: String) -> Login {
        Login { username: current.map_or_else(|| user.to_owned(), |login| login.username.clone()), password }
    }

    async fn unknown_login(_: Connect<'_>, _: &str, user: &str, _: i64, password: String) -> Result<Login, Refused> {
        Ok(Login { username: user.to_owned(), password })
    }

    async fn add_login(connect: Connect<'_>, access: &Access<'_>, current: Option<&Login>) -> Result<(), Refused> {
        let Login { username, password } = access.login;
        let mut ways = match current {
            Some(current) => vec![using(&current.password)],
            None => {
                let sql = format!("select priv from mysql.global_priv where user = '{username}' and host = '%';\n");
                let kept = connect(None).run(&sql).await?;
                let kept = kept.concat();
                let mut found = hashes(&kept);
                found.dedup();
                found.into_iter().map(|hash| format!("mysql_native_password using '*{hash}'")).collect()
            }
        };
        if ways.is_empty() {
            return MariaDb::bring(connect, access, false).await;
        }
        ways.push(using(password));
        connect(None)
            .run(&format!("alter user '{username}'@'%' identified via {};\n", ways.join(" or ")))
            .await
            .map(drop)
    }

    async fn limit(connect: Connect<'_>, access: &Access<'_>) -> Result<(), Refused> {
        let (username, wanted) = (&access.login.username, access.connections.unwrap_or(0));
        let sql = format!("select max_user_connections from mysql.user where user = '{username}' and host = '%';\n");
        let has = connect(None).run(&sql).await?;
        if has.first().is_some_and(|has| *has == wanted.to_string()) {
            return Ok(());
        }
        let sql = format!("alter user '{username}'@'%' with max_user_connections {wanted};\n");
        connect(None).run(&sql).await.map(drop)
    }

    async fn retire(connect: Connect<'_>, access: &Access<'_>, _: bool) -> Result<(), Refused> {
        let Login { username, password } = access.login;
        let client = connect(None);
        let kept = format!(
            "select password('{password}');\nselect priv from mysql.global_priv where user = '{username}' and host = '%';\n"
        );
        if !is_settled(&client.run(&kept).await?) {
            // which password somebody is connected with cannot be told: everyone is ended, and who comes then has the new one
            let sql = format!(
                "alter user '{username}'@'%' identified via {} or {NOBODYS};\nkill user '{username}';\n\
                 alter user '{username}'@'%' identified by '{password}';\n",
                using(password)
            );
            client.run(&sql).await?;
        }
        see_ended(&client, username).await?;
        // until it was gone, one that was ended could change the password
        match is_settled(&client.run(&kept).await?) {
            true => Ok(()),
            false => Err(Refused::Locked(format!("the password of {username}, which was changed meanwhile"))),
        }
    }

    async fn dismiss(connect: Connect<'_>, database: &str, kept: &[String]) -> Result<(), Refused> {
        let client = connect(None);
        let mut gone = claim_users(&client, database).await?;
        gone.retain(|user| !kept.contains(user));
        let mut locked = Ok(());
        for user in gone {
            client.run(&format!("alter user '{user}'@'%' account lock;\nkill user '{user}';\n")).await?;
            // what it has defined for all of them, such as a view, works for as long as there is such a user
            let defined = [("views", "table"), ("routines", "routine"), ("events", "event"), ("triggers", "trigger")];
            let defined = defined.map(|(table, of)| {
                format!("exists (select 1 from information_schema.{table} where {of}_schema = '{database}' and definer = '{user}@%')")
            });
            let sql = format!("select {};\nselect @@warning_count;\n", defined.join(" or "));
            match client.run(&sql).await?.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["0", "0"] => client.run(&format!("drop user if exists '{user}'@'%';\n")).await.map(drop)?,
                // what is being changed is passed over with a warning
                ["0", ..] => locked = Err(Refused::Locked(format!("what user {user} may have left"))),
                _ => {}
            }
        }
        locked
    }

    async fn erase(connect: Connect<'_>, database: &str) -> Result<(), Refused> {
        let client = connect(None);
        let mut users = claim_users(&client, database).await?;
        users.push(database.to_owned());
        let shut = users.iter().map(|user| format!("alter user if exists '{user}'@'%' account lock;\n"));
        client.run(&shut.collect::<String>()).await?;
        end_sessions(&client, &users).await?;
        let mut sql: String = users.iter().map(|user| format!("drop user if exists '{user}'@'%';\n")).collect();
        sql += &format!("drop database if exists {database};\n");
        // whose it is, is said for as long as there is anything of it
        let markers = markers(&client, database).await?;
        sql.extend(markers.iter().map(|marker| format!("drop user if exists '{marker}'@'{MARKER_HOST}';\n")));
        match client.run(&sql).await {
            Err(Refused::Locked(what)) => Err(Refused::Locked(prepared(&client, database).await.unwrap_or(what))),
            outcome => outcome.map(drop),
        }
    }

    async fn look(connect: Connect<'_>, database: &str) -> Result<Seen, Refused> {
        let marker = database.len() + 2;
        let sql = format!(
            "select d.size, coalesce(m.mark, ''), coalesce(d.mark, '') from (select 1) x left join (select coalesce((select \
             sum(data_length + index_length) from information_schema.tables where table_schema = '{database}'), 0) as size, \
             schema_comment as mark from information_schema.schemata where schema_name = '{database}') d on true \
             left join (select concat('conductor ', substr(user, {marker}), ' {database}') as mark from mysql.user \
             where host = '{MARKER_HOST}' and left(user, {marker} - 1) = '{database} ' order by user limit 1) m on true;\n"
        );
        Ok(Seen::of(&connect(None).run(&sql).await?))
    }

    async fn mark(connect: Connect<'_>, database: &str, mark: &str) -> Result<(), Refused> {
        let client = connect(None);
        // the marker last: it is what counts
        let mut sql = format!("alter database {database} comment '{mark}';\n");
        sql += &marking(&client, database, mark).await?;
        client.run(&sql).await.map(drop)
    }

    async fn has(connect: Connect<'_>, database: &str) -> Result<bool, Refused> {
        let sql = format!("select 1 from information_schema.schemata where schema_name = '{database}';\n");
        connect(None).run(&sql).await.map(|rows| !rows.is_empty())
    }

    async fn content(connect: Connect<'_>, database: &str) -> Result<u64, Refused> {
        let sql = format!(
            "select (select count(*) from information_schema.tables where table_schema = '{database}') \
             + (select count(*) from information_schema.routines where routine_schema = '{database}') \
             + (select count(*) from information_schema.events where event_schema = '{database}');\n"
        );
        let rows = connect(None).run(&sql).await?;
        rows.first().and_then(|row| row.parse().ok()).ok_or_else(|| Refused::Failed("no count".into()))
    }

    async fn marked(connect: Connect<'_>, prefixes: &[String]) -> Result<Vec<(&'static str, String)>, Refused> {
        let marked = prefixes.iter().map(|prefix| format!("schema_comment like '{prefix}%'"));
        let marked = marked.collect::<Vec<_>>().join(" or ");
        let markers = prefixes.iter().map(|prefix| format!("'{prefix}'")).collect::<Vec<_>>().join(", ");
        // a login cannot be marked; one that is made as ours are goes before its database
        let sql = format!(
            "select 'database', schema_name from information_schema.schemata where {marked} \
             union all select 'user', user from mysql.user where user regexp '^c_[0-9a-f]{{32}}(_[0-9a-f]{{16}})?$' \
             and left(user, 34) not in (select schema_name from information_schema.schemata) \
             union all select 'user', user from mysql.user where host = '{MARKER_HOST}' and user regexp '^c_[0-9a-f]{{32}} ' \
             and concat('conductor ', substr(user, 36), ' ') in ({markers});\n"
        );
        let rows = connect(None).run(&sql).await?;
        let each = rows.iter().filter_map(|row| row.split_once('\t'));
        Ok(each.map(|(what, name)| (if what == "user" { "user" } else { "database" }, name.to_owned())).collect())
    }

    async fn version(connect: Connect<'_>) -> Result<String, Refused> {
        let rows = connect(None).run("select version();\n").await?;
        let first = rows.first().map(String::as_str).unwrap_or_default();
        Ok(first.split('-').next().unwrap_or_default().to_owned())
    }
}

/// A password as a way in.
fn using(password: &str) -> String {
    format!("mysql_native_password using password('{password}')")
}

/// Who waits for a lock stands in everyone's way.
const WAITS: &str = "--init-command=set lock_wait_timeout = 2, innodb_lock_wait_timeout = 2";

fn connect(client: &Path, user: &str, password: Option<&str>, database: Option<&str>) -> Client {
    // no server gets a file of ours, and no text becomes a command of the client's
    let safe = ["--no-defaults", "-BN", "--connect-timeout=5", "--local-infile=0", "--binary-mode", WAITS];
    let mut arguments: Vec<String> = safe.map(str::to_owned).to_vec();
    arguments.push(format!("--user={user}"));
    arguments.extend(database.map(|database| format!("--database={database}")));
    let environment = vec![("MYSQL_PWD".to_owned(), password.unwrap_or_default().to_owned())];
    Client { program: client.to_path_buf(), arguments, environment, runs_as: nobody() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let words = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(version_in(words).as_deref(), Some("10.11.19"));
    }

    #[test]
    fn settings_that_open_the_server_are_refused_under_all_their_names() {
        for key in ["skip-grant-tables", "Skip_Grant", "loose-skip-gran", "enable-skip-grant-tables", "plugin-load-a"] {
            let spec = InstanceSpec { settings: [(key.to_owned(), "1".into())].into(), ..InstanceSpec::default() };
            assert!(spec.refused::<MariaDb>().is_some_and(|why| why.contains("let everybody in")), "{key}");
        }
        for key in ["sock", "loose-datad", "skip-networking"] {
            let spec = InstanceSpec { settings: [(key.to_owned(), "1".into())].into(), ..InstanceSpec::default() };
            assert!(spec.refused::<MariaDb>().is_some_and(|why| why.contains("itself")), "{key}");
        }
        for key in ["sort_buffer_size", "skip_log_bin", "port_open_timeout", "userstat", "general_log"] {
            let spec = InstanceSpec { settings: [(key.to_owned(), "1".into())].into(), ..InstanceSpec::default() };
            assert_eq!(spec.refused::<MariaDb>(), None, "{key}");
        }
    }
}
