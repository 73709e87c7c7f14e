//! The ledger: every candidate, what refused it, and the smallest change of the claim that would bind.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::amount::Amount;
use crate::matching::decide::{Decision, Reason, Why, provisions};
use crate::matching::index::Index;
use crate::matching::predicate::{Exemption, Judge, Refusal, class_fits, refusals};
use crate::matching::profile::make;
use crate::matching::summary::{Count, Summary};
use crate::rules::{Attribute, Match, Rules, Value, Want};
use crate::version::VersionRange;
use crate::views::{Ask, ClassAsk, Measure, Offer, Phase, Profile, Source, Taken};

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

/// A field of a claim, for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `spec.class`.
    Class(ClassAsk),
    /// An attribute, to this want or to none.
    Attribute(usize, Option<Want>),
    /// `spec.resources.requests` of a capacity.
    Request(usize, Amount),
    /// `spec.resources.limits` of a capacity, to this or to none.
    Limit(usize, Option<Amount>),
    /// One function less in `spec.requests`.
    WithoutCapability(String),
    /// One access mode less.
    WithoutMode(String),
    /// No `spec.selector`.
    WithoutSelector,
    /// No `spec.expression`.
    WithoutExpression,
    /// No `spec.resourceName`.
    WithoutName,
}

/// A change of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The field and its new value.
    pub field: Field,
    /// The same for people: `resources.requests.storage: 25Gi -> 20Gi`.
    pub text: String,
    /// Whether the claim must be re-created for it.
    pub recreate: bool,
}

/// The smallest change of a claim that would bind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// What to change, all of it.
    pub changes: Vec<Change>,
    /// The sum of the relative changes of amounts.
    pub relative: f64,
    /// The resource or class that fits then.
    pub target: Arc<str>,
    /// Whether the target is a class.
    pub class: bool,
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

