//! Another server behind an APIService: a real one, over TLS, that believes only who shows this server's certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::client::Client;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use conductor_apiserver::User;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1alpha1.wardle.example.com";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";
const TRUSTED: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

const DOOMED: &str = "/apis/wardle.example.com/v1alpha1/namespaces/doomed/flunders";
/// Whether somebody has deleted what is there.
static DELETED: AtomicBool = AtomicBool::new(false);

/// A server beside ours. Ends when dropped.
struct Extension {
    port: u16,
    ca_bundle: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Extension {
    /// Starts one that asks for certificates of `front_proxy_ca`.
    async fn start(front_proxy_ca: &str) -> Extension {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["wardle.default.svc".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for trusted in CertificateDer::pem_slice_iter(front_proxy_ca.as_bytes()) {
            roots.add(trusted.unwrap()).unwrap();
        }
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
        Extension { port, ca_bundle: STANDARD.encode(ca_certificate.pem()), task }
    }
}

type Answer = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

async fn answer(request: Request<Incoming>) -> Result<Response<Answer>, std::convert::Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let whole = |code: u16, value: Value| {
        let response = Response::builder().status(code).header("content-type", "application/json");
        response.body(Full::new(Bytes::from(value.to_string())).boxed()).unwrap()
    };
    if parts.uri.query().is_some_and(|query| query.contains("watch=1")) {
        // An event, and then nothing for ever.
        let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"type\":\"ADDED\"}\n")))]);
        return Ok(Response::new(BodyExt::boxed(StreamBody::new(first.chain(futures::stream::pending())))));
    }
    let resources = json!([
        {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
         "verbs": ["deletecollection", "get", "list"],
         "shortNames": ["fl"]},
        {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
    ]);
    Ok(match parts.uri.path() {
        path if path.ends_with("/moved") => {
            let response = Response::builder().status(302).header("location", "https://elsewhere.example.com");
            response.body(Full::new(Bytes::new()).boxed()).unwrap()
        }
        "/apis/wardle.example.com/v1alpha1" => whole(
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1",
                   "resources": resources}),
        ),
        // Another group is said only in one piece, and its own path says nothing.
        "/apis/whole.example.com/v1" => whole(200, Value::Null),
        "/apis" => {
            let kind = json!({"group": "whole.example.com", "version": "v1", "kind": "Whole"});
            let resource = json!({"resource": "wholes", "responseKind": kind, "scope": "Namespaced", "verbs": ["get"], "singularResource": "whole"});
            let group = json!({"metadata": {"name": "whole.example.com"}, "versions": [{"version": "v1", "resources": [resource]}]});
            whole(
                200,
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [group]}),
            )
        }
        "/openapi/v3" => whole(
            200,
            json!({"paths": {"apis/wardle.example.com/v1alpha1": {
                "serverRelativeURL": "/openapi/v3/apis/wardle.example.com/v1alpha1?hash=1"}}}),
        ),
        "/openapi/v3/apis/wardle.example.com/v1alpha1" => whole(200, json!({"openapi": "3.0.0"})),
        DOOMED => {
            if parts.method == "DELETE" {
                DELETED.store(true, Ordering::SeqCst);
            }
            let items = if DELETED.load(Ordering::SeqCst) { json!([]) } else { json!([{}]) };
            whole(200, json!({"kind": "FlunderList", "items": items}))
        }
        path => {
            let headers: Vec<(String, String)> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
                .collect();
            let body = String::from_utf8_lossy(&body).into_owned();
            let asked = json!({"method": parts.method.as_str(), "path": path, "body": body, "headers": headers});
            whole(if parts.method == "DELETE" { 418 } else { 200 }, asked)
        }
    })
}

/// Sends a request as a user, with headers.
async fn send(client: &Client, user: Arc<User>, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Bytes) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
    request.extensions_mut().insert(user);
    let response = client.0.handle(request).await;
    (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
}

fn admin() -> Arc<User> {
    User::new("admin", ["system:masters"])
}

