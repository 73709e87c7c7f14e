//! Other projects' definitions on a real Kubernetes and on ours: the same are taken, their example objects give the same
//! stored objects, and broken ones the same refusals. The projects are in `tools/ecosystem.json`.
//!
//! `CONDUCTOR_ECOSYSTEM_VARIANTS=N` chooses how many broken variants of each example are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use conductor_testkit::parity::{Difference, Known, differences};
use conductor_testkit::{Answer, Cluster, KUBECONFIG, Request, skip};
use futures::StreamExt;
use serde_json::{Map, Value, json};

const ECOSYSTEM: &str = "CONDUCTOR_ECOSYSTEM";
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parity.md");
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How many files are worked on at once.
const AT_ONCE: usize = 4;

struct Project {
    name: String,
    definitions: Vec<Value>,
    /// Files with objects of kinds that are defined.
    examples: Vec<(String, Vec<Value>)>,
}

/// What was sent and what came of it.
#[derive(Default)]
struct Tally {
    sent: usize,
    accepted: usize,
    refused: usize,
    by_rule: usize,
    rules: BTreeSet<String>,
    unknown: Vec<String>,
    excepted: usize,
}

impl Tally {
    fn add(mut self, other: Tally) -> Tally {
        self.sent += other.sent;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.by_rule += other.by_rule;
        self.excepted += other.excepted;
        self.rules.extend(other.rules);
        self.unknown.extend(other.unknown);
        self
    }
}

struct Clusters {
    real: Cluster,
    ours: Cluster,
    known: Known,
    /// The messages of all rules.
    rules: BTreeSet<String>,
}

impl Clusters {
    /// Sends a request to both and compares the answers.
    async fn send(&self, place: &str, request: &Request, tally: &mut Tally) -> (Answer, Answer) {
        let (real, ours) = tokio::join!(self.real.send(request), self.ours.send(request));
        tally.sent += 1;
        if real.code < 300 {
            tally.accepted += 1;
        } else {
            tally.refused += 1;
            let causes = real.body["details"]["causes"].as_array().cloned().unwrap_or_default();
            let said =
                |rule: &&String| causes.iter().any(|own| own["message"].as_str().unwrap_or("").contains(&***rule));
            let hit: Vec<String> = self.rules.iter().filter(said).cloned().collect();
            tally.by_rule += usize::from(!hit.is_empty());
            tally.rules.extend(hit);
        }
        let place = format!("ecosystem {place}: {} {}", request.method, request.path);
        let (known, unknown): (Vec<Difference>, Vec<Difference>) =
            differences(&real, &ours).into_iter().partition(|found| self.known.knows(&place, found));
        tally.excepted += usize::from(unknown.is_empty() && !known.is_empty());
        tally.unknown.extend(unknown.iter().map(|found| format!("{place}\n    {found}")));
        (real, ours)
    }

    /// Waits until both answer a GET as wanted.
    async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) {
        for cluster in [&self.real, &self.ours] {
            let mut tries = 0;
            while !wanted(&cluster.send(&Request::new("GET", path)).await) {
                tries += 1;
                assert!(tries < 1200, "{}: GET {path} does not become as wanted", cluster.name());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// All documents of all YAML files below a directory that can be read; how many files cannot.
fn documents(dir: &Path, unread: &mut Vec<PathBuf>) -> Vec<(PathBuf, Vec<Value>)> {
    let mut found = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|one| one.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            found.extend(documents(&path, unread));
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            match serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(&path).unwrap()) {
                Ok(documents) => found.push((path, documents)),
                Err(_) => unread.push(path),
            }
        }
    }
    found
}

fn read(list: &Path) -> Vec<Project> {
    let projects: Vec<Value> = serde_json::from_slice(&std::fs::read(list).unwrap()).unwrap();
    let mut unread = Vec::new();
    let projects = projects.iter().map(|project| {
        let root = Path::new(text(&project["dir"]));
        let mut below = |name: &str| -> Vec<(PathBuf, Vec<Value>)> {
            let dirs = project[name].as_array().into_iter().flatten();
            dirs.flat_map(|dir| documents(&root.join(text(dir)), &mut unread)).collect()
        };
        let definitions: Vec<Value> = below("definitions")
            .into_iter()
            .flat_map(|(_, documents)| documents)
            .filter(|document| document["kind"] == "CustomResourceDefinition")
            .collect();
        let defined: BTreeSet<(String, String)> = definitions
            .iter()
            .map(|crd| (text(&crd["spec"]["group"]).to_owned(), text(&crd["spec"]["names"]["kind"]).to_owned()))
            .collect();
        let own = |object: &Value| {
            let group = text(&object["apiVersion"]).split('/').next().unwrap_or_default();
            defined.contains(&(group.to_owned(), text(&object["kind"]).to_owned()))
        };
        let examples = below("examples")
            .into_iter()
            .map(|(path, objects)| {
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                (name, objects.into_iter().filter(own).collect::<Vec<Value>>())
            })
            .filter(|(_, objects)| !objects.is_empty())
            .collect();
        Project { name: text(&project["name"]).to_owned(), definitions, examples }
    });
    let projects = projects.collect();
    for path in unread {
        println!("ecosystem: not YAML, left out: {}", path.display());
    }
    projects
}

