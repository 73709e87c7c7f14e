//! One resource for several claims: who has room in it, and whose credentials work when one of them leaves.

use conductor_claims::lifecycle::{ClaimScene, Connection};
use conductor_claims::matching::{Decision, Why};
use conductor_claims::template::Paths;
use serde_json::{Value, json};

use crate::toy::objects::{assert_sound, claim, key, kind, phase, resource};
use crate::toy::{Api, Key};

#[test]
fn a_shared_resource_goes_with_its_last_claim() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Delete", 2, true)).expect("created");
    api.settle(&kind);
    for name in ["a", "b", "c"] {
        api.create(claim(name, "10Gi", "fast")).expect("created");
    }
    api.settle(&kind);
    let claims: Vec<_> = ["a", "b", "c"].map(|n| key("DatabaseClaim", "apps", n)).into();
    let phases: Vec<_> = claims.iter().map(|k| phase(&api, k).to_owned()).collect();
    assert_eq!(phases, ["Bound", "Bound", "Pending"]);
    assert_eq!(api.objects[&claims[2]]["status"]["message"], json!("there is no class fast; 0/1 match: 1 bound"));
    api.delete(&claims[0]);
    api.settle(&kind);
    assert_eq!(phase(&api, &claims[2]), "Bound");
    api.delete(&claims[1]);
    api.delete(&claims[2]);
    api.settle(&kind);
    assert!(api.objects.is_empty(), "{:?}", api.objects.keys());
}

#[test]
fn a_resource_without_room_is_not_written() {
    let check = |shared: u32, amounts: &[&str], writes: bool| {
        let (kind, mut api) = (kind(), Api::default());
        api.create(resource("r", "30Gi", "Retain", shared, true)).expect("created");
        api.settle(&kind);
        api.create(claim("c", "10Gi", "fast")).expect("created");
        let look = api.clone();
        let plan = look.claim_plan(&kind, &key("DatabaseClaim", "apps", "c"), &[]);
        assert_eq!(plan.writes[0].target.kind, "Database");
        // the decision stands, the resource has meanwhile filled up
        let refs: Vec<Value> = amounts.iter().enumerate().map(|(i, a)| json!({"uid": i.to_string(), "namespace": "x", "name": "y", "by": "Manager", "amounts": {"storage": a}})).collect();
        api.patch(&key("Database", "", "r"), &json!({"spec": {"claimRefs": refs}}), false);
        let decision = Decision::Bind { resource: "r".into(), why: Why::Matched };
        let plan = conductor_claims::lifecycle::claim(&ClaimScene {
            kind: &kind,
            claim: &api.objects[&key("DatabaseClaim", "apps", "c")],
            decision: Some(&decision),
            resource: api.objects.get(&key("Database", "", "r")),
            class: None,
            consumers: &[],
            connection: Connection::default(),
            growth_refused: None,
            expressions: &Paths,
            now: "now",
        });
        assert_eq!(!plan.is_empty(), writes, "{shared} {amounts:?}");
    };
    check(1, &[], true);
    check(1, &["1Gi"], false);
    check(2, &["1Gi", "1Gi"], false);
    check(3, &["1Gi", "1Gi"], true);
    check(3, &["21Gi"], false);
}

#[test]
fn whoever_leaves_a_shared_resource_has_nothing_that_works() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("shared", "50Gi", "Retain", 3, true)).expect("created");
    for name in ["a", "b", "c"] {
        api.create(claim(name, "10Gi", "fast")).expect("created");
    }
    api.settle(&kind);
    let thing = key("Thing", "conductor-system", "shared");
    let retired = |api: &Api| api.objects[&thing]["status"]["retired"].as_i64().expect("a number");
    let password = |api: &Api, name: &str| {
        api.objects[&key("Secret", "apps", &format!("{name}-database"))]["data"]["password"].clone()
    };
    for (gone, left, times) in [("a", "b", 1), ("b", "c", 2)] {
        let had = password(&api, gone);
        api.delete(&key("DatabaseClaim", "apps", gone));
        api.settle(&kind);
        assert_eq!(retired(&api), times, "what {gone} had has ended");
        assert_ne!(password(&api, left), had, "and {left} has the next");
        assert!(api.locked_out(&kind).is_empty());
        assert_sound(&api, true);
    }
    assert!(api.objects[&key("Database", "", "shared")]["metadata"]["annotations"]["conductor.io/shut"].is_null());
}

