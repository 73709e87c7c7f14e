//! Running sequences in step on two clusters.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use regex::{Captures, Regex};
use serde_json::{Value, json};

use super::operations::Target;
use super::random::Random;
use super::subjects::{Subject, built_ins, customs, definition};
use crate::cluster::unique;
use crate::parity::{Difference, differences};
use crate::{Answer, Cluster, Namespace, Request};

/// How many requests are under way at a time.
const AT_ONCE: usize = 16;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many sequences.
    pub sequences: usize,
    /// How many operations in each.
    pub rounds: usize,
    /// What they are made from.
    pub seed: u64,
    /// Only kinds with this in their name.
    pub only: String,
}

/// Where a sequence came apart.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// The kind.
    pub subject: &'static str,
    /// Its seed.
    pub seed: u64,
    /// What was sent, up to where the answers differ.
    pub history: Vec<Request>,
    /// How they differ.
    pub differences: Vec<Difference>,
    /// The object before that, as the real cluster showed it.
    pub before: Value,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Sequences that came apart.
    pub divergences: Vec<Divergence>,
    /// Requests whose answers were compared.
    pub compared: usize,
    /// Requests that were conflicts.
    pub conflicts: usize,
    /// Requests that were refused otherwise.
    pub refused: usize,
}

struct Sequence<'s> {
    target: Target<'s>,
    seed: u64,
    random: Random,
    /// The seed of the operation before.
    before: u64,
    history: Vec<Request>,
    /// What each cluster last showed.
    last: [Option<Value>; 2],
    diverged: Option<Vec<Difference>>,
    compared: usize,
    conflicts: usize,
    refused: usize,
}

/// Runs a plan.
pub async fn run(real: &Cluster, ours: &Cluster, plan: &Plan) -> Summary {
    let clusters = [real, ours];
    let run = unique("sequences");
    let group = format!("{run}.example.com");
    let subjects: Vec<Subject> = built_ins().into_iter().chain(customs(&group)).collect();
    let subjects: Vec<Subject> = subjects.into_iter().filter(|one| one.name.contains(&plan.only)).collect();
    let (_real_space, _our_space) = tokio::join!(Namespace::create(real, &run), Namespace::create(ours, &run));
    for cluster in clusters {
        for subject in subjects.iter().filter(|subject| subject.custom) {
            define(cluster, subject, false).await;
        }
    }
    let mut seeds = Random::new(plan.seed);
    let mut sequences: Vec<Sequence<'_>> = (0..plan.sequences)
        .map(|index| {
            let seed = seeds.number();
            let subject = &subjects[index % subjects.len()];
            let target = Target { subject, namespace: run.clone(), name: format!("{run}-{index}") };
            let (random, before) = (Random::new(seed), 0);
            let last = [None, None];
            let history = Vec::new();
            Sequence {
                target,
                seed,
                random,
                before,
                history,
                last,
                diverged: None,
                compared: 0,
                conflicts: 0,
                refused: 0,
            }
        })
        .collect();
    let mut rounds: Vec<u64> = Vec::new();
    for round in 0..plan.rounds {
        if round == plan.rounds / 2 {
            for cluster in clusters {
                for subject in subjects.iter().filter(|subject| subject.kind == "Shifting") {
                    define(cluster, subject, true).await;
                }
            }
        }
        rounds.push(new_second().await);
        let rounds = &rounds;
        futures::stream::iter(sequences.iter_mut().filter(|sequence| sequence.diverged.is_none()))
            .for_each_concurrent(AT_ONCE, |sequence| async move { sequence.step(clusters, rounds).await })
            .await;
    }
    clean(real, &subjects, &run).await;
    let mut summary = Summary::default();
    for sequence in sequences {
        summary.compared += sequence.compared;
        summary.conflicts += sequence.conflicts;
        summary.refused += sequence.refused;
        if let Some(differences) = sequence.diverged {
            let [before, _] = sequence.last;
            summary.divergences.push(Divergence {
                subject: sequence.target.subject.name,
                seed: sequence.seed,
                history: sequence.history,
                differences,
                before: before.unwrap_or_default(),
            });
        }
    }
    summary
}

impl Sequence<'_> {
    async fn step(&mut self, clusters: [&Cluster; 2], rounds: &[u64]) {
        // Now and then a manager does what was just done: controllers apply the same again and again.
        let seed = if self.random.chance(10) { self.before } else { self.random.number() };
        self.before = seed;
        let operations = [0, 1].map(|at: usize| self.target.next(seed, self.last[at].as_ref()));
        let [mut real, mut ours] = send(clusters, [&operations[0].request, &operations[1].request]).await;
        self.history.push(operations[0].request.clone());
        self.compared += 1;
        self.conflicts += usize::from(real.code == 409);
        self.refused += usize::from(real.code >= 400 && real.code != 409);
        self.diverged = self.compared(&operations[0].request.method, &real, &ours, rounds);
        if self.diverged.is_some() {
            return;
        }
        if real.code >= 300 {
            return;
        }
        if operations[0].request.method == "DELETE" || !operations[0].shows {
            // The answer says nothing of what is there now.
            let get = self.target.get(0);
            [real, ours] = send(clusters, [&get, &get]).await;
            self.compared += 1;
            self.diverged = self.compared("GET", &real, &ours, rounds);
            if self.diverged.is_some() {
                self.history.push(get);
                return;
            }
        }
        self.last = match real.code {
            200..300 => [Some(real.body), Some(ours.body)],
            _ => [None, None],
        };
    }
}

