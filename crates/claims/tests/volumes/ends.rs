//! What becomes of volumes whose claims went, that were restored, or that somebody took from their claims.

use super::*;

/// A volume that is made from a copy of itself may hold somebody's data, whatever became of its claim.
#[test]
fn a_restored_volume_is_never_taken_for_new() {
    let (mut api, v, thing) = made(json!({}));
    let mut copy = api.objects[&v].clone();
    copy["status"] = Value::Null;
    copy["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    for field in ["uid", "resourceVersion"] {
        copy["metadata"].as_object_mut().map(|meta| meta.remove(field));
    }
    // its claim has it again, and what is behind it is its own
    api.objects.remove(&v);
    settle(&mut api);
    assert_eq!(phase(&api, &claim_key("c")), "Lost");
    api.create(copy.clone()).expect("created");
    settle(&mut api);
    assert_eq!(phase(&api, &claim_key("c")), "Bound");
    let owner = &api.objects[&thing]["metadata"]["labels"]["conductor.io/resource-uid"];
    assert_eq!(*owner, api.objects[&v]["metadata"]["uid"]);
    // its claim is gone: nothing is removed, and nobody else gets it
    api.objects.remove(&v);
    api.objects.remove(&claim_key("c"));
    api.create(copy.clone()).expect("created");
    settle(&mut api);
    assert_eq!(phase(&api, &v), "Released");
    assert!(api.objects[&thing]["metadata"]["deletionTimestamp"].is_null());
    // nor where what is behind it is restored later
    let kept = api.objects.remove(&thing).expect("there");
    api.objects.remove(&v);
    api.create(copy).expect("created");
    settle(&mut api);
    assert_eq!(phase(&api, &v), "Released");
    api.objects.insert(thing.clone(), kept);
    settle(&mut api);
    assert!(api.objects[&thing]["metadata"]["deletionTimestamp"].is_null());
    // likewise one with nothing behind it
    let reference = json!({"namespace": "ns", "name": "gone", "uid": "gone"});
    let mut plain = with(pv("plain", "10Gi", "", &["ReadWriteOnce"]), "/spec/claimRef", reference);
    plain["metadata"]["annotations"] = json!({volumes::BOUND_BY_CONTROLLER: "yes"});
    api.create(plain).expect("created");
    settle(&mut api);
    assert_eq!(phase(&api, &volume_key("plain")), "Released");
}

/// A volume `v` that is recycled, with something behind it that scrubs, and a claim `c` that has it.
fn recycled() -> (Api, Key, Key) {
    let mut api = Api::default();
    let mut volume = pv("v", "10Gi", "", &["ReadWriteOnce"]);
    volume["metadata"]["annotations"] = json!({volumes::RECLAIM: "Recycle"});
    api.create(volume).expect("created");
    let thing = key("Thing", "conductor-system", "v");
    api.create(json!({"apiVersion": "p/v1", "kind": "Thing", "metadata": {"name": "v", "namespace": "conductor-system"}, "spec": {}})).expect("created");
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    assert_eq!(phase(&api, &claim_key("c")), "Bound");
    (api, volume_key("v"), thing)
}

/// What is left undone by a provider: what it reports stays as it is.
fn settle_without_provider(api: &mut Api) {
    for _ in 0..20 {
        for at in api.objects.keys().cloned().collect::<Vec<_>>() {
            if at.0.starts_with("PersistentVolume") {
                let plan = plan(api, &at, &api.clone());
                api.execute(&plan, usize::MAX, |_| {});
            }
        }
    }
}

