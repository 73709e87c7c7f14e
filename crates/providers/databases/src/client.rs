//! Running SQL through a command-line client.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use conductor_local::Trouble;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Why a server did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It cannot be reached.
    Unreachable(String),
    /// It does not take these credentials, or has no such database.
    Denied(String),
    /// Somebody's transaction holds what is to be changed.
    Locked(String),
    /// Anything else.
    Failed(String),
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Trouble {
        match refused {
            Refused::Unreachable(why) => Trouble::new("Unreachable", format!("the server cannot be reached: {why}")),
            Refused::Denied(why) => Trouble::new("Denied", format!("the server refuses the credentials: {why}")),
            Refused::Locked(why) => {
                Trouble::new("Locked", format!("an open transaction holds {why}: it is tried again until that ends"))
            }
            Refused::Failed(why) => Trouble::new("SqlFailed", format!("the server refuses: {why}")),
        }
    }
}

/// A client, and where it connects as whom.
#[derive(Clone, Debug)]
pub struct Client {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment: where passwords are, which arguments would show to everyone.
    pub environment: Vec<(String, String)>,
    /// The user and group it runs as; `None`: who we are.
    pub runs_as: Option<(u32, u32)>,
}

/// An id that no account has. A client that runs under it can read and write nothing of anyone's, whatever a server makes it do, and no
/// server's account can look into its environment, where the password is.
const NOBODY_ELSES: u32 = 61_183;

/// Who a client with a password runs as: nobody, if we may choose.
pub fn nobody() -> Option<(u32, u32)> {
    conductor_local::account::is_root().then_some((NOBODY_ELSES, NOBODY_ELSES))
}

const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is asked whether sessions that were ended are gone, and after how long each time.
pub const ENDS: (u32, Duration) = (50, Duration::from_millis(100));

impl Client {
    /// Runs statements; the rows of all answers, tab-separated.
    pub async fn run(&self, sql: &str) -> Result<Vec<String>, Refused> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(self.environment.iter().cloned());
        command.env("LC_ALL", "C.UTF-8").env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent");
        if let Some((user, group)) = self.runs_as {
            command.uid(user).gid(group).current_dir("/");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |error: std::io::Error| Refused::Failed(format!("{}: {error}", self.program.display()));
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // a client that could not connect has closed it, and says why below
            let _ = input.write_all(sql.as_bytes()).await;
        }
        let output = match tokio::time::timeout(PATIENCE, child.wait_with_output()).await {
            Ok(output) => output.map_err(failed)?,
            Err(_) => return Err(Refused::Unreachable("it does not answer within a minute".into())),
        };
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            return Ok(text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect());
        }
        Err(refused(String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// What a client's complaint means.
fn refused(words: &str) -> Refused {
    let says = |any: &[&str]| any.iter().any(|w| words.contains(w));
    let shown: String = words.chars().take(400).collect();
    let denied = [
        "password authentication failed",
        "is not permitted to log in",
        "no pg_hba.conf entry",
        "permission denied for database",
        "ERROR 1045",
        "ERROR 1044",
        "ERROR 1049",
    ];
    let gone = ["starting up", "shutting down", "server closed the connection"];
    let unreachable = [
        "Connection refused",
        "No such file or directory",
        "could not translate host name",
        "timeout expired",
        "ERROR 2002",
        "ERROR 2003",
        "ERROR 2005",
        "ERROR 2006",
        "ERROR 2013",
    ];
    // a server that says so is there
    let answers = words.contains("FATAL:");
    let missing = answers && words.contains("does not exist");
    if says(&denied) || missing {
        Refused::Denied(shown)
    } else if says(&gone) || (!answers && says(&unreachable)) {
        Refused::Unreachable(shown)
    } else if says(&["due to lock timeout", "ERROR 1205"]) {
        Refused::Locked("what is to be changed".into())
    } else {
        Refused::Failed(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_apart() {
        let check = |words: &str, expected: &str| {
            let kind = match refused(words) {
                Refused::Denied(_) => "denied",
                Refused::Unreachable(_) => "unreachable",
                Refused::Locked(_) => "locked",
                Refused::Failed(_) => "failed",
            };
            assert_eq!(kind, expected, "{words}");
        };
        check(
            "psql: error: connection to server failed: FATAL:  password authentication failed for user \"a\"",
            "denied",
        );
        check("psql: error: FATAL:  role \"a\" does not exist", "denied");
        check("psql:<stdin>:1: ERROR:  role \"a\" does not exist", "failed");
        check("psql:<stdin>:1: ERROR:  canceling statement due to lock timeout", "locked");
        check("psql: error: connection to server at \"127.0.0.1\", port 1 failed: Connection refused", "unreachable");
        check(
            "psql: error: connection to server failed: FATAL:  could not access file \"nope\": No such file or directory",
            "failed",
        );
        check("psql: error: connection to server failed: FATAL:  the database system is starting up", "unreachable");
        check("psql: error: connection to server on socket \"/x\" failed: No such file or directory", "unreachable");
        check("ERROR 1045 (28000): Access denied for user 'app'@'127.0.0.1' (using password: YES)", "denied");
        check("ERROR 2002 (HY000): Can't connect to server on '127.0.0.1' (115)", "unreachable");
        check("ERROR 1205 (HY000) at line 1: Lock wait timeout exceeded; try restarting transaction", "locked");
        check("ERROR 1064 (42000) at line 1: You have an error in your SQL syntax", "failed");
    }
}
