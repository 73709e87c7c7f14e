//! Why a claim is bound to what it is, or why it waits, candidate by candidate.

use std::fmt::Write;

use conductor_claims::amount::Amount;
use conductor_claims::lifecycle::{condition_of, refused, too_costly};
use conductor_claims::matching::{Decision, Ledger, Reason, Refusal, Why};
use conductor_claims::views::{Ask, Phase, Taken};
use serde_json::{Value, json};

use super::allowed::{Allowed, Maker};
use super::tree::health;
use super::{Snapshot, Unanswered, kind_and_name, resolve};
use crate::api::Api;
use crate::expressions::{ClaimJudge, Evaluator};
use crate::rights;

/// The answer, for people and for programs.
pub struct Explanation {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Explains a claim.
pub async fn explain(api: &Api, word: &str, namespace: &str) -> Result<Explanation, Unanswered> {
    let (word, name) = kind_and_name(word)?;
    let (kind, api_version, kind_name) = resolve(api, word).await?;
    let Some(kind) = kind.filter(|k| k.claim().1 == kind_name) else {
        let message = format!("{kind_name} is no claim: explain a claim, such as pvc/data");
        return Err(Unanswered::Question(message));
    };
    let Some(claim) = api.get(&api_version, &kind_name, namespace, name).await? else {
        return Err(Unanswered::Question(format!("there is no {kind_name} {name} in namespace {namespace}")));
    };
    let mut snapshot = Snapshot::read(api, kind, namespace).await?;
    if !snapshot.seen {
        // without the right to see resources: what the claim says of itself, numbers and no names
        return Ok(own_words(&claim));
    }
    let ask = match snapshot.kind.ask(&claim, snapshot.needed(&claim), snapshot.node(api, &claim).await?) {
        Ok(ask) => ask,
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let json = json!({"claim": name, "namespace": namespace, "errors": errors});
            return Ok(Explanation {
                text: format!("{kind_name} {name} cannot be read: {}\n", errors.join("; ")),
                json,
            });
        }
    };
    let mut allowed = Allowed::new(api, &claim, Maker::Written);
    let ask = allowed.bar(&snapshot, ask).await?;
    let evaluator = Evaluator::default();
    let rules = snapshot.kind.rules();
    // every candidate is judged here, and changes of the claim are tried: who waits for the answer pays for it
    let judge = ClaimJudge::unhurried(&evaluator, &rules, &claim);
    let mut ledger = snapshot.index.explain(&ask, &judge);
    // the same decision, with what refused the others in numbers
    ledger.decision = ClaimJudge::new(&evaluator, &rules, &claim).decide(&snapshot.index, &ask);
    ledger.decision = allowed.decision(&snapshot, &ask, ledger.decision).await?;
    say_why(&mut ledger, &snapshot);
    agree(&mut ledger, &ask, &snapshot);
    // what cannot be made here is no way out
    let lacking: Vec<String> =
        snapshot.index.profiles().map(|p| p.name.to_string()).filter(|class| snapshot.lacks(class).is_some()).collect();
    if ledger.remedy.as_ref().is_some_and(|r| r.class && lacking.iter().any(|class| **class == *r.target)) {
        for class in &lacking {
            snapshot.index.remove_profile(class);
        }
        ledger.remedy = snapshot.index.explain(&ask, &judge).remedy;
    }
    for candidate in ledger.candidates.iter_mut().filter(|c| c.class && c.refusal.is_none()) {
        if snapshot.lacks(&candidate.name).is_some() {
            candidate.refusal = Some(Refusal::Taken(Taken::Phase(Phase::Pending)));
            candidate.text = "cannot make it now".to_owned();
        }
    }
    for candidate in ledger.candidates.iter_mut().filter(|c| !c.class && c.refusal.is_none()) {
        let class = snapshot.index.get(&candidate.name).and_then(|offer| offer.shape.class.as_ref());
        candidate.text += &allowed.proviso(class);
    }
    let proviso = allowed.proviso(rights::class_of(&ledger.decision, &snapshot.index).as_ref());
    Ok(shown(&claim, &ask, &kind_name, &ledger, &snapshot, &proviso))
}

/// A resource that cannot be had because of its phase says why it is in that.
fn say_why(ledger: &mut Ledger, snapshot: &Snapshot) {
    for candidate in ledger.candidates.iter_mut().filter(|c| !c.class) {
        let Some(Refusal::Taken(Taken::Phase(_))) = candidate.refusal else { continue };
        let named = |r: &&Value| text(&r["metadata"]["name"]) == candidate.name.as_ref();
        let why = snapshot.resources.iter().find(named).map_or("", |r| text(&r["status"]["message"]));
        if !why.is_empty() {
            candidate.text += &format!(": {why}");
        }
    }
}

