//! Each case: a kind, what a client sends, and the fields it must come back with.

use serde_json::{Value, json};

use super::apply;
use crate::value::get;

/// Applies the defaults and compares the named fields; `null` means the field must be absent.
fn check(group: &str, kind: &str, mut object: Value, expected: &[(&str, Value)]) {
    apply(group, kind, &mut object);
    for (path, value) in expected {
        assert_eq!(get(&object, path), value, "{kind} {path} in {object}");
    }
    let once = object.clone();
    apply(group, kind, &mut object);
    assert_eq!(once, object, "{kind}: defaulting twice changes the object");
}

#[test]
fn a_pod_gets_its_scheduling_and_container_defaults() {
    let mut pod = json!({"spec": {
        "containers": [{
            "name": "a", "image": "registry:5000/app",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
        }],
        "hostNetwork": true,
        "serviceAccountName": "robot",
        "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/"}}]
    }});
    apply("", "Pod", &mut pod);
    let spec = &pod["spec"];
    assert_eq!(
        spec["containers"][0],
        json!({
            "name": "a", "image": "registry:5000/app", "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}
        })
    );
    assert_eq!(
        spec["volumes"],
        json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
            {"name": "h", "hostPath": {"path": "/", "type": ""}}])
    );
    for (field, value) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
        ("enableServiceLinks", json!(true)),
        ("serviceAccount", json!("robot")),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
}

