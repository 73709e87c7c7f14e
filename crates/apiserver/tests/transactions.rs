//! Transactions: all or nothing, each operation as if it were sent alone.

mod common;

use std::collections::BTreeSet;

use common::Api;
use conductor_apiserver::audit::{Audit, Keep, Policy};
use conductor_apiserver::{Options, Server, User};
use http::Request;
use serde_json::{Value, json};

const TRANSACTIONS: &str = "/apis/transactions.conductor.io/v1alpha1/transactions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn transaction(operations: Value) -> Value {
    json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": operations}})
}

fn create(name: &str) -> Value {
    json!({"verb": "create", "version": "v1", "resource": "configmaps", "namespace": "default", "object": {"metadata": {"name": name}}})
}

fn patch(name: &str, patch: Value) -> Value {
    json!({"verb": "patch", "version": "v1", "resource": "configmaps", "namespace": "default", "name": name, "patch": patch})
}

#[tokio::test]
async fn it_is_found_by_discovery() {
    let api = Api::new().await;
    let (_, found) = api.get("/apis/transactions.conductor.io/v1alpha1").await;
    assert_eq!(
        (&found["resources"][0]["name"], &found["resources"][0]["verbs"]),
        (&"transactions".into(), &json!(["create"]))
    );
}

#[tokio::test]
async fn all_happens_or_nothing() {
    let api = Api::new().await;
    api.create(MAPS, &json!({"metadata": {"name": "taken"}})).await;
    let (code, status) = api.post(TRANSACTIONS, &transaction(json!([create("a"), create("taken")]))).await;
    assert_eq!((code, &status["reason"]), (409, &"AlreadyExists".into()), "{status}");
    assert!(status["message"].as_str().unwrap().starts_with("operation 1 (create configmaps"), "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.operations[1]");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, 404);
    let (code, done) = api.post(TRANSACTIONS, &transaction(json!([create("a"), create("b")]))).await;
    assert_eq!(code, 201, "{done}");
    let version =
        |at: usize| done["status"]["results"][at]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(version(1), version(0) + 1, "consecutive revisions");
}

#[tokio::test]
async fn operations_on_one_object_make_one_version_of_it() {
    let api = Api::new().await;
    let operations =
        json!([create("a"), patch("a", json!({"data": {"x": "1"}})), patch("a", json!({"data": {"y": "2"}}))]);
    let (code, done) = api.post(TRANSACTIONS, &transaction(operations)).await;
    assert_eq!(code, 201, "{done}");
    let (_, map) = api.get(&format!("{MAPS}/a")).await;
    assert_eq!(map["data"], json!({"x": "1", "y": "2"}));
    assert_eq!(map["metadata"]["resourceVersion"], done["status"]["results"][2]["resourceVersion"]);

    // the last of them changes nothing: what the ones before it did is written all the same
    let same = patch("a", json!({"data": {"x": "3"}}));
    let (code, done) = api.post(TRANSACTIONS, &transaction(json!([same, same]))).await;
    assert_eq!(code, 201, "{done}");
    let (_, map) = api.get(&format!("{MAPS}/a")).await;
    assert_eq!(map["data"], json!({"x": "3", "y": "2"}));

    // changed and deleted: who watches sees it go as it was changed
    let delete =
        json!({"verb": "delete", "version": "v1", "resource": "configmaps", "namespace": "default", "name": "a"});
    let (code, done) =
        api.post(TRANSACTIONS, &transaction(json!([patch("a", json!({"data": {"x": "4"}})), delete]))).await;
    assert_eq!(code, 201, "{done}");
    let from = map["metadata"]["resourceVersion"].as_str().unwrap();
    let (_, events) = api.get(&format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={from}")).await;
    let events: Vec<Value> = events.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> =
        events.iter().map(|e| (e["type"].as_str().unwrap(), e["object"]["data"]["x"].as_str())).collect();
    assert_eq!(seen, [("MODIFIED", Some("4")), ("DELETED", Some("4"))]);
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, 404);
}