/// What is decided about one resource, by its name or because it refers to the claim, its row says too.
fn agree(ledger: &mut Ledger, ask: &Ask, snapshot: &Snapshot) {
    let (name, said, fits) = match &ledger.decision {
        Decision::Bind { resource, why: Why::Held } => (resource, "is bound to this claim".to_owned(), true),
        Decision::Bind { resource, why: Why::Named } => (resource, "is named by the claim".to_owned(), true),
        Decision::Bind { resource, why: Why::Reserved } => (resource, "is reserved for the claim".to_owned(), true),
        Decision::Wait { reason: Reason::NamedRefused(name, why) | Reason::ReservedRefused(name, why), .. } => {
            (name, snapshot.index.refused(ask, name, why), false)
        }
        Decision::Wait { reason: Reason::BeingMade(name), .. } => {
            (name, "is being made for this claim".to_owned(), false)
        }
        _ => return,
    };
    for candidate in ledger.candidates.iter_mut().filter(|c| !c.class && c.name == *name) {
        candidate.text.clone_from(&said);
        if fits {
            candidate.refusal = None;
        }
    }
}

fn own_words(claim: &Value) -> Explanation {
    let status = &claim["status"];
    let condition = condition_of(claim, "Bound").filter(|(bound, _, _)| !bound || text(&status["message"]).is_empty());
    let message = condition.map_or_else(|| text(&status["message"]), |(_, _, message)| message);
    let phase = Some(text(&status["phase"])).filter(|p| !p.is_empty()).unwrap_or("Pending");
    let text =
        format!("{} {}: {phase}\n  {message}\n", self::text(&claim["kind"]), self::text(&claim["metadata"]["name"]));
    Explanation { text, json: json!({"phase": phase, "message": message}) }
}

/// What is known to be in the way of a claim, in its own words or else in its resource's; empty: nothing.
pub(super) fn trouble(claim: &Value, resource: Option<&Value>) -> String {
    let own = match condition_of(claim, "Bound") {
        Some((false, _, message)) => message,
        _ => text(&claim["status"]["message"]),
    };
    if !own.is_empty() {
        return own.to_owned();
    }
    let unwell = |r: &&Value| {
        let ready = condition_of(r, "Ready").is_none_or(|(ready, _, _)| ready);
        !ready || matches!(text(&r["status"]["phase"]), "Failed" | "Provisioning")
    };
    let said = |r: &Value| format!("{} {} is {}", text(&r["kind"]), text(&r["metadata"]["name"]), health(r));
    resource.filter(unwell).map(said).unwrap_or_default()
}

/// A decision about a claim in one sentence.
pub(super) fn sentence(decision: &Decision, claim: &Value, ask: &Ask, snapshot: &Snapshot) -> String {
    let (_, resource) = snapshot.kind.resource();
    // what it asks for by name, and what was made for it
    let which =
        |name: &str| if snapshot.kind.named(claim) == name { "which it names" } else { "which was made for it" };
    match decision {
        Decision::Bind { resource: name, why } => {
            let why = match why {
                Why::Held => "it refers to the claim",
                Why::Named => "the claim names it",
                Why::Reserved => "it is reserved for the claim",
                Why::Matched => "it is the tightest fit",
            };
            format!("binds to {resource} {name}: {why}")
        }
        Decision::Provision { class, .. } if let Some(lacks) = snapshot.lacks(class) => {
            format!("waits: nothing fits, and class {class} cannot make a {resource} now: {lacks}")
        }
        Decision::Provision { .. } if let Some(why) = snapshot.unmakeable(claim, decision) => {
            format!("waits: nothing fits, and {why}")
        }
        Decision::Provision { class, made } => {
            let rules = snapshot.kind.rules();
            let some = rules.capacities.iter().zip(made.capacity.iter()).filter(|(_, a)| **a > Amount::ZERO);
            let amounts: Vec<String> = some.map(|(c, a)| format!("{} {a}", c.name)).collect();
            let with = if amounts.is_empty() { "" } else { " with " };
            let nothing = if snapshot.seen { "nothing fits" } else { "unless one fits, which is not yours to see" };
            format!("{nothing}; class {class} makes a {resource}{with}{}", amounts.join(", "))
        }
        Decision::Wait { reason, summary } => {
            let rules = snapshot.kind.rules();
            let counted = match snapshot.seen {
                true => summary.text(&rules),
                false => format!("whether one of the {resource}s there are fits is not yours to see"),
            };
            match reason {
                Reason::NamedMissing(name) if !snapshot.seen => {
                    format!("waits for {resource} {name}, which it names: whether it fits is not yours to see")
                }
                Reason::NoMatch => format!("waits: {counted}"),
                Reason::NamedMissing(name) => format!("waits: {resource} {name}, which it names, does not exist"),
                Reason::NamedRefused(name, why) => {
                    let why = snapshot.index.refused(ask, name, why);
                    format!("waits: {resource} {name}, {}, cannot be used: {why}", which(name))
                }
                Reason::ReservedRefused(name, why) => {
                    let why = snapshot.index.refused(ask, name, why);
                    format!("waits: {resource} {name}, which is reserved for it, cannot be used: {why}")
                }
                Reason::BeingMade(name) => format!("waits: {resource} {name} is being made"),
                Reason::FirstConsumer(class) => {
                    format!("waits: class {class} binds when a consumer needs the claim")
                }
                Reason::NotAllowed(class) => format!("waits: who made it may not use class {class}"),
                Reason::TooCostly => format!("waits: {}", too_costly(resource)),
                Reason::ClassMissing(class) => format!("waits: there is no class {class}; {counted}"),
                Reason::ClassUnserved(class) => format!("waits: no manager serves class {class}; {counted}"),
                Reason::ClassRefused(class, why) => {
                    let why: Vec<String> = why.iter().map(|w| refused(&rules, w)).collect();
                    format!("waits: class {class} cannot make it: {}; {counted}", why.join(", "))
                }
            }
        }
    }
}

