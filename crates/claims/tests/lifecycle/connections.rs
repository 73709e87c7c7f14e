//! A claim's connection objects follow what they lead to; what cannot be written is said, and costs the claim nothing that it has.

use conductor_claims::lifecycle::{condition_of, refused_claim, writes_connection};
use serde_json::json;

use crate::toy::objects::{assert_sound, claim, key, kind, phase, resource};
use crate::toy::{Api, Key};

/// A claim bound to a resource with something behind it.
fn bound(policy: &str) -> (Api, Key, Key, Key) {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", policy, 1, true)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let keys = (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"), key("Thing", "conductor-system", "r"));
    assert_eq!(phase(&api, &keys.0), "Bound");
    (api, keys.0, keys.1, keys.2)
}

fn moved(api: &mut Api, thing: &Key, host: &str) {
    api.patch(thing, &json!({"metadata": {"annotations": {"test/host": host}}}), false);
}

fn ready(api: &Api, claim: &Key) -> (bool, String) {
    condition_of(&api.objects[claim], "ConnectionReady").map(|(ready, why, _)| (ready, why.to_owned())).expect("said")
}

#[test]
fn an_endpoint_of_another_address_family_is_made_anew() {
    let (mut api, db, _, thing) = bound("Delete");
    let slice = key("EndpointSlice", "apps", "db-database");
    let lead = |api: &Api| {
        let slice = &api.objects[&slice];
        (slice["addressType"].clone(), slice["endpoints"][0]["addresses"][0].clone())
    };
    assert_eq!(lead(&api), (json!("IPv4"), json!("10.0.0.7")));
    for (host, family) in [("fd00::7", "IPv6"), ("10.0.0.8", "IPv4")] {
        moved(&mut api, &thing, host);
        api.settle(&kind());
        assert_eq!(lead(&api), (json!(family), json!(host)));
        assert_eq!((phase(&api, &db), ready(&api, &db)), ("Bound", (true, "Written".to_owned())));
    }
}

