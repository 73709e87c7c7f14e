//! Generated types: what a desk does about their claims and resources.

use std::collections::HashMap;
use std::time::Duration;

use conductor_claims::extract::seconds;
use conductor_claims::lifecycle::{
    BACK_TO_TEMPLATE, CLASS_STANDS_IN, ClaimScene, Connection, Found as Implementation, GRANTED, PROVISIONED_FOR, Plan,
    Presence, RAISED, RESOURCE_UID, ResourceScene, SAY_BOUND, SILENCE, claim, implementations, is_leaving, is_outdated,
    is_torn, is_used, refused_claim, resource, resource_failed, unreadable_claim, writes_connection,
};
use conductor_claims::matching::{Decision, Reason};
use conductor_claims::types::ResourceType;
use serde_json::Value;

use crate::clock::now;
use crate::connection::Wiring;
use crate::desk::{Desk, Found, Key, Outcome, Trouble};
use crate::implementations::NOT_ALLOWED;
use crate::transport::Broken;
use crate::volumes::leading;

/// The purpose of a write that the API server refuses, and why.
type Refused = (&'static str, String);

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Desk {
    pub(crate) async fn generated_claim(
        &self,
        key: &Key,
        kind: &ResourceType,
        fresh: bool,
    ) -> Result<Outcome, Trouble> {
        let Some(object) = self.claim_object(key, fresh).await? else { return Ok(Outcome::Settled) };
        if self.claim_settled(&self.state.lock(), &object) {
            return Ok(Outcome::Settled);
        }
        let uid = text(&object["metadata"]["uid"]).to_owned();
        let users = self.cx.consumers.of(&self.words, &key.0, &key.1);
        let time = now();
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        let _letting_go = if deleting { Some(self.cx.gates.lifting.read().await) } else { None };
        let users = users.into_iter().filter(|(_, used)| !(deleting && used.waits));
        let mut consumers: Vec<String> = users.map(|(consumer, _)| consumer).collect();
        let unseen = deleting && consumers.is_empty();
        if unseen {
            let live = self.cx.consumers.live(&self.cx.api, &self.words, &key.0, &key.1).await?;
            consumers.extend(live);
        }
        let (decision, class) = match self.kind.ask(&object, !consumers.is_empty(), None) {
            _ if deleting => {
                self.state.lock().index.stop_waiting(&uid);
                (None, None)
            }
            Err(errors) => {
                self.state.lock().index.stop_waiting(&uid);
                self.send(unreadable_claim(&object, &errors, &time)).await?;
                return Ok(Outcome::Settled);
            }
            Ok(ask) => {
                let decision = self.decide_allowed(&ask, &object).await?;
                let state = self.state.lock();
                let refused = matches!(decision, Decision::Wait { reason: Reason::NotAllowed(_), .. });
                let class = Some(&ask).filter(|_| !refused).and_then(|ask| state.index.class_of(ask));
                let class = class.and_then(|name| state.classes.get(name.as_ref()).cloned());
                (Some(decision), class)
            }
        };
        let named = self.kind.named(&object).to_owned();
        let wanted = match (&decision, named.is_empty()) {
            (_, false) => named,
            (Some(Decision::Bind { resource, .. }), _) => resource.to_string(),
            (Some(Decision::Wait { reason: Reason::ReservedRefused(resource, _), .. }), _) => resource.to_string(),
            _ => ClaimScene::made_name(kind, &object),
        };
        let gathered = async {
            let live = self.resource_for_claim(&wanted, fresh).await?;
            let wiring = Wiring::read(self, kind, &object, live.as_ref()).await?;
            Ok::<_, crate::api::Failure>((live, wiring))
        };
        let (live, wiring) = match gathered.await {
            Ok(gathered) => gathered,
            Err(failure) => {
                self.forget(&uid);
                return Err(failure.into());
            }
        };
        let plan_without = |refused: &[Refused]| {
            let (growth, refused): (Vec<Refused>, Vec<Refused>) =
                refused.iter().cloned().partition(|(purpose, _)| [GRANTED, RAISED].contains(purpose));
            claim(&ClaimScene {
                kind,
                claim: &object,
                decision: decision.as_ref(),
                resource: live.as_ref(),
                class: class.as_deref(),
                consumers: &consumers,
                connection: Connection { refused: &refused, ..wiring.connection() },
                growth_refused: growth.first().map(|(_, why)| why.as_str()),
                expressions: &self.cx.evaluator,
                now: &time,
            })
        };
        let plan = plan_without(&[]);
        let progress = live.as_ref().map_or("", |resource| text(&resource["status"]["message"]));
        let bound = matches!(text(&object["status"]["phase"]), "Bound" | "Lost");
        if matches!(decision, Some(Decision::Bind { .. })) && plan.is_empty() && !bound {
            self.forget(&uid);
            return Err(Trouble::Outdated);
        }
        if let Some(Decision::Wait { reason, summary }) = &decision
            && !plan.is_empty()
            && let Err(pause) = self.may_say(key, &(leading(reason, summary) + progress))
            && plan.writes.iter().all(|w| w.purpose == "say why the claim waits")
        {
            return Ok(Outcome::Later(pause));
        }
        if plan.writes.iter().any(|w| w.purpose == CLASS_STANDS_IN) {
            // what it is bound to then is decided when it has its class
            self.forget(&uid);
        }
        if let Err(broken) = self.send_for_claim(&uid, plan).await {
            if broken.purpose == CLASS_STANDS_IN && broken.failure.code == 403 {
                let message = format!("it may not be of the class it would have: {}", broken.failure.message);
                self.send(refused_claim(&object, "ProvisioningFailed", &message, &time)).await?;
            }
            if broken.purpose == GRANTED && broken.failure.code == 403 && !bound {
                let name = class.as_ref().map_or("", |class| text(&class["metadata"]["name"]));
                let message = format!("what class {name} makes is more than it may have: {}", broken.failure.message);
                self.send(refused_claim(&object, "ProvisioningFailed", &message, &time)).await?;
            }
            if broken.purpose == SAY_BOUND && broken.failure.code == 403 && !bound {
                let said = broken.failure.message.split_once("): ").map_or(&*broken.failure.message, |(_, said)| said);
                let advice = "ask for a part of it, or have the quota raised";
                let message = format!("what {wanted} has is more than it may have: {said}: {advice}");
                self.send(refused_claim(&object, "OverQuota", &message, &time)).await?;
            }
            if broken.purpose == "make a resource for the claim" && broken.failure.is_refusal() {
                let name = class.as_ref().map_or("", |class| text(&class["metadata"]["name"]));
                // in a transaction, the number of the operation is nobody's concern
                let said = broken.failure.message.split_once("): ").map_or(&*broken.failure.message, |(_, said)| said);
                let advice = "say more on the claim, or what the class offers";
                let message = format!("class {name} cannot make it: {said}: {advice}");
                self.send(refused_claim(&object, "ProvisioningFailed", &message, &time)).await?;
            }
            let broken = self.send_taken(&uid, broken, bound, plan_without).await;
            return Err(broken.into());
        }
        // what has the name of its connection details is not followed, and a consumer that came and went may never be shown
        let again = (unseen && !consumers.is_empty()) || (!deleting && wiring.connection().is_taken(&object));
        Ok(if again { Outcome::Later(Duration::from_secs(5)) } else { Outcome::Settled })
    }

    /// Sends what is left of a claim's plan without the connection objects that the API server does not take, and without more than a
    /// bound claim may have, which the claim then says; what is to be tried again.
    async fn send_taken(
        &self,
        uid: &str,
        first: Broken,
        bound: bool,
        plan_without: impl Fn(&[Refused]) -> Plan,
    ) -> Broken {
        let mut refused: Vec<Refused> = Vec::new();
        let mut next = first.clone();
        let spared = |broken: &Broken| match broken.purpose {
            GRANTED => bound && broken.failure.code == 403,
            RAISED => bound && broken.failure.is_refusal(),
            purpose => writes_connection(purpose) && broken.failure.is_refusal(),
        };
        while spared(&next) && !refused.iter().any(|(purpose, _)| *purpose == next.purpose) {
            // in a transaction, the number of the operation is nobody's concern
            let said = next.failure.message.split_once("): ").map_or(&*next.failure.message, |(_, said)| said);
            let advice = match next.failure.code {
                _ if next.purpose == GRANTED => "ask for what it has, or have the quota raised",
                _ if next.purpose == RAISED => "ask for what it has, or have an administrator allow it",
                403 => "have the quota or policy of the namespace changed",
                _ => "correct what the implementation says, or the connection of its class",
            };
            let more = if next.purpose == GRANTED { "what would be made is more than it may have: " } else { "" };
            refused.push((next.purpose, format!("{more}{said}: {advice}")));
            match self.send_for_claim(uid, plan_without(&refused)).await {
                Ok(()) => return first,
                Err(broken) => next = broken,
            }
        }
        next
    }

    /// The claims that have a resource which refers to nobody any more, as the API server has them.
    async fn torn(&self, resource: &Value) -> Result<Vec<Value>, crate::api::Failure> {
        // a reservation is no reference: whoever applies one again takes the reference away
        let mut refs = resource["spec"]["claimRefs"].as_array().into_iter().flatten();
        let released = text(&resource["status"]["phase"]) == "Released";
        if refs.any(|r| !text(&r["uid"]).is_empty()) || !(released || is_used(resource)) {
            return Ok(Vec::new());
        }
        let name = text(&resource["metadata"]["name"]);
        let keys: Vec<Key> = self.state.lock().naming(name).cloned().collect();
        let (api_version, kind) = self.kind.claim();
        let mut torn = Vec::new();
        for (namespace, name) in keys {
            let claim = self.cx.api.get(&api_version, kind, &namespace, &name).await?;
            torn.extend(claim.filter(|claim| is_torn(resource, claim)));
        }
        // who is bound before who is lost
        torn.sort_by_key(|claim| {
            (text(&claim["status"]["phase"]) != "Bound", text(&claim["metadata"]["uid"]).to_owned())
        });
        Ok(torn)
    }

    pub(crate) async fn generated_resource(
        &self,
        name: &str,
        kind: &ResourceType,
        fresh: bool,
    ) -> Result<Outcome, Trouble> {
        let Some(object) = self.resource_object(name, fresh).await? else { return Ok(Outcome::Settled) };
        let uid = text(&object["metadata"]["uid"]);
        let mut claims: HashMap<String, Found> = HashMap::new();
        for r in object["spec"]["claimRefs"].as_array().into_iter().flatten() {
            let uid = text(&r["uid"]);
            if !uid.is_empty() {
                let (namespace, name) = (text(&r["namespace"]), text(&r["name"]));
                let found = match is_leaving(&object) {
                    true => self.ask_for_claim(uid, namespace, name).await?,
                    false => self.find_claim(uid, namespace, name).await?,
                };
                claims.insert(uid.to_owned(), found);
            }
        }
        let intended = implementations(kind, &object, &self.cx.evaluator).unwrap_or_default();
        let meta = &object["metadata"];
        let orphaned = meta["annotations"][PROVISIONED_FOR].is_string()
            && claims.values().all(|found| matches!(found, Found::Gone));
        // nobody wants it, and nothing of it was ever begun: what may not be read is not there
        let blank = (orphaned || !meta["deletionTimestamp"].is_null())
            && object["status"]["implementations"].as_array().is_none_or(Vec::is_empty);
        let mut live: Vec<(Option<Value>, bool)> = Vec::new();
        for implementation in &intended {
            let target = &implementation.target;
            (self.cx.follow)(&target.api_version, &target.kind);
            let read =
                self.cx.provisioner.get(&target.api_version, &target.kind, &target.namespace, &target.name).await;
            let found = match read {
                Err(failure) if failure.code == 403 && blank => None,
                Err(failure) if failure.code == 403 => {
                    let message = format!("its implementation cannot be made: {failure}: {NOT_ALLOWED}");
                    self.send(resource_failed(&object, "NotAllowed", &message, &now())).await?;
                    return Err(failure.into());
                }
                found => found?,
            };
            let outdated = found.as_ref().zip(implementation.wanted.as_ref()).is_some_and(|(o, w)| is_outdated(o, w));
            // who owns which of its fields is asked for only when some are to go
            let found = if outdated { self.cx.provisioner.get_whole(target).await? } else { found };
            let owner = found.as_ref().map_or("", |o| text(&o["metadata"]["labels"][RESOURCE_UID]));
            let other = match &found {
                Some(object) if !owner.is_empty() && owner != uid => {
                    crate::orphans::owner_lives(&self.cx.api, object).await?
                }
                _ => false,
            };
            live.push((found, other));
        }
        let found: Vec<Implementation<'_>> = live
            .iter()
            .map(|(object, other_owner)| Implementation { object: object.as_ref(), other_owner: *other_owner })
            .collect();
        let time = now();
        let presence = |uid: &str| claims.get(uid).map_or(Presence::Unknown, Found::presence);
        let torn = self.torn(&object).await?;
        let plan = resource(&ResourceScene {
            kind,
            resource: &object,
            torn: &torn,
            claims: &presence,
            found: &found,
            expressions: &self.cx.evaluator,
            now: &time,
        });
        let going = |o: &Value| !o["metadata"]["deletionTimestamp"].is_null();
        let going = plan.removes_implementation() || live.iter().any(|(o, _)| o.as_ref().is_some_and(going));
        if let Err(broken) = self.send(plan).await {
            if broken.purpose == BACK_TO_TEMPLATE && broken.failure.is_refusal() {
                let message = format!("its implementation cannot follow its template: {}", broken.failure);
                self.send(resource_failed(&object, "Refused", &message, &time)).await?;
            }
            if broken.purpose == "make the implementation" && !matches!(broken.failure.code, 0 | 409 | 429 | 500..) {
                let (reason, advice) = match broken.failure.code {
                    404 => ("KindMissing", "install its provider, or correct the template"),
                    403 => ("NotAllowed", NOT_ALLOWED),
                    _ => ("Refused", "correct the template"),
                };
                let message = format!("its implementation cannot be made: {}: {advice}", broken.failure);
                self.send(resource_failed(&object, reason, &message, &time)).await?;
            }
            return Err(broken.into());
        }
        // what an administrator puts there, to be adopted or instead of what is lost, may bear no label of ours: it is not followed
        let missing = live.iter().any(|(object, _)| object.is_none());
        let young = |made: &Value| seconds(&time) - seconds(text(made)) <= SILENCE;
        let silent = |o: &Value| o["status"].is_null() && young(&o["metadata"]["creationTimestamp"]);
        let silent = live.iter().any(|(object, _)| object.as_ref().is_some_and(silent));
        Ok(match (missing || going, silent) {
            // that it is gone is not shown by a watch that begins after that
            (true, _) => Outcome::Later(Duration::from_secs(5)),
            // that nobody reports is said after a while
            (_, true) => Outcome::Later(Duration::from_secs(SILENCE.unsigned_abs() + 1)),
            _ => Outcome::Settled,
        })
    }
}
