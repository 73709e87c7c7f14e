//! A database's logins, its own and one for each of the claims that share it: made, mended, rotated, ended.
//!
//! *Invariant:* the credentials in a claim's Secret work. Those of a rotation are beside the old ones until the Secrets of all claims have
//! been replaced, which the claims' managers tell ([`Object::is_replaced`]), and for as long after that as clients may need to read them.
//! A Secret of ours that somebody deleted is made again by such a rotation, begun only if it can be written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use conductor_claims::lifecycle::{Condition, WITHIN_CAPACITY, condition_of};
use conductor_local::clock::seconds as now;
use conductor_local::{Object, Report, Trouble, look_again, may_write, secret_name};
use serde_json::{Value, json};

use crate::client::{Client, Refused};
use crate::credentials::{self, Login};
use crate::engine::{Access, Engine};
use crate::trust::Trust;

/// How often a database is looked at although nothing was told: its size, drift, its data.
const AGAIN: Duration = Duration::from_secs(30);
/// When something is tried again that somebody's transaction holds.
const LATER: Duration = Duration::from_secs(15);
/// Whether everything is gone that logins have left which were ended.
const CLEARED: &str = "Cleared";
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
    /// What need not be tried again; `None`: its server does not tell when something stops to work.
    pub trust: Option<&'a Trust>,
}

/// The login in the Secret of one of several claims, and the rotation that it is from.
struct Shared {
    uid: String,
    user: String,
    login: Option<(Login, i64)>,
    /// Whether there was one, and its Secret is gone.
    gone: bool,
}

/// The logins in the connection Secrets.
struct Kept {
    own: Option<(Login, i64)>,
    claims: Vec<Shared>,
    /// Whether one of the Secrets is gone: what it held goes on until its users have another.
    lost: bool,
}

/// Whether something was done; what somebody's transaction holds is said, and tried again later.
fn cleared<E: Engine>(outcome: Result<(), Refused>, report: &mut Report) -> Result<bool, Trouble> {
    match outcome {
        Err(Refused::Locked(what)) => {
            let message = format!(
                "an open transaction holds {what}: it is tried again until that ends ({} says whose it is, and since when)",
                E::SESSIONS
            );
            report.conditions.retain(|condition| condition.kind != CLEARED);
            report.conditions.push(Condition::new(CLEARED, false, "Locked", message));
            report.again = Some(LATER);
            Ok(false)
        }
        outcome => Ok(outcome.map(|()| true)?),
    }
}