/// The messages of the rules in a schema.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let said = if text(&rule["message"]).is_empty() { text(&rule["rule"]) } else { text(&rule["message"]) };
        found.insert(said.trim().to_owned());
    }
    match schema {
        Value::Object(fields) => fields.values().for_each(|inner| messages(inner, found)),
        Value::Array(items) => items.iter().for_each(|inner| messages(inner, found)),
        _ => {}
    }
}

/// A value that a schema is likely to take.
fn sample(schema: &Value) -> Value {
    if let Some(default) = schema.get("default") {
        return default.clone();
    }
    if let Some(first) = schema["enum"].as_array().and_then(|list| list.first()) {
        return first.clone();
    }
    match text(&schema["type"]) {
        "object" => {
            let required = schema["required"].as_array().into_iter().flatten().map(text);
            required.map(|name| (name.to_owned(), sample(&schema["properties"][name]))).collect::<Map<_, _>>().into()
        }
        "array" => json!([sample(&schema["items"])]),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or(json!(1)),
        "boolean" => json!(true),
        _ if schema["x-kubernetes-int-or-string"] == true => json!(1),
        _ => match text(&schema["format"]) {
            "date-time" => json!("2020-01-01T00:00:00Z"),
            _ => json!("a"),
        },
    }
}

/// Values that break a field, or hardly fit it.
fn broken(schema: &Value, here: Option<&Value>) -> Vec<Value> {
    let mut values = match text(&schema["type"]) {
        "object" => vec![json!("text"), json!({})],
        "array" => {
            let mut values = vec![json!({}), json!([])];
            if let Some(Value::Array(items)) = here {
                // Twice the same: sets and maps refuse it.
                values.push(items.iter().chain(items.first()).cloned().collect());
            }
            values
        }
        "integer" | "number" => {
            let limit = |name: &str, by: i64| schema[name].as_i64().map(|limit| json!(limit + by));
            let mut values = vec![json!("text"), json!(-1), json!(1.5)];
            values.extend(limit("minimum", -1));
            values.extend(limit("maximum", 1));
            values
        }
        "boolean" => vec![json!("true"), json!(here != Some(&json!(true)))],
        "string" => {
            let long =
                schema["maxLength"].as_u64().filter(|most| *most < 5000).map(|most| "a".repeat(most as usize + 1));
            let mut values = vec![json!(7), json!(""), json!("No such value!")];
            values.extend(long.map(Value::from));
            values.extend(schema["enum"].as_array().into_iter().flatten().take(4).cloned());
            values
        }
        _ => vec![json!("No such value!"), json!(-1)],
    };
    values.retain(|value| Some(value) != here);
    values
}

type Change = (Vec<String>, Option<Value>);

/// Every field absent, broken, or there though it was not. `ruled` says whether a rule looks at it; those come first.
fn walk(value: &Value, schema: &Value, path: &mut Vec<String>, ruled: bool, changes: &mut Vec<(bool, Change)>) {
    let ruled = ruled || schema.get("x-kubernetes-validations").is_some();
    match value {
        Value::Object(fields) => {
            for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
                if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
                    continue;
                }
                path.push(name.clone());
                let here = fields.get(name);
                let looked_at = ruled || inner.get("x-kubernetes-validations").is_some();
                match here {
                    None => changes.push((looked_at, (path.clone(), Some(sample(inner))))),
                    Some(here) => {
                        changes.push((looked_at, (path.clone(), None)));
                        let values = broken(inner, Some(here)).into_iter();
                        changes.extend(values.map(|value| (looked_at, (path.clone(), Some(value)))));
                        walk(here, inner, path, ruled, changes);
                    }
                }
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate().take(2) {
                path.push(index.to_string());
                walk(item, &schema["items"], path, ruled, changes);
                path.pop();
            }
        }
        _ => {}
    }
}

