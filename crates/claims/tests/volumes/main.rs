//! PersistentVolumes by the Kubernetes binder's rules, on the toy API server.

mod ends;
mod growth;
#[path = "../toy/mod.rs"]
mod toy;

use conductor_claims::invariants::volume_violations;
use conductor_claims::lifecycle::{Plan, Presence};
use conductor_claims::matching::{Decision, Index, NoJudge, Reason};
use conductor_claims::template::Paths;
use conductor_claims::volumes::{self, Making, VolumeClaimScene, VolumeScene};
use proptest::prelude::*;
use serde_json::{Value, json};
use toy::{Api, Key};

fn pv(name: &str, size: &str, class: &str, modes: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": modes, "storageClassName": class, "persistentVolumeReclaimPolicy": "Retain"},
    })
}

fn pvc(name: &str, size: &str, class: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "apps"},
        "spec": {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]},
    });
    if let Some(class) = class {
        object["spec"]["storageClassName"] = json!(class);
    }
    object
}

fn storage_class(name: &str, default: bool, late: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {volumes::DEFAULT_CLASS: default.to_string()}},
        "provisioner": "example.com/none",
        "volumeBindingMode": if late { "WaitForFirstConsumer" } else { "Immediate" },
    })
}

fn key(kind: &str, namespace: &str, name: &str) -> Key {
    (kind.into(), namespace.into(), name.into())
}

fn claim_key(name: &str) -> Key {
    key("PersistentVolumeClaim", "apps", name)
}

fn volume_key(name: &str) -> Key {
    key("PersistentVolume", "", name)
}

fn plan(look: &Api, at: &Key, truth: &Api) -> Plan {
    let Some(object) = look.objects.get(at) else { return Plan::default() };
    if at.0 == "PersistentVolume" {
        let uid = object["spec"]["claimRef"]["uid"].as_str().unwrap_or_default();
        let find = |api: &Api| api.objects.values().find(|o| o["metadata"]["uid"].as_str() == Some(uid)).cloned();
        let (seen, there) = (find(look), find(truth));
        let claim = match (&seen, &there) {
            (Some(claim), Some(_)) => Presence::Alive(claim),
            (_, None) => Presence::Gone,
            (None, Some(_)) => Presence::Unknown,
        };
        let implementation = look.objects.get(&key("Thing", "conductor-system", &at.2));
        let names = |claim: &&Value| {
            claim["spec"]["volumeName"] == at.2
                && claim["metadata"]["uid"].as_str() != Some(uid)
                && volumes::was_bound(claim, object)
        };
        let named_by = truth.of_kind("PersistentVolumeClaim").map(|(_, claim)| claim).find(names);
        return volumes::volume(&VolumeScene { volume: object, claim, named_by, implementation, now: "now" });
    }
    let mut index = Index::new(volumes::rules());
    for (_, volume) in look.of_kind("PersistentVolume") {
        index.upsert(volumes::offer(volume));
    }
    let classes: Vec<&Value> = look.of_kind("StorageClass").map(|(_, o)| o).collect();
    for class in &classes {
        index.set_profile(volumes::profile(class, true));
    }
    let default = volumes::default_class(classes);
    index.set_default_class(default.clone());
    let ask = volumes::ask(object, false, None).expect("a claim");
    let decision = index.decide(&ask, &NoJudge);
    let name = match (&decision, object["spec"]["volumeName"].as_str()) {
        (_, Some(name)) => name.to_owned(),
        (Decision::Bind { resource, .. }, None) => resource.to_string(),
        _ => String::new(),
    };
    let mut template = json!({"spec": {
        "template": {"apiVersion": "p/v1", "kind": "Thing", "spec": {"size": "${claim.spec.resources.requests.storage}"}},
        "volume": {"nfs": {"server": "${implementation.status.details.host}", "path": "/"}},
    }});
    if look.of_kind("StorageClass").any(|(_, class)| class["parameters"]["sizes"] == "one") {
        template["spec"]["template"]["spec"]["size"] = json!("3Gi");
    }
    let class = index.class_of(&ask).and_then(|c| look.objects.get(&key("StorageClass", "", &c)));
    let making = class.map(|class| {
        (class, &template, look.objects.get(&key("Thing", "conductor-system", &volumes::made_name(object))))
    });
    volumes::volume_claim(&VolumeClaimScene {
        claim: object,
        decision: &decision,
        volume: look.objects.get(&volume_key(&name)),
        making: making.as_ref().map(|(class, template, implementation)| Making {
            class,
            template,
            implementation: *implementation,
            expressions: &Paths,
        }),
        class,
        default_class: default.as_deref(),
        now: "now",
    })
}

