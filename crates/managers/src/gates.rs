//! Pods that wait for their claims: a scheduling gate holds them, put there when they are made, and it is lifted here when every
//! claim they name is bound. PersistentVolumeClaims hold no Pod by it: some are bound only once it is scheduled.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use conductor_claims::lifecycle::{Event, Target, condition_of};
use futures::StreamExt;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, RwLock};

use crate::api::{Api, Failure, STRATEGIC, is_name};
use crate::consumers::CLAIMS;
use crate::events::Events;
use crate::kind::Kind;
use crate::runtime::Desks;

/// The gate's name: that of the annotation it waits for.
pub const GATE: &str = CLAIMS;
/// Before a failed look is repeated, and before a kind is said to be unknown: its type may just be on its way.
const AGAIN: Duration = Duration::from_secs(3);
/// How long a look may take, and how many there are at the same time.
const PATIENCE: Duration = Duration::from_secs(15);
const AT_ONCE: usize = 8;

/// Namespace and name.
type Pod = (String, String);

/// A claim as a Pod names it: the kind's word in lower case, and the name.
type Named = (String, String);

struct Held {
    claims: Vec<Named>,
    /// To be looked at.
    stirred: bool,
    since: Instant,
}

/// The Pods that wait.
#[derive(Default)]
pub struct Gates {
    held: Mutex<HashMap<Pod, Held>>,
    stirred: Notify,
    /// A gate is lifted while no claim is let go: a Pod that waits does not keep a claim, and one that no longer waits does.
    pub(crate) lifting: RwLock<()>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| gates.iter().any(|gate| text(&gate["name"]) == GATE))
}

/// The claims a Pod names in its annotation.
pub(crate) fn named(pod: &Value) -> impl Iterator<Item = Named> + '_ {
    let all = text(&pod["metadata"]["annotations"][CLAIMS]).split(',');
    all.filter_map(|claim| claim.trim().split_once('/'))
        .map(|(kind, name)| (kind.to_ascii_lowercase(), name.to_owned()))
}

impl Gates {
    /// Takes in a Pod as it is.
    pub(crate) fn see(&self, pod: &Value) {
        let key = (text(&pod["metadata"]["namespace"]).to_owned(), text(&pod["metadata"]["name"]).to_owned());
        if !is_gated(pod) {
            return self.forget(&key);
        }
        self.held.lock().insert(key, Held { claims: named(pod).collect(), stirred: true, since: Instant::now() });
        self.stirred.notify_one();
    }

    pub(crate) fn forget(&self, pod: &Pod) {
        self.held.lock().remove(pod);
    }

    /// A claim has changed, which is known under these words.
    pub(crate) fn stir(&self, words: &[String], namespace: &str, name: &str) {
        let concerns = |pod: &Pod, held: &Held| {
            pod.0 == namespace && held.claims.iter().any(|(word, claim)| claim == name && words.contains(word))
        };
        self.stir_those(concerns);
    }

    /// A type has come.
    pub(crate) fn stir_all(&self) {
        self.stir_those(|_, _| true);
    }

    fn stir_those(&self, concerns: impl Fn(&Pod, &Held) -> bool) {
        let mut held = self.held.lock();
        let mut any = false;
        for (_, held) in held.iter_mut().filter(|(pod, held)| concerns(pod, held)) {
            (held.stirred, any) = (true, true);
        }
        if any {
            self.stirred.notify_one();
        }
    }

    /// Lifts gates for as long as it runs.
    pub(crate) async fn work(self: Arc<Gates>, api: Api, events: Events, desks: Weak<Desks>) {
        loop {
            self.stirred.notified().await;
            let stirred: Vec<(Pod, Vec<Named>, Duration)> = {
                let mut held = self.held.lock();
                let stirred = held.iter_mut().filter(|(_, held)| held.stirred);
                let take = |(pod, held): (&Pod, &mut Held)| {
                    held.stirred = false;
                    (pod.clone(), held.claims.clone(), held.since.elapsed())
                };
                stirred.map(take).collect()
            };
            let Some(desks) = desks.upgrade() else { return };
            let looks = stirred.into_iter().map(|(pod, claims, since)| {
                let (gates, api, events, desks) = (&self, &api, &events, &desks);
                async move {
                    let looking = gates.look(api, events, desks, &pod, &claims, since);
                    match tokio::time::timeout(PATIENCE, looking).await {
                        Ok(Ok(true)) => {}
                        Ok(Ok(false)) | Err(_) => gates.again(pod),
                        Ok(Err(failure)) => {
                            tracing::debug!(%failure, pod = pod.1, "the gate could not be lifted yet");
                            gates.again(pod);
                        }
                    }
                }
            });
            futures::stream::iter(looks).for_each_concurrent(AT_ONCE, |look| look).await;
        }
    }

