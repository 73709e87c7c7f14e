//! A toy API server: objects, versions, preconditions, finalizers. And managers that look at it, late or not.
#![allow(dead_code, reason = "each test uses its part")]

pub mod objects;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use conductor_claims::extract;
use conductor_claims::invariants::World;
use conductor_claims::lifecycle::{
    CLAIM_UID, ClaimScene, Connection, Found, GRANTED, Plan, Presence, REPLACED, RESOURCE_UID, ROTATE, ResourceScene,
    Target, Verb, Version, Write, binding_name, claim, implementations, is_asked_of_another, is_leaving, orphan, owner,
    resource,
};
use conductor_claims::matching::{Decision, Index, NoJudge, Reason};
use conductor_claims::template::Paths;
use conductor_claims::types::ResourceType;
use serde_json::{Map, Value, json};

pub type Key = (String, String, String);

#[derive(Clone, Default)]
pub struct Api {
    pub objects: BTreeMap<Key, Value>,
    counter: u64,
}

pub fn key(target: &Target) -> Key {
    (target.kind.clone(), target.namespace.clone(), target.name.clone())
}

pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (k, v) in patch {
        let map = target.as_object_mut().expect("an object");
        if v.is_null() {
            map.remove(k);
        } else {
            merge(map.entry(k.clone()).or_insert(Value::Null), v);
        }
    }
}

impl Api {
    fn stamp(&mut self, object: &mut Value) {
        self.counter += 1;
        object["metadata"]["resourceVersion"] = json!(self.counter.to_string());
    }

