//! What is decided about a claim with the rights of who made it, as its manager decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use conductor_claims::lifecycle::condition_of;
use conductor_claims::matching::{Decision, Index};
use conductor_claims::views::{Ask, ClassAsk};
use serde_json::Value;

use super::Snapshot;
use crate::api::{Api, Failure};
use crate::rights;

/// Who makes a claim, or has made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// Who is written on it.
    Written,
    /// Who asks what would become of it.
    Us,
}

/// What the right to use classes means for one claim.
pub(super) struct Allowed<'s> {
    api: &'s Api,
    claim: &'s Value,
    maker: Maker,
    /// Classes of which who asks may not know whether who made the claim may use them.
    pub untold: BTreeSet<Arc<str>>,
}

impl<'s> Allowed<'s> {
    /// Nothing is found out yet.
    pub fn new(api: &'s Api, claim: &'s Value, maker: Maker) -> Allowed<'s> {
        Allowed { api, claim, maker, untold: BTreeSet::new() }
    }

    /// Whether who made it may use a class; `None`: not for us to know.
    async fn may_use(&self, snapshot: &Snapshot, class: &str) -> Result<Option<bool>, Failure> {
        let allowed = match self.maker {
            Maker::Us => rights::we_may_use(self.api, &snapshot.kind, class).await,
            Maker::Written => rights::may_use(self.api, &snapshot.kind, self.claim, class).await,
        };
        match allowed {
            // not ours to ask, or of a type that is not there yet
            Err(failure) if matches!(failure.code, 403 | 404) => Ok(None),
            allowed => allowed.map(Some),
        }
    }

    /// Sets aside the classes that it may not have anything of, for a claim that takes resources of any.
    pub async fn bar(&mut self, snapshot: &Snapshot, ask: Ask) -> Result<Ask, Failure> {
        let any = ask.wish.class == ClassAsk::Unset && ask.resource_name.is_none() && !snapshot.kind.rules().volumes;
        if !any || snapshot.index.default_class().is_some() {
            return Ok(ask);
        }
        let mut barred: Vec<Arc<str>> = Vec::new();
        for class in snapshot.classes.iter().filter(|class| rights::is_limited(class)) {
            let name: Arc<str> = class["metadata"]["name"].as_str().unwrap_or_default().into();
            match self.may_use(snapshot, &name).await? {
                Some(true) => {}
                Some(false) => barred.push(name),
                None => drop(self.untold.insert(name)),
            }
        }
        Ok(Ask { barred: barred.into(), ..ask })
    }

    /// A decision, or the refusal of the class that it comes down to.
    pub async fn decision(&mut self, snapshot: &Snapshot, ask: &Ask, decision: Decision) -> Result<Decision, Failure> {
        let limited = |class: &Arc<str>| {
            let named = |c: &&Value| c["metadata"]["name"].as_str() == Some(class.as_ref());
            snapshot.classes.iter().find(named).is_some_and(rights::is_limited)
        };
        let Some(class) = judged(&decision, ask, &snapshot.index).filter(limited) else { return Ok(decision) };
        if self.untold.contains(&class) {
            return Ok(decision);
        }
        let allowed = match self.may_use(snapshot, &class).await? {
            Some(allowed) => allowed,
            // who may not ask that is told what the claim was told
            None => match condition_of(self.claim, "Bound") {
                Some((_, reason, _)) => reason != "NotAllowed",
                None => {
                    self.untold.insert(class);
                    return Ok(decision);
                }
            },
        };
        Ok(if allowed { decision } else { rights::refused(class) })
    }

    /// What a decision, or a resource, of a class hangs on.
    pub fn proviso(&self, class: Option<&Arc<str>>) -> String {
        let class = class.filter(|class| self.untold.contains(*class));
        class.map(|class| format!(", if who made the claim may use class {class}")).unwrap_or_default()
    }
}

/// The class that a decision comes down to; one that stands in for none is written on the claim, whatever comes of it.
fn judged(decision: &Decision, ask: &Ask, index: &Index) -> Option<Arc<str>> {
    let waits = matches!(decision, Decision::Wait { .. });
    let stands_in = waits && ask.wish.class == ClassAsk::Unset && ask.resource_name.is_none();
    rights::class_of(decision, index).or_else(|| index.class_of(ask).filter(|_| stands_in))
}
