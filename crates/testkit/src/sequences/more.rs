//! More built-in kinds: what is written by hand of each is how its lists are keyed and which values it takes.

use serde_json::{Value, json};

use super::subjects::{Subject, built_in, object, one_of, text};

fn keyed(keys: &[&str], items: Value) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "x-solid": true, "items": items})
}

fn some_of(values: Value) -> Value {
    json!({"type": "array", "items": {"type": "object", "x-values": values}})
}

fn any_of(values: Value) -> Value {
    json!({"x-values": values})
}

/// A template's container, with what a Pod that runs may not change.
fn container(names: &[&str]) -> Value {
    json!({"type": "object", "x-solid": true, "required": ["name", "image"], "properties": {
        "name": one_of(names), "image": one_of(&["x", "y:1"]), "command": {"type": "array", "items": text()},
        "envFrom": some_of(json!([{"configMapRef": {"name": "c"}}, {"prefix": "P", "secretRef": {"name": "s"}}])),
        "env": keyed(&["name"], any_of(json!([{"name": "A", "value": "x"}, {"name": "A"}, {"name": "B", "valueFrom":
            {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]))),
        "ports": keyed(&["containerPort", "protocol"], any_of(json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"},
            {"containerPort": 81, "name": "web"}]))),
        "volumeMounts": keyed(&["mountPath"], any_of(json!([{"mountPath": "/a", "name": "a"}, {"mountPath": "/b", "name": "a", "readOnly": true}]))),
        "resources": object(json!({"limits": any_of(json!([null, {"cpu": "1000m"}, {"cpu": "1", "memory": "1024Mi"}])),
            "requests": any_of(json!([{"cpu": "0.5"}, {"memory": "1Gi"}]))})),
        "livenessProbe": any_of(json!([null, {"httpGet": {"port": 80}}, {"httpGet": {"port": "web", "path": "/x"}, "periodSeconds": 3},
            {"exec": {"command": ["x"]}}, {"tcpSocket": {"port": 1}}])),
        "lifecycle": any_of(json!([null, {"preStop": {"sleep": {"seconds": 1}}}, {"postStart": {"exec": {"command": ["a"]}}}])),
        "securityContext": any_of(json!([{}, {"runAsUser": 1}, {"privileged": true}, {"capabilities": {"add": ["NET_ADMIN"]}}])),
        "imagePullPolicy": one_of(&["Always", "Never"]), "stdin": {"type": "boolean"},
    }})
}

/// A template of Pods, which may change in every part.
fn template() -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    let spec = json!({"type": "object", "required": ["containers", "volumes"], "x-solid": true, "properties": {
        "containers": {"type": "array", "minItems": 1, "x-kubernetes-list-type": "map", "x-solid": true,
            "x-kubernetes-list-map-keys": ["name"], "items": container(&["one", "two"])},
        "initContainers": keyed(&["name"], container(&["three", "four"])),
        "volumes": keyed(&["name"], any_of(json!([{"name": "a", "emptyDir": {}}, {"name": "a", "configMap": {"name": "c"}},
            {"name": "b", "projected": {"sources": [{"secret": {"name": "s"}}]}}, {"name": "c", "hostPath": {"path": "/x"}}]))),
        "topologySpreadConstraints": keyed(&["topologyKey", "whenUnsatisfiable"], any_of(json!([
            {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
            {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 2},
            {"topologyKey": "node", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "labelSelector": {"matchLabels": {"a": "b"}}}]))),
        "hostAliases": keyed(&["ip"], any_of(json!([{"ip": "1.2.3.4", "hostnames": ["a"]}, {"ip": "1.2.3.4", "hostnames": ["b", "c"]},
            {"ip": "1.2.3.5", "hostnames": ["b"]}]))),
        "affinity": any_of(json!([null, {}, {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}])),
        "securityContext": any_of(json!([{}, {"runAsUser": 1}, {"fsGroup": 2, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}])),
        "dnsConfig": any_of(json!([null, {"nameservers": ["1.1.1.1"]}, {"options": [{"name": "ndots", "value": "2"}]}])),
        "schedulingGates": keyed(&["name"], any_of(json!([{"name": "a.b/c"}, {"name": "a.b/d"}]))),
        "readinessGates": some_of(json!([{"conditionType": "a.b/c"}, {"conditionType": "a.b/d"}])),
        "serviceAccountName": one_of(&["x", "y"]), "hostNetwork": {"type": "boolean"},
        "activeDeadlineSeconds": {"type": "integer"}, "restartPolicy": one_of(&["Always", "Never"]),
        "overhead": any_of(json!([null, {"cpu": "10m"}])),
    }});
    object(
        json!({"metadata": object(json!({"labels": {"type": "object", "additionalProperties": text()}})), "spec": spec}),
    )
}

