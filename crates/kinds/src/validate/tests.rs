//! Recorded answers of a real server are in `tests/real.rs`; here are changes that it is hard to bring a server to, and
//! that no object whatever makes the rules panic.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{defaults, fields, strategy, warnings};

fn lines(errors: Errors) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.path, error.message())).collect()
}

fn pod() -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
        "containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]}});
    defaults::apply("", "Pod", &mut pod);
    strategy::prepare_create("", "Pod", &mut pod);
    pod
}

#[test]
fn a_stateful_set_with_an_old_mistake_can_be_changed() {
    let mut old = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {
        "serviceName": "", "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    defaults::apply("apps", "StatefulSet", &mut old);
    let said = |new: &Value, old: &Value| lines(update("apps", "StatefulSet", new, old));
    let mut wrong = old.clone();
    wrong["spec"]["template"]["spec"]["dnsPolicy"] = "Other".into();
    assert_eq!(said(&old, &old), [""; 0]);
    assert_eq!(said(&wrong, &old).len(), 1);
    let mut scaled = wrong.clone();
    scaled["spec"]["replicas"] = 3.into();
    assert_eq!(said(&scaled, &wrong), [""; 0]);
}

/// Changes a Pod through a resource or subresource and compares what is said about it.
fn check_change(old: Value, change: impl FnOnce(&mut Value), subresource: &str, expected: &[&str]) {
    let mut new = old.clone();
    change(&mut new);
    let errors = if subresource.is_empty() {
        update("", "Pod", &new, &old)
    } else {
        subresource_update("", "Pod", subresource, &new, &old)
    };
    assert_eq!(lines(errors), expected);
}

#[test]
fn a_changed_runtime_class_is_checked_as_a_new_one() {
    let class = |tolerations: Value| json!({"handler": "h", "scheduling": {"tolerations": tolerations}});
    let toleration = json!({"key": "a", "operator": "Exists"});
    let errors = update("node.k8s.io", "RuntimeClass", &class(json!([toleration, toleration])), &class(json!([])));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(lines(errors)[0].starts_with("scheduling.tolerations[1]: Duplicate value"));
}

#[test]
fn tolerations_are_only_added() {
    let removed = "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds";
    check_change(pod(), |new| new["spec"]["tolerations"] = json!([]), "", &[removed]);
    check_change(pod(), |new| new["spec"]["tolerations"][0]["tolerationSeconds"] = json!(5), "", &[]);
    check_change(pod(), |new| new["spec"]["tolerations"][0]["key"] = json!("b"), "", &[removed]);
}

#[test]
fn a_gated_pod_may_be_told_more_exactly_where_to_run() {
    let mut gated = pod();
    gated["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    gated["spec"]["nodeSelector"] = json!({"a": "b"});
    check_change(gated.clone(), |new| new["spec"]["schedulingGates"] = json!([]), "", &[]);
    check_change(gated.clone(), |new| new["spec"]["nodeSelector"]["c"] = json!("d"), "", &[]);
    let terms = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}});
    check_change(gated.clone(), |new| new["spec"]["affinity"] = terms, "", &[]);
    check_change(
        gated.clone(),
        |new| new["spec"]["nodeSelector"] = json!({"a": "c"}),
        "",
        &[
            "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ],
    );
    check_change(
        gated,
        |new| new["spec"]["schedulingGates"] = json!([{"name": "g"}, {"name": "h"}]),
        "",
        &["spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"],
    );
}

#[test]
fn a_container_that_ended_stays_ended() {
    let mut ended = pod();
    ended["spec"]["restartPolicy"] = json!("Never");
    ended["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
    let revive = |new: &mut Value| new["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    let refused = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
    check_change(ended.clone(), revive, "status", &[refused]);
    ended["spec"]["restartPolicy"] = json!("Always");
    check_change(ended, revive, "status", &[]);
}

#[test]
fn a_resize_changes_processor_and_memory_only() {
    check_change(pod(), |new| new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2"), "resize", &[]);
    let only = "spec: Forbidden: only cpu and memory resources are mutable";
    check_change(pod(), |new| new["spec"]["containers"][0]["image"] = json!("j"), "resize", &[only]);
    check_change(
        pod(),
        |new| new["spec"]["containers"][0]["resources"] = json!({}),
        "resize",
        &[
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ],
    );
}

#[test]
fn ephemeral_containers_stay() {
    let mut old = pod();
    let mut debugger = json!({"name": "d", "image": "i"});
    old["spec"]["ephemeralContainers"] = json!([debugger]);
    defaults::apply("", "Pod", &mut old);
    check_change(
        old.clone(),
        |new| new["spec"]["ephemeralContainers"] = json!([]),
        "ephemeralcontainers",
        &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n"],
    );
    debugger["name"] = json!("e");
    debugger["targetContainerName"] = json!("nobody");
    let mut other = json!({"spec": {"ephemeralContainers": [debugger]}});
    defaults::apply("", "Pod", &mut other);
    check_change(
        old,
        |new| {
            new["spec"]["ephemeralContainers"]
                .as_array_mut()
                .unwrap()
                .push(other["spec"]["ephemeralContainers"][0].clone())
        },
        "ephemeralcontainers",
        &["spec.ephemeralContainers[1].targetContainerName: Not found: \"nobody\""],
    );
}

#[test]
fn a_bound_claim_may_grow() {
    let claim = |size: &str| {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    };
    for (size, expected) in [
        ("2Gi", &[][..]),
        ("3Gi", &[]),
        ("1Gi", &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]),
    ] {
        assert_eq!(lines(update("", "PersistentVolumeClaim", &claim(size), &claim("2Gi"))), expected, "{size}");
    }
}

#[test]
fn a_volumes_affinity_follows_labels_to_their_final_names() {
    let volume = |key: &str| {
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}}})
    };
    let old = volume("failure-domain.beta.kubernetes.io/zone");
    assert!(update("", "PersistentVolume", &volume("topology.kubernetes.io/zone"), &old).is_empty());
    let errors = lines(update("", "PersistentVolume", &volume("other"), &old));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].ends_with("field is immutable, except for updating from beta label to GA"), "{errors:?}");
}

