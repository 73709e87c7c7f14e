//! HAProxy processes: started, reloaded without a lost connection, asked how they are.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conductor_local::home::write_for_now;
use conductor_local::lack::program;
use conductor_local::{Account, Lack, Program, Running, State, Stop, Supervisor, Trouble, account, logs};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::config::{CONFIG, Files, TCP};
use crate::statistics::statistics;

/// The socket through which a process is asked and told, in its directory.
const SOCKET: &str = "admin.sock";
/// What servers were like before a reload.
const SERVERS: &str = "servers";
/// The longest path of a socket, and what HAProxy adds to it while it binds.
const SOCKET_PATH: usize = 107 - 14;
/// How long a start or reload may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a certificate is left out that was not read in time, which may have been for want of that alone.
const UNREAD: Duration = Duration::from_secs(30);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long until it is told once more to reload.
const RELOADED: Duration = Duration::from_secs(4);
/// How long it takes, at most, to read a configuration.
const SETTLED: Duration = Duration::from_millis(500);

/// All HAProxy processes below one directory.
pub struct HAProxies {
    supervisor: Supervisor,
    /// Tells when someone else changes a file.
    kept: conductor_local::Files,
    /// What HAProxy was found to say of certificates, by name and content.
    tried: Mutex<HashMap<(String, String), Tried>>,
    /// Files that someone else had changed, by the name of their process, until that is said.
    edited: Mutex<HashMap<String, Vec<String>>>,
    /// Processes that did not answer when they were last asked.
    silent: Mutex<HashSet<String>>,
}

/// What HAProxy was found to say of a certificate, and until when that holds, if not for good.
type Tried = (Result<(), String>, Option<Instant>);

/// What came of applying a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The master process.
    pub pid: i32,
    /// How often it was started after it had ended by itself.
    pub restarts: u32,
    /// Files that someone else had changed.
    pub corrected: Vec<String>,
    /// Whether it had to be reloaded.
    pub reloaded: bool,
}

/// A worker that serves.
struct Serving {
    /// The configuration it has.
    mark: String,
    /// Its process id.
    worker: String,
}

/// The program, or what is missing.
pub fn haproxy() -> Result<PathBuf, Lack> {
    program("haproxy", "haproxy", &[])
}

/// The account that workers run as, if we may choose.
pub fn worker_account() -> Option<Account> {
    account::is_root().then(|| Account::find("haproxy")).flatten()
}

/// The most connections that a process may have here: each takes two files, and some are its own.
pub fn most_connections() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limit.maximum.or(limit.current).unwrap_or(u64::from(u32::MAX));
    u32::try_from(files.saturating_sub(200) / 2).unwrap_or(u32::MAX).clamp(10, 1_000_000)
}

impl HAProxies {
    /// Below a directory; `ended` is told the name of a process that has ended by itself.
    pub fn new(
        directory: &Path,
        kept: conductor_local::Files,
        ended: impl Fn(&str) + Send + Sync + 'static,
    ) -> HAProxies {
        HAProxies {
            supervisor: Supervisor::new(directory, ended),
            kept,
            tried: Mutex::default(),
            edited: Mutex::default(),
            silent: Mutex::default(),
        }
    }

    /// The directory of a process.
    pub fn directory(&self, name: &str) -> PathBuf {
        self.supervisor.dir(name)
    }

    /// Every living process: name and pid.
    pub fn alive(&self) -> Vec<(String, i32)> {
        self.supervisor.alive()
    }

    /// Sees to it that a process which runs answers, too. One that hangs is said to, and ended if it does so still when it is looked at again:
    /// it has nothing that is not in its configuration.
    pub async fn answers(&self, name: &str) -> Result<(), Trouble> {
        // one that hangs has so many waiting that nobody more may
        let hangs = |error: io::Error| matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        let hangs = self.supervisor.find(name).is_some() && self.ask(name, "show info").await.is_err_and(hangs);
        if !hangs {
            self.silent.lock().remove(name);
            return Ok(());
        }
        if self.silent.lock().insert(name.to_owned()) {
            let message = format!(
                "haproxy runs and does not answer within {} s: if it does not at the next look, it is started anew",
                ANSWER.as_secs()
            );
            return Err(Trouble::new("NotAnswering", message));
        }
        tracing::warn!(name, "haproxy hangs and is started anew");
        let how = Stop { signal: Signal::KILL, patience: Duration::from_secs(5) };
        self.supervisor.stop(name, how).await.map_err(Trouble::io("stop haproxy"))?;
        self.silent.lock().remove(name);
        Ok(())
    }

