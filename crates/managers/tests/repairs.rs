//! A claim that lost its resource, or what is behind it, has it again when an administrator repairs that; nothing else heals it.

mod common;

use common::{Cluster, phase_is, target};
use conductor_claims::lifecycle::Target;
use conductor_managers::{Managers, Options};
use http::Method;
use serde_json::{Value, json};

const STORAGE: &str = "storage.conductor.io/v1alpha1";
const RDS: &str = "database.aws.conductor.io/v1alpha1";

/// A database with something behind it, bound to a claim.
async fn bound(ordered: bool) -> (Cluster, Managers, [Target; 3]) {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let managers = cluster.managers(Options { ordered, workers: 4, ..Options::default() }).await;
    let at = [
        target(STORAGE, "RelationalDatabase", "", "precious"),
        target(STORAGE, "RelationalDatabaseClaim", "apps", "db"),
        target(RDS, "RDSInstance", "conductor-system", "precious"),
    ];
    cluster.create(&database()).await;
    cluster
        .create(&json!({"apiVersion": STORAGE, "kind": "RelationalDatabaseClaim", "metadata": {"name": "db", "namespace": "apps"},
            "spec": {"engine": "mysql"}}))
        .await;
    cluster.until(&at[2], "made", |o| o.is_some()).await;
    say_ready(&cluster, &at[2]).await;
    cluster.until(&at[1], "bound", phase_is("Bound")).await;
    (cluster, managers, at)
}

fn database() -> Value {
    json!({
        "apiVersion": STORAGE, "kind": "RelationalDatabase", "metadata": {"name": "precious"},
        "spec": {"engine": "mysql", "capacity": {"storage": "50Gi"}, "reclaimPolicy": "Retain",
            "template": {"apiVersion": RDS, "kind": "RDSInstance", "spec": {"class": "db.t2.small"}}},
    })
}

async fn say_ready(cluster: &Cluster, behind: &Target) {
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]});
    cluster.patch(&behind.clone().status(), json!({"status": ready})).await;
}

