//! A server of its own for each resource.
//!
//! `HOME/ENGINE/UID/` holds its data, its configuration, its facts, its process' record and its log. *Invariants:* data that was ever in
//! use is never replaced but by a scrub; where it is gone, that is said. All but `data` is ours: what is in `data` is whatever the users
//! of the server make of it, so nothing there is written, and nothing read through a link.

use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conductor_claims::lifecycle::{RESOURCE_REF, condition_of};
use conductor_local::{
    Account, BoxFuture, Files, Finding, Home, Kind, Lack, Ledger, Object, Report, Scene, Scrubbed, State, Stock,
    Supervisor, Trouble, Wake, account, home, inside, lack, logs, owner,
};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::json;

use crate::API_VERSION;
use crate::access::{Target, tell_size, verified};
use crate::client::Client;
use crate::credentials;
use crate::engine::{Configuration, Engine, InstanceSpec, Place, Server, version_text};
use crate::grant;
use crate::layout::{self, Facts};
use crate::probe;
use crate::refusals;
use crate::template;
use crate::trial::{self, Trials};
use crate::trust::Trust;

/// How long a server has to take connections after its start.
const STARTING: Duration = Duration::from_secs(20);
/// How long it has to answer one, on a busy machine.
const ANSWER: Duration = Duration::from_secs(10);
/// When one that does not answer is asked again.
const SILENT: Duration = Duration::from_secs(5);
/// The database where the spec names none.
const DATABASE: &str = "app";
/// One port and one id is chosen at a time.
static CHOOSING: Mutex<()> = Mutex::new(());

/// The kind of an engine's own servers.
pub struct Instance<E> {
    client: kube::Client,
    home: Home,
    dir: PathBuf,
    supervisor: Supervisor,
    /// One copy is synced at a time; it may take a while.
    syncing: Arc<tokio::sync::Mutex<()>>,
    ledger: Arc<Ledger>,
    files: Files,
    wake: Wake,
    trust: Arc<Trust>,
    trials: Trials,
    engine: PhantomData<fn() -> E>,
}

fn ended(running: &Object) -> bool {
    let ready = condition_of(&running.0, "Ready");
    ready.is_some_and(|(ready, _, _)| ready)
}

impl<E: Engine> Instance<E> {
    /// Over a provider's home.
    pub fn new(scene: &Scene) -> Instance<E> {
        let dir = scene.home.path().join(E::WORD);
        let wake = scene.wake.clone();
        Instance {
            client: scene.client.clone(),
            home: scene.home.clone(),
            supervisor: Supervisor::new(&dir, move |uid| wake(uid)),
            dir,
            syncing: Arc::default(),
            ledger: scene.ledger.clone(),
            files: scene.files.clone(),
            wake: scene.wake.clone(),
            trust: Arc::default(),
            trials: Trials::default(),
            engine: PhantomData,
        }
    }

    /// Who a server runs as: nobody else does.
    fn account(facts: &Facts) -> Option<Account> {
        match facts.account {
            0 => template::account::<E>(),
            id => Some(Account::with_id(id)),
        }
    }

    /// Where an instance's socket is. A socket's path has 107 bytes at most.
    fn run_directory(&self, uid: &str) -> PathBuf {
        let part: String = uid.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        let run = self.home.path().join("run").join(E::WORD).join(part);
        if run.as_os_str().len() < 80 {
            return run;
        }
        let base = if account::is_root() { "/run" } else { "/tmp" };
        Path::new(base).join(format!("conductor-{}", short(&run)))
    }

    /// Gives an instance what it is to keep, durably: its port, the id that its server runs as, its directories.
    fn reserve(
        &self,
        object: &Object,
        spec: &InstanceSpec,
        memory: u64,
        server: &Server,
        fresh: bool,
        facts: &mut Facts,
    ) -> Result<(Place, Configuration), Trouble> {
        let uid = object.uid();
        let address = spec.address.clone().unwrap_or_else(|| "127.0.0.1".into());
        if address.parse::<std::net::IpAddr>().is_err() {
            return Err(Trouble::new("Invalid", format!("spec.address {address:?} is no address")));
        }
        let dirs = [self.home.path().join("postgres"), self.home.path().join("mariadb")];
        let before = facts.clone();
        let _alone = CHOOSING.lock();
        facts.memory = memory;
        self.port(object, spec, &address, &dirs, fresh, facts)?;
        // data of before there were such ids goes on under its account
        if fresh && facts.account == 0 && account::has_own_ids() {
            facts.account = layout::choose_account(&dirs, uid);
        }
        let account = Self::account(facts);
        let dir = self
            .home
            .make_private(&format!("{}/{uid}", E::WORD), account.as_ref())
            .and_then(|dir| home::tighten(&dir.join("instance.json"), 0o600).map(|()| dir))
            .map_err(Trouble::io("make its directory"))?;
        let run = self.run_directory(uid);
        self.home
            .make(&format!("run/{}", E::WORD), Some(&Account::with_id(0)))
            .and_then(|_| layout::own_directory(&run, account.as_ref()))
            .map_err(Trouble::io("make the directory for its socket"))?;
        let place = Place { data: dir.join("data"), run, address, port: facts.port, account };
        let configuration = E::configuration(spec, memory, &place);
        if fresh {
            (facts.version, facts.synced) = (server.version.clone(), false);
            facts.database.clear();
            facts.at_start.clone_from(&configuration.at_start);
        }
        if *facts != before {
            facts.write(&dir).map_err(Trouble::io("keep its facts"))?;
        }
        Ok((place, configuration))
    }