impl Target<'_> {
    /// Sees to it that the logins in the connection Secrets work: the database's own, and those of the claims that share it.
    pub async fn access<E: Engine>(
        &self,
        client: &kube::Client,
        object: &Object,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        grace: Option<u64>,
        create: bool,
        renew: bool,
    ) -> Result<Report, Trouble> {
        let Some(kept) = self.kept(client, object, renew).await? else {
            // whose the Secret is, is said by who would write it
            return Ok(Report { connection: Some(BTreeMap::new()), ..Report::default() });
        };
        let mut report = self.own::<E>(object, connect, &kept, grace, create).await?;
        report.connections = Some(self.claims::<E>(object, connect, kept.claims, &mut report).await?);
        let cleared = report.conditions.iter().all(|condition| condition.kind != CLEARED);
        if cleared && condition_of(&object.0, CLEARED).is_some() {
            report.conditions.push(Condition::new(CLEARED, true, "Cleared", "nothing of ended logins is left"));
        }
        Ok(report)
    }

    /// The logins in the Secrets. A Secret that is gone can be written again; `None`: the database's own is another's.
    async fn kept(&self, client: &kube::Client, object: &Object, renew: bool) -> Result<Option<Kept>, Trouble> {
        let own = credentials::current(client, object, None).await?.filter(|_| !renew);
        let mut lost = own.is_none() && object.was_ready() && !renew;
        if lost && !may_write(client, object, None).await? {
            return Ok(None);
        }
        let mut claims = Vec::new();
        for uid in object.claims().into_iter().flatten() {
            let Some(user) = credentials::claim_user(self.database, uid) else { continue };
            let login = credentials::current(client, object, Some(uid)).await?.filter(|_| !renew);
            let told = object.status("connections").as_array().into_iter().flatten();
            let gone = login.is_none() && !renew && told.into_iter().any(|told| told["claimUid"] == uid);
            if gone && !may_write(client, object, Some(uid)).await? {
                let name = secret_name(object, Some(uid));
                let message = format!("Secret {}/{name} is another's: rename or delete it", object.namespace());
                return Err(Trouble::new("SecretTaken", message));
            }
            lost |= gone;
            claims.push(Shared { uid: uid.to_owned(), user, login, gone });
        }
        Ok(Some(Kept { own, claims, lost }))
    }

    /// The logins of the claims that share the database. They are rotated with its own, and ended when their claim is gone.
    async fn claims<E: Engine>(
        &self,
        object: &Object,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        claims: Vec<Shared>,
        report: &mut Report,
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, Trouble> {
        let (mut all, mut users) = (BTreeMap::new(), Vec::new());
        if object.claims().is_none() {
            return Ok(all);
        }
        let rotated = report.rotated.unwrap_or(0);
        let retired = report.status.get("retired").is_some();
        for Shared { uid, user, login, gone } in claims {
            users.push(user.clone());
            let login = match login {
                Some((current, rotation)) if rotation >= rotated => {
                    self.mend::<E>(object, connect, &current, false).await?;
                    current
                }
                Some((current, _)) => {
                    let next = E::next_login(&user, rotated, Some(&current), credentials::password()?);
                    E::add_login(connect, &self.wanted(&next), Some(&current)).await?;
                    self.works::<E>(connect, &next).await?;
                    next
                }
                None if gone => self.beside::<E>(connect, &user, rotated).await?,
                None => {
                    let login = E::next_login(&user, rotated.max(1), None, credentials::password()?);
                    if !cleared::<E>(E::bring(connect, &self.wanted(&login), false).await, report)? {
                        continue;
                    }
                    login
                }
            };
            let at_once = object.is_at_once(rotated);
            if retired && !cleared::<E>(E::retire(connect, &self.wanted(&login), at_once).await, report)? {
                report.status.remove("retired");
            }
            all.insert(uid, self.connection::<E>(&login));
        }
        cleared::<E>(E::dismiss(connect, self.database, &users).await, report)?;
        Ok(all)
    }

    /// Makes a login for a user whose current one nobody knows any more but those who use it.
    async fn beside<E: Engine>(
        &self,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        user: &str,
        rotation: i64,
    ) -> Result<Login, Trouble> {
        let login = E::unknown_login(connect, self.database, user, rotation, credentials::password()?).await?;
        E::add_login(connect, &self.wanted(&login), None).await?;
        self.works::<E>(connect, &login).await?;
        Ok(login)
    }

    /// Sees to it that a login works that is in a Secret, and that as many can connect with it as should.
    async fn mend<E: Engine>(
        &self,
        object: &Object,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        login: &Login,
        create: bool,
    ) -> Result<(), Trouble> {
        if self.trust.is_some_and(|trust| trust.holds(object, Some(login))) {
            return Ok(());
        }
        if let Err(refused) = self.try_out::<E>(login).await {
            if let Refused::Unreachable(_) = refused {
                return Err(refused.into());
            }
            tracing::info!(name = object.name(), ?refused, "a login does not work and is mended");
            E::bring(connect, &self.wanted(login), create).await?;
            self.try_out::<E>(login).await?;
        }
        if let Some(trust) = self.trust {
            trust.note(object, login);
        }
        if self.connections.is_some() {
            E::limit(connect, &self.wanted(login)).await?;
        }
        Ok(())
    }

    /// Sees to it that the login in the connection Secret works: makes one if there is none (or after a scrub), mends it if it was
    /// dropped or changed, adds the next one when a rotation is asked for, and ends the old one when nobody needs it any more.
    async fn own<E: Engine>(
        &self,
        object: &Object,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        kept: &Kept,
        grace: Option<u64>,
        create: bool,
    ) -> Result<Report, Trouble> {
        let mut report = Report { again: Some(look_again(AGAIN)), ..Report::default() };
        let asked = object.rotation_asked();
        let Some((current, rotation)) = &kept.own else {
            if kept.lost {
                let rotation = asked.max(number(object.status("rotated")).saturating_add(1));
                let login = self.beside::<E>(connect, self.database, rotation).await?;
                self.tell_rotation(object, rotation, &mut report);
                report.connection = Some(self.connection::<E>(&login));
                return Ok(report);
            }
            let rotation = asked.max(number(object.status("rotated")));
            let login = E::next_login(self.database, rotation.max(1), None, credentials::password()?);
            E::bring(connect, &self.wanted(&login), create).await?;
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
        let rotated = (*rotation).max(number(object.status("rotated")));
        // of two rotations the second begins when no claim needs what the first replaced
        let due = asked > rotated && (rotated == 0 || object.is_replaced(rotated));
        let login = if due || kept.lost {
            let rotation = if due { asked } else { asked.max(rotated.saturating_add(1)) };
            let next = E::next_login(self.database, rotation, Some(current), credentials::password()?);
            E::add_login(connect, &self.wanted(&next), Some(current)).await?;
            match self.works::<E>(connect, &next).await {
                // the old one ends in any case: nobody has a right to it, and nobody needs the new one yet
                Err(refused) if object.is_at_once(rotation) => report.not_ready = Some(refused.into()),
                works => works?,
            }
            self.tell_rotation(object, rotation, &mut report);
            next
        } else {
            match self.mend::<E>(object, connect, current, create).await {
                Err(trouble) if object.is_at_once(rotated) => report.not_ready = Some(trouble),
                mended => mended?,
            }
            report.rotated = Some(rotated).filter(|rotated| *rotated > 0);
            let grace = if object.is_at_once(rotated) { 0 } else { grace.unwrap_or(GRACE) };
            self.retire::<E>(object, connect, current, rotated, grace, &mut report).await?;
            current.clone()
        };
        report.connection = Some(self.connection::<E>(&login));
        Ok(report)
    }

    /// Says that a rotation has begun.
    fn tell_rotation(&self, object: &Object, rotation: i64, report: &mut Report) {
        report.rotated = Some(rotation);
        report.conditions.push(replacing());
        // where nobody is to tell, it is looked at again
        report.again = Some(if object.is_replaced(rotation) { Duration::ZERO } else { look_again(AGAIN) });
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
        // at the latest now, should the clock have been set back
        let since = if known { number(object.status("replacedAt")).min(now()) } else { now() };
        report.status.insert("replaced".into(), json!(rotated));
        report.status.insert("replacedAt".into(), json!(since));
        let left = since.saturating_add_unsigned(grace).saturating_sub(now());
        if let Ok(left @ 1..) = u64::try_from(left) {
            let message = format!("the old credentials work for {grace} s after every Secret was replaced");
            report.conditions.push(Condition::new("Rotated", false, "Grace", message));
            report.again = Some(Duration::from_secs(left).min(AGAIN));
            return Ok(());
        }
        let at_once = object.is_at_once(rotated);
        if !cleared::<E>(E::retire(connect, &self.wanted(login), at_once).await, report)? {
            return Ok(());
        }
        report.status.insert("retired".into(), json!(rotated));
        let message = format!("only the credentials of rotation {rotated} work");
        report.conditions.push(Condition::new("Rotated", true, "Retired", message));
        Ok(())
    }

    /// Sees to it that a login works that was made just now: who uses the database may have shut it.
    async fn works<E: Engine>(
        &self,
        connect: &(dyn Fn(Option<&str>) -> Client + Sync),
        login: &Login,
    ) -> Result<(), Refused> {
        if self.try_out::<E>(login).await.is_ok() {
            return Ok(());
        }
        E::open(connect, &self.wanted(login)).await?;
        self.try_out::<E>(login).await
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