#[test]
fn what_nobody_can_change_is_said_and_the_rest_follows() {
    let (mut api, db, _, thing) = bound("Delete");
    let (secret, public) = (key("Secret", "apps", "db-database"), key("ConfigMap", "apps", "db-database"));
    api.patch(&public, &json!({"immutable": true}), false);
    moved(&mut api, &thing, "10.0.0.8");
    api.settle(&kind());
    assert_eq!((phase(&api, &db), ready(&api, &db)), ("Bound", (false, "Immutable".to_owned())));
    let said = api.objects[&db]["status"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(said.contains("ConfigMap db-database is immutable"), "{said}");
    assert_eq!(api.objects[&public]["data"]["host"], "10.0.0.7");
    assert_eq!(api.objects[&secret]["data"]["host"], "MTAuMC4wLjg=");
    api.delete(&public);
    api.settle(&kind());
    assert_eq!(api.objects[&public]["data"]["host"], "10.0.0.8");
    assert_eq!(ready(&api, &db), (true, "Written".to_owned()));
}

#[test]
fn what_is_refused_leaves_a_bound_claim_bound_and_its_own() {
    let (mut api, db, r, thing) = bound("Delete");
    let held = api.objects[&thing]["metadata"]["uid"].clone();
    moved(&mut api, &thing, "10.0.0.8");
    api.provide(&thing);
    let whole = api.claim_plan(&kind(), &db, &[]);
    // nothing is said of what may yet be refused
    let says = whole.writes.iter().position(|w| w.target.status).unwrap_or(usize::MAX);
    assert!(
        whole.writes.iter().rposition(|w| writes_connection(w.purpose)).is_some_and(|last| last < says),
        "{whole:?}"
    );
    for purpose in whole.writes.iter().map(|w| w.purpose).filter(|p| writes_connection(p)) {
        let mut api = api.clone();
        let refused = [(purpose, "no".to_owned())];
        for _ in 0..2 {
            let plan = api.claim_plan_without(&kind(), &db, &[], &refused);
            assert!(plan.writes.iter().all(|w| w.purpose != purpose), "{plan:?}");
            api.execute(&plan, usize::MAX, |_| {});
        }
        assert!(api.claim_plan_without(&kind(), &db, &[], &refused).is_empty(), "{purpose}");
        assert_eq!((phase(&api, &db), ready(&api, &db)), ("Bound", (false, "Refused".to_owned())));
        // and what it has stays its own, as ever
        api.patch(&r, &json!({"spec": {"claimRefs": []}, "metadata": {"finalizers": null}}), false);
        for _ in 0..5 {
            let plan = api.resource_plan(&kind(), &r, &api.clone());
            api.execute(&plan, usize::MAX, |_| {});
        }
        assert_eq!((phase(&api, &r), &api.objects[&thing]["metadata"]["uid"]), ("Bound", &held), "{purpose}");
        api.settle(&kind());
        assert_eq!(ready(&api, &db), (true, "Written".to_owned()));
        assert_sound(&api, true);
    }
    let plan = refused_claim(&api.objects[&db], "OverQuota", "no", "now");
    api.execute(&plan, usize::MAX, |_| {});
    assert_eq!((phase(&api, &db), &api.objects[&db]["status"]["reason"]), ("Bound", &json!("OverQuota")));
}

#[test]
fn what_is_reclaimed_is_held_until_what_is_behind_it_is_gone() {
    let (mut api, db, r, thing) = bound("Delete");
    api.delete(&db);
    let plan = api.claim_plan(&kind(), &db, &[]);
    api.execute(&plan, usize::MAX, |_| {});
    assert_eq!(phase(&api, &r), "Released");
    api.patch(&r, &json!({"metadata": {"finalizers": null}}), false);
    for _ in 0..2 {
        let plan = api.resource_plan(&kind(), &r, &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
        assert!(api.objects.contains_key(&r) || !api.objects.contains_key(&thing), "what is behind it is left");
    }
    api.settle(&kind());
    assert!(api.objects.is_empty(), "{:?}", api.objects.keys());
}

#[test]
fn what_is_no_text_is_in_the_secret_as_it_is() {
    let (mut api, db, _, thing) = bound("Delete");
    let secret = key("Secret", "apps", "db-database");
    api.patch(&thing, &json!({"status": {"binary": {"keystore": "//4AAQ=="}}}), true);
    api.settle(&kind());
    assert_eq!(api.objects[&secret]["data"]["keystore"], "//4AAQ==");
    assert_eq!(api.objects[&secret]["data"]["username"], "dQ==");
    assert!(api.objects[&key("ConfigMap", "apps", "db-database")]["data"]["keystore"].is_null());
    assert_eq!(ready(&api, &db), (true, "Written".to_owned()));
    api.patch(&thing, &json!({"status": {"binary": null}}), true);
    api.settle(&kind());
    assert!(api.objects[&secret]["data"]["keystore"].is_null());
}

#[test]
fn details_that_are_no_longer_given_are_said_to_be_old() {
    let (mut api, db, _, thing) = bound("Delete");
    api.patch(&thing, &json!({"metadata": {"annotations": {"test/silent": "yes"}}}), false);
    api.settle(&kind());
    assert_eq!((phase(&api, &db), ready(&api, &db)), ("Bound", (false, "Gone".to_owned())));
    assert_eq!(api.objects[&db]["status"]["binding"]["name"], "db-database", "it is there");
    assert_eq!(api.objects[&key("Secret", "apps", "db-database")]["data"]["username"], "dQ==");
    api.patch(&thing, &json!({"metadata": {"annotations": {"test/silent": null}}}), false);
    api.settle(&kind());
    assert_eq!(ready(&api, &db), (true, "Written".to_owned()));
    assert_sound(&api, true);
}