#[test]
fn every_claim_s_data_is_scrubbed_though_somebody_freed_the_volume_meanwhile() {
    let (mut api, v, thing) = recycled();
    let freed = json!({"spec": {"claimRef": null}});
    for failed in [false, true] {
        let before = api.objects[&thing]["spec"]["scrub"].as_i64().unwrap_or(0);
        api.delete(&claim_key("c"));
        settle_without_provider(&mut api);
        assert_eq!(api.objects[&thing]["spec"]["scrub"], before + 1, "is asked for");
        if failed {
            api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": "False"}}}), false);
            api.provide(&thing);
            settle_without_provider(&mut api);
            assert_eq!(api.objects[&v]["status"]["reason"], "ScrubFailed");
        }
        api.patch(&v, &freed, false);
        api.create(pvc("c", "10Gi", Some(""))).expect("created");
        settle_without_provider(&mut api);
        assert_eq!((phase(&api, &v), phase(&api, &claim_key("c"))), ("Released", "Pending"), "it may yet be wiped");
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": null}}}), false);
        settle(&mut api);
        assert_eq!(phase(&api, &claim_key("c")), "Bound");
        assert!(api.objects[&v]["metadata"]["annotations"][volumes::SCRUB].is_null());
    }
    // one that was left over from before counts for nothing
    api.patch(&v, &json!({"metadata": {"annotations": {volumes::SCRUB: "2"}}}), false);
    api.delete(&claim_key("c"));
    settle(&mut api);
    assert_eq!((phase(&api, &v), &api.objects[&thing]["status"]["scrubbed"]), ("Available", &json!(3)));
}

#[test]
fn what_cannot_be_scrubbed_says_why() {
    let (mut api, v, thing) = recycled();
    api.delete(&claim_key("c"));
    for _ in 0..4 {
        let plan = plan(&api, &v, &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
        // its kind has no such field
        api.patch(&thing, &json!({"spec": {"scrub": null}}), false);
    }
    let status = &api.objects[&v]["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Released"), &json!("CannotScrub")), "{status}");
    assert!(status["message"].as_str().is_some_and(|m| m.contains("a Thing has no spec.scrub")), "{status}");
}

/// Nothing is scrubbed or removed that a claim names which was bound, whoever the volume refers to.
#[test]
fn what_another_claim_names_is_not_reclaimed() {
    for policy in ["Delete", "Recycle"] {
        let (mut api, v, thing) = made(json!({}));
        let patch = match policy {
            "Recycle" => {
                json!({"metadata": {"annotations": {volumes::RECLAIM: policy}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}})
            }
            _ => json!({}),
        };
        api.patch(&v, &patch, false);
        // an older copy, which has the uid that its claim had before it was restored, too
        api.patch(&v, &json!({"spec": {"claimRef": {"uid": "before"}}}), false);
        settle(&mut api);
        assert_eq!((phase(&api, &claim_key("c")), phase(&api, &v)), ("Lost", "Released"), "{policy}");
        let status = &api.objects[&v]["status"];
        assert!(status["message"].as_str().is_some_and(|m| m.contains("claim apps/c names it")), "{status}");
        let untouched = |api: &Api| {
            let thing = &api.objects[&thing];
            thing["metadata"]["deletionTimestamp"].is_null() && thing["spec"]["scrub"].is_null()
        };
        assert!(untouched(&api), "{policy}");
        // nor when the volume is to go
        let mut going = api.clone();
        going.delete(&v);
        settle(&mut going);
        assert!(untouched(&going) && going.objects.contains_key(&v), "{policy}");
        going.delete(&claim_key("c"));
        settle(&mut going);
        assert!(!going.objects.contains_key(&v) && !going.objects.contains_key(&thing), "{policy}");
        // it is given back as the message says, or by uid
        for reference in [
            json!({"namespace": "apps", "name": "c", "uid": null}),
            json!({"uid": api.objects[&claim_key("c")]["metadata"]["uid"]}),
        ] {
            let mut api = api.clone();
            api.patch(&v, &json!({"spec": {"claimRef": reference}}), false);
            settle(&mut api);
            assert_eq!((phase(&api, &claim_key("c")), phase(&api, &v)), ("Bound", "Bound"), "{policy} {reference}");
            assert!(untouched(&api), "{policy}");
        }
        // or goes when the claim does
        api.delete(&claim_key("c"));
        settle(&mut api);
        assert_eq!(phase(&api, &v), if policy == "Delete" { "gone" } else { "Available" });
    }
}

