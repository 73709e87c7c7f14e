//! Volumes that grow with their claims, or do not, and what is charged for it.

use super::*;

#[test]
fn a_bound_claim_whose_volume_cannot_grow_stays_bound() {
    let mut api = Api::default();
    api.create(pv("v", "10Gi", "", &["ReadWriteOnce"])).expect("created");
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    let plan = volumes::volume_claim_held(&api.objects[&claim_key("c")], "NotAllowed", "no".into(), "now");
    api.execute(&plan, usize::MAX, |_| {});
    assert_eq!(phase(&api, &claim_key("c")), "Bound");
}

fn ask_for(api: &mut Api, size: &str) {
    api.patch(&claim_key("c"), &json!({"spec": {"resources": {"requests": {"storage": size}}}}), false);
    settle(api);
}

fn resizing(api: &Api) -> Option<(bool, &str)> {
    let told = conductor_claims::lifecycle::condition_of(&api.objects[&claim_key("c")], "Resizing");
    told.map(|(holds, reason, _)| (holds, reason))
}

fn charged(api: &Api) -> &Value {
    &api.objects[&claim_key("c")]["status"]["allocatedResources"]["storage"]
}

#[test]
fn who_asks_for_less_again_is_charged_for_less_when_nothing_grows_any_more() {
    let (mut api, _, thing) = made(json!({}));
    let no_room =
        json!({"metadata": {"annotations": {"test/report": json!({"capacity": {"storage": "3Gi"}}).to_string()}}});
    api.patch(&thing, &no_room, false);
    ask_for(&mut api, "100Gi");
    assert_eq!((charged(&api), &api.objects[&thing]["spec"]["size"]), (&json!("100Gi"), &json!("100Gi")));
    ask_for(&mut api, "5Gi");
    assert_eq!(api.objects[&thing]["spec"]["size"], "5Gi");
    assert_eq!(charged(&api), "100Gi", "nobody knows whether it is still made larger");
    // there is still no room, and its provider is not at 100Gi any more
    api.patch(&thing, &json!({"metadata": {"generation": 3}}), false);
    api.patch(&thing, &json!({"status": {"observedGeneration": 2}}), true);
    settle(&mut api);
    assert_eq!(charged(&api), "100Gi");
    // nor while it says that it waits to be made larger
    let mut seen = api.clone();
    let waiting = json!([{"type": "Resized", "status": "False", "reason": "Waiting", "message": "in use"}]);
    seen.patch(&thing, &json!({"status": {"observedGeneration": 3, "conditions": waiting}}), true);
    let plan = plan(&seen, &claim_key("c"), &seen.clone());
    assert!(plan.writes.iter().all(|w| w.body["status"]["allocatedResources"].is_null()), "{plan:?}");
    let mut seen = api.clone();
    seen.patch(&thing, &json!({"status": {"observedGeneration": 3}}), true);
    settle(&mut seen);
    assert_eq!((charged(&seen), resizing(&seen)), (&json!("5Gi"), Some((true, "Growing"))));
    // or it has what is asked for
    api.patch(&thing, &json!({"metadata": {"generation": null, "annotations": {"test/report": null}}}), false);
    api.patch(&thing, &json!({"status": {"observedGeneration": null}}), true);
    settle(&mut api);
    assert_eq!((charged(&api), resizing(&api)), (&json!("5Gi"), Some((false, "Resized"))));
    assert_eq!(api.objects[&claim_key("c")]["status"]["capacity"]["storage"], "5Gi");
    // or it was made larger before anybody could stop it
    ask_for(&mut api, "7Gi");
    api.patch(&claim_key("c"), &json!({"spec": {"resources": {"requests": {"storage": "6Gi"}}}}), false);
    settle(&mut api);
    assert_eq!(charged(&api), "7Gi");
}

