//! What classes make for claims: when, from what, how large, and what becomes of what nobody can use.

use conductor_claims::lifecycle::{ClaimScene, Connection, GRANTED, condition_of};
use conductor_claims::matching::{Decision, Why};
use conductor_claims::template::Paths;
use conductor_claims::types::ResourceType;
use serde_json::{Value, json};

use crate::toy::Api;
use crate::toy::objects::{assert_sound, claim, class, key, kind, phase, resource};

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
        growth_refused: None,
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

#[test]
fn who_asks_for_more_and_then_for_less_is_charged_for_what_grows() {
    let db = key("DatabaseClaim", "apps", "db");
    for shared in [1, 2] {
        let (kind, mut api) = (kind(), Api::default());
        api.create(class("fast", "Delete")).expect("created");
        api.create(resource("r", "10Gi", "Delete", shared, true)).expect("created");
        api.settle(&kind);
        api.create(claim("db", "10Gi", "fast")).expect("created");
        api.settle(&kind);
        let r = key("Database", "", api.objects[&db]["spec"]["resourceName"].as_str().expect("a name"));
        api.patch(&db, &json!({"spec": {"resources": {"requests": {"storage": "50Gi"}}}}), false);
        let plan = api.claim_plan(&kind, &db, &[]);
        for cut in 0..=plan.writes.len() {
            let mut api = api.clone();
            api.execute(&plan, cut, |api| {
                let charged = &api.objects[&db]["status"]["granted"]["storage"];
                let intended = &api.objects[&r]["spec"]["capacity"]["storage"];
                assert!(intended == "10Gi" || charged == intended, "{shared} {cut}: {charged} {intended}");
            });
            api.patch(&db, &json!({"spec": {"resources": {"requests": {"storage": "10Gi"}}}}), false);
            api.settle(&kind);
            let claim = &api.objects[&db];
            let (has, whole) =
                (&claim["status"]["capacity"]["storage"], &api.objects[&r]["status"]["capacity"]["storage"]);
            let charged = claim["status"]["granted"]["storage"].clone();
            assert!(has == "10Gi" || charged == *has, "{shared} {cut}: has {has} of {whole}, charged {charged}");
            assert_sound(&api, true);
        }
        api.settle(&kind);
        assert_eq!(api.objects[&db]["status"]["granted"]["storage"], "50Gi", "{shared}");
    }
}

#[test]
fn who_may_not_have_more_keeps_what_it_has_in_order() {
    let db = key("DatabaseClaim", "apps", "db");
    for shared in [1, 2] {
        let (kind, mut api) = (kind(), Api::default());
        api.create(class("fast", "Delete")).expect("created");
        api.create(resource("r", "10Gi", "Delete", shared, true)).expect("created");
        api.settle(&kind);
        api.create(claim("db", "10Gi", "fast")).expect("created");
        api.settle(&kind);
        let (r, thing) = (key("Database", "", "r"), key("Thing", "conductor-system", "r"));
        api.patch(&db, &json!({"spec": {"resources": {"requests": {"storage": "50Gi"}}}}), false);
        api.patch(&thing, &json!({"spec": {"rotate": 1}}), false);
        api.provide(&thing);
        let plan = api.claim_plan(&kind, &db, &[]);
        assert!(plan.writes.iter().any(|write| write.purpose == GRANTED), "{plan:?}");
        let plan = api.claim_plan_without(&kind, &db, &[], &[(GRANTED, "over the quota".to_owned())]);
        assert!(api.execute(&plan, usize::MAX, |_| {}), "{plan:?}");
        let status = &api.objects[&db]["status"];
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Bound"), &json!("ResizeRefused")));
        assert_eq!((&status["message"], &status["granted"]), (&json!("over the quota"), &Value::Null));
        let ready = condition_of(&api.objects[&db], "ConnectionReady").map(|(ready, reason, _)| (ready, reason));
        assert_eq!(ready, Some((true, "Written")));
        assert_eq!(api.objects[&r]["spec"]["capacity"]["storage"], "10Gi");
        assert!(api.locked_out(&kind).is_empty());
        let password = &api.objects[&key("Secret", "apps", "db-database")]["data"]["password"];
        assert_eq!(password, "cDE=", "the credentials that are rotated reach it");
        // and nothing is left to say
        let again = api.claim_plan_without(&kind, &db, &[], &[(GRANTED, "over the quota".to_owned())]);
        assert!(again.is_empty(), "{again:?}");
    }
}

