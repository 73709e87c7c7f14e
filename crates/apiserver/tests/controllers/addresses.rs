//! Addresses of Services as IPAddresses, and the ranges they come from.

use super::client::Client;
use http::Method;
use serde_json::{Value, json};
use store::{Expect, KeyRange, Op, Transaction};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const READY: &str = "Kubernetes Service CIDR is ready";

fn service(name: &str, ip: &str) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    if !ip.is_empty() {
        service["spec"]["clusterIP"] = ip.into();
    }
    service
}

fn cidr(name: &str, range: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}})
}

fn condition(cidr: Option<&Value>) -> (String, String) {
    let condition = cidr.map(|own| own["status"]["conditions"][0].clone()).unwrap_or_default();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

async fn ready(client: &Client, name: &str) {
    let is_ready = |own: Option<&Value>| condition(own) == ("True".into(), READY.into());
    let made = client.until(&format!("{CIDRS}/{name}"), "ready", is_ready).await.unwrap();
    assert_eq!(made["metadata"]["finalizers"], json!(["networking.k8s.io/service-cidr-finalizer"]));
}

async fn refused(client: &Client, object: Value) -> String {
    let (code, answer) = client.send(Method::POST, SERVICES, "application/json", object).await;
    assert!(code >= 400, "{answer}");
    answer["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_has_the_ipaddress_of_its_address() {
    let client = Client::in_memory().await;
    let own = client.get(&format!("{ADDRESSES}/10.96.0.1")).await.unwrap();
    let parent = json!({"resource": "services", "namespace": "default", "name": "kubernetes"});
    assert_eq!(own["spec"]["parentRef"], parent);
    assert_eq!(
        own["metadata"]["labels"],
        json!({
            "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        })
    );

    let made = client.create(SERVICES, service("a", "")).await;
    let ip = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(client.get(&format!("{ADDRESSES}/{ip}")).await.is_some());
    client.merge(&format!("{SERVICES}/a"), json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert!(client.get(&format!("{ADDRESSES}/{ip}")).await.is_some());
    client.delete(&format!("{SERVICES}/a"), "").await;
    assert!(client.get(&format!("{ADDRESSES}/{ip}")).await.is_none());

    // A headless one has none, and one that is not stored takes none.
    client.create(SERVICES, service("b", "None")).await;
    client.send(Method::POST, &format!("{SERVICES}?dryRun=All"), "application/json", service("c", "10.96.7.7")).await;
    assert_eq!(client.items(ADDRESSES).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_somebody_else_has_is_not_given() {
    let client = Client::in_memory().await;
    let parent =
        json!({"group": "gateway.networking.k8s.io", "resource": "gateways", "namespace": "default", "name": "g"});
    let taken = json!({"metadata": {"name": "10.96.3.4"}, "spec": {"parentRef": parent}});
    client.create(ADDRESSES, taken).await;
    let message = refused(&client, service("a", "10.96.3.4")).await;
    assert!(message.contains("failed to allocate IP 10.96.3.4: provided IP is already allocated"), "{message}");
    client.delete(&format!("{ADDRESSES}/10.96.3.4"), "").await;
    client.create(SERVICES, service("a", "10.96.3.4")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_comes_back_as_it_was() {
    let client = Client::in_memory().await;
    client.create(SERVICES, service("a", "10.96.3.4")).await;
    let path = format!("{ADDRESSES}/10.96.3.4");
    let first = client.get(&path).await.unwrap()["metadata"]["uid"].clone();
    client.delete(&path, "").await;
    let second = client.until(&path, "back", |own| own.is_some()).await.unwrap()["metadata"]["uid"].clone();
    assert_ne!(first, second);
    client.merge(&path, json!({"metadata": {"labels": null}})).await;
    let again = |own: Option<&Value>| own.is_some_and(|own| own["metadata"]["uid"] != second);
    let third = client.until(&path, "made anew", again).await.unwrap();
    assert_eq!(third["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv4");
    let about = "/api/v1/namespaces/default/events?fieldSelector=reason=ClusterIPNotAllocated,involvedObject.name=a";
    client
        .until(about, "told", |own| own.is_some_and(|own| own["items"].as_array().is_some_and(|own| own.len() == 2)))
        .await;
    // It goes with its Service all the same.
    client.delete(&format!("{SERVICES}/a"), "").await;
    client.gone(&path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_gives_addresses_and_is_held_while_they_are_in_use() {
    let client = Client::in_memory().await;
    ready(&client, "kubernetes").await;
    let message = refused(&client, service("a", "10.222.0.5")).await;
    assert!(message.contains("the provided network does not match the current range"), "{message}");
    client.create(CIDRS, cidr("extra", "10.222.0.0/28")).await;
    ready(&client, "extra").await;
    client.create(SERVICES, service("a", "10.222.0.5")).await;

    let extra = format!("{CIDRS}/extra");
    client.delete(&extra, "").await;
    let waits =
        |own: Option<&Value>| condition(own).1.starts_with("There are still IPAddresses referencing the ServiceCIDR");
    let waiting = client.until(&extra, "waiting", waits).await.unwrap();
    assert_eq!(waiting["status"]["conditions"][0]["status"], "False");
    assert_eq!(waiting["status"]["conditions"][0]["reason"], "Terminating");
    refused(&client, service("b", "10.222.0.6")).await;
    client.delete(&format!("{SERVICES}/a"), "").await;
    client.gone(&extra).await;

    // One whose addresses are all in another one does not wait.
    client.create(CIDRS, cidr("inner", "10.96.5.0/24")).await;
    ready(&client, "inner").await;
    client.create(SERVICES, service("c", "10.96.5.5")).await;
    client.delete(&format!("{CIDRS}/inner"), "").await;
    client.gone(&format!("{CIDRS}/inner")).await;

    // The default one comes back.
    client.create(CIDRS, cidr("all", "10.96.0.0/12")).await;
    ready(&client, "all").await;
    let first = client.get(&format!("{CIDRS}/kubernetes")).await.unwrap()["metadata"]["uid"].clone();
    client.delete(&format!("{CIDRS}/kubernetes"), "").await;
    let anew = |own: Option<&Value>| own.is_some_and(|own| own["metadata"]["uid"] != first);
    client.until(&format!("{CIDRS}/kubernetes"), "made anew", anew).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_before_become_ipaddresses() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).await;
    client.create(SERVICES, service("a", "10.96.3.4")).await;
    let before = "allocations/addresses";
    let ops = ["10.96.0.1", "10.96.3.4"].map(|ip| {
        let owner = if ip == "10.96.3.4" { "default/a" } else { "default/kubernetes" };
        vec![
            Op::put(before, ip, owner.as_bytes().to_vec(), Expect::Absent),
            Op::delete("networking.k8s.io/ipaddresses", ip, Expect::Any),
        ]
    });
    client.0.stop();
    client.0.store().commit(Transaction { ops: ops.concat() }).await.unwrap();
    client.close();
    let client = Client::open(dir.path()).await;
    let own = client.get(&format!("{ADDRESSES}/10.96.3.4")).await.unwrap();
    assert_eq!(own["spec"]["parentRef"]["name"], "a");
    assert!(client.0.store().list(before, KeyRange::all(), None).unwrap().entries.is_empty());
    client.close();
}