#[test]
fn whoever_has_a_login_of_its_own_leaves_the_others_theirs() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("shared", "50Gi", "Retain", 3, true)).expect("created");
    api.settle(&kind);
    let thing = key("Thing", "conductor-system", "shared");
    api.patch(&thing, &json!({"status": {"connections": []}}), true);
    for name in ["a", "b"] {
        api.create(claim(name, "10Gi", "fast")).expect("created");
    }
    api.settle(&kind);
    let uid = |api: &Api, name: &str| {
        api.objects[&key("DatabaseClaim", "apps", name)]["metadata"]["uid"].as_str().expect("has one").to_owned()
    };
    let annotation = |api: &Api, name: &str| api.objects[&thing]["metadata"]["annotations"][name].clone();
    let told = |api: &Api| annotation(api, "conductor.io/claim-uids").as_str().unwrap_or_default().to_owned();
    let (a, b) = (uid(&api, "a"), uid(&api, "b"));
    assert_eq!(told(&api), format!("{a} {b}"));
    let amounts = api.objects[&key("DatabaseClaim", "apps", "a")]["status"]["capacity"].clone();
    assert_eq!(amounts, json!({"storage": "10Gi"}), "its part of 50Gi");
    api.delete(&key("DatabaseClaim", "apps", "a"));
    api.settle(&kind);
    assert_eq!(told(&api), b);
    assert!(annotation(&api, "conductor.io/rotate").is_null(), "nothing is replaced for the other");
    assert!(api.objects[&key("Database", "", "shared")]["metadata"]["annotations"]["conductor.io/shut"].is_null());
    api.delete(&key("DatabaseClaim", "apps", "b"));
    api.settle(&kind);
    assert_eq!(told(&api), "", "nobody has one");
    assert_sound(&api, true);
}

#[test]
fn old_credentials_end_when_the_secret_of_every_claim_has_the_new_ones() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("shared", "50Gi", "Retain", 2, true)).expect("created");
    for name in ["a", "b"] {
        api.create(claim(name, "10Gi", "fast")).expect("created");
    }
    api.settle(&kind);
    let thing = key("Thing", "conductor-system", "shared");
    let (a, b) = (key("DatabaseClaim", "apps", "a"), key("DatabaseClaim", "apps", "b"));
    api.patch(&thing, &json!({"spec": {"rotate": 1}}), false);
    api.provide(&thing);
    // nobody can change the second claim's Secret
    let secret = key("Secret", "apps", "b-database");
    api.patch(&secret, &json!({"immutable": true}), false);
    api.settle(&kind);
    let retired = |api: &Api| api.objects[&thing]["status"]["retired"].as_i64().expect("a number");
    assert_eq!(retired(&api), 0, "one of two claims has the old ones");
    let said = |api: &Api, claim: &Key| {
        let conditions = api.objects[claim]["status"]["conditions"].as_array().expect("a list").clone();
        conditions.into_iter().find(|c| c["type"] == "ConnectionReady").expect("is said")["reason"].clone()
    };
    assert_eq!((said(&api, &a), said(&api, &b)), (json!("Written"), json!("Immutable")));
    api.delete(&secret);
    api.settle(&kind);
    assert_eq!(retired(&api), 1);
    assert_eq!(said(&api, &b), json!("Written"));
    // released, it has nobody who needs the old ones
    api.delete(&a);
    api.delete(&b);
    api.settle(&kind);
    api.patch(&thing, &json!({"spec": {"rotate": 2}}), false);
    api.settle(&kind);
    assert_eq!(retired(&api), 2);
}