#[test]
fn immutable_data_stays() {
    let map = |data: &str, immutable: bool| json!({"data": {"a": data}, "immutable": immutable});
    let detail = "Forbidden: field is immutable when `immutable` is set";
    for (new, expected) in [
        (map("1", true), vec![]),
        (map("2", true), vec![format!("data: {detail}")]),
        (map("1", false), vec![format!("immutable: {detail}")]),
    ] {
        assert_eq!(lines(update("", "ConfigMap", &new, &map("1", true))), expected);
    }
    assert!(update("", "ConfigMap", &map("2", true), &map("1", false)).is_empty());
}

/// Objects of all kinds that Kubernetes accepts.
fn accepted() -> Vec<(String, String, Value)> {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/data/created.json")).unwrap_or_default();
    let text = |case: &Value, field: &str| case[field].as_str().unwrap_or("").to_owned();
    cases.iter().map(|case| (text(case, "group"), text(case, "kind"), case["answer"].clone())).collect()
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            places(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| places(value, &format!("{at}/{i}"), found))
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_object_makes_the_rules_panic(seed in any::<prop::sample::Index>(), place in any::<prop::sample::Index>(), what in 0..9usize) {
        let junk = [json!(null), json!(""), json!("é"), json!(-1), json!(i64::MAX), json!([]), json!({}), json!([null, {"name": []}]), json!({"a": {"b": [1]}})];
        let all = accepted();
        let (group, kind, old) = seed.get(&all);
        let mut found = Vec::new();
        places(old, "", &mut found);
        let mut new = old.clone();
        if let Some(field) = new.pointer_mut(place.get(&found).as_str()) {
            *field = junk[what].clone();
        }
        let mut object = new.clone();
        defaults::apply(group, kind, &mut object);
        strategy::prepare_create(group, kind, &mut object);
        create(group, kind, &object);
        warnings::create(group, kind, &object);
        fields::selectable(group, kind, &object);
        for (from, to) in [(old, &new), (&new, old)] {
            let mut changed = to.clone();
            strategy::prepare_update(group, kind, &mut changed, from);
            update(group, kind, &changed, from);
            warnings::update(group, kind, &changed, from);
            for subresource in ["status", "finalize", "approval", "resize", "ephemeralcontainers"] {
                let mut changed = to.clone();
                strategy::prepare_subresource_update(group, kind, subresource, &mut changed, from, "T");
                subresource_update(group, kind, subresource, &changed, from);
            }
        }
    }
}

