//! How a claim and its resource come to refer to each other, hold on to that whatever happens to either, and part.

use conductor_claims::lifecycle::{self, ClaimScene, Connection, condition_of};
use conductor_claims::matching::NoJudge;
use conductor_claims::{extract, template::Paths};
use serde_json::{Value, json};

use crate::toy::Api;
use crate::toy::objects::{assert_sound, claim, key, kind, phase, resource};

#[test]
fn a_claim_binds_and_is_released_by_policy() {
    for (policy, after) in [("Delete", "gone"), ("Retain", "Released"), ("Recycle", "Available")] {
        let (kind, mut api) = (kind(), Api::default());
        api.create(resource("big", "50Gi", policy, 1, true)).expect("created");
        api.create(resource("small", "30Gi", policy, 1, true)).expect("created");
        api.settle(&kind);
        api.create(claim("db", "25Gi", "fast")).expect("created");
        api.settle(&kind);
        let (db, small) = (key("DatabaseClaim", "apps", "db"), key("Database", "", "small"));
        assert_eq!((phase(&api, &db), phase(&api, &small)), ("Bound", "Bound"));
        let bound = &api.objects[&db];
        assert_eq!(bound["spec"]["resourceName"], json!("small"));
        assert_eq!(bound["status"]["capacity"]["storage"], json!("30Gi"));
        let secret = key("Secret", "apps", bound["status"]["binding"]["name"].as_str().expect("a binding"));
        assert_eq!(api.objects[&secret]["data"]["username"], json!("dQ=="));
        let public = &api.objects[&key("ConfigMap", "apps", &secret.2)]["data"];
        assert_eq!((&public["host"], &public["password"]), (&json!("10.0.0.7"), &Value::Null));
        assert_sound(&api, true);
        api.delete(&db);
        api.settle(&kind);
        assert_eq!((phase(&api, &db), phase(&api, &small)), ("gone", after), "{policy}");
        assert!(!api.objects.contains_key(&secret));
        assert_eq!(
            api.objects.contains_key(&key("Thing", "conductor-system", "small")),
            policy != "Delete",
            "{policy}"
        );
        assert_sound(&api, true);
        if policy == "Retain" {
            api.delete(&small);
            api.settle(&kind);
            assert_eq!(phase(&api, &small), "gone");
            let kept = key("Thing", "conductor-system", "small");
            assert!(api.objects.contains_key(&kept), "deleting the resource leaves the implementation");
            // step 3: a new resource adopts it
            let mut adopting = resource("again", "30Gi", "Delete", 1, false);
            adopting["spec"]["implementationRef"] = json!({"apiVersion": "p/v1", "kind": "Thing", "name": "small"});
            api.create(adopting).expect("created");
            api.settle(&kind);
            assert_eq!(phase(&api, &key("Database", "", "again")), "Available");
            assert_eq!(api.of_kind("Thing").count(), 2, "adopted, not made again");
            assert_sound(&api, true);
        }
    }
}

#[test]
fn of_several_implementations_the_one_that_vanished_is_named() {
    let (kind, mut api) = (kind(), Api::default());
    let mut many = resource("r", "30Gi", "Retain", 1, false);
    let thing = json!({"apiVersion": "p/v1", "kind": "Thing", "spec": {}});
    many["spec"]["templates"] = json!([{"name": "data", "template": thing}, {"name": "extra", "template": thing}]);
    api.create(many).expect("created");
    api.settle(&kind);
    let extra = key("Thing", "conductor-system", "r-extra");
    assert!(api.objects.remove(&extra).is_some(), "{:?}", api.objects.keys());
    api.settle(&kind);
    let status = &api.objects[&key("Database", "", "r")]["status"];
    assert_eq!(status["reason"], json!("ImplementationLost"));
    assert!(status["message"].as_str().is_some_and(|m| m.contains("r-extra vanished")), "{status}");
}

#[test]
fn what_is_in_use_stays_and_says_so() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Delete", 1, true)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let (db, r) = (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"));
    api.delete(&r);
    api.settle(&kind);
    assert_eq!(phase(&api, &r), "Bound");
    assert!(api.objects[&r]["status"]["message"].as_str().is_some_and(|m| m.contains("apps/db")));
    api.delete(&db);
    let plan = api.claim_plan(&kind, &db, &["Pod web".to_owned()]);
    api.execute(&plan, usize::MAX, |_| {});
    assert!(api.objects[&db]["status"]["message"].as_str().is_some_and(|m| m.contains("Pod web")));
    assert_eq!(phase(&api, &db), "Bound");
    api.settle(&kind);
    assert!(api.objects.is_empty(), "{:?}", api.objects.keys());
}

