//! Settings are tried before a server is stopped for them: one that the engine does not know would keep it from starting again.

use std::process::Stdio;
use std::time::Duration;

use conductor_local::{Trouble, home};

use crate::engine::{Configuration, Engine, InstanceSpec, Place, Server};

/// How long the engine has to read its configuration.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why the engine would not start with a configuration that differs from the one there is; `None`: it would, as far as it can tell.
/// What we write ourselves needs no trial.
pub async fn refused<E: Engine>(
    spec: &InstanceSpec,
    server: &Server,
    place: &Place,
    wanted: &Configuration,
) -> Option<String> {
    let same = std::fs::read(&wanted.file).is_ok_and(|content| content == wanted.content.as_bytes());
    if spec.settings.is_empty() || same {
        return None;
    }
    let mut file = wanted.file.clone();
    file.as_mut_os_string().push(".new");
    let tried = attempt::<E>(server, place, &file, &wanted.content).await;
    let _ = std::fs::remove_file(&file);
    match tried {
        Ok(()) => None,
        Err(trouble) => Some(trouble.message),
    }
}

async fn attempt<E: Engine>(
    server: &Server,
    place: &Place,
    file: &std::path::Path,
    content: &str,
) -> Result<(), Trouble> {
    home::write_for_now(file, content.as_bytes(), 0o640, place.account.as_ref())
        .map_err(Trouble::io("write its configuration"))?;
    let mut command = tokio::process::Command::new(&server.program);
    command.args(E::trial(place, file)).current_dir("/").env_clear();
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
    let message =
        format!("the engine refuses spec.settings: {}: correct them", reason(&String::from_utf8_lossy(&output.stderr)));
    Err(Trouble::new("InvalidSettings", message))
}

/// What is wrong, of all that an engine says: without time, level and our own file.
fn reason(said: &str) -> &str {
    let found = ["[ERROR] ", "LOG:  ", "FATAL:  "].into_iter().find_map(|mark| Some(said.split_once(mark)?.1));
    let line = found.unwrap_or(said).trim().lines().next().unwrap_or_default();
    let line = line.strip_prefix("Buffered error: ").unwrap_or(line);
    let line = line.strip_prefix("mariadbd: ").unwrap_or(line);
    line.split_once(" in file \"").map_or(line, |(what, _)| what)
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
            "2026-11-16  0:19:31 0 [Warning] Could not open mysql.plugin table\n\
             2026-11-16  0:19:31 0 [ERROR] mariadbd: unknown variable 'max-connectionz=5'\n",
            "unknown variable 'max-connectionz=5'",
        );
        check("killed\n", "killed");
        check("", "");
    }
}
