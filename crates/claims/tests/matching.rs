//! Matching against brute force, on random snapshots.

use std::sync::Arc;

use conductor_claims::amount::Amount;
use conductor_claims::matching::{Decision, Exemption, Field, Index, Judge, NoJudge, Reason, Why, refuse};
use conductor_claims::rules::{Attribute, Capacity, Kind, Match, Rules, Value, Want};
use conductor_claims::selector::{Selector, labels_of};
use conductor_claims::version::{Version, VersionRange};
use conductor_claims::views::{Ask, By, ClaimRef, ClassAsk, Measure, Offer, Phase, Profile, Shape, Source, Wish};
use proptest::prelude::*;
use serde_json::json;

fn rules(capacities: usize, volumes: bool) -> Arc<Rules> {
    let attribute = |name: &str, kind, matching| Attribute {
        name: name.into(),
        alias: None,
        kind,
        matching,
        values: Vec::new(),
        required: false,
    };
    Arc::new(Rules {
        claim: "DatabaseClaim".into(),
        resource: "Database".into(),
        attributes: vec![
            attribute("engine", Kind::Text, Match::Equal),
            attribute("version", Kind::Version, Match::VersionRange),
            attribute("highlyAvailable", Kind::Flag, Match::AtLeast),
        ],
        capacities: (0..capacities).map(|i| Capacity { name: format!("c{i}").into(), exact: i == 2 }).collect(),
        max_claims: 1,
        volumes,
    })
}

fn offer() -> impl Strategy<Value = RawOffer> {
    (
        0u8..20,
        0u8..3,
        0u8..3,
        0u8..4,
        [0u8..6, 0u8..6, 0u8..3],
        0u8..8,
        0u8..3,
        0u8..3,
        prop::bool::weighted(0.05),
        (0u8..4, any::<bool>()),
    )
}

type RawOffer = (u8, u8, u8, u8, [u8; 3], u8, u8, u8, bool, (u8, bool));

fn text(prefix: &str, n: u8) -> Arc<str> {
    format!("{prefix}{n}").into()
}

fn read_offer(rules: &Rules, raw: &RawOffer) -> Offer {
    let (name, class, engine, version, amounts, phase, refs, zone, deleting, (modes, shared)) = raw;
    let phase = match phase {
        0 => Phase::Released,
        1 => Phase::Provisioning,
        2 => Phase::Bound,
        _ => Phase::Available,
    };
    let refs = if phase == Phase::Bound { (*refs).max(1) } else { refs.saturating_sub(1) };
    let max_claims = if *shared { 3 } else { 1 };
    let refs = refs.min(max_claims);
    Offer {
        name: text("r", *name),
        uid: text("uid-r", *name),
        revision: 0,
        shape: Arc::new(Shape {
            class: (*class > 0).then(|| text("class", *class)),
            attributes: Box::new([
                (*engine > 0).then(|| Value::Text(text("engine", *engine))),
                Some(Value::Version(Arc::new(Version::parse(["5.6", "5.7", "8.0", "latest"][*version as usize])))),
                (*modes != 1).then_some(Value::Flag(*modes > 1)),
            ]),
            capabilities: (0..*zone).map(|i| text("can", i)).collect(),
            modes: (0..*modes).map(|i| text("mode", i)).collect(),
            topology: None,
        }),
        capacity: (0..rules.capacities.len()).map(|i| Amount::units(i64::from(amounts[i]))).collect(),
        labels: labels_of(Some(&json!({"zone": format!("z{zone}")}))),
        phase,
        deleting: *deleting,
        refs: (0..refs)
            .map(|i| ClaimRef {
                uid: text("other", *name * 4 + i),
                namespace: "ns".into(),
                name: text("other", i),
                amounts: (0..rules.capacities.len()).map(|_| Amount::units(1)).collect(),
                by: By::Manager,
            })
            .collect(),
        max_claims: u32::from(max_claims),
    }
}

type RawAsk = (u8, (u8, u8, u8), [u8; 3], [u8; 3], u8, u8, u8, u8);

fn ask() -> impl Strategy<Value = RawAsk> {
    (
        0u8..5,
        (0u8..4, 0u8..6, 0u8..3),
        [0u8..7, 0u8..6, 0u8..3],
        [0u8..9, 0u8..9, 0u8..9],
        0u8..4,
        0u8..3,
        0u8..4,
        0u8..26,
    )
}

