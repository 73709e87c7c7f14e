//! Each case: what is there, what a client sends, and what the server makes of it.

use serde_json::{Value, json};

use super::*;

fn created(group: &str, kind: &str, mut object: Value) -> Value {
    prepare_create(group, kind, &mut object);
    object
}

fn updated(group: &str, kind: &str, old: Value, mut new: Value) -> Value {
    prepare_update(group, kind, &mut new, &old);
    new
}

#[test]
fn a_new_object_has_a_fresh_status_and_generation() {
    let namespace = created("", "Namespace", json!({"metadata": {"name": "n"}, "status": {"phase": "Terminating"}}));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");

    let deployment = created("apps", "Deployment", json!({"metadata": {"generation": 7}, "status": {"replicas": 3}}));
    assert_eq!((&deployment["metadata"]["generation"], &deployment["status"]), (&json!(1), &json!({})));

    let map = created("", "ConfigMap", json!({"metadata": {"name": "c"}, "data": {"a": "b"}}));
    assert_eq!(map, json!({"metadata": {"name": "c"}, "data": {"a": "b"}}));

    let volume =
        created("", "PersistentVolume", json!({"metadata": {"creationTimestamp": "T"}, "status": {"phase": "Bound"}}));
    assert_eq!(volume["status"], json!({"phase": "Pending", "lastPhaseTransitionTime": "T"}));

    let node = created("", "Node", json!({"status": {"capacity": {"cpu": "1"}}}));
    assert_eq!(node["status"], json!({"capacity": {"cpu": "1"}}));
}

#[test]
fn a_pods_quality_of_service_follows_from_its_resources() {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (json!({"limits": both, "requests": both}), "Guaranteed"),
        (json!({"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}}), "Burstable"),
        (json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
    ] {
        let pod = created("", "Pod", json!({"spec": {"containers": [{"name": "a", "resources": resources}]}}));
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": class}), "{resources}");
    }
    let gated = created("", "Pod", json!({"spec": {"containers": [], "schedulingGates": [{"name": "g"}]}}));
    assert_eq!(gated["status"]["conditions"][0]["reason"], "SchedulingGated");
}

#[test]
fn a_job_finds_its_pods_by_its_uid() {
    let job = created("batch", "Job", json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}}));
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"],
        json!({"batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "job-name": "j"})
    );
    let manual =
        created("batch", "Job", json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"manualSelector": true}}));
    assert_eq!(manual["spec"], json!({"manualSelector": true}));
}

#[test]
fn the_generation_counts_what_the_kind_says() {
    let cases: &[(&str, &str, Value, Value, i64)] = &[
        ("apps", "ReplicaSet", json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}), 4),
        (
            "apps",
            "ReplicaSet",
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 1, "template": {"spec": {"priority": 0}}}}),
            4,
        ),
        ("apps", "Deployment", json!({"spec": {}}), json!({"spec": {}, "metadata": {"annotations": {"a": "b"}}}), 4),
        ("apps", "ReplicaSet", json!({"spec": {}}), json!({"spec": {}, "metadata": {"annotations": {"a": "b"}}}), 3),
        ("discovery.k8s.io", "EndpointSlice", json!({"endpoints": []}), json!({"metadata": {"labels": {"a": "b"}}}), 4),
        ("discovery.k8s.io", "EndpointSlice", json!({"endpoints": []}), json!({"endpoints": []}), 3),
        ("", "PodTemplate", json!({"template": {}}), json!({"template": {"spec": {"hostNetwork": true}}}), 4),
        ("scheduling.k8s.io", "PriorityClass", json!({"value": 1}), json!({"value": 2}), 3),
        ("", "Pod", json!({"spec": {}}), json!({"spec": {"tolerations": [{}]}}), 4),
    ];
    for (group, kind, old, new, expected) in cases {
        let mut old = old.clone();
        set(&mut old, "metadata", "generation", 3);
        let mut new = new.clone();
        set(&mut new, "metadata", "generation", 99);
        let new = updated(group, kind, old, new);
        assert_eq!(new["metadata"]["generation"], *expected, "{kind} {new}");
    }
    let service = updated("", "Service", json!({"spec": {}}), json!({"spec": {"type": "NodePort"}}));
    assert_eq!(service.get("metadata").and_then(|m| m.get("generation")), None);
}

#[test]
fn an_update_keeps_the_status_and_a_status_update_keeps_the_rest() {
    let old = json!({"metadata": {"generation": 2, "labels": {"a": "1"}}, "spec": {"replicas": 1}, "status": {"replicas": 1}});
    let sent = json!({"metadata": {"labels": {"a": "2"}}, "spec": {"replicas": 5}, "status": {"replicas": 5}});
    let new = updated("apps", "ReplicaSet", old.clone(), sent.clone());
    assert_eq!((&new["spec"]["replicas"], &new["status"]["replicas"]), (&json!(5), &json!(1)));

    let mut status = sent.clone();
    prepare_status_update("apps", "ReplicaSet", &mut status, &old, "T");
    assert_eq!(status["metadata"], json!({"generation": 2, "labels": {"a": "2"}}));
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(1), &json!(5)));

    let mut status = sent;
    prepare_status_update("apps", "Deployment", &mut status, &old, "T");
    assert_eq!(status["metadata"]["labels"], json!({"a": "1"}));
}

