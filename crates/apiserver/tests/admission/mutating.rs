//! MutatingAdmissionPolicy, and webhooks over real TLS.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::access_support::{World, user};
use crate::policies::GROUP;
use crate::webhook_server::{Answer, Signed, Webhook};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

async fn mutation(world: &World, name: &str, mutations: Value, more: Value) {
    let mut spec = json!({
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "pods"]}]},
        "mutations": mutations,
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    world.make(&format!("{GROUP}/mutatingadmissionpolicies"), json!({"metadata": {"name": name}, "spec": spec})).await;
    let binding = json!({"metadata": {"name": format!("{name}-binding")}, "spec": {"policyName": name}});
    world.make(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await;
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[tokio::test]
async fn expressions_change_objects() {
    let world = World::new().await;
    let all = json!([
        apply(
            "Object{metadata: Object.metadata{labels: {'who': variables.who}}, data: {'n': string(size(object.data))}}"
        ),
        patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/ab'), value: 'x'}]"),
        patch(
            "[JSONPatch{op: 'test', path: '/data/a', value: 'never'}, JSONPatch{op: 'add', path: '/data/b', value: 'y'}]"
        ),
    ]);
    mutation(&world, "m", all, json!({"matchConditions": [{"name": "maps", "expression": "object.kind == 'ConfigMap'"}], "variables": [{"name": "who", "expression": "request.userInfo.username"}]})).await;
    let made = world.make(MAPS, map("a", json!({"a": "1"}))).await;
    assert_eq!(made["metadata"]["labels"], json!({"who": "admin", "example.com/ab": "x"}));
    assert_eq!(made["data"], json!({"a": "1", "n": "1"}));
    // What a user sets is set again: it cannot be forged.
    let jane = user("jane", &["system:masters"]);
    let (code, changed) =
        world.send(&jane, "PATCH", &format!("{MAPS}/a"), &json!({"metadata": {"labels": {"who": "root"}}})).await;
    assert_eq!((code, &changed["metadata"]["labels"]["who"]), (200, &json!("jane")));
    // Items of a list are found by their key, Pods get everything else once.
    mutation(&world, "p", json!([apply("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', env: [Object.spec.containers.env{name: 'A', value: 'b'}]}]}}")]), json!({"matchConditions": [{"name": "pods", "expression": "object.kind == 'Pod'"}]})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "x", "image": "x"}, {"name": "c", "image": "y", "env": [{"name": "B", "value": "1"}]}]}});
    let made = world.make("/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(made["spec"]["containers"][1]["env"], json!([{"name": "B", "value": "1"}, {"name": "A", "value": "b"}]));
    assert_eq!(made["spec"]["volumes"].as_array().map(Vec::len), Some(1), "{made}");
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"].as_array().map(Vec::len), Some(1), "{made}");
}

/// Nothing is born deleted: the next write would remove it.
#[tokio::test]
async fn who_mutates_what_is_new_deletes_nothing() {
    let world = World::new().await;
    let stamp = "[JSONPatch{op: 'add', path: '/metadata/deletionTimestamp', value: '2001-01-01T00:00:00Z'}, \
        JSONPatch{op: 'add', path: '/metadata/deletionGracePeriodSeconds', value: 0}]";
    mutation(&world, "m", json!([patch(stamp)]), json!({})).await;
    let made = world.make(MAPS, map("a", json!({}))).await;
    assert!(made["metadata"].get("deletionTimestamp").is_none(), "{made}");
    assert!(made["metadata"].get("deletionGracePeriodSeconds").is_none(), "{made}");
}

/// What is being made has neither uid nor time before it is admitted, whoever changes it or not; it has both when it is judged.
#[tokio::test]
async fn what_the_server_gives_comes_after_mutation() {
    let world = World::new().await;
    let seen = "has(object.metadata.uid) || has(object.metadata.creationTimestamp) ? 'there' : 'none'";
    mutation(
        &world,
        "m",
        json!([apply(&format!("Object{{metadata: Object.metadata{{labels: {{'given': {seen}}}}}}}"))]),
        json!({}),
    )
    .await;
    let rules = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps", "secrets"]}]});
    let judged = json!([{"expression": "has(object.metadata.uid) && has(object.metadata.creationTimestamp)"}]);
    let policy = json!({"metadata": {"name": "v"}, "spec": {"matchConstraints": rules, "validations": judged}});
    world.make(&format!("{GROUP}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": "v"}, "spec": {"policyName": "v", "validationActions": ["Deny"]}});
    world.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    let made = world.make(MAPS, map("a", json!({}))).await;
    assert_eq!(made["metadata"]["labels"]["given"], "none");
    assert!(made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string(), "{made}");
    world.make("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "a"}})).await;
}

