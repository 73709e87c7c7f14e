//! Who somebody is, and rights to a part of something: certificates and tokens, acting as some for some, parts of a
//! claim's status, connections to a Pod.

mod access_support;

use std::sync::Arc;

use access_support::{World, user};
use conductor_apiserver::User;
use conductor_apiserver::http::Peer;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// Gives somebody rights everywhere.
async fn grant(world: &World, who: &str, rules: Value) {
    let name = who.replace(':', "-");
    world.make(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
    world.make(&format!("{RBAC}/clusterrolebindings"), binding).await;
}

fn rule(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names})
}

/// Sends a GET as somebody who acts as somebody else; gives the status and what it says.
async fn acting(world: &World, user: &Arc<User>, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::builder().method("GET").uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Full::new(bytes::Bytes::new())).unwrap();
    request.extensions_mut().insert(user.clone());
    let response = world.0.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn some_act_as_some_for_some() {
    let world = World::new().await;
    let authn = "authentication.k8s.io";
    grant(&world, "kim", json!([rule("", "pods", &["list", "get"], &[]), rule("", "secrets", &["list"], &[])])).await;
    let rules = json!([
        rule(authn, "users", &["impersonate:user-info"], &["kim"]),
        rule(authn, "groups", &["impersonate:user-info"], &["dev"]),
        rule("", "pods", &["impersonate-on:user-info:list", "impersonate-on:serviceaccount:list"], &[]),
        rule("", "pods", &["impersonate-on:arbitrary-node:list", "impersonate-on:associated-node:list"], &[]),
        rule(authn, "serviceaccounts", &["impersonate:serviceaccount"], &["robot"]),
        rule(authn, "nodes", &["impersonate:arbitrary-node"], &["n"]),
    ]);
    grant(&world, "amy", rules).await;
    let amy = user("amy", &[]);
    let (secrets, as_kim) = ("/api/v1/namespaces/default/secrets", [("impersonate-user", "kim")]);

    assert_eq!(acting(&world, &amy, PODS, &as_kim).await.0, 200);
    let (code, why) = acting(&world, &amy, secrets, &as_kim).await;
    let expected = "secrets is forbidden: User \"amy\" cannot impersonate-on:user-info:list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, &*why), (403, expected));
    let (code, why) = acting(&world, &amy, PODS, &[("impersonate-user", "bob")]).await;
    let expected = "users.authentication.k8s.io \"bob\" is forbidden: User \"amy\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope";
    assert_eq!((code, &*why), (403, expected));
    // What they may do is what the other one may do, no more.
    assert_eq!(acting(&world, &amy, &format!("{PODS}/p"), &as_kim).await.0, 403);

    assert_eq!(acting(&world, &amy, PODS, &[as_kim[0], ("impersonate-group", "dev")]).await.0, 200);
    for (header, value) in [
        ("impersonate-group", "ops"),
        ("impersonate-group", "system:masters"),
        ("impersonate-group", ""),
        ("impersonate-uid", "1"),
        ("impersonate-extra-a", "b"),
    ] {
        assert_eq!(acting(&world, &amy, PODS, &[as_kim[0], (header, value)]).await.0, 403, "{header} {value}");
    }
    // Accounts and nodes are no users: the account may do nothing, the node lists no Pods of others.
    let robot = "system:serviceaccount:default:robot";
    let (code, why) = acting(&world, &amy, PODS, &[("impersonate-user", robot)]).await;
    assert!(code == 403 && why.contains(&format!("User \"{robot}\" cannot list")), "{why}");
    let (_, why) = acting(&world, &amy, PODS, &[("impersonate-user", "system:node:n")]).await;
    assert!(why.is_empty() || why.contains("system:node:n"), "{why}");
    let (code, why) = acting(&world, &amy, PODS, &[("impersonate-user", "system:node:m")]).await;
    assert!(code == 403 && why.contains("nodes.authentication.k8s.io \"m\" is forbidden"), "{why}");

    // An account acts as the node that its Pod is on, and no other.
    let agent = "system:serviceaccount:default:agent";
    let rules = json!([
        rule("", "nodes", &["impersonate-on:associated-node:get"], &[]),
        rule(authn, "nodes", &["impersonate:associated-node"], &[]),
    ]);
    grant(&world, agent, rules).await;
    let mut on_n = (*User::service_account("default", "agent")).clone();
    on_n.extra.insert("authentication.kubernetes.io/node-name".into(), vec!["n".into()]);
    let on_n = Arc::new(on_n);
    world.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let node = "/api/v1/nodes/n";
    assert_eq!(acting(&world, &on_n, node, &[("impersonate-user", "system:node:n")]).await.0, 200);
    assert_eq!(acting(&world, &on_n, node, &[("impersonate-user", "system:node:m")]).await.0, 403);

    // Who may do everything may act as anybody, in any group.
    let admin = user("admin", &["system:masters"]);
    let masters = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
    assert_eq!(acting(&world, &admin, secrets, &masters).await.0, 200);
    grant(&world, "old", json!([rule("", "users", &["impersonate"], &["kim"])])).await;
    assert_eq!(acting(&world, &user("old", &[]), secrets, &as_kim).await.0, 200);

    // Whoever wants to act as nobody is told what they want.
    for (headers, expected) in [
        (vec![("impersonate-uid", "1234")], r#"UID:"1234", Groups:[]string(nil), Extra:map[string][]string(nil)"#),
        (
            vec![("impersonate-group", "dev"), ("impersonate-group", "a\"b")],
            r#"UID:"", Groups:[]string{"dev", "a\"b"}, Extra:map[string][]string(nil)"#,
        ),
        (
            vec![("impersonate-extra-b", "2"), ("impersonate-extra-a", "1"), ("impersonate-extra-a", "0")],
            r#"UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"1", "0"}, "b":[]string{"2"}}"#,
        ),
    ] {
        let (code, why) = acting(&world, &admin, PODS, &headers).await;
        let expected =
            format!("requested &user.DefaultInfo{{Name:\"\", {expected}}} without impersonating a user name");
        assert_eq!((code, why), (400, expected));
    }
}

#[tokio::test]
async fn whoever_is_named_in_any_language_is_acted_as() {
    let world = World::new().await;
    let admin = user("admin", &["system:masters"]);
    let secrets = "/api/v1/namespaces/default/secrets";
    let (code, why) = acting(&world, &admin, secrets, &[("impersonate-user", "syst\u{e8}me")]).await;
    assert!(code == 403 && why.contains("User \"syst\u{e8}me\" cannot list"), "{code} {why}");

    // What cannot be read is not left out: less would be asked for than was meant, or nothing at all.
    for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-a"] {
        let mut request = Request::get(secrets).body(Full::new(bytes::Bytes::new())).unwrap();
        request.headers_mut().insert("impersonate-user", "bob".parse().unwrap());
        request.headers_mut().insert(name, http::HeaderValue::from_bytes(b"b\xff").unwrap());
        request.extensions_mut().insert(admin.clone());
        assert_eq!(world.0.handle(request).await.status(), 400, "{name}");
    }

    let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("impersonate-user", "bob")
        .header("impersonate-group", "\u{fc}ber")
        .header("impersonate-uid", "\u{e9}")
        .header("impersonate-extra-foo%zz", "\u{e8}")
        .header("impersonate-extra-a%2fb", "c")
        .body(Full::new(bytes::Bytes::from_static(b"{\"metadata\": {\"name\": \"x\"}}")))
        .unwrap();
    request.extensions_mut().insert(admin);
    let body = world.0.handle(request).await.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({
        "username": "bob", "uid": "\u{e9}", "groups": ["\u{fc}ber", "system:authenticated"],
        "extra": {"foo%zz": ["\u{e8}"], "a/b": ["c"]},
    });
    assert_eq!(review["status"]["userInfo"], expected);
    assert_eq!(review["metadata"].get("name"), None);
}

