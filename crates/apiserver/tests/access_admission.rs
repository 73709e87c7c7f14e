//! The admission that clients of a default kube-apiserver see.

mod access_support;
#[path = "admission/mutating.rs"]
mod mutating;
#[path = "admission/pods.rs"]
mod pods;
#[path = "admission/policies.rs"]
mod policies;
mod webhook_server;

use access_support::World;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_pod_gets_what_every_pod_has() {
    let world = World::new().await;
    // Right after its namespace, before its account is there.
    world.namespace("new").await;
    let made = world.make("/api/v1/namespaces/new/pods", pod("p", json!({}))).await;
    let spec = &made["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"],
        json!({"expirationSeconds": 3607, "path": "token"})
    );
    let mount = json!({"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));

    let none = world.make(PODS, pod("none", json!({"automountServiceAccountToken": false}))).await;
    assert!(none["spec"].get("volumes").is_none());
    let (code, answer) = world.admin("POST", PODS, &pod("x", json!({"serviceAccountName": "nobody"}))).await;
    assert_eq!(code, 403);
    assert_eq!(
        answer["message"],
        "pods \"x\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found"
    );
    let critical = world.make(PODS, pod("critical", json!({"priorityClassName": "system-node-critical"}))).await;
    assert_eq!(critical["spec"]["priority"], 2_000_001_000);
    for (spec, expected) in [
        (json!({"priorityClassName": "nope"}), "no PriorityClass with name nope was found"),
        (json!({"priority": 5}), "the integer value of priority (5) must not be provided"),
        (json!({"runtimeClassName": "nope"}), "RuntimeClass \"nope\" not found"),
    ] {
        let (code, answer) = world.admin("POST", PODS, &pod("y", spec)).await;
        assert!(code == 403 && answer["message"].as_str().unwrap().contains(expected), "{code} {answer}");
    }
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    world.make(classes, json!({"metadata": {"name": "mine"}, "value": 7, "globalDefault": true})).await;
    let (code, _) =
        world.admin("POST", classes, &json!({"metadata": {"name": "other"}, "value": 8, "globalDefault": true})).await;
    assert_eq!(code, 403);
    let by_default = world.make(PODS, pod("by-default", json!({}))).await;
    assert_eq!(
        (&by_default["spec"]["priority"], &by_default["spec"]["priorityClassName"]),
        (&json!(7), &json!("mine"))
    );
    world
        .make(
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}}}),
        )
        .await;
    let vm = world.make(PODS, pod("vm", json!({"runtimeClassName": "vm"}))).await;
    assert_eq!((&vm["spec"]["overhead"]["cpu"], &vm["spec"]["nodeSelector"]["vm"]), (&json!("250m"), &json!("yes")));
    let node = world.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!(node["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
}

#[tokio::test]
async fn limits_of_a_namespace_are_filled_in_and_held() {
    let world = World::new().await;
    let limits = json!([
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]);
    world
        .make("/api/v1/namespaces/default/limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}))
        .await;
    let made = world.make(PODS, pod("p", json!({}))).await;
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let big = json!({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "2"}}}]});
    let (code, answer) = world.admin("POST", PODS, &pod("big", big)).await;
    assert_eq!(code, 403);
    assert_eq!(answer["message"], "pods \"big\" is forbidden: maximum cpu usage per Container is 1, but limit is 2");
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |size: &str| json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}});
    for (size, expected) in [("512Mi", 403), ("3Gi", 403), ("2Gi", 201)] {
        let (code, answer) = world.admin("POST", claims, &claim(size)).await;
        assert_eq!(code, expected, "{size}: {answer}");
    }
}

