//! Refusals on the embedded server: the engine's one review, through the admission seam.
//!
//! On Kubernetes a webhook calls the same. Nothing depends on it for correctness: what slips through is inactive and says why.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use conductor_apiserver::admission::{Admission, Attributes, BoxFuture, Operation as Verb};
use conductor_claims::review::{Operation, Request, Snapshot, Verdict, review};
use conductor_claims::types::ResourceType;
use conductor_machinery::status::Status;
use conductor_managers::Api;
use conductor_managers::api::{Names, Sink, Watch};
use parking_lot::RwLock;
use serde_json::Value;

/// What the review knows of the rest; filled by watches.
#[derive(Default)]
pub struct Known {
    api: OnceLock<Api>,
    types: RwLock<BTreeMap<String, ResourceType>>,
    managers: RwLock<BTreeMap<String, Value>>,
}

impl Known {
    /// Begins to follow ResourceTypes and Managers; until then only what needs neither is reviewed.
    pub fn follow(self: &Arc<Known>, api: &Api) {
        let _ = self.api.set(api.clone());
        for kind in ["ResourceType", "Manager"] {
            let sink = Arc::new(Follower { known: self.clone(), managers: kind == "Manager" });
            tokio::spawn(Watch::all("conductor.io/v1alpha1", kind).run(api.clone(), sink));
        }
    }

    /// How many objects of a kind there are; none if they cannot be counted, for then the type's own finalizer holds it.
    async fn count(&self, api_version: &str, kind: &str) -> usize {
        match self.api.get() {
            Some(api) => api.list(api_version, kind, "").await.map_or(0, |all| all.len()),
            None => 0,
        }
    }

    /// The class of a bound claim that asks for other amounts; none if it cannot be read, for then its manager says what becomes of it.
    async fn class_of(&self, types: &[ResourceType], kind: &str, object: &Value, old: &Value) -> Option<Value> {
        let of = types.iter().find(|t| t.names.claim == kind)?;
        let class = old["status"]["class"].as_str().filter(|class| !class.is_empty())?;
        if object["spec"]["resources"] == old["spec"]["resources"] {
            return None;
        }
        self.api.get()?.get(&of.api_version(), &of.names.class, "", class).await.ok().flatten()
    }
}

struct Follower {
    known: Arc<Known>,
    managers: bool,
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

impl Sink for Follower {
    fn apply(&self, object: Value) {
        if self.managers {
            self.known.managers.write().insert(name(&object), object);
        } else if let Ok(kind) = ResourceType::parse(&object) {
            self.known.types.write().insert(name(&object), kind);
        }
    }

    fn delete(&self, object: Value) {
        if self.managers {
            self.known.managers.write().remove(&name(&object));
        } else {
            self.known.types.write().remove(&name(&object));
        }
    }

    fn synced(&self, names: &Names) {
        let there = |name: &String| names.contains(&(String::new(), name.clone()));
        if self.managers {
            self.known.managers.write().retain(|name, _| there(name));
        } else {
            self.known.types.write().retain(|name, _| there(name));
        }
    }
}

/// The review as a part of admission.
pub struct Review(pub Arc<Known>);

impl Review {
    /// Whether a kind is one the review has something to say about.
    fn concerns(&self, group: &str, kind: &str) -> bool {
        match (group, kind) {
            ("conductor.io", "ResourceType" | "Manager" | "VolumeTemplate") => true,
            ("", "Pod" | "Service") | ("networking.k8s.io", "Ingress") => true,
            _ => {
                let own = |t: &ResourceType| {
                    t.group == group && [&t.names.resource, &t.names.claim, &t.names.class].iter().any(|n| **n == kind)
                };
                self.0.types.read().values().any(own)
            }
        }
    }

    async fn judge(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let (group, kind) = (attributes.resource.group.to_string(), attributes.resource.kind.to_string());
        let operation = match attributes.operation {
            Verb::Create => Operation::Create,
            Verb::Update => Operation::Update,
            Verb::Delete => Operation::Delete,
            Verb::Connect => return Ok(()),
        };
        if !attributes.subresource.is_empty() || !self.concerns(&group, &kind) {
            return Ok(());
        }
        // what is on its way out only loses its finalizers
        if operation == Operation::Update && !attributes.object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let (mut claims, mut resources) = (0, 0);
        if (group.as_str(), kind.as_str(), operation) == ("conductor.io", "ResourceType", Operation::Delete)
            && let Ok(going) = ResourceType::parse(attributes.old)
        {
            claims = self.0.count(&going.api_version(), &going.names.claim).await;
            resources = self.0.count(&going.api_version(), &going.names.resource).await;
        }
        let ours = group == "conductor.io";
        let types: Vec<ResourceType> =
            self.0.types.read().values().filter(|t| ours || t.group == group).cloned().collect();
        let managers: Vec<Value> =
            if kind == "Manager" { self.0.managers.read().values().cloned().collect() } else { Vec::new() };
        let class = match operation {
            Operation::Update => self.0.class_of(&types, &kind, &attributes.object, attributes.old).await,
            _ => None,
        };
        let snapshot = Snapshot { types: &types, managers: &managers, claims, resources, class: class.as_ref() };
        let request = Request { operation, object: &attributes.object, old: attributes.old };
        match review(&request, &snapshot) {
            Verdict::Allow(warnings) => {
                attributes.warnings.extend(warnings);
                Ok(())
            }
            Verdict::Refuse(errors) => {
                let message = errors.iter().map(|e| e.to_string().trim_start_matches(": ").to_owned());
                let message = message.collect::<Vec<_>>().join("; ");
                let what = if group.is_empty() { kind } else { format!("{kind}.{group}") };
                let message = format!("{what} {:?} is refused: {message}", attributes.name);
                Err(Status::new(422, "Invalid", &message))
            }
        }
    }
}

impl Admission for Review {
    fn name(&self) -> &'static str {
        "ConductorReview"
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(self.judge(attributes))
    }
}