    /// The instance's port: the one it has, the one its spec names, or a free one.
    fn port(
        &self,
        object: &Object,
        spec: &InstanceSpec,
        address: &str,
        dirs: &[PathBuf],
        fresh: bool,
        facts: &mut Facts,
    ) -> Result<(), Trouble> {
        // one without data has no server
        let runs = !fresh && self.supervisor.find(object.uid()).is_some();
        let wanted = spec.port.unwrap_or(facts.port);
        let taken = |port: u16| !runs && !layout::is_free(address, port);
        if wanted != 0 && (wanted != facts.port || !taken(wanted)) {
            if wanted != facts.port && taken(wanted) {
                return Err(Trouble::new(
                    "PortTaken",
                    format!("port {wanted} is taken: free it, or leave spec.port out"),
                ));
            }
            facts.port = wanted;
        } else if wanted == 0 || !object.was_ready() {
            let none = || Trouble::new("NoPort", "no port from 20000 to 29999 is free");
            facts.port = layout::choose_port(dirs, address, object.uid()).ok_or_else(none)?;
        } else {
            let message = format!("port {wanted} is taken by another process: end it; clients know this port");
            return Err(Trouble::new("PortTaken", message));
        }
        Ok(())
    }

    async fn bring(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: InstanceSpec = object.spec()?;
        let database = spec.database.as_deref().unwrap_or(DATABASE);
        if !credentials::may_be_database(database) {
            let message =
                format!("spec.database {database:?} must be a lower-case word that the engine has no use for");
            return Err(Trouble::new("Invalid", message));
        }
        let uid = object.uid();
        let dir = self.supervisor.dir(uid);
        let data = dir.join("data");
        let mut scrubbed = None;
        let scrub = object.scrub_wanted();
        let there = E::holds_data(&data);
        if !there && object.was_ready() && scrub.is_none() {
            return self.lost(object, &data).await;
        }
        let mut facts = Facts::read(&dir);
        let granted = grant::grant(&self.ledger, object, &spec, self.home.path(), &facts)?;
        // data goes on under the version that made it
        let wanted =
            if there && !facts.version.is_empty() { series(&facts.version) } else { version_text(&spec.version) };
        let server = E::server(&wanted)?;
        let client = E::client()?;
        if let Some(number) = scrub {
            self.supervisor.stop(uid, E::stop(true)).await.map_err(Trouble::io("stop its server"))?;
            layout::remove(&data).await.map_err(Trouble::io("remove its data"))?;
            scrubbed = Some(number);
        }
        let fresh = !there || scrub.is_some();
        let (place, configuration) = self.reserve(object, &spec, granted.memory, &server, fresh, &mut facts)?;
        if fresh {
            let new = dir.join("data.new");
            layout::remove(&new).await.map_err(Trouble::io("clear its directory"))?;
            template::data::<E>(&self.home, &server, &new, place.account.as_ref()).await?;
            fs::rename(&new, &data).map_err(Trouble::io("put its data in place"))?;
        }
        let tried = (&server, &place);
        let refused = self.trials.refused::<E>(&self.home, object, &spec, granted.memory, tried, &configuration).await;
        match &refused {
            None => self.configure(uid, configuration, &place, fresh, &mut facts, &dir).await?,
            // it goes on with what it has
            Some(_) if configuration.file.exists() => {}
            Some(why) => return Err(Trouble::new("InvalidSettings", why.clone())),
        }
        if ended(object) && scrub.is_none() && self.supervisor.find(uid).is_none() {
            // said before it is mended, so that whoever depends on it can know
            let message = "its server ended by itself and is being started again";
            return Ok(Report::not_ready("Restarting", message).again(Duration::ZERO));
        }
        // with settings that are refused, it is what it was started with before
        let program = E::program(&server, &place, &facts.at_start);
        let running = match self.supervisor.ensure_after(uid, &program, fresh, || E::clear(&place)).await {
            Ok(State::Running(running)) => running,
            Ok(State::Waiting { pause, .. }) => {
                let mut why = self.ends_again(object, &spec, &data);
                if let Some(refused) = &refused {
                    why = format!("{why}; what is asked for now is refused, too: {refused}");
                }
                let mut report = Report::not_ready("Restarting", why).again(pause);
                trial::tell_down(&mut report, &spec, refused);
                return Ok(report);
            }
            Err(error) => {
                return Err(Trouble::new("StartFailed", format!("its server cannot be started: {error}")));
            }
        };
        self.files.follow(uid, &logs::path(&dir), || refusals::watcher::<E>(uid, &self.trust, &self.wake));
        if !Self::until_up(&place, running.pid).await {
            let message = format!(
                "its server does not take connections yet: conductor logs {}/{}",
                E::INSTANCE.kind,
                object.name()
            );
            return Ok(Report::not_ready("Starting", message).again(Duration::from_millis(500)));
        }
        if !fresh && !probe::answers(place.host(), place.port, E::PROBE, ANSWER).await {
            let message = format!(
                "its server (process {}) takes no connection, or does not answer: it may be stopped or overloaded, see conductor logs {}/{}",
                running.pid,
                E::INSTANCE.kind,
                object.name()
            );
            return Ok(Report::not_ready("Unreachable", message).again(SILENT));
        }
        let connect = |database: Option<&str>| E::administrator(&client, &place, database);
        // what was made once is not made again: who uses it would go on with an empty one
        let made = facts.database == database || (facts.database.is_empty() && object.was_ready());
        let trusted = E::SAYS_REFUSALS && self.trust.holds(object, None);
        if made && !fresh && !trusted && !E::has(&connect, database).await? {
            return Ok(Report::not_ready("Lost", gone(database)).again(Duration::from_secs(5)));
        }
        let mut report = self.access(object, &spec, database, &client, &place, &connect, scrubbed).await?;
        if facts.database != database {
            database.clone_into(&mut facts.database);
            facts.write(&dir).map_err(Trouble::io("keep its facts"))?;
        }
        if let Some(number) = scrubbed {
            report.scrubbed =
                Some(Scrubbed { number, outcome: self.verify(object, database, &client, &place, &connect).await });
        }
        let measured = data.clone();
        let used = tokio::task::spawn_blocking(move || inside::size_of(&measured)).await.unwrap_or(0);
        // what the class does not say about the engine is the class' to know: MariaDB may be offered as mysql
        if let Some(engine) = &spec.engine {
            report.attributes.insert("engine".into(), json!(engine));
        }
        report.attributes.insert("version".into(), json!(server.version));
        report.status.insert("port".into(), json!(facts.port));
        report.status.insert("restarts".into(), json!(running.restarts));
        report.restarts = running.restarts;
        tell_size(&mut report, granted.storage, used, object);
        grant::tell(&mut report, granted.refused, object);
        trial::tell(&mut report, &spec, refused, object);
        if !facts.synced {
            self.sync(dir, data, server);
        }
        Ok(report)
    }

