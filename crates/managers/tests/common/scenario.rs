//! Scenarios: every rule as data. Each file of `scenarios/` has steps; each step does something or expects something.
//!
//! `apply`, `manifests` (files of `seeds/`, to the letter), `delete`, `status` (what a provider or a kubelet would write), `made` (the same to what was made for a claim, or its deletion), `refer` (an administrator's reference by uid), `expect` (objects that cover these come to be),
//! `later: true` (what the step makes is younger than what there is: creation is noted in whole seconds), `gone` (objects come not to be), `events` (reasons come to be told about an object), `refused` (what admission does not let in:
//! an object to `apply` or to `delete`, and a part of what it `says`). In expectations null is "not there" and a text that begins
//! with ~ is "contains". A file that says `types: true` needs the built-in types, one that says `admission: true` a server with our
//! review, one that says `admission: false` a bare server, without it and without classes. CONDUCTOR_SCENARIOS names files to run alone.

use std::time::{Duration, Instant};

use conductor_claims::lifecycle::Target;
use conductor_claims::types::{ResourceType, read_yaml};
use http::Method;
use serde_json::{Value, json};

use super::{Cluster, PATIENCE, covers};

pub struct Run {
    pub name: String,
    pub cluster: Cluster,
}

/// An object without what nobody wants to read in a failure.
fn shown(mut object: Value) -> String {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    format!("{object:#}")
}

fn list(step: &Value, key: &str) -> Vec<Value> {
    match &step[key] {
        Value::Array(items) => items.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    }
}

