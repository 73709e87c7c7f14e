//! Quotas: what a namespace may hold, whoever is faster.

mod access_support;

use access_support::World;
use serde_json::{Value, json};

const BASE: &str = "/api/v1/namespaces/default";

async fn quota(world: &World, spec: Value) -> Value {
    world.make(&format!("{BASE}/resourcequotas"), json!({"metadata": {"name": "q"}, "spec": spec})).await
}

/// What is used, once what the quota limits has been counted.
async fn used(world: &World) -> Value {
    for _ in 0..1000 {
        let (code, quota) = world.admin("GET", &format!("{BASE}/resourcequotas/q"), &Value::Null).await;
        assert_eq!(code, 200);
        if quota["status"]["hard"] == quota["spec"]["hard"] {
            return quota["status"]["used"].clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the quota was never counted");
}

fn claim(name: &str, class: Option<&str>, size: &str) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}});
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = class.into();
    }
    claim
}

#[tokio::test]
async fn counts_are_charged_and_given_back() {
    let world = World::new().await;
    world.make(&format!("{BASE}/secrets"), json!({"metadata": {"name": "before"}})).await;
    let made =
        quota(&world, json!({"hard": {"count/secrets": "2", "configmaps": "2", "count/deployments.apps": "1"}})).await;
    // As in Kubernetes it is counted a moment later, and nothing waits for that.
    assert_eq!(made["status"], json!({}));
    let counted = json!({"count/secrets": "1", "configmaps": "1", "count/deployments.apps": "0"});
    assert_eq!(used(&world).await, counted);
    world.make(&format!("{BASE}/secrets"), json!({"metadata": {"name": "a"}})).await;
    for path in ["secrets", "secrets?dryRun=All"] {
        let (code, answer) = world.admin("POST", &format!("{BASE}/{path}"), &json!({"metadata": {"name": "b"}})).await;
        assert_eq!(code, 403);
        assert_eq!(
            answer["message"],
            "secrets \"b\" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2"
        );
    }
    assert_eq!(used(&world).await["count/secrets"], "2");
    assert_eq!(world.admin("DELETE", &format!("{BASE}/secrets/a"), &Value::Null).await.0, 200);
    assert_eq!(used(&world).await["count/secrets"], "1");
    world.make(&format!("{BASE}/secrets"), json!({"metadata": {"name": "b"}})).await;
    assert_eq!(world.admin("DELETE", &format!("{BASE}/secrets"), &Value::Null).await.0, 200);
    assert_eq!(used(&world).await["count/secrets"], "0");
    // New limits count at once.
    let (code, _) =
        world.admin("PATCH", &format!("{BASE}/resourcequotas/q"), &json!({"spec": {"hard": {"services": "1"}}})).await;
    assert_eq!(code, 200);
    let (code, _) = world
        .admin(
            "POST",
            &format!("{BASE}/services"),
            &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    assert_eq!(code, 403);
    assert_eq!(used(&world).await["services"], "1");
}

#[tokio::test]
async fn what_a_new_quota_limits_is_charged_from_its_first_moment() {
    let world = World::new().await;
    let transaction = |limit: &str| {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": limit}}});
        let one = |resource: &str, object: Value| json!({"verb": "create", "version": "v1", "resource": resource, "namespace": "default", "object": object});
        let secret = |name: &str| one("secrets", json!({"metadata": {"name": name}}));
        let operations = [one("resourcequotas", quota), secret("a"), secret("b")];
        json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": operations}})
    };
    let path = "/apis/transactions.conductor.io/v1alpha1/transactions";
    let (code, answer) = world.admin("POST", path, &transaction("1")).await;
    assert_eq!(code, 403, "{answer}");
    let (code, answer) = world.admin("POST", path, &transaction("2")).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(used(&world).await["count/secrets"], "2");
}

#[tokio::test]
async fn amounts_are_charged_by_class_and_scope() {
    let world = World::new().await;
    let fast = "fast.storageclass.storage.k8s.io/requests.storage";
    quota(&world, json!({"hard": {"requests.storage": "10Gi", fast: "2Gi", "persistentvolumeclaims": "3"}})).await;
    let claims = format!("{BASE}/persistentvolumeclaims");
    for (name, class, size, expected) in [
        ("a", Some("fast"), "2Gi", 201),
        ("b", Some("fast"), "1Gi", 403),
        ("c", Some("slow"), "9Gi", 403),
        ("d", None, "8Gi", 201),
        ("e", None, "1Mi", 403),
    ] {
        let (code, answer) = world.admin("POST", &claims, &claim(name, class, size)).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
    assert_eq!(used(&world).await, json!({"requests.storage": "10Gi", fast: "2Gi", "persistentvolumeclaims": "2"}));
    // A claim that a finalizer holds is still there, and charged.
    assert_eq!(world.admin("DELETE", &format!("{claims}/a"), &Value::Null).await.0, 200);

    world.namespace("pods").await;
    let base = "/api/v1/namespaces/pods";
    let spec = json!({"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["NotTerminating"]});
    world.make(&format!("{base}/resourcequotas"), json!({"metadata": {"name": "q"}, "spec": spec})).await;
    let pod = |name: &str, cpu: &str, deadline: Option<i64>| {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
        if !cpu.is_empty() {
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        }
        if let Some(seconds) = deadline {
            pod["spec"]["activeDeadlineSeconds"] = seconds.into();
        }
        pod
    };
    let pods = format!("{base}/pods");
    let (code, answer) = world.admin("POST", &pods, &pod("unsaid", "", None)).await;
    assert_eq!(code, 403);
    assert_eq!(answer["message"], "pods \"unsaid\" is forbidden: failed quota: q: must specify requests.cpu for: c");
    assert_eq!(world.admin("POST", &pods, &pod("big", "2", None)).await.0, 403);
    world.make(&pods, pod("a", "500m", None)).await;
    assert_eq!(world.admin("POST", &pods, &pod("b", "100m", None)).await.0, 403);
    // Out of scope, and out of the count once it has finished.
    world.make(&pods, pod("c", "", Some(5))).await;
    assert_eq!(
        world.admin("PATCH", &format!("{pods}/a/status"), &json!({"status": {"phase": "Succeeded"}})).await.0,
        200
    );
    world.make(&pods, pod("b", "1", None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creates_never_exceed_it() {
    let world = World::new().await;
    quota(&world, json!({"hard": {"count/secrets": "100", "requests.storage": "50Gi"}})).await;
    let mut tasks = Vec::new();
    for n in 0..300 {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            let (path, object) = if n % 2 == 0 {
                ("secrets", json!({"metadata": {"name": format!("s{n}")}}))
            } else {
                ("persistentvolumeclaims", claim(&format!("c{n}"), None, "1Gi"))
            };
            let mut tries = 0;
            loop {
                let (code, answer) = world.admin("POST", &format!("{BASE}/{path}"), &object).await;
                match code {
                    201 => {
                        // Some go at once: what they held is free for others.
                        if n % 10 == 0 {
                            let (code, answer) =
                                world.admin("DELETE", &format!("{BASE}/secrets/s{n}"), &Value::Null).await;
                            assert_eq!(code, 200, "{answer}");
                            return (path, false);
                        }
                        return (path, true);
                    }
                    403 => return (path, false),
                    // Too many at once: tried again, as clients do.
                    429 if tries < 1000 => {
                        tries += 1;
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                    _ => panic!("{code} {answer}"),
                }
            }
        }));
    }
    let (mut secrets, mut claims) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            ("secrets", true) => secrets += 1,
            (_, true) => claims += 1,
            _ => {}
        }
    }
    assert_eq!(claims, 50);
    assert!((90..=100).contains(&secrets), "{secrets}");
    assert_eq!(used(&world).await, json!({"count/secrets": secrets.to_string(), "requests.storage": "50Gi"}));
    let (_, list) = world.admin("GET", &format!("{BASE}/secrets"), &Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), secrets);
}

#[tokio::test]
async fn a_transaction_is_charged_as_a_whole() {
    let world = World::new().await;
    quota(&world, json!({"hard": {"count/secrets": "2"}})).await;
    let transaction = |names: &[&str]| {
        let operations: Vec<Value> = names
            .iter()
            .map(|name| json!({"verb": "create", "version": "v1", "resource": "secrets", "namespace": "default", "object": {"metadata": {"name": name}}}))
            .collect();
        json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": operations}})
    };
    let path = "/apis/transactions.conductor.io/v1alpha1/transactions";
    let (code, answer) = world.admin("POST", path, &transaction(&["a", "b", "c"])).await;
    assert_eq!(code, 403, "{answer}");
    assert_eq!(used(&world).await["count/secrets"], "0");
    let (code, answer) = world.admin("POST", path, &transaction(&["a", "b"])).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(used(&world).await["count/secrets"], "2");
    // Two Services of one transaction have two addresses.
    let service = |name: &str| {
        json!({"verb": "create", "version": "v1", "resource": "services", "namespace": "default",
        "object": {"metadata": {"name": name}, "spec": {"clusterIP": "10.96.0.77", "ports": [{"port": 80}]}}})
    };
    let same = json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": [service("x"), service("y")]}});
    let (code, answer) = world.admin("POST", path, &same).await;
    assert_eq!(code, 422, "{answer}");
}

/// A kind of claim whose definition says what it is charged by.
async fn buckets(world: &World) {
    let charge = json!({"class": [".spec.class", ".status.class"], "requests": ".spec.resources.requests", "granted": ".status.granted", "per": "bucketclass.example.com"});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    world
        .make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json!({
            "metadata": {"name": "bucketclaims.example.com", "annotations": {"conductor.io/quota": charge.to_string()}},
            "spec": {
                "group": "example.com", "names": {"plural": "bucketclaims", "kind": "BucketClaim"}, "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}],
            },
        }))
        .await;
    for _ in 0..500 {
        if world.admin("GET", BUCKETS, &Value::Null).await.0 == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the kind is not served");
}

const BUCKETS: &str = "/apis/example.com/v1/namespaces/default/bucketclaims";

fn bucket(name: &str, class: &str, storage: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "BucketClaim", "metadata": {"name": name}, "spec": {"class": class, "resources": {"requests": {"storage": storage}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_of_any_kind_are_charged_by_number_and_amount_per_class() {
    let world = World::new().await;
    buckets(&world).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({
        "count/bucketclaims.example.com": "100",
        "bucketclaims.example.com/requests.storage": "1000Gi",
        "gold.bucketclass.example.com/requests.storage": "25Gi",
        "gold.bucketclass.example.com/bucketclaims": "50",
    });
    world.make(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let mut tasks = Vec::new();
    for n in 0..200 {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            let class = if n % 2 == 0 { "gold" } else { "silver" };
            let (code, answer) = world.admin("POST", BUCKETS, &bucket(&format!("b{n}"), class, "2Gi")).await;
            assert!(
                code == 201 || (code == 403 && answer["message"].as_str().unwrap().contains("exceeded quota: q")),
                "{code} {answer}"
            );
            (class, code == 201)
        }));
    }
    let mut made = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            ("gold", true) => made.0 += 1,
            (_, true) => made.1 += 1,
            _ => {}
        }
    }
    // 12 of 2Gi fit into 25Gi; of the others as many as the number allows.
    assert_eq!(made, (12, 88));
    let used = || async { world.admin("GET", &format!("{quotas}/q"), &Value::Null).await.1["status"]["used"].clone() };
    assert_eq!(
        used().await,
        json!({
            "count/bucketclaims.example.com": "100", "bucketclaims.example.com/requests.storage": "200Gi",
            "gold.bucketclass.example.com/requests.storage": "24Gi", "gold.bucketclass.example.com/bucketclaims": "12",
        })
    );
    // A class that is chosen later is charged then; deletion gives back at once.
    let list = world.admin("GET", BUCKETS, &Value::Null).await.1;
    let silver = list["items"].as_array().unwrap().iter().find(|own| own["spec"]["class"] == "silver").unwrap();
    let path = format!("{BUCKETS}/{}", silver["metadata"]["name"].as_str().unwrap());
    assert_eq!(world.admin("DELETE", &path, &Value::Null).await.0, 200);
    let mut late = bucket("late", "", "1Gi");
    world.make(BUCKETS, late.clone()).await;
    late = json!({"status": {"class": "gold"}});
    assert_eq!(world.admin("PATCH", &format!("{BUCKETS}/late/status"), &late).await.0, 200);
    let now = used().await;
    assert_eq!(
        (&now["gold.bucketclass.example.com/requests.storage"], &now["bucketclaims.example.com/requests.storage"]),
        (&json!("25Gi"), &json!("199Gi"))
    );
    assert_eq!(world.admin("POST", BUCKETS, &bucket("more", "gold", "1Gi")).await.0, 403);
    // Who is given more than it asks for is charged that, and is not given it where the quota ends.
    assert_eq!(world.admin("DELETE", &format!("{BUCKETS}/late"), &Value::Null).await.0, 200);
    world.make(BUCKETS, bucket("little", "gold", "1")).await;
    for (granted, code, gold) in [("2Gi", 403, "25769803777"), ("1Gi", 200, "26843545600"), ("1Gi", 200, "26843545600")]
    {
        let status = json!({"status": {"granted": {"storage": granted}}});
        let (was, answer) = world.admin("PATCH", &format!("{BUCKETS}/little/status"), &status).await;
        let now = used().await["gold.bucketclass.example.com/requests.storage"].clone();
        assert_eq!((was, now), (code, json!(gold)), "{answer}");
    }
}

#[tokio::test]
async fn claims_of_any_kind_have_limits() {
    let world = World::new().await;
    buckets(&world).await;
    // by names that Kubernetes knows, and by others with their group
    let limit = json!({"type": "example.com/BucketClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi", "example.com/objects": "20"}, "defaultRequest": {"storage": "2Gi", "example.com/objects": "5"}});
    world
        .make("/api/v1/namespaces/default/limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": [limit]}}))
        .await;
    let mut bare = bucket("bare", "gold", "");
    bare["spec"] = json!({"class": "gold"});
    assert_eq!(
        world.make(BUCKETS, bare).await["spec"]["resources"]["requests"],
        json!({"storage": "2Gi", "objects": "5"})
    );
    let mut many = bucket("many", "gold", "2Gi");
    many["spec"]["resources"]["requests"]["objects"] = json!("30");
    let (code, answer) = world.admin("POST", BUCKETS, &many).await;
    let said = "maximum objects usage per example.com/BucketClaim is 20, but request is 30";
    assert!(code == 403 && answer["message"].as_str().unwrap().ends_with(said), "{answer}");
    for (storage, said) in [
        ("512Mi", "minimum storage usage per example.com/BucketClaim is 1Gi, but request is 512Mi"),
        ("11Gi", "maximum storage usage per example.com/BucketClaim is 10Gi, but request is 11Gi"),
    ] {
        let (code, answer) = world.admin("POST", BUCKETS, &bucket("x", "gold", storage)).await;
        assert!(code == 403 && answer["message"].as_str().unwrap().ends_with(said), "{answer}");
    }
}

