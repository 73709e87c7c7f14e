//! The smallest change of a claim that would bind it.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::amount::Amount;
use crate::matching::decide::{Decision, provisions};
use crate::matching::explain::{class_text, shown};
use crate::matching::index::Index;
use crate::matching::predicate::{Exemption, Judge, Refusal, class_fits, refusals};
use crate::matching::profile::{capacity, make};
use crate::rules::{Attribute, Match, Rules, Value, Want};
use crate::version::VersionRange;
use crate::views::{Ask, ClassAsk, Measure, Offer, Profile, Source};

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
    /// The sum of the relative changes of amounts and attributes.
    pub relative: f64,
    /// The resource or class that fits then.
    pub target: Arc<str>,
    /// Whether the target is a class.
    pub class: bool,
}

impl Remedy {
    /// All of its changes as one JSON merge patch of the claim.
    pub fn patch(&self, rules: &Rules, claim: &Json) -> Json {
        let mut patch = json!({});
        self.changes.iter().for_each(|change| change.field.patch(rules, claim, &mut patch));
        patch
    }

    /// How many letters its class is from the one asked for; of what is no misspelling, all are equally far.
    fn misspelt(&self, ask: &Ask) -> usize {
        let ClassAsk::Named(asked) = &ask.wish.class else { return usize::MAX };
        let class = self.changes.iter().find_map(|change| match &change.field {
            Field::Class(ClassAsk::Named(class)) => Some(class),
            _ => None,
        });
        let far = class.map_or(usize::MAX, |class| distance(asked, class));
        if far <= (asked.len() / 3).max(2) { far } else { usize::MAX }
    }
}

/// How many letters must be put in, left out or replaced to make one text of another.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let replaced = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// How many remedies are tried before giving up.
const MAX_REMEDIES: usize = 64;