fn read_ask(rules: &Rules, raw: &RawAsk) -> Ask {
    let (class, (engine, version, available), lower, upper, zone, can, mode, named) = raw;
    let range = |t: &str| Want::Range(Arc::new(VersionRange::parse(t).expect("a range")));
    Ask {
        uid: "uid-claim".into(),
        namespace: "ns".into(),
        name: "claim".into(),
        since: 0,
        wish: Arc::new(Wish {
            class: match class {
                0 => ClassAsk::Unset,
                1 => ClassAsk::Without,
                n => ClassAsk::Named(text("class", n - 1)),
            },
            attributes: Box::new([
                (*engine > 1).then(|| Want::Value(Value::Text(text("engine", engine - 1)))),
                match version {
                    0 => Some(range(">= 5.7")),
                    1 => Some(range("5.6 || 8")),
                    2 => Some(range("latest")),
                    _ => None,
                },
                (*available < 2).then_some(Want::Value(Value::Flag(*available == 0))),
            ]),
            capabilities: (0..can.saturating_sub(1)).map(|i| text("can", i)).collect(),
            modes: (0..mode.saturating_sub(1)).map(|i| text("mode", i)).collect(),
            selector: (*zone < 2).then(|| {
                let selector = json!({"matchLabels": {"zone": format!("z{zone}")}});
                Arc::new(Selector::from_json(&selector, &conductor_claims::errors::Path::root()).expect("a selector"))
            }),
            expression: (*zone == 3 && *can == 0).then(|| "odd".into()),
            node: None,
            content: false,
        }),
        lower: (0..rules.capacities.len()).map(|i| Amount::units(i64::from(lower[i]))).collect(),
        upper: (0..rules.capacities.len())
            .map(|i| (upper[i] < 6).then(|| Amount::units(i64::from(upper[i]))))
            .collect(),
        resource_name: (*named < 3).then(|| text("r", *named)),
        needed: *mode < 3,
        bound: false,
        barred: if *named % 5 == 4 { Box::new([text("class", 1)]) } else { Box::default() },
    }
}

/// Holds of resources whose name ends in an odd digit, and of what a class makes if that has an odd size.
struct Odd;

impl Judge for Odd {
    fn accepts(&self, _: &str, _: &Ask, offer: &Offer) -> Result<bool, String> {
        let size = || offer.capacity.first().is_none_or(|c| (c.nanos() / 1_000_000_000) % 2 == 1);
        Ok(offer.name.bytes().last().map_or_else(size, |b| b % 2 == 1))
    }
}

fn profiles(raw: u8) -> Vec<Profile> {
    let mut all = Vec::new();
    if raw & 1 != 0 {
        all.push(Profile {
            name: "class1".into(),
            attributes: Box::new([Some(Source::OneOf(vec![Value::Text("engine1".into())])), None, None]),
            capacity: Box::new([
                Some(Measure::Between {
                    least: Amount::units(1),
                    most: Some(Amount::units(3)),
                    usual: Amount::units(2),
                }),
                None,
                None,
            ]),
            capabilities: None,
            modes: None,
            provisions: raw & 2 != 0,
            late: raw & 4 != 0,
            reclaim: None,
            deleting: false,
            served: raw & 8 != 0,
        });
    }
    all
}

/// The decision by asking everyone.
fn brute_force(index: &Index, offers: &[Offer], ask: &Ask) -> Option<Arc<str>> {
    let rules = index.rules();
    let fits = |o: &&Offer| refuse(rules, &Odd, index.default_class(), ask, o, Exemption::default()).is_none();
    let rank = |o: &Offer| {
        let modes = if rules.volumes { o.shape.modes.len() } else { 0 };
        (modes, (0..rules.capacities.len()).map(|i| o.free(i)).collect::<Vec<_>>(), o.name.clone())
    };
    offers.iter().filter(fits).min_by_key(|o| rank(o)).map(|o| o.name.clone())
}

