//! `kill -9` of the real binary under load over TLS, again and again on one data directory.
//!
//! Every write that was acknowledged is there afterwards with its content, no watcher was ever shown one that is lost, watches
//! go on where they were without a gap or a repeat, and transactions are there whole or not at all.
//! `CONDUCTOR_KILLS=500` makes it longer.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Conductor, JSON, Random, block_on};
use conductor_store::EventKind;
use conductor_store::guarantees::{self, History, Seen, Step, Written, digest};
use conductor_testkit::wire::{Connection, Endpoint};
use serde_json::{Value, json};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: u64 = 4;
const PAIR_WRITERS: u64 = 2;
const WATCHERS: usize = 3;
/// Few, so that objects are changed and deleted, not only made.
const KEYS: u64 = 12;

/// What a key holds: the text of its object, or nothing.
type State = Option<String>;

/// A write, of one key or of a pair at once.
#[derive(Clone, Debug)]
struct Write {
    keys: Vec<String>,
    after: State,
    /// The versions it got, if it was acknowledged.
    versions: Option<Vec<u64>>,
}

/// What is known about the server, over all its lives.
#[derive(Default)]
struct Truth {
    history: Vec<Written>,
    texts: BTreeMap<u64, (String, State)>,
    objects: BTreeMap<String, State>,
    watchers: Vec<Vec<Step>>,
    acknowledged: usize,
    in_doubt: usize,
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("has a version")
}

/// A line of a watch as the validators see it; a bookmark has no event.
fn read(line: &[u8]) -> (u64, Option<(Seen, State)>) {
    let event: Value = serde_json::from_slice(line).expect("an event is JSON");
    let (kind, object) = (event["type"].as_str().expect("has a type"), &event["object"]);
    assert_ne!(kind, "ERROR", "{object}");
    let revision = version(object);
    if kind == "BOOKMARK" {
        return (revision, None);
    }
    let seen = Seen {
        revision,
        table: "configmaps".into(),
        key: object["metadata"]["name"].as_str().expect("has a name").into(),
        kind: if kind == "DELETED" { EventKind::Delete } else { EventKind::Put },
        digest: digest(event.to_string().as_bytes()),
    };
    let text = (kind != "DELETED").then(|| object["data"]["text"].as_str().unwrap_or_default().to_owned());
    (revision, Some((seen, text)))
}

impl Truth {
    fn revision(&self) -> u64 {
        self.history.last().map_or(0, |written| written.seen.revision)
    }

    /// Where a watcher goes on: behind the last event or bookmark that reached it.
    fn resume_at(&self, watcher: usize) -> u64 {
        match self.watchers[watcher].last() {
            None => 0,
            Some(Step::From(revision) | Step::Bookmark(revision)) => *revision,
            Some(Step::Batch(events)) => events.last().map_or(0, |event| event.revision),
        }
    }

    /// Asks a server that has just started for everything, and compares.
    async fn verify(&mut self, endpoint: &Endpoint, writes: Vec<Write>, round: u64) {
        // Everything that happened is before this.
        let marker = json!({"metadata": {"name": format!("marker-{round}")}}).to_string();
        let marker = endpoint.request("POST", PATH, Some((JSON, marker.as_bytes()))).await.expect("is answered");
        assert_eq!(marker.code, 201, "{}", marker.json());
        let end = version(&marker.json());
        let from = format!("{PATH}?watch=1&resourceVersion={}", self.revision().max(1));
        let mut watch = endpoint.connect().await.expect("connects").watch(&from).await.expect("watches");
        while self.revision() < end {
            let line = watch.line().await.expect("goes on").expect("is not ended");
            let (revision, Some((seen, text))) = read(&line) else { continue };
            self.texts.insert(revision, (seen.key.clone(), text));
            self.history.push(Written { seen, first: revision, last: revision });
        }
        self.find_pairs();

        let list = endpoint.request("GET", PATH, None).await.expect("lists").json();
        let items = list["items"].as_array().expect("is a list");
        let found: BTreeMap<String, (u64, String)> = items
            .iter()
            .map(|item| {
                let name = item["metadata"]["name"].as_str().expect("has a name").to_owned();
                (name, (version(item), item["data"]["text"].as_str().unwrap_or_default().to_owned()))
            })
            .collect();

        // What is there is what the history leads to.
        let mut replayed = BTreeMap::new();
        for written in &self.history {
            let (key, text) = &self.texts[&written.seen.revision];
            match text {
                Some(text) => replayed.insert(key.clone(), (written.seen.revision, text.clone())),
                None => replayed.remove(key),
            };
        }
        assert_eq!(
            found.iter().filter(|(name, _)| *name != "kube-root-ca.crt").collect::<Vec<_>>(),
            replayed.iter().filter(|(name, _)| *name != "kube-root-ca.crt").collect::<Vec<_>>()
        );

        // Every acknowledged write has its place in the history; every other happened as a whole or not at all.
        for write in &writes {
            match &write.versions {
                Some(versions) => {
                    self.acknowledged += 1;
                    for (key, version) in write.keys.iter().zip(versions) {
                        let known = self.texts.get(version);
                        assert_eq!(
                            known,
                            Some(&(key.clone(), write.after.clone())),
                            "acknowledged as {version}, then lost: {write:?}"
                        );
                    }
                    for key in &write.keys {
                        self.objects.insert(key.clone(), write.after.clone());
                    }
                }
                None => {
                    self.in_doubt += 1;
                    let now: Vec<State> =
                        write.keys.iter().map(|key| found.get(key).map(|(_, text)| text.clone())).collect();
                    let before: Vec<State> =
                        write.keys.iter().map(|key| self.objects.get(key).cloned().flatten()).collect();
                    let after = vec![write.after.clone(); write.keys.len()];
                    assert!(now == before || now == after, "half of {write:?} is there: {now:?}, was {before:?}");
                    for (key, state) in write.keys.iter().zip(now) {
                        self.objects.insert(key.clone(), state);
                    }
                }
            }
        }
        for (key, state) in &self.objects {
            assert_eq!(found.get(key).map(|(_, text)| text), state.as_ref(), "{key}");
        }

        let history: History = self.history.iter().cloned().collect();
        for (watcher, steps) in self.watchers.iter().enumerate() {
            let check = |seen: &Seen| watches(watcher, &seen.key);
            // Lines come one by one, so that nothing can be said about batches; all else holds.
            let broken = guarantees::ordered(steps)
                .and_then(|()| guarantees::unique(steps))
                .and_then(|()| guarantees::resumable(steps, &history, check))
                .and_then(|()| guarantees::bookmarkable(steps, &history, check));
            broken.unwrap_or_else(|broken| panic!("watcher {watcher}: {broken}"));
        }
    }

