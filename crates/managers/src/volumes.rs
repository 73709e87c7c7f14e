//! PersistentVolumes and their claims: what a desk does about them.

use conductor_claims::amount::Amount;
use conductor_claims::lifecycle::{RESOURCE_UID, SYSTEM_NAMESPACE};
use conductor_claims::matching::{Decision, Reason, Summary};
use conductor_claims::volumes::{
    GROW, IMPLEMENTATION, Making, PROVISIONED_BY, PROVISIONER, SCRUBBING, SELECTED_NODE, VolumeClaimScene, VolumeScene,
    growth_refused, is_behind, made_name, volume, volume_claim, volume_claim_held, volume_claim_in_use, wants_more,
    was_bound,
};
use serde_json::Value;

use crate::api::Failure;
use crate::clock::now;
use crate::desk::{Desk, Found, Item, Key, Outcome, Trouble};
use crate::implementations::NOT_ALLOWED;

/// The kind of the object that a StorageClass of ours names in `parameters.template`.
pub const TEMPLATE: (&str, &str) = ("conductor.io/v1alpha1", "VolumeTemplate");

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One word for why a claim waits, coarse enough not to change with every number.
pub(crate) fn leading(reason: &Reason, summary: &Summary) -> String {
    match reason {
        Reason::NoMatch => format!("{:?}", summary.leading().first().map(|(count, _)| *count)),
        other => format!("{other:?}"),
    }
}

/// What is at hand for making a volume.
struct Parts {
    class: std::sync::Arc<Value>,
    template: Value,
    implementation: Option<Value>,
}

fn is_ours(volume: &Value) -> bool {
    text(&volume["metadata"]["annotations"][PROVISIONED_BY]) == PROVISIONER
}

/// What keeps a claim's volume from being made, or from growing: a word, and a sentence with what to do.
fn held_by(claim: &Value, failure: &Failure) -> (&'static str, String) {
    let (reason, advice) = match failure.code {
        404 => ("KindMissing", "install its provider, or correct the template"),
        403 => ("NotAllowed", NOT_ALLOWED),
        _ => ("Refused", "correct the template"),
    };
    let bound = matches!(text(&claim["status"]["phase"]), "Bound" | "Lost");
    let what = if bound { "grow" } else { "be made" };
    (reason, format!("what is behind its volume cannot {what}: {failure}: {advice}"))
}

/// Whether a claim is charged for more than it asks for: it asked for more before.
fn is_charged_for_more(claim: &Value) -> bool {
    let amount = |value: &Value| Amount::from_json(value).unwrap_or_default();
    amount(&claim["status"]["allocatedResources"]["storage"])
        > amount(&claim["spec"]["resources"]["requests"]["storage"])
}