#[tokio::test]
async fn a_mutation_that_fails_refuses_unless_told_otherwise() {
    let world = World::new().await;
    for (at, (expression, said)) in [
        (apply("Object{metadata: Object.wrong{}}"), "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path from root Object type"),
        (apply("Object{data: object.data.nope}"), "resulted in error: no such key: nope"),
        (apply("Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: 'x', name: 'a', kind: 'b', apiVersion: 'v1'}], nope: 1}}"), "error applying patch: failed to convert patch object to typed object: .metadata.nope: field not declared in schema"),
        (patch("[JSONPatch{op: 'remove', path: '/data/nope'}]"), "JSON Patch: "),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("m{at}");
        mutation(&world, &name, json!([expression]), json!({})).await;
        let (code, answer) = world.admin("POST", MAPS, &map("a", json!({"a": "b"}))).await;
        assert!(code == 403 && message(&answer).starts_with(&format!("policy '{name}' with binding '{name}-binding' denied request: ")), "{answer}");
        assert!(message(&answer).contains(said), "{answer}");
        let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
        assert_eq!(world.admin("PATCH", &format!("{GROUP}/mutatingadmissionpolicies/{name}"), &ignore).await.0, 200);
        assert_eq!(world.admin("POST", &format!("{MAPS}?dryRun=All"), &map("a", json!({"a": "b"}))).await.0, 201);
        assert_eq!(world.admin("DELETE", &format!("{GROUP}/mutatingadmissionpolicies/{name}"), &Value::Null).await.0, 200);
    }
}

#[tokio::test]
async fn those_who_came_first_see_what_came_later_once() {
    let world = World::new().await;
    // `a` counts how often it was asked; `b` comes after it and changes something.
    mutation(
        &world,
        "a",
        json!([apply(
            "Object{data: {'asked': has(object.data) && has(object.data.asked) ? object.data.asked + 'x' : 'x'}}"
        )]),
        json!({}),
    )
    .await;
    assert_eq!(world.make(MAPS, map("one", json!({}))).await["data"]["asked"], "x");
    mutation(&world, "b", json!([apply("Object{data: {'b': 'b'}}")]), json!({})).await;
    assert_eq!(world.make(MAPS, map("two", json!({}))).await["data"], json!({"asked": "xx", "b": "b"}));
    let never = json!({"spec": {"reinvocationPolicy": "Never"}});
    assert_eq!(world.admin("PATCH", &format!("{GROUP}/mutatingadmissionpolicies/a"), &never).await.0, 200);
    assert_eq!(world.make(MAPS, map("three", json!({}))).await["data"]["asked"], "x");
}

/// Registers a webhook about ConfigMaps.
async fn register(world: &World, kind: &str, name: &str, webhook: &Webhook, more: Value) {
    let mut hook = json!({
        "name": format!("{name}.example.com"), "clientConfig": webhook.client_config("/hook"), "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
    });
    for (field, value) in more.as_object().unwrap() {
        hook[field] = value.clone();
    }
    world.make(&format!("{GROUP}/{kind}"), json!({"metadata": {"name": name}, "webhooks": [hook]})).await;
}

