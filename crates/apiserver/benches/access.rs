//! What authentication, authorization and admission cost per request, with a thousand roles and bindings.
//!
//! `cargo bench -p conductor-apiserver --bench access`

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use conductor_apiserver::auth::authz::{Authorizer, Decision};
use conductor_apiserver::auth::rbac::Rbac;
use conductor_apiserver::request::RequestInfo;
use conductor_apiserver::{Options, Server, User};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const ROLES: usize = 1000;

async fn send(
    server: &Server,
    user: Option<&Arc<User>>,
    token: &str,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut request = request.body(Full::new(bytes)).expect("a request");
    if let Some(user) = user {
        request.extensions_mut().insert(user.clone());
    }
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn row(what: &str, count: usize, took: Duration) {
    let each = took.as_secs_f64() * 1e6 / count as f64;
    println!("{what:<60} {each:>9.2} µs");
}

#[tokio::main]
async fn main() {
    let started = Instant::now();
    let server = Server::start(Options::default()).await.expect("a server");
    row("start of a server in memory", 1, started.elapsed());
    let admin = User::new("admin", ["system:masters"]);
    let root = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}]);
    let started = Instant::now();
    for n in 0..ROLES {
        let role = json!({"metadata": {"name": format!("r{n}")}, "rules": rules});
        send(&server, Some(&admin), "", "POST", &format!("{root}/roles"), role).await;
        let binding = json!({
            "metadata": {"name": format!("b{n}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("r{n}")},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("user{n}")}],
        });
        send(&server, Some(&admin), "", "POST", &format!("{root}/rolebindings"), binding).await;
    }
    row("writing a role and a binding for it", ROLES, started.elapsed());
    let account = json!({"metadata": {"name": "robot"}});
    send(&server, Some(&admin), "", "POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    let binding = json!({
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r7"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    send(&server, Some(&admin), "", "POST", &format!("{root}/rolebindings"), binding).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (_, token) = send(&server, Some(&admin), "", "POST", path, json!({"spec": {}})).await;
    let token = token["status"]["token"].as_str().unwrap_or_default().to_owned();

    let rbac = Rbac::new(server.store().clone());
    let info = |verb: &'static str| RequestInfo {
        is_resource: true,
        verb: verb.into(),
        version: "v1".into(),
        namespace: "default".into(),
        resource: "configmaps".into(),
        name: "kube-root-ca.crt".into(),
        ..RequestInfo::default()
    };
    const DECISIONS: usize = 200_000;
    for (what, user, verb) in [
        ("decision: allowed by one of 1000 bindings", User::new("user500", [""; 0]), "get"),
        ("decision: refused", User::new("user500", [""; 0]), "delete"),
        ("decision: refused to somebody without any binding", User::new("nobody", [""; 0]), "get"),
    ] {
        let info = info(verb);
        let started = Instant::now();
        let mut allowed = 0;
        for _ in 0..DECISIONS {
            allowed += usize::from(matches!(rbac.authorize(&user, &info), Decision::Allow(_)));
        }
        assert!(allowed == 0 || allowed == DECISIONS);
        row(what, DECISIONS, started.elapsed());
    }
    const REQUESTS: usize = 20_000;
    let user = User::new("user500", [""; 0]);
    for (what, user, token) in [
        ("get a ConfigMap as system:masters", Some(&admin), ""),
        ("get a ConfigMap as a user with a role", Some(&user), ""),
        ("get a ConfigMap with a service account's token", None, token.as_str()),
    ] {
        let path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
        let started = Instant::now();
        for _ in 0..REQUESTS {
            let (code, _) = send(&server, user, token, "GET", path, Value::Null).await;
            assert_eq!(code, 200);
        }
        row(what, REQUESTS, started.elapsed());
    }
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    for (what, path, body) in [
        ("create a ConfigMap (dry run)", "configmaps", json!({"metadata": {"name": "m"}, "data": {"a": "b"}})),
        ("create a Pod (dry run)", "pods", pod("p")),
    ] {
        let path = format!("/api/v1/namespaces/default/{path}?dryRun=All");
        let started = Instant::now();
        for _ in 0..5000 {
            let (code, answer) = send(&server, Some(&admin), "", "POST", &path, body.clone()).await;
            assert_eq!(code, 201, "{answer}");
        }
        row(what, 5000, started.elapsed());
    }
    policies(&server, &admin).await;
    flood(&server, &admin).await;
}

/// What policies cost a write that they look at, and one that they do not.
async fn policies(server: &Server, admin: &Arc<User>) {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let body = json!({"metadata": {"name": "m"}, "data": {"a": "b"}});
    for (what, plural, spec) in [
        (
            "create a ConfigMap (dry run), one validating policy",
            "validatingadmissionpolicies",
            json!({"matchConstraints": rules, "validations": [{"expression": "object.data.all(k, size(k) < 64)"}, {"expression": "request.userInfo.username != ''"}]}),
        ),
        (
            "create a ConfigMap (dry run), a mutating policy besides",
            "mutatingadmissionpolicies",
            json!({"matchConstraints": rules, "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{metadata: Object.metadata{annotations: {'by': request.userInfo.username}}}"}}]}),
        ),
    ] {
        let (code, answer) = send(
            server,
            Some(admin),
            "",
            "POST",
            &format!("{GROUP}/{plural}"),
            json!({"metadata": {"name": "p"}, "spec": spec}),
        )
        .await;
        assert_eq!(code, 201, "{answer}");
        let singular = plural.strip_suffix("ies").unwrap_or(plural);
        let mut binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        if plural.starts_with("validating") {
            binding["spec"]["validationActions"] = json!(["Deny"]);
        }
        let (code, answer) =
            send(server, Some(admin), "", "POST", &format!("{GROUP}/{singular}ybindings"), binding).await;
        assert_eq!(code, 201, "{answer}");
        let started = Instant::now();
        for _ in 0..5000 {
            let (code, answer) = send(server, Some(admin), "", "POST", path, body.clone()).await;
            assert_eq!(code, 201, "{answer}");
        }
        row(what, 5000, started.elapsed());
    }
    let started = Instant::now();
    for _ in 0..5000 {
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
        send(server, Some(admin), "", "POST", "/api/v1/namespaces/default/secrets?dryRun=All", secret).await;
    }
    row("create a Secret (dry run), policies for others", 5000, started.elapsed());
}