#[test]
fn the_template_of_a_job_changes_while_it_stands_still() {
    let job = |cpu: &str, status: &Value| {
        let limits = json!({"limits": {"cpu": cpu}});
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": limits}]});
        json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": pod}}, "status": status})
    };
    let suspended = |is: &str| json!([{"type": "Suspended", "status": is}]);
    for (status, may) in [
        (json!({}), true),
        (json!({"startTime": "2020-01-01T00:00:00Z"}), false),
        (json!({"startTime": "2020-01-01T00:00:00Z", "conditions": suspended("False")}), false),
        (json!({"startTime": "2020-01-01T00:00:00Z", "conditions": suspended("True")}), true),
        (json!({"startTime": "2020-01-01T00:00:00Z", "conditions": suspended("True"), "active": 1}), false),
        (json!({"active": 1}), false),
    ] {
        let mut image = job("1", &status);
        image["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
        let errors = lines(update("batch", "Job", &image, &job("1", &status)));
        let place = if may { "spec.template.spec: " } else { "spec.template: " };
        assert!(errors.iter().any(|line| line.starts_with(place)), "{status}: {errors:?}");
        let errors = lines(update("batch", "Job", &job("2", &status), &job("1", &status)));
        assert_eq!(!errors.iter().any(|line| line.starts_with("spec.template: ")), may, "{status}: {errors:?}");
    }
}

#[test]
fn a_job_that_has_ended_stays_ended() {
    let job = |status: Value| json!({"metadata": {"name": "j"}, "spec": {"completions": 3, "parallelism": 1}, "status": status});
    let check = |old: Value, new: Value, expected: &[&str]| {
        assert_eq!(lines(status_update("batch", "Job", &job(new), &job(old))), expected);
    };
    let is = |kind: &str| json!({"type": kind, "status": "True"});
    let times = ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    let done = json!({"conditions": [is("SuccessCriteriaMet"), is("Complete")], "succeeded": 3, "startTime": times.0, "completionTime": times.1});
    check(json!({"startTime": times.0}), done.clone(), &[]);
    check(done.clone(), done.clone(), &[]);
    check(
        done.clone(),
        json!({"startTime": times.0, "succeeded": 2, "completionTime": times.1}),
        &[
            "status.completionTime: Invalid value: \"2020-01-02T00:00:00Z\": cannot set completionTime when there is no Complete=True condition",
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
            "status.succeeded: Invalid value: 2: cannot decrease the succeeded counter",
            "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
        ],
    );
    check(
        json!({"startTime": times.0}),
        json!({}),
        &["status.startTime: Invalid value: null: field is immutable for unsuspended job once set"],
    );
    check(
        json!({}),
        json!({"completedIndexes": "0,x"}),
        &[
            "status.completedIndexes: Invalid value: \"0,x\": error parsing completedIndexes: cannot convert string to integer for index: \"x\"",
            "status.completedIndexes: Invalid value: \"0,x\": cannot set non-empty completedIndexes when non-indexed completion mode",
        ],
    );
}

#[test]
fn indexes_are_counted() {
    for (text, expected) in
        [("", Ok(0)), ("1", Ok(1)), ("0,2-4", Ok(4)), ("3,1", Err(())), ("2-1", Err(())), ("7", Err(()))]
    {
        assert_eq!(job_status::count_indexes(text, 5).map_err(drop), expected, "{text}");
    }
}

#[test]
fn devices_are_claimed_by_what_they_are() {
    let check = |claim: Value, expected: &[&str]| {
        let mut object = json!({"metadata": {"name": "c"}, "spec": {"devices": claim}});
        defaults::apply("resource.k8s.io", "ResourceClaim", &mut object);
        assert_eq!(lines(create("resource.k8s.io", "ResourceClaim", &object)), expected);
    };
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "gpu"}});
    check(
        json!({"requests": [request("a")], "constraints": [{"requests": ["a"], "matchAttribute": "x.io/model"}]}),
        &[],
    );
    check(json!({"requests": [request("a"), request("a")]}), &["spec.devices.requests[1]: Duplicate value: \"a\""]);
    check(
        json!({"requests": [{"name": "a"}], "config": [{"requests": ["b"], "opaque": {"driver": "x.io", "parameters": {}}}]}),
        &[
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            "spec.devices.config[0].requests[0]: Invalid value: \"b\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
        ],
    );
    let sub = json!([{"name": "big", "deviceClassName": "gpu", "allocationMode": "All"}]);
    check(
        json!({"requests": [{"name": "a", "firstAvailable": sub}], "constraints": [{"requests": ["a/big"], "distinctAttribute": "model"}]}),
        &[
            "spec.devices.constraints[0].distinctAttribute: Invalid value: \"model\": a fully qualified name must be a domain and a name separated by a slash",
        ],
    );
}

#[test]
fn a_stateful_set_that_may_keep_its_policy_may_not_have_any_template() {
    let set = |dns: &str| {
        json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {
            "podManagementPolicy": "OrderedReady", "serviceName": "s", "replicas": 1,
            "updateStrategy": {"type": "OnDelete"}, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "dnsPolicy": dns, "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                "securityContext": {"seLinuxChangePolicy": "MountOption"},
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
                    "terminationMessagePolicy": "File"}]}}}})
    };
    let old = set("ClusterFirst");
    assert_eq!(lines(update("apps", "StatefulSet", &set("Default"), &old)), Vec::<String>::new());
    let errors = lines(update("apps", "StatefulSet", &set("Other"), &old));
    assert!(errors.iter().any(|error| error.contains("dnsPolicy")), "{errors:?}");
}

#[test]
fn claims_that_are_not_there_name_no_more_than_fits() {
    let used: Vec<Value> = (0..1000).map(|i| json!({"name": format!("x{i}")})).collect();
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
        "resourceClaims": [{"name": "n".repeat(100_000), "resourceClaimName": "c"}],
        "containers": [{"name": "c", "image": "i", "resources": {"claims": used}}]}});
    let said: usize = lines(create("", "Pod", &pod)).iter().map(String::len).sum();
    assert!(said < 1_000_000, "{said}");
}