/// How much a change of a field is, beyond being one, as people count: of an amount its part, of an attribute all of it, for none of
/// those here has an order. None is no change.
fn size(ask: &Ask, field: &Field) -> Option<f64> {
    let part = |from: Amount, to: Amount| match (from.nanos() as f64, to.nanos() as f64) {
        (from, to) if from == to => None,
        (0.0, _) => Some(1.0),
        (from, to) => Some((to - from).abs() / from),
    };
    match field {
        Field::Request(i, to) => part(ask.lower[*i], *to),
        Field::Limit(i, to) => part(ask.upper[*i]?, (*to)?),
        Field::Attribute(i, to) => (ask.wish.attributes[*i] != *to).then_some(1.0),
        Field::Class(to) => (ask.wish.class != *to).then_some(0.0),
        _ => Some(0.0),
    }
}

/// Every change of one field that could be of any use, and how much it is.
fn single_changes(index: &Index, offers: &[Offer], ask: &Ask) -> Vec<(Field, f64)> {
    let rules = index.rules();
    let mut all = vec![Field::Class(ClassAsk::Without)];
    all.extend((1..4).map(|n| Field::Class(ClassAsk::Named(text("class", n)))));
    for (i, _) in ask.wish.attributes.iter().enumerate().filter(|(_, want)| want.is_some()) {
        all.push(Field::Attribute(i, None));
        let range = |t: &str| Want::Range(Arc::new(VersionRange::parse(t).expect("a range")));
        let values: Vec<Want> = match i {
            0 => (1..3).map(|n| Want::Value(Value::Text(text("engine", n)))).collect(),
            1 => ["5.6", "5.7", "8.0", "latest"].map(range).to_vec(),
            _ => [false, true].map(|flag| Want::Value(Value::Flag(flag))).to_vec(),
        };
        all.extend(values.into_iter().map(|want| Field::Attribute(i, Some(want))));
    }
    for i in 0..rules.capacities.len() {
        // who must have just what it asks for is not told to ask for nothing, unless there is something with nothing left
        let nothing = !rules.capacities[i].exact || offers.iter().any(|o| o.free(i) == Amount::ZERO);
        for amount in (0..7).map(Amount::units) {
            all.extend((nothing || amount > Amount::ZERO).then_some(Field::Request(i, amount)));
            all.extend(ask.upper[i].map(|_| Field::Limit(i, Some(amount))));
        }
    }
    all.extend(ask.wish.capabilities.iter().map(|name| Field::WithoutCapability(name.to_string())));
    all.extend(ask.wish.modes.iter().map(|name| Field::WithoutMode(name.to_string())));
    all.extend(ask.wish.selector.as_ref().map(|_| Field::WithoutSelector));
    all.extend(ask.wish.expression.as_ref().map(|_| Field::WithoutExpression));
    all.extend(ask.resource_name.as_ref().map(|_| Field::WithoutName));
    all.into_iter().filter_map(|field| size(ask, &field).map(|size| (field, size))).collect()
}

fn same_field(a: &Field, b: &Field) -> bool {
    match (a, b) {
        (Field::Attribute(a, _), Field::Attribute(b, _))
        | (Field::Request(a, _), Field::Request(b, _))
        | (Field::Limit(a, _), Field::Limit(b, _)) => a == b,
        (Field::Class(_), Field::Class(_)) => true,
        (a, b) => a == b,
    }
}

/// The fewest fields whose change binds a claim, and the least of such changes, by trying every one and every two of them.
fn smallest_change(index: &Index, offers: &[Offer], ask: &Ask) -> Option<(usize, f64)> {
    let binds = |ask: &Ask| !matches!(index.decide(ask, &Odd), Decision::Wait { .. });
    let least = |sizes: Vec<f64>| sizes.into_iter().min_by(f64::total_cmp);
    let one = single_changes(index, offers, ask);
    let sizes = one.iter().filter(|(field, _)| binds(&field.apply(ask))).map(|(_, size)| *size).collect();
    if let Some(size) = least(sizes) {
        return Some((1, size));
    }
    let mut sizes = Vec::new();
    for (i, (first, a)) in one.iter().enumerate() {
        let changed = first.apply(ask);
        let others = one[i + 1..].iter().filter(|(second, _)| !same_field(first, second));
        sizes.extend(others.filter(|(second, _)| binds(&second.apply(&changed))).map(|(_, b)| a + b));
    }
    least(sizes).map(|size| (2, size))
}