    /// Sees to it that the process of a balancer runs with exactly these files.
    pub async fn apply(&self, uid: &str, name: &str, wanted: &Files) -> Result<Applied, Trouble> {
        let directory = self.directory(name);
        let too_long = directory.join(SOCKET).as_os_str().len() > SOCKET_PATH;
        if too_long {
            let message = format!("{} is too long for a socket: use a shorter --data-dir", directory.display());
            return Err(Trouble::new("PathTooLong", message));
        }
        let binary = haproxy()?;
        // one whose directory was removed cannot be reached or reloaded: it is replaced, for it holds no data
        let gone = !logs::path(&directory).exists() && !directory.join(SOCKET).exists();
        let lost = gone && self.supervisor.find(name).is_some();
        if lost {
            self.end(name).await?;
        }
        let changed = self.write(uid, &directory, wanted)?;
        let command = [
            binary.display().to_string(),
            "-W".into(),
            "-S".into(),
            format!("{},mode,600", directory.join("master.sock").display()),
            "-f".into(),
            directory.join(CONFIG).display().to_string(),
        ];
        let command = Program {
            command: command.to_vec(),
            environment: Vec::new(),
            account: None,
            working_directory: directory.clone(),
        };
        let mut running = self.run(name, &command).await?;
        let mut now = None;
        if !running.fresh {
            now = self.serving(name).await;
            if now.is_none() {
                // it may be starting; if not, its sockets are gone, and so is any way to reload it
                now = self.until_serving(name, |_| true).await.ok();
                if now.is_none() {
                    self.end(name).await?;
                    running = self.run(name, &command).await?;
                }
            }
        }
        let mut applied =
            Applied { pid: running.pid, restarts: running.restarts, corrected: Vec::new(), reloaded: false };
        if running.fresh {
            self.until_serving(name, |now| now.mark == wanted.mark).await?;
            if lost {
                applied.corrected = changed;
            }
            return Ok(applied);
        }
        if now.is_some_and(|now| now.mark == wanted.mark) {
            if changed.is_empty() {
                applied.corrected = self.edited.lock().remove(name).unwrap_or_default();
                return Ok(applied);
            }
            // whoever changed a file may have had it loaded; should that not go well, it is said when it does
            self.edited.lock().entry(name.to_owned()).or_default().extend(changed);
        }
        self.reload(name, &wanted.mark).await?;
        if self.edited.lock().contains_key(name) {
            // the new worker may be the editor's, who had the file loaded as it was: the next has read it as it is
            tokio::time::sleep(SETTLED).await;
            self.reload(name, &wanted.mark).await?;
        }
        applied.corrected = self.edited.lock().remove(name).unwrap_or_default();
        applied.reloaded = true;
        Ok(applied)
    }

    async fn run(&self, name: &str, program: &Program) -> Result<Running, Trouble> {
        match self.supervisor.ensure(name, program).await.map_err(Trouble::io("start haproxy"))? {
            State::Running(running) => Ok(running),
            State::Waiting { pause, .. } => {
                let message =
                    format!("haproxy ended and is started again in {} s: {}", pause.as_secs() + 1, self.words(name));
                Err(Trouble::new("Crashed", message))
            }
        }
    }

    async fn end(&self, name: &str) -> Result<(), Trouble> {
        let how = Stop { signal: Signal::TERM, patience: Duration::from_secs(5) };
        self.supervisor.stop(name, how).await.map_err(Trouble::io("stop haproxy"))
    }

