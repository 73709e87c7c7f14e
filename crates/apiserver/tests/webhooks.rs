//! The webhook client against real HTTPS servers on loopback.
#![allow(missing_docs)]

mod webhook_server;

use std::sync::atomic::Ordering;
use std::time::Duration;

use conductor_apiserver::webhook::{ClientConfig, WebhookClient, WebhookError};
use serde_json::{Value, json};
use store::{Expect, Op, Store, Transaction};
use webhook_server::{Answer, Signed, Webhook};

const SECONDS: Duration = Duration::from_secs(20);

fn client() -> (WebhookClient, Store) {
    let store = Store::in_memory(store::Options::default());
    (WebhookClient::new(store.clone()), store)
}

fn config(value: &Value) -> ClientConfig {
    ClientConfig::read(value).expect("a configuration")
}

/// What a call to `config` fails with.
async fn failure(client: &WebhookClient, value: &Value) -> String {
    client.call(&config(value), &json!({}), SECONDS).await.expect_err("no answer").to_string()
}

#[tokio::test]
async fn answers_come_back_and_connections_are_kept() {
    let webhook = Webhook::start(&["localhost"], Signed::ByAuthority, |path, body| {
        Answer::Json(json!({"path": path, "body": body}))
    })
    .await;
    let (client, _) = client();
    let config = config(&webhook.client_config("/convert"));
    for at in 0..5 {
        let answer = client.call(&config, &json!({"at": at}), SECONDS).await.expect("an answer");
        assert_eq!(answer, json!({"path": "/convert?timeout=20s", "body": {"at": at}}));
    }
    assert_eq!(webhook.connections.load(Ordering::SeqCst), 1);
    assert_eq!(webhook.requests.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn certificates_are_checked_as_kubernetes_does() {
    let (client, _) = client();
    let answer = |_: &str, _: Value| Answer::Json(json!({}));
    let itself = Webhook::start(&["localhost"], Signed::ByItself, answer).await;
    let checked = client.call(&config(&itself.client_config("/")), &json!({}), SECONDS).await;
    assert_eq!(checked, Ok(json!({})), "a certificate in the bundle is believed");

    let other = Webhook::start(&["other.example"], Signed::ByItself, answer).await;
    let signed = Webhook::start(&["other.example", "127.0.0.1"], Signed::ByAuthority, answer).await;
    let url = |webhook: &Webhook| format!("Post \"https://localhost:{}/?timeout=20s\": ", webhook.address.port());
    assert_eq!(
        failure(&client, &other.client_config("/")).await,
        url(&other) + "tls: failed to verify certificate: x509: certificate is valid for other.example, not localhost"
    );
    assert_eq!(
        failure(&client, &signed.client_config("/")).await,
        url(&signed)
            + "tls: failed to verify certificate: x509: certificate is valid for other.example, 127.0.0.1, not localhost"
    );
    let mut wrong = signed.client_config("/");
    wrong["caBundle"] = itself.ca_bundle().into();
    assert_eq!(
        failure(&client, &wrong).await,
        url(&signed) + "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    );
    wrong["caBundle"] = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "no certificate").into();
    assert_eq!(
        failure(&client, &wrong).await,
        url(&signed) + "unable to load root certificates: unable to parse bytes as PEM block"
    );
    let by_address =
        json!({"url": format!("https://127.0.0.1:{}", signed.address.port()), "caBundle": signed.ca_bundle()});
    assert_eq!(client.call(&config(&by_address), &json!({}), SECONDS).await, Ok(json!({})));
}

#[tokio::test]
async fn what_goes_wrong_is_said_as_kubernetes_says_it() {
    let webhook = Webhook::start(&["localhost"], Signed::ByAuthority, |path, _| match path.split('?').next() {
        Some("/500") => Answer::Raw(500, "text/plain; charset=utf-8", b"boom\n".to_vec()),
        Some("/404") => Answer::Raw(404, "text/plain", b"404 page not found".to_vec()),
        Some("/status") => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not today"});
            Answer::Raw(403, "application/json", status.to_string().into_bytes())
        }
        Some("/text") => Answer::Raw(200, "application/json", b"hello".to_vec()),
        Some("/large") => {
            let text = format!("{{\"a\": {:?}}}", "x".repeat(9 << 20));
            Answer::Raw(200, "application/json", text.into_bytes())
        }
        Some("/deep") => Answer::Raw(200, "application/json", "[".repeat(1 << 20).into_bytes()),
        Some("/silence") => Answer::Silence,
        _ => Answer::HangUp,
    })
    .await;
    let (client, _) = client();
    let url = |path: &str| format!("Post \"https://localhost:{}{path}?timeout=20s\": ", webhook.address.port());
    let cases = [
        ("/500", "an error on the server (\"boom\") has prevented the request from succeeding".to_owned()),
        ("/404", "the server could not find the requested resource".to_owned()),
        ("/status", "not today".to_owned()),
        ("/large", "the webhook's answer is larger than 8388608 bytes".to_owned()),
        ("/hangup", url("/hangup") + "EOF"),
    ];
    for (path, expected) in cases {
        assert_eq!(failure(&client, &webhook.client_config(path)).await, expected, "{path}");
    }
    for path in ["/text", "/deep"] {
        let error = client.call(&config(&webhook.client_config(path)), &json!({}), SECONDS).await;
        assert!(matches!(error, Err(WebhookError::Malformed(_))), "{path}: {error:?}");
    }
    let second = Duration::from_secs(1);
    let error = client.call(&config(&webhook.client_config("/silence")), &json!({}), second).await;
    let expected = url("/silence").replace("20s", "1s") + "context deadline exceeded";
    assert_eq!(error.map_err(|error| error.to_string()), Err(expected));

    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        listener.local_addr().expect("an address").port()
    };
    assert_eq!(
        failure(&client, &json!({"url": format!("https://127.0.0.1:{port}/x")})).await,
        format!(
            "Post \"https://127.0.0.1:{port}/x?timeout=20s\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
}

#[test]
fn configurations_say_where_the_webhook_is() {
    for (value, expected) in [
        (json!({}), Err("webhook configuration must have either service or URL")),
        (json!({"url": "http://a/b"}), Err("Unparsable URL: http://a/b is not https://host/path")),
        (json!({"url": "https://a:8443/b"}), Ok("https://a:8443/b?timeout=10s")),
        (json!({"service": {"name": "s", "namespace": "n"}}), Ok("https://s.n.svc:443/?timeout=10s")),
        (
            json!({"service": {"name": "s", "namespace": "n", "path": "/p", "port": 8}}),
            Ok("https://s.n.svc:8/p?timeout=10s"),
        ),
    ] {
        let url = ClientConfig::read(&value).map(|config| config.url(Duration::from_secs(10)));
        assert_eq!(url.map_err(|error| error.to_string()), expected.map(str::to_owned).map_err(str::to_owned));
    }
}

#[tokio::test]
async fn services_are_found_through_their_endpoints() {
    let webhook =
        Webhook::start(&["hook.apps.svc"], Signed::ByAuthority, |_, _| Answer::Json(json!({"here": true}))).await;
    let (client, store) = client();
    let port = webhook.address.port();
    let put = async |table: &str, name: &str, object: Value| {
        let op = Op::put(table, format!("apps/{name}"), object.to_string().into_bytes(), Expect::Any);
        store.commit(Transaction::new([op])).await.expect("a commit");
    };
    let config = |port: u16| json!({"service": {"name": "hook", "namespace": "apps", "port": port}, "caBundle": webhook.ca_bundle()});
    let url = "Post \"https://hook.apps.svc:443/?timeout=20s\": ";
    assert_eq!(failure(&client, &config(443)).await, format!("{url}service \"hook\" not found"));
    put("core/services", "hook", json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443}]}}))
        .await;
    assert_eq!(failure(&client, &config(443)).await, format!("{url}no endpoints available for service \"hook\""));
    assert_eq!(
        failure(&client, &config(444)).await,
        "Post \"https://hook.apps.svc:444/?timeout=20s\": no service port 444 found for service \"hook\""
    );
    let slice = |ready: bool, port: u16| {
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
        })
    };
    put("discovery.k8s.io/endpointslices", "hook-a", slice(false, 1)).await;
    assert_eq!(failure(&client, &config(443)).await, format!("{url}no endpoints available for service \"hook\""));
    put("discovery.k8s.io/endpointslices", "hook-b", slice(true, port)).await;
    let answer = client.call(&self::config(&config(443)), &json!({}), SECONDS).await;
    assert_eq!(answer, Ok(json!({"here": true})));
    // By name somewhere else: what the certificate is for stays the Service's name.
    put("core/services", "hook", json!({"spec": {"type": "ExternalName", "externalName": "localhost"}})).await;
    let answer = client.call(&self::config(&config(port)), &json!({}), SECONDS).await;
    assert_eq!(answer, Ok(json!({"here": true})));
}
