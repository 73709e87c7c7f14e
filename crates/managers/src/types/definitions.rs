//! A ResourceType makes three CRDs and keeps them.

use std::collections::BTreeMap;
use std::time::Duration;

use conductor_claims::lifecycle::{Condition, status_patch};
use conductor_claims::types::{
    Names, RETIRED, ResourceType, TYPE, access, crds, incompatibilities, keep_versions, managing,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{API_VERSION, Types};
use crate::api::{Failure, JSON, MERGE};
use crate::clock::now;
use crate::kind::Kind;

/// Holds a type until its definitions are gone.
const FINALIZER: &str = "conductor.io/type";
/// On the definition of the resource: what the type said when it was made.
const APPLIED: &str = "conductor.io/applied-spec";

/// How long an API server may take to hear of a kind: what it still refuses then is refused for another reason.
const HEARD: Duration = Duration::from_secs(120);
/// How often what was refused is tried again: somebody may have given the right to it.
const AGAIN: Duration = Duration::from_secs(60);
/// How often what is in force is applied again.
const KEPT: Duration = Duration::from_secs(600);

/// What of the roles and policies of a type could not be applied.
#[derive(Clone)]
pub(super) struct Guarded {
    /// It is too early for it: it is to be applied again.
    early: Vec<Value>,
    /// By name, what the API server does not take, and why.
    left_out: BTreeMap<String, String>,
    /// The same of the time before: it is in the log already.
    known: BTreeMap<String, String>,
    /// Whether the last try was cut off.
    failed: bool,
    /// When it was tried first.
    since: Instant,
    /// When it was tried last.
    tried: Instant,
}

impl Guarded {
    fn new(since: Instant) -> Guarded {
        let (left_out, known) = Default::default();
        Guarded { early: Vec::new(), left_out, known, failed: false, since, tried: Instant::now() }
    }

    /// To be applied once more.
    fn again(&self) -> Guarded {
        Guarded { known: self.left_out.clone(), ..Guarded::new(self.since) }
    }

    /// Whether all is to be applied again: what was refused soon, what is in force in case somebody has changed it.
    fn is_due(&self) -> bool {
        self.tried.elapsed() >= if self.left_out.is_empty() && !self.failed { KEPT } else { AGAIN }
    }

    fn leave_out(&mut self, guard: &Value, why: &str) {
        let name = text(&guard["metadata"]["name"]);
        if self.known.get(name).is_some_and(|known| known == why) {
            self.left_out.insert(name.to_owned(), why.to_owned());
            return;
        }
        tracing::warn!(kind = text(&guard["kind"]), name, error = %why, "a role or policy of a type could not be applied");
        self.left_out.insert(name.to_owned(), why.to_owned());
    }

    /// Who binds what is left out would be refused, too.
    fn is_in_vain(&self, guard: &Value) -> bool {
        self.left_out.contains_key(text(&guard["spec"]["policyName"]))
    }

    fn condition(&self) -> Condition {
        if let Some((name, why)) = self.left_out.first_key_value() {
            let more = match self.left_out.len() {
                1 => String::new(),
                all => format!(" (and {} more)", all - 1),
            };
            let message = format!(
                "the API server does not take {name}{more}, and what it guards is unguarded; it is tried again every minute: {why}"
            );
            return Condition::new("Guarded", false, "Refused", message);
        }
        if !self.early.is_empty() {
            let message = "policies are applied again until the API server knows the kinds they speak of";
            return Condition::new("Guarded", false, "TooEarly", message);
        }
        Condition::new("Guarded", true, "Applied", "its roles and policies are applied")
    }
}

/// Whether an API server asks who writes a policy or binds it whether they may read its parameters, and does not know yet what these are.
/// Kubernetes hears of a new kind within half a minute; until then one would have to be able to read everything.
fn is_early(failure: &Failure) -> bool {
    let unknown = ["to determine minimum required permissions", "on all objects of the referenced paramKind"];
    unknown.iter().any(|said| failure.message.contains(said))
}

fn path(name: &str) -> String {
    format!("/apis/{API_VERSION}/resourcetypes/{name}")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Types {
    /// Brings one type up: definitions, desk, status.
    pub(super) async fn define(&self, object: &Value) -> Result<(), Failure> {
        let name = text(&object["metadata"]["name"]);
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return self.retire(object).await;
        }
        let kind = match ResourceType::parse(object) {
            Ok(kind) => kind,
            Err(errors) => {
                let message = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                return self.say(object, &[Condition::new("Ready", false, "Invalid", message)]).await;
            }
        };
        if name != kind.name() {
            let message = format!("it must be named {}", kind.name());
            return self.say(object, &[Condition::new("Ready", false, "Invalid", message)]).await;
        }
        let open = self.desks.get(name).map(|desk| desk.kind.clone());
        if let Some(Kind::Generated(open)) = &open
            && **open == kind
        {
            let before = self.known.lock().guarded.get(name).cloned();
            let guarded = match before {
                Some(mut before) if !before.early.is_empty() => {
                    self.guard(std::mem::take(&mut before.early), before).await?
                }
                Some(before) if before.left_out.is_empty() => before,
                Some(before) => self.guard_all(&kind, before.again()).await?,
                None => self.guard_all(&kind, Guarded::new(Instant::now())).await?,
            };
            return self.say_served(object, &kind, guarded).await;
        }
        let mut definitions = crds(&kind);
        let mut live = Vec::new();
        for definition in &mut definitions {
            let there = self.definition(definition).await?;
            if let Some(there) = &there {
                keep_versions(definition, there);
            }
            live.push(there);
        }
        let [mut resource, claim, class] = definitions;
        let applied = live[0].as_ref().and_then(|crd| crd["metadata"]["annotations"][APPLIED].as_str());
        for (definition, there) in [&resource, &claim, &class].into_iter().zip(&live).filter(|_| applied.is_none()) {
            if there.as_ref().is_some_and(|crd| text(&crd["metadata"]["annotations"][TYPE]) != name) {
                let taken = text(&definition["metadata"]["name"]);
                let message = format!("{taken} is defined already, and not by this type: choose another name or group");
                return self.say(object, &[Condition::new("Ready", false, "Taken", message)]).await;
            }
        }
        if let Some(before) = applied {
            let before = json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"],
                "spec": serde_json::from_str::<Value>(before).unwrap_or_default(),
            });
            if let Ok(before) = ResourceType::parse(&before) {
                let mut broken = incompatibilities(&before, &kind, None);
                if !broken.is_empty() {
                    broken = incompatibilities(&before, &kind, Some(&self.cx.api.objects_of(&before).await?));
                }
                if !broken.is_empty() {
                    let message = broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    let message = format!("{message}; what it said before stays in force: undo it");
                    if open.is_none() {
                        self.desks.open(&self.cx, Kind::Generated(Box::new(before)), self.workers);
                        // what guards it is as a process before this one left it
                        let guarded = Guarded { failed: true, ..Guarded::new(Instant::now()) };
                        self.known.lock().guarded.insert(name.to_owned(), guarded);
                    }
                    return self.say(object, &[Condition::new("Ready", false, "Incompatible", message)]).await;
                }
            }
        }
        let held = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        if !held.into_iter().any(|f| text(f) == FINALIZER) {
            // once in the life of a type: who removes its manager then has a reason
            self.introduce(name, &Names::plural(&kind.names.resource), Some(object)).await?;
        }
        self.hold(object).await?;
        resource["metadata"]["annotations"][APPLIED] = json!(object["spec"].to_string());
        // from the first definition on there may be claims that ask for what the type did not have: nobody decides on them by what it was
        self.desks.close(name);
        // Whoever can make a claim finds the kinds that it, and the policies about it, speak of.
        for definition in [&class, &resource, &claim] {
            match self.cx.api.apply(definition).await {
                // the same again would be refused again: it is said, and looked at when the type changes
                Err(failure) if failure.is_refusal() => {
                    if let Some(before) = open {
                        self.desks.open(&self.cx, before, self.workers);
                    }
                    return self.say(object, &[Condition::new("Ready", false, "Refused", failure.message)]).await;
                }
                other => other.map(drop)?,
            }
        }
        if !self.may_serve(&kind).await? {
            let rules = managing(&kind)["rules"].to_string();
            let message = format!(
                "its kinds are not the managers' to serve: add a ClusterRole labelled conductor.io/aggregate-to-managers: \"true\" with \
                 the rules {rules}"
            );
            self.say(object, &[Condition::new("Ready", false, "NotAllowed", message.clone())]).await?;
            return Err(Failure { code: 403, reason: "Forbidden".into(), message });
        }
        // policies speak of the classes
        self.cx.api.until_served(&kind.api_version(), &kind.names.class).await?;
        let guarded = self.guard_all(&kind, Guarded::new(Instant::now())).await?;
        // whoever reads that a type is served can make a claim of it
        for own in [&kind.names.resource, &kind.names.claim] {
            self.cx.api.until_served(&kind.api_version(), own).await?;
        }
        self.desks.open(&self.cx, Kind::Generated(Box::new(kind.clone())), self.workers);
        self.brief();
        self.say_served(object, &kind, guarded).await
    }

    /// Types whose roles and policies are to be applied again.
    pub(super) fn due(&self) -> Vec<String> {
        let known = self.known.lock();
        known.guarded.iter().filter(|(_, guarded)| guarded.is_due()).map(|(name, _)| name.clone()).collect()
    }

    /// Applies the roles and policies of a served type again, as it is served: a later version that was refused is not looked at for that.
    pub(super) async fn guard_again(&self, name: &str) -> Result<(), Failure> {
        let (object, before) = {
            let mut known = self.known.lock();
            let Some(before) = known.guarded.get_mut(name) else { return Ok(()) };
            (before.tried, before.failed) = (Instant::now(), true);
            let before = before.clone();
            (known.types.get(name).cloned(), before)
        };
        let open = self.desks.get(name).map(|desk| desk.kind.clone());
        let (Some(object), Some(Kind::Generated(open))) = (object, open) else { return Ok(()) };
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let guarded = self.guard_all(&open, before.again()).await?;
        self.known.lock().guarded.insert(name.to_owned(), guarded.clone());
        self.say(&object, &[guarded.condition()]).await
    }

    /// Says that a type is served and how it is guarded, and notes what is to be applied again.
    async fn say_served(&self, object: &Value, kind: &ResourceType, guarded: Guarded) -> Result<(), Failure> {
        // before it is said: who cannot say it comes back
        self.known.lock().guarded.insert(kind.name(), guarded.clone());
        // always both: the object may be from before one of them was said
        self.say(object, &[served(kind), guarded.condition()]).await?;
        if guarded.early.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = guarded.early.iter().map(|guard| text(&guard["metadata"]["name"])).collect();
        let message = format!("the API server does not know yet what these speak of: {}", names.join(", "));
        Err(Failure { code: 403, reason: "TooEarly".into(), message })
    }

    /// Applies all roles and policies of a type: nobody has a right to what nothing guards yet, but for what it is too early for.
    async fn guard_all(&self, kind: &ResourceType, mut guarded: Guarded) -> Result<Guarded, Failure> {
        let (bindings, others): (Vec<Value>, Vec<Value>) =
            access(kind).into_iter().partition(|guard| text(&guard["kind"]).ends_with("Binding"));
        let (roles, policies): (Vec<Value>, Vec<Value>) =
            others.into_iter().partition(|guard| guard["kind"] == "ClusterRole");
        for guards in [policies, bindings, roles] {
            guarded = self.guard(guards, guarded).await?;
        }
        Ok(guarded)
    }

    /// Whether the managers may write claims of a type, and so everything of it.
    async fn may_serve(&self, kind: &ResourceType) -> Result<bool, Failure> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": "patch", "group": kind.group, "resource": Names::plural(&kind.names.claim),
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = self.cx.api.call(Method::POST, path, JSON, review.to_string().into_bytes()).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    async fn definition(&self, of: &Value) -> Result<Option<Value>, Failure> {
        let name = text(&of["metadata"]["name"]);
        self.cx.api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name).await
    }

    /// Applies roles and policies of a type, as far as that can be done.
    async fn guard(&self, guards: Vec<Value>, mut guarded: Guarded) -> Result<Guarded, Failure> {
        let guards = guards.into_iter().filter(|guard| !guarded.is_in_vain(guard));
        let mut failed = None;
        let mut applied: FuturesUnordered<_> =
            guards.map(|guard| async move { (self.cx.api.apply(&guard).await, guard) }).collect();
        while let Some((result, guard)) = applied.next().await {
            match result {
                // who may not read the parameters is told the same: that does not end
                Err(failure) if is_early(&failure) && guarded.since.elapsed() < HEARD => guarded.early.push(guard),
                // An older Kubernetes, or rights that were not given: the type works, less guarded, and it is said.
                Err(failure) if failure.is_refusal() || matches!(failure.code, 403 | 404) => {
                    guarded.leave_out(&guard, &failure.message);
                }
                Err(failure) => failed = Some(failure),
                Ok(_) => {}
            }
        }
        match failed {
            Some(failure) => Err(failure),
            None => Ok(guarded),
        }
    }

    async fn hold(&self, object: &Value) -> Result<(), Failure> {
        let list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if list.iter().any(|f| text(f) == FINALIZER) {
            return Ok(());
        }
        let mut list = list;
        list.push(FINALIZER.into());
        self.finalizers(object, list).await
    }

    async fn finalizers(&self, object: &Value, list: Vec<Value>) -> Result<(), Failure> {
        let patch = json!({"metadata": {
            "finalizers": list,
            "uid": object["metadata"]["uid"],
            "resourceVersion": object["metadata"]["resourceVersion"],
        }});
        let path = path(text(&object["metadata"]["name"]));
        self.cx.api.call(Method::PATCH, &path, MERGE, patch.to_string().into_bytes()).await.map(drop)
    }

    /// A type on its way out goes when nothing of it is left, and its definitions with it.
    async fn retire(&self, object: &Value) -> Result<(), Failure> {
        let name = text(&object["metadata"]["name"]);
        if let Ok(kind) = ResourceType::parse(object) {
            let all = self.cx.api.objects_of(&kind).await?;
            let count = |kind_name: &str| all.iter().filter(|object| object["kind"] == kind_name).count();
            let (claims, resources) = (count(&kind.names.claim), count(&kind.names.resource));
            if claims + resources > 0 {
                let message =
                    format!("{claims} claims and {resources} resources of this type exist: delete them first");
                self.say(object, &[Condition::new("Removable", false, "InUse", message)]).await?;
                return Err(Failure {
                    code: 409,
                    reason: "InUse".into(),
                    message: format!("{name} is deleted while {claims} claims and {resources} resources of it exist"),
                });
            }
            self.desks.close(name);
            for guard in access(&kind) {
                self.remove_guard(&guard).await?;
            }
            for definition in crds(&kind) {
                let own = |crd: Value| text(&crd["metadata"]["annotations"][TYPE]) == name;
                if !self.definition(&definition).await?.is_some_and(own) {
                    continue;
                }
                let path = format!(
                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}",
                    text(&definition["metadata"]["name"])
                );
                // nothing of it is left, and it may go
                let retired = json!({"metadata": {"annotations": {RETIRED: "true"}}}).to_string().into_bytes();
                for (method, kind, body) in [(Method::PATCH, MERGE, retired), (Method::DELETE, JSON, Vec::new())] {
                    match self.cx.api.call(method, &path, kind, body).await {
                        Err(failure) if failure.code != 404 => return Err(failure),
                        _ => {}
                    }
                }
            }
        }
        self.desks.close(name);
        self.known.lock().guarded.remove(name);
        let list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = list.iter().filter(|f| text(f) != FINALIZER).cloned().collect();
        if rest.len() < list.len() {
            match self.finalizers(object, rest).await {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }

    async fn remove_guard(&self, guard: &Value) -> Result<(), Failure> {
        let plural = match text(&guard["kind"]) {
            "ClusterRole" => "clusterroles",
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
            "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
            _ => "mutatingadmissionpolicybindings",
        };
        let path = format!("/apis/{}/{plural}/{}", text(&guard["apiVersion"]), text(&guard["metadata"]["name"]));
        match self.cx.api.call(Method::DELETE, &path, JSON, Vec::new()).await {
            Err(failure) if !matches!(failure.code, 403 | 404) => Err(failure),
            _ => Ok(()),
        }
    }

    async fn say(&self, object: &Value, conditions: &[Condition]) -> Result<(), Failure> {
        let Some(status) = status_patch(object, json!({}), conditions, &now()) else { return Ok(()) };
        let patch = json!({"metadata": {"uid": object["metadata"]["uid"]}, "status": status});
        let path = format!("{}/status", path(text(&object["metadata"]["name"])));
        match self.cx.api.call(Method::PATCH, &path, MERGE, patch.to_string().into_bytes()).await {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }
}

fn served(kind: &ResourceType) -> Condition {
    let names = &kind.names;
    let message = format!("{}, {} and {} are served", names.resource, names.claim, names.class);
    Condition::new("Ready", true, "Served", message)
}
