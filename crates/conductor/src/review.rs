//! Refusals: the engine's one review, through the admission seam of the embedded server.
//!
//! On Kubernetes a webhook calls the same ([`crate::webhook`]). Nothing depends on it for correctness: what slips through is inactive and says why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use conductor_apiserver::admission::{Admission, Attributes, BoxFuture, Operation as Verb};
use conductor_claims::extract::class_fields;
use conductor_claims::lifecycle::PROVISIONED_FOR;
use conductor_claims::review::{Operation, Request, Snapshot, Verdict, review};
use conductor_claims::types::{ResourceType, incompatibilities};
use conductor_machinery::status::Status;
use conductor_managers::Api;
use conductor_managers::api::{Names, Sink, Watch};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::Notify;

/// What the review knows of the rest; filled by watches.
#[derive(Default)]
pub struct Known {
    api: OnceLock<Api>,
    types: RwLock<BTreeMap<String, ResourceType>>,
    managers: RwLock<BTreeMap<String, Value>>,
    /// Told when a type has come, changed or gone.
    pub changed: Notify,
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

    /// The API groups of all types.
    pub fn groups(&self) -> BTreeSet<String> {
        self.types.read().values().map(|kind| kind.group.clone()).collect()
    }

    /// All objects of a type whose change they might not survive; none if they cannot be read, for then the change is not let through.
    async fn objects(&self, object: &Value, old: &Value) -> Option<Vec<Value>> {
        let (old, new) = (ResourceType::parse(old).ok()?, ResourceType::parse(object).ok()?);
        if incompatibilities(&old, &new, None).is_empty() {
            return None;
        }
        self.api.get()?.objects_of(&old).await.ok()
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

    /// What the server says about the kinds of a class' templates, if they, or what becomes of what they make, are new; what it does not
    /// say now, it says when the objects are made.
    async fn schemas(&self, types: &[ResourceType], kind: &str, object: &Value, old: &Value) -> Vec<Value> {
        let volumes = kind == "VolumeTemplate";
        // what was made from a class was judged there
        let own = object["metadata"]["annotations"][PROVISIONED_FOR].is_null();
        let resource = |t: &ResourceType| own && t.names.resource == kind;
        let makes = volumes || types.iter().any(|t| t.names.class == kind || resource(t));
        let policy = |object: &Value| class_fields(object)["reclaimPolicy"].clone();
        let same = templates(object) == templates(old) && policy(object) == policy(old);
        let said =
            ["readyWhen", "connection", "volume"].iter().all(|key| class_fields(object)[key] == class_fields(old)[key]);
        if !makes || same && said {
            return Vec::new();
        }
        let versions = templates(object).into_iter().filter_map(|template| template["apiVersion"].as_str());
        let versions = versions.chain(["v1", "storage.k8s.io/v1"].into_iter().filter(|_| volumes));
        let versions: BTreeSet<&str> = versions.filter(|v| !v.contains(['?', '#', '%', '$', ' '])).collect();
        let mut documents = Vec::new();
        for version in versions {
            let root = if version.contains('/') { "apis" } else { "api" };
            if let Some(api) = self.api.get()
                && let Ok(Some(document)) = api.read(&format!("/openapi/v3/{root}/{version}")).await
            {
                documents.push(document);
            }
        }
        documents
    }
}

/// The templates of a class, or of what makes volumes.
fn templates(object: &Value) -> Vec<&Value> {
    let fields = class_fields(object);
    let several = fields["templates"].as_array().into_iter().flatten().map(|item| &item["template"]);
    std::iter::once(&fields["template"]).chain(several).filter(|template| template.is_object()).collect()
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
            self.known.changed.notify_one();
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

/// What a review lets through with advice, or refuses and why.
pub type Reviewed = Result<Vec<String>, String>;

impl Known {
    /// Whether a kind is one the review has something to say about.
    fn concerns(&self, group: &str, kind: &str) -> bool {
        match (group, kind) {
            ("conductor.io", "ResourceType" | "Manager" | "VolumeTemplate") => true,
            ("", "Pod" | "Service") | ("networking.k8s.io", "Ingress") => true,
            _ => {
                let own = |t: &ResourceType| {
                    t.group == group && [&t.names.resource, &t.names.claim, &t.names.class].iter().any(|n| **n == kind)
                };
                self.types.read().values().any(own)
            }
        }
    }

    /// Whether a request for an object, not for its subresources, may go through.
    pub async fn review(&self, group: &str, kind: &str, name: &str, request: &Request<'_>) -> Reviewed {
        if !self.concerns(group, kind) {
            return Ok(Vec::new());
        }
        // what is on its way out only loses its finalizers
        if request.operation == Operation::Update && !request.object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Vec::new());
        }
        let (mut claims, mut resources) = (0, 0);
        if (group, kind, request.operation) == ("conductor.io", "ResourceType", Operation::Delete)
            && let Ok(going) = ResourceType::parse(request.old)
        {
            let all = match self.api.get() {
                Some(api) => api.objects_of(&going).await.unwrap_or_default(),
                None => Vec::new(),
            };
            let count = |kind: &str| all.iter().filter(|object| object["kind"] == kind).count();
            (claims, resources) = (count(&going.names.claim), count(&going.names.resource));
        }
        let objects = match (kind, request.operation) {
            ("ResourceType", Operation::Update) => self.objects(request.object, request.old).await,
            _ => None,
        };
        let ours = group == "conductor.io";
        let types: Vec<ResourceType> =
            self.types.read().values().filter(|t| ours || t.group == group).cloned().collect();
        let managers: Vec<Value> =
            if kind == "Manager" { self.managers.read().values().cloned().collect() } else { Vec::new() };
        let class = match request.operation {
            Operation::Update => self.class_of(&types, kind, request.object, request.old).await,
            _ => None,
        };
        let openapi = match request.operation {
            Operation::Delete => Vec::new(),
            _ => self.schemas(&types, kind, request.object, request.old).await,
        };
        let (class, objects) = (class.as_ref(), objects.as_deref());
        let snapshot =
            Snapshot { types: &types, managers: &managers, claims, resources, objects, class, openapi: &openapi };
        match review(request, &snapshot) {
            Verdict::Allow(warnings) => Ok(warnings),
            Verdict::Refuse(errors) => {
                let message = errors.iter().map(|e| e.to_string().trim_start_matches(": ").to_owned());
                let message = message.collect::<Vec<_>>().join("; ");
                let what = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
                Err(format!("{what} {name:?} is refused: {message}"))
            }
        }
    }
}

/// The review as a part of admission.
pub struct Review(pub Arc<Known>);

impl Review {
    async fn judge(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let operation = match attributes.operation {
            Verb::Create => Operation::Create,
            Verb::Update => Operation::Update,
            Verb::Delete => Operation::Delete,
            Verb::Connect => return Ok(()),
        };
        if !attributes.subresource.is_empty() {
            return Ok(());
        }
        let request = Request { operation, object: &attributes.object, old: attributes.old };
        let (group, kind) = (&attributes.resource.group, &attributes.resource.kind);
        match self.0.review(group, kind, attributes.name, &request).await {
            Ok(warnings) => {
                attributes.warnings.extend(warnings);
                Ok(())
            }
            Err(message) => Err(Status::new(422, "Invalid", &message)),
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
