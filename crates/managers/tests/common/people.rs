//! People with certificates of their own, over TLS.

use std::net::SocketAddr;

use conductor_managers::{Options, parties};
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::{Cluster, PATIENCE};

pub const DATABASES: &str = "/apis/storage.conductor.io/v1alpha1";

/// A person at the other end of a TLS connection.
pub struct Person(pub kube::Client);

impl Person {
    pub async fn of(cluster: &Cluster, url: &str, name: &str, group: Option<&str>) -> Person {
        let text = cluster.server().pki().kubeconfig(url, name, group).expect("a certificate");
        let kubeconfig = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
        Person(kube::Client::try_from(config).expect("a client"))
    }

    /// The code and the message or object of an answer.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes.into());
        let response = self.0.send(request.expect("a request")).await.expect("an answer");
        let code = response.status().as_u16();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

/// A cluster with everything, a user of `shop`, both kinds of admin, and a stranger.
pub async fn people() -> (Cluster, [Person; 4]) {
    let cluster = Cluster::start(true).await;
    let mut managers = cluster.managers(Options::default()).await;
    tokio::spawn(async move { managers.run().await });
    for namespace in ["shop", "other"] {
        cluster.namespace(namespace).await;
    }
    let bind = |role: &str, who: &str, namespace: Option<&str>| {
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        let mut meta = json!({"name": format!("{role}:{who}")});
        if let Some(namespace) = namespace {
            meta["namespace"] = namespace.into();
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}],
        })
    };
    for binding in [
        bind(parties::USER, "jane", Some("shop")),
        bind(parties::CLUSTER_ADMIN, "claus", None),
        bind(parties::INFRASTRUCTURE_ADMIN, "ina", Some("conductor-system")),
        bind(parties::INFRASTRUCTURE_VIEW, "ina", None),
    ] {
        cluster.create(&binding).await;
    }
    let listening = cluster.server().listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
    let url = format!("https://{}", listening.address);
    // It listens for as long as the test runs.
    std::mem::forget(listening);
    let people = [
        // In one group, by whose name alone she must not be taken for more than she is.
        Person::of(&cluster, &url, "jane", Some("devs,system:masters")).await,
        Person::of(&cluster, &url, "claus", None).await,
        Person::of(&cluster, &url, "ina", None).await,
        Person::of(&cluster, &url, "stranger", None).await,
    ];
    // The roles gather their rules, and the types their policies, a moment after they are written.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let (user, _) = people[0]
            .send(Method::GET, &format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims"), &Value::Null)
            .await;
        let (admin, _) = people[1].send(Method::GET, &format!("{DATABASES}/relationaldatabases"), &Value::Null).await;
        let kind = cluster
            .api
            .get("conductor.io/v1alpha1", "ResourceType", "", "relationaldatabases.storage.conductor.io")
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        let mut conditions = kind["status"]["conditions"].as_array().into_iter().flatten();
        let guarded = conditions.any(|own| own["type"] == "Ready" && own["status"] == "True");
        if user == 200 && admin == 200 && guarded {
            return (cluster, people);
        }
        assert!(std::time::Instant::now() < deadline, "{user} {admin} {kind}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

pub fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

pub fn database(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClaim", "metadata": {"name": name}, "spec": spec})
}

/// Waits until a resource or claim says a reason in its status or in a condition, and gives its text.
pub async fn said(cluster: &Cluster, object: &conductor_claims::lifecycle::Target, reason: &str) -> String {
    let found = cluster.until(object, reason, |o| o.is_some_and(|o| o["status"].to_string().contains(reason))).await;
    found.map(|o| o["status"].to_string()).unwrap_or_default()
}