/// Kinds without controllers.
pub fn more() -> Vec<Subject> {
    let texts = json!({"type": "object", "additionalProperties": text()});
    let mut templates = built_in("PodTemplate", "", "PodTemplate", "podtemplates", json!({"template": template()}));
    templates.base = json!({"template": {"spec": {"containers": [{"name": "one", "image": "x"}], "volumes": [{"name": "a", "emptyDir": {}}]}}});
    let data = any_of(json!([null, {}, {"a": "aGk="}, {"b": "aG8=", "c": ""}]));
    let secret = built_in(
        "Secret",
        "",
        "Secret",
        "secrets",
        json!({"data": data, "stringData": texts, "type": one_of(&["Opaque"]), "immutable": any_of(json!([null, false]))}),
    );
    let rules = some_of(json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get", "list"]}]));
    let role = built_in("Role", "rbac.authorization.k8s.io", "Role", "roles", json!({"rules": rules}));
    let selector =
        any_of(json!([{}, {"matchLabels": {"a": "b"}}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]));
    let peers = json!([{"podSelector": {}}]);
    let mut policy = built_in(
        "NetworkPolicy",
        "networking.k8s.io",
        "NetworkPolicy",
        "networkpolicies",
        json!({"spec": object(json!({"podSelector": selector,
            "ingress": some_of(json!([{}, {"from": peers, "ports": [{"port": 80}]}, {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])),
            "egress": some_of(json!([{}, {"ports": [{"protocol": "UDP", "port": "dns"}]}])),
            "policyTypes": any_of(json!([null, ["Ingress"], ["Ingress", "Egress"]]))}))}),
    );
    policy.base = json!({"spec": {"podSelector": {}}});
    let hook = json!({"type": "object", "x-solid": true,
        "required": ["name", "clientConfig", "sideEffects", "admissionReviewVersions"], "properties": {
        "name": one_of(&["a.b.c", "d.e.f"]), "clientConfig": any_of(json!([{"url": "https://a.example.com"}, {"service": {"name": "s", "namespace": "n"}}])),
        "sideEffects": one_of(&["None"]), "admissionReviewVersions": any_of(json!([["v1"], ["v1", "v1beta1"]])),
        "rules": some_of(json!([{"apiGroups": ["nowhere.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]},
            {"apiGroups": ["nowhere.example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["y"], "scope": "Cluster"}])),
        "namespaceSelector": selector, "timeoutSeconds": {"type": "integer"}, "failurePolicy": one_of(&["Ignore", "Fail"]),
        "matchConditions": keyed(&["name"], any_of(json!([{"name": "a", "expression": "true"}, {"name": "b", "expression": "false"},
            {"name": "a", "expression": "1 == 1"}])))}});
    let mut hooks = built_in(
        "ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        json!({"webhooks": keyed(&["name"], hook)}),
    );
    hooks.namespaced = false;
    let slices = {
        let endpoints = some_of(
            json!([{"addresses": ["10.1.0.1"]}, {"addresses": ["10.1.0.2"], "conditions": {"ready": false}, "nodeName": "n"},
            {"addresses": ["10.1.0.1"], "conditions": {}, "targetRef": {"kind": "Pod", "name": "p"}}]),
        );
        let mut slices = built_in(
            "EndpointSlice",
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            json!({"endpoints": endpoints, "ports": any_of(json!([null, [], [{}], [{"port": 80}], [{"name": "a", "port": 80, "protocol": "UDP"}]]))}),
        );
        slices.base = json!({"addressType": "IPv4", "endpoints": []});
        slices
    };
    let lease = built_in(
        "Lease",
        "coordination.k8s.io",
        "Lease",
        "leases",
        json!({"spec": object(json!({"holderIdentity": text(), "leaseDurationSeconds": {"type": "integer"},
            "acquireTime": one_of(&["2001-01-01T00:00:00.000000Z", "2001-01-01T00:00:00.500000Z"]),
            "renewTime": one_of(&["2001-01-01T00:00:00.000001Z", "2002-01-01T00:00:00.123456Z"]), "leaseTransitions": {"type": "integer"}}))}),
    );
    let limits = built_in(
        "LimitRange",
        "",
        "LimitRange",
        "limitranges",
        json!({"spec": object(json!({"limits": some_of(json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1024Gi"}},
            {"type": "PersistentVolumeClaim", "min": {"storage": "0.5"}}, {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}, "min": {"storage": "1000m"}}]))}))}),
    );
    let mut classes = built_in(
        "RuntimeClass",
        "node.k8s.io",
        "RuntimeClass",
        "runtimeclasses",
        json!({"overhead": any_of(json!([null, {"podFixed": {"cpu": "1000m"}}, {"podFixed": {"memory": "1Gi"}}, {}])),
            "scheduling": object(json!({"nodeSelector": {"type": "object", "additionalProperties": text()},
                "tolerations": some_of(json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Equal", "value": "c"}]))}))}),
    );
    classes.namespaced = false;
    classes.base = json!({"handler": "h"});
    let mut nodes = built_in(
        "CSINode",
        "storage.k8s.io",
        "CSINode",
        "csinodes",
        json!({"spec": object(json!({"drivers": keyed(&["name"], any_of(json!([{"name": "a", "nodeID": "x"}, {"name": "b", "nodeID": "x", "topologyKeys": ["k"]},
            {"name": "c", "nodeID": "y", "allocatable": {"count": 3}}])))}))}),
    );
    nodes.namespaced = false;
    nodes.base = json!({"spec": {"drivers": []}});
    vec![templates, secret, role, policy, hooks, slices, lease, limits, classes, nodes, scaler()]
}

/// In one of its two versions: what is written in the other is stored in another order, not always when Kubernetes does.
fn scaler() -> Subject {
    let target = any_of(
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, {"kind": "ReplicationController", "name": "b"}]),
    );
    let utilization = |resource: &str, value: u32| json!({"type": "Resource", "resource": {"name": resource, "target": {"type": "Utilization", "averageUtilization": value}}});
    let spec = json!({"type": "object", "required": ["maxReplicas", "scaleTargetRef"], "x-solid": true, "properties": {
        "scaleTargetRef": target, "minReplicas": {"type": "integer"}, "maxReplicas": {"x-values": [5, 6]},
        "metrics": some_of(json!([utilization("cpu", 50), utilization("memory", 60), {"type": "Pods", "pods":
            {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1000m"}}}])),
        "behavior": any_of(json!([null, {"scaleDown": {"stabilizationWindowSeconds": 5}}, {"scaleUp": {"selectPolicy": "Min"}}])),
    }});
    let mut scaler = built_in(
        "HorizontalPodAutoscaler",
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        json!({"spec": spec}),
    );
    scaler.versions[0].0 = "v2".into();
    scaler.base = json!({"spec": {"scaleTargetRef": {"kind": "ReplicationController", "name": "b"}, "maxReplicas": 5}});
    scaler
}
