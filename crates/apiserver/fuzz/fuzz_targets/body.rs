//! Bodies of requests, through the whole server in process: whatever is sent, the answer is no server error.
//!
//! The first byte of the input chooses what is sent where; the rest is the body.
#![no_main]

use std::sync::OnceLock;

use bytes::Bytes;
use conductor_apiserver::{Options, Server, Service, User};
use http::Request;
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const POD: &str = "/api/v1/namespaces/default/pods?dryRun=All&fieldValidation=Strict";
const NAMESPACE: &str = "/api/v1/namespaces/default?dryRun=All&fieldManager=fuzz";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
const TRANSACTIONS: &str = "/apis/transactions.conductor.io/v1alpha1/transactions?dryRun=All";

/// What is sent where.
const REQUESTS: &[(&str, &str, &str)] = &[
    ("POST", MAPS, "application/json"),
    ("POST", MAPS, "application/yaml"),
    ("POST", MAPS, "application/vnd.kubernetes.protobuf"),
    ("POST", POD, "application/json"),
    ("POST", POD, "application/vnd.kubernetes.protobuf"),
    ("POST", CRDS, "application/json"),
    ("POST", TRANSACTIONS, "application/json"),
    ("PUT", NAMESPACE, "application/json"),
    ("PATCH", NAMESPACE, "application/json-patch+json"),
    ("PATCH", NAMESPACE, "application/merge-patch+json"),
    ("PATCH", NAMESPACE, "application/strategic-merge-patch+json"),
    ("PATCH", NAMESPACE, "application/apply-patch+yaml"),
    ("DELETE", MAPS, "application/json"),
];

struct Fixture {
    runtime: tokio::runtime::Runtime,
    service: Service,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::start(Options::default())).expect("starts");
        Fixture { service: server.service(User::new("fuzz", ["system:masters"])), runtime }
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let (method, path, kind) = REQUESTS[usize::from(*first) % REQUESTS.len()];
    let Fixture { runtime, service } = fixture();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Full::new(Bytes::copy_from_slice(body)))
        .expect("a request");
    let Ok(answer) = runtime.block_on(service.clone().oneshot(request));
    assert!(answer.status().as_u16() < 500, "{method} {path} ({kind}): {}", answer.status());
});
