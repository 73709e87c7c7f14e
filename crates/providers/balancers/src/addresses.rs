//! Giving out addresses: the AddressPool in the API is the lock. Whoever is to have one is in its status before it is used.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use conductor_local::clock::seconds as now;
use conductor_local::{Finding, Object, Trouble};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::API_VERSION;
use crate::pool::{Asked, Place, Pool, Refusal};
use crate::world::resource;

/// Keeps a pool that somebody wants deleted until nobody has anything of it.
const IN_USE: &str = "network.local.conductor.io/in-use";

/// The pools there are.
pub struct Addresses {
    client: kube::Client,
    /// Others are told when something is given back: uids that wait.
    waiting: parking_lot::Mutex<Vec<String>>,
    wake: conductor_local::Wake,
}

/// Whether nobody listens on any of these ports there.
fn is_free(place: Place, ports: &[u16]) -> bool {
    let own = place.port.map(|port| vec![port]);
    own.as_deref().unwrap_or(ports).iter().all(|port| {
        // what we may not bind, haproxy may; it says so if not
        match TcpListener::bind(SocketAddr::new(place.address, *port)) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
        }
    })
}

fn refused(refusal: Refusal) -> Trouble {
    let reason = match &refusal {
        Refusal::Invalid(..) => "PoolInvalid",
        Refusal::NotIn(..) => "AddressUnknown",
        Refusal::Taken(..) => "AddressTaken",
        Refusal::Cooling(..) => "AddressResting",
        Refusal::Empty(..) => "PoolEmpty",
        Refusal::Occupied(..) => "AddressOccupied",
    };
    Trouble::new(reason, refusal.to_string())
}

/// What an object had when it was last of use.
fn had(object: &Object) -> Option<Place> {
    let address = object.status("address").as_str()?.parse().ok()?;
    Some(Place { address, port: object.status("port").as_u64().and_then(|port| u16::try_from(port).ok()) })
}

