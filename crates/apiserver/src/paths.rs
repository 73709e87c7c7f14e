//! Everything that is not a resource: discovery, health, version, metrics, keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Response, header};
use machinery::status::Status;
use serde_json::json;

use crate::body::Body;
use crate::discovery;
use crate::dispatch::answer;
use crate::media::Accept;
use crate::request::{Query, RequestInfo};
use crate::server::Inner;

/// Answers a request for a path.
pub fn serve(
    server: &Arc<Inner>,
    method: &Method,
    info: &RequestInfo,
    query: &Query,
    headers: &HeaderMap,
    accept: Accept,
) -> Response<Body> {
    let path = info.path.trim_end_matches('/');
    if method != Method::GET && method != Method::HEAD {
        let status = Status::new(405, "MethodNotAllowed", format!("{path:?} can only be read"));
        return server.plain_status(&status, accept);
    }
    match path {
        "" => return json_answer(&json!({"paths": all_paths(server)}), accept),
        "/version" => return json_answer(&version(), Accept { pretty: true, ..accept }),
        "/healthz" | "/livez" | "/readyz" => return health(server, path, query),
        "/metrics" => {
            return answer(200, Body::whole(server.metrics.text(server)), "text/plain; version=0.0.4; charset=utf-8");
        }
        "/metrics/slis" => {
            return answer(
                200,
                Body::whole(crate::metrics::checks(CHECKS)),
                "text/plain; version=0.0.4; charset=utf-8",
            );
        }
        "/.well-known/openid-configuration" => {
            let issuer = server.tokens.issuer();
            return json_answer(
                &json!({
                    "issuer": issuer, "jwks_uri": format!("{issuer}/openid/v1/jwks"), "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
                }),
                accept,
            );
        }
        "/openid/v1/jwks" => {
            let body = serde_json::to_vec(&server.tokens.jwks()).unwrap_or_default();
            return answer(200, Body::whole(body), "application/jwk-set+json");
        }
        _ => {}
    }
    for root in ["/healthz/", "/livez/", "/readyz/"] {
        if path.strip_prefix(root).is_some_and(|check| CHECKS.contains(&check)) {
            return answer(200, Body::whole("ok"), TEXT);
        }
    }
    if path == "/openapi/v2" || path == "/openapi/v3" || path.starts_with("/openapi/v3/") {
        return crate::openapi::serve(server, path, query.get("hash"), headers);
    }
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let catalog = server.catalog();
    crate::controllers::crds::announce(server, &catalog);
    let found = match segments.as_slice() {
        ["api"] => Some(discovery::core(&catalog, &server.remotes, accept)),
        ["apis"] => Some(discovery::groups(&catalog, &server.remotes, accept)),
        ["api", version] => discovery::resources(&catalog, "", version),
        ["apis", group] => discovery::group(&catalog, &server.remotes, group),
        ["apis", group, version] => discovery::resources(&catalog, group, version),
        _ => None,
    };
    match found {
        Some(document) if accept.form == crate::media::Form::Discovery && segments.len() == 1 => {
            let body = crate::render::encode(&document, Accept { form: crate::media::Form::Object, ..accept });
            let mut response =
                answer(200, Body::whole(body), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
            response
        }
        Some(document) => json_answer(&document, accept),
        None => no_page(),
    }
}

/// What is said of a path that nobody knows.
pub fn no_page() -> Response<Body> {
    let mut response = answer(404, Body::whole("404 page not found\n"), TEXT);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
/// What is checked, in Kubernetes' words: what asks for one of these by name finds it. All of it is done before the server
/// listens, so that whoever gets an answer gets this one.
const CHECKS: &[&str] = &[
    "ping",
    "log",
    "store",
    "etcd",
    "informer-sync",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/storage-readiness",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/bootstrap-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
];

fn json_answer(value: &serde_json::Value, accept: Accept) -> Response<Body> {
    let accept = Accept {
        form: crate::media::Form::Object,
        encoding: match accept.encoding {
            crate::media::Encoding::Protobuf => crate::media::Encoding::Json,
            other => other,
        },
        ..accept
    };
    answer(200, Body::whole(crate::render::encode_ordered(value, accept)), accept.encoding.content_type())
}

/// What Kubernetes this is like.
pub fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35", "gitVersion": format!("v1.36.4+conductor.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none (Rust)",
        "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }),
    })
}

fn health(server: &Inner, path: &str, query: &Query) -> Response<Body> {
    let mut text = String::new();
    let mut excluded: BTreeSet<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    for check in CHECKS {
        let how = if excluded.remove(check) { "excluded: ok" } else { "ok" };
        text.push_str(&format!("[+]{check} {how}\n"));
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        text.push_str("warn: some health checks cannot be excluded: no matches for ");
        text.push_str(&format!("{}\n", names.join(",")));
    }
    let stopping = *server.stopping().borrow();
    if stopping && path == "/readyz" {
        text.push_str("[-]shutdown failed: the server is shutting down\nreadyz check failed\n");
        return answer(500, Body::whole(text), TEXT);
    }
    if query.all("verbose").next().is_some() {
        let name = path.trim_start_matches('/');
        text.push_str(&format!("{name} check passed\n"));
        return answer(200, Body::whole(text), TEXT);
    }
    answer(200, Body::whole("ok"), TEXT)
}

fn all_paths(server: &Inner) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for (group, versions) in server.remotes.groups(&server.catalog()) {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.extend(versions.iter().map(|(version, _)| format!("/apis/{group}/{version}")));
        }
    }
    paths.sort();
    paths
}
