//! The ledger: every candidate and what refused it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::matching::decide::{Decision, Reason, Why, provisions};
use crate::matching::index::Index;
use crate::matching::predicate::{Exemption, Judge, Refusal, refusals, refuse_held};
use crate::matching::profile::make;
use crate::matching::remedy::Remedy;
use crate::matching::summary::{Count, Summary};
use crate::rules::Rules;
use crate::views::{Ask, ClassAsk, Offer, Phase, Profile, Taken};

/// One candidate and what it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name of the resource or class.
    pub name: Arc<str>,
    /// Whether it is a class.
    pub class: bool,
    /// The first predicate that refused it; `None`: it fits.
    pub refusal: Option<Refusal>,
    /// The same for people.
    pub text: String,
}

/// Everything there is to say about one claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// What is to be done, found without the indexes.
    pub decision: Decision,
    /// Every resource, by name, then every class.
    pub candidates: Vec<Candidate>,
    /// What would help, where the claim waits and anything would.
    pub remedy: Option<Remedy>,
}

impl Ledger {
    /// The candidates' refusals in numbers, as a [`Summary`] counts them.
    pub fn counts(&self) -> std::collections::BTreeMap<Count, usize> {
        let mut summary = Summary::default();
        for candidate in self.candidates.iter().filter(|c| !c.class) {
            if let Some(refusal) = &candidate.refusal {
                summary.add(Count::of(refusal), 1);
            }
        }
        summary.counts
    }
}

impl Index {
    /// The ledger of a claim. Asks every candidate: O(n).
    pub fn explain(&self, ask: &Ask, judge: &dyn Judge) -> Ledger {
        let rules = &self.rules;
        let default = self.default_class();
        let mut offers: Vec<&Offer> = self.offers().collect();
        offers.sort_by(|a, b| a.name.cmp(&b.name));
        let mut candidates = Vec::with_capacity(offers.len() + self.profiles.len());
        let mut best: Option<&Offer> = None;
        for offer in &offers {
            let refusal = refusals(rules, judge, default, ask, offer, Exemption::default()).into_iter().next();
            if refusal.is_none() && best.is_none_or(|b| tighter(rules, offer, b).is_lt()) {
                best = Some(offer);
            }
            let own = !ask.uid.is_empty() && !offer.deleting && offer.refs.iter().any(|r| r.uid == ask.uid);
            let text = match &refusal {
                _ if own && let Some(unfit) = refuse_held(rules, ask, offer) => {
                    format!("is reserved for this claim, but {}", refusal_text(rules, ask, Some(offer), &unfit))
                }
                _ if own => "is bound to this claim".into(),
                None => "fits".to_owned(),
                Some(refusal) => refusal_text(rules, ask, Some(offer), refusal),
            };
            candidates.push(Candidate { name: offer.name.clone(), class: false, refusal, text });
        }
        let class = self.class_of(ask);
        for profile in self.profiles.values() {
            let (refusal, text) = self.judge_profile(ask, judge, class.as_deref(), profile);
            candidates.push(Candidate { name: profile.name.clone(), class: true, refusal, text });
        }
        let mut decision = self.conclude(ask, judge, class, best);
        // The counts are the same by either way (a property test); the index has them already.
        if let (Decision::Wait { summary, .. }, Decision::Wait { summary: counted, .. }) =
            (&mut decision, self.decide(ask, judge))
        {
            *summary = counted;
        }
        let remedy = match &decision {
            Decision::Wait { reason: Reason::FirstConsumer(_) | Reason::BeingMade(_), .. } => None,
            Decision::Wait { .. } => self.remedy(ask, judge, &offers),
            _ => None,
        };
        Ledger { decision, candidates, remedy }
    }

    /// Why a resource that a claim names, or that is reserved for it, cannot be used.
    pub fn refused(&self, ask: &Ask, resource: &str, refusal: &Refusal) -> String {
        match (refusal, self.get(resource)) {
            (Refusal::Attribute(_), offer @ Some(_)) => refusal_text(&self.rules, ask, offer, refusal),
            (Refusal::TooSmall(_) | Refusal::TooLarge(_), offer @ Some(_)) => {
                format!("it {}", refusal_text(&self.rules, ask, offer, refusal))
            }
            _ => crate::lifecycle::refused(&self.rules, refusal),
        }
    }

    fn judge_profile(
        &self,
        ask: &Ask,
        judge: &dyn Judge,
        class: Option<&str>,
        profile: &Profile,
    ) -> (Option<Refusal>, String) {
        if class != Some(&profile.name) {
            return (Some(Refusal::Class), refusal_text(&self.rules, ask, None, &Refusal::Class));
        }
        if profile.deleting {
            return (Some(Refusal::Taken(Taken::Deleting)), "is being deleted".into());
        }
        if !profile.served {
            return (Some(Refusal::Taken(Taken::Phase(Phase::Pending))), "no manager serves it".into());
        }
        if !profile.provisions {
            return (Some(Refusal::Taken(Taken::Phase(Phase::Pending))), "makes nothing: it has no template".into());
        }
        match make(&self.rules, judge, ask, profile) {
            Ok(_) => (None, "can make it".into()),
            Err(refused) => {
                let text =
                    refused.iter().map(|r| refusal_text(&self.rules, ask, None, r)).collect::<Vec<_>>().join("; ");
                (refused.into_iter().next(), text)
            }
        }
    }

