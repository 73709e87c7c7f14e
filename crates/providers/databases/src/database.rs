//! A database and its login in a server that someone runs, here or anywhere: registered as a Secret with its administrator's login.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use conductor_claims::lifecycle::condition_of;
use conductor_local::{BoxFuture, Finding, Home, Kind, Lack, Object, Report, Scene, Scrubbed, Trouble, home, owner};
use parking_lot::Mutex;
use serde_json::json;

use crate::API_VERSION;
use crate::access::{Target, tell_size, verified};
use crate::client::{Client, Refused};
use crate::credentials::{self, Login};
use crate::engine::{DatabaseSpec, Engine, Seen, Shared, bytes};
use crate::installation::{Installation, Owner};
use crate::left::{self, Memory};

/// One at a time changes which servers are remembered.
static KEEPING: Mutex<()> = Mutex::new(());

/// Why nothing is done about an object whose database is another data directory's.
const FOREIGN: &str = "Foreign";

/// Where something of an object's own may be, in its status: said before anything is made.
const SERVER: &str = "server";

/// Why nothing is done about an object that was made in another server than the one its Secret names now.
const MOVED: &str = "ServerChanged";

/// How many may connect to one of them where it does not say.
const CONNECTIONS: u32 = 20;

/// The kind of an engine's databases in shared servers.
pub struct Database<E> {
    client: kube::Client,
    home: Home,
    engine: PhantomData<fn() -> E>,
}

/// The name of an object's database and of its owner: no other's, anywhere.
fn name_of(object: &Object) -> String {
    let hex: String =
        object.uid().chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    format!("c_{}", hex.get(..hex.len().min(32)).unwrap_or_default())
}

impl<E: Engine> Database<E> {
    /// Over a provider's home.
    pub fn new(scene: &Scene) -> Database<E> {
        Database { client: scene.client.clone(), home: scene.home.clone(), engine: PhantomData }
    }

    /// The installation, and why an object's database in a server is not its to touch, if it is not.
    fn owner(&self, seen: &Seen, database: &str, shared: &Shared) -> Result<(Installation, Owner), Trouble> {
        let installation = Installation::of(&self.home)?;
        let owner = installation.owner(&self.home, seen.whose());
        match owner {
            Owner::Other(why) => {
                let address = shared.address();
                Err(Trouble::new(FOREIGN, format!("there is a database {database} on {address}: {why}")))
            }
            owner => Ok((installation, owner)),
        }
    }

    /// The server that a spec names.
    async fn shared(&self, object: &Object, spec: &DatabaseSpec) -> Result<(Shared, Option<String>), Trouble> {
        let name = &spec.server_secret_ref.name;
        if name.is_empty() {
            return Err(Trouble::new("Invalid", "spec.serverSecretRef.name is required: it names the server's Secret"));
        }
        let registered = format!("{}/{name}", object.namespace());
        match self.registered(&registered).await? {
            Some(server) => {
                self.remember(&registered)?;
                Ok(server)
            }
            None => {
                let message = format!(
                    "there is no Secret {registered}: register the server in it with host, port, username, password"
                );
                Err(Trouble::new("ServerMissing", message))
            }
        }
    }

    /// The server that a Secret describes, by its namespace and name; `None`: there is no such Secret.
    async fn registered(&self, secret: &str) -> Result<Option<(Shared, Option<String>)>, Trouble> {
        let (namespace, name) = secret.split_once('/').unwrap_or_default();
        let Some(content) = credentials::read(&self.client, namespace, name).await? else { return Ok(None) };
        let server = read_server(&content, E::PORT);
        server.map(Some).map_err(|what| Trouble::new("ServerInvalid", format!("Secret {name}: {what}")))
    }

    fn servers_file(&self) -> PathBuf {
        self.home.path().join(format!("{}-servers", E::WORD))
    }

