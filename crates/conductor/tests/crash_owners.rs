//! Garbage collection, namespace deletion and conflicting transactions while the real binary is killed again and again.
//!
//! Nothing lingers whose owners are gone or whose namespace was deleted, nothing with a live owner goes, no transaction is half
//! there or lost after its answer. `CONDUCTOR_KILLS=100` makes it longer.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Conductor, JSON, Random, block_on};
use conductor_testkit::wire::{Connection, Endpoint};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn kills(default: u64) -> u64 {
    std::env::var("CONDUCTOR_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

async fn get(endpoint: &Endpoint, path: &str) -> (u16, Value) {
    let answer = endpoint.request("GET", path, None).await.expect("is answered");
    (answer.code, answer.json())
}

fn reference(owner: &Value, blocking: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocking,
    })
}

/// A family: who is owned by whom, and what is known about them.
#[derive(Default)]
struct Family {
    /// Names that were acknowledged, in the order they were made.
    members: Vec<String>,
    /// Whether the top is to go: asked for and answered, asked for only, or not asked for.
    deleted: Option<bool>,
    /// The other owner of some members: they stay.
    kept: BTreeSet<String>,
}

#[derive(Default)]
struct Known {
    families: Vec<Family>,
    /// Namespaces, and whether their deletion was answered.
    namespaces: BTreeMap<String, Option<bool>>,
    /// Objects without a family: nothing takes them away.
    keepers: BTreeSet<String>,
    /// Objects whose making was not answered.
    asked: BTreeSet<String>,
}

/// Makes families and namespaces and deletes some of them, until the server is gone.
struct Maker {
    random: Random,
    prefix: String,
    known: Arc<Mutex<Known>>,
}

impl Maker {
    async fn create(&self, connection: &mut Connection, path: &str, object: Value) -> Option<Value> {
        let answer = connection.request("POST", path, Some((JSON, object.to_string().as_bytes()))).await.ok()?;
        assert_eq!(answer.code, 201, "{}", answer.json());
        Some(answer.json())
    }

    /// Makes a ConfigMap in `default`, and remembers that it may be there if there is no answer.
    async fn member(&self, connection: &mut Connection, name: &str, owners: &[Value]) -> Option<Value> {
        self.known.lock().unwrap().asked.insert(name.into());
        let made = self.create(connection, MAPS, Self::map(name, owners)).await?;
        self.known.lock().unwrap().asked.remove(name);
        Some(made)
    }

    async fn run(mut self, endpoint: Endpoint) {
        let Ok(mut connection) = endpoint.connect().await else { return };
        for number in 0.. {
            let name = format!("{}-{number}", self.prefix);
            let done = match self.random.below(5) {
                0 => self.namespace(&mut connection, &name).await,
                1 => self.circle(&mut connection, &name).await,
                _ => self.family(&mut connection, &name).await,
            };
            if done.is_none() {
                return;
            }
        }
    }

    fn map(name: &str, owners: &[Value]) -> Value {
        json!({"metadata": {"name": name, "labels": {"test": "owners"}, "ownerReferences": owners}})
    }

    /// A namespace with objects in it, deleted more often than not.
    async fn namespace(&mut self, connection: &mut Connection, name: &str) -> Option<()> {
        self.create(connection, "/api/v1/namespaces", json!({"metadata": {"name": name}})).await?;
        for at in 0..self.random.below(8) {
            let path = format!("/api/v1/namespaces/{name}/configmaps");
            self.create(connection, &path, Self::map(&format!("m{at}"), &[])).await?;
        }
        self.known.lock().unwrap().namespaces.insert(name.into(), None);
        if self.random.below(3) > 0 {
            self.known.lock().unwrap().namespaces.insert(name.into(), Some(false));
            connection.request("DELETE", &format!("/api/v1/namespaces/{name}"), None).await.ok()?;
            self.known.lock().unwrap().namespaces.insert(name.into(), Some(true));
        }
        Some(())
    }