fn set(object: &mut Value, (path, value): &Change) {
    let Some((last, way)) = path.split_last() else { return };
    let mut here = object;
    for step in way {
        here = match here {
            Value::Array(items) => match step.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                Some(item) => item,
                None => return,
            },
            other => &mut other[step.as_str()],
        };
    }
    if let Some(fields) = here.as_object_mut() {
        match value {
            Some(value) => fields.insert(last.clone(), value.clone()),
            None => fields.remove(last),
        };
    }
}

/// Some variants of an object, rules first, spread over it.
fn variants(object: &Value, schema: &Value, most: usize) -> Vec<(String, Value)> {
    let mut changes = Vec::new();
    walk(object, schema, &mut Vec::new(), false, &mut changes);
    let (ruled, others): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(ruled, _)| *ruled);
    let spread = |list: Vec<(bool, Change)>, most: usize| -> Vec<Change> {
        let step = list.len().div_ceil(most.max(1)).max(1);
        // A step that shares no factor with common lengths of lists meets all kinds of changes.
        let step = if step.is_multiple_of(2) { step + 1 } else { step };
        list.into_iter().step_by(step).map(|(_, change)| change).collect()
    };
    let mut chosen = spread(ruled, most * 2 / 3);
    chosen.extend(spread(others, most.saturating_sub(chosen.len()).max(most / 3)));
    let made = chosen.into_iter().map(|change| {
        let mut changed = object.clone();
        set(&mut changed, &change);
        let what = format!("{}={}", change.0.join("."), change.1.as_ref().map_or("absent".into(), Value::to_string));
        (what, changed)
    });
    made.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_projects_find_the_same_here_as_on_a_real_kubernetes() {
    let test = "other_projects_find_the_same_here_as_on_a_real_kubernetes";
    let Some(real) = Cluster::real().await else { return skip(test, &format!("{KUBECONFIG} is not set")) };
    let Some(list) = std::env::var_os(ECOSYSTEM) else {
        return skip(test, &format!("{ECOSYSTEM} is not set: cargo xtask ecosystem prints what to set it to"));
    };
    let most = std::env::var("CONDUCTOR_ECOSYSTEM_VARIANTS").map_or(20, |text| text.parse().expect("a number"));
    let projects = read(Path::new(&list));
    let mut rules = BTreeSet::new();
    projects.iter().flat_map(|project| &project.definitions).for_each(|crd| messages(crd, &mut rules));
    let known = Known::parse(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
    let clusters = Clusters { real, ours: Cluster::served().await, known, rules };
    let mut unknown = Vec::new();
    for project in &projects {
        let tally = run(&clusters, project, most).await;
        let mut own_rules = BTreeSet::new();
        project.definitions.iter().for_each(|crd| messages(crd, &mut own_rules));
        let examples: usize = project.examples.iter().map(|(_, objects)| objects.len()).sum();
        println!(
            "ecosystem: {}: {} definitions, {examples} examples; {} requests compared, {} accepted, {} refused, {} of them \
             by {} of {} rules; {} differ as docs/parity.md says, {} otherwise",
            project.name,
            project.definitions.len(),
            tally.sent,
            tally.accepted,
            tally.refused,
            tally.by_rule,
            tally.rules.len(),
            own_rules.len(),
            tally.excepted,
            tally.unknown.len(),
        );
        assert!(examples > 0 && tally.refused > 0, "{}: nothing was tested", project.name);
        unknown.extend(tally.unknown);
    }
    if let Ok(path) = std::env::var("CONDUCTOR_PARITY_REPORT") {
        std::fs::write(path, unknown.join("\n")).unwrap();
    }
    let head: Vec<&String> = unknown.iter().take(100).collect();
    assert!(unknown.is_empty(), "{} unknown differences: {head:#?}", unknown.len());
}

/// Installs a project's definitions on both clusters, sends its objects and removes the definitions again.
async fn run(clusters: &Clusters, project: &Project, most: usize) -> Tally {
    let mut tally = Tally::default();
    for crd in &project.definitions {
        let path = format!("{CRDS}/{}", text(&crd["metadata"]["name"]));
        // An interrupted run may have left it.
        clusters.real.send(&Request::new("DELETE", &path)).await;
        clusters.until(&path, |answer| answer.code == 404).await;
        clusters.send(&project.name, &Request::json("POST", CRDS, crd), &mut tally).await;
    }
    for crd in &project.definitions {
        let path = format!("{CRDS}/{}", text(&crd["metadata"]["name"]));
        clusters
            .until(&path, |answer| {
                let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let is = |kind: &str| conditions.iter().any(|own| own["type"] == kind);
                let community = text(&crd["spec"]["group"]).ends_with(".k8s.io");
                conditions.iter().any(|own| own["type"] == "Established" && own["status"] == "True")
                    && (!community || is("KubernetesAPIApprovalPolicyConformant"))
            })
            .await;
        let (group, plural) = (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]));
        for version in crd["spec"]["versions"].as_array().into_iter().flatten().filter(|own| own["served"] == true) {
            clusters
                .until(&format!("/apis/{group}/{}/{plural}", text(&version["name"])), |answer| answer.code == 200)
                .await;
        }
        clusters.send(&project.name, &Request::new("GET", &path), &mut tally).await;
    }
    let by_kind: BTreeMap<(&str, &str), &Value> = project
        .definitions
        .iter()
        .map(|crd| ((text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["kind"])), crd))
        .collect();
    let by_kind = &by_kind;
    let parts = futures::stream::iter(&project.examples)
        .map(|(file, objects)| async move {
            let mut tally = Tally::default();
            let name = format!("{} {file}", project.name);
            let space = conductor_testkit::unique("ecosystem");
            for cluster in [&clusters.real, &clusters.ours] {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}});
                cluster.send(&Request::json("POST", "/api/v1/namespaces", &namespace)).await.ok();
            }
            for object in objects {
                example(clusters, &name, by_kind, object, &space, most, &mut tally).await;
            }
            for cluster in [&clusters.real, &clusters.ours] {
                cluster.send(&Request::new("DELETE", format!("/api/v1/namespaces/{space}"))).await;
            }
            // The namespace has another name in every run.
            tally.unknown.iter_mut().for_each(|found| *found = found.replace(&space, "{{ns}}"));
            tally
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<Tally>>()
        .await;
    for crd in &project.definitions {
        let path = format!("{CRDS}/{}", text(&crd["metadata"]["name"]));
        for cluster in [&clusters.real, &clusters.ours] {
            cluster.send(&Request::new("DELETE", &path)).await;
        }
    }
    parts.into_iter().fold(tally, Tally::add)
}