fn settle(api: &mut Api) {
    for _ in 0..100 {
        let mut idle = true;
        for at in api.objects.keys().cloned().collect::<Vec<_>>() {
            if at.0 == "Thing" {
                let before = api.objects.get(&at).cloned();
                api.provide(&at);
                idle &= before == api.objects.get(&at).cloned();
            } else if at.0 != "StorageClass" {
                let plan = plan(api, &at, &api.clone());
                idle &= plan.is_empty();
                api.execute(&plan, usize::MAX, |_| {});
            }
        }
        for plan in api.orphan_plans(&api.clone()) {
            idle = false;
            api.execute(&plan, usize::MAX, |_| {});
        }
        if idle {
            return;
        }
    }
    panic!("it never comes to rest");
}

fn phase<'a>(api: &'a Api, key: &Key) -> &'a str {
    api.objects.get(key).map_or("gone", |o| o["status"]["phase"].as_str().unwrap_or_default())
}

/// Which volume a claim gets of some; empty: none.
fn check(volumes: Vec<Value>, others: Vec<Value>, claim: Value, expected: &str) {
    let mut api = Api::default();
    for object in volumes.into_iter().chain(others) {
        api.create(object).expect("created");
    }
    settle(&mut api);
    let shown = claim.to_string();
    api.create(claim).expect("created");
    settle(&mut api);
    let bound = &api.objects[&claim_key("c")];
    assert_eq!(
        bound["spec"]["volumeName"].as_str().filter(|_| phase(&api, &claim_key("c")) == "Bound").unwrap_or_default(),
        expected,
        "{shown}"
    );
    if !expected.is_empty() {
        assert_eq!(bound["metadata"]["annotations"][volumes::BIND_COMPLETED], json!("yes"));
        assert_eq!(phase(&api, &volume_key(expected)), "Bound");
    }
    let objects: Vec<&Value> = api.objects.values().collect();
    assert_eq!(volume_violations(&objects, true), []);
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    *object
        .pointer_mut(path.rsplit_once('/').expect("a path").0)
        .expect("a parent")
        .as_object_mut()
        .expect("an object")
        .entry(path.rsplit_once('/').expect("a path").1)
        .or_insert(Value::Null) = value;
    object
}