fn answer(review: &Value, more: Value) -> Answer {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    for (field, value) in more.as_object().unwrap() {
        response[field] = value.clone();
    }
    Answer::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

fn encoded(patch: Value) -> String {
    base64::engine::general_purpose::STANDARD.encode(patch.to_string())
}

#[tokio::test]
async fn webhooks_see_the_request_and_judge_it() {
    let world = World::new().await;
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = seen.clone();
    let webhook = Webhook::start(&["localhost"], Signed::ByAuthority, move |path, review| {
        // No more than the request has left.
        let seconds = if review["request"]["name"] == "hurried" { 2 } else { 5 };
        assert_eq!(path, format!("/hook?timeout={seconds}s"));
        log.lock().push(review.clone());
        match review["request"]["object"]["data"]["say"].as_str() {
            Some("no") => answer(&review, json!({"allowed": false, "warnings": ["beware"], "status": {"code": 418, "reason": "Teapot", "message": "short and stout"}})),
            Some("bare") => answer(&review, json!({"allowed": false})),
            Some("patch") => answer(&review, json!({"patch": encoded(json!([])), "patchType": "JSONPatch"})),
            Some("uid") => answer(&review, json!({"uid": "other"})),
            Some("hang up") => Answer::HangUp,
            Some("broken") => Answer::Raw(500, "text/plain", b"oops".to_vec()),
            _ => answer(&review, json!({"warnings": ["noted"]})),
        }
    })
    .await;
    // Namespaces get a ConfigMap from a controller.
    let people = json!([{"name": "people", "expression": "!request.userInfo.username.startsWith('system:')"}]);
    register(&world, "validatingwebhookconfigurations", "judge", &webhook, json!({"matchConditions": people})).await;
    let (code, warnings) = world.warned("POST", MAPS, &map("a", json!({}))).await;
    assert_eq!((code, warnings), (201, vec!["299 - \"noted\"".to_owned()]));
    let review = seen.lock().pop().unwrap();
    assert_eq!((&review["kind"], &review["apiVersion"]), (&json!("AdmissionReview"), &json!("admission.k8s.io/v1")));
    let request = &review["request"];
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(
        (&request["name"], &request["namespace"], &request["operation"]),
        (&json!("a"), &json!("default"), &json!("CREATE"))
    );
    assert_eq!(
        (&request["dryRun"], &request["oldObject"], &request["options"]["kind"]),
        (&json!(false), &Value::Null, &json!("CreateOptions"))
    );
    assert_eq!(request["userInfo"], json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]}));
    assert_eq!(request["object"]["metadata"]["name"], "a");
    let (code, answer) = world.admin("POST", &format!("{MAPS}?timeout=2s"), &map("hurried", json!({}))).await;
    assert_eq!(code, 201, "{answer}");
    let local = format!("https://localhost:{}/hook?timeout=5s", webhook.address.port());
    for (say, code, said) in [
        ("no", 418, "admission webhook \"judge.example.com\" denied the request: short and stout".to_owned()),
        ("bare", 400, "admission webhook \"judge.example.com\" denied the request without explanation".to_owned()),
        ("patch", 500, "Internal error occurred: failed calling webhook \"judge.example.com\": received invalid webhook response: validating webhook may not return response.patch".to_owned()),
        ("uid", 500, "received invalid webhook response: expected response.uid=".to_owned()),
        ("hang up", 500, format!("Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: Post {local:?}: EOF")),
        ("broken", 500, "failed to call webhook: an error on the server (\"oops\") has prevented the request from succeeding".to_owned()),
    ] {
        let (got, answer) = world.admin("POST", &format!("{MAPS}?dryRun=All"), &map("b", json!({"say": say}))).await;
        assert!(got == code && message(&answer).contains(&said), "{say}: {got} {answer}");
    }
    // Deletions have an old object only, and can be refused as well.
    seen.lock().clear();
    assert_eq!(world.admin("DELETE", &format!("{MAPS}/a"), &Value::Null).await.0, 200);
    let review = seen.lock().pop().unwrap();
    assert_eq!(
        (&review["request"]["object"], &review["request"]["oldObject"]["metadata"]["name"]),
        (&Value::Null, &json!("a"))
    );
    // Failures can be ignored, and who is not asked is not asked.
    let ignore = json!({"webhooks": null});
    assert_eq!(world.admin("PATCH", &format!("{GROUP}/validatingwebhookconfigurations/judge"), &ignore).await.0, 200);
    register(&world, "validatingwebhookconfigurations", "lax", &webhook, json!({"failurePolicy": "Ignore", "matchConditions": [{"name": "not-jane", "expression": "request.userInfo.username != 'jane'"}]})).await;
    assert_eq!(world.admin("POST", MAPS, &map("b", json!({"say": "hang up"}))).await.0, 201);
    assert_eq!(world.admin("POST", MAPS, &map("c", json!({"say": "no"}))).await.0, 418);
    assert_eq!(
        world.send(&user("jane", &["system:masters"]), "POST", MAPS, &map("c", json!({"say": "no"}))).await.0,
        201
    );
}