/// One example: made, read, applied, changed, deleted; and its broken variants, tried only.
async fn example(
    clusters: &Clusters,
    name: &str,
    by_kind: &BTreeMap<(&str, &str), &Value>,
    object: &Value,
    space: &str,
    most: usize,
    tally: &mut Tally,
) {
    let Some((group, version)) = text(&object["apiVersion"]).split_once('/') else { return };
    let crd = by_kind[&(group, text(&object["kind"]))];
    let plural = text(&crd["spec"]["names"]["plural"]);
    let mut object = object.clone();
    let all = match crd["spec"]["scope"] == "Namespaced" {
        true => {
            object["metadata"]["namespace"] = space.into();
            format!("/apis/{group}/{version}/namespaces/{space}/{plural}")
        }
        false => {
            // Objects of two files may have one name, and these are worked on at once.
            let own = format!("{space}-{}", text(&object["metadata"]["name"]));
            object["metadata"]["name"] = own.into();
            format!("/apis/{group}/{version}/{plural}")
        }
    };
    let (made, _) =
        clusters.send(name, &Request::json("POST", format!("{all}?fieldManager=maker"), &object), tally).await;
    let own = format!("{all}/{}", text(&made.body["metadata"]["name"]));
    if made.code == 201 {
        clusters.send(name, &Request::new("GET", &own), tally).await;
        let apply = Request::json("PATCH", format!("{own}?fieldManager=applier&force=true"), &object);
        clusters.send(name, &apply.header("content-type", "application/apply-patch+yaml"), tally).await;
    }
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let schema = versions.filter(|own| own["name"] == version).map(|own| &own["schema"]["openAPIV3Schema"]).next();
    for (what, mut variant) in variants(&object, schema.unwrap_or(&Value::Null), most) {
        let fields = variant["metadata"].as_object_mut();
        let renamed = fields.map(|meta| meta.insert("name".into(), "variant".into()));
        assert!(renamed.is_some(), "an example without metadata");
        let path = format!("{all}?dryRun=All");
        let place = format!("{name} ({what})");
        clusters.send(&place, &Request::json("POST", path, &variant), tally).await;
    }
    if made.code == 201 {
        clusters.send(name, &Request::new("DELETE", &own), tally).await;
    }
}
