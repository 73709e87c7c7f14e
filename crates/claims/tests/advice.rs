//! What is said to someone whose claim waits: as they would write it, and the least they have to give up.

use conductor_claims::extract::{ask, offer, profile};
use conductor_claims::matching::{Decision, Index, Ledger, NoJudge, Reason};
use conductor_claims::types::ResourceType;
use conductor_claims::views::Ask;
use serde_json::{Value, json};

fn gpus() -> ResourceType {
    let kind = json!({"spec": {
        "group": "hardware.example.org", "version": "v1", "names": {"resource": "Gpu"},
        "attributes": {
            "cores": {"type": "integer", "match": "AtLeast"},
            "watts": {"type": "number", "match": "AtMost"},
            "share": {"type": "quantity", "match": "AtLeast"},
            "tier": {"type": "string", "match": "AtLeast", "values": ["bronze", "silver", "gold"]},
            "maker": {"type": "string"},
        },
        "capacities": {"memory": {}},
    }});
    ResourceType::parse(&kind).expect("a type")
}

struct World {
    index: Index,
    kind: ResourceType,
}

impl World {
    fn new(resources: &[Value]) -> World {
        let kind = gpus();
        let mut index = Index::new(kind.rules());
        for (i, spec) in resources.iter().enumerate() {
            let name = format!("g{}", i + 1);
            let object =
                json!({"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": "Available"}});
            index.upsert(offer(&kind.rules(), &object));
        }
        World { index, kind }
    }

    fn ask(&self, spec: &Value) -> Ask {
        let claim = json!({"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "spec": spec});
        ask(&self.kind.rules(), &claim, true, None).expect("an ask")
    }

    fn explain(&self, spec: &Value) -> Ledger {
        self.index.explain(&self.ask(spec), &NoJudge)
    }

    /// The claim waits, and this is what it should change.
    fn check(&self, spec: Value, target: &str, text: &str, change: Value) {
        let ledger = self.explain(&spec);
        let remedy = ledger.remedy.unwrap_or_else(|| panic!("{spec}: no remedy"));
        assert_eq!(remedy.target.as_ref(), target, "{spec}: {remedy:?}");
        assert_eq!(remedy.changes.iter().map(|c| c.text.as_str()).collect::<Vec<_>>(), [text], "{spec}");
        assert_eq!(remedy.patch(&self.kind.rules(), &json!({"spec": spec})), json!({"spec": change}), "{spec}");
        let mut changed = spec.clone();
        for (key, value) in change.as_object().expect("fields") {
            changed[key] = value.clone();
        }
        let decision = self.index.decide(&self.ask(&changed), &NoJudge);
        assert!(!matches!(decision, Decision::Wait { .. }), "{changed}: {decision:?}");
    }
}

#[test]
fn numbers_are_said_as_they_are_written() {
    let world = World::new(&[json!({"watts": 250.5, "share": "250m"}), json!({"watts": 3000, "share": "2k"})]);
    world.check(json!({"watts": 100}), "g1", "watts: 100 -> 250.5", json!({"watts": 250.5}));
    world.check(json!({"watts": -0.25}), "g1", "watts: -0.25 -> 250.5", json!({"watts": 250.5}));
    world.check(json!({"share": "4k"}), "g2", "share: 4k -> 2k", json!({"share": "2k"}));
    let ledger = world.explain(&json!({"watts": 100.125}));
    let said: Vec<&str> = ledger.candidates.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(said, ["watts is 250.5, asked 100.125", "watts is 3000, asked 100.125"]);
}

#[test]
fn the_smallest_change_of_an_attribute_is_the_one_to_the_nearest() {
    let world = World::new(&[
        json!({"cores": 100, "tier": "bronze", "watts": 900, "maker": "a"}),
        json!({"cores": 200, "tier": "silver", "watts": 300, "maker": "b"}),
    ]);
    world.check(json!({"cores": 1000}), "g2", "cores: 1000 -> 200", json!({"cores": 200}));
    world.check(json!({"tier": "gold"}), "g2", "tier: gold -> silver", json!({"tier": "silver"}));
    world.check(json!({"watts": 100}), "g2", "watts: 100 -> 300", json!({"watts": 300}));
    // what has no order is given up whole; a little less of something is less
    world.check(json!({"maker": "a", "cores": 110}), "g1", "cores: 110 -> 100", json!({"cores": 100}));
}

#[test]
fn a_class_gives_the_nearest_of_what_it_offers() {
    let mut world = World::new(&[]);
    let class = json!({"metadata": {"name": "c"}, "template": {}, "offers": {"cores": [10, 40, 20]}});
    world.index.set_profile(profile(&world.kind.rules(), &class, true).expect("a class"));
    world.check(json!({"class": "c", "cores": 50}), "c", "cores: 50 -> 40", json!({"cores": 40}));
}

#[test]
fn a_range_is_for_whoever_makes_it_to_choose_from() {
    let kind = json!({"spec": {
        "group": "a.example.com", "version": "v1", "names": {"resource": "Engine"},
        "attributes": {"version": {"match": "VersionRange"}, "old": {"match": "VersionRange"}},
    }});
    let kind = ResourceType::parse(&kind).expect("a type");
    let mut index = Index::new(kind.rules());
    let class = json!({"metadata": {"name": "c"}, "template": {}, "offers": {"old": ["5.6", "5.7"]}});
    index.set_profile(profile(&kind.rules(), &class, true).expect("a class"));
    let check = |spec: Value, makes: Option<Option<&str>>| {
        let claim = json!({"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "spec": spec});
        let ask = ask(&kind.rules(), &claim, true, None).expect("an ask");
        let made = match index.decide(&ask, &NoJudge) {
            Decision::Provision { made, .. } => Some(made.attributes[1].as_ref().map(ToString::to_string)),
            _ => None,
        };
        assert_eq!(made, makes.map(|version| version.map(str::to_owned)), "{spec}");
    };
    // attributes are in the order of their names: old, version
    for range in ["< 16", "> 14", ">14 <16", "!= 14", "*"] {
        check(json!({"class": "c", "version": range}), Some(None));
    }
    check(json!({"class": "c", "version": ">= 14"}), Some(Some("14")));
    check(json!({"class": "c", "old": "> 5.7"}), None);
    check(json!({"class": "c", "old": "< 5.7"}), Some(None));
}

#[test]
fn a_claim_that_names_its_resource_is_told_what_that_has() {
    let world = World::new(&[json!({"cores": 100, "maker": "a", "capacity": {"memory": "5Gi"}})]);
    let check = |spec: Value, said: &str| {
        let ledger = world.explain(&spec);
        let Decision::Wait { reason: Reason::NamedRefused(name, why), .. } = &ledger.decision else {
            panic!("{spec}: {:?}", ledger.decision)
        };
        assert_eq!(world.index.refused(&world.ask(&spec), name, why), said, "{spec}");
    };
    check(json!({"resourceName": "g1", "cores": 101}), "cores is 100, asked 101");
    check(json!({"resourceName": "g1", "maker": "b"}), "maker is a, asked b");
    let much = json!({"requests": {"memory": "6Gi"}});
    check(json!({"resourceName": "g1", "resources": much}), "it has 5Gi of memory left, asked 6Gi");
}