#[tokio::test]
async fn webhooks_change_objects_and_see_what_others_changed() {
    let world = World::new().await;
    let asked = |webhook: &Webhook| webhook.requests.load(Ordering::SeqCst);
    let change = |key: &'static str| {
        move |_: &str, review: Value| {
            let data = &review["request"]["object"]["data"];
            if !data.is_object() || data.get(key).is_some() {
                return answer(&review, json!({}));
            }
            let patch = json!([{"op": "add", "path": format!("/data/{key}"), "value": data.as_object().unwrap().len().to_string()}]);
            answer(&review, json!({"patch": encoded(patch), "patchType": "JSONPatch"}))
        }
    };
    let (first, second) = (
        Webhook::start(&["localhost"], Signed::ByAuthority, change("first")).await,
        Webhook::start(&["localhost"], Signed::ByAuthority, change("second")).await,
    );
    let kind = "mutatingwebhookconfigurations";
    // Namespaces get a ConfigMap from a controller.
    let admin = json!([{"name": "admin", "expression": "request.userInfo.username == 'admin'"}]);
    register(&world, kind, "a", &first, json!({"reinvocationPolicy": "IfNeeded", "matchConditions": admin})).await;
    register(&world, kind, "b", &second, json!({"sideEffects": "NoneOnDryRun", "matchConditions": admin})).await;
    let made = world.make(MAPS, map("m", json!({"x": "y"}))).await;
    assert_eq!(made["data"], json!({"x": "y", "first": "1", "second": "2"}));
    assert_eq!((asked(&first), asked(&second)), (2, 1));
    assert_eq!(world.admin("POST", &format!("{MAPS}?dryRun=All"), &map("n", json!({"x": "y"}))).await.0, 201);
    assert_eq!((asked(&first), asked(&second)), (4, 2));
    // A name can be changed, but not what the server gives.
    let rename = Webhook::start(&["localhost"], Signed::ByAuthority, |_, review| {
        let patch = json!([{"op": "replace", "path": "/metadata/name", "value": "renamed"}, {"op": "replace", "path": "/metadata/uid", "value": "forged"}]);
        answer(&review, json!({"patch": encoded(patch), "patchType": "JSONPatch"}))
    })
    .await;
    register(&world, kind, "c", &rename, json!({"objectSelector": {"matchLabels": {"rename": "me"}}})).await;
    let object = json!({"metadata": {"name": "old", "labels": {"rename": "me"}}, "data": {}});
    let made = world.make(MAPS, object).await;
    assert_eq!(made["metadata"]["name"], "renamed");
    assert_ne!(made["metadata"]["uid"], "forged");
    assert_eq!(world.admin("GET", &format!("{MAPS}/renamed"), &Value::Null).await.0, 200);
    assert_eq!(world.admin("GET", &format!("{MAPS}/old"), &Value::Null).await.0, 404);
}

#[tokio::test]
async fn who_owns_a_field_is_not_for_webhooks_to_break() {
    let world = World::new().await;
    let breaks = Webhook::start(&["localhost"], Signed::ByAuthority, |_, review| {
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Broken"},
            {"op": "add", "path": "/metadata/labels/broken", "value": "yes"},
        ]);
        answer(&review, json!({"patch": encoded(patch), "patchType": "JSONPatch"}))
    })
    .await;
    let selector = json!({"objectSelector": {"matchLabels": {"break": "me"}}});
    register(&world, "mutatingwebhookconfigurations", "a", &breaks, selector).await;
    let object = json!({"metadata": {"name": "m", "labels": {"break": "me"}}});
    let (code, warnings) = world.warned("POST", MAPS, &object).await;
    assert_eq!((code, warnings.len()), (201, 1), "{warnings:?}");
    assert!(warnings[0].contains(".metadata.managedFields was in an invalid state after admission"), "{warnings:?}");
    let (_, made) = world.admin("GET", &format!("{MAPS}/m"), &Value::Null).await;
    assert_eq!(made["metadata"]["labels"]["broken"], "yes", "the rest stands");
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Update");
}

#[tokio::test]
async fn writes_go_on_while_a_webhook_is_asked() {
    let world = World::new().await;
    let silent = Webhook::start(&["localhost"], Signed::ByAuthority, |_, _| Answer::Silence).await;
    let selector = json!({"objectSelector": {"matchLabels": {"slow": "yes"}}, "timeoutSeconds": 30});
    register(&world, "validatingwebhookconfigurations", "slow", &silent, selector).await;
    let slow = {
        let world = world.clone();
        let object = json!({"metadata": {"name": "slow", "labels": {"slow": "yes"}}});
        tokio::spawn(async move { world.admin("POST", MAPS, &object).await })
    };
    while silent.requests.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    for n in 0..50 {
        world.make(MAPS, map(&format!("quick-{n}"), json!({}))).await;
    }
    assert!(!slow.is_finished());
    slow.abort();
}