#[test]
fn the_binder_s_rules() {
    let rwo: &[&str] = &["ReadWriteOnce"];
    let both: &[&str] = &["ReadWriteOnce", "ReadOnlyMany"];
    // the smallest that fits, ties by name
    check(
        vec![pv("b", "20Gi", "", rwo), pv("a", "20Gi", "", rwo), pv("s", "5Gi", "", rwo), pv("l", "99Gi", "", rwo)],
        vec![],
        pvc("c", "10Gi", Some("")),
        "a",
    );
    // fewest extra modes before size
    check(vec![pv("a", "10Gi", "", both), pv("b", "20Gi", "", rwo)], vec![], pvc("c", "10Gi", Some("")), "b");
    // class: equal; "" is none; nil is the default, or none
    check(vec![pv("a", "10Gi", "fast", rwo)], vec![], pvc("c", "10Gi", Some("")), "");
    check(vec![pv("a", "10Gi", "fast", rwo)], vec![], pvc("c", "10Gi", Some("fast")), "a");
    check(vec![pv("a", "10Gi", "fast", rwo)], vec![], pvc("c", "10Gi", None), "");
    check(vec![pv("a", "10Gi", "", rwo)], vec![], pvc("c", "10Gi", None), "a");
    check(
        vec![pv("a", "10Gi", "", rwo), pv("b", "10Gi", "fast", rwo)],
        vec![storage_class("fast", true, false)],
        pvc("c", "10Gi", None),
        "b",
    );
    // late binding
    check(
        vec![pv("a", "10Gi", "fast", rwo)],
        vec![storage_class("fast", false, true)],
        pvc("c", "10Gi", Some("fast")),
        "",
    );
    let selected = with(pvc("c", "10Gi", Some("fast")), "/metadata/annotations", json!({volumes::SELECTED_NODE: "n1"}));
    check(vec![pv("a", "10Gi", "fast", rwo)], vec![storage_class("fast", false, true)], selected, "a");
    // mode
    check(
        vec![with(pv("a", "10Gi", "", rwo), "/spec/volumeMode", json!("Block"))],
        vec![],
        pvc("c", "10Gi", Some("")),
        "",
    );
    check(
        vec![with(pv("a", "10Gi", "", rwo), "/spec/volumeMode", json!("Filesystem"))],
        vec![],
        pvc("c", "10Gi", Some("")),
        "a",
    );
    // selector
    let select = with(pvc("c", "10Gi", Some("")), "/spec/selector", json!({"matchLabels": {"a": "b"}}));
    check(
        vec![pv("a", "10Gi", "", rwo), with(pv("b", "50Gi", "", rwo), "/metadata/labels", json!({"a": "b"}))],
        vec![],
        select.clone(),
        "b",
    );
    // a claim that names its volume skips the selector, not size, class and modes
    let named = |object: Value| with(object, "/spec/volumeName", json!("a"));
    check(vec![pv("a", "10Gi", "", rwo)], vec![], named(select), "a");
    check(vec![pv("a", "5Gi", "", rwo), pv("b", "10Gi", "", rwo)], vec![], named(pvc("c", "10Gi", Some(""))), "");
    check(vec![pv("a", "10Gi", "fast", rwo)], vec![], named(pvc("c", "10Gi", Some(""))), "");
    check(vec![pv("a", "10Gi", "", &["ReadOnlyMany"])], vec![], named(pvc("c", "10Gi", Some(""))), "");
    // one that is reserved for the claim and too small is passed over, unless the claim names it, too
    let reserved = |object: Value| with(object, "/spec/claimRef", json!({"namespace": "apps", "name": "c"}));
    let small = || reserved(pv("a", "5Gi", "", rwo));
    check(vec![small(), pv("b", "10Gi", "", rwo)], vec![], pvc("c", "10Gi", Some("")), "b");
    check(vec![small()], vec![], pvc("c", "10Gi", Some("")), "");
    check(vec![small(), pv("b", "10Gi", "", rwo)], vec![], named(pvc("c", "10Gi", Some(""))), "a");
    // nor does it skip them by saying that it was bound
    let says = |object: Value| with(object, "/metadata/annotations", json!({volumes::BIND_COMPLETED: "yes"}));
    check(vec![pv("a", "10Gi", "fast", rwo)], vec![], says(named(pvc("c", "10Gi", Some("")))), "");
    check(vec![pv("a", "5Gi", "", rwo)], vec![], says(named(pvc("c", "10Gi", Some("")))), "");
    check(vec![pv("a", "10Gi", "", rwo)], vec![], says(named(pvc("c", "10Gi", Some("")))), "a");
    // pre-bound wins over everything, and is nobody else's
    let reserved = |name: &str, claim: &str| {
        with(pv(name, "50Gi", "other", both), "/spec/claimRef", json!({"namespace": "apps", "name": claim}))
    };
    check(vec![pv("a", "10Gi", "", rwo), reserved("b", "c")], vec![], pvc("c", "10Gi", Some("")), "b");
    check(
        vec![with(pv("a", "10Gi", "", rwo), "/spec/claimRef", json!({"namespace": "apps", "name": "x"}))],
        vec![],
        pvc("c", "10Gi", Some("")),
        "",
    );
}