#[test]
fn nobody_is_told_to_remove_what_may_be_somebody_s_data() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "30Gi", "Retain", 1, true)).expect("created");
    api.settle(&kind);
    let (r, thing) = (key("Database", "", "r"), key("Thing", "conductor-system", "r"));
    // as a resource of another type has it, under the same name
    let uid = api.objects[&r]["metadata"]["uid"].clone();
    let said = |api: &mut Api, owner: &Value, retained: Value| {
        let annotations =
            json!({"conductor.io/resource-ref": "b.example.com/v1 Bucket r", "conductor.io/retained": retained});
        let patch = json!({"metadata": {"labels": {"conductor.io/resource-uid": owner}, "annotations": annotations}});
        api.patch(&thing, &patch, false);
        api.patch(&r, &json!({"status": {"implementations": null}}), true);
        api.settle(&kind);
        assert_eq!(api.objects[&r]["status"]["reason"], "NameTaken");
        api.objects[&r]["status"]["message"].as_str().expect("a message").to_owned()
    };
    let mut other = resource("other", "30Gi", "Retain", 1, false);
    other["kind"] = json!("Bucket");
    api.create(other).expect("created");
    let other = api.objects[&key("Bucket", "", "other")]["metadata"]["uid"].clone();
    let taken = said(&mut api, &other, Value::Null);
    assert!(taken.contains("is the implementation of Bucket r") && taken.contains("another name"), "{taken}");
    let kept = said(&mut api, &json!("gone"), json!("true"));
    assert!(kept.contains("was kept with the data"), "{kept}");
    assert!(![taken, kept].iter().any(|said| said.contains("remove")));
    assert_ne!(uid, other);
}

#[test]
fn a_secret_is_adopted_where_whoever_may_write_it_says_so() {
    for (annotations, adopted) in [
        (json!({}), false),
        (json!({"conductor.io/adoptable": "true"}), true),
        (json!({"conductor.io/retained": "true"}), true),
    ] {
        let (kind, mut api) = (kind(), Api::default());
        let meta = json!({"name": "login", "namespace": "conductor-system", "annotations": annotations});
        api.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"password": "eA=="}}))
            .expect("created");
        let mut adopting = resource("r", "30Gi", "Delete", 1, false);
        adopting["spec"]["implementationRef"] = json!({"apiVersion": "v1", "kind": "Secret", "name": "login"});
        api.create(adopting).expect("created");
        api.settle(&kind);
        let secret = &api.objects[&key("Secret", "conductor-system", "login")];
        assert_eq!(secret["metadata"]["labels"]["conductor.io/resource-uid"].is_string(), adopted, "{secret}");
        let r = &api.objects[&key("Database", "", "r")]["status"];
        assert_eq!(r["reason"] == "NameTaken", !adopted, "{r}");
        if !adopted {
            // once it does not want it any more it is free, and what it named is as it was
            let mut api = api.clone();
            api.patch(&key("Database", "", "r"), &json!({"spec": {"implementationRef": null}}), false);
            api.settle(&kind);
            let r = &api.objects[&key("Database", "", "r")]["status"];
            assert_eq!(r["phase"], "Available", "{r}");
            let secret = &api.objects[&key("Secret", "conductor-system", "login")];
            assert!(secret["metadata"]["labels"]["conductor.io/resource-uid"].is_null(), "{secret}");
        }
        // and it outlives who would have had it
        api.delete(&key("Database", "", "r"));
        api.settle(&kind);
        assert_eq!(api.objects.contains_key(&key("Secret", "conductor-system", "login")), !adopted);
    }
}
