//! The audit log: what is done is in it, however it is sent, and secrets are not.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::Api;
use conductor_apiserver::audit::{Audit, Keep, Policy};
use conductor_apiserver::{Options, Server, User};
use futures::FutureExt;
use http::{Method, Request};
use http_body_util::{Full, StreamBody};
use machinery::schema::protobuf::to_protobuf;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A server with a log of everything.
struct Logged {
    api: Api,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Logged {
    async fn new() -> Logged {
        let rule = json!({"level": "RequestResponse"});
        Logged::with(json!([rule])).await
    }

    async fn with(rules: Value) -> Logged {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("audit.log");
        let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules,
            "omitStages": ["RequestReceived"]});
        let audit = Audit::open(&file, Keep::default(), Policy::read(&policy).unwrap()).unwrap();
        let server = Server::start(Options { audit: Some(audit), ..Options::default() }).await.unwrap();
        let api = Api { server, user: User::new("admin", ["system:masters"]) };
        Logged { api, file, _directory: directory }
    }

    /// The log when something is in it.
    async fn text(&self, until: &str) -> String {
        for _ in 0..10_000 {
            let text = std::fs::read_to_string(&self.file).unwrap();
            if text.contains(until) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the log never had {until}");
    }

    /// The events whose address has something in it.
    async fn events(&self, about: &str) -> Vec<Value> {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let last = format!("{MAPS}/last-{}-", ASKED.fetch_add(1, Ordering::Relaxed));
        self.api.get(&last).await;
        let text = self.text(&last).await;
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|event| event["requestURI"].as_str().unwrap().contains(about)).collect()
    }

    async fn send(&self, request: http::request::Builder, body: impl Into<Bytes>) -> u16 {
        let request = request.extension(self.api.user.clone()).body(Full::new(body.into())).unwrap();
        self.api.server.handle(request).await.status().as_u16()
    }
}

/// The server reads a body by what the request is, and so does the log: what the body or its headers say hides nothing.
#[tokio::test]
async fn what_is_sent_is_logged_whatever_it_says_of_itself() {
    let log = Logged::new().await;
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "v"}});
    let packed = Request::post(format!("{MAPS}?case=gzip")).header("content-type", JSON);
    assert_eq!(log.send(packed.header("content-encoding", "gzip"), map("a").to_string()).await, 201);
    let protobuf = |object: &Value, group: &str, version: &str, kind: &str| {
        to_protobuf(object, kinds::schema_of(group, version, kind).unwrap())
    };
    let nameless = Request::post(format!("{MAPS}?case=nameless")).header("content-type", PROTOBUF);
    assert_eq!(log.send(nameless, protobuf(&map("b"), "", "v1", "ConfigMap")).await, 201);
    let mut options = protobuf(&json!({"propagationPolicy": "Orphan"}), "", "v1", "DeleteOptions");
    let delete = Request::delete(format!("{MAPS}/b?case=delete")).header("content-type", PROTOBUF);
    assert_eq!(log.send(delete, options).await, 200);
    options = protobuf(&json!({"propagationPolicy": "Orphan"}), "", "v1", "DeleteOptions");
    let delete = Request::delete(format!("{MAPS}?labelSelector=no=ne&case=all")).header("content-type", PROTOBUF);
    assert_eq!(log.send(delete, options).await, 200);
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod});
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    log.api.create(sets, &json!({"metadata": {"name": "set"}, "spec": spec})).await;
    let scale = json!({"apiVersion": "some/thing", "kind": "Scale",
        "metadata": {"name": "set", "namespace": "default"}, "spec": {"replicas": 7}});
    let scale = protobuf(&scale, "autoscaling", "v1", "Scale");
    let put = Request::put(format!("{sets}/set/scale?case=scale")).header("content-type", PROTOBUF);
    assert_eq!(log.send(put, scale).await, 200);

    for (case, pointer, value) in [
        ("gzip", "/data/k", json!("v")),
        ("nameless", "/data/k", json!("v")),
        ("delete", "/propagationPolicy", json!("Orphan")),
        ("all", "/propagationPolicy", json!("Orphan")),
        ("scale", "/spec/replicas", json!(7)),
    ] {
        let events = log.events(&format!("case={case}")).await;
        assert_eq!(events.len(), 1, "{case}");
        assert_eq!(events[0]["requestObject"].pointer(pointer), Some(&value), "{case}: {}", events[0]);
        assert!(events[0]["annotations"].get("conductor.io/left-out").is_none(), "{}", events[0]);
    }
}

