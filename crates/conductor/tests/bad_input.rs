//! What no well-meaning client sends: each gets the right answer, and the server stays alive and small.
//!
//! `CONDUCTOR_BAD_INPUT_KUBECONFIG=FILE` sends the table to another server instead and prints its answers, to compare with.

mod common;

use std::time::Duration;

use common::{Conductor, JSON, block_on};
use conductor_testkit::wire::Endpoint;
use serde_json::json;

const YAML: &str = "application/yaml";
const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/target";

/// What is sent, and the code that must come back.
struct Case {
    what: String,
    method: &'static str,
    path: String,
    body: Option<(&'static str, Vec<u8>)>,
    code: u16,
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |what: &str, method, path: &str, body: Option<(&'static str, Vec<u8>)>, code| {
        all.push(Case { what: what.into(), method, path: path.into(), body, code });
    };
    let deep = |open: &str, close: &str, depth: usize| [open.repeat(depth), close.repeat(depth)].concat().into_bytes();

    // Bodies that are no JSON, or not of an object.
    for (what, text, code) in [
        ("nothing", &b""[..], 400),
        ("half an object", b"{", 400),
        ("a list", b"[]", 400),
        ("a text", b"\"x\"", 400),
        // Go reads it as an empty object and misses the name: 422.
        ("null", b"null", 422),
        ("two objects", b"{}{}", 400),
        ("bytes", b"\xff\xfe\x00\x01", 400),
        ("bytes in a text", b"{\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\xc3\x28\"}}", 422),
        ("half a surrogate as name", b"{\"metadata\":{\"name\":\"\\ud800\"}}", 422),
        ("a number too large", b"{\"metadata\":{\"name\":\"x\",\"generation\":1e999}}", 400),
        ("not a number", b"{\"metadata\":{\"name\":NaN}}", 400),
        ("a list where a map should be", b"{\"metadata\":{\"name\":\"x\"},\"data\":[]}", 400),
        ("a number where a text should be", b"{\"metadata\":{\"name\":1}}", 400),
        ("another kind", b"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"x\"}}", 400),
        ("another version", b"{\"apiVersion\":\"v2\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}", 400),
        ("an unknown kind", b"{\"apiVersion\":\"v1\",\"kind\":\"Nothing\",\"metadata\":{\"name\":\"x\"}}", 400),
        ("no name", b"{\"metadata\":{}}", 422),
        ("another namespace", b"{\"metadata\":{\"name\":\"x\",\"namespace\":\"other\"}}", 400),
    ] {
        add(what, "POST", MAPS, Some((JSON, text.to_vec())), code);
    }
    add("lists 100,000 deep", "POST", MAPS, Some((JSON, deep("[", "]", 100_000))), 400);
    add("maps 100,000 deep", "POST", MAPS, Some((JSON, deep("{\"a\":", "}", 100_000))), 400);
    add("lists without end", "POST", MAPS, Some((JSON, b"[".repeat(1_000_000))), 400);
    let nested = [br#"{"metadata":{"name":"x"},"data":"#.to_vec(), deep("[", "]", 50_000), b"}".to_vec()].concat();
    add("lists 50,000 deep in a field", "POST", MAPS, Some((JSON, nested)), 400);

    // The same in YAML, and what only YAML has.
    let bomb: String = (1..10)
        .map(|level| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 9].join(",")))
        .fold("l0: &l0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |all, line| all + &line);
    for (what, text) in [
        ("a tab in YAML", "metadata:\n\tname: x\n".to_owned()),
        ("half a YAML list", "[a, b".to_owned()),
        ("an alias of nothing", "metadata: *nowhere\n".to_owned()),
        ("an alias of itself", "metadata: &a\n  name: *a\n".to_owned()),
        ("a bomb of aliases", bomb),
        ("YAML lists 20,000 deep", format!("metadata: {}{}", "[".repeat(20_000), "]".repeat(20_000))),
        ("YAML dashes 20,000 deep", format!("metadata:\n  {}x", "- ".repeat(20_000))),
    ] {
        add(what, "POST", MAPS, Some((YAML, text.into_bytes())), 400);
    }
    // it is a text, as in Kubernetes, and no name
    add("a binary YAML tag", "POST", MAPS, Some((YAML, b"metadata: {name: !!binary \"//8=\"}\n".to_vec())), 422);

    // Too much of it.
    add("10 MB", "POST", MAPS, Some((JSON, vec![b' '; 10_000_000])), 413);
    let large = json!({"metadata": {"name": "x"}, "data": {"text": "x".repeat(1_100_000)}}).to_string();
    add("a ConfigMap of more than 1 MiB", "POST", MAPS, Some((JSON, large.into_bytes())), 422);
    let many: serde_json::Map<String, serde_json::Value> =
        (0..20_000).map(|n| (format!("example.com/{n}"), "some text of some length".into())).collect();
    let many = json!({"metadata": {"name": "x", "annotations": many}}).to_string();
    add("annotations of more than 256 KiB", "POST", MAPS, Some((JSON, many.into_bytes())), 422);

    // Content types.
    let fine = br#"{"metadata":{"name":"x"}}"#.to_vec();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/xml", ";;;", "json"] {
        add(&format!("content type {kind}"), "POST", MAPS, Some((kind, fine.clone())), 415);
    }
    for kind in [JSON, YAML, "text/plain", "application/json-patch"] {
        add(&format!("a patch of type {kind}"), "PATCH", MAP, Some((kind, b"{}".to_vec())), 415);
    }
    let protobuf = "application/vnd.kubernetes.protobuf";
    add("protobuf that is none", "POST", MAPS, Some((protobuf, b"garbage".to_vec())), 400);
    add("protobuf of a wrong length", "POST", MAPS, Some((protobuf, b"k8s\0\x0a\xff\xff\xff\xff\x0f".to_vec())), 400);

