//! What a class would make for a claim.

use std::sync::Arc;

use crate::amount::Amount;
use crate::matching::predicate::{Judge, Refusal, refuse_expression};
use crate::rules::{Match, Rules, Value, Want};
use crate::selector::Labels;
use crate::version::Version;
use crate::views::{Ask, Measure, Offer, Phase, Profile, Shape, Source};

/// A resource that a class would make: what it will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Attribute values, in the order of the rules.
    pub attributes: Box<[Option<Value>]>,
    /// Capacities, in the order of the rules.
    pub capacity: Box<[Amount]>,
    /// Functions it will be able to do.
    pub capabilities: Arc<[Arc<str>]>,
    /// Access modes it will allow.
    pub modes: Arc<[Arc<str>]>,
}

/// What the class makes for this claim, or everything that keeps it from it.
pub fn make(rules: &Rules, judge: &dyn Judge, ask: &Ask, profile: &Profile) -> Result<Made, Vec<Refusal>> {
    let mut refused = Vec::new();
    let mut attributes = Vec::new();
    for (i, rule) in rules.attributes.iter().enumerate() {
        let want = ask.wish.attributes.get(i).and_then(Option::as_ref);
        let satisfies = |value: Option<&Value>| want.is_none_or(|w| rule.satisfied(w, value));
        let value = match profile.attributes.get(i).and_then(Option::as_ref) {
            None => free_choice(rule.matching, want),
            Some(Source::OneOf(values)) => {
                let fitting = values.iter().filter(|v| satisfies(Some(v)));
                let best = match rule.matching {
                    Match::VersionRange => fitting.max_by(|a, b| match (a, b) {
                        (Value::Version(a), Value::Version(b)) => a.order(b),
                        _ => a.cmp(b),
                    }),
                    _ => fitting.min_by_key(|v| values.iter().position(|x| x == *v)),
                };
                best.cloned()
            }
            Some(Source::Expression(expression)) => match judge.compute(expression, ask).map(|json| rule.read(&json)) {
                Ok(Ok(value)) => value,
                Ok(Err(error)) | Err(error) => {
                    refused.push(Refusal::Offers(error));
                    None
                }
            },
        };
        // a range that names no version of its own is for whoever makes it to choose from
        let open = value.is_none()
            && !rule.required
            && matches!(want, Some(Want::Range(_)))
            && profile.attributes.get(i).is_some_and(Option::is_none);
        if (!satisfies(value.as_ref()) && !open)
            || (value.is_none() && rule.required && profile.attributes.get(i).is_some_and(Option::is_some))
        {
            refused.push(Refusal::Attribute(i));
        }
        attributes.push(value);
    }
    let capabilities = profile.capabilities.clone().unwrap_or_else(|| ask.wish.capabilities.clone());
    refused.extend(
        ask.wish.capabilities.iter().filter(|c| !capabilities.contains(c)).map(|c| Refusal::Capability(c.to_string())),
    );
    let modes = profile.modes.clone().unwrap_or_else(|| ask.wish.modes.clone());
    refused.extend(ask.wish.modes.iter().filter(|m| !modes.contains(m)).map(|m| Refusal::Mode(m.to_string())));
    let (capacity, too) = capacity(rules, judge, ask, profile);
    refused.extend(too);
    if rules.volumes && ask.wish.selector.is_some() {
        // as Kubernetes' provisioners have it
        refused.push(Refusal::Selector);
    }
    if ask.wish.content {
        refused.push(Refusal::Content);
    }
    let made = Made { attributes: attributes.into(), capacity, capabilities, modes };
    if refused.is_empty() {
        // selectors choose among what is there; an expression says what the claim can use
        let expression = ask.wish.expression.as_ref();
        refused.extend(expression.and_then(|e| refuse_expression(judge, e, ask, &made.offer(profile))));
    }
    if refused.is_empty() { Ok(made) } else { Err(refused) }
}

impl Made {
    /// The resource, as a claim's expression will see it.
    fn offer(&self, profile: &Profile) -> Offer {
        Offer {
            name: Arc::default(),
            uid: Arc::default(),
            revision: 0,
            shape: Arc::new(Shape {
                class: Some(profile.name.clone()),
                attributes: self.attributes.clone(),
                capabilities: self.capabilities.clone(),
                modes: self.modes.clone(),
                topology: None,
            }),
            capacity: self.capacity.clone(),
            labels: Labels::default(),
            phase: Phase::Provisioning,
            deleting: false,
            refs: Box::default(),
            max_claims: 1,
        }
    }
}

/// How much of each capacity the class makes for this claim, and what keeps it from enough.
pub(crate) fn capacity(
    rules: &Rules,
    judge: &dyn Judge,
    ask: &Ask,
    profile: &Profile,
) -> (Box<[Amount]>, Vec<Refusal>) {
    let mut refused = Vec::new();
    let mut capacity = Vec::new();
    for i in 0..rules.capacities.len() {
        let lower = ask.lower.get(i).copied().unwrap_or_default();
        let amount = match profile.capacity.get(i).and_then(Option::as_ref) {
            None => Some(lower),
            Some(Measure::Between { least, most, usual }) => {
                let usual = ask.ceiling(rules, i).map_or(*usual, |upper| upper.min(*usual));
                let amount = if lower == Amount::ZERO { usual } else { lower }.max(*least);
                Some(most.map_or(amount, |m| amount.min(m)))
            }
            Some(Measure::OneOf(amounts)) => {
                amounts.iter().filter(|a| **a >= lower).min().or_else(|| amounts.iter().max()).copied()
            }
            Some(Measure::Expression(expression)) => {
                match judge.compute(expression, ask).map(|json| Amount::from_json(&json).map_err(|e| e.to_string())) {
                    Ok(Ok(amount)) => Some(amount),
                    Ok(Err(error)) | Err(error) => {
                        refused.push(Refusal::Offers(error));
                        None
                    }
                }
            }
        };
        let amount = amount.unwrap_or_default();
        if amount < lower {
            refused.push(Refusal::MakesLess(i, amount));
        } else if ask.ceiling(rules, i).is_some_and(|upper| amount > upper) {
            refused.push(Refusal::TooLarge(i));
        }
        capacity.push(amount);
    }
    (capacity.into(), refused)
}

/// The value a class gives an attribute it says nothing about: what is asked, as far as that is one value.
pub(crate) fn free_choice(matching: Match, want: Option<&Want>) -> Option<Value> {
    match (matching, want?) {
        (Match::In, Want::Value(Value::Many(many))) => many.first().map(|v| Value::Text(v.clone())),
        (_, Want::Value(value)) => Some(value.clone()),
        // the number the range begins with, if it is in it: ">= 5.6" makes 5.6
        (_, Want::Range(range)) => range
            .text()
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-'))
            .filter(|w| w.starts_with(|c: char| c.is_ascii_digit()))
            .map(|w| Version::parse(w.trim_end_matches(".x").trim_end_matches(".X").trim_end_matches('.')))
            .find(|v| range.contains(v))
            .map(|v| Value::Version(Arc::new(v))),
    }
}