impl Desk {
    pub(crate) async fn volume_claim(&self, key: &Key, fresh: bool) -> Result<Outcome, Trouble> {
        let Some(claim) = self.claim_object(key, fresh).await? else { return Ok(Outcome::Settled) };
        if self.claim_settled(&self.state.lock(), &claim) {
            return Ok(Outcome::Settled);
        }
        let uid = text(&claim["metadata"]["uid"]).to_owned();
        let consumers = self.cx.consumers.of(&self.words, &key.0, &key.1);
        if !claim["metadata"]["deletionTimestamp"].is_null() {
            self.state.lock().index.stop_waiting(&uid);
            // only Pods on a node hold it
            let pods = consumers.into_iter().filter(|(pod, used)| pod.starts_with("Pod ") && !used.node.is_empty());
            let pods: Vec<String> = pods.map(|(pod, _)| pod).collect();
            self.send(volume_claim_in_use(&claim, &pods, &now())).await?;
            return Ok(Outcome::Settled);
        }
        let scheduled: Vec<&str> =
            consumers.iter().map(|(_, used)| used.node.as_str()).filter(|node| !node.is_empty()).collect();
        let selected = text(&claim["metadata"]["annotations"][SELECTED_NODE]);
        let node = if selected.is_empty() { scheduled.first().copied().unwrap_or_default() } else { selected };
        let labels = self.node_labels(node).await?;
        let ask = match self.kind.ask(&claim, !scheduled.is_empty(), labels) {
            Ok(ask) => ask,
            Err(errors) => {
                let message = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                if text(&claim["status"]["phase"]) != "Bound" {
                    self.send(volume_claim_held(&claim, "Invalid", message, &now())).await?;
                }
                return Ok(Outcome::Settled);
            }
        };
        let decision = self.decide_allowed(&ask, &claim).await?;
        let wanted = match &decision {
            Decision::Bind { resource, .. } => resource,
            _ => self.kind.named(&claim),
        };
        let gathered = self.gather(&claim, wanted, &decision, fresh).await;
        let (live, parts, default) = match gathered {
            Ok(gathered) => gathered,
            Err(failure) => {
                self.forget(&uid);
                if failure.code == 403 {
                    let (reason, message) = held_by(&claim, &failure);
                    self.send(volume_claim_held(&claim, reason, message, &now())).await?;
                }
                return Err(failure.into());
            }
        };
        let class = {
            let state = self.state.lock();
            state.index.class_of(&ask).and_then(|name| state.classes.get(name.as_ref()).cloned())
        };
        let time = now();
        let plan = volume_claim(&VolumeClaimScene {
            claim: &claim,
            decision: &decision,
            volume: live.as_ref(),
            making: parts.as_ref().map(|parts| self.making(parts)),
            class: class.as_deref(),
            default_class: default.as_deref(),
            now: &time,
        });
        let bound = matches!(text(&claim["status"]["phase"]), "Bound" | "Lost");
        if matches!(decision, Decision::Bind { .. }) && plan.is_empty() && !bound {
            // what was to be bound is not as the index has it
            self.forget(&uid);
            return Err(Trouble::Outdated);
        }
        let mut outcome = Outcome::Settled;
        if let Decision::Wait { reason, summary } = &decision
            && !plan.is_empty()
            && let Err(pause) = self.may_say(key, &leading(reason, summary))
            && plan.writes.iter().all(|w| w.purpose == "say why the claim waits")
        {
            return Ok(Outcome::Later(pause));
        }
        if matches!(decision, Decision::Provision { .. }) && plan.is_empty() {
            // its implementation is being made, and is followed; this is for kinds that cannot be
            outcome = Outcome::Later(std::time::Duration::from_secs(10));
        }
        for write in &plan.writes {
            if write.purpose == "make the volume's implementation" {
                (self.cx.follow)(&write.target.api_version, &write.target.kind);
            }
        }
        if let Err(broken) = self.send_for_claim(&uid, plan).await {
            let held = ["make the volume's implementation", GROW].contains(&broken.purpose);
            if held && !matches!(broken.failure.code, 0 | 409 | 429 | 500..) {
                let (reason, message) = held_by(&claim, &broken.failure);
                let plan = match (live.as_ref(), parts.as_ref()) {
                    (Some(volume), Some(parts)) if broken.purpose == GROW => {
                        growth_refused(&claim, volume, &self.making(parts), reason, message, &now())
                    }
                    _ => volume_claim_held(&claim, reason, message, &now()),
                };
                self.send(plan).await?;
            }
            return Err(broken.into());
        }
        if let Some(volume) = live.as_ref().filter(|volume| bound && !wants_more(&claim, volume))
            && is_charged_for_more(&claim)
        {
            // whether it may still be made larger is for the volume's look to say
            self.queue.add(Item::Resource(text(&volume["metadata"]["name"]).into()));
        }
        if bound && live.is_some_and(|volume| wants_more(&claim, &volume)) {
            // what its template is by now, and what its provider has seen, shows on no object that is followed for the claim
            outcome = Outcome::Later(std::time::Duration::from_secs(10));
        }
        Ok(outcome)
    }

    fn making<'p>(&'p self, parts: &'p Parts) -> Making<'p> {
        Making {
            class: &parts.class,
            template: &parts.template,
            implementation: parts.implementation.as_ref(),
            expressions: &self.cx.evaluator,
        }
    }

    /// The volume, what making one takes, and the default class.
    async fn gather(
        &self,
        claim: &Value,
        wanted: &str,
        decision: &Decision,
        fresh: bool,
    ) -> Result<(Option<Value>, Option<Parts>, Option<String>), Failure> {
        let live = self.resource_for_claim(wanted, fresh).await?;
        let growing = live.as_ref().filter(|volume| wants_more(claim, volume));
        let (class, default) = {
            let state = self.state.lock();
            let class = match decision {
                Decision::Provision { class, .. } => state.classes.get(class.as_ref()).cloned(),
                _ => growing.and_then(|volume| state.classes.get(text(&volume["spec"]["storageClassName"]))).cloned(),
            };
            (class, state.index.default_class().map(str::to_owned))
        };
        let Some(class) = class else { return Ok((live, None, default)) };
        let name = text(&class["parameters"]["template"]).to_owned();
        let Some(template) = self.cx.api.get(TEMPLATE.0, TEMPLATE.1, "", &name).await? else {
            return Ok((live, None, default));
        };
        let object = &template["spec"]["template"];
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let implementation = match growing {
            Some(volume) => self.behind(volume).await?,
            None => self.cx.provisioner.get(api_version, kind, SYSTEM_NAMESPACE, &made_name(claim)).await?,
        };
        (self.cx.follow)(api_version, kind);
        Ok((live, Some(Parts { class, template, implementation }), default))
    }

