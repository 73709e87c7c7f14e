//! What a PostgreSQL server of ours is told: by its files, by its arguments, and by whoever alters it from inside.

use std::path::Path;

use super::{ADMIN, Postgres};
use crate::engine::{Configuration, InstanceSpec, Place};

/// The files of a server.
pub(super) fn configuration(spec: &InstanceSpec, memory: u64, place: &Place) -> Configuration {
    const MIB: u64 = 1 << 20;
    let buffers = (memory / 4 / MIB).clamp(2, 16 << 10);
    let connections = spec.max_connections.unwrap_or(100).clamp(5, 10_000);
    let quoted = |path: &Path| path.display().to_string().replace('\'', "''");
    let file = |name: &str| place.configuration().join(name);
    let own = format!(
        "hba_file = '{}'\nlisten_addresses = '{}'\nport = {}\nunix_socket_directories = '{}'\n",
        quoted(&file("pg_hba.conf")),
        place.address,
        place.port,
        quoted(&place.run),
    );
    let at_start = format!(
        "max_connections = {connections}\nshared_buffers = {buffers}MB\ndynamic_shared_memory_type = posix\nwal_level = replica\n"
    );
    let mut content = format!(
        "# written by Conductor: changes here are undone, use spec.settings\n{at_start}\
         effective_cache_size = {}MB\nwork_mem = {}kB\nmaintenance_work_mem = {}MB\nmin_wal_size = 4MB\nmax_wal_size = 64MB\n\
         password_encryption = scram-sha-256\nlog_timezone = UTC\ntimezone = UTC\nlog_line_prefix = '%m [%p] '\n",
        (memory / MIB * 3 / 4).max(4),
        (memory / 64 / 1024).clamp(64, 64 << 10),
        (memory / 16 / MIB).clamp(1, 1024),
    );
    let mut more_at_start = at_start;
    for (key, text) in spec.settings::<Postgres>() {
        let line = format!("{key} = '{}'\n", text.replace('\'', "''"));
        // which settings a reload takes is the server's to know; a start takes all of them
        more_at_start.push_str(&line);
        content.push_str(&line);
    }
    // of two lines the last holds
    more_at_start.push_str(&own);
    content.push_str(&own);
    let everyone = if place.address == "127.0.0.1" { "127.0.0.1/32" } else { "all" };
    // who can enter the directory of its socket is its account or root
    let access = format!(
        "local all {ADMIN} trust\nhost all {ADMIN} all reject\nlocal all all scram-sha-256\nhost all all {everyone} scram-sha-256\n"
    );
    Configuration {
        file: file("postgresql.conf"),
        content,
        at_start: more_at_start,
        more: vec![(file("pg_hba.conf"), access)],
    }
}

/// Arguments for what a server is started with: what `ALTER SYSTEM` has set goes before any file, and they go before that. A value that a
/// file reads differently stays in the file, and so does what may be a secret: arguments are for everyone to see.
pub(super) fn arguments(at_start: &str) -> Vec<String> {
    let settings = at_start.lines().filter_map(|line| line.split_once(" = ")).filter_map(|(name, value)| {
        let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
        let secret = name.contains('.') || name.to_ascii_lowercase().contains("conninfo");
        (!secret && !value.contains('\\')).then(|| format!("{name}={}", value.replace("''", "'")))
    });
    // what keeps our logins working; a class may say otherwise
    let own = ["password_encryption=scram-sha-256".to_owned()].into_iter();
    own.chain(settings).flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// The names of what `ALTER SYSTEM` has set; whoever may do everything in the server may write anything there.
pub(super) fn altered_in(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim());
    let plain = |name: &&str| name.len() < 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
    names.filter(plain).take(10).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Server};

    #[test]
    fn settings_cannot_break_out_of_their_line() {
        let place =
            Place { data: "/x/d".into(), run: "/r".into(), address: "127.0.0.1".into(), port: 1, account: None };
        let mut spec = InstanceSpec::default();
        spec.settings.insert("work_mem".into(), "1MB' # ".into());
        let content = Postgres::configuration(&spec, 64 << 20, &place).content;
        assert!(content.contains("work_mem = '1MB'' # '\n"), "{content}");
        assert!(content.ends_with("unix_socket_directories = '/r'\n"), "what is ours is last and holds: {content}");
        assert!(spec.refused::<Postgres>().is_none());
        let cases = [
            ("a\nb", "nothing", "no setting has this name"),
            ("c", "x\narchive_command = 'evil'", "no more than a line"),
            ("Port", "5555", "Conductor sets it itself"),
            ("include", "/etc/passwd", "Conductor sets it itself"),
            ("data_directory", "/elsewhere", "Conductor sets it itself"),
            ("archive_command", "id > /tmp/who", "run programs"),
            ("shared_preload_libraries", "/tmp/evil", "without a path"),
        ];
        for (key, value, why) in cases {
            let spec = InstanceSpec { settings: [(key.to_owned(), value.into())].into(), ..InstanceSpec::default() };
            let refused = spec.refused::<Postgres>().unwrap_or_default();
            assert!(refused.contains(&format!("{key:?}")) && refused.contains(why), "{refused}");
            assert!(!Postgres::configuration(&spec, 64 << 20, &place).content.contains(value), "{key}");
        }
        assert!(content.contains("shared_buffers = 16MB"), "{content}");
    }

    #[test]
    fn what_is_ours_goes_before_what_is_altered_inside() {
        let place =
            Place { data: "/x/d".into(), run: "/r".into(), address: "127.0.0.1".into(), port: 1, account: None };
        let mut spec = InstanceSpec { max_connections: Some(7), ..InstanceSpec::default() };
        let settings = [
            ("application_name", "it's"),
            ("log_line_prefix", "a\\tb"),
            ("Primary_Conninfo", "password=x"),
            ("own.key", "x"),
            ("max_connections", "9"),
        ];
        spec.settings.extend(settings.map(|(name, value)| (name.to_owned(), value.into())));
        let at_start = Postgres::configuration(&spec, 64 << 20, &place).at_start;
        let server = Server { program: "/bin/postgres".into(), version: "15.1".into() };
        let command = Postgres::program(&server, &place, &at_start).command;
        let at = |setting: &str| command.iter().rposition(|argument| argument == setting);
        for setting in [
            "port=1",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=/r",
            "hba_file=/x/pg_hba.conf",
            "shared_buffers=16MB",
        ] {
            assert!(at(setting).is_some(), "{setting}: {command:?}");
        }
        assert!(at("application_name=it's").is_some(), "{command:?}");
        assert!(at("max_connections=7") < at("max_connections=9"), "the last holds: {command:?}");
        let shown = command.join(" ");
        assert!(!shown.contains("prefix") && !shown.contains("password=x") && !shown.contains("own.key"), "{shown}");
    }

    #[test]
    fn what_is_altered_inside_is_named() {
        let text = "# Do not edit\nport = '1'\nmy.own='x'\n\u{1b}[2J = 'y'\n";
        assert_eq!(altered_in(text), ["port", "my.own"]);
        assert!(altered_in("# Do not edit\n").is_empty());
    }
}
