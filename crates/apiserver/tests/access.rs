//! Who may do what: roles, bindings, escalation, revocation, over in-process requests.

mod access_support;

use access_support::{World, user};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": subjects,
    })
}

fn to_user(name: &str) -> Value {
    json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}])
}

#[tokio::test]
async fn roles_decide_verb_by_kind_by_namespace() {
    let world = World::new().await;
    for namespace in ["one", "two"] {
        world.namespace(namespace).await;
        let base = format!("/api/v1/namespaces/{namespace}");
        world.make(&format!("{base}/configmaps"), json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
        world.make(&format!("{base}/secrets"), json!({"metadata": {"name": "a"}, "stringData": {"k": "hidden"}})).await;
    }
    let in_one = format!("{RBAC}/namespaces/one");
    for (who, role) in [("viewer", "view"), ("editor", "edit"), ("owner", "admin")] {
        world.make(&format!("{in_one}/rolebindings"), binding(who, "ClusterRole", role, to_user(who))).await;
    }
    world
        .make(
            &format!("{RBAC}/clusterrolebindings"),
            binding("super", "ClusterRole", "cluster-admin", to_user("super")),
        )
        .await;
    let one_secret = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get", "list", "watch"]}]);
    world.make(&format!("{in_one}/roles"), role("one-secret", one_secret)).await;
    let accounts = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "two"}]);
    world.make(&format!("{in_one}/rolebindings"), binding("robot", "Role", "one-secret", accounts)).await;
    let group = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}]);
    world.make(&format!("{in_one}/rolebindings"), binding("team", "ClusterRole", "view", group)).await;

    let users = [
        user("viewer", &[]),
        user("editor", &[]),
        user("owner", &[]),
        user("super", &[]),
        conductor_apiserver::User::service_account("two", "robot"),
        user("member", &["team"]),
        user("stranger", &[]),
        conductor_apiserver::User::anonymous(),
    ];
    // One column per user: viewer editor owner super robot member stranger anonymous; `+` may, `-` may not.
    let table = [
        ("GET", "/api/v1/namespaces/one/configmaps/a", "++++-+--"),
        ("GET", "/api/v1/namespaces/one/configmaps", "++++-+--"),
        ("GET", "/api/v1/namespaces/two/configmaps/a", "---+----"),
        ("GET", "/api/v1/configmaps", "---+----"),
        ("POST", "/api/v1/namespaces/one/configmaps", "-+++----"),
        ("POST", "/api/v1/namespaces/two/configmaps", "---+----"),
        ("PATCH", "/api/v1/namespaces/one/configmaps/a", "-+++----"),
        ("GET", "/api/v1/namespaces/one/secrets/a", "-++++---"),
        ("GET", "/api/v1/namespaces/one/secrets", "-+++----"),
        ("GET", "/api/v1/namespaces/one/secrets?fieldSelector=metadata.name%3Da", "-++++---"),
        ("GET", "/api/v1/namespaces/two/secrets/a", "---+----"),
        ("GET", "/api/v1/watch/namespaces/one/secrets?timeoutSeconds=1&limit=1", "-+++----"),
        ("GET", "/api/v1/ns/one/secrets/a", "-++++---"),
        ("GET", "/api/v1/namespaces/one/secrets/a/", "-++++---"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/one/roles", "--++----"),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "---+----"),
        ("POST", "/api/v1/namespaces", "---+----"),
        ("GET", "/api/v1/namespaces/one", "++++-+--"),
        ("GET", "/api/v1/nodes", "---+----"),
        ("GET", "/apis", "+++++++-"),
        ("GET", "/version", "++++++++"),
        ("GET", "/healthz", "++++++++"),
        ("GET", "/metrics", "---+----"),
    ];
    for (method, path, expected) in table {
        let seen: String = {
            let mut seen = String::new();
            for user in &users {
                let body = match (method, path) {
                    ("PATCH", _) => json!({"data": {"x": "y"}}),
                    ("POST", path) if path.ends_with("roles") => json!({"metadata": {"generateName": "r-"}}),
                    ("POST", _) => json!({"metadata": {"generateName": "n-"}}),
                    _ => Value::Null,
                };
                let (code, answer) = world.send(user, method, path, &body).await;
                assert!(code == 403 || code < 300, "{method} {path} as {}: {code} {answer}", user.name);
                assert!(code != 403 || !answer.to_string().contains("hidden"), "a refusal shows what it refuses");
                seen.push(if code == 403 { '-' } else { '+' });
            }
            seen
        };
        assert_eq!(seen, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn paths_that_look_like_others_are_refused() {
    let world = World::new().await;
    world.make("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let all_but_secrets = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"nonResourceURLs": ["/api/*", "/version/*", "/healthz/*"], "verbs": ["get"]},
    ]);
    world.make(&format!("{RBAC}/clusterroles"), role("tricky", all_but_secrets)).await;
    world
        .make(&format!("{RBAC}/clusterrolebindings"), binding("tricky", "ClusterRole", "tricky", to_user("mallory")))
        .await;
    let mallory = user("mallory", &[]);
    for path in [
        "/api/v1/namespaces/default/configmaps/../secrets/s",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/s",
        "/api/v1/namespaces/default/configmaps%2f..%2fsecrets/s",
        "/api/v1/namespaces/default/configmaps/%252e%252e/secrets/s",
        "/api/v1/namespaces/default//secrets/s",
        "//api/v1/namespaces/default/secrets/s",
        "/api/v1/namespaces/default/secrets/s/",
        "/api/v1/ns/default/secrets/s",
        "/api/v1/watch/ns/default/secrets/s",
        "/api/v1/namespaces/default/secrets/s/status",
        "/api/v1/namespaces/default/%73ecrets/s",
        "/healthz/../api/v1/secrets",
        "/version/%2e%2e/api/v1/secrets",
    ] {
        let (code, answer) = world.send(&mallory, "GET", path, &Value::Null).await;
        assert!(matches!(code, 400 | 403 | 404), "{path}: {code} {answer}");
        assert_ne!(answer["kind"], "Secret", "{path}");
    }
}

/// Who may watch one object by its name sees no other, whatever is selected besides.
#[tokio::test]
async fn the_right_to_watch_one_is_none_to_watch_others() {
    let world = World::new().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["own", "hidden"] {
        world.make(secrets, json!({"metadata": {"name": name}, "type": "Opaque"})).await;
    }
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"], "verbs": ["get", "list", "watch"]}]);
    world.make(&format!("{RBAC}/namespaces/default/roles"), role("one", rules)).await;
    world
        .make(&format!("{RBAC}/namespaces/default/rolebindings"), binding("one", "Role", "one", to_user("jane")))
        .await;
    let jane = user("jane", &[]);
    let old = "/api/v1/watch/namespaces/default/secrets/own?timeoutSeconds=1";
    for (path, expected) in [
        (old.to_owned(), 200),
        (format!("{old}&fieldSelector=metadata.name%3Down"), 200),
        (format!("{old}&fieldSelector=metadata.name%3Down,type%3DOpaque"), 200),
        (format!("{old}&fieldSelector=metadata.name%3Down,metadata.name%3Dhidden"), 400),
        (format!("{old}&fieldSelector=type%3DOpaque"), 400),
        (format!("{old}&fieldSelector=metadata.name%3Dhidden"), 400),
        (format!("{old}&fieldSelector=metadata.namespace%3Ddefault"), 400),
        (format!("{secrets}?watch=true&timeoutSeconds=1&fieldSelector=type%3DOpaque"), 403),
        (format!("{secrets}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dhidden"), 403),
        (format!("{secrets}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Down"), 200),
    ] {
        let (code, text) = world.text(&jane, &path).await;
        assert_eq!(code, expected, "{path}: {text}");
        let sees = |name: &str| text.contains(&format!("\"name\":\"{name}\""));
        assert!(code != 200 || !sees("hidden"), "{path}: {text}");
        assert_eq!(sees("own"), code == 200, "{path}: {text}");
    }
}

/// A namespace is in itself and in no other: who may do everything with namespaces in one may do it to that one.
#[tokio::test]
async fn rights_in_a_namespace_are_none_on_others() {
    let world = World::new().await;
    world.namespace("own").await;
    world.namespace("victim").await;
    let rules = json!([{"apiGroups": [""], "resources": ["namespaces", "namespaces/finalize", "namespaces/status"], "verbs": ["*"]}]);
    world.make(&format!("{RBAC}/namespaces/own/roles"), role("keeper", rules)).await;
    let binding = binding("keeper", "Role", "keeper", to_user("mallory"));
    world.make(&format!("{RBAC}/namespaces/own/rolebindings"), binding).await;
    let mallory = user("mallory", &[]);
    let victim = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "victim"}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for (method, path, body) in [
        ("GET", "namespaces", &Value::Null),
        ("GET", "namespaces?fieldSelector=metadata.name%3Dvictim", &Value::Null),
        ("GET", "namespaces?watch=true&timeoutSeconds=1", &Value::Null),
        ("GET", "namespaces/victim", &Value::Null),
        ("POST", "namespaces", &json!({"metadata": {"name": "made"}})),
        ("PUT", "namespaces/victim", &victim),
        ("PUT", "namespaces/victim/finalize", &victim),
        ("PUT", "namespaces/victim/status", &victim),
        ("PATCH", "namespaces/victim", &label),
        ("DELETE", "namespaces/victim", &Value::Null),
        ("DELETE", "namespaces", &Value::Null),
        ("GET", "nodes", &Value::Null),
    ] {
        for through in ["/api/v1/namespaces/own", "/api/v1/ns/own", "/api/v1/watch/namespaces/own"] {
            let (code, answer) = world.send(&mallory, method, &format!("{through}/{path}"), body).await;
            assert!(matches!(code, 403..=405), "{method} {through}/{path}: {code} {answer}");
        }
    }
    let (code, victim) =
        world.send(&user("admin", &["system:masters"]), "GET", "/api/v1/namespaces/victim", &Value::Null).await;
    assert_eq!((code, &victim["metadata"]["deletionTimestamp"]), (200, &Value::Null), "{victim}");
    assert_eq!(world.send(&mallory, "GET", "/api/v1/namespaces/own", &Value::Null).await.0, 200);
}

#[tokio::test]
async fn nobody_gives_away_more_than_they_have() {
    let world = World::new().await;
    world.namespace("one").await;
    let writer = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
         "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/own/*"], "verbs": ["get"]},
    ]);
    world.make(&format!("{RBAC}/clusterroles"), role("writer", writer)).await;
    world.make(&format!("{RBAC}/clusterrolebindings"), binding("writer", "ClusterRole", "writer", to_user("w"))).await;
    let w = user("w", &[]);
    let rule =
        |verbs: &[&str], resources: &[&str]| json!([{"apiGroups": [""], "resources": resources, "verbs": verbs}]);
    let cases = [
        ("roles", role("ok", rule(&["get"], &["pods"])), 201),
        (
            "roles",
            role(
                "named",
                json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]}]),
            ),
            201,
        ),
        ("roles", role("more", rule(&["get", "delete"], &["pods"])), 403),
        ("roles", role("log", rule(&["get"], &["pods/log"])), 403),
        ("roles", role("star", rule(&["*"], &["pods"])), 403),
        ("roles", role("none", json!([])), 201),
        ("rolebindings", binding("admin", "ClusterRole", "admin", to_user("w")), 403),
        ("rolebindings", binding("own", "ClusterRole", "writer", to_user("friend")), 201),
        ("rolebindings", binding("missing", "Role", "nope", to_user("w")), 404),
    ];
    for (plural, object, expected) in cases {
        let path = format!("{RBAC}/namespaces/one/{plural}");
        let (code, answer) = world.send(&w, "POST", &path, &object).await;
        assert_eq!(code, expected, "{object}: {answer}");
    }
    let (_, answer) = world
        .send(
            &w,
            "POST",
            &format!("{RBAC}/namespaces/one/roles"),
            &role("x", rule(&["get", "delete", "create"], &["secrets"])),
        )
        .await;
    assert_eq!(
        answer["message"],
        "roles.rbac.authorization.k8s.io \"x\" is forbidden: user \"w\" (groups=[\"system:authenticated\"]) is attempting to grant \
         RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\" \"create\"]}"
    );
    for (object, expected) in [
        (json!({"metadata": {"name": "paths"}, "rules": [{"nonResourceURLs": ["/own/a"], "verbs": ["get"]}]}), 201),
        (json!({"metadata": {"name": "all-paths"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]}), 403),
        (
            json!({"metadata": {"name": "gather"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
            403,
        ),
    ] {
        let (code, answer) = world.send(&w, "POST", &format!("{RBAC}/clusterroles"), &object).await;
        assert_eq!(code, expected, "{object}: {answer}");
    }
    let (code, _) = world
        .send(
            &w,
            "POST",
            &format!("{RBAC}/clusterrolebindings"),
            &binding("x", "ClusterRole", "cluster-admin", to_user("w")),
        )
        .await;
    assert_eq!(code, 403);
    // Widening an existing role by patch or by update is no way round.
    for (kind, body) in [
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]),
        ),
        ("application/merge-patch+json", json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})),
        (
            "application/strategic-merge-patch+json",
            json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        ),
    ] {
        let (code, answer) = world.send_as(&w, "PATCH", &format!("{RBAC}/clusterroles/writer"), kind, &body).await;
        assert_eq!(code, 403, "{kind}: {answer}");
    }
    let apply = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "applied"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let path = format!("{RBAC}/clusterroles/applied?fieldManager=m");
    assert_eq!(world.send_as(&w, "PATCH", &path, "application/apply-patch+yaml", &apply).await.0, 403);
    // `escalate` and `bind` are the ways that an administrator opens.
    let open = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]}]);
    world.make(&format!("{RBAC}/clusterroles"), role("open", open)).await;
    world.make(&format!("{RBAC}/clusterrolebindings"), binding("open", "ClusterRole", "open", to_user("w"))).await;
    let in_one = format!("{RBAC}/namespaces/one");
    assert_eq!(world.send(&w, "POST", &format!("{in_one}/roles"), &role("any", rule(&["*"], &["*"]))).await.0, 201);
    assert_eq!(
        world
            .send(&w, "POST", &format!("{in_one}/rolebindings"), &binding("v", "ClusterRole", "view", to_user("z")))
            .await
            .0,
        201
    );
    assert_eq!(
        world
            .send(&w, "POST", &format!("{in_one}/rolebindings"), &binding("e", "ClusterRole", "edit", to_user("z")))
            .await
            .0,
        403
    );
    // A huge rule is refused without being taken apart.
    let many = |prefix: &str| (0..400).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let huge = json!([{"apiGroups": many("g"), "resources": many("r"), "verbs": many("v")}]);
    assert_eq!(world.send(&w, "POST", &format!("{RBAC}/clusterroles"), &role("huge", huge)).await.0, 403);
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_gone_with_the_answer() {
    let world = World::new().await;
    let jane = user("jane", &[]);
    let path = "/api/v1/namespaces/default/configmaps";
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    for _ in 0..20 {
        assert_eq!(world.send(&jane, "GET", path, &Value::Null).await.0, 403);
        world.make(&bindings, binding("jane", "ClusterRole", "view", to_user("jane"))).await;
        assert_eq!(world.send(&jane, "GET", path, &Value::Null).await.0, 200);
        let (code, _) = world.admin("DELETE", &format!("{bindings}/jane"), &Value::Null).await;
        assert_eq!(code, 200);
    }
    let maps = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    world.make(&bindings, binding("jane", "Role", "maps", to_user("jane"))).await;
    let (code, answer) = world.send(&jane, "GET", path, &Value::Null).await;
    assert_eq!(code, 403);
    assert!(
        answer["message"].as_str().unwrap().ends_with("RBAC: role.rbac.authorization.k8s.io \"maps\" not found"),
        "{answer}"
    );
    world.make(&roles, role("maps", maps)).await;
    assert_eq!(world.send(&jane, "GET", path, &Value::Null).await.0, 200);
    let (code, _) = world.admin("PATCH", &format!("{roles}/maps"), &json!({"rules": []})).await;
    assert_eq!(code, 200);
    assert_eq!(world.send(&jane, "GET", path, &Value::Null).await.0, 403);
}

#[tokio::test]
async fn roles_gather_and_are_told() {
    let world = World::new().await;
    let jane = user("jane", &[]);
    world
        .make(
            &format!("{RBAC}/namespaces/default/rolebindings"),
            binding("jane", "ClusterRole", "view", to_user("jane")),
        )
        .await;
    let rules = || async {
        let (code, review) = world
            .send(
                &jane,
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                &json!({"spec": {"namespace": "default"}}),
            )
            .await;
        assert_eq!(code, 201, "{review}");
        review["status"].clone()
    };
    let before = rules().await;
    assert_eq!(before["incomplete"], false);
    assert!(before["nonResourceRules"].to_string().contains("/healthz"));
    let widgets = json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}],
    });
    world.make(&format!("{RBAC}/clusterroles"), widgets).await;
    for _ in 0..500 {
        if rules().await.to_string().contains("widgets") {
            // What view gathers, edit and admin gather too.
            let (_, admin) = world.admin("GET", &format!("{RBAC}/clusterroles/admin"), &Value::Null).await;
            if admin["rules"].to_string().contains("widgets") {
                return;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the rules of the new role were never gathered");
}

#[tokio::test]
async fn reviews_say_why() {
    let world = World::new().await;
    world
        .make(&format!("{RBAC}/namespaces/default/rolebindings"), binding("b", "ClusterRole", "view", to_user("jane")))
        .await;
    let ask = |user: &str, verb: &str, groups: &[&str]| {
        json!({"spec": {"user": user, "groups": groups,
        "resourceAttributes": {"namespace": "default", "verb": verb, "resource": "pods"}}})
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (_, yes) = world.admin("POST", path, &ask("jane", "get", &[])).await;
    assert_eq!(
        yes["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"b/default\" of ClusterRole \"view\" to User \"jane\""})
    );
    let (_, no) = world.admin("POST", path, &ask("jane", "delete", &[])).await;
    assert_eq!(no["status"], json!({"allowed": false}));
    let (_, master) = world.admin("POST", path, &ask("root", "delete", &["system:masters"])).await;
    assert_eq!(master["status"], json!({"allowed": true}));
    // Making an object by apply needs the right to make it.
    let patcher = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]);
    world.make(&format!("{RBAC}/clusterroles"), role("patcher", patcher)).await;
    world
        .make(&format!("{RBAC}/clusterrolebindings"), binding("patcher", "ClusterRole", "patcher", to_user("p")))
        .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let (code, answer) = world
        .send_as(
            &user("p", &[]),
            "PATCH",
            "/api/v1/namespaces/default/configmaps/m?fieldManager=x",
            "application/apply-patch+yaml",
            &map,
        )
        .await;
    assert_eq!(code, 403);
    assert!(answer["message"].as_str().unwrap().contains("cannot create resource \"configmaps\""), "{answer}");
    // Nor does the right to make one make another.
    let maker = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["create", "patch"]}]);
    world.make(&format!("{RBAC}/clusterroles"), role("maker", maker)).await;
    world.make(&format!("{RBAC}/clusterrolebindings"), binding("maker", "ClusterRole", "maker", to_user("q"))).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for (metadata, expected) in [
        (json!({"name": "m"}), "the name of the object (m) does not match the name on the URL (one)"),
        (
            json!({"generateName": "m"}),
            "the name of the object (one based on URL) was undeterminable: name must be provided",
        ),
    ] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let path = format!("{maps}/one?fieldManager=x");
        let (code, answer) = world.send_as(&user("q", &[]), "PATCH", &path, "application/apply-patch+yaml", &map).await;
        assert_eq!((code, &answer["message"]), (400, &expected.into()), "{answer}");
    }
    let (_, list) = world.admin("GET", maps, &Value::Null).await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|map| &map["metadata"]["name"]).collect();
    assert!(!names.iter().any(|name| **name == "m" || **name == "one"), "{names:?}");
}

#[tokio::test]
async fn a_token_dies_with_its_account() {
    let world = World::new().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    world.make(accounts, json!({"metadata": {"name": "robot"}})).await;
    let subject = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]);
    world
        .make(&format!("{RBAC}/namespaces/default/rolebindings"), binding("robot", "ClusterRole", "view", subject))
        .await;
    let token = |spec: Value| {
        let world = &world;
        async move {
            let made = world.make(&format!("{accounts}/robot/token"), json!({"spec": spec})).await;
            made["status"]["token"].as_str().unwrap().to_owned()
        }
    };
    let (own, other) = (token(json!({})).await, token(json!({"audiences": ["vault"]})).await);
    let path = "/api/v1/namespaces/default/configmaps";
    for _ in 0..2 {
        assert_eq!(world.with_token(&own, "GET", path).await, 200);
        assert_eq!(world.with_token(&own, "GET", "/api/v1/namespaces/kube-system/configmaps").await, 403);
        assert_eq!(world.with_token(&other, "GET", path).await, 401);
        assert_eq!(world.with_token(&format!("{own}x"), "GET", path).await, 401);
    }
    assert_eq!(world.admin("DELETE", &format!("{accounts}/robot"), &Value::Null).await.0, 200);
    assert_eq!(world.with_token(&own, "GET", path).await, 401);
    // One of the same name is another account.
    world.make(accounts, json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(world.with_token(&own, "GET", path).await, 401);
}

#[tokio::test]
async fn a_restart_restores_what_every_server_has_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let start = || async { World::open(dir.path()).await };
    let world = start().await;
    for path in ["clusterroles/view", "clusterrolebindings/system:discovery"] {
        assert_eq!(world.admin("DELETE", &format!("{RBAC}/{path}"), &Value::Null).await.0, 200);
    }
    let extra = json!({"rules": [{"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]}]});
    assert_eq!(world.admin("PATCH", &format!("{RBAC}/clusterroles/system:basic-user"), &extra).await.0, 200);
    let own =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []});
    assert_eq!(world.admin("PATCH", &format!("{RBAC}/clusterroles/system:node"), &own).await.0, 200);
    let (_, before) = world.admin("GET", &format!("{RBAC}/clusterroles/edit"), &Value::Null).await;
    world
        .make(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 1}]}}),
        )
        .await;
    world.close();
    drop(world);

    let world = start().await;
    let jane = user("jane", &[]);
    assert_eq!(world.send(&jane, "GET", "/apis", &Value::Null).await.0, 200);
    let (_, view) = world.admin("GET", &format!("{RBAC}/clusterroles/view"), &Value::Null).await;
    assert!(view["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{view}");
    let (_, basic) = world.admin("GET", &format!("{RBAC}/clusterroles/system:basic-user"), &Value::Null).await;
    assert_eq!(basic["rules"].as_array().unwrap().len(), 3);
    let (_, node) = world.admin("GET", &format!("{RBAC}/clusterroles/system:node"), &Value::Null).await;
    assert!(node["rules"].as_array().is_none_or(Vec::is_empty), "{node}");
    // What was right is not written again: edit lost and regained the rules of view, nothing else.
    let (_, after) = world.admin("GET", &format!("{RBAC}/clusterroles/edit"), &Value::Null).await;
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    let (code, _) = world
        .admin(
            "POST",
            "/api/v1/namespaces/default/services",
            &json!({"metadata": {"name": "t"}, "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 1}]}}),
        )
        .await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn a_transaction_is_no_way_round_rights() {
    let world = World::new().await;
    for name in ["shop", "victim"] {
        world.namespace(name).await;
    }
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    world.make(&format!("{RBAC}/namespaces/shop/roles"), role("all", all)).await;
    world.make(&format!("{RBAC}/namespaces/shop/rolebindings"), binding("all", "Role", "all", to_user("jane"))).await;
    let named = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "create", "update"]}]);
    world.make(&format!("{RBAC}/namespaces/victim/roles"), role("one", named)).await;
    world.make(&format!("{RBAC}/namespaces/victim/rolebindings"), binding("one", "Role", "one", to_user("jane"))).await;
    let transacts =
        json!([{"apiGroups": ["transactions.conductor.io"], "resources": ["transactions"], "verbs": ["create"]}]);
    world.make(&format!("{RBAC}/clusterroles"), role("transacts", transacts)).await;
    let everyone = binding("transacts", "ClusterRole", "transacts", to_user("jane"));
    world.make(&format!("{RBAC}/clusterrolebindings"), everyone).await;
    let jane = user("jane", &[]);
    let send = async |operation: Value| {
        let body = json!({"apiVersion": "transactions.conductor.io/v1alpha1", "kind": "Transaction", "spec": {"operations": [operation]}});
        world.send(&jane, "POST", "/apis/transactions.conductor.io/v1alpha1/transactions", &body).await
    };
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let space = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for (operation, expected) in [
        (json!({"verb": "delete", "resource": "namespaces", "namespace": "shop", "name": "victim"}), 400),
        (json!({"verb": "delete", "resource": "namespaces", "namespace": "victim", "name": "victim"}), 403),
        (json!({"verb": "delete", "resource": "namespaces", "name": "victim"}), 403),
        (
            json!({"verb": "patch", "resource": "namespaces", "namespace": "shop", "name": "victim", "patch": {"metadata": {"labels": {"a": "b"}}}}),
            400,
        ),
        (json!({"verb": "create", "resource": "namespaces", "namespace": "shop", "object": space("new")}), 400),
        (
            json!({"verb": "create", "resource": "namespaces", "namespace": "shop", "name": "shop", "object": space("new")}),
            400,
        ),
        (json!({"verb": "create", "resource": "namespaces", "object": space("new")}), 403),
        (
            json!({"verb": "create", "resource": "secrets", "namespace": "victim", "name": "mine", "object": secret("evil")}),
            403,
        ),
        (json!({"verb": "create", "resource": "secrets", "namespace": "shop", "object": secret("fine")}), 201),
        (
            json!({"verb": "patch", "resource": "namespaces", "name": "shop", "patch": {"metadata": {"labels": {"a": "b"}}}}),
            201,
        ),
    ] {
        let mut operation = operation;
        operation["version"] = "v1".into();
        let (code, answer) = send(operation.clone()).await;
        assert_eq!(code, expected, "{operation}: {answer}");
    }
    let (_, victim) = world.admin("GET", "/api/v1/namespaces/victim", &Value::Null).await;
    assert!(
        victim["metadata"]["labels"]["a"].is_null() && victim["metadata"]["deletionTimestamp"].is_null(),
        "{victim}"
    );
    assert_eq!(world.admin("GET", "/api/v1/namespaces/victim/secrets/evil", &Value::Null).await.0, 404);
}
