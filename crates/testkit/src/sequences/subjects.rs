//! The kinds that sequences are about: some built-in ones, and custom ones with every sort of field.

use serde_json::{Value, json};

/// A kind.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What it is called in reports.
    pub name: &'static str,
    /// Its versions, each with the schema that values are made from; the first is the one most is done in.
    pub versions: Vec<(String, Value)>,
    /// The group; empty for core kinds.
    pub group: String,
    /// The kind.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Whether the status is a subresource.
    pub status: bool,
    /// Whether there is a `scale`.
    pub scale: bool,
    /// Other subresources that show the object, each with the schema of what is written there.
    pub others: Vec<(&'static str, Value)>,
    /// Whether it is a custom resource.
    pub custom: bool,
    /// Whether controllers of a real cluster write its status.
    pub watched: bool,
    /// What a new object has in any case.
    pub base: Value,
}

impl Subject {
    /// Group and version.
    pub fn api_version(&self, at: usize) -> String {
        match self.group.as_str() {
            "" => self.versions[at].0.clone(),
            group => format!("{group}/{}", self.versions[at].0),
        }
    }

    /// Where its objects are.
    pub fn path(&self, at: usize, namespace: &str) -> String {
        let version = &self.versions[at].0;
        let root = if self.group.is_empty() { "/api".into() } else { format!("/apis/{}", self.group) };
        match self.namespaced {
            true => format!("{root}/{version}/namespaces/{namespace}/{}", self.plural),
            false => format!("{root}/{version}/{}", self.plural),
        }
    }
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn one_of(values: &[&str]) -> Value {
    json!({"type": "string", "x-values": values})
}

pub(super) fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

pub(super) fn built_in(
    name: &'static str,
    group: &str,
    kind: &'static str,
    plural: &'static str,
    schema: Value,
) -> Subject {
    Subject {
        name,
        versions: vec![("v1".into(), object(schema))],
        group: group.into(),
        kind,
        plural,
        namespaced: true,
        status: false,
        scale: false,
        others: Vec::new(),
        custom: false,
        watched: false,
        base: json!({}),
    }
}

/// A Pod's spec, as far as it may change or not.
fn pod_spec() -> Value {
    let variables = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "x-solid": true, "items": {"type": "object", "x-solid": true, "required": ["name"], "properties": {
            "name": one_of(&["A", "B", "C"]), "value": text()}}});
    let ports = json!({"type": "array", "x-kubernetes-list-type": "map", "x-solid": true,
        "x-kubernetes-list-map-keys": ["containerPort", "protocol"], "items": {"type": "object", "x-solid": true,
        "required": ["containerPort"], "properties": {"containerPort": {"type": "integer", "x-values": [80, 81]},
            "protocol": {"type": "string", "default": "TCP", "x-values": ["TCP", "UDP"]}}}});
    let container = json!({"type": "object", "x-solid": true, "required": ["name", "image"], "properties": {
        "name": one_of(&["one", "two"]), "image": one_of(&["x", "y"]), "args": {"type": "array", "items": text()},
        "env": variables, "ports": ports,
        "resources": object(json!({"requests": {"type": "object", "x-values": [{"cpu": "1"}, {"memory": "1Gi"}]}})),
    }});
    json!({"type": "object", "required": ["containers"], "x-solid": true, "properties": {
        "containers": {"type": "array", "minItems": 1, "x-kubernetes-list-type": "map", "x-solid": true,
            "x-kubernetes-list-map-keys": ["name"], "items": container},
        "nodeSelector": {"type": "object", "additionalProperties": text()},
        "tolerations": {"type": "array", "items": {"type": "object", "x-values": [
            {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists", "effect": "NoSchedule"}]}},
        "imagePullSecrets": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": one_of(&["x", "y"])}}},
        "volumes": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "x-solid": true, "items": {"type": "object", "x-values": [
                {"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}},
                {"name": "c", "emptyDir": {"sizeLimit": "1Gi"}}]}},
        "terminationGracePeriodSeconds": {"type": "integer", "x-values": [0, 5, 30]},
        "priority": {"type": "integer", "x-values": [0]},
    }})
}

/// Built-in kinds.
pub fn built_ins() -> Vec<Subject> {
    let labels = json!({"type": "object", "additionalProperties": text()});
    let config_map = built_in(
        "ConfigMap",
        "",
        "ConfigMap",
        "configmaps",
        json!({
        "data": labels.clone(), "binaryData": {"type": "object", "x-values": [null, {}, {"z": "aGk="}, {"y": "aG8="}]}}),
    );
    let port = json!({"type": "object", "x-solid": true, "required": ["port", "name"], "properties": {
        "port": {"type": "integer", "x-values": [80, 81, 82]}, "name": one_of(&["a", "b", "c"]),
        "protocol": {"type": "string", "default": "TCP", "x-values": ["TCP", "UDP"]},
        "targetPort": {"x-values": [80, "web"]}, "appProtocol": text()}});
    let mut service = built_in(
        "Service",
        "",
        "Service",
        "services",
        json!({"spec": {"type": "object",
        "properties": {
            "ports": {"type": "array", "minItems": 1, "x-solid": true, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"], "items": port},
            "selector": labels, "publishNotReadyAddresses": {"type": "boolean"},
            "sessionAffinity": one_of(&["None", "ClientIP"])}},
        "status": object(json!({"conditions": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"], "items": {"type": "object", "x-values": [
                {"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2001-01-01T00:00:00Z"},
                {"type": "B", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2001-01-01T00:00:00Z"}]}}}))}),
    );
    service.base = json!({"spec": {"clusterIP": "None", "ports": [{"port": 90, "name": "z"}]}});
    service.status = true;
    let mut pod = built_in(
        "Pod",
        "",
        "Pod",
        "pods",
        json!({"spec": pod_spec(), "status": object(json!({
        "phase": one_of(&["Pending", "Running"]), "podIPs": {"type": "array", "x-values": [[{"ip": "10.0.0.1"}], null]},
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "x-values": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]}}}))}),
    );
    pod.status = true;
    let container = json!({"type": "object", "x-values": [{"name": "e", "image": "x"}, {"name": "f", "image": "x"},
        {"name": "f", "image": "x", "targetContainerName": "one"}]});
    let ephemeral = object(json!({"ephemeralContainers": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "x-solid": true, "items": container}}));
    let resources = json!({"x-values": [{"requests": {"cpu": "1"}}, {"requests": {"memory": "2Gi"}}, {"requests": {"cpu": "2000m", "memory": "1Gi"}}]});
    let resized = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "x-solid": true,
        "minItems": 1, "items": {"type": "object", "x-solid": true, "required": ["name"], "properties": {
            "name": one_of(&["one", "two"]), "image": one_of(&["x"]), "resources": resources}}});
    pod.others = vec![
        ("ephemeralcontainers", object(json!({"spec": ephemeral}))),
        ("resize", object(json!({"spec": object(json!({"containers": resized}))}))),
    ];
    pod.base = json!({"spec": {"containers": [{"name": "one", "image": "x"}]}});
    let mut replica_set = built_in(
        "ReplicaSet",
        "apps",
        "ReplicaSet",
        "replicasets",
        json!({"spec": {"type": "object",
        "properties": {"replicas": {"type": "integer", "x-values": [0, 1, 2]},
            "minReadySeconds": {"type": "integer", "x-values": [0, 1]}, "template": object(json!({"spec": pod_spec()}))}},
        "status": object(json!({"replicas": {"type": "integer", "x-values": [0, 2]},
            "readyReplicas": {"type": "integer", "x-values": [0, 1]}, "observedGeneration": {"type": "integer", "x-values": [1, 2]}}))}),
    );
    // `xtask kubernetes` runs no controller of ReplicaSets: its entry in managedFields, which ours has not, would
    // change the order of the others, and with it whether a scale that changes nothing takes the time off an entry.
    (replica_set.scale, replica_set.status) = (true, true);
    replica_set.base = json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {"metadata":
        {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "one", "image": "x"}]}}}});
    let mut volume = built_in(
        "PersistentVolume",
        "",
        "PersistentVolume",
        "persistentvolumes",
        json!({
        "spec": {"type": "object", "properties": {
            "capacity": {"type": "object", "x-values": [{"storage": "1Gi"}, {"storage": "2Gi"}, {"storage": "1024Mi"}]},
            "claimRef": {"type": "object", "x-solid": true, "required": ["namespace", "name"], "properties": {
                "namespace": one_of(&["nowhere"]), "name": one_of(&["a", "b"]), "kind": one_of(&["PersistentVolumeClaim"]),
                "apiVersion": one_of(&["v1"])}},
            "mountOptions": {"type": "array", "items": text()},
            "accessModes": {"type": "array", "x-values": [["ReadWriteOnce"], ["ReadOnlyMany", "ReadWriteOnce"]]},
            "storageClassName": one_of(&["none", "other"])}}}),
    );
    (volume.namespaced, volume.watched) = (false, true);
    volume.base = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"}}});
    let path = json!({"type": "object", "x-values": [
        {"path": "/a", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}},
        {"path": "/b", "pathType": "Exact", "backend": {"service": {"name": "s", "port": {"name": "web"}}}}]});
    let mut ingress = built_in(
        "Ingress",
        "networking.k8s.io",
        "Ingress",
        "ingresses",
        json!({"spec": {"type": "object",
        "properties": {"ingressClassName": text(), "rules": {"type": "array", "minItems": 1, "x-solid": true, "items":
            {"type": "object", "x-solid": true, "required": ["http"], "properties": {"host": one_of(&["a.b", "c.d"]),
            "http": {"type": "object", "x-solid": true, "required": ["paths"], "properties": {"paths":
                {"type": "array", "minItems": 1, "x-solid": true, "items": path}}}}}},
            "tls": {"type": "array", "items": {"type": "object", "x-values": [{"secretName": "t"}, {"hosts": ["a.b"]}]}}}},
        "status": object(json!({"loadBalancer": {"type": "object", "x-values": [{}, {"ingress": [{"ip": "1.2.3.4"}]},
            {"ingress": [{"hostname": "h"}]}]}}))}),
    );
    ingress.status = true;
    ingress.base = json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let account = built_in(
        "ServiceAccount",
        "",
        "ServiceAccount",
        "serviceaccounts",
        json!({
        "automountServiceAccountToken": {"type": "boolean"},
        "secrets": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "x-solid": true, "required": ["name"], "properties":
                {"name": one_of(&["x", "y", "z"]), "namespace": one_of(&["n", "m"])}}},
        "imagePullSecrets": {"type": "array", "items": {"type": "object", "x-values": [{"name": "a"}, {"name": "b"}]}}}),
    );
    let mut all = vec![config_map, service, pod, replica_set, volume, ingress, account];
    all.extend(super::more::more());
    all
}