#[tokio::test]
async fn claims_and_ingresses_get_their_default_class() {
    let world = World::new().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let class = |name: &str, default: &str, grows: bool| {
        json!({
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": "p", "allowVolumeExpansion": grows,
        })
    };
    world.make(classes, class("plain", "false", false)).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str| json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    assert!(world.make(claims, claim("none")).await["spec"].get("storageClassName").is_none());
    world.make(classes, class("best", "true", true)).await;
    let made = world.make(claims, claim("c")).await;
    assert_eq!(made["spec"]["storageClassName"], "best");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let grow = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let mut plain = claim("plain");
    plain["spec"]["storageClassName"] = "plain".into();
    world.make(claims, plain).await;
    for (name, before, bound) in [("c", 422, 200), ("plain", 422, 403)] {
        let path = format!("{claims}/{name}");
        assert_eq!(world.admin("PATCH", &path, &grow).await.0, before, "{name}");
        let phase = json!({"status": {"phase": "Bound"}});
        assert_eq!(world.admin("PATCH", &format!("{path}/status"), &phase).await.0, 200);
        let (code, answer) = world.admin("PATCH", &path, &grow).await;
        assert_eq!(code, bound, "{name}: {answer}");
    }
    let ingress = |name: &str| json!({"metadata": {"name": name}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    assert!(world.make(ingresses, ingress("a")).await["spec"].get("ingressClassName").is_none());
    world
        .make("/apis/networking.k8s.io/v1/ingressclasses", json!({"metadata": {"name": "front", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "x.y/z"}}))
        .await;
    assert_eq!(world.make(ingresses, ingress("b")).await["spec"]["ingressClassName"], "front");
}

#[tokio::test]
async fn services_get_addresses_and_ports_of_their_own() {
    let world = World::new().await;
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: Value| {
        let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        for (field, value) in spec.as_object().unwrap() {
            service["spec"][field] = value.clone();
        }
        service
    };
    let (_, own) = world.admin("GET", &format!("{path}/kubernetes"), &Value::Null).await;
    assert_eq!(own["spec"]["clusterIP"], "10.96.0.1");
    let listening = world.0.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (_, slice) = world
        .admin("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", &Value::Null)
        .await;
    assert_eq!(slice["ports"][0]["port"], listening.address.port());
    listening.stop().await;
    let a = world.make(path, service("a", json!({}))).await;
    let ip = a["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(ip.starts_with("10.96."), "{a}");
    assert_eq!(a["spec"]["clusterIPs"], json!([ip]));
    assert_eq!((&a["spec"]["ipFamilies"], &a["spec"]["ipFamilyPolicy"]), (&json!(["IPv4"]), &json!("SingleStack")));
    for (spec, message) in [
        (json!({"clusterIP": ip}), format!("Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: provided IP is already allocated")),
        (json!({"clusterIP": "1.2.3.4"}), "Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range".into()),
        (json!({"ipFamilies": ["IPv6"]}), "Service \"x\" is invalid: spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster".into()),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), "Service \"x\" is invalid: spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services".into()),
        (json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}), "Service \"x\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767".into()),
        (json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30555}, {"name": "b", "port": 81, "protocol": "UDP", "nodePort": 30555}]}), "Service \"x\" is invalid: spec.ports[1].nodePort: Invalid value: 30555: provided port is already allocated".into()),
    ] {
        let (code, answer) = world.admin("POST", path, &service("x", spec)).await;
        assert_eq!((code, answer["message"].as_str().unwrap_or_default()), (422, message.as_str()));
    }
    let np = world.make(path, service("np", json!({"type": "NodePort", "ports": [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]}))).await;
    let port = np["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&port));
    assert_eq!(np["spec"]["ports"][1]["nodePort"], port);
    let (code, answer) = world
        .admin("POST", path, &service("x", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]})))
        .await;
    assert_eq!(code, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().ends_with("provided port is already allocated"), "{answer}");
    let headless = world.make(path, service("h", json!({"clusterIP": "None", "selector": {"a": "b"}}))).await;
    assert_eq!(
        (&headless["spec"]["clusterIPs"], &headless["spec"]["ipFamilyPolicy"]),
        (&json!(["None"]), &json!("SingleStack"))
    );
    let bare = world.make(path, service("bare", json!({"clusterIP": "None"}))).await;
    assert_eq!(
        (&bare["spec"]["ipFamilies"], &bare["spec"]["ipFamilyPolicy"]),
        (&json!(["IPv4", "IPv6"]), &json!("RequireDualStack"))
    );
    let lb = world.make(path, service("lb", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}))).await;
    assert!(lb["spec"]["healthCheckNodePort"].as_i64().unwrap() >= 30000);
    // Between types, and back.
    let to = |spec: Value| json!({"spec": spec});
    let (code, ext) =
        world.admin("PATCH", &format!("{path}/a"), &to(json!({"type": "ExternalName", "externalName": "x.y"}))).await;
    assert_eq!(code, 200, "{ext}");
    assert!(ext["spec"].get("clusterIP").is_none() && ext["spec"].get("ipFamilies").is_none(), "{ext}");
    // What it gave back is free again.
    let taken = world.make(path, service("heir", json!({"clusterIP": ip}))).await;
    assert_eq!(taken["spec"]["clusterIP"], ip.as_str());
    let (code, back) =
        world.admin("PATCH", &format!("{path}/a"), &to(json!({"type": "NodePort", "externalName": null}))).await;
    assert_eq!(code, 200, "{back}");
    assert!(
        back["spec"]["clusterIP"].as_str().unwrap().starts_with("10.96.")
            && back["spec"]["ports"][0]["nodePort"].is_i64(),
        "{back}"
    );
    let (code, plain) = world.admin("PATCH", &format!("{path}/a"), &to(json!({"type": "ClusterIP"}))).await;
    assert_eq!(code, 200, "{plain}");
    assert!(plain["spec"]["ports"][0].get("nodePort").is_none());
    assert_eq!(world.admin("DELETE", &format!("{path}/np"), &Value::Null).await.0, 200);
    // before any other is given it by chance
    world.make(path, service("again", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}))).await;
    // What a balancer has it keeps, though it is to get no more.
    let made = world.make(path, service("balancer", json!({"type": "LoadBalancer"}))).await;
    let no_more = to(json!({"allocateLoadBalancerNodePorts": false}));
    let (code, kept) = world.admin("PATCH", &format!("{path}/balancer"), &no_more).await;
    assert_eq!(code, 200, "{kept}");
    assert!(made["spec"]["ports"][0]["nodePort"].is_i64());
    assert_eq!(kept["spec"]["ports"], made["spec"]["ports"]);
    // It may give them back, and then they are free again.
    let fewer = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let (code, fewer) = world.admin("PUT", &format!("{path}/balancer"), &service("balancer", fewer)).await;
    assert!(code == 200 && fewer["spec"]["ports"][0].get("nodePort").is_none(), "{fewer}");
    let given = &made["spec"]["ports"][0]["nodePort"];
    world.make(path, service("finder", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": given}]}))).await;
    // Of old clients, who know only one of the two fields, neither is in the way.
    world.make(path, service("headless", json!({"clusterIP": "None"}))).await;
    let external = json!({"type": "ExternalName", "externalName": "x.example.com", "clusterIP": "None"});
    let (code, name) = world.admin("PUT", &format!("{path}/headless"), &service("headless", external)).await;
    assert!(code == 200 && name["spec"].get("clusterIP").is_none(), "{name}");
    // A dry run takes nothing.
    let (code, dry) = world.admin("POST", &format!("{path}?dryRun=All"), &service("dry", json!({}))).await;
    assert_eq!(code, 201);
    let ip = dry["spec"]["clusterIP"].as_str().unwrap();
    world.make(path, service("wet", json!({"clusterIP": ip}))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_services_get_the_same_address() {
    let world = World::new().await;
    let path = "/api/v1/namespaces/default/services";
    let mut tasks = Vec::new();
    for n in 0..60 {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            // All want one of four ports; the address is the server's choice.
            let object = json!({"metadata": {"name": format!("s{n}")}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30100 + n % 4}]}});
            let (code, answer) = world.admin("POST", path, &object).await;
            assert!(code == 201 || code == 422, "{code} {answer}");
            (code == 201).then(|| answer["spec"]["clusterIP"].as_str().unwrap().to_owned())
        }));
    }
    let mut addresses = Vec::new();
    for task in tasks {
        addresses.extend(task.await.unwrap());
    }
    assert_eq!(addresses.len(), 4);
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 4);
}

