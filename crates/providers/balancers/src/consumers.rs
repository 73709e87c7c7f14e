//! What the users of a balancer are told: an Ingress or Service its address, a claim what of it is not carried and why.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use conductor_claims::lifecycle::{Condition, ROUTED, condition_of, status_patch};
use conductor_local::{Object, Trouble};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::API_VERSION;
use crate::holdings::Holdings;
use crate::pool::Place;
use crate::routes::{Claim, Plan, Verdict};
use crate::world::{World, resource};

/// How many refusals are told; of the rest the number.
const TOLD: usize = 4;

/// Tells them. Remembers what it said, so that an Event is written when something changed and not each time around.
pub struct Consumers {
    client: kube::Client,
    world: Arc<World>,
    /// By the consumer's uid.
    said: Mutex<HashMap<String, Vec<String>>>,
}

/// The name of the Event that says this of an object: the same again, after a restart, is the same Event.
fn event_name(name: &str, uid: &str, why: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (uid, why).hash(&mut hasher);
    format!("{}.{:016x}", name.chars().take(200).collect::<String>().trim_end_matches(['.', '-']), hasher.finish())
}

fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    conductor_machinery::time::Time::new(since.as_secs() as i64, 0).map(|t| t.to_string()).unwrap_or_default()
}

/// The condition of a claim: whether everything that names it is carried.
pub fn routed(claim: &Claim, plan: &Plan) -> Option<Condition> {
    let own: Vec<&Verdict> = plan.verdicts.iter().filter(|v| v.claim == claim.uid).collect();
    let refusals: Vec<String> =
        own.iter().flat_map(|v| v.refusals.iter().map(move |why| format!("{} {}: {why}", v.kind, v.name))).collect();
    if own.is_empty() {
        return None;
    }
    Some(match refusals.is_empty() {
        true => Condition::new(ROUTED, true, "Carried", "everything that names this claim is carried"),
        false => {
            let more = refusals.len().saturating_sub(TOLD);
            let mut message = refusals.into_iter().take(TOLD).collect::<Vec<_>>().join("; ");
            if more > 0 {
                message += &format!("; and {more} more");
            }
            Condition::new(ROUTED, false, "Refused", message)
        }
    })
}

fn untold(kind: &str, outcome: Result<(), Trouble>) {
    if let Err(trouble) = outcome {
        tracing::info!(kind, %trouble, "someone who uses a balancer could not be told");
    }
}