fn condition(service: Option<&Value>) -> (String, String) {
    let own = service.map(|service| service["status"]["conditions"][0].clone()).unwrap_or_default();
    let text = |field: &str| own[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

async fn until(client: &Client, status: &str, reason: &str) -> Value {
    let wanted = (status.to_owned(), reason.to_owned());
    client.until(&format!("{SERVICES}/{NAME}"), reason, |own| condition(own) == wanted).await.expect("there")
}

/// An APIService of the extension, and the Service by which it is found.
async fn register(client: &Client, extension: &Extension) {
    let service = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "default", "name": "wardle", "port": extension.port}, "caBundle": extension.ca_bundle,
        },
    });
    client.create(SERVICES, service).await;
    until(client, "False", "ServiceNotFound").await;
    let (code, body) = send(client, admin(), "GET", FLUNDERS, &[]).await;
    assert_eq!((code, &*body), (503, &b"service unavailable\n"[..]));
    let by_name =
        json!({"metadata": {"name": "wardle"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    client.create("/api/v1/namespaces/default/services", by_name).await;
    until(client, "True", "Passed").await;
}

async fn started() -> (Client, Extension) {
    let client = Client::in_memory().await;
    let trusted = client.get(TRUSTED).await.expect("what to trust");
    assert_eq!(trusted["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    let extension = Extension::start(trusted["data"]["requestheader-client-ca-file"].as_str().unwrap()).await;
    register(&client, &extension).await;
    (client, extension)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_on_in_the_name_of_who_asks() {
    let (client, _extension) = started().await;
    let mut alice = (*User::new("alice", ["painters", "system:masters"])).clone();
    alice.uid = "7".into();
    alice.extra.insert("example.com/color%".into(), vec!["red".into(), "blue".into()]);
    let spoofed = [
        ("x-remote-user", "root"),
        ("x-remote-group", "wheel"),
        ("x_remote_group", "wheel"),
        ("connection", "x-mine, keep-alive"),
        ("x-mine", "for this connection"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ("x-remote-extra-scopes", "all"),
        ("authorization", "Bearer secret"),
        ("accept", "application/yaml"),
        ("content-type", "application/json"),
    ];
    let (code, body) = send(&client, Arc::new(alice), "POST", &format!("{FLUNDERS}?dryRun=All"), &spoofed).await;
    assert_eq!(code, 200);
    let asked: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&asked["method"], &asked["path"], &asked["body"]), (&json!("POST"), &json!(FLUNDERS), &json!("{}")));
    let headers: Vec<(String, String)> = serde_json::from_value(asked["headers"].clone()).unwrap();
    let all = |name: &str| -> Vec<&str> {
        headers.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(all("x-remote-user"), ["alice"]);
    assert_eq!(all("x-remote-uid"), ["7"]);
    assert_eq!(all("x-remote-group"), ["painters", "system:masters", "system:authenticated"]);
    assert_eq!(all("x-remote-extra-example.com%2fcolor%25"), ["red", "blue"]);
    assert_eq!(all("accept"), ["application/yaml"]);
    for name in ["authorization", "x-remote-extra-scopes", "x_remote_group", "x-mine", "sec-websocket-protocol"] {
        assert!(all(name).is_empty(), "{name}");
    }
    // What it answers is what is answered.
    assert_eq!(send(&client, admin(), "DELETE", FLUNDERS, &[]).await.0, 418);
    // Nobody is sent elsewhere, where they would show who they are.
    let (code, body) = send(&client, admin(), "GET", &format!("{FLUNDERS}/moved"), &[]).await;
    assert_eq!((code, body.starts_with(b"the backend attempted to redirect")), (502, true), "{body:?}");
    // Who cannot be said in full is not said in part.
    let (code, _) = send(&client, User::new("a\nb", ["system:masters"]), "GET", FLUNDERS, &[]).await;
    assert_eq!(code, 500);
    // Who may not ask, does not.
    let (code, body) = send(&client, User::new("bob", ["none"]), "GET", FLUNDERS, &[]).await;
    assert_eq!(code, 403, "{body:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_says_comes_as_it_is_said() {
    let (client, _extension) = started().await;
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = format!("{FLUNDERS}?watch=1").parse().unwrap();
    request.extensions_mut().insert(admin());
    let mut body = client.0.handle(request).await.into_body();
    let first = tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect("in time").unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "{\"type\":\"ADDED\"}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_openapi_know_it() {
    let (client, extension) = started().await;
    let groups = client.get("/apis").await.unwrap()["groups"].clone();
    let names: Vec<&str> = groups.as_array().unwrap().iter().filter_map(|group| group["name"].as_str()).collect();
    let at = |name: &str| names.iter().position(|own| *own == name);
    assert!(at("flowcontrol.apiserver.k8s.io") < at("wardle.example.com"), "{names:?}");
    assert!(at("wardle.example.com") < at("transactions.conductor.io"), "{names:?}");
    let group = client.get("/apis/wardle.example.com").await.unwrap();
    assert_eq!(group["preferredVersion"]["groupVersion"], "wardle.example.com/v1alpha1");
    let list = client.get("/apis/wardle.example.com/v1alpha1").await.unwrap();
    assert_eq!(list["resources"][0]["name"], "flunders");

    let modern = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let (_, body) = send(&client, admin(), "GET", "/apis", &modern).await;
    let groups: Value = serde_json::from_slice(&body).unwrap();
    let find = |groups: &Value| {
        let items = groups["items"].as_array().unwrap();
        items.iter().find(|own| own["metadata"]["name"] == "wardle.example.com").unwrap()["versions"][0].clone()
    };
    let kind = json!({"group": "wardle.example.com", "version": "v1alpha1", "kind": "Flunder"});
    let expected = json!({
        "version": "v1alpha1", "freshness": "Current",
        "resources": [{
            "resource": "flunders", "singularResource": "flunder", "scope": "Namespaced",
            "verbs": ["deletecollection", "get", "list"],
            "shortNames": ["fl"], "responseKind": kind,
            "subresources": [{"subresource": "status", "verbs": ["get"], "responseKind": kind}],
        }],
    });
    assert_eq!(find(&groups), expected);
    let index = client.get("/openapi/v3").await.unwrap();
    let address = &index["paths"]["apis/wardle.example.com/v1alpha1"]["serverRelativeURL"];
    assert!(index["paths"]["apis/apps/v1"].is_object());
    assert_eq!(client.get(address.as_str().unwrap()).await.unwrap(), json!({"openapi": "3.0.0"}));

    // It ends, and somebody looks.
    drop(extension);
    client.merge(&format!("{SERVICES}/{NAME}"), json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    let service = until(&client, "False", "FailedDiscoveryCheck").await;
    let message = service["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("failing or missing response from https://wardle.default.svc:"), "{message}");
    let (_, body) = send(&client, admin(), "GET", "/apis", &modern).await;
    assert_eq!(find(&serde_json::from_slice(&body).unwrap())["freshness"], "Stale");
    client.delete(&format!("{SERVICES}/{NAME}"), "").await;
    client.until("/apis/wardle.example.com", "gone", |group| group.is_none()).await;
    assert_eq!(send(&client, admin(), "GET", FLUNDERS, &[]).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_certificate_is_checked_unless_it_need_not_be() {
    let (client, _extension) = started().await;
    let path = format!("{SERVICES}/{NAME}");
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap().cert.pem();
    client.merge(&path, json!({"spec": {"caBundle": STANDARD.encode(other)}})).await;
    let service = until(&client, "False", "FailedDiscoveryCheck").await;
    let message = service["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("x509: certificate signed by unknown authority"), "{message}");
    client.merge(&path, json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}})).await;
    until(&client, "True", "Passed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_lead_nowhere_are_told_apart() {
    let client = Client::in_memory().await;
    let ports = json!([{"name": "https", "port": 443}]);
    let service = json!({"metadata": {"name": "wardle"}, "spec": {"ports": ports}});
    client.create("/api/v1/namespaces/default/services", service).await;
    let own = |port: u16| {
        json!({
            "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "default", "name": "wardle", "port": port}, "insecureSkipTLSVerify": true,
        })
    };
    client.create(SERVICES, json!({"metadata": {"name": NAME}, "spec": own(444)})).await;
    until(&client, "False", "ServicePortError").await;
    client.merge(&format!("{SERVICES}/{NAME}"), json!({"spec": own(443)})).await;
    until(&client, "False", "EndpointsNotFound").await;
    let slice = json!({
        "metadata": {"name": "wardle", "labels": {"kubernetes.io/service-name": "wardle"}}, "addressType": "IPv4",
        "endpoints": [], "ports": ports,
    });
    client.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    until(&client, "False", "MissingEndpoints").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_has_in_a_namespace_goes_with_it() {
    let (client, extension) = started().await;
    client.create("/api/v1/namespaces", json!({"metadata": {"name": "doomed"}})).await;
    client.delete("/api/v1/namespaces/doomed", "").await;
    client.gone("/api/v1/namespaces/doomed").await;
    assert!(DELETED.load(Ordering::SeqCst));

    // Of one that does not answer nobody knows what it has.
    drop(extension);
    client.merge(&format!("{SERVICES}/{NAME}"), json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    until(&client, "False", "FailedDiscoveryCheck").await;
    client.create("/api/v1/namespaces", json!({"metadata": {"name": "held"}})).await;
    client.delete("/api/v1/namespaces/held", "").await;
    let says =
        |own: Option<&Value>| own.is_some_and(|own| own["status"]["conditions"][0]["reason"] == "DiscoveryFailed");
    client.until("/api/v1/namespaces/held", "held", says).await;
    client.delete(&format!("{SERVICES}/{NAME}"), "").await;
    client.gone("/api/v1/namespaces/held").await;
}

/// Whoever could send requests about APIServices elsewhere would take away the means to put it right.
#[tokio::test(flavor = "multi_thread")]
async fn apiservices_stay_here() {
    let client = Client::in_memory().await;
    let own = json!({
        "metadata": {"name": "v1.apiregistration.k8s.io"},
        "spec": {
            "group": "apiregistration.k8s.io", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "default", "name": "wardle", "port": 443}, "insecureSkipTLSVerify": true,
        },
    });
    client.create(SERVICES, own).await;
    // One that does go elsewhere, to know that both have been seen.
    let other = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "default", "name": "wardle", "port": 443}, "insecureSkipTLSVerify": true,
        },
    });
    client.create(SERVICES, other).await;
    until(&client, "False", "ServiceNotFound").await;
    assert_eq!(send(&client, admin(), "GET", SERVICES, &[]).await.0, 200);
    client.delete(&format!("{SERVICES}/v1.apiregistration.k8s.io"), "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_in_one_piece_only_is_discovered() {
    let (client, extension) = started().await;
    let service = json!({
        "metadata": {"name": "v1.whole.example.com"},
        "spec": {
            "group": "whole.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "service": {"namespace": "default", "name": "wardle", "port": extension.port}, "caBundle": extension.ca_bundle,
        },
    });
    client.create(SERVICES, service).await;
    let available = |own: Option<&Value>| condition(own).0 == "True";
    client.until(&format!("{SERVICES}/v1.whole.example.com"), "available", available).await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, body) = send(&client, admin(), "GET", "/apis", &[("accept", accept)]).await;
    let whole: Value = serde_json::from_slice(&body).unwrap();
    let groups = whole["items"].as_array().unwrap();
    let of = |name: &str| groups.iter().find(|own| own["metadata"]["name"] == name).unwrap()["versions"][0].clone();
    let version = of("whole.example.com");
    assert_eq!((&version["resources"][0]["resource"], &version["freshness"]), (&json!("wholes"), &json!("Current")));
    assert_eq!(of("wardle.example.com")["resources"][0]["resource"], "flunders");
}