#[test]
fn the_tag_decides_the_pull_policy() {
    for (image, policy) in [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("host:5000/app", "Always"),
        ("app:1", "IfNotPresent"),
        ("host:5000/app:1", "IfNotPresent"),
        ("app@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        apply("", "Pod", &mut pod);
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn a_template_keeps_its_requests_and_links_as_written() {
    check(
        "apps",
        "Deployment",
        json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "image": "x:1", "resources": {"limits": {"cpu": "1"}}}]}}}}),
        &[
            ("spec.template.spec.enableServiceLinks", Value::Null),
            ("spec.template.spec.restartPolicy", json!("Always")),
            ("spec.replicas", json!(1)),
            (
                "spec.strategy",
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
            ),
            ("spec.revisionHistoryLimit", json!(10)),
            ("spec.progressDeadlineSeconds", json!(600)),
            (
                "spec.template.spec.containers",
                json!([{"name": "a", "image": "x:1", "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "resources": {"limits": {"cpu": "1"}}}]),
            ),
        ],
    );
}

#[test]
fn each_kind_gets_its_defaults() {
    type Case = (&'static str, &'static str, Value, Vec<(&'static str, Value)>);
    let cases: Vec<Case> = vec![
        (
            "",
            "Service",
            json!({"spec": {"ports": [{"port": 80}], "type": "NodePort"}}),
            vec![
                ("spec.sessionAffinity", json!("None")),
                ("spec.ports", json!([{"port": 80, "protocol": "TCP", "targetPort": 80}])),
                ("spec.externalTrafficPolicy", json!("Cluster")),
                ("spec.internalTrafficPolicy", json!("Cluster")),
                ("status", json!({"loadBalancer": {}})),
            ],
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "ClientIP"}}),
            vec![
                ("spec.internalTrafficPolicy", Value::Null),
                ("spec.externalTrafficPolicy", Value::Null),
                ("spec.sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}})),
            ],
        ),
        (
            "",
            "Secret",
            json!({"data": {"a": "eA=="}, "stringData": {"a": "1", "b": "12", "c": "123", "d": ""}}),
            vec![
                ("type", json!("Opaque")),
                ("data", json!({"a": "MQ==", "b": "MTI=", "c": "MTIz", "d": ""})),
                ("stringData", Value::Null),
            ],
        ),
        (
            "",
            "Node",
            json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}),
            vec![("spec.podCIDRs", json!(["10.0.0.0/24"]))],
        ),
        (
            "",
            "PersistentVolume",
            json!({"spec": {"iscsi": {"iqn": "x"}}}),
            vec![
                ("spec.persistentVolumeReclaimPolicy", json!("Retain")),
                ("spec.volumeMode", json!("Filesystem")),
                ("spec.iscsi.iscsiInterface", json!("default")),
                ("status.phase", json!("Pending")),
            ],
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({"spec": {}}),
            vec![("spec.volumeMode", json!("Filesystem")), ("status.phase", json!("Pending"))],
        ),
        (
            "",
            "Namespace",
            json!({"metadata": {"name": "n"}}),
            vec![("metadata.labels", json!({"kubernetes.io/metadata.name": "n"})), ("status.phase", json!("Active"))],
        ),
        (
            "",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
            vec![(
                "spec.limits",
                json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
                "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"}}]),
            )],
        ),
        (
            "",
            "ReplicationController",
            json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}}),
            vec![
                ("spec.selector", json!({"a": "b"})),
                ("metadata.labels", json!({"a": "b"})),
                ("spec.replicas", json!(1)),
            ],
        ),
        (
            "apps",
            "StatefulSet",
            json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}, "volumeClaimTemplates": [{"metadata": {"name": "d"}}]}}),
            vec![
                ("spec.updateStrategy", json!({"type": "RollingUpdate"})),
                ("spec.podManagementPolicy", json!("OrderedReady")),
                ("spec.persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Retain", "whenScaled": "Retain"})),
                (
                    "spec.volumeClaimTemplates",
                    json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "d"}, "spec": {"volumeMode": "Filesystem", "resources": {}}, "status": {"phase": "Pending"}}]),
                ),
            ],
        ),
        (
            "apps",
            "DaemonSet",
            json!({"spec": {}}),
            vec![(
                "spec.updateStrategy",
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
            )],
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"parallelism": 2, "template": {"metadata": {"labels": {"a": "b"}}}}}),
            vec![
                ("spec.completions", Value::Null),
                ("spec.parallelism", json!(2)),
                ("spec.backoffLimit", json!(6)),
                ("spec.completionMode", json!("NonIndexed")),
                ("spec.podReplacementPolicy", json!("TerminatingOrFailed")),
                ("metadata.labels", json!({"a": "b"})),
            ],
        ),
        (
            "batch",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *"}}),
            vec![("spec.concurrencyPolicy", json!("Allow")), ("spec.successfulJobsHistoryLimit", json!(3))],
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"egress": [{"ports": [{"port": 1}]}]}}),
            vec![
                ("spec.policyTypes", json!(["Ingress", "Egress"])),
                ("spec.egress", json!([{"ports": [{"port": 1, "protocol": "TCP"}]}])),
            ],
        ),
        (
            "storage.k8s.io",
            "StorageClass",
            json!({"provisioner": "x"}),
            vec![("reclaimPolicy", json!("Delete")), ("volumeBindingMode", json!("Immediate"))],
        ),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"},
                {"kind": "ServiceAccount", "name": "s"}]}),
            vec![
                ("roleRef.apiGroup", json!("rbac.authorization.k8s.io")),
                (
                    "subjects",
                    json!([{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
                    {"kind": "ServiceAccount", "name": "s"}]),
                ),
            ],
        ),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({"spec": {"names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "storage": true}]}}),
            vec![
                ("spec.names.singular", json!("widget")),
                ("spec.names.listKind", json!("WidgetList")),
                ("spec.conversion", json!({"strategy": "None"})),
                ("status.storedVersions", json!(["v1"])),
            ],
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "a.b.c", "rules": [{"resources": ["pods"]}], "clientConfig": {"service": {"name": "s"}}}]}),
            vec![(
                "webhooks",
                json!([{"name": "a.b.c", "rules": [{"resources": ["pods"], "scope": "*"}],
                "clientConfig": {"service": {"name": "s", "port": 443}}, "failurePolicy": "Fail", "matchPolicy": "Equivalent",
                "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10}]),
            )],
        ),
    ];
    for (group, kind, object, expected) in cases {
        check(group, kind, object, &expected);
    }
}
