//! Everything that is not a resource: discovery, health, version, metrics, keys.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, header};
use machinery::schema::protobuf::to_protobuf;
use machinery::status::Status;
use serde_json::json;
use store::{Expect, Op, Transaction};

use crate::body::Body;
use crate::discovery;
use crate::dispatch::answer;
use crate::media::{self, Accept, Encoding, Form, Offer};
use crate::request::{Query, RequestInfo};
use crate::server::Inner;

/// Answers a request for a path.
pub fn serve(
    server: &Arc<Inner>,
    method: &Method,
    info: &RequestInfo,
    query: &Query,
    headers: &HeaderMap,
    pretty: bool,
) -> Response<Body> {
    // it names a host and no path
    if *method == Method::CONNECT {
        return no_page();
    }
    let path = info.path.trim_end_matches('/');
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let catalog = server.catalog();
    let offer = match segments.as_slice() {
        ["version"] | [".well-known", "openid-configuration"] => {
            Offer { router: &["application/json"], ..Offer::DOCUMENT }
        }
        ["openid", "v1", "jwks"] => Offer { router: &["application/jwk-set+json"], ..Offer::DOCUMENT },
        ["api"] => Offer { discovery: true, ..Offer::DOCUMENT },
        ["apis"] => Offer { discovery: true, router: &[], ..Offer::DOCUMENT },
        ["api", _] => Offer::DOCUMENT,
        ["apis", group, _] if catalog.is_builtin(group) => Offer::DOCUMENT,
        ["version", ..] | ["openid", "v1", "jwks", ..] => Offer::DOCUMENT,
        _ => Offer { router: &[], ..Offer::DOCUMENT },
    };
    let refusals = media::of_refusals(headers, pretty);
    // What Kubernetes' router knows can only be read; the rest does not look at the method.
    if !offer.router.is_empty() && method != Method::GET {
        return server.plain_status(&Status::method_not_allowed(), refusals);
    }
    if let [only] = offer.router {
        if !media::accepts(headers, only) {
            return server.plain_status(&Status::not_acceptable(offer.router), refusals);
        }
    }
    match path {
        "" => return json_answer(&json!({"paths": all_paths(server)}), refusals),
        "/version" => return json_answer(&version(), Accept { pretty: true, ..Accept::JSON }),
        "/healthz" | "/livez" | "/readyz" => return health(server, path, query),
        "/metrics" => {
            return answer(200, Body::whole(server.metrics.text(server)), "text/plain; version=0.0.4; charset=utf-8");
        }
        "/metrics/slis" => {
            return answer(
                200,
                Body::whole(crate::metrics::checks(CHECKS, |kind, name| failing(server, kind, name).is_none())),
                "text/plain; version=0.0.4; charset=utf-8",
            );
        }
        "/.well-known/openid-configuration" => {
            let issuer = server.tokens.issuer();
            let document = json!({
                "issuer": issuer, "jwks_uri": format!("{issuer}/openid/v1/jwks"), "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
            });
            return kept(json_answer(&document, Accept::JSON), "public, max-age=3600");
        }
        "/openid/v1/jwks" => {
            let body = serde_json::to_vec(&server.tokens.jwks()).unwrap_or_default();
            return kept(answer(200, Body::whole(body), "application/jwk-set+json"), "public, max-age=3600");
        }
        _ => {}
    }
    for root in ["/healthz/", "/livez/", "/readyz/"] {
        if let Some(check) = path.strip_prefix(root).filter(|check| CHECKS.contains(check)) {
            return match failing(server, root.trim_matches('/'), check) {
                None => answer(200, Body::whole("ok"), TEXT),
                Some(why) => answer(500, Body::whole(format!("{check} failed: {why}\n")), TEXT),
            };
        }
    }
    if path == "/openapi/v2" || path == "/openapi/v3" || path.starts_with("/openapi/v3/") {
        return crate::openapi::serve(server, path, query.get("hash"), headers);
    }
    crate::controllers::crds::announce(server, &catalog);
    let agreed = media::negotiate(headers, pretty, offer);
    let aggregated = agreed.as_ref().is_ok_and(|accept| accept.form == Form::Discovery);
    let found = match segments.as_slice() {
        ["api"] if aggregated => Some(discovery::aggregated(&catalog, &server.remotes, |group| group.is_empty())),
        ["apis"] if aggregated => Some(discovery::aggregated(&catalog, &server.remotes, |group| !group.is_empty())),
        ["api"] => Some(discovery::core()),
        ["apis"] => Some(discovery::groups(&catalog, &server.remotes)),
        ["api", version] => discovery::resources(&catalog, "", version),
        ["apis", group] => discovery::group(&catalog, &server.remotes, group),
        ["apis", group, version] => discovery::resources(&catalog, group, version),
        _ => None,
    };
    match (found, agreed) {
        (Some(document), Ok(accept)) if aggregated => in_one_piece(&document, accept, headers),
        (Some(document), Ok(accept)) => json_answer(&document, accept),
        (Some(_), Err(status)) => server.plain_status(&status, refusals),
        // Below what the router knows nothing is anybody else's.
        (None, _) if !offer.router.is_empty() => server.plain_status(&Status::no_such_path(), refusals),
        (None, _) => no_page(),
    }
}

