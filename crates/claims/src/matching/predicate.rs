//! The predicates, in the order in which they are asked. The first that fails is the one a ledger names.

use crate::amount::Amount;
use crate::names::derived;
use crate::rules::Rules;
use crate::views::{Ask, By, ClassAsk, Offer, Phase, Shape, Taken, Wish};

/// Evaluates CEL for matching; implemented where CEL is at hand.
pub trait Judge {
    /// Whether a claim's expression holds of a resource; an error refuses and is said.
    fn accepts(&self, expression: &str, ask: &Ask, offer: &Offer) -> Result<bool, String>;

    /// What a class's expression over the claim yields.
    fn compute(&self, _expression: &str, _ask: &Ask) -> Result<serde_json::Value, String> {
        Err("expressions are not evaluated here".into())
    }
}

/// Refuses every expression; for types and tests that have none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJudge;

impl Judge for NoJudge {
    fn accepts(&self, _: &str, _: &Ask, _: &Offer) -> Result<bool, String> {
        Err("expressions are not evaluated here".into())
    }
}

/// Why a resource does not satisfy a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another class.
    Class,
    /// A class that who made the claim may not use.
    Barred,
    /// Not free.
    Taken(Taken),
    /// The attribute with this number.
    Attribute(usize),
    /// A function it cannot do.
    Capability(String),
    /// An access mode it does not allow.
    Mode(String),
    /// Not usable where the consumer runs.
    Topology,
    /// Less than asked of the capacity with this number.
    TooSmall(usize),
    /// A class makes no more than this of the capacity with this number.
    MakesLess(usize, Amount),
    /// More than the limit.
    TooLarge(usize),
    /// Its labels.
    Selector,
    /// The claim is to begin with what something else holds, and a class makes empty ones.
    Content,
    /// The claim's expression, with the error if it failed.
    Expression(Option<String>),
    /// An expression of the class, which failed.
    Offers(String),
}

/// What an explicit binding does not ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exemption {
    /// The class need not be equal.
    pub class: bool,
    /// A resource without a class is as good as one of the class; and any, for a claim that names none.
    pub unclassed: bool,
    /// Selector and expression need not hold.
    pub selector: bool,
    /// It may be taken, as long as it is by this claim.
    pub taken: bool,
}

impl Exemption {
    /// Of a claim that names its resource.
    pub fn named(rules: &Rules) -> Exemption {
        Exemption { class: false, unclassed: !rules.volumes, selector: true, taken: true }
    }

    /// Of a resource that is reserved for the claim.
    pub fn reserved() -> Exemption {
        Exemption { class: true, unclassed: true, selector: true, taken: true }
    }
}

/// Whether the class of a resource is the one wanted.
pub(crate) fn class_fits(wish: &Wish, default: Option<&str>, class: Option<&str>, volumes: bool) -> bool {
    match (&wish.class, default) {
        (ClassAsk::Named(name), _) => class == Some(name.as_ref()),
        (ClassAsk::Without, _) => class.is_none(),
        (ClassAsk::Unset, Some(default)) => class == Some(default),
        (ClassAsk::Unset, None) => !volumes || class.is_none(),
    }
}

/// The predicates that depend only on what resources have in common.
pub(crate) fn refuse_shape(rules: &Rules, wish: &Wish, shape: &Shape) -> Option<Refusal> {
    shape_refusals(rules, wish, shape).next()
}

fn shape_refusals<'a>(rules: &'a Rules, wish: &'a Wish, shape: &'a Shape) -> impl Iterator<Item = Refusal> + 'a {
    let attributes = wish.attributes.iter().enumerate().filter_map(|(i, want)| {
        let has = shape.attributes.get(i).and_then(Option::as_ref);
        let satisfied = rules.attributes.get(i)?.satisfied(want.as_ref()?, has);
        (!satisfied).then_some(Refusal::Attribute(i))
    });
    let capabilities = wish.capabilities.iter().filter(|c| !shape.capabilities.contains(c));
    let modes = wish.modes.iter().filter(|m| !shape.modes.contains(m));
    let reached = match (&wish.node, &shape.topology) {
        (Some(node), Some(topology)) => topology.reaches(node),
        _ => true,
    };
    attributes
        .chain(capabilities.map(|c| Refusal::Capability(c.to_string())))
        .chain(modes.map(|m| Refusal::Mode(m.to_string())))
        .chain((!reached).then_some(Refusal::Topology))
}