#[test]
fn who_cannot_have_more_is_not_charged_for_it_and_is_told() {
    let (mut api, _, _) = made(json!({"sizes": "one"}));
    ask_for(&mut api, "5Gi");
    assert_eq!((charged(&api), resizing(&api)), (&Value::Null, Some((false, "NotResizable"))));
}

#[test]
fn what_kept_a_volume_from_growing_is_not_said_any_longer_than_it_does() {
    let (mut api, _, thing) = made(json!({}));
    let no_room =
        json!({"metadata": {"annotations": {"test/report": json!({"capacity": {"storage": "3Gi"}}).to_string()}}});
    api.patch(&thing, &no_room, false);
    api.patch(&claim_key("c"), &json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}), false);
    for reason in ["NotAllowed", "Refused", "KindMissing"] {
        let plan = volumes::volume_claim_held(&api.objects[&claim_key("c")], reason, "no".into(), "now");
        api.execute(&plan, usize::MAX, |_| {});
        assert_eq!(resizing(&api), Some((true, reason)));
        settle(&mut api);
        assert_eq!(resizing(&api), Some((true, "Growing")));
    }
}

#[test]
fn a_lost_claim_has_what_it_had_again_though_it_asked_for_more() {
    for (restored, after) in [("10Gi", "Bound"), ("5Gi", "Lost"), ("20Gi", "Bound")] {
        let mut api = Api::default();
        api.create(pv("v", "10Gi", "", &["ReadWriteOnce"])).expect("created");
        api.create(pvc("c", "10Gi", Some(""))).expect("created");
        settle(&mut api);
        ask_for(&mut api, "20Gi");
        api.objects.remove(&volume_key("v"));
        settle(&mut api);
        assert_eq!(phase(&api, &claim_key("c")), "Lost");
        api.create(pv("v", restored, "", &["ReadWriteOnce"])).expect("created");
        settle(&mut api);
        assert_eq!(phase(&api, &claim_key("c")), after, "{restored}");
    }
}

#[test]
fn who_is_refused_more_is_not_charged_for_it_when_less_is_asked_for() {
    let (mut api, v, _) = made(json!({}));
    let refused = |api: &mut Api| {
        let (claim, volume) = (&api.objects[&claim_key("c")], &api.objects[&v]);
        let template = json!({"spec": {"template": {"spec": {"size": "${claim.spec.resources.requests.storage}"}}}});
        let class = &api.objects[&key("StorageClass", "", "ours")];
        let implementation = api.objects.get(&key("Thing", "conductor-system", &v.2));
        let making = Making { class, template: &template, implementation, expressions: &Paths };
        let plan = volumes::growth_refused(claim, volume, &making, "Refused", "no".into(), "now");
        api.execute(&plan, usize::MAX, |_| {});
    };
    let ask = |api: &mut Api, size: &str| {
        api.patch(&claim_key("c"), &json!({"spec": {"resources": {"requests": {"storage": size}}}}), false);
        let charge = plan(api, &claim_key("c"), &api.clone());
        assert_eq!(charge.writes.iter().position(|w| w.purpose == volumes::GROW), Some(usize::from(size == "100Gi")));
        api.execute(&charge, usize::from(size == "100Gi"), |_| {});
    };
    ask(&mut api, "100Gi");
    refused(&mut api);
    assert_eq!((charged(&api), resizing(&api)), (&json!("100Gi"), Some((true, "Refused"))));
    ask(&mut api, "12Gi");
    refused(&mut api);
    assert_eq!((charged(&api), resizing(&api)), (&json!("12Gi"), Some((true, "Refused"))));
    // what was asked for and may still be made larger is charged for
    let thing = key("Thing", "conductor-system", &v.2);
    api.patch(&thing, &json!({"spec": {"size": "100Gi"}}), false);
    api.patch(&claim_key("c"), &json!({"status": {"allocatedResources": {"storage": "100Gi"}}}), true);
    refused(&mut api);
    assert_eq!(charged(&api), "100Gi");
}