/// How many remedies are tried before giving up.
const MAX_REMEDIES: usize = 64;

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
            let text = refusal.as_ref().map_or_else(|| "fits".to_owned(), |r| refusal_text(rules, ask, Some(offer), r));
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

    /// The smallest change that binds: fewest fields, then least relative change of amounts, then by name. Each is tried.
    fn remedy(&self, ask: &Ask, judge: &dyn Judge, offers: &[&Offer]) -> Option<Remedy> {
        let mut remedies: Vec<Remedy> = Vec::new();
        let reserved: Vec<&&Offer> = offers.iter().filter(|o| o.reference(ask).is_some()).collect();
        if let Some(offer) = ask.resource_name.as_ref().and_then(|n| self.get(n)) {
            remedies.extend(self.remedy_for(ask, judge, offer, Exemption::named(&self.rules), false));
        }
        let unnamed = ask.resource_name.is_some();
        if reserved.is_empty() {
            remedies
                .extend(offers.iter().filter_map(|o| self.remedy_for(ask, judge, o, Exemption::default(), unnamed)));
            remedies.extend(self.profiles.values().filter_map(|p| self.remedy_class(ask, judge, p, unnamed)));
        } else {
            remedies
                .extend(reserved.iter().filter_map(|o| self.remedy_for(ask, judge, o, Exemption::reserved(), unnamed)));
        }
        remedies.sort_by(|a, b| {
            (a.changes.len().cmp(&b.changes.len()))
                .then(a.relative.total_cmp(&b.relative))
                .then(a.class.cmp(&b.class))
                .then(a.target.cmp(&b.target))
        });
        remedies.into_iter().take(MAX_REMEDIES).find(|remedy| {
            let changed = remedy.changes.iter().fold(ask.clone(), |ask, change| change.field.apply(&ask));
            !matches!(self.decide(&changed, judge), Decision::Wait { .. })
        })
    }

    fn remedy_for(
        &self,
        ask: &Ask,
        judge: &dyn Judge,
        offer: &Offer,
        exempt: Exemption,
        unnamed: bool,
    ) -> Option<Remedy> {
        let rules = &self.rules;
        let mut fields = Vec::new();
        let mut relative = 0.0;
        if unnamed {
            fields.push(Field::WithoutName);
        }
        for refusal in refusals(rules, judge, self.default_class(), ask, offer, exempt) {
            let reference = offer.reference(ask).filter(|_| exempt.taken && offer.max_claims > 1);
            let has =
                |i: usize| offer.free(i).plus(reference.and_then(|r| r.amounts.get(i).copied()).unwrap_or_default());
            let field = match refusal {
                Refusal::Taken(_) | Refusal::Topology => return None,
                Refusal::Class => Field::Class(offer.shape.class.clone().map_or(ClassAsk::Without, ClassAsk::Named)),
                Refusal::Attribute(i) => {
                    let rule = rules.attributes.get(i)?;
                    let want = ask.wish.attributes.get(i)?.as_ref()?;
                    Field::Attribute(i, nearest(rule, want, offer.shape.attributes.get(i)?.as_ref()))
                }
                Refusal::Capability(name) => Field::WithoutCapability(name),
                Refusal::Mode(name) => Field::WithoutMode(name),
                Refusal::TooSmall(i) | Refusal::TooLarge(i) => {
                    let lower = ask.lower.get(i).copied().unwrap_or_default();
                    let exact = rules.capacities.get(i).is_some_and(|c| c.exact);
                    // a claim may have to give way at both ends
                    let limit = ask.upper.get(i).copied().flatten().filter(|upper| *upper < has(i));
                    let request =
                        (has(i) < lower || (exact && lower > Amount::ZERO && has(i) != lower)).then_some(lower);
                    if let Some(limit) = limit {
                        relative += apart(limit, has(i));
                        fields.push(Field::Limit(i, Some(has(i))));
                    }
                    if let Some(request) = request {
                        relative += apart(request, has(i));
                        fields.push(Field::Request(i, has(i)));
                    }
                    continue;
                }
                Refusal::Selector => Field::WithoutSelector,
                Refusal::Expression(_) => Field::WithoutExpression,
            };
            fields.push(field);
        }
        let changes = fields.into_iter().map(|field| self.change(ask, field)).collect();
        Some(Remedy { changes, relative, target: offer.name.clone(), class: false })
    }

    fn remedy_class(&self, ask: &Ask, judge: &dyn Judge, profile: &Profile, unnamed: bool) -> Option<Remedy> {
        let rules = &self.rules;
        if !provisions(profile) {
            return None;
        }
        let mut fields = Vec::new();
        let mut relative = 0.0;
        if unnamed {
            fields.push(Field::WithoutName);
        }
        if !class_fits(&ask.wish, self.default_class(), Some(&profile.name), true) {
            fields.push(Field::Class(ClassAsk::Named(profile.name.clone())));
        }
        for refusal in make(rules, judge, ask, profile).err().unwrap_or_default() {
            let field = match refusal {
                Refusal::Attribute(i) => {
                    let rule = rules.attributes.get(i)?;
                    let want = ask.wish.attributes.get(i)?.as_ref()?;
                    let has = match profile.attributes.get(i)? {
                        Some(Source::OneOf(values)) => values.first(),
                        _ => None,
                    };
                    Field::Attribute(i, nearest(rule, want, has))
                }
                Refusal::Capability(name) => Field::WithoutCapability(name),
                Refusal::Mode(name) => Field::WithoutMode(name),
                Refusal::TooSmall(i) => {
                    let upper = ask.upper.get(i).copied().flatten().unwrap_or(Amount::MAX);
                    let most = match profile.capacity.get(i)?.as_ref()? {
                        Measure::Between(least, most) => Some((*most)?.min(upper)).filter(|m| m >= least),
                        Measure::OneOf(amounts) => amounts.iter().filter(|a| **a <= upper).max().copied(),
                        Measure::Expression(_) => return None,
                    };
                    // nothing it makes is within the limit: the limit goes as well
                    let to = match (most, profile.capacity.get(i)?.as_ref()?) {
                        (Some(most), _) => most,
                        (None, Measure::Between(_, most)) => (*most)?,
                        (None, Measure::OneOf(amounts)) => *amounts.iter().max()?,
                        (None, Measure::Expression(_)) => return None,
                    };
                    if most.is_none() {
                        fields.push(Field::Limit(i, None));
                    }
                    relative += apart(ask.lower.get(i).copied().unwrap_or_default(), to);
                    Field::Request(i, to)
                }
                Refusal::TooLarge(i) => Field::Limit(i, None),
                _ => return None,
            };
            fields.push(field);
        }
        let changes = fields.into_iter().map(|field| self.change(ask, field)).collect();
        Some(Remedy { changes, relative, target: profile.name.clone(), class: true })
    }

    fn change(&self, ask: &Ask, field: Field) -> Change {
        // of a PersistentVolumeClaim only a bound one's request may grow
        Change { text: field.text(&self.rules, ask), field, recreate: self.rules.volumes }
    }
}

/// The order of fit between two that fit.
pub(crate) fn tighter(rules: &Rules, a: &Offer, b: &Offer) -> Ordering {
    let rank = |o: &Offer| if rules.volumes { o.shape.modes.len() } else { 0 };
    let free = |o: &Offer| (0..rules.capacities.len()).map(|i| o.free(i)).collect::<Vec<_>>();
    rank(a).cmp(&rank(b)).then_with(|| free(a).cmp(&free(b))).then_with(|| a.name.cmp(&b.name))
}