/// The predicates on labels and expression, which only a walk can ask.
pub(crate) fn refuse_late(judge: &dyn Judge, ask: &Ask, offer: &Offer) -> Option<Refusal> {
    if ask.wish.selector.as_ref().is_some_and(|s| !s.matches(&offer.labels)) {
        return Some(Refusal::Selector);
    }
    refuse_expression(judge, ask.wish.expression.as_ref()?, ask, offer)
}

/// Whether the claim's expression refuses a resource.
pub(crate) fn refuse_expression(judge: &dyn Judge, expression: &str, ask: &Ask, offer: &Offer) -> Option<Refusal> {
    match judge.accepts(expression, ask, offer) {
        Ok(true) => None,
        Ok(false) => Some(Refusal::Expression(None)),
        Err(error) => Some(Refusal::Expression(Some(error))),
    }
}

/// Every predicate that refuses this resource for this claim, in order.
pub fn refusals(
    rules: &Rules,
    judge: &dyn Judge,
    default: Option<&str>,
    ask: &Ask,
    offer: &Offer,
    exempt: Exemption,
) -> Vec<Refusal> {
    let mut all = Vec::new();
    let reference = offer.reference(ask).filter(|_| exempt.taken);
    let taken = match offer.taken() {
        Some(Taken::Bound | Taken::Reserved) if reference.is_some() => None,
        taken => taken.map(Refusal::Taken),
    };
    // a volume and a claim that name each other belong together, as they do for Kubernetes, whatever else is so
    if rules.volumes && reference.is_some() && ask.resource_name.as_ref() == Some(&offer.name) {
        return taken.into_iter().collect();
    }
    let unclassed = exempt.unclassed
        && (offer.shape.class.is_none()
            || ask.wish.class == ClassAsk::Unset
            || (reference.is_some() && !rules.volumes));
    if !exempt.class && !unclassed && !class_fits(&ask.wish, default, offer.shape.class.as_deref(), rules.volumes) {
        all.push(Refusal::Class);
    } else if !exempt.class && !exempt.unclassed && ask.is_barred(offer.shape.class.as_ref()) {
        all.push(Refusal::Barred);
    }
    all.extend(taken);
    all.extend(shape_refusals(rules, &ask.wish, &offer.shape));
    for capacity in 0..rules.capacities.len() {
        // what this claim already holds is free for it
        let held = reference.and_then(|r| r.amounts.get(capacity).copied()).filter(|_| offer.max_claims > 1);
        let free = offer.free(capacity).plus(held.unwrap_or_default());
        let lower = ask.lower.get(capacity).copied().unwrap_or(Amount::ZERO);
        if free < lower {
            all.push(Refusal::TooSmall(capacity));
        } else if ask.ceiling(rules, capacity).is_some_and(|upper| free > upper) {
            all.push(Refusal::TooLarge(capacity));
        }
    }
    if !exempt.selector {
        if ask.wish.selector.as_ref().is_some_and(|s| !s.matches(&offer.labels)) {
            all.push(Refusal::Selector);
        }
        all.extend(ask.wish.expression.as_ref().and_then(|e| refuse_expression(judge, e, ask, offer)));
    }
    all
}

/// What refuses a resource for a claim that it refers to by uid and that is not bound yet: a bind that was begun for what the claim asked
/// before, or an administrator's reference to whom it does not fit.
///
/// What was made for the claim is judged where it is bound, for it may leave open what its class does; what a manager has begun, and the
/// claim names or others use, is finished, for it cannot be told from one that is over. PersistentVolumes keep Kubernetes' rule.
pub(crate) fn refuse_held(rules: &Rules, ask: &Ask, offer: &Offer) -> Option<Refusal> {
    let held = offer.refs.iter().find(|r| !r.uid.is_empty() && r.uid == ask.uid)?;
    let begun = held.by == By::Manager;
    let made = *offer.name == *derived(&rules.resource, &ask.uid);
    if rules.volumes || ask.bound || made || offer.deleting {
        return None;
    }
    if begun && (ask.resource_name.is_some() || offer.phase != Phase::Available) {
        return None;
    }
    let exempt = Exemption { class: !begun, unclassed: !begun, selector: true, taken: true };
    refuse(rules, &NoJudge, None, ask, offer, exempt)
}

/// The first predicate that refuses this resource for this claim.
pub fn refuse(
    rules: &Rules,
    judge: &dyn Judge,
    default: Option<&str>,
    ask: &Ask,
    offer: &Offer,
    exempt: Exemption,
) -> Option<Refusal> {
    refusals(rules, judge, default, ask, offer, exempt).into_iter().next()
}