#[tokio::test]
async fn parts_of_a_claims_status_are_for_those_who_bind_and_for_drivers() {
    let world = World::new().await;
    let resource = "resource.k8s.io";
    let status = || rule(resource, "resourceclaims/status", &["update", "patch"], &[]);
    grant(&world, "nobody", json!([status()])).await;
    let binder = rule(resource, "resourceclaims/binding", &["update", "patch"], &[]);
    grant(&world, "binder", json!([status(), binder])).await;
    let driver = rule(resource, "resourceclaims/driver", &["arbitrary-node:patch"], &["d.example.com"]);
    grant(&world, "driver", json!([status(), driver])).await;
    let agent = "system:serviceaccount:default:agent";
    let local = rule(resource, "resourceclaims/driver", &["associated-node:patch"], &["d.example.com"]);
    grant(&world, agent, json!([status(), local])).await;

    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}]);
    world.make(CLAIMS, json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})).await;
    let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "dev"});
    let on_n =
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    let allocation = json!({"status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": on_n}}});
    let path = format!("{CLAIMS}/c/status");
    let (code, answer) = world.send(&user("nobody", &[]), "PATCH", &path, &allocation).await;
    let why = answer["message"].as_str().unwrap_or_default();
    let expected = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"nobody\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
    assert!(code == 422 && why.contains(expected), "{code} {why}");
    let (code, answer) = world.send(&user("binder", &[]), "PATCH", &path, &allocation).await;
    assert_eq!(code, 200, "{answer}");

    let said = |network: &str| {
        let device =
            json!({"driver": "d.example.com", "pool": "p", "device": "dev", "networkData": {"interfaceName": network}});
        json!({"status": {"devices": [device]}})
    };
    let (code, answer) = world.send(&user("binder", &[]), "PATCH", &path, &said("a")).await;
    let why = answer["message"].as_str().unwrap_or_default();
    let expected = "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"d.example.com\" is forbidden";
    assert!(code == 422 && why.contains(expected), "{code} {why}");
    let (code, answer) = world.send(&user("driver", &[]), "PATCH", &path, &said("a")).await;
    assert_eq!(code, 200, "{answer}");
    // What stays as it is needs no right.
    assert_eq!(world.send(&user("nobody", &[]), "PATCH", &path, &said("a")).await.0, 200);

    let on = |node: &str| {
        let mut account = (*User::service_account("default", "agent")).clone();
        account.extra.insert("authentication.kubernetes.io/node-name".into(), vec![node.into()]);
        Arc::new(account)
    };
    assert_eq!(world.send(&on("m"), "PATCH", &path, &said("b")).await.0, 422);
    assert_eq!(world.send(&on("n"), "PATCH", &path, &said("b")).await.0, 200);
}