#[test]
fn what_is_to_go_and_is_used_is_looked_after() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Delete", 1, true)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let (db, r, thing) =
        (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"), key("Thing", "conductor-system", "r"));
    api.delete(&r);
    api.settle(&kind);
    let removable =
        |api: &Api| condition_of(&api.objects[&r], "Removable").map(|(may, reason, _)| (may, reason.to_owned()));
    assert_eq!((phase(&api, &r), removable(&api)), ("Bound", Some((false, "InUse".to_owned()))));
    // what happens to it is said, and what is mended is, too
    let kept = api.objects.remove(&thing).expect("there");
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Failed", "Lost"));
    api.objects.insert(thing, kept);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Bound", "Bound"));
    assert_eq!(api.objects[&r]["status"]["reason"], "InUse");
    api.delete(&db);
    api.settle(&kind);
    assert!(api.objects.is_empty(), "{:?}", api.objects.keys());
}

#[test]
fn what_vanished_is_lost_never_replaced_and_heals() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Recycle", 1, true)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let (db, r, thing) =
        (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"), key("Thing", "conductor-system", "r"));
    let kept = api.objects[&thing].clone();
    api.objects.remove(&thing);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Failed", "Lost"));
    assert!(!api.objects.contains_key(&thing), "never made again empty");
    api.objects.insert(thing, kept);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Bound", "Bound"));
    // the whole resource goes
    let kept = api.objects.remove(&r).expect("there");
    api.settle(&kind);
    assert_eq!(phase(&api, &db), "Lost");
    api.objects.insert(r.clone(), kept);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Bound", "Bound"));
    // released under its claim, by whatever mistake, it is the claim's again before anything is done to it
    api.patch(&r, &json!({"status": {"phase": "Released"}}), true);
    api.patch(&r, &json!({"spec": {"claimRefs": []}}), false);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Bound", "Bound"));
    // free again by somebody's word, it might have been anyone's meanwhile
    api.patch(&r, &json!({"status": {"phase": "Available"}}), true);
    api.patch(&r, &json!({"spec": {"claimRefs": []}}), false);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Available", "Lost"));
    let ready =
        |api: &Api| condition_of(&api.objects[&db], "Ready").map(|(ready, reason, _)| (ready, reason.to_owned()));
    assert_eq!(ready(&api), Some((false, "ResourceTaken".to_owned())));
    api.patch(
        &r,
        &json!({"spec": {"claimRefs": [{"uid": "", "namespace": "apps", "name": "db", "by": "Admin"}]}}),
        false,
    );
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &db)), ("Bound", "Bound"));
    assert_eq!(ready(&api).map(|(ready, _)| ready), Some(true));
    assert_sound(&api, true);
}