    /// The databases that others have in the server, if any.
    async fn tenants(&self, object: &Object) -> Result<Option<String>, Trouble> {
        let Some(secret) = object.status("connectionSecretRef")["name"].as_str() else { return Ok(None) };
        let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
        let kind = GroupVersionKind::gvk(group, version, E::DATABASE.kind);
        let kind = ApiResource::from_gvk_with_plural(&kind, E::DATABASE.plural);
        let all = Api::<DynamicObject>::namespaced_with(self.client.clone(), object.namespace(), &kind);
        let all = all.list(&ListParams::default()).await?;
        let inside =
            |database: &&DynamicObject| database.data["spec"]["serverSecretRef"]["name"].as_str() == Some(secret);
        let inside: Vec<&DynamicObject> = all.iter().filter(inside).collect();
        Ok(inside.first().map(|first| {
            let (count, kind) = (inside.len(), E::DATABASE.kind);
            let of = first.annotations().get(RESOURCE_REF).and_then(|of| of.split_once(' '));
            let of = of.map(|(_, resource)| format!(" of {resource}")).unwrap_or_default();
            format!("{count} {kind} are in it, such as {}{of}: it goes when they are gone", first.name_any())
        }))
    }

    async fn lost(&self, object: &Object, data: &Path) -> Result<Report, Trouble> {
        self.supervisor.stop(object.uid(), E::stop(true)).await.map_err(Trouble::io("stop its server"))?;
        let message = format!(
            "its data directory {} is gone or damaged: restore it from a backup, or delete the claim; it is not made anew and empty",
            data.display()
        );
        Ok(Report::not_ready("Lost", message).again(Duration::from_secs(5)))
    }