/// Whoever still uses tokens that do not end is found by the log, under the names by which Kubernetes says it.
#[tokio::test]
async fn tokens_of_secrets_are_known_by_the_log() {
    let log = Logged::new().await;
    let listed = json!([{"name": "listed"}]);
    let account = json!({"metadata": {"name": "robot"}, "secrets": listed});
    log.api.create("/api/v1/namespaces/default/serviceaccounts", &account).await;
    for (name, kind) in [("listed", "legacy-token-autogenerated-secret"), ("made", "legacy-token-manual-secret")] {
        let meta = json!({"name": name, "annotations": {"kubernetes.io/service-account.name": "robot"}});
        log.api.create(SECRETS, &json!({"metadata": meta, "type": "kubernetes.io/service-account-token"})).await;
        let mut token = None;
        while token.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let (_, secret) = log.api.get(&format!("{SECRETS}/{name}")).await;
            token = secret["data"]["token"].as_str().map(|token| STANDARD.decode(token).unwrap());
        }
        let token = String::from_utf8(token.unwrap()).unwrap();
        let request = Request::get(format!("/api?token={name}")).header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::new(Bytes::new())).unwrap();
        assert_eq!(log.api.server.handle(request).await.status(), 200);
        let annotations = &log.events(&format!("token={name}")).await[0]["annotations"];
        let said = |what: &str| annotations[format!("authentication.k8s.io/{what}")].clone();
        assert_eq!((said("legacy-token"), said(kind)), (json!("system:serviceaccount:default:robot"), json!(name)));
    }
}

/// Large bodies wait as bytes and are read at last, in turns; none is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_bodies_are_all_logged() {
    let log = Logged::new().await;
    let large = "x".repeat(900 * 1024);
    let sent = (0..24).map(|n| {
        let api = log.api.clone();
        let map = json!({"metadata": {"name": format!("large-{n}")}, "data": {"k": large}}).to_string();
        tokio::spawn(async move { api.send(Method::POST, &format!("{MAPS}?n={n}"), JSON, map).await.0 })
    });
    for code in futures::future::join_all(sent).await {
        assert_eq!(code.unwrap(), 201);
    }
    let events = log.events("?n=").await;
    assert_eq!(events.len(), 24);
    for event in events {
        for part in ["requestObject", "responseObject"] {
            assert_eq!(event[part]["data"]["k"].as_str().map(str::len), Some(large.len()), "{part}");
        }
    }
}

/// Whoever goes away before the answer has perhaps done what they wanted.
#[tokio::test]
async fn who_goes_away_is_logged() {
    let log = Logged::new().await;
    let user = &log.api.user;
    let endless = StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let request = Request::post(format!("{MAPS}?case=slow")).header("content-type", JSON).extension(user.clone());
    let mut going = Box::pin(log.api.server.handle(request.body(endless).unwrap()));
    assert!(going.as_mut().now_or_never().is_none());
    drop(going);
    log.text("case=slow").await;
    // and of what may have been done, what it was
    let map = json!({"metadata": {"name": "gone"}}).to_string();
    let request = Request::post(format!("{MAPS}?case=gone")).header("content-type", JSON).extension(user.clone());
    let mut going = Box::pin(log.api.server.handle(request.body(Full::new(Bytes::from(map))).unwrap()));
    let unanswered = going.as_mut().now_or_never().is_none();
    drop(going);
    log.text("case=gone").await;
    let status = json!({"metadata": {}, "code": 499, "status": "Failure",
        "message": "the client went away before its answer: what it asked for may have been done"});
    let slow = &log.events("case=slow").await[0];
    assert_eq!((&slow["stage"], &slow["responseStatus"]), (&json!("ResponseComplete"), &status));
    let gone = log.events("case=gone").await;
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0]["requestObject"]["metadata"]["name"], "gone");
    assert_eq!(gone[0]["annotations"]["authorization.k8s.io/decision"], "allow");
    if unanswered {
        assert_eq!(gone[0]["responseStatus"], status);
    }
}

