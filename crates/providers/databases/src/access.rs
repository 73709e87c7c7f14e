//! A database's login: made, mended, rotated.
//!
//! *Invariant:* the credentials in a claim's Secret work. Those of a rotation are beside the old ones until the Secrets of all claims have
//! been replaced, which the claims' managers tell ([`Object::is_replaced`]), and for as long after that as clients may need to read them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use conductor_claims::lifecycle::{Condition, WITHIN_CAPACITY};
use conductor_local::{Object, Report, Trouble};
use serde_json::{Value, json};

use crate::client::{Client, Refused};
use crate::credentials::{self, Login};
use crate::engine::{Access, Engine};

/// How often a database is looked at although nothing was told: its size, drift, its data.
const AGAIN: Duration = Duration::from_secs(30);
/// For how many seconds old credentials work after all Secrets were replaced, where the spec says nothing.
const GRACE: u64 = 60;

/// What servers say when a login has as many connections as it may.
const FULL: [&str; 2] = ["too many connections for role", "max_user_connections"];

/// A database somewhere, and how its login is kept.
pub struct Target<'a> {
    /// The database.
    pub database: &'a str,
    /// What marks it as ours.
    pub mark: &'a str,
    /// Where clients reach it.
    pub host: &'a str,
    /// On which port.
    pub port: u16,
    /// The client program.
    pub client: &'a Path,
    /// Whether the login may do everything.
    pub superuser: bool,
    /// How many may connect at a time; `None`: as many as the server takes.
    pub connections: Option<u32>,
}

