//! The lives of claims and resources on a toy API server: story by story, then under random crashes, races and stale looks.

mod toy;

use conductor_claims::lifecycle::{ClaimScene, Connection, condition_of};
use conductor_claims::matching::{Decision, Why};
use conductor_claims::template::Paths;
use conductor_claims::types::ResourceType;
use serde_json::{Value, json};
use toy::objects::{assert_sound, claim, class, key, kind, phase, resource};
use toy::{Api, Key};

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
fn a_class_makes_what_is_missing_once() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(class("fast", "Delete")).expect("created");
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let db = key("DatabaseClaim", "apps", "db");
    assert_eq!(phase(&api, &db), "Bound");
    let name = api.objects[&db]["spec"]["resourceName"].as_str().expect("a name").to_owned();
    let thing = &api.objects[&key("Thing", "conductor-system", &name)];
    assert_eq!((&thing["spec"]["size"], &thing["spec"]["of"]), (&json!("25Gi"), &json!(name)));
    assert_sound(&api, true);
    api.delete(&db);
    api.settle(&kind);
    assert_eq!(api.objects.len(), 1, "only the class is left: {:?}", api.objects.keys().collect::<Vec<_>>());
}

#[test]
fn what_could_never_be_used_goes_and_its_claim_gets_another() {
    for policy in ["Delete", "Retain", "Recycle"] {
        let (kind, mut api) = (kind(), Api::default());
        api.create(class("fast", policy)).expect("created");
        api.create(claim("db", "25Gi", "fast")).expect("created");
        let db = key("DatabaseClaim", "apps", "db");
        let plan = api.claim_plan(&kind, &db, &[]);
        api.execute(&plan, usize::MAX, |_| {});
        let (made, first) = api.of_kind("Database").next().map(|(k, o)| (k.clone(), o.clone())).expect("it is made");
        let plan = api.resource_plan(&kind, &made, &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
        api.patch(&made, &json!({"status": {"phase": "Failed", "reason": "Refused"}}), true);
        // an administrator corrects the class and has it made anew
        api.delete(&made);
        api.settle(&kind);
        assert_eq!(phase(&api, &db), "Bound");
        assert_ne!(api.objects[&made]["metadata"]["uid"], first["metadata"]["uid"], "another, under the same name");
        assert_sound(&api, true);
    }
}

#[test]
fn what_was_begun_for_something_else_gives_way() {
    let edits = [
        json!({"spec": {"class": "other"}}),
        json!({"spec": {"resources": {"requests": {"storage": "50Gi"}}}}),
        json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}),
    ];
    for policy in ["Delete", "Retain", "Recycle"] {
        for edit in &edits {
            for stage in ["begun", "being made", "made"] {
                let (kind, mut api) = (kind(), Api::default());
                api.create(class("fast", policy)).expect("created");
                api.create(class("other", policy)).expect("created");
                api.create(claim("db", "25Gi", "fast")).expect("created");
                let db = key("DatabaseClaim", "apps", "db");
                let plan = api.claim_plan(&kind, &db, &[]);
                api.execute(&plan, usize::MAX, |_| {});
                let (made, first) =
                    api.of_kind("Database").next().map(|(k, o)| (k.clone(), o.clone())).expect("it is made");
                for _ in 0..if stage == "begun" { 0 } else { 3 } {
                    let plan = api.resource_plan(&kind, &made, &api.clone());
                    api.execute(&plan, usize::MAX, |_| {});
                    if stage == "made" {
                        api.provide(&key("Thing", "conductor-system", &made.2));
                    }
                }
                assert_eq!(phase(&api, &made) == "Available", stage == "made");
                api.patch(&db, edit, false);
                api.settle(&kind);
                let (claim, resource) = (&api.objects[&db], &api.objects[&made]);
                assert_eq!(phase(&api, &db), "Bound", "{edit} {stage}");
                assert_eq!(resource["spec"]["class"], claim["spec"]["class"], "{edit} {stage}");
                let asked = &claim["spec"]["resources"]["requests"]["storage"];
                assert_eq!(&resource["spec"]["capacity"]["storage"], asked, "{edit} {stage}");
                assert_ne!(resource["metadata"]["uid"], first["metadata"]["uid"], "{edit} {stage}");
                assert_sound(&api, true);
            }
        }
    }
}

#[test]
fn what_a_class_leaves_to_its_maker_is_no_reason_to_make_it_anew() {
    let kind = ResourceType::parse(&json!({"spec": {
        "group": "a.example.com", "version": "v1", "names": {"resource": "Database"},
        "attributes": {"engine": {"type": "string"}, "version": {"match": "VersionRange"}},
        "capacities": {"storage": {}}, "reclaimPolicies": ["Delete", "Retain", "Recycle"],
    }}))
    .expect("a type");
    for range in ["< 8", "!= 5", ">= 5"] {
        let mut api = Api::default();
        let mut open = class("fast", "Delete");
        open["offers"] = json!({"engine": "mysql"});
        api.create(open).expect("created");
        let mut db = claim("db", "25Gi", "fast");
        db["spec"]["version"] = json!(range);
        api.create(db).expect("created");
        // it would never come to rest
        api.settle(&kind);
        let said = &api.objects[&key("DatabaseClaim", "apps", "db")]["status"];
        assert!(said["phase"] == "Bound" || said["reason"] == "ClassRefused", "{range}: {said}");
    }
}