/// What anybody may send is not said at length: a log has so many bytes, and what was before is to stay.
#[tokio::test]
async fn strangers_do_not_fill_the_log() {
    let log = Logged::new().await;
    let long = "x".repeat(20_000);
    let agent = |user: Arc<User>| {
        let path = format!("/api/v1/namespaces/{long}/configmaps/{long}?case={}", user.name);
        Request::get(path).header("user-agent", &long).extension(user)
    };
    for user in [User::anonymous(), User::new("jane", Vec::<String>::new())] {
        let response = log.api.server.handle(agent(user).body(Full::new(Bytes::new())).unwrap()).await;
        assert_eq!(response.status(), 403);
    }
    let stranger = Request::get(format!("{MAPS}/{long}")).header("authorization", "Bearer wrong");
    assert_eq!(log.api.server.handle(stranger.body(Full::new(Bytes::new())).unwrap()).await.status(), 401);
    log.events("end").await;
    let text = log.text("last-").await;
    let cut = format!("{}...TRUNCATED", &long[..1024]);
    let events = text.lines().map(|line| (line.len(), serde_json::from_str::<Value>(line).unwrap()));
    let mut nobodys = 0;
    for (len, event) in events.filter(|(_, event)| event["requestURI"].as_str().unwrap().contains("xxxx")) {
        if event["user"]["username"] == "jane" {
            assert_eq!(event["userAgent"], cut);
            let uri = event["requestURI"].as_str().unwrap();
            assert!(uri.ends_with("?case=jane"), "what somebody did is said in full");
            continue;
        }
        nobodys += 1;
        assert!(len < 12_000, "{len}: {event}");
        assert_eq!(event["objectRef"]["name"], cut);
    }
    assert_eq!(nobodys, 2);
}