    /// What is said of a server that ends and ends: the same each time, until it ends for another reason.
    fn ends_again(&self, object: &Object, spec: &InstanceSpec, data: &Path) -> String {
        let why = trial::reason(&self.supervisor.last_words(object.uid()));
        let mut what = if spec.settings.is_empty() { String::new() } else { "correct spec.settings, or see ".into() };
        if let Some((file, names)) = E::altered(data) {
            let names = names.join(", ");
            what = format!(
                "somebody has set {names} inside the server: take away what is wrong of it in {}; {what}",
                file.display()
            );
        }
        let kind = E::INSTANCE.kind.to_ascii_lowercase();
        format!(
            "its server ends when it is started ({why}), and is started again less and less often: {what}conductor logs {kind}/{}",
            object.name()
        )
    }

    /// Writes the configuration. What only a new start brings, brings one.
    async fn configure(
        &self,
        uid: &str,
        wanted: Configuration,
        place: &Place,
        fresh: bool,
        facts: &mut Facts,
        dir: &Path,
    ) -> Result<(), Trouble> {
        let mut changed = false;
        self.files.keep(uid, &place.data, None);
        for (file, content) in wanted.more.iter().chain([&(wanted.file.clone(), wanted.content.clone())]) {
            self.files.keep(uid, file, Some(content.as_bytes()));
            if fs::read(file).ok().as_deref() != Some(content.as_bytes()) {
                home::write_for_now(file, content.as_bytes(), 0o640, place.account.as_ref())
                    .map_err(Trouble::io("write its configuration"))?;
                changed = true;
            }
        }
        if facts.at_start != wanted.at_start {
            // one that ended by itself, too: the next start is with other settings, and at once
            self.supervisor.stop(uid, E::stop(false)).await.map_err(Trouble::io("stop its server"))?;
            facts.at_start = wanted.at_start;
            facts.write(dir).map_err(Trouble::io("keep its facts"))?;
        } else if changed && !fresh {
            self.supervisor.signal(uid, rustix::process::Signal::HUP);
        }
        Ok(())
    }

    async fn until_up(place: &Place, pid: i32) -> bool {
        let begun = std::time::Instant::now();
        while begun.elapsed() < STARTING {
            if E::is_up(place, pid).await {
                return true;
            }
            if conductor_local::identity::seen(pid).is_none_or(|seen| seen.zombie) {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }

    /// Sees to it that the login in the Secret works, makes one if there is none, and rotates it when asked.
    #[allow(clippy::too_many_arguments, reason = "all of it is what access means")]
    async fn access(
        &self,
        object: &Object,
        spec: &InstanceSpec,
        database: &str,
        client: &Path,
        place: &Place,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        scrubbed: Option<i64>,
    ) -> Result<Report, Trouble> {
        let (host, port, superuser) = (place.host(), place.port, spec.superuser);
        let target = Target {
            database,
            mark: "conductor",
            host,
            port,
            client,
            superuser,
            connections: None,
            trust: E::SAYS_REFUSALS.then_some(&*self.trust),
        };
        let grace = spec.rotation_grace_seconds;
        target.access::<E>(&self.client, object, connect, grace, true, scrubbed.is_some()).await
    }

    /// Whether nothing of what was before a scrub is left.
    async fn verify(
        &self,
        object: &Object,
        database: &str,
        client: &Path,
        place: &Place,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
    ) -> Result<String, String> {
        let old = credentials::current(&self.client, object, None).await.map_err(|t| t.to_string())?;
        let old = old.map(|(login, _)| login);
        let content = E::content(connect, database).await.map_err(|r| Trouble::from(r).to_string())?;
        verified::<E>(content, old.as_ref(), |old| E::remote(client, &place.address, place.port, old, Some(database)))
            .await
    }

    /// Brings an instance's data onto the disk for good and makes a copy for the next one, aside.
    fn sync(&self, dir: PathBuf, data: PathBuf, server: Server) {
        let (syncing, home) = (self.syncing.clone(), self.home.clone());
        tokio::spawn(async move {
            if let Err(trouble) = template::make_spare::<E>(&home, &server).await {
                tracing::info!(%trouble, "the next instance begins without a copy made ahead");
            }
            let _alone = syncing.lock().await;
            let mut facts = Facts::read(&dir);
            if facts.synced {
                return;
            }
            if let Ok(Ok(())) = tokio::task::spawn_blocking(move || inside::sync(&data)).await {
                facts = Facts::read(&dir);
                facts.synced = true;
                let _ = facts.write(&dir);
            }
        });
    }
}

fn gone(database: &str) -> String {
    format!(
        "its database {database} is gone from its server: restore it from a backup or under its name, or delete the claim; it is not made \
         anew and empty"
    )
}

/// The series that data is compatible within: 15 of 15.14, 10.11 of 10.11.19.
fn series(version: &str) -> String {
    version.rsplit_once('.').map_or(version, |(series, _)| series).to_owned()
}

fn short(path: &Path) -> String {
    let hash = path.as_os_str().as_encoded_bytes().iter().fold(0u32, |h, b| h.wrapping_mul(16_777_619) ^ u32::from(*b));
    format!("{hash:08x}")
}

impl<E: Engine> Kind for Instance<E> {
    fn api_version(&self) -> &'static str {
        API_VERSION
    }

    fn kind(&self) -> &'static str {
        E::INSTANCE.kind
    }