    // Selectors and options.
    for (query, code) in [
        ("labelSelector=a+in+(", 400),
        ("labelSelector=!!a", 400),
        ("labelSelector=a%3Db%3Dc", 400),
        ("labelSelector=-a", 400),
        ("labelSelector=a+in+()+b", 400),
        ("labelSelector=%00", 200),
        ("fieldSelector=nonsense", 400),
        ("fieldSelector=spec.unknown%3D1", 400),
        ("fieldSelector=%3D", 200),
        ("limit=x", 400),
        ("limit=99999999999999999999", 400),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("resourceVersion=99999999999999999999", 400),
        ("continue=nonsense", 400),
        ("continue=%00%ff", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Nonsense", 422),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersion=x", 400),
        ("watch=1&labelSelector=a+in+(", 400),
        ("timeoutSeconds=x", 400),
        ("resourceVersion=1000000000000", 504),
    ] {
        add(query, "GET", &format!("{MAPS}?{query}"), None, code);
    }
    let selector = |parts: usize| (0..parts).map(|n| format!("key{n}%21%3Dv{n},")).collect::<String>();
    add("a selector of 2,000 parts", "GET", &format!("{MAPS}?labelSelector={}z", selector(2_000)), None, 200);
    // The HTTP library has a limit of 64 KiB, kube-apiserver's one of 1 MiB for all headers.
    add("a selector of 8,000 parts", "GET", &format!("{MAPS}?labelSelector={}z", selector(8_000)), None, 414);

