//! What was used is free again only when it was scrubbed since, however often it is used and whatever happens meanwhile.

use conductor_claims::invariants::violations;
use conductor_claims::lifecycle::{condition_of, resource_failed};
use serde_json::{Value, json};

use crate::toy::objects::{assert_sound, claim, key, kind, phase, resource};
use crate::toy::{Api, Key};

fn r() -> Key {
    key("Database", "", "r")
}

fn thing() -> Key {
    key("Thing", "conductor-system", "r")
}

/// A resource that is recycled and was used and scrubbed so many times.
fn used(times: usize) -> Api {
    let mut api = Api::default();
    api.create(resource("r", "30Gi", "Recycle", 1, true)).expect("created");
    api.settle(&kind());
    for _ in 0..times {
        bind(&mut api);
        api.delete(&key("DatabaseClaim", "apps", "db"));
        api.settle(&kind());
        assert_eq!((phase(&api, &r()), scrubbed(&api)), ("Available", Some(true)));
    }
    api
}

fn bind(api: &mut Api) {
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind());
    assert_eq!(phase(api, &r()), "Bound");
}

/// A claim lets go of it, and nobody has done anything about it yet.
fn release(api: &mut Api) {
    bind(api);
    let db = key("DatabaseClaim", "apps", "db");
    api.delete(&db);
    let plan = api.claim_plan(&kind(), &db, &[]);
    assert!(api.execute(&plan, usize::MAX, |_| {}));
    assert_eq!(phase(api, &r()), "Released");
}

fn scrubbed(api: &Api) -> Option<bool> {
    condition_of(&api.objects[&r()], "Scrubbed").map(|(done, _, _)| done)
}

/// One look at the resource.
fn look(api: &mut Api) {
    let plan = api.resource_plan(&kind(), &r(), &api.clone());
    api.execute(&plan, usize::MAX, |api| assert_sound(api, false));
}

#[test]
fn a_scrub_counts_for_one_use() {
    for times in 0..3 {
        let mut api = used(times);
        release(&mut api);
        let before = if times == 0 { None } else { Some(false) };
        assert_eq!(scrubbed(&api), before, "after {times} scrubs");
        // whoever says Available now is caught, the second time as well as the first
        let mut wrong = api.clone();
        wrong.patch(&r(), &json!({"status": {"phase": "Available"}}), true);
        let found: Vec<&str> = violations(&wrong.world(&kind()), false).iter().map(|v| v.invariant).collect();
        assert_eq!(found, ["a used resource is scrubbed before it is free"], "after {times} scrubs");
        api.settle(&kind());
        assert_eq!((phase(&api, &r()), scrubbed(&api)), ("Available", Some(true)));
        assert_eq!(api.objects[&r()]["status"]["scrub"], json!(times + 1));
    }
}

#[test]
fn what_an_older_version_left_is_told_at_the_release() {
    let mut api = used(1);
    bind(&mut api);
    let mut status = api.objects[&r()]["status"]["conditions"].clone();
    for condition in status.as_array_mut().expect("conditions").iter_mut().filter(|c| c["type"] == "Scrubbed") {
        condition["status"] = json!("True");
    }
    api.patch(&r(), &json!({"status": {"conditions": status}}), true);
    api.delete(&key("DatabaseClaim", "apps", "db"));
    let plan = api.claim_plan(&kind(), &key("DatabaseClaim", "apps", "db"), &[]);
    api.execute(&plan, usize::MAX, |_| {});
    assert_eq!((phase(&api, &r()), scrubbed(&api)), ("Released", Some(false)));
}