impl Consumers {
    /// Over an API and what was seen of it.
    pub fn new(client: kube::Client, world: Arc<World>) -> Consumers {
        Consumers { client, world, said: Mutex::default() }
    }

    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = match kind {
            "Ingress" => resource("networking.k8s.io/v1", "Ingress", "ingresses"),
            "Service" => resource("v1", "Service", "services"),
            _ => resource("network.conductor.io/v1alpha1", "IngressClaim", "ingressclaims"),
        };
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Keeps who has what of a balancer in its status: from then on nobody else gets it.
    pub async fn hold(&self, object: &Object, plural: &str, held: &Holdings) -> Result<(), Trouble> {
        let kind = resource(API_VERSION, object.0["kind"].as_str().unwrap_or_default(), plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), object.namespace(), &kind);
        let patch = json!({"metadata": {"uid": object.uid()}, "status": {"held": held.status()}});
        api.patch_status(object.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Tells everyone who uses a balancer, and takes the address back from those who no longer do. Who cannot be told keeps nobody else
    /// from being told, and is told the next time around.
    pub async fn tell(&self, object: &Object, place: Place, claims: &[Claim], plan: &Plan) {
        let address = place.address.to_string();
        for verdict in &plan.verdicts {
            let shown: Vec<Value> = if verdict.ports.is_empty() {
                Vec::new()
            } else {
                let ports: Vec<Value> = verdict.ports.iter().map(|p| json!({"port": p, "protocol": "TCP"})).collect();
                vec![json!({"ip": address, "ports": ports})]
            };
            untold(verdict.kind, self.show(verdict.kind, &verdict.namespace, &verdict.name, &shown).await);
            self.event(object, verdict).await;
        }
        for (kind, namespace, name) in self.world.reached_at(&address, place.port) {
            let own = |v: &&Verdict| v.kind == kind && v.namespace == namespace && v.name == name;
            if plan.verdicts.iter().find(own).is_none_or(|v| v.ports.is_empty()) {
                untold(kind, self.show(kind, &namespace, &name, &[]).await);
            }
        }
        for claim in claims {
            untold("IngressClaim", self.condition(claim, routed(claim, plan)).await);
        }
    }

    /// Takes an address back from everyone who says they are reached there.
    pub async fn withdraw(&self, place: Place) -> Result<(), Trouble> {
        for (kind, namespace, name) in self.world.reached_at(&place.address.to_string(), place.port) {
            self.show(kind, &namespace, &name, &[]).await?;
        }
        Ok(())
    }

    async fn show(&self, kind: &str, namespace: &str, name: &str, places: &[Value]) -> Result<(), Trouble> {
        let Some(object) = self.world.consumer(kind, namespace, name) else { return Ok(()) };
        let now = object["status"]["loadBalancer"]["ingress"].as_array().map_or(&[][..], Vec::as_slice);
        // Kubernetes takes the status of a Service only where it is of type LoadBalancer
        let possible = kind == "Ingress" || object["spec"]["type"].as_str() == Some("LoadBalancer");
        if !possible || same(now, places) {
            return Ok(());
        }
        let patch =
            json!({"metadata": {"uid": object["metadata"]["uid"]}, "status": {"loadBalancer": {"ingress": places}}});
        match self.api(kind, namespace).patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// Says on a claim what became of its consumers; nothing where it has none and never had.
    async fn condition(&self, claim: &Claim, wanted: Option<Condition>) -> Result<(), Trouble> {
        let api = self.api("IngressClaim", &claim.namespace);
        let Some(live) = api.get_opt(&claim.name).await? else { return Ok(()) };
        let live = serde_json::to_value(live).unwrap_or_default();
        if live["metadata"]["uid"].as_str() != Some(&claim.uid) {
            return Ok(());
        }
        let wanted = match wanted {
            Some(wanted) => wanted,
            None if condition_of(&live, ROUTED).is_none() => return Ok(()),
            None => Condition::new(ROUTED, true, "Unused", "no Ingress or Service names this claim"),
        };
        let Some(status) = status_patch(&live, json!({}), &[wanted], &now()) else { return Ok(()) };
        let patch = json!({"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "status": status});
        match api.patch_status(&claim.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            // looked at again soon: the claim's own change wakes nobody here, the next round does
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    async fn event(&self, object: &Object, verdict: &Verdict) {
        let Some(consumer) = self.world.consumer(verdict.kind, &verdict.namespace, &verdict.name) else { return };
        let uid = consumer["metadata"]["uid"].as_str().unwrap_or_default();
        let before = {
            let mut said = self.said.lock();
            // of those that are gone; what is said again is the same Event
            if said.len() > 10_000 {
                said.clear();
            }
            match verdict.refusals.is_empty() {
                true => said.remove(uid),
                false => said.insert(uid.to_owned(), verdict.refusals.iter().take(TOLD).cloned().collect()),
            }
        };
        let before = before.unwrap_or_default();
        let api: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(self.client.clone(), &verdict.namespace);
        let api_version = if verdict.kind == "Ingress" { "networking.k8s.io/v1" } else { "v1" };
        for why in verdict.refusals.iter().take(TOLD).filter(|why| !before.contains(why)) {
            let event = json!({
                "metadata": {"name": event_name(&verdict.name, uid, why), "namespace": verdict.namespace},
                "involvedObject": {
                    "apiVersion": api_version, "kind": verdict.kind, "namespace": verdict.namespace,
                    "name": verdict.name, "uid": uid,
                },
                "type": "Warning", "reason": "Refused", "message": why.chars().take(1000).collect::<String>(), "count": 1,
                "source": {"component": "conductor-balancers"},
                "reportingComponent": "conductor-balancers", "reportingInstance": object.name(),
                "firstTimestamp": now(), "lastTimestamp": now(),
            });
            let Ok(event) = serde_json::from_value(event) else { continue };
            match api.create(&PostParams::default(), &event).await {
                Ok(_) => {}
                // said before, and still there to be read
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => tracing::debug!(%error, "an Event could not be written"),
            }
        }
    }
}

/// Whether a status says it already, whatever else the server put in.
fn same(now: &[Value], wanted: &[Value]) -> bool {
    let key = |place: &Value| {
        let ports = place["ports"].as_array().into_iter().flatten().map(|p| p["port"].as_u64()).collect::<Vec<_>>();
        (place["ip"].as_str().unwrap_or_default().to_owned(), ports)
    };
    now.len() == wanted.len() && now.iter().zip(wanted).all(|(a, b)| key(a) == key(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_says_what_of_it_is_refused() {
        let claim = Claim { uid: "u".into(), namespace: "n".into(), name: "c".into() };
        let verdict = |refusals: &[&str]| Verdict {
            kind: "Ingress",
            namespace: "n".into(),
            name: "web".into(),
            claim: "u".into(),
            ports: vec![80],
            certificates: Vec::new(),
            refusals: refusals.iter().map(|r| (*r).to_owned()).collect(),
        };
        let said = |verdicts: Vec<Verdict>| {
            let plan = Plan { verdicts, ..Plan::default() };
            let object = json!({"metadata": {"uid": "u"}});
            routed(&claim, &plan)
                .and_then(|c| status_patch(&object, json!({}), &[c], "t"))
                .map(|s| s["conditions"][0].clone())
        };
        assert_eq!(said(vec![]), None);
        assert_eq!(said(vec![verdict(&[])]).expect("says")["status"], "True");
        let refused = said(vec![verdict(&["host x is taken", "b", "c", "d", "e"])]).expect("says");
        let message = refused["message"].as_str().expect("text");
        assert!(
            refused["status"] == "False"
                && message.contains("Ingress web: host x is taken")
                && message.contains("1 more")
        );
    }

    #[test]
    fn a_status_is_written_once() {
        let place =
            |ip: &str, port: u16| json!({"ip": ip, "ipMode": "VIP", "ports": [{"port": port, "protocol": "TCP"}]});
        assert!(same(&[], &[]));
        assert!(same(&[place("a", 80)], &[json!({"ip": "a", "ports": [{"port": 80}]})]));
        assert!(!same(&[place("a", 80)], &[place("a", 443)]));
        assert!(!same(&[place("a", 80)], &[]));
    }
}