#[test]
fn nobody_is_bound_to_what_is_being_removed() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(class("fast", "Delete")).expect("created");
    api.create(claim("db", "25Gi", "fast")).expect("created");
    let db = key("DatabaseClaim", "apps", "db");
    let plan = api.claim_plan(&kind, &db, &[]);
    api.execute(&plan, usize::MAX, |_| {});
    let made = api.of_kind("Database").next().map(|(k, _)| k.clone()).expect("it is made");
    for _ in 0..3 {
        let plan = api.resource_plan(&kind, &made, &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
        api.provide(&key("Thing", "conductor-system", &made.2));
    }
    assert_eq!(phase(&api, &made), "Available");
    // a manager that has not seen the deletion yet decides to bind it, and reads it as it is
    let decision = Decision::Bind { resource: made.2.as_str().into(), why: Why::Held };
    api.delete(&made);
    let plan = conductor_claims::lifecycle::claim(&ClaimScene {
        kind: &kind,
        claim: &api.objects[&db],
        decision: Some(&decision),
        resource: api.objects.get(&made),
        class: None,
        consumers: &[],
        connection: Connection::default(),
        expressions: &Paths,
        now: "2026-01-01T00:00:02Z",
    });
    assert!(plan.is_empty(), "{plan:?}");
    api.settle(&kind);
    assert_eq!(phase(&api, &db), "Bound", "to another");
    assert_sound(&api, true);
}