    /// Some generations; the top is deleted more often than not, in one of the ways that take the dependents along.
    async fn family(&mut self, connection: &mut Connection, name: &str) -> Option<()> {
        let at = {
            let mut known = self.known.lock().unwrap();
            known.families.push(Family::default());
            known.families.len() - 1
        };
        let keeper = self.member(connection, &format!("{name}-keeper"), &[]).await?;
        self.known.lock().unwrap().keepers.insert(format!("{name}-keeper"));
        let mut generation = vec![self.member(connection, &format!("{name}-top"), &[]).await?];
        self.known.lock().unwrap().families[at].members.push(format!("{name}-top"));
        for depth in 0..1 + self.random.below(3) {
            let mut next = Vec::new();
            for (parent, owner) in generation.iter().enumerate() {
                for child in 0..1 + self.random.below(3) {
                    let own = format!("{name}-{depth}-{parent}-{child}");
                    let mut owners = vec![reference(owner, self.random.below(2) == 0)];
                    let kept = self.random.below(6) == 0;
                    if kept {
                        owners.push(reference(&keeper, false));
                    }
                    let made = self.member(connection, &own, &owners).await?;
                    let family = &mut self.known.lock().unwrap().families[at];
                    family.members.push(own.clone());
                    if kept {
                        family.kept.insert(own);
                    } else {
                        next.push(made);
                    }
                }
            }
            generation = next;
        }
        self.finish(connection, at, &format!("{name}-top")).await
    }

    /// Two that own each other: they go when one of them is deleted, and not before.
    async fn circle(&mut self, connection: &mut Connection, name: &str) -> Option<()> {
        let (one, two) = (format!("{name}-top"), format!("{name}-other"));
        let at = {
            let mut known = self.known.lock().unwrap();
            known.families.push(Family::default());
            known.families.len() - 1
        };
        let first = self.member(connection, &one, &[]).await?;
        self.known.lock().unwrap().families[at].members.push(one.clone());
        let blocking = self.random.below(2) == 0;
        let second = self.member(connection, &two, &[reference(&first, blocking)]).await?;
        self.known.lock().unwrap().families[at].members.push(two);
        let patch = json!({"metadata": {"ownerReferences": [reference(&second, blocking)]}}).to_string();
        let path = format!("{MAPS}/{one}");
        let body = Some(("application/merge-patch+json", patch.as_bytes()));
        connection.request("PATCH", &path, body).await.ok()?;
        self.finish(connection, at, &one).await
    }

    async fn finish(&mut self, connection: &mut Connection, at: usize, top: &str) -> Option<()> {
        if self.random.below(3) > 0 {
            let policy = if self.random.below(2) == 0 { "Background" } else { "Foreground" };
            self.known.lock().unwrap().families[at].deleted = Some(false);
            let options = json!({"propagationPolicy": policy}).to_string();
            let path = format!("{MAPS}/{top}");
            let answer = connection.request("DELETE", &path, Some((JSON, options.as_bytes()))).await.ok()?;
            assert!(matches!(answer.code, 200 | 202), "{}", answer.json());
            self.known.lock().unwrap().families[at].deleted = Some(true);
        }
        Some(())
    }
}

/// The names of all ConfigMaps of the test in `default`.
async fn names(endpoint: &Endpoint) -> BTreeSet<String> {
    let (_, list) = get(endpoint, &format!("{MAPS}?labelSelector=test%3Downers")).await;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    list["items"].as_array().expect("a list").iter().map(name).collect()
}

/// What must be there once everything has settled, and what must not; what was asked for without an answer is looked up.
async fn expected(endpoint: &Endpoint, known: &mut Known) -> (BTreeSet<String>, BTreeSet<String>) {
    // Nobody deletes a family that is still being made: who was made without an answer stays.
    let there = names(endpoint).await;
    known.keepers.extend(std::mem::take(&mut known.asked).into_iter().filter(|name| there.contains(name)));
    let (mut stay, mut go) = (known.keepers.clone(), BTreeSet::new());
    for family in &mut known.families {
        let Some(top) = family.members.first() else { continue };
        if family.deleted == Some(false) {
            let (code, object) = get(endpoint, &format!("{MAPS}/{top}")).await;
            let going = code == 404 || object["metadata"].get("deletionTimestamp").is_some();
            family.deleted = going.then_some(true);
        }
        for member in &family.members {
            let stays = family.deleted.is_none() || family.kept.contains(member);
            if stays {
                stay.insert(member.clone())
            } else {
                go.insert(member.clone())
            };
        }
    }
    for (namespace, deleted) in &mut known.namespaces {
        if *deleted == Some(false) {
            let (code, object) = get(endpoint, &format!("/api/v1/namespaces/{namespace}")).await;
            let going = code == 404 || object["metadata"].get("deletionTimestamp").is_some();
            *deleted = going.then_some(true);
        }
    }
    (stay, go)
}

