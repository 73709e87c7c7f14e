//! APIServices of what the server has itself.

use super::client::Client;
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str) -> Value {
    let kind = plural.to_uppercase();
    let version = |name: &str, served: bool| {
        json!({
            "name": name, "served": served, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object"}},
        })
    };
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": plural, "kind": kind},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_a_built_in_group_is_a_local_one() {
    let client = Client::in_memory().await;
    let services = client.items(SERVICES).await;
    for service in &services {
        let condition = &service["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"], &condition["reason"]),
            (&json!("Available"), &json!("True"), &json!("Local")),
            "{service}"
        );
        assert_eq!(service["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
    }
    let names: Vec<&str> = services.iter().filter_map(|service| service["metadata"]["name"].as_str()).collect();
    let groups = client.get("/apis").await.expect("groups")["groups"].clone();
    let mut wanted = vec!["v1.".to_owned()];
    for group in groups.as_array().expect("groups") {
        for version in group["versions"].as_array().expect("versions") {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            wanted.push(format!("{}.{}", text(&version["version"]), text(&group["name"])));
        }
    }
    wanted.retain(|name| name != "v1.apiregistration.k8s.io");
    wanted.sort();
    assert_eq!(names, wanted);
    let apps = client.get(&format!("{SERVICES}/v1.apps")).await.expect("there");
    assert_eq!(
        apps["spec"],
        json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_custom_resources_come_and_go_with_their_definitions() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).await;
    let path = format!("{SERVICES}/v1.example.com");
    client.create(DEFINITIONS, definition("as")).await;
    client.create(DEFINITIONS, definition("bs")).await;
    let made = client.until(&path, "made", |own| own.is_some()).await.expect("there");
    assert_eq!(made["spec"]["groupPriorityMinimum"], 1000);
    assert_eq!(made["status"]["conditions"][0]["reason"], "Local");
    assert!(client.get(&format!("{SERVICES}/v2.example.com")).await.is_none(), "it is not served");

    // It is kept as it is, and comes back.
    client.merge(&path, json!({"spec": {"versionPriority": 7}})).await;
    client.until(&path, "as it was", |own| own.is_some_and(|own| own["spec"]["versionPriority"] == 100)).await;
    client.delete(&path, "").await;
    client.until(&path, "back", |own| own.is_some_and(|own| own["metadata"]["uid"] != made["metadata"]["uid"])).await;
    client.delete(&format!("{DEFINITIONS}/as.example.com"), "").await;
    client.gone(&format!("{DEFINITIONS}/as.example.com")).await;
    assert!(client.get(&path).await.is_some(), "another definition has this version");
    client.close();

    // What somebody else made is theirs, and what nobody serves any more goes, also after a restart.
    let client = Client::open(dir.path()).await;
    let theirs = json!({
        "metadata": {"name": "v1.theirs.example.com"},
        "spec": {"group": "theirs.example.com", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10},
    });
    client.create(SERVICES, theirs).await;
    client.delete(&format!("{DEFINITIONS}/bs.example.com"), "").await;
    client.gone(&path).await;
    assert!(client.get(&format!("{SERVICES}/v1.theirs.example.com")).await.is_some());
}
