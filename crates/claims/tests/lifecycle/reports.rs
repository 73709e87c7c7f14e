//! What implementations report is what resources and claims show: as it is now, and without what cannot be read, which is said.

use conductor_claims::lifecycle::condition_of;
use serde_json::{Value, json};

use crate::toy::Api;
use crate::toy::objects::{assert_sound, claim, class, key, kind, phase, resource};

#[test]
fn what_is_reported_is_followed_and_what_cannot_be_read_is_said() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(class("fast", "Delete")).expect("created");
    let mut asked = claim("db", "10Gi", "fast");
    asked["spec"]["engine"] = json!("mysql");
    api.create(asked).expect("created");
    let db = key("DatabaseClaim", "apps", "db");
    api.settle(&kind);
    assert_eq!(phase(&api, &db), "Bound");
    let r = key("Database", "", api.objects[&db]["spec"]["resourceName"].as_str().expect("a name"));
    let thing = key("Thing", "conductor-system", &r.2);
    let report = |api: &mut Api, report: Value| {
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/report": report.to_string()}}}), false);
        api.settle(&kind);
        let shown = |key| {
            let status = &api.objects[key]["status"];
            (status["attributes"].clone(), status["capacity"].clone(), status["reason"].clone())
        };
        assert_eq!((phase(api, &db), phase(api, &r)), ("Bound", "Bound"));
        (shown(&r), shown(&db))
    };
    let (spec, nothing) = (json!({"storage": "10Gi"}), Value::Null);
    let good = json!({"capacity": {"storage": "12Gi"}, "attributes": {"engine": "mysql", "more": 1}});
    let (on_resource, on_claim) = report(&mut api, good.clone());
    assert_eq!(on_resource, (json!({"engine": "mysql", "more": 1}), json!({"storage": "12Gi"}), nothing.clone()));
    assert_eq!((&on_claim.1, &on_claim.2), (&json!({"storage": "12Gi"}), &nothing));
    // a part of it goes, and all of it
    let (on_resource, _) =
        report(&mut api, json!({"capacity": {"storage": "12Gi"}, "attributes": {"engine": "mysql"}}));
    assert_eq!(on_resource.0, json!({"engine": "mysql"}));
    let (on_resource, on_claim) = report(&mut api, json!({"capacity": null, "attributes": null}));
    assert_eq!(on_resource, (nothing.clone(), nothing.clone(), nothing.clone()));
    assert_eq!(on_claim.1, spec);
    // what cannot be read is said, and keeps nothing else from being told; what was read last still holds
    report(&mut api, good.clone());
    for wrong in [
        json!({"capacity": {"storage": "banana"}, "attributes": {"engine": "mysql"}}),
        json!({"capacity": {"storage": "-1Gi"}, "attributes": {"engine": "mysql"}}),
        json!({"capacity": {"storage": "12Gi"}, "attributes": {"engine": 7}}),
    ] {
        let (on_resource, on_claim) = report(&mut api, wrong.clone());
        assert_eq!((&on_resource.2, &on_claim.2), (&json!("BadReport"), &json!("BadReport")), "{wrong}");
        assert_eq!(on_resource.1, json!({"storage": "12Gi"}), "{wrong}");
        assert_eq!(on_resource.0, json!({"engine": "mysql"}), "{wrong}");
        assert_eq!(condition_of(&api.objects[&r], "Ready").map(|(ready, _, _)| ready), Some(true));
    }
    // however much of it there is
    let many: serde_json::Map<String, Value> = (0..200).map(|i| (format!("c{i}"), json!("b".repeat(400)))).collect();
    for wrong in [json!({"attributes": {"engine": ["\u{e9}".repeat(40_000)]}}), json!({"capacity": many})] {
        let (on_resource, _) = report(&mut api, wrong);
        assert_eq!(on_resource.2, "BadReport");
        let said = api.objects[&r]["status"]["message"].as_str().unwrap_or_default();
        assert!(said.chars().count() < 2000, "{said}");
    }
    let (on_resource, on_claim) = report(&mut api, good.clone());
    assert_eq!((on_resource.2, on_claim.2), (nothing.clone(), nothing.clone()));
    // it turns out to be something else, or smaller, under its claim: said, and no more
    for other in [
        json!({"capacity": {"storage": "12Gi"}, "attributes": {"engine": "postgres"}}),
        json!({"capacity": {"storage": "5Gi"}, "attributes": {"engine": "mysql"}}),
    ] {
        let (_, on_claim) = report(&mut api, other.clone());
        assert_eq!(on_claim.2, "Mismatch", "{other}");
        assert_eq!(condition_of(&api.objects[&db], "Matches").map(|(holds, _, _)| holds), Some(false));
    }
    let (_, on_claim) = report(&mut api, good);
    assert_eq!(on_claim.2, nothing);
    assert_sound(&api, true);
}

#[test]
fn what_several_share_is_not_promised_twice_because_a_report_cannot_be_read() {
    let (kind, mut api) = (kind(), Api::default());
    api.create(resource("r", "50Gi", "Retain", 5, true)).expect("created");
    api.settle(&kind);
    let thing = key("Thing", "conductor-system", "r");
    for (reported, name, after) in [("20Gi", "a", "Bound"), ("banana", "b", "Pending")] {
        let report = json!({"capacity": {"storage": reported}}).to_string();
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/report": report}}}), false);
        api.settle(&kind);
        api.create(claim(name, "15Gi", "fast")).expect("created");
        api.settle(&kind);
        assert_eq!(phase(&api, &key("DatabaseClaim", "apps", name)), after, "{reported}");
    }
}