    /// The decision, from what the walk over all candidates found.
    fn conclude(&self, ask: &Ask, judge: &dyn Judge, class: Option<Arc<str>>, best: Option<&Offer>) -> Decision {
        if let Some(decision) = self.explicit(ask, judge) {
            return decision;
        }
        let profile = class.as_ref().and_then(|c| self.profiles.get(c));
        let late = profile.is_some_and(|p| p.late && !ask.needed);
        match (best, class, profile) {
            (_, Some(class), _) if late => {
                Decision::Wait { reason: Reason::FirstConsumer(class), summary: Summary::default() }
            }
            (Some(offer), _, _) => Decision::Bind { resource: offer.name.clone(), why: Why::Matched },
            (None, Some(class), Some(profile)) if provisions(profile) => match make(&self.rules, judge, ask, profile) {
                Ok(made) => Decision::Provision { class, made },
                Err(refused) => {
                    Decision::Wait { reason: Reason::ClassRefused(class, refused), summary: Summary::default() }
                }
            },
            (None, Some(class), None) => {
                Decision::Wait { reason: Reason::ClassMissing(class), summary: Summary::default() }
            }
            (None, Some(class), Some(profile)) if !profile.served => {
                Decision::Wait { reason: Reason::ClassUnserved(class), summary: Summary::default() }
            }
            (None, _, _) => Decision::Wait { reason: Reason::NoMatch, summary: Summary::default() },
        }
    }
}

/// The order of fit between two that fit.
pub(crate) fn tighter(rules: &Rules, a: &Offer, b: &Offer) -> Ordering {
    let rank = |o: &Offer| if rules.volumes { o.shape.modes.len() } else { 0 };
    let free = |o: &Offer| (0..rules.capacities.len()).map(|i| o.free(i)).collect::<Vec<_>>();
    rank(a).cmp(&rank(b)).then_with(|| free(a).cmp(&free(b))).then_with(|| a.name.cmp(&b.name))
}

pub(super) fn shown(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |v| v.to_string())
}

pub(super) fn class_text(class: &ClassAsk) -> String {
    match class {
        ClassAsk::Unset => "unset".into(),
        ClassAsk::Without => "\"\"".into(),
        ClassAsk::Named(name) => name.to_string(),
    }
}

/// A refusal for people.
pub(crate) fn refusal_text(rules: &Rules, ask: &Ask, offer: Option<&Offer>, refusal: &Refusal) -> String {
    let capacity = |i: &usize| rules.capacities.get(*i).map_or("", |c| &c.name).to_owned();
    match refusal {
        Refusal::Class => match offer {
            Some(offer) => {
                format!("is of class {}, asked {}", shown(offer.shape.class.as_ref()), class_text(&ask.wish.class))
            }
            None => format!("is another class, asked {}", class_text(&ask.wish.class)),
        },
        Refusal::Barred => "is of a class that its maker may not use".into(),
        Refusal::Taken(taken) => match taken {
            Taken::Bound => "is bound".into(),
            Taken::Reserved => "is reserved".into(),
            Taken::Deleting => "is being deleted".into(),
            Taken::Phase(phase) => format!("is {}", phase.name()),
        },
        Refusal::Attribute(i) => {
            let name = rules.attributes.get(*i).map_or("", |a| &a.name);
            let want = shown(ask.wish.attributes.get(*i).and_then(Option::as_ref));
            match offer {
                Some(offer) => {
                    let has = shown(offer.shape.attributes.get(*i).and_then(Option::as_ref));
                    format!("{name} is {has}, asked {want}")
                }
                None => format!("does not offer {name} {want}"),
            }
        }
        Refusal::Capability(name) => format!("cannot do {name}"),
        Refusal::Mode(name) => format!("does not allow {name}"),
        Refusal::Topology => "cannot be used on the consumer's node".into(),
        Refusal::TooSmall(i) => {
            let asked = ask.lower.get(*i).copied().unwrap_or_default();
            match offer {
                Some(offer) => format!("has {} of {} left, asked {asked}", offer.free(*i), capacity(i)),
                None => format!("makes less than {asked} of {}", capacity(i)),
            }
        }
        Refusal::MakesLess(i, most) => {
            format!("makes at most {most} of {}, asked {}", capacity(i), ask.lower.get(*i).copied().unwrap_or_default())
        }
        Refusal::TooLarge(i) => {
            let limit = shown(ask.ceiling(rules, *i));
            match offer {
                Some(offer) => format!("has {} of {}, limit {limit}", offer.free(*i), capacity(i)),
                None => format!("makes more than {limit} of {}", capacity(i)),
            }
        }
        Refusal::Selector if offer.is_none() => "makes none where a selector chooses among those there are".into(),
        Refusal::Selector => "its labels are not selected".into(),
        Refusal::Content => "makes empty ones only, and the claim is to begin with what its dataSource holds".into(),
        Refusal::Expression(None) => "the expression does not hold".into(),
        Refusal::Expression(Some(error)) => format!("the expression failed: {error}"),
        Refusal::Offers(error) => format!("what it offers cannot be told: {error}"),
    }
}