impl Target<'_> {
    /// Sees to it that the login in the connection Secret works: makes one if there is none (or after a scrub), mends it if it was
    /// dropped or changed, adds the next one when a rotation is asked for, and ends the old one when nobody needs it any more.
    pub async fn access<E: Engine>(
        &self,
        client: &kube::Client,
        object: &Object,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        grace: Option<u64>,
        create: bool,
        renew: bool,
    ) -> Result<Report, Trouble> {
        let mut report = Report { again: Some(AGAIN), ..Report::default() };
        let asked = object.rotation_asked();
        let kept = credentials::current(client, object).await?.filter(|_| !renew);
        let Some((current, rotation)) = kept else {
            let rotation = asked.max(number(object.status("rotated")));
            let login = E::next_login(self.database, rotation.max(1), None, credentials::password()?);
            E::bring(connect, &self.wanted(&login), create).await?;
            if object.was_ready() && !renew {
                E::retire(connect, &self.wanted(&login)).await?;
            }
            // one that was made just now is tried when its status is seen, which is at once
            if object.was_ready() {
                self.try_out::<E>(&login).await?;
            }
            if rotation > 0 {
                report.rotated = Some(rotation);
                report.status.insert("retired".into(), json!(rotation));
            }
            report.connection = Some(self.connection::<E>(&login));
            return Ok(report);
        };
        // the Secret is written before the status that tells of it
        let rotated = rotation.max(number(object.status("rotated")));
        // of two rotations the second begins when no claim needs what the first replaced
        let login = if asked > rotated && (rotated == 0 || object.is_replaced(rotated)) {
            let next = E::next_login(self.database, asked, Some(&current), credentials::password()?);
            E::add_login(connect, &self.wanted(&next), Some(&current)).await?;
            self.try_out::<E>(&next).await?;
            report.rotated = Some(asked);
            report.conditions.push(replacing());
            // where nobody is to tell, it is looked at again
            report.again = Some(if object.is_replaced(asked) { Duration::ZERO } else { AGAIN });
            next
        } else {
            if let Err(refused) = self.try_out::<E>(&current).await {
                if let Refused::Unreachable(_) = refused {
                    return Err(refused.into());
                }
                tracing::info!(name = object.name(), ?refused, "the login does not work and is mended");
                E::bring(connect, &self.wanted(&current), create).await?;
                self.try_out::<E>(&current).await?;
            }
            if self.connections.is_some() {
                E::limit(connect, &self.wanted(&current)).await?;
            }
            report.rotated = Some(rotated).filter(|rotated| *rotated > 0);
            let grace = if object.is_at_once(rotated) { 0 } else { grace.unwrap_or(GRACE) };
            self.retire::<E>(object, connect, &current, rotated, grace, &mut report).await?;
            current
        };
        report.connection = Some(self.connection::<E>(&login));
        Ok(report)
    }

    /// Ends the logins from before a rotation, if their time is over.
    async fn retire<E: Engine>(
        &self,
        object: &Object,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        login: &Login,
        rotated: i64,
        grace: u64,
        report: &mut Report,
    ) -> Result<(), Trouble> {
        if rotated <= number(object.status("retired")) {
            return Ok(());
        }
        if !object.is_replaced(rotated) {
            report.conditions.push(replacing());
            return Ok(());
        }
        let known = number(object.status("replaced")) == rotated;
        let since = if known { number(object.status("replacedAt")) } else { now_seconds() };
        report.status.insert("replaced".into(), json!(rotated));
        report.status.insert("replacedAt".into(), json!(since));
        let left = since.saturating_add_unsigned(grace).saturating_sub(now_seconds());
        if let Ok(left @ 1..) = u64::try_from(left) {
            let message = format!("the old credentials work for {grace} s after every Secret was replaced");
            report.conditions.push(Condition::new("Rotated", false, "Grace", message));
            report.again = Some(Duration::from_secs(left).min(AGAIN));
            return Ok(());
        }
        E::retire(connect, &self.wanted(login)).await?;
        report.status.insert("retired".into(), json!(rotated));
        let message = format!("only the credentials of rotation {rotated} work");
        report.conditions.push(Condition::new("Rotated", true, "Retired", message));
        Ok(())
    }

    async fn try_out<E: Engine>(&self, login: &Login) -> Result<(), Refused> {
        let client = E::remote(self.client, self.host, self.port, login, Some(self.database));
        match client.run("select 1;\n").await {
            // whoever uses all it may have has a login that works
            Err(Refused::Failed(why)) if FULL.iter().any(|words| why.contains(words)) => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn wanted<'l>(&'l self, login: &'l Login) -> Access<'l> {
        let Target { database, superuser, mark, connections, .. } = *self;
        Access { database, login, superuser, mark, connections }
    }

    /// The details, by the Service Binding Specification.
    fn connection<E: Engine>(&self, login: &Login) -> BTreeMap<String, String> {
        let (host, port, database) = (self.host, self.port, self.database);
        let Login { username, password } = login;
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let uri = format!("{}://{username}:{password}@{bracketed}:{port}/{database}", E::TYPE);
        let port = port.to_string();
        [
            ("type", E::TYPE),
            ("provider", "conductor"),
            ("host", host),
            ("port", &port),
            ("database", database),
            ("username", username),
            ("password", password),
            ("uri", &uri),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }
}

/// What is said while claims get the new credentials.
fn replacing() -> Condition {
    let message = "the old credentials work until the Secrets of all claims have the new ones";
    Condition::new("Rotated", false, "Replacing", message)
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// What a scrub is worth: nothing of a user's is left, and the old login is refused.
pub async fn verified<E: Engine>(
    content: u64,
    old: Option<&Login>,
    remote: impl Fn(&Login) -> Client,
) -> Result<String, String> {
    if content > 0 {
        return Err(format!("{content} things are left in the database"));
    }
    let Some(old) = old else { return Ok("made anew and empty; there was no login before".into()) };
    match remote(old).run("select 1;\n").await {
        Err(Refused::Denied(_)) => Ok("made anew and empty; the old login is refused".into()),
        Ok(_) => Err("the old login still works".into()),
        Err(other) => Err(format!("whether the old login works cannot be told: {}", Trouble::from(other))),
    }
}

/// Reports the size; what is too large is said, for neither engine can refuse it.
pub fn tell_size(report: &mut Report, storage: Option<(Value, u64)>, used: u64, object: &Object) {
    if let Some((storage, limit)) = storage {
        report.capacity.insert("storage".into(), storage);
        let fits = used <= limit;
        let message = match fits {
            true => "it holds no more than its capacity".to_owned(),
            false => {
                let mib = |bytes: u64| bytes >> 20;
                format!("it holds {} MiB of {} MiB: ask for more storage, or remove data", mib(used), mib(limit))
            }
        };
        report.conditions.push(Condition::new(WITHIN_CAPACITY, fits, if fits { "Fits" } else { "TooLarge" }, message));
    }
    // rounded, and kept until it is off by a tenth, so that not every look is a write
    let before = object.status("usage")["storage"].as_u64().unwrap_or(0);
    let near = before.abs_diff(used) <= before / 10 && before > 0;
    report.status.insert("usage".into(), json!({"storage": if near { before } else { used }}));
}

/// Seconds since 1970.
fn now_seconds() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