/// The usage of one name after a write to a Pod.
async fn charged(world: &World, path: &str, patch: Value) -> Value {
    let (code, answer) = world.admin("PATCH", &format!("{BASE}/pods/{path}"), &patch).await;
    assert_eq!(code, 200, "{path} {patch}: {answer}");
    let used = used(world).await;
    json!([used["requests.cpu"], used["limits.cpu"]])
}

#[tokio::test]
async fn a_resized_pod_is_charged_for_what_it_still_has() {
    let world = World::new().await;
    quota(&world, json!({"hard": {"requests.cpu": "100", "limits.cpu": "100"}})).await;
    let resources = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
    let containers = |resources: Value| json!([{"name": "c", "image": "x", "resources": resources}]);
    let resized = |request: &str, limit: &str| json!({"spec": {"containers": containers(resources(request, limit))}});
    let mut spec = json!({"containers": containers(resources("8", "9"))});
    // One that has run and gone holds nothing, whatever is said of it; a sidecar holds what it has.
    let init = |name: &str, resources: Value| json!({"name": name, "image": "x", "resources": resources});
    spec["initContainers"] = json!([init("i", resources("2", "3")), init("s", resources("1", "2"))]);
    spec["initContainers"][1]["restartPolicy"] = "Always".into();
    world.make(&format!("{BASE}/pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await;
    assert_eq!(used(&world).await, json!({"requests.cpu": "9", "limits.cpu": "11"}));

    let has = |name: &str, resources: Value, allocated: &str| {
        let mut own = json!({"name": name, "image": "x", "imageID": "", "ready": true, "restartCount": 0, "resources": resources});
        own["allocatedResources"] = json!({"cpu": allocated});
        own
    };
    let status = |container: Value| {
        let sidecar = has("s", resources("4", "5"), "1");
        let status = json!({"containerStatuses": [container], "initContainerStatuses": [has("i", resources("90", "90"), "90"), sidecar]});
        json!({"status": status})
    };
    // The node has given more than the spec says: 20 and 4, 21 and 5.
    let given = charged(&world, "p/status", status(has("c", resources("20", "21"), "8"))).await;
    assert_eq!(given, json!(["24", "26"]));
    assert_eq!(charged(&world, "p/resize", resized("1", "2")).await, json!(["24", "26"]), "it still has that");
    let less = charged(&world, "p/status", status(has("c", resources("1", "2"), "3"))).await;
    assert_eq!(less, json!(["7", "7"]), "what is set aside counts as a request only");
    assert_eq!(charged(&world, "p/resize", resized("50", "60")).await, json!(["54", "65"]), "it may get that");
    let pending = |reason: &str| json!({"status": {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}});
    assert_eq!(charged(&world, "p/status", pending("Deferred")).await, json!(["54", "65"]));
    assert_eq!(charged(&world, "p/status", pending("Infeasible")).await, json!(["7", "7"]), "it never will");
}

#[tokio::test]
async fn storage_is_charged_in_whole_bytes() {
    let world = World::new().await;
    quota(&world, json!({"hard": {"requests.storage": "10"}})).await;
    let claims = format!("{BASE}/persistentvolumeclaims");
    world.make(&claims, claim("a", None, "1500m")).await;
    assert_eq!(used(&world).await["requests.storage"], "2");
    world.make(&claims, claim("b", None, "7100m")).await;
    let (code, answer) = world.admin("POST", &claims, &claim("c", None, "100m")).await;
    assert_eq!(code, 403, "{answer}");
    let allocated = json!({"status": {"allocatedResources": {"storage": "1700m"}}});
    assert_eq!(world.admin("PATCH", &format!("{claims}/a/status"), &allocated).await.0, 200);
    assert_eq!(used(&world).await["requests.storage"], "10");
}

#[tokio::test]
async fn a_pod_that_should_be_gone_is_not_charged() {
    let world = World::new().await;
    quota(&world, json!({"hard": {"pods": "1", "count/pods": "5"}})).await;
    let pod = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/held"]}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]}});
    let pods = format!("{BASE}/pods");
    world.make(&pods, pod("a")).await;
    let (path, used_by) = (format!("{pods}/a"), |pods: &str, all: &str| json!({"pods": pods, "count/pods": all}));
    assert_eq!(world.admin("DELETE", &path, &Value::Null).await.0, 200);
    assert_eq!(used(&world).await, used_by("1", "1"), "it has its grace");
    assert_eq!(world.admin("DELETE", &format!("{path}?gracePeriodSeconds=0"), &Value::Null).await.0, 200);
    assert_eq!(used(&world).await, used_by("0", "1"));
    world.make(&pods, pod("b")).await;
    assert_eq!(world.admin("PATCH", &path, &json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(used(&world).await, used_by("1", "1"));
}
