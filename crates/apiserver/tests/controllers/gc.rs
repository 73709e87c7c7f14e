//! Garbage collection by owner references: each rule, under load, across restarts.

use std::collections::BTreeSet;

use super::client::{Client, MAPS, at, blocking, map, reference};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

/// Something without an owner goes; when it has gone, everything that was due before it has been looked at.
async fn settle(client: &Client) {
    let lost = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody"});
    for _ in 0..2 {
        client.create(MAPS, map("settle", std::slice::from_ref(&lost))).await;
        client.gone(&at("settle")).await;
    }
}

async fn owner(client: &Client, name: &str) -> Value {
    client.create(MAPS, map(name, &[])).await
}

#[tokio::test(flavor = "multi_thread")]
async fn background_deletion_takes_the_dependents_and_theirs() {
    let client = Client::in_memory().await;
    let top = owner(&client, "top").await;
    let middle = client.create(MAPS, map("middle", &[reference(&top)])).await;
    client.create("/api/v1/namespaces/default/secrets", map("bottom", &[reference(&middle)])).await;
    owner(&client, "bystander").await;
    client.delete(&at("top"), "Background").await;
    client.gone("/api/v1/namespaces/default/secrets/bottom").await;
    assert!(client.get(&at("middle")).await.is_none());
    assert!(client.get(&at("bystander")).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_not_there_is_no_owner() {
    let client = Client::in_memory().await;
    let alive = owner(&client, "alive").await;
    client.create("/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await;
    let elsewhere = client.create("/api/v1/namespaces/other/configmaps", map("elsewhere", &[])).await;
    let with = |change: Value| {
        let mut reference = reference(&alive);
        reference.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        reference
    };
    // The name of the dependent, its owner, whether it stays.
    let cases = [
        ("fine", with(json!({})), true),
        ("other-uid", with(json!({"uid": "00000000-0000-0000-0000-000000000000"})), false),
        ("other-name", with(json!({"name": "nobody"})), false),
        ("other-kind", with(json!({"kind": "Secret"})), false),
        ("unknown-kind", with(json!({"kind": "Unheard", "apiVersion": "example.com/v1"})), true),
        ("unknown-version", with(json!({"apiVersion": "v9"})), true),
        ("other-namespace", reference(&elsewhere), false),
    ];
    for (name, owner, _) in &cases {
        client.create(MAPS, map(name, std::slice::from_ref(owner))).await;
    }
    settle(&client).await;
    for (name, _, stays) in &cases {
        if *stays {
            assert!(client.get(&at(name)).await.is_some(), "{name}");
        } else {
            client.gone(&at(name)).await;
        }
    }
    let events = client.items("/api/v1/namespaces/default/events").await;
    let event = events.iter().find(|event| event["reason"] == "OwnerRefInvalidNamespace").unwrap();
    assert_eq!(event["involvedObject"]["name"], "other-namespace");
    // Outside all namespaces nothing inside one can be an owner; such an object stays, as in Kubernetes.
    let role = json!({"metadata": {"name": "wide", "ownerReferences": [reference(&alive)]}});
    client.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    client.delete(&at("alive"), "").await;
    client.gone(&at("fine")).await;
    settle(&client).await;
    assert!(client.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/wide").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_owners_one_is_enough() {
    let client = Client::in_memory().await;
    let (one, two) = (owner(&client, "one").await, owner(&client, "two").await);
    client.create(MAPS, map("both", &[reference(&one), reference(&two)])).await;
    client.delete(&at("one"), "").await;
    let left = client
        .until(&at("both"), "rid of the lost owner", |own| {
            own.is_none_or(|own| own["metadata"]["ownerReferences"].as_array().is_none_or(|list| list.len() == 1))
        })
        .await
        .unwrap();
    assert_eq!(left["metadata"]["ownerReferences"][0]["name"], "two");
    client.delete(&at("two"), "").await;
    client.gone(&at("both")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_waits_for_blocking_dependents_only() {
    let client = Client::in_memory().await;
    let top = owner(&client, "top").await;
    let held = |name: &str, owner: Value| {
        let mut map = map(name, &[owner]);
        map["metadata"]["finalizers"] = json!(["example.com/hold"]);
        map
    };
    let blocker = client.create(MAPS, held("blocker", blocking(&top))).await;
    client.create(MAPS, held("idler", reference(&top))).await;
    client.create(MAPS, held("leaf", blocking(&blocker))).await;
    client.delete(&at("top"), "Foreground").await;
    for name in ["blocker", "idler", "leaf"] {
        client
            .until(&at(name), "being deleted", |own| own.unwrap()["metadata"].get("deletionTimestamp").is_some())
            .await;
    }
    // What had dependents itself is deleted in the foreground too.
    let finalizers = client.get(&at("blocker")).await.unwrap()["metadata"]["finalizers"].clone();
    assert!(finalizers.as_array().unwrap().iter().any(|own| own == "foregroundDeletion"), "{finalizers}");
    settle(&client).await;
    assert!(client.get(&at("top")).await.is_some());
    client.merge(&at("leaf"), json!({"metadata": {"finalizers": null}})).await;
    client
        .until(&at("blocker"), "without its finalizer", |own| {
            own.unwrap()["metadata"]["finalizers"] == json!(["example.com/hold"])
        })
        .await;
    settle(&client).await;
    assert!(client.get(&at("top")).await.is_some());
    client.merge(&at("blocker"), json!({"metadata": {"finalizers": null}})).await;
    client.gone(&at("top")).await;
    assert!(client.get(&at("idler")).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependent_that_blocks_no_longer_lets_its_owner_go() {
    let client = Client::in_memory().await;
    let top = owner(&client, "top").await;
    let mut held = map("held", &[blocking(&top)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.create(MAPS, held).await;
    client.delete(&at("top"), "Foreground").await;
    client.until(&at("held"), "being deleted", |own| own.unwrap()["metadata"].get("deletionTimestamp").is_some()).await;
    client.merge(&at("held"), json!({"metadata": {"ownerReferences": [reference(&top)]}})).await;
    client.gone(&at("top")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependent_with_another_owner_survives_foreground_deletion() {
    let client = Client::in_memory().await;
    let (one, two) = (owner(&client, "one").await, owner(&client, "two").await);
    client.create(MAPS, map("both", &[blocking(&one), blocking(&two)])).await;
    client.delete(&at("one"), "Foreground").await;
    client.gone(&at("one")).await;
    let left = client.get(&at("both")).await.unwrap();
    assert_eq!(left["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert!(left["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_without_the_owner() {
    let client = Client::in_memory().await;
    let (one, two) = (owner(&client, "one").await, owner(&client, "two").await);
    client.create(MAPS, map("only", &[blocking(&one)])).await;
    client.create(MAPS, map("both", &[reference(&one), reference(&two)])).await;
    client.delete(&at("one"), "Orphan").await;
    client.gone(&at("one")).await;
    settle(&client).await;
    assert!(client.get(&at("only")).await.unwrap()["metadata"].get("ownerReferences").is_none());
    let both = client.get(&at("both")).await.unwrap();
    assert_eq!(both["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependent_made_just_before_is_orphaned_too() {
    let client = Client::in_memory().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    for round in 0..30 {
        let name = format!("owner-{round}");
        let made = owner(&client, &name).await;
        client.create(secrets, map(&name, &[reference(&made)])).await;
        client.delete(&at(&name), "Orphan").await;
    }
    for round in 0..30 {
        client.gone(&at(&format!("owner-{round}"))).await;
    }
    settle(&client).await;
    let orphans = client.items(secrets).await;
    assert_eq!(orphans.iter().filter(|own| own["metadata"].get("ownerReferences").is_none()).count(), 30);
}

/// A dependent is looked at because it is new, just when its owner begins to wait for it: it may have dependents of its own by then.
#[tokio::test(flavor = "multi_thread")]
async fn dependents_made_just_before_are_deleted_in_the_foreground_too() {
    let client = Client::in_memory().await;
    let rounds = stream::iter(0..200).map(|round| {
        let client = client.clone();
        async move {
            let name = |part: &str| format!("{part}-{round}");
            let top = owner(&client, &name("top")).await;
            let mut held = map(&name("middle"), &[blocking(&top)]);
            held["metadata"]["finalizers"] = json!(["example.com/hold"]);
            let middle = client.create(MAPS, held).await;
            client.create(MAPS, map(&name("leaf"), &[blocking(&middle)])).await;
            client.delete(&at(&name("top")), "Foreground").await;
            client.gone(&at(&name("leaf"))).await;
        }
    });
    rounds.buffer_unordered(16).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn circles_go_as_in_kubernetes() {
    for policy in ["Background", "Foreground"] {
        let client = Client::in_memory().await;
        let a = owner(&client, "a").await;
        let b = client.create(MAPS, map("b", &[blocking(&a)])).await;
        let c = client.create(MAPS, map("c", &[blocking(&b)])).await;
        client.merge(&at("a"), json!({"metadata": {"ownerReferences": [blocking(&c)]}})).await;
        settle(&client).await;
        // A circle holds itself.
        assert!(client.get(&at("b")).await.is_some(), "{policy}");
        client.delete(&at("a"), policy).await;
        for name in ["a", "b", "c"] {
            client.gone(&at(name)).await;
        }
        // The smallest circle.
        let own = owner(&client, "own").await;
        client.merge(&at("own"), json!({"metadata": {"ownerReferences": [blocking(&own)]}})).await;
        settle(&client).await;
        assert!(client.get(&at("own")).await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_own_and_are_owned() {
    let client = Client::in_memory().await;
    let crd = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    // A reference that comes before its kind is served waits for it.
    let early = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "thing", "uid": "early"});
    client.create(MAPS, map("early", &[early])).await;
    settle(&client).await;
    assert!(client.get(&at("early")).await.is_some());
    client.create(crds, crd).await;
    client
        .until(&format!("{crds}/things.example.com"), "established", |own| {
            let conditions = own.unwrap()["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|own| own["type"] == "Established" && own["status"] == "True")
        })
        .await;
    client.gone(&at("early")).await;
    let things = "/apis/example.com/v1/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "thing"}});
    let thing = client.create(things, thing).await;
    let mut part = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "part"}});
    part["metadata"]["ownerReferences"] = json!([reference(&thing)]);
    let part = client.create(things, part).await;
    client.create(MAPS, map("piece", &[reference(&part)])).await;
    let mut other = map("other", &[]);
    other["metadata"]["ownerReferences"] = json!([reference(&thing)]);
    client.create(MAPS, other).await;
    client.delete(&format!("{things}/thing"), "").await;
    for path in [format!("{things}/part"), at("piece"), at("other")] {
        client.gone(&path).await;
    }
    // The kind goes with all objects, and what they owned goes too.
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "last"}});
    let thing = client.create(things, thing).await;
    client.create(MAPS, map("piece", &[reference(&thing)])).await;
    client.delete(&format!("{crds}/things.example.com"), "").await;
    client.gone(&at("piece")).await;
}

/// Chains of owners with side branches: `roots` times `depth` objects and as many leaves.
async fn forest(client: &Client, prefix: &str, roots: usize, depth: usize) -> Vec<String> {
    let grow = |root: usize| async move {
        let mut names = Vec::new();
        let mut parent: Option<Value> = None;
        for level in 0..depth {
            let owners: Vec<Value> = parent.iter().map(blocking).collect();
            let name = format!("{prefix}-{root}-{level}");
            let leaf = format!("{name}-leaf");
            let made = client.create(MAPS, map(&name, &owners)).await;
            client.create(MAPS, map(&leaf, &[reference(&made)])).await;
            parent = Some(made);
            names.extend([name, leaf]);
        }
        names
    };
    stream::iter(0..roots).map(grow).buffer_unordered(8).concat().await
}

async fn names(client: &Client) -> BTreeSet<String> {
    let text = |map: &Value| map["metadata"]["name"].as_str().unwrap().to_owned();
    client.items(MAPS).await.iter().map(text).filter(|name| !name.starts_with("kube-")).collect()
}

async fn wait_for(client: &Client, expected: &BTreeSet<String>) {
    for _ in 0..3000 {
        if names(client).await == *expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let names = names(client).await;
    panic!(
        "lingering: {:?}, lost: {:?}",
        names.difference(expected).take(5).collect::<Vec<_>>(),
        expected.difference(&names).take(5).collect::<Vec<_>>()
    );
}

const POLICIES: [&str; 2] = ["Background", "Foreground"];

#[tokio::test(flavor = "multi_thread")]
async fn under_load_nothing_lingers_and_nothing_owned_goes() {
    let client = Client::in_memory().await;
    forest(&client, "drop", 40, 25).await;
    let kept = forest(&client, "keep", 10, 10).await;
    let deleting = stream::iter(0..40).for_each_concurrent(8, |root| {
        let client = client.clone();
        async move { client.delete(&at(&format!("drop-{root}-0")), POLICIES[root % 2]).await }
    });
    // Objects of the same names as those that go are made again meanwhile, with owners that stay.
    let keeper = owner(&client, "keeper").await;
    let again = async {
        for root in 0..40 {
            let name = format!("drop-{root}-3-leaf");
            client.gone(&at(&name)).await;
            client.create(MAPS, map(&name, &[reference(&keeper)])).await;
        }
    };
    futures::join!(deleting, again);
    let mut expected: BTreeSet<String> = kept.into_iter().collect();
    expected.insert("keeper".into());
    expected.extend((0..40).map(|root| format!("drop-{root}-3-leaf")));
    wait_for(&client, &expected).await;
    settle(&client).await;
    assert_eq!(names(&client).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).await;
    let dropped = forest(&client, "drop", 20, 10).await;
    let kept = forest(&client, "keep", 5, 5).await;
    let one = owner(&client, "one").await;
    client.create(MAPS, map("orphan", &[reference(&one)])).await;
    for root in 0..20 {
        client.delete(&at(&format!("drop-{root}-0")), POLICIES[root % 2]).await;
    }
    client.delete(&at("one"), "Orphan").await;
    let mut left = dropped.len();
    let mut client = client;
    for _ in 0..3 {
        client.close();
        client = Client::open(dir.path()).await;
        let now = names(&client).await;
        let lingering = dropped.iter().filter(|name| now.contains(*name)).count();
        assert!(lingering <= left);
        left = lingering;
    }
    let mut expected: BTreeSet<String> = kept.into_iter().collect();
    expected.insert("orphan".into());
    wait_for(&client, &expected).await;
    settle(&client).await;
    assert_eq!(names(&client).await, expected);
    assert!(client.get(&at("orphan")).await.unwrap()["metadata"].get("ownerReferences").is_none());
}
