//! PersistentVolumes end to end, on the embedded server, with both transports.

mod common;

use common::faulty::RDS;
use common::{Cluster, class_of_volumes, phase_is, pv, pvc, volume, volume_claim};
use conductor_claims::lifecycle::Target;
use conductor_managers::Options;
use conductor_managers::inspect::{Finding, audit};
use serde_json::{Value, json};

async fn check_a_life(ordered: bool) {
    let cluster = Cluster::start(false).await;
    cluster.namespace("apps").await;
    let managers = cluster.managers(Options { types: false, ordered, ..Options::default() }).await;
    assert_eq!(managers.is_transactional(), !ordered);
    cluster.create(&volume("small", "5Gi", "")).await;
    cluster.create(&volume("large", "50Gi", "")).await;
    cluster.create(&volume_claim("apps", "data", "10Gi", "")).await;
    let bound = cluster.until(&pvc("apps", "data"), "bound", phase_is("Bound")).await.expect("a claim");
    assert_eq!(bound["spec"]["volumeName"], "large");
    assert_eq!(bound["status"]["capacity"]["storage"], "50Gi");
    cluster.until(&pv("large"), "bound", phase_is("Bound")).await;
    // a claim that nothing satisfies says why, and is woken by what does
    cluster.create(&volume_claim("apps", "big", "100Gi", "")).await;
    let said = |o: Option<&serde_json::Value>| {
        o.is_some_and(|o| o["status"]["conditions"][0]["message"].as_str().is_some_and(|m| m.contains("too small")))
    };
    cluster.until(&pvc("apps", "big"), "says why it waits", said).await;
    cluster.create(&volume("huge", "200Gi", "")).await;
    cluster.until(&pvc("apps", "big"), "woken", phase_is("Bound")).await;
    // released and retained
    cluster.delete(&pvc("apps", "data")).await;
    cluster.until(&pvc("apps", "data"), "gone", |o| o.is_none()).await;
    cluster.until(&pv("large"), "released", phase_is("Released")).await;
    // a volume removed by force loses its claim; one of that name heals it
    cluster.delete(&pv("huge")).await;
    cluster.patch(&pv("huge"), json!({"metadata": {"finalizers": []}})).await;
    cluster.until(&pvc("apps", "big"), "lost", phase_is("Lost")).await;
    cluster.create(&volume("huge", "200Gi", "")).await;
    cluster.until(&pvc("apps", "big"), "healed", phase_is("Bound")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_in_transactions() {
    check_a_life(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_in_ordered_writes() {
    check_a_life(true).await;
}

/// What a process before this one left: a claim that says Bound, and its volume that never did and has lost its reference since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_lost_its_reference_before_it_said_bound_gets_it_back() {
    for (ordered, annotated) in [(false, true), (true, true), (true, false)] {
        let cluster = Cluster::start(false).await;
        cluster.namespace("apps").await;
        cluster.create(&volume("v", "10Gi", "")).await;
        cluster.patch(&pv("v").status(), json!({"status": {"phase": "Available"}})).await;
        let mut claim = volume_claim("apps", "data", "10Gi", "");
        // its owner may have taken it away
        if annotated {
            claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        }
        claim["spec"]["volumeName"] = json!("v");
        let claim = cluster.create(&claim).await;
        let status = json!({"phase": "Bound", "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"]});
        cluster.patch(&pvc("apps", "data").status(), json!({"status": status})).await;
        cluster.create(&volume_claim("apps", "other", "10Gi", "")).await;
        let _managers = cluster.managers(Options { types: false, ordered, ..Options::default() }).await;
        let bound = cluster.until(&pv("v"), "its claim's", phase_is("Bound")).await.expect("a volume");
        assert_eq!(bound["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
        cluster.until(&pvc("apps", "other"), "waits", phase_is("Pending")).await;
        let claim = cluster.until(&pvc("apps", "data"), "bound", phase_is("Bound")).await.expect("a claim");
        assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    }
}

/// From class to volume to nothing: made once, reserved for its claim, removed with it.
async fn check_made(ordered: bool) {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let managers = cluster.managers(Options { ordered, ..Options::default() }).await;
    for object in class_of_volumes() {
        cluster.create(&object).await;
    }
    let claim = cluster.create(&volume_claim("apps", "data", "5Gi", "nfs")).await;
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
    let behind = common::target(RDS, "RDSInstance", "conductor-system", &name);
    let made = cluster.until(&behind, "made", |o| o.is_some()).await.expect("an implementation");
    assert_eq!(made["spec"]["storage"], "5Gi");
    let ready = json!({"host": "nfs.example.com", "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]});
    cluster.patch(&behind.clone().status(), json!({"status": ready})).await;
    cluster.until(&pvc("apps", "data"), "bound", phase_is("Bound")).await;
    let volume = cluster.until(&pv(&name), "bound", phase_is("Bound")).await.expect("a volume");
    assert_eq!(volume["spec"]["nfs"], json!({"server": "nfs.example.com", "path": "/data"}));
    // one whose volume somebody removes by force is left over, and is found
    let forced = cluster.create(&volume_claim("apps", "forced", "5Gi", "nfs")).await;
    let forced = format!("pvc-{}", forced["metadata"]["uid"].as_str().expect("a uid"));
    let left = common::target(RDS, "RDSInstance", "conductor-system", &forced);
    cluster.until(&left, "made", |o| o.is_some()).await;
    cluster.patch(&left.clone().status(), json!({"status": ready})).await;
    cluster.until(&pvc("apps", "forced"), "bound", phase_is("Bound")).await;
    cluster.until(&pv(&forced), "bound", phase_is("Bound")).await;
    assert!(audit(&cluster.api).await.expect("an audit").findings.is_empty());
    cluster.delete(&pv(&forced)).await;
    cluster.patch(&pv(&forced), json!({"metadata": {"finalizers": null}})).await;
    cluster.until(&pv(&forced), "gone", |o| o.is_none()).await;
    cluster.delete(&pvc("apps", "forced")).await;
    cluster.until(&pvc("apps", "forced"), "gone", |o| o.is_none()).await;
    let found = audit(&cluster.api).await.expect("an audit").findings;
    let named = |f: &Finding| f.object == format!("RDSInstance {forced}") && f.message.contains("stays with its data");
    assert!(found.len() == 1 && named(&found[0]), "{:?}", found.iter().map(|f| &f.message).collect::<Vec<_>>());
    cluster.delete(&left).await;
    // a claim that goes before its volume is there leaves nothing behind
    let early = cluster.create(&volume_claim("apps", "early", "5Gi", "nfs")).await;
    let early = format!("pvc-{}", early["metadata"]["uid"].as_str().expect("a uid"));
    let early = common::target(RDS, "RDSInstance", "conductor-system", &early);
    cluster.until(&early, "made", |o| o.is_some()).await;
    let lacks = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "NoRoom", "message": "no room"}]});
    cluster.patch(&early.clone().status(), json!({"status": lacks})).await;
    let told = |o: Option<&Value>| o.is_some_and(|o| o["status"]["conditions"].to_string().contains("no room"));
    cluster.until(&pvc("apps", "early"), "told why it waits", told).await;
    cluster.delete(&pvc("apps", "early")).await;
    cluster.until(&early, "removed with its claim", |o| o.is_none()).await;
    // one that cannot be read says so
    cluster.create(&volume_claim("apps", "vast", "1e30", "nfs")).await;
    let told = |o: Option<&Value>| o.is_some_and(|o| o["status"]["conditions"].to_string().contains("too large"));
    cluster.until(&pvc("apps", "vast"), "told what is wrong", told).await;
    // it says nothing of devices: it makes none
    let mut block = volume_claim("apps", "block", "5Gi", "nfs");
    block["spec"]["volumeMode"] = json!("Block");
    cluster.create(&block).await;
    let said = |object: Option<&Value>| {
        object.is_some_and(|o| o["status"]["conditions"].to_string().contains("of mode Filesystem, asked Block"))
    };
    cluster.until(&pvc("apps", "block"), "told why it waits", said).await;
    cluster.delete(&pvc("apps", "data")).await;
    cluster.until(&pv(&name), "removed with its claim", |o| o.is_none()).await;
    cluster.until(&behind, "removed with its volume", |o| o.is_none()).await;
    // nor does one that goes while nobody looks
    let unseen = cluster.create(&volume_claim("apps", "unseen", "5Gi", "nfs")).await;
    let unseen = format!("pvc-{}", unseen["metadata"]["uid"].as_str().expect("a uid"));
    let unseen = common::target(RDS, "RDSInstance", "conductor-system", &unseen);
    cluster.until(&unseen, "made", |o| o.is_some()).await;
    managers.stop().await;
    for name in ["unseen", "vast", "block"] {
        cluster.delete(&pvc("apps", name)).await;
        cluster.until(&pvc("apps", name), "gone", |o| o.is_none()).await;
    }
    // and one whose volume was there, but had not taken over what is behind it: the volume goes when that is gone
    let claim = "00000000-0000-0000-0000-00000000000a";
    let name = format!("pvc-{claim}");
    let behind = json!({"apiVersion": RDS, "kind": "RDSInstance", "name": name, "namespace": "conductor-system"});
    let mut half = common::volume(&name, "5Gi", "nfs");
    half["metadata"]["annotations"] = json!({
        "conductor.io/implementation": behind.to_string(), "conductor.io/provisioned-for": claim,
        "pv.kubernetes.io/bound-by-controller": "yes", "pv.kubernetes.io/provisioned-by": "volume.conductor.io",
    });
    half["metadata"]["finalizers"] = json!(["conductor.io/resource"]);
    half["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    half["spec"]["claimRef"] = json!({"namespace": "apps", "name": "half", "uid": claim});
    cluster.create(&half).await;
    let behind = common::target(RDS, "RDSInstance", "conductor-system", &name);
    cluster
        .create(&json!({
            "apiVersion": RDS, "kind": "RDSInstance",
            "metadata": {
                "name": name, "namespace": "conductor-system", "finalizers": ["example.com/slow"],
                "labels": {"conductor.io/claim-uid": claim}, "annotations": {"conductor.io/claim-name": "apps/half"},
            },
            "spec": {},
        }))
        .await;
    let managers = cluster.managers(Options { ordered, ..Options::default() }).await;
    cluster.until(&unseen, "removed with its claim", |o| o.is_none()).await;
    let going = |o: Option<&Value>| o.is_some_and(|o| o["metadata"]["deletionTimestamp"].is_string());
    cluster.until(&behind, "on its way out", going).await;
    while !managers.is_idle() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    cluster.patch(&behind, json!({"metadata": {"finalizers": null}})).await;
    cluster.until(&pv(&name), "gone with what was behind it", |o| o.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_of_ours_makes_a_volume() {
    check_made(false).await;
    check_made(true).await;
}

/// A volume that may not grow says so on its claim until it may, and is charged for what it has when less is asked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_volume_may_not_have_is_said_and_what_it_has_is_charged() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options::default()).await;
    let [mut class, template] = class_of_volumes();
    class["allowVolumeExpansion"] = json!(true);
    for object in [class, template] {
        cluster.create(&object).await;
    }
    let (data, kind) = (pvc("apps", "data"), "ValidatingAdmissionPolicy");
    let (admission, own) = ("admissionregistration.k8s.io/v1", json!({"name": "large"}));
    let rule = json!({"apiGroups": ["database.aws.conductor.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["rdsinstances"]});
    let policy = json!({"apiVersion": admission, "kind": kind, "metadata": own, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.storage != '100Gi'", "message": "too large for us"}]}});
    let binding = json!({"apiVersion": admission, "kind": format!("{kind}Binding"), "metadata": own, "spec": {"policyName": "large", "validationActions": ["Deny"]}});
    cluster.create(&policy).await;
    cluster.create(&binding).await;
    let claim = cluster.create(&volume_claim("apps", "data", "5Gi", "nfs")).await;
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
    let behind = common::target(RDS, "RDSInstance", "conductor-system", &name);
    cluster.until(&behind, "made", |o| o.is_some()).await;
    let report = |size: &str, generation: &Value| {
        json!({"status": {"host": "nfs.example.com", "capacity": {"storage": size}, "observedGeneration": generation,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]}})
    };
    cluster.patch(&behind.clone().status(), report("5Gi", &json!(1))).await;
    cluster.until(&data, "bound", phase_is("Bound")).await;
    // a policy is in force a moment after it is written
    let wanted = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let path = cluster.api.path(&behind).await.expect("a path") + "?dryRun=All";
    let large = json!({"spec": {"storage": "100Gi"}}).to_string().into_bytes();
    let merge = "application/merge-patch+json";
    while cluster.api.call_bytes(http::Method::PATCH, &path, merge, large.clone()).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    cluster.patch(&data, wanted("100Gi")).await;
    let says = |text: &'static str| {
        move |o: Option<&Value>| o.is_some_and(|o| o["status"]["conditions"].to_string().contains(text))
    };
    let told = cluster.until(&data, "told", says("too large for us")).await.expect("a claim");
    assert_eq!(
        (&told["status"]["phase"], &told["status"]["allocatedResources"]["storage"]),
        (&json!("Bound"), &json!("100Gi"))
    );
    // less is asked for: it is charged for that as soon as its provider knows
    cluster.patch(&data, wanted("12Gi")).await;
    let asked = cluster.until(&behind, "asked", |o| o.is_some_and(|o| o["spec"]["storage"] == "12Gi")).await;
    cluster.until(&data, "no longer refused", says("its volume is being made larger")).await;
    let generation = asked.map(|o| o["metadata"]["generation"].clone()).expect("a generation");
    cluster.patch(&behind.clone().status(), report("12Gi", &generation)).await;
    let done = |o: Option<&Value>| o.is_some_and(|o| o["status"]["capacity"]["storage"] == "12Gi");
    let done = cluster.until(&data, "grown", done).await.expect("a claim");
    assert_eq!(done["status"]["allocatedResources"]["storage"], "12Gi", "{done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_late_write_made_is_removed_although_nothing_is_made_of_its_class() {
    let cluster = Cluster::start(true).await;
    let managers = cluster.managers(Options::default()).await;
    let database = "storage.conductor.io/v1alpha1";
    cluster
        .create(&json!({
            "apiVersion": database, "kind": "RelationalDatabaseClass", "metadata": {"name": "late"},
            "spec": {"templates": [{"name": "a", "template": {"apiVersion": "apps/v1", "kind": "StatefulSet"}}]},
        }))
        .await;
    managers.stop().await;
    let late = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": "late", "namespace": "conductor-system", "labels": {"conductor.io/resource-uid": "gone"},
            "annotations": {"conductor.io/resource-ref": format!("{database} RelationalDatabase gone")},
        },
        "spec": {
            "serviceName": "late", "selector": {"matchLabels": {"app": "late"}},
            "template": {"metadata": {"labels": {"app": "late"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    let allowed = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "sets", "labels": {"conductor.io/aggregate-to-provisioner": "true"}},
        "rules": [{"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["*"]}],
    });
    cluster.create(&allowed).await;
    cluster.create(&late).await;
    let _managers = cluster.managers(Options::default()).await;
    cluster.until(&Target::of(&late), "removed", |o| o.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_has_the_attributes_that_its_claim_names() {
    let cluster = Cluster::start(false).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options { types: false, ..Options::default() }).await;
    let with = |mut object: Value, class: &str| {
        if object["kind"] == "PersistentVolume" {
            object["spec"].as_object_mut().expect("a spec").remove("hostPath");
            object["spec"]["csi"] = json!({"driver": "d", "volumeHandle": object["metadata"]["name"]});
        }
        if !class.is_empty() {
            object["spec"]["volumeAttributesClassName"] = class.into();
        }
        object
    };
    for class in ["", "gold", "silver"] {
        cluster.create(&with(volume(&format!("v{class}"), "1Gi", ""), class)).await;
    }
    for class in ["bronze", "gold", ""] {
        cluster.create(&with(volume_claim("apps", &format!("c{class}"), "1Gi", ""), class)).await;
    }
    for class in ["gold", ""] {
        let claim = pvc("apps", &format!("c{class}"));
        let bound = cluster.until(&claim, "bound", phase_is("Bound")).await.expect("a claim");
        assert_eq!(bound["spec"]["volumeName"], format!("v{class}"));
        let current = bound["status"]["currentVolumeAttributesClassName"].as_str().unwrap_or_default();
        assert_eq!(current, class);
    }
    let said = |o: Option<&Value>| o.is_some_and(|o| o["status"]["conditions"][0]["message"].is_string());
    let waits = cluster.until(&pvc("apps", "cbronze"), "says why", said).await.expect("a claim");
    assert_eq!(waits["status"]["phase"], "Pending", "{waits}");
    // What a bound claim asks for later is for its driver to do.
    cluster.patch(&pvc("apps", "cgold"), json!({"spec": {"volumeAttributesClassName": "silver"}})).await;
    cluster.create(&volume_claim("apps", "other", "1Gi", "")).await;
    cluster.until(&pvc("apps", "other"), "looked at", said).await;
    assert!(phase_is("Bound")(cluster.get(&pvc("apps", "cgold")).await.as_ref()));
}

/// Whoever makes volumes may write any name into one: what is behind another is not removed, asked for or shown by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_not_behind_another_by_saying_so() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options::default()).await;
    for object in class_of_volumes() {
        cluster.create(&object).await;
    }
    let claim = cluster.create(&volume_claim("apps", "data", "5Gi", "nfs")).await;
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
    let behind = common::target(RDS, "RDSInstance", "conductor-system", &name);
    cluster.until(&behind, "made", |o| o.is_some()).await;
    let ready = json!({"host": "nfs.example.com", "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]});
    cluster.patch(&behind.clone().status(), json!({"status": ready})).await;
    let own = cluster.until(&pv(&name), "bound", phase_is("Bound")).await.expect("a volume");
    let mut thief = volume("thief", "5Gi", "");
    thief["metadata"]["annotations"] = json!({
        "pv.kubernetes.io/provisioned-by": own["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"],
        "conductor.io/implementation": own["metadata"]["annotations"]["conductor.io/implementation"],
    });
    thief["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    cluster.create(&thief).await;
    cluster.create(&volume_claim("apps", "other", "5Gi", "")).await;
    cluster.until(&pvc("apps", "other"), "bound", phase_is("Bound")).await;
    cluster.delete(&pvc("apps", "other")).await;
    cluster.until(&pv("thief"), "gone with its claim", |o| o.is_none()).await;
    let kept = cluster.until(&behind, "there", |o| o.is_some()).await.expect("an implementation");
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    cluster.until(&pvc("apps", "data"), "bound", phase_is("Bound")).await;
}