    /// Servers that were ever used, by their Secrets: what is left in one is found though no object names it any more.
    fn remembered(&self) -> BTreeSet<String> {
        let all = fs::read_to_string(self.servers_file()).unwrap_or_default();
        all.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn memory(&self) -> Memory {
        Memory(self.home.path().join(format!("{}-left", E::WORD)))
    }

    fn remember(&self, secret: &str) -> Result<(), Trouble> {
        let _alone = KEEPING.lock();
        let mut all = self.remembered();
        if !all.insert(secret.to_owned()) {
            return Ok(());
        }
        self.home.make("", None).map_err(Trouble::io("make the provider's directory"))?;
        let text: Vec<String> = all.into_iter().collect();
        home::write_whole(&self.servers_file(), (text.join("\n") + "\n").as_bytes(), 0o600)
            .map_err(Trouble::io("remember the server"))
    }

    async fn bring(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: DatabaseSpec = object.spec()?;
        let client = E::client()?;
        let (shared, maintenance) = self.shared(object, &spec).await?;
        let connect = connector::<E>(&client, &shared, maintenance);
        let database = name_of(object);
        let seen = E::look(&connect, &database).await?;
        let elsewhere = elsewhere(object, &seen, &shared, &spec);
        let (installation, owner) = self.owner(&seen, &database, &shared)?;
        let mark = installation.mark(object.uid());
        // what was never ready and does not say that it is done was only begun
        let mut size = seen.size.filter(|_| seen.comment == mark || object.was_ready());
        let scrub = object.scrub_wanted();
        if size.is_none() && object.was_ready() && scrub.is_none() {
            let message = elsewhere.unwrap_or_else(|| {
                format!(
                    "its database {database} is gone from {}: restore it from a backup, or delete the claim; it is not made anew and empty",
                    shared.address()
                )
            });
            return Ok(Report::not_ready("Lost", message).again(Duration::from_secs(5)));
        }
        if let Some(why) = elsewhere {
            return Err(Trouble::new(MOVED, why));
        }
        let create = size.is_none() || scrub.is_some();
        let noted = object.status(SERVER);
        let left = left_behind(object, &shared);
        if create && (noted.is_null() || (scrub.is_none() && *noted != shared.address())) {
            // durable before anything of it can be there: who removes it knows whether there is anything to remove
            let mut report = Report::not_ready("Making", format!("{database} is going to be made"));
            report.status.insert(SERVER.into(), json!(shared.address()));
            left::tell(&mut report, object, &database, &left);
            return Ok(report.again(Duration::ZERO));
        }
        if scrub.is_some() {
            E::erase(&connect, &database).await?;
        }
        let target = Target {
            database: &database,
            mark: &mark,
            host: &shared.host,
            port: shared.port,
            client: &client,
            superuser: false,
            connections: Some(spec.max_connections.unwrap_or(CONNECTIONS)),
            trust: None,
        };
        let grace = spec.rotation_grace_seconds;
        if !create && (owner == Owner::Unmarked || seen.mark.is_empty()) {
            match E::mark(&connect, &database, &mark).await {
                // at the next look: until then it bears one that is as good
                Err(Refused::Locked(_)) => {}
                marked => marked?,
            }
        }
        let old = if scrub.is_some() { credentials::current(&self.client, object, None).await? } else { None };
        let fresh = create && object.status("connectionSecretRef").is_null();
        let mut report =
            target.access::<E>(&self.client, object, &connect, grace, create, scrub.is_some() || fresh).await?;
        if let Some(number) = scrub {
            let content = E::content(&connect, &database).await?;
            let outcome = verified::<E>(content, old.as_ref().map(|(login, _)| login), |old| {
                E::remote(&client, &shared.host, shared.port, old, Some(&database))
            });
            report.scrubbed = Some(Scrubbed { number, outcome: outcome.await });
        }
        if create {
            size = E::look(&connect, &database).await?.size;
        }
        // what the class does not say about the engine is the class' to know: MariaDB may be offered as mysql
        if let Some(engine) = &spec.engine {
            report.attributes.insert("engine".into(), json!(engine));
        }
        report.attributes.insert("version".into(), json!(E::version(&connect).await?));
        // its server may have another address by now
        report.status.insert(SERVER.into(), json!(shared.address()));
        left::tell(&mut report, object, &database, &left);
        let storage = bytes(&spec.storage)?.map(|bytes| (spec.storage.clone(), bytes));
        tell_size(&mut report, storage, size.unwrap_or(0), object);
        Ok(report)
    }

    async fn erase(&self, object: &Object) -> Result<(), Trouble> {
        if !may_be_there(object) {
            return Ok(());
        }
        let outcome = async {
            let spec: DatabaseSpec = object.spec()?;
            let client = E::client()?;
            let (shared, maintenance) = self.shared(object, &spec).await?;
            let (connect, database) = (connector::<E>(&client, &shared, maintenance), name_of(object));
            let seen = E::look(&connect, &database).await?;
            if let Some(why) = elsewhere(object, &seen, &shared, &spec) {
                return Err(Trouble::new(MOVED, why));
            }
            self.owner(&seen, &database, &shared)?;
            E::erase(&connect, &database).await?;
            // only it knows of what is elsewhere, and it goes
            self.memory().add(&database, left_behind(object, &shared)).map_err(Trouble::io("remember what is left"))
        };
        outcome.await.map_err(|mut trouble| {
            trouble.message += "; for this object to go and leave what it has there, set its metadata.finalizers to []";
            trouble
        })
    }
}

/// Whether it was made in the server that its status names, and not only begun.
fn made_there(object: &Object) -> bool {
    object.was_ready() || !object.status("connectionSecretRef").is_null()
}

/// The servers but this one where something of an object may be: it was begun there, and its Secret names this one now.
fn left_behind(object: &Object, shared: &Shared) -> BTreeSet<String> {
    let noted = object.status(SERVER).as_str().filter(|_| !made_there(object));
    left::servers(object, noted, &shared.address())
}

/// Whether anything was ever begun for it in a server. What was made before servers were noted has a Secret or was ready.
fn may_be_there(object: &Object) -> bool {
    !object.status(SERVER).is_null() || made_there(object)
}

/// Why an object of which nothing is in its server may have something in another: it was made there.
fn elsewhere(object: &Object, seen: &Seen, shared: &Shared, spec: &DatabaseSpec) -> Option<String> {
    let (made, now, secret) = (object.status(SERVER).as_str()?, shared.address(), &spec.server_secret_ref.name);
    // what was only begun, and could not be made there, is made where the Secret leads by now
    (made_there(object) && made != now && *seen == Seen::default()).then(|| {
        format!(
            "it was made on {made}, and Secret {secret} names {now}, where nothing of it is: have the Secret name {made} again, or bring \
             what is there to {now}"
        )
    })
}

/// What an audit says of an object whose database is another's.
fn foreign(object: &Object) -> Option<Finding> {
    let (_, reason, message) = condition_of(&object.0, "Ready")?;
    (reason == FOREIGN).then(|| Finding {
        object: format!("{} {}/{}", object.0["kind"].as_str().unwrap_or_default(), object.namespace(), object.name()),
        invariant: "database-is-own".into(),
        message: message.to_owned(),
    })
}

fn connector<'a, E: Engine>(
    client: &'a std::path::Path,
    shared: &'a Shared,
    maintenance: Option<String>,
) -> impl Fn(Option<&str>) -> Client + Sync + 'a {
    move |database| E::registered(client, &shared.host, shared.port, &shared.login, database.or(maintenance.as_deref()))
}