#[test]
fn a_reference_that_is_edited_away_is_there_again() {
    for policy in ["Delete", "Retain", "Recycle"] {
        for shared in [1_usize, 2] {
            let (kind, mut api) = (kind(), Api::default());
            api.create(resource("r", "60Gi", policy, shared as u32, true)).expect("created");
            api.settle(&kind);
            let claims = ["one", "two"];
            for name in claims.iter().take(shared) {
                api.create(claim(name, "25Gi", "fast")).expect("created");
                api.settle(&kind);
            }
            let (r, thing) = (key("Database", "", "r"), key("Thing", "conductor-system", "r"));
            let before = api.objects[&r]["spec"]["claimRefs"].as_array().map_or(0, Vec::len);
            assert_eq!(before, shared);
            let held = api.objects[&thing]["metadata"]["uid"].clone();
            // one of them, all of them, and as `kubectl replace` does: with the finalizers
            let last = api.objects[&r]["spec"]["claimRefs"][shared - 1].clone();
            let edits = [
                json!({"spec": {"claimRefs": [last]}}),
                json!({"spec": {"claimRefs": null}}),
                json!({"spec": {"claimRefs": null}, "metadata": {"finalizers": null}}),
                // a manifest with a reservation, applied again
                json!({"spec": {"claimRefs": [{"uid": "", "namespace": "apps", "name": "one", "by": "Admin"}]}}),
            ];
            for edit in edits {
                api.patch(&r, &edit, false);
                api.settle(&kind);
                let refs = api.objects[&r]["spec"]["claimRefs"].as_array().map_or(0, Vec::len);
                assert_eq!((phase(&api, &r), refs), ("Bound", shared), "{policy} {edit}");
                assert_eq!(api.objects[&thing]["metadata"]["uid"], held, "{policy} {edit}");
                for name in claims.iter().take(shared) {
                    assert_eq!(phase(&api, &key("DatabaseClaim", "apps", name)), "Bound", "{policy} {edit}");
                }
                assert_sound(&api, true);
            }
            // what failed in use is its claims' when it is repaired, and nobody else's
            let kept = api.objects.remove(&thing).expect("there");
            api.settle(&kind);
            assert_eq!(phase(&api, &r), "Failed");
            api.patch(&r, &json!({"spec": {"claimRefs": null}}), false);
            api.settle(&kind);
            api.objects.insert(thing.clone(), kept);
            api.settle(&kind);
            assert_eq!(phase(&api, &r), "Bound", "{policy}");
            let refs = api.objects[&r]["spec"]["claimRefs"].as_array().map_or(0, Vec::len);
            assert_eq!(refs, shared, "{policy}");
            // a claim that is to go and is used: nor under that
            let one = key("DatabaseClaim", "apps", "one");
            let before = api.objects[&one].clone();
            api.delete(&one);
            api.patch(&r, &json!({"spec": {"claimRefs": []}}), false);
            let plan = api.resource_plan(&kind, &r, &api.clone());
            assert!(plan.writes.iter().all(|w| w.purpose == "refer to the claim again"), "{plan:?}");
            assert_eq!(plan.writes.len(), 1, "{plan:?}");
            api.objects.insert(one, before);
            api.settle(&kind);
            // and on its way out: not under its claims
            api.delete(&r);
            api.patch(&r, &json!({"spec": {"claimRefs": []}}), false);
            api.settle(&kind);
            assert_eq!(phase(&api, &r), "Bound", "{policy}");
            assert_eq!(api.objects[&thing]["metadata"]["uid"], held, "{policy}");
        }
    }
}