#[test]
fn what_was_never_ready_goes_with_its_claim_whatever_its_policy() {
    for policy in ["Delete", "Retain", "Recycle"] {
        for (mark, said) in [("test/never", "Provisioning"), ("test/lost", "Lost")] {
            let (kind, mut api) = (kind(), Api::default());
            let mut class = class("fast", policy);
            class["template"]["metadata"] = json!({"annotations": {mark: ""}});
            api.create(class).expect("created");
            api.create(claim("db", "25Gi", "fast")).expect("created");
            api.settle(&kind);
            let db = key("DatabaseClaim", "apps", "db");
            assert_eq!(api.objects[&db]["status"]["reason"], json!(said), "{policy}");
            assert_eq!(api.of_kind("Thing").count(), 1);
            api.delete(&db);
            api.settle(&kind);
            assert_eq!(api.objects.len(), 1, "only the class: {policy} {mark} {:?}", api.objects.keys());
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
fn what_a_class_does_not_offer_is_said_as_it_was_asked() {
    let (kind, mut api) = (kind(), Api::default());
    let mut class = class("fast", "Delete");
    class["offers"] = json!({"engine": "mysql", "capacity": {"storage": {"max": "20Gi"}}});
    api.create(class).expect("created");
    let mut wish = claim("db", "25Gi", "fast");
    wish["spec"]["engine"] = json!("postgres");
    api.create(wish).expect("created");
    api.settle(&kind);
    let said = &api.objects[&key("DatabaseClaim", "apps", "db")]["status"]["message"];
    let expected = "class fast cannot make it: it does not offer engine postgres, it makes at most 20Gi of storage; ";
    assert!(said.as_str().is_some_and(|said| said.starts_with(expected)), "{said}");
}

#[test]
fn a_template_that_cannot_be_rendered_makes_no_resource() {
    let (kind, mut api) = (kind(), Api::default());
    let mut class = class("fast", "Recycle");
    class["template"]["spec"] = json!({"size": "${resource.spec.capacity.storage}", "of": "${resource.metadata.uid}"});
    api.create(class).expect("created");
    let mut modest = claim("modest", "25Gi", "fast");
    modest["spec"]["resources"] = json!({});
    api.create(modest).expect("created");
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let status = &api.objects[&key("DatabaseClaim", "apps", "modest")]["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Pending"), &json!("TemplateFailed")));
    assert!(
        status["message"].as_str().is_some_and(|m| m.starts_with("class fast cannot make it: template.")),
        "{status}"
    );
    assert_eq!(phase(&api, &key("DatabaseClaim", "apps", "db")), "Bound");
    assert_eq!(api.of_kind("Database").count(), 1, "of the other");
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
fn what_was_made_goes_though_nothing_names_it_any_more() {
    for edit in [json!({"spec": {"template": null}}), json!({"spec": {"template": {"kind": "Other"}}})] {
        let (kind, mut api) = (kind(), Api::default());
        api.create(resource("r", "30Gi", "Delete", 1, true)).expect("created");
        api.settle(&kind);
        let (r, thing) = (key("Database", "", "r"), key("Thing", "conductor-system", "r"));
        assert!(api.objects.contains_key(&thing));
        // review refuses it where it is asked
        api.patch(&r, &edit, false);
        api.delete(&r);
        api.settle(&kind);
        assert!(api.objects.is_empty(), "{edit}: {:?}", api.objects.keys());
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
fn drift_is_corrected_and_a_taken_name_is_said() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(json!({"apiVersion": "p/v1", "kind": "Thing", "metadata": {"name": "r", "namespace": "conductor-system"}, "spec": {}})).expect("created");
    api.create(resource("r", "30Gi", "Delete", 1, true)).expect("created");
    api.create(resource("s", "30Gi", "Delete", 1, true)).expect("created");
    api.settle(&kind);
    assert_eq!(phase(&api, &key("Database", "", "r")), "Failed");
    assert_eq!(api.objects[&key("Database", "", "r")]["status"]["reason"], json!("NameTaken"));
    let thing = key("Thing", "conductor-system", "s");
    api.patch(&thing, &json!({"spec": {"size": "1Gi", "extra": true}}), false);
    api.settle(&kind);
    assert_eq!(
        (&api.objects[&thing]["spec"]["size"], &api.objects[&thing]["spec"]["extra"]),
        (&json!("30Gi"), &json!(true))
    );
    api.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db-database", "namespace": "apps"}}))
        .expect("created");
    api.create(claim("db", "25Gi", "fast")).expect("created");
    api.settle(&kind);
    let secret = &api.objects[&key("Secret", "apps", "db-database")];
    assert_eq!(secret["data"], Value::Null, "not overwritten");
    let conditions = api.objects[&key("DatabaseClaim", "apps", "db")]["status"]["conditions"].to_string();
    assert!(conditions.contains("NameTaken"), "{conditions}");
}

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
fn a_bound_claim_grows_as_its_class_lets_it() {
    let db = key("DatabaseClaim", "apps", "db");
    let grow = |api: &mut Api, size: &str| {
        api.patch(&db, &json!({"spec": {"resources": {"requests": {"storage": size}}}}), false);
        api.settle(&kind());
        assert_sound(api, true);
    };
    let said = |api: &Api| {
        let claim = &api.objects[&db];
        let resizing =
            claim["status"]["conditions"].as_array().expect("a list").iter().find(|c| c["type"] == "Resizing");
        (claim["status"]["capacity"]["storage"].clone(), resizing.map_or(Value::Null, |c| c["reason"].clone()))
    };
    // made by its class: of the claim's request, or of the resource's capacity
    for size in ["${claim.spec.resources.requests.storage}", "${resource.spec.capacity.storage}"] {
        let (kind, mut api) = (kind(), Api::default());
        let mut made = class("fast", "Delete");
        made["template"]["spec"]["size"] = json!(size);
        made["offers"] = json!({"capacity": {"storage": {"max": "30Gi"}}});
        api.create(made).expect("created");
        api.create(claim("db", "10Gi", "fast")).expect("created");
        api.settle(&kind);
        let uid = api.objects[&db]["status"]["resourceUid"].clone();
        grow(&mut api, "20Gi");
        assert_eq!(said(&api), (json!("20Gi"), json!("Resized")));
        assert_eq!(api.of_kind("Thing").next().expect("is there").1["spec"]["size"], "20Gi");
        grow(&mut api, "40Gi");
        assert_eq!(said(&api), (json!("20Gi"), json!("ResizeRefused")), "the class makes none so large");
        assert_eq!(api.objects[&db]["status"]["phase"], "Bound");
        // taken back
        grow(&mut api, "20Gi");
        assert_eq!(said(&api), (json!("20Gi"), json!("Resized")));
        assert_eq!(api.objects[&db]["status"]["reason"], Value::Null);
        let fixed = json!({"allowExpansion": false});
        api.patch(&key("DatabaseClass", "", "fast"), &fixed, false);
        grow(&mut api, "30Gi");
        assert_eq!(said(&api), (json!("20Gi"), json!("ResizeRefused")));
        assert_eq!(api.objects[&db]["status"]["resourceUid"], uid, "it is the same all along");
    }
    // one that nobody can make larger: within what it has, and no further
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Delete", 1, false)).expect("created");
    api.create(claim("db", "10Gi", "fast")).expect("created");
    api.settle(&kind);
    grow(&mut api, "30Gi");
    assert_eq!(said(&api), (json!("30Gi"), Value::Null));
    grow(&mut api, "31Gi");
    assert_eq!(said(&api), (json!("30Gi"), json!("ResizeRefused")));
    // one of several grows by what the others leave, and then with its resource
    let mut api = Api::default();
    api.create(class("fast", "Delete")).expect("created");
    api.create(resource("r", "30Gi", "Delete", 2, true)).expect("created");
    api.settle(&kind);
    api.create(claim("db", "10Gi", "fast")).expect("created");
    api.create(claim("other", "10Gi", "fast")).expect("created");
    api.settle(&kind);
    grow(&mut api, "20Gi");
    assert_eq!(said(&api), (json!("20Gi"), Value::Null));
    grow(&mut api, "25Gi");
    assert_eq!(said(&api), (json!("25Gi"), json!("Resized")));
}