impl Sequence<'_> {
    /// Where two answers differ, times told by their rounds.
    fn compared(&self, method: &str, real: &Answer, ours: &Answer, rounds: &[u64]) -> Option<Vec<Difference>> {
        // Why an object is invalid, and what a deletion shows, is another test's business. A bad patch is the client's mistake.
        if matches!((real.code, ours.code), (422, 422) | (500, 400)) || method == "DELETE" && real.code == ours.code {
            return None;
        }
        let told = |answer: &Answer| {
            let mut body = in_rounds(&answer.body, rounds);
            // A list of mistakes is in the order of Go's maps.
            if let Some(Value::String(message)) = body.get_mut("message")
                && let Some((before, list)) = message.split_once("errors:\n")
            {
                let mut lines: Vec<&str> = list.lines().collect();
                lines.sort_unstable();
                *message = format!("{before}errors:\n{}", lines.join("\n"));
            }
            // Which undeclared field is named first, and which mistakes are listed before it, is chance on the real one.
            if let Some(Value::String(message)) = body.get_mut("message")
                && message.contains("field not declared in schema")
                && let Some(at) = [": .", ": errors:"].iter().filter_map(|mark| message.find(mark)).min()
            {
                message.truncate(at);
            }
            Answer { body, ..answer.clone() }
        };
        let watched = self.target.subject.watched;
        let other = |one: &Difference| {
            matches!(one.place.as_str(), "header warning" | "body.metadata.deletionGracePeriodSeconds")
                || watched && one.place.starts_with("body.status")
        };
        let found: Vec<Difference> =
            differences(&told(real), &told(ours)).into_iter().filter(|one| !other(one)).collect();
        (!found.is_empty()).then_some(found)
    }
}

async fn send(clusters: [&Cluster; 2], requests: [&Request; 2]) -> [Answer; 2] {
    let (real, ours) = tokio::join!(clusters[0].send(requests[0]), clusters[1].send(requests[1]));
    [real, ours]
}

/// The value with times as the rounds they fall into.
fn in_rounds(value: &Value, rounds: &[u64]) -> Value {
    static TIME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ").unwrap_or_else(|error| panic!("{error}")));
    static VOLUME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("kube-api-access-[a-z0-9]{5}").unwrap_or_else(|error| panic!("{error}")));
    match value {
        Value::String(text) => {
            let told = TIME.replace_all(text, |found: &Captures<'_>| {
                let seconds = found[0].parse::<machinery::time::Time>().map_or(0, |time| time.seconds.max(0) as u64);
                match rounds.iter().rposition(|start| *start <= seconds) {
                    Some(round) => format!("<round {round}>"),
                    None => found[0].to_owned(),
                }
            });
            Value::String(told.into_owned())
        }
        Value::Array(items) => items.iter().map(|item| in_rounds(item, rounds)).collect(),
        Value::Object(fields) => {
            // Pods are given a volume with a random name, which may become a key of what somebody owns.
            let name = |name: &str| VOLUME.replace(name, "kube-api-access-<5>").into_owned();
            fields.iter().map(|(key, value)| (name(key), in_rounds(value, rounds))).collect()
        }
        other => other.clone(),
    }
}

/// Waits for the next second and says which it is.
async fn new_second() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rest = 1_000_000_000 - u64::from(now.subsec_nanos()) + 5_000_000;
    tokio::time::sleep(Duration::from_nanos(rest)).await;
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Makes or changes a definition, and waits until it is served.
async fn define(cluster: &Cluster, subject: &Subject, shifted: bool) {
    let seen = if shifted { "second" } else { "first" };
    let body = definition(subject, shifted, seen);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    if shifted {
        let request =
            Request::json("PATCH", format!("{path}/{}.{}?fieldManager=test", subject.plural, subject.group), &body);
        let patch = json!({"spec": {"versions": body["spec"]["versions"]}});
        let request = request.body(patch.to_string()).header("Content-Type", "application/merge-patch+json");
        cluster.send(&request).await.ok();
    } else {
        cluster.send(&Request::json("POST", path, &body)).await.ok();
    }
    for version in 0..subject.versions.len() {
        let mut canary =
            json!({"apiVersion": subject.api_version(version), "kind": subject.kind, "metadata": {"name": "canary"}});
        canary[seen] = "yes".into();
        let path = format!("{}?dryRun=All", subject.path(version, "default"));
        let mut served = 0;
        for _ in 0..1000 {
            let answer = cluster.send(&Request::json("POST", path.as_str(), &canary)).await;
            served = if answer.code == 201 && answer.body[seen] == "yes" { served + 1 } else { 0 };
            if served == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(served, 3, "{}: {} is not served", cluster.name(), subject.kind);
    }
}

/// Takes away what a namespace does not take with it.
async fn clean(real: &Cluster, subjects: &[Subject], run: &str) {
    for subject in subjects {
        let collection = subject.path(0, run);
        let free = json!({"metadata": {"finalizers": null}}).to_string();
        let listed = real.send(&Request::new("GET", collection.as_str())).await;
        for item in listed.body["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            if !name.starts_with(run) {
                continue;
            }
            let path = format!("{collection}/{name}");
            if item["metadata"]["finalizers"].is_array() {
                let patch = Request::new("PATCH", path.as_str()).body(free.as_str());
                real.send(&patch.header("Content-Type", "application/merge-patch+json")).await;
            }
            if !subject.namespaced {
                real.send(&Request::new("DELETE", path.as_str())).await;
                let patch = Request::new("PATCH", path.as_str()).body(free.as_str());
                real.send(&patch.header("Content-Type", "application/merge-patch+json")).await;
            }
        }
        if subject.custom {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            real.send(&Request::new("DELETE", format!("{path}/{}.{}", subject.plural, subject.group))).await;
        }
    }
}