#[test]
fn what_has_no_room_for_its_claim_any_more_is_not_released() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "60Gi", "Delete", 1, true)).expect("created");
    api.settle(&kind);
    api.create(claim("one", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let (one, r) = (key("DatabaseClaim", "apps", "one"), key("Database", "", "r"));
    let other = json!([{"uid": "", "namespace": "apps", "name": "other", "by": "Admin"}]);
    api.patch(&r, &json!({"spec": {"claimRefs": other}}), false);
    api.settle(&kind);
    assert_eq!((phase(&api, &r), phase(&api, &one)), ("Bound", "Bound"));
    assert_eq!(api.objects[&one]["status"]["reason"], "Torn");
    api.patch(&r, &json!({"spec": {"claimRefs": []}}), false);
    api.settle(&kind);
    assert_eq!(api.objects[&r]["spec"]["claimRefs"][0]["name"], "one");
    assert_eq!(api.objects[&one]["status"]["reason"], Value::Null);
    assert_sound(&api, true);
}

#[test]
fn nobody_waits_for_what_is_to_go() {
    for by in ["Manager", "Admin"] {
        for recycled in [false, true] {
            let (kind, mut api) = (kind(), Api::default());
            api.create(resource("r", "60Gi", "Recycle", 1, true)).expect("created");
            api.settle(&kind);
            let (db, r) = (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"));
            if recycled {
                api.create(claim("before", "25Gi", "fast")).expect("created");
                api.settle(&kind);
                api.delete(&key("DatabaseClaim", "apps", "before"));
                api.settle(&kind);
                assert_eq!(phase(&api, &r), "Available");
            }
            api.create(claim("db", "25Gi", "fast")).expect("created");
            let uid = api.objects[&db]["metadata"]["uid"].clone();
            let begun =
                json!([{"uid": uid, "namespace": "apps", "name": "db", "by": by, "amounts": {"storage": "25Gi"}}]);
            api.patch(&r, &json!({"spec": {"claimRefs": begun}}), false);
            api.delete(&r);
            api.settle(&kind);
            assert_eq!(phase(&api, &r), "gone", "{by} {recycled}");
            assert!(!api.objects[&db]["status"]["message"].to_string().contains("being deleted"), "{by} {recycled}");
        }
    }
}

#[test]
fn a_resource_that_is_deleted_says_what_it_waits_for() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Delete", 1, true)).expect("created");
    api.settle(&kind);
    let (r, thing) = (key("Database", "", "r"), key("Thing", "conductor-system", "r"));
    api.patch(&thing, &json!({"metadata": {"finalizers": ["example.com/hold"]}}), false);
    api.delete(&r);
    api.settle(&kind);
    let status = &api.objects[&r]["status"];
    assert_eq!(status["reason"], json!("Deleting"));
    let message = status["message"].to_string();
    assert!(message.contains("it goes when its implementation is gone, Thing r"), "{message}");
    api.patch(&thing, &json!({"metadata": {"finalizers": []}}), false);
    api.settle(&kind);
    assert!(!api.objects.contains_key(&r) && !api.objects.contains_key(&thing));
}

#[test]
fn of_two_managers_one_wins_and_the_other_leaves_no_trace() {
    // two claims, one resource, the same look
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Retain", 1, true)).expect("created");
    api.settle(&kind);
    api.create(claim("a", "10Gi", "none")).expect("created");
    api.create(claim("b", "10Gi", "none")).expect("created");
    for name in ["a", "b"] {
        api.patch(&key("DatabaseClaim", "apps", name), &json!({"spec": {"class": "fast"}}), false);
    }
    let look = api.clone();
    let plans = ["a", "b"].map(|n| look.claim_plan(&kind, &key("DatabaseClaim", "apps", n), &[]));
    assert!(api.execute(&plans[0], usize::MAX, |_| {}));
    let before = api.objects.clone();
    assert!(!api.execute(&plans[1], usize::MAX, |_| {}));
    assert!(api.objects == before, "the loser wrote nothing");

    // one claim, two looks that choose differently
    let mut api = Api::default();
    api.create(resource("large", "50Gi", "Retain", 1, true)).expect("created");
    api.settle(&kind);
    let c = key("DatabaseClaim", "apps", "c");
    api.create(claim("c", "10Gi", "fast")).expect("created");
    let first = api.claim_plan(&kind, &c, &[]);
    api.create(resource("tight", "10Gi", "Retain", 1, true)).expect("created");
    for at in [key("Database", "", "tight"), key("Thing", "conductor-system", "tight"), key("Database", "", "tight")] {
        let plan = api.resource_plan(&kind, &at, &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
        api.provide(&key("Thing", "conductor-system", "tight"));
    }
    let second = api.claim_plan(&kind, &c, &[]);
    api.execute(&first, 1, |_| {});
    assert!(api.execute(&second, usize::MAX, |_| {}));
    assert!(!api.execute(&first, usize::MAX, |_| {}));
    assert_eq!(api.objects[&key("Database", "", "large")]["spec"]["claimRefs"].as_array().map(Vec::len), Some(1));
    api.settle(&kind);
    assert_eq!(api.objects[&c]["spec"]["resourceName"], json!("tight"));
    assert_eq!(phase(&api, &key("Database", "", "large")), "Available", "rolled back, never used");
    assert_sound(&api, true);
}

#[test]
fn what_is_wrong_with_those_who_use_a_bound_claim_is_its_reason() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("db", "50Gi", "Retain", 1, true)).expect("created");
    api.create(claim("a", "10Gi", "fast")).expect("created");
    api.settle(&kind);
    let claim = key("DatabaseClaim", "apps", "a");
    let mut routed = |status: &str, reason: &str| {
        let mut conditions = api.objects[&claim]["status"]["conditions"].as_array().expect("a list").clone();
        conditions.retain(|c| c["type"] != "Routed");
        conditions
            .push(json!({"type": "Routed", "status": status, "reason": reason, "message": "Ingress w: no Service"}));
        api.patch(&claim, &json!({"status": {"conditions": conditions}}), true);
        api.settle(&kind);
        let status = &api.objects[&claim]["status"];
        assert_eq!(status["phase"], "Bound");
        (status["reason"].clone(), status["message"].clone())
    };
    assert_eq!(routed("False", "Refused"), (json!("Refused"), json!("Ingress w: no Service")));
    assert_eq!(routed("True", "Carried"), (Value::Null, Value::Null));
}