#[tokio::test]
async fn who_connects_to_a_pod_may_create_the_connection() {
    let world = World::new().await;
    let parts = json!(["pods/exec", "pods/attach", "pods/portforward", "pods/log"]);
    let rules = |verbs: Value| json!([{"apiGroups": [""], "resources": parts, "verbs": verbs}]);
    grant(&world, "looks", rules(json!(["get"]))).await;
    grant(&world, "works", rules(json!(["get", "create"]))).await;
    world.make("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "other"}})).await;
    let containers = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    for (name, node) in [("waits", json!(null)), ("runs", json!("n"))] {
        let spec = json!({"serviceAccountName": "other", "nodeName": node, "containers": containers});
        world.make(PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let (looks, works) = (user("looks", &[]), user("works", &[]));
    let get = async |who, path: &str| {
        let (code, answer) = world.send(who, "GET", &format!("{PODS}/{path}"), &Value::Null).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    for part in ["exec?container=a&command=ls", "attach?container=a", "portforward?ports=80"] {
        assert_eq!(get(&looks, &format!("runs/{part}")).await.0, 403, "{part}");
        assert_eq!(get(&works, &format!("runs/{part}")).await.0, 501, "{part}");
        let (code, why) = get(&works, &format!("waits/{part}")).await;
        assert_eq!((code, &*why), (400, "pod waits does not have a host assigned"), "{part}");
        assert_eq!(get(&works, &format!("absent/{part}")).await.0, 404, "{part}");
    }
    let (code, why) = get(&works, "runs/exec?command=ls").await;
    assert_eq!((code, &*why), (400, "a container name must be specified for pod runs, choose one of: [a b]"));
    let (code, why) = get(&works, "runs/exec?container=x").await;
    assert_eq!((code, &*why), (400, "container x is not valid for pod runs"));
    assert_eq!(get(&looks, "waits/log?container=a").await.0, 204);
    // A Pod is spoken to where everybody could speak to it, and nowhere else.
    let admin = user("admin", &["system:masters"]);
    for (address, expected) in [
        ("", 400),
        ("127.0.0.1", 400),
        ("169.254.1.1", 400),
        ("224.0.0.1", 400),
        ("fe80::1", 400),
        ("10.0.0.7", 501),
        ("2001:db8::1", 501),
    ] {
        if !address.is_empty() {
            let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
            let (code, answer) = world.send(&admin, "PATCH", &format!("{PODS}/runs/status"), &status).await;
            assert_eq!(code, 200, "{answer}");
        }
        let (code, why) = get(&admin, "runs/proxy/x").await;
        assert_eq!(code, expected, "{address}: {why}");
        assert!(code == 501 || why == "address not allowed", "{address}: {why}");
    }
    assert_eq!(get(&admin, "absent/proxy").await.0, 404);
    assert_eq!(get(&looks, "runs/log?container=a").await.0, 501);
    assert_eq!(get(&looks, "runs/log").await.0, 400);
}

#[tokio::test]
async fn a_certificate_goes_before_a_token_and_a_bad_token_is_nobody() {
    let world = World::new().await;
    let ask = async |user: Option<Arc<User>>, token: &[u8]| {
        let mut request = Request::get("/api/v1/namespaces").body(Full::new(bytes::Bytes::new())).unwrap();
        let value = http::HeaderValue::from_bytes(&[b"Bearer ", token].concat()).unwrap();
        request.headers_mut().insert("authorization", value);
        request.extensions_mut().insert(Peer { user, is_unclear: false, address: ([127, 0, 0, 1], 1).into() });
        world.0.handle(request).await.status().as_u16()
    };
    for token in [&b"abc"[..], "\u{e9}".as_bytes(), b"\xff"] {
        assert_eq!(ask(Some(user("admin", &["system:masters"])), token).await, 200);
        assert_eq!(ask(Some(user("jane", &[])), token).await, 403);
        assert_eq!(ask(None, token).await, 401);
    }
}