    /// Two writes of a pair with the same text are one transaction.
    fn find_pairs(&mut self) {
        for at in 1..self.history.len() {
            let (one, two) = (&self.history[at - 1].seen, &self.history[at].seen);
            let same = one.kind == two.kind
                && one.key.strip_suffix("-a").is_some_and(|key| two.key.strip_suffix("-b") == Some(key));
            if same {
                assert_eq!(one.revision + 1, two.revision, "a transaction has consecutive versions");
                let (first, last) = (one.revision, two.revision);
                for half in [at - 1, at] {
                    (self.history[half].first, self.history[half].last) = (first, last);
                }
            }
        }
        for written in &self.history {
            let whole = written.first < written.last;
            assert_eq!(whole, written.seen.key.starts_with("pair-"), "half a transaction: {written:?}");
        }
    }
}

/// The first watcher sees all, the others what their selector lets through.
fn selector(watcher: usize) -> String {
    match watcher {
        0 => String::new(),
        1 => "&labelSelector=kind%3Dpair".into(),
        _ => "&labelSelector=kind%21%3Dpair".into(),
    }
}

fn watches(watcher: usize, key: &str) -> bool {
    match watcher {
        0 => true,
        1 => key.starts_with("pair-"),
        _ => !key.starts_with("pair-"),
    }
}

/// Watches until the server is gone.
async fn watch(endpoint: Endpoint, watcher: usize, from: u64) -> Vec<Step> {
    let mut steps = vec![Step::From(from)];
    let path = format!("{PATH}?watch=1&allowWatchBookmarks=true&resourceVersion={from}{}", selector(watcher));
    let Ok(connection) = endpoint.connect().await else { return steps };
    let Ok(mut watch) = connection.watch(&path).await else { return steps };
    assert_eq!(watch.code, 200);
    while let Ok(Some(line)) = watch.line().await {
        // The last line may be cut anywhere.
        if !line.ends_with(b"}") || serde_json::from_slice::<Value>(&line).is_err() {
            break;
        }
        steps.push(match read(&line) {
            (revision, None) => Step::Bookmark(revision),
            (_, Some((seen, _))) => Step::Batch(vec![seen]),
        });
    }
    steps
}

/// One object after the other, or one pair after the other, until the server is gone.
struct Writer {
    pair: bool,
    number: u64,
    states: BTreeMap<String, State>,
    random: Random,
    log: Arc<Mutex<Vec<Write>>>,
}

impl Writer {
    async fn run(mut self, endpoint: Endpoint) {
        let Ok(mut connection) = endpoint.connect().await else { return };
        loop {
            let key = format!("{}-{}-{}", if self.pair { "pair" } else { "one" }, self.number, self.random.below(KEYS));
            let keys = if self.pair { vec![format!("{key}-a"), format!("{key}-b")] } else { vec![key] };
            let there = self.states.get(&keys[0]).cloned().flatten().is_some();
            let delete = there && self.random.below(3) == 0;
            let after = (!delete)
                .then(|| format!("{:016x}{}", self.random.number(), ".".repeat(self.random.below(900) as usize)));
            // Written down before it is sent: whatever happens to it, it is known about.
            let at = {
                let mut log = self.log.lock().expect("not poisoned");
                log.push(Write { keys: keys.clone(), after: after.clone(), versions: None });
                log.len() - 1
            };
            let sent = if self.pair {
                pair(&mut connection, &keys, there, &after).await
            } else {
                one(&mut connection, &keys[0], there, &after).await
            };
            let Some(versions) = sent else { return };
            self.log.lock().expect("not poisoned")[at].versions = Some(versions);
            for key in keys {
                self.states.insert(key, after.clone());
            }
        }
    }
}