#[test]
fn a_volume_s_life() {
    let mut api = Api::default();
    let mut volume = pv("v", "10Gi", "", &["ReadWriteOnce"]);
    volume["metadata"]["annotations"] = json!({volumes::RECLAIM: "Recycle"});
    api.create(volume).expect("created");
    api.create(json!({"apiVersion": "p/v1", "kind": "Thing", "metadata": {"name": "v", "namespace": "conductor-system"}, "spec": {}})).expect("created");
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    let (c, v) = (claim_key("c"), volume_key("v"));
    assert_eq!((phase(&api, &c), phase(&api, &v)), ("Bound", "Bound"));
    // gone and back: Lost, then healed
    let kept = api.objects.remove(&v).expect("there");
    settle(&mut api);
    assert_eq!(phase(&api, &c), "Lost");
    api.objects.insert(v.clone(), kept);
    settle(&mut api);
    assert_eq!(phase(&api, &c), "Bound");
    // another claim under the same name does not get the old one's volume before it is scrubbed
    api.delete(&c);
    settle(&mut api);
    assert_eq!((phase(&api, &c), phase(&api, &v)), ("gone", "Available"));
    assert_eq!(api.objects[&key("Thing", "conductor-system", "v")]["spec"]["scrub"], json!(1));
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    assert_eq!(phase(&api, &c), "Bound");
    // Retain without our annotation stays Released
    api.patch(&v, &json!({"metadata": {"annotations": {volumes::RECLAIM: null}}}), false);
    api.delete(&c);
    settle(&mut api);
    assert_eq!(phase(&api, &v), "Released");
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    settle(&mut api);
    assert_eq!((phase(&api, &c), phase(&api, &v)), ("Pending", "Released"));
    // an administrator frees it as on Kubernetes
    api.patch(&v, &json!({"spec": {"claimRef": null}}), false);
    settle(&mut api);
    assert_eq!((phase(&api, &c), phase(&api, &v)), ("Bound", "Bound"));
    // one that is to go stays as it is under its claim; after it, it says so to those who protect it
    api.patch(&v, &json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}}), false);
    api.delete(&v);
    settle(&mut api);
    assert_eq!((phase(&api, &c), phase(&api, &v)), ("Bound", "Bound"));
    assert_eq!(api.objects[&v]["status"]["reason"], "InUse");
    api.delete(&c);
    settle(&mut api);
    assert_eq!((phase(&api, &c), phase(&api, &v)), ("gone", "Released"));
}

#[test]
fn a_lost_claim_gets_no_other_volume_than_one_that_names_it() {
    let says = |object: Value| with(object, "/metadata/annotations", json!({volumes::BIND_COMPLETED: "yes"}));
    let named = |object: Value| with(object, "/spec/volumeName", json!("v"));
    let (c, v) = (claim_key("c"), volume_key("v"));
    for (volume, gets) in [
        (pv("v", "10Gi", "", &["ReadWriteOnce"]), true),
        (pv("v", "10Gi", "fast", &["ReadWriteOnce"]), false),
        (pv("v", "10Gi", "", &["ReadOnlyMany"]), false),
        (pv("v", "1Gi", "", &["ReadWriteOnce"]), false),
    ] {
        // that it was bound is only its own word: there never was a volume
        let mut api = Api::default();
        api.create(says(named(pvc("c", "10Gi", Some(""))))).expect("created");
        settle(&mut api);
        assert_eq!(phase(&api, &c), "Lost");
        api.create(volume.clone()).expect("created");
        settle(&mut api);
        let expected = if gets { ("Bound", "Bound") } else { ("Lost", "Available") };
        assert_eq!((phase(&api, &c), phase(&api, &v)), expected, "{volume}");
        // the volume was another's, and is freed for somebody else
        let mut api = Api::default();
        let owned = json!({"namespace": "apps", "name": "other", "uid": "gone"});
        api.create(with(volume.clone(), "/spec/claimRef", owned)).expect("created");
        api.patch(&v, &json!({"status": {"phase": "Released"}}), true);
        api.create(says(named(pvc("c", "10Gi", Some(""))))).expect("created");
        settle(&mut api);
        assert_eq!((phase(&api, &c), phase(&api, &v)), ("Lost", "Released"));
        api.patch(&v, &json!({"spec": {"claimRef": null}}), false);
        settle(&mut api);
        assert_eq!((phase(&api, &c), phase(&api, &v)), expected, "{volume}");
    }
}