#[test]
fn a_volume_that_is_to_go_does_not_go_under_its_claim_though_the_reference_is_taken_away() {
    let (mut api, v, thing) = made(json!({}));
    api.delete(&v);
    settle(&mut api);
    assert_eq!(api.objects[&v]["status"]["reason"], "InUse");
    for first in [&v, &claim_key("c")] {
        api.patch(&v, &json!({"spec": {"claimRef": null}}), false);
        let plan = plan(&api, first, &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
        settle(&mut api);
        assert!(api.objects[&thing]["metadata"]["deletionTimestamp"].is_null());
        assert_eq!((phase(&api, &claim_key("c")), phase(&api, &v)), ("Bound", "Bound"));
        assert_eq!(api.objects[&v]["spec"]["claimRef"]["uid"], api.objects[&claim_key("c")]["metadata"]["uid"]);
    }
    // one that nobody has been given yet goes, and its claim gets another
    api.delete(&claim_key("c"));
    settle(&mut api);
    assert_eq!(api.objects.len(), 1, "{:?}", api.objects.keys());
}

/// The phase of a volume is written last, or is lost with a copy: it is its claim's from when it refers to it.
#[test]
fn what_refers_to_a_claim_is_its_own_whatever_its_phase() {
    for said in ["", "Pending", "Available", "Released", "Failed"] {
        let start = |named: bool| {
            let mut api = Api::default();
            api.create(pv("v", "10Gi", "", &["ReadWriteOnce"])).expect("created");
            api.create(pvc("c", "10Gi", Some(""))).expect("created");
            let claim = claim_key("c");
            let reference = json!({"namespace": "apps", "name": "c", "uid": api.objects[&claim]["metadata"]["uid"]});
            let by = json!({"annotations": {volumes::BOUND_BY_CONTROLLER: "yes"}});
            api.patch(&volume_key("v"), &json!({"metadata": by, "spec": {"claimRef": reference}}), false);
            if !said.is_empty() {
                api.patch(&volume_key("v"), &json!({"status": {"phase": said}}), true);
            }
            if named {
                api.patch(&claim, &json!({"spec": {"volumeName": "v"}}), false);
            }
            api
        };
        let mut api = start(true);
        for _ in 0..2 {
            let plan = plan(&api, &volume_key("v"), &api.clone());
            api.execute(&plan, usize::MAX, |_| {});
        }
        assert_eq!(phase(&api, &volume_key("v")), "Bound", "{said}");
        for named in [false, true] {
            let mut api = start(named);
            settle(&mut api);
            assert_eq!((phase(&api, &claim_key("c")), phase(&api, &volume_key("v"))), ("Bound", "Bound"), "{said}");
            // nobody else gets it, though its claim is on its way out and then gone
            let mut api = start(named);
            api.patch(&claim_key("c"), &json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}), false);
            api.delete(&claim_key("c"));
            api.create(pvc("other", "10Gi", Some(""))).expect("created");
            settle(&mut api);
            assert_eq!(phase(&api, &claim_key("other")), "Pending", "{said}");
            api.objects.remove(&claim_key("c"));
            settle(&mut api);
            assert_eq!(
                (phase(&api, &claim_key("other")), phase(&api, &volume_key("v"))),
                ("Pending", "Released"),
                "{said}"
            );
        }
        // a claim that names another never had it, unless it says that somebody did
        let mut api = start(false);
        api.patch(&claim_key("c"), &json!({"spec": {"volumeName": "w"}}), false);
        settle(&mut api);
        let freed = !["Released", "Failed"].contains(&said);
        assert_eq!(api.objects[&volume_key("v")]["spec"]["claimRef"].is_null(), freed, "{said}");
        assert_eq!(phase(&api, &volume_key("v")), if freed { "Available" } else { "Released" });
    }
}