    /// Brings the files of a directory in step; the names of those that differed.
    fn write(&self, uid: &str, directory: &Path, wanted: &Files) -> Result<Vec<String>, Trouble> {
        let certificates = directory.join("certificates");
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(directory)
            .and_then(|()| builder.create(&certificates))
            .map_err(Trouble::io("make its directory"))?;
        let servers = directory.join(SERVERS);
        if !servers.exists() {
            write_for_now(&servers, b"1\n", 0o600, None).map_err(Trouble::io("write its configuration"))?;
        }
        let mut changed = Vec::new();
        for (name, content) in &wanted.files {
            let path = directory.join(name);
            self.kept.keep(uid, &path, Some(content.as_bytes()));
            if fs::read(&path).is_ok_and(|there| there == content.as_bytes()) {
                continue;
            }
            write_for_now(&path, content.as_bytes(), 0o600, None).map_err(Trouble::io("write its configuration"))?;
            changed.push(name.clone());
        }
        for entry in fs::read_dir(&certificates).into_iter().flatten().flatten() {
            let name = format!("certificates/{}", entry.file_name().to_string_lossy());
            if !wanted.files.iter().any(|(wanted, _)| *wanted == name) {
                let _ = fs::remove_file(entry.path());
                changed.push(name);
            }
        }
        Ok(changed)
    }

    /// Hands over to a new worker: listening sockets are passed on, and what is known of the servers with them.
    async fn reload(&self, name: &str, mark: &str) -> Result<(), Trouble> {
        if let Ok(servers) = self.ask(name, "show servers state").await {
            write_for_now(&self.directory(name).join(SERVERS), servers.as_bytes(), 0o600, None)
                .map_err(Trouble::io("write what is known of the servers"))?;
        }
        let before = self.serving(name).await.map(|now| now.worker);
        let begun = Instant::now();
        loop {
            if !self.supervisor.signal(name, Signal::USR2) {
                return Err(Trouble::new("Crashed", "haproxy ended while it was to be reloaded"));
            }
            let new = |now: &Serving| now.mark == mark && Some(&now.worker) != before.as_ref();
            match self.serving_within(name, RELOADED, new).await {
                // one that is being reloaded by somebody else does not hear it
                Err(_) if begun.elapsed() < PATIENCE => {}
                reloaded => return reloaded.map(drop),
            }
        }
    }

    async fn until_serving(&self, name: &str, fine: impl Fn(&Serving) -> bool) -> Result<Serving, Trouble> {
        self.serving_within(name, PATIENCE, fine).await
    }