    fn plural(&self) -> &'static str {
        E::INSTANCE.plural
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async {
            let server = E::server("")?;
            E::client()?;
            lack::program("setsid", "util-linux", &[])?;
            // ahead of the first claim, which need not wait for it then
            if let Err(trouble) = template::prepare::<E>(&self.home, &server).await {
                return Err(Lack::new(
                    format!("a data directory that {} can begin with", E::ENGINE),
                    trouble.to_string(),
                ));
            }
            Ok(())
        })
    }

    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(self.bring(object))
    }

    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async {
            let uid = object.uid();
            if let Some(why) = owner::holder(&self.client, object).await?.or(self.tenants(object).await?) {
                return Err(Trouble::held(why));
            }
            self.files.forget(uid);
            self.trust.forget(uid);
            self.supervisor.stop(uid, E::stop(true)).await.map_err(Trouble::io("stop its server"))?;
            self.ledger.forget(uid);
            layout::remove(&self.run_directory(uid)).await.map_err(Trouble::io("remove its socket's directory"))?;
            layout::remove(&self.supervisor.dir(uid)).await.map_err(Trouble::io("remove its directory"))
        })
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async {
            let known = |uid: &str| objects.iter().find(|o| o.uid() == uid);
            let mut found = Vec::new();
            let mut find = |object: String, invariant: &str, message: String| {
                found.push(Finding { object, invariant: invariant.into(), message });
            };
            for (uid, pid) in self.supervisor.alive() {
                if known(&uid).is_none() {
                    let message = format!("runs for {} {uid}, which is not there: end it", E::INSTANCE.kind);
                    find(format!("process {pid}"), "no-leftover-process", message);
                }
            }
            for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
                let uid = entry.file_name().to_string_lossy().into_owned();
                if known(&uid).is_none() {
                    let message = format!("belongs to {} {uid}, which is not there: remove it", E::INSTANCE.kind);
                    find(entry.path().display().to_string(), "no-leftover-directory", message);
                }
            }
            let runs: Vec<PathBuf> = objects.iter().map(|object| self.run_directory(object.uid())).collect();
            let run = self.home.path().join("run").join(E::WORD);
            for entry in fs::read_dir(&run).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
                if !runs.contains(&entry.path()) {
                    let message = format!("is for the socket of a {} that is not there: remove it", E::INSTANCE.kind);
                    find(entry.path().display().to_string(), "no-leftover-directory", message);
                }
            }
            for object in objects.iter().filter(|o| o.was_ready() && !o.is_deleting()) {
                let name = format!("{} {}", E::INSTANCE.kind, object.name());
                if !E::holds_data(&self.supervisor.dir(object.uid()).join("data")) {
                    find(name, "data-there", "its data directory is gone: restore it".into());
                } else if self.supervisor.find(object.uid()).is_none() {
                    find(name, "process-runs", "no server runs for it: see its condition Ready".into());
                }
            }
            Ok(found)
        })
    }

    fn bounded(&self) -> Vec<(&'static str, String)> {
        let most = Stock::disk(self.home.path()).ok().and_then(|disk| disk.most());
        most.map(|most| ("storage", most)).into_iter().collect()
    }

    fn promised(&self, object: &Object) -> Vec<(Stock, u64)> {
        grant::promised(object, self.home.path(), &Facts::read(&self.supervisor.dir(object.uid())))
    }

    fn logs(&self, object: &Object) -> Option<PathBuf> {
        Some(conductor_local::logs::path(&self.supervisor.dir(object.uid())))
    }
}
