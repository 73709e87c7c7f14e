//! The real binary over TLS, with real credentials: secrets stay where they belong, credentials die, quotas are exact over a `kill -9`.

mod common;

use std::path::Path;

use base64::Engine;
use common::{Conductor, JSON, Random, block_on};
use conductor_testkit::wire::{Answer, Endpoint};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const MERGE: &str = "application/merge-patch+json";
const BASE: &str = "/api/v1/namespaces/default";
const TRANSACTIONS: &str = "/apis/transactions.conductor.io/v1alpha1/transactions";
/// What nobody but the administrator may see, as text and as it stands in a Secret.
const HIDDEN: [&str; 2] = ["hidden-treasure", "aGlkZGVuLXRyZWFzdXJl"];

async fn send(endpoint: &Endpoint, method: &str, path: &str, body: &Value) -> Answer {
    let kind = if method == "PATCH" { MERGE } else { JSON };
    let bytes = body.to_string();
    let body = (!body.is_null()).then_some((kind, bytes.as_bytes()));
    endpoint.request(method, path, body).await.expect("is answered")
}

async fn make(endpoint: &Endpoint, path: &str, object: Value) -> Value {
    let answer = send(endpoint, "POST", path, &object).await;
    assert_eq!(answer.code, 201, "{path} {object}: {}", answer.json());
    answer.json()
}