/// Small writes of one user, alone and beside another who lists everything all the time.
async fn flood(server: &Server, admin: &Arc<User>) {
    for n in 0..5000 {
        let object = json!({"metadata": {"name": format!("big{n}")}, "stringData": {"k": "x".repeat(1000)}});
        send(server, Some(admin), "", "POST", "/api/v1/namespaces/kube-public/secrets", object).await;
    }
    let writes = |server: Server, user: Arc<User>, round: usize| async move {
        let mut took = Vec::with_capacity(2000);
        for n in 0..2000 {
            let object = json!({"metadata": {"name": format!("w{round}-{n}")}});
            let started = Instant::now();
            let (code, answer) =
                send(&server, Some(&user), "", "POST", "/api/v1/namespaces/kube-system/secrets", object).await;
            assert_eq!(code, 201, "{answer}");
            took.push(started.elapsed());
        }
        took.sort_unstable();
        took
    };
    let writer = User::new("writer", ["system:masters"]);
    let alone = writes(server.clone(), writer.clone(), 0).await;
    let flooder = User::new("flooder", ["system:masters"]);
    let floods: Vec<_> = (0..64)
        .map(|_| {
            let (server, user) = (server.clone(), flooder.clone());
            tokio::spawn(async move {
                loop {
                    let request = Request::builder().uri("/api/v1/secrets").body(Full::new(Bytes::new()));
                    let mut request = request.expect("a request");
                    request.extensions_mut().insert(user.clone());
                    let response = server.handle(request).await;
                    // The other end reads piece by piece.
                    let mut body = std::pin::pin!(response.into_body());
                    while body.frame().await.is_some() {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    let beside = writes(server.clone(), writer, 1).await;
    floods.iter().for_each(tokio::task::JoinHandle::abort);
    for (at, name) in [(50, "p50"), (99, "p99")] {
        let of = |took: &[Duration]| took[took.len() * at / 100];
        row(&format!("small write alone, {name}"), 1, of(&alone));
        row(&format!("small write beside 64 requests that list everything, {name}"), 1, of(&beside));
    }
}