#[test]
fn whom_a_reference_does_not_fit_waits_and_says_so() {
    let asked = |size: &str, engine: &str| {
        let mut object = claim("db", size, "fast");
        object["spec"]["engine"] = json!(engine);
        object
    };
    let (db, r) = (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"));
    for template in [false, true] {
        for (by, named) in [("Admin", false), ("Admin", true), ("Manager", false)] {
            for (size, engine, fits) in [("25Gi", "mysql", true), ("99Gi", "mysql", false), ("25Gi", "postgres", false)]
            {
                let (kind, mut api) = (kind(), Api::default());
                api.create(resource("r", "30Gi", "Delete", 1, template)).expect("created");
                api.settle(&kind);
                api.create(asked(size, engine)).expect("created");
                let uid = api.objects[&db]["metadata"]["uid"].clone();
                if named {
                    api.patch(&db, &json!({"spec": {"resourceName": "r"}}), false);
                }
                let refs = json!([{"uid": uid, "namespace": "apps", "name": "db", "by": by}]);
                api.patch(&r, &json!({"spec": {"claimRefs": refs}}), false);
                api.settle(&kind);
                let shown = format!("{by} {size} {engine} {named}");
                let refs = api.objects[&r]["spec"]["claimRefs"].as_array().map_or(0, Vec::len);
                let status = &api.objects[&db]["status"];
                match (fits, by) {
                    (true, _) => assert_eq!((phase(&api, &db), phase(&api, &r)), ("Bound", "Bound"), "{shown}"),
                    (false, "Manager") => {
                        assert_eq!((phase(&api, &r), refs), ("Available", 0), "{shown}: free for those it fits");
                        assert_eq!(status["reason"], "ClassMissing", "{shown}");
                    }
                    (false, _) => {
                        assert_eq!((phase(&api, &r), refs), ("Available", 1), "{shown}");
                        assert_eq!(status["reason"], "ReservedRefused", "{shown}: {status}");
                    }
                }
                assert_sound(&api, true);
                // once bound, what it asks for changes nothing about whose it is
                if fits {
                    api.patch(&db, &json!({"spec": {"engine": "postgres"}}), false);
                    api.settle(&kind);
                    assert_eq!((phase(&api, &db), phase(&api, &r)), ("Bound", "Bound"), "{shown}");
                }
            }
        }
    }
}

#[test]
fn what_could_not_be_scrubbed_has_ways_out() {
    let (db, r, thing) =
        (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"), key("Thing", "conductor-system", "r"));
    let released = |answer: &str| {
        let (kind, mut api) = (kind(), Api::default());
        api.create(resource("r", "30Gi", "Recycle", 1, true)).expect("created");
        api.settle(&kind);
        api.create(claim("db", "25Gi", "fast")).expect("created");
        api.settle(&kind);
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": answer}}}), false);
        api.delete(&db);
        api.settle(&kind);
        api
    };
    let said = |api: &Api| {
        let status = &api.objects[&r]["status"];
        (status["phase"].clone(), status["reason"].clone(), status["message"].as_str().unwrap_or_default().to_owned())
    };
    let (now, reason, message) = said(&released("False"));
    assert_eq!((now, reason), (json!("Failed"), json!("ScrubFailed")));
    assert!(message.contains("reclaimPolicy"), "{message}");
    // not known yet, or not said: not failed
    for answer in ["Unknown", ""] {
        let mut api = released(answer);
        assert_eq!(phase(&api, &r), "Scrubbing", "{answer}");
        assert!(said(&api).2.contains("has not said how scrub 1 went"), "{answer} {:?}", said(&api));
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": null}}}), false);
        api.settle(&kind());
        assert_eq!(phase(&api, &r), "Available");
    }
    // what an administrator sets meanwhile is followed
    for (answer, policy, after) in [
        ("False", "Delete", "gone"),
        ("False", "Retain", "Released"),
        ("Unknown", "Delete", "gone"),
        // it is being overwritten
        ("Unknown", "Retain", "Scrubbing"),
    ] {
        let mut api = released(answer);
        api.patch(&r, &json!({"spec": {"reclaimPolicy": policy}}), false);
        api.settle(&kind());
        assert_eq!(phase(&api, &r), after, "{answer} {policy}");
        assert_eq!(api.objects.contains_key(&thing), policy == "Retain", "{answer} {policy}");
    }
    let mut api = released("False");
    api.patch(&r, &json!({"spec": {"reclaimPolicy": "Retain"}}), false);
    api.settle(&kind());
    api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": null}}}), false);
    api.patch(&r, &json!({"spec": {"reclaimPolicy": "Recycle"}}), false);
    api.settle(&kind());
    assert_eq!((phase(&api, &r), &api.objects[&thing]["spec"]["scrub"]), ("Available", &json!(2)), "once more");
}

#[test]
fn whoever_names_what_failed_does_not_hear_what_is_behind_it() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(json!({"apiVersion": "p/v1", "kind": "Thing", "metadata": {"name": "r", "namespace": "conductor-system"}, "spec": {}})).expect("created");
    api.create(resource("r", "30Gi", "Delete", 1, true)).expect("created");
    let mut curious = claim("db", "25Gi", "fast");
    curious["spec"]["resourceName"] = json!("r");
    api.create(curious).expect("created");
    api.settle(&kind);
    assert!(api.objects[&key("Database", "", "r")]["status"]["message"].to_string().contains("Thing r"));
    let status = &api.objects[&key("DatabaseClaim", "apps", "db")]["status"];
    assert_eq!(status["reason"], "NamedRefused");
    let said = status["message"].as_str().unwrap_or_default();
    assert!(said.contains("it is Failed") && !said.contains("Thing"), "{said}");
}

#[test]
fn a_late_write_of_a_bind_that_is_over_names_nothing() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Retain", 1, false)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "25Gi", "fast")).expect("created");
    let (db, r) = (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"));
    let begun = api.claim_plan(&kind, &db, &[]);
    api.execute(&begun, 1, |_| {});
    let late = begun.writes.iter().find(|write| write.purpose == "name the resource").expect("is planned");
    // what was begun is over before that arrives
    api.patch(&r, &json!({"spec": {"capacity": {"storage": "10Gi"}}}), false);
    let over = api.claim_plan(&kind, &db, &[]);
    assert!(over.writes.iter().any(|write| write.purpose == "take the reference back"), "{over:?}");
    assert!(api.execute(&over, usize::MAX, |_| {}));
    assert!(api.send(late, &[]).is_err(), "it is overtaken");
    api.settle(&kind);
    assert!(api.objects[&db]["spec"]["resourceName"].is_null(), "{}", api.objects[&db]);
    assert_eq!(api.objects[&db]["status"]["reason"], "ClassMissing");
    // and one that arrived before it is finished
    let mut api = Api::default();
    api.create(resource("r", "30Gi", "Retain", 1, false)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "25Gi", "fast")).expect("created");
    let begun = api.claim_plan(&kind, &db, &[]);
    api.execute(&begun, 1, |_| {});
    api.patch(&r, &json!({"spec": {"capacity": {"storage": "10Gi"}}}), false);
    let over = api.claim_plan(&kind, &db, &[]);
    api.send(late, &[]).expect("is in time");
    assert!(!api.execute(&over, usize::MAX, |_| {}));
    api.settle(&kind);
    assert_eq!((phase(&api, &db), phase(&api, &r)), ("Bound", "Bound"));
}

