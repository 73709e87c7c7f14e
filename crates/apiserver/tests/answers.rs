//! What answers look like to clients that ask for other forms than JSON, and what their headers say.

mod common;

use base64::Engine;
use common::Api;
use conductor_apiserver::{Options, Server, User};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A request with an `Accept` header: code, headers and as much of the body as comes at once.
async fn ask(api: &Api, path: &str, accept: &str) -> (u16, HeaderMap, Vec<u8>) {
    let request = Request::get(path).header("accept", accept).extension(api.user.clone());
    let response = api.server.handle(request.body(Full::new(bytes::Bytes::new())).unwrap()).await;
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().unwrap());
        if parts.headers["content-type"].to_str().unwrap().ends_with("stream=watch") {
            break;
        }
    }
    (parts.status.as_u16(), parts.headers, bytes)
}

/// What a client of Kubernetes reads out of an envelope; `like` has the same fields at the same places.
fn read(bytes: &[u8], like: &str) -> Value {
    let schema = kinds::schema_of("", "v1", like).unwrap();
    machinery::schema::protobuf::from_protobuf(bytes, schema).unwrap()
}

#[tokio::test]
async fn metadata_comes_in_protobuf_of_objects_lists_and_watches() {
    let api = Api::new().await;
    let group = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &group).await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    api.eventually(things, |code, _| code == 200).await;
    for (collection, kind, version) in
        [("/api/v1/namespaces/default/secrets", "Secret", "v1"), (things, "Thing", "example.com/v1")]
    {
        let metadata = json!({"name": "one", "labels": {"a": "b"}});
        api.create(collection, &json!({"kind": kind, "apiVersion": version, "metadata": metadata})).await;
        let one = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
        let (code, headers, bytes) = ask(&api, &format!("{collection}/one"), &one).await;
        assert_eq!((code, &headers["content-type"]), (200, &PROTOBUF.parse().unwrap()), "{collection}");
        let object = read(&bytes, "ConfigMap");
        assert_eq!(
            (&object["kind"], &object["apiVersion"]),
            (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
        );
        assert_eq!((&object["metadata"]["name"], &object["metadata"]["labels"]), (&json!("one"), &json!({"a": "b"})));

        let list = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
        let (_, headers, bytes) = ask(&api, &format!("{collection}?labelSelector=a"), &list).await;
        assert_eq!(headers["content-type"], PROTOBUF, "{collection}");
        let list = read(&bytes, "ConfigMapList");
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(list["items"][0]["metadata"], object["metadata"]);
        assert!(list["metadata"]["resourceVersion"].is_string());

        let (_, headers, bytes) = ask(&api, &format!("{collection}?watch=1&labelSelector=a"), &one).await;
        assert_eq!(headers["content-type"], format!("{PROTOBUF};stream=watch").as_str(), "{collection}");
        // Four bytes of length; then the event: its type, and the object in an envelope of its own.
        let start = bytes.windows(4).position(|four| four == b"k8s\0").expect("an envelope");
        assert_eq!(read(&bytes[start..], "ConfigMap")["metadata"], object["metadata"]);
    }
    // What has no protobuf form is not made up.
    let (code, ..) = ask(&api, things, &format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1")).await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn requests_are_classified_by_flow_schemas() {
    let api = Api::new().await;
    let flows = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let of = async |user: &str| {
        let api = Api { user: User::new(user, Vec::<String>::new()), ..api.clone() };
        let (_, headers, _) = ask(&api, "/version", "application/json").await;
        ["schema", "level"].map(|part| {
            let name =
                if part == "schema" { "x-kubernetes-pf-flowschema-uid" } else { "x-kubernetes-pf-prioritylevel-uid" };
            headers[name].to_str().unwrap().to_owned()
        })
    };
    let (_, default) = api.get(&format!("{flows}/flowschemas/global-default")).await;
    assert_eq!(of("ann").await[0], uid(&default));

    let schema = json!({
        "metadata": {"name": "anns"},
        "spec": {
            "matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "anns"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "ann"}}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    });
    let schema = api.create(&format!("{flows}/flowschemas"), &schema).await;
    let path = format!("{flows}/flowschemas/anns");
    let dangling = |wanted: &'static str| {
        move |_: u16, schema: &Value| {
            let condition = &schema["status"]["conditions"][0];
            condition["type"] == "Dangling" && condition["status"] == wanted
        }
    };
    api.eventually(&path, dangling("True")).await;
    // Without a level it does not count.
    assert_eq!(of("ann").await[0], uid(&default));
    let level = json!({
        "metadata": {"name": "anns"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}},
    });
    let level = api.create(&format!("{flows}/prioritylevelconfigurations"), &level).await;
    api.eventually(&path, dangling("False")).await;
    assert_eq!(of("ann").await, [uid(&schema), uid(&level)]);
    assert_eq!(of("bob").await[0], uid(&default));

    // What a server cannot do without comes back.
    let (code, _) = api.delete(&format!("{flows}/flowschemas/catch-all")).await;
    assert_eq!(code, 200);
    api.eventually(&format!("{flows}/flowschemas/catch-all"), |code, _| code == 200).await;
}

#[tokio::test]
async fn in_a_namespace_that_goes_nothing_is_bound_or_evicted() {
    let api = Api::new().await;
    api.create("/api/v1/namespaces", &json!({"metadata": {"name": "going"}})).await;
    let pods = "/api/v1/namespaces/going/pods";
    api.eventually("/api/v1/namespaces/going/serviceaccounts/default", |code, _| code == 200).await;
    let pod = json!({
        "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "a", "image": "x"}]},
    });
    api.create(pods, &pod).await;
    api.delete("/api/v1/namespaces/going").await;
    for (part, body) in [("binding", json!({"target": {"kind": "Node", "name": "n"}})), ("eviction", json!({}))] {
        let (code, status) = api.post(&format!("{pods}/p/{part}"), &body).await;
        assert_eq!(
            (code, &status["details"]["causes"][0]["reason"]),
            (403, &json!("NamespaceTerminating")),
            "{status}"
        );
    }
}

/// Whatever is wrong with a Secret is said without what is in it, for errors go into logs; of other kinds it is said as Kubernetes does.
#[tokio::test]
async fn no_error_says_what_is_in_a_secret() {
    let api = Api::new().await;
    let [secrets, maps] = ["secrets", "configmaps"].map(|plural| format!("/api/v1/namespaces/default/{plural}"));
    api.create(&secrets, &json!({"metadata": {"name": "s"}, "data": {"p": "aHVudGVyMg=="}})).await;
    api.create(&maps, &json!({"metadata": {"name": "s"}, "data": {"p": "aHVudGVyMg=="}})).await;
    let (create, patch) = (http::Method::POST, http::Method::PATCH);
    let [yaml, apply] = ["application/yaml", "application/apply-patch+yaml"];
    let [merge, strategic, json_patch] =
        ["merge-patch", "strategic-merge-patch", "json-patch"].map(|own| format!("application/{own}+json"));
    let docker =
        json!({"metadata": {"name": "d"}, "type": "kubernetes.io/dockercfg", "data": {".dockercfg": "Imh1bnRlcjIi"}});
    let head = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
    for (method, kind, body, code, expected) in [
        (
            &create,
            yaml,
            format!("{head}stringData:\n  p: hunter2\n  o: [unclosed"),
            400,
            "line 6 column 6: unclosed bracket",
        ),
        (
            &patch,
            apply,
            format!("{head}stringData:\n  p: hunter2\n  o: [unclosed"),
            400,
            "line 6 column 6: unclosed bracket",
        ),
        (&patch, apply, format!("{head}stringData: {{o: {{hunter2: 4}}}}"), 500, ".stringData.o: expected string"),
        (&patch, apply, format!("{head}data: [hunter2]"), 500, ".data: expected map"),
        (&patch, merge.as_str(), r#"{"data": {"q": 5}}"#.into(), 422, "cannot unmarshal number"),
        (
            &patch,
            &json_patch,
            r#"[{"op": "add", "path": "/data/q", "value": 5}]"#.into(),
            422,
            "cannot unmarshal number",
        ),
        (&patch, &strategic, r#"{"stringData": {"p": {"hunter2": 5}}}"#.into(), 422, "<secret contents redacted>"),
        (&patch, &strategic, r#"{"data": {"$patch": "hunter2"}}"#.into(), 400, "<secret contents redacted>"),
        (&create, "application/json", docker.to_string(), 422, "<secret contents redacted>"),
    ] {
        let path = if method == patch { format!("{secrets}/s?fieldManager=m") } else { secrets.clone() };
        let (found, status) = api.send(method.clone(), &path, kind, body.clone()).await;
        let text = status.to_string();
        assert_eq!(found, code, "{body}: {text}");
        assert!(status["message"].as_str().unwrap().contains(expected), "{body}: {text}");
        assert!(
            !["hunter2", "aHVudGVyMg", "Imh1bnRlcjIi"].iter().any(|hidden| text.contains(hidden)),
            "{body}: {text}"
        );
    }
    let (_, status) = api.merge(&format!("{maps}/s"), &json!({"data": {"q": 5}})).await;
    assert!(status["message"].as_str().unwrap().contains("aHVudGVyMg=="), "{status}");
}

#[tokio::test]
async fn health_checks_can_be_left_out() {
    let api = Api::new().await;
    let (code, _, bytes) = ask(&api, "/readyz?verbose&exclude=etcd&exclude=nope&exclude=a", "*/*").await;
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(code, 200);
    assert!(text.contains("[+]ping ok\n") && text.contains("[+]etcd excluded: ok\n"), "{text}");
    let end = "warn: some health checks cannot be excluded: no matches for \"a\",\"nope\"\nreadyz check passed\n";
    assert!(text.ends_with(end), "{text}");
    assert_eq!(ask(&api, "/readyz?exclude=etcd", "*/*").await.2, b"ok");
}

#[tokio::test]
async fn what_is_sent_by_mistake_deletes_and_stores_nothing() {
    let api = Api::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let held = api.create(maps, &json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}})).await;
    api.create(maps, &json!({"metadata": {"name": "b"}})).await;
    let (_, before) = api.get(maps).await;
    for (method, path, body, code) in [
        // Preconditions hold for each of a collection.
        (Method::DELETE, maps, r#"{"preconditions": {"uid": "zzz"}}"#, 409),
        (Method::DELETE, maps, r#"{"preconditions": {"resourceVersion": "1"}}"#, 409),
        (Method::DELETE, &*format!("{maps}/b"), "[]", 400),
        (Method::DELETE, &*format!("{maps}/b"), "\"b\"", 400),
        (Method::DELETE, &*format!("{maps}/b?dryRun="), "", 422),
        (Method::POST, &*format!("{maps}?dryRun="), r#"{"metadata": {"name": "c"}}"#, 422),
        (Method::POST, &*format!("{maps}?dryRun=All&dryRun="), r#"{"metadata": {"name": "c"}}"#, 422),
    ] {
        let (got, answer) = api.send(method, path, "application/json", body).await;
        assert_eq!(got, code, "{path} {body}: {answer}");
        assert_eq!(api.get(maps).await.1["items"], before["items"], "{path} {body}");
    }

    // A word is only a word.
    let word = json!({"metadata": {"name": "word", "labels": {"a": "deletionTimestamp"}, "annotations": {"deletionTimestamp": "b"}}});
    api.create("/api/v1/namespaces", &word).await;
    api.create("/api/v1/namespaces/word/configmaps", &json!({"metadata": {"name": "a"}})).await;

    // Nobody begins a deletion, or changes one, by writing that it is so; what is left out stays.
    let one = format!("{maps}/a");
    let stamp = json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}});
    let grace = json!({"metadata": {"deletionGracePeriodSeconds": 7}});
    for patch in [&stamp, &grace] {
        assert_eq!(api.merge(&one, patch).await.0, 422, "{patch}");
    }
    let options = json!({"preconditions": {"uid": held["metadata"]["uid"]}}).to_string();
    let (code, going) = api.send(Method::DELETE, &one, "application/json", options).await;
    assert_eq!(code, 200, "{going}");
    let (code, answer) = api.merge(&one, &grace).await;
    let why = "ConfigMap \"a\" is invalid: metadata.deletionGracePeriodSeconds: Invalid value: 7: field is immutable";
    assert_eq!((code, answer["message"].as_str().unwrap()), (422, why));
    let back = json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    for patch in [&stamp, &back] {
        let (code, answer) = api.merge(&one, patch).await;
        assert_eq!((code, &answer["metadata"]), (200, &going["metadata"]), "{patch}");
    }
    assert_eq!(api.merge(&one, &json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(api.get(&one).await.0, 404);
}

#[tokio::test]
async fn any_version_comes_whole_and_says_where_it_ends() {
    let api = Api::new().await;
    let (maps, events) = ("/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/events");
    for name in ["a", "b"] {
        api.create(maps, &json!({"metadata": {"name": name}})).await;
        api.create(events, &json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}})).await;
    }
    for (path, whole) in [
        (format!("{maps}?resourceVersion=0&limit=1"), true),
        (format!("{maps}?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1"), true),
        (format!("{maps}?limit=1"), false),
        (format!("{events}?resourceVersion=0&limit=1"), false),
    ] {
        let (_, list) = api.get(&path).await;
        let found = (list["items"].as_array().unwrap().len() > 1, list["metadata"].get("continue").is_none());
        assert_eq!(found, (whole, whole), "{path}");
    }

    let watch = format!("{maps}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true");
    let old = "/api/v1/watch/namespaces/default/configmaps?timeoutSeconds=1&allowWatchBookmarks=true".to_owned();
    for (path, told) in [(watch.clone(), true), (format!("{watch}&resourceVersion=0"), true), (old, false)] {
        let text = String::from_utf8(ask(&api, &path, "application/json").await.2).unwrap();
        let ends: Vec<usize> = text.match_indices("\"k8s.io/initial-events-end\":\"true\"").map(|(at, _)| at).collect();
        assert_eq!(ends.len(), usize::from(told), "{path}: {text}");
        assert!(ends.iter().all(|at| text.rfind("ADDED").is_some_and(|added| added < *at)), "{text}");
    }
}

#[tokio::test]
async fn a_token_lives_for_as_long_as_asked() {
    let api = Api::new().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.create(accounts, &json!({"metadata": {"name": "robot"}})).await;
    let asked = json!({"spec": {"expirationSeconds": 315_360_000}});
    let made = api.create(&format!("{accounts}/robot/token"), &asked).await;
    assert_eq!(made["spec"]["expirationSeconds"], 315_360_000);
    // One for a Pod says where it runs and, as kubelets ask for it, lasts longer than it says.
    api.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    api.create("/api/v1/namespaces/default/pods", &pod).await;
    for (seconds, lasts) in [(3607, 31_536_000), (3600, 3600)] {
        let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
        let asked = json!({"spec": {"expirationSeconds": seconds, "boundObjectRef": reference}});
        let made = api.create(&format!("{accounts}/robot/token"), &asked).await;
        let token = made["status"]["token"].as_str().unwrap();
        let part = token.split('.').nth(1).unwrap();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), lasts);
        assert_eq!(claims["kubernetes.io"]["warnafter"].is_i64(), lasts > seconds);
        assert_eq!(claims["kubernetes.io"]["node"]["name"], "n");
        assert!(claims["kubernetes.io"]["node"]["uid"].is_string(), "{claims}");
        let review =
            api.create("/apis/authentication.k8s.io/v1/tokenreviews", &json!({"spec": {"token": token}})).await;
        let extra = &review["status"]["user"]["extra"];
        assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n"]), "{review}");
        assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]), "{review}");
    }
}