/// Waits until something holds; panics with what it says if it never does.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<(), String>) {
    let mut last = String::new();
    for _ in 0..1200 {
        match holds().await {
            Ok(()) => return,
            Err(why) => last = why,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: {last}");
}

#[test]
fn nothing_lingers_and_nothing_owned_goes_when_the_server_is_killed() {
    let kills = kills(10);
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let mut random = Random(kills);
    let known: Arc<Mutex<Known>> = Arc::default();
    block_on(async {
        for round in 0..kills {
            let conductor = Conductor::start(&data, &[]);
            // What was asked for in the last life is known now, before anything else happens to it.
            let mut before = std::mem::take(&mut *known.lock().unwrap());
            let (stay, go) = expected(&conductor.endpoint, &mut before).await;
            *known.lock().unwrap() = before;
            let there = names(&conductor.endpoint).await;
            let missing: Vec<&String> = stay.difference(&there).collect();
            assert!(missing.is_empty(), "round {round}: gone though owned: {missing:?}");
            let strange: Vec<&String> =
                there.iter().filter(|name| !stay.contains(*name) && !go.contains(*name)).collect();
            assert!(strange.is_empty(), "round {round}: there though nobody made them: {strange:?}");
            let mut makers = tokio::task::JoinSet::new();
            for number in 0..3 {
                let prefix = format!("r{round}-{number}");
                let maker = Maker { random: Random(random.number()), prefix, known: known.clone() };
                makers.spawn(maker.run(conductor.endpoint.clone()));
            }
            tokio::time::sleep(Duration::from_millis(20 + random.below(250))).await;
            conductor.kill();
            while let Some(done) = makers.join_next().await {
                done.expect("a maker saw only what it should");
            }
        }
        let conductor = Conductor::start(&data, &[]);
        let endpoint = &conductor.endpoint;
        let mut known = std::mem::take(&mut *known.lock().unwrap());
        let (stay, go) = expected(endpoint, &mut known).await;
        until("dependents of what is gone go", async || {
            let there = names(endpoint).await;
            let linger: Vec<&String> = go.intersection(&there).collect();
            if linger.is_empty() { Ok(()) } else { Err(format!("{} linger: {linger:?}", linger.len())) }
        })
        .await;
        assert_eq!(names(endpoint).await, stay, "exactly those stay whose owners do");
        let deleted: Vec<&String> =
            known.namespaces.iter().filter(|(_, deleted)| deleted.is_some()).map(|(name, _)| name).collect();
        until("deleted namespaces go", async || {
            for namespace in &deleted {
                let (code, _) = get(endpoint, &format!("/api/v1/namespaces/{namespace}")).await;
                if code != 404 {
                    return Err(format!("{namespace} is there"));
                }
            }
            Ok(())
        })
        .await;
        // Their objects went before them, and nobody else's did.
        let (_, all) = get(endpoint, "/api/v1/configmaps").await;
        let spaces: BTreeSet<&str> = all["items"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|item| item["metadata"]["namespace"].as_str())
            .collect();
        for (namespace, deleted) in &known.namespaces {
            assert_eq!(spaces.contains(namespace.as_str()), deleted.is_none(), "{namespace}");
        }
        eprintln!(
            "{kills} kills: {} objects stayed with their owners, {} went with theirs, {} of {} namespaces went",
            stay.len(),
            go.len(),
            deleted.len(),
            known.namespaces.len()
        );
        assert!(!stay.is_empty() && !go.is_empty(), "there was something to do");
    });
}

const ACCOUNTS: usize = 5;
const SUM: i64 = 100 * ACCOUNTS as i64;

fn amount(object: &Value) -> i64 {
    object["data"]["amount"].as_str().and_then(|text| text.parse().ok()).expect("an amount")
}

/// Moves amounts between accounts that all clients want, until the server is gone. Gives the versions of what was answered.
async fn transfer(endpoint: Endpoint, mut random: Random) -> Vec<(String, u64)> {
    let mut answered = Vec::new();
    let Ok(mut connection) = endpoint.connect().await else { return answered };
    loop {
        let from = random.below(ACCOUNTS as u64) as usize;
        let to = (from + 1 + random.below(ACCOUNTS as u64 - 1) as usize) % ACCOUNTS;
        let mut operations = Vec::new();
        for (account, change) in [(from, -1), (to, 1)] {
            let name = format!("account-{account}");
            let Ok(answer) = connection.request("GET", &format!("{MAPS}/{name}"), None).await else { return answered };
            let object = answer.json();
            operations.push(json!({
                "verb": "patch", "version": "v1", "resource": "configmaps", "namespace": "default", "name": name,
                "patch": {"data": {"amount": (amount(&object) + change).to_string()}},
                "preconditions": {"resourceVersion": object["metadata"]["resourceVersion"]},
            }));
        }
        let body = json!({
            "apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": operations},
        });
        let path = "/apis/transactions.conductor.io/v1alpha1/transactions";
        let sent = connection.request("POST", path, Some((JSON, body.to_string().as_bytes()))).await;
        let Ok(answer) = sent else { return answered };
        match answer.code {
            201 => {
                for result in answer.json()["status"]["results"].as_array().expect("results") {
                    let text = |name: &str| result[name].as_str().expect("is said").to_owned();
                    answered.push((text("name"), text("resourceVersion").parse().expect("a number")));
                }
            }
            // Somebody else was faster.
            409 => {}
            other => panic!("{other}: {}", answer.json()),
        }
    }
}