/// A service account with rules in the default namespace, and a token of it.
async fn account(admin: &Endpoint, name: &str, rules: Value) -> String {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    make(admin, &format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": name}})).await;
    make(admin, &format!("{rbac}/roles"), json!({"metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]});
    make(admin, &format!("{rbac}/rolebindings"), binding).await;
    token(admin, name, json!({})).await
}

async fn token(admin: &Endpoint, name: &str, spec: Value) -> String {
    let made = make(admin, &format!("{BASE}/serviceaccounts/{name}/token"), json!({"spec": spec})).await;
    made["status"]["token"].as_str().expect("a token").to_owned()
}

fn transaction(operations: Value) -> Value {
    json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": operations}})
}

/// Every way to a Secret's content for who may write ConfigMaps and make Secrets, and read neither kind's other objects.
fn ways() -> Vec<(&'static str, String, &'static str, Value)> {
    let secrets = format!("{BASE}/secrets");
    let at = |path: &str| format!("{secrets}{path}");
    let operation = |verb: &str, resource: &str, object: Value| json!({"verb": verb, "version": "v1", "resource": resource, "namespace": "default", "name": "s", "object": object});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    vec![
        ("GET", at("/s"), "", Value::Null),
        ("GET", at(""), "", Value::Null),
        ("GET", "/api/v1/secrets".into(), "", Value::Null),
        ("GET", at("?watch=1&timeoutSeconds=1"), "", Value::Null),
        ("GET", at("?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Ds"), "", Value::Null),
        ("GET", at("?fieldSelector=type%3DOpaque"), "", Value::Null),
        ("GET", "/api/v1/watch/namespaces/default/secrets/s?timeoutSeconds=1".into(), "", Value::Null),
        ("GET", "/api/v1/ns/default/secrets/s".into(), "", Value::Null),
        ("GET", "/api/v1/watch/ns/default/secrets?timeoutSeconds=1".into(), "", Value::Null),
        ("GET", at("/s/"), "", Value::Null),
        ("GET", format!("{BASE}/configmaps/../secrets/s"), "", Value::Null),
        ("GET", format!("{BASE}/configmaps/%2e%2e/secrets/s"), "", Value::Null),
        ("GET", format!("{BASE}/configmaps%2f..%2fsecrets/s"), "", Value::Null),
        ("GET", format!("{BASE}/configmaps/%252e%252e/secrets/s"), "", Value::Null),
        ("PATCH", at("/s"), MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
        ("PATCH", at("/s?dryRun=All"), MERGE, json!({})),
        ("PATCH", at("/s"), "application/json-patch+json", json!([{"op": "test", "path": "/data/k", "value": "x"}])),
        (
            "PATCH",
            at("/s"),
            "application/json-patch+json",
            json!([{"op": "copy", "from": "/data/k", "path": "/metadata/annotations"}]),
        ),
        ("PATCH", at("/s?fieldManager=m&force=true"), "application/apply-patch+yaml", secret.clone()),
        ("PUT", at("/s"), JSON, secret.clone()),
        ("DELETE", at("/s?dryRun=All"), JSON, Value::Null),
        ("DELETE", at("?dryRun=All"), JSON, Value::Null),
        // May be tried: the name is taken, and that is all that is said.
        ("POST", at(""), JSON, secret.clone()),
        ("POST", at(""), JSON, json!({"metadata": {"name": "s"}, "data": {"not a key": "aGlkZGVuLXRyZWFzdXJl"}})),
        ("POST", at(""), JSON, json!({"metadata": {"name": "t"}, "data": {"k": "hidden-treasure, not in base64"}})),
        ("POST", TRANSACTIONS.into(), JSON, transaction(json!([operation("create", "secrets", secret.clone())]))),
        ("POST", TRANSACTIONS.into(), JSON, transaction(json!([operation("update", "secrets", secret.clone())]))),
        ("POST", TRANSACTIONS.into(), JSON, transaction(json!([operation("patch", "secrets", json!({}))]))),
        ("POST", TRANSACTIONS.into(), JSON, transaction(json!([operation("apply", "secrets", secret.clone())]))),
        ("POST", TRANSACTIONS.into(), JSON, transaction(json!([operation("delete", "secrets", Value::Null)]))),
        ("POST", TRANSACTIONS.into(), JSON, transaction(json!([operation("get", "secrets", Value::Null)]))),
    ]
}

#[test]
fn a_secret_has_no_side_door() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let audit = directory.path().join("audit.log");
    let conductor = Conductor::start(&data, &["--audit-log-file", audit.to_str().expect("is text")]);
    let robot = block_on(async {
        let admin = &conductor.endpoint;
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": HIDDEN[0]}});
        make(admin, &format!("{BASE}/secrets"), secret).await;
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
            {"apiGroups": ["transactions.conductor.io"], "resources": ["transactions"], "verbs": ["create"]}]);
        let robot = account(admin, "robot", rules).await;
        let own = admin.with_token(&robot);
        for accept in [
            "application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/yaml",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "application/vnd.kubernetes.protobuf",
        ] {
            for (method, path, kind, body) in ways() {
                let body = body.to_string();
                let mut connection = own.connect().await.expect("connects");
                let length = if body == "null" { 0 } else { body.len() };
                let head = format!(
                    "{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nAuthorization: Bearer {robot}\r\n\
                     Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
                );
                connection.write(&[head.as_bytes(), &body.as_bytes()[..length]].concat()).await.expect("is sent");
                let (code, _) = connection.head().await.expect("is answered");
                let answer = connection.rest().await.expect("is answered");
                let text = String::from_utf8_lossy(&answer);
                assert!(code >= 400, "{method} {path} {body}: {code} {text}");
                assert!(!HIDDEN.iter().any(|hidden| text.contains(hidden)), "{method} {path} {body}: {code} {text}");
            }
        }
        // Nothing of it changed anything.
        let after = send(admin, "GET", &format!("{BASE}/secrets/s"), &Value::Null).await.json();
        assert_eq!(after["data"], json!({"k": HIDDEN[1]}));
        assert!(after["metadata"]["labels"].is_null(), "{after}");
        robot
    });
    let (said, log) = (conductor.log(), std::fs::read_to_string(&audit).expect("an audit log"));
    conductor.kill();
    assert!(log.lines().count() > 100 && log.contains("system:serviceaccount:default:robot"), "{log}");
    for (decision, reason) in [("allow", "RBAC: allowed by RoleBinding"), ("forbid", "")] {
        let annotations =
            format!(r#""authorization.k8s.io/decision":"{decision}","authorization.k8s.io/reason":"{reason}"#);
        assert!(log.contains(&annotations), "{annotations}: {log}");
    }
    for text in HIDDEN.into_iter().chain([robot.as_str()]) {
        assert!(!said.contains(text), "the log shows {text}");
        assert!(!log.contains(text), "the audit log shows {text}");
    }
}

#[test]
fn credentials_die() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let filed = directory.path().join("tokens.csv");
    std::fs::write(&filed, "static-token,filed,u9,\"g1,g2\"\n").expect("is written");
    let conductor = Conductor::start(&data, &["--token-auth-file", filed.to_str().expect("is text")]);
    block_on(async {
        let admin = &conductor.endpoint;
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        let own = account(admin, "robot", rules).await;
        let code = async |token: &str| {
            send(&admin.with_token(token), "GET", &format!("{BASE}/configmaps"), &Value::Null).await.code
        };
        assert_eq!(code(&own).await, 200);
        // Not for another account that had the name before.
        let request = json!({"metadata": {"uid": "another"}, "spec": {}});
        let answer = send(admin, "POST", &format!("{BASE}/serviceaccounts/robot/token"), &request).await;
        assert_eq!(answer.code, 409, "{}", answer.json());
        // For somebody else, for something that goes, forged, or of no signature.
        let elsewhere = token(admin, "robot", json!({"audiences": ["vault"]})).await;
        assert_eq!(code(&elsewhere).await, 401);
        let secret = make(admin, &format!("{BASE}/secrets"), json!({"metadata": {"name": "anchor"}})).await;
        let object = json!({"apiVersion": "v1", "kind": "Secret", "name": "anchor", "uid": secret["metadata"]["uid"]});
        let bound = token(admin, "robot", json!({"boundObjectRef": object})).await;
        assert_eq!(code(&bound).await, 200);
        assert_eq!(send(admin, "DELETE", &format!("{BASE}/secrets/anchor"), &Value::Null).await.code, 200);
        assert_eq!(code(&bound).await, 401);
        let parts: Vec<&str> = own.split('.').collect();
        let [head, claims, signature] = parts[..] else { panic!("not a JWT: {own}") };
        let no_algorithm = "eyJhbGciOiJub25lIn0";
        for forged in [
            format!("{head}.{claims}."),
            format!("{no_algorithm}.{claims}."),
            format!("{no_algorithm}.{claims}.{signature}"),
            format!("{head}.{}.{signature}", elsewhere.split('.').nth(1).expect("has claims")),
            format!("{own}.{own}"),
        ] {
            assert_eq!(code(&forged).await, 401, "{forged}");
        }
        // Of the file, for this server alone.
        let spec = |audiences: Value| json!({"spec": {"token": "static-token", "audiences": audiences}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let plain = make(admin, path, spec(json!([]))).await["status"].clone();
        assert_eq!(plain["user"]["username"], "filed", "{plain}");
        let own_audience = plain["audiences"][0].clone();
        assert!(own_audience.is_string(), "{plain}");
        assert_ne!(make(admin, path, spec(json!(["vault"]))).await["status"]["authenticated"], true);
        let both = make(admin, path, spec(json!(["vault", own_audience]))).await["status"].clone();
        assert_eq!((&both["authenticated"], &both["audiences"]), (&json!(true), &json!([own_audience])));
        // Revoked: by its role, then by its account.
        let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/robot";
        assert_eq!(send(admin, "DELETE", binding, &Value::Null).await.code, 200);
        assert_eq!(code(&own).await, 403);
        assert_eq!(send(admin, "DELETE", &format!("{BASE}/serviceaccounts/robot"), &Value::Null).await.code, 200);
        assert_eq!(code(&own).await, 401);
    });
}

/// A token in a Secret is good while the Secret holds it and its account is there; what takes either away takes the token.
#[test]
fn a_token_in_a_secret_dies_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let conductor = Conductor::start(&directory.path().join("data"), &[]);
    block_on(async {
        let admin = &conductor.endpoint;
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        account(admin, "robot", rules).await;
        let ask =
            async |method: &str, path: &str, body: Value| send(admin, method, &format!("{BASE}{path}"), &body).await;
        let code = async |token: &str| {
            send(&admin.with_token(token), "GET", &format!("{BASE}/configmaps"), &Value::Null).await.code
        };
        let review = async |token: &str, audiences: Value| {
            let spec = json!({"token": token, "audiences": audiences});
            make(admin, "/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": spec})).await["status"].clone()
        };
        let until = async |name: &str, what: &dyn Fn(&Value) -> bool| {
            for _ in 0..500 {
                let secret = ask("GET", &format!("/secrets/{name}"), Value::Null).await.json();
                if what(&secret) {
                    return secret;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            panic!("{name} never came to be as it should");
        };
        let has_token = |secret: &Value| secret["data"]["token"].is_string();
        let ask_for = async |name: &str, more: Value| {
            let annotations = json!({"kubernetes.io/service-account.name": "robot"});
            let mut secret = json!({"metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/service-account-token"});
            for (key, value) in more.as_object().into_iter().flatten() {
                secret["metadata"][key] = value.clone();
            }
            make(admin, &format!("{BASE}/secrets"), secret).await;
            decoded(&until(name, &has_token).await)
        };

        let own = ask_for("kept", json!({})).await;
        assert_eq!(code(&own).await, 200);
        let status = review(&own, json!([])).await;
        assert_eq!(status["authenticated"], true, "{status}");
        assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
        let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
        assert_eq!(status["user"]["groups"], groups);
        assert_ne!(review(&own, json!(["vault"])).await["authenticated"], true);
        // The day of its use is said on it.
        let used = |secret: &Value| secret["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].is_string();
        until("kept", &used).await;

        let old = json!({"type": "Opaque", "metadata": {"name": "copied"}});
        for (name, more, method, body) in [
            ("emptied", json!({}), "PATCH", json!({"data": {"token": null}})),
            ("replaced", json!({}), "PATCH", json!({"stringData": {"token": own}})),
            (
                "labelled",
                json!({}),
                "PATCH",
                json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}),
            ),
            ("deleted", json!({}), "DELETE", Value::Null),
            ("going", json!({"finalizers": ["example.com/hold"]}), "DELETE", Value::Null),
            ("copied", json!({}), "DELETE", Value::Null),
        ] {
            let token = ask_for(name, more).await;
            assert_eq!(code(&token).await, 200, "{name}");
            let answer = ask(method, &format!("/secrets/{name}"), body).await;
            assert!(answer.code < 300, "{name}: {}", answer.json());
            if name == "copied" {
                let mut copy = old.clone();
                copy["stringData"] = json!({"token": token});
                make(admin, &format!("{BASE}/secrets"), copy).await;
            }
            assert_eq!(code(&token).await, 401, "{name}");
            assert_ne!(review(&token, json!([])).await["authenticated"], true, "{name}");
            if name == "emptied" {
                let again = decoded(&until(name, &has_token).await);
                assert_eq!((again != token, code(&again).await, code(&token).await), (true, 200, 401));
            }
        }
        // Somebody else's Secret holds it, or it was signed for another.
        let [head, _, signature] = own.split('.').collect::<Vec<_>>()[..] else { panic!("not a JWT: {own}") };
        let other = ask_for("other", json!({})).await;
        let claims = other.split('.').nth(1).expect("has claims");
        assert_eq!(code(&format!("{head}.{claims}.{signature}")).await, 401);

        // With its account, and one of the same name is another.
        let path = "/serviceaccounts/robot";
        ask("PATCH", path, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
        assert_eq!(code(&own).await, 200);
        assert_eq!(ask("DELETE", path, Value::Null).await.code, 200);
        assert_eq!(code(&own).await, 401, "its account is being deleted");
        ask("PATCH", path, json!({"metadata": {"finalizers": null}})).await;
        until("kept", &|secret| secret["code"] == 404).await;
        make(admin, &format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await;
        assert_eq!(code(&own).await, 401);
        assert_eq!(code(&ask_for("kept", json!({})).await).await, 200);
        assert_eq!(code(&own).await, 401);
    });
}

/// The token of a Secret.
fn decoded(secret: &Value) -> String {
    use base64::Engine;
    let token = secret["data"]["token"].as_str().expect("a token");
    let token = base64::engine::general_purpose::STANDARD.decode(token).expect("is base64");
    String::from_utf8(token).expect("is text")
}

/// A certificate of another authority of the same name is not let in.
#[test]
fn a_certificate_of_another_authority_is_worth_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let (first, second) = (Conductor::start(&one, &[]), Conductor::start(&two, &[]));
    let kubeconfig = |data: &Path| std::fs::read_to_string(data.join("kubeconfig")).expect("is there");
    let line = |text: &str, key: &str| {
        text.lines().find(|line| line.trim().starts_with(key)).map(str::to_owned).expect("has it")
    };
    // The address and authority of the first with the certificate of the second.
    let (mut mixed, own) = (kubeconfig(&two), kubeconfig(&one));
    for key in ["server:", "certificate-authority-data:"] {
        mixed = mixed.replace(&line(&mixed, key), &line(&own, key));
    }
    let file = directory.path().join("mixed");
    std::fs::write(&file, mixed).expect("is written");
    let stranger = Endpoint::from_kubeconfig(&file).expect("can be used");
    let answer = block_on(async { stranger.request("GET", "/api/v1/secrets", None).await });
    assert!(answer.as_ref().map_or(true, |answer| answer.code == 401), "{answer:?}");
    drop((first, second));
}

/// Quotas over lives of the server: never exceeded, and what they say is used is what is there.
#[test]
fn quotas_are_exact_over_kills() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let mut random = Random(7);
    let mut conductor = Conductor::start(&data, &[]);
    block_on(async {
        let hard = json!({"count/configmaps": "40", "requests.storage": "30Gi", "persistentvolumeclaims": "25"});
        make(
            &conductor.endpoint,
            &format!("{BASE}/resourcequotas"),
            json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}),
        )
        .await;
    });
    for life in 0..6 {
        block_on(async {
            let mut writers = tokio::task::JoinSet::new();
            for writer in 0..8_u64 {
                let (endpoint, mut random) = (conductor.endpoint.clone(), Random(life * 100 + writer));
                writers.spawn(async move {
                    let Ok(mut connection) = endpoint.connect().await else { return };
                    for _ in 0..10_000 {
                        let n = random.below(80);
                        let (plural, object) = if random.below(2) == 0 {
                            ("configmaps", json!({"metadata": {"name": format!("m{n}")}}))
                        } else {
                            (
                                "persistentvolumeclaims",
                                json!({"metadata": {"name": format!("c{n}")}, "spec": {
                                "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                                "resources": {"requests": {"storage": format!("{}Gi", 1 + n % 3)}}}}),
                            )
                        };
                        let (path, name) =
                            (format!("{BASE}/{plural}"), object["metadata"]["name"].as_str().expect("a name"));
                        let body = object.to_string();
                        let sent = match random.below(3) {
                            0 => connection.request("DELETE", &format!("{path}/{name}"), None).await,
                            _ => connection.request("POST", &path, Some((JSON, body.as_bytes()))).await,
                        };
                        let Ok(answer) = sent else { return };
                        assert!(matches!(answer.code, 200 | 201 | 403 | 404 | 409 | 429), "{}", answer.json());
                    }
                });
            }
            tokio::time::sleep(std::time::Duration::from_millis(150 + random.below(250))).await;
            conductor.kill();
            while let Some(done) = writers.join_next().await {
                done.expect("only what may happen happened");
            }
        });
        conductor = Conductor::start(&data, &[]);
        block_on(async { check_quota(&conductor.endpoint).await });
    }
}

/// What the quota says is used comes to be what is there, and never was more than is allowed.
async fn check_quota(endpoint: &Endpoint) {
    let items = async |plural: &str| {
        let list = send(endpoint, "GET", &format!("{BASE}/{plural}"), &Value::Null).await.json();
        list["items"].as_array().expect("a list").clone()
    };
    let (maps, claims) = (items("configmaps").await, items("persistentvolumeclaims").await);
    let storage: usize = claims
        .iter()
        .map(|claim| {
            let text = claim["spec"]["resources"]["requests"]["storage"].as_str().expect("asks for storage");
            text.trim_end_matches("Gi").parse::<usize>().expect("a number")
        })
        .sum();
    assert!(maps.len() <= 40 && claims.len() <= 25 && storage <= 30, "{} {} {storage}", maps.len(), claims.len());
    let truth = json!({"count/configmaps": maps.len().to_string(), "persistentvolumeclaims": claims.len().to_string(),
        "requests.storage": if storage == 0 { "0".to_owned() } else { format!("{storage}Gi") }});
    let path = format!("{BASE}/resourcequotas/q");
    let mut used = Value::Null;
    // A claim that is being deleted while its controller was killed goes in its own time.
    for _ in 0..200 {
        used = send(endpoint, "GET", &path, &Value::Null).await.json()["status"]["used"].clone();
        let now = (items("configmaps").await.len(), items("persistentvolumeclaims").await.len());
        if now != (maps.len(), claims.len()) {
            return Box::pin(check_quota(endpoint)).await;
        }
        if used == truth {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(used, truth);
}

/// Everything a provider adds, by whoever administers infrastructure; and by nobody else.
#[test]
fn infrastructure_admins_have_the_kinds_of_the_providers() {
    let world = common::world::World::new();
    let data = world.data.display().to_string();
    world.conductor(&["user", "add", "infra", "--role", "infrastructure-admin", "-o", "-", "--data-dir", &data]);
    let may = |verb: &str, (group, resource): (&str, &str), namespace: &str| {
        let attributes = json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": "infra", "resourceAttributes": attributes},
        });
        let (code, answer) =
            world.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", Some((JSON, &review)));
        assert_eq!(code, 201, "{answer}");
        answer["status"]["allowed"] == true
    };
    let (databases, volumes, networks) =
        ("database.local.conductor.io", "volume.local.conductor.io", "network.local.conductor.io");
    let kinds = [
        (databases, "postgresinstances"),
        (databases, "mariadbdatabases"),
        (volumes, "imagevolumes"),
        (volumes, "directoryvolumes"),
        (networks, "haproxybalancers"),
        (networks, "portforwards"),
    ];
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    for kind in kinds {
        for verb in verbs {
            common::world::soon(&format!("may {verb} {kind:?}"), || may(verb, kind, "conductor-system").then_some(()));
        }
        assert!(!may("list", kind, "default") && !may("create", kind, ""), "{kind:?} elsewhere");
    }
    let pools = (networks, "addresspools");
    common::world::soon("may administer pools", || (may("create", pools, "") && may("list", pools, "")).then_some(()));
    assert!(may("update", ("", "secrets"), "conductor-system") && !may("get", ("", "secrets"), "default"));
    assert!(may("list", ("", "nodes"), "") && !may("create", ("", "nodes"), ""));
}

/// What a browser does: its token among the protocols, since it cannot set headers. The code and, with 101, the socket.
async fn socket(
    endpoint: &Endpoint,
    path: &str,
    token: &str,
) -> (u16, WebSocketStream<impl AsyncRead + AsyncWrite + Unpin + use<>>) {
    let mut stream = endpoint.anonymous().stream(&[b"http/1.1"]).await.expect("connects");
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nOrigin: https://x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("is sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("is answered"));
    }
    let answer = String::from_utf8(answer).expect("text").to_lowercase();
    let code = answer[9..12].parse().expect("a code");
    if code == 101 {
        // as the specification has it for this key
        assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
        assert!(answer.contains("sec-websocket-protocol: base64.binary.k8s.io\r"), "{answer}");
    }
    (code, WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
}

#[test]
fn watches_over_websocket_have_an_event_in_each_message_and_the_rights_of_their_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let conductor = Conductor::start(&directory.path().join("data"), &[]);
    block_on(async {
        let admin = &conductor.endpoint;
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
        let robot = account(admin, "robot", rules).await;
        let selector = "watch=true&labelSelector=watched";
        let path = format!("{BASE}/configmaps?{selector}");
        assert_eq!(socket(admin, &format!("{BASE}/secrets?{selector}"), &robot).await.0, 403);
        assert_eq!(socket(admin, &path, "nonsense").await.0, 401);
        assert_eq!(socket(admin, &format!("{BASE}/configmaps"), &robot).await.0, 200, "a list is a list");

        let (code, mut watch) = socket(admin, &format!("{path}&timeoutSeconds=3"), &robot).await;
        assert_eq!(code, 101);
        watch.send(Message::Ping("still there?".into())).await.expect("is sent");
        for name in ["a", "b"] {
            let object = json!({"metadata": {"name": name, "labels": {"watched": "yes"}}});
            make(admin, &format!("{BASE}/configmaps"), object).await;
        }
        let mut said = Vec::new();
        let mut answered = false;
        while let Some(message) = watch.next().await {
            match message.expect("a message") {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).expect("an event");
                    said.push(format!("{} {}", event["type"], event["object"]["metadata"]["name"]));
                }
                Message::Pong(text) => answered = text == "still there?",
                Message::Close(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(answered, "a ping has its answer");
        assert_eq!(said, [r#""ADDED" "a""#, r#""ADDED" "b""#], "and then it is over");

        // Whoever talks on and on is not listened to.
        let (_, mut watch) = socket(admin, &path, &robot).await;
        let _ = watch.send(Message::Binary(vec![0; 1 << 20].into())).await;
        let ended = async { while watch.next().await.is_some_and(|said| said.is_ok_and(|said| !said.is_close())) {} };
        tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.expect("it is ended");
        // Whoever leaves is let go, and more can come.
        let (_, mut watch) = socket(admin, &path, &robot).await;
        watch.close(None).await.expect("is told");
        assert_eq!(socket(admin, &path, &robot).await.0, 101);
    });
}