/// Rows beyond which a ledger for people is cut; for programs it never is.
const ROWS: usize = 50;

fn shown(claim: &Value, ask: &Ask, kind: &str, ledger: &Ledger, snapshot: &Snapshot, proviso: &str) -> Explanation {
    let (namespace, name) = (text(&claim["metadata"]["namespace"]), text(&claim["metadata"]["name"]));
    let phase = Some(text(&claim["status"]["phase"])).filter(|p| !p.is_empty()).unwrap_or("Pending");
    let (_, resource) = snapshot.kind.resource();
    let said = match &ledger.decision {
        // it has what it would not be given again
        Decision::Wait { reason: Reason::NamedRefused(name, why), .. } if phase == "Bound" => {
            format!("stays bound to {resource} {name}: {}", snapshot.index.refused(ask, name, why))
        }
        decision => sentence(decision, claim, ask, snapshot) + proviso,
    };
    let bound = snapshot.kind.named(claim);
    let mut out = format!("{kind} {namespace}/{name}: {phase}");
    if !bound.is_empty() {
        let _ = write!(out, ", names {resource} {bound}");
    }
    let live = snapshot.resources.iter().find(|r| !bound.is_empty() && text(&r["metadata"]["name"]) == bound);
    let trouble = trouble(claim, live);
    if !said.contains(&trouble) {
        let _ = write!(out, "\n  {trouble}");
    }
    let _ = writeln!(out, "\n  {said}\n");
    let width = ledger.candidates.iter().take(ROWS).map(|c| c.name.len()).max().unwrap_or(0).max(9);
    if !ledger.candidates.is_empty() {
        let _ = writeln!(out, "  {:width$}  VERDICT", "CANDIDATE");
    }
    for candidate in ledger.candidates.iter().take(ROWS) {
        let what = if candidate.class { " (class)" } else { "" };
        let _ = writeln!(out, "  {:width$}  {}{what}", candidate.name, candidate.text);
    }
    if ledger.candidates.len() > ROWS {
        let _ = writeln!(out, "  and {} more: -o json lists them all", ledger.candidates.len() - ROWS);
    }
    if let Some(remedy) = &ledger.remedy {
        let what = if remedy.class { "class" } else { resource };
        let _ = writeln!(out, "\n  the smallest change that would bind it (to {what} {}):", remedy.target);
        for change in &remedy.changes {
            let again = if change.recreate { "  (re-create the claim)" } else { "" };
            let _ = writeln!(out, "    {}{again}", change.text);
        }
    }
    let candidates: Vec<Value> = ledger
        .candidates
        .iter()
        .map(|c| json!({"name": c.name.as_ref(), "class": c.class, "fits": c.refusal.is_none(), "verdict": c.text}))
        .collect();
    let remedy = ledger.remedy.as_ref().map(|remedy| {
        let changes: Vec<Value> =
            remedy.changes.iter().map(|c| json!({"change": c.text, "recreate": c.recreate})).collect();
        let patch = remedy.patch(&snapshot.kind.rules(), claim);
        json!({"target": remedy.target.as_ref(), "class": remedy.class, "changes": changes, "patch": patch})
    });
    let json = json!({
        "kind": kind, "namespace": namespace, "name": name, "phase": phase, "message": trouble, "decision": said,
        "candidates": candidates, "remedy": remedy,
    });
    Explanation { text: out, json }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_speaks_for_itself_and_else_its_resource_does() {
        let ready =
            |status: &str| json!([{"type": "Ready", "status": status, "reason": "Down", "message": "no answer"}]);
        let volume = |status: Value| json!({"kind": "PersistentVolume", "metadata": {"name": "v"}, "status": status});
        let bound = json!({"status": {"phase": "Bound", "conditions": [{"type": "Bound", "status": "True", "message": "bound"}]}});
        let failed = volume(json!({"phase": "Failed", "message": "its disk is gone"}));
        assert_eq!(trouble(&bound, Some(&failed)), "PersistentVolume v is Failed: its disk is gone");
        assert_eq!(
            trouble(&bound, Some(&volume(json!({"phase": "Bound", "conditions": ready("False")})))),
            "PersistentVolume v is Bound: no answer"
        );
        assert_eq!(trouble(&bound, Some(&volume(json!({"phase": "Bound", "conditions": ready("True")})))), "");
        let waits = json!({"status": {"phase": "Pending", "conditions": [{"type": "Bound", "status": "False", "message": "as root"}]}});
        assert_eq!(trouble(&waits, Some(&failed)), "as root");
    }
}