fn object(key: &str, text: &str) -> Value {
    let kind = if key.starts_with("pair-") { "pair" } else { "one" };
    json!({"metadata": {"name": key, "labels": {"kind": kind}}, "data": {"text": text}})
}

/// Creates, patches or deletes one object; the version it got, if that was acknowledged.
async fn one(connection: &mut Connection, key: &str, there: bool, after: &State) -> Option<Vec<u64>> {
    let own = format!("{PATH}/{key}");
    let answer = match after {
        Some(text) if there => {
            let patch = json!({"data": {"text": text}}).to_string();
            connection.request("PATCH", &own, Some(("application/merge-patch+json", patch.as_bytes()))).await
        }
        Some(text) => connection.request("POST", PATH, Some((JSON, object(key, text).to_string().as_bytes()))).await,
        None => {
            // A delete is acknowledged without its version: the object must be gone, whatever it is.
            let answer = connection.request("DELETE", &own, None).await.ok()?;
            assert_eq!(answer.code, 200, "{}", answer.json());
            return Some(Vec::new());
        }
    };
    let answer = answer.ok()?;
    assert!(matches!(answer.code, 200 | 201), "{}", answer.json());
    Some(vec![version(&answer.json())])
}

/// The same for two objects at once.
async fn pair(connection: &mut Connection, keys: &[String], there: bool, after: &State) -> Option<Vec<u64>> {
    let operation = |key: &String| {
        let mut operation = json!({"version": "v1", "resource": "configmaps", "namespace": "default", "name": key});
        let verb = match after {
            Some(text) if there => {
                operation["patch"] = json!({"data": {"text": text}});
                "patch"
            }
            Some(text) => {
                operation["object"] = object(key, text);
                "create"
            }
            None => "delete",
        };
        operation["verb"] = verb.into();
        operation
    };
    let body = json!({
        "apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction",
        "spec": {"operations": keys.iter().map(operation).collect::<Vec<_>>()},
    });
    let path = "/apis/transactions.conductor.io/v1alpha1/transactions";
    let answer = connection.request("POST", path, Some((JSON, body.to_string().as_bytes()))).await.ok()?;
    assert_eq!(answer.code, 201, "{}", answer.json());
    if after.is_none() {
        return Some(Vec::new());
    }
    let results = answer.json()["status"]["results"].as_array().cloned().expect("has results");
    let number = |result: &Value| result["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    Some(results.iter().map(|result| number(result).expect("has a version")).collect())
}

impl Truth {
    /// One life of the server: verify what the one before left, load, kill.
    async fn round(&mut self, data: &Path, writes: Vec<Write>, random: &mut Random, round: u64) -> Vec<Write> {
        let conductor = Conductor::start(data, &[]);
        let endpoint = conductor.endpoint.clone();
        self.verify(&endpoint, writes, round).await;
        let log: Arc<Mutex<Vec<Write>>> = Arc::default();
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..WRITERS + PAIR_WRITERS {
            let writer = Writer {
                pair: number >= WRITERS,
                number,
                states: self.objects.clone(),
                random: Random(random.number()),
                log: log.clone(),
            };
            writers.spawn(writer.run(endpoint.clone()));
        }
        if self.watchers.is_empty() {
            // They begin after what a new server makes for itself.
            self.watchers = vec![vec![Step::From(self.revision())]; WATCHERS];
        }
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|watcher| tokio::spawn(watch(endpoint.clone(), watcher, self.resume_at(watcher))))
            .collect();
        tokio::time::sleep(Duration::from_micros(random.below(300_000))).await;
        conductor.kill();
        while let Some(done) = writers.join_next().await {
            done.expect("a writer saw only what it should");
        }
        for (steps, watcher) in self.watchers.iter_mut().zip(watchers) {
            steps.extend(watcher.await.expect("a watcher saw only what it should"));
        }
        std::mem::take(&mut *log.lock().expect("not poisoned"))
    }
}

#[test]
fn kill_loses_nothing_acknowledged_over_tls() {
    let kills: u64 = std::env::var("CONDUCTOR_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(24);
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let mut random = Random(kills);
    let mut truth = Truth::default();
    block_on(async {
        let mut writes = Vec::new();
        for round in 0..kills {
            writes = truth.round(&data, writes, &mut random, round).await;
        }
        let conductor = Conductor::start(&data, &[]);
        truth.verify(&conductor.endpoint, writes, kills).await;
    });
    let shown: usize = truth.watchers.iter().flatten().filter(|step| matches!(step, Step::Batch(_))).count();
    eprintln!(
        "{kills} kills: {} writes acknowledged, {} in doubt, {} versions, {shown} events shown",
        truth.acknowledged,
        truth.in_doubt,
        truth.history.len()
    );
    assert!(truth.acknowledged as u64 > kills * 5 && shown as u64 > kills * 5, "there was load");
}