#[tokio::test]
async fn connections_that_lead_nowhere_are_refused() {
    let api = Api::new().await;
    let ports = json!([{"name": "a", "port": 80}]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    api.create("/api/v1/namespaces/default/services", &service).await;
    let nobody = "no endpoints available for service \"s\"";
    for (path, expected) in [
        ("services/s/proxy", (503, nobody)),
        ("services/s:a/proxy/x", (503, nobody)),
        ("services/http:s:80/proxy/", (503, nobody)),
        ("services/s:81/proxy/", (503, "no service port 81 found for service \"s\"")),
        ("services/none:81/proxy/", (404, "services \"none\" not found")),
        ("services/a:b:c:d/proxy/", (400, "invalid service request \"a:b:c:d\"")),
        ("pods/none/log", (404, "pods \"none\" not found")),
        (
            "pods/none/log?limitBytes=0",
            (422, "PodLogOptions \"none\" is invalid: limitBytes: Invalid value: 0: must be greater than 0"),
        ),
    ] {
        let (code, status) = api.get(&format!("/api/v1/namespaces/default/{path}")).await;
        assert_eq!((code, status["message"].as_str().unwrap_or_default()), expected, "{path}");
    }
}

#[tokio::test]
async fn what_is_in_no_namespace_can_be_asked_for_one() {
    let api = Api::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let count = async |selector: &str| {
        let (code, _, bytes) = ask(&api, &format!("{roles}?fieldSelector={selector}"), "application/json").await;
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        (code, list["items"].as_array().map(Vec::len))
    };
    let all = count("").await;
    assert!(all.1.is_some_and(|roles| roles > 0));
    assert_eq!(count("metadata.namespace%3Dzzz").await, (200, Some(0)));
    assert_eq!(count("metadata.namespace%3D").await, all);
    assert_eq!(count("metadata.namespace%21%3Dzzz").await, all);
    for path in [
        "/api/v1/nodes?fieldSelector=metadata.namespace%3D",
        "/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D0",
    ] {
        assert_eq!(ask(&api, path, "application/json").await.0, 400, "{path}");
    }
}

#[tokio::test]
async fn a_request_is_called_what_its_client_calls_it() {
    let api = Api::new().await;
    let called = async |id: &str| {
        let request = Request::get("/api/v1/namespaces/default").header("audit-id", id).extension(api.user.clone());
        let response = api.server.handle(request.body(Full::new(bytes::Bytes::new())).unwrap()).await;
        response.headers()["audit-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(called("my-id").await, "my-id");
    for none in ["", &"x".repeat(65)] {
        assert_eq!(called(none).await.len(), 36, "{none}");
    }
}

/// Whoever reads a list too slowly is told where to go on, with what is there by then.
#[tokio::test]
async fn a_list_goes_on_after_its_version_is_forgotten() {
    let api = Api::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c"] {
        api.create(maps, &json!({"metadata": {"name": name}})).await;
    }
    let first = api.get(&format!("{maps}?limit=1")).await.1;
    let token = first["metadata"]["continue"].as_str().unwrap();
    api.create(maps, &json!({"metadata": {"name": "d"}})).await;
    api.server.store().compact(api.server.store().revision());
    let (code, expired) = api.get(&format!("{maps}?limit=1&continue={token}")).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")), "{expired}");
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = api.get(&format!("{maps}?continue={token}")).await;
    let names: Vec<&str> =
        rest["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
    // what came meanwhile is there
    assert_eq!((code, names.join(" ").contains("b c d")), (200, true), "{names:?}");
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let (code, gone) = api.get(&format!("{maps}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!((code, gone["metadata"].get("continue")), (410, None), "{gone}");
}

/// People patch with manifests of older versions: what a strategic merge patch says of the kind is not looked at.
#[tokio::test]
async fn a_strategic_patch_changes_no_kind() {
    let api = Api::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    api.create(maps, &json!({"metadata": {"name": "a"}})).await;
    let patch = json!({"kind": "Pod", "apiVersion": "v7", "data": {"k": "v"}}).to_string();
    let (code, after) =
        api.send(Method::PATCH, &format!("{maps}/a"), "application/strategic-merge-patch+json", patch.clone()).await;
    assert_eq!((code, &after["kind"], &after["data"]), (200, &json!("ConfigMap"), &json!({"k": "v"})), "{after}");
    assert_eq!(api.send(Method::PATCH, &format!("{maps}/a"), "application/merge-patch+json", patch).await.0, 422);
}

#[tokio::test]
async fn a_watch_as_yaml_is_told_of_all_forms_that_events_come_in() {
    let api = Api::new().await;
    let version = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }}}]);
    api.define(&common::crd("things", "Thing", version)).await;
    let forms = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    for path in ["/api/v1/namespaces/default/secrets", "/apis/example.com/v1/namespaces/default/things"] {
        for accept in ["application/yaml", "application/yaml;as=Table;g=meta.k8s.io;v=v1"] {
            let (code, _, body) = ask(&api, &format!("{path}?watch=1"), accept).await;
            let body = String::from_utf8(body).unwrap();
            assert_eq!(code, 406, "{path}: {body}");
            assert!(body.contains(&format!("only the following media types are accepted: {forms}")), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn a_token_is_bound_to_what_can_hold_one() {
    let api = Api::new().await;
    let base = "/api/v1/namespaces/default";
    for account in ["robot", "other"] {
        api.create(&format!("{base}/serviceaccounts"), &json!({"metadata": {"name": account}})).await;
    }
    api.create(&format!("{base}/secrets"), &json!({"metadata": {"name": "top"}})).await;
    let pod = json!({"metadata": {"name": "top"}, "spec": {"serviceAccountName": "other", "containers": [{"name": "c", "image": "i"}]}});
    api.create(&format!("{base}/pods"), &pod).await;
    for (version, kind, uid, expected) in [
        (
            "v1",
            "Secret",
            "x",
            (
                409,
                "Operation cannot be fulfilled on Secret \"top\": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated",
            ),
        ),
        (
            "v1",
            "Pod",
            "x",
            (400, "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name."),
        ),
        ("v1", "ConfigMap", "", (400, "cannot bind token to object of type /v1, Kind=ConfigMap")),
        ("apps/v1", "Secret", "", (400, "cannot bind token to object of type apps/v1, Kind=Secret")),
        ("a/b/c", "Job", "", (400, "cannot bind token to object of type /, Kind=Job")),
        ("v1", "Secret", "", (201, "")),
        ("", "Secret", "", (201, "")),
    ] {
        let reference = json!({"apiVersion": version, "kind": kind, "name": "top", "uid": uid});
        let asked = json!({"spec": {"boundObjectRef": reference}});
        let (code, answer) = api.post(&format!("{base}/serviceaccounts/robot/token"), &asked).await;
        assert_eq!((code, answer["message"].as_str().unwrap_or_default()), expected, "{version} {kind} {uid}");
    }
}

/// The samples of a metric: what is behind its name.
fn samples<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let of = |line: &'a str| line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
    text.lines().filter_map(of).collect()
}

#[tokio::test]
async fn metrics_that_every_api_server_has_are_there() {
    let api = Api::new().await;
    api.get("/api/v1/namespaces/default/endpoints").await;
    api.get("/api/v1/namespaces/default/pods").await;
    let (_, text) = api.get("/metrics").await;
    let text = text.as_str().unwrap();
    for name in [
        "process_start_time_seconds",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_max_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "etcd_request_duration_seconds_sum",
        "etcd_request_duration_seconds_count",
        "apiserver_storage_size_bytes",
    ] {
        let values = samples(text, name);
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        let value: f64 = values[0].rsplit(' ').next().unwrap().parse().unwrap();
        // Nothing of this server is on a disk, and it has just begun.
        let may_be_none = ["apiserver_storage_size_bytes", "process_cpu_seconds_total"].contains(&name);
        assert!(value > 0.0 || may_be_none, "{name} {value}");
    }
    let started: f64 = samples(text, "process_start_time_seconds")[0].trim().parse().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((now - started).abs() < 24.0 * 3600.0, "{started} {now}");
    let deprecated = samples(text, "apiserver_requested_deprecated_apis");
    let expected = "{group=\"\",version=\"v1\",resource=\"endpoints\",subresource=\"\",removed_release=\"\"} 1";
    assert_eq!(deprecated, [expected]);
    let directory = tempfile::tempdir().unwrap();
    let options = Options { data_dir: Some(directory.path().to_owned()), ..Options::default() };
    let api = Api { server: Server::start(options).await.unwrap(), ..api };
    let (_, text) = api.get("/metrics").await;
    let [size] = samples(text.as_str().unwrap(), "apiserver_storage_size_bytes")[..] else { panic!("{text}") };
    assert!(size.rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 0, "{size}");
}