/// An object as a backup has it.
fn backup(mut object: Value) -> Value {
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp"] {
        object["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    object
}

async fn check_restored_implementation(ordered: bool) {
    let (cluster, _managers, [database, claim, behind]) = bound(ordered).await;
    let kept = backup(cluster.get(&behind).await.expect("an implementation"));
    cluster.delete(&behind).await;
    cluster.until(&claim, "lost", phase_is("Lost")).await;
    // something else under its name is not it
    let stranger = json!({"apiVersion": RDS, "kind": "RDSInstance", "metadata": {"name": "precious", "namespace": "conductor-system"}, "spec": {"class": "x"}});
    cluster.create(&stranger).await;
    say_ready(&cluster, &behind).await;
    cluster.until(&database, "not its own", |o| o.is_some_and(|o| o["status"]["reason"] == "NameTaken")).await;
    assert!(phase_is("Lost")(cluster.get(&claim).await.as_ref()));
    cluster.delete(&behind).await;
    cluster.create(&kept).await;
    say_ready(&cluster, &behind).await;
    cluster.until(&claim, "healed", phase_is("Bound")).await;
    cluster.until(&database, "healed", phase_is("Bound")).await;
}

async fn check_restored_resource(ordered: bool) {
    let (cluster, _managers, [at, claim, behind]) = bound(ordered).await;
    // removed by force, without its implementation
    let path = cluster.api.path(&at).await.expect("a path");
    while cluster.get(&at).await.is_some() {
        let free = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
        let _ = cluster.api.call(Method::PATCH, &path, "application/merge-patch+json", free).await;
        let _ = cluster.api.call(Method::DELETE, &path, "application/json", Vec::new()).await;
    }
    let gone = cluster.until(&claim, "lost", phase_is("Lost")).await.expect("a claim");
    assert_eq!(gone["status"]["reason"], "ResourceGone");
    assert!(cluster.get(&behind).await.is_some(), "it may hold data, and stays");
    // made anew around what is there
    let mut anew = database();
    anew["spec"]["template"] = Value::Null;
    anew["spec"]["implementationRef"] = json!({"apiVersion": RDS, "kind": "RDSInstance", "name": "precious"});
    cluster.create(&anew).await;
    let healed = cluster.until(&claim, "healed", phase_is("Bound")).await.expect("a claim");
    assert_eq!(healed["spec"]["resourceName"], "precious");
}

async fn check_taken_off(ordered: bool) {
    let (cluster, _managers, [at, claim, _]) = bound(ordered).await;
    // someone takes the claim off it, which does nothing
    let before = cluster.get(&at).await.expect("is there")["metadata"]["resourceVersion"].clone();
    cluster.patch(&at, json!({"spec": {"claimRefs": []}, "metadata": {"finalizers": []}})).await;
    let again = |resource: Option<&Value>| {
        resource
            .is_some_and(|r| r["metadata"]["resourceVersion"] != before && r["spec"]["claimRefs"][0]["name"] == "db")
    };
    let mended = cluster.until(&at, "referring again", again).await.expect("is there");
    assert_eq!(
        (&mended["status"]["phase"], &mended["metadata"]["finalizers"][0]),
        (&json!("Bound"), &json!("conductor.io/resource"))
    );
    // nor does it to apply a reservation again
    let reservation = json!([{"uid": "", "namespace": "apps", "name": "db", "by": "Admin"}]);
    cluster.patch(&at, json!({"spec": {"claimRefs": reservation}})).await;
    let again = |resource: Option<&Value>| {
        resource.is_some_and(|r| r["spec"]["claimRefs"][0]["uid"].as_str().is_some_and(|uid| !uid.is_empty()))
    };
    cluster.until(&at, "referring again", again).await;
    let (resource, claim) = (cluster.get(&at).await.expect("is there"), cluster.get(&claim).await.expect("is there"));
    assert_eq!((&resource["status"]["phase"], &claim["status"]["phase"]), (&json!("Bound"), &json!("Bound")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_behind_is_restored_from_a_backup() {
    check_restored_implementation(false).await;
    check_restored_implementation(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_is_made_anew_under_its_name() {
    check_restored_resource(false).await;
    check_restored_resource(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_not_taken_off_its_resource() {
    check_taken_off(false).await;
    check_taken_off(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_installed_can_be_applied_again_by_others() {
    let cluster = Cluster::start(true).await;
    let _managers = cluster.managers(Options::default()).await;
    let role = target("rbac.authorization.k8s.io/v1", "ClusterRole", "", "conductor:managers");
    let filled =
        |role: Option<&Value>| role.is_some_and(|r| r["rules"].as_array().is_some_and(|rules| !rules.is_empty()));
    cluster.until(&role, "filled by aggregation", filled).await;
    for object in conductor_managers::install::objects().expect("objects") {
        let path = cluster.api.path(&Target::of(&object)).await.expect("a path");
        let path = format!("{path}?fieldManager=kubectl");
        let body = object.to_string().into_bytes();
        let applied = cluster.api.call(Method::PATCH, &path, "application/apply-patch+yaml", body).await;
        applied.unwrap_or_else(|failure| panic!("{failure}: {object}"));
    }
}

/// What an administrator makes of a built-in type stays so when it is installed again, and what is missing comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_type_stays_as_it_was_changed() {
    let cluster = Cluster::start(true).await;
    let at = common::target("conductor.io/v1alpha1", "ResourceType", "", "relationaldatabases.storage.conductor.io");
    let path = cluster.api.path(&at).await.expect("is served");
    let change =
        json!({"spec": {"sharing": {"maxClaims": 7}, "attributes": {"version": null, "own": {"type": "string"}}}});
    let path = format!("{path}?fieldManager=somebody");
    let change = change.to_string().into_bytes();
    cluster.api.call(Method::PATCH, &path, "application/merge-patch+json", change).await.expect("is changed");
    conductor_managers::install::install(&cluster.api).await.expect("is installed again");
    let now = cluster.get(&at).await.expect("is there");
    assert_eq!(now["spec"]["sharing"]["maxClaims"], 7, "{now}");
    assert!(now["spec"]["attributes"]["own"].is_object() && now["spec"]["attributes"]["version"].is_object(), "{now}");
}