fn apart(from: Amount, to: Amount) -> f64 {
    let (from, to) = (from.nanos() as f64, to.nanos() as f64);
    if from == 0.0 { f64::from(u8::from(to != 0.0)) } else { ((to - from) / from).abs() }
}

/// The want nearest to `want` that `has` satisfies; none if there is none.
fn nearest(rule: &Attribute, want: &Want, has: Option<&Value>) -> Option<Want> {
    let has = has?;
    let new = match (rule.matching, want, has) {
        (Match::VersionRange, _, Value::Version(version)) => {
            Want::Range(Arc::new(VersionRange::parse(version.text()).ok()?))
        }
        (Match::Contains, Want::Value(Value::Many(wanted)), Value::Many(had)) => {
            Want::Value(Value::Many(wanted.iter().filter(|w| had.contains(w)).cloned().collect()))
        }
        (Match::In, _, Value::Text(text)) => Want::Value(Value::Many(Arc::from([text.clone()]))),
        _ => Want::Value(has.clone()),
    };
    rule.satisfied(&new, Some(has)).then_some(new)
}

impl Field {
    /// The claim with this field changed.
    pub fn apply(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        let mut wish = ask.wish.as_ref().clone();
        let without = |list: &[Arc<str>], gone: &str| list.iter().filter(|x| x.as_ref() != gone).cloned().collect();
        match self {
            Field::Class(class) => wish.class = class.clone(),
            Field::Attribute(i, want) => {
                if let Some(slot) = wish.attributes.get_mut(*i) {
                    *slot = want.clone();
                }
            }
            Field::Request(i, amount) => {
                if let Some(slot) = ask.lower.get_mut(*i) {
                    *slot = *amount;
                }
            }
            Field::Limit(i, amount) => {
                if let Some(slot) = ask.upper.get_mut(*i) {
                    *slot = *amount;
                }
            }
            Field::WithoutCapability(name) => wish.capabilities = without(&wish.capabilities, name),
            Field::WithoutMode(name) => wish.modes = without(&wish.modes, name),
            Field::WithoutSelector => wish.selector = None,
            Field::WithoutExpression => wish.expression = None,
            Field::WithoutName => ask.resource_name = None,
        }
        ask.wish = Arc::new(wish);
        ask
    }

    fn text(&self, rules: &Rules, ask: &Ask) -> String {
        let capacity = |i: &usize| rules.capacities.get(*i).map_or("", |c| &c.name).to_owned();
        match self {
            Field::Class(class) => format!("class: {} -> {}", class_text(&ask.wish.class), class_text(class)),
            Field::Attribute(i, want) => {
                let name = rules.attributes.get(*i).map_or("", |a| &a.name);
                let old = ask.wish.attributes.get(*i).and_then(Option::as_ref);
                format!("{name}: {} -> {}", shown(old), shown(want.as_ref()))
            }
            Field::Request(i, amount) => {
                let old = ask.lower.get(*i).copied().unwrap_or_default();
                format!("resources.requests.{}: {old} -> {amount}", capacity(i))
            }
            Field::Limit(i, amount) => {
                let old = ask.upper.get(*i).copied().flatten();
                format!("resources.limits.{}: {} -> {}", capacity(i), shown(old), shown(*amount))
            }
            Field::WithoutCapability(name) => format!("requests: without {name}"),
            Field::WithoutMode(name) => format!("accessModes: without {name}"),
            Field::WithoutSelector => "selector: none".into(),
            Field::WithoutExpression => "expression: none".into(),
            Field::WithoutName => {
                let name = if rules.volumes { "volumeName" } else { "resourceName" };
                format!("{name}: {} -> none", shown(ask.resource_name.as_ref()))
            }
        }
    }
}

fn shown(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |v| v.to_string())
}

fn class_text(class: &ClassAsk) -> String {
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
        Refusal::Taken(taken) => match taken {
            Taken::Bound if offer.is_some_and(|o| o.refs.iter().any(|r| r.uid == ask.uid)) => {
                "is bound to this claim".into()
            }
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
        Refusal::TooLarge(i) => {
            let limit = shown(ask.ceiling(rules, *i));
            match offer {
                Some(offer) => format!("has {} of {}, limit {limit}", offer.free(*i), capacity(i)),
                None => format!("makes more than {limit} of {}", capacity(i)),
            }
        }
        Refusal::Selector => "its labels are not selected".into(),
        Refusal::Expression(None) => "the expression does not hold".into(),
        Refusal::Expression(Some(error)) => format!("the expression failed: {error}"),
    }
}