/// Every sort of field. `other`: with the lists and maps of another type.
pub fn every_sort(other: bool) -> Value {
    let types = |one: &'static str, two: &'static str| if other { two } else { one };
    let keyed = |list_type: &str, keys: &[&str], items: Value| match list_type {
        "map" => {
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items})
        }
        other => json!({"type": "array", "x-kubernetes-list-type": other, "items": items}),
    };
    let ports = json!({"type": "object", "required": ["port"], "properties": {
        "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP", "x-values": ["TCP", "UDP"]},
        "name": text(), "target": object(json!({"a": text(), "b": text()}))}});
    let named = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "x-values": ["a", "b", "c"]}, "value": text(),
        "options": {"type": "object", "additionalProperties": text()},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
        "inner": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "v": text()}}}}});
    let mut spec = json!({
        "text": text(), "count": {"type": "integer"}, "flag": {"type": "boolean"}, "replicas": {"type": "integer"},
        "port": {"x-kubernetes-int-or-string": true}, "maybe": {"type": "string", "nullable": true},
        "defaulted": {"type": "string", "default": "d"},
        "withDefaults": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "A"}, "b": text()}},
        "ports": keyed("map", &["port", "protocol"], ports),
        "named": keyed(types("map", "atomic"), &["name"], named),
        "tags": keyed(types("set", "atomic"), &[], text()),
        "numbers": keyed("set", &[], json!({"type": "integer"})),
        "args": keyed(types("atomic", "set"), &[], text()),
        "plain": {"type": "array", "items": object(json!({"a": text(), "b": text()}))},
        "whole": {"type": "object", "x-kubernetes-map-type": types("atomic", "granular"), "properties": {"a": text(), "b": text()}},
        "labels": {"type": "object", "additionalProperties": text()},
        "fixed": {"type": "object", "x-kubernetes-map-type": types("granular", "atomic"), "additionalProperties": text()},
        "deep": {"type": "object", "additionalProperties": object(json!({"a": text(), "b": text()}))},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": text(),
            "list": {"type": "array", "x-kubernetes-list-type": "set", "items": text()}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    });
    if other {
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("text");
            fields.remove("deep");
            fields.insert("later".into(), object(json!({"a": text(), "b": text()})));
        }
    }
    let status = object(json!({"phase": text(), "replicas": {"type": "integer"}, "observed": {"type": "integer"},
        "conditions": keyed("map", &["type"], json!({"type": "object", "required": ["type"], "properties":
            {"type": {"type": "string", "x-values": ["A", "B"]}, "status": text(), "reason": text()}}))}));
    object(json!({"spec": object(spec), "status": status, "data": {"type": "object", "additionalProperties": text()}}))
}

