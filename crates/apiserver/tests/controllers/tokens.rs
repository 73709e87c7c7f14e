//! Secrets that hold tokens of service accounts are filled, and go with their account.

use super::client::Client;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

const BASE: &str = "/api/v1/namespaces/default";
const TYPE: &str = "kubernetes.io/service-account-token";

fn secret(name: &str, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "annotations": annotations}, "type": TYPE})
}

fn of(account: &str) -> Value {
    json!({"kubernetes.io/service-account.name": account})
}

fn text(secret: &Value, key: &str) -> String {
    let data = secret["data"][key].as_str().unwrap_or_default();
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

fn is_whole(secret: Option<&Value>) -> bool {
    secret.is_some_and(|own| ["token", "ca.crt", "namespace"].iter().all(|key| !text(own, key).is_empty()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_has_all_that_its_account_needs() {
    let client = Client::in_memory().await;
    let account = client.create(&format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await;
    let path = format!("{BASE}/secrets/kept");
    client.create(&format!("{BASE}/secrets"), secret("kept", of("robot"))).await;
    let filled = client.until(&path, "whole", is_whole).await.unwrap();
    assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], account["metadata"]["uid"]);
    assert_eq!(
        (text(&filled, "namespace"), text(&filled, "ca.crt")),
        ("default".into(), client.0.pki().ca().to_owned())
    );

    // What is taken away, or is not what it must be, is there again; what is not the controller's stays.
    let token = text(&filled, "token");
    for (patch, same_token) in [
        (json!({"data": {"token": null}}), false),
        (json!({"data": {"ca.crt": "eA==", "mine": "eA=="}}), true),
        (json!({"data": {"namespace": ""}}), true),
    ] {
        let before = text(&client.get(&path).await.unwrap(), "token");
        let changed = client.merge(&path, patch.clone()).await["metadata"]["resourceVersion"].clone();
        let again = client
            .until(&path, "whole again", |own| is_whole(own) && own.unwrap()["metadata"]["resourceVersion"] != changed)
            .await
            .unwrap();
        assert_eq!(text(&again, "ca.crt"), client.0.pki().ca(), "{patch}");
        assert_eq!(text(&again, "namespace"), "default", "{patch}");
        assert_eq!(text(&again, "token") == before, same_token, "{patch}");
    }
    let last = client.get(&path).await.unwrap();
    assert!(text(&last, "mine") == "x" && text(&last, "token") != token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_with_its_account() {
    let client = Client::in_memory().await;
    let accounts = format!("{BASE}/serviceaccounts");
    let secrets = format!("{BASE}/secrets");
    let other =
        json!({"kubernetes.io/service-account.name": "default", "kubernetes.io/service-account.uid": "another"});
    for (name, annotations) in [("of-nobody", of("nobody")), ("of-another", other)] {
        client.create(&secrets, secret(name, annotations)).await;
        client.gone(&format!("{secrets}/{name}")).await;
    }

    let listed = json!([{"name": "one"}, {"name": "other"}]);
    client.create(&accounts, json!({"metadata": {"name": "robot"}, "secrets": listed})).await;
    for (name, account) in [("one", "robot"), ("two", "robot"), ("three", "robot"), ("of-default", "default")] {
        client.create(&secrets, secret(name, of(account))).await;
        client.until(&format!("{secrets}/{name}"), "whole", is_whole).await;
    }
    client.delete(&format!("{secrets}/one"), "").await;
    let robot = format!("{accounts}/robot");
    client.until(&robot, "without it", |own| own.unwrap()["secrets"] == json!([{"name": "other"}])).await;

    client.delete(&robot, "").await;
    client.gone(&format!("{secrets}/two")).await;
    client.gone(&format!("{secrets}/three")).await;
    assert!(client.get(&format!("{secrets}/of-default")).await.is_some());

    // One that is there for the account's name only, from before: the new account has another uid.
    client.create(&accounts, json!({"metadata": {"name": "robot"}})).await;
    client.create(&secrets, secret("two", of("robot"))).await;
    client.until(&format!("{secrets}/two"), "whole", is_whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_nobody_looked_is_made_up_for() {
    let directory = tempfile::tempdir().unwrap();
    let client = Client::open(directory.path()).await;
    let secrets = format!("{BASE}/secrets");
    client.create(&format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await;
    for name in ["kept", "emptied"] {
        client.create(&secrets, secret(name, of("robot"))).await;
        client.until(&format!("{secrets}/{name}"), "whole", is_whole).await;
    }
    let kept = client.get(&format!("{secrets}/kept")).await.unwrap();
    // Its controllers have ended, the server still writes.
    client.0.stop();
    client.merge(&format!("{secrets}/emptied"), json!({"data": {"token": null}})).await;
    client.create(&secrets, secret("new", of("robot"))).await;
    client.create(&secrets, secret("of-nobody", of("nobody"))).await;
    client.close();

    let client = Client::open(directory.path()).await;
    for name in ["emptied", "new"] {
        client.until(&format!("{secrets}/{name}"), "whole", is_whole).await;
    }
    client.gone(&format!("{secrets}/of-nobody")).await;
    assert_eq!(client.get(&format!("{secrets}/kept")).await.unwrap(), kept, "what is whole is left alone");
}

/// Who asks with a token is told so much: the status, the warnings, and what the Secret is labelled with right after.
async fn used(client: &Client, token: &str, path: &str) -> (u16, Vec<String>, Value) {
    let request = Request::get("/api").header("authorization", format!("Bearer {token}"));
    let response = client.0.handle(request.body(Full::new(Bytes::new())).unwrap()).await;
    let warnings = response.headers().get_all("warning").iter().map(|own| own.to_str().unwrap().to_owned()).collect();
    let label = client.get(path).await.unwrap()["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].take();
    (response.status().as_u16(), warnings, label)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_token_is_on_its_secret_before_there_is_an_answer() {
    let client = Client::in_memory().await;
    let today = client.create(&format!("{BASE}/configmaps"), json!({"metadata": {"name": "clock"}})).await;
    let today = Value::from(&today["metadata"]["creationTimestamp"].as_str().unwrap()[..10]);
    let listed = json!([{"name": "listed"}]);
    client.create(&format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "robot"}, "secrets": listed})).await;
    let warned = "299 - \"Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.\"";
    for (name, labels, code, warning) in [
        ("made", json!({}), 200, None),
        ("listed", json!({}), 200, Some(warned)),
        ("revoked", json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}), 401, None),
    ] {
        let mut object = secret(name, of("robot"));
        object["metadata"]["labels"] = labels;
        client.create(&format!("{BASE}/secrets"), object).await;
        let path = format!("{BASE}/secrets/{name}");
        let token = text(&client.until(&path, "whole", is_whole).await.unwrap(), "token");
        for _ in 0..2 {
            let warnings = warning.into_iter().map(str::to_owned).collect();
            assert_eq!(used(&client, &token, &path).await, (code, warnings, today.clone()), "{name}");
        }
    }
}