    async fn serving_within(
        &self,
        name: &str,
        patience: Duration,
        fine: impl Fn(&Serving) -> bool,
    ) -> Result<Serving, Trouble> {
        let start = Instant::now();
        let mut what = "does not answer";
        while start.elapsed() < patience {
            match self.serving(name).await {
                Some(now) if fine(&now) => return Ok(now),
                Some(_) => what = "goes on with the configuration of before",
                None => {}
            }
            if self.supervisor.find(name).is_none() {
                what = "ended";
                break;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let message = format!("haproxy does not take its configuration and {what}: {}", self.words(name));
        Err(Trouble::new("ConfigurationRefused", message))
    }

    /// What serves now.
    async fn serving(&self, name: &str) -> Option<Serving> {
        let info = self.ask(name, "show info").await.ok()?;
        let field = |name: &str| {
            let lines = info.lines().filter_map(|line| line.split_once(": "));
            lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        Some(Serving { mark: field("description")?, worker: field("pid")? })
    }

    /// The last it said.
    fn words(&self, name: &str) -> String {
        match logs::tail(&self.directory(name), 3) {
            Ok(tail) if !tail.trim().is_empty() => tail.split_whitespace().collect::<Vec<_>>().join(" "),
            Ok(_) => "its log is empty".to_owned(),
            Err(error) => format!("its log cannot be read: {error}"),
        }
    }

    /// Asks the worker that serves.
    pub async fn ask(&self, name: &str, command: &str) -> io::Result<String> {
        let asking = async {
            let mut socket = UnixStream::connect(self.directory(name).join(SOCKET)).await?;
            socket.write_all(format!("{command}\n").as_bytes()).await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        tokio::time::timeout(ANSWER, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends a process and removes its directory.
    pub async fn remove(&self, uid: &str, name: &str) -> Result<(), Trouble> {
        self.kept.forget(uid);
        self.silent.lock().remove(name);
        self.end(name).await?;
        match fs::remove_dir_all(self.directory(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::io("remove its directory")(error)),
            _ => Ok(()),
        }
    }

    /// Whether HAProxy takes a certificate; one that it does not take would keep it from starting.
    pub async fn check_certificate(&self, name: &str, certificate: &str, pem: &str) -> Result<(), String> {
        let key = (certificate.to_owned(), pem.to_owned());
        if let Some((known, until)) = self.tried.lock().get(&key)
            && until.is_none_or(|until| Instant::now() < until)
        {
            return known.clone();
        }
        let directory = self.directory(name);
        let trying = || -> io::Result<PathBuf> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
            let file = directory.join("try.pem");
            write_for_now(&file, pem.as_bytes(), 0o600, None)?;
            let config = format!(
                "defaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nfrontend f\n    \
                 bind 127.0.0.1:1 ssl crt '{}'\n",
                file.display()
            );
            let path = directory.join("try.cfg");
            write_for_now(&path, config.as_bytes(), 0o600, None)?;
            Ok(path)
        };
        let path = trying().map_err(|e| e.to_string())?;
        let binary = haproxy().map_err(|lack| lack.to_string())?;
        // in a session of its own it has no terminal to ask anybody for a passphrase
        let mut command = tokio::process::Command::new("setsid");
        command
            .args([binary.as_os_str(), "-c".as_ref(), "-f".as_ref(), path.as_os_str()])
            .kill_on_drop(true)
            .stdin(std::process::Stdio::null());
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        let _ = fs::remove_file(directory.join("try.pem"));
        let _ = fs::remove_file(&path);
        let tried = match output {
            Err(_) => (Err(format!("it is not read within {} s", PATIENCE.as_secs())), Some(Instant::now() + UNREAD)),
            Ok(output) => {
                let output = output.map_err(|e| e.to_string())?;
                let said = String::from_utf8_lossy(&output.stderr);
                let wrong = || what_is_wrong(&said, &directory.join("try.pem").display().to_string());
                (output.status.success().then_some(()).ok_or_else(wrong), None)
            }
        };
        let outcome = tried.0.clone();
        let mut all = self.tried.lock();
        if all.len() > 10_000 {
            all.clear();
        }
        all.insert(key, tried);
        outcome
    }

    /// The ports on which a process carries TCP; `None`: it runs and does not say.
    pub async fn ports(&self, name: &str) -> Option<HashSet<u16>> {
        if self.supervisor.find(name).is_none() {
            return Some(HashSet::new());
        }
        let stat = self.ask(name, "show stat").await.ok()?;
        let frontends = stat.lines().filter_map(|line| line.split_once(",FRONTEND,"));
        Some(frontends.filter_map(|(name, _)| name.strip_prefix(TCP)?.parse().ok()).collect())
    }

    /// Every backend with its servers and how they are, and the totals.
    pub async fn statistics(&self, name: &str) -> Option<(Value, Value)> {
        Some(statistics(&self.ask(name, "show stat").await.ok()?))
    }
}

/// What HAProxy says of a certificate, without the file that it is in: whoever reads it knows the Secret, and nothing of this machine.
fn what_is_wrong(said: &str, file: &str) -> String {
    let before = said.lines().find_map(|line| line.split_once(&format!("'{file}"))).map_or("", |(before, _)| before);
    let mut why = before.rsplit(" : ").next().unwrap_or_default().trim();
    for word in [" from file", " into SSL Context", " in", " loaded"] {
        why = why.strip_suffix(word).unwrap_or(why);
    }
    let mut letters = why.chars();
    match letters.next() {
        Some(first) if !why.contains('/') => first.to_lowercase().chain(letters).collect(),
        _ => "haproxy refuses it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_without_this_machines_paths() {
        let file = "/var/lib/conductor/a/try.pem";
        let check = |said: &str, expected: &str| {
            let said = format!(
                "[NOTICE]   (7) : path to executable is /usr/sbin/haproxy\n[ALERT]    (7) : config : parsing [/var/lib/conductor/a/try.cfg:7] : \
                 'bind 127.0.0.1:1' in section 'frontend' : {said}\n[ALERT]    (7) : config : Fatal errors found in configuration.\n"
            );
            assert_eq!(what_is_wrong(&said, file), expected);
        };
        check(
            &format!("inconsistencies between private key and certificate loaded '{file}'."),
            "inconsistencies between private key and certificate",
        );
        check(&format!("No Private Key found in '{file}.key'."), "no Private Key found");
        check(&format!("unable to load certificate from file '{file}'."), "unable to load certificate");
        check(&format!("unable to load SSL certificate into SSL Context '{file}'."), "unable to load SSL certificate");
        check(
            &format!("unable to stat SSL certificate from file '{file}' : No such file."),
            "unable to stat SSL certificate",
        );
        check("something else", "haproxy refuses it");
    }
}