/// A claim's annotations are anyone's to write: alone they keep no volume from its end.
#[test]
fn who_only_says_that_it_was_bound_holds_no_volume() {
    let says = |name: &str, size: &str, volume: &Key| {
        let claim = with(pvc(name, size, Some("")), "/metadata/annotations", json!({volumes::BIND_COMPLETED: "yes"}));
        with(claim, "/spec/volumeName", json!(volume.2))
    };
    // another, and one of the same name that is charged for less
    for (name, size) in [("thief", "10Gi"), ("c", "1")] {
        let (mut api, v, thing) = made(json!({}));
        if name == "thief" {
            api.create(says(name, size, &v)).expect("created");
            settle(&mut api);
            assert_eq!(phase(&api, &claim_key(name)), "Lost");
        }
        api.objects.remove(&claim_key("c"));
        if name == "c" {
            api.create(says(name, size, &v)).expect("created");
        }
        settle(&mut api);
        assert_eq!((phase(&api, &v), api.objects.get(&thing)), ("gone", None), "{name}");
    }
}

#[test]
fn what_is_torn_from_a_claim_that_is_to_go_is_scrubbed_for_the_next() {
    let (mut api, v, thing) = recycled();
    api.patch(&claim_key("c"), &json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}), false);
    api.delete(&claim_key("c"));
    api.patch(&v, &json!({"spec": {"claimRef": null}}), false);
    api.create(pvc("next", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    assert_eq!((phase(&api, &v), phase(&api, &claim_key("next"))), ("Bound", "Pending"));
    api.objects.remove(&claim_key("c"));
    settle(&mut api);
    assert_eq!(phase(&api, &claim_key("next")), "Bound");
    assert_eq!(api.objects[&thing]["status"]["scrubbed"], 1);
}

/// What is behind a volume is made anew from a copy that says it was to be scrubbed: that was another, and long ago.
#[test]
fn a_scrub_is_not_asked_of_a_copy() {
    let (mut api, v, thing) = recycled();
    api.delete(&claim_key("c"));
    settle(&mut api);
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    assert_eq!((phase(&api, &claim_key("c")), &api.objects[&thing]["spec"]["scrub"]), ("Bound", &json!(1)));
    for at in [&thing, &v] {
        let object = api.objects.get_mut(at).expect("there");
        object["status"] = json!({});
        object["metadata"]["uid"] = json!(format!("{} anew", at.0));
    }
    settle_without_provider(&mut api);
    assert_eq!((phase(&api, &v), phase(&api, &claim_key("c"))), ("Bound", "Bound"));
    // the next is its own
    api.delete(&claim_key("c"));
    settle_without_provider(&mut api);
    assert_eq!(api.objects[&thing]["spec"]["scrub"], 2);
}

/// What is restored in the midst of a scrub has its data again and was asked for nothing: it is asked itself, whatever its copy says.
#[test]
fn what_is_restored_while_it_is_scrubbed_is_scrubbed() {
    for answered in [false, true] {
        let (mut api, v, thing) = recycled();
        api.delete(&claim_key("c"));
        settle_without_provider(&mut api);
        assert_eq!(api.objects[&thing]["spec"]["scrub"], 1);
        if answered {
            api.provide(&thing);
        }
        api.objects.get_mut(&thing).expect("there")["metadata"]["uid"] = json!("anew");
        settle_without_provider(&mut api);
        let number = if answered { 2 } else { 1 };
        let asked = &api.objects[&thing]["metadata"]["annotations"]["conductor.io/scrub-asked"];
        assert_eq!((phase(&api, &v), asked), ("Released", &json!(format!("{number} anew"))));
        settle(&mut api);
        assert_eq!((phase(&api, &v), &api.objects[&thing]["status"]["scrubbed"]), ("Available", &json!(number)));
    }
}

/// A claim whose only proof is its own word keeps a volume as it is until a scrub of it is asked for, and does not undo that.
#[test]
fn who_only_says_that_it_was_bound_ends_no_scrub() {
    let says = |size: &str| {
        let claim = with(pvc("c", size, Some("")), "/metadata/annotations", json!({volumes::BIND_COMPLETED: "yes"}));
        with(claim, "/spec/volumeName", json!("v"))
    };
    let released = |looks: usize| {
        let (mut api, v, thing) = recycled();
        api.patch(&v, &json!({"metadata": {"finalizers": ["conductor.io/resource"]}}), false);
        api.delete(&claim_key("c"));
        for _ in 0..looks {
            let plan = plan(&api, &v, &api.clone());
            api.execute(&plan, usize::MAX, |_| {});
        }
        (api, v, thing)
    };
    // looks at the volume from its release: it says so, intends a scrub, asks for it
    for (looks, deleted, becomes, scrub) in [
        (0, false, "Released", None),
        (1, false, "Released", None),
        (1, true, "Released", None),
        (2, false, "Released", None),
        (2, true, "Released", None),
        (3, false, "Bound", Some(1)),
        (3, true, "gone", Some(1)),
    ] {
        let (mut api, v, thing) = released(looks);
        api.create(says("1")).expect("created");
        if deleted {
            api.delete(&v);
        }
        settle(&mut api);
        let asked = api.objects[&thing]["spec"]["scrub"].as_i64();
        assert_eq!((phase(&api, &v), asked), (becomes, scrub), "after {looks} looks, deleted: {deleted}");
    }
    // nor where somebody has edited the number of the scrub away
    let (mut api, v, _) = released(3);
    api.patch(&v, &json!({"metadata": {"annotations": {volumes::SCRUB: null}}}), false);
    api.create(says("1")).expect("created");
    // it is asked for once more while the first is not done
    settle_without_provider(&mut api);
    settle(&mut api);
    assert_eq!(phase(&api, &v), "Bound");
    // where the question was dropped, nothing is overwritten: the volume is kept for the claim, and that is said
    let (mut api, v, thing) = released(3);
    api.patch(&thing, &json!({"spec": {"scrub": null}}), false);
    api.create(says("1")).expect("created");
    settle(&mut api);
    assert_eq!((phase(&api, &v), &api.objects[&v]["status"]["reason"]), ("Released", &json!("InUse")));
    api.delete(&v);
    settle(&mut api);
    assert_eq!(phase(&api, &v), "Released");
}

/// Whoever applies an older number of a scrub again asks for nothing by it.
#[test]
fn a_scrub_whose_number_is_set_back_is_none() {
    let set_back = || {
        let (mut api, v, thing) = recycled();
        let scrubbed = json!({"scrubbed": 2, "conditions": [{"type": "Scrubbed", "status": "True"}]});
        api.patch(&thing, &json!({"spec": {"scrub": 1}}), false);
        api.patch(&thing, &json!({"status": scrubbed}), true);
        api.delete(&claim_key("c"));
        (api, v, thing)
    };
    let (mut api, v, _) = set_back();
    api.patch(&v, &json!({"spec": {"claimRef": null}}), false);
    settle_without_provider(&mut api);
    assert_eq!(phase(&api, &v), "Available", "it waits for nothing");
    // a claim that was deleted and made anew from its copy while no manager looked
    let (mut api, _, thing) = set_back();
    let copy = with(pvc("c", "10Gi", Some("")), "/metadata/annotations", json!({volumes::BIND_COMPLETED: "yes"}));
    api.create(with(copy, "/spec/volumeName", json!("v"))).expect("created");
    settle_without_provider(&mut api);
    assert_eq!(api.objects[&thing]["spec"]["scrub"], 1, "what it has is not overwritten");
}

/// Who answered once that it could not be scrubbed may never try again by itself: what to do then is said, and is enough.
#[test]
fn a_scrub_that_failed_is_asked_for_again_as_the_volume_says() {
    for freed in [false, true] {
        let (mut api, v, thing) = recycled();
        api.delete(&claim_key("c"));
        settle_without_provider(&mut api);
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": "False"}}}), false);
        api.provide(&thing);
        settle_without_provider(&mut api);
        if freed {
            api.patch(&v, &json!({"spec": {"claimRef": null}}), false);
            settle_without_provider(&mut api);
        }
        let status = &api.objects[&v]["status"];
        assert!(
            status["message"].as_str().is_some_and(|said| said.contains("set spec.scrub of Thing v to 2")),
            "freed: {freed}: {status}"
        );
        api.patch(&thing, &json!({"metadata": {"annotations": {"test/scrubbed": null}}, "spec": {"scrub": 2}}), false);
        settle(&mut api);
        assert_eq!(phase(&api, &v), "Available", "freed: {freed}");
    }
}

/// As on Kubernetes: what an administrator reserved stays reserved by name for a claim that is bound elsewhere.
#[test]
fn a_reservation_outlives_the_bind_that_was_begun_by_it() {
    for said in ["", "Pending", "Available"] {
        let mut api = Api::default();
        api.create(pvc("c", "10Gi", Some(""))).expect("created");
        let uid = api.objects[&claim_key("c")]["metadata"]["uid"].clone();
        let reference = json!({"namespace": "apps", "name": "c", "uid": uid, "resourceVersion": "7"});
        api.create(with(pv("v", "10Gi", "", &["ReadWriteOnce"]), "/spec/claimRef", reference)).expect("created");
        api.patch(&volume_key("v"), &json!({"status": {"phase": said}}), true);
        api.create(pv("w", "10Gi", "", &["ReadWriteOnce"])).expect("created");
        api.patch(&claim_key("c"), &json!({"spec": {"volumeName": "w"}}), false);
        settle(&mut api);
        assert_eq!(
            api.objects[&volume_key("v")]["spec"]["claimRef"],
            json!({"namespace": "apps", "name": "c"}),
            "{said}"
        );
        let phases = [claim_key("c"), volume_key("v"), volume_key("w")].map(|at| phase(&api, &at).to_owned());
        assert_eq!(phases, ["Bound", "Available", "Bound"], "{said}");
        // the next claim of that name has it
        api.delete(&claim_key("c"));
        api.create(pvc("c", "10Gi", Some(""))).expect("created");
        settle(&mut api);
        assert_eq!(api.objects[&claim_key("c")]["spec"]["volumeName"], "v", "{said}");
    }
}

/// As on Kubernetes: what another provisioner made for a claim that has another volume by now is Released, for that provisioner to remove;
/// nobody else gets it.
#[test]
fn what_a_provisioner_made_in_vain_is_released() {
    for (by, policy, becomes) in [
        ("csi.example", "Delete", "Released"),
        ("csi.example", "Retain", "Available"),
        (volumes::PROVISIONER, "Delete", "Available"),
    ] {
        for said in ["", "Pending", "Available"] {
            let mut api = Api::default();
            api.create(pvc("c", "10Gi", Some(""))).expect("created");
            let uid = api.objects[&claim_key("c")]["metadata"]["uid"].clone();
            let reference = json!({"namespace": "apps", "name": "c", "uid": uid});
            let made = with(pv("v", "10Gi", "", &["ReadWriteOnce"]), "/spec/claimRef", reference.clone());
            let made = with(made, "/metadata/annotations", json!({volumes::PROVISIONED_BY: by}));
            api.create(with(made, "/spec/persistentVolumeReclaimPolicy", json!(policy))).expect("created");
            api.patch(&volume_key("v"), &json!({"status": {"phase": said}}), true);
            api.create(pv("w", "10Gi", "", &["ReadWriteOnce"])).expect("created");
            api.patch(&claim_key("c"), &json!({"spec": {"volumeName": "w"}}), false);
            settle(&mut api);
            assert_eq!(phase(&api, &volume_key("v")), becomes, "{by}, {policy}, {said}");
            if becomes == "Released" {
                assert_eq!(api.objects[&volume_key("v")]["spec"]["claimRef"], reference);
                api.delete(&claim_key("c"));
                settle(&mut api);
                assert_eq!(phase(&api, &volume_key("v")), becomes, "{by}, {policy}, {said}");
            }
        }
    }
}