/// A class that makes some sizes only.
fn sizes_only(raw: u8, capacities: usize) -> Option<Profile> {
    let mut profile = profiles(1).pop()?;
    (profile.name, profile.attributes) = ("class3".into(), Box::new([None, None, None]));
    (profile.provisions, profile.served, profile.late) = (true, true, false);
    let amounts = vec![Amount::units(2), Amount::units(5)];
    profile.capacity = (0..3).map(|i| (i < capacities).then(|| Measure::OneOf(amounts.clone()))).collect();
    (raw & 16 != 0).then_some(profile)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_smallest_change_is_the_smallest(
        raw_offers in prop::collection::vec(offer(), 0..6),
        mut raw_ask in ask(),
        capacities in 0usize..4,
        volumes in any::<bool>(),
        raw_profiles in 0u8..32,
        default in any::<bool>(),
    ) {
        // what nobody needs yet is bound by no change
        raw_ask.6 %= 3;
        let rules = rules(capacities, volumes);
        let mut ask = read_ask(&rules, &raw_ask);
        if raw_profiles > 0 {
            // which amount would please an expression over what is yet to be made, nobody knows
            Arc::make_mut(&mut ask.wish).expression = None;
        }
        let mut index = Index::new(rules.clone());
        raw_offers.iter().for_each(|raw| index.upsert(read_offer(&rules, raw)));
        let offers: Vec<Offer> = index.offers().cloned().collect();
        for profile in profiles(raw_profiles).into_iter().chain(sizes_only(raw_profiles, capacities)) {
            index.set_profile(profile);
        }
        if default {
            index.set_default_class(Some("class1".into()));
        }
        if !matches!(index.decide(&ask, &Odd), Decision::Wait { .. }) {
            return Ok(());
        }
        let remedy = index.explain(&ask, &Odd).remedy;
        let found = remedy.as_ref().map(|remedy| (remedy.changes.len(), remedy.relative));
        match (smallest_change(&index, &offers, &ask), found) {
            (Some((fewest, least)), Some((fields, relative))) => {
                prop_assert_eq!(fields, fewest, "{:?} for {:?}", remedy, ask);
                prop_assert!((relative - least).abs() < 1e-9, "{} is less than {:?} for {:?}", least, remedy, ask);
            }
            (None, Some((fields, _))) => prop_assert!(fields > 2, "nobody else found it: {:?} for {:?}", remedy, ask),
            (Some(smaller), None) => prop_assert!(false, "there is one: {:?} for {:?}", smaller, ask),
            (None, None) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decide_explain_and_brute_force_agree(
        raw_offers in prop::collection::vec(offer(), 0..24),
        raw_ask in ask(),
        capacities in 0usize..4,
        volumes in any::<bool>(),
        raw_profiles in 0u8..16,
        default in any::<bool>(),
        max_rooms in prop_oneof![Just(2usize), Just(96)],
    ) {
        let rules = rules(capacities, volumes);
        let ask = read_ask(&rules, &raw_ask);
        let mut index = Index::with_max_rooms(rules.clone(), max_rooms);
        let mut offers: Vec<Offer> = Vec::new();
        for raw in &raw_offers {
            let offer = read_offer(&rules, raw);
            offers.retain(|o| o.name != offer.name);
            offers.push(offer.clone());
            index.upsert(offer);
        }
        for profile in profiles(raw_profiles) {
            index.set_profile(profile);
        }
        if default {
            index.set_default_class(Some("class1".into()));
        }
        prop_assert_eq!(index.len(), offers.len());
        let decision = index.decide(&ask, &Odd);
        prop_assert_eq!(&decision, &index.decide(&ask, &Odd), "the same input, the same decision");
        let ledger = index.explain(&ask, &Odd);

        match (&decision, &ledger.decision) {
            (Decision::Wait { reason: a, .. }, Decision::Wait { reason: b, .. }) => prop_assert_eq!(a, b),
            (a, b) => prop_assert_eq!(a, b),
        }
        let late = index.class_of(&ask).is_some_and(|c| index.profiles().any(|p| p.name == c && p.late)) && !ask.needed;
        match &decision {
            Decision::Bind { resource, why: Why::Matched } => {
                prop_assert_eq!(Some(resource.clone()), brute_force(&index, &offers, &ask));
            }
            Decision::Bind { resource, why: Why::Named } => prop_assert_eq!(Some(resource), ask.resource_name.as_ref()),
            Decision::Bind { why, .. } => prop_assert!(false, "nobody knows this claim: {:?}", why),
            _ if ask.resource_name.is_none() && !late => prop_assert_eq!(brute_force(&index, &offers, &ask), None),
            _ => {}
        }
        if let Decision::Wait { reason: Reason::NoMatch | Reason::ClassMissing(_) | Reason::ClassUnserved(_) | Reason::ClassRefused(..), summary } = &decision {
            prop_assert_eq!(summary.counts.values().sum::<usize>(), offers.len(), "{}", summary);
            if max_rooms > 2 {
                prop_assert_eq!(&summary.counts, &ledger.counts(), "{}", summary);
            }
        }
        if let Some(remedy) = &ledger.remedy {
            let changed = remedy.changes.iter().fold(ask.clone(), |ask, change| change.field.apply(&ask));
            let after = index.decide(&changed, &Odd);
            prop_assert!(!matches!(after, Decision::Wait { .. }), "{:?} -> {:?}", remedy, after);
            // no part of it would do
            for left_out in 0..remedy.changes.len() {
                let part = remedy.changes.iter().enumerate().filter(|(i, _)| *i != left_out);
                let changed = part.fold(ask.clone(), |ask, (_, change)| change.field.apply(&ask));
                prop_assert!(matches!(index.decide(&changed, &Odd), Decision::Wait { .. }), "{:?} needs no {}", remedy, left_out);
            }
        }
        if matches!(decision, Decision::Wait { .. }) && ledger.remedy.is_none() && ask.needed && ask.resource_name.is_none() {
            let barred = |o: &Offer| o.shape.class.as_ref().is_some_and(|class| ask.barred.contains(class));
            let free = offers.iter().any(|o| o.taken().is_none() && !barred(o));
            let late_profile = index.profiles().any(|p| p.late);
            prop_assert!(!free || late_profile, "something free could always be had");
        }

        // what is removed leaves no trace
        for offer in &offers {
            prop_assert!(index.remove(&offer.name));
        }
        prop_assert!(index.is_empty());
    }

    #[test]
    fn no_claim_gets_two_and_no_resource_too_many(
        raw_offers in prop::collection::vec(offer(), 1..16),
        raw_asks in prop::collection::vec(ask(), 1..24),
        shown in prop::collection::vec(any::<bool>(), 24),
    ) {
        let rules = rules(1, false);
        let mut index = Index::new(rules.clone());
        let mut truth = std::collections::BTreeMap::new();
        for raw in &raw_offers {
            let offer = read_offer(&rules, raw);
            truth.insert(offer.name.clone(), offer.clone());
            index.upsert(offer);
        }
        for (i, raw) in raw_asks.iter().enumerate() {
            let mut ask = read_ask(&rules, raw);
            ask.uid = text("uid-claim", i as u8);
            ask.name = text("claim", i as u8);
            index.wait(&ask);
            let Decision::Bind { resource, .. } = index.decide(&ask, &Odd) else { continue };
            prop_assert!(index.assume(&ask, &resource));
            prop_assert!(index.stop_waiting(&ask.uid));
            // a second look, and a stale watch, change nothing
            if shown[i] {
                let seen = truth.get_mut(&resource).expect("a resource");
                let mut refs = seen.refs.to_vec();
                refs.push(ClaimRef { uid: ask.uid.clone(), namespace: ask.namespace.clone(), name: ask.name.clone(), amounts: ask.lower.clone(), by: By::Manager });
                seen.refs = refs.into();
            }
            let stale = truth[&resource].clone();
            index.upsert(stale);
            prop_assert_eq!(index.decide(&ask, &Odd), Decision::Bind { resource: resource.clone(), why: Why::Held });
            let offer = index.get(&resource).expect("a resource");
            prop_assert!(offer.refs.len() <= offer.max_claims as usize);
            let used: i128 = offer.refs.iter().map(|r| r.amounts[0].nanos()).sum();
            let others: i128 = offer.refs.iter().filter(|r| r.name.starts_with("other")).map(|r| r.amounts[0].nanos()).sum();
            prop_assert!(offer.max_claims == 1 || used <= offer.capacity[0].nanos().max(others));
        }
        // every waiting claim a resource is offered to would take a resource now, had it been asked
        for name in truth.keys() {
            for (namespace, claim) in index.offer_to(name, 8) {
                prop_assert_eq!(namespace.as_ref(), "ns");
                prop_assert!(claim.starts_with("claim"));
            }
        }
    }

    #[test]
    fn a_resource_is_offered_to_the_oldest_claim_it_satisfies(
        raw_offer in offer(),
        raw_asks in prop::collection::vec((ask(), 0i64..5), 0..24),
        gone in prop::collection::vec(any::<bool>(), 24),
    ) {
        let rules = rules(2, false);
        let mut index = Index::new(rules.clone());
        let offer = read_offer(&rules, &raw_offer);
        index.upsert(offer.clone());
        let mut asks = Vec::new();
        for (i, (raw, since)) in raw_asks.iter().enumerate() {
            let mut ask = read_ask(&rules, raw);
            (ask.uid, ask.name, ask.since) = (text("uid-claim", i as u8), text("claim", i as u8), *since);
            (ask.resource_name, Arc::make_mut(&mut ask.wish).expression) = (None, None);
            index.wait(&ask);
            asks.push(ask);
        }
        for (i, ask) in asks.iter().enumerate().filter(|(i, _)| gone[*i]) {
            prop_assert!(index.stop_waiting(&ask.uid), "{}", i);
        }
        let mut expected: Vec<_> = asks
            .iter()
            .enumerate()
            .filter(|(i, ask)| !gone[*i] && refuse(&rules, &NoJudge, None, ask, &offer, Exemption::default()).is_none())
            .map(|(_, ask)| (ask.since, ask.namespace.clone(), ask.name.clone()))
            .collect();
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, namespace, name)| (namespace, name)).take(5).collect();
        prop_assert_eq!(index.offer_to(&offer.name, 5), expected);
    }
}