    pub fn create(&mut self, mut object: Value) -> Result<String, String> {
        let key = key(&Target::of(&object));
        if self.objects.contains_key(&key) {
            return Err(format!("{key:?} exists"));
        }
        self.counter += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.counter));
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        object.as_object_mut().expect("an object").remove("status");
        self.stamp(&mut object);
        let version = object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
        self.objects.insert(key, object);
        Ok(version)
    }

    pub fn delete(&mut self, key: &Key) {
        let Some(mut object) = self.objects.remove(key) else { return };
        if object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
                self.stamp(&mut object);
            }
            self.objects.insert(key.clone(), object);
        }
    }

    pub fn patch(&mut self, key: &Key, patch: &Value, status: bool) {
        let Some(mut object) = self.objects.remove(key) else { return };
        let before = object.clone();
        if status {
            merge(&mut object["status"], &patch["status"]);
        } else {
            let mut patch = patch.clone();
            patch.as_object_mut().expect("a patch").remove("status");
            merge(&mut object, &patch);
        }
        if object != before {
            self.stamp(&mut object);
        }
        let done = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        if done && !object["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        self.objects.insert(key.clone(), object);
    }

    /// Sends one write; `versions` are those that earlier writes of the list yielded.
    pub fn send(&mut self, write: &Write, versions: &[String]) -> Result<String, String> {
        let key = key(&write.target);
        if write.verb == Verb::Create {
            return self.create(write.body.clone());
        }
        let live = self.objects.get(&key).ok_or_else(|| format!("{key:?} is not there"))?;
        if !write.uid.is_empty() && live["metadata"]["uid"].as_str() != Some(&write.uid) {
            return Err(format!("{key:?} is another"));
        }
        let wanted = match &write.version {
            Version::Any => None,
            Version::Exactly(version) => Some(version.as_str()),
            Version::After(earlier) => versions.get(*earlier).map(String::as_str),
        };
        if wanted.is_some() && live["metadata"]["resourceVersion"].as_str() != wanted {
            return Err(format!("{key:?} has changed"));
        }
        match write.verb {
            Verb::Delete => self.delete(&key),
            _ => self.patch(&key, &write.body, write.target.status),
        }
        let version = self.objects.get(&key).map(|o| o["metadata"]["resourceVersion"].clone());
        Ok(version.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Sends a plan in order, at most `cut` writes of it, until one fails. Whether all went through.
    pub fn execute(&mut self, plan: &Plan, cut: usize, mut after: impl FnMut(&Api)) -> bool {
        let mut versions = Vec::new();
        for write in plan.writes.iter().take(cut) {
            match self.send(write, &versions) {
                Ok(version) => versions.push(version),
                Err(_) => return false,
            }
            after(self);
        }
        plan.writes.len() <= cut
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        self.objects.iter().filter(move |((k, _, _), _)| k == kind)
    }

    pub fn world<'a>(&'a self, kind: &'a ResourceType) -> World<'a> {
        let labelled = |o: &&Value| o["metadata"]["labels"][RESOURCE_UID].is_string();
        World {
            kind,
            claims: Some(self.of_kind(&kind.names.claim).map(|(_, o)| o).collect()),
            resources: self.of_kind(&kind.names.resource).map(|(_, o)| o).collect(),
            implementations: self.objects.values().filter(labelled).collect(),
        }
    }

    fn by_uid(&self, uid: &str) -> Option<&Value> {
        self.objects.values().find(|o| o["metadata"]["uid"].as_str() == Some(uid))
    }

    pub fn index(&self, kind: &ResourceType) -> Index {
        let rules = kind.rules();
        let mut index = Index::new(rules.clone());
        for (_, object) in self.of_kind(&kind.names.resource) {
            index.upsert(extract::offer(&rules, object));
        }
        for (_, object) in self.of_kind(&kind.names.class) {
            index.set_profile(extract::profile(&rules, object, true).expect("a class"));
        }
        index
    }

    /// The claim's plan, as a manager that sees this state makes it.
    pub fn claim_plan(&self, kind: &ResourceType, key: &Key, consumers: &[String]) -> Plan {
        self.claim_plan_without(kind, key, consumers, &[])
    }

    /// The same where some of its connection objects, or its growth, were refused.
    pub fn claim_plan_without(
        &self,
        kind: &ResourceType,
        key: &Key,
        consumers: &[String],
        refused: &[(&'static str, String)],
    ) -> Plan {
        let Some(object) = self.objects.get(key) else { return Plan::default() };
        let rules = kind.rules();
        let ask = extract::ask(&rules, object, true, None).expect("a claim");
        let index = self.index(kind);
        let decision = index.decide(&ask, &NoJudge);
        let made = ClaimScene::made_name(kind, object);
        let name = match &decision {
            Decision::Bind { resource, .. } => resource.to_string(),
            Decision::Provision { .. } => made,
            Decision::Wait { reason: Reason::ReservedRefused(resource, _), .. } => resource.to_string(),
            Decision::Wait { .. } => ask.resource_name.as_ref().map_or_else(|| made, |n| n.to_string()),
        };
        let named = object["spec"]["resourceName"].as_str().unwrap_or(&name).to_owned();
        let get =
            |kind: &str, namespace: &str, name: &str| self.objects.get(&(kind.into(), namespace.into(), name.into()));
        let live = get(&kind.names.resource, "", &named);
        let class = index.class_of(&ask).and_then(|c| get(&kind.names.class, "", &c));
        let binding = binding_name(kind, object);
        let namespace = &key.1;
        let thing = live.and_then(|r| {
            get("Thing", "conductor-system", r["status"]["implementationRef"].as_str().unwrap_or_default())
        });
        let details: Option<Map<String, Value>> = thing.and_then(|i| i["status"]["details"].as_object().cloned());
        let binary = thing.and_then(|i| i["status"]["binary"].as_object().cloned());
        let (growth, refused): (Vec<_>, Vec<_>) = refused.iter().cloned().partition(|(purpose, _)| *purpose == GRANTED);
        claim(&ClaimScene {
            kind,
            claim: object,
            decision: Some(&decision),
            resource: live,
            class,
            consumers,
            connection: Connection {
                details: details.as_ref(),
                binary: binary.as_ref(),
                provider: Some("Thing"),
                missing: &[],
                rotation: thing.and_then(|i| i["status"]["rotated"].as_i64()).unwrap_or(0),
                secret: get("Secret", namespace, &binding),
                config_map: get("ConfigMap", namespace, &binding),
                service: get("Service", namespace, &binding),
                endpoints: get("EndpointSlice", namespace, &binding),
                refused: &refused,
            },
            growth_refused: growth.first().map(|(_, why)| why.as_str()),
            expressions: &Paths,
            now: "2026-01-01T00:00:02Z",
        })
    }

    /// The resource's plan. Whether a claim is gone is asked of `truth`, as a manager asks the server itself.
    pub fn resource_plan(&self, kind: &ResourceType, key: &Key, truth: &Api) -> Plan {
        let Some(object) = self.objects.get(key) else { return Plan::default() };
        let intended = implementations(kind, object, &Paths).unwrap_or_default();
        let found: Vec<Found<'_>> = intended
            .iter()
            .map(|i| {
                let live = self.objects.get(&self::key(&i.target));
                let owner = live.and_then(|o| o["metadata"]["labels"][RESOURCE_UID].as_str());
                Found { object: live, other_owner: owner.is_some_and(|u| self.by_uid(u).is_some()) }
            })
            .collect();
        let bound = |claim: &&Value| claim["spec"]["resourceName"] == object["metadata"]["name"];
        let mut refs = object["spec"]["claimRefs"].as_array().into_iter().flatten();
        let referred = refs.any(|r| r["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
        let claims = truth.objects.values().filter(|o| o["kind"] == kind.names.claim.as_str() && !referred);
        let torn: Vec<Value> = claims.filter(bound).cloned().collect();
        resource(&ResourceScene {
            kind,
            resource: object,
            torn: &torn,
            claims: &|uid| match (self.by_uid(uid), truth.by_uid(uid)) {
                // whether it names one that is to go is asked of the server itself
                (_, Some(claim)) if is_leaving(object) => Presence::Alive(claim),
                (Some(claim), Some(_)) => Presence::Alive(claim),
                (_, None) => Presence::Gone,
                (None, Some(_)) => Presence::Unknown,
            },
            found: &found,
            expressions: &Paths,
            now: "2026-01-01T00:00:02Z",
        })
    }

    pub fn orphan_plans(&self, truth: &Api) -> Vec<Plan> {
        let gone = self.objects.values().filter(|o| owner(o).is_some_and(|uid| truth.by_uid(uid).is_none()));
        gone.map(orphan).filter(|p| !p.is_empty()).collect()
    }

    /// What a provider does with one of its objects.
    pub fn provide(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key) else { return };
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let replaced = object["metadata"]["annotations"][REPLACED].as_str().and_then(|n| n.parse().ok()).unwrap_or(0);
        let (mut rotated, mut retired) = (number(&object["status"]["rotated"]), number(&object["status"]["retired"]));
        if replaced >= rotated {
            // of credentials, all from before the last rotation that everyone has end, and then the next may begin
            retired = rotated;
            let by_resource =
                object["metadata"]["annotations"][ROTATE].as_str().and_then(|n| n.parse().ok()).unwrap_or(0);
            rotated = rotated.max(number(&object["spec"]["rotate"])).max(by_resource);
        }
        let mut status = json!({
            "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}],
            "details": {"host": "10.0.0.7", "port": "5432", "username": "u", "password": format!("p{rotated}")},
            "rotated": rotated, "retired": retired,
        });
        if let Some(host) = object["metadata"]["annotations"]["test/host"].as_str() {
            status["details"]["host"] = json!(host);
        }
        if object["metadata"]["annotations"]["test/silent"].is_string() {
            status["details"] = Value::Null;
        }
        if let Some(size) = object["spec"]["size"].as_str() {
            status["capacity"] = json!({"storage": size});
        }
        if let Some(report) = object["metadata"]["annotations"]["test/report"].as_str() {
            // all of it, and nothing of what was reported before
            let report: Value = serde_json::from_str(report).expect("a report");
            for key in ["capacity", "attributes"] {
                status[key] = report[key].clone();
                for old in object["status"][key].as_object().into_iter().flatten().map(|(old, _)| old) {
                    if report[key].is_object() && report[key][old].is_null() {
                        status[key][old] = Value::Null;
                    }
                }
            }
        }
        if object["metadata"]["annotations"]["test/lost"].is_string() {
            status["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": "Lost", "message": "gone"});
        }
        if object["metadata"]["annotations"]["test/never"].is_string() {
            status["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": "Busy", "message": "wait"});
        }
        if let Some(number) = object["spec"]["scrub"].as_i64().filter(|_| !is_asked_of_another(object)) {
            status["scrubbed"] = json!(number);
            let answer = object["metadata"]["annotations"]["test/scrubbed"].as_str().unwrap_or("True");
            let told = json!({"type": "Scrubbed", "status": answer, "reason": "Zeroed", "message": ""});
            status["conditions"].as_array_mut().expect("a list").extend((!answer.is_empty()).then_some(told));
        }
        self.patch(&key.clone(), &json!({"status": status}), true);
    }

    /// Claims whose Secret has credentials that what is behind them no longer takes.
    pub fn locked_out(&self, kind: &ResourceType) -> Vec<String> {
        let mut all = Vec::new();
        for (key, claim) in self.of_kind(&kind.names.claim) {
            let of = |kind: &str, namespace: &str, name: &Value| {
                self.objects.get(&(kind.into(), namespace.into(), name.as_str().unwrap_or_default().into()))
            };
            let secret = of("Secret", &key.1, &json!(binding_name(kind, claim)));
            let secret = secret.filter(|s| s["metadata"]["labels"][CLAIM_UID] == claim["metadata"]["uid"]);
            let resource = of(&kind.names.resource, "", &claim["spec"]["resourceName"]);
            let holds = |r: &&Value| r["spec"]["claimRefs"].to_string().contains(&claim["metadata"]["uid"].to_string());
            let thing =
                resource.filter(holds).and_then(|r| of("Thing", "conductor-system", &r["status"]["implementationRef"]));
            let (Some(secret), Some(thing)) = (secret, thing) else { continue };
            let has = |n: i64| secret["data"]["password"] == json!(STANDARD.encode(format!("p{n}")));
            let works = |key: &str| thing["status"][key].as_i64().unwrap_or(0);
            if !(works("retired")..=works("rotated")).any(has) {
                all.push(format!("{key:?}: {} {}", secret["data"], thing["status"]));
            }
        }
        all
    }

    /// Everyone works with a fresh look until nothing is left to do.
    pub fn settle(&mut self, kind: &ResourceType) {
        for _ in 0..200 {
            let mut idle = true;
            let keys: Vec<Key> = self.objects.keys().cloned().collect();
            for key in keys {
                let plan = if key.0 == kind.names.claim {
                    self.claim_plan(kind, &key, &[])
                } else if key.0 == kind.names.resource {
                    self.resource_plan(kind, &key, &self.clone())
                } else if key.0 == "Thing" {
                    let before = self.objects.get(&key).cloned();
                    self.provide(&key);
                    idle &= before == self.objects.get(&key).cloned();
                    Plan::default()
                } else {
                    Plan::default()
                };
                idle &= plan.is_empty();
                self.execute(&plan, usize::MAX, |_| {});
            }
            for plan in self.orphan_plans(&self.clone()) {
                idle = false;
                self.execute(&plan, usize::MAX, |_| {});
            }
            if idle {
                return;
            }
        }
        panic!("it never comes to rest: {:#?}", self.objects.values().collect::<Vec<_>>());
    }
}