#[test]
fn what_takes_a_part_of_a_pod_keeps_its_metadata() {
    let metadata = json!({"annotations": {"a": "1"}, "labels": {"a": "1"}, "generation": 1});
    let old = json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}});
    for subresource in ["ephemeralcontainers", "resize"] {
        let mut new = old.clone();
        new["metadata"] = json!({"annotations": {"b": "2"}, "generation": 1, "managedFields": [{"manager": "m"}]});
        prepare_subresource_update("", "Pod", subresource, &mut new, &old, "T");
        let mut expected = metadata.clone();
        expected["managedFields"] = json!([{"manager": "m"}]);
        assert_eq!(new["metadata"], expected, "{subresource}");
    }
}

#[test]
fn an_autoscaler_has_no_annotations_of_its_older_version() {
    let metrics = "autoscaling.alpha.kubernetes.io/metrics";
    let mut autoscaler = json!({"metadata": {"annotations": {"a": "b", metrics: "[]"}}, "spec": {"maxReplicas": 2}});
    crate::defaults::apply("autoscaling", "HorizontalPodAutoscaler", &mut autoscaler);
    assert_eq!(autoscaler["metadata"]["annotations"], json!({"a": "b"}));
}

#[test]
fn a_volumes_phase_transition_is_timed() {
    let old = json!({"status": {"phase": "Pending", "lastPhaseTransitionTime": "A"}});
    for (sent, time) in [
        (json!({"status": {"phase": "Pending"}}), "A"),
        (json!({"status": {"phase": "Bound"}}), "now"),
        (json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "A"}}), "now"),
        (json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "B"}}), "B"),
    ] {
        let mut new = sent.clone();
        prepare_status_update("", "PersistentVolume", &mut new, &old, "now");
        assert_eq!(new["status"]["lastPhaseTransitionTime"], time, "{sent}");
    }
}

#[test]
fn a_service_keeps_what_was_allocated() {
    let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "externalTrafficPolicy": "Cluster", "ports": [{"name": "a", "port": 80, "nodePort": 30000}]}});
    let new = updated(
        "",
        "Service",
        old.clone(),
        json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 81}]}}),
    );
    assert_eq!(
        new["spec"],
        json!({"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ports": [{"name": "a", "port": 81, "nodePort": 30000}]})
    );
    let mut sent = old.clone();
    sent["spec"]["type"] = json!("ClusterIP");
    let new = updated("", "Service", old.clone(), sent);
    assert_eq!(
        new["spec"],
        json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"name": "a", "port": 80}]})
    );
    let mut sent = old.clone();
    sent["spec"]["type"] = json!("ExternalName");
    let new = updated("", "Service", old, sent);
    assert_eq!(new["spec"].get("clusterIP"), None);
}

#[test]
fn node_ports_that_are_not_named_are_kept_unless_none_are_to_be_allocated() {
    let service = |kind: &str, allocate: Value, port: Value| json!({"spec": {"type": kind, "allocateLoadBalancerNodePorts": allocate, "ports": [{"port": 80, "nodePort": port}]}});
    for (kind, allocate, kept) in [
        ("NodePort", Value::Null, true),
        ("LoadBalancer", Value::Null, true),
        ("LoadBalancer", json!(true), true),
        ("LoadBalancer", json!(false), false),
    ] {
        let old = service(kind, allocate.clone(), json!(30000));
        let new = updated("", "Service", old.clone(), service(kind, allocate.clone(), Value::Null));
        assert_eq!(new["spec"]["ports"][0]["nodePort"] == 30000, kept, "{kind} {allocate}");
        assert_eq!(updated("", "Service", old.clone(), old.clone())["spec"]["ports"], old["spec"]["ports"]);
    }
}

#[test]
fn a_claims_two_data_sources_agree() {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "x"});
    let claim = created("", "PersistentVolumeClaim", json!({"spec": {"dataSource": source}}));
    assert_eq!(claim["spec"]["dataSourceRef"], source);
    let claim = created(
        "",
        "PersistentVolumeClaim",
        json!({"spec": {"dataSource": {"kind": "Foo", "apiGroup": "a.b", "name": "x"}}}),
    );
    assert_eq!(claim["spec"], json!({}));
    let reference = json!({"kind": "Foo", "apiGroup": "a.b", "name": "x"});
    let claim = created("", "PersistentVolumeClaim", json!({"spec": {"dataSourceRef": reference}}));
    assert_eq!(claim["spec"]["dataSource"], reference);
}

#[test]
fn only_running_pods_take_time_to_delete() {
    let running = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
    let waiting = json!({"spec": {"terminationGracePeriodSeconds": 30}});
    let ended = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Failed"}});
    for (pod, asked, expected) in [
        (&running, None, 30),
        (&running, Some(5), 5),
        (&running, Some(0), 0),
        (&running, Some(-1), 1),
        (&waiting, None, 0),
        (&waiting, Some(5), 0),
        (&ended, None, 0),
    ] {
        assert_eq!(grace_period("", "Pod", pod, asked), Some(expected), "{pod} {asked:?}");
    }
    assert_eq!(grace_period("", "ConfigMap", &json!({}), Some(5)), None);
}

#[test]
fn apply_never_owns_what_the_other_resource_writes() {
    for (group, kind, subresource, fields) in [
        ("", "ConfigMap", "", &[][..]),
        ("apps", "Deployment", "", &["status"]),
        ("apps", "Deployment", "status", &["spec", "metadata.labels"]),
        ("apps", "ReplicaSet", "status", &["spec"]),
        ("storage.k8s.io", "VolumeAttachment", "status", &["metadata", "spec"]),
    ] {
        assert_eq!(reset_fields(group, kind, subresource), fields, "{kind}/{subresource}");
    }
    assert!(allows_create_on_update("coordination.k8s.io", "Lease") && !allows_create_on_update("", "Pod"));
    assert!(allows_unconditional_update("", "Pod") && !allows_unconditional_update("coordination.k8s.io", "Lease"));
}