fn custom(name: &'static str, group: &str, kind: &'static str, plural: &'static str) -> Subject {
    Subject {
        name,
        versions: vec![("v1".into(), every_sort(false))],
        group: group.into(),
        kind,
        plural,
        namespaced: true,
        status: true,
        scale: true,
        others: Vec::new(),
        custom: true,
        watched: false,
        base: json!({}),
    }
}

/// Custom kinds, of a group of the run's own.
pub fn customs(group: &str) -> Vec<Subject> {
    let one = custom("custom, one version", group, "Single", "singles");
    let mut two = custom("custom, two versions", group, "Double", "doubles");
    two.versions.push(("v2".into(), every_sort(true)));
    let shifting = custom("custom, schema changes", group, "Shifting", "shiftings");
    let mut bare = custom("custom, no subresources", group, "Bare", "bares");
    (bare.status, bare.scale, bare.namespaced) = (false, false, false);
    let mut open = custom("custom, no schema", group, "Open", "opens");
    (open.status, open.scale) = (true, false);
    open.versions[0].1 = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    vec![one, two, shifting, bare, open]
}

/// A schema without what only the making of values needs.
fn clean(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "x-values" | "x-solid"))
            .map(|(name, value)| (name.clone(), clean(value)))
            .collect(),
        Value::Array(items) => items.iter().map(clean).collect(),
        other => other.clone(),
    }
}

/// The CustomResourceDefinition of a custom kind. `shifted`: after its schema has changed; `seen` is a field that shows
/// that the server knows of it.
pub fn definition(subject: &Subject, shifted: bool, seen: &str) -> Value {
    let versions = subject.versions.iter().enumerate().map(|(at, (version, schema))| {
        let schema = if shifted { every_sort(true) } else { schema.clone() };
        let mut schema = clean(&schema);
        schema["properties"][seen] = json!({"type": "string"});
        let mut subresources = json!({});
        if subject.status {
            subresources["status"] = json!({});
        }
        if subject.scale {
            subresources["scale"] =
                json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
        }
        json!({"name": version, "served": true, "storage": at == 0, "subresources": subresources,
            "schema": {"openAPIV3Schema": schema}})
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", subject.plural, subject.group)},
        "spec": {"group": subject.group, "scope": if subject.namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": subject.kind, "plural": subject.plural, "singular": subject.kind.to_lowercase(), "listKind": format!("{}List", subject.kind)},
            "versions": versions.collect::<Vec<_>>()}
    })
}