/// A server from its Secret, laid out as any connection Secret is.
fn read_server(secret: &BTreeMap<String, String>, port: u16) -> Result<(Shared, Option<String>), String> {
    let field = |key: &str| secret.get(key).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    let need = |key: &str| field(key).ok_or_else(|| format!("{key} is missing"));
    let port = match field("port") {
        Some(text) => text.parse().map_err(|_| format!("port {text:?} is no port"))?,
        None => port,
    };
    let login = Login { username: need("username")?, password: need("password")? };
    Ok((Shared { host: need("host")?, port, login }, field("database")))
}

impl<E: Engine> Kind for Database<E> {
    fn api_version(&self) -> &'static str {
        API_VERSION
    }

    fn kind(&self) -> &'static str {
        E::DATABASE.kind
    }

    fn plural(&self) -> &'static str {
        E::DATABASE.plural
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async { E::client().map(drop) })
    }

    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(self.bring(object))
    }

    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move {
            match owner::holder(&self.client, object).await? {
                Some(why) => Err(Trouble::held(why)),
                None => self.erase(object).await,
            }
        })
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async move {
            let client: PathBuf = match E::client() {
                Ok(client) => client,
                Err(_) if objects.is_empty() => return Ok(self.memory().findings(E::DATABASE.kind)),
                Err(lack) => return Err(lack.into()),
            };
            let prefixes = Installation::of(&self.home)?.prefixes();
            let mut found: Vec<Finding> = objects.iter().filter_map(foreign).collect();
            found.extend(objects.iter().flat_map(|object| left::findings(object, &name_of(object))));
            for secret in self.remembered() {
                // one that was taken off the list is the administrator's alone
                let Some((shared, maintenance)) = self.registered(&secret).await? else { continue };
                let connect = connector::<E>(&client, &shared, maintenance);
                let marked = match E::marked(&connect, &prefixes).await {
                    Ok(marked) => marked,
                    Err(refused) => {
                        found.push(Finding {
                            object: format!("server of Secret {secret}"),
                            invariant: "server-answers".into(),
                            message: Trouble::from(refused).to_string(),
                        });
                        continue;
                    }
                };
                let here = shared.address();
                for (server, database) in self.memory().all().into_iter().filter(|(server, _)| *server == here) {
                    if E::look(&connect, &database).await.is_ok_and(|seen| seen == Seen::default()) {
                        self.memory().forget(&server, &database).map_err(Trouble::io("forget what is not left"))?;
                    }
                }
                let known = |name: &str| objects.iter().any(|object| name.starts_with(&name_of(object)));
                for (what, name) in marked.into_iter().filter(|(_, name)| !known(name)) {
                    found.push(Finding {
                        object: format!("{what} {name} on {}", shared.address()),
                        invariant: format!("no-leftover-{what}"),
                        message: format!("no {} has it: drop it", E::DATABASE.kind),
                    });
                }
            }
            found.extend(self.memory().findings(E::DATABASE.kind));
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_from_its_secret() {
        let secret = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let full = [("host", "db"), ("port", "5433"), ("username", "admin"), ("password", "x"), ("database", "main")];
        let (shared, database) = read_server(&secret(&full), 5432).expect("is whole");
        assert_eq!((shared.port, database.as_deref()), (5433, Some("main")));
        let check = |pairs: &[(&str, &str)], what: &str| {
            let error = read_server(&secret(pairs), 5432).err().unwrap_or_default();
            assert!(error.contains(what), "{error}");
        };
        check(&[("host", "db")], "username");
        check(&[("host", "db"), ("port", "x")], "port");
    }

    #[test]
    fn what_was_made_on_another_server_is_not_taken_for_gone() {
        let login = Login { username: "admin".into(), password: "x".into() };
        let shared = Shared { host: "new".into(), port: 5432, login };
        let spec = DatabaseSpec::default();
        let check = |server: serde_json::Value, seen: &Seen, expected: bool| {
            let begun = Object(json!({"status": {"server": server}}));
            assert!(elsewhere(&begun, seen, &shared, &spec).is_none(), "what was only begun is made anew");
            let object = Object(json!({"status": {"server": server, "readySince": "2026-01-01T00:00:00Z"}}));
            let why = elsewhere(&object, seen, &shared, &spec);
            assert_eq!(why.is_some(), expected, "{server} {seen:?}");
            assert!(why.is_none_or(|why| why.contains("old:5432") && why.contains("new:5432")));
        };
        let nothing = Seen::default();
        check(json!("old:5432"), &nothing, true);
        check(json!("new:5432"), &nothing, false);
        check(json!(null), &nothing, false);
        // it moved with its server, or what is left of it did
        check(json!("old:5432"), &Seen { size: Some(1), ..nothing.clone() }, false);
        check(json!("old:5432"), &Seen { mark: "conductor".into(), ..nothing }, false);
    }

    #[test]
    fn what_was_only_begun_on_another_server_is_not_forgotten() {
        let shared =
            Shared { host: "new".into(), port: 5432, login: Login { username: "a".into(), password: "x".into() } };
        let check = |status: serde_json::Value, expected: &[&str]| {
            let left = left_behind(&Object(json!({"status": status})), &shared);
            assert_eq!(left.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{status}");
        };
        check(json!({}), &[]);
        check(json!({"server": "old:5432"}), &["old:5432"]);
        check(json!({"server": "new:5432", "leftBehind": ["old:5432"]}), &["old:5432"]);
        // it moved with its server
        check(json!({"server": "old:5432", "readySince": "2026-01-01T00:00:00Z"}), &[]);
    }

    #[test]
    fn names_are_plain_and_derive_from_the_uid() {
        let object = Object(serde_json::json!({"metadata": {"uid": "0B5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11"}}));
        assert_eq!(name_of(&object), "c_0b5c3f6e2f7d4f439d4b0d0c5b7f9a11");
        assert!(credentials::plain(&name_of(&object)));
    }
}