/// A claim of 3Gi that has its volume, made from a class of ours; the keys of the volume and of what is behind it.
fn made(more: Value) -> (Api, Key, Key) {
    let mut api = Api::default();
    let mut class = with(storage_class("ours", true, false), "/provisioner", json!(volumes::PROVISIONER));
    class["parameters"] = more;
    api.create(class).expect("created");
    api.create(pvc("c", "3Gi", None)).expect("created");
    settle(&mut api);
    let name = api.objects[&claim_key("c")]["spec"]["volumeName"].as_str().expect("a name").to_owned();
    (api, volume_key(&name), key("Thing", "conductor-system", &name))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn crashes_and_races(steps in prop::collection::vec((0u8..10, any::<u8>(), 0u8..6), 0..100)) {
        let mut api = Api::default();
        api.create(with(storage_class("ours", false, false), "/provisioner", json!(volumes::PROVISIONER))).expect("created");
        let mut looks = [api.clone(), api.clone()];
        // who had which: what was one claim's is never another's, for nothing here is scrubbed and nobody frees anything
        let mut had: std::collections::BTreeMap<String, String> = Default::default();
        for (what, which, cut) in steps {
            match what {
                0 => drop(api.create(pvc(&format!("c{}", which % 3), &format!("{}Gi", 1 + which % 4), Some(if which % 3 == 0 { "ours" } else { "" })))),
                1 => api.delete(&claim_key(&format!("c{}", which % 3))),
                2 => drop(api.create(pv(&format!("v{}", which % 4), &format!("{}Gi", 1 + which % 5), "", &["ReadWriteOnce"]))),
                3 if which % 4 == 0 => api.delete(&volume_key(&format!("v{}", cut % 4))),
                3 if which % 4 == 1 => {
                    for (at, _) in api.clone().of_kind("Thing") {
                        api.provide(at);
                    }
                }
                3 | 4 => looks[usize::from(which % 2)] = api.clone(),
                _ => {
                    let look = &looks[usize::from(which % 2)];
                    let keys: Vec<&Key> = look.objects.keys().filter(|k| k.0.starts_with("PersistentVolume")).collect();
                    if keys.is_empty() {
                        continue;
                    }
                    let mut plan = plan(look, keys[usize::from(which / 2) % keys.len()], &api);
                    // the volume may say Bound before its claim does, or after it
                    if let [.., volume, claim] = plan.writes.as_mut_slice()
                        && (volume.target.status, claim.target.status) == (true, true)
                        && cut % 2 == 0
                    {
                        std::mem::swap(volume, claim);
                    }
                    let (mut broken, mut passed_on) = (Vec::new(), Vec::new());
                    api.execute(&plan, usize::from(cut), |api| {
                        broken.extend(volume_violations(&api.objects.values().collect::<Vec<_>>(), false));
                        for (_, claim) in api.of_kind("PersistentVolumeClaim").filter(|(at, _)| phase(api, at) == "Bound") {
                            let volume = claim["spec"]["volumeName"].as_str().and_then(|name| api.objects.get(&volume_key(name)));
                            let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                            let Some(volume) = volume.filter(|v| v["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]) else { continue };
                            if *had.entry(uid(volume)).or_insert_with(|| uid(claim)) != uid(claim) {
                                passed_on.push(volume.clone());
                            }
                        }
                    });
                    prop_assert!(broken.is_empty(), "{:?}", broken);
                    prop_assert!(passed_on.is_empty(), "{:?}", passed_on);
                }
            }
        }
        settle(&mut api);
        let broken = volume_violations(&api.objects.values().collect::<Vec<_>>(), true);
        prop_assert!(broken.is_empty(), "{:?}\n{:#?}", broken, api.objects.values().collect::<Vec<_>>());
        // when everyone leaves, nothing that was made is left
        for (at, _) in api.clone().of_kind("PersistentVolumeClaim") {
            api.delete(at);
        }
        settle(&mut api);
        let made = |k: &&Key| k.0 == "Thing" || k.2.starts_with("pvc-");
        prop_assert_eq!(api.objects.keys().filter(made).count(), 0, "{:#?}", api.objects.values().collect::<Vec<_>>());
    }
}

#[test]
fn of_two_managers_one_wins() {
    let mut api = Api::default();
    api.create(pv("large", "50Gi", "", &["ReadWriteOnce"])).expect("created");
    settle(&mut api);
    api.create(pvc("c", "10Gi", Some(""))).expect("created");
    let first = plan(&api, &claim_key("c"), &api.clone());
    api.create(pv("tight", "10Gi", "", &["ReadWriteOnce"])).expect("created");
    for _ in 0..2 {
        let plan = plan(&api, &volume_key("tight"), &api.clone());
        api.execute(&plan, usize::MAX, |_| {});
    }
    let second = plan(&api, &claim_key("c"), &api.clone());
    api.execute(&first, 1, |_| {});
    assert!(api.execute(&second, usize::MAX, |_| {}));
    assert!(!api.execute(&first, usize::MAX, |_| {}));
    settle(&mut api);
    assert_eq!(api.objects[&claim_key("c")]["spec"]["volumeName"], json!("tight"));
    assert_eq!(phase(&api, &volume_key("large")), "Available", "rolled back, never used");
    assert!(api.objects[&volume_key("large")]["spec"]["claimRef"].is_null());
}

#[test]
fn a_class_of_ours_makes_a_volume() {
    let mut api = Api::default();
    api.create(with(storage_class("ours", true, false), "/provisioner", json!(volumes::PROVISIONER))).expect("created");
    api.create(pvc("c", "3Gi", None)).expect("created");
    settle(&mut api);
    let claim = &api.objects[&claim_key("c")];
    assert_eq!((phase(&api, &claim_key("c")), &claim["spec"]["storageClassName"]), ("Bound", &json!("ours")));
    let volume = &api.objects[&volume_key(claim["spec"]["volumeName"].as_str().expect("a name"))];
    assert_eq!(volume["spec"]["nfs"]["server"], json!("10.0.0.7"));
    assert_eq!(volume["spec"]["capacity"]["storage"], json!("3Gi"));
    api.delete(&claim_key("c"));
    settle(&mut api);
    assert_eq!(api.objects.len(), 1, "{:?}", api.objects.keys());

    // what it makes is empty: a claim that is to begin with another's content waits, and says so
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    api.create(with(pvc("copy", "3Gi", None), "/spec/dataSource", source)).expect("created");
    settle(&mut api);
    let copy = &api.objects[&claim_key("copy")];
    let (_, reason, message) = conductor_claims::lifecycle::condition_of(copy, "Bound").expect("is told");
    assert_eq!((phase(&api, &claim_key("copy")), reason), ("Pending", "ClassRefused"));
    assert!(message.contains("dataSource"), "{message}");
}

#[test]
fn a_volume_grows_with_its_claim_says_when_it_is_lost_and_is_used_again() {
    let mut api = Api::default();
    let mut class = with(storage_class("ours", true, false), "/provisioner", json!(volumes::PROVISIONER));
    class["metadata"]["annotations"][volumes::RECLAIM] = json!("Recycle");
    api.create(with(class, "/reclaimPolicy", json!("Retain"))).expect("created");
    api.create(pvc("c", "3Gi", None)).expect("created");
    settle(&mut api);
    let name = api.objects[&claim_key("c")]["spec"]["volumeName"].as_str().expect("a name").to_owned();
    let thing = key("Thing", "conductor-system", &name);

    api.patch(&claim_key("c"), &json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}), false);
    // it is charged for what it is to have before that is asked for
    let grows = plan(&api, &claim_key("c"), &api.clone());
    assert_eq!(grows.writes[0].body["status"]["allocatedResources"]["storage"], "5Gi", "{grows:?}");
    assert!(grows.writes[1].implementation, "{grows:?}");
    settle(&mut api);
    let claim = &api.objects[&claim_key("c")];
    assert_eq!(api.objects[&thing]["spec"], json!({"size": "5Gi"}));
    assert_eq!(api.objects[&volume_key(&name)]["spec"]["capacity"]["storage"], json!("5Gi"));
    assert_eq!(claim["status"]["capacity"]["storage"], json!("5Gi"));
    let resizing = conductor_claims::lifecycle::condition_of(claim, "Resizing");
    assert_eq!(resizing.map(|(holds, reason, _)| (holds, reason)), Some((false, "Resized")));

    api.patch(&thing, &json!({"metadata": {"annotations": {"test/lost": "yes"}}}), false);
    settle(&mut api);
    assert_eq!(phase(&api, &claim_key("c")), "Lost");
    assert_eq!(api.objects[&volume_key(&name)]["status"]["reason"], json!("Lost"));
    api.patch(&thing, &json!({"metadata": {"annotations": {"test/lost": null}}}), false);
    settle(&mut api);
    assert_eq!(phase(&api, &claim_key("c")), "Bound");
    assert!(api.objects[&volume_key(&name)]["status"]["reason"].is_null());

    api.delete(&claim_key("c"));
    settle(&mut api);
    assert_eq!(phase(&api, &volume_key(&name)), "Available");
    assert_eq!(api.objects[&thing]["status"]["scrubbed"], json!(1));

    // what was to be used again, and is not any more, leaves nothing behind
    api.delete(&volume_key(&name));
    settle(&mut api);
    assert_eq!((phase(&api, &volume_key(&name)), api.objects.get(&thing)), ("gone", None));
}