#[test]
fn what_was_begun_of_a_class_that_its_maker_may_not_use_is_given_back() {
    for by in ["Manager", "Admin"] {
        let (kind, mut api) = (kind(), Api::default());
        api.create(resource("r", "30Gi", "Retain", 1, false)).expect("created");
        api.settle(&kind);
        let mut any = claim("db", "25Gi", "");
        any["spec"].as_object_mut().expect("a spec").remove("class");
        api.create(any).expect("created");
        let (db, r) = (key("DatabaseClaim", "apps", "db"), key("Database", "", "r"));
        let uid = api.objects[&db]["metadata"]["uid"].clone();
        let refs = json!([{"uid": uid, "namespace": "apps", "name": "db", "by": by}]);
        api.patch(&r, &json!({"spec": {"claimRefs": refs}}), false);
        let mut ask = extract::ask(&kind.rules(), &api.objects[&db], true, None).expect("a claim");
        ask.barred = Box::new(["fast".into()]);
        let decision = api.index(&kind).decide(&ask, &NoJudge);
        let plan = lifecycle::claim(&ClaimScene {
            kind: &kind,
            claim: &api.objects[&db],
            decision: Some(&decision),
            resource: api.objects.get(&r),
            class: None,
            consumers: &[],
            connection: Connection::default(),
            growth_refused: None,
            expressions: &Paths,
            now: "now",
        });
        let does = |purpose: &str| plan.writes.iter().any(|write| write.purpose == purpose);
        // what an administrator refers to takes no right
        assert_eq!(does("name the resource"), by == "Admin", "{plan:?}");
        assert_eq!(does("take the reference back"), by == "Manager", "{plan:?}");
    }
}