/// The finalizers of a pool: all of them, and whether ours is one.
fn finalizers(pool: &Value) -> (Vec<&str>, bool) {
    let all: Vec<&str> =
        pool["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let guarded = all.contains(&IN_USE);
    (all, guarded)
}

fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

impl Addresses {
    /// Over an API; whoever waits is woken.
    pub fn new(client: kube::Client, wake: conductor_local::Wake) -> Addresses {
        Addresses { client, waiting: Default::default(), wake }
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(API_VERSION, "AddressPool", "addresspools"))
    }

    /// What an object has of a pool, or gets now. `ports` are those it will listen on.
    pub async fn give(&self, object: &Object, pool: &str, asked: &Asked, ports: &[u16]) -> Result<Place, Trouble> {
        let by = format!("{} {}", object.0["kind"].as_str().unwrap_or_default(), object.name());
        for _ in 0..20 {
            let Some(live) = self.api().get_opt(pool).await? else {
                return Err(Trouble::new(
                    "PoolMissing",
                    format!("there is no AddressPool {pool}: make it, or name another"),
                ));
            };
            let value = serde_json::to_value(&live).unwrap_or_default();
            let mut read = Pool::read(&value).map_err(refused)?;
            let before = read.of(object.uid());
            let (_, guarded) = finalizers(&value);
            if before.is_none() && live.metadata.deletion_timestamp.is_some() {
                let message = format!("AddressPool {pool} is being deleted and gives nothing more: name another");
                return Err(Trouble::new("PoolGoing", message));
            }
            if let Some(had) = had(object) {
                read.put_back(object.uid(), &by, had);
            }
            let given = read.give(object.uid(), &by, asked, now(), |place| is_free(place, ports));
            let place = match given {
                Ok(_) if !guarded && live.metadata.deletion_timestamp.is_none() => {
                    match self.guard(pool, &value, true).await {
                        Err(error) if !is_race(&error) => return Err(error.into()),
                        _ => continue,
                    }
                }
                Ok(place) if before == Some(place) => return Ok(place),
                Ok(place) => place,
                Err(refusal) => {
                    if read.is_shortened() {
                        // else it would begin anew with every look
                        match self.keep(pool, &value, &read).await {
                            Err(error) if is_race(&error) => continue,
                            kept => kept?,
                        }
                    }
                    if let Some(next) = read.next() {
                        self.wake_at(next, object.uid());
                    }
                    let mut waiting = self.waiting.lock();
                    if !waiting.iter().any(|uid| uid == object.uid()) {
                        waiting.push(object.uid().to_owned());
                    }
                    return Err(refused(refusal));
                }
            };
            match self.keep(pool, &value, &read).await {
                Ok(()) => return Ok(place),
                // someone was faster
                Err(error) if is_race(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Trouble::new("PoolBusy", format!("AddressPool {pool} changes all the time; tried again later")))
    }

    /// Has an object looked at when something may be given again.
    fn wake_at(&self, seconds: i64, uid: &str) {
        let pause = Duration::from_secs(u64::try_from(seconds.saturating_sub(now())).unwrap_or(0));
        let (wake, uid) = (self.wake.clone(), uid.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            wake(&uid);
        });
    }

    async fn keep(&self, pool: &str, live: &Value, read: &Pool) -> Result<(), kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
            "status": read.status(),
        });
        self.api().patch_status(pool, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Sees to it that a pool cannot go, or can.
    async fn guard(&self, pool: &str, live: &Value, there: bool) -> Result<(), kube::Error> {
        let (mut all, _) = finalizers(live);
        all.retain(|other| *other != IN_USE);
        all.extend(there.then_some(IN_USE));
        let version = &live["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
        self.api().patch(pool, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Sees to it that pools say what is free, and lets those go that are to, and of which nobody has anything: whoever was last may have been
    /// cut short.
    pub async fn tidy(&self) -> Result<(), kube::Error> {
        for live in self.api().list(&Default::default()).await?.items {
            let value = serde_json::to_value(&live).unwrap_or_default();
            let name = live.metadata.name.as_deref().unwrap_or_default();
            let Ok(mut read) = Pool::read(&value) else { continue };
            let empty = read.holders().next().is_none();
            if live.metadata.deletion_timestamp.is_some() && empty && finalizers(&value).1 {
                self.guard(name, &value, false).await?;
            } else if read.rest(now()) {
                match self.keep(name, &value, &read).await {
                    // whoever was faster has done it, too
                    Err(error) if !is_race(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Gives back whatever an object has, of any pool.
    pub async fn take_back(&self, object: &Object) -> Result<(), Trouble> {
        self.waiting.lock().retain(|uid| uid != object.uid());
        for _ in 0..20 {
            let mut raced = false;
            for live in self.api().list(&Default::default()).await?.items {
                let name = live.metadata.name.clone().unwrap_or_default();
                let value = serde_json::to_value(&live).unwrap_or_default();
                let Ok(mut read) = Pool::read(&value) else { continue };
                let done = if read.take_back(object.uid(), now()) {
                    // once more, for the pool as it is then
                    raced = true;
                    self.keep(&name, &value, &read).await
                } else if read.holders().next().is_none() && finalizers(&value).1 {
                    self.guard(&name, &value, false).await
                } else {
                    Ok(())
                };
                match done {
                    Err(error) if is_race(&error) => raced = true,
                    Err(error) if !is_gone(&error) => return Err(error.into()),
                    _ => {}
                }
            }
            if !raced {
                let waiting = std::mem::take(&mut *self.waiting.lock());
                waiting.iter().for_each(|uid| (self.wake)(uid));
                return Ok(());
            }
        }
        Err(Trouble::new("PoolBusy", "its address could not be given back; tried again"))
    }

    /// Everyone in a pool exists.
    pub async fn audit(&self, kind: &str, objects: &[Object]) -> Result<Vec<Finding>, Trouble> {
        let mut findings = Vec::new();
        for live in self.api().list(&Default::default()).await?.items {
            let value = serde_json::to_value(&live).unwrap_or_default();
            let Ok(read) = Pool::read(&value) else { continue };
            for (place, uid, by) in read.holders().filter(|(_, _, by)| by.starts_with(kind)) {
                if !objects.iter().any(|object| object.uid() == uid) {
                    findings.push(Finding {
                        object: format!("AddressPool {}", live.metadata.name.as_deref().unwrap_or_default()),
                        invariant: "address-has-holder".into(),
                        message: format!("{place} is held by {by}, which is gone: remove it from status.held"),
                    });
                }
            }
        }
        Ok(findings)
    }
}