/// Whoever makes a volume for a claim, and the claim with it, has the claim bound to that one, though it is not free yet.
#[test]
fn what_is_reserved_is_waited_for_until_it_is_free() {
    let mut index = Index::new(volumes::rules());
    let show = |index: &mut Index, name: &str, phase: &str, reference: Value| {
        let mut volume = with(pv(name, "10Gi", "", &["ReadWriteOnce"]), "/spec/claimRef", reference);
        volume["status"] = json!({"phase": phase});
        index.upsert(volumes::offer(&volume));
    };
    let claim = pvc("c", "10Gi", Some(""));
    let ask = volumes::ask(&claim, true, None).expect("an ask");
    show(&mut index, "free", "Available", Value::Null);
    for phase in ["", "Pending", "Released"] {
        show(&mut index, "mine", phase, json!({"namespace": "apps", "name": "c"}));
        let decision = index.decide(&ask, &NoJudge);
        assert!(
            matches!(&decision, Decision::Wait { reason: Reason::ReservedRefused(name, _), .. } if name.as_ref() == "mine"),
            "{phase}: {decision:?}"
        );
    }
    show(&mut index, "mine", "Available", json!({"namespace": "apps", "name": "c"}));
    assert!(matches!(index.decide(&ask, &NoJudge), Decision::Bind { resource, .. } if resource.as_ref() == "mine"));
}