/// What is lost in the midst of a scrub, and brought back from a backup with all that was in it, is scrubbed before anybody has it:
/// whatever the backup says of a scrub, and whether what is brought back is known as another.
#[test]
fn what_is_lost_while_it_is_scrubbed_and_restored_is_not_free() {
    let cases = [
        ("intended", "the same"),
        ("intended", "anew"),
        ("asked", "the same"),
        ("asked", "anew"),
        ("answered", "anew"),
    ];
    for (backed_up, uid) in cases {
        for times in 0..2 {
            let mut api = used(times);
            release(&mut api);
            look(&mut api);
            assert_eq!(phase(&api, &r()), "Scrubbing");
            if backed_up != "intended" {
                look(&mut api);
            }
            if backed_up == "answered" {
                api.provide(&thing());
            }
            let mut backup = api.objects.remove(&thing()).expect("something behind it");
            look(&mut api);
            let lost = |api: &Api| api.objects[&r()]["status"]["reason"] == "ImplementationLost";
            assert!(lost(&api) && phase(&api, &r()) == "Failed");
            look(&mut api);
            assert!(lost(&api), "it is not back yet");
            if uid == "anew" {
                backup["metadata"]["uid"] = json!(uid);
            }
            api.objects.insert(thing(), backup);
            for _ in 0..4 {
                look(&mut api);
                assert_ne!(phase(&api, &r()), "Available", "{backed_up}, {uid}: its provider has not scrubbed it");
            }
            api.settle(&kind());
            assert_eq!((phase(&api, &r()), scrubbed(&api)), ("Available", Some(true)), "{backed_up}, {uid}");
            let number = times + if backed_up == "answered" { 2 } else { 1 };
            assert_eq!(api.objects[&thing()]["status"]["scrubbed"], json!(number), "{backed_up}, {uid}");
        }
    }
}

/// A copy may be ahead of its resource, and an administrator may have asked for a later scrub: no number is waited for that was passed.
#[test]
fn a_scrub_whose_number_was_passed_is_asked_for_anew() {
    for uid in ["the same", "anew"] {
        let mut api = used(0);
        release(&mut api);
        look(&mut api);
        look(&mut api);
        assert_eq!(api.objects[&thing()]["spec"]["scrub"], 1);
        let passed = json!({"scrubbed": 3, "conditions": [{"type": "Scrubbed", "status": "True"}]});
        api.patch(&thing(), &json!({"spec": {"scrub": 3}}), false);
        api.patch(&thing(), &json!({"status": passed}), true);
        if uid == "anew" {
            api.objects.get_mut(&thing()).expect("there")["metadata"]["uid"] = json!(uid);
        }
        api.settle(&kind());
        assert_eq!((phase(&api, &r()), scrubbed(&api)), ("Available", Some(true)), "{uid}");
        assert_eq!(api.objects[&thing()]["status"]["scrubbed"], json!(4), "{uid}");
    }
}

/// What is restored holds its data: until it is asked for a scrub itself, an administrator may keep it.
#[test]
fn what_is_restored_while_it_is_scrubbed_can_be_kept() {
    let mut api = used(0);
    release(&mut api);
    look(&mut api);
    look(&mut api);
    api.objects.get_mut(&thing()).expect("something behind it")["metadata"]["uid"] = json!("anew");
    api.patch(&r(), &json!({"spec": {"reclaimPolicy": "Retain"}}), false);
    look(&mut api);
    assert_eq!((phase(&api, &r()), scrubbed(&api)), ("Released", None));
    assert_eq!(api.objects[&r()]["status"]["reason"], "Retained");
}

/// Something outside keeps managers from looking after a resource that somebody used: when it is over, the resource is where it was.
#[test]
fn what_fails_after_it_was_used_is_not_free() {
    for (policy, after) in [("Retain", "Released"), ("Recycle", "Available"), ("Delete", "gone")] {
        for looks in 0..2 {
            let mut api = used(1);
            release(&mut api);
            api.patch(&r(), &json!({"spec": {"reclaimPolicy": policy}}), false);
            (0..looks).for_each(|_| look(&mut api));
            let failed = resource_failed(&api.objects[&r()], "NotAllowed", "not allowed", "2026-01-01T00:00:03Z");
            api.execute(&failed, usize::MAX, |_| {});
            assert_eq!(api.objects[&r()]["status"]["reason"], "NotAllowed");
            let scrubs = |api: &Api| api.objects.get(&r()).map_or(Value::Null, |r| r["status"]["scrub"].clone());
            for _ in 0..4 {
                if api.objects.contains_key(&r()) {
                    look(&mut api);
                    assert_ne!(phase(&api, &r()), "Available", "{policy} after {looks}");
                }
            }
            api.settle(&kind());
            assert_eq!(phase(&api, &r()), after, "{policy} after {looks}");
            assert!(policy != "Recycle" || scrubs(&api) == 2, "{policy} after {looks}");
            assert_sound(&api, true);
        }
    }
    // as an older version has left it
    let mut api = used(1);
    release(&mut api);
    api.patch(&r(), &json!({"spec": {"reclaimPolicy": "Retain"}, "status": {}}), false);
    api.patch(&r(), &json!({"status": {"phase": "Failed", "reason": "NotAllowed"}}), true);
    api.settle(&kind());
    assert_eq!(phase(&api, &r()), "Released");
}
