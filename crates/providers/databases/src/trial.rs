//! Settings are tried before a server is stopped for them: with some of them it would not start again. The trial is a start of the same
//! server on an empty data directory beside its own, which nobody can reach and which ends by itself.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use conductor_claims::lifecycle::{Condition, condition_of};
use conductor_local::{Home, Object, Report, Trouble, home};
use parking_lot::Mutex;

use crate::engine::{Configuration, Engine, InstanceSpec, Place, Server};
use crate::{layout, template};

/// How long the engine has to start and end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long what it said holds: what was lacking may be there by then.
const HOLDS: Duration = Duration::from_secs(300);
/// Whether it runs with the settings that are asked for.
const SETTINGS: &str = "SettingsApplied";

/// What was tried: by the instance's uid the configuration, when, and why it was refused.
#[derive(Default)]
pub struct Trials(Mutex<HashMap<String, (String, Instant, String)>>);

impl Trials {
    /// Why the engine would not start with a configuration that differs from the one there is; `None`: it would. What we write ourselves
    /// needs no trial.
    pub async fn refused<E: Engine>(
        &self,
        home: &Home,
        object: &Object,
        spec: &InstanceSpec,
        memory: u64,
        (server, place): (&Server, &Place),
        wanted: &Configuration,
    ) -> Option<String> {
        if let Some(why) = spec.refused::<E>() {
            return Some(why);
        }
        let uid = object.uid();
        let same = std::fs::read(&wanted.file).is_ok_and(|content| content == wanted.content.as_bytes());
        if spec.settings.is_empty() || same {
            self.0.lock().remove(uid);
            return None;
        }
        if let Some((content, when, why)) = self.0.lock().get(uid)
            && *content == wanted.content
            && when.elapsed() < HOLDS
        {
            return Some(why.clone());
        }
        let dir = place.configuration().join("trial");
        let tried = match layout::remove(&dir).await {
            Ok(()) => attempt::<E>(home, uid, spec, memory, server, place).await,
            Err(error) => Err(Trouble::io("clear what a trial left")(error)),
        };
        let cleared = layout::remove(&dir).await.map_err(Trouble::io("clear what a trial left"));
        match tried.and(cleared) {
            Ok(()) => None,
            Err(trouble) => {
                let why = trouble.message;
                self.0.lock().insert(uid.to_owned(), (wanted.content.clone(), Instant::now(), why.clone()));
                Some(why)
            }
        }
    }
}

async fn attempt<E: Engine>(
    home: &Home,
    uid: &str,
    spec: &InstanceSpec,
    memory: u64,
    server: &Server,
    place: &Place,
) -> Result<(), Trouble> {
    let dir = home
        .make_private(&format!("{}/{uid}/trial", E::WORD), place.account.as_ref())
        .map_err(Trouble::io("make a directory"))?;
    let place = Place { data: dir.join("data"), run: dir, ..place.clone() };
    template::copy::<E>(home, server, &place.data, place.account.as_ref()).await?;
    let configuration = E::configuration(spec, memory, &place);
    let file = (configuration.file.clone(), configuration.content);
    for (file, content) in configuration.more.iter().chain([&file]) {
        home::write_for_now(file, content.as_bytes(), 0o640, place.account.as_ref())
            .map_err(Trouble::io("write its configuration"))?;
    }
    for arguments in E::trials(server, &place, &file.0) {
        start(server, &place, &arguments).await?;
    }
    Ok(())
}

async fn start(server: &Server, place: &Place, arguments: &[String]) -> Result<(), Trouble> {
    let mut command = tokio::process::Command::new(&server.program);
    command.args(arguments).current_dir("/").env_clear();
    command.env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(account) = &place.account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output
        .unwrap_or_else(|late| Err(std::io::Error::other(late)))
        .map_err(Trouble::io("try spec.settings with the engine"))?;
    if output.status.success() {
        return Ok(());
    }
    let why = reason(&String::from_utf8_lossy(&output.stderr));
    let why = if why.is_empty() { output.status.to_string() } else { why };
    Err(Trouble::new("InvalidSettings", format!("the engine does not start with spec.settings: {why}: correct them")))
}