impl Index {
    /// The smallest change that binds: fewest fields, then least relative change of amounts and attributes, then a class
    /// that was misspelt, then by name. Each is tried.
    pub(super) fn remedy(&self, ask: &Ask, judge: &dyn Judge, offers: &[&Offer]) -> Option<Remedy> {
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
        let mut remedies: Vec<(usize, Remedy)> = remedies.into_iter().map(|r| (r.misspelt(ask), r)).collect();
        remedies.sort_by(|(near, a), (far, b)| {
            (a.changes.len().cmp(&b.changes.len()))
                .then(a.relative.total_cmp(&b.relative))
                .then(near.cmp(far))
                .then(a.class.cmp(&b.class))
                .then(a.target.cmp(&b.target))
        });
        remedies.into_iter().map(|(_, remedy)| remedy).take(MAX_REMEDIES).find(|remedy| {
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
                Refusal::Taken(_)
                | Refusal::Barred
                | Refusal::Topology
                | Refusal::Offers(_)
                | Refusal::Content
                | Refusal::MakesLess(..) => return None,
                Refusal::Class => Field::Class(offer.shape.class.clone().map_or(ClassAsk::Without, ClassAsk::Named)),
                Refusal::Attribute(i) => {
                    let rule = rules.attributes.get(i)?;
                    let want = ask.wish.attributes.get(i)?.as_ref()?;
                    let near = nearest(rule, want, offer.shape.attributes.get(i)?.as_ref());
                    relative += attribute_apart(rule, want, near.as_ref());
                    Field::Attribute(i, near)
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
                Refusal::Expression(_) => continue,
                Refusal::Attribute(i) => {
                    let rule = rules.attributes.get(i)?;
                    let want = ask.wish.attributes.get(i)?.as_ref()?;
                    let values = match profile.attributes.get(i)? {
                        Some(Source::OneOf(values)) => values.as_slice(),
                        _ => &[],
                    };
                    let all = values.iter().map(|has| nearest(rule, want, Some(has)));
                    let all = all.map(|near| (attribute_apart(rule, want, near.as_ref()), near));
                    let (far, near) = all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((1.0, None));
                    relative += far;
                    Field::Attribute(i, near)
                }
                Refusal::Capability(name) => Field::WithoutCapability(name),
                Refusal::Mode(name) => Field::WithoutMode(name),
                Refusal::MakesLess(i, _) | Refusal::TooLarge(i) => {
                    let (changes, far) = self.remedy_amount(ask, judge, profile, i)?;
                    relative += far;
                    fields.extend(changes);
                    continue;
                }
                Refusal::Selector => Field::WithoutSelector,
                _ => return None,
            };
            fields.push(field);
        }
        // what the claim's expression says of it shows once the rest is in order
        let changed = fields.iter().fold(ask.clone(), |ask, field| field.apply(&ask));
        let left = make(rules, judge, &changed, profile).err().unwrap_or_default();
        if left.iter().any(|refusal| matches!(refusal, Refusal::Expression(_))) {
            fields.push(Field::WithoutExpression);
        }
        let changes = fields.into_iter().map(|field| self.change(ask, field)).collect();
        Some(Remedy { changes, relative, target: profile.name.clone(), class: true })
    }

    /// The smallest change of what is asked of a capacity to something that a class makes, and how much it is.
    fn remedy_amount(&self, ask: &Ask, judge: &dyn Judge, profile: &Profile, i: usize) -> Option<(Vec<Field>, f64)> {
        let rules = &self.rules;
        let lower = ask.lower.get(i).copied().unwrap_or_default();
        let upper = ask.upper.get(i).copied().flatten();
        let exact = rules.capacities.get(i).is_some_and(|c| c.exact) && lower > Amount::ZERO;
        let mut amounts = vec![capacity(rules, judge, ask, profile).0.get(i).copied()?];
        match profile.capacity.get(i).and_then(Option::as_ref) {
            Some(Measure::Between { least, most, .. }) => {
                let most = most.unwrap_or(Amount::MAX);
                amounts.extend(upper.map(|upper| upper.clamp(*least, most.max(*least))));
                amounts.extend([*least, most]);
            }
            Some(Measure::OneOf(all)) => amounts.extend(all),
            Some(Measure::Expression(_)) => {}
            // as much as is asked
            None => amounts.extend(upper),
        }
        let changes = amounts.into_iter().map(|amount| {
            let (mut fields, mut relative) = (Vec::new(), 0.0);
            if let Some(limit) = upper.filter(|upper| *upper < amount) {
                relative += apart(limit, amount);
                fields.push(Field::Limit(i, Some(amount)));
            }
            if amount < lower || (exact && amount != lower) {
                relative += apart(lower, amount);
                fields.push(Field::Request(i, amount));
            }
            (fields, relative)
        });
        let does = |fields: &[Field]| {
            let changed = fields.iter().fold(ask.clone(), |ask, field| field.apply(&ask));
            let left = capacity(rules, judge, &changed, profile).1;
            !left.iter().any(|r| matches!(r, Refusal::MakesLess(at, _) | Refusal::TooLarge(at) if *at == i))
        };
        let changes = changes.filter(|(fields, _)| does(fields));
        changes.min_by(|(a, x), (b, y)| a.len().cmp(&b.len()).then(x.total_cmp(y)))
    }

    fn change(&self, ask: &Ask, field: Field) -> Change {
        // of a PersistentVolumeClaim only a bound one's request may grow, and a name is for good everywhere
        let recreate = self.rules.volumes || field == Field::WithoutName;
        Change { text: field.text(&self.rules, ask), field, recreate }
    }
}

fn apart(from: Amount, to: Amount) -> f64 {
    let (from, to) = (from.nanos() as f64, to.nanos() as f64);
    if from == 0.0 { f64::from(u8::from(to != 0.0)) } else { ((to - from) / from).abs() }
}

/// How far a want is from another; without the other, all of it is given up.
fn attribute_apart(rule: &Attribute, from: &Want, to: Option<&Want>) -> f64 {
    match (from, to) {
        (Want::Value(from), Some(Want::Value(to))) => rule.apart(from, to),
        _ => 1.0,
    }
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

    /// The change as a merge patch of the claim. Of a list, one item less is the rest of the list as `patch` has it so far.
    fn patch(&self, rules: &Rules, claim: &Json, patch: &mut Json) {
        let spec = &claim["spec"];
        let less = |key: &str, gone: &str, patch: &Json| {
            let list = patch["spec"].get(key).unwrap_or(&spec[key]).as_array().cloned().unwrap_or_default();
            list.into_iter().filter(|item| item.as_str() != Some(gone)).collect::<Json>()
        };
        match self {
            Field::Class(class) => {
                let key = if rules.volumes { "storageClassName" } else { "class" };
                patch["spec"][key] = match class {
                    ClassAsk::Unset => Json::Null,
                    ClassAsk::Without => json!(""),
                    ClassAsk::Named(name) => json!(name.as_ref()),
                };
            }
            Field::Attribute(i, want) => {
                let Some(attribute) = rules.attributes.get(*i) else { return };
                // under the name by which the claim has it
                let alias = attribute.alias.as_ref().filter(|_| spec[attribute.name.as_ref()].is_null());
                patch["spec"][alias.unwrap_or(&attribute.name).as_ref()] = match want {
                    None => Json::Null,
                    Some(Want::Value(value)) => value.json(),
                    Some(Want::Range(range)) => json!(range.to_string()),
                };
            }
            Field::Request(i, amount) => {
                if let Some(capacity) = rules.capacities.get(*i) {
                    patch["spec"]["resources"]["requests"][capacity.name.as_ref()] = json!(amount.to_string());
                }
            }
            Field::Limit(i, amount) => {
                if let Some(capacity) = rules.capacities.get(*i) {
                    patch["spec"]["resources"]["limits"][capacity.name.as_ref()] = json!(amount.map(|a| a.to_string()));
                }
            }
            Field::WithoutCapability(name) => patch["spec"]["requests"] = less("requests", name, patch),
            Field::WithoutMode(name) => patch["spec"]["accessModes"] = less("accessModes", name, patch),
            Field::WithoutSelector => patch["spec"]["selector"] = Json::Null,
            Field::WithoutExpression => patch["spec"]["expression"] = Json::Null,
            Field::WithoutName => {
                patch["spec"][if rules.volumes { "volumeName" } else { "resourceName" }] = Json::Null;
            }
        }
    }
}