/// Neither what is a secret nor what is said about one that is wrong.
#[tokio::test]
async fn secrets_are_in_no_event() {
    let log = Logged::new().await;
    let api = &log.api;
    api.create(SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"p": "hunter2"}})).await;
    let one = format!("{SECRETS}/s");
    let merge = "application/merge-patch+json";
    let strategic = "application/strategic-merge-patch+json";
    let patch = "application/json-patch+json";
    let apply = "application/apply-patch+yaml";
    let applied = format!("{one}?fieldManager=m&fieldValidation=Strict");
    for (method, path, kind, body) in [
        (Method::POST, SECRETS, JSON, r#"{"metadata":{"name":"t"},"stringData":{"p":["hunter2"]}}"#),
        (Method::POST, SECRETS, JSON, r#"{"metadata":{"name":"t"},"stringData":"hunter2"}"#),
        (Method::POST, SECRETS, JSON, r#"{"metadata":{"name":"t"},"data":{"p":"hunter2"}}"#),
        (Method::POST, SECRETS, JSON, r#"{"metadata":{"name":"t"},"data":{"p":"hunter2"#),
        (Method::POST, SECRETS, "application/yaml", "metadata: {name: t}\ndata: hunter2: x"),
        (Method::PATCH, &one, merge, r#"{"data":{"p":"hunter2"}}"#),
        (Method::PATCH, &one, merge, r#"{"data":"hunter2"}"#),
        (Method::PATCH, &one, strategic, r#"{"data":"hunter2"}"#),
        (Method::PATCH, &one, strategic, r#"{"data":{"p":"hunter2"}}"#),
        (Method::PATCH, &one, strategic, r#"{"data":{"$patch":"hunter2"}}"#),
        (Method::PATCH, &one, strategic, r#"{"metadata":{"labels":"hunter2"}}"#),
        (Method::PATCH, &one, patch, r#"[{"op":"test","path":"/data/p","value":"hunter2"}]"#),
        (Method::PATCH, &one, patch, r#"[{"op":"add","path":"/data","value":"hunter2"}]"#),
        (Method::PATCH, &one, patch, r#"[{"op":"add","path":"/data/p","value":"hunter2"}]"#),
        (Method::PATCH, &one, patch, r#"[{"op":"replace","path":"/data/q","value":"hunter2"}]"#),
        (Method::PATCH, &applied, apply, r#"{"apiVersion":"v1","kind":"Secret","data":{"p":"hunter2"}}"#),
        (Method::PATCH, &applied, apply, r#"{"apiVersion":"v1","kind":"Secret","data":"hunter2"}"#),
    ] {
        let (code, answer) = api.send(method, path, kind, body).await;
        assert!(code >= 400, "{kind} {body}: {answer}");
        let kinds = [(merge, "Merge"), (strategic, "Strategic"), (patch, "JSON"), (apply, "Apply")];
        let Some((_, kind)) = kinds.iter().find(|(own, _)| *own == kind) else { continue };
        let sent: Value = serde_json::from_str(body).unwrap();
        let write = json!({"verb": "patch", "version": "v1", "resource": "secrets", "namespace": "default",
            "name": "s", "patchType": kind, "patch": sent, "fieldManager": "m"});
        let transaction = json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction",
            "spec": {"operations": [write]}});
        let (code, answer) = api.post("/apis/transactions.conductor.io/v1alpha1/transactions", &transaction).await;
        assert!(code >= 400, "{transaction}: {answer}");
    }
    api.get(&one).await;
    api.get(SECRETS).await;
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.create(accounts, &json!({"metadata": {"name": "robot"}})).await;
    let token = api.create(&format!("{accounts}/robot/token"), &token).await;
    let token = token["status"]["token"].as_str().unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    api.create("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    log.events("end").await;
    let text = log.text("last-").await;
    for line in text.lines() {
        for secret in ["hunter2", "aHVudGVyMg", token] {
            assert!(!line.contains(secret), "{line}");
        }
    }
}

/// A watch is logged when it begins and when it ends, so that a policy may leave out either.
#[tokio::test]
async fn watches_have_an_end() {
    let log = Logged::with(json!([
        {"level": "Metadata", "resources": [{"group": "", "resources": ["secrets"]}], "omitStages": ["ResponseStarted"]},
        {"level": "Metadata"},
    ]))
    .await;
    let watch = async |path: &str| {
        let request = Request::get(format!("{path}?watch=1")).extension(log.api.user.clone());
        log.api.server.handle(request.body(Full::new(Bytes::new())).unwrap()).await
    };
    let stages = async |path: &str| {
        let events = log.events(&format!("{path}?watch")).await;
        events.iter().map(|own| (own["stage"].clone(), own["responseStatus"]["code"].clone())).collect::<Vec<_>>()
    };
    let (started, complete) = ((json!("ResponseStarted"), json!(200)), (json!("ResponseComplete"), json!(200)));
    let (maps, secrets) = (watch(MAPS).await, watch(SECRETS).await);
    assert_eq!(stages(MAPS).await, std::slice::from_ref(&started));
    assert_eq!(stages(SECRETS).await, []);
    drop((maps, secrets));
    while stages(SECRETS).await.is_empty() || stages(MAPS).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stages(MAPS).await, [started, complete.clone()]);
    assert_eq!(stages(SECRETS).await, [complete]);
    // one that is refused has ended at once
    watch("/api/v1/namespaces/default/nothing").await;
    let refused = stages("nothing").await;
    assert_eq!(refused, ["ResponseStarted", "ResponseComplete"].map(|stage| (json!(stage), json!(404))));
}

/// What is sent need not be an object for its fields to be left out.
#[tokio::test]
async fn managed_fields_are_left_out_of_whatever_is_sent() {
    let log = Logged::with(json!([{"level": "RequestResponse", "omitManagedFields": true}])).await;
    log.api.create(MAPS, &json!({"metadata": {"name": "a"}})).await;
    let one = format!("{MAPS}/a");
    let patch = r#"[{"op":"add","path":"/data","value":{"k":"v"}}]"#;
    assert_eq!(log.api.send(Method::PATCH, &one, "application/json-patch+json", patch).await.0, 200);
    assert_eq!(log.api.send(Method::PUT, &one, JSON, "7").await.0, 400);
    log.api.get(MAPS).await;
    let events = log.events(&one).await;
    assert_eq!(events[0]["requestObject"][0]["path"], "/data", "{}", events[0]);
    assert_eq!(events[0]["responseObject"]["data"]["k"], "v");
    assert_eq!(events[1]["requestObject"], 7);
    let events = log.events(MAPS).await;
    let list = events.iter().find(|event| event["verb"] == "list").unwrap();
    assert!(!list["responseObject"]["items"].as_array().unwrap().is_empty());
    assert!(!events.iter().any(|event| event.to_string().contains("managedFields")), "{list}");
}