    // Paths, names, kinds, methods.
    for (method, path, code) in [
        ("GET", "/api/v1/widgets", 404),
        ("GET", "/apis/nowhere.example/v1/things", 404),
        ("GET", "/api/v9/pods", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/target/nonsense", 404),
        ("GET", "/nonsense", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/UPPER..CASE", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/%E2%82%AC", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/a%2Fb", 400),
        ("GET", "/api/v1/namespaces/default/configmaps/%00", 400),
        ("POST", MAP, 405),
        ("PUT", MAPS, 405),
        ("PATCH", MAPS, 405),
        ("OPTIONS", MAPS, 405),
        ("TRACE", MAPS, 405),
        ("NONSENSE", MAPS, 405),
    ] {
        add(&format!("{method} {path}"), method, path, None, code);
    }
    for name in ["UPPER", "-a", "a/b", "..", ".", "a..b", "a b", "€", &"x".repeat(254), "a\u{0}b"] {
        let body = json!({"metadata": {"name": name}}).to_string().into_bytes();
        add(&format!("the name {:.20?}", name), "POST", MAPS, Some((JSON, body)), 422);
    }
    for labels in
        [json!({"": "x"}), json!({"a b": "x"}), json!({"a": "x y"}), json!({"a/b/c": ""}), json!({"a": "x".repeat(64)})]
    {
        let body = json!({"metadata": {"name": "x", "labels": labels}}).to_string().into_bytes();
        add(&format!("the labels {:.30}", labels.to_string()), "POST", MAPS, Some((JSON, body)), 422);
    }

    // Patches.
    let copies = |count: usize| {
        let seed = json!({"op": "add", "path": "/data/c0", "value": "x".repeat(1000)});
        let copy = |n: usize| json!({"op": "copy", "from": "/data", "path": format!("/metadata/annotations/c{n}")});
        let all: Vec<_> = [json!({"op": "add", "path": "/metadata/annotations", "value": {}}), seed]
            .into_iter()
            .chain((0..count).map(copy))
            .collect();
        json!(all).to_string().into_bytes()
    };
    let doubling: Vec<_> = [json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(1000)}})]
        .into_iter()
        .chain((0..40).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/d{n}")})))
        .collect();
    for (what, kind, body, code) in [
        ("a JSON patch that is a map", PATCH, b"{}".to_vec(), 400),
        ("a JSON patch that is no JSON", PATCH, b"[{".to_vec(), 400),
        ("a JSON patch of numbers", PATCH, b"[1,2]".to_vec(), 400),
        ("an unknown operation", PATCH, br#"[{"op":"explode","path":"/data"}]"#.to_vec(), 422),
        ("a path without a slash", PATCH, br#"[{"op":"remove","path":"data"}]"#.to_vec(), 422),
        ("a removal of nothing", PATCH, br#"[{"op":"remove","path":"/data/none/at/all"}]"#.to_vec(), 422),
        ("a failing test", PATCH, br#"[{"op":"test","path":"/kind","value":"x"}]"#.to_vec(), 422),
        ("a copy from nowhere", PATCH, br#"[{"op":"copy","from":"/nowhere","path":"/data/a"}]"#.to_vec(), 200),
        ("copies that double 40 times", PATCH, json!(doubling).to_string().into_bytes(), 422),
        ("9,000 copies", PATCH, copies(9_000), 422),
        ("20,000 operations", PATCH, copies(20_000), 413),
        (
            "a value 50,000 deep",
            PATCH,
            [br#"[{"op":"add","path":"/data/a","value":"#.to_vec(), deep("[", "]", 50_000), b"}]".to_vec()].concat(),
            400,
        ),
        ("a merge patch that is no JSON", MERGE, b"{".to_vec(), 400),
        ("a merge patch that is a list", MERGE, b"[]".to_vec(), 400),
        ("a merge patch that is a text", MERGE, b"\"x\"".to_vec(), 400),
        ("a merge patch 100,000 deep", MERGE, deep("{\"a\":", "}", 100_000), 400),
        ("a merge patch of the name", MERGE, br#"{"metadata":{"name":"other"}}"#.to_vec(), 400),
        ("a merge patch to a wrong type", MERGE, br#"{"data":[1]}"#.to_vec(), 422),
        ("a strategic patch that is a list", STRATEGIC, b"[]".to_vec(), 400),
        ("an apply without a manager", APPLY, b"apiVersion: v1\nkind: ConfigMap\n".to_vec(), 422),
    ] {
        add(what, "PATCH", MAP, Some((kind, body)), code);
    }
    add("an apply that is no YAML", "PATCH", &format!("{MAP}?fieldManager=m"), Some((APPLY, b"[".to_vec())), 400);
    all
}

/// What the HTTP library refuses itself, and what is no path of the API, comes without.
fn needs_status(case: &Case) -> bool {
    case.code != 414 && case.path.starts_with("/api/v1/namespaces/")
}

/// Sends everything; says which answers were others than expected.
async fn send_all(endpoint: &Endpoint) -> Vec<String> {
    let target = json!({"metadata": {"name": "target"}, "data": {"a": "b"}}).to_string();
    let made = endpoint.request("POST", MAPS, Some((JSON, target.as_bytes()))).await.expect("answers");
    assert!(matches!(made.code, 201 | 409), "{}", made.json());
    let mut wrong = Vec::new();
    for case in cases() {
        let body = case.body.as_ref().map(|(kind, bytes)| (*kind, &bytes[..]));
        let sent = tokio::time::timeout(Duration::from_secs(60), endpoint.request(case.method, &case.path, body)).await;
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            // An answer that comes before all is sent is lost when the connection ends, as it is with kube-apiserver.
            Ok(Err(_)) if case.code == 413 && body.is_some_and(|(_, bytes)| bytes.len() > 3 << 20) => continue,
            Ok(Err(error)) => {
                wrong.push(format!("{}: no answer ({error}), expected {}", case.what, case.code));
                continue;
            }
            Err(_) => {
                wrong.push(format!("{}: no answer for a minute", case.what));
                continue;
            }
        };
        let status = answer.json();
        if answer.code != case.code {
            let message: String = status["message"].as_str().unwrap_or_default().chars().take(200).collect();
            wrong.push(format!("{}: {} instead of {}: {message}", case.what, answer.code, case.code));
        } else if answer.code >= 400 && status["code"] != answer.code && needs_status(&case) {
            wrong.push(format!("{}: {} without a Status: {:?}", case.what, answer.code, answer.body));
        }
    }
    endpoint.request("DELETE", MAP, None).await.expect("answers");
    wrong
}

#[test]
fn bad_requests_get_the_right_status() {
    if let Some(kubeconfig) = std::env::var_os("CONDUCTOR_BAD_INPUT_KUBECONFIG") {
        let endpoint = Endpoint::from_kubeconfig(kubeconfig.as_ref()).expect("can be used");
        return eprintln!("{}", block_on(send_all(&endpoint)).join("\n"));
    }
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut conductor = Conductor::start(&directory.path().join("data"), &[]);
    let wrong = block_on(send_all(&conductor.endpoint));
    assert!(conductor.is_alive());
    let (log, memory) = (conductor.log(), conductor.memory());
    assert!(!log.contains("panicked"), "{log}");
    assert!(memory < 400, "it has {memory} MiB");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