#[test]
fn a_waiting_claim_says_why() {
    let rules = rules(1, false);
    let mut index = Index::new(rules.clone());
    let available = |name: &str, class: &str, size: &str| {
        let mut offer = read_offer(&rules, &(0, 0, 1, 0, [0; 3], 7, 0, 0, false, (0, false)));
        offer.name = name.into();
        Arc::make_mut(&mut offer.shape).class = Some(class.into());
        offer.capacity = Box::new([Amount::parse(size).expect("a size")]);
        offer
    };
    for i in 0..5 {
        index.upsert(available(&format!("small{i}"), "fast", if i == 3 { "20Gi" } else { "10Gi" }));
    }
    for i in 0..4 {
        index.upsert(available(&format!("slow{i}"), "slow", "100Gi"));
    }
    for i in 0..3 {
        let mut offer = available(&format!("bound{i}"), "fast", "100Gi");
        offer.phase = Phase::Bound;
        offer.refs = Box::new([ClaimRef {
            uid: text("u", i),
            namespace: "x".into(),
            name: "y".into(),
            amounts: Box::new([]),
            by: By::Manager,
        }]);
        index.upsert(offer);
    }
    let mut ask = read_ask(&rules, &(2, (0, 5, 2), [0; 3], [8; 3], 2, 0, 0, 25));
    ask.lower = Box::new([Amount::parse("25Gi").expect("a size")]);
    Arc::make_mut(&mut ask.wish).class = ClassAsk::Named("fast".into());
    let Decision::Wait { summary, .. } = index.decide(&ask, &NoJudge) else { panic!("waits") };
    assert_eq!(summary.to_string(), "0/12 match: 5 too small (largest 20Gi, asked 25Gi), 4 of another class, 3 bound");
    let remedy = index.explain(&ask, &NoJudge).remedy.expect("a remedy");
    let texts: Vec<_> = remedy.changes.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(texts, ["class: fast -> slow"]);
    index.remove("slow0");
    for i in 1..4 {
        index.remove(&format!("slow{i}"));
    }
    let remedy = index.explain(&ask, &NoJudge).remedy.expect("a remedy");
    assert_eq!(remedy.changes[0].text, "resources.requests.c0: 25Gi -> 20Gi");
    // of several classes that would do, the one that was meant
    index.upsert(available("a", "alpha", "100Gi"));
    ask.lower = Box::new([Amount::parse("5Gi").expect("a size")]);
    for (asked, meant) in [("fsat", "fast"), ("alhpa", "alpha"), ("nothing", "alpha")] {
        Arc::make_mut(&mut ask.wish).class = ClassAsk::Named(asked.into());
        let remedy = index.explain(&ask, &NoJudge).remedy.expect("a remedy");
        assert_eq!(remedy.changes[0].text, format!("class: {asked} -> {meant}"));
    }
}
