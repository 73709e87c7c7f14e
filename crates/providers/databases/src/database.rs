//! A database and its login in a server that someone runs, here or anywhere: registered as a Secret with its administrator's login.

use std::collections::BTreeMap;
use std::fs;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use conductor_local::{BoxFuture, Finding, Home, Kind, Lack, Object, Report, Scene, Scrubbed, Trouble, home};
use serde_json::json;

use crate::API_VERSION;
use crate::client::Client;
use crate::credentials::{self, Login};
use crate::engine::{DatabaseSpec, Engine, Shared, bytes};
use crate::instance::{GRACE, Target, tell_size, verified};

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

    /// What marks everything this Conductor has made: several may share one server.
    fn installation(&self) -> Result<String, Trouble> {
        let file = self.home.path().join("installation");
        match fs::read_to_string(&file) {
            Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
            _ => {
                let id = credentials::random(12)?;
                self.home.make("", None).map_err(Trouble::io("make the provider's directory"))?;
                home::write_whole(&file, id.as_bytes(), 0o644).map_err(Trouble::io("keep the installation's name"))?;
                Ok(id)
            }
        }
    }

    fn mark(&self, object: &Object) -> Result<String, Trouble> {
        Ok(format!("conductor {} {}", self.installation()?, object.uid()))
    }

    /// The server that a spec names.
    async fn shared(&self, object: &Object, spec: &DatabaseSpec) -> Result<(Shared, Option<String>), Trouble> {
        let name = &spec.server_secret_ref.name;
        if name.is_empty() {
            return Err(Trouble::new("Invalid", "spec.serverSecretRef.name is required: it names the server's Secret"));
        }
        let secret = credentials::read(&self.client, object.namespace(), name).await?;
        let Some(secret) = secret else {
            let message = format!(
                "there is no Secret {}/{name}: register the server in it with host, port, username, password",
                object.namespace()
            );
            return Err(Trouble::new("ServerMissing", message));
        };
        read_server(&secret, E::PORT).map_err(|what| Trouble::new("ServerInvalid", format!("Secret {name}: {what}")))
    }

    async fn bring(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: DatabaseSpec = object.spec()?;
        let client = E::client()?;
        let (shared, maintenance) = self.shared(object, &spec).await?;
        let connect = connector::<E>(&client, &shared, maintenance);
        let (database, mark) = (name_of(object), self.mark(object)?);
        let mut size = E::size(&connect, &database, &mark).await?;
        let scrub = object.scrub_wanted();
        if size.is_none() && object.was_ready() && scrub.is_none() {
            let message = format!(
                "its database {database} is gone from {}:{}: restore it from a backup, or delete the claim; it is not made anew and empty",
                shared.host, shared.port
            );
            return Ok(Report::not_ready("Lost", message).again(Duration::from_secs(5)));
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
        };
        let grace = spec.rotation_grace_seconds.unwrap_or(GRACE);
        let create = size.is_none() || scrub.is_some();
        let old = if scrub.is_some() { credentials::current(&self.client, object).await? } else { None };
        let fresh = create && object.status("connectionSecretRef").is_null();
        let mut report =
            target.access::<E>(&self.client, object, &connect, grace, create, scrub.is_some() || fresh).await?;
        if let Some(number) = scrub {
            let content = E::content(&connect, &database).await?;
            let outcome = verified::<E>(content, old.as_ref(), |old| {
                E::remote(&client, &shared.host, shared.port, old, Some(&database))
            });
            report.scrubbed = Some(Scrubbed { number, outcome: outcome.await });
        }
        if create {
            size = E::size(&connect, &database, &mark).await?;
        }
        // what the class does not say about the engine is the class' to know: MariaDB may be offered as mysql
        if let Some(engine) = &spec.engine {
            report.attributes.insert("engine".into(), json!(engine));
        }
        report.attributes.insert("version".into(), json!(E::version(&connect).await?));
        tell_size(&mut report, &spec.storage, bytes(&spec.storage)?, size.unwrap_or(0), object);
        Ok(report)
    }

    async fn erase(&self, object: &Object) -> Result<(), Trouble> {
        let spec: DatabaseSpec = object.spec()?;
        let shared = match self.shared(object, &spec).await {
            Ok(shared) => shared,
            // nothing was ever made
            Err(_) if !object.was_ready() && object.status("connectionSecretRef").is_null() => return Ok(()),
            Err(trouble) => return Err(trouble),
        };
        let client = E::client()?;
        let connect = connector::<E>(&client, &shared.0, shared.1);
        E::erase(&connect, &name_of(object)).await.map_err(Trouble::from)
    }
}

fn connector<'a, E: Engine>(
    client: &'a std::path::Path,
    shared: &'a Shared,
    maintenance: Option<String>,
) -> impl Fn(Option<&str>) -> Client + Sync + 'a {
    move |database| E::remote(client, &shared.host, shared.port, &shared.login, database.or(maintenance.as_deref()))
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
        Box::pin(self.erase(object))
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async move {
            let client: PathBuf = match E::client() {
                Ok(client) => client,
                Err(_) if objects.is_empty() => return Ok(Vec::new()),
                Err(lack) => return Err(lack.into()),
            };
            let prefix = format!("conductor {} ", self.installation()?);
            let mut servers: BTreeMap<(String, u16), (Shared, Option<String>)> = BTreeMap::new();
            // a server that no object names any more is remembered: what was left there would be found nowhere else
            for object in objects {
                if let Ok(spec) = object.spec::<DatabaseSpec>()
                    && let Ok((shared, database)) = self.shared(object, &spec).await
                {
                    servers.insert((shared.host.clone(), shared.port), (shared, database));
                }
            }
            let mut found = Vec::new();
            for ((host, port), (shared, maintenance)) in servers {
                let connect = connector::<E>(&client, &shared, maintenance);
                for (database, mark) in E::marked(&connect, &prefix).await? {
                    let uid = mark.strip_prefix(&prefix).unwrap_or_default();
                    if !objects.iter().any(|o| o.uid() == uid) {
                        found.push(Finding {
                            object: format!("database {database} on {host}:{port}"),
                            invariant: "no-leftover-database".into(),
                            message: format!("belongs to {} {uid}, which is not there: drop it", E::DATABASE.kind),
                        });
                    }
                }
            }
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
    fn names_are_plain_and_derive_from_the_uid() {
        let object = Object(serde_json::json!({"metadata": {"uid": "0B5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11"}}));
        assert_eq!(name_of(&object), "c_0b5c3f6e2f7d4f439d4b0d0c5b7f9a11");
        assert!(credentials::plain(&name_of(&object)));
    }
}