/// What is wrong, of all that an engine says: without time, level and our own files.
pub fn reason(said: &str) -> String {
    let after = |marks: &[&str]| -> Vec<&str> {
        let lines = said.lines().filter_map(|line| marks.iter().find_map(|mark| Some(line.split_once(mark)?.1)));
        lines.map(str::trim).collect()
    };
    let (fatal, logged) = (after(&["[ERROR] ", "FATAL:  ", "PANIC:  "]), after(&["LOG:  "]));
    // what is wrong in a file PostgreSQL says before it says that something is
    let in_file = fatal.iter().any(|line| line.starts_with("configuration file"));
    let mut lines = if in_file { logged } else { fatal };
    lines.retain(|line| *line != "Aborting" && !line.starts_with("skipping missing"));
    if lines.is_empty() {
        lines.extend(said.trim().lines().next_back());
    }
    let plain = |line: &&str| {
        let line = line.strip_prefix("Buffered error: ").unwrap_or(line);
        let line = line.strip_prefix("mariadbd: ").unwrap_or(line);
        line.split_once(" in file \"").map_or(line, |(what, _)| what).to_owned()
    };
    lines.iter().take(2).map(plain).collect::<Vec<_>>().join("; ")
}

/// Says whether the settings are those that are asked for, where any are or were.
pub fn tell(report: &mut Report, spec: &InstanceSpec, refused: Option<String>, object: &Object) {
    match refused {
        Some(why) => {
            report.message = format!("ready to be used with the settings of before: {why}");
            report.conditions.push(Condition::new(SETTINGS, false, "Refused", why));
        }
        None if !spec.settings.is_empty() || condition_of(&object.0, SETTINGS).is_some() => {
            report.conditions.push(Condition::new(SETTINGS, true, "Applied", "it runs with what is asked for"));
        }
        None => {}
    }
}

/// Says of a server that does not start that it does not run with the settings that are asked for, whatever keeps it from that.
pub fn tell_down(report: &mut Report, spec: &InstanceSpec, refused: Option<String>) {
    let down = (!spec.settings.is_empty()).then(|| "its server does not start: condition Ready says why".to_owned());
    let reason = if refused.is_some() { "Refused" } else { "NotRunning" };
    if let Some(why) = refused.or(down) {
        report.conditions.push(Condition::new(SETTINGS, false, reason, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_found_in_what_an_engine_says() {
        let check = |said: &str, expected: &str| assert_eq!(reason(said), expected);
        check(
            "2026-11-16 00:19:28.704 GMT [9256] LOG:  unrecognized configuration parameter \"work_memm\" in file \"/x/p.conf\" line 816\n\
             2026-11-16 00:19:28.704 GMT [9256] FATAL:  configuration file \"/x/p.conf\" contains errors\n",
            "unrecognized configuration parameter \"work_memm\"",
        );
        check(
            "2026-11-16 01:41:24.471 GMT [30093] LOG:  starting PostgreSQL 15.18\n\
             2026-11-16 01:41:24.477 GMT [30093] FATAL:  could not map anonymous shared memory: Cannot allocate memory\n\
             2026-11-16 01:41:24.477 GMT [30093] HINT:  This error usually means\n\
             2026-11-16 01:41:24.478 GMT [30093] LOG:  database system is shut down\n",
            "could not map anonymous shared memory: Cannot allocate memory",
        );
        check(
            "2026-11-16  0:19:31 0 [Warning] Could not open mysql.plugin table\n\
             2026-11-16  0:19:31 0 [ERROR] mariadbd: unknown variable 'max-connectionz=5'\n\
             2026-11-16  0:19:31 0 [ERROR] Aborting\n",
            "unknown variable 'max-connectionz=5'",
        );
        check(
            "2026-11-16  1:41:24 0 [ERROR] mariadbd: Out of memory (Needed 0 bytes)\n\
             2026-11-16  1:41:24 0 [ERROR] InnoDB: Cannot map innodb_buffer_pool_size_max=8388608m\n\
             2026-11-16  1:41:24 0 [ERROR] InnoDB: Database creation was aborted with error Generic error.\n",
            "Out of memory (Needed 0 bytes); InnoDB: Cannot map innodb_buffer_pool_size_max=8388608m",
        );
        check("killed\n", "killed");
        check("", "");
    }
}