#[tokio::test]
async fn certificate_requests_carry_their_sender() {
    let world = World::new().await;
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {"request": CSR, "signerName": "example.com/s", "usages": ["client auth"], "username": "forged", "groups": ["system:masters"]},
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"], "verbs": ["*"]}]);
    world.make(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "csr"}, "rules": rules})).await;
    world
        .make(&format!("{rbac}/clusterrolebindings"), json!({"metadata": {"name": "csr"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "csr"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}))
        .await;
    let jane = access_support::user("jane", &["team"]);
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (code, made) = world.send(&jane, "POST", path, &request).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["spec"]["username"], &made["spec"]["groups"]),
        (&json!("jane"), &json!(["team", "system:authenticated"]))
    );
    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x"}]}});
    let (code, answer) = world.send(&jane, "PATCH", &format!("{path}/r/approval"), &approve).await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("user not permitted to approve requests with signerName \"example.com/s\""),
        "{answer}"
    );
    assert_eq!(world.admin("PATCH", &format!("{path}/r/approval"), &approve).await.0, 200);
    let masters = json!({"metadata": {"name": "m"}, "spec": {"request": CSR, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let (code, answer) = world.send(&jane, "POST", path, &masters).await;
    assert!(code == 403 && answer["message"].as_str().unwrap().contains("system:masters"), "{code} {answer}");
}

/// A request for a certificate of the group `system:masters`.
const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIak1JR0tBZ0VBTUNneEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRwdFlYTjBaWEp6TVEwd0N3WURWUVFEREFSeQpiMjkwTUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFVUxlMlRENW9iZWdIZXZYYVdRbUU1eXVZCmtjeEdFZE5STzlza1cxejFpMW1HVDZLdytPd0Y1L0JGRjJ3YmlLTGxXZWRqQk5MNFRJWER4RVZvWHB1T0NhQUEKTUFvR0NDcUdTTTQ5QkFNQ0EwZ0FNRVVDSUh3bWtZaTNkZ2dXT1RnYnF6M3BCWUF4UVlpcStueGVwZUVvMDlXVApWMnVZQWlFQTZYNzVtclY2b2VGczZ6dDkyQzFOYkhHOVhZbU5wWW9uVGtGUGRJalNwejg9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";