/// With what caches may do with it.
fn kept(mut response: Response<Body>, how: &'static str) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(how));
    response
}

/// Aggregated discovery, or that the client knows it already.
fn in_one_piece(document: &serde_json::Value, accept: Accept, headers: &HeaderMap) -> Response<Body> {
    let digest = ring::digest::digest(&ring::digest::SHA512, document.to_string().as_bytes());
    let tag: String = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    let tag = format!("\"{tag}\"");
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::NOT_MODIFIED;
        response
    } else {
        let kind = match accept.encoding {
            Encoding::Json => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Encoding::Yaml => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Encoding::Protobuf => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
        };
        answer(200, encoded(document, accept), kind)
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    kept(response, "public")
}

fn encoded(document: &serde_json::Value, accept: Accept) -> Body {
    let protobuf = (accept.encoding == Encoding::Protobuf).then(|| {
        // The oldest documents do not say their version, and their envelope neither.
        let kind = document["kind"].as_str()?;
        let api_version = document["apiVersion"].as_str().unwrap_or("v1");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(to_protobuf(document, kinds::schema_of(group, version, kind)?))
    });
    let protobuf = protobuf.flatten();
    Body::whole(protobuf.unwrap_or_else(|| crate::render::encode_ordered(document, accept)))
}

/// What is said of a path that nobody knows.
pub fn no_page() -> Response<Body> {
    let mut response = answer(404, Body::whole("404 page not found\n"), TEXT);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
/// What is checked, in Kubernetes' words: what asks for one of these by name finds it. All but what [`failing`] looks at is done
/// before the server listens, so that whoever gets an answer gets this one.
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
    answer(200, encoded(value, accept), accept.encoding.content_type())
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

/// How often it is tried whether the disk can be written to again.
const PROBE: Duration = Duration::from_secs(1);

/// Why a check does not pass. Who cannot write still lives: a restart would not help, and what is there can be read.
fn failing(server: &Inner, kind: &str, check: &str) -> Option<String> {
    if kind == "livez" || !matches!(check, "store" | "etcd") {
        return None;
    }
    let (since, error) = server.store.trouble()?;
    if since.elapsed() >= PROBE {
        // Perhaps nobody else writes while the server is not ready.
        let store = server.store.clone();
        let probe = Op::put("probes", "write", Vec::new(), Expect::Any);
        tokio::spawn(async move { store.commit(Transaction { ops: vec![probe] }).await.map(drop) });
    }
    Some(format!("nothing can be written: {error}"))
}

fn health(server: &Inner, path: &str, query: &Query) -> Response<Body> {
    let mut text = String::new();
    let kind = path.trim_start_matches('/');
    let mut failed = false;
    let mut excluded: BTreeSet<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    for check in CHECKS {
        let skipped = excluded.remove(check);
        let why = failing(server, kind, check).filter(|_| !skipped);
        failed |= why.is_some();
        text.push_str(&match why {
            Some(why) => format!("[-]{check} failed: {why}\n"),
            None if skipped => format!("[+]{check} excluded: ok\n"),
            None => format!("[+]{check} ok\n"),
        });
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        text.push_str("warn: some health checks cannot be excluded: no matches for ");
        text.push_str(&format!("{}\n", names.join(",")));
    }
    let stopping = *server.stopping().borrow();
    if stopping && path == "/readyz" {
        text.push_str("[-]shutdown failed: the server is shutting down\n");
        failed = true;
    }
    if failed {
        text.push_str(&format!("{kind} check failed\n"));
        return answer(500, Body::whole(text), TEXT);
    }
    if query.all("verbose").next().is_some() {
        text.push_str(&format!("{kind} check passed\n"));
        return answer(200, Body::whole(text), TEXT);
    }
    let mut response = answer(200, Body::whole("ok"), TEXT);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
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
