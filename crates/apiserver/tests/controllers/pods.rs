//! What the server does about Pods that others schedule and evict, and what a fresh one has.

use super::client::Client;
use http::Method;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn runs(client: &Client, name: &str) {
    let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {
        "terminationGracePeriodSeconds": -1, "containers": [{"name": "c", "image": "i"}],
    }});
    client.create(PODS, pod).await;
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    client.create(&format!("{PODS}/{name}/binding"), binding).await;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    client.merge(&format!("{PODS}/{name}/status"), running).await;
}

async fn evict(client: &Client, name: &str) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    client.send(Method::POST, &format!("{PODS}/{name}/eviction"), JSON, eviction).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_says_where_and_changes_nothing_else() {
    let client = Client::in_memory().await;
    client
        .create(PODS, json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    client.create(&format!("{PODS}/p/binding"), binding).await;
    let pod = client.get(&format!("{PODS}/p")).await.unwrap();
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["metadata"]["generation"], 1);
    assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
    let managers = pod["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().all(|own| own["subresource"] != "binding"), "{managers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_the_labels_that_say_where_its_node_is() {
    let client = Client::in_memory().await;
    let labels = json!({
        "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/rack": "k",
    });
    client.create("/api/v1/nodes", json!({"metadata": {"name": "n", "labels": labels}})).await;
    let pod = |name: &str, spec: Value| {
        let labels = json!({"app": "web", "topology.kubernetes.io/zone": "elsewhere"});
        let mut pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
        pod
    };
    client.create(PODS, pod("bound", json!({}))).await;
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    client.create(&format!("{PODS}/bound/binding"), binding).await;
    client.create(PODS, pod("placed", json!({"nodeName": "n"}))).await;
    let expected = json!({"app": "web", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
    for name in ["bound", "placed"] {
        assert_eq!(client.get(&format!("{PODS}/{name}")).await.unwrap()["metadata"]["labels"], expected, "{name}");
    }
    // A node that nobody knows says nothing.
    client.create(PODS, pod("lost", json!({"nodeName": "absent"}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_grows_no_larger_than_its_node() {
    let client = Client::in_memory().await;
    for (name, system) in [("linux", "linux"), ("windows", "windows")] {
        let meta = json!({"name": name, "labels": {"kubernetes.io/os": system}});
        let status = json!({"allocatable": {"cpu": "2", "memory": "2Gi"}});
        client.create("/api/v1/nodes", json!({"metadata": meta, "status": status})).await;
    }
    let containers = |cpu: &str, memory: &str| json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    for node in ["linux", "windows", "absent"] {
        let spec = json!({"nodeName": node, "containers": containers("500m", "512Mi")});
        client.create(PODS, json!({"metadata": {"name": node}, "spec": spec})).await;
    }
    let resize = async |name: &str, cpu: &str, memory: &str| {
        let path = format!("{PODS}/{name}/resize");
        let patch = json!({"spec": {"containers": containers(cpu, memory)}});
        let (code, answer) = client.send(Method::PATCH, &path, "application/strategic-merge-patch+json", patch).await;
        let cause = answer["details"]["causes"][0]["reason"].as_str().unwrap_or_default().to_owned();
        (code, cause, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(resize("linux", "1", "512Mi").await.0, 200);
    let (code, cause, why) = resize("linux", "4", "3Gi").await;
    assert_eq!((code, &*cause), (403, "NodeCapacity"), "{why}");
    let expected = "node didn't have enough allocatable resources: cpu, requested: 4000, allocatable: 2000; memory, requested: 3221225472, allocatable: 2147483648";
    assert!(why.ends_with(expected), "{why}");
    let (code, cause, why) = resize("windows", "1", "512Mi").await;
    assert_eq!((code, &*cause), (403, "UnsupportedPlatform"), "{why}");
    assert_eq!(resize("windows", "500m", "512Mi").await.0, 200, "nothing changes");
    assert_eq!(resize("absent", "1", "512Mi").await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_resizes_a_pod_owns_all_that_was_said() {
    let client = Client::in_memory().await;
    let container = json!({"name": "c", "image": "i"});
    client.create(PODS, json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).await;
    let applied =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}});
    let path = format!("{PODS}/p/resize?fieldManager=m");
    let (code, pod) = client.send(Method::PATCH, &path, "application/apply-patch+yaml", applied).await;
    let managers = pod["metadata"]["managedFields"].as_array().unwrap();
    let owned = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
    let own = |entry: &&Value| entry["manager"] == "m" && entry["subresource"] == "resize";
    assert_eq!((code, &managers.iter().find(own).unwrap()["fieldsV1"]), (200, &owned));
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_are_charged_to_the_budget() {
    let client = Client::in_memory().await;
    for name in ["a", "b", "c"] {
        runs(&client, name).await;
    }
    assert_eq!(client.get(&format!("{PODS}/a")).await.unwrap()["spec"]["terminationGracePeriodSeconds"], 1);
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = json!({"metadata": {"name": "one"}, "spec": {"minAvailable": 2, "selector": selector}});
    client.create(BUDGETS, budget).await;
    let (code, answer) = evict(&client, "a").await;
    assert_eq!(code, 429, "no controller has looked at it yet: {answer}");
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2,
        "expectedPods": 3});
    client.merge(&format!("{BUDGETS}/one/status"), json!({"status": status})).await;

    let (code, answer) = evict(&client, "a").await;
    assert_eq!((code, &answer["status"]), (201, &json!("Success")), "{answer}");
    let pod = client.get(&format!("{PODS}/a")).await.unwrap();
    assert!(pod["metadata"].get("deletionTimestamp").is_some());
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|own| own["type"] == "DisruptionTarget" && own["status"] == "True"));
    let status = client.get(&format!("{BUDGETS}/one")).await.unwrap()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"].get("a").is_some(), "{status}");

    let (code, answer) = evict(&client, "b").await;
    assert_eq!(code, 429);
    assert!(
        answer["details"]["causes"][0]["message"].as_str().unwrap().contains("does not allow evicting"),
        "{answer}"
    );

    let second = json!({"metadata": {"name": "two"}, "spec": {"minAvailable": 2, "selector": selector}});
    client.create(BUDGETS, second).await;
    assert_eq!(evict(&client, "b").await.0, 500, "two budgets cannot both be asked");
    client.merge(&format!("{PODS}/c/status"), json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(evict(&client, "c").await.0, 201, "what does not run is not disrupted");
    let wrong = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}});
    assert_eq!(client.send(Method::POST, &format!("{PODS}/b/eviction"), JSON, wrong).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ca_is_published_again_when_it_is_deleted_or_changed() {
    let client = Client::in_memory().await;
    let map = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let ca = client.get(map).await.unwrap()["data"]["ca.crt"].clone();
    client.delete(map, "").await;
    client.until(map, "again", |own| own.is_some_and(|own| own["data"]["ca.crt"] == ca)).await;
    client.merge(map, json!({"data": {"ca.crt": "", "more": "x"}})).await;
    client.until(map, "as it was", |own| own.is_some_and(|own| own["data"] == json!({"ca.crt": ca}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_server_says_what_it_is_made_of() {
    let client = Client::in_memory().await;
    let ready = |own: Option<&Value>| own.is_some_and(|own| own["status"]["conditions"][0]["status"] == "True");
    let cidr = client.until("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "ready", ready).await.unwrap();
    assert_eq!(cidr["spec"]["cidrs"][0], "10.96.0.0/16");
    let components = client.items("/api/v1/componentstatuses").await;
    assert_eq!(components[0]["conditions"][0]["type"], "Healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_deleted_in_a_namespace_is_said_and_keeps_nothing_else() {
    let client = Client::in_memory().await;
    client.create("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    client.create("/api/v1/namespaces/n/secrets", json!({"metadata": {"name": "s"}})).await;
    client.create("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "m"}})).await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({"metadata": {"name": "w"}, "webhooks": [{
        "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}],
    }]});
    client.create(hooks, hook).await;
    client.delete("/api/v1/namespaces/n", "").await;
    client.gone("/api/v1/namespaces/n/secrets/s").await;
    client
        .until("/api/v1/namespaces/n", "told why", |own| {
            let conditions = own.unwrap()["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let failed = |own: &Value| own["type"] == "NamespaceDeletionContentFailure" && own["status"] == "True";
            conditions.iter().any(|own| failed(own) && own["message"].as_str().unwrap().contains("w.example.com"))
        })
        .await;
    client.delete(&format!("{hooks}/w"), "").await;
    client.gone("/api/v1/namespaces/n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_charged_by_class() {
    let client = Client::in_memory().await;
    let quota = "/api/v1/namespaces/default/resourcequotas";
    let name = "gold.deviceclass.resource.k8s.io/devices";
    client.create(quota, json!({"metadata": {"name": "q"}, "spec": {"hard": {name: "3"}}})).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |called: &str| {
        json!({"metadata": {"name": called}, "spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 1}},
            {"name": "b", "firstAvailable": [
                {"name": "x", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 1},
                {"name": "y", "deviceClassName": "silver", "allocationMode": "ExactCount", "count": 5},
            ]},
        ]}}})
    };
    client.create(claims, claim("c")).await;
    client.until(&format!("{quota}/q"), "charged", |own| own.unwrap()["status"]["used"][name] == "2").await;
    assert_eq!(client.send(Method::POST, claims, JSON, claim("d")).await.0, 403);
    client.delete(&format!("{claims}/c"), "").await;
    client.until(&format!("{quota}/q"), "given back", |own| own.unwrap()["status"]["used"][name] == "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_namespace_go_before_all_else() {
    let client = Client::in_memory().await;
    client.create("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let pod = json!({"metadata": {"name": "p", "finalizers": ["example.com/wait"]}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
    }});
    client.create("/api/v1/namespaces/n/pods", pod).await;
    client.create("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "m"}})).await;
    client.delete("/api/v1/namespaces/n", "").await;
    let pod = "/api/v1/namespaces/n/pods/p";
    client.until(pod, "deleted", |own| own.unwrap()["metadata"].get("deletionTimestamp").is_some()).await;
    client
        .until("/api/v1/namespaces/n", "told what holds it", |own| {
            own.unwrap()["status"]["conditions"].as_array().is_some_and(|own| !own.is_empty())
        })
        .await;
    assert!(client.get("/api/v1/namespaces/n/configmaps/m").await.is_some());
    client.merge(pod, json!({"metadata": {"finalizers": null}})).await;
    client.gone("/api/v1/namespaces/n").await;
}