#[tokio::test]
async fn preconditions_and_checks_hold_at_the_commit() {
    let api = Api::new().await;
    let made = api.create(MAPS, &json!({"metadata": {"name": "a"}})).await;
    let check = |preconditions: Value| json!({"verb": "check", "version": "v1", "resource": "configmaps", "namespace": "default", "name": "a", "preconditions": preconditions});
    for (preconditions, expected) in [
        (json!({"resourceVersion": "1"}), 409),
        (json!({"uid": "nobody"}), 409),
        (json!({"absent": true}), 409),
        (json!({"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}), 201),
    ] {
        let (code, answer) = api
            .post(TRANSACTIONS, &transaction(json!([check(preconditions), patch("a", json!({"data": {"k": "v"}}))])))
            .await;
        assert_eq!(code, expected, "{answer}");
    }
}

#[tokio::test]
async fn each_operation_is_validated_and_authorized_as_if_sent_alone() {
    let api = Api::new().await;
    let (code, status) = api.post(TRANSACTIONS, &transaction(json!([create("ok"), create("Not_A_Name")]))).await;
    assert_eq!((code, status["details"]["causes"][0]["field"].as_str()), (422, Some("metadata.name")), "{status}");
    let (code, _) = api.post(TRANSACTIONS, &transaction(json!([]))).await;
    assert_eq!(code, 422);
    let nobody = Api { user: User::new("nobody", Vec::<String>::new()), ..api.clone() };
    let (code, _) = nobody.post(TRANSACTIONS, &transaction(json!([create("x")]))).await;
    assert_eq!(code, 403);
}

fn core(resource: &str, namespace: &str, object: Value) -> Value {
    let mut operation = json!({"verb": "create", "version": "v1", "resource": resource, "object": object});
    if !namespace.is_empty() {
        operation["namespace"] = namespace.into();
    }
    operation
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    core("pods", "new", pod)
}

/// Everyone who has a say in an operation sees what the operations before it would do.
#[tokio::test]
async fn an_operation_sees_what_those_before_it_do() {
    let api = Api::new().await;
    let class = |group: &str, resource: &str, object: Value| json!({"verb": "create", "group": group, "version": "v1", "resource": resource, "object": object});
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let operations = json!([
        core("namespaces", "", json!({"metadata": {"name": "new"}})),
        core(
            "serviceaccounts",
            "new",
            json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]})
        ),
        core(
            "limitranges",
            "new",
            json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "250m"}}]}})
        ),
        class("scheduling.k8s.io", "priorityclasses", json!({"metadata": {"name": "urgent"}, "value": 77})),
        class(
            "storage.k8s.io",
            "storageclasses",
            json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "x"})
        ),
        pod("before", json!({"priorityClassName": "urgent"})),
        core("resourcequotas", "new", json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})),
        pod("after", json!({})),
        core("persistentvolumeclaims", "new", claim),
    ]);
    let (code, done) = api.post(TRANSACTIONS, &transaction(operations)).await;
    assert_eq!(code, 201, "{done}");
    let get = |what: &str| {
        let (api, path) = (api.clone(), format!("/api/v1/namespaces/new/{what}"));
        async move { api.get(&path).await.1 }
    };
    let before = get("pods/before").await;
    assert_eq!(before["spec"]["priority"], 77);
    assert_eq!(before["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(before["spec"]["containers"][0]["resources"]["requests"]["cpu"], "250m");
    assert_eq!(get("persistentvolumeclaims/claim").await["spec"]["storageClassName"], "fast");
    assert_eq!(get("resourcequotas/q").await["status"]["used"]["pods"], "2");
    // Quotas hold within a transaction, too: one of these two is too many.
    let both = json!([
        json!({"verb": "delete", "version": "v1", "resource": "pods", "namespace": "new", "name": "after"}),
        pod("third", json!({})),
        pod("fourth", json!({})),
    ]);
    let (code, refused) = api.post(TRANSACTIONS, &transaction(both)).await;
    let message = refused["message"].as_str().unwrap();
    assert_eq!(code, 403, "{refused}");
    assert!(message.starts_with("operation 2") && message.contains("exceeded quota: q"), "{message}");
    assert_eq!(get("resourcequotas/q").await["status"]["used"]["pods"], "2");
}

/// Who may write roles but not bind them cannot get around that by doing both at once.
#[tokio::test]
async fn a_role_that_is_changed_and_bound_at_once_is_judged_as_changed() {
    let api = Api::new().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let roles = format!("{rbac}/namespaces/default/roles");
    let rule = |verbs: Value, resources: Value, groups: Value| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    api.create(&roles, &json!({"metadata": {"name": "weak"}, "rules": []})).await;
    let own = json!({"metadata": {"name": "half"}, "rules": [
        rule(json!(["create"]), json!(["transactions"]), json!(["transactions.conductor.io"])),
        rule(json!(["get", "create", "update", "patch", "escalate"]), json!(["roles"]), json!(["rbac.authorization.k8s.io"])),
        rule(json!(["create"]), json!(["rolebindings"]), json!(["rbac.authorization.k8s.io"])),
    ]});
    api.create(&format!("{rbac}/clusterroles"), &own).await;
    let binding = json!({"metadata": {"name": "half"}, "subjects": [{"kind": "User", "name": "half"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "half"}});
    api.create(&format!("{rbac}/clusterrolebindings"), &binding).await;
    let half = Api { user: User::new("half", Vec::<String>::new()), ..api.clone() };
    let of = |verb: &str, resource: &str| json!({"verb": verb, "group": "rbac.authorization.k8s.io", "version": "v1", "resource": resource, "namespace": "default"});
    let mut strengthen = of("patch", "roles");
    strengthen["name"] = "weak".into();
    strengthen["patch"] = json!({"rules": [rule(json!(["*"]), json!(["secrets"]), json!([""]))]});
    let mut bind = of("create", "rolebindings");
    bind["object"] = json!({"metadata": {"name": "mine"}, "subjects": [{"kind": "User", "name": "half"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "weak"}});
    let (code, refused) = half.post(TRANSACTIONS, &transaction(json!([strengthen, bind]))).await;
    assert_eq!(code, 403, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("attempting to grant RBAC permissions"), "{refused}");
    let (code, done) = half.post(TRANSACTIONS, &transaction(json!([bind]))).await;
    assert_eq!(code, 201, "the role is weak still: {done}");
}

/// What a policy says of a kind holds for what transactions write, whatever it says of transactions.
#[tokio::test]
async fn the_audit_log_has_every_operation_as_if_sent_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
        {"level": "None", "resources": [{"group": "transactions.conductor.io"}]},
        {"level": "None", "verbs": ["delete"]},
        {"level": "Request", "verbs": ["patch"]},
        {"level": "RequestResponse", "resources": [{"group": "", "resources": ["configmaps", "secrets"]}]},
        {"level": "Metadata", "users": ["admin", "jane"]},
    ]});
    let audit = Audit::open(&file, Keep::default(), Policy::read(&policy).unwrap()).unwrap();
    let server = Server::start(Options { audit: Some(audit), ..Options::default() }).await.unwrap();
    let api = Api { server, user: User::new("admin", ["system:masters"]) };
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"p": "hunter2"}});
    let generated = json!({"metadata": {"generateName": "made-"}});
    let delete =
        json!({"verb": "delete", "version": "v1", "resource": "configmaps", "namespace": "default", "name": "b"});
    let operations = json!([
        create("a"),
        // of the same name: what is said of one is not said of the other
        core("secrets", "default", secret),
        core("serviceaccounts", "default", generated),
        create("b"),
        patch("a", json!({"data": {"x": "1"}})),
        delete,
    ]);
    let (code, done) = api.post(TRANSACTIONS, &transaction(operations)).await;
    assert_eq!(code, 201, "{done}");
    let role = json!({"metadata": {"name": "jane"}, "rules": [
        {"apiGroups": ["transactions.conductor.io"], "resources": ["transactions"], "verbs": ["create"]}]});
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    let binding = json!({"metadata": {"name": "jane"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"}});
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let jane = Api { user: User::new("jane", Vec::<String>::new()), ..api.clone() };
    // who is nobody, and who would be somebody else, are in it as well
    let stranger = Request::get(format!("{MAPS}/stranger")).header("authorization", "Bearer wrong");
    assert_eq!(api.server.handle(stranger.body(String::new()).unwrap()).await.status(), 401);
    let actor = Request::get(format!("{MAPS}/actor")).header("impersonate-user", "admin").extension(jane.user.clone());
    assert_eq!(api.server.handle(actor.body(String::new()).unwrap()).await.status(), 403);
    let refused = json!([core("namespaces", "", json!({"metadata": {"name": "hers"}})), create("c")]);
    assert_eq!(jane.post(TRANSACTIONS, &transaction(refused)).await.0, 403);
    api.get(&format!("{MAPS}/last")).await;

    let mut text = String::new();
    while !text.lines().any(|line| line.contains("/last")) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        text = std::fs::read_to_string(&file).unwrap();
    }
    assert!(!text.contains("hunter2") && !text.contains("wrong"), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about = |name: &str| {
        let own = events.iter().filter(|event| event["objectRef"]["name"] == name);
        own.map(|event| {
            (event["stage"].as_str().unwrap(), &event["responseStatus"]["code"], &event["user"]["username"])
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(about("stranger"), [("ResponseStarted", &json!(401), &json!(""))]);
    assert_eq!(about("actor").last(), Some(&("ResponseComplete", &json!(403), &json!("jane"))));
    let of = |user: &str| {
        let own =
            events.iter().filter(|event| event["user"]["username"] == user && event["requestURI"] == TRANSACTIONS);
        own.cloned().collect::<Vec<Value>>()
    };
    let shown = |event: &Value| {
        let object = &event["objectRef"];
        let kind = |part: &str| {
            event[part]["kind"].as_str().unwrap_or(if event[part].is_null() { "" } else { "?" }).to_owned()
        };
        let place = format!("{}/{}", object["resource"].as_str().unwrap(), object["name"].as_str().unwrap());
        format!(
            "{} {place} {} {} {}",
            event["verb"].as_str().unwrap(),
            event["level"].as_str().unwrap(),
            kind("requestObject"),
            kind("responseObject")
        )
    };
    let name = done["status"]["results"][2]["name"].as_str().unwrap();
    assert!(name.starts_with("made-"), "{done}");
    let expected = [
        "create configmaps/a RequestResponse ? ConfigMap".to_owned(),
        "create secrets/a Metadata  ".to_owned(),
        format!("create serviceaccounts/{name} Metadata  "),
        "create configmaps/b RequestResponse ? ConfigMap".to_owned(),
        "patch configmaps/a Request ? ".to_owned(),
    ];
    assert_eq!(of("admin").iter().map(shown).collect::<Vec<_>>(), expected);
    for event in of("admin") {
        assert_eq!(event["auditID"], of("admin")[0]["auditID"]);
        assert_eq!((&event["stage"], &event["responseStatus"]["code"]), (&json!("ResponseComplete"), &json!(201)));
        assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    }
    // What is refused was tried, and by whom.
    assert_eq!(
        of("jane").iter().map(shown).collect::<Vec<_>>(),
        ["create namespaces/hers Metadata  ", "create configmaps/c RequestResponse ? "]
    );
    for event in of("jane") {
        assert_eq!(event["responseStatus"]["code"], 403);
        assert!(
            event["responseStatus"]["message"].as_str().unwrap().starts_with("operation 0 (create namespaces"),
            "{event}"
        );
    }
    assert_eq!(of("jane")[0]["annotations"]["authorization.k8s.io/decision"], "forbid");
    // Each result is of its own object.
    let (_, secret) = api.get("/api/v1/namespaces/default/secrets/a").await;
    let (_, map) = api.get(&format!("{MAPS}/a")).await;
    for (at, object) in [(0, map), (1, secret)] {
        assert_eq!(done["status"]["results"][at]["resourceVersion"], object["metadata"]["resourceVersion"], "{done}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_transfers_lose_nothing() {
    let api = Api::new().await;
    for name in ["a", "b", "c"] {
        api.create(MAPS, &json!({"metadata": {"name": name}, "data": {"n": "100"}})).await;
    }
    let transfer = |from: &'static str, to: &'static str| {
        let api = api.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while done < 20 {
                let (_, source) = api.get(&format!("{MAPS}/{from}")).await;
                let (_, target) = api.get(&format!("{MAPS}/{to}")).await;
                let n = |map: &Value| map["data"]["n"].as_str().unwrap().parse::<i64>().unwrap();
                let write = |map: &Value, n: i64| {
                    json!({
                        "verb": "patch", "version": "v1", "resource": "configmaps", "namespace": "default",
                        "name": map["metadata"]["name"], "patch": {"data": {"n": n.to_string()}},
                        "preconditions": {"resourceVersion": map["metadata"]["resourceVersion"]},
                    })
                };
                let operations = json!([write(&source, n(&source) - 1), write(&target, n(&target) + 1)]);
                match api.post(TRANSACTIONS, &transaction(operations)).await.0 {
                    201 => done += 1,
                    409 => tokio::task::yield_now().await,
                    other => panic!("a transfer answered {other}"),
                }
            }
        })
    };
    let tasks = [transfer("a", "b"), transfer("b", "c"), transfer("c", "a"), transfer("b", "a")];
    for task in tasks {
        task.await.unwrap();
    }
    let mut sum = 0;
    let mut seen = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let (_, map) = api.get(&format!("{MAPS}/{name}")).await;
        sum += map["data"]["n"].as_str().unwrap().parse::<i64>().unwrap();
        seen.insert(map["metadata"]["resourceVersion"].to_string());
    }
    assert_eq!(sum, 300);
}

#[tokio::test]
async fn what_is_wrong_with_one_is_said_with_its_place() {
    let api = Api::new().await;
    let refused = |answer: &(u16, Value), code: u16, text: &str| {
        assert_eq!(answer.0, code, "{}", answer.1);
        assert!(answer.1["message"].as_str().is_some_and(|said| said.contains(text)), "{}", answer.1);
    };
    let wrong = |field: &str, value: Value| {
        let mut operation = create("a");
        operation[field] = value;
        transaction(json!([create("z"), operation]))
    };
    refused(&api.post(TRANSACTIONS, &wrong("verb", json!("make"))).await, 422, "spec.operations[1].verb");
    refused(&api.post(TRANSACTIONS, &wrong("name", json!(1))).await, 422, "spec.operations[1].name");
    refused(&api.post(TRANSACTIONS, &wrong("object", json!([1]))).await, 422, "spec.operations[1].object");
    refused(&api.post(TRANSACTIONS, &wrong("force", json!("yes"))).await, 422, "spec.operations[1].force");
    refused(&api.post(TRANSACTIONS, &transaction(json!([]))).await, 422, "spec.operations");
    let strict = format!("{TRANSACTIONS}?fieldValidation=Strict");
    refused(&api.post(&strict, &wrong("colour", json!("red"))).await, 400, "spec.operations[1].colour");
    let mut other = transaction(json!([create("z")]));
    other["kind"] = json!("Transfer");
    refused(&api.post(TRANSACTIONS, &other).await, 422, "must be Transaction");
    assert_eq!(api.get(&format!("{MAPS}/z")).await.0, 404, "nothing was written");
    // and what is not plainly one, but one, is done
    let (code, answer) = api.post(TRANSACTIONS, &wrong("colour", json!("red"))).await;
    assert_eq!((code, &answer["status"]["results"][1]["name"]), (201, &json!("a")), "{answer}");
    assert_eq!(answer["spec"]["operations"][1]["object"]["metadata"]["name"], "a");
}