impl Run {
    async fn wait(&self, step: usize, what: &str, mut holds: impl AsyncFnMut() -> Result<(), String>) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(now) = holds().await {
            assert!(Instant::now() < deadline, "{} step {step}: {what}\nbut: {now}", self.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Patches what was made for a claim, under whatever name, once it is there.
    async fn made(&self, number: usize, made: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claim = Target::of(&made["by"]);
        let what = format!("a {} is made for {}", made["kind"], claim.name);
        let found = std::cell::RefCell::new(None);
        self.wait(number, &what, async || {
            let claim = self.cluster.get(&claim).await.ok_or("there is no such claim")?;
            let (version, kind) = (text(&made["apiVersion"]), text(&made["kind"]));
            let all = self.cluster.api.list(&version, &kind, "").await.map_err(|e| e.to_string())?;
            let ends = |o: &Value| text(&o["metadata"]["name"]).ends_with(&text(&claim["metadata"]["uid"]));
            let own = all.into_iter().find(ends).ok_or_else(|| shown(claim))?;
            if made["has"].is_object() && !covers(&own, &made["has"]) {
                return Err(shown(own));
            }
            *found.borrow_mut() = Some(Target::of(&own));
            Ok(())
        })
        .await;
        let target = found.into_inner().expect("it was found");
        if made["delete"] == true {
            self.cluster.delete(&target).await;
        }
        if made["patch"].is_object() {
            self.cluster.patch(&target, made["patch"].clone()).await;
        }
        if made["status"].is_object() {
            self.cluster.patch(&target.status(), json!({"status": made["status"]})).await;
        }
    }

    /// Sends what is to be refused: without effect until it is, for what admission knows comes by watches, then in earnest.
    async fn refused(&self, number: usize, refused: &Value) {
        let deletes = refused["delete"].is_object();
        let object = if deletes { &refused["delete"] } else { &refused["apply"] };
        let target = Target::of(object);
        let exists = self.cluster.get(&target).await.is_some();
        let (method, at) = match (deletes, exists) {
            (true, _) => (Method::DELETE, target),
            (_, true) => (Method::PATCH, target),
            (_, false) => (Method::POST, Target { name: String::new(), ..target }),
        };
        let path = self.cluster.api.path(&at).await.expect("a path");
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if deletes { Vec::new() } else { object.to_string().into_bytes() };
        let says = refused["says"].as_str().expect("what it says");
        let what = format!("expected to be refused ({says}): {object}");
        for path in [format!("{path}?dryRun=All"), path] {
            self.wait(number, &what, async || {
                match self.cluster.api.call(method.clone(), &path, kind, body.clone()).await {
                    Ok(made) if path.ends_with("=All") => Err(shown(made)),
                    Ok(made) => panic!("{} step {number}: {what}\nbut: {}", self.name, shown(made)),
                    Err(failure) if failure.code == 422 && failure.message.contains(says) => Ok(()),
                    Err(failure) => Err(format!("{} {}", failure.code, failure.message)),
                }
            })
            .await;
        }
    }

    /// Makes what a file of `seeds/` says to the letter, as kubectl does: JSON of its YAML, and nothing in it may be unknown. Of a general
    /// form, which has a placeholder for its kind, that is filled in.
    async fn manifest(&self, entry: &Value) {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../managers/tests/seeds");
        let file = file.join(entry["file"].as_str().expect("a file"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let kind = entry["kind"].as_str().unwrap_or_default();
        let text = text.replace("<ClaimName>", kind).replace("<ClassName>", kind);
        let mut object = read_yaml(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        if let Some(namespace) = entry["namespace"].as_str() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        self.cluster.create_with(&object, "?fieldValidation=Strict").await;
    }

    async fn step(&self, number: usize, step: &Value) {
        if step["later"] == true {
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
        for object in list(step, "apply") {
            let target = Target::of(&object);
            let exists = !target.name.is_empty() && self.cluster.get(&target).await.is_some();
            if exists {
                self.cluster.patch(&target, object).await;
            } else {
                self.cluster.create(&object).await;
            }
        }
        for entry in list(step, "manifests") {
            self.manifest(&entry).await;
        }
        for object in list(step, "status") {
            let target = Target::of(&object).status();
            let plain = Target { status: false, ..target.clone() };
            self.wait(number, &format!("{} {} exists", target.kind, target.name), async || {
                self.cluster.get(&plain).await.map(drop).ok_or_else(|| "it does not".to_owned())
            })
            .await;
            self.cluster.patch(&target, json!({"status": object["status"]})).await;
        }
        for made in list(step, "made") {
            self.made(number, &made).await;
        }
        for refer in list(step, "refer") {
            let claim = self.cluster.get(&Target::of(&refer["to"])).await.expect("a claim");
            let meta = &claim["metadata"];
            let own = json!({"uid": meta["uid"], "namespace": meta["namespace"], "name": meta["name"], "by": "Admin"});
            self.cluster.patch(&Target::of(&refer["from"]), json!({"spec": {"claimRefs": [own]}})).await;
        }
        for object in list(step, "delete") {
            self.cluster.delete(&Target::of(&object)).await;
        }
        for refused in list(step, "refused") {
            self.refused(number, &refused).await;
        }
        for expected in list(step, "expect") {
            let target = Target::of(&expected);
            self.wait(number, &format!("expected {expected:#}"), async || match self.cluster.get(&target).await {
                Some(live) if covers(&live, &expected) => Ok(()),
                Some(live) => Err(shown(live)),
                None => Err("it is not there".to_owned()),
            })
            .await;
        }
        for object in list(step, "gone") {
            let target = Target::of(&object);
            self.wait(number, &format!("expected to be gone: {target:?}"), async || {
                self.cluster.get(&target).await.map_or(Ok(()), |live| Err(shown(live)))
            })
            .await;
        }
        for expected in list(step, "events") {
            self.wait(number, &format!("expected event {expected}"), async || {
                let events = self.cluster.api.list("v1", "Event", "").await.map_err(|e| e.to_string())?;
                let told = events.iter().any(|e| covers(e, &expected));
                if told {
                    Ok(())
                } else {
                    Err(format!("told were {:?}", events.iter().map(|e| &e["message"]).collect::<Vec<_>>()))
                }
            })
            .await;
        }
    }
}

/// A file.
pub struct Scenario {
    pub name: String,
    content: Value,
}

impl Scenario {
    /// All of them, or those that CONDUCTOR_SCENARIOS names.
    pub fn all() -> Vec<Scenario> {
        let only = std::env::var("CONDUCTOR_SCENARIOS").unwrap_or_default();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../managers/tests/scenarios");
        let mut files: Vec<_> =
            std::fs::read_dir(folder).expect("scenarios").filter_map(|f| Some(f.ok()?.path())).collect();
        files.sort();
        let mut all = Vec::new();
        for file in files {
            let name = file.file_stem().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
            if only.is_empty() || only.split(',').any(|o| o == name) {
                let text = std::fs::read_to_string(&file).expect("a scenario");
                let content = read_yaml(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
                all.push(Scenario { name, content });
            }
        }
        all
    }

    /// The types that it makes, as far as they can be read.
    pub fn made_types(&self) -> Vec<ResourceType> {
        fn collect(value: &Value, found: &mut Vec<ResourceType>) {
            if value["kind"] == "ResourceType" {
                found.extend(ResourceType::parse(value));
            }
            match value {
                Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
                Value::Object(fields) => fields.values().for_each(|field| collect(field, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        collect(&self.content, &mut found);
        found
    }

    /// Whether it needs the built-in types.
    pub fn types(&self) -> bool {
        self.content["types"] == true
    }

    /// Whether it needs our review at admission, or needs that there is none.
    pub fn admission(&self) -> Option<bool> {
        self.content["admission"].as_bool()
    }

    /// Whether it is about PersistentVolumes, which one alone may bind.
    pub fn volumes(&self) -> bool {
        self.content.to_string().contains("\"PersistentVolume")
    }

    /// Runs it; managers are running. At its end every invariant holds.
    pub async fn run(&self, cluster: Cluster) -> Cluster {
        let run = Run { name: self.name.clone(), cluster };
        run.cluster.namespace("apps").await;
        for (number, step) in list(&self.content, "steps").iter().enumerate() {
            run.step(number, step).await;
        }
        run.wait(usize::MAX, "every invariant holds", async || {
            let audited = conductor_managers::inspect::audit(&run.cluster.api).await.map_err(|e| e.to_string())?;
            let broken: Vec<String> = audited.findings.iter().map(|f| format!("{}: {}", f.object, f.message)).collect();
            if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
        })
        .await;
        run.cluster
    }
}