    /// What is behind a volume of ours.
    async fn behind(&self, volume: &Value) -> Result<Option<Value>, Failure> {
        let annotations = &volume["metadata"]["annotations"];
        if !is_ours(volume) {
            return Ok(None);
        }
        let behind: Value = serde_json::from_str(text(&annotations[IMPLEMENTATION])).unwrap_or_default();
        let part = |key: &str| text(&behind[key]);
        (self.cx.follow)(part("apiVersion"), part("kind"));
        let live = self.cx.provisioner.get(part("apiVersion"), part("kind"), part("namespace"), part("name")).await?;
        Ok(live.filter(|live| is_behind(live, volume)))
    }

    /// Another claim than the one with this uid that names a volume and was bound, as the API server has it.
    async fn named_by(&self, volume: &Value, uid: &str) -> Result<Option<Value>, Failure> {
        let (name, reference) = (text(&volume["metadata"]["name"]), &volume["spec"]["claimRef"]);
        let others: Vec<Key> = {
            let state = self.state.lock();
            let other = |key: &&Key| {
                let copy = *key.0 == *text(&reference["namespace"]) && *key.1 == *text(&reference["name"]);
                state.claims.get(key).is_some_and(|seen| seen.uid.as_ref() != uid && (seen.had || copy))
            };
            state.naming(name).filter(other).cloned().collect()
        };
        let mut found: Option<Value> = None;
        // who has it before who had it, and who only says so last
        let rank = |claim: &Value| (text(&claim["status"]["phase"]) == "Bound", !claim["status"]["capacity"].is_null());
        for (namespace, claim) in others {
            let live = self.cx.api.get("v1", "PersistentVolumeClaim", &namespace, &claim).await?;
            let names = |o: &Value| text(&o["spec"]["volumeName"]) == name && text(&o["metadata"]["uid"]) != uid;
            let live = live.filter(|o| names(o) && was_bound(o, volume));
            if live.as_ref().is_some_and(|live| found.as_ref().is_none_or(|found| rank(live) > rank(found))) {
                found = live;
            }
        }
        Ok(found)
    }

    pub(crate) async fn volume(&self, name: &str, fresh: bool) -> Result<Outcome, Trouble> {
        let Some(object) = self.resource_object(name, fresh).await? else { return Ok(Outcome::Settled) };
        let reference = &object["spec"]["claimRef"];
        let uid = text(&reference["uid"]);
        let implementation = self.behind(&object).await?;
        let (namespace, of) = (text(&reference["namespace"]), text(&reference["name"]));
        let leaving = !object["metadata"]["deletionTimestamp"].is_null();
        let claim = if uid.is_empty() {
            Found::Gone
        } else if leaving || (implementation.is_some() && text(&object["status"]["phase"]) == "Bound") {
            // what is behind the volume shows on its claim too, which must be there whole for that; and what is to go must not by a
            // look from before its claim named it
            self.ask_for_claim(uid, namespace, of).await?
        } else {
            self.find_claim(uid, namespace, of).await?
        };
        // nobody else's word counts while its claim has it
        let open = leaving || uid.is_empty() || matches!(text(&object["status"]["phase"]), "Released" | "Failed");
        let named_by = if open { self.named_by(&object, uid).await? } else { None };
        let time = now();
        let plan = volume(&VolumeScene {
            volume: &object,
            claim: claim.presence(),
            named_by: named_by.as_ref(),
            implementation: implementation.as_ref(),
            now: &time,
        });
        let going = implementation.as_ref().is_some_and(|i| !i["metadata"]["deletionTimestamp"].is_null());
        let going = going || plan.removes_implementation();
        // what is restored after its volume is labelled as another's, and shows on nothing that is followed for this one
        let lacks = implementation.is_none() && matches!(claim, Found::Alive(_)) && is_ours(&object);
        let label = |i: &Value| text(&i["metadata"]["labels"][RESOURCE_UID]) != text(&object["metadata"]["uid"]);
        let lacks =
            lacks || (text(&object["status"]["reason"]) == SCRUBBING && implementation.as_ref().is_some_and(label));
        self.send(plan).await?;
        // that it is gone is not shown by a watch that begins after that
        Ok(if going || lacks { Outcome::Later(std::time::Duration::from_secs(5)) } else { Outcome::Settled })
    }
}