    fn again(self: &Arc<Gates>, pod: Pod) {
        let gates = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            gates.stir_those(|other, _| *other == pod);
        });
    }
}

/// What a Pod waits for; `None`: it is not known yet.
async fn waits_for(
    api: &Api,
    desks: &Desks,
    namespace: &str,
    claims: &[Named],
    since: Duration,
) -> Result<Option<Vec<String>>, Failure> {
    let desks = desks.all();
    let mut waits = Vec::new();
    for (word, claim) in claims {
        if !is_name(claim) {
            waits.push(format!("{word}/{claim}, which is the name of nothing"));
            continue;
        }
        let mut called = desks.iter().filter(|desk| desk.words.contains(word));
        let desk = called.next();
        if let Some(other) = called.next() {
            let names = [desk.map(|d| d.kind.name()).unwrap_or_default(), other.kind.name()].join(" and ");
            waits.push(format!("{word}/{claim}, which may be of {names}: name it {word}.GROUP/{claim}"));
            continue;
        }
        let Some(desk) = desk else {
            // they hold no Pod where somebody else binds them either
            if Kind::Volumes.claim_words().contains(word) {
                continue;
            }
            if since < AGAIN {
                return Ok(None);
            }
            waits.push(format!("{word}/{claim}, and there is no resource type whose claims are called {word}"));
            continue;
        };
        if matches!(desk.kind, Kind::Volumes) {
            continue;
        }
        let (api_version, kind) = desk.kind.claim();
        match api.get(&api_version, kind, namespace, claim).await? {
            None => waits.push(format!("{kind} {claim}, which does not exist")),
            Some(live) if !live["metadata"]["deletionTimestamp"].is_null() => {
                waits.push(format!("{kind} {claim}, which is being deleted"));
            }
            Some(live) if text(&live["status"]["phase"]) == "Bound" => match condition_of(&live, "ConnectionReady") {
                // else it would read what somebody else has put under that name
                Some((false, reason, why)) if reason != "Incomplete" => {
                    waits.push(format!("the connection details of {kind} {claim}: {why}"));
                }
                _ => {}
            },
            Some(live) => {
                let why = match text(&live["status"]["message"]) {
                    "" => "no manager has looked at it yet",
                    message => message,
                };
                waits.push(format!("{kind} {claim}: {why}"));
            }
        }
    }
    Ok(Some(waits))
}

impl Gates {
    /// Lifts a Pod's gate if its claims are bound; false if it is to be looked at again by and by.
    async fn look(
        &self,
        api: &Api,
        events: &Events,
        desks: &Desks,
        (namespace, name): &Pod,
        claims: &[Named],
        since: Duration,
    ) -> Result<bool, Failure> {
        let Some(waits) = waits_for(api, desks, namespace, claims, since).await? else { return Ok(false) };
        let Some(pod) = api.get("v1", "Pod", namespace, name).await?.filter(is_gated) else { return Ok(true) };
        // what it names now is what counts; the watch shows it by and by
        if !named(&pod).eq(claims.iter().cloned()) {
            return Ok(false);
        }
        let uid = text(&pod["metadata"]["uid"]);
        let tell = |reason: &'static str, message: String| {
            let about = Target { status: false, ..Target::of(&pod) };
            events.tell(vec![Event { about, uid: uid.to_owned(), warning: false, reason, message }]);
        };
        if !waits.is_empty() {
            tell(
                "WaitsForClaims",
                format!("not scheduled before its claims are bound; it waits for {}", waits.join("; ")),
            );
            return Ok(true);
        }
        // asked again while no claim is let go
        let _lifting = self.lifting.write().await;
        if waits_for(api, desks, namespace, claims, since).await?.is_none_or(|waits| !waits.is_empty()) {
            return Ok(false);
        }
        let patch = json!({
            "metadata": {"uid": uid},
            "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
        });
        let path = format!("{}?fieldManager={}", api.path(&Target::of(&pod)).await?, crate::api::FIELD_MANAGER);
        match api.call(Method::PATCH, &path, STRATEGIC, patch.to_string().into_bytes()).await {
            Ok(_) => {
                tell("ClaimsBound", "its claims are bound: it can be scheduled".into());
                Ok(true)
            }
            // it went, or another came in its place: the watch shows it
            Err(failure) if matches!(failure.code, 404 | 409 | 422) => Ok(true),
            Err(failure) => Err(failure),
        }
    }
}