#[test]
fn conflicting_transactions_are_whole_when_the_server_is_killed() {
    let kills = kills(10);
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let mut random = Random(kills ^ 77);
    block_on(async {
        let mut answered: Vec<(String, u64)> = Vec::new();
        let mut begin = 0;
        for round in 0..=kills {
            let conductor = Conductor::start(&data, &[]);
            let endpoint = conductor.endpoint.clone();
            if round == 0 {
                for account in 0..ACCOUNTS {
                    let object = json!({
                        "metadata": {"name": format!("account-{account}"), "labels": {"kind": "account"}},
                        "data": {"amount": "100"},
                    });
                    let body = object.to_string();
                    let made =
                        endpoint.request("POST", MAPS, Some((JSON, body.as_bytes()))).await.expect("is answered");
                    begin = version(&made.json());
                }
            }
            check(&endpoint, begin, &answered).await;
            if round == kills {
                break;
            }
            let mut clients = tokio::task::JoinSet::new();
            for _ in 0..4 {
                clients.spawn(transfer(endpoint.clone(), Random(random.number())));
            }
            tokio::time::sleep(Duration::from_millis(20 + random.below(250))).await;
            conductor.kill();
            while let Some(done) = clients.join_next().await {
                answered.extend(done.expect("a client saw only what it should"));
            }
        }
        eprintln!("{kills} kills: {} writes of transactions answered, none lost, none half", answered.len());
        assert!(answered.len() as u64 > kills * 4, "there was load");
    });
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

/// Replays everything since the accounts were made: two changes after each other are one transaction that moves one, in order
/// and once; every answered one is among them; and what is there now is where they lead to.
async fn check(endpoint: &Endpoint, begin: u64, answered: &[(String, u64)]) {
    let (_, list) = get(endpoint, &format!("{MAPS}?labelSelector=kind%3Daccount")).await;
    let accounts: BTreeMap<String, (u64, i64)> = list["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| (item["metadata"]["name"].as_str().expect("a name").to_owned(), (version(item), amount(item))))
        .collect();
    assert_eq!(accounts.values().map(|(_, amount)| amount).sum::<i64>(), SUM, "{accounts:?}");
    let end = accounts.values().map(|(version, _)| *version).max().expect("accounts");
    let path = format!("{MAPS}?watch=1&resourceVersion={begin}&labelSelector=kind%3Daccount");
    let mut watch = endpoint.connect().await.expect("connects").watch(&path).await.expect("watches");
    let mut state: BTreeMap<String, (u64, i64)> =
        (0..ACCOUNTS).map(|account| (format!("account-{account}"), (begin, 100))).collect();
    let mut seen: BTreeSet<(String, u64)> = BTreeSet::new();
    let mut last = begin;
    let mut half: Option<u64> = None;
    while last < end {
        let line = watch.line().await.expect("goes on").expect("is not ended");
        let event: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(event["type"], "MODIFIED", "{event}");
        let (at, object) = (version(&event["object"]), &event["object"]);
        assert!(at > last, "{at} comes after {last}");
        last = at;
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        state.insert(name.clone(), (at, amount(object)));
        seen.insert((name, at));
        let sum: i64 = state.values().map(|(_, amount)| amount).sum();
        half = match half {
            None => {
                assert_eq!(sum, SUM - 1, "a transaction begins with what it takes: {event}");
                Some(at)
            }
            Some(first) => {
                assert_eq!((sum, at), (SUM, first + 1), "and ends with what it gives, at once: {event}");
                None
            }
        };
    }
    assert_eq!(half, None, "half a transaction is there");
    let lost: Vec<&(String, u64)> = answered.iter().filter(|write| !seen.contains(*write)).collect();
    assert!(lost.is_empty(), "answered and lost: {lost:?}");
    for (name, (version, amount)) in &accounts {
        if *version > begin {
            assert_eq!(state[name], (*version, *amount), "{name}");
        }
    }
}
