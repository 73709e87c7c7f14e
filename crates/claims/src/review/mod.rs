//! Refusals: whether a request may go through, decided from the request and a snapshot.
//!
//! Called by the embedded server's admission and by a validating webhook on Kubernetes. Nothing depends on it for correctness:
//! whatever can race has a deterministic loser as well.

mod fit;
mod managers;
mod objects;

use serde_json::Value;

use crate::errors::{FieldError, Path};
use crate::types::{ResourceType, group_of, incompatibilities};

pub use managers::{NO_DEFAULT, Serving, Standing, serving, standing, stands_for};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A deletion.
    Delete,
}

/// A request to be reviewed; status updates need no review.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// What it does.
    pub operation: Operation,
    /// The object as it would be; null for a deletion.
    pub object: &'r Value,
    /// The object as it is; null for a creation.
    pub old: &'r Value,
}

/// What a kind is to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The resource of a type.
    Resource,
    /// The claim of a type.
    Claim,
    /// The class of a type.
    Class,
}

/// What is known of the rest.
#[derive(Clone, Debug, Default)]
pub struct Snapshot<'s> {
    /// Every resource type.
    pub types: &'s [ResourceType],
    /// Every Manager object.
    pub managers: &'s [Value],
    /// For the deletion of a type: how many claims and resources of it there are.
    pub claims: usize,
    /// See `claims`.
    pub resources: usize,
    /// For the change of a type: all claims, resources and classes of it, if they could be read.
    pub objects: Option<&'s [Value]>,
    /// For the change of a bound claim: its class, if that is known.
    pub class: Option<&'s Value>,
    /// For a class, a resource that an administrator makes, or what makes volumes: the server's OpenAPI documents (v3) about the kinds of its templates, as far as there are any.
    pub openapi: &'s [Value],
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go through, with advice.
    Allow(Vec<String>),
    /// It may not, and why.
    Refuse(Vec<FieldError>),
}

impl Verdict {
    fn of(errors: Vec<FieldError>, warnings: Vec<String>) -> Verdict {
        if errors.is_empty() { Verdict::Allow(warnings) } else { Verdict::Refuse(errors) }
    }
}

impl Snapshot<'_> {
    /// The type a kind belongs to, in whichever version, and what it is there.
    pub fn role(&self, api_version: &str, kind: &str) -> Option<(&ResourceType, Role)> {
        self.types.iter().filter(|t| t.group == group_of(api_version)).find_map(|t| {
            let names = &t.names;
            let roles = [(&names.resource, Role::Resource), (&names.claim, Role::Claim), (&names.class, Role::Class)];
            roles.into_iter().find(|(name, _)| *name == kind).map(|(_, role)| (t, role))
        })
    }
}

/// Whether a request may go through.
pub fn review(request: &Request<'_>, snapshot: &Snapshot<'_>) -> Verdict {
    let about = if request.object.is_null() { request.old } else { request.object };
    let text = |key: &str| about[key].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("conductor.io/v1alpha1", "ResourceType") => resource_type(request, snapshot),
        ("conductor.io/v1alpha1", "Manager") => managers::review(request, snapshot),
        ("conductor.io/v1alpha1", "VolumeTemplate") if request.operation != Operation::Delete => {
            objects::volume_template(request, snapshot.openapi)
        }
        ("v1", "Pod" | "Service") | ("networking.k8s.io/v1", "Ingress") => objects::consumer(request),
        (api_version, kind) => match (snapshot.role(api_version, kind), request.operation) {
            (None, _) | (_, Operation::Delete) => Verdict::Allow(Vec::new()),
            (Some((kind, Role::Resource)), _) => objects::resource(kind, request, snapshot.openapi),
            (Some((kind, Role::Claim)), _) => objects::claim(kind, request, snapshot.class),
            (Some((kind, Role::Class)), _) => objects::class(kind, request, snapshot.openapi),
        },
    }
}

fn resource_type(request: &Request<'_>, snapshot: &Snapshot<'_>) -> Verdict {
    if request.operation == Operation::Delete {
        let (claims, resources) = (snapshot.claims, snapshot.resources);
        if claims + resources == 0 {
            return Verdict::Allow(Vec::new());
        }
        let message = format!("{claims} claims and {resources} resources of this type exist: delete them first");
        return Verdict::Refuse(vec![Path::root().error(message)]);
    }
    let new = match ResourceType::parse(request.object) {
        Ok(new) => new,
        Err(errors) => return Verdict::Refuse(errors),
    };
    let mut errors = Vec::new();
    let names = |t: &ResourceType| [t.names.resource.clone(), t.names.claim.clone(), t.names.class.clone()];
    for other in snapshot.types.iter().filter(|t| t.group == new.group && t.name() != new.name()) {
        if let Some(taken) = names(&new).into_iter().find(|n| names(other).contains(n)) {
            let message = format!("kind {taken} is already one of {}", other.name());
            errors.push(Path::root().field("spec").field("names").error(message));
        }
    }
    // consumers name claims by these words alone
    let words = |t: &ResourceType| {
        [Some(t.names.claim.to_ascii_lowercase()), t.names.short.claim.clone()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    for other in snapshot.types.iter().filter(|t| t.group != new.group && request.operation == Operation::Create) {
        if let Some(taken) = words(&new).into_iter().find(|word| words(other).contains(word)) {
            let message = format!("{taken} is how claims of {} are called already: choose another name", other.name());
            errors.push(Path::root().field("spec").field("names").error(message));
        }
    }
    // what claims have in their namespaces is named after the resource
    let same = |t: &&ResourceType| t.names.resource.eq_ignore_ascii_case(&new.names.resource);
    let elsewhere = snapshot.types.iter().filter(|t| t.group != new.group);
    if let Some(other) = elsewhere.filter(|_| request.operation == Operation::Create).find(same) {
        let message = format!(
            "{} is what resources of {} are called already: choose another name",
            new.names.resource,
            other.name()
        );
        errors.push(Path::root().field("spec").field("names").field("resource").error(message));
    }
    // an old object that was never valid binds nobody
    if request.operation == Operation::Update
        && let Ok(old) = ResourceType::parse(request.old)
    {
        errors.extend(incompatibilities(&old, &new, snapshot.objects));
    }
    Verdict::of(errors, Vec::new())
}
